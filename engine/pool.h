/*
 * Buffer pool: metadata pages in fixed frames.  File data never enters.
 *
 * Life of a frame (the states are in pool_internal.h):
 *
 *	free -> reading -> clean <-> dirty (on the flush list) -> clean -> free
 *	free -> new (no contents yet) -> dirty, at its first change
 *
 * A pinned frame stays where it is; a pin protects no content: latch for that.
 * pool_get() and pool_new() may do I/O and wait, so they are called with no
 * page latch held (checked): an operation pins all that it needs first
 * (INV-MTR-1), and searches let go of a page before they fetch the next.
 *
 * Invariants:
 *	INV-POOL-1  a page leaves the flush list only after the device flush that
 *	            covers its write, and only if it was not changed again
 *	INV-POOL-2  an operation takes tickets for the most pages that it can pin
 *	            before it pins any; tickets and dirty frames together are fewer
 *	            than the frames, so a clean frame can always be found (pool.c
 *	            has the argument)
 *	INV-WAL-1   a page is written only when a durable mark covers its LSN (flush.h)
 */
#ifndef BLINKFS_ENGINE_POOL_H
#define BLINKFS_ENGINE_POOL_H

#include "engine/base/latch.h"
#include "engine/page.h"
#include "log/log.h"

struct volume;
struct pool;

struct frame {
	uint8_t *data;            /* page_size bytes, page-aligned [lock: latch] */
	struct latch latch;       /* its rank and order change only while nobody has a pin */
	_Atomic uint64_t pageno;  /* constant while pinned */
	_Atomic uint32_t pins;    /* [lock: hash shard, S for 0 -> 1, X to evict] */
	_Atomic uint32_t state;   /* enum frame_state */
	_Atomic uint32_t kind;    /* page type and index; constant while pinned */
	int error;                /* why the read failed; constant once state says so */
	/*
	 * Start of the mtr with the page's last REC_PAGE_INIT, as far as this frame knows;
	 * 0 = none.  Only grows while pinned.  [lock: latch X to change]
	 */
	_Atomic lsn_t init_lsn;
	/* [lock: flush list]; writing is set under the latch as well */
	_Atomic lsn_t oldest_lsn; /* start of the oldest change not in place; 0 = clean */
	lsn_t later_lsn;          /* first change since the copy that is being written; 0 = none */
	_Atomic bool writing;     /* a copy is being written */
	_Atomic bool referenced;  /* CLOCK; racy by intent */
	/* Tree pages: where the last insert went, and how many went on in one direction. */
	uint16_t insert_slot;     /* [lock: latch X] */
	int16_t insert_run;       /* > 0 ascending, < 0 descending [lock: latch X] */
	struct frame *flush_prev, *flush_next; /* to older, to newer [lock: flush list] */
	struct frame *hash_next;  /* [lock: hash shard, X to change; or the free list's latch] */
	struct pool *pool;
};

/* -BE_TOOSMALL: fewer than POOL_FRAMES_MIN (pool_internal.h) pages. */
int pool_open(struct pool **out, struct volume *volume, uint64_t cache_bytes) must_check;
void pool_close(struct pool *pool); /* drops everything, dirty or not */

/* Recovery: the log does not tell the index of a page that it only changes. */
#define POOL_ANY_INDEX 0xffu

/*
 * Pins page `pageno`, reading and verifying it when it is not there.
 * type / index: what the caller expects; anything else is corruption
 * (reported through corrupt_at(), returns -EIO).  May be called inside an
 * epoch: it waits for device I/O only, its own or that of another reader.
 */
int pool_get(struct pool *pool, uint64_t pageno, enum page_type type, unsigned index,
	     struct frame **out) must_check;
/*
 * Pins the page's frame if the pool has it and can show it; reads nothing and keeps
 * nobody's place in the pool.  For a backup, which looks at every page once.
 */
bool pool_peek(struct pool *pool, uint64_t pageno, struct frame **out) must_check;
/*
 * Pins page `pageno` if it is in the pool and of that index.  Reads nothing and
 * never waits, so it may be called while page latches are held.
 */
bool pool_try_get(struct pool *pool, uint64_t pageno, enum page_type type, unsigned index,
		  struct frame **out) must_check;
/*
 * Pins a frame for a page that is about to be initialised: nothing is read;
 * when the pool still has a former page of this number, that frame is used.
 * rank/order of its latch follow type, index and level.  A new page that is
 * put without pool_changed() vanishes again.
 */
int pool_new(struct pool *pool, uint64_t pageno, enum page_type type, unsigned index,
	     unsigned level, struct frame **out) must_check;
void pool_pin(struct frame *frame); /* one more pin on a pinned frame */
void pool_put(struct frame *frame);

/*
 * Reads pages that are missing, all at once; best effort.  Errors are ignored
 * (a later pool_get() reports them), and nothing is read while frames are
 * scarce: then it is false.  Never waits for events.
 */
bool pool_prefetch(struct pool *pool, const uint64_t *pagenos, size_t count, enum page_type type,
		   unsigned index);

/* Leaves, bitmap pages and what is pinned for a moment on the way to them. */
#define POOL_TICKETS_MAX (2u * MTR_PAGES_MAX)
/*
 * INV-POOL-2.  May wait for other holders and for the flusher; nothing latched,
 * pinned or held as tickets by the caller, no epoch.  At most POOL_TICKETS_MAX.
 * A holder of n tickets has at any time at most n frames that it pins or has
 * dirtied since it took them.  Tickets are taken before log bytes are reserved:
 * nobody who holds log bytes waits for tickets.
 */
int pool_take_tickets(struct pool *pool, unsigned pages) must_check;
void pool_give_tickets(struct pool *pool, unsigned pages);

/*
 * Puts a changed frame on the flush list, latch held X, before log_listed():
 * start/end are the LSNs of the mtr.  Stamps the page LSN with end.
 */
void pool_changed(struct frame *frame, lsn_t start, lsn_t end);

/*
 * The change with this start replaces the whole page (REC_PAGE_INIT).  Latch held
 * X, before pool_changed().
 */
void pool_initialised(struct frame *frame, lsn_t start);

/* Start LSN of the oldest change that is not in place; UINT64_MAX when all is clean. */
lsn_t pool_oldest_lsn(struct pool *pool);

/*
 * For the flusher.  Fills `out` with up to max dirty frames, pinned, in
 * oldest-first order, whose oldest_lsn < below.
 */
size_t pool_collect_dirty(struct pool *pool, lsn_t below, struct frame **out, size_t max);

struct pool_counts {
	uint64_t frames, dirty, pinned, tickets_free;
};
void pool_count(struct pool *pool, struct pool_counts *counts);

#endif
