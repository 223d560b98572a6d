/*
 * Fuzzes superblocks: bytes of either or both are changed, and the checksums put right
 * again or not.  image_use.h has what is done with the image then.
 *
 * The input is a list of edits of 4 bytes: u8 how, u16 offset, u8 value.
 *
 *	how & 3    1 the primary, 2 the copy, else both
 *	how & 4    a bit is flipped, else the byte is replaced
 *	how & 8    the checksums stay as they are
 *
 * With libFuzzer: make fuzz.  Else main() runs seeded inputs (fuzz_main.h).
 */
#include "engine/base/crc32c.h"
#include "engine/base/message.h"
#include "tests/fuzz/fuzz_main.h"
#include "tests/fuzz/image_use.h"
#include "tests/lib/fsck_world.h"
#include "tests/lib/scratch.h"

#include <stdlib.h>

#define EDIT_BYTES 4u
#define EDITS_MAX 32u
#define FIELDS_BYTES 1304u /* behind them nothing means anything */

struct input {
	struct device *base;
	const uint8_t *data;
	size_t size;
};

static void edit(struct disk_superblock *sb, const uint8_t *in)
{
	uint8_t *at = (uint8_t *)sb + (unsigned)(in[1] | in[2] << 8) % FIELDS_BYTES;

	*at = in[0] & 4 ? *at ^ (uint8_t)(1u << in[3] % 8) : in[3];
	if (in[0] & 8)
		return;
	sb->crc = le32_make(0);
	sb->crc = le32_make(crc32c(0, sb, sizeof(*sb)));
}

static struct device *make_copy(void *arg)
{
	const struct input *input = arg;
	struct disk_superblock super[2];
	struct device *dev;

	check(dev_record_cut(input->base, 0, &dev) == 0);
	check(dev_read(dev, &super[0], sizeof(super[0]), 0) == 0);
	check(dev_read(dev, &super[1], sizeof(super[1]), WORLD_BYTES - BLOCK_SIZE) == 0);
	for (unsigned i = 0; i < EDITS_MAX && (i + 1) * EDIT_BYTES <= input->size; i++) {
		const uint8_t *in = input->data + i * EDIT_BYTES;

		if ((in[0] & 3) != 2)
			edit(&super[0], in);
		if ((in[0] & 3) != 1)
			edit(&super[1], in);
	}
	check(dev_write(dev, &super[0], sizeof(super[0]), 0) == 0);
	check(dev_write(dev, &super[1], sizeof(super[1]), WORLD_BYTES - BLOCK_SIZE) == 0);
	return dev;
}

static struct device *base_make(void)
{
	struct world world;

	world_make(&world);
	dev_record_start(world.dev);
	return world.dev;
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

/* Mostly the first 330 bytes, where all fields but four are. */
static size_t make_input(uint8_t *out, uint64_t seed)
{
	uint64_t state = seed;
	size_t edits = 1 + random_next(&state) % 4;

	for (size_t i = 0; i < edits * EDIT_BYTES; i += EDIT_BYTES) {
		unsigned offset = (unsigned)random_next(&state) % FIELDS_BYTES;

		if (random_next(&state) % 4)
			offset %= 330;
		out[i] = (uint8_t)(random_next(&state) % 8 | (random_next(&state) % 8 ? 0 : 8));
		out[i + 1] = (uint8_t)offset;
		out[i + 2] = (uint8_t)(offset >> 8);
		out[i + 3] = (uint8_t)random_next(&state);
	}
	return edits * EDIT_BYTES;
}

int main(int argc, char **argv)
{
	return fuzz_main("fuzz_super", 100, make_input, argc, argv);
}

#endif
