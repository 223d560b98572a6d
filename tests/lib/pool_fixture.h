/*
 * A minimal volume made by hand, for tests of the pool and the flusher: memory
 * device, log, pool, flusher; no trees, no space.  Works under Criterion and in
 * plain programs: a failed step is a failed check().
 *
 *	block 0, unused | doublewrite slots | log | groups: bitmap page, then pages
 *
 * Each test page is a leaf that holds the records "a" and "b" with the same
 * eight bytes as values, changed together: a torn or half applied page shows.
 */
#ifndef BLINKFS_TESTS_POOL_FIXTURE_H
#define BLINKFS_TESTS_POOL_FIXTURE_H

#include "engine/base/error.h"
#include "engine/flush.h"
#include "engine/pool.h"
#include "engine/redo.h"
#include "engine/volume.h"

#define FIXTURE_INDEX INDEX_INODES
#define FIXTURE_GROUP_PAGES 512u
#define FIXTURE_TALLY 64u /* there need be no bitmaps that say so */
#define FIXTURE_GENERATION 2u /* of the log, once started */
/* Log bytes that an mtr over n pages reserves. */
#define FIXTURE_MTR_BYTES(pages) (256ull + 512ull * (pages))

struct fixture_params {
	uint32_t page_size;   /* 0 = 4096 */
	uint32_t groups;      /* 0 = 4 */
	uint32_t frames;      /* 0 = the fewest */
	uint32_t dw_slots;    /* 0 = 16 */
	uint64_t log_bytes;   /* 0 = LOG_BYTES_MIN */
	uint64_t log_buffer_bytes; /* 0 = the default */
	bool no_log;          /* the log stays as recovery finds it: not open for appending */
	bool background;      /* starts the flusher's thread */
	uint64_t commit_interval_ns;
};

struct fixture {
	struct volume *volume;
	struct device *dev;
	struct pool *pool;
	struct flusher *flusher;
	struct log *log;
};

void fixture_open(struct fixture *f, const struct fixture_params *params);
/* Frees everything but the device, which it returns; as if the process had died. */
struct device *fixture_crash(struct fixture *f);
void fixture_close(struct fixture *f);
/*
 * The same volume again on a device that has seen one; the log is open, not
 * started, of FIXTURE_GENERATION or, after a recovery that was cut, the next.
 */
void fixture_reopen(struct fixture *f, const struct fixture_params *params, struct device *dev);
/* Starts the log at `lsn` and, if the parameters said so, the thread. */
void fixture_start(struct fixture *f, lsn_t lsn);

/* The n-th test page; bitmap and system page left out. */
uint64_t fixture_page(const struct fixture *f, unsigned n);
/* Writes a valid page with this value straight to the device. */
void fixture_put_page(struct fixture *f, uint64_t pageno, uint64_t value, lsn_t lsn);
/* The value of a page's bytes; false: the page does not verify. */
bool fixture_judge(const struct fixture *f, const void *page, uint64_t pageno, uint64_t *value);
bool fixture_value_in_place(struct fixture *f, uint64_t pageno, uint64_t *value);

struct frame *fixture_get(struct fixture *f, uint64_t pageno);
struct frame *fixture_new(struct fixture *f, uint64_t pageno);
uint64_t fixture_value(const struct frame *frame); /* latched by the caller, or alone */

/* Makes a new page in a frame latched X, without a log. */
void fixture_fill(struct frame *frame, uint64_t value);
/* Redo records that set the value, applied to frames latched X; init: makes the pages. */
void fixture_stage(struct redo *redo, struct frame *frame, uint64_t value, bool init);
/* One mtr over pages in ascending order, tickets and all; returns its end LSN. */
lsn_t fixture_change(struct fixture *f, const uint64_t *pagenos, unsigned count, uint64_t value,
		     bool init);

/* For the n-th page: an mtr that sets its value; its value as the pool has it. */
lsn_t fixture_change_one(struct fixture *f, unsigned n, uint64_t value, bool init);
uint64_t fixture_read_one(struct fixture *f, unsigned n);

uint64_t fixture_stat(const struct fixture *f, enum stat_id stat);
struct pool_counts fixture_counts(struct fixture *f);

#endif
