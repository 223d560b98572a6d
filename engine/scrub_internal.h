/*
 * What the files of scrubbing share.
 *
 *	scrub.c       the steps; pace; superblock, log, fixed pages
 *	scrub_walk.c  indexes
 *	scrub_data.c  contents
 */
#ifndef BLINKFS_ENGINE_SCRUB_INTERNAL_H
#define BLINKFS_ENGINE_SCRUB_INTERNAL_H

#include "engine/base/error.h"
#include "engine/scrub.h"

#define SCRUB_CHUNK_BLOCKS 64u /* of contents, read at once */

struct scrub {
	struct volume *volume;
	const struct scrub_params *params;
	struct scrub_progress progress;
	struct device *way;     /* past the kernel's cache; or NULL */
	struct device *log_way; /* likewise, of a log that is elsewhere; or NULL */
	uint8_t *place;         /* a page as it is in place */
	uint8_t *page;          /* the page that the walk goes by */
	uint8_t *data;          /* SCRUB_CHUNK_BLOCKS */
	uint64_t *seen;         /* a bit for each block, when extents are shared; else NULL */
	uint64_t seen_blocks;
	uint64_t began_ns, read_ns; /* read_ns: what the last reads took, not yet yielded for */
	uint64_t others;        /* what others had done at the last look */
};

/* From the volume's medium; `buf` is aligned to a block.  Counted. */
int scrub_read(struct scrub *s, void *buf, size_t len, uint64_t offset) must_check;
/* After some reads, nothing held: shows progress, sleeps.  -ECANCELED, -EIO. */
int scrub_pause(struct scrub *s) must_check;
/* Counts and tells.  Nothing held. */
void scrub_found(struct scrub *s, const struct scrub_damage *damage);
/* 0, or why the page in s->place cannot be what stands at `pageno`. */
int scrub_judge_page(struct scrub *s, uint64_t pageno, const char **why) must_check;

int scrub_walk(struct scrub *s) must_check;
/* The contents that the leaf of the lob index in s->page names. */
int scrub_leaf(struct scrub *s) must_check;

#endif
