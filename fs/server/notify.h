/*
 * A thread of its own that tells the kernel what to do with its caches: no
 * worker may (INV-LOCK-2), since the kernel may wait for other requests meanwhile.
 *
 *	INV-NOTIFY-1  nothing is sent once notifier_settle() has been called: from then
 *	              on there may be no workers left to answer what the kernel asks
 *	INV-NOTIFY-2  each request that was handed over is answered, sent or not
 */
#ifndef BLINKFS_SERVER_NOTIFY_H
#define BLINKFS_SERVER_NOTIFY_H

#include "fs/server/server.h"

int notifier_open(struct notifier **out, struct server *server) must_check;
/* Waits for what is being sent.  Workers have to be there. */
void notifier_settle(struct notifier *notifier);
/* Settled, every request answered, the thread gone; NULL is allowed. */
void notifier_stop(struct notifier *notifier);
/* When the core is closed, which may have called notifier_prune() until then. */
void notifier_free(struct notifier *notifier);

/* The head of a request that the thread answers, with all that it needs. */
struct notifier_job {
	/* Answers it and frees the job.  may_send: see INV-NOTIFY-1. */
	void (*run)(struct server *server, struct notifier_job *job, bool may_send);
	struct notifier_job *next; /* the notifier's */
};
void notifier_hand_over(struct notifier *notifier, struct notifier_job *job);

/*
 * By a job that may send: has the kernel write what it holds of the range (len 0: to
 * the end) and forget the rest of it.  0 when it holds nothing at all.
 */
int notify_write_back(struct server *server, fuse_ino_t node, uint64_t offset,
		      uint64_t len) must_check;

/*
 * Too many inodes are in memory: has the kernel forget some that it does not use.
 * Only notes that; any thread, with inode locks held.
 */
void notifier_prune(void *notifier);

#endif
