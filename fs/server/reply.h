/*
 * From the core's answers to the kernel's.
 *
 * A reply fails only when the connection is gone; then core_close() forgets
 * every look-up that the kernel will not hear of, so results are not needed.
 */
#ifndef BLINKFS_SERVER_REPLY_H
#define BLINKFS_SERVER_REPLY_H

#include "fs/server/server.h"

/* One owner: what the kernel knows stays true until it changes it itself. */
#define CACHE_SECONDS (365.0 * 86400)
#define NODE_GENERATION 1 /* inode numbers are never reused (INV-ID-1) */

/* How long the kernel may keep these attributes. */
double reply_attr_seconds(const struct core_attr *attr);
void reply_entry_fill(view_t view, const struct core_attr *attr, struct fuse_entry_param *entry);

/* rc: 0 or a negative errno; on 0 the answer follows. */
void reply_status(fuse_req_t req, int rc);
void reply_entry(fuse_req_t req, int rc, view_t view, const struct core_attr *attr);
void reply_attr(fuse_req_t req, int rc, view_t view, const struct core_attr *attr);
/* "There is no such name", to be remembered. */
void reply_negative(fuse_req_t req);

/*
 * The kernel shall ask for the attributes again before it relies on them; those of an
 * answer that it has not got yet it does not keep.  That is no breach of INV-LOCK-2:
 * without a range this notification takes no lock in the kernel.  It would wait while
 * the inode is being freed, so somebody has to have a reference to it: whoever asks
 * by a path has, and the file that a WRITE belongs to is open, as its last close()
 * waits for all of its WRITEs.
 */
int reply_make_attr_stale(struct server *server, fuse_ino_t node);

#endif
