/* Opening and scanning a log: what is found, and what an enemy may have put there. */
#include "tests/lib/log_rig.h"

#include <criterion/criterion.h>

#include <errno.h>

#include "engine/base/crc32c.h"

static struct logrig_seen seen;

/* ------------------------------------------------------------------- open */

Test(log_open, refuses_what_is_not_this_log)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	uint8_t other[16];
	struct disk_log_header header;
	struct log_place place = logrig_place(dev);
	struct log *log;

	memcpy(other, logrig_uuid, 16);
	other[15] ^= 1;
	cr_assert_eq(logrig_try_open(dev, logrig_uuid, 1, 2), 0);
	cr_assert_eq(logrig_try_open(dev, other, 1, 2), -BE_NOVOLUME);
	cr_assert_eq(logrig_try_open(dev, logrig_uuid, 2, 3), -BE_OLDLOG, "another generation");
	place.size_bytes -= 512;
	cr_assert_eq(log_open(&log, &place, 1, 1), -BE_DAMAGE);
	place.size_bytes = dev->size_bytes;
	cr_assert_eq(log_open(&log, &place, 1, 1), -BE_NOVOLUME, "past the end of the device");

	cr_assert_eq(dev_read(dev, &header, sizeof(header), LOGRIG_OFFSET), 0);
	header.version = le32_make(FORMAT_VERSION + 1);
	header.crc = le32_make(0);
	header.crc = le32_make(crc32c(0, &header, sizeof(header)));
	cr_assert_eq(dev_write(dev, &header, sizeof(header), LOGRIG_OFFSET), 0);
	cr_assert_eq(logrig_try_open(dev, logrig_uuid, 1, 1), -BE_VERSION);
	logrig_flip(dev, LOGRIG_OFFSET + 60);
	cr_assert_eq(logrig_try_open(dev, logrig_uuid, 1, 1), -BE_DAMAGE);
	logrig_flip(dev, LOGRIG_OFFSET);
	cr_assert_eq(logrig_try_open(dev, logrig_uuid, 1, 1), -BE_NOVOLUME);
	dev_close(dev);
}

Test(log_open, takes_the_newer_checkpoint)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_open(dev, 1, 1);

	cr_assert_eq(log_found_checkpoint(log)->sequence, 2);
	log_close(log);
	logrig_flip(dev, LOGRIG_OFFSET + LOG_CHECKPOINT_1 + 30);
	log = logrig_open(dev, 1, 1);
	cr_assert_eq(log_found_checkpoint(log)->sequence, 1);
	log_close(log);
	logrig_flip(dev, LOGRIG_OFFSET + LOG_CHECKPOINT_0 + 30);
	cr_assert_eq(logrig_try_open(dev, logrig_uuid, 1, 1), -BE_DAMAGE);
	dev_close(dev);
}

Test(log_open, inv_sb_3_refuses_an_unknown_later_generation)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct checkpoint later = {.lsn = LSN_FIRST, .generation = 9, .sequence = 3};
	struct disk_checkpoint disk;

	log_checkpoint_make(&disk, logrig_uuid, &later);
	cr_assert_eq(dev_write(dev, &disk, sizeof(disk), LOGRIG_OFFSET + LOG_CHECKPOINT_0), 0);
	cr_assert_eq(logrig_try_open(dev, logrig_uuid, 1, 2), -BE_OLDLOG);
	cr_assert_eq(logrig_try_open(dev, logrig_uuid, 1, 9), 0);
	dev_close(dev);
}

/* ------------------------------------------------------------------- scan */

static void fill_and_scan(uint32_t block)
{
	struct device *dev = logrig_format(block, 2 << 20);
	struct log *log = logrig_start(dev, 0, 1, 2);
	struct log_scan_result result;
	lsn_t next;

	for (uint64_t id = 0; id < 300; id++) {
		lsn_t end = logrig_append(log, id, 11 + logrig_random(600)).end;

		if (logrig_random(4) == 0)
			cr_assert_eq(log_flush(log, end), 0);
		if (logrig_random(16) == 0)
			cr_assert_eq(log_mark(log, end), 0);
	}
	cr_assert_eq(log_mark(log, log_next_lsn(log)), 0);
	next = log_next_lsn(log);
	cr_assert_eq(log_durable_lsn(log), next);
	log_close(log);

	result = logrig_scan(dev, 2, &seen);
	cr_assert_eq(seen.count, 300);
	for (uint64_t id = 0; id < 300; id++)
		cr_assert_eq(seen.id[id], id);
	cr_assert_eq(result.end, next);
	cr_assert(!result.damaged);
	cr_assert_gt(result.marked_lsn, seen.start[299]);
	dev_close(dev);
}

Test(log_scan, finds_what_was_appended)
{
	for (uint32_t block = LOG_BLOCK_MIN; block <= LOG_BLOCK_MAX; block *= 2)
		fill_and_scan(block);
}

Test(log_scan, empty_log)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log_scan_result result = logrig_scan(dev, 1, &seen);

	cr_assert_eq(seen.expected, 0);
	cr_assert_eq(result.end, LSN_FIRST);
	cr_assert_eq(result.marked_lsn, LSN_FIRST);
	cr_assert(!result.damaged);
	dev_close(dev);
}

/* Ten laps; after each flush, what is above the checkpoint is found, contiguous over the end. */
Test(log_scan, laps_and_mtrs_that_straddle_the_end)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	size_t straddled = 0;

	for (uint64_t id = 0; log_next_lsn(log) < LSN_FIRST + 10 * LOGRIG_CAPACITY; id++) {
		struct log_ticket ticket;

		if (log_next_lsn(log) - log_checkpoint_lsn(log) > LOGRIG_CAPACITY / 3)
			cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
		ticket = logrig_append(log, id, 11 + logrig_random(3000));
		straddled += (ticket.start - LSN_FIRST) / LOGRIG_CAPACITY !=
			     (ticket.end - 1 - LSN_FIRST) / LOGRIG_CAPACITY;
		if (logrig_random(3))
			continue;
		cr_assert_eq(log_flush(log, ticket.end), 0);
		cr_assert_eq(logrig_scan(dev, 2, &seen).end, log_durable_lsn(log));
		cr_assert_eq(seen.id[seen.count - 1], id);
	}
	cr_assert_gt(straddled, 4);
	log_close(log);
	dev_close(dev);
}

static int stop_with_error(void *arg, const struct log_mtr *mtr)
{
	(void)mtr;
	return ++*(int *)arg == 3 ? -EINTR : 0;
}

Test(log_scan, visitor_ends_it)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	struct log_scan_result result;
	struct log_ticket ticket[5];
	int count = 0;

	for (uint64_t id = 0; id < 5; id++)
		ticket[id] = logrig_append(log, id, 100);
	cr_assert_eq(log_flush(log, ticket[4].end), 0);
	log_close(log);
	seen.cut_at = ticket[3].start;
	result = logrig_scan(dev, 2, &seen);
	cr_assert_eq(seen.count, 3);
	cr_assert_eq(result.end, ticket[3].start);
	cr_assert(!result.damaged);

	log = logrig_open(dev, 2, 2);
	cr_assert_eq(log_scan(log, stop_with_error, &count, &result), -EINTR);
	seen.cut_at = 0;
	cr_assert_eq(log_scan(log, logrig_see, &seen, &result), 0, "again, from the start");
	log_close(log);
	dev_close(dev);
}

static int count_mtr(void *arg, const struct log_mtr *mtr)
{
	struct log_cursor cursor = {mtr->records, mtr->records_bytes};
	struct log_rec record;

	++*(size_t *)arg;
	while (log_next_record(&cursor, &record) > 0)
		;
	return 0;
}

/* Lengths, varints and whole mtrs from an enemy who knows the CRC: an end, never a crash. */
Test(log_scan, hostile_bytes)
{
	const struct log_shape shape = {
		.offset = LOGRIG_OFFSET,
		.capacity = LOGRIG_CAPACITY,
		.first_lsn = LSN_FIRST,
		.block = 512,
	};

	for (int round = 0; round < 2000; round++) {
		struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
		uint8_t bytes[4096];
		size_t at = 0, count = 0;
		struct log_scan_result result;
		struct log *log;

		while (at < sizeof(bytes) - 64) {
			size_t len = 1 + logrig_random(40);

			for (size_t i = 0; i < len; i++)
				bytes[at + i] = (uint8_t)(logrig_random(2)   ? logrig_random(256)
							  : logrig_random(2) ? 0xff
									     : logrig_random(5));
			if (logrig_random(2))
				bytes[at] = REC_MARK;
			log_seal(&shape, log_records_crc(1, bytes + at, len), LSN_FIRST + at + len,
				 bytes + at + len);
			at += len + MTR_TRAILER_BYTES;
		}
		cr_assert_eq(dev_write(dev, bytes, at, logrig_offset(LSN_FIRST, LOGRIG_CAPACITY)),
			     0);
		log = logrig_open(dev, 1, 1);
		cr_assert_eq(log_scan(log, count_mtr, &count, &result), 0);
		cr_assert_leq(result.end, LSN_FIRST + sizeof(bytes));
		log_close(log);
		dev_close(dev);
	}
}

/* A record that claims all that is live, but for a few bytes. */
Test(log_scan, hostile_length_to_the_last_byte)
{
	for (size_t left = 0; left < 12; left++) {
		struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
		uint8_t head[11] = {REC_PATCH};
		size_t n = varint_put(head + 1, LOGRIG_CAPACITY - 4 - left);
		struct log_scan_result result;

		cr_assert_eq(n, 3);
		cr_assert_eq(dev_write(dev, head, 1 + n, logrig_offset(LSN_FIRST, LOGRIG_CAPACITY)),
			     0);
		memset(head, 0xff, sizeof(head));
		cr_assert_eq(dev_write(dev, head, left < 11 ? left : 11,
				       logrig_offset(LSN_FIRST + LOGRIG_CAPACITY - left,
						     LOGRIG_CAPACITY)),
			     0);
		result = logrig_scan(dev, 1, &seen);
		cr_assert(result.end == LSN_FIRST && !result.damaged);
		dev_close(dev);
	}
}

Test(log_scan, hostile_checkpoint)
{
	const lsn_t lsns[] = {0, LSN_FIRST - 1, LSN_MAX, UINT64_MAX, UINT64_MAX - LOGRIG_CAPACITY};

	for (size_t i = 0; i < array_count(lsns); i++) {
		struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
		struct checkpoint checkpoint = {.lsn = lsns[i], .generation = 1, .sequence = 5};
		struct disk_checkpoint disk;

		log_checkpoint_make(&disk, logrig_uuid, &checkpoint);
		cr_assert_eq(dev_write(dev, &disk, sizeof(disk), LOGRIG_OFFSET + LOG_CHECKPOINT_0),
			     0);
		cr_assert_eq(dev_write(dev, &disk, sizeof(disk), LOGRIG_OFFSET + LOG_CHECKPOINT_1),
			     0);
		cr_assert_eq(logrig_try_open(dev, logrig_uuid, 1, 1), -BE_DAMAGE);
		dev_close(dev);
	}
}

Test(log_scan, read_error_is_returned)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_open(dev, 1, 1);
	struct log_scan_result result;
	size_t count = 0;

	dev_memory_fail(dev, FAULT_READ, 0, -EIO, false);
	cr_assert_eq(log_scan(log, count_mtr, &count, &result), -EIO);
	cr_assert_eq(log_scan(log, count_mtr, &count, &result), 0);
	log_close(log);
	dev_close(dev);
}
