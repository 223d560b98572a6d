/*
 * Repairs.  One round does the fixes of one phase that were approved; then the
 * volume is walked again, and only a clean walk is called repaired.
 *
 *	phase     how                              needs
 *	BITMAP    raw: bits are set                an empty log
 *	TREE      raw: an index, or the system     an empty log
 *	          page, is built anew (rebuild.h)
 *	HIDDEN    mini-transactions                bitmaps that cover what is in use
 *	COUNTER   mini-transactions                nothing hidden
 *	REST      mini-transactions                nothing hidden
 *
 * The order is that of need: nothing may be allocated before all that is known to
 * be in use is marked as such; a tree that cannot be read cannot be changed; a record
 * that hides something goes before anything is derived from the walk
 * (INV-FSCK-1); the rest may take numbers.
 *
 * A crash: mini-transactions are done or not done.  A bitmap page that is torn
 * is built anew by the next run.  For trees see rebuild.h.  The volume is
 * marked as damaged before the first raw write, so that nothing but fsck
 * writes to it until a run ends clean.
 */
#ifndef BLINKFS_FSCK_REPAIR_H
#define BLINKFS_FSCK_REPAIR_H

#include "fsck/check.h"

struct device;

#define PROBLEM_NUMBERS 1000u

struct repair_round {
	const struct fsck_result *result; /* NULL: nothing to repair, only the log to replay */
	enum fix_phase phase;
	const bool *approved; /* by number of the problem; PROBLEM_NUMBERS elements */
	uint64_t lsn;         /* end of the log: of pages that are written raw */
	void (*say)(void *arg, const char *line); /* what was rebuilt from how much; may be NULL */
	void *arg;
};

/* Is there a fix of this phase that was approved? */
bool repair_has(const struct fsck_result *result, enum fix_phase phase, const bool *approved);

/* The log is empty, nothing else has the volume open.  log_dev: of an external log, else NULL. */
int repair_trees(struct device *dev, struct device *log_dev,
		 const struct repair_round *round) must_check;
int repair_bitmaps(struct device *dev, const struct repair_round *round) must_check;
/*
 * Opens the volume, which replays its log, and closes it again; `dev` stays
 * open, and so does log_dev, where an external log is.  cache_bytes 0 = the default.
 */
int repair_engine(struct device *dev, struct device *log_dev, uint64_t cache_bytes,
		  const struct repair_round *round) must_check;

#endif
