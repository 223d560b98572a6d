/* Group commit: copied watermark (INV-LOG-3), durable LSN (INV-LOG-4), one flush for many. */
#include "tests/lib/log_rig.h"

#include <criterion/criterion.h>
#include <sched.h>

static struct logrig_seen seen;
static struct log *watched;

/* -------------------------------------------------------------- INV-LOG-3 */

Test(log_flush, inv_log_3_waits_for_the_copied_watermark)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	struct logrig_waiter appender = {.log = log}, flusher = {.log = log};
	struct os_thread thread[2];
	lsn_t start;

	os_linux_set_point_handler(logrig_hold_appender);
	atomic_store(&logrig_hold, true);
	cr_assert_eq(os_thread_start(&thread[0], "append", logrig_append_thread, &appender), 0);
	while (!atomic_load(&logrig_held))
		sched_yield();
	start = log_unlisted_lsn(log);
	flusher.bytes = logrig_append(log, 78, 100).end;
	cr_assert_eq(os_thread_start(&thread[1], "flush", logrig_flush_thread, &flusher), 0);
	for (int i = 0; i < 2000; i++)
		sched_yield();
	cr_assert(!atomic_load(&flusher.done));
	cr_assert_leq(log_durable_lsn(log), start);
	cr_assert_eq(log_unlisted_lsn(log), start);
	atomic_store(&logrig_held, false);
	os_thread_join(&thread[0]);
	os_thread_join(&thread[1]);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(flusher.result, 0);
	logrig_scan(dev, 2, &seen);
	cr_assert(seen.count == 2 && seen.id[0] == 77 && seen.id[1] == 78);
	log_close(log);
	dev_close(dev);
}

static _Atomic unsigned missing;

static void note_missing(const char *point)
{
	if (strcmp(point, "log:copies_missing") == 0)
		atomic_fetch_add(&missing, 1);
	logrig_hold_appender(point);
}

/* Appends of later groups do not wake the leader: what it waits for is not theirs. */
Test(log_flush, only_who_is_waited_for_wakes_the_leader)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	struct logrig_waiter appender = {.log = log}, flusher = {.log = log};
	struct os_thread thread[2];
	uint32_t before;

	os_linux_set_point_handler(note_missing);
	atomic_store(&logrig_hold, true);
	cr_assert_eq(os_thread_start(&thread[0], "append", logrig_append_thread, &appender), 0);
	while (!atomic_load(&logrig_held))
		sched_yield();
	flusher.bytes = logrig_append(log, 78, 100).end;
	cr_assert_eq(os_thread_start(&thread[1], "flush", logrig_flush_thread, &flusher), 0);
	while (!atomic_load(&missing))
		sched_yield();
	before = waitq_ticket(&log->copied_queue);
	for (unsigned id = 79; id < 89; id++)
		(void)logrig_append(log, id, 100);
	cr_assert_eq(waitq_ticket(&log->copied_queue), before);
	atomic_store(&logrig_held, false);
	os_thread_join(&thread[0]);
	os_thread_join(&thread[1]);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(flusher.result, 0);
	cr_assert_neq(waitq_ticket(&log->copied_queue), before);
	cr_assert_eq(log_flush(log, log_next_lsn(log)), 0);
	logrig_scan(dev, 2, &seen);
	cr_assert_eq(seen.count, 12);
	log_close(log);
	dev_close(dev);
}

/* -------------------------------------------------------------- INV-LOG-4 */

static struct log_ticket late;

static void append_late(const char *point)
{
	if (strcmp(point, "log:written"))
		return;
	os_linux_set_point_handler(NULL);
	late = logrig_append(watched, 2, 100);
}

Test(log_flush, inv_log_4_the_lsn_is_sampled_before_the_flush)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);

	watched = log;
	os_linux_set_point_handler(append_late);
	cr_assert_eq(log_flush(log, logrig_append(log, 1, 100).end), 0);
	cr_assert_gt(late.start, 0);
	cr_assert_leq(log_durable_lsn(log), late.start);
	logrig_scan(dev, 2, &seen);
	cr_assert_eq(seen.count, 1);
	cr_assert_eq(log_flush(log, late.end), 0);
	logrig_scan(dev, 2, &seen);
	cr_assert_eq(seen.count, 2);
	log_close(log);
	dev_close(dev);
}

Test(log_flush, nothing_to_do)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);

	cr_assert_eq(log_flush(log, logrig_append(log, 1, 100).end), 0);
	dev_record_start(dev);
	for (int i = 0; i < 10; i++)
		cr_assert_eq(log_flush(log, log_next_lsn(log)), 0);
	cr_assert_eq(dev_record_count(dev), 0);
	log_close(log);
	dev_close(dev);
}

/* A block is written once in a lap. */
Test(log_flush, no_block_is_written_twice)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);

	for (int i = 0; i < 20; i++) {
		lsn_t durable = log_durable_lsn(log), start = logrig_append(log, 1, 100).start;
		struct device *before = logrig_copy(dev);
		uint8_t old[LOGRIG_CAPACITY], new[LOGRIG_CAPACITY];
		uint64_t len = durable - LSN_FIRST;

		cr_assert_eq(durable % 512, 0);
		cr_assert_eq(start, durable + MARK_MTR_BYTES);
		cr_assert_eq(log_flush(log, log_next_lsn(log)), 0);
		cr_assert_eq(dev_read(before, old, len, logrig_offset(LSN_FIRST, LOGRIG_CAPACITY)),
			     0);
		cr_assert_eq(dev_read(dev, new, len, logrig_offset(LSN_FIRST, LOGRIG_CAPACITY)), 0);
		cr_assert_eq(memcmp(old, new, len), 0);
		dev_close(before);
	}
	log_close(log);
	dev_close(dev);
}

/* ----------------------------------------------------------- group commit */

#define COMMITTERS 8

static struct log *shared_log;
static struct stats stats;

static void commit_thread(void *arg)
{
	cr_assert_eq(log_flush(shared_log, logrig_append(shared_log, (uintptr_t)arg, 60).end), 0);
}

/* Holds the first group in flight until all the others wait for the next. */
static void hold_flight(const char *point)
{
	if (strcmp(point, "log:written") || stat_read(&stats, STAT_log_groups))
		return;
	while (stat_read(&stats, STAT_log_flush_waits) < COMMITTERS)
		sched_yield();
}

Test(log_flush, one_flush_serves_all_who_appended_before_it)
{
	struct device *dev = logrig_format(512, 1 << 20);
	struct log_place place = logrig_place(dev);
	struct os_thread thread[COMMITTERS + 1];

	place.stats = &stats;
	cr_assert_eq(log_open(&shared_log, &place, 1, 1), 0);
	cr_assert_eq(log_start(shared_log, LSN_FIRST, 2, NULL), 0);
	os_linux_set_point_handler(hold_flight);
	cr_assert_eq(os_thread_start(&thread[0], "commit", commit_thread, NULL), 0);
	while (log_next_lsn(shared_log) % 512 || log_next_lsn(shared_log) == LSN_FIRST)
		sched_yield();
	for (uintptr_t i = 1; i <= COMMITTERS; i++)
		cr_assert_eq(os_thread_start(&thread[i], "commit", commit_thread, (void *)i), 0);
	for (int i = 0; i <= COMMITTERS; i++)
		os_thread_join(&thread[i]);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(stat_read(&stats, STAT_log_appends), COMMITTERS + 1);
	cr_assert_eq(stat_read(&stats, STAT_log_groups), 2);
	log_close(shared_log);
	logrig_scan(dev, 2, &seen);
	cr_assert_eq(seen.count, COMMITTERS + 1);
	dev_close(dev);
}
