/*
 * Fuzzes logs: a volume that died with its log not replayed; bytes of the live part, of
 * the header and of the checkpoints are changed, and the checksums put right again or
 * not, so that recovery meets records that are wrong and valid.  Then image_use.h.
 *
 * The input is a list of edits of 6 bytes: u16 which mini-transaction (in LSN order; the
 * last three numbers: header, checkpoints), u16 offset in it, u8 how, u8 value.
 *
 *	how & 1   a bit is flipped, else the byte is replaced
 *	how & 2   (one in four with 4) the checksum stays as it is
 *
 * With libFuzzer: make fuzz.  Else main() runs seeded inputs (fuzz_main.h).
 */
#include "engine/base/crc32c.h"
#include "engine/base/message.h"
#include "log/log_internal.h"
#include "tests/fuzz/fuzz_main.h"
#include "tests/fuzz/image_use.h"
#include "tests/lib/fsck_world.h"
#include "tests/lib/scratch.h"

#include <stdlib.h>

#define EDIT_BYTES 6u
#define EDITS_MAX 64u
#define MTRS_MAX 8192u

struct mtr_place {
	uint64_t at;     /* its records, in one piece */
	uint32_t bytes;  /* without trailer */
};

struct base {
	struct device *dev;
	uint64_t log;    /* where it begins */
	uint64_t epoch;
	struct log_shape shape;
	struct mtr_place mtr[MTRS_MAX];
	unsigned mtrs;
};

struct input {
	const struct base *base;
	const uint8_t *data;
	size_t size;
};

/* ------------------------------------------------------------------------ base */

/* One that goes over the end of the lap is left out. */
static int note_mtr(void *arg, const struct log_mtr *mtr)
{
	struct base *base = arg;
	uint64_t at = log_offset(&base->shape, mtr->start);

	if (base->mtrs < MTRS_MAX &&
	    mtr->end - mtr->start <= log_lap_left(&base->shape, mtr->start))
		base->mtr[base->mtrs++] = (struct mtr_place){at, (uint32_t)mtr->records_bytes};
	return 0;
}

static struct base *base_make(void)
{
	struct base *base = calloc(1, sizeof(*base));
	struct log_scan_result found;
	struct log_place place = {0};
	struct raw_volume raw;
	struct world world;
	struct log *log;

	check(base != NULL);
	world_make_crashed(&world);
	check(raw_open(&raw, world.dev) == 0);
	place.dev = world.dev;
	place.offset = raw.geo.log_start * BLOCK_SIZE;
	place.size_bytes = raw.geo.log_bytes;
	memcpy(place.uuid, raw.sb.log_uuid, sizeof(place.uuid));
	check(log_open(&log, &place, le64_get(raw.sb.log_gen), le64_get(raw.sb.mount_gen)) == 0);
	base->log = place.offset;
	base->shape = log->shape;
	base->epoch = log_found_checkpoint(log)->generation;
	check(log_scan(log, note_mtr, base, &found) == 0);
	log_close(log);
	check(base->mtrs > 10);
	base->dev = world.dev;
	dev_record_start(base->dev);
	return base;
}

/* ----------------------------------------------------------------------- edits */

static void change(uint8_t *at, uint8_t how, uint8_t value)
{
	*at = how & 1 ? *at ^ (uint8_t)(1u << value % 8) : value;
}

static void edit_header(uint8_t *at, unsigned offset, uint8_t how, uint8_t value)
{
	struct disk_log_header header;

	change(at + offset % sizeof(header), how, value);
	memcpy(&header, at, sizeof(header));
	header.crc = le32_make(0);
	header.crc = le32_make(crc32c(0, &header, sizeof(header)));
	if ((how & 6) != 6)
		memcpy(at, &header, sizeof(header));
}

static void edit_checkpoint(uint8_t *at, unsigned offset, uint8_t how, uint8_t value)
{
	struct disk_checkpoint checkpoint;

	change(at + offset % sizeof(checkpoint), how, value);
	memcpy(&checkpoint, at, sizeof(checkpoint));
	checkpoint.crc = le32_make(0);
	checkpoint.crc = le32_make(crc32c(0, &checkpoint, sizeof(checkpoint)));
	if ((how & 6) != 6)
		memcpy(at, &checkpoint, sizeof(checkpoint));
}

static void edit_mtr(const struct base *base, uint8_t *at, const struct mtr_place *mtr,
		     unsigned offset, uint8_t how, uint8_t value)
{
	le32 crc;

	/* The sequence byte behind the records too. */
	change(at + offset % (mtr->bytes + 1), how, value);
	crc = le32_make(log_records_crc(base->epoch, at, mtr->bytes));
	if ((how & 6) != 6)
		memcpy(at + mtr->bytes + 1, &crc, sizeof(crc));
}

static void edit(const struct base *base, struct device *dev, const uint8_t *in)
{
	unsigned which = (unsigned)(in[0] | in[1] << 8) % (base->mtrs + 3);
	unsigned offset = (unsigned)(in[2] | in[3] << 8);
	uint64_t place = which < base->mtrs		? base->mtr[which].at
			 : which == base->mtrs		? base->log
			 : which == base->mtrs + 1	? base->log + LOG_CHECKPOINT_0
							: base->log + LOG_CHECKPOINT_1;
	size_t len = which < base->mtrs ? base->mtr[which].bytes + MTR_TRAILER_BYTES
					: LOG_HEADER_BYTES;
	uint8_t *at = malloc(len);

	check(at && dev_read(dev, at, len, place) == 0);
	if (which < base->mtrs)
		edit_mtr(base, at, &base->mtr[which], offset, in[4], in[5]);
	else if (which == base->mtrs)
		edit_header(at, offset, in[4], in[5]);
	else
		edit_checkpoint(at, offset, in[4], in[5]);
	check(dev_write(dev, at, len, place) == 0);
	free(at);
}

static struct device *make_copy(void *arg)
{
	const struct input *input = arg;
	struct device *dev;

	check(dev_record_cut(input->base->dev, 0, &dev) == 0);
	for (unsigned i = 0; i < EDITS_MAX && (i + 1) * EDIT_BYTES <= input->size; i++)
		edit(input->base, dev, input->data + i * EDIT_BYTES);
	return dev;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct input input;

	if (!input.base) {
		message_quiet(getenv("FUZZ_VERBOSE") ? LOG_INFO : LOG_CRIT);
		input.base = base_make();
	}
	input.data = data;
	input.size = size;
	image_use_all(make_copy, &input, image_use_chosen(data, size));
	return 0;
}

#ifndef BLINKFS_LIBFUZZER

static size_t make_input(uint8_t *out, uint64_t seed)
{
	uint64_t state = seed;
	size_t edits = 1 + random_next(&state) % 4;

	for (size_t i = 0; i < edits * EDIT_BYTES; i++)
		out[i] = (uint8_t)random_next(&state);
	for (size_t i = 0; i < edits * EDIT_BYTES; i += EDIT_BYTES)
		if (random_next(&state) % 2) /* the first record's head */
			out[i + 2] %= 40, out[i + 3] = 0;
	return edits * EDIT_BYTES;
}

int main(int argc, char **argv)
{
	return fuzz_main("fuzz_log", 100, make_input, argc, argv);
}

#endif
