/*
 * A volume of which neither superblock is where it should be.
 *
 * The log's header says where the log is, and the UUID; the fixed pages behind
 * it say how large pages are; the bitmap pages say how many groups there are.
 * Behind the last group a copy of the superblock is looked for, where the volume
 * may end before its device does.  Without one everything is put together from
 * that, but two things that stand nowhere else: the label, and the seed of name
 * hashes.  With a new seed every name has a wrong hash, which the walk finds and
 * repairs one by one.
 */
#ifndef BLINKFS_FSCK_LOST_SUPERBLOCK_H
#define BLINKFS_FSCK_LOST_SUPERBLOCK_H

#include "engine/format.h"

#include <stdbool.h>

struct device;

struct superblock_found {
	struct disk_superblock sb;
	bool from_copy;
	/*
	 * Block 0 holds something that is neither a broken superblock nor zeros: this
	 * may be what an earlier volume left in the place of another filesystem.
	 */
	bool foreign;
};

/* -BE_NOVOLUME: nothing was found.  Reads only. */
int superblock_find(struct device *dev, struct superblock_found *out) must_check;

#endif
