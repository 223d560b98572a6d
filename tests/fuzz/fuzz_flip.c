/*
 * No byte of metadata can change without fsck seeing it: each byte of each page
 * in use, of both superblocks, of the log's header and checkpoint blocks is
 * changed in turn and put back.  Then for one byte of each of them the volume is
 * repaired, and clean afterwards.
 *
 *	fuzz_flip [seed]      every byte with TEST_SCALE of 10 or more, else a part
 */
#include "engine/base/message.h"
#include "fsck/check.h"
#include "fsck/session.h"
#include "tests/lib/fsck_world.h"
#include "tests/lib/scratch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define DENSE_BYTES 160u /* of a page: its head */
#define STEP 41u         /* behind it */

enum judge_kind { BY_WALK, BY_SESSION };

struct region {
	uint64_t offset;
	uint32_t bytes;
	enum judge_kind by;
};

struct flips {
	struct world world;
	struct region region[2048];
	unsigned count;
	uint64_t state; /* of the random numbers */
	uint64_t flipped, repaired;
};

static void add_region(struct flips *f, uint64_t offset, uint32_t bytes, enum judge_kind by)
{
	check(f->count < array_count(f->region));
	f->region[f->count++] = (struct region){offset, bytes, by};
}

static void find_regions(struct flips *f)
{
	struct image *image = malloc(sizeof(*image));
	struct geometry *geo = &image->raw.geo;
	const struct disk_bitmap_page *bitmap = (const void *)image->page;
	uint8_t *bits;

	check(image != NULL);
	image_open(image, f->world.dev);
	bits = malloc(geo->group_blocks / 8);
	check(bits != NULL && geo->group_count == 1);
	image_load(image, geo->groups_start);
	memcpy(bits, bitmap + 1, geo->group_blocks / 8);
	for (uint64_t page = geo->groups_start; page < image->raw.groups_end; page++) {
		uint64_t bit = page - geo->groups_start;

		image_load(image, page);
		if (bits[bit / 8] >> (bit % 8) & 1 &&
		    page_verify(image->page, WORLD_PAGE, page, image->raw.tag, NULL) == 0)
			add_region(f, page * BLOCK_SIZE, WORLD_PAGE, BY_WALK);
	}
	add_region(f, 0, BLOCK_SIZE, BY_SESSION);
	add_region(f, (geo->block_count - 1) * BLOCK_SIZE, BLOCK_SIZE, BY_SESSION);
	add_region(f, geo->log_start * BLOCK_SIZE, LOG_HEADER_BYTES, BY_SESSION);
	add_region(f, geo->log_start * BLOCK_SIZE + LOG_CHECKPOINT_0,
		   sizeof(struct disk_checkpoint), BY_SESSION);
	add_region(f, geo->log_start * BLOCK_SIZE + LOG_CHECKPOINT_1,
		   sizeof(struct disk_checkpoint), BY_SESSION);
	free(bits);
	free(image);
}

static void no_line(void *arg, const char *line)
{
	(void)arg;
	(void)line;
}

static int session(struct device *dev, enum session_mode mode)
{
	const struct session_options options = {
		.mode = mode,
		.force = true,
		.print = no_line,
		.cache_bytes = WORLD_CACHE,
	};

	return session_run_on(dev, "volume", &options);
}

static bool is_seen(struct device *dev, enum judge_kind by)
{
	const struct fsck_options options = {0};
	struct fsck_result result;
	bool seen;

	if (by == BY_SESSION)
		return session(dev, MODE_NO) != EXIT_CLEAN;
	seen = fsck_walk(dev, &options, NULL, NULL, &result) == 0 && result.problems > 0;
	fsck_result_free(&result);
	return seen;
}

static void fail(const struct region *region, uint64_t at, uint8_t mask, const char *what)
{
	fprintf(stderr, "fuzz_flip: byte %" PRIu64 " of the region at %" PRIu64 ", mask %#x: %s\n",
		at, region->offset, mask, what);
	exit(1);
}

static void flip(struct device *dev, uint64_t offset, uint8_t mask)
{
	uint8_t byte;

	check(dev_read(dev, &byte, 1, offset) == 0);
	byte ^= mask;
	check(dev_write(dev, &byte, 1, offset) == 0);
}

static uint8_t random_mask(struct flips *f)
{
	return (uint8_t)(1 + random_next(&f->state) % 255);
}

static void flip_each(struct flips *f, const struct region *region)
{
	bool all = test_scale() >= 10 || region->bytes <= LOG_HEADER_BYTES;
	uint32_t phase = (uint32_t)(random_next(&f->state) % STEP);

	for (uint32_t at = 0; at < region->bytes; at++) {
		uint8_t mask = random_mask(f);

		if (!all && at >= DENSE_BYTES && at % STEP != phase)
			continue;
		flip(f->world.dev, region->offset + at, mask);
		if (!is_seen(f->world.dev, region->by))
			fail(region, at, mask, "not seen");
		flip(f->world.dev, region->offset + at, mask);
		f->flipped++;
	}
}

static void repair_one(struct flips *f, const struct region *region)
{
	uint32_t at = (uint32_t)(random_next(&f->state) % region->bytes);
	uint8_t mask = random_mask(f), *bytes = malloc(WORLD_BYTES);
	struct device *dev;

	check(bytes && dev_read(f->world.dev, bytes, WORLD_BYTES, 0) == 0);
	bytes[region->offset + at] ^= mask;
	check(dev_open_memory(&dev, WORLD_BYTES) == 0);
	check(dev_write(dev, bytes, WORLD_BYTES, 0) == 0);
	if (session(dev, MODE_REPAIR) != EXIT_CORRECTED)
		fail(region, at, mask, "not repaired");
	if (session(dev, MODE_NO) != EXIT_CLEAN)
		fail(region, at, mask, "not clean after the repair");
	f->repaired++;
	dev_close(dev);
	free(bytes);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	struct flips *f = calloc(1, sizeof(*f));

	check(f != NULL);
	f->state = seed;
	printf("fuzz_flip: seed %" PRIu64 "\n", seed);
	message_quiet(LOG_EMERG);
	world_make(&f->world);
	find_regions(f);
	if (session(f->world.dev, MODE_NO) != EXIT_CLEAN)
		fail(&f->region[0], 0, 0, "not clean before");
	for (unsigned i = 0; i < f->count; i++) {
		flip_each(f, &f->region[i]);
		repair_one(f, &f->region[i]);
	}
	printf("fuzz_flip: %u regions, %" PRIu64 " bytes changed, %" PRIu64 " repairs\n", f->count,
	       f->flipped, f->repaired);
	world_free(&f->world);
	free(f);
	return 0;
}
