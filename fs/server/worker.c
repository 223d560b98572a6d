/*
 * A worker reads a request, serves it and answers.  An operation may wait (for
 * a flush, for space), so there are up to max_threads of them; but only as
 * many wait for requests as have a use (READERS_MAX).
 *
 *	        request                        done, few readers
 *	reader ---------> busy --------------------------------> reader
 *	                   |      done, enough readers
 *	                   +---------------------------> parked --+
 *	                                                          | woken
 *	                                 reader <-----------------+
 *
 * INV-SRV-1: unless all max_threads are busy, somebody reads: whoever takes
 * the last reader's place away wakes a parked worker or starts a new one.
 * Parking decides again under the lock, so the two cannot miss each other.
 *
 * Threads are POSIX threads here, not os_thread_start(): a reader sleeps in
 * the kernel, from where only a signal gets it back.
 */
#include "fs/server/worker.h"

#include "engine/base/message.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

/*
 * The kernel wakes idle readers in turn, so each one more makes the requests of
 * a single client hop between threads with cold caches.
 */
#define READERS_MAX 2u
#define STOP_SIGNAL SIGUSR1
#define STOP_POLL_NS 2000000
#define SETTLE_POLLS_MAX 1000u /* times STOP_POLL_NS: 2 s; who goes on writing is not waited for */
#define SETTLE_QUIET_POLLS 5u  /* between two requests of one writer there is less */

struct worker {
	struct workers *workers;
	pthread_t thread;
	uint8_t *buffer;
	size_t buffer_bytes;
	bool kill;
};

struct workers {
	struct fuse_session *session;
	unsigned max;
	_Atomic unsigned readers;
	pthread_mutex_t lock;
	pthread_cond_t unpark;
	pthread_cond_t ended;
	unsigned started; /* [lock: lock] elements of worker[] in use */
	unsigned running; /* [lock: lock] not yet returned */
	unsigned parked;  /* [lock: lock] */
	unsigned wakes;   /* [lock: lock] parked workers that were told to read */
	bool stopping;    /* [lock: lock] */
	int error;        /* [lock: lock] why serving ended; 0 = regularly */
	struct worker worker[];
};

static _Thread_local struct worker *self;

/* --- the calling worker -------------------------------------------------- */

void *worker_buffer(size_t len)
{
	if (self->buffer_bytes < len) {
		uint8_t *larger = realloc(self->buffer, len);

		if (!larger)
			return NULL;
		self->buffer = larger;
		self->buffer_bytes = len;
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

static void start_worker_locked(struct workers *workers)
{
	struct worker *worker = &workers->worker[workers->started];

	if (workers->started == workers->max)
		return;
	worker->workers = workers;
	atomic_fetch_add(&workers->readers, 1); /* on its behalf */
	if (pthread_create(&worker->thread, NULL, worker_main, worker) == 0) {
		workers->started++;
		workers->running++;
	} else {
		atomic_fetch_sub(&workers->readers, 1);
	}
}

/* INV-SRV-1: the caller was the last reader and is busy from now on. */
static void replace_reader(struct workers *workers)
{
	pthread_mutex_lock(&workers->lock);
	if (atomic_load(&workers->readers) == 0 && !workers->stopping) {
		if (workers->parked > workers->wakes) {
			workers->wakes++;
			atomic_fetch_add(&workers->readers, 1); /* on its behalf */
			pthread_cond_signal(&workers->unpark);
		} else {
			start_worker_locked(workers);
		}
	}
	pthread_mutex_unlock(&workers->lock);
}

static bool try_become_reader(struct workers *workers)
{
	unsigned readers = atomic_load(&workers->readers);

	while (readers < READERS_MAX)
		if (atomic_compare_exchange_weak(&workers->readers, &readers, readers + 1))
			return true;
	return false;
}

/* Returns as a reader, or with false when serving ends. */
static bool become_reader(struct workers *workers)
{
	bool reader = try_become_reader(workers);

	if (reader)
		return true;
	pthread_mutex_lock(&workers->lock);
	while (!workers->stopping && !(reader = try_become_reader(workers))) {
		workers->parked++;
		while (!workers->stopping && workers->wakes == 0)
			pthread_cond_wait(&workers->unpark, &workers->lock);
		workers->parked--;
		if (workers->wakes > 0) {
			workers->wakes--;
			reader = true;
			break;
		}
	}
	pthread_mutex_unlock(&workers->lock);
	return reader;
}

static void end_serving(struct workers *workers, int error)
{
	pthread_mutex_lock(&workers->lock);
	if (!workers->stopping && error)
		workers->error = error;
	workers->stopping = true;
	pthread_cond_broadcast(&workers->unpark);
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

/* Entered as a reader. */
static void serve(struct workers *workers)
{
	struct fuse_buf request = {0};

	do {
		int n;

		do
			n = fuse_session_receive_buf(workers->session, &request);
		while ((n == -EINTR || n == -EAGAIN) && !fuse_session_exited(workers->session));
		if (atomic_fetch_sub(&workers->readers, 1) == 1 && n > 0)
			replace_reader(workers);
		if (n <= 0) {
			end_serving(workers, n == -EINTR || n == -EAGAIN ? 0 : n);
			break;
		}
		fuse_session_process_buf(workers->session, &request);
	} while (!fuse_session_exited(workers->session) && become_reader(workers));
	end_serving(workers, 0);
	free(request.mem);
}

static void *worker_main(void *arg)
{
	struct worker *worker = arg;
	struct workers *workers = worker->workers;

	self = worker;
	pthread_setname_np(pthread_self(), "blinkfs-worker");
	allow_stop_signal();
	serve(workers);
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

int workers_create(struct workers **out, struct fuse_session *session, unsigned max_threads)
{
	struct sigaction action = {.sa_handler = stop_signal_handler};
	struct workers *workers;

	check(max_threads >= 1);
	workers = calloc(1, sizeof(*workers) + max_threads * sizeof(workers->worker[0]));
	if (!workers)
		return -ENOMEM;
	workers->session = session;
	workers->max = max_threads;
	pthread_mutex_init(&workers->lock, NULL);
	pthread_cond_init(&workers->unpark, NULL);
	pthread_cond_init(&workers->ended, NULL);
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
	struct pollfd poll_fd = {.fd = fuse_session_fd(workers->session), .events = POLLIN};
	bool idle;

	if (poll(&poll_fd, 1, 0) != 0)
		return false;
	pthread_mutex_lock(&workers->lock);
	idle = workers->running ==
	       atomic_load(&workers->readers) + workers->parked - workers->wakes;
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
	pthread_cond_destroy(&workers->unpark);
	pthread_mutex_destroy(&workers->lock);
	free(workers);
}
