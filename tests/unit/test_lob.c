/* Large objects against an array of block versions. */
#include "engine/lob_internal.h"
#include "engine/pool.h"
#include "tests/lib/lob_rig.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>

#define LOB 77u
#define BLOCKS 1500u
#define VOLUME_BYTES (24u << 20)
#define LOG_BYTES (2u << 20)

struct oracle {
	uint32_t version[BLOCKS];
	uint64_t mapped;
};

static void oracle_set(struct oracle *o, uint64_t first, uint64_t end, uint32_t version)
{
	for (uint64_t b = first; b < end; b++) {
		o->mapped += (version != 0) - (o->version[b] != 0);
		o->version[b] = version;
	}
}

static void compare_contents(struct volume *v, const struct oracle *o)
{
	uint32_t found[BLOCKS];

	cr_assert_eq(lob_rig_read(v, LOB, 0, BLOCKS, found), 0);
	for (unsigned b = 0; b < BLOCKS; b++)
		cr_assert_eq(found[b], o->version[b], "block %u: version %u, not %u", b, found[b],
			     o->version[b]);
}

static uint64_t expected_seek(const struct oracle *o, uint64_t from, bool hole, uint64_t dead_first,
			      uint64_t dead_end)
{
	for (uint64_t b = from; b < BLOCKS; b++) {
		bool data = o->version[b] && !(b >= dead_first && b < dead_end);

		if (data != hole)
			return b;
	}
	if (hole)
		return from > BLOCKS ? from : BLOCKS;
	return UINT64_MAX;
}

static void compare_seeks(struct volume *v, const struct oracle *o, uint64_t *seed)
{
	for (unsigned i = 0; i < 40; i++) {
		uint64_t from = random_next(seed) % (BLOCKS + 3);
		uint64_t dead_first = i % 2 ? 0 : random_next(seed) % BLOCKS;
		uint64_t dead_end = i % 2 ? 0 : dead_first + random_next(seed) % 100;
		bool hole = random_next(seed) % 2;
		uint64_t out;

		cr_assert_eq(lob_seek(v, LOB, from, hole, dead_first, dead_end, &out), 0);
		cr_assert_eq(out, expected_seek(o, from, hole, dead_first, dead_end));
	}
}

static void compare_all(struct volume *v, const struct oracle *o, uint64_t *seed)
{
	uint64_t blocks;

	compare_contents(v, o);
	compare_seeks(v, o, seed);
	lob_rig_extents(v, LOB, &blocks);
	cr_assert_eq(blocks, o->mapped);
	cr_assert_eq(scratch_problems(v), 0);
}

static void drain(struct volume *v)
{
	int rc = space_drain(v->space);

	cr_assert(rc == 0 || rc == -ENOSPC);
}

static void random_op(struct volume *v, struct oracle *o, uint64_t *seed, uint32_t version)
{
	uint64_t first = random_next(seed) % BLOCKS;
	uint64_t length = 1 + random_next(seed) % (random_next(seed) % 3 ? 12 : 257);
	int64_t before = (int64_t)o->mapped, delta = 0;
	int rc;

	if (first + length > BLOCKS)
		length = BLOCKS - first;
	if (random_next(seed) % 4 == 0) {
		rc = lob_rig_hole(v, LOB, first, first + length, &delta);
		version = 0;
	} else {
		rc = lob_rig_write(v, LOB, first, (uint32_t)length, version, 0, &delta);
	}
	if (rc == -ENOSPC) {
		drain(v);
		return;
	}
	if (rc == -E2BIG) {
		cr_assert_gt(length, 64);
		return;
	}
	cr_assert_eq(rc, 0, "%s", error_text(rc));
	oracle_set(o, first, first + length, version);
	cr_assert_eq((int64_t)o->mapped, before + delta);
}

static void random_run(uint32_t page_size, uint64_t seed, unsigned ops)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, page_size, LOG_BYTES);
	struct oracle *o = calloc(1, sizeof(*o));

	for (unsigned i = 1; i <= ops; i++) {
		random_op(v, o, &seed, i);
		if (i % 16 == 0)
			drain(v);
		if (i % 50 == 0)
			compare_all(v, o, &seed);
		if (i % 120 == 0) {
			cr_assert_eq(volume_sync(v), 0);
			v = lob_rig_open(scratch_crash(v));
			compare_all(v, o, &seed);
		}
	}
	compare_all(v, o, &seed);
	cr_assert_eq(lob_rig_hole(v, LOB, 0, UINT64_MAX, NULL), 0);
	oracle_set(o, 0, BLOCKS, 0);
	compare_all(v, o, &seed);
	cr_assert_eq(volume_close(v), 0);
	free(o);
}

Test(lob, random_small_pages)
{
	for (uint64_t seed = 1; seed <= test_scale(); seed++)
		random_run(4096, seed, 600);
}

Test(lob, random_usual_pages)
{
	for (uint64_t seed = 1; seed <= test_scale(); seed++)
		random_run(16384, seed + 1000, 600);
}

/* INV-LOB-3 and the free map: what is written and removed leaves nothing behind. */
Test(lob, bits_follow_extents)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	struct space_counts counts;
	uint64_t blocks, base;

	cr_assert_eq(lob_rig_write(v, LOB, 0, 1, 1, 0, NULL), 0);
	base = lob_rig_bits(v) - 1;
	cr_assert_eq(lob_rig_write(v, LOB, 0, 200, 2, 0, NULL), 0);
	cr_assert_eq(lob_rig_write(v, LOB, 50, 100, 3, 0, NULL), 0);
	lob_rig_extents(v, LOB, &blocks);
	cr_assert_eq(blocks, 200);
	cr_assert_eq(lob_rig_bits(v), base + 200);
	space_count(v->space, &counts);
	cr_assert_eq(counts.deferred, 101);
	cr_assert_eq(counts.free + counts.deferred + lob_rig_bits(v), counts.total);
	cr_assert_eq(lob_rig_hole(v, LOB, 10, 190, NULL), 0);
	cr_assert_eq(lob_rig_bits(v), base + 20);
	cr_assert_eq(volume_close(v), 0);
}

/* Appending single blocks gives few extents, and each CRC is logged a bounded number of times. */
Test(lob, appends_join)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 16384, LOG_BYTES);
	uint64_t blocks, logged;

	cr_assert_eq(lob_rig_write(v, LOB, 0, 1, 1, 0, NULL), 0);
	logged = stat_read(&v->stats, STAT_log_append_bytes);
	for (uint64_t b = 1; b < 1000; b++)
		cr_assert_eq(lob_rig_write(v, LOB, b, 1, 1, 0, NULL), 0);
	logged = stat_read(&v->stats, STAT_log_append_bytes) - logged;
	cr_assert_leq(lob_rig_extents(v, LOB, &blocks), 1000 / 64 + 2);
	cr_assert_eq(blocks, 1000);
	cr_assert_lt(logged / 999, 400);
	cr_assert_eq(volume_close(v), 0);
}

Test(lob, large_writes_join_up_to_the_bound)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 16384, LOG_BYTES);
	uint64_t blocks;

	for (uint64_t b = 0; b < 10; b++)
		cr_assert_eq(lob_rig_write(v, LOB, b * 256, 256, 1, 0, NULL), 0);
	cr_assert_leq(lob_rig_extents(v, LOB, &blocks), 4);
	cr_assert_eq(blocks, 2560);
	cr_assert_eq(volume_close(v), 0);
}

/* Writing backwards: the new extent comes before the one that it touches. */
Test(lob, joins_to_the_right)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	uint64_t there = v->geo.groups_start + 2000, blocks;
	uint32_t found[30];

	cr_assert_eq(lob_rig_write(v, LOB, 20, 10, 1, there, NULL), 0);
	cr_assert_eq(lob_rig_write(v, LOB, 10, 10, 1, there - 10, NULL), 0);
	cr_assert_eq(lob_rig_extents(v, LOB, &blocks), 1);
	cr_assert_eq(lob_rig_read(v, LOB, 0, 30, found), 0);
	for (unsigned b = 0; b < 30; b++)
		cr_assert_eq(found[b], b >= 10);
	cr_assert_eq(volume_close(v), 0);
}

/* INV-LOB-2: a pending dead range reads as a hole. */
Test(lob, dead_range_is_a_hole)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	uint8_t *data = malloc(100 * BLOCK_SIZE);
	struct lob_map map;
	uint64_t bad;

	cr_assert_eq(lob_rig_write(v, LOB, 0, 100, 9, 0, NULL), 0);
	lob_map_init(&map);
	cr_assert_eq(lob_map_read(v, LOB, 0, 100, 40, 70, &map), 0);
	cr_assert_eq(map.count, 3);
	cr_assert_eq(lob_read_blocks(v, &map, data, &bad), 0);
	lob_map_free(&map);
	for (uint64_t b = 0; b < 100; b++)
		cr_assert_eq(lob_rig_version(data + b * BLOCK_SIZE, b), b >= 40 && b < 70 ? 0 : 9);
	free(data);
	cr_assert_eq(volume_close(v), 0);
}

Test(lob, damaged_block_is_named)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	uint8_t *data = malloc(100 * BLOCK_SIZE);
	uint8_t byte = 0xee;
	struct lob_map map;
	uint64_t bad = 0;

	cr_assert_eq(lob_rig_write(v, LOB, 0, 100, 9, 0, NULL), 0);
	lob_map_init(&map);
	cr_assert_eq(lob_map_read(v, LOB, 0, 100, 0, 0, &map), 0);
	cr_assert_eq(dev_write(v->dev, &byte, 1, (map.run[0].start + 37) * BLOCK_SIZE + 99), 0);
	cr_assert_eq(lob_read_blocks(v, &map, data, &bad), -BE_CRC);
	cr_assert_eq(bad, 37);
	cr_assert_eq(stat_read(&v->stats, STAT_lob_crc_errors), 1);
	lob_map_free(&map);
	free(data);
	cr_assert_eq(volume_close(v), 0);
}

/* INV-LOB-4: blocks in a map are not reused while the map's epoch lasts. */
Test(lob, map_holds_its_blocks)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	uint8_t *data = malloc(50 * BLOCK_SIZE);
	struct space_counts counts;
	struct lob_map map;
	uint64_t bad;

	cr_assert_eq(lob_rig_write(v, LOB, 0, 50, 1, 0, NULL), 0);
	cr_assert_eq(lob_rig_hole(v, LOB, 0, 25, NULL), 0);
	cr_assert_eq(log_mark(v->log, log_next_lsn(v->log)), 0);
	space_advance(v->space);
	space_count(v->space, &counts);
	cr_assert_eq(counts.deferred, 0);

	cr_assert_eq(lob_rig_write(v, LOB, 0, 50, 2, 0, NULL), 0);
	cr_assert_eq(log_mark(v->log, log_next_lsn(v->log)), 0);
	lob_map_init(&map);
	cr_assert_eq(lob_map_read(v, LOB, 0, 50, 0, 0, &map), 0);
	space_advance(v->space);
	space_count(v->space, &counts);
	cr_assert_eq(counts.deferred, 25);
	cr_assert_eq(lob_read_blocks(v, &map, data, &bad), 0);
	lob_map_free(&map);
	space_advance(v->space);
	space_count(v->space, &counts);
	cr_assert_eq(counts.deferred, 0);
	free(data);
	cr_assert_eq(volume_close(v), 0);
}

/* A write that cannot be done leaves nothing: neither blocks nor extents. */
Test(lob, failed_write_leaves_no_trace)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	struct space_counts before, after;
	uint64_t blocks;

	space_count(v->space, &before);
	dev_memory_fail(v->dev, FAULT_WRITE, 0, -EIO, false);
	cr_assert_eq(lob_rig_write(v, LOB, 0, 30, 1, 0, NULL), -EIO);
	space_count(v->space, &after);
	cr_assert_eq(before.free, after.free);
	cr_assert_eq(after.reserved, 0);
	cr_assert_eq(lob_rig_extents(v, LOB, &blocks), 0);
	cr_assert_eq(volume_close(v), 0);
}

/* A crash between the writing and the commit: as if nothing had been tried. */
Test(lob, crash_before_publish_leaves_no_trace)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	uint8_t *data = calloc(40, BLOCK_SIZE);
	struct lob_new new;
	uint64_t bits, blocks;
	uint32_t found[40];

	cr_assert_eq(lob_rig_write(v, LOB, 0, 40, 5, 0, NULL), 0);
	cr_assert_eq(volume_sync(v), 0);
	bits = lob_rig_bits(v);
	cr_assert_eq(lob_prepare(v, 0, 40, data, 0, 0, &new), 0);
	lob_published(&new); /* its memory */
	v = lob_rig_open(scratch_crash(v));
	cr_assert_eq(lob_rig_bits(v), bits);
	cr_assert_eq(lob_rig_extents(v, LOB, &blocks), 1);
	cr_assert_eq(lob_rig_read(v, LOB, 0, 40, found), 0);
	for (unsigned b = 0; b < 40; b++)
		cr_assert_eq(found[b], 5);
	free(data);
	cr_assert_eq(volume_close(v), 0);
}

/* Many extents: the walk crosses leaves, and leaves that were emptied meanwhile. */
Test(lob, sparse_leaves)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	struct oracle *o = calloc(1, sizeof(*o));
	uint64_t seed = 3;

	for (uint64_t b = 0; b < BLOCKS; b += 2) {
		cr_assert_eq(lob_rig_write(v, LOB, b, 1, 1, 0, NULL), 0);
		oracle_set(o, b, b + 1, 1);
	}
	compare_all(v, o, &seed);
	cr_assert_eq(lob_rig_hole(v, LOB, 10, 1400, NULL), 0);
	oracle_set(o, 10, 1400, 0);
	compare_all(v, o, &seed);
	cr_assert_eq(lob_rig_write(v, LOB, 600, 200, 2, 0, NULL), 0);
	oracle_set(o, 600, 800, 2);
	compare_all(v, o, &seed);
	drain(v);
	cr_assert_eq(volume_close(v), 0);
	free(o);
}

/*
 * Leaves that have become empty all at once, more than are merged on the way:
 * the walk goes over them all.
 */
static void walk_over_empty_leaves(unsigned leaves)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	uint64_t end = 10 * leaves, out;
	uint32_t found[20];

	for (unsigned i = 0; i < leaves; i++)
		cr_assert_eq(lob_rig_write(v, LOB, 10 * i, 1, 1, 0, NULL), 0);
	cr_assert_eq(lob_rig_write(v, LOB, end, 10, 2, 0, NULL), 0);
	for (unsigned i = 1; i <= leaves; i++) {
		struct key at = lob_key(LOB, 10 * i);

		cr_assert_eq(tree_split(&v->index[INDEX_LOB], &at, 0, 0), 0);
	}
	cr_assert_eq(lob_rig_hole(v, LOB, 0, end, NULL), 0);
	cr_assert_eq(lob_rig_read(v, LOB, end - 10, 20, found), 0);
	for (unsigned i = 0; i < 20; i++)
		cr_assert_eq(found[i], i < 10 ? 0 : 2);
	cr_assert_eq(lob_seek(v, LOB, 0, false, 0, 0, &out), 0);
	cr_assert_eq(out, end);
	cr_assert_eq(lob_rig_read(v, LOB, 0, 20, found), 0);
	for (unsigned i = 0; i < 20; i++)
		cr_assert_eq(found[i], 0);
	cr_assert_eq(scratch_problems(v), 0);
	cr_assert_eq(volume_close(v), 0);
}

Test(lob, walk_over_some_empty_leaves)
{
	walk_over_empty_leaves(20);
}

Test(lob, walk_over_many_empty_leaves)
{
	walk_over_empty_leaves(150);
}

/* A volume of more groups than one mtr may touch. */
static struct volume *many_groups(void)
{
	uint64_t blocks = (uint64_t)(MTR_GROUPS_MAX + 2) * GROUP_BLOCKS(4096);

	return lob_rig_format(blocks * BLOCK_SIZE + (4u << 20),
			      4096, LOG_BYTES);
}

/* One block in each group. */
static void write_across_groups(struct volume *v, unsigned blocks)
{
	for (unsigned b = 0; b < blocks; b++) {
		uint64_t group = v->geo.groups_start + (uint64_t)b * v->geo.group_blocks;

		cr_assert_eq(lob_rig_write(v, LOB, b, 1, 1, group + 500, NULL), 0);
	}
}

Test(lob, too_many_groups_for_one_write)
{
	enum { SPREAD = MTR_GROUPS_MAX + 2 };
	struct volume *v = many_groups();
	uint32_t found[SPREAD];
	uint64_t blocks;

	write_across_groups(v, SPREAD);
	cr_assert_eq(lob_rig_write(v, LOB, 0, SPREAD, 2, 0, NULL), -E2BIG);
	cr_assert_eq(lob_rig_read(v, LOB, 0, SPREAD, found), 0);
	for (unsigned b = 0; b < SPREAD; b++)
		cr_assert_eq(found[b], 1);
	cr_assert_eq(lob_rig_write(v, LOB, 0, SPREAD / 2, 2, 0, NULL), 0);
	cr_assert_eq(lob_rig_write(v, LOB, SPREAD / 2, SPREAD / 2, 2, 0, NULL), 0);
	cr_assert_eq(lob_rig_read(v, LOB, 0, SPREAD, found), 0);
	for (unsigned b = 0; b < SPREAD; b++)
		cr_assert_eq(found[b], 2);
	lob_rig_extents(v, LOB, &blocks);
	cr_assert_eq(blocks, SPREAD);
	cr_assert_eq(volume_close(v), 0);
}

/* A hole is made in parts, each of which says how far it came. */
Test(lob, hole_across_many_groups)
{
	enum { SPREAD = MTR_GROUPS_MAX + 2 };
	struct volume *v = many_groups();
	int64_t delta = 0;
	uint64_t blocks;

	write_across_groups(v, SPREAD);
	cr_assert_eq(lob_rig_hole(v, LOB, 0, UINT64_MAX, &delta), 0);
	cr_assert_eq(delta, -(int64_t)SPREAD);
	cr_assert_eq(lob_rig_extents(v, LOB, &blocks), 0);
	cr_assert_eq(volume_close(v), 0);
}

/* --------------------------------------------------------------- INV-LOB-7 */

/* What happens once, in another thread, at the first "lob:walk" of the reader. */
static struct {
	struct volume *volume;
	_Atomic bool armed;
} meanwhile;

static void trim_from_the_right(void *arg)
{
	(void)arg;
	check(lob_rig_write(meanwhile.volume, LOB, 200, 100, 2, 0, NULL) == 0);
}

static void at_point(const char *name)
{
	struct os_thread thread;

	if (strcmp(name, "lob:walk") != 0 || !atomic_exchange(&meanwhile.armed, false))
		return;
	check(os_thread_start(&thread, "writer", trim_from_the_right, NULL) == 0);
	os_thread_join(&thread);
}

/*
 * The reader of block 150 has seen that leaf A has nothing at or behind it; then
 * the extent [100, 300), in leaf B, is cut, and its left part moves into A.
 */
Test(lob, walk_sees_an_extent_that_moves_behind_it)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	struct key boundary = lob_key(LOB, 250);
	uint32_t found[10];
	uint64_t out;

	for (unsigned b = 0; b < 100; b++)
		cr_assert_eq(lob_rig_write(v, LOB, b, 1, 1, v->geo.groups_start + 1000 - 2 * b,
					   NULL), 0);
	cr_assert_eq(lob_rig_write(v, LOB, 100, 200, 1, v->geo.groups_start + 2000, NULL), 0);
	cr_assert_eq(tree_split(&v->index[INDEX_LOB], &boundary, 0, 0), 0);
	meanwhile.volume = v;
	os_linux_set_point_handler(at_point);
	atomic_store(&meanwhile.armed, true);
	cr_assert_eq(lob_rig_read(v, LOB, 150, 10, found), 0);
	cr_assert_not(atomic_load(&meanwhile.armed));
	for (unsigned i = 0; i < 10; i++)
		cr_assert_eq(found[i], 1);
	cr_assert_eq(lob_rig_write(v, LOB, 100, 200, 1, v->geo.groups_start + 2000, NULL), 0);
	atomic_store(&meanwhile.armed, true);
	cr_assert_eq(lob_seek(v, LOB, 150, true, 0, 0, &out), 0);
	cr_assert_not(atomic_load(&meanwhile.armed));
	cr_assert_eq(out, 300);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(scratch_problems(v), 0);
	cr_assert_eq(volume_close(v), 0);
}
