/*
 * What the files of restore share.
 *
 *	restore.c       reading backups, applying them, the end
 *	restore_log.c   what the archive of the log adds
 */
#ifndef BLINKFS_ENGINE_RESTORE_INTERNAL_H
#define BLINKFS_ENGINE_RESTORE_INTERNAL_H

#include "engine/restore.h"

#include "engine/base/error.h"

struct restore {
	struct device *dev;
	struct device *log_dev;  /* NULL: within the volume */
	const char *log_path;    /* for the superblock: where that is */
	struct disk_superblock sb;
	struct geometry geo;
	uint8_t id[16];      /* of the newest backup */
	lsn_t lsn;           /* what lies on the device is the state at it; 0 = nothing yet */
	uint64_t generation; /* of that state */
	uint64_t bad_blocks;
};

/*
 * The volume becomes so large: the groups that it gains are free, and the target's file is
 * extended.  name: of what says so.  What is smaller than before changes nothing.
 */
int restore_grow(struct restore *restore, uint64_t block_count, uint64_t group_count,
		 const char *name) must_check;
/* The superblock as the state at restore->lsn has it: is it one?  Decodes. */
int restore_judge_superblock(struct restore *restore) must_check;

#endif
