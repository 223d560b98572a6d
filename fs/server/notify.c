/* Telling the kernel about its caches: see notify.h. */
#include "fs/server/freeze.h"
#include "fs/server/notify.h"

#include "engine/base/error.h"
#include "engine/base/latch.h"
#include "engine/base/message.h"
#include "fs/server/reply.h"

#include <errno.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <sys/uio.h>

/*
 * What the kernel would not let go of, in use at the time or between two uses, it is
 * asked for again: after this time, then twice that, and so on.
 */
#define PRUNE_AGAIN_NS 250000000ull
#define PRUNE_AGAIN_MAX_NS 64000000000ull

#define PRUNE_BATCH 512u /* what the kernel takes in one piece */

/* FUSE_NOTIFY_PRUNE, of Linux 6.18: spelled out, since no header has it yet. */
enum { RAW_NOTIFY_PRUNE = 9 };
struct raw_prune_out {
	uint32_t count, padding;
	uint64_t spare;
};
static_assert(sizeof(struct raw_prune_out) == 16, "as in the protocol");

struct notifier;

struct job {
	fuse_req_t req;
	fuse_ino_t node;
	void (*run)(struct notifier *n, const struct job *job, bool may_send); /* answers */
	unsigned flags;   /* to be set */
	uint64_t offset;  /* to seek from */
	int whence;
	struct job *next;
};

struct notifier {
	struct server *server;
	struct os_thread thread;
	struct latch latch;        /* RANK_LEAF */
	struct waitq wake;         /* the thread: work, or the end */
	struct waitq sent;         /* who settles */
	struct job *first, **last; /* [lock: latch] each of a request that waits */
	bool settled, ending, busy; /* [lock: latch] */
	bool prune;                 /* wanted [lock: latch] */
	bool cannot_prune;          /* the thread's own, as what follows */
	uint64_t again_ns;          /* 0: few enough, or nothing to be done */
	uint64_t again_at;
};

/* --- jobs ---------------------------------------------------------------- */

/* What the kernel holds of writes from `offset` on reaches us, and then is not cached. */
static void have_written(struct notifier *n, fuse_ino_t node, uint64_t offset)
{
	int rc = fuse_lowlevel_notify_inval_inode(n->server->session, node, (off_t)offset, 0);

	if (rc && rc != -ENOENT)
		message(LOG_WARNING, "inode %llu: the kernel keeps back what was written: %s",
			(unsigned long long)node_ino(node), error_text(rc));
}

static int set_flags(struct notifier *n, const struct job *job, bool may_send)
{
	struct core *core = n->server->core;
	view_t view = node_view(job->node);
	struct core_attr attr;
	int rc = core_getattr(core, view, node_ino(job->node), &attr);
	unsigned held = CORE_FLAG_IMMUTABLE | CORE_FLAG_APPEND;

	if (rc)
		return rc;
	if (may_send && S_ISREG(attr.mode) && job->flags & ~attr.flags & held)
		have_written(n, job->node, 0);
	freeze_wait_enter(n->server->freeze);
	rc = core_set_flags(core, view, node_ino(job->node), job->flags);
	freeze_leave(n->server->freeze);
	if (!rc && may_send)
		(void)!reply_make_attr_stale(n->server, job->node); /* see guard_immutable() */
	return rc;
}

static void run_set_flags(struct notifier *n, const struct job *job, bool may_send)
{
	int rc = set_flags(n, job, may_send);

	if (rc)
		reply_status(job->req, rc);
	else
		fuse_reply_ioctl(job->req, 0, NULL, 0);
}

/* While the mount is frozen no write arrives, so there it is as the volume has it. */
static void run_seek(struct notifier *n, const struct job *job, bool may_send)
{
	struct freeze_state state;
	uint64_t found = 0;
	int rc;

	freeze_look(n->server->freeze, &state);
	if (may_send && !state.frozen)
		have_written(n, job->node, job->offset);
	rc = core_seek(n->server->core, node_view(job->node), node_ino(job->node), job->offset,
		       job->whence, &found);
	if (rc)
		reply_status(job->req, rc);
	else
		fuse_reply_lseek(job->req, (off_t)found);
}

/* --- too many inodes ----------------------------------------------------- */

static int send_prune(struct notifier *n, uint64_t *inos, unsigned count)
{
	struct raw_prune_out prune = {.count = count};
	struct fuse_out_header out = {
		.len = (uint32_t)(sizeof(out) + sizeof(prune) + count * sizeof(*inos)),
		.error = RAW_NOTIFY_PRUNE,
	};
	struct iovec iov[] = {{&out, sizeof(out)}, {&prune, sizeof(prune)},
			      {inos, count * sizeof(*inos)}};

	for (unsigned i = 0; i < count; i++)
		inos[i] = node_id(VIEW_BASE, inos[i]);
	return writev(fuse_session_fd(n->server->session), iov, 3) < 0 ? -errno : 0;
}

/* Twice round at most: the first may only have found what is used. */
static void prune(struct notifier *n)
{
	uint64_t inos[PRUNE_BATCH], left = core_inode_excess(n->server->core);
	unsigned empty = 0;

	while (left > 0 && empty < 2 && !n->cannot_prune) {
		unsigned count = core_idle_inodes(n->server->core, inos,
						  left < PRUNE_BATCH ? (unsigned)left
								     : PRUNE_BATCH);
		int rc = count ? send_prune(n, inos, count) : 0;

		empty += count == 0;
		left -= count;
		n->cannot_prune = rc == -EINVAL;
		if (n->cannot_prune)
			message(LOG_INFO, "this kernel (before 6.18) decides alone how many "
				"inodes it keeps: inode_cache has no effect");
		else if (rc)
			return; /* unmounted */
	}
}

static void prune_again(struct notifier *n)
{
	uint64_t inodes, lookups;

	core_inode_counts(n->server->core, &inodes, &lookups);
	if (n->cannot_prune || inodes <= n->server->options->inode_cache)
		n->again_ns = 0;
	else if (n->again_ns == 0)
		n->again_ns = PRUNE_AGAIN_NS;
	else if (n->again_ns < PRUNE_AGAIN_MAX_NS)
		n->again_ns *= 2;
	n->again_at = os_mono_ns() + n->again_ns;
}

/* --- the thread ---------------------------------------------------------- */

/* The next job; NULL: there is none.  *prune: nor is that, and this may be done. */
static struct job *take(struct notifier *n, bool *may_send, bool *prune)
{
	struct job *job;

	latch_x(&n->latch);
	job = n->first;
	*prune = !job && !n->settled &&
		 (n->prune || (n->again_ns && os_mono_ns() >= n->again_at));
	if (*prune)
		n->prune = false;
	if (job) {
		n->first = job->next;
		if (!n->first)
			n->last = &n->first;
	}
	*may_send = !n->settled; /* INV-NOTIFY-1 */
	n->busy = job || *prune;
	unlatch_x(&n->latch);
	if (!job && !*prune)
		waitq_wake_all(&n->sent);
	return job;
}

static void run(void *arg)
{
	struct notifier *n = arg;

	for (;;) {
		uint32_t ticket = waitq_ticket(&n->wake);
		bool may_send, ending, may_prune;
		struct job *job = take(n, &may_send, &may_prune);
		bool worked = job || may_prune;

		if (job)
			job->run(n, job, may_send);
		free(job);
		if (may_prune) {
			prune(n);
			prune_again(n);
		}
		if (worked)
			continue;
		latch_s(&n->latch);
		ending = n->ending;
		unlatch_s(&n->latch);
		if (ending)
			return;
		waitq_wait(&n->wake, ticket, n->again_ns ? n->again_ns : OS_FOREVER);
	}
}

/* --- life cycle ---------------------------------------------------------- */

int notifier_open(struct notifier **out, struct server *server)
{
	struct notifier *n = calloc(1, sizeof(*n));
	int rc;

	if (!n)
		return -ENOMEM;
	n->server = server;
	n->last = &n->first;
	latch_init(&n->latch, RANK_LEAF, 0);
	rc = os_thread_start(&n->thread, "blinkfs-notify", run, n);
	if (rc) {
		free(n);
		return rc;
	}
	*out = n;
	return 0;
}

void notifier_settle(struct notifier *n)
{
	for (;;) {
		uint32_t ticket = waitq_ticket(&n->sent);
		bool busy;

		latch_x(&n->latch);
		n->settled = true;
		busy = n->busy;
		unlatch_x(&n->latch);
		if (!busy)
			return;
		waitq_wait(&n->sent, ticket, OS_FOREVER);
	}
}

void notifier_stop(struct notifier *n)
{
	if (!n)
		return;
	latch_x(&n->latch);
	n->settled = n->ending = true;
	unlatch_x(&n->latch);
	waitq_wake_all(&n->wake);
	os_thread_join(&n->thread);
}

void notifier_free(struct notifier *n)
{
	free(n);
}

static void submit(struct notifier *n, const struct job *what)
{
	struct job *job = malloc(sizeof(*job));

	if (!job) {
		reply_status(what->req, -ENOMEM);
		return;
	}
	*job = *what;
	latch_x(&n->latch);
	*n->last = job;
	n->last = &job->next;
	unlatch_x(&n->latch);
	waitq_wake_all(&n->wake);
}

void notifier_set_flags(struct notifier *n, fuse_req_t req, fuse_ino_t node, unsigned flags)
{
	const struct job job = {.run = run_set_flags, .req = req, .node = node, .flags = flags};

	submit(n, &job);
}

void notifier_seek(struct notifier *n, fuse_req_t req, fuse_ino_t node, uint64_t offset,
		   int whence)
{
	const struct job job = {
		.run = run_seek,
		.req = req,
		.node = node,
		.offset = offset,
		.whence = whence,
	};

	submit(n, &job);
}

void notifier_prune(void *arg)
{
	struct notifier *n = arg;

	latch_x(&n->latch);
	n->prune = true;
	unlatch_x(&n->latch);
	waitq_wake_all(&n->wake);
}
