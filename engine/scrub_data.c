/*
 * File contents: each block that an extent names, against its checksum.
 *
 * The leaf that names it is a copy of some moment.  A block that does not match may
 * have been freed, and given out again, since; so it is asked for by its place in
 * the file, inside the epoch of the look-up (INV-SCRUB-2).  That mapping is of now; if
 * it leads to a block that does not match, twice, that one is damaged.
 */
#include "engine/scrub_internal.h"

#include "engine/base/crc32c.h"
#include "engine/lob_internal.h"
#include "engine/page.h"
#include "engine/tree_internal.h"

#include <errno.h>

#define LOOKS 2u /* INV-LOB-4 */

/* What the file has there now.  *start: 0, nothing to judge. */
static int look_again(struct scrub *s, uint64_t lob, uint64_t file_block, uint64_t *start)
{
	struct lob_map map;
	int rc;

	*start = 0;
	lob_map_init(&map);
	rc = lob_map_read(s->volume, lob, file_block, 1, 0, 0, &map);
	if (rc == 0 && map.run[0].start) {
		*start = map.run[0].start;
		rc = scrub_read(s, s->place, BLOCK_SIZE, *start * BLOCK_SIZE);
		if (rc == 0 && crc32c(0, s->place, BLOCK_SIZE) != le32_get(map.run[0].crc[0]))
			rc = -BE_CRC;
	}
	lob_map_free(&map);
	return rc;
}

static void judge_again(struct scrub *s, uint64_t lob, uint64_t file_block)
{
	struct scrub_damage damage = {.place = SCRUB_DATA, .lob = lob, .file_block = file_block};
	int rc = -BE_CRC;

	stat_add(&s->volume->stats, STAT_scrub_searches, 1);
	os_point("scrub:suspect");
	for (unsigned i = 0; rc && i < LOOKS; i++)
		rc = look_again(s, lob, file_block, &damage.block);
	if (damage.block == 0) { /* gone; or its index cannot be read, which is told elsewhere */
		s->progress.skipped++;
		return;
	}
	if (rc == 0)
		return;
	damage.why = error_text(rc);
	scrub_found(s, &damage);
}

static int judge_run(struct scrub *s, uint64_t lob, const struct extent *extent, uint32_t at,
		     uint32_t count)
{
	int rc = scrub_read(s, s->data, (size_t)count * BLOCK_SIZE,
			    (extent->start + at) * BLOCK_SIZE);

	os_point("scrub:data");
	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *block = s->data + (size_t)i * BLOCK_SIZE;

		if (rc || crc32c(0, block, BLOCK_SIZE) != le32_get(extent->crc[at + i]))
			judge_again(s, lob, extent->first + at + i);
	}
	s->progress.blocks += count;
	s->progress.bytes_passed += (uint64_t)count * BLOCK_SIZE;
	stat_add(&s->volume->stats, STAT_scrub_blocks, count);
	return scrub_pause(s);
}

/* True: another extent that shares it was judged already. */
static bool was_seen(struct scrub *s, uint64_t block)
{
	uint64_t bit = 1ull << block % 64;
	bool was;

	if (s->seen == NULL || block >= s->seen_blocks)
		return false;
	was = s->seen[block / 64] & bit;
	s->seen[block / 64] |= bit;
	return was;
}

static int judge_extent(struct scrub *s, uint64_t lob, const struct extent *extent)
{
	uint32_t at = 0;
	int rc = 0;

	if (extent->unwritten) {
		s->progress.bytes_passed += (uint64_t)extent->length * BLOCK_SIZE;
		return 0;
	}
	while (at < extent->length && rc == 0) {
		uint32_t count = 0;

		while (at < extent->length && was_seen(s, extent->start + at))
			at++;
		while (at + count < extent->length && count < SCRUB_CHUNK_BLOCKS &&
		       (count == 0 || !was_seen(s, extent->start + at + count)))
			count++;
		if (count > 0)
			rc = judge_run(s, lob, extent, at, count);
		at += count;
	}
	return rc;
}

int scrub_leaf(struct scrub *s)
{
	unsigned slots = page_slots(s->page);
	int rc = 0;

	os_point("scrub:leaf");
	for (unsigned i = 0; i < slots && rc == 0; i++) {
		struct page_entry entry;
		struct extent extent;
		struct key key;
		bool found;

		page_key(s->page, i, &key);
		page_entry(s->page, i, &entry);
		/* What is malformed goes through corrupt_at(); the others can still be judged. */
		if (key.len != KEY_LOB_BYTES)
			(void)!corrupt_at(s->volume, 0, "scrub", "key of another index");
		else if (extent_decode(s->volume, be64_get(key.bytes), &key, entry.value,
				       entry.value_len, &extent, &found) == 0)
			rc = judge_extent(s, be64_get(key.bytes), &extent);
	}
	return rc;
}
