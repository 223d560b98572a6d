/* Blocks of files: a flipped bit costs 4 KiB and no more; overwriting in small pieces. */
#include "engine/base/error.h"
#include "engine/lob.h"
#include "fs/record.h"
#include "tests/lib/core_rig.h"
#include "tests/lib/lob_rig.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

#define VOLUME_BYTES (48u << 20)
#define BLOCKS 1024u

static struct rig rig;
static uint8_t *data;

static void setup(void)
{
	rig_open(&rig, VOLUME_BYTES, 4096, false);
	data = malloc(BLOCKS * BLOCK_SIZE);
	rig_fill(data, BLOCKS * BLOCK_SIZE, 3);
}

static void teardown(void)
{
	rig_close(&rig);
	free(data);
}

TestSuite(blocks, .init = setup, .fini = teardown);

static uint64_t make_file(void)
{
	uint64_t ino = rig_file(&rig, INO_ROOT, "file");

	for (uint64_t at = 0; at < BLOCKS * BLOCK_SIZE; at += 1u << 20)
		cr_assert_eq(rig_write(&rig, ino, at, data + at, 1u << 20), 0);
	return ino;
}

static uint64_t lob_of(uint64_t ino)
{
	struct record record;

	cr_assert_eq(record_read(rig.volume, ino, &record, NULL), 0);
	return record.lob;
}

/* Where a block of the file lies on the volume. */
static uint64_t place_of(uint64_t ino, uint64_t block)
{
	struct lob_map map;
	uint64_t start;

	lob_map_init(&map);
	cr_assert_eq(lob_map_read(rig.volume, lob_of(ino), block, 1, 0, 0, &map), 0);
	start = map.run[0].start;
	lob_map_free(&map);
	return start;
}

static void flip(uint64_t block, uint64_t bit)
{
	uint8_t bytes[BLOCK_SIZE];

	cr_assert_eq(dev_read(rig.dev, bytes, BLOCK_SIZE, block * BLOCK_SIZE), 0);
	bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	cr_assert_eq(dev_write(rig.dev, bytes, BLOCK_SIZE, block * BLOCK_SIZE), 0);
}

static int read_block(uint64_t ino, uint64_t block)
{
	uint8_t found[BLOCK_SIZE];
	size_t done = 0;
	int rc = core_read(rig.core, VIEW_BASE, ino, block * BLOCK_SIZE, found, BLOCK_SIZE, &done);

	if (rc == 0)
		cr_assert(done == BLOCK_SIZE &&
			  memcmp(found, data + block * BLOCK_SIZE, BLOCK_SIZE) == 0);
	return rc;
}

/* Any bit of any block: that block cannot be read, its neighbours can, and a new write heals it. */
Test(blocks, flipped_bits)
{
	uint64_t ino = make_file(), seed = 11;

	for (unsigned i = 0; i < 2000; i++) {
		uint64_t block = random_next(&seed) % BLOCKS;
		uint64_t bit = i < 8 ? i : random_next(&seed) % (BLOCK_SIZE * 8);
		uint64_t place = place_of(ino, block);

		flip(place, bit);
		cr_assert_eq(read_block(ino, block), -EIO);
		cr_assert_eq(read_block(ino, (block + 1) % BLOCKS), 0);
		cr_assert_eq(read_block(ino, (block + BLOCKS - 1) % BLOCKS), 0);
		if (i % 50 == 0)
			cr_assert_eq(rig_write(&rig, ino, block * BLOCK_SIZE,
					       data + block * BLOCK_SIZE, BLOCK_SIZE), 0);
		else
			flip(place, bit);
		cr_assert_eq(read_block(ino, block), 0);
	}
	/* A part of a block that cannot be read is not overwritten with what is wrong. */
	flip(place_of(ino, 5), 77);
	cr_assert_eq(rig_write(&rig, ino, 5 * BLOCK_SIZE + 10, data, 100), -EIO);
	cr_assert_eq(read_block(ino, 5), -EIO);
	cr_assert_eq(read_block(ino, 6), 0);
}

/*
 * Overwriting in single blocks, at random: the extents are never more than the
 * blocks, the index stops growing when that is reached, and no space is lost.
 */
Test(blocks, small_overwrites)
{
	uint64_t ino = make_file(), seed = 12, mapped;
	unsigned rounds = 6, extents;
	uint64_t used[6];

	for (unsigned round = 0; round < rounds; round++) {
		for (unsigned i = 0; i < 2 * BLOCKS; i++) {
			uint64_t block = random_next(&seed) % BLOCKS;
			int rc = rig_write(&rig, ino, block * BLOCK_SIZE,
					   data + block * BLOCK_SIZE, BLOCK_SIZE);

			cr_assert_eq(rc, 0, "%s", error_text(rc));
		}
		cr_assert_eq(rig_problems(&rig), 0);
		extents = lob_rig_extents(rig.volume, lob_of(ino), &mapped);
		cr_assert_eq(mapped, BLOCKS);
		cr_assert_leq(extents, BLOCKS);
		used[round] = lob_rig_bits(rig.volume);
	}
	cr_assert_leq(used[rounds - 1], used[1] + used[1] / 20);
	for (unsigned block = 0; block < BLOCKS; block++)
		cr_assert_eq(read_block(ino, block), 0);
	/* Written in large pieces again, it is few extents again. */
	for (uint64_t at = 0; at < BLOCKS * BLOCK_SIZE; at += 1u << 20)
		cr_assert_eq(rig_write(&rig, ino, at, data + at, 1u << 20), 0);
	extents = lob_rig_extents(rig.volume, lob_of(ino), &mapped);
	cr_assert_leq(extents, 32);
}
