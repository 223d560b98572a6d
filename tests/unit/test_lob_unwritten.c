/* Unwritten extents, by the calls of the engine: written in place, side by side, given up. */
#include "engine/lob_internal.h"

#include "engine/base/error.h"
#include "tests/lib/hoard.h"
#include "tests/lib/lob_rig.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define LOB 7u
#define BLOCKS 300u

static struct volume *fresh(void)
{
	return lob_rig_format(16u << 20, 4096, 1u << 20);
}

static int publish(struct volume *v, struct lob_new *new, int64_t *delta)
{
	uint64_t done;
	struct mtr *m;
	int rc;

	cr_assert_eq(mtr_begin(v, 0, &m), 0);
	lob_want_publish(m, LOB, new);
	do {
		rc = mtr_latch(m);
		if (rc == 0)
			rc = lob_stage_replace(m, LOB, new->first, new->first + new->blocks, new,
					       delta, &done);
		if (rc == 0)
			rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	return rc;
}

static void allocate(struct volume *v, uint64_t first, uint32_t blocks)
{
	struct lob_new new;
	int64_t delta = 0;

	cr_assert_eq(lob_prepare_unwritten(v, first, blocks, 0, &new), 0);
	cr_assert_eq(publish(v, &new, &delta), 0);
	cr_assert_eq(delta, blocks);
	lob_published(&new);
}

/* Writes, but does not publish. */
static void prepare(struct volume *v, uint64_t first, uint32_t blocks, uint32_t version,
		    struct lob_new *new)
{
	uint8_t *data = malloc((size_t)blocks * BLOCK_SIZE);

	for (uint32_t i = 0; i < blocks; i++)
		lob_rig_fill(data + (size_t)i * BLOCK_SIZE, first + i, version);
	cr_assert_eq(lob_prepare_over(v, LOB, first, blocks, data, 0, new), 0);
	free(data);
}

static void expect(struct volume *v, uint64_t first, uint32_t count, uint32_t version)
{
	uint32_t versions[BLOCKS];

	cr_assert_eq(lob_rig_read(v, LOB, first, count, versions), 0);
	for (uint32_t i = 0; i < count; i++)
		cr_assert_eq(versions[i], version, "block %u: %u", (unsigned)(first + i),
			     versions[i]);
}

/* One extent however it was allocated, any length; a hole for those who read. */
Test(lob_unwritten, neighbours_are_one_extent)
{
	struct volume *v = fresh();
	uint64_t blocks, data;

	allocate(v, 0, 200);
	allocate(v, 200, 100);
	allocate(v, 300, 257);
	cr_assert_eq(lob_rig_extents(v, LOB, &blocks), 1);
	cr_assert_eq(blocks, 557);
	expect(v, 0, BLOCKS, 0);
	cr_assert_eq(lob_seek(v, LOB, 0, false, 0, 0, &data), 0);
	cr_assert_eq(data, UINT64_MAX);
	cr_assert_eq(scratch_problems(v), 0);
	cr_assert_eq(volume_close(v), 0);
}

/* INV-LOB-8: neighbours cut the extent at their own boundaries while a write is under way. */
Test(lob_unwritten, two_writers_in_one_extent)
{
	struct volume *v = fresh();
	struct lob_new left, middle, right;
	struct space_counts before, after;
	int64_t delta;

	allocate(v, 0, 100);
	before = hoard_counts(v);
	prepare(v, 10, 20, 1, &left);
	prepare(v, 30, 20, 2, &middle);
	prepare(v, 50, 50, 3, &right);
	after = hoard_counts(v);
	cr_assert_eq(after.free, before.free);
	expect(v, 0, 100, 0);
	cr_assert_eq(publish(v, &right, &delta), 0);
	cr_assert_eq(delta, 0);
	expect(v, 0, 50, 0);
	cr_assert_eq(publish(v, &left, &delta), 0);
	cr_assert_eq(delta, 0);
	cr_assert_eq(publish(v, &middle, &delta), 0);
	cr_assert_eq(delta, 0);
	lob_published(&left);
	lob_published(&middle);
	lob_published(&right);
	expect(v, 0, 10, 0);
	expect(v, 10, 20, 1);
	expect(v, 30, 20, 2);
	expect(v, 50, 50, 3);
	after = hoard_counts(v);
	cr_assert_eq(after.free, before.free);
	cr_assert_eq(after.deferred, 0);
	cr_assert_eq(after.reserved, 0);
	cr_assert_eq(scratch_problems(v), 0);
	cr_assert_eq(volume_close(v), 0);
}

/* Only what is neither written nor allocated takes space, and gives it back when given up. */
Test(lob_unwritten, a_mixture_and_giving_up)
{
	struct volume *v = fresh();
	struct space_counts before;
	struct lob_new new;
	int64_t delta = 0;

	cr_assert_eq(lob_rig_write(v, LOB, 0, 20, 1, 0, NULL), 0);
	allocate(v, 20, 20);
	allocate(v, 60, 20);
	before = hoard_counts(v);
	prepare(v, 10, 60, 2, &new);
	cr_assert_eq(hoard_counts(v).reserved, 30);
	lob_abandon(v, &new);
	cr_assert_eq(hoard_counts(v).reserved, 0);
	cr_assert_eq(hoard_counts(v).free, before.free);
	expect(v, 0, 20, 1);
	expect(v, 20, 60, 0);
	prepare(v, 10, 60, 3, &new);
	cr_assert_eq(publish(v, &new, &delta), 0);
	lob_published(&new);
	cr_assert_eq(delta, 20);
	cr_assert_eq(hoard_counts(v).deferred, 10);
	expect(v, 0, 10, 1);
	expect(v, 10, 60, 3);
	expect(v, 70, 10, 0);
	cr_assert_eq(scratch_problems(v), 0);
	cr_assert_eq(volume_close(v), 0);
}

/* A crash before the publication: zeros, whatever the blocks hold. */
Test(lob_unwritten, a_crash_before_publication)
{
	struct volume *v = fresh();
	struct lob_new new;

	allocate(v, 0, 50);
	cr_assert_eq(volume_sync(v), 0);
	prepare(v, 5, 40, 1, &new);
	v = lob_rig_open(scratch_crash(v));
	lob_published(&new);
	expect(v, 0, 50, 0);
	prepare(v, 5, 40, 2, &new);
	cr_assert_eq(publish(v, &new, &(int64_t){0}), 0);
	lob_published(&new);
	expect(v, 5, 40, 2);
	cr_assert_eq(scratch_problems(v), 0);
	cr_assert_eq(volume_close(v), 0);
}
