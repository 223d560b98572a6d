/*
 * Scrubbing: everything that a volume in use has on its medium is read from there
 * and judged, at a bounded rate, beside those who work.
 *
 *	superblock   both copies
 *	log          its header, both checkpoint blocks
 *	fixed pages  bitmaps, the system page
 *	indexes      every page that is reachable (scrub_walk.c)
 *	contents     every block of an extent, by its CRC (scrub_data.c)
 *
 * INV-SCRUB-1, past the caches: what is judged was read from the medium for the
 * purpose, past the pool and, where the medium can, past the kernel's cache.
 *
 * INV-SCRUB-2, no false alarm: a first look is taken without any lock, and only what
 * it finds good is believed.  What it finds bad is looked at once more, at a moment at
 * which it has to be good:
 *
 *	superblock, log  under the superblock's latch, in the flusher's turn: nobody writes
 *	a page           in the flusher's turn, and inside an epoch in which a search from
 *	                 the root has led to it.  All writes of pages in place are done in
 *	                 that turn, so none is under way, and the blocks cannot become
 *	                 something else.  A page whose REC_PAGE_INIT has not come to its
 *	                 place yet has nothing there: it waits (scrub_walk.c)
 *	a block          inside an epoch, in which a look-up of the file's mapping has led
 *	                 to it (INV-LOB-4); twice
 *
 * What is not found again was freed or moved meanwhile, and is skipped.
 *
 * INV-SCRUB-3, nothing is missed: what is reachable from the beginning to the end of a
 * scrub is judged, in its version of the beginning or a later one: scrub_begin() writes
 * back first.  The walk goes by versions that pages had meanwhile, so the argument of
 * backup_walk.c (INV-BAK-3) holds.  Extents that exist throughout are in the accepted
 * copies of their leaves, since these cover all keys.
 *
 * INV-SCRUB-4: nothing is latched, and no epoch or turn is held, across more than one
 * page or block that is read, nor while the scrub sleeps.
 */
#ifndef BLINKFS_ENGINE_SCRUB_H
#define BLINKFS_ENGINE_SCRUB_H

#include "engine/volume.h"

struct scrub_progress {
	uint64_t pages;        /* judged so far */
	uint64_t blocks;       /* of file contents, judged so far */
	uint64_t bytes;        /* read so far */
	uint64_t bytes_passed; /* of space in use: read, or with nothing to judge */
	uint64_t bytes_used;   /* space in use when it began: an estimate of the end */
	uint64_t skipped;      /* freed or moved before they could be judged, or not in place */
	uint64_t unreachable;  /* parts of indexes that a damaged page leads to */
	uint64_t bad_pages;    /* superblocks and places of the log as well */
	uint64_t bad_blocks;
	bool cached;           /* the medium cannot be read past the kernel's cache */
};

enum scrub_place { SCRUB_SUPERBLOCK, SCRUB_LOG, SCRUB_FIXED_PAGE, SCRUB_TREE_PAGE, SCRUB_DATA };

struct scrub_damage {
	enum scrub_place place;
	uint64_t block;        /* of the volume; SCRUB_LOG: of the device that the log is on */
	unsigned index, level; /* SCRUB_TREE_PAGE */
	uint64_t lob, file_block; /* SCRUB_DATA */
	const char *why;
};

struct scrub_params {
	uint64_t bytes_per_second; /* 0 = no limit */
	/* Any may be NULL.  Called with nothing held. */
	bool (*cancelled)(void *arg);
	void (*progress)(void *arg, const struct scrub_progress *progress);
	void (*found)(void *arg, const struct scrub_damage *damage);
	void *arg;
};

/*
 * 0: all was looked at, whatever was found: see *result.  Damaged metadata has gone
 * through corrupt_at().  -ECANCELED, -EROFS, -EIO (the volume has failed), -ENOMEM.
 */
int scrub_run(struct volume *volume, const struct scrub_params *params,
	      struct scrub_progress *result) must_check;

#endif
