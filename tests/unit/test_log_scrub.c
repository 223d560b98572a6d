/* Zeros behind the checkpoint (INV-LOG-9). */
#include "tests/lib/log_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

static struct logrig_seen seen;
static struct stats stats;

static struct log *start(struct device *dev, enum log_mode mode, uint64_t old_gen, uint64_t new_gen)
{
	const struct log_options options = {.mode = mode, .scrub = true};
	struct log *log = logrig_open(dev, old_gen, old_gen);

	log->stats = &stats;
	cr_assert_eq(log_start(log, log_found_checkpoint(log)->lsn, new_gen, &options), 0);
	return log;
}

/* Both blocks, then everything that they have passed. */
static void scrub_all(struct log *log)
{
	int rc;

	for (int i = 0; i < 2; i++)
		cr_assert_eq(log_checkpoint(log, log_unlisted_lsn(log)), 0);
	while ((rc = log_scrub(log)) > 0)
		;
	cr_assert_eq(rc, 0);
}

/* Bytes that are not zero in the part of the log that is free, on the device. */
static size_t old_bytes(struct device *dev, lsn_t from, lsn_t to)
{
	size_t count = 0;

	for (; from < to; from++) {
		uint8_t byte;

		cr_assert_eq(dev_read(dev, &byte, 1, logrig_offset(from, LOGRIG_CAPACITY)), 0);
		count += byte != 0;
	}
	return count;
}

Test(log_scrub, leaves_zeros_and_what_is_live_in_every_mode)
{
	for (enum log_mode mode = LOG_MODE_PWRITE; mode < LOG_MODE_COUNT; mode++) {
		for (int pmem = 0; pmem <= (mode == LOG_MODE_MAPPED); pmem++) {
			struct device *dev = pmem ? logrig_format_pmem(LOGRIG_CAPACITY)
						  : logrig_format(512, LOGRIG_CAPACITY);
			struct log *log = start(dev, mode, 1, 2);
			lsn_t next;

			for (int lap = 0; lap < 5; lap++) {
				logrig_fill(log);
				scrub_all(log);
			}
			next = log_next_lsn(log);
			for (uint64_t id = 0; id < 9; id++)
				logrig_append(log, 1000 + id, 300);
			cr_assert_eq(log_flush(log, log_next_lsn(log)), 0);
			cr_assert_eq(log_scrub(log), 0);
			if (mode == LOG_MODE_MAPPED)
				dev_record_look(dev);
			cr_assert_eq(old_bytes(dev, log_next_lsn(log), next + LOGRIG_CAPACITY), 0,
				     "mode %d", mode);
			log_close(log);
			logrig_scan(dev, 2, &seen);
			cr_assert(!seen.wrong && seen.count == 9);
			dev_close(dev);
		}
	}
}

/* What the older block has not passed is needed if the newer one is lost. */
Test(log_scrub, inv_log_9_counts_from_the_older_checkpoint_block)
{
	for (int mapped = 0; mapped < 2; mapped++) {
		struct device *dev = mapped ? logrig_format_pmem(LOGRIG_CAPACITY)
					    : logrig_format(512, LOGRIG_CAPACITY);
		struct log *log = start(dev, mapped ? LOG_MODE_MAPPED : LOG_MODE_PWRITE, 1, 2);
		struct log_scan_result found;

		cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
		for (uint64_t id = 0; id < 20; id++)
			logrig_append(log, id, 700);
		cr_assert_eq(log_mark(log, log_next_lsn(log)), 0);
		cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
		while (log_scrub(log) > 0)
			;
		logrig_flip(dev, LOGRIG_OFFSET + (log->checkpoint_slot ? LOG_CHECKPOINT_1
								       : LOG_CHECKPOINT_0) + 30);
		log_close(log);
		found = logrig_scan(dev, 2, &seen);
		cr_assert(!seen.wrong && !found.damaged);
		cr_assert_eq(seen.count, 20);
		dev_close(dev);
	}
}

/* What archive and backup have still to read is at or above the checkpoint, whatever they do. */
Test(log_scrub, inv_log_9_leaves_what_is_held)
{
	for (int mapped = 0; mapped < 2; mapped++) {
		struct device *dev = mapped ? logrig_format_pmem(LOGRIG_CAPACITY)
					    : logrig_format(512, LOGRIG_CAPACITY);
		struct log *log = start(dev, mapped ? LOG_MODE_MAPPED : LOG_MODE_PWRITE, 1, 2);
		uint8_t *before = malloc(LOGRIG_CAPACITY), *after = malloc(LOGRIG_CAPACITY);

		/* More than once round, the holds moving on behind. */
		for (uint64_t id = 0; id < 300; id++) {
			lsn_t from, to;

			if (id % 3 == 0)
				(void)log_hold(log, LOG_HOLD_BACKUP);
			if (id == 0)
				(void)log_hold(log, LOG_HOLD_ARCHIVE);
			logrig_append(log, id, 400);
			cr_assert_eq(log_mark(log, log_next_lsn(log)), 0);
			from = atomic_load(&log->hold[LOG_HOLD_ARCHIVE]);
			if (atomic_load(&log->hold[LOG_HOLD_BACKUP]) < from)
				from = atomic_load(&log->hold[LOG_HOLD_BACKUP]);
			to = log_durable_lsn(log);
			cr_assert_eq(log_read(log, from, to, before), 0);
			scrub_all(log);
			cr_assert_eq(log_read(log, from, to, after), 0);
			cr_assert_eq(memcmp(before, after, to - from), 0);
			if (id % 3 == 1)
				(void)log_hold_move(log, LOG_HOLD_BACKUP, to);
			if (id % 3 == 2)
				(void)log_release(log, LOG_HOLD_BACKUP);
			if (id % 5 == 4)
				(void)log_hold_move(log, LOG_HOLD_ARCHIVE, to);
		}
		cr_assert_gt(log_next_lsn(log), 2 * LOGRIG_CAPACITY);
		free(after);
		free(before);
		log_close(log);
		dev_close(dev);
	}
}

/* While a batch is under way, appends get what is left below it, and no more. */
static struct log *watched;
static struct logrig_waiter late;
static struct os_thread late_thread;
static uint64_t appended;

static void append_all_that_may_be(const char *point)
{
	uint64_t bytes = 500;

	if (strcmp(point, "log:scrubbing"))
		return;
	os_linux_set_point_handler(NULL);
	cr_assert_neq(watched->scrubbing, LSN_NONE);
	while (log_promised_end_locked(watched, bytes) <= watched->scrubbing) {
		logrig_append(watched, 5000 + appended++, bytes);
		cr_assert_eq(log_flush(watched, log_next_lsn(watched)), 0);
	}
	late = (struct logrig_waiter){.log = watched, .bytes = 4000};
	cr_assert_eq(os_thread_start(&late_thread, "late", logrig_reserve_thread, &late), 0);
	logrig_await_waiters(watched, 1);
	cr_assert(!atomic_load(&late.done));
}

Test(log_scrub, inv_log_9_nothing_is_granted_from_a_batch)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = start(dev, LOG_MODE_PWRITE, 1, 2);

	watched = log;
	/* So that the batch begins not far ahead, and lies over old bytes. */
	logrig_fill(log);
	scrub_all(log);
	log->scrubbed = lsn_round_up(log_promised_end_locked(log, 0) + 20000, 512);
	os_linux_set_point_handler(append_all_that_may_be);
	cr_assert_geq(log_scrub(log), 0);
	os_thread_join(&late_thread);
	cr_assert(appended > 0 && late.result == 0);
	log_unreserve(log, late.bytes);
	log_close(log);
	logrig_scan(dev, 2, &seen);
	cr_assert(!seen.wrong);
	cr_assert_eq(seen.count, appended);
	dev_close(dev);
}

Test(log_scrub, what_is_zero_already_is_read_and_not_written)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = start(dev, LOG_MODE_PWRITE, 1, 2);
	uint64_t writes;

	logrig_fill(log);
	scrub_all(log);
	cr_assert_gt(stat_read(&stats, STAT_log_scrub_bytes), 0);
	log_close(log);
	log = start(dev, LOG_MODE_PWRITE, 2, 3);
	writes = stat_read(&stats, STAT_log_scrub_batches);
	while (log_scrub(log) > 0)
		;
	cr_assert_eq(stat_read(&stats, STAT_log_scrub_batches), writes);
	log_close(log);
	dev_close(dev);
}

Test(log_scrub, a_failure_is_final)
{
	const unsigned kinds[] = {FAULT_READ, FAULT_WRITE, FAULT_FLUSH};

	for (size_t i = 0; i < array_count(kinds); i++) {
		struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
		struct log *log = start(dev, LOG_MODE_PWRITE, 1, 2);
		int rc;

		logrig_fill(log);
		for (int k = 0; k < 2; k++)
			cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
		dev_memory_fail(dev, kinds[i], 0, -EIO, false);
		while ((rc = log_scrub(log)) > 0)
			;
		cr_assert_eq(rc, -BE_LOGDEAD);
		cr_assert(log_dead(log));
		cr_assert_eq(log_scrub(log), -BE_LOGDEAD);
		log_close(log);
		dev_close(dev);
	}
}
