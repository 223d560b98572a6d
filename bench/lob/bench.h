/*
 * Values of 16 to 256 KiB, inserted and replaced by many threads: what the five
 * measures for large objects bring (engine/tunables.def).
 *
 *	main.c     which switches are on in which run; rounds
 *	load.c     a table of rows with large values, over the engine alone
 *	direct.c   a device whose data goes past the kernel's cache
 *	report.c   medians, ratios, table, JSON
 */
#ifndef BLINKFS_BENCH_LOB_H
#define BLINKFS_BENCH_LOB_H

#include "engine/base/latch.h"
#include "engine/volume.h"

#define THREADS_MOST 128u
#define ROUNDS_MOST 25u

enum operation { UPDATE_16K, UPDATE_64K, UPDATE_256K, INSERT_16K, INSERT_64K, OPERATIONS };

/* Which switches are on: one bit each. */
#define ALL_ON ((1u << TUNABLE_COUNT) - 1)
enum { SETTING_NONE, SETTING_ALL, SETTING_ALONE, /* one for each switch */
       SETTING_BUT = SETTING_ALONE + TUNABLE_COUNT, /* the same */
       SETTINGS = SETTING_BUT + TUNABLE_COUNT };

struct run_result {
	double rate;              /* operations a second */
	double settled_rate;      /* the same, the time until purge has caught up included */
	double waits[RANK_COUNT]; /* latch waits a second, by kind */
	double purge_data_blocks; /* read by purge, a second */
	double latched_misses;    /* index pages read under an index latch, a second */
	double writes_per_op, reserves_per_op, log_bytes_per_op;
};

struct results {
	struct run_result at[SETTINGS][OPERATIONS][ROUNDS_MOST];
	unsigned rounds, threads, duration_ms;
	bool direct;
};

/* ------------------------------------------------------------------ load.c */

struct load;
/* A new volume in a file of this folder, which is gone when the program ends. */
struct load *load_open(const char *folder, unsigned threads, bool direct);
void load_close(struct load *load);
struct run_result load_run(struct load *load, enum operation operation, unsigned switches,
			   unsigned duration_ms);

/* -------------------------------------------------------------- direct.c */

/* Takes over base. */
struct device *direct_device(struct device *base);
void direct_from(struct device *dev, uint64_t offset);

/* ---------------------------------------------------------------- report.c */

const char *operation_name(enum operation operation);
const char *setting_name(unsigned setting);
/* Prints the table; writes FOLDER/lob.json. */
void report(const struct results *results, const char *folder);

noreturn void die(const char *what, int error);

#endif
