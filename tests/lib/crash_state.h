/*
 * States that a power cut left of a volume with files in it: opened, judged by the
 * checkers, used further.  What the workload was, and which contents are allowed,
 * is the caller's business.
 */
#ifndef BLINKFS_TESTS_CRASH_STATE_H
#define BLINKFS_TESTS_CRASH_STATE_H

#include "fs/core.h"

/* How the log gets to its medium. */
struct crash_medium {
	enum log_mode log_mode;
	bool pmem; /* byte-addressable */
};

/* A volume of scratch.h's sizes in which the script has run; durable, checkpointed, not closed. */
struct device *crash_prepare(const char *script, const struct crash_medium *medium);

/* All of a script, and all is written back; what fails ends the program. */
void crash_run(struct core *core, const char *script);
/* The same on a device that is formatted, and is closed. */
struct device *crash_set_up(struct device *dev, const char *script,
			    const struct crash_medium *medium);

/* Recovery.  0: both are open, and the volume owns dev; else a negative error, dev is closed. */
int crash_open(struct device *dev, const struct crash_medium *medium, struct volume **volume,
	       struct core **core) must_check;
/* As if the process had died. */
void crash_abandon(struct volume *volume, struct core *core);

/*
 * Each prints what is wrong, and returns a line about it; NULL = nothing is.
 * _shows: one of the snapshots from `oldest` to `last`.
 * _recovered: fsck's own recovery in memory, and its walk, of a device that stays as it is;
 * log: NULL, or where the log is.
 * _open: what an open volume has written back, after doing so.
 * _go_on: new things can be made in it, and are as they should be.
 */
const char *crash_shows(struct core *core, char *const *snapshot, unsigned oldest, unsigned last);
const char *crash_fsck_recovered(struct device *dev, struct device *log);
const char *crash_fsck_open(struct volume *volume);
const char *crash_go_on(struct volume *volume, struct core *core);

#endif
