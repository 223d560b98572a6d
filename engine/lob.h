/*
 * Large objects: file contents as extents of raw 4 KiB blocks.
 *
 * A write never touches old blocks:
 *	(1) lob_prepare(): reserve all blocks at once from the in-memory free map,
 *	    nothing logged; compute CRCs; (2) write the data, no page latched
 *	(3) lob_stage_replace() inside the caller's mtr: bits, extents; the caller
 *	    adds its inode; old blocks are freed in the same mtr
 * A crash before (3) leaves no trace.
 *
 * INV-LOB-1: the caller holds the inode's range lock over all blocks that it
 * replaces, from the reading of old contents through the commit; neighbours may
 * still split extents at their own boundaries, so (3) reads the mapping again
 * under the latches.
 * INV-LOB-4: readers are inside an epoch from lob_map_read() to lob_map_free(),
 * that is from the look-up of the mapping to the end of the I/O.
 */
#ifndef BLINKFS_ENGINE_LOB_H
#define BLINKFS_ENGINE_LOB_H

#include "engine/mtr.h"
#include "engine/space.h"

/* A run of consecutive file blocks. */
struct mapping {
	uint64_t file_block;
	uint64_t start;      /* volume block; 0 = hole or unwritten: zeros */
	uint32_t length;
	bool unwritten;
	const le32 *crc;     /* length CRCs, into the map's storage; NULL for zeros */
};

/* All of file blocks [first, first + count), holes included, in order. */
struct lob_map {
	struct mapping *run;
	unsigned count;
	le32 *crcs;          /* storage */
	unsigned run_cap, crc_cap;
	struct epochs *epochs; /* entered; NULL = outside */
};
void lob_map_init(struct lob_map *map);
/*
 * lob 0: all hole.  Blocks in [dead_first, dead_end) are holes.  Any count, but
 * the map takes 36 bytes a block.
 *
 * INV-LOB-4: on return 0 the calling thread is inside an epoch, which
 * lob_map_free() or the next lob_map_read() of the map leaves: it must not wait
 * for anything but device I/O until then.  The call itself waits for pool
 * tickets, so it is made outside of any other epoch.
 *
 *	lob_map_init(&map);
 *	rc = lob_map_read(..., &map);
 *	if (rc == 0)
 *		rc = lob_read_blocks(volume, &map, buf, &bad);   // -BE_CRC: both once more
 *	lob_map_free(&map);                                      // always
 */
int lob_map_read(struct volume *volume, uint64_t lob, uint64_t first, uint64_t count,
		 uint64_t dead_first, uint64_t dead_end, struct lob_map *map) must_check;
void lob_map_free(struct lob_map *map); /* leaves the epoch */
/*
 * Reads the mapped blocks into buf (map's whole range, 4 KiB a block) in one
 * batch and verifies each block.  -BE_CRC with *bad_block (file block): the
 * caller looks the mapping up again before it reports (INV-LOB-4).
 */
int lob_read_blocks(struct volume *volume, const struct lob_map *map, void *buf,
		    uint64_t *bad_block) must_check;

/* New contents, reserved and written, waiting for publication. */
struct lob_new {
	uint64_t first;              /* file block */
	uint32_t blocks;
	struct reservation space;
	le32 *crcs;                  /* blocks elements, owned; NULL: an unwritten extent */
	bool in_place[RESERVE_EXTENTS_MAX]; /* of space: pieces that the LOB has, unwritten */
	uint64_t hint;
	unsigned space_flags;
	bool staged;                 /* once at least */
	const void *data;            /* lob_two_phase off: still to be written, by the staging */
};
/*
 * Phases 1 and 2: data is blocks * 4 KiB, and stays where it is until
 * lob_published() or lob_abandon().  -ENOSPC at once: the operation lets go of
 * everything, calls space_drain() and starts again.
 */
int lob_prepare(struct volume *volume, uint64_t first, uint32_t blocks, const void *data,
		uint64_t hint, unsigned space_flags, struct lob_new *out) must_check;
/*
 * The same for a LOB that may have unwritten extents there: their blocks are
 * written in place, since nobody reads them before the commit; the rest of the
 * range gets new ones.  So what was allocated before needs no space to be written.
 * The caller holds the range from here to the commit.
 */
int lob_prepare_over(struct volume *volume, uint64_t lob, uint64_t first, uint32_t blocks,
		     const void *data, uint64_t hint, struct lob_new *out) must_check;
/* Blocks (<= WRITE_BLOCKS_MAX) for unwritten extents: reserved, nothing is written. */
int lob_prepare_unwritten(struct volume *volume, uint64_t first, uint32_t blocks, uint64_t hint,
			  struct lob_new *out) must_check;
/* Unpublished: gives the space back. */
void lob_abandon(struct volume *volume, struct lob_new *new);
/* After the commit: frees memory only. */
void lob_published(struct lob_new *new);

/* Leaves that a replacement of [first, end) needs; before mtr_latch(). */
void lob_want_replace(struct mtr *m, uint64_t lob, uint64_t first, uint64_t end);
/* The same and the bitmap pages of `new`, which spares the first commit a retry. */
void lob_want_publish(struct mtr *m, uint64_t lob, const struct lob_new *new);
/*
 * Phase 3, latched: replaces file blocks [first, end) by `new` (same range), or
 * by a hole when new is NULL.  Splits extents at the boundaries, and joins new
 * ones with neighbours that they continue on the volume, where that rewrites a
 * record of bounded size.  *delta: change of the LOB's block count.
 *
 * A hole of any length is dealt with from its start in a bounded part: *done =
 * first file block not dealt with, end when complete.  New contents are
 * published whole.
 *
 * -BE_AGAIN: everything was let go; latch and stage again.
 * -E2BIG: the old blocks lie in more groups, or their extents in more leaves,
 * than one mtr may touch; nothing is staged that mtr_release() does not drop.
 * Only badly scattered files get there: the caller splits the write in halves.
 */
int lob_stage_replace(struct mtr *m, uint64_t lob, uint64_t first, uint64_t end,
		      struct lob_new *new, int64_t *delta, uint64_t *done) must_check;

/*
 * Clones: file blocks [first, end) become those of the source from source->first
 * on, holes too; what is stored there is shared from then on.  The two ranges of
 * one LOB do not overlap.  The caller holds both inodes' locks such that neither
 * range changes but through it, and sees to it that no dead range is in either.
 *
 * One mini-transaction takes a batch of extents: no more than CLONE_EXTENTS_MAX, and no
 * more than one leaf has room for.  lob_find_clone() says how far that goes.
 *
 * *done: first file block not dealt with, behind `first`; less than `end` where a leaf
 * of the destination has room for a part of the batch only.  -BE_AGAIN, -E2BIG: as
 * lob_stage_replace().
 */
#define CLONE_EXTENTS_MAX 128u /* of the source */
#define CLONE_PLACES_MAX 16u   /* of `shares` */
struct lob_source_range {
	uint64_t lob, first;
	unsigned extents;  /* of the batch */
	/* Blocks [low, high), ascending, that its extents lie in: what `shares` is asked for. */
	struct {
		uint64_t low, high;
	} place[CLONE_PLACES_MAX + 1];
	unsigned places;   /* 0: not known */
};
/*
 * The batch that begins at source->first: it has at most `extents`, and ends at *end <=
 * below.  Fills in the rest of the source.  Reads the leaves that the mini-transaction
 * will latch.
 */
int lob_find_clone(struct volume *volume, struct lob_source_range *source, unsigned extents,
		   uint64_t below, uint64_t *end) must_check;
void lob_want_clone(struct mtr *m, uint64_t lob, uint64_t first, uint64_t end,
		    const struct lob_source_range *source);
int lob_stage_clone(struct mtr *m, uint64_t lob, uint64_t first, uint64_t end,
		    const struct lob_source_range *source, int64_t *delta,
		    uint64_t *done) must_check;

/*
 * The part [first, end) of [from, below) that begins with the first extent and
 * holds `max` extents, or goes on to `below` when there are fewer; empty (first
 * == end == below) when there is none.  Reads the leaves that a following mtr
 * will latch.
 */
struct lob_part {
	uint64_t first, end;
	uint64_t block[MTR_GROUPS_MAX]; /* one in each group that its extents lie in */
	unsigned groups;                /* as far as they have room here */
	uint64_t leaves;                /* that were looked at */
};
int lob_find_part(struct volume *volume, uint64_t lob, uint64_t from, uint64_t below, unsigned max,
		  struct lob_part *part) must_check;

/*
 * A bounded range at once: file blocks [first, end) become `count` (<= LOB_PARTS_MAX)
 * new ones in ascending order, and holes where there is none.  -E2BIG as above.
 */
#define LOB_PARTS_MAX 3u
int lob_stage_parts(struct mtr *m, uint64_t lob, uint64_t first, uint64_t end,
		    struct lob_new *const *part, unsigned count, int64_t *delta) must_check;

/*
 * Two small ranges of one LOB with anything between, which stays: in one mtr, since
 * each of two lob_stage_replace() would change the count of a share that both are in.
 * Also -E2BIG when they, or what touches them, are parts of one extent.
 */
int lob_stage_pair(struct mtr *m, uint64_t lob, struct lob_new *const new[2],
		   int64_t *delta) must_check;

/* The first blocks of [from, below) without an extent, at most `max`: *first == *end, none. */
int lob_find_hole(struct volume *volume, uint64_t lob, uint64_t from, uint64_t below, uint64_t max,
		  uint64_t *first, uint64_t *end) must_check;
/* How many blocks of [from, below) have no extent. */
int lob_count_holes(struct volume *volume, uint64_t lob, uint64_t from, uint64_t below,
		    uint64_t *blocks) must_check;

/*
 * SEEK_DATA / SEEK_HOLE in file blocks from `from`: *out = UINT64_MAX when there
 * is no data behind.
 */
int lob_seek(struct volume *volume, uint64_t lob, uint64_t from, bool hole, uint64_t dead_first,
	     uint64_t dead_end, uint64_t *out) must_check;

#endif
