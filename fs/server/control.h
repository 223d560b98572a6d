/*
 * The control directory: .blinkfs in the root.
 *
 * It is found by name but not listed.  Its node ids have VIEW_CONTROL in their
 * high bits; nothing of it is on the volume.
 *
 *	.blinkfs/stats           counters and gauges of the mount, as JSON
 *	.blinkfs/tunables/NAME   "on" or "off"; may be written
 *	.blinkfs/control         takes commands (command.h), from whoever mounted; empty
 */
#ifndef BLINKFS_SERVER_CONTROL_H
#define BLINKFS_SERVER_CONTROL_H

#include "fs/server/server.h"

#define CONTROL_NAME ".blinkfs"

int control_open(struct control **out) must_check;
void control_close(struct control *control); /* NULL is allowed */

/* Is this the name of the control directory? */
bool control_has_name(fuse_ino_t parent, const char *name);

/* These answer requests about nodes of VIEW_CONTROL (look-up: and the directory itself). */
void control_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void control_getattr(fuse_req_t req, fuse_ino_t node);
int control_attr(struct control *control, fuse_ino_t node, struct core_attr *attr) must_check;
void control_read(fuse_req_t req, fuse_ino_t node, size_t len, uint64_t offset);
void control_write(fuse_req_t req, fuse_ino_t node, const char *buf, size_t len, uint64_t offset);
/* The kernel's own truncation and times; anything else is refused. */
void control_setattr(fuse_req_t req, fuse_ino_t node, unsigned set, struct core_attr *attr);
void control_forget(struct control *control, fuse_ino_t node, uint64_t count);
int control_readdir(fuse_ino_t node, uint64_t cookie, core_emit emit, void *arg) must_check;

/* Is this the file that takes commands? */
bool control_takes_commands(fuse_ino_t node);

/* stats.c: the text, to be freed; NULL: no memory. */
char *stats_json(struct server *server);

#endif
