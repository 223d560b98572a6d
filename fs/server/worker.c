/*
 * A worker reads a request, serves it and answers.  The kernel wakes those who
 * wait for requests in turn, so with many of them the requests of a single
 * client hop between threads and CPUs with cold caches.  Therefore there are
 * few reader's *places*, usually two, and whoever has one keeps it while it
 * serves.  An operation may wait, though (for a flush, for space, for a lock);
 * before it does, its worker hands the place over.
 *
 *	                 done                    +----- done, a place is free ------+
 *	           +--------------+              |                                  |
 *	           v   request    |  may block   v                                  |
 *	       reading ------> serving ------> away --- done, no place free --> parked
 *	           ^    with a place |                                              |
 *	           |                 | a place too many: done ------------------> parked
 *	           +------------------------- called up ------------------------- parked
 *
 * INV-SRV-1: unless all max_threads are busy, somebody reads, or serves and will
 * hand over before it waits: there is a place taken, or else nobody is parked
 * and nobody could be started.  Each change of these happens under the lock,
 * and ends with a check of just that.
 * INV-SRV-2: a worker that may be kept has no place: hand_over() is its hook for
 * os_may_block() (INV-OS-3).
 *
 * How many places there are is demand.c's.
 *
 * Threads are POSIX threads here, not os_thread_start(): a reader sleeps in
 * the kernel, from where only a signal gets it back.
 */
#include "fs/server/worker.h"

#include "engine/base/message.h"
#include "engine/base/os.h"
#include "fs/server/demand.h"

#include <errno.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define STOP_SIGNAL SIGUSR1
#define STOP_POLL_NS 2000000
#define SETTLE_POLLS_MAX 1000u /* times STOP_POLL_NS: 2 s; who goes on writing is not waited for */
#define SETTLE_QUIET_POLLS 5u  /* between two requests of one writer there is less */
#define CACHE_LINE 64u
/* In front of what is written, so that the data itself is aligned and can go on as it lies. */
#define WRITE_HEAD_BYTES (sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in))

struct worker {
	_Alignas(CACHE_LINE) struct workers *workers;
	pthread_t thread;
	uint8_t *buffer;
	size_t buffer_bytes;
	bool kill;
	bool has_place;       /* [lock: lock] changed by its own thread, or for it while parked */
	_Atomic bool serving; /* a request is at work */
	unsigned unlooked;    /* requests since the last look at the queue */
	struct worker *below; /* [lock: lock] parked before this one */
	pthread_cond_t called_up;
};

struct workers {
	struct fuse_session *session;
	workers_serve serve;
	void *serve_arg;
	unsigned max;
	struct demand demand;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	_Atomic unsigned places; /* [lock: lock] taken; looked at without it */
	unsigned started;        /* [lock: lock] elements of worker[] in use */
	unsigned running;        /* [lock: lock] not yet returned */
	struct worker *parked;   /* [lock: lock] the last one in is the first one out: warm */
	bool no_thread;          /* [lock: lock] the last attempt to start one failed */
	bool stopping;           /* [lock: lock] */
	int error;               /* [lock: lock] why serving ended; 0 = regularly */
	struct worker worker[];
};

static _Thread_local struct worker *self;

/* --- the calling worker -------------------------------------------------- */

void *worker_buffer(size_t len)
{
	if (self->buffer_bytes < len) {
		free(self->buffer);
		len = (len + BLOCK_SIZE - 1) / BLOCK_SIZE * BLOCK_SIZE;
		self->buffer = aligned_alloc(BLOCK_SIZE, len);
		self->buffer_bytes = self->buffer ? len : 0;
	}
	return self->buffer;
}

void worker_set_kill(bool kill)
{
	self->kill = kill;
}

bool worker_kill(void)
{
	return self->kill;
}

/* --- who reads ----------------------------------------------------------- */

static void *worker_main(void *arg);

/* INV-SRV-1 */
static void check_somebody_reads_locked(const struct workers *workers)
{
	check(workers->stopping || atomic_load(&workers->places) > 0 ||
	      (!workers->parked && (workers->started == workers->max || workers->no_thread)));
}

static void take_place_locked(struct workers *workers, struct worker *worker)
{
	check(!worker->has_place);
	worker->has_place = true;
	atomic_fetch_add(&workers->places, 1);
}

static void give_place_locked(struct workers *workers, struct worker *worker)
{
	check(worker->has_place && atomic_load(&workers->places) > 0);
	worker->has_place = false;
	atomic_fetch_sub(&workers->places, 1);
}

static void start_worker_locked(struct workers *workers)
{
	struct worker *worker = &workers->worker[workers->started];

	if (workers->started == workers->max)
		return;
	worker->workers = workers;
	take_place_locked(workers, worker);
	workers->no_thread = pthread_create(&worker->thread, NULL, worker_main, worker) != 0;
	if (workers->no_thread) {
		give_place_locked(workers, worker);
		return;
	}
	workers->started++;
	workers->running++;
}

/* One more reads, if there is anybody left who can. */
static void call_up_locked(struct workers *workers)
{
	struct worker *worker = workers->parked;

	if (!worker) {
		start_worker_locked(workers);
		return;
	}
	workers->parked = worker->below;
	take_place_locked(workers, worker);
	pthread_cond_signal(&worker->called_up);
}

/* INV-SRV-2: the worker may be kept from now on.  Called with any latches held. */
static void hand_over(void *arg)
{
	struct worker *worker = arg;
	struct workers *workers = worker->workers;

	if (!worker->has_place)
		return;
	pthread_mutex_lock(&workers->lock);
	give_place_locked(workers, worker);
	if (atomic_load(&workers->places) == 0 && !workers->stopping) {
		demand_missed(&workers->demand);
		call_up_locked(workers);
	}
	check_somebody_reads_locked(workers);
	pthread_mutex_unlock(&workers->lock);
}

static void park_locked(struct workers *workers, struct worker *worker)
{
	worker->below = workers->parked;
	workers->parked = worker;
	check_somebody_reads_locked(workers);
	while (!worker->has_place && !workers->stopping)
		pthread_cond_wait(&worker->called_up, &workers->lock);
}

/* After a request.  Returns with a place, or with false when serving ends. */
static bool come_back(struct worker *worker)
{
	struct workers *workers = worker->workers;
	unsigned wanted = demand_wanted(&workers->demand);

	if (worker->has_place && atomic_load_explicit(&workers->places, memory_order_relaxed) <=
					 wanted)
		return true;
	pthread_mutex_lock(&workers->lock);
	if (worker->has_place && atomic_load(&workers->places) > wanted)
		give_place_locked(workers, worker);
	if (!worker->has_place && atomic_load(&workers->places) < wanted)
		take_place_locked(workers, worker);
	if (!worker->has_place && !workers->stopping)
		park_locked(workers, worker);
	pthread_mutex_unlock(&workers->lock);
	return worker->has_place;
}

static bool queue_is_empty(const struct workers *workers)
{
	struct pollfd queue = {.fd = fuse_session_fd(workers->session), .events = POLLIN};

	return poll(&queue, 1, 0) == 0;
}

/* Does one more reader have a use? */
static void look_at_queue(struct worker *worker)
{
	struct workers *workers = worker->workers;

	if (++worker->unlooked < DEMAND_LOOK_EVERY)
		return;
	worker->unlooked = 0;
	if (!demand_seen(&workers->demand, !queue_is_empty(workers)))
		return;
	pthread_mutex_lock(&workers->lock);
	if (atomic_load(&workers->places) < demand_wanted(&workers->demand) && !workers->stopping)
		call_up_locked(workers);
	pthread_mutex_unlock(&workers->lock);
}

static void end_serving(struct workers *workers, int error)
{
	pthread_mutex_lock(&workers->lock);
	if (!workers->stopping && error)
		workers->error = error;
	workers->stopping = true;
	for (struct worker *worker = workers->parked; worker; worker = worker->below)
		pthread_cond_signal(&worker->called_up);
	pthread_mutex_unlock(&workers->lock);
}

/* --- the thread ---------------------------------------------------------- */

static void allow_stop_signal(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, STOP_SIGNAL);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static int receive(struct workers *workers, struct fuse_buf *request)
{
	int n;

	do
		n = fuse_session_receive_buf(workers->session, request);
	while ((n == -EINTR || n == -EAGAIN) && !fuse_session_exited(workers->session));
	return n == -EINTR || n == -EAGAIN ? 0 : n;
}

/* Entered with a place. */
static void serve(struct worker *worker)
{
	struct workers *workers = worker->workers;
	uint8_t *memory = aligned_alloc(BLOCK_SIZE, BLOCK_SIZE + WORKER_REQUEST_BYTES);
	struct fuse_buf request = {0};
	int n;

	do {
		/* libfuse reads to where it is told. */
		request.mem = memory ? memory + BLOCK_SIZE - WRITE_HEAD_BYTES : NULL;
		n = memory ? receive(workers, &request) : -ENOMEM;
		if (n <= 0)
			break;
		atomic_store_explicit(&worker->serving, true, memory_order_relaxed);
		look_at_queue(worker);
		if (workers->serve)
			workers->serve(workers->serve_arg, &request);
		else
			fuse_session_process_buf(workers->session, &request);
		atomic_store_explicit(&worker->serving, false, memory_order_relaxed);
	} while (!fuse_session_exited(workers->session) && come_back(worker));
	end_serving(workers, n < 0 ? n : 0);
	free(memory);
}

static void *worker_main(void *arg)
{
	struct worker *worker = arg;
	struct workers *workers = worker->workers;

	self = worker;
	pthread_setname_np(pthread_self(), "blinkfs-worker");
	allow_stop_signal();
	os_set_block_hook(hand_over, worker);
	serve(worker);
	os_set_block_hook(NULL, NULL);
	free(worker->buffer);
	pthread_mutex_lock(&workers->lock);
	workers->running--;
	pthread_cond_broadcast(&workers->ended);
	pthread_mutex_unlock(&workers->lock);
	return NULL;
}

/* --- all of them --------------------------------------------------------- */

static void stop_signal_handler(int signal)
{
	(void)signal; /* only makes read() return */
}

int workers_create(struct workers **out, struct fuse_session *session, unsigned max_threads,
		   workers_serve serve, void *serve_arg)
{
	struct sigaction action = {.sa_handler = stop_signal_handler};
	struct workers *workers;
	size_t bytes;

	check(max_threads >= 1);
	bytes = sizeof(*workers) + max_threads * sizeof(workers->worker[0]);
	workers = aligned_alloc(_Alignof(struct workers), bytes);
	if (!workers)
		return -ENOMEM;
	memset(workers, 0, bytes);
	workers->session = session;
	workers->serve = serve;
	workers->serve_arg = serve_arg;
	workers->max = max_threads;
	pthread_mutex_init(&workers->lock, NULL);
	pthread_cond_init(&workers->ended, NULL);
	for (unsigned i = 0; i < max_threads; i++)
		pthread_cond_init(&workers->worker[i].called_up, NULL);
	demand_init(&workers->demand, max_threads);
	sigaction(STOP_SIGNAL, &action, NULL);
	*out = workers;
	return 0;
}

int workers_run(struct workers *workers)
{
	int error;

	pthread_mutex_lock(&workers->lock);
	start_worker_locked(workers);
	if (workers->started == 0)
		workers->error = -EAGAIN;
	while (workers->running > 0)
		pthread_cond_wait(&workers->ended, &workers->lock);
	error = workers->error;
	pthread_mutex_unlock(&workers->lock);
	for (unsigned i = 0; i < workers->started; i++)
		pthread_join(workers->worker[i].thread, NULL);
	return error;
}

static void pause_a_little(void)
{
	const struct timespec pause = {.tv_nsec = STOP_POLL_NS};

	nanosleep(&pause, NULL);
}

static bool is_quiet(struct workers *workers)
{
	bool idle = queue_is_empty(workers);

	pthread_mutex_lock(&workers->lock);
	for (unsigned i = 0; i < workers->started; i++)
		idle = idle && !atomic_load(&workers->worker[i].serving);
	pthread_mutex_unlock(&workers->lock);
	return idle;
}

void workers_settle(struct workers *workers)
{
	unsigned quiet = 0;

	for (unsigned i = 0; i < SETTLE_POLLS_MAX && quiet < SETTLE_QUIET_POLLS; i++) {
		quiet = is_quiet(workers) ? quiet + 1 : 0;
		pause_a_little();
	}
}

void workers_stop(struct workers *workers)
{
	bool running = true;

	fuse_session_exit(workers->session);
	end_serving(workers, 0);
	/* A signal between the look at the exit flag and read() is lost: so again and again. */
	while (running) {
		pthread_mutex_lock(&workers->lock);
		running = workers->running > 0;
		for (unsigned i = 0; running && i < workers->started; i++)
			pthread_kill(workers->worker[i].thread, STOP_SIGNAL);
		pthread_mutex_unlock(&workers->lock);
		pause_a_little();
	}
}

void workers_free(struct workers *workers)
{
	if (!workers)
		return;
	pthread_cond_destroy(&workers->ended);
	for (unsigned i = 0; i < workers->max; i++)
		pthread_cond_destroy(&workers->worker[i].called_up);
	pthread_mutex_destroy(&workers->lock);
	free(workers);
}

void worker_lend(struct workers *workers, void (*fn)(void *arg), void *arg)
{
	struct worker lent = {.workers = workers}, *own = self;

	self = &lent;
	fn(arg);
	self = own;
	free(lent.buffer);
}
