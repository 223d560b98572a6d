/*
 * A log over a device in memory, for tests: formatted, started, appended to with
 * contents that a scan can verify, looked at again.
 *
 * Failures of these end the program: they are not what is tested.
 */
#ifndef BLINKFS_TESTS_LOG_RIG_H
#define BLINKFS_TESTS_LOG_RIG_H

#include "log/log_internal.h"

#define LOGRIG_OFFSET 8192u
#define LOGRIG_CAPACITY (64u << 10)
#define LOGRIG_RECORD_MAX 9000u

extern const uint8_t logrig_uuid[16];

/* Below limit; the same numbers in each run of a program. */
uint64_t logrig_random(uint64_t limit);

/* ---------------------------------------------------------------- devices */

/* A device whose blocks are this large, with an empty log of generation 1. */
struct device *logrig_format(uint32_t block, uint64_t capacity);
/* The same, byte-addressable. */
struct device *logrig_format_pmem(uint64_t capacity);
/* A copy as a crash of the machine leaves it when all writes had arrived. */
struct device *logrig_copy(struct device *dev);
uint64_t logrig_offset(lsn_t lsn, uint64_t capacity);
void logrig_flip(struct device *dev, uint64_t offset);

/* ------------------------------------------------------------------- logs */

struct log_place logrig_place(struct device *dev);
int logrig_try_open(struct device *dev, const uint8_t id[16], uint64_t log_gen, uint64_t mount_gen);
struct log *logrig_open(struct device *dev, uint64_t log_gen, uint64_t mount_gen);
/* lsn 0: at the checkpoint. */
struct log *logrig_start(struct device *dev, lsn_t lsn, uint64_t old_gen, uint64_t new_gen);
struct log *logrig_start_mode(struct device *dev, enum log_mode mode, uint64_t old_gen,
			      uint64_t new_gen);

/* An mtr of exactly `bytes` records' bytes: one PATCH filled from `id`.  Returns bytes. */
size_t logrig_records(uint8_t *p, uint64_t id, size_t bytes);
struct log_ticket logrig_append(struct log *log, uint64_t id, size_t bytes);
struct log_ticket logrig_append_unlisted(struct log *log, uint64_t id, size_t bytes);
/* Flushed mtrs over half of a log of LOGRIG_CAPACITY, without a checkpoint. */
void logrig_fill(struct log *log);

/* ------------------------------------------------------------------ scans */

/* What a scan saw, without marks and padding. */
struct logrig_seen {
	uint64_t id[4096];
	lsn_t start[4096];
	size_t count, marks, pads;
	lsn_t cut_at;   /* answer 1 at or above, when set */
	lsn_t expected; /* the next mtr starts here */
	bool wrong;
};

int logrig_see(void *arg, const struct log_mtr *mtr);
/* Opens, scans, verifies the contents, closes. */
struct log_scan_result logrig_scan(struct device *dev, uint64_t gen, struct logrig_seen *seen);

/* ---------------------------------------------------------------- threads */

struct logrig_waiter {
	struct log *log;
	uint64_t bytes; /* to reserve, or the LSN to flush */
	int result;
	_Atomic bool done;
};

/* For os_thread_start(), with a struct logrig_waiter. */
void logrig_reserve_thread(void *arg);
void logrig_append_thread(void *arg); /* id 77, 500 bytes */
void logrig_flush_thread(void *arg);
/* Until so many wait for space. */
void logrig_await_waiters(struct log *log, uint64_t count);

/* A space callback that notes what was wanted. */
extern _Atomic lsn_t logrig_wanted;
void logrig_note_wanted(void *arg, lsn_t lsn);

/* A point handler: once hold is set, the next append stays between LSN and copy while held is. */
extern _Atomic bool logrig_hold, logrig_held;
void logrig_hold_appender(const char *point);

#endif
