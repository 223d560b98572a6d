/* Shared by the files of large objects, and by purge. */
#ifndef BLINKFS_ENGINE_LOB_INTERNAL_H
#define BLINKFS_ENGINE_LOB_INTERNAL_H

#include "engine/lob.h"
#include "engine/volume.h"

/* An entry of the lob index, decoded: file blocks [first, first + length). */
struct extent {
	uint64_t first;
	uint64_t start;
	uint32_t length;
	bool unwritten;
	const le32 *crc; /* length CRCs inside the entry; NULL when unwritten */
};

static inline uint64_t extent_end(const struct extent *extent)
{
	return extent->first + extent->length;
}

/* KEY_LOB_BYTES bytes; last: file block. */
static inline struct key lob_key(uint64_t lob, uint64_t last)
{
	struct key key = {.len = KEY_LOB_BYTES};

	be64_put(key.bytes, lob);
	be64_put(key.bytes + 8, last);
	return key;
}

/*
 * Judges an entry.  *found is false for an entry of another LOB.  Anything
 * malformed goes through corrupt_at().
 */
int extent_decode(struct volume *volume, uint64_t lob, const struct key *key, const void *value,
		  size_t len, struct extent *extent, bool *found) must_check;

/*
 * Visits the extents of a LOB from the one that covers or follows file block
 * `from`, in order (INV-LOB-7 in lob_walk.c).  visit() is called under a leaf's
 * S latch and ends the walk by returning 1.
 *
 * Waits for a pool ticket first, so it is called with nothing latched and outside
 * of any epoch; keep_epoch: on return 0 the thread is inside one, entered before
 * the first extent was read.
 */
struct lob_visitor {
	int (*visit)(void *arg, const struct extent *extent);
	void *arg;
	uint64_t leaves; /* out: how many were looked at */
};
int lob_walk(struct volume *volume, uint64_t lob, uint64_t from, struct lob_visitor *visitor,
	     bool keep_epoch) must_check;

/*
 * For lob_stage_shares(), where it is known before that changes lie within these places.
 * What they leave out is found and latched by a second try.
 */
void lob_want_shares(struct mtr *m, const struct lob_source_range *source);

/* Leaves and bitmap pages of the hole that the part becomes. */
void lob_want_part(struct mtr *m, uint64_t lob, const struct lob_part *part);
/*
 * Has the leaves of file blocks [from, below) read in one batch, as many as one
 * mtr may latch; best effort.
 */
void lob_prefetch(struct volume *volume, uint64_t lob, uint64_t from, uint64_t below);

/*
 * Has the leaves merged that a hole in [first, end) has emptied: an mtr looks
 * after a few of them only.  Best effort.
 */
void lob_tidy(struct volume *volume, uint64_t lob, uint64_t first, uint64_t end);

/* Phases 1 and 2, the memory being there: reserves and writes. */
int lob_place(struct volume *volume, struct lob_new *new, const void *data) must_check;
/* Phase 2 alone, all places being known. */
int lob_write_pieces(struct volume *volume, const struct lob_new *new,
		     const void *data) must_check;

/*
 * How long a write or read has to be to go past the kernel's cache of the medium.
 * A short one is better served by it: a write waits for no device, and a read that
 * goes on where another ended finds its blocks read ahead.  Long reads come
 * several at once.
 */
#define DIRECT_WRITE_BLOCKS_MIN 16u
#define DIRECT_READ_BLOCKS_MIN 128u

/* Blocks [start, start + length) get or lose references. */
struct share_change {
	uint64_t start;
	uint32_t length;
	int delta; /* 1 or -1 */
};
/*
 * Stages the sum of the changes, in any order, which may overlap: counts in
 * `shares`, and the bits of blocks that nothing refers to any more.
 * -BE_AGAIN: everything was let go, latch and stage again; -E2BIG: less at a time.
 */
int lob_stage_shares(struct mtr *m, const struct share_change *changes,
		     unsigned count) must_check;
/* Is anything shared? */
int lob_shares_open(struct volume *volume) must_check;

/* lob_classic.c */
int lob_classic_place(struct volume *volume, struct lob_new *new, const void *data) must_check;
int lob_classic_write(struct volume *volume, struct lob_new *new) must_check;
int lob_classic_load(struct volume *volume, uint64_t start, uint64_t count) must_check;

/* Extents that one mtr takes out of a long hole. */
#define HOLE_EXTENTS_MAX 64u

#endif
