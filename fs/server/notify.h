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

/*
 * Sets flags (enum core_flags) and answers the request.  Before a file becomes
 * immutable or append-only, what the kernel holds of earlier writes is written.
 */
void notifier_set_flags(struct notifier *notifier, fuse_req_t req, fuse_ino_t node,
			unsigned flags);

/*
 * Answers SEEK_DATA or SEEK_HOLE, which the kernel passes on without a word of the writes
 * that it holds: they are written first, or new contents would be a hole to cp(1).
 */
void notifier_seek(struct notifier *notifier, fuse_req_t req, fuse_ino_t node, uint64_t offset,
		   int whence);

/*
 * Too many inodes are in memory: has the kernel forget some that it does not use.
 * Only notes that; any thread, with inode locks held.
 */
void notifier_prune(void *notifier);

#endif
