/* Batches of a clone: where they end, what they may hold, where they look for shares. */
#include "engine/lob_internal.h"
#include "tests/lib/lob_rig.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>

#define SOURCE 5u
#define COPY 9u
#define VOLUME_BYTES (24u << 20)
#define LOG_BYTES (2u << 20)
#define BLOCKS 400u

static struct volume *v;

/* One extent a block: written backwards, none joins another. */
static void write_scattered(uint64_t lob, uint64_t first, uint64_t end)
{
	for (uint64_t b = end; b-- > first;)
		cr_assert_eq(lob_rig_write(v, lob, b, 1, (uint32_t)b + 1, 0, NULL), 0);
}

static void open_with(uint32_t page_size, uint64_t volume_bytes, uint64_t log_bytes)
{
	v = lob_rig_format(volume_bytes, page_size, log_bytes);
}

static void expect_copied(uint64_t from, uint64_t end)
{
	static uint32_t found[BLOCKS];

	cr_assert_eq(lob_rig_read(v, COPY, 0, BLOCKS, found), 0);
	for (uint64_t b = from; b < BLOCKS; b++)
		cr_assert_eq(found[b], b < end ? b + 1 : 0, "block %u", (unsigned)b);
	cr_assert_eq(scratch_problems(v), 0);
}

static uint64_t clone(uint64_t first, uint64_t end)
{
	uint64_t done = 0;

	cr_assert_eq(lob_rig_clone(v, COPY, SOURCE, first, end, NULL, &done), 0);
	cr_assert_gt(done, first);
	cr_assert_leq(done, end);
	return done;
}

static uint64_t leaf_splits(void)
{
	return stat_read(&v->stats, STAT_tree_splits_leaf);
}

static uint64_t batch_end(uint64_t first, unsigned extents, struct lob_source_range *source)
{
	uint64_t end = 0;

	*source = (struct lob_source_range){.lob = SOURCE, .first = first};
	cr_assert_eq(lob_find_clone(v, source, extents, BLOCKS, &end), 0);
	return end;
}

static uint64_t one_leaf(void)
{
	return page_capacity(v->geo.page_size) /
	       page_cost(KEY_LOB_BYTES, sizeof(struct disk_extent) + sizeof(le32));
}

/* INV-CLONE-1 */
Test(lob_clone, a_batch_is_what_a_leaf_takes)
{
	struct lob_source_range source;

	open_with(4096, VOLUME_BYTES, LOG_BYTES);
	write_scattered(SOURCE, 0, BLOCKS);
	cr_assert_eq(batch_end(0, CLONE_EXTENTS_MAX, &source), one_leaf());
	cr_assert_eq(source.extents, one_leaf());
	cr_assert_eq(batch_end(7, 3, &source), 10);
	cr_assert_eq(batch_end(BLOCKS - 2, 3, &source), BLOCKS);
	cr_assert_eq(volume_close(v), 0);
}

/* Staged all the same, more than a batch is refused as a whole. */
Test(lob_clone, a_batch_is_what_a_mini_transaction_takes)
{
	struct lob_source_range source;
	uint64_t end, done;
	int64_t delta;
	struct mtr *m;

	open_with(65536, 2 * VOLUME_BYTES, 16u << 20);
	write_scattered(SOURCE, 0, BLOCKS);
	cr_assert_gt(one_leaf(), CLONE_EXTENTS_MAX);
	end = batch_end(0, CLONE_EXTENTS_MAX, &source);
	cr_assert_eq(end, CLONE_EXTENTS_MAX);
	for (unsigned more = 0; more < 2; more++) {
		cr_assert_eq(mtr_begin(v, 0, &m), 0);
		lob_want_clone(m, COPY, 0, end + 1 - more, &source);
		cr_assert_eq(mtr_latch(m), 0);
		cr_assert_eq(lob_stage_clone(m, COPY, 0, end + 1 - more, &source, &delta, &done),
			     more ? 0 : -E2BIG);
		if (more)
			cr_assert_eq(mtr_commit(m), 0);
		mtr_end(m);
		expect_copied(0, more ? end : 0);
	}
	cr_assert_eq(delta, CLONE_EXTENTS_MAX);
	cr_assert_eq(volume_close(v), 0);
}

/* INV-CLONE-2 */
Test(lob_clone, a_batch_ends_where_its_leaf_ends)
{
	uint64_t splits, room, first, done;

	open_with(4096, VOLUME_BYTES, LOG_BYTES);
	write_scattered(SOURCE, 0, BLOCKS);
	/* The copy's last leaf is a new one, but for a few. */
	first = clone(0, one_leaf());
	while (first < one_leaf())
		first = clone(first, one_leaf());
	for (splits = leaf_splits(); leaf_splits() == splits; first = done)
		done = clone(first, first + 1);
	room = one_leaf() - 1;
	splits = leaf_splits();
	done = clone(first, first + room / 2);
	cr_assert_eq(done, first + room / 2, "it fits");
	room -= room / 2;
	/* More than is left: what fits, and no split. */
	first = done;
	done = clone(first, first + room + 10);
	cr_assert_geq(done, first + room);
	cr_assert_lt(done, first + room + 10);
	cr_assert_eq(leaf_splits(), splits);
	expect_copied(0, done);
	/* Nothing is left: a new leaf takes them all. */
	first = done;
	done = clone(first, first + 50);
	cr_assert_eq(done, first + 50);
	cr_assert_eq(leaf_splits(), splits + 1);
	expect_copied(0, done);
	/* Over old extents a batch is whole, though the leaf has room for a part of it only. */
	cr_assert_eq(clone(first + 5, first + 45), first + 45);
	cr_assert_eq(leaf_splits(), splits + 1);
	expect_copied(0, done);
	cr_assert_eq(volume_sync(v), 0);
	v = lob_rig_open(scratch_crash(v));
	expect_copied(0, done);
	cr_assert_eq(volume_close(v), 0);
}

/* INV-CLONE-3 */
Test(lob_clone, places_far_from_each_other)
{
	struct lob_source_range source;
	unsigned extents = CLONE_PLACES_MAX + 9;
	uint64_t end, between = 2 * WRITE_BLOCKS_MAX * 3;

	open_with(4096, 40 * between * BLOCK_SIZE, LOG_BYTES);
	for (unsigned i = 0; i < extents; i++) {
		cr_assert_eq(lob_rig_write(v, SOURCE, i, 1, i + 1, 0, NULL), 0);
		for (uint64_t b = 0; b < between; b += WRITE_BLOCKS_MAX)
			cr_assert_eq(lob_rig_allocate(v, SOURCE + 1, i * between + b,
						      WRITE_BLOCKS_MAX, NULL), 0);
	}
	end = batch_end(0, CLONE_EXTENTS_MAX, &source);
	cr_assert_eq(source.extents, extents);
	cr_assert_eq(source.places, CLONE_PLACES_MAX);
	for (unsigned i = 0; i < source.places; i++) {
		cr_assert_lt(source.place[i].low, source.place[i].high);
		cr_assert(i == 0 || source.place[i - 1].high + 1000 < source.place[i].low);
	}
	cr_assert_eq(clone(0, end), end);
	expect_copied(0, extents);
	/* Of a few each is a place of its own; of neighbours there is one. */
	batch_end(0, 3, &source);
	cr_assert_eq(source.places, 3);
	cr_assert_eq(source.place[0].high, source.place[0].low + 1);
	cr_assert_eq(volume_close(v), 0);
	open_with(4096, VOLUME_BYTES, LOG_BYTES);
	write_scattered(SOURCE, 0, 60);
	batch_end(0, CLONE_EXTENTS_MAX, &source);
	cr_assert_eq(source.places, 1);
	cr_assert_eq(volume_close(v), 0);
}
