/*
 * File contents without a file system core, for tests: writes, holes and reads
 * of a LOB by the calls that the core would make, against an array of versions.
 * The caller sees to it that no two calls replace the same blocks at once.
 */
#ifndef BLINKFS_TESTS_LOB_RIG_H
#define BLINKFS_TESTS_LOB_RIG_H

#include "engine/lob.h"
#include "engine/volume.h"

/*
 * A volume without background threads on a memory device that records, so that
 * scratch_crash() can end it.
 */
struct volume *lob_rig_format(uint64_t size_bytes, uint32_t page_size, uint64_t log_bytes);
struct volume *lob_rig_open(struct device *dev);

/* A block's contents follow from its file block and a version; version 0 is a hole. */
void lob_rig_fill(uint8_t block[BLOCK_SIZE], uint64_t file_block, uint32_t version);
/* The version that made these contents; UINT32_MAX when none did. */
uint32_t lob_rig_version(const uint8_t block[BLOCK_SIZE], uint64_t file_block);

/*
 * One atomic write, in place where extents are unwritten; -ENOSPC and -E2BIG are
 * returned, nothing done.  *delta is added to (may be NULL).
 */
int lob_rig_write(struct volume *volume, uint64_t lob, uint64_t first, uint32_t blocks,
		  uint32_t version, uint64_t hint, int64_t *delta) must_check;
/* The range becomes an unwritten extent, whatever is there; its blocks read as version 0. */
int lob_rig_allocate(struct volume *volume, uint64_t lob, uint64_t first, uint32_t blocks,
		     int64_t *delta) must_check;
/*
 * [first, end) of one LOB becomes that of another, block by block at the same place
 * in the file; one atomic piece, which may end early, at *done.
 */
int lob_rig_clone(struct volume *volume, uint64_t lob, uint64_t source, uint64_t first,
		  uint64_t end, int64_t *delta, uint64_t *done) must_check;
/* By as many bounded mtrs as it takes. */
int lob_rig_hole(struct volume *volume, uint64_t lob, uint64_t first, uint64_t end,
		 int64_t *delta) must_check;
/* Versions of [first, first + count); -BE_CRC and so on as they come. */
int lob_rig_read(struct volume *volume, uint64_t lob, uint64_t first, uint32_t count,
		 uint32_t *versions) must_check;

/* Sets each of the volume's switches as the generator has it. */
void lob_rig_switch(struct volume *volume, uint64_t *seed);

/* Number of the LOB's extents, and the blocks in them; ends the program when one is malformed. */
unsigned lob_rig_extents(struct volume *volume, uint64_t lob, uint64_t *blocks);
/* Blocks that the bitmaps say are in use, bitmap pages included. */
uint64_t lob_rig_bits(struct volume *volume);

#endif
