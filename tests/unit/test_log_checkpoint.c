/* Checkpoints (INV-LOG-2): space is free when the block that says so is durable. */
#include "tests/lib/log_rig.h"

#include <criterion/criterion.h>
#include <errno.h>

static struct logrig_seen seen;
static struct log *watched;

Test(log_checkpoint, inv_log_2_unlisted_appends_hold_it_back)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	struct log_ticket a, b;

	cr_assert_eq(log_unlisted_lsn(log), log_next_lsn(log));
	a = logrig_append_unlisted(log, 1, 100);
	b = logrig_append_unlisted(log, 2, 100);
	cr_assert_eq(log_unlisted_lsn(log), a.start);
	log_listed(log, &a);
	cr_assert_eq(log_unlisted_lsn(log), b.start);
	log_listed(log, &b);
	cr_assert_eq(log_unlisted_lsn(log), log_next_lsn(log));
	log_close(log);
	dev_close(dev);
}

static lsn_t watched_lsn;

static void watch_checkpoint(const char *point)
{
	if (!strcmp(point, "log:checkpoint"))
		watched_lsn = log_checkpoint_lsn(watched);
}

Test(log_checkpoint, inv_log_2_space_is_free_only_after_the_flush)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	lsn_t before = log_checkpoint_lsn(log);

	watched = log;
	logrig_fill(log);
	os_linux_set_point_handler(watch_checkpoint);
	cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(watched_lsn, before);
	cr_assert_eq(log_checkpoint_lsn(log), log_durable_lsn(log));

	logrig_fill(log);
	before = log_checkpoint_lsn(log);
	dev_memory_fail(dev, FAULT_FLUSH, 0, -EIO, false);
	cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), -BE_LOGDEAD);
	cr_assert_eq(log_checkpoint_lsn(log), before);
	cr_assert(log_dead(log));
	log_close(log);
	dev_close(dev);
}

Test(log_checkpoint, alternates_and_does_nothing_when_nothing_advanced)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	struct log *again;
	lsn_t durable;
	size_t events;

	dev_record_start(dev);
	cr_assert_eq(log_checkpoint(log, log_checkpoint_lsn(log)), 0);
	cr_assert_eq(dev_record_count(dev), 0);
	cr_assert_eq(log_mark(log, logrig_append(log, 1, 100).end), 0);
	durable = log_durable_lsn(log);
	cr_assert_eq(log_checkpoint(log, LSN_FIRST), 0, "the newest mark is recorded");
	again = logrig_open(dev, 2, 2);
	cr_assert_eq(log_found_checkpoint(again)->marked_lsn, log_marked_lsn(log));
	cr_assert_eq(log_found_checkpoint(again)->lsn, LSN_FIRST);
	log_close(again);
	cr_assert_eq(log_checkpoint(log, durable), 0);
	events = dev_record_count(dev);
	cr_assert_eq(log_checkpoint(log, durable), 0);
	cr_assert_eq(log_checkpoint(log, LSN_FIRST), 0, "never backwards");
	cr_assert_eq(dev_record_count(dev), events);
	again = logrig_open(dev, 2, 2);
	cr_assert_eq(log_found_checkpoint(again)->lsn, durable);
	log_close(again);
	logrig_flip(dev, LOGRIG_OFFSET +
				 (log->checkpoint_slot ? LOG_CHECKPOINT_1 : LOG_CHECKPOINT_0) + 40);
	again = logrig_open(dev, 2, 2);
	cr_assert_eq(log_found_checkpoint(again)->lsn, LSN_FIRST, "the other one");
	log_close(again);
	log_close(log);
	dev_close(dev);
}

/* The oldest dirty page may be of the open group. */
Test(log_checkpoint, not_above_durable)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	lsn_t durable;

	cr_assert_eq(log_flush(log, logrig_append(log, 1, 100).end), 0);
	durable = log_durable_lsn(log);
	cr_assert_eq(log_checkpoint(log, logrig_append(log, 2, 100).start), 0);
	cr_assert_eq(log_checkpoint_lsn(log), durable);
	cr_assert_eq(log_flush(log, log_next_lsn(log)), 0);
	logrig_scan(dev, 2, &seen);
	cr_assert(seen.count == 1 && seen.id[0] == 2);
	log_close(log);
	dev_close(dev);
}

/* A checkpoint may stand at either end of any mtr. */
Test(log_checkpoint, within_a_group)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	struct log_ticket ticket[8];

	for (uint64_t id = 0; id < 8; id++)
		ticket[id] = logrig_append(log, id, 50 + 20 * id);
	cr_assert_eq(log_mark(log, ticket[7].end), 0);
	for (uint64_t id = 0; id < 8; id++) {
		cr_assert_eq(log_checkpoint(log, ticket[id].start), 0);
		logrig_scan(dev, 2, &seen);
		cr_assert(seen.count == 8 - id && seen.id[0] == id);
		cr_assert_eq(log_checkpoint(log, ticket[id].end), 0);
		cr_assert(!logrig_scan(dev, 2, &seen).damaged);
		cr_assert_eq(seen.count, 7 - id);
	}
	log_close(log);
	dev_close(dev);
}
