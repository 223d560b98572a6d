/*
 * Repairs, each derived from a walk in which nothing was hidden (INV-FSCK-1).
 *
 * Two ways, never mixed in one round; after each round the volume is walked
 * again, and only a clean walk is called repaired.
 *
 *	bitmaps   Bits of blocks that are in use are set by rewriting the bitmap
 *	          page in place, on a volume whose log is empty: before that no
 *	          page may be allocated, so the engine cannot do it.  A write that
 *	          is torn by a crash leaves a page that the next fsck builds anew
 *	          from what is in use.
 *	engine    Everything else is mini-transactions on the opened volume, so a
 *	          crash leaves each repair done or not done.
 *
 * Order: bitmaps first, since the others may allocate; then high-water marks,
 * since the others may take numbers; then the rest.
 */
#ifndef BLINKFS_FSCK_REPAIR_H
#define BLINKFS_FSCK_REPAIR_H

#include "fsck/check.h"

struct device;

/* Is there a repair of this way? */
bool repair_has_bitmaps(const struct fsck_result *result);
bool repair_has_engine(const struct fsck_result *result);

/* The log is empty, nothing else has the volume open. */
int repair_bitmaps(struct device *dev, const struct fsck_result *result, uint64_t lsn) must_check;
/*
 * Opens the volume, which replays its log, and closes it again; `dev` stays
 * open, and so does log_dev, where an external log is.  cache_bytes 0 = the default.
 */
int repair_engine(struct device *dev, struct device *log_dev, uint64_t cache_bytes,
		  const struct fsck_result *result) must_check;

#endif
