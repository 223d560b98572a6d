/*
 * How many inodes there are, for statfs: counted once, on first demand, then
 * kept up to date.
 *
 * Inode numbers are never reused, so those below the first one that this core
 * can hand out (`below`) only ever go away, and only through purge, which asks
 * for a claim first.  The scan counts them in key order while a claim is
 * granted only at or below its position, where each was counted already:
 *
 *	UNKNOWN -> RUNNING (waits for the claims of before) -> KNOWN
 *
 *	INV-CENSUS-1  old_count + new_count is exact when KNOWN and no call runs
 */
#ifndef BLINKFS_FS_CENSUS_H
#define BLINKFS_FS_CENSUS_H

#include "engine/base/latch.h"

struct volume;

enum census_state { CENSUS_UNKNOWN, CENSUS_RUNNING, CENSUS_KNOWN };

struct census {
	struct latch latch;        /* RANK_LEAF */
	struct waitq wake;
	enum census_state state;   /* [lock: latch] */
	uint32_t claims;           /* of old inodes, under way [lock: latch] */
	uint64_t below;            /* constant */
	uint64_t position;         /* RUNNING: counted up to here [lock: latch] */
	int64_t old_count;         /* [lock: latch] */
	int64_t new_count;         /* [lock: latch] */
};

void census_init(struct census *census, uint64_t below);
void census_created(struct census *census);
/* Purge's way in and out; false: come back later. */
bool census_claim(struct census *census, uint64_t ino);
void census_release(struct census *census, uint64_t ino, bool gone);
/* Scans when it has to, and waits for a scan under way. */
int census_count(struct census *census, struct volume *volume, uint64_t *inodes) must_check;
/* Waits for a scan under way: claims that it refused can be had after that. */
bool census_wait(struct census *census);

#endif
