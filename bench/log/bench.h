/*
 * Commits per second: the redo log beside what programs do without one.
 *
 *	main.c     rounds, medians, the report
 *	runs.c     threads that commit until the time is over
 *	bare.c     committing without the log: plain, serial, a bare group-commit loop
 *	logged.c   committing through the log
 *	slow.c     a device whose flushes take longer
 *	durable.c  flushes of a durable create, through the file system core
 *
 * A commit is a record of RECORD_BYTES that is durable when the call returns.
 */
#ifndef BLINKFS_BENCH_LOG_H
#define BLINKFS_BENCH_LOG_H

#include "log/log.h"

#define RECORD_BYTES 200u
#define SECTOR_BYTES 512u
#define THREADS_MOST 64u
#define FILE_BYTES (32u << 20) /* the log goes round in it; all of it stays in the page cache */
#define SLOW_FLUSH_NS 1500000ull

/* ------------------------------------------------------------------ runs.c */

/* Something that commits. */
struct committer {
	void *(*open)(const char *path, uint64_t flush_delay_ns);
	/* One record; the worker's number tells records apart.  Failures end the program. */
	void (*commit)(void *self, unsigned worker);
	void (*close)(void *self);
};

struct run_result {
	double rate;      /* commits a second */
	double median_us; /* of one commit; only with one thread */
};

struct run_result run(const struct committer *committer, void *self, unsigned threads,
		      uint64_t duration_ns);

void sleep_ns(uint64_t ns);
noreturn void die(const char *what);

/* ------------------------------------------------------------------ bare.c */

/* FILE_BYTES of a file, written before: later writes only overwrite. */
extern const struct committer plain_overwrite; /* a sector each, then fdatasync, by every thread */
extern const struct committer plain_append;    /* the same at the end of a growing file */
extern const struct committer serial;          /* the same under one mutex: nothing overlaps */
extern const struct committer bare_group; /* group commit: a flush serves all who came before */
extern const struct committer bare_group_append;

/* ---------------------------------------------------------------- logged.c */

extern const struct committer logged_pwrite;
extern const struct committer logged_direct;
extern const struct committer logged_dsync;
extern const struct committer logged_mapped;

/* ------------------------------------------------------------------ slow.c */

/* Takes over dev: each of its flushes takes delay_ns longer; several may be under way at once. */
struct device *slow_device(struct device *dev, uint64_t delay_ns);

/* --------------------------------------------------------------- durable.c */

/* Device flushes for one create, 4 KiB written, fsync: the mean of many. */
double flushes_per_durable_create(const char *folder);

#endif
