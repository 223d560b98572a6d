/*
 * Purge: reclaims, in the background, what operations only detached.
 *
 * Work is recorded in the purge index by the mtr that detaches something
 * (INV-LOB-2), so a crash loses none of it.  Purge reads index pages only,
 * never a data block: extents tell which bits to clear.
 *
 * INV-LOB-3: clearing bits and shrinking (or deleting) the purge record happen
 * in one bounded mtr, so that a block is freed exactly once.
 * INV-LOCK-3: inodes are only try-locked; what is busy is skipped for now.
 */
#ifndef BLINKFS_ENGINE_PURGE_H
#define BLINKFS_ENGINE_PURGE_H

#include "engine/mtr.h"

struct purge;

/* The core's say in it.  Without hooks every claim succeeds (recovery, tools). */
struct purge_hooks {
	/*
	 * Try-locks inode `ino` X.  false, come back later: it is locked, or it has
	 * no name but is still in use (open, looked up).  One that has a name is
	 * only worked on for its dead range, which use does not forbid.
	 */
	bool (*claim)(void *arg, uint64_t ino);
	void (*release)(void *arg, uint64_t ino, bool gone);
	void *arg;
};

int purge_open(struct purge **out, struct volume *volume) must_check;
int purge_start(struct purge *purge) must_check; /* background thread */
void purge_stop(struct purge *purge);
void purge_close(struct purge *purge);
void purge_set_hooks(struct purge *purge, const struct purge_hooks *hooks);

/*
 * How far purge is behind: records that wait, those of files that are removed but
 * in use among them.
 */
uint64_t purge_lag(const struct volume *volume);
/*
 * For who is about to detach something, holding nothing: while purge is more than
 * PURGE_LAG_MAX records behind, what is in use apart, this waits for it a little.  So
 * no load outruns purge for long, and none is stopped by one that cannot go on.
 */
#define PURGE_LAG_MAX 65536u /* a second's work or two */
void purge_pace(struct volume *volume);

/*
 * For who is about to count what is free, holding nothing: what was detached before, and
 * is not in use, has been reclaimed, unless that takes longer than CATCH_UP_NS.
 */
void purge_catch_up(struct volume *volume);

/* There may be work; never waits. */
void purge_kick(struct purge *purge);
/*
 * Works until nothing claimable is left.  *worked (may be NULL): whether
 * anything was reclaimed.  May wait; nothing latched, no inode lock held.
 */
int purge_drain(struct purge *purge, bool *worked) must_check;

/*
 * Stages a purge record inside an operation's mtr; the key is from
 * id_take(COUNTER_PURGE) and was wanted before.
 */
void purge_want(struct mtr *m, uint64_t key);
void purge_stage(struct mtr *m, uint64_t key, enum purge_kind kind, uint64_t ino, uint64_t lob,
		 uint64_t first, uint64_t end);

/*
 * Takes the purge record of an orphan back, in the latched leaves: it gets a name.
 * Corruption when there is no such record.
 */
int purge_take_back(struct mtr *m, uint64_t key, uint64_t ino) must_check;

/*
 * Frees the pending dead range of an inode by bounded mtrs (a writer has to
 * drain it first, INV-LOB-2).  The caller holds the inode's range lock over it.
 */
int purge_dead_range(struct volume *volume, uint64_t ino) must_check;

#endif
