#include "tests/lib/lob_rig.h"

#include "engine/lob_internal.h"
#include "engine/pool.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_PAGES 320u /* a little more than the least */

struct volume *lob_rig_open(struct device *dev)
{
	struct volume_options options = {
		.log_buffer_bytes = 1u << 20,
		.no_background = true,
	};
	struct disk_superblock sb;
	struct volume *volume;

	check(superblock_read(dev, &sb, NULL) == 0);
	options.cache_bytes = (uint64_t)le32_get(sb.page_size) * CACHE_PAGES;
	dev_record_start(dev);
	check(volume_open(&volume, dev, &options) == 0);
	return volume;
}

struct volume *lob_rig_format(uint64_t size_bytes, uint32_t page_size, uint64_t log_bytes)
{
	return lob_rig_open(scratch_format(size_bytes, page_size, log_bytes));
}

struct tag {
	uint64_t file_block;
	uint32_t version, again;
};

void lob_rig_fill(uint8_t block[BLOCK_SIZE], uint64_t file_block, uint32_t version)
{
	struct tag tag = {.file_block = file_block, .version = version, .again = ~version};

	memset(block, 0, BLOCK_SIZE);
	if (version == 0)
		return;
	memcpy(block, &tag, sizeof(tag));
	memset(block + sizeof(tag), (int)(version & 0xff), BLOCK_SIZE - sizeof(tag));
}

uint32_t lob_rig_version(const uint8_t block[BLOCK_SIZE], uint64_t file_block)
{
	uint8_t expected[BLOCK_SIZE];
	struct tag tag;

	memcpy(&tag, block, sizeof(tag));
	lob_rig_fill(expected, file_block, tag.version);
	return memcmp(block, expected, BLOCK_SIZE) == 0 ? tag.version : UINT32_MAX;
}

/* Stages until it is committed; new or a part of a hole. */
static int replace(struct volume *volume, uint64_t lob, uint64_t first, uint64_t end,
		   struct lob_new *new, int64_t *delta, uint64_t *done)
{
	struct mtr *m;
	int rc = mtr_begin(volume, new ? 0 : MTR_PRIVILEGED, &m);

	if (rc)
		return rc;
	if (new)
		lob_want_publish(m, lob, new);
	else
		lob_want_replace(m, lob, first, end);
	do {
		rc = mtr_latch(m);
		if (rc == 0)
			rc = lob_stage_replace(m, lob, first, end, new, delta, done);
		if (rc == 0)
			rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	return rc;
}

/* All of it or nothing. */
static int publish(struct volume *volume, uint64_t lob, struct lob_new *new, int64_t *delta)
{
	uint64_t end = new->first + new->blocks, done;
	int64_t change;
	int rc = replace(volume, lob, new->first, end, new, &change, &done);

	if (rc) {
		lob_abandon(volume, new);
		return rc;
	}
	check(done == end);
	lob_published(new);
	if (delta)
		*delta += change;
	return 0;
}

int lob_rig_write(struct volume *volume, uint64_t lob, uint64_t first, uint32_t blocks,
		  uint32_t version, uint64_t hint, int64_t *delta)
{
	uint8_t *data = malloc((size_t)blocks * BLOCK_SIZE);
	struct lob_new new;
	int rc;

	check(data != NULL);
	for (uint32_t i = 0; i < blocks; i++)
		lob_rig_fill(data + (size_t)i * BLOCK_SIZE, first + i, version);
	rc = lob_prepare_over(volume, lob, first, blocks, data, hint, &new);
	if (rc == 0)
		rc = publish(volume, lob, &new, delta);
	free(data);
	return rc;
}

int lob_rig_allocate(struct volume *volume, uint64_t lob, uint64_t first, uint32_t blocks,
		     int64_t *delta)
{
	struct lob_new new;
	int rc = lob_prepare_unwritten(volume, first, blocks, 0, &new);

	return rc ? rc : publish(volume, lob, &new, delta);
}

int lob_rig_clone(struct volume *volume, uint64_t lob, uint64_t source, uint64_t first,
		  uint64_t end, int64_t *delta, uint64_t *done)
{
	struct lob_source_range range = {.lob = source, .first = first};
	int64_t change;
	struct mtr *m;
	int rc = lob_find_clone(volume, &range, CLONE_EXTENTS_MAX, end, &end);

	if (rc == 0)
		rc = mtr_begin(volume, 0, &m);
	if (rc)
		return rc;
	lob_want_clone(m, lob, first, end, &range);
	do {
		rc = mtr_latch(m);
		if (rc == 0)
			rc = lob_stage_clone(m, lob, first, end, &range, &change, done);
		if (rc == 0)
			rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	if (rc == 0 && delta)
		*delta += change;
	return rc;
}

int lob_rig_hole(struct volume *volume, uint64_t lob, uint64_t first, uint64_t end, int64_t *delta)
{
	struct lob_part part;
	int rc = lob_find_part(volume, lob, first, end, HOLE_EXTENTS_MAX, &part);

	while (rc == 0 && part.first < part.end) {
		int64_t change;
		uint64_t done;

		rc = replace(volume, lob, part.first, part.end, NULL, &change, &done);
		if (rc)
			break;
		check(done > part.first && done <= part.end);
		if (delta)
			*delta += change;
		rc = lob_find_part(volume, lob, done, end, HOLE_EXTENTS_MAX, &part);
	}
	return rc;
}

int lob_rig_read(struct volume *volume, uint64_t lob, uint64_t first, uint32_t count,
		 uint32_t *versions)
{
	uint8_t *data = malloc((size_t)count * BLOCK_SIZE);
	struct lob_map map;
	uint64_t bad;
	int rc;

	check(data != NULL);
	lob_map_init(&map);
	rc = lob_map_read(volume, lob, first, count, 0, 0, &map);
	if (rc == 0)
		rc = lob_read_blocks(volume, &map, data, &bad);
	lob_map_free(&map);
	for (uint32_t i = 0; rc == 0 && i < count; i++)
		versions[i] = lob_rig_version(data + (size_t)i * BLOCK_SIZE, first + i);
	free(data);
	return rc;
}

void lob_rig_switch(struct volume *volume, uint64_t *seed)
{
	for (unsigned i = 0; i < TUNABLE_COUNT; i++)
		tunable_set(&volume->tunables, (enum tunable)i, random_next(seed) % 2);
}

unsigned lob_rig_extents(struct volume *volume, uint64_t lob, uint64_t *blocks)
{
	struct key from = lob_key(lob, 0);
	uint64_t at = 0, sum = 0;
	struct tree_cursor c;
	unsigned count = 0;
	int rc = tree_cursor_open(&c, &volume->index[INDEX_LOB], from.bytes, from.len);

	while (rc == 0 && (rc = tree_cursor_next(&c)) == 0) {
		struct extent extent;
		bool found;

		check(extent_decode(volume, lob, &c.key, c.value, c.value_len, &extent, &found) ==
		      0);
		if (!found)
			break;
		check(extent.first >= at);
		check(extent.unwritten ||
		      extent.length <= EXTENT_BLOCKS_MAX(volume->geo.page_size));
		at = extent_end(&extent);
		sum += extent.length;
		count++;
	}
	tree_cursor_close(&c);
	check(rc == 0 || rc == -BE_END);
	*blocks = sum;
	return count;
}

uint64_t lob_rig_bits(struct volume *volume)
{
	const struct geometry *geo = &volume->geo;
	uint64_t bits = 0;

	check(pool_take_tickets(volume->pool, 1) == 0);
	for (uint32_t group = 0; group < geo->group_count; group++) {
		uint64_t first = geo->groups_start + (uint64_t)group * geo->group_blocks;
		struct frame *frame;

		check(pool_get(volume->pool, first, PAGE_BITMAP, 0, &frame) == 0);
		latch_s(&frame->latch);
		for (uint64_t b = 0; b < geo->group_blocks && first + b < geo->block_count - 1; b++)
			bits += page_bit(frame->data, b);
		unlatch_s(&frame->latch);
		pool_put(frame);
	}
	pool_give_tickets(volume->pool, 1);
	return bits;
}
