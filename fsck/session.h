/*
 * One run of fsck.blinkfs on one volume.
 *
 *	lock -> superblock, searched for when it is lost
 *	-> clean and not forced: done
 *	-> log: empty, or replayed in memory; damaged: what can be applied is, when allowed
 *	-> walk -> something repairable: a round of repair, walk again ...
 *	-> clean: replay for good, clear the damage flag; else set it
 *
 * Nothing is written before the first walk has ended, and with `no` nothing at
 * all.  Crash: superblock updates are atomic (INV-SB-1), for repairs see
 * repair.h, replay is recovery.
 */
#ifndef BLINKFS_FSCK_SESSION_H
#define BLINKFS_FSCK_SESSION_H

#include "fsck/check.h"

enum fsck_exit {
	EXIT_CLEAN = 0,
	EXIT_CORRECTED = 1,
	EXIT_UNCORRECTED = 4,
	EXIT_OPERATIONAL = 8,
	EXIT_USAGE = 16,
	EXIT_CANCELLED = 32,
};

enum session_mode {
	MODE_ASK,    /* ask once for each kind of problem; without a terminal leave it */
	MODE_NO,     /* -n: only read */
	MODE_PREEN,  /* -p, -a: what is safe without a person */
	MODE_REPAIR, /* -y: all that can be repaired */
};

struct session_options {
	enum session_mode mode;
	bool force; /* -f: walk although it is marked as clean */
	bool data;  /* --data */
	bool verbose;
	bool (*cancelled)(void *arg);                 /* asked between pages; may be NULL */
	bool (*ask)(void *arg, const char *question); /* MODE_ASK; NULL = no */
	void (*print)(void *arg, const char *line);   /* without newline */
	/* Instead of a line for each problem; NULL = lines. */
	void (*found)(void *arg, const struct fsck_problem *problem, bool left);
	/* Once, at the end of a run that walked the volume; may be NULL. */
	void (*done)(void *arg, const struct fsck_result *result);
	/* As in fsck_options, with the number of the walk; may be NULL. */
	void (*progress)(void *arg, unsigned walk, const char *what, unsigned done, unsigned total);
	void *arg;
	uint64_t lock_wait_ns;
	uint64_t cache_bytes; /* for replay and repairs; 0 = the default */
	uint64_t memory_bytes; /* of a walk; 0 = no limit */
	unsigned threads;     /* of a walk; 0, 1: the caller's alone */
	const char *log_path;   /* session_run(): -j; NULL: where it was last */
	struct device *log_dev; /* session_run_on(): of an external log; stays open */
};

/* Returns bits of enum fsck_exit. */
int session_run(const char *path, const struct session_options *options) must_check;
/* The same on a device that is open, and locked as the caller likes; it stays open. */
int session_run_on(struct device *dev, const char *path,
		   const struct session_options *options) must_check;

#endif
