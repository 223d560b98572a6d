/*
 * The server: a FUSE mount over the file system core.  Only this folder knows
 * libfuse.
 *
 *	/dev/fuse -> worker.c (threads) -> rawinit.c, rawops.c (what libfuse does not know)
 *	          -> ops_*.c (one function per operation) -> fs/core.h
 *	                                                  -> control.c (.blinkfs)
 *
 * The server keeps no state per open file: a node id is an inode number with
 * the view in its high bits, and OPEN, OPENDIR and FLUSH are left
 * unimplemented, so that the kernel does not even send them; but OPEN, on a
 * volume with immutable or append-only files.  What the kernel has looked up is
 * counted by the core.
 *
 * The volume has one owner, so the kernel may cache names and attributes for
 * as long as it likes.
 */
#ifndef BLINKFS_SERVER_SERVER_H
#define BLINKFS_SERVER_SERVER_H

#define FUSE_USE_VERSION 314

#include "fs/core.h"
#include "fs/server/options.h"

#include <fuse_lowlevel.h>
#include <unistd.h>

struct backup_service;
struct control;
struct freeze;
struct notifier;
struct scrub_service;
struct workers;

struct server {
	const struct server_options *options;
	struct volume *volume;
	struct core *core;
	struct control *control;
	struct backup_service *backup;
	struct freeze *freeze;
	struct notifier *notifier;
	bool answers_open; /* there are inodes whose flags an open has to mind */
	struct scrub_service *scrub;
	struct fuse_session *session;
	struct workers *workers;
	_Atomic uint64_t most_inodes;    /* in memory, since they were last forgotten */
	bool asks_before_write;          /* the kernel, when attributes are stale (init.c) */
	struct raw_init {                /* rawinit.c */
		_Atomic uint64_t unique; /* of the INIT request to be answered; 0 = none */
		uint32_t offered;        /* its flags [lock: before unique is set] */
	} init;
	void (*on_live)(void *arg); /* called once, when the kernel has got the INIT reply */
	void *on_live_arg;
};

extern const struct fuse_lowlevel_ops server_ops;

static inline struct server *req_server(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static inline struct core *req_core(fuse_req_t req)
{
	return req_server(req)->core;
}

/* Does root ask, or who runs the server?  They could read the image itself, and stop it. */
static inline bool req_is_owner(fuse_req_t req)
{
	uid_t uid = fuse_req_ctx(req)->uid;

	return uid == 0 || uid == geteuid();
}

/* ---------------------------------------------------------------- node ids */

static_assert(INO_ROOT == FUSE_ROOT_ID, "the root's node id is its inode number");

#define VIEW_CONTROL 0xffffu /* the control directory's: no view of the volume */

static inline view_t node_view(fuse_ino_t node)
{
	return (view_t)(node >> INO_BITS);
}

static inline uint64_t node_ino(fuse_ino_t node)
{
	return node & ((1ull << INO_BITS) - 1);
}

static inline fuse_ino_t node_id(view_t view, uint64_t ino)
{
	return (uint64_t)view << INO_BITS | ino;
}

#endif
