/* Marks (INV-LOG-5): the end of the log and damage told apart. */
#include "tests/lib/log_rig.h"

#include <criterion/criterion.h>

static struct logrig_seen seen;

Test(log_mark, inv_log_5_each_group_starts_with_a_mark)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	lsn_t first, second;

	cr_assert_eq(log_flush(log, logrig_append(log, 1, 700).end), 0);
	first = log_durable_lsn(log);
	cr_assert_eq(log_marked_lsn(log), LSN_FIRST);
	cr_assert_eq(log_flush(log, logrig_append(log, 2, 10 + 7).end), 0);
	second = log_durable_lsn(log);
	cr_assert_eq(log_marked_lsn(log), first);
	cr_assert_eq(logrig_scan(dev, 2, &seen).marked_lsn, first);
	cr_assert_eq(seen.marks, 2);
	cr_assert(first % 512 == 0 && second % 512 == 0);
	log_close(log);
	dev_close(dev);
}

Test(log_mark, inv_log_5_a_closing_mark_triggers_no_other)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	lsn_t end = logrig_append(log, 1, 100).end, next;

	cr_assert_eq(log_mark(log, end), 0);
	cr_assert_geq(log_marked_lsn(log), end);
	next = log_next_lsn(log);
	dev_record_start(dev);
	for (int i = 0; i < 10; i++) {
		cr_assert_eq(log_mark(log, log_durable_lsn(log)), 0);
		cr_assert_eq(log_mark(log, log_next_lsn(log)), 0);
	}
	cr_assert_eq(log_next_lsn(log), next);
	cr_assert_eq(dev_record_count(dev), 0);
	cr_assert_geq(logrig_scan(dev, 2, &seen).marked_lsn, end);
	log_close(log);
	dev_close(dev);
}

/* Each byte of what a mark covers: when it is bad, that is damage. */
Test(log_mark, inv_log_5_a_stop_below_a_mark_is_damage)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	lsn_t end;

	for (uint64_t id = 0; id < 10; id++)
		cr_assert_eq(log_flush(log, logrig_append(log, id, 11 + logrig_random(900)).end),
			     0);
	end = log_durable_lsn(log);
	cr_assert_eq(log_mark(log, end), 0);
	log_close(log);
	cr_assert(!logrig_scan(dev, 2, &seen).damaged);
	for (lsn_t lsn = LSN_FIRST; lsn < end; lsn++) {
		struct log_scan_result result;

		logrig_flip(dev, logrig_offset(lsn, LOGRIG_CAPACITY));
		result = logrig_scan(dev, 2, &seen);
		cr_assert(result.damaged && result.end <= lsn, "byte at %lu", (unsigned long)lsn);
		cr_assert_gt(result.damage_mark, result.end);
		logrig_flip(dev, logrig_offset(lsn, LOGRIG_CAPACITY));
	}
	dev_close(dev);
}

/* The mark that the checkpoint block knows of counts as well. */
Test(log_mark, inv_log_5_a_stop_below_the_checkpoint_s_mark_is_damage)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	struct log_ticket ticket = logrig_append(log, 1, 3000);

	cr_assert_eq(log_mark(log, ticket.end), 0);
	cr_assert_eq(log_checkpoint(log, ticket.start), 0);
	for (lsn_t lsn = ticket.start; lsn < log_durable_lsn(log); lsn += 512) {
		uint64_t at = logrig_offset(lsn / 512 * 512, LOGRIG_CAPACITY);
		uint8_t zeros[512] = {0};

		cr_assert_eq(dev_write(dev, zeros, 512, at), 0);
	}
	cr_assert(logrig_scan(dev, 2, &seen).damaged);
	log_close(log);
	dev_close(dev);
}

/* A torn group with nothing behind it is a clean end, whichever of its blocks are missing. */
Test(log_mark, inv_log_5_a_torn_last_group_is_the_end)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	struct device *before;
	lsn_t from, to;

	for (uint64_t id = 0; id < 10; id++)
		cr_assert_eq(log_flush(log, logrig_append(log, id, 300).end), 0);
	before = logrig_copy(dev);
	from = log_durable_lsn(log);
	for (uint64_t id = 10; id < 20; id++)
		logrig_append(log, id, 300);
	cr_assert_eq(log_flush(log, log_next_lsn(log)), 0);
	to = log_durable_lsn(log);
	cr_assert_eq((to - from) / 512, 7);
	for (unsigned arrived = 0; arrived < 1 << 7; arrived++) {
		struct device *torn = logrig_copy(before);
		struct log_scan_result result;

		for (unsigned i = 0; i < 7; i++) {
			uint8_t block[512];
			uint64_t at = logrig_offset(from + 512 * i, LOGRIG_CAPACITY);

			if (!(arrived & 1 << i))
				continue;
			cr_assert_eq(dev_read(dev, block, 512, at), 0);
			cr_assert_eq(dev_write(torn, block, 512, at), 0);
		}
		result = logrig_scan(torn, 2, &seen);
		cr_assert(!result.damaged);
		cr_assert(seen.count >= 10 && result.end >= from && result.end <= to);
		dev_close(torn);
	}
	dev_close(before);
	log_close(log);
	dev_close(dev);
}

/* Marks of the lap before lie at block boundaries behind the stop, valid but for the lap. */
Test(log_mark, inv_log_5_marks_of_the_lap_before_are_no_damage)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);

	for (uint64_t id = 0; log_next_lsn(log) < LSN_FIRST + 5 * LOGRIG_CAPACITY; id++) {
		cr_assert_eq(log_mark(log, logrig_append(log, id, 100).end), 0);
		cr_assert(!logrig_scan(dev, 2, &seen).damaged);
		cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
		cr_assert(!logrig_scan(dev, 2, &seen).damaged);
		cr_assert_eq(seen.count, 0);
	}
	log_close(log);
	dev_close(dev);
}
