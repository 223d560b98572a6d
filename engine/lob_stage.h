/*
 * How the extents of a LOB change inside an mtr: what lob_stage.c (which extents
 * there are in the end), lob_release.c (bits and references) and lob_clone.c share.
 */
#ifndef BLINKFS_ENGINE_LOB_STAGE_H
#define BLINKFS_ENGINE_LOB_STAGE_H

#include "engine/lob_internal.h"

#define PRESENT_MAX (WRITE_BLOCKS_MAX + 2u) /* one a block, and the neighbours */
/* Pieces, cut at the longest extent of the smallest page; two rests, two neighbours. */
#define PARTS_MAX (RESERVE_EXTENTS_MAX + 4u + \
		   WRITE_BLOCKS_MAX / EXTENT_BLOCKS_MAX(PAGE_SIZE_MIN) + 1u)

/* A part of a final extent. */
struct part {
	struct extent extent;
	bool present;      /* exactly an entry that is there now */
};

struct stage {
	struct mtr *m;
	struct volume *volume;
	uint64_t lob, first, end;
	struct lob_new *new[LOB_PARTS_MAX]; /* ascending; holes beside them */
	unsigned new_count;
	uint64_t join_max;         /* present extents up to this length may be joined */
	uint32_t extent_max;
	struct extent old[PRESENT_MAX]; /* ascending; neighbours that touch included */
	unsigned old_count;
	uint64_t in_place;         /* blocks written in place, less the old ones that stay */
	bool complete;             /* no other entry overlaps [first, end) */
	struct part part[PARTS_MAX]; /* what the interval consists of in the end */
	unsigned part_count;
	struct extent shared[CLONE_EXTENTS_MAX]; /* a clone: what comes in, at its new place */
	unsigned shared_count;
	struct share_change change[PRESENT_MAX + CLONE_EXTENTS_MAX];
	unsigned change_count;
	uint8_t value[];           /* RECORD_BYTES_MAX */
};

/* --- lob_stage.c */

/* RECORD_BYTES_MAX more than the structure; NULL: no memory. */
struct stage *lob_stage_alloc(const struct volume *volume);
void lob_begin_stage(struct stage *s, struct mtr *m, uint64_t lob, uint64_t first, uint64_t end);
/* The next entry of a LOB at or behind file block `at`; -BE_END when there is certainly none. */
int lob_next_present(struct stage *s, uint64_t lob, uint64_t at, struct extent *extent) must_check;
/* Reads the entries that overlap [first, end) or touch it. */
int lob_collect(struct stage *s) must_check;
/* What lies left of the interval, the new contents, what lies right of it. */
void lob_lay_out(struct stage *s);
/* Compares the final parts with the present entries: the edits. */
void lob_stage_entries(struct stage *s);
struct extent lob_cut(const struct extent *extent, uint64_t first, uint64_t end);

static inline bool lob_stage_overlaps(const struct stage *s, const struct extent *extent)
{
	return extent->first < s->end && extent_end(extent) > s->first;
}

/* --- lob_release.c */

void lob_stage_new_blocks(struct stage *s, const struct lob_new *new);
/* The blocks of an old extent within [first, end). */
struct piece lob_freed_piece(const struct stage *s, const struct extent *old);
void lob_change_shares(struct stage *s, uint64_t start, uint32_t length, int delta);
/*
 * Drops one reference to each old block.  *reached: first file block whose bits
 * could not be cleared; with clones in the volume all or nothing, so the caller
 * tries less at once.
 */
int lob_release_old(struct stage *s, uint64_t *freed, uint64_t *reached) must_check;
/* The same for several, all or nothing; with clones in one sum, as a count takes one edit. */
int lob_release_all(struct stage *const *stage, unsigned count, uint64_t *freed) must_check;

#endif
