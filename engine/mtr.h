/*
 * Mini-transactions: the unit of atomicity.
 *
 * An operation stages what it wants and commits; nothing shared changes before
 * mtr_commit(), so giving up at any point before needs no undo.
 *
 *	struct mtr *m;
 *	rc = mtr_begin(volume, flags, &m);
 *	mtr_want_key(m, index, key, len);       // every leaf it will touch
 *	mtr_want_range(m, index, lo, hi, len);
 *	do {
 *		rc = mtr_latch(m);              // INV-MTR-1; then reads are stable
 *		if (rc)
 *			break;
 *		... mtr_lookup(), mtr_next() ...
 *		mtr_put(), mtr_delete(), mtr_set_bits(), mtr_clear_bits(), mtr_data()
 *		rc = mtr_commit(m);             // 0, or -BE_AGAIN: nothing was done,
 *	} while (rc == -BE_AGAIN);              // latch and stage again
 *	mtr_end(m);                             // always
 *
 * INV-MTR-1, many leaves in one mtr without undo:
 *	a. log bytes and pool tickets are reserved, nothing else being held
 *	b. under an epoch, each leaf is located and pinned, reading what is missing,
 *	   with no latch held; bitmap pages too
 *	c. latches X in lock order, the leaves of one index left to right
 *	d. each leaf is verified: alive, its index and level, its fences cover the
 *	   key; else everything is released and b repeats
 *	e. commit checks that everything staged fits; else everything is released,
 *	   the full leaf is split by an mtr of its own, and the caller stages again
 *	f. after MTR_LATCH_TRIES failures the index latches are taken X, in index order
 *	g. from the first modification on nothing can fail
 *
 * Commit: apply to the latched pages while collecting redo records; then CRC,
 * LSN range, copy (log_append); stamp pages, enter the flush list; log_listed;
 * unlatch.  Page latches are held throughout, so LSNs on a page only grow.
 */
#ifndef BLINKFS_ENGINE_MTR_H
#define BLINKFS_ENGINE_MTR_H

#include "engine/page.h"
#include "log/log.h"

struct mtr;
struct volume;

enum mtr_flags {
	MTR_PRIVILEGED = 1, /* frees space in the end: may use the space reserve */
};

/*
 * Reservations are made by the first mtr_latch(), which may wait for them.
 * Locks (rename, inode, range) are taken before, never while an mtr exists: see
 * rank.def.
 */
int mtr_begin(struct volume *volume, unsigned flags, struct mtr **out) must_check;
void mtr_end(struct mtr *m); /* releases everything; NULL is allowed */
struct volume *mtr_volume(const struct mtr *m);

/* Before mtr_latch(): what will be touched.  Kept over -BE_AGAIN. */
void mtr_want_key(struct mtr *m, unsigned index, const void *key, size_t key_len);
/*
 * Every leaf that covers a part of [low, high], and the leaf of the first entry
 * >= high (the cover of an interval map).  When that is more than
 * MTR_PAGES_MAX leaves allow, only a first part is latched: see mtr_covered().
 */
void mtr_want_range(struct mtr *m, unsigned index, const void *low, const void *high,
		    size_t key_len);

/* The same, but what will be logged for it is said with mtr_want_log(): nothing if it is read. */
void mtr_want_leaves(struct mtr *m, unsigned index, const void *low, const void *high,
		     size_t key_len);

/* The latch of this index is taken X, not S: for what it is compared with (tunables.def). */
void mtr_want_exclusive(struct mtr *m, unsigned index);
/* For wants that turn out when leaves are latched: lets go of everything, reservations too. */
void mtr_restart(struct mtr *m);
bool mtr_want_range_if_room(struct mtr *m, unsigned index, const void *low, const void *high,
			    size_t key_len) must_check;
/* Is [low, high] within a range that is wanted already? */
bool mtr_wants(const struct mtr *m, unsigned index, const void *low, const void *high,
	       size_t key_len);
/* Log bytes for edits that wanted keys do not account for: many records of a range, many bits. */
void mtr_want_log(struct mtr *m, uint64_t bytes);
/* Bitmap pages of blocks that will be set or cleared, as far as known before. */
void mtr_want_bits(struct mtr *m, uint64_t start, uint64_t count);

/* INV-MTR-1 a to d, f.  0, or an I/O error; never -BE_AGAIN. */
int mtr_latch(struct mtr *m) must_check;

/* Reading in latched leaves.  Pointers stay valid until mtr_commit() or mtr_end(). */
int mtr_lookup(struct mtr *m, unsigned index, const void *key, size_t key_len, const void **value,
	       size_t *len) must_check; /* -BE_NOTFOUND */
/*
 * First entry >= key within the latched leaves.  -BE_END: there is none.
 * -BE_NOTFOUND: there is none in the leaves that were wanted contiguously from key.
 */
int mtr_next(struct mtr *m, unsigned index, const void *key, size_t key_len, struct key *found,
	     const void **value, size_t *len) must_check;
/* Is the leaf that covers this key latched? */
bool mtr_covered(struct mtr *m, unsigned index, const void *key, size_t key_len);
/* Bytes (page_cost()) for new records in the latched leaf that covers this key, as it is now. */
uint64_t mtr_room(struct mtr *m, unsigned index, const void *key, size_t key_len);

/*
 * Staging: at most one edit per key.  Values are copied.  Each key's leaf must
 * be wanted.  put inserts or replaces (logged as a patch where only a span
 * differs); delete demands that the key exists.
 */
void mtr_put(struct mtr *m, unsigned index, const void *key, size_t key_len, const void *value,
	     size_t len);
void mtr_delete(struct mtr *m, unsigned index, const void *key, size_t key_len);
/*
 * Allocation bits of blocks [start, start + count): set those of a reservation
 * (space.h), clear those of a freed extent.  Any number; distinct groups up to
 * MTR_GROUPS_MAX (mtr_can_clear() asks).  Bitmap pages are pinned at commit:
 * the first commit may answer -BE_AGAIN once when a bitmap page was not wanted.
 */
void mtr_set_bits(struct mtr *m, uint64_t start, uint64_t count);
void mtr_clear_bits(struct mtr *m, uint64_t start, uint64_t count);
bool mtr_can_clear(struct mtr *m, uint64_t start, uint64_t count);
/* Are the bitmap pages of all staged bits pinned?  Else the commit will answer -BE_AGAIN. */
bool mtr_bits_pinned(const struct mtr *m);
/* These blocks were written by this operation (REC_DATA, INV-LOG-5). */
void mtr_data(struct mtr *m, uint64_t start, uint32_t count, const le32 *crcs);
/* Says in the log that the volume's log takes or gives up these blocks (REC_LOG_OTHER). */
void mtr_log_other(struct mtr *m, uint64_t start, uint64_t count);
/* The system page's counter (raises only). */
void mtr_counter(struct mtr *m, enum counter counter, uint64_t value);

/*
 * All or nothing: 0, or -BE_AGAIN, or an error (nothing done; -ENOSPC when a
 * split found no page).  On 0 the pages
 * are unlatched and mtr_lsn() is the end LSN.
 */
int mtr_commit(struct mtr *m) must_check;
lsn_t mtr_lsn(const struct mtr *m);
/* Drops latches, pins and edits without committing; wants stay.  For a caller that has to retry. */
void mtr_release(struct mtr *m);

#endif
