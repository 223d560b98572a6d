/*
 * Locks on ranges of one inode's file blocks, shared or exclusive.
 *
 * A set is a queue in order of arrival that holds both those who have their
 * range and those who wait:
 *
 *	range_lock() -> queued -> granted -> range_unlock()
 *
 *	INV-RANGE-1  an entry is granted exactly when no earlier entry of the queue
 *	             conflicts with it (overlaps, and one of the two is exclusive)
 *	INV-RANGE-2  so the order is FIFO among those who conflict: nobody starves,
 *	             and a waiter waits for earlier arrivals only
 *	INV-RANGE-3  one thread has at most one range lock, and takes it before any
 *	             mini-transaction exists (rank.def); each holder embeds a latch of
 *	             RANK_RANGE, taken X without contention, so that the checker sees it
 */
#ifndef BLINKFS_FS_RANGE_LOCK_H
#define BLINKFS_FS_RANGE_LOCK_H

#include "engine/base/latch.h"

#define RANGE_END UINT64_MAX

struct range_lock_set {
	struct latch latch;             /* RANK_LEAF */
	struct range_lock *head, *tail; /* in order of arrival [lock: latch] */
	uint64_t ino;
};

/* Owned by the caller, on its stack; constant while queued unless noted. */
struct range_lock {
	struct range_lock_set *set; /* NULL: not held */
	uint64_t first, end;        /* blocks [first, end) */
	bool exclusive;
	bool granted;                    /* [lock: set->latch] */
	struct waitq wake;
	struct latch rank;               /* for the checker only */
	struct range_lock *prev, *next;  /* [lock: set->latch] */
};

void range_set_init(struct range_lock_set *set, uint64_t ino);
bool range_set_is_empty(struct range_lock_set *set);

/* May wait.  The caller holds no range lock and nothing below RANK_RANGE. */
void range_lock(struct range_lock_set *set, struct range_lock *lock, uint64_t first, uint64_t end,
		bool exclusive);
/* Does nothing when the lock is not held. */
void range_unlock(struct range_lock *lock);
static inline bool range_covers(const struct range_lock *lock, uint64_t first, uint64_t end)
{
	return lock->set && lock->first <= first && end <= lock->end;
}

#endif
