/* The five measures for large objects: what each switch changes, and that nothing else does. */
#include "engine/base/latch.h"
#include "engine/lob_internal.h"
#include "engine/purge_internal.h"
#include "tests/lib/lob_rig.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>

#define LOB 7u
#define BLOCKS 40u
#define VOLUME_BYTES (24u << 20)
#define LOG_BYTES (1u << 20)

static struct volume *fresh(void)
{
	return lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
}

static void off(struct volume *v, enum tunable tunable)
{
	tunable_set(&v->tunables, tunable, false);
}

static void expect(struct volume *v, uint32_t version)
{
	uint32_t found[BLOCKS];

	cr_assert_eq(lob_rig_read(v, LOB, 0, BLOCKS, found), 0);
	for (unsigned b = 0; b < BLOCKS; b++)
		cr_assert_eq(found[b], version);
}

Test(switches, names)
{
	for (unsigned i = 0; i < TUNABLE_COUNT; i++)
		cr_assert_eq(tunable_find(tunable_name((enum tunable)i)), i);
	cr_assert_eq(tunable_find("lob"), TUNABLE_COUNT);
}

Test(switches, batch)
{
	struct volume *v = fresh();
	uint64_t reserves = stat_read(&v->stats, STAT_space_reserves), blocks;
	uint64_t writes = stat_read(&v->stats, STAT_dev_writes);

	cr_assert_eq(lob_rig_write(v, LOB, 0, BLOCKS, 1, 0, NULL), 0);
	cr_assert_eq(stat_read(&v->stats, STAT_space_reserves), reserves + 1);
	cr_assert_eq(stat_read(&v->stats, STAT_dev_writes), writes + 1);
	off(v, TUNABLE_lob_batch);
	cr_assert_eq(lob_rig_write(v, LOB, 0, BLOCKS, 2, 0, NULL), 0);
	cr_assert_eq(stat_read(&v->stats, STAT_space_reserves), reserves + 1 + BLOCKS);
	cr_assert_eq(stat_read(&v->stats, STAT_dev_writes), writes + 1 + BLOCKS);
	cr_assert_eq(lob_rig_extents(v, LOB, &blocks), 1, "consecutive all the same");
	expect(v, 2);
	cr_assert_eq(scratch_problems(v), 0);
	cr_assert_eq(volume_close(v), 0);
}

static struct {
	struct volume *v;
	bool index_held, index_held_x;
	unsigned written;
} seen;

static void note_latches(const char *name)
{
	struct latch *index = &seen.v->index[INDEX_LOB].index_latch;

	if (strcmp(name, "lob:written") == 0) {
		seen.written++;
		seen.index_held = latch_held(index);
	} else if (strcmp(name, "lob:staged") == 0) {
		seen.index_held_x = latch_held_x(index);
	}
}

/* What is held while data is written, and how the index latch is held. */
Test(switches, latches)
{
	struct volume *v = seen.v = fresh();

	os_linux_set_point_handler(note_latches);
	cr_assert_eq(lob_rig_write(v, LOB, 0, BLOCKS, 1, 0, NULL), 0);
	cr_assert(!seen.index_held && !seen.index_held_x);
	off(v, TUNABLE_lob_two_phase);
	cr_assert_eq(lob_rig_write(v, LOB, 0, BLOCKS, 2, 0, NULL), 0);
	cr_assert(seen.index_held && !seen.index_held_x);
	off(v, TUNABLE_lob_shared_index);
	cr_assert_eq(lob_rig_write(v, LOB, 0, BLOCKS, 3, 0, NULL), 0);
	cr_assert(seen.index_held && seen.index_held_x);
	tunable_set(&v->tunables, TUNABLE_lob_two_phase, true);
	cr_assert_eq(lob_rig_write(v, LOB, 0, BLOCKS, 4, 0, NULL), 0);
	cr_assert(!seen.index_held && seen.index_held_x);
	cr_assert_eq(seen.written, 4, "each once, however often it was staged");
	os_linux_set_point_handler(NULL);
	expect(v, 4);
	cr_assert_eq(volume_close(v), 0);
}

/* In place as well: the data waits for the latches, and no block is taken but for holes. */
Test(switches, unwritten_extents)
{
	struct volume *v = seen.v = fresh();
	uint64_t classic = stat_read(&v->stats, STAT_lob_classic_writes), blocks;
	int64_t delta = 0;

	seen.written = 0;
	off(v, TUNABLE_lob_two_phase);
	cr_assert_eq(lob_rig_allocate(v, LOB, 5, 20, NULL), 0);
	os_linux_set_point_handler(note_latches);
	cr_assert_eq(lob_rig_write(v, LOB, 0, BLOCKS, 1, 0, &delta), 0);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(seen.written, 1);
	cr_assert(seen.index_held);
	cr_assert_eq(delta, BLOCKS - 20);
	cr_assert_eq(stat_read(&v->stats, STAT_lob_classic_writes), classic + 1);
	cr_assert_eq(stat_read(&v->stats, STAT_lob_write_blocks_in_place), 20);
	cr_assert_eq(stat_read(&v->stats, STAT_lob_batch_skips), 0);
	expect(v, 1);
	off(v, TUNABLE_lob_batch);
	cr_assert_eq(lob_rig_allocate(v, LOB, 10, 10, NULL), 0);
	cr_assert_eq(lob_rig_write(v, LOB, 0, BLOCKS, 2, 0, NULL), 0);
	cr_assert_eq(stat_read(&v->stats, STAT_lob_write_blocks_in_place), 30);
	cr_assert_eq(stat_read(&v->stats, STAT_lob_batch_skips), 1);
	expect(v, 2);
	lob_rig_extents(v, LOB, &blocks);
	cr_assert_eq(blocks, BLOCKS);
	cr_assert_eq(scratch_problems(v), 0);
	cr_assert_eq(volume_close(v), 0);
}

/* As a removal leaves it: purge has to free all of the LOB. */
static void detach(struct volume *v)
{
	uint64_t number;
	struct mtr *m;
	int rc;

	cr_assert_eq(id_take(v, COUNTER_PURGE, &number), 0);
	cr_assert_eq(mtr_begin(v, 0, &m), 0);
	purge_want(m, number);
	do {
		cr_assert_eq(mtr_latch(m), 0);
		purge_stage(m, number, PURGE_LOB, 0, LOB, 0, UINT64_MAX);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	cr_assert_eq(rc, 0);
	mtr_end(m);
}

/* A LOB of many leaves, none of which is in the pool. */
static struct volume *cold(struct device *dev)
{
	struct volume *v = scratch_open(scratch_keep(dev), false);

	for (unsigned i = 0; i < 300; i++)
		cr_assert_eq(lob_rig_write(v, LOB, i * 20, 18, 1, 0, NULL), 0);
	detach(v);
	cr_assert_eq(volume_close(v), 0);
	return scratch_open(scratch_keep(dev), false);
}

Test(switches, purge)
{
	struct volume *v = fresh();

	cr_assert_eq(lob_rig_write(v, LOB, 0, BLOCKS, 1, 0, NULL), 0);
	detach(v);
	cr_assert_eq(purge_drain(v->purge, NULL), 0);
	cr_assert_eq(stat_read(&v->stats, STAT_purge_data_blocks_read), 0);
	cr_assert_eq(lob_rig_write(v, LOB, 0, BLOCKS, 2, 0, NULL), 0);
	detach(v);
	off(v, TUNABLE_purge_no_load);
	off(v, TUNABLE_purge_prefetch);
	uint64_t prefetches = stat_read(&v->stats, STAT_purge_prefetches);
	cr_assert_eq(purge_drain(v->purge, NULL), 0);
	cr_assert_eq(stat_read(&v->stats, STAT_purge_data_blocks_read), BLOCKS, "each once");
	cr_assert_eq(stat_read(&v->stats, STAT_purge_prefetches), prefetches);
	expect(v, 0);
	cr_assert_eq(scratch_problems(v), 0);
	cr_assert_eq(volume_close(v), 0);
}

/* Leaves that purge has to read: before it holds the index latch, or while it does. */
Test(switches, purge_of_cold_leaves)
{
	for (unsigned on = 0; on < 2; on++) {
		struct device *dev = scratch_format(VOLUME_BYTES, 4096, LOG_BYTES);
		struct volume *v = cold(dev);
		uint64_t misses;

		tunable_set(&v->tunables, TUNABLE_purge_prefetch, on);
		misses = stat_read(&v->stats, STAT_pool_latched_misses);
		cr_assert_eq(purge_drain(v->purge, NULL), 0);
		misses = stat_read(&v->stats, STAT_pool_latched_misses) - misses;
		if (on)
			cr_assert_leq(misses, 2, "%llu", (unsigned long long)misses);
		else
			cr_assert_gt(misses, 2, "%llu", (unsigned long long)misses);
		cr_assert_eq(stat_read(&v->stats, STAT_purge_prefetches) > 0, on);
		cr_assert_eq(scratch_problems(v), 0);
		cr_assert_eq(volume_close(v), 0);
		dev_close(dev);
	}
}
