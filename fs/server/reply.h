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

void reply_stat_fill(view_t view, const struct core_attr *attr, struct stat *st);
void reply_entry_fill(view_t view, const struct core_attr *attr, struct fuse_entry_param *entry);

/* rc: 0 or a negative errno; on 0 the answer follows. */
void reply_status(fuse_req_t req, int rc);
void reply_entry(fuse_req_t req, int rc, view_t view, const struct core_attr *attr);
void reply_attr(fuse_req_t req, int rc, view_t view, const struct core_attr *attr);
/* "There is no such name", to be remembered. */
void reply_negative(fuse_req_t req);

#endif
