/*
 * Latches: shared/exclusive locks of one 32-bit word over atomics and a
 * replaceable wait (futex on Linux).  (make LATCH=pthread: pthread_rwlock_t, to
 * compare with; LATCH=timed: how long latches are held is measured.)
 *
 *	bit 31      X held
 *	bit 30      someone sleeps
 *	bit 29      a writer waits for the S holders to leave: no new ones come in
 *	bits 0..28  number of S holders
 *
 * Each latch has a rank (rank.def) and an order within the rank.  Every
 * acquisition that may block is checked against what the thread holds; there
 * is no way to silence the checker.  try-acquisitions may go in any direction,
 * since they never wait.  Acquisitions that had to sleep are counted by rank.
 */
#ifndef BLINKFS_BASE_LATCH_H
#define BLINKFS_BASE_LATCH_H

#include "engine/base/os.h"

#ifdef LATCH_PTHREAD
#include <pthread.h>
#endif

enum rank {
#define X(name, may_wait, order) name,
#include "engine/base/rank.def"
#undef X
	RANK_COUNT
};

struct latch {
#ifdef LATCH_PTHREAD
	pthread_rwlock_t lock;
#else
	_Atomic uint32_t word;
#endif
	uint32_t rank;   /* enum rank; constant after latch_init() */
	_Atomic uint64_t order;  /* constant or rising while anybody can acquire it */
};

void latch_init(struct latch *latch, enum rank rank, uint64_t order);
/*
 * Changes the order of a latch that nobody holds or waits for (a frame with a
 * new page), or raises that of one that the caller holds X (a raised root).
 */
void latch_set_order(struct latch *latch, uint64_t order);
/*
 * Lowers the order of a latch that the caller holds X.  Those who wait for it were
 * checked against the old order: the caller knows that none of them holds what
 * somebody who holds this one will wait for (a lowered root: tree_merge.c).
 */
void latch_lower_order(struct latch *latch, uint64_t order);

/* true: not at once, the thread had to sleep. */
bool latch_s(struct latch *latch);
bool latch_x(struct latch *latch);
bool latch_try_s(struct latch *latch);
bool latch_try_x(struct latch *latch);
void unlatch_s(struct latch *latch);
void unlatch_x(struct latch *latch);

/* A latch is released by the thread that acquired it. */
bool latch_held_x(const struct latch *latch); /* by the calling thread */
bool latch_held(const struct latch *latch);   /* S or X, by the calling thread */

bool latch_holds_rank(enum rank rank);        /* the calling thread, any of this rank */

/* Checks that the calling thread holds nothing of `rank` or below it in the table. */
void latch_check_none_from(enum rank rank);

/* The checks of waitq_wait(): nothing held that forbids waiting, no epoch entered. */
void latch_check_may_wait(void);
/* For engine/epoch.c: counts the epochs that the calling thread is inside. */
void latch_note_epoch(int delta);

/* Counters of the whole process, by rank. */
uint64_t latch_wait_count(enum rank rank);
const char *rank_name(enum rank rank);
const char *latch_kind(void); /* "atomic", "pthread" or "timed" */

#ifdef LATCH_TIMED
/*
 * How long a thread has held latches, by rank and within it by `sub`: the level of a
 * RANK_PAGE latch (at most LATCH_SUBS - 1), 1 for the free list of RANK_POOL, the order
 * of a RANK_LEAF latch, else 0.
 */
#define LATCH_SUBS 4u
struct latch_time {
	uint64_t ticks, count;
};
struct latch_times {
	struct latch_time x[RANK_COUNT][LATCH_SUBS], s[RANK_COUNT][LATCH_SUBS];
};
uint64_t latch_clock(void); /* in ticks */
void latch_times_own(struct latch_times *times);  /* of the calling thread, so far */
void latch_times_all(struct latch_times *times);  /* of all threads that ever were */
#endif

#endif
