/*
 * A log that recovery refuses: because it breaks off below a durable mark, a
 * page that it changes is broken, a record is malformed, or there is no log at
 * all where it should be.
 *
 * What can be applied is: every record up to where the log breaks off, to every
 * page that is good in place or that the log itself initialises.  The rest is
 * cut, and the log begins anew above everything that any page says.  What then
 * contradicts itself is the business of the walk and its repairs.
 *
 * Torn pages: the doublewrite area is used as the engine does, its old contents
 * first, so a crash at any point leaves what this does once more:
 *
 *	crash while                   the next run finds
 *	pages are written             the same log; torn pages have a whole copy
 *	the new log begins            the same log or the new one (log_start());
 *	                              where there was none, none or an empty one
 */
#ifndef BLINKFS_FSCK_REPLAY_H
#define BLINKFS_FSCK_REPLAY_H

#include "engine/base/check.h"

#include <stdint.h>

struct device;

/*
 * log_dev: of an external log, else NULL.  lsn_max: the newest page that is known.
 * `say` is told what was applied and what was not.
 */
int replay_by_force(struct device *dev, struct device *log_dev, uint64_t lsn_max,
		    void (*say)(void *arg, const char *line), void *arg) must_check;

/* The log is empty: its next entry comes above `lsn`. */
int log_go_on_at(struct device *dev, struct device *log_dev, uint64_t lsn) must_check;

#endif
