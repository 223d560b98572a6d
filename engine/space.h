/*
 * Space: which blocks are free, in memory, over the bitmap pages.
 *
 * Per group (INV-LOB-5): busy = bitmap | reserved | freed but not yet reusable.
 * A reservation is memory only: a crash forgets it.  The bitmap bit is set in
 * the mtr that publishes a use, cleared in the mtr that drops it.
 *
 * INV-LOG-7, reuse: blocks freed by an mtr with end LSN l stay busy until a
 * durable mark covers l and every epoch of that time has passed; those of a
 * metadata page also until the durable checkpoint has passed l (INV-REC-1).
 * The order of a freed run is: deferred -> (conditions) -> free.
 *
 * ENOSPC is answered only after purge, flush, mark and checkpoint were drained.
 * A part of the volume is kept in page-shaped pieces (INV-SPACE-3): about 3 % for
 * metadata pages, which file data never gets, and of that a part for privileged
 * callers (unlink, truncate, purge: those that free space in the end).
 *
 * Page pool: page-shaped reservations kept ready in memory so that a split
 * never waits for the free map; some for the volume, and in front of them some for
 * each index that grows, which a background thread finds.
 */
#ifndef BLINKFS_ENGINE_SPACE_H
#define BLINKFS_ENGINE_SPACE_H

#include "engine/base/limits.h"
#include "log/log.h"

#include <stdbool.h>

struct frame;
struct space;
struct volume;

struct piece {
	uint64_t start;  /* volume block */
	uint32_t length; /* blocks */
};

struct reservation {
	struct piece piece[RESERVE_EXTENTS_MAX];
	unsigned count;
	uint64_t blocks;
};

enum space_flags { SPACE_PRIVILEGED = 1 };

/*
 * Reads the bitmaps of a few groups, whatever the volume's size; others are read when they
 * are wanted (space_load.c).  The log is appending.
 */
int space_open(struct space **out, struct volume *volume) must_check;
void space_close(struct space *space);
/*
 * Blocks in use according to the bitmaps, their own pages left out: of a volume whose
 * log does not know it.  All pages are in place, nothing changes.  Reads all bitmaps.
 */
int space_count_used(struct volume *volume, uint64_t *used) must_check;
/* Could so many be in use in a volume of this size? */
bool space_used_is_possible(const struct volume *volume, uint64_t used);
/* The thread that keeps pages ready for the indexes. */
int space_start(struct space *space) must_check;
void space_stop(struct space *space);

/*
 * Reserves `blocks` (<= WRITE_BLOCKS_MAX) near `hint` (a volume block, or 0):
 * one piece where possible, never more than RESERVE_EXTENTS_MAX pieces in
 * MTR_GROUPS_MAX / 2 groups.  Never waits: -ENOSPC at once.
 */
int space_reserve(struct space *space, uint64_t blocks, uint64_t hint, unsigned flags,
		  struct reservation *out) must_check;
void space_unreserve(struct space *space, const struct reservation *reservation);
/*
 * Called by an operation that got -ENOSPC, holding nothing at all: runs purge,
 * flush, mark and checkpoint.  0: something was freed, or can be read after all: do the
 * whole operation again; -ENOSPC: there is nothing left to wait for.
 */
int space_drain(struct space *space) must_check;
/* Free blocks there are, but in groups whose bitmaps cannot be read: ENOSPC would be wrong. */
bool space_is_unreadable(struct space *space);

/*
 * For the redo log, which may be far longer than a reservation: `blocks` in one
 * run within one group, at `at` exactly when that is not 0.  Like a reservation;
 * space_give_run() gives it back.  One at a time.  -ENOSPC without waiting for more than a
 * step of a trim.
 */
int space_take_run(struct space *space, uint64_t blocks, uint64_t at, uint64_t *start) must_check;
/*
 * The bits of this run are going to be cleared, but its blocks stay taken (neither
 * deferred nor free) until space_give_run(): the caller has another crash to think of.
 */
void space_hold_run(struct space *space, uint64_t start, uint64_t blocks);
/* Its bits are clear: free again at once. */
void space_give_run(struct space *space, uint64_t start, uint64_t blocks, bool was_reserved);

/*
 * A page-shaped reservation from the page pool: 0, or -BE_AGAIN when the pool is
 * empty (then space_refill_pages()).
 */
int space_take_page(struct space *space, unsigned flags, uint64_t hint,
		    uint64_t *pageno) must_check;
/* The same for a page of an index: from its own ready ones first (space_ready.c). */
int space_take_index_page(struct space *space, unsigned index, unsigned level, unsigned flags,
			  uint64_t hint, uint64_t *pageno) must_check;
void space_untake_page(struct space *space, uint64_t pageno);
/* Never waits: 0 or -ENOSPC. */
int space_refill_pages(struct space *space, unsigned flags) must_check;

/* Called by mtr_commit() once bits are changed in the bitmap pages; cannot fail. */
void space_used(struct space *space, uint64_t start, uint64_t count);
void space_freed(struct space *space, uint64_t start, uint64_t count, lsn_t lsn, bool is_page);

/*
 * Moves deferred runs that may now be reused to free; refills the page pool.
 * Called by background threads; never waits.
 */
void space_advance(struct space *space);
/* Is anything deferred whose reuse waits for a mark or checkpoint? */
bool space_has_deferred(struct space *space);

/*
 * Giving free space back to the device (space_trim.c), a bounded step a call.  1: it has
 * found something, go on; 0: there is nothing more; -EOPNOTSUPP: the device cannot; or an
 * error of the device.  May wait; nothing latched.
 */
struct space_trim {
	uint64_t at, end;    /* blocks of the volume; `at` moves on */
	uint32_t shortest;   /* runs of fewer blocks are left out */
	bool stale;          /* only what the device has not been told of (-o discard) */
	uint64_t trimmed;    /* blocks; added to */
};
int space_trim_step(struct space *space, struct space_trim *trim) must_check;
/* Waits for a step that is under way; from then on they are -EBUSY, until it is allowed again. */
void space_trim_forbid(struct space *space, bool forbidden);
struct space_trim_counts {
	bool background;     /* -o discard, and the device can */
	uint64_t in_flight;  /* blocks that the device is being told of */
	uint64_t stale;      /* free blocks that it is still to be told of in the background */
};
void space_trim_count(struct space *space, struct space_trim_counts *counts);

/*
 * INV-LOG-7, the part of archive and backup: what an mtr with an LSN above the
 * hold has freed stays busy until the hold has moved there or is let go.  Never
 * waits; ENOSPC is then the true answer.
 */
enum space_holder { SPACE_HOLD_ARCHIVE, SPACE_HOLD_BACKUP, SPACE_HOLDERS };
#define SPACE_UNHELD UINT64_MAX
void space_hold(struct space *space, enum space_holder who, lsn_t lsn);

struct space_counts {
	uint64_t total;      /* blocks in groups */
	uint64_t free;       /* can be reserved now */
	uint64_t deferred;   /* freed, not yet reusable */
	uint64_t pinned;     /* of deferred: until a backup ends, whoever wants it */
	uint64_t reserved;   /* promised, not yet published */
	uint64_t kept;       /* of what returns: not for file data */
};
void space_count(struct space *space, struct space_counts *counts);
/* What can be had in the end, by a drain if need be. */
static inline uint64_t space_returning(const struct space_counts *counts)
{
	return counts->free + counts->deferred - counts->pinned;
}

/*
 * The volume grows (grow.h).  begin: memory for so many groups, the last step that can
 * fail; nobody sees them yet.  The other: blocks from old_end up to new_end are free, but
 * for the bitmap pages of the new groups.
 */
int space_grow_begin(struct space *space, uint32_t group_count) must_check;
void space_grow(struct space *space, uint64_t old_end, uint64_t new_end);

/* Bitmap page of the group that holds `block`; first block and bit arithmetic. */
uint64_t space_bitmap_page(const struct volume *volume, uint64_t block);
/*
 * Pins it, with a ticket, for who is going to change bits there: INV-SPACE-4.  Nothing
 * of rank bitmap or below is latched.
 */
int space_pin_bitmap(struct volume *volume, uint64_t block, struct frame **out) must_check;

#endif
