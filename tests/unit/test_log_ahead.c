/*
 * The scan of a log so long that a thread reads ahead of it (log/ahead.c).
 */
#include "log/log_internal.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

#define CAPACITY (24u << 20)
#define MTR_BYTES 4000u
#define MTRS 5600u /* together more than the thread may be ahead */

static const uint8_t uuid[16] = "0123456789abcde";

static struct log *open_log(struct device *dev, uint64_t generation)
{
	struct log_place place = {.dev = dev, .size_bytes = dev->size_bytes};
	struct log *log;

	memcpy(place.uuid, uuid, sizeof(uuid));
	cr_assert_eq(log_open(&log, &place, generation, generation), 0);
	return log;
}

/* Each mtr is one record that holds its number. */
static void append(struct log *log, uint32_t number)
{
	uint8_t records[MTR_BYTES + MTR_TRAILER_BYTES] = {REC_PATCH};
	struct log_ticket ticket;

	check(varint_put(records + 1, MTR_BYTES - 3) == 2);
	memcpy(records + 3, &number, sizeof(number));
	check(log_reserve(log, sizeof(records)) == 0);
	log_append(log, records, MTR_BYTES, &ticket);
	log_listed(log, &ticket);
}

static struct device *long_log(void)
{
	struct device *dev;
	struct log *log;

	check(dev_open_memory(&dev, LOG_RECORDS_START + CAPACITY) == 0);
	check(log_format(dev, 0, dev->size_bytes, uuid, 1) == 0);
	log = open_log(dev, 1);
	check(log_start(log, log_found_checkpoint(log)->lsn, 2, NULL) == 0);
	for (uint32_t i = 0; i < MTRS; i++)
		append(log, i);
	check(log_mark(log, log_next_lsn(log)) == 0);
	log_close(log);
	return dev;
}

struct seen {
	uint32_t count, stop_at;
	int stop_with;
};

static int see(void *arg, const struct log_mtr *mtr)
{
	struct seen *seen = arg;
	uint32_t number;

	if (mtr->records[0] != REC_PATCH)
		return 0;
	memcpy(&number, mtr->records + 3, sizeof(number));
	check(number == seen->count && mtr->records_bytes == MTR_BYTES);
	if (number == seen->stop_at)
		return seen->stop_with;
	seen->count++;
	return 0;
}

static _Atomic bool thread_seen;

static void see_thread(const char *name)
{
	if (strcmp(name, "log:ahead") == 0)
		atomic_store(&thread_seen, true);
}

Test(log_ahead, the_whole_log_is_seen_each_time)
{
	struct device *dev = long_log();
	struct log *log = open_log(dev, 2);

	os_linux_set_point_handler(see_thread);
	for (unsigned i = 0; i < 2; i++) {
		struct seen seen = {.stop_at = UINT32_MAX};
		struct log_scan_result result;

		cr_assert_eq(log_scan(log, see, &seen, &result), 0);
		cr_assert_eq(seen.count, MTRS);
		cr_assert_not(result.damaged);
		cr_assert_eq(result.marked_lsn + 512, result.end, "the closing mark is the last");
	}
	os_linux_set_point_handler(NULL);
	cr_assert(thread_seen);
	log_close(log);
	dev_close(dev);
}

/* The thread ends with the scan, also where it waits until it may read on. */
Test(log_ahead, a_visitor_may_stop_anywhere)
{
	static const int results[] = {1, -EINTR};
	struct device *dev = long_log();

	for (uint32_t at = 0; at < MTRS; at += MTRS / 7) {
		for (unsigned i = 0; i < 2; i++) {
			struct seen seen = {.stop_at = at, .stop_with = results[i]};
			struct log *log = open_log(dev, 2);
			struct log_scan_result result;

			cr_assert_eq(log_scan(log, see, &seen, &result), i ? -EINTR : 0);
			cr_assert_eq(seen.count, at);
			cr_assert_not(log->ahead.running);
			log_close(log);
		}
	}
	dev_close(dev);
}

Test(log_ahead, a_read_error_ends_the_scan_and_is_forgotten_by_the_next)
{
	struct device *dev = long_log();

	for (uint64_t nth = 0;; nth += 3) {
		struct seen seen = {.stop_at = UINT32_MAX}, again = seen;
		struct log *log = open_log(dev, 2);
		struct log_scan_result result;
		int rc;

		dev_memory_fail(dev, FAULT_READ, nth, -EIO, false);
		rc = log_scan(log, see, &seen, &result);
		dev_memory_fail(dev, 0, 0, 0, false);
		cr_assert_eq(log_scan(log, see, &again, &result), 0);
		cr_assert_eq(again.count, MTRS);
		log_close(log);
		if (rc == 0)
			break;
		cr_assert_eq(rc, -EIO);
		cr_assert_leq(seen.count, MTRS); /* equal: in the probe behind the end */
		cr_assert_lt(nth, 60);
	}
	dev_close(dev);
}
