/*
 * The log: format, scan, and each INV-LOG by a test that fails without it.
 * Power cuts are in tests/crash/crash_log.c, threads in tests/race/race_log.c.
 */
#include "log/log_internal.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "engine/base/crc32c.h"

#define OFFSET 8192u
#define CAPACITY (64u << 10)
#define RECORD_MAX 9000u

static const uint8_t uuid[16] = "0123456789abcde";

static uint64_t random_state = 1;

static uint64_t random_below(uint64_t limit)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (random_state >> 33) % limit;
}

/* ---------------------------------------------------------------- helpers */

static struct device *format_blocks(uint32_t block, uint64_t capacity)
{
	struct device *dev;

	cr_assert_eq(dev_open_memory(&dev, OFFSET + LOG_RECORDS_START + capacity), 0);
	cr_assert_eq(log_format_blocks(dev, OFFSET, LOG_RECORDS_START + capacity, uuid, 1, block),
		     0);
	return dev;
}

static struct log_place place_of(struct device *dev)
{
	struct log_place place = {
		.dev = dev, .offset = OFFSET, .size_bytes = dev->size_bytes - OFFSET,
	};

	memcpy(place.uuid, uuid, sizeof(uuid));
	return place;
}

static struct log *open_log(struct device *dev, uint64_t log_gen, uint64_t mount_gen)
{
	struct log_place place = place_of(dev);
	struct log *log;

	cr_assert_eq(log_open(&log, &place, log_gen, mount_gen), 0);
	return log;
}

static struct log *start_log(struct device *dev, lsn_t lsn, uint64_t old_gen, uint64_t new_gen)
{
	struct log *log = open_log(dev, old_gen, old_gen);

	cr_assert_eq(log_start(log, lsn ? lsn : log_found_checkpoint(log)->lsn, new_gen, NULL), 0);
	return log;
}

/* An mtr of exactly `bytes` records' bytes: one PATCH filled from `id`. */
static size_t make_records(uint8_t *p, uint64_t id, size_t bytes)
{
	uint64_t fill = id;
	size_t len = bytes - 3;

	cr_assert(bytes >= 11 && bytes < RECORD_MAX);
	p[0] = REC_PATCH;
	p[1] = (uint8_t)(len | 0x80);
	p[2] = (uint8_t)(len >> 7);
	for (size_t i = 0; i < len; i++) {
		if (i % 8 == 0)
			fill = fill * 6364136223846793005u + 1442695040888963407u;
		p[3 + i] = i < 8 ? (uint8_t)(id >> (8 * i)) : (uint8_t)(fill >> (8 * (i % 8)));
	}
	return bytes;
}

static struct log_ticket append_listed_later(struct log *log, uint64_t id, size_t bytes)
{
	uint8_t records[RECORD_MAX + MTR_TRAILER_BYTES];
	struct log_ticket ticket;

	make_records(records, id, bytes);
	cr_assert_eq(log_reserve(log, bytes + MTR_TRAILER_BYTES), 0);
	log_append(log, records, bytes, &ticket);
	return ticket;
}

static struct log_ticket append(struct log *log, uint64_t id, size_t bytes)
{
	struct log_ticket ticket = append_listed_later(log, id, bytes);

	log_listed(log, &ticket);
	return ticket;
}

/* What a scan saw, without marks and padding. */
struct seen {
	uint64_t id[4096];
	lsn_t start[4096];
	size_t count, marks, pads;
	lsn_t cut_at;      /* answer 1 at or above, when set */
	lsn_t expected;    /* the next mtr starts here */
	bool wrong;
};

static int see(void *arg, const struct log_mtr *mtr)
{
	struct seen *seen = arg;
	uint8_t again[RECORD_MAX];
	uint64_t id;

	if (seen->cut_at && mtr->start >= seen->cut_at)
		return 1;
	seen->wrong |= seen->expected && mtr->start != seen->expected;
	seen->wrong |= mtr->end != mtr->start + mtr->records_bytes + MTR_TRAILER_BYTES;
	seen->expected = mtr->end;
	if (mtr->records[0] == REC_MARK) {
		seen->marks++;
		return 0;
	}
	if (mtr->records[0] == REC_PAD) {
		seen->pads++;
		return 0;
	}
	memcpy(&id, mtr->records + 3, sizeof(id));
	make_records(again, id, mtr->records_bytes);
	seen->wrong |= memcmp(again, mtr->records, mtr->records_bytes) != 0;
	seen->start[seen->count] = mtr->start;
	seen->id[seen->count++] = id;
	return 0;
}

static struct log_scan_result scan(struct device *dev, uint64_t gen, struct seen *seen)
{
	struct log *log = open_log(dev, gen, gen);
	struct log_scan_result result;
	lsn_t cut_at = seen->cut_at;

	*seen = (struct seen){.cut_at = cut_at};
	cr_assert_eq(log_scan(log, see, seen, &result), 0);
	cr_assert(!seen->wrong);
	log_close(log);
	return result;
}

static struct seen seen;

static uint64_t device_offset(lsn_t lsn, uint64_t capacity)
{
	return OFFSET + LOG_RECORDS_START + (lsn - LSN_FIRST) % capacity;
}

static void flip(struct device *dev, uint64_t offset)
{
	uint8_t byte;

	cr_assert_eq(dev_read(dev, &byte, 1, offset), 0);
	byte ^= 0x10;
	cr_assert_eq(dev_write(dev, &byte, 1, offset), 0);
}

/* A copy as a crash of the machine leaves it when all writes had arrived. */
static struct device *copy_device(struct device *dev)
{
	uint8_t *bytes = malloc(dev->size_bytes);
	struct device *copy;

	cr_assert_eq(dev_open_memory(&copy, dev->size_bytes), 0);
	cr_assert_eq(dev_read(dev, bytes, dev->size_bytes, 0), 0);
	cr_assert_eq(dev_write(copy, bytes, dev->size_bytes, 0), 0);
	free(bytes);
	return copy;
}

/* ----------------------------------------------------------------- format */

Test(log_format, varint_round_trip)
{
	uint8_t p[10];
	uint64_t got;

	for (unsigned bit = 0; bit < 64; bit++) {
		for (int d = -1; d <= 1; d++) {
			uint64_t value = (UINT64_C(1) << bit) + (uint64_t)(int64_t)d;
			size_t n = varint_put(p, value);

			cr_assert_eq(varint_get(p, sizeof(p), &got), n);
			cr_assert_eq(got, value);
			cr_assert_eq(varint_get(p, n - 1, &got), 0, "truncated");
		}
	}
}

Test(log_format, varint_malformed)
{
	uint8_t p[11];
	uint64_t got;

	memset(p, 0xff, sizeof(p));
	cr_assert_eq(varint_get(p, sizeof(p), &got), 0, "no end within 10 bytes");
	memset(p, 0xff, 9);
	p[9] = 1;
	cr_assert_eq(varint_get(p, sizeof(p), &got), 10);
	cr_assert_eq(got, UINT64_MAX);
	p[9] = 2;
	cr_assert_eq(varint_get(p, sizeof(p), &got), 0, "more than 64 bits");
	cr_assert_eq(varint_get(p, 0, &got), 0);
}

Test(log_format, next_record)
{
	const uint8_t good[] = {REC_BITS, 2, 'a', 'b', REC_FLAGS, 0};
	const uint8_t bad[][3] = {{1, 0, 0}, {REC_BITS, 2, 'a'}, {REC_BITS, 0xff, 0xff}};
	struct log_cursor cursor = {good, sizeof(good)};
	struct log_rec record;

	cr_assert_eq(log_next_record(&cursor, &record), 1);
	cr_assert(record.type == REC_BITS && record.len == 2 && record.body[1] == 'b');
	cr_assert_eq(log_next_record(&cursor, &record), 1);
	cr_assert(record.type == REC_FLAGS && record.len == 0);
	cr_assert_eq(log_next_record(&cursor, &record), 0);
	for (size_t i = 0; i < array_count(bad); i++) {
		cursor = (struct log_cursor){bad[i], 3};
		cr_assert_eq(log_next_record(&cursor, &record), -BE_FORMAT);
	}
}

Test(log_format, a_mark_belongs_to_its_place_and_epoch)
{
	const struct log_shape shape = {.capacity = CAPACITY, .first_lsn = LSN_FIRST, .block = 512};
	const lsn_t own = LSN_FIRST + 512;
	const size_t bytes = MARK_MTR_BYTES - MTR_TRAILER_BYTES;
	uint8_t mtr[MARK_MTR_BYTES];
	lsn_t durable;

	log_mark_make(&shape, 7, own, own - 1, mtr);
	cr_assert_eq(log_mark_parse(&shape, 7, own, mtr, bytes, &durable), 1);
	cr_assert_eq(durable, own - 1);
	cr_assert_eq(log_mark_parse(&shape, 7, own + 512, mtr, bytes, &durable), -BE_FORMAT);
	cr_assert_eq(log_mark_parse(&shape, 8, own, mtr, bytes, &durable), -BE_FORMAT);
	cr_assert_eq(log_mark_parse(&shape, 7, own, mtr, bytes - 1, &durable), -BE_FORMAT);
	log_mark_make(&shape, 7, own, own + 1, mtr);
	cr_assert_eq(log_mark_parse(&shape, 7, own, mtr, bytes, &durable), -BE_FORMAT);
	log_mark_make(&shape, 7, own + 1, own, mtr);
	cr_assert_eq(log_mark_parse(&shape, 7, own + 1, mtr, bytes, &durable), -BE_FORMAT);
	mtr[0] = REC_PAD;
	cr_assert_eq(log_mark_parse(&shape, 7, own, mtr, bytes, &durable), 0);
}

Test(log_format, padding_of_every_size)
{
	const struct log_shape shape = {
		.capacity = CAPACITY, .first_lsn = LSN_FIRST, .block = LOG_BLOCK_MAX,
	};
	uint8_t mtr[LOG_BLOCK_MAX + MTR_PAD_BYTES_MIN];

	for (size_t bytes = MTR_PAD_BYTES_MIN; bytes < LOG_BLOCK_MAX + MTR_PAD_BYTES_MIN; bytes++) {
		struct log_cursor cursor = {mtr, bytes - MTR_TRAILER_BYTES};
		struct log_rec record;
		le32 crc;

		log_pad_make(&shape, 7, LSN_FIRST, mtr, bytes);
		cr_assert_eq(log_next_record(&cursor, &record), 1);
		cr_assert_eq(record.type, REC_PAD);
		cr_assert_eq(log_next_record(&cursor, &record), 0);
		memcpy(&crc, mtr + bytes - 4, 4);
		cr_assert_eq(le32_get(crc), log_records_crc(7, mtr, bytes - MTR_TRAILER_BYTES));
	}
	for (lsn_t end = LSN_FIRST; end <= LSN_FIRST + 4096; end++) {
		size_t pad = log_pad_bytes(&shape, end);

		cr_assert((end + pad) % 4096 == 0 && (!pad || pad >= MTR_PAD_BYTES_MIN));
		cr_assert_leq(pad, LOG_GROUP_OVERHEAD(4096) - MARK_MTR_BYTES - 4096);
	}
}

Test(log_format, sequence_byte_toggles_by_lap)
{
	const struct log_shape shape = {.capacity = CAPACITY, .first_lsn = LSN_FIRST, .block = 512};

	cr_assert_eq(log_sequence_byte(&shape, LSN_FIRST), 1);
	cr_assert_eq(log_sequence_byte(&shape, LSN_FIRST + CAPACITY - 1), 1);
	cr_assert_eq(log_sequence_byte(&shape, LSN_FIRST + CAPACITY), 0);
	cr_assert_eq(log_sequence_byte(&shape, LSN_FIRST + 2 * CAPACITY), 1);
}

Test(log_format, too_small_or_uneven)
{
	struct device *dev;

	cr_assert_eq(dev_open_memory(&dev, 1 << 20), 0);
	cr_assert_eq(log_format(dev, 0, LOG_RECORDS_START, uuid, 1), -BE_TOOSMALL);
	cr_assert_eq(log_format(dev, 0, LOG_RECORDS_START + CAPACITY + 1, uuid, 1), -EINVAL);
	cr_assert_eq(log_format(dev, 0, LOG_BYTES_MIN, uuid, 1), 0);
	dev_close(dev);
}

/* ------------------------------------------------------------------- open */

static int try_open(struct device *dev, const uint8_t id[16], uint64_t log_gen, uint64_t mount_gen)
{
	struct log_place place = place_of(dev);
	struct log *log;
	int err;

	memcpy(place.uuid, id, 16);
	err = log_open(&log, &place, log_gen, mount_gen);
	log_close(log);
	return err;
}

Test(log_open, refuses_what_is_not_this_log)
{
	struct device *dev = format_blocks(512, CAPACITY);
	uint8_t other[16];
	struct disk_log_header header;
	struct log_place place = place_of(dev);
	struct log *log;

	memcpy(other, uuid, 16);
	other[15] ^= 1;
	cr_assert_eq(try_open(dev, uuid, 1, 2), 0);
	cr_assert_eq(try_open(dev, other, 1, 2), -BE_NOVOLUME);
	cr_assert_eq(try_open(dev, uuid, 2, 3), -BE_DAMAGE, "another generation");
	place.size_bytes -= 512;
	cr_assert_eq(log_open(&log, &place, 1, 1), -BE_DAMAGE);
	place.size_bytes = dev->size_bytes;
	cr_assert_eq(log_open(&log, &place, 1, 1), -BE_NOVOLUME, "past the end of the device");

	cr_assert_eq(dev_read(dev, &header, sizeof(header), OFFSET), 0);
	header.version = le32_make(FORMAT_VERSION + 1);
	header.crc = le32_make(0);
	header.crc = le32_make(crc32c(0, &header, sizeof(header)));
	cr_assert_eq(dev_write(dev, &header, sizeof(header), OFFSET), 0);
	cr_assert_eq(try_open(dev, uuid, 1, 1), -BE_VERSION);
	flip(dev, OFFSET + 60);
	cr_assert_eq(try_open(dev, uuid, 1, 1), -BE_DAMAGE);
	flip(dev, OFFSET);
	cr_assert_eq(try_open(dev, uuid, 1, 1), -BE_NOVOLUME);
	dev_close(dev);
}

Test(log_open, takes_the_newer_checkpoint)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = open_log(dev, 1, 1);

	cr_assert_eq(log_found_checkpoint(log)->sequence, 2);
	log_close(log);
	flip(dev, OFFSET + LOG_CHECKPOINT_1 + 30);
	log = open_log(dev, 1, 1);
	cr_assert_eq(log_found_checkpoint(log)->sequence, 1);
	log_close(log);
	flip(dev, OFFSET + LOG_CHECKPOINT_0 + 30);
	cr_assert_eq(try_open(dev, uuid, 1, 1), -BE_DAMAGE);
	dev_close(dev);
}

Test(log_open, inv_sb_3_refuses_an_unknown_later_generation)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct checkpoint later = {.lsn = LSN_FIRST, .generation = 9, .sequence = 3};
	struct disk_checkpoint disk;

	log_checkpoint_make(&disk, uuid, &later);
	cr_assert_eq(dev_write(dev, &disk, sizeof(disk), OFFSET + LOG_CHECKPOINT_0), 0);
	cr_assert_eq(try_open(dev, uuid, 1, 2), -BE_DAMAGE);
	cr_assert_eq(try_open(dev, uuid, 1, 9), 0);
	dev_close(dev);
}

/* --------------------------------------------------------- append and scan */

static void fill_and_scan(uint32_t block)
{
	struct device *dev = format_blocks(block, 2 << 20);
	struct log *log = start_log(dev, 0, 1, 2);
	struct log_scan_result result;
	lsn_t next;

	for (uint64_t id = 0; id < 300; id++) {
		lsn_t end = append(log, id, 11 + random_below(600)).end;

		if (random_below(4) == 0)
			cr_assert_eq(log_flush(log, end), 0);
		if (random_below(16) == 0)
			cr_assert_eq(log_mark(log, end), 0);
	}
	cr_assert_eq(log_mark(log, log_next_lsn(log)), 0);
	next = log_next_lsn(log);
	cr_assert_eq(log_durable_lsn(log), next);
	log_close(log);

	result = scan(dev, 2, &seen);
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
	struct device *dev = format_blocks(512, CAPACITY);
	struct log_scan_result result = scan(dev, 1, &seen);

	cr_assert_eq(seen.expected, 0);
	cr_assert_eq(result.end, LSN_FIRST);
	cr_assert_eq(result.marked_lsn, LSN_FIRST);
	cr_assert(!result.damaged);
	dev_close(dev);
}

/* Ten laps; after each flush, what is above the checkpoint is found, contiguous over the end. */
Test(log_scan, laps_and_mtrs_that_straddle_the_end)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	size_t straddled = 0;

	for (uint64_t id = 0; log_next_lsn(log) < LSN_FIRST + 10 * CAPACITY; id++) {
		struct log_ticket ticket;

		if (log_next_lsn(log) - log_checkpoint_lsn(log) > CAPACITY / 3)
			cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
		ticket = append(log, id, 11 + random_below(3000));
		straddled += (ticket.start - LSN_FIRST) / CAPACITY !=
			     (ticket.end - 1 - LSN_FIRST) / CAPACITY;
		if (random_below(3))
			continue;
		cr_assert_eq(log_flush(log, ticket.end), 0);
		cr_assert_eq(scan(dev, 2, &seen).end, log_durable_lsn(log));
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
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	struct log_scan_result result;
	struct log_ticket ticket[5];
	int count = 0;

	for (uint64_t id = 0; id < 5; id++)
		ticket[id] = append(log, id, 100);
	cr_assert_eq(log_flush(log, ticket[4].end), 0);
	log_close(log);
	seen.cut_at = ticket[3].start;
	result = scan(dev, 2, &seen);
	cr_assert_eq(seen.count, 3);
	cr_assert_eq(result.end, ticket[3].start);
	cr_assert(!result.damaged);

	log = open_log(dev, 2, 2);
	cr_assert_eq(log_scan(log, stop_with_error, &count, &result), -EINTR);
	seen.cut_at = 0;
	cr_assert_eq(log_scan(log, see, &seen, &result), 0, "again, from the start");
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
		.offset = OFFSET, .capacity = CAPACITY, .first_lsn = LSN_FIRST, .block = 512,
	};

	for (int round = 0; round < 2000; round++) {
		struct device *dev = format_blocks(512, CAPACITY);
		uint8_t bytes[4096];
		size_t at = 0, count = 0;
		struct log_scan_result result;
		struct log *log;

		while (at < sizeof(bytes) - 64) {
			size_t len = 1 + random_below(40);

			for (size_t i = 0; i < len; i++)
				bytes[at + i] = (uint8_t)(random_below(2) ? random_below(256) :
							  random_below(2) ? 0xff : random_below(5));
			if (random_below(2))
				bytes[at] = REC_MARK;
			log_seal(&shape, log_records_crc(1, bytes + at, len), LSN_FIRST + at + len,
				 bytes + at + len);
			at += len + MTR_TRAILER_BYTES;
		}
		cr_assert_eq(dev_write(dev, bytes, at, device_offset(LSN_FIRST, CAPACITY)), 0);
		log = open_log(dev, 1, 1);
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
		struct device *dev = format_blocks(512, CAPACITY);
		uint8_t head[11] = {REC_PATCH};
		size_t n = varint_put(head + 1, CAPACITY - 4 - left);
		struct log_scan_result result;

		cr_assert_eq(n, 3);
		cr_assert_eq(dev_write(dev, head, 1 + n, device_offset(LSN_FIRST, CAPACITY)), 0);
		memset(head, 0xff, sizeof(head));
		cr_assert_eq(dev_write(dev, head, left < 11 ? left : 11,
				       device_offset(LSN_FIRST + CAPACITY - left, CAPACITY)), 0);
		result = scan(dev, 1, &seen);
		cr_assert(result.end == LSN_FIRST && !result.damaged);
		dev_close(dev);
	}
}

Test(log_scan, hostile_checkpoint)
{
	const lsn_t lsns[] = {0, LSN_FIRST - 1, LSN_MAX, UINT64_MAX, UINT64_MAX - CAPACITY};

	for (size_t i = 0; i < array_count(lsns); i++) {
		struct device *dev = format_blocks(512, CAPACITY);
		struct checkpoint checkpoint = {.lsn = lsns[i], .generation = 1, .sequence = 5};
		struct disk_checkpoint disk;

		log_checkpoint_make(&disk, uuid, &checkpoint);
		cr_assert_eq(dev_write(dev, &disk, sizeof(disk), OFFSET + LOG_CHECKPOINT_0), 0);
		cr_assert_eq(dev_write(dev, &disk, sizeof(disk), OFFSET + LOG_CHECKPOINT_1), 0);
		cr_assert_eq(try_open(dev, uuid, 1, 1), -BE_DAMAGE);
		dev_close(dev);
	}
}

Test(log_scan, read_error_is_returned)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = open_log(dev, 1, 1);
	struct log_scan_result result;
	size_t count = 0;

	dev_memory_fail(dev, FAULT_READ, 0, -EIO, false);
	cr_assert_eq(log_scan(log, count_mtr, &count, &result), -EIO);
	cr_assert_eq(log_scan(log, count_mtr, &count, &result), 0);
	log_close(log);
	dev_close(dev);
}

/* -------------------------------------------------------------- INV-LOG-1 */

Test(log_reserve, more_than_the_most)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	uint64_t most = log_reserve_max(log);

	cr_assert_gt(most, 8192);
	cr_assert_eq(log_reserve(log, most + 1), -EINVAL);
	cr_assert_eq(log_reserve(log, most), 0);
	log_unreserve(log, most);
	cr_assert_eq(log_reserve(log, most), 0);
	log_unreserve(log, most);
	log_close(log);
	dev_close(dev);
}

/*
 * The worst that a full log can be asked for: whatever was reserved is spent
 * on as many mtrs as it may serve, each in a group of its own with a closing
 * mark.  check() in append and group close would fail without the headroom.
 */
Test(log_reserve, inv_log_1_headroom_for_marks_and_padding)
{
	for (uint32_t block = LOG_BLOCK_MIN; block <= LOG_BLOCK_MAX; block *= 2) {
		uint64_t capacity = lsn_round_up(2 * LOG_CAPACITY_MIN(block), block);
		struct device *dev = format_blocks(block, capacity);
		struct log *log = start_log(dev, 0, 1, 2);

		for (int lap = 0; lap < 20; lap++) {
			uint64_t bytes = log_reserve_max(log) - random_below(5000);
			uint64_t left = bytes;
			uint64_t mtrs = 1 + bytes / LOG_MTR_SHARE_BYTES;

			cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
			cr_assert_eq(log_reserve(log, bytes), 0);
			for (uint64_t i = 0; i < mtrs; i++) {
				size_t most = left - (mtrs - 1 - i) * 32;
				size_t size = most < 2600 ? most : 16 + random_below(2600 - 16);
				uint8_t records[RECORD_MAX];
				struct log_ticket ticket;

				make_records(records, i, size - MTR_TRAILER_BYTES);
				log_append(log, records, size - MTR_TRAILER_BYTES, &ticket);
				log_listed(log, &ticket);
				left -= size;
				cr_assert_eq(log_mark(log, ticket.end), 0);
			}
			log_unreserve(log, left);
		}
		log_close(log);
		dev_close(dev);
	}
}

struct waiter {
	struct log *log;
	uint64_t bytes;
	int result;
	_Atomic bool done;
};

static void reserve_thread(void *arg)
{
	struct waiter *waiter = arg;

	waiter->result = log_reserve(waiter->log, waiter->bytes);
	atomic_store(&waiter->done, true);
}

static void await_waiters(struct log *log, uint64_t count)
{
	uint64_t waiting;

	do {
		sched_yield();
		latch_x(&log->latch);
		waiting = log->space_turns - log->space_turn;
		unlatch_x(&log->latch);
	} while (waiting < count);
}

static _Atomic lsn_t wanted;

static void note_wanted(void *arg, lsn_t lsn)
{
	(void)arg;
	atomic_store(&wanted, lsn);
}

static void fill_log(struct log *log)
{
	while (log_next_lsn(log) - log_checkpoint_lsn(log) < CAPACITY / 2) {
		lsn_t end = append(log, 1, 2000).end;

		cr_assert_eq(log_flush(log, end), 0);
	}
}

Test(log_reserve, inv_log_1_waits_for_log_space_and_asks)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	struct waiter waiter = {.log = log, .bytes = log_reserve_max(log)};
	struct os_thread thread;

	log_set_space_callback(log, note_wanted, NULL);
	fill_log(log);
	cr_assert_eq(os_thread_start(&thread, "reserve", reserve_thread, &waiter), 0);
	while (!atomic_load(&wanted))
		sched_yield();
	cr_assert(!atomic_load(&waiter.done));
	cr_assert_gt(atomic_load(&wanted), log_checkpoint_lsn(log));
	cr_assert_leq(atomic_load(&wanted), log_next_lsn(log));
	cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
	os_thread_join(&thread);
	cr_assert_eq(waiter.result, 0);
	log_unreserve(log, waiter.bytes);
	log_close(log);
	dev_close(dev);
}

/* A full buffer is emptied by the one who waits. */
Test(log_reserve, inv_log_1_waits_for_buffer_space)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	uint64_t bytes = log_reserve_max(log);

	while (log_next_lsn(log) - log_durable_lsn(log) < 8000)
		append(log, 1, 1000);
	cr_assert_eq(log_reserve(log, bytes), 0);
	cr_assert_eq(log_durable_lsn(log), log_next_lsn(log));
	log_unreserve(log, bytes);
	log_close(log);
	dev_close(dev);
}

Test(log_reserve, small_ones_do_not_overtake_a_large_one)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = open_log(dev, 1, 1);
	const struct log_options options = {.buffer_bytes = 16 << 10};
	struct waiter large = {.log = log}, small = {.log = log, .bytes = 100};
	struct os_thread thread[2];

	cr_assert_eq(log_start(log, LSN_FIRST, 2, &options), 0);
	large.bytes = log_reserve_max(log); /* the buffer's limit: nothing fits beside it */
	cr_assert_eq(log_reserve(log, 4096), 0);
	cr_assert_eq(os_thread_start(&thread[0], "large", reserve_thread, &large), 0);
	await_waiters(log, 1);
	cr_assert_eq(os_thread_start(&thread[1], "small", reserve_thread, &small), 0);
	for (int i = 0; i < 1000; i++)
		sched_yield();
	cr_assert(!atomic_load(&small.done) && !atomic_load(&large.done));
	log_unreserve(log, 4096);
	os_thread_join(&thread[0]);
	cr_assert(!atomic_load(&small.done));
	log_unreserve(log, large.bytes);
	os_thread_join(&thread[1]);
	cr_assert(large.result == 0 && small.result == 0);
	log_unreserve(log, small.bytes);
	log_close(log);
	dev_close(dev);
}

struct hoarder {
	struct log *log;
	uint64_t bytes;
	_Atomic unsigned granted;
};

static void hoard_thread(void *arg)
{
	struct hoarder *hoarder = arg;

	while (!atomic_load(&wanted)) {
		cr_assert_eq(log_reserve(hoarder->log, hoarder->bytes), 0);
		atomic_fetch_add(&hoarder->granted, 1);
	}
}

/*
 * As many reservations as are granted before the log is full, each then spent
 * on an mtr in a group of its own with a closing mark, before any checkpoint.
 */
Test(log_reserve, inv_log_1_headroom_for_many_reservations)
{
	const uint64_t sizes[] = {30, 300, 1500, 3000};

	for (size_t i = 0; i < array_count(sizes); i++) {
		struct device *dev = format_blocks(512, CAPACITY);
		struct log *log = start_log(dev, 0, 1, 2);
		struct hoarder hoarder = {.log = log, .bytes = sizes[i]};
		struct os_thread thread;
		unsigned granted;

		log_set_space_callback(log, note_wanted, NULL);
		fill_log(log);
		atomic_store(&wanted, 0);
		cr_assert_eq(os_thread_start(&thread, "hoard", hoard_thread, &hoarder), 0);
		await_waiters(log, 1);
		while (!atomic_load(&wanted))
			sched_yield();
		granted = atomic_load(&hoarder.granted);
		cr_assert_gt(granted, 3);
		for (unsigned n = 0; n < granted; n++) {
			uint8_t records[RECORD_MAX];
			size_t bytes = sizes[i] - MTR_TRAILER_BYTES;
			struct log_ticket ticket;

			make_records(records, n, bytes);
			log_append(log, records, bytes, &ticket);
			log_listed(log, &ticket);
			cr_assert_eq(log_mark(log, ticket.end), 0);
		}
		cr_assert_leq(log_next_lsn(log), log_checkpoint_lsn(log) + CAPACITY);
		cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
		os_thread_join(&thread);
		log_close(log);
		dev_close(dev);
	}
}

/* Room for both is made at once: the first to get its space wakes the second. */
Test(log_reserve, one_release_serves_all_it_can)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	struct waiter waiter[3];
	struct os_thread thread[3];
	uint64_t most = log_reserve_max(log);

	cr_assert_eq(log_reserve(log, most), 0);
	for (unsigned i = 0; i < 3; i++) {
		waiter[i] = (struct waiter){.log = log, .bytes = 5000};
		cr_assert_eq(os_thread_start(&thread[i], "reserve", reserve_thread, &waiter[i]), 0);
		await_waiters(log, i + 1);
	}
	log_unreserve(log, most);
	for (unsigned i = 0; i < 3; i++) {
		os_thread_join(&thread[i]);
		cr_assert_eq(waiter[i].result, 0);
	}
	log_close(log);
	dev_close(dev);
}

/* The holder appends all that it had and goes away: the waiter flushes. */
Test(log_reserve, an_append_wakes_a_waiter_for_buffer_space)
{
	struct device *dev = format_blocks(512, 1 << 20);
	struct log *log = open_log(dev, 1, 1);
	const struct log_options options = {.buffer_bytes = 16 << 10};
	struct waiter waiter = {.log = log, .bytes = 9000};
	struct os_thread thread;
	uint8_t records[RECORD_MAX];
	struct log_ticket ticket;

	cr_assert_eq(log_start(log, LSN_FIRST, 2, &options), 0);
	cr_assert_eq(log_reserve(log, 8000), 0);
	cr_assert_eq(os_thread_start(&thread, "reserve", reserve_thread, &waiter), 0);
	await_waiters(log, 1);
	for (int i = 0; i < 1000; i++)
		sched_yield();
	cr_assert(!atomic_load(&waiter.done));
	make_records(records, 1, 8000 - MTR_TRAILER_BYTES);
	log_append(log, records, 8000 - MTR_TRAILER_BYTES, &ticket);
	log_listed(log, &ticket);
	os_thread_join(&thread);
	cr_assert_eq(waiter.result, 0);
	cr_assert_geq(log_durable_lsn(log), ticket.end);
	log_close(log);
	dev_close(dev);
}

/* Reservations appended to the last byte, never given back: nothing leaks. */
Test(log_reserve, exact_reservations_leak_nothing)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);

	for (int i = 0; i < 2000; i++) {
		lsn_t end = append(log, 1, 100).end;

		cr_assert_eq(log_mark(log, end), 0);
		cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
	}
	cr_assert_eq(log_reserve(log, log_reserve_max(log)), 0);
	log_close(log);
	dev_close(dev);
}

/* -------------------------------------------------------------- INV-LOG-2 */

Test(log_checkpoint, inv_log_2_unlisted_appends_hold_it_back)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	struct log_ticket a, b;

	cr_assert_eq(log_unlisted_lsn(log), log_next_lsn(log));
	a = append_listed_later(log, 1, 100);
	b = append_listed_later(log, 2, 100);
	cr_assert_eq(log_unlisted_lsn(log), a.start);
	log_listed(log, &a);
	cr_assert_eq(log_unlisted_lsn(log), b.start);
	log_listed(log, &b);
	cr_assert_eq(log_unlisted_lsn(log), log_next_lsn(log));
	log_close(log);
	dev_close(dev);
}

static struct log *watched;
static lsn_t watched_lsn;

static void watch_checkpoint(const char *point)
{
	if (!strcmp(point, "log:checkpoint"))
		watched_lsn = log_checkpoint_lsn(watched);
}

Test(log_checkpoint, inv_log_2_space_is_free_only_after_the_flush)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	lsn_t before = log_checkpoint_lsn(log);

	watched = log;
	fill_log(log);
	os_linux_set_point_handler(watch_checkpoint);
	cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(watched_lsn, before);
	cr_assert_eq(log_checkpoint_lsn(log), log_durable_lsn(log));

	fill_log(log);
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
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	struct log *again;
	lsn_t durable;
	size_t events;

	dev_record_start(dev);
	cr_assert_eq(log_checkpoint(log, log_checkpoint_lsn(log)), 0);
	cr_assert_eq(dev_record_count(dev), 0);
	cr_assert_eq(log_mark(log, append(log, 1, 100).end), 0);
	durable = log_durable_lsn(log);
	cr_assert_eq(log_checkpoint(log, LSN_FIRST), 0, "the newest mark is recorded");
	again = open_log(dev, 2, 2);
	cr_assert_eq(log_found_checkpoint(again)->marked_lsn, log_marked_lsn(log));
	cr_assert_eq(log_found_checkpoint(again)->lsn, LSN_FIRST);
	log_close(again);
	cr_assert_eq(log_checkpoint(log, durable), 0);
	events = dev_record_count(dev);
	cr_assert_eq(log_checkpoint(log, durable), 0);
	cr_assert_eq(log_checkpoint(log, LSN_FIRST), 0, "never backwards");
	cr_assert_eq(dev_record_count(dev), events);
	again = open_log(dev, 2, 2);
	cr_assert_eq(log_found_checkpoint(again)->lsn, durable);
	log_close(again);
	flip(dev, OFFSET + (log->checkpoint_slot ? LOG_CHECKPOINT_1 : LOG_CHECKPOINT_0) + 40);
	again = open_log(dev, 2, 2);
	cr_assert_eq(log_found_checkpoint(again)->lsn, LSN_FIRST, "the other one");
	log_close(again);
	log_close(log);
	dev_close(dev);
}

/* The oldest dirty page may be of the open group. */
Test(log_checkpoint, not_above_durable)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	lsn_t durable;

	cr_assert_eq(log_flush(log, append(log, 1, 100).end), 0);
	durable = log_durable_lsn(log);
	cr_assert_eq(log_checkpoint(log, append(log, 2, 100).start), 0);
	cr_assert_eq(log_checkpoint_lsn(log), durable);
	cr_assert_eq(log_flush(log, log_next_lsn(log)), 0);
	scan(dev, 2, &seen);
	cr_assert(seen.count == 1 && seen.id[0] == 2);
	log_close(log);
	dev_close(dev);
}

/* A checkpoint may stand at either end of any mtr. */
Test(log_checkpoint, within_a_group)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	struct log_ticket ticket[8];

	for (uint64_t id = 0; id < 8; id++)
		ticket[id] = append(log, id, 50 + 20 * id);
	cr_assert_eq(log_mark(log, ticket[7].end), 0);
	for (uint64_t id = 0; id < 8; id++) {
		cr_assert_eq(log_checkpoint(log, ticket[id].start), 0);
		scan(dev, 2, &seen);
		cr_assert(seen.count == 8 - id && seen.id[0] == id);
		cr_assert_eq(log_checkpoint(log, ticket[id].end), 0);
		cr_assert(!scan(dev, 2, &seen).damaged);
		cr_assert_eq(seen.count, 7 - id);
	}
	log_close(log);
	dev_close(dev);
}

/* -------------------------------------------------------------- INV-LOG-3 */

static _Atomic bool held, hold;

static void hold_appender(const char *point)
{
	if (strcmp(point, "log:reserved") || !atomic_load(&hold))
		return;
	atomic_store(&hold, false);
	atomic_store(&held, true);
	while (atomic_load(&held))
		sched_yield();
}

static void append_thread(void *arg)
{
	struct waiter *waiter = arg;

	append(waiter->log, 77, 500);
	atomic_store(&waiter->done, true);
}

static void flush_thread(void *arg)
{
	struct waiter *waiter = arg;

	waiter->result = log_flush(waiter->log, waiter->bytes);
	atomic_store(&waiter->done, true);
}

Test(log_flush, inv_log_3_waits_for_the_copied_watermark)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	struct waiter appender = {.log = log}, flusher = {.log = log};
	struct os_thread thread[2];
	lsn_t start;

	os_linux_set_point_handler(hold_appender);
	atomic_store(&hold, true);
	cr_assert_eq(os_thread_start(&thread[0], "append", append_thread, &appender), 0);
	while (!atomic_load(&held))
		sched_yield();
	start = log_unlisted_lsn(log);
	flusher.bytes = append(log, 78, 100).end;
	cr_assert_eq(os_thread_start(&thread[1], "flush", flush_thread, &flusher), 0);
	for (int i = 0; i < 2000; i++)
		sched_yield();
	cr_assert(!atomic_load(&flusher.done));
	cr_assert_leq(log_durable_lsn(log), start);
	cr_assert_eq(log_unlisted_lsn(log), start);
	atomic_store(&held, false);
	os_thread_join(&thread[0]);
	os_thread_join(&thread[1]);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(flusher.result, 0);
	scan(dev, 2, &seen);
	cr_assert(seen.count == 2 && seen.id[0] == 77 && seen.id[1] == 78);
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
	late = append(watched, 2, 100);
}

Test(log_flush, inv_log_4_the_lsn_is_sampled_before_the_flush)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);

	watched = log;
	os_linux_set_point_handler(append_late);
	cr_assert_eq(log_flush(log, append(log, 1, 100).end), 0);
	cr_assert_gt(late.start, 0);
	cr_assert_leq(log_durable_lsn(log), late.start);
	scan(dev, 2, &seen);
	cr_assert_eq(seen.count, 1);
	cr_assert_eq(log_flush(log, late.end), 0);
	scan(dev, 2, &seen);
	cr_assert_eq(seen.count, 2);
	log_close(log);
	dev_close(dev);
}

Test(log_flush, nothing_to_do)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);

	cr_assert_eq(log_flush(log, append(log, 1, 100).end), 0);
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
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);

	for (int i = 0; i < 20; i++) {
		lsn_t durable = log_durable_lsn(log), start = append(log, 1, 100).start;
		struct device *before = copy_device(dev);
		uint8_t old[CAPACITY], new[CAPACITY];
		uint64_t len = durable - LSN_FIRST;

		cr_assert_eq(durable % 512, 0);
		cr_assert_eq(start, durable + MARK_MTR_BYTES);
		cr_assert_eq(log_flush(log, log_next_lsn(log)), 0);
		cr_assert_eq(dev_read(before, old, len, device_offset(LSN_FIRST, CAPACITY)), 0);
		cr_assert_eq(dev_read(dev, new, len, device_offset(LSN_FIRST, CAPACITY)), 0);
		cr_assert_eq(memcmp(old, new, len), 0);
		dev_close(before);
	}
	log_close(log);
	dev_close(dev);
}

/* -------------------------------------------------------------- INV-LOG-5 */

Test(log_mark, inv_log_5_each_group_starts_with_a_mark)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	lsn_t first, second;

	cr_assert_eq(log_flush(log, append(log, 1, 700).end), 0);
	first = log_durable_lsn(log);
	cr_assert_eq(log_marked_lsn(log), LSN_FIRST);
	cr_assert_eq(log_flush(log, append(log, 2, 10 + 7).end), 0);
	second = log_durable_lsn(log);
	cr_assert_eq(log_marked_lsn(log), first);
	cr_assert_eq(scan(dev, 2, &seen).marked_lsn, first);
	cr_assert_eq(seen.marks, 2);
	cr_assert(first % 512 == 0 && second % 512 == 0);
	log_close(log);
	dev_close(dev);
}

Test(log_mark, inv_log_5_a_closing_mark_triggers_no_other)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	lsn_t end = append(log, 1, 100).end, next;

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
	cr_assert_geq(scan(dev, 2, &seen).marked_lsn, end);
	log_close(log);
	dev_close(dev);
}

/* Each byte of what a mark covers: when it is bad, that is damage. */
Test(log_mark, inv_log_5_a_stop_below_a_mark_is_damage)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	lsn_t end;

	for (uint64_t id = 0; id < 10; id++)
		cr_assert_eq(log_flush(log, append(log, id, 11 + random_below(900)).end), 0);
	end = log_durable_lsn(log);
	cr_assert_eq(log_mark(log, end), 0);
	log_close(log);
	cr_assert(!scan(dev, 2, &seen).damaged);
	for (lsn_t lsn = LSN_FIRST; lsn < end; lsn++) {
		struct log_scan_result result;

		flip(dev, device_offset(lsn, CAPACITY));
		result = scan(dev, 2, &seen);
		cr_assert(result.damaged && result.end <= lsn, "byte at %lu", (unsigned long)lsn);
		cr_assert_gt(result.damage_mark, result.end);
		flip(dev, device_offset(lsn, CAPACITY));
	}
	dev_close(dev);
}

/* The mark that the checkpoint block knows of counts as well. */
Test(log_mark, inv_log_5_a_stop_below_the_checkpoint_s_mark_is_damage)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	struct log_ticket ticket = append(log, 1, 3000);

	cr_assert_eq(log_mark(log, ticket.end), 0);
	cr_assert_eq(log_checkpoint(log, ticket.start), 0);
	for (lsn_t lsn = ticket.start; lsn < log_durable_lsn(log); lsn += 512) {
		uint64_t at = device_offset(lsn / 512 * 512, CAPACITY);
		uint8_t zeros[512] = {0};

		cr_assert_eq(dev_write(dev, zeros, 512, at), 0);
	}
	cr_assert(scan(dev, 2, &seen).damaged);
	log_close(log);
	dev_close(dev);
}

/* A torn group with nothing behind it is a clean end, whichever of its blocks are missing. */
Test(log_mark, inv_log_5_a_torn_last_group_is_the_end)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	struct device *before;
	lsn_t from, to;

	for (uint64_t id = 0; id < 10; id++)
		cr_assert_eq(log_flush(log, append(log, id, 300).end), 0);
	before = copy_device(dev);
	from = log_durable_lsn(log);
	for (uint64_t id = 10; id < 20; id++)
		append(log, id, 300);
	cr_assert_eq(log_flush(log, log_next_lsn(log)), 0);
	to = log_durable_lsn(log);
	cr_assert_eq((to - from) / 512, 7);
	for (unsigned arrived = 0; arrived < 1 << 7; arrived++) {
		struct device *torn = copy_device(before);
		struct log_scan_result result;

		for (unsigned i = 0; i < 7; i++) {
			uint8_t block[512];
			uint64_t at = device_offset(from + 512 * i, CAPACITY);

			if (!(arrived & 1 << i))
				continue;
			cr_assert_eq(dev_read(dev, block, 512, at), 0);
			cr_assert_eq(dev_write(torn, block, 512, at), 0);
		}
		result = scan(torn, 2, &seen);
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
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);

	for (uint64_t id = 0; log_next_lsn(log) < LSN_FIRST + 5 * CAPACITY; id++) {
		cr_assert_eq(log_mark(log, append(log, id, 100).end), 0);
		cr_assert(!scan(dev, 2, &seen).damaged);
		cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
		cr_assert(!scan(dev, 2, &seen).damaged);
		cr_assert_eq(seen.count, 0);
	}
	log_close(log);
	dev_close(dev);
}

/* -------------------------------------------------------------- INV-LOG-6 */

/*
 * The log is cut; new appends end exactly where the old tail goes on.  Only
 * the epoch tells the tail from their continuation.
 */
Test(log_start, inv_log_6_an_old_tail_does_not_come_back)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	struct log_scan_result result;
	lsn_t cut = 0;

	for (uint64_t id = 0; id < 6; id++) {
		lsn_t end = append(log, id, 400).end;

		cr_assert_eq(log_flush(log, end), 0);
		if (id == 2)
			cut = log_durable_lsn(log);
	}
	log_close(log);
	scan(dev, 2, &seen);
	cr_assert_eq(seen.count, 6);

	log = start_log(dev, cut, 2, 3);
	cr_assert_eq(log_checkpoint_lsn(log), cut);
	cr_assert_eq(log_flush(log, append(log, 100, 400).end), 0);
	log_close(log);
	result = scan(dev, 3, &seen);
	cr_assert(seen.count == 1 && seen.id[0] == 100);
	cr_assert(!result.damaged);
	cr_assert_eq(try_open(dev, uuid, 2, 2), -BE_DAMAGE, "both blocks have the new epoch");
	flip(dev, OFFSET + LOG_CHECKPOINT_0 + 30);
	scan(dev, 3, &seen);
	cr_assert_eq(seen.count, 1, "whichever block is lost");
	flip(dev, OFFSET + LOG_CHECKPOINT_0 + 30);
	flip(dev, OFFSET + LOG_CHECKPOINT_1 + 30);
	scan(dev, 3, &seen);
	cr_assert_eq(seen.count, 1);
	dev_close(dev);
}

/* The same within a group: no mark stands where the old tail goes on. */
Test(log_start, inv_log_6_an_old_tail_does_not_come_back_without_a_mark)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	const size_t first = 512 - MARK_MTR_BYTES - MTR_TRAILER_BYTES;
	struct log_ticket ticket;

	ticket = append(log, 1, first);
	cr_assert_eq(ticket.end % 512, 0);
	for (uint64_t id = 2; id < 6; id++)
		append(log, id, 512 - MTR_TRAILER_BYTES);
	cr_assert_eq(log_flush(log, log_next_lsn(log)), 0);
	log_close(log);
	scan(dev, 2, &seen);
	cr_assert_eq(seen.count, 5);

	log = start_log(dev, LSN_FIRST, 2, 3);
	cr_assert_eq(append(log, 100, first).end, ticket.end);
	cr_assert_eq(log_flush(log, ticket.end), 0);
	cr_assert_eq(log_durable_lsn(log), ticket.end, "no padding");
	log_close(log);
	cr_assert_eq(scan(dev, 3, &seen).end, ticket.end);
	cr_assert(seen.count == 1 && seen.id[0] == 100);
	dev_close(dev);
}

Test(log_start, inv_log_6_order_of_its_writes)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log;
	const bool is_flush[] = {false, true, false, true};

	dev_record_start(dev);
	log = start_log(dev, 0, 1, 2);
	cr_assert_eq(dev_record_count(dev), 4);
	for (size_t i = 0; i < 4; i++)
		cr_assert_eq(dev_record_is_flush(dev, i), is_flush[i]);
	log_close(log);
	dev_close(dev);
}

Test(log_start, rounds_up_and_refuses_an_old_generation)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = open_log(dev, 1, 1);

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
		struct device *dev = format_blocks(512, CAPACITY);
		struct log *log = open_log(dev, 1, 1);

		dev_memory_fail(dev, FAULT_WRITE | FAULT_FLUSH, n, -EIO, false);
		cr_assert_eq(log_start(log, LSN_FIRST, 2, NULL), -EIO);
		log_close(log);
		log = open_log(dev, 1, 2);
		cr_assert_eq(log_start(log, LSN_FIRST, 3, NULL), 0, "simply again");
		log_close(log);
		dev_close(dev);
	}
}

/* ---------------------------------------------------------------- failure */

static int deaths, death_error;

static void count_death(void *arg, int error)
{
	cr_assert_eq(arg, &deaths);
	deaths++;
	death_error = error;
}

Test(log_dead, an_error_is_final)
{
	const unsigned kinds[] = {FAULT_WRITE, FAULT_FLUSH};
	const struct log_options options = {.on_dead = count_death, .on_dead_arg = &deaths};

	for (size_t i = 0; i < array_count(kinds); i++) {
		struct device *dev = format_blocks(512, CAPACITY);
		struct log *log = open_log(dev, 1, 1);
		struct log_ticket ticket;
		lsn_t durable;

		deaths = 0;
		cr_assert_eq(log_start(log, LSN_FIRST, 2, &options), 0);
		cr_assert_eq(log_flush(log, append(log, 1, 100).end), 0);
		durable = log_durable_lsn(log);
		cr_assert_eq(log_reserve(log, 4000), 0);
		dev_memory_fail(dev, kinds[i], 0, -EIO, false);
		ticket = append(log, 2, 100);
		cr_assert_eq(log_flush(log, ticket.end), -BE_LOGDEAD);
		cr_assert(deaths == 1 && death_error == -EIO);
		cr_assert(log_dead(log));
		/* The device works again; the log does not. */
		cr_assert_eq(log_flush(log, ticket.end), -BE_LOGDEAD);
		cr_assert_eq(log_mark(log, ticket.end), -BE_LOGDEAD);
		cr_assert_eq(log_reserve(log, 100), -BE_LOGDEAD);
		cr_assert_eq(log_checkpoint(log, durable), -BE_LOGDEAD);
		cr_assert_eq(log_durable_lsn(log), durable);
		/* What was reserved is still taken, and dropped. */
		for (uint64_t id = 3; id < 8; id++) {
			uint8_t records[RECORD_MAX];

			make_records(records, id, 400);
			log_append(log, records, 400, &ticket);
			log_listed(log, &ticket);
		}
		log_unreserve(log, 4000 - 5 * 405);
		cr_assert_eq(deaths, 1);
		log_close(log);
		scan(dev, 2, &seen);
		cr_assert_leq(seen.count, 2);
		dev_close(dev);
	}
}

/* While a group is in flight, a checkpoint meets an error of the same device. */
static bool error_stays;

static void fail_a_checkpoint(const char *point)
{
	if (strcmp(point, "log:written"))
		return;
	os_linux_set_point_handler(NULL);
	dev_memory_fail(watched->dev, FAULT_FLUSH, 0, -EIO, error_stays);
	cr_assert_eq(log_checkpoint(watched, log_durable_lsn(watched)), -BE_LOGDEAD);
}

Test(log_dead, a_flush_that_succeeds_after_another_failed_is_not_believed)
{
	const struct log_options options = {.on_dead = count_death, .on_dead_arg = &deaths};

	for (int stays = 0; stays < 2; stays++) {
		struct device *dev = format_blocks(512, CAPACITY);
		struct log *log = open_log(dev, 1, 1);
		struct log_ticket ticket;
		lsn_t durable;

		deaths = 0;
		error_stays = stays;
		watched = log;
		cr_assert_eq(log_start(log, LSN_FIRST, 2, &options), 0);
		cr_assert_eq(log_flush(log, append(log, 1, 100).end), 0);
		durable = log_durable_lsn(log);
		ticket = append(log, 2, 100);
		os_linux_set_point_handler(fail_a_checkpoint);
		cr_assert_eq(log_flush(log, ticket.end), -BE_LOGDEAD);
		cr_assert_eq(log_durable_lsn(log), durable);
		cr_assert_eq(deaths, 1);
		log_close(log);
		dev_close(dev);
	}
}

/* Those who wait, for space or for a group, are told. */
Test(log_dead, waiters_get_the_error)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	struct waiter reserver = {.log = log, .bytes = log_reserve_max(log)};
	struct waiter flusher[3];
	struct os_thread thread[4];

	log_set_space_callback(log, note_wanted, NULL);
	fill_log(log);
	os_linux_set_point_handler(hold_appender);
	atomic_store(&hold, true);
	dev_memory_fail(dev, FAULT_WRITE, 0, -EIO, true);
	cr_assert_eq(os_thread_start(&thread[3], "append", append_thread, &reserver), 0);
	while (!atomic_load(&held))
		sched_yield();
	for (int i = 0; i < 3; i++) {
		flusher[i] = (struct waiter){.log = log, .bytes = append(log, 9, 100).end};
		cr_assert_eq(os_thread_start(&thread[i], "flush", flush_thread, &flusher[i]), 0);
	}
	for (int i = 0; i < 1000; i++)
		sched_yield();
	atomic_store(&held, false);
	for (int i = 0; i < 4; i++)
		os_thread_join(&thread[i]);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(flusher[i].result, -BE_LOGDEAD);
	log_close(log);
	dev_close(dev);
}

Test(log_dead, a_waiter_for_space_gets_the_error)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	struct waiter reserver = {.log = log, .bytes = log_reserve_max(log)};
	struct os_thread thread;

	log_set_space_callback(log, note_wanted, NULL);
	fill_log(log);
	cr_assert_eq(os_thread_start(&thread, "reserve", reserve_thread, &reserver), 0);
	while (!atomic_load(&wanted))
		sched_yield();
	dev_memory_fail(dev, FAULT_FLUSH, 0, -EIO, false);
	cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), -BE_LOGDEAD);
	os_thread_join(&thread);
	cr_assert_eq(reserver.result, -BE_LOGDEAD);
	log_close(log);
	dev_close(dev);
}

/* The volume fails for a reason of its own. */
Test(log_dead, the_volume_may_say_so)
{
	struct device *dev = format_blocks(512, CAPACITY);
	struct log *log = start_log(dev, 0, 1, 2);
	struct waiter reserver = {.log = log, .bytes = log_reserve_max(log)};
	struct os_thread thread;
	lsn_t durable;

	fill_log(log);
	durable = log_durable_lsn(log);
	cr_assert_eq(os_thread_start(&thread, "reserve", reserve_thread, &reserver), 0);
	await_waiters(log, 1);
	log_fail(log, -EIO);
	os_thread_join(&thread);
	cr_assert_eq(reserver.result, -BE_LOGDEAD);
	cr_assert_eq(log_flush(log, durable), -BE_LOGDEAD);
	cr_assert_eq(log_durable_lsn(log), durable);
	log_close(log);
	dev_close(dev);
}

/* ----------------------------------------------------------- group commit */

#define COMMITTERS 8

static struct log *shared_log;
static struct stats stats;

static void commit_thread(void *arg)
{
	cr_assert_eq(log_flush(shared_log, append(shared_log, (uintptr_t)arg, 60).end), 0);
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
	struct device *dev = format_blocks(512, 1 << 20);
	struct log_place place = place_of(dev);
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
	scan(dev, 2, &seen);
	cr_assert_eq(seen.count, COMMITTERS + 1);
	dev_close(dev);
}
