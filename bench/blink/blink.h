/*
 * B-link splits against the classic index latch.
 *
 *	main.c     rounds, runs in turns, the report
 *	set.c      volumes filled beforehand, as values; what a run leaves is checked
 *	load.c     threads that insert, and how long each insert took
 *	open.c     inserts that arrive by a schedule, whether or not those before are done
 *	mixed.c    mixed loads: insert/delete, read/write, a set larger than the pool
 *	serial.c   what of an insert cannot be done by two threads at once (LATCH=timed)
 *
 * After the experiment with InnoDB that the design started from: rows with ascending
 * keys fill the pages, then permuted keys are inserted so that nearly each insert
 * splits a page in the middle.
 */
#ifndef BLINKFS_BENCH_BLINK_H
#define BLINKFS_BENCH_BLINK_H

#include "engine/volume.h"

#include <stdio.h>

#define BENCH_INDEX INDEX_DIRENTS
#define ROUNDS_MOST 25u
#define THREADS_MOST 64u
#define PAYLOAD_MOST 4000u
#define KEY_BYTES 8u

/* ------------------------------------------------------------------- set.c */

/* A volume with `rows` rows of even keys, made once; each run begins with a copy of it. */
struct set {
	unsigned payload;
	uint64_t rows;
	uint64_t leaves;
	uint64_t inserts;      /* of odd keys, spread evenly: a bit less than one a leaf */
	uint64_t *order;       /* their permutation */
	uint64_t cache_bytes;  /* enough for all pages, and for all of them to be dirty */
	struct device *dev;    /* memory; its recorded base is the volume, closed and flushed */
};

void set_make(struct set *set, unsigned payload, uint64_t rows);
void set_free(struct set *set);
/* A copy of it, with everything in the pool and memory for what comes; cache_bytes 0: the set's. */
struct volume *set_open(const struct set *set, enum smo_mode mode, uint64_t cache_bytes);
/* Row count by scans in both directions, tree_check(); ends the program if wrong. */
void set_check(struct volume *volume, uint64_t rows);
void row_key(uint8_t key[KEY_BYTES], uint64_t number);
uint64_t insert_number(const struct set *set, uint64_t i); /* row number of the i-th insert */

noreturn void die(const char *what, int error);
void demand(int rc, const char *what);
unsigned long from_environment(const char *name, unsigned long otherwise);
uint64_t random_of(uint64_t *state);

/* ------------------------------------------------------------------ load.c */

struct latencies {
	double p50_us, p95_us, p99_us, max_us;
};

struct run_result {
	double rate;      /* operations a second */
	double cpu_us;    /* processor time of one */
	double offered;   /* a second; 0: as many as there can be */
	double late_us;   /* how long after its arrival an operation began, on average */
	struct latencies latency; /* with a schedule: since the arrival */
	uint64_t stats[STAT_COUNT];  /* how much each counter has grown */
	uint64_t waits[RANK_COUNT];  /* acquisitions of latches that had to sleep */
};

/*
 * What a thread does.  do_one() is called `operations` times in all, by all threads
 * together, each with numbers of its own, and returns the number of rows that it has
 * added (or less than 0: removed).
 */
struct load {
	int (*do_one)(const struct load *load, struct volume *volume, uint64_t number,
		      uint64_t *random);
	const struct set *set;
	uint64_t operations;
	unsigned threads;
	struct schedule *schedule; /* of as many arrivals; NULL: each when its thread is free */
};

/* *rows gets what the operations added. */
void load_run(const struct load *load, struct volume *volume, struct run_result *result,
	      int64_t *rows);
int insert_row(struct volume *volume, uint64_t number, unsigned payload);
int delete_row(struct volume *volume, uint64_t number); /* -BE_NOTFOUND */
int load_insert(const struct load *load, struct volume *volume, uint64_t number,
		uint64_t *random); /* the set's inserts, in their order */

/* ------------------------------------------------------------------ open.c */

struct schedule {
	uint64_t arrivals;
	double rate;          /* a second */
	uint64_t *due_ns;     /* after the start */
	uint64_t start_ns;
	_Atomic uint64_t next; /* arrival that nobody has taken yet */
};

/* Exponential intervals; the same ones for the same seed. */
void schedule_make(struct schedule *schedule, uint64_t arrivals, double rate, uint64_t seed);
void schedule_free(struct schedule *schedule);
void schedule_start(struct schedule *schedule);
/* By each thread that is going to wait. */
void schedule_join(void);
/* Takes the next arrival and waits for it; false: there are no more. */
bool schedule_await(struct schedule *schedule, uint64_t *number, uint64_t *due_ns);

/* ----------------------------------------------------------------- mixed.c */

extern const struct mixed {
	const char *name;
	int (*do_one)(const struct load *load, struct volume *volume, uint64_t number,
		      uint64_t *random);
	uint64_t cache_share; /* the pool holds 1/share of the set's pages; 0: all of them */
	unsigned per_insert;  /* operations for each of the set's inserts */
} mixed_loads[];
extern const unsigned mixed_count;

/* ---------------------------------------------------------------- serial.c */

/* Prints "name value" lines for main.c; false: this build does not measure it. */
bool serial_measure(const struct set *set, FILE *out);

#endif
