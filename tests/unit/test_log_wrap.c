/*
 * Where the log goes round, and where its checkpoint blocks tear: every alignment,
 * every byte.
 */
#include "tests/lib/log_rig.h"

#include <criterion/criterion.h>

static struct logrig_seen seen;

#define LAP_END (LSN_FIRST + LOGRIG_CAPACITY)
#define BEFORE_END 2048u /* room for a mark and a filler */

static struct device *format(enum log_mode mode, uint32_t block)
{
	return mode == LOG_MODE_MAPPED ? logrig_format_pmem(LOGRIG_CAPACITY)
				       : logrig_format(block, LOGRIG_CAPACITY);
}

/* A log of generation 2 whose next group begins shortly before the end of the first lap. */
static struct device *close_to_the_end(enum log_mode mode, uint32_t block)
{
	struct device *dev = format(mode, block);
	struct log *log = logrig_start_mode(dev, mode, 1, 2);

	while (log_next_lsn(log) < LAP_END - BEFORE_END) {
		uint64_t left = LAP_END - BEFORE_END - log_next_lsn(log);
		uint64_t size = left > 6000 ? 4000 : left - MARK_MTR_BYTES;
		lsn_t end = logrig_append(log, 9, size - MTR_TRAILER_BYTES).end;

		cr_assert_eq(log_flush(log, end), 0);
		cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
	}
	cr_assert_eq(log_next_lsn(log), LAP_END - BEFORE_END);
	log_close(log);
	return dev;
}

/* Goes on where that one ended; the mtr that is tested begins at `start`. */
static struct log *go_on_to(struct device *dev, enum log_mode mode, lsn_t start)
{
	struct log *log = logrig_start_mode(dev, mode, 2, 3);
	size_t filler = start - log_next_lsn(log) - MARK_MTR_BYTES - MTR_TRAILER_BYTES;

	cr_assert_eq(logrig_append(log, 1, filler).end, start);
	return log;
}

static void expect_found(struct device *dev, size_t count, lsn_t end)
{
	struct log_scan_result result = logrig_scan(dev, 3, &seen);

	cr_assert(!result.damaged);
	cr_assert_eq(seen.count, count);
	for (size_t i = 0; i < count; i++)
		cr_assert_eq(seen.id[i], i + 1);
	cr_assert_geq(result.end, end);
}

/* `before` bytes of an mtr lie in the lap, for each number of them. */
static void straddle(enum log_mode mode, uint32_t block, size_t bytes, size_t step)
{
	struct device *dev = close_to_the_end(mode, block);

	for (size_t before = 1; before <= bytes + MTR_TRAILER_BYTES && before < BEFORE_END - 100;
	     before += step) {
		struct device *copy = logrig_copy(dev);
		struct log *log = go_on_to(copy, mode, LAP_END - before);
		lsn_t end = logrig_append(log, 2, bytes).end;

		cr_assert_eq(log_flush(log, end), 0);
		expect_found(copy, 2, end);
		end = logrig_append(log, 3, 11 + before).end;
		cr_assert_eq(log_mark(log, end), 0);
		expect_found(copy, 3, end);
		log_close(log);
		expect_found(copy, 3, end);
		dev_close(copy);
	}
	dev_close(dev);
}

Test(log_wrap, mtr_over_the_end_at_every_byte)
{
	straddle(LOG_MODE_PWRITE, 512, 100, 1);
	straddle(LOG_MODE_PWRITE, 64, 100, 1);
	straddle(LOG_MODE_DSYNC, 512, 100, 5);
	straddle(LOG_MODE_MAPPED, 64, 100, 1);
}

/* Larger than what is left of the lap, of the buffer, of both. */
Test(log_wrap, mtr_larger_than_the_tail)
{
	straddle(LOG_MODE_PWRITE, 512, 8000, 97);
	straddle(LOG_MODE_MAPPED, 64, 8000, 97);
}

/* The last byte of records, of an mtr, of a group is the last byte of the lap. */
Test(log_wrap, ends_exactly_on_the_last_byte)
{
	const enum log_mode modes[] = {LOG_MODE_PWRITE, LOG_MODE_MAPPED};

	for (size_t i = 0; i < array_count(modes); i++) {
		for (size_t trailer = 0; trailer <= MTR_TRAILER_BYTES; trailer++) {
			struct device *dev = close_to_the_end(modes[i], 512);
			struct log *log = go_on_to(dev, modes[i], LAP_END - 300 - trailer);
			struct log_ticket ticket = logrig_append(log, 2, 300);

			cr_assert_eq(ticket.end, LAP_END + MTR_TRAILER_BYTES - trailer);
			cr_assert_eq(log_flush(log, ticket.end), 0);
			expect_found(dev, 2, ticket.end);
			if (ticket.end == LAP_END)
				cr_assert_eq(log_durable_lsn(log), LAP_END, "no padding");
			ticket = logrig_append(log, 3, 20);
			cr_assert_eq(log_flush(log, ticket.end), 0);
			expect_found(dev, 3, ticket.end);
			log_close(log);
			dev_close(dev);
		}
	}
}

/* Buffer and lap end inside one group, in either order and at once: up to three pieces. */
Test(log_wrap, buffer_and_lap_end_in_one_group)
{
	const uint64_t capacity = LOGRIG_CAPACITY;
	size_t met[4] = {0};

	for (uint64_t buffer = 12 << 10; buffer <= 32 << 10; buffer += 512) {
		const struct log_options options = {.buffer_bytes = buffer};
		struct device *dev = logrig_format(512, capacity);
		struct log *log = logrig_open(dev, 1, 1);
		lsn_t first, end;
		size_t pieces;

		cr_assert_eq(log_start(log, LSN_FIRST + capacity - 12000, 2, &options), 0);
		while (log_next_lsn(log) + 9000 < LSN_FIRST + capacity)
			cr_assert_eq(log_flush(log, logrig_append(log, 1, 400).end), 0);
		first = log_next_lsn(log);
		for (int i = 0; i < 10; i++)
			logrig_append(log, 2, 900);
		end = log_next_lsn(log);
		pieces = 1 + (log_buffer_at(log, first) > log_buffer_at(log, end)) +
			 (end > LSN_FIRST + capacity);
		met[pieces]++;
		cr_assert_eq(log_flush(log, end), 0);
		log_close(log);
		cr_assert_geq(logrig_scan(dev, 2, &seen).end, end);
		cr_assert_eq(seen.id[seen.count - 10], 2);
		dev_close(dev);
	}
	cr_assert(met[2] > 0 && met[3] > 0);
}

/* ------------------------------------------------- what the lap before left */

#define SIZES 7
static const size_t sizes[SIZES] = {476, 507, 507, 300, 212, 900, 507};

/* The same mtrs in the same places, lap after lap, in groups of all SIZES of them. */
static lsn_t append_pattern(struct log *log, uint64_t id, lsn_t *start)
{
	struct log_ticket ticket;

	for (size_t i = 0; i < SIZES; i++) {
		ticket = logrig_append(log, id + i, sizes[i]);
		if (i == 0 && start)
			*start = ticket.start - MARK_MTR_BYTES;
	}
	return ticket.end;
}

/*
 * A capacity that is a multiple of the group: what lies behind the stop is a
 * whole mtr of the same mount, in its place, with a valid CRC.  Only the
 * sequence byte tells that it is of the lap before.
 */
static void leftovers(enum log_mode mode)
{
	const uint32_t block = mode == LOG_MODE_MAPPED ? 64 : 512;
	struct device *dev = format(mode, block);
	struct log *log = logrig_start_mode(dev, mode, 1, 2);
	struct device *before;
	lsn_t start, end, group;

	/* One group; the capacity is cut to a multiple of it. */
	cr_assert_eq(log_flush(log, append_pattern(log, 0, NULL)), 0);
	group = log_durable_lsn(log) - LSN_FIRST;
	log_close(log);
	dev_close(dev);
	dev = mode == LOG_MODE_MAPPED ? logrig_format_pmem(group * 24)
				      : logrig_format(block, group * 24);
	log = logrig_start_mode(dev, mode, 1, 2);
	for (unsigned n = 0; n < 30; n++) {
		cr_assert_eq(log_flush(log, append_pattern(log, 10 * n, NULL)), 0);
		cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
	}
	before = logrig_copy(dev);
	end = append_pattern(log, 1000, &start);
	cr_assert_eq(log_flush(log, end), 0);
	cr_assert_eq(log_durable_lsn(log), start + group);
	log_close(log);
	cr_assert_eq(logrig_scan(dev, 2, &seen).end, start + group);
	cr_assert_eq(seen.count, SIZES);

	/* The first blocks of the new group arrive, one more each time. */
	for (lsn_t at = start; at < start + group; at += block) {
		uint8_t bytes[512];
		struct log_scan_result result;

		result = logrig_scan(before, 2, &seen);
		cr_assert(!result.damaged && result.end <= at);
		for (size_t i = 0; i < seen.count; i++)
			cr_assert_eq(seen.id[i], 1000 + i);
		cr_assert_eq(dev_read(dev, bytes, block, logrig_offset(at, group * 24)), 0);
		cr_assert_eq(dev_write(before, bytes, block, logrig_offset(at, group * 24)), 0);
	}
	dev_close(before);
	dev_close(dev);
}

Test(log_wrap, mtrs_of_the_lap_before_are_not_taken)
{
	leftovers(LOG_MODE_PWRITE);
	leftovers(LOG_MODE_MAPPED);
}

/* ------------------------------------------------------- checkpoint blocks */

/* Each block in turn is replaced, and tears at each byte, from the front or from the back. */
Test(log_wrap, torn_checkpoint_blocks)
{
	const uint64_t place[2] = {LOGRIG_OFFSET + LOG_CHECKPOINT_0,
				   LOGRIG_OFFSET + LOG_CHECKPOINT_1};
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	struct disk_checkpoint old, new, torn;

	for (unsigned round = 0; round < 6; round++) {
		lsn_t before = log_checkpoint_lsn(log), after;
		unsigned slot = !log->checkpoint_slot;

		cr_assert_eq(log_mark(log, logrig_append(log, round, 500).end), 0);
		cr_assert_eq(dev_read(dev, &old, sizeof(old), place[slot]), 0);
		cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
		cr_assert_eq(log->checkpoint_slot, slot);
		after = log_checkpoint_lsn(log);
		cr_assert_eq(dev_read(dev, &new, sizeof(new), place[slot]), 0);
		for (size_t at = 0; at <= sizeof(new); at++) {
			for (int front = 0; front < 2; front++) {
				struct log *again;
				lsn_t found;

				memcpy(&torn, front ? &new : &old, at);
				memcpy((uint8_t *)&torn + at,
				       (const uint8_t *)(front ? &old : &new) + at,
				       sizeof(new) - at);
				cr_assert_eq(dev_write(dev, &torn, sizeof(torn), place[slot]), 0);
				again = logrig_open(dev, 2, 2);
				found = log_found_checkpoint(again)->lsn;
				cr_assert(found == before || found == after);
				if (!memcmp(&torn, &new, sizeof(new)))
					cr_assert_eq(found, after);
				log_close(again);
				cr_assert(!logrig_scan(dev, 2, &seen).damaged);
			}
		}
		cr_assert_eq(dev_write(dev, &new, sizeof(new), place[slot]), 0);
	}
	log_close(log);
	dev_close(dev);
}
