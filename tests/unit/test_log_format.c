/* The bytes of the log: varints, records, marks, padding, sequence bytes. */
#include "tests/lib/log_rig.h"

#include <criterion/criterion.h>
#include <errno.h>

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
	const struct log_shape shape = {
		.capacity = LOGRIG_CAPACITY, .first_lsn = LSN_FIRST, .block = 512};
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
		.capacity = LOGRIG_CAPACITY,
		.first_lsn = LSN_FIRST,
		.block = LOG_BLOCK_MAX,
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
	const struct log_shape shape = {
		.capacity = LOGRIG_CAPACITY, .first_lsn = LSN_FIRST, .block = 512};

	cr_assert_eq(log_sequence_byte(&shape, LSN_FIRST), 1);
	cr_assert_eq(log_sequence_byte(&shape, LSN_FIRST + LOGRIG_CAPACITY - 1), 1);
	cr_assert_eq(log_sequence_byte(&shape, LSN_FIRST + LOGRIG_CAPACITY), 0);
	cr_assert_eq(log_sequence_byte(&shape, LSN_FIRST + 2 * LOGRIG_CAPACITY), 1);
}

Test(log_format, too_small_or_uneven)
{
	struct device *dev;

	cr_assert_eq(dev_open_memory(&dev, 1 << 20), 0);
	cr_assert_eq(log_format(dev, 0, LOG_RECORDS_START, logrig_uuid, 1), -BE_TOOSMALL);
	cr_assert_eq(log_format(dev, 0, LOG_RECORDS_START + LOGRIG_CAPACITY + 1, logrig_uuid, 1),
		     -EINVAL);
	cr_assert_eq(log_format(dev, 0, LOG_BYTES_MIN, logrig_uuid, 1), 0);
	dev_close(dev);
}
