/* Holds (INV-LOG-2, second half), and what a holder reads. */
#include "tests/lib/log_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static unsigned told;

static void tell(void *arg)
{
	(void)arg;
	told++;
}

Test(log_hold, inv_log_2_the_checkpoint_stays_below_every_hold)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	lsn_t from = log_hold(log, LOG_HOLD_BACKUP), other, end;

	told = 0;
	log_set_hold_callback(log, tell, NULL);
	cr_assert_eq(from, log_checkpoint_lsn(log));
	logrig_append(log, 1, 500);
	cr_assert_eq(log_flush(log, log_next_lsn(log)), 0);
	other = log_durable_lsn(log);
	logrig_append(log, 2, 500);
	cr_assert_eq(log_flush(log, log_next_lsn(log)), 0);
	end = log_durable_lsn(log);
	cr_assert_eq(log_checkpoint(log, end), 0);
	cr_assert_eq(log_checkpoint_lsn(log), from);
	cr_assert_geq(told, 1);
	cr_assert(log_hold_move(log, LOG_HOLD_BACKUP, other), "a checkpoint was kept back");
	cr_assert_eq(log_checkpoint(log, end), 0);
	cr_assert_eq(log_checkpoint_lsn(log), other);
	cr_assert_eq(log_hold(log, LOG_HOLD_ARCHIVE), other);
	log_release(log, LOG_HOLD_BACKUP);
	cr_assert_eq(log_checkpoint(log, end), 0);
	cr_assert_eq(log_checkpoint_lsn(log), other, "the other hold");
	log_release(log, LOG_HOLD_ARCHIVE);
	cr_assert_eq(log_checkpoint(log, end), 0);
	cr_assert_eq(log_checkpoint_lsn(log), end);
	log_close(log);
	dev_close(dev);
}

static struct log *watched;
static lsn_t held_at;

static void hold_meanwhile(const char *point)
{
	if (strcmp(point, "log:checkpoint") == 0)
		held_at = log_hold(watched, LOG_HOLD_BACKUP);
}

/* A hold that begins while a checkpoint is being written begins at that checkpoint. */
Test(log_hold, no_checkpoint_slips_by)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);

	watched = log;
	logrig_append(log, 1, 500);
	cr_assert_eq(log_flush(log, log_next_lsn(log)), 0);
	os_linux_set_point_handler(hold_meanwhile);
	cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
	os_linux_set_point_handler(NULL);
	cr_assert_geq(held_at, log_checkpoint_lsn(log));
	log_close(log);
	dev_close(dev);
}

/* Over the end of the lap, in every mode; parsed without the log. */
static void read_back(enum log_mode mode)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start_mode(dev, mode, 1, 2);
	uint8_t *bytes = malloc(LOGRIG_CAPACITY);
	unsigned found = 0;
	lsn_t from, to;
	size_t at = 0;

	logrig_fill(log);
	cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
	from = log_hold(log, LOG_HOLD_ARCHIVE);
	logrig_fill(log);
	to = log_durable_lsn(log);
	cr_assert_gt(to - LSN_FIRST, LOGRIG_CAPACITY * 3 / 4);
	cr_assert_eq(log_read(log, from, to, bytes), 0);
	while (at < to - from) {
		struct log_mtr mtr;

		cr_assert(log_parse(2, from + at, bytes + at, to - from - at, &mtr));
		cr_assert_not(log_parse(3, from + at, bytes + at, to - from - at, &mtr));
		cr_assert_not(log_parse(2, from + at, bytes + at, 4, &mtr));
		cr_assert(log_parse(2, from + at, bytes + at, to - from - at, &mtr));
		found += bytes[at] >= REC_PAGE_INIT;
		if (bytes[at] == REC_MARK)
			cr_assert_not(log_parse(2, from + at + 512, bytes + at, to - from - at,
						&mtr), "a mark of another place");
		at += mtr.end - mtr.start;
	}
	cr_assert_geq(found, 3);
	free(bytes);
	log_close(log);
	dev_close(dev);
}

Test(log_hold, what_is_held_can_be_read)
{
	read_back(LOG_MODE_PWRITE);
	read_back(LOG_MODE_MAPPED);
}
