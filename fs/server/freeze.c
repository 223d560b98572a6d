/*
 * See freeze.h.
 */
#include "fs/server/freeze.h"

#include "engine/base/os.h"
#include "fs/server/rawops.h"
#include "fs/server/worker.h"

#include <errno.h>
#include <linux/fs.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * Interrupts whose requests were not held when they came.  Those that are still on
 * their way to be held are at most as many as there are workers, and each request is
 * interrupted once; what is older names requests that are gone, and does no harm, since
 * their numbers do not come again.
 */
#define EARLY_MAX (THREADS_MAX / 2) /* -o max_threads */

struct held {
	struct held *next;
	bool kill; /* worker_kill() of it */
	size_t len;
	uint8_t request[];
};

struct freeze {
	struct server *server;
	void (*serve)(struct server *server, const struct fuse_buf *request);
	pthread_mutex_t commands;   /* freeze_on() and freeze_off(), whole */
	pthread_mutex_t lock;       /* a leaf */
	pthread_cond_t quiet, opened;
	_Atomic unsigned changing;  /* requests at work that change something */
	_Atomic bool closed;        /* [lock: lock] nobody enters; looked at without it */
	bool frozen;                /* [lock: commands] */
	struct held *first, **last; /* [lock: lock] as they came */
	unsigned held;              /* [lock: lock] */
	uint64_t early[EARLY_MAX];  /* [lock: lock] a ring; 0: nothing */
	unsigned early_next;        /* [lock: lock] */
};

/* ---------------------------------------------------------- who changes what */

static bool changes_flags(const struct fuse_buf *request)
{
	const uint8_t *body = (const uint8_t *)request->mem + sizeof(struct fuse_in_header);
	struct fuse_ioctl_in ioctl;

	if (request->size < sizeof(struct fuse_in_header) + sizeof(ioctl))
		return false;
	memcpy(&ioctl, body, sizeof(ioctl));
	return ioctl.cmd == FS_IOC_SETFLAGS || ioctl.cmd == FS_IOC_FSSETXATTR;
}

static bool is_change(const struct fuse_buf *request)
{
	struct fuse_in_header header, *in = &header;

	memcpy(in, request->mem, sizeof(*in));
	if (node_view(in->nodeid) == VIEW_CONTROL)
		return false;
	switch (in->opcode) {
	case FUSE_SETATTR:
	case FUSE_SYMLINK:
	case FUSE_MKNOD:
	case FUSE_MKDIR:
	case FUSE_UNLINK:
	case FUSE_RMDIR:
	case FUSE_RENAME:
	case FUSE_RENAME2:
	case FUSE_LINK:
	case FUSE_WRITE:
	case FUSE_SETXATTR:
	case FUSE_REMOVEXATTR:
	case FUSE_CREATE:
	case FUSE_FALLOCATE:
	case FUSE_COPY_FILE_RANGE:
	case RAW_TMPFILE:
	case FUSE_FORGET: /* writes an access time that was kept */
	case FUSE_BATCH_FORGET:
		return true;
	case FUSE_IOCTL:
		return changes_flags(request);
	default:
		return false;
	}
}

bool freeze_enter(struct freeze *freeze)
{
	atomic_fetch_add(&freeze->changing, 1);
	if (!atomic_load(&freeze->closed))
		return true;
	freeze_leave(freeze);
	return false;
}

void freeze_leave(struct freeze *freeze)
{
	if (atomic_fetch_sub(&freeze->changing, 1) > 1 || !atomic_load(&freeze->closed))
		return;
	pthread_mutex_lock(&freeze->lock);
	pthread_cond_broadcast(&freeze->quiet);
	pthread_mutex_unlock(&freeze->lock);
}

void freeze_wait_enter(struct freeze *freeze)
{
	while (!freeze_enter(freeze)) {
		os_may_block();
		pthread_mutex_lock(&freeze->lock);
		while (atomic_load(&freeze->closed))
			pthread_cond_wait(&freeze->opened, &freeze->lock);
		pthread_mutex_unlock(&freeze->lock);
	}
}

/* -------------------------------------------------------------- holding back */

static uint64_t unique_of(const struct held *held)
{
	struct fuse_in_header in;

	memcpy(&in, held->request, sizeof(in));
	return in.unique;
}

/* Its interrupt has come before it.  Holds the lock. */
static bool is_given_up_locked(struct freeze *freeze, uint64_t unique)
{
	for (unsigned i = 0; i < EARLY_MAX; i++)
		if (freeze->early[i] == unique) {
			freeze->early[i] = 0;
			return true;
		}
	return false;
}

/* False: it may go to work, after all; or there is no memory, and it keeps its thread. */
static bool hold(struct freeze *freeze, const struct fuse_buf *request)
{
	struct held *held = malloc(sizeof(*held) + request->size);
	bool closed, given_up = false;

	if (!held)
		return false;
	*held = (struct held){.kill = worker_kill(), .len = request->size};
	memcpy(held->request, request->mem, request->size);
	os_point("freeze:hold");
	pthread_mutex_lock(&freeze->lock);
	closed = atomic_load(&freeze->closed);
	if (closed)
		given_up = is_given_up_locked(freeze, unique_of(held));
	if (closed && !given_up) {
		*freeze->last = held;
		freeze->last = &held->next;
		freeze->held++;
	}
	pthread_mutex_unlock(&freeze->lock);
	if (given_up)
		rawops_refuse(freeze->server, unique_of(held), -EINTR);
	if (!closed || given_up)
		free(held);
	return closed;
}

/* None: it is noted that it was asked for (INV-FREEZE-4). */
static struct held *take(struct freeze *freeze, uint64_t unique)
{
	struct held *held, **at = &freeze->first;

	pthread_mutex_lock(&freeze->lock);
	while (*at && unique_of(*at) != unique)
		at = &(*at)->next;
	held = *at;
	if (held) {
		*at = held->next;
		if (!held->next)
			freeze->last = at;
		freeze->held--;
	} else {
		freeze->early[freeze->early_next++ % EARLY_MAX] = unique;
	}
	pthread_mutex_unlock(&freeze->lock);
	return held;
}

/* Whoever waits with a request that is held may give up; Linux would not let him by itself. */
static bool is_interrupt_of_held(struct freeze *freeze, const struct fuse_buf *request)
{
	struct fuse_interrupt_in interrupt;
	struct fuse_in_header in;
	struct held *held;

	memcpy(&in, request->mem, sizeof(in));
	if (in.opcode != FUSE_INTERRUPT || request->size < sizeof(in) + sizeof(interrupt))
		return false;
	memcpy(&interrupt, (const uint8_t *)request->mem + sizeof(in), sizeof(interrupt));
	held = take(freeze, interrupt.unique);
	if (!held)
		return false;
	rawops_refuse(freeze->server, interrupt.unique, -EINTR);
	free(held);
	return true;
}

void freeze_serve(struct freeze *freeze, const struct fuse_buf *request)
{
	if (is_interrupt_of_held(freeze, request))
		return;
	if (!is_change(request)) {
		freeze->serve(freeze->server, request);
		return;
	}
	if (!freeze_enter(freeze)) {
		if (hold(freeze, request))
			return;
		freeze_wait_enter(freeze);
	}
	freeze->serve(freeze->server, request);
	freeze_leave(freeze);
}

static struct held *take_first(struct freeze *freeze)
{
	struct held *held;

	pthread_mutex_lock(&freeze->lock);
	held = freeze->first;
	if (held) {
		freeze->first = held->next;
		freeze->held--;
		if (!freeze->first)
			freeze->last = &freeze->first;
	}
	pthread_mutex_unlock(&freeze->lock);
	return held;
}

static void serve_held(void *arg)
{
	struct freeze *freeze = arg;
	struct held *held;

	while ((held = take_first(freeze)) != NULL) {
		const struct fuse_buf request = {.mem = held->request, .size = held->len};

		worker_set_kill(held->kill);
		freeze_serve(freeze, &request);
		free(held);
	}
}

/* ------------------------------------------------------------------ commands */

/* From here on nobody enters; returns when nobody is at work. */
static void close_gate(struct freeze *freeze)
{
	pthread_mutex_lock(&freeze->lock);
	atomic_store(&freeze->closed, true);
	while (atomic_load(&freeze->changing) > 0)
		pthread_cond_wait(&freeze->quiet, &freeze->lock);
	pthread_mutex_unlock(&freeze->lock);
}

static void open_gate(struct freeze *freeze)
{
	pthread_mutex_lock(&freeze->lock);
	atomic_store(&freeze->closed, false);
	pthread_cond_broadcast(&freeze->opened);
	pthread_mutex_unlock(&freeze->lock);
	worker_lend(freeze->server->workers, serve_held, freeze);
}

int freeze_on(struct freeze *freeze, bool only_ask, char why[FREEZE_TEXT_BYTES])
{
	int rc = 0;

	os_may_block();
	pthread_mutex_lock(&freeze->commands);
	if (freeze->frozen) {
		snprintf(why, FREEZE_TEXT_BYTES, "it is frozen already");
		rc = -EBUSY;
	}
	if (rc || only_ask)
		goto out;
	close_gate(freeze);
	rc = volume_freeze(freeze->server->volume, why);
	freeze->frozen = rc == 0;
	if (rc)
		open_gate(freeze);
out:
	pthread_mutex_unlock(&freeze->commands);
	return rc;
}

int freeze_off(struct freeze *freeze)
{
	int rc = 0;

	os_may_block();
	pthread_mutex_lock(&freeze->commands);
	if (freeze->frozen) {
		volume_thaw(freeze->server->volume);
		freeze->frozen = false;
		open_gate(freeze);
	} else {
		rc = -EINVAL;
	}
	pthread_mutex_unlock(&freeze->commands);
	return rc;
}

void freeze_look(struct freeze *freeze, struct freeze_state *state)
{
	pthread_mutex_lock(&freeze->lock);
	*state = (struct freeze_state){
		.frozen = atomic_load(&freeze->server->volume->frozen),
		.held = freeze->held,
	};
	pthread_mutex_unlock(&freeze->lock);
}

/* ------------------------------------------------------------- open and close */

int freeze_open(struct freeze **out, struct server *server,
		void (*serve)(struct server *server, const struct fuse_buf *request))
{
	struct freeze *freeze = calloc(1, sizeof(*freeze));

	if (!freeze)
		return -ENOMEM;
	freeze->server = server;
	freeze->serve = serve;
	freeze->last = &freeze->first;
	pthread_mutex_init(&freeze->commands, NULL);
	pthread_mutex_init(&freeze->lock, NULL);
	pthread_cond_init(&freeze->quiet, NULL);
	pthread_cond_init(&freeze->opened, NULL);
	*out = freeze;
	return 0;
}

void freeze_end(struct freeze *freeze)
{
	struct held *held;

	while ((held = take_first(freeze)) != NULL)
		free(held);
	(void)freeze_off(freeze); /* INV-FREEZE-2 */
}

void freeze_close(struct freeze *freeze)
{
	if (!freeze)
		return;
	pthread_cond_destroy(&freeze->opened);
	pthread_cond_destroy(&freeze->quiet);
	pthread_mutex_destroy(&freeze->lock);
	pthread_mutex_destroy(&freeze->commands);
	free(freeze);
}
