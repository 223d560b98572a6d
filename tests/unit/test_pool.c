/*
 * The pool's frames: reading, pins, eviction, new pages, prefetch; each invariant
 * by a test that fails without it.  Flush list and tickets are in
 * test_pool_dirty.c, many threads at once in tests/race/race_pool.c.
 */
#include "engine/pool_internal.h"
#include "tests/lib/pool_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>

static const struct fixture_params plain = {0};

static int get(struct fixture *f, uint64_t pageno, enum page_type type, unsigned index)
{
	struct frame *frame;
	int rc = pool_get(f->pool, pageno, type, index, &frame);

	if (rc == 0)
		pool_put(frame);
	return rc;
}

static int get_leaf(struct fixture *f, uint64_t pageno)
{
	return get(f, pageno, PAGE_TREE, FIXTURE_INDEX);
}

/* ---------------------------------------------------------------- reading */

Test(pool, refuses_a_cache_that_is_too_small)
{
	struct fixture f;
	struct pool *pool;

	fixture_open(&f, &plain);
	cr_assert_eq(pool_open(&pool, f.volume, (POOL_FRAMES_MIN - 1) * PAGE_SIZE_MIN),
		     -BE_TOOSMALL);
	cr_assert_eq(pool_open(&pool, f.volume, POOL_FRAMES_MIN * PAGE_SIZE_MIN), 0);
	pool_close(pool);
	fixture_close(&f);
}

Test(pool, reads_a_page_once)
{
	struct fixture f;

	fixture_open(&f, &plain);
	fixture_put_page(&f, fixture_page(&f, 0), 7, LSN_FIRST);
	cr_assert_eq(fixture_read_one(&f, 0), 7);
	cr_assert_eq(fixture_read_one(&f, 0), 7);
	cr_assert_eq(fixture_stat(&f, STAT_pool_misses), 1);
	cr_assert_eq(fixture_stat(&f, STAT_pool_hits), 1);
	fixture_close(&f);
}

/* INV-POOL-5: what does not belong there is corruption, counted, and read anew the next time. */
Test(pool, judges_what_it_reads)
{
	struct fixture f;
	uint64_t pageno, bitmap, corruptions = 0;
	uint8_t byte = 0xff;

	fixture_open(&f, &plain);
	pageno = fixture_page(&f, 0);
	bitmap = f.volume->geo.groups_start;

	cr_assert_eq(get_leaf(&f, pageno), -EIO, "zeros");
	fixture_put_page(&f, pageno, 1, LSN_FIRST);
	cr_assert_eq(get_leaf(&f, pageno), 0, "a failed read leaves nothing behind");
	corruptions++;

	cr_assert_eq(get(&f, pageno, PAGE_TREE, FIXTURE_INDEX + 1), -EIO, "another index");
	cr_assert_eq(get(&f, pageno, PAGE_TREE, POOL_ANY_INDEX), 0);
	cr_assert_eq(get(&f, pageno, PAGE_BITMAP, 0), -EIO, "another type");
	corruptions += 2;

	pageno = fixture_page(&f, 1);
	fixture_put_page(&f, pageno, 1, LSN_FIRST);
	cr_assert_eq(dev_write(f.dev, &byte, 1, pageno * BLOCK_SIZE + 3000), 0);
	cr_assert_eq(get_leaf(&f, pageno), -EIO, "checksum");
	corruptions++;

	pageno = fixture_page(&f, 2);
	fixture_put_page(&f, pageno, 1, log_next_lsn(f.log) + 1);
	cr_assert_eq(get_leaf(&f, pageno), -EIO, "LSN past the log's end");
	corruptions++;

	fixture_put_page(&f, bitmap, 1, LSN_FIRST);
	cr_assert_eq(get(&f, bitmap, PAGE_BITMAP, 0), -EIO, "a leaf where a bitmap should be");
	corruptions++;

	cr_assert_eq(fixture_stat(&f, STAT_corruptions), corruptions);
	fixture_close(&f);
}

Test(pool, page_numbers_are_judged_before_anything_is_read)
{
	struct fixture f;
	const struct geometry *geo;

	fixture_open(&f, &(struct fixture_params){.page_size = 16384});
	geo = &f.volume->geo;
	cr_assert_eq(get_leaf(&f, 0), -EIO);
	cr_assert_eq(get_leaf(&f, geo->groups_start - geo->page_blocks), -EIO);
	cr_assert_eq(get_leaf(&f, geo->groups_start), -EIO, "bitmap");
	cr_assert_eq(get_leaf(&f, geo->system_page), -EIO, "system page");
	cr_assert_eq(get_leaf(&f, fixture_page(&f, 0) + 1), -EIO, "between two pages");
	cr_assert_eq(get_leaf(&f, geo->block_count - 1), -EIO);
	cr_assert_eq(get_leaf(&f, UINT64_MAX - 3), -EIO);
	cr_assert_eq(get(&f, fixture_page(&f, 0), PAGE_BITMAP, 0), -EIO);
	cr_assert_eq(fixture_stat(&f, STAT_dev_reads), 3, "header and checkpoints of the log");
	fixture_close(&f);
}

Test(pool, a_read_error_is_no_corruption)
{
	struct fixture f;
	uint64_t pageno;

	fixture_open(&f, &plain);
	pageno = fixture_page(&f, 0);
	fixture_put_page(&f, pageno, 9, LSN_FIRST);
	dev_memory_fail(f.dev, FAULT_READ, 0, -ENXIO, false);
	cr_assert_eq(get_leaf(&f, pageno), -ENXIO);
	cr_assert_eq(fixture_read_one(&f, 0), 9);
	cr_assert_eq(fixture_stat(&f, STAT_corruptions), 0);
	fixture_close(&f);
}

/* ------------------------------------------------- INV-POOL-3: one read */

#define GETTERS 4u

static struct fixture *shared;
static _Atomic uint32_t waiting;
static _Atomic int results[GETTERS];

static void hold_the_read(const char *name)
{
	if (strcmp(name, "pool:wait_for_read") == 0)
		atomic_fetch_add(&waiting, 1);
	if (strcmp(name, "pool:reading") == 0)
		while (atomic_load(&waiting) < GETTERS - 1)
			sched_yield();
}

static void getter(void *arg)
{
	_Atomic int *result = arg;

	/* Waiting for a read is allowed inside an epoch. */
	epoch_enter(&shared->volume->epochs);
	*result = get_leaf(shared, fixture_page(shared, 0));
	epoch_exit(&shared->volume->epochs);
}

static void get_at_once(struct fixture *f)
{
	struct os_thread threads[GETTERS];

	shared = f;
	os_linux_set_point_handler(hold_the_read);
	for (unsigned i = 0; i < GETTERS; i++)
		cr_assert_eq(os_thread_start(&threads[i], "getter", getter, (void *)&results[i]),
			     0);
	for (unsigned i = 0; i < GETTERS; i++)
		os_thread_join(&threads[i]);
	os_linux_set_point_handler(NULL);
}

Test(pool, all_who_miss_a_page_share_one_read)
{
	struct fixture f;
	uint64_t reads;

	fixture_open(&f, &plain);
	fixture_put_page(&f, fixture_page(&f, 0), 3, LSN_FIRST);
	reads = fixture_stat(&f, STAT_dev_reads);
	get_at_once(&f);
	for (unsigned i = 0; i < GETTERS; i++)
		cr_assert_eq(results[i], 0);
	cr_assert_eq(fixture_stat(&f, STAT_dev_reads) - reads, 1);
	cr_assert_eq(fixture_stat(&f, STAT_pool_misses), 1);
	fixture_close(&f);
}

Test(pool, all_who_wait_for_a_failed_read_hear_of_it)
{
	struct fixture f;

	fixture_open(&f, &plain);
	dev_memory_fail(f.dev, FAULT_READ, 0, -ENXIO, false);
	get_at_once(&f);
	for (unsigned i = 0; i < GETTERS; i++)
		cr_assert_eq(results[i], -ENXIO);
	cr_assert_eq(fixture_counts(&f).pinned, 0);
	fixture_close(&f);
}

/* --------------------------------------------------------------- eviction */

Test(pool, evicts_what_is_clean_and_unpinned_only)
{
	struct fixture f;
	struct frame *pinned;
	const unsigned pages = 1000, dirty = 20;

	fixture_open(&f, &plain);
	for (unsigned i = 0; i < pages; i++)
		fixture_put_page(&f, fixture_page(&f, i), i, LSN_FIRST);
	for (unsigned i = 0; i < dirty; i++)
		fixture_change_one(&f, i, 10000 + i, false);
	pinned = fixture_get(&f, fixture_page(&f, dirty));
	for (unsigned i = 0; i < pages; i++)
		cr_assert_eq(fixture_read_one(&f, i), i < dirty ? 10000 + i : i);
	cr_assert_geq(fixture_stat(&f, STAT_pool_evictions), pages - POOL_FRAMES_MIN);
	cr_assert_eq(fixture_value(pinned), dirty);
	cr_assert_eq(atomic_load(&pinned->pageno), fixture_page(&f, dirty));
	pool_put(pinned);
	for (unsigned i = 0; i < dirty; i++)
		cr_assert_eq(fixture_read_one(&f, i), 10000 + i, "a dirty page is not evicted");
	fixture_close(&f);
}

Test(pool, what_is_used_again_and_again_stays)
{
	struct fixture f;
	uint64_t misses;

	fixture_open(&f, &plain);
	for (unsigned i = 0; i < 1000; i++)
		fixture_put_page(&f, fixture_page(&f, i), i, LSN_FIRST);
	for (unsigned i = 10; i < 1000; i++) {
		fixture_read_one(&f, i);
		fixture_read_one(&f, i % 10);
	}
	misses = fixture_stat(&f, STAT_pool_misses);
	cr_assert_leq(misses, 1010, "%lu misses for 1000 pages", misses);
	fixture_close(&f);
}

/* -------------------------------------------------------------- pool_new() */

Test(pool, a_new_page_is_not_read_and_vanishes_unless_it_is_changed)
{
	struct fixture f;
	struct frame *frame;
	uint64_t pageno, reads;

	fixture_open(&f, &plain);
	pageno = fixture_page(&f, 0);
	fixture_put_page(&f, pageno, 5, LSN_FIRST);
	reads = fixture_stat(&f, STAT_dev_reads);
	frame = fixture_new(&f, pageno);
	cr_assert_eq(page_lsn(frame->data), 0);
	cr_assert_eq(get_leaf(&f, pageno), -EIO, "nothing may refer to it yet");
	pool_put(frame);
	cr_assert_eq(fixture_stat(&f, STAT_dev_reads), reads);
	cr_assert_eq(fixture_read_one(&f, 0), 5, "as on the device");

	fixture_change_one(&f, 1, 6, true);
	cr_assert_eq(fixture_read_one(&f, 1), 6);
	cr_assert_eq(fixture_counts(&f).dirty, 1);
	fixture_close(&f);
}

Test(pool, a_new_page_takes_the_frame_of_its_former_life)
{
	struct fixture f;
	struct frame *frame;
	uint64_t pageno;

	fixture_open(&f, &plain);
	pageno = fixture_page(&f, 0);
	fixture_put_page(&f, pageno, 5, LSN_FIRST);
	cr_assert_eq(fixture_read_one(&f, 0), 5);
	cr_assert_eq(pool_new(f.pool, pageno, PAGE_TREE, INDEX_LOB, 3, &frame), 0);
	cr_assert_eq(page_lsn(frame->data), 0);
	cr_assert_eq(atomic_load(&frame->latch.order), INDEX_LOB << 8 | 3);
	pool_put(frame);
	fixture_change_one(&f, 0, 6, true);
	fixture_change_one(&f, 0, 7, true); /* dirty as it is */
	cr_assert_eq(fixture_read_one(&f, 0), 7);
	cr_assert_eq(pool_new(f.pool, 3, PAGE_TREE, INDEX_LOB, 0, &frame), -EIO);
	fixture_close(&f);
}

static struct frame *lingering;

static void let_go(const char *name)
{
	if (strcmp(name, "pool:new_waits") == 0 && lingering) {
		pool_put(lingering);
		lingering = NULL;
	}
}

Test(pool, a_new_page_waits_for_the_last_pin_of_its_former_life)
{
	struct fixture f;
	struct frame *frame;

	fixture_open(&f, &plain);
	fixture_put_page(&f, fixture_page(&f, 0), 5, LSN_FIRST);
	lingering = fixture_get(&f, fixture_page(&f, 0));
	os_linux_set_point_handler(let_go);
	frame = fixture_new(&f, fixture_page(&f, 0));
	os_linux_set_point_handler(NULL);
	cr_assert_null(lingering);
	pool_put(frame);
	fixture_close(&f);
}

/* ----------------------------------------------------------------- latches */

Test(pool, rank_and_order_follow_the_page)
{
	struct fixture f;
	struct frame *frame;
	const struct geometry *geo;

	fixture_open(&f, &plain);
	geo = &f.volume->geo;
	frame = fixture_new(&f, fixture_page(&f, 0));
	cr_assert_eq(frame->latch.rank, RANK_PAGE);
	cr_assert_eq(atomic_load(&frame->latch.order), FIXTURE_INDEX << 8);
	pool_put(frame);
	cr_assert_eq(pool_new(f.pool, geo->groups_start + 2 * geo->group_blocks, PAGE_BITMAP, 0, 0,
			      &frame), 0);
	cr_assert_eq(frame->latch.rank, RANK_BITMAP);
	cr_assert_eq(atomic_load(&frame->latch.order), 2);
	pool_put(frame);
	cr_assert_eq(pool_new(f.pool, geo->system_page, PAGE_SYSTEM, 0, 0, &frame), 0);
	cr_assert_eq(frame->latch.rank, RANK_SYSTEM);
	pool_put(frame);
	fixture_close(&f);
}

/* INV-TREE-4: the level of a root is the only thing that changes its latch's order. */
Test(pool, the_order_of_a_root_follows_its_level)
{
	struct fixture f;
	struct frame *frame;
	struct disk_page *head;

	fixture_open(&f, &plain);
	fixture_change_one(&f, 0, 1, true);
	frame = fixture_get(&f, fixture_page(&f, 0));
	latch_x(&frame->latch);
	head = (struct disk_page *)frame->data;
	head->level = 4;
	pool_changed(frame, page_lsn(head), page_lsn(head) + 10);
	cr_assert_eq(atomic_load(&frame->latch.order), FIXTURE_INDEX << 8 | 4);
	unlatch_x(&frame->latch);
	pool_put(frame);
	fixture_close(&f);
}

Test(pool, no_page_is_fetched_under_a_page_latch, .signal = SIGABRT)
{
	struct fixture f;
	struct frame *frame;

	fixture_open(&f, &plain);
	frame = fixture_new(&f, fixture_page(&f, 0));
	latch_s(&frame->latch);
	(void)!get_leaf(&f, fixture_page(&f, 1));
}

/* ---------------------------------------------------------------- prefetch */

Test(pool, prefetch_reads_what_is_missing_and_keeps_errors_for_later)
{
	struct fixture f;
	uint64_t pagenos[5], reads;

	fixture_open(&f, &plain);
	for (unsigned i = 0; i < 4; i++) {
		pagenos[i] = fixture_page(&f, i);
		fixture_put_page(&f, pagenos[i], i, i == 2 ? UINT64_MAX / 2 : LSN_FIRST);
	}
	pagenos[4] = 1; /* no page number */
	cr_assert_eq(fixture_read_one(&f, 0), 0);
	reads = fixture_stat(&f, STAT_dev_reads);
	epoch_enter(&f.volume->epochs);
	pool_prefetch(f.pool, pagenos, 5, PAGE_TREE, FIXTURE_INDEX);
	epoch_exit(&f.volume->epochs);
	cr_assert_eq(fixture_stat(&f, STAT_dev_reads) - reads, 3);
	cr_assert_eq(fixture_stat(&f, STAT_corruptions), 0);
	reads = fixture_stat(&f, STAT_dev_reads);
	cr_assert_eq(fixture_read_one(&f, 1), 1);
	cr_assert_eq(fixture_read_one(&f, 3), 3);
	cr_assert_eq(fixture_stat(&f, STAT_dev_reads), reads);
	cr_assert_eq(get_leaf(&f, pagenos[2]), -EIO);
	cr_assert_eq(fixture_stat(&f, STAT_corruptions), 1);
	cr_assert_eq(fixture_counts(&f).tickets_free, POOL_FRAMES_MIN - POOL_FRAMES_SPARE);
	fixture_close(&f);
}

Test(pool, prefetch_does_nothing_while_frames_are_scarce)
{
	struct fixture f;
	uint64_t pageno;

	fixture_open(&f, &plain);
	pageno = fixture_page(&f, 0);
	while (pool_try_take_tickets(f.pool, 1))
		;
	pool_prefetch(f.pool, &pageno, 1, PAGE_TREE, FIXTURE_INDEX);
	cr_assert_eq(fixture_stat(&f, STAT_pool_misses), 0);
	pool_give_tickets(f.pool, POOL_FRAMES_MIN - POOL_FRAMES_SPARE);
	fixture_close(&f);
}

static struct os_thread who_waits;

/* Before the batch reads, another thread asks for the page and waits for it. */
static void get_what_is_prefetched(const char *name)
{
	if (strcmp(name, "pool:prefetch") == 0) {
		check(os_thread_start(&who_waits, "getter", getter, (void *)&results[0]) == 0);
		while (!atomic_load(&waiting))
			sched_yield();
	} else if (strcmp(name, "pool:wait_for_read") == 0) {
		atomic_fetch_add(&waiting, 1);
	}
}

/* The prefetch fails silently; who waited for it reads the page itself. */
Test(pool, who_waits_for_a_failed_prefetch_reads_for_himself)
{
	struct fixture f;
	uint64_t pageno;

	fixture_open(&f, &plain);
	shared = &f;
	pageno = fixture_page(&f, 0);
	fixture_put_page(&f, pageno, 4, LSN_FIRST);
	results[0] = 1;
	dev_memory_fail(f.dev, FAULT_READ, 0, -EIO, false);
	os_linux_set_point_handler(get_what_is_prefetched);
	pool_prefetch(f.pool, &pageno, 1, PAGE_TREE, FIXTURE_INDEX);
	os_thread_join(&who_waits);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(results[0], 0);
	cr_assert_eq(dev_memory_fault_count(f.dev), 1);
	fixture_close(&f);
}
