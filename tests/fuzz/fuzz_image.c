/*
 * Fuzzes images: bytes of a volume's pages and superblocks are changed, and the
 * checksums put right again, so that nothing but the meaning of the fields is
 * wrong.  image_use.h has what is done with them then.
 *
 * The input is a list of edits of 6 bytes: u16 page (of those in use), u16 offset,
 * u8 how, u8 value.
 *
 * With libFuzzer: make fuzz.
 * Else main() runs seeded inputs (fuzz_main.h); FUZZ_ONLY=walk, repair or mount.
 */
#include "engine/base/crc32c.h"
#include "engine/base/message.h"
#include "tests/fuzz/fuzz_main.h"
#include "tests/fuzz/image_use.h"
#include "tests/lib/fsck_world.h"
#include "tests/lib/scratch.h"

#include <stdlib.h>

#define EDIT_BYTES 6u
#define EDITS_MAX 64u

/* The healthy volume, made once. */
struct base {
	struct world world;
	uint64_t pages[2048]; /* in use, the two superblocks last */
	unsigned page_count;
};

static void note_pages(struct base *base)
{
	struct image image;

	image_open(&image, base->world.dev);
	for (uint64_t pageno = image.raw.geo.groups_start; pageno < image.raw.groups_end;
	     pageno++) {
		image_load(&image, pageno);
		if (page_verify(image.page, WORLD_PAGE, pageno, image.raw.tag, NULL) == 0)
			base->pages[base->page_count++] = pageno;
	}
	base->pages[base->page_count++] = 0;
	base->pages[base->page_count++] = image.raw.geo.block_count - 1;
}

static struct base *base_make(void)
{
	struct base *base = calloc(1, sizeof(*base));

	check(base != NULL);
	world_make(&base->world);
	note_pages(base);
	dev_record_start(base->world.dev);
	return base;
}

/* ---------------------------------------------------------------------- edits */

static void seal_superblock(struct disk_superblock *sb)
{
	sb->crc = le32_make(0);
	sb->crc = le32_make(crc32c(0, sb, sizeof(*sb)));
}

static void edit(struct device *dev, const struct base *base, const uint8_t *in)
{
	uint8_t page[WORLD_PAGE];
	uint64_t pageno = base->pages[(in[0] | in[1] << 8) % base->page_count];
	unsigned offset = (unsigned)(in[2] | in[3] << 8) % WORLD_PAGE;

	check(dev_read(dev, page, sizeof(page), pageno * WORLD_PAGE) == 0);
	switch (in[4] % 4) {
	case 0:
		page[offset] = in[5];
		break;
	case 1:
		page[offset] ^= (uint8_t)(1u << (in[5] % 8));
		break;
	case 2:
		page[offset]++;
		break;
	case 3:
		page[offset]--;
		break;
	}
	if (memcmp(page, SB_MAGIC, 8) == 0)
		seal_superblock((struct disk_superblock *)page);
	else
		page_seal(page, WORLD_PAGE);
	check(dev_write(dev, page, sizeof(page), pageno * WORLD_PAGE) == 0);
}

/* A device with the edited bytes; all others are the base's. */
static struct device *edited(const struct base *base, const uint8_t *in, size_t len)
{
	struct device *dev;

	check(dev_record_cut(base->world.dev, 0, &dev) == 0);
	for (unsigned i = 0; i < EDITS_MAX && len >= EDIT_BYTES; i++) {
		edit(dev, base, in);
		in += EDIT_BYTES;
		len -= EDIT_BYTES;
	}
	return dev;
}

/* ------------------------------------------------------------------------ input */

struct input {
	const struct base *base;
	const uint8_t *data;
	size_t size;
};

static struct device *make_copy(void *arg)
{
	const struct input *input = arg;

	return edited(input->base, input->data, input->size);
}

/* only: one of the names of image_use.h; NULL: all. */
static void run_input(const struct base *base, const uint8_t *data, size_t size, const char *only)
{
	struct input input = {base, data, size};

	image_use_all(make_copy, &input, only);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct base *base;

	if (!base) {
		message_quiet(getenv("FUZZ_VERBOSE") ? LOG_INFO : LOG_CRIT);
		base = base_make();
	}
	run_input(base, data, size, image_use_chosen(data, size));
	return 0;
}

#ifndef BLINKFS_LIBFUZZER

/* Few edits, mostly in heads, slots and records; pages evenly. */
static size_t make_input(uint8_t *out, uint64_t seed)
{
	uint64_t state = seed;
	size_t edits = 1 + random_next(&state) % 4;

	for (size_t i = 0; i < edits * EDIT_BYTES; i++)
		out[i] = (uint8_t)random_next(&state);
	for (size_t i = 0; i < edits; i++) {
		unsigned offset = (unsigned)random_next(&state) % WORLD_PAGE;

		if (random_next(&state) % 3 == 0)
			offset = 4 + offset % 150;
		else if (random_next(&state) % 2 == 0)
			offset = WORLD_PAGE - 1 - offset % 1000;
		out[i * EDIT_BYTES + 2] = (uint8_t)offset;
		out[i * EDIT_BYTES + 3] = (uint8_t)(offset >> 8);
	}
	return edits * EDIT_BYTES;
}

int main(int argc, char **argv)
{
	return fuzz_main("fuzz_image", 150, make_input, argc, argv);
}

#endif
