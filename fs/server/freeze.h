/*
 * Freezing a mount: blinkfs freeze, blinkfs thaw.
 *
 * The volume under it stands still (engine/freeze.h), where a change would keep its
 * thread.  So requests that change something are held back before that:
 *
 *	          freeze_serve()                 freeze_on()
 *	request ----------------> at work ---+   nobody new; waits for those at work
 *	            | frozen                 |   volume_freeze()
 *	            v                        |
 *	          held <---------------------+   freeze_off()
 *	            +-- in order ---> at work    volume_thaw(), then what is held
 *
 * INV-FREEZE-3: while the volume is frozen no thread is in a change, and none is kept
 * by a request that is held: reading goes on, and so does the command that thaws.
 *
 * INV-FREEZE-4: a request that is held was not interrupted: its interrupt, which another
 * worker may have read and served before, is remembered until then.
 *
 * What a read changes besides (its access time) is left out meanwhile: freeze_enter().
 * The kernel holds as many requests as it likes; each is kept as it came, until it is
 * served or its caller is interrupted (EINTR).
 */
#ifndef BLINKFS_SERVER_FREEZE_H
#define BLINKFS_SERVER_FREEZE_H

#include "engine/freeze.h"
#include "fs/server/server.h"

struct freeze;

/* serve: works on a request. */
int freeze_open(struct freeze **out, struct server *server,
		void (*serve)(struct server *server, const struct fuse_buf *request)) must_check;
/* When nobody serves any more: what is still held is dropped, the volume thawed. */
void freeze_end(struct freeze *freeze);
void freeze_close(struct freeze *freeze);

/* Serves a request, now or when it is thawed.  By a worker. */
void freeze_serve(struct freeze *freeze, const struct fuse_buf *request);

/* See volume_freeze().  only_ask: whether it is frozen, -EBUSY. */
int freeze_on(struct freeze *freeze, bool only_ask, char why[FREEZE_TEXT_BYTES]) must_check;
/* -EINVAL: not frozen.  Serves what was held. */
int freeze_off(struct freeze *freeze);

/* A change besides a request's own work: false, not now; true, and freeze_leave() follows. */
bool freeze_enter(struct freeze *freeze) must_check;
void freeze_leave(struct freeze *freeze);
/* The same, for a thread that may be kept until then. */
void freeze_wait_enter(struct freeze *freeze);

struct freeze_state {
	bool frozen;
	unsigned held; /* requests */
};
void freeze_look(struct freeze *freeze, struct freeze_state *state);

#endif
