/* Telling the kernel about its caches: see notify.h. */
#include "fs/server/notify.h"

#include "engine/base/error.h"
#include "engine/base/latch.h"
#include "engine/base/message.h"
#include "fs/server/reply.h"

#include <errno.h>
#include <stdlib.h>

struct job {
	fuse_req_t req;
	fuse_ino_t node;
	unsigned flags;
	struct job *next;
};

struct notifier {
	struct server *server;
	struct os_thread thread;
	struct latch latch;        /* RANK_LEAF */
	struct waitq wake;         /* the thread: work, or the end */
	struct waitq sent;         /* who settles */
	struct job *first, **last; /* [lock: latch] at most one for each worker */
	bool settled, ending, busy; /* [lock: latch] */
};

/* --- jobs ---------------------------------------------------------------- */

static int set_flags(struct notifier *n, const struct job *job, bool may_send)
{
	struct core *core = n->server->core;
	view_t view = node_view(job->node);
	struct core_attr attr;
	int rc = core_getattr(core, view, node_ino(job->node), &attr);
	unsigned held = CORE_FLAG_IMMUTABLE | CORE_FLAG_APPEND;

	if (rc)
		return rc;
	if (may_send && S_ISREG(attr.mode) && job->flags & ~attr.flags & held) {
		rc = fuse_lowlevel_notify_inval_inode(n->server->session, job->node, 0, 0);
		if (rc && rc != -ENOENT)
			message(LOG_WARNING, "inode %llu: earlier writes may be refused: %s",
				(unsigned long long)node_ino(job->node), error_text(rc));
	}
	return core_set_flags(core, view, node_ino(job->node), job->flags);
}

static void finish(struct notifier *n, struct job *job, bool may_send)
{
	int rc = set_flags(n, job, may_send);

	if (rc)
		reply_status(job->req, rc);
	else
		fuse_reply_ioctl(job->req, 0, NULL, 0);
	free(job);
}

/* The next one; NULL: there is none. */
static struct job *take(struct notifier *n, bool *may_send)
{
	struct job *job;

	latch_x(&n->latch);
	job = n->first;
	if (job) {
		n->first = job->next;
		if (!n->first)
			n->last = &n->first;
	}
	*may_send = !n->settled; /* INV-NOTIFY-1 */
	n->busy = job != NULL;
	unlatch_x(&n->latch);
	if (!job)
		waitq_wake_all(&n->sent);
	return job;
}

static void run(void *arg)
{
	struct notifier *n = arg;

	for (;;) {
		uint32_t ticket = waitq_ticket(&n->wake);
		bool may_send, ending;
		struct job *job = take(n, &may_send);

		if (job) {
			finish(n, job, may_send);
			continue;
		}
		latch_s(&n->latch);
		ending = n->ending;
		unlatch_s(&n->latch);
		if (ending)
			return;
		waitq_wait(&n->wake, ticket, OS_FOREVER);
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

void notifier_close(struct notifier *n)
{
	if (!n)
		return;
	latch_x(&n->latch);
	n->settled = n->ending = true;
	unlatch_x(&n->latch);
	waitq_wake_all(&n->wake);
	os_thread_join(&n->thread);
	free(n);
}

void notifier_set_flags(struct notifier *n, fuse_req_t req, fuse_ino_t node, unsigned flags)
{
	struct job *job = malloc(sizeof(*job));

	if (!job) {
		reply_status(req, -ENOMEM);
		return;
	}
	*job = (struct job){.req = req, .node = node, .flags = flags};
	latch_x(&n->latch);
	*n->last = job;
	n->last = &job->next;
	unlatch_x(&n->latch);
	waitq_wake_all(&n->wake);
}
