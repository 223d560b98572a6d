/* Starting after a cut (INV-LOG-6): nothing behind it comes back. */
#include "tests/lib/log_rig.h"

#include <criterion/criterion.h>
#include <errno.h>

static struct logrig_seen seen;

/*
 * The log is cut; new appends end exactly where the old tail goes on.  Only
 * the epoch tells the tail from their continuation.
 */
Test(log_start, inv_log_6_an_old_tail_does_not_come_back)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	struct log_scan_result result;
	lsn_t cut = 0;

	for (uint64_t id = 0; id < 6; id++) {
		lsn_t end = logrig_append(log, id, 400).end;

		cr_assert_eq(log_flush(log, end), 0);
		if (id == 2)
			cut = log_durable_lsn(log);
	}
	log_close(log);
	logrig_scan(dev, 2, &seen);
	cr_assert_eq(seen.count, 6);

	log = logrig_start(dev, cut, 2, 3);
	cr_assert_eq(log_checkpoint_lsn(log), cut);
	cr_assert_eq(log_flush(log, logrig_append(log, 100, 400).end), 0);
	log_close(log);
	result = logrig_scan(dev, 3, &seen);
	cr_assert(seen.count == 1 && seen.id[0] == 100);
	cr_assert(!result.damaged);
	cr_assert_eq(logrig_try_open(dev, logrig_uuid, 2, 2), -BE_OLDLOG,
		     "both blocks have the new epoch");
	logrig_flip(dev, LOGRIG_OFFSET + LOG_CHECKPOINT_0 + 30);
	logrig_scan(dev, 3, &seen);
	cr_assert_eq(seen.count, 1, "whichever block is lost");
	logrig_flip(dev, LOGRIG_OFFSET + LOG_CHECKPOINT_0 + 30);
	logrig_flip(dev, LOGRIG_OFFSET + LOG_CHECKPOINT_1 + 30);
	logrig_scan(dev, 3, &seen);
	cr_assert_eq(seen.count, 1);
	dev_close(dev);
}

/* The same within a group: no mark stands where the old tail goes on. */
Test(log_start, inv_log_6_an_old_tail_does_not_come_back_without_a_mark)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	const size_t first = 512 - MARK_MTR_BYTES - MTR_TRAILER_BYTES;
	struct log_ticket ticket;

	ticket = logrig_append(log, 1, first);
	cr_assert_eq(ticket.end % 512, 0);
	for (uint64_t id = 2; id < 6; id++)
		logrig_append(log, id, 512 - MTR_TRAILER_BYTES);
	cr_assert_eq(log_flush(log, log_next_lsn(log)), 0);
	log_close(log);
	logrig_scan(dev, 2, &seen);
	cr_assert_eq(seen.count, 5);

	log = logrig_start(dev, LSN_FIRST, 2, 3);
	cr_assert_eq(logrig_append(log, 100, first).end, ticket.end);
	cr_assert_eq(log_flush(log, ticket.end), 0);
	cr_assert_eq(log_durable_lsn(log), ticket.end, "no padding");
	log_close(log);
	cr_assert_eq(logrig_scan(dev, 3, &seen).end, ticket.end);
	cr_assert(seen.count == 1 && seen.id[0] == 100);
	dev_close(dev);
}

Test(log_start, inv_log_6_order_of_its_writes)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log;
	const bool is_flush[] = {false, true, false, true};

	dev_record_start(dev);
	log = logrig_start(dev, 0, 1, 2);
	cr_assert_eq(dev_record_count(dev), 4);
	for (size_t i = 0; i < 4; i++)
		cr_assert_eq(dev_record_is_flush(dev, i), is_flush[i]);
	log_close(log);
	dev_close(dev);
}

Test(log_start, rounds_up_and_refuses_an_old_generation)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_open(dev, 1, 1);

	cr_assert_eq(log_start(log, LSN_FIRST, 1, NULL), -EINVAL);
	cr_assert_eq(log_start(log, LSN_FIRST + 1, 2, NULL), 0);
	cr_assert_eq(log_next_lsn(log), LSN_FIRST + 512);
	cr_assert_eq(log_durable_lsn(log), LSN_FIRST + 512);
	log_close(log);
	dev_close(dev);
}

Test(log_start, error_while_starting)
{
	for (unsigned n = 0; n < 4; n++) {
		struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
		struct log *log = logrig_open(dev, 1, 1);

		dev_memory_fail(dev, FAULT_WRITE | FAULT_FLUSH, n, -EIO, false);
		cr_assert_eq(log_start(log, LSN_FIRST, 2, NULL), -EIO);
		log_close(log);
		log = logrig_open(dev, 1, 2);
		cr_assert_eq(log_start(log, LSN_FIRST, 3, NULL), 0, "simply again");
		log_close(log);
		dev_close(dev);
	}
}
