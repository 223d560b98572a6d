/* Ready pages of the indexes: watermarks, turns, pressure, a crash. */
#include "engine/space_internal.h"

#include "engine/mtr.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>

#define VOLUME_BYTES (72u << 20) /* 17 pages for each index at most */
#define LOG_BYTES (1u << 20)

static struct volume *open_volume(void)
{
	return scratch_open(scratch_format(VOLUME_BYTES, SCRATCH_PAGE, LOG_BYTES), false);
}

static struct ready_list *list_of(struct volume *v, unsigned index)
{
	return &v->space->ready.list[index];
}

static uint64_t take(struct volume *v, unsigned index, unsigned level)
{
	uint64_t pageno;

	cr_assert_eq(space_take_index_page(v->space, index, level, 0, 0, &pageno), 0);
	return pageno;
}

static uint64_t free_blocks(struct volume *v)
{
	struct space_counts counts;

	space_count(v->space, &counts);
	return counts.free;
}

Test(ready, nothing_before_the_first_split)
{
	struct volume *v = open_volume();

	cr_assert_eq(v->space->ready.target_max, 17);
	cr_assert(!ready_refill(v->space));
	cr_assert_eq(ready_count(v->space), 0);
	space_untake_page(v->space, take(v, INDEX_DIRENTS, 0));
	cr_assert(!ready_refill(v->space));
	cr_assert_eq(atomic_load(&list_of(v, INDEX_DIRENTS)->count), 4);
	cr_assert_eq(ready_count(v->space), 4);
	cr_assert_eq(volume_close(v), 0);
}

/* INV-READY-1, and what an empty list brings about. */
Test(ready, leaves_leave_some_to_the_levels_above)
{
	struct volume *v = open_volume();
	struct ready_list *list = list_of(v, INDEX_INODES);
	uint64_t pageno[5], before = free_blocks(v);

	space_untake_page(v->space, take(v, INDEX_INODES, 0));
	cr_assert(!ready_refill(v->space));
	cr_assert_eq(free_blocks(v), before);
	pageno[0] = take(v, INDEX_INODES, 0);
	pageno[1] = take(v, INDEX_INODES, 0);
	cr_assert_eq(atomic_load(&list->count), 2);
	pageno[2] = take(v, INDEX_INODES, 0); /* from the volume's */
	cr_assert_eq(atomic_load(&list->count), 2);
	cr_assert_eq(atomic_load(&list->target), 8);
	pageno[3] = take(v, INDEX_INODES, 1);
	pageno[4] = take(v, INDEX_INODES, 2);
	cr_assert_eq(atomic_load(&list->count), 0);
	cr_assert_eq(free_blocks(v), before - 5 * v->geo.page_blocks);
	for (unsigned i = 0; i < 5; i++)
		space_untake_page(v->space, pageno[i]);
	for (unsigned i = 0; i < 8; i++) {
		(void)!ready_refill(v->space);
		while (atomic_load(&list->count) > 2)
			space_untake_page(v->space, take(v, INDEX_INODES, 0));
		space_untake_page(v->space, take(v, INDEX_INODES, 0));
	}
	cr_assert_eq(atomic_load(&list->target), 17, "no more than the volume's share");
	cr_assert_eq(free_blocks(v), before);
	cr_assert_eq(volume_close(v), 0);
}

Test(ready, indexes_take_turns)
{
	struct volume *v = open_volume();

	for (unsigned i = 0; i < INDEX_COUNT; i++) {
		uint64_t pageno = take(v, i, 0);

		space_untake_page(v->space, pageno);
	}
	cr_assert(!ready_refill(v->space));
	for (unsigned i = 0; i < INDEX_COUNT; i++)
		cr_assert_eq(atomic_load(&list_of(v, i)->count), 4);
	cr_assert_eq(volume_close(v), 0);
}

/* INV-READY-3 */
Test(ready, pressure_takes_them_back)
{
	struct volume *v = open_volume();
	struct reservation r;
	uint64_t blocks = 0;

	for (unsigned i = 0; i < INDEX_COUNT; i++)
		space_untake_page(v->space, take(v, i, 0));
	cr_assert(!ready_refill(v->space));
	cr_assert_gt(ready_count(v->space), 0);
	for (unsigned want = WRITE_BLOCKS_MAX; want > 0;) {
		if (space_reserve(v->space, want, 0, SPACE_PRIVILEGED, &r) == 0)
			blocks += r.blocks;
		else
			want /= 2;
	}
	cr_assert_eq(ready_count(v->space), 0);
	cr_assert_eq(free_blocks(v), 0, "%lu reserved", blocks);
	volume_abandon(v);
}

/* An empty map: what another index has ready serves the one that splits. */
Test(ready, a_split_finds_what_others_have)
{
	struct volume *v = open_volume();
	uint64_t pageno;
	unsigned found = 0;

	space_untake_page(v->space, take(v, INDEX_XATTRS, 0));
	cr_assert(!ready_refill(v->space));
	for (;;) {
		int rc = space_take_index_page(v->space, INDEX_DIRENTS, 0, SPACE_PRIVILEGED, 0,
					       &pageno);

		if (rc == -BE_AGAIN)
			rc = space_refill_pages(v->space, SPACE_PRIVILEGED);
		else
			found++;
		if (rc)
			break;
	}
	cr_assert_gt(found, 1000);
	cr_assert_eq(ready_count(v->space), 0);
	cr_assert_lt(free_blocks(v), v->geo.page_blocks);
	volume_abandon(v);
}

/* INV-READY-2 */
Test(ready, a_crash_leaks_nothing)
{
	struct device *dev = scratch_format(VOLUME_BYTES, SCRATCH_PAGE, LOG_BYTES);
	struct volume *v;
	uint64_t before;

	dev_record_start(dev);
	v = scratch_open(dev, false);
	before = free_blocks(v);
	space_untake_page(v->space, take(v, INDEX_LOB, 0));
	cr_assert(!ready_refill(v->space));
	(void)take(v, INDEX_LOB, 0);
	dev = scratch_crash(v);
	v = scratch_open(dev, false);
	cr_assert_eq(free_blocks(v), before);
	cr_assert_eq(scratch_problems(v), 0);
	cr_assert_eq(volume_close(v), 0);
}

/* The thread fills what splits have emptied. */
Test(ready, the_thread_keeps_up)
{
	struct volume *v = scratch_open(scratch_format(VOLUME_BYTES, SCRATCH_PAGE, LOG_BYTES),
					true);
	struct ready_list *list = list_of(v, INDEX_SHARES);

	space_untake_page(v->space, take(v, INDEX_SHARES, 0));
	while (atomic_load(&list->count) < 4)
		sched_yield();
	cr_assert_eq(volume_close(v), 0);
}
