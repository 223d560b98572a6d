/*
 * The pool: each invariant of pool.h and pool.c by a test that fails without
 * it.  Many threads at once are in tests/race/race_pool.c.
 */
#include "engine/pool_internal.h"
#include "tests/lib/pool_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>

static const struct fixture_params plain = {0};

static uint64_t stat_of(struct fixture *f, enum stat_id stat)
{
	return stat_read(&f->volume->stats, stat);
}

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

static void change_one(struct fixture *f, unsigned page, uint64_t value, bool init)
{
	uint64_t pageno = fixture_page(f, page);

	fixture_change(f, &pageno, 1, value, init);
}

static uint64_t read_one(struct fixture *f, unsigned page)
{
	struct frame *frame = fixture_get(f, fixture_page(f, page));
	uint64_t value;

	latch_s(&frame->latch);
	value = fixture_value(frame);
	unlatch_s(&frame->latch);
	pool_put(frame);
	return value;
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
	cr_assert_eq(read_one(&f, 0), 7);
	cr_assert_eq(read_one(&f, 0), 7);
	cr_assert_eq(stat_of(&f, STAT_pool_misses), 1);
	cr_assert_eq(stat_of(&f, STAT_pool_hits), 1);
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

	cr_assert_eq(stat_of(&f, STAT_corruptions), corruptions);
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
	cr_assert_eq(stat_of(&f, STAT_dev_reads), 3, "header and checkpoints of the log");
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
	cr_assert_eq(read_one(&f, 0), 9);
	cr_assert_eq(stat_of(&f, STAT_corruptions), 0);
	fixture_close(&f);
}

/* ------------------------------------------------- INV-POOL-3: one read */

#define GETTERS 4u

static struct fixture *shared;
static _Atomic uint32_t waiting, done;
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
	reads = stat_of(&f, STAT_dev_reads);
	get_at_once(&f);
	for (unsigned i = 0; i < GETTERS; i++)
		cr_assert_eq(results[i], 0);
	cr_assert_eq(stat_of(&f, STAT_dev_reads) - reads, 1);
	cr_assert_eq(stat_of(&f, STAT_pool_misses), 1);
	fixture_close(&f);
}

Test(pool, all_who_wait_for_a_failed_read_hear_of_it)
{
	struct fixture f;
	struct pool_counts counts;

	fixture_open(&f, &plain);
	dev_memory_fail(f.dev, FAULT_READ, 0, -ENXIO, false);
	get_at_once(&f);
	for (unsigned i = 0; i < GETTERS; i++)
		cr_assert_eq(results[i], -ENXIO);
	pool_count(f.pool, &counts);
	cr_assert_eq(counts.pinned, 0);
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
		change_one(&f, i, 10000 + i, false);
	pinned = fixture_get(&f, fixture_page(&f, dirty));
	for (unsigned i = 0; i < pages; i++)
		cr_assert_eq(read_one(&f, i), i < dirty ? 10000 + i : i);
	cr_assert_geq(stat_of(&f, STAT_pool_evictions), pages - POOL_FRAMES_MIN);
	cr_assert_eq(fixture_value(pinned), dirty);
	cr_assert_eq(atomic_load(&pinned->pageno), fixture_page(&f, dirty));
	pool_put(pinned);
	for (unsigned i = 0; i < dirty; i++)
		cr_assert_eq(read_one(&f, i), 10000 + i, "a dirty page is not evicted");
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
		read_one(&f, i);
		read_one(&f, i % 10);
	}
	misses = stat_of(&f, STAT_pool_misses);
	cr_assert_leq(misses, 1010, "%lu misses for 1000 pages", misses);
	fixture_close(&f);
}

/* -------------------------------------------------------------- pool_new() */

Test(pool, a_new_page_is_not_read_and_vanishes_unless_it_is_changed)
{
	struct fixture f;
	struct pool_counts counts;
	struct frame *frame;
	uint64_t pageno, reads;

	fixture_open(&f, &plain);
	pageno = fixture_page(&f, 0);
	fixture_put_page(&f, pageno, 5, LSN_FIRST);
	reads = stat_of(&f, STAT_dev_reads);
	frame = fixture_new(&f, pageno);
	cr_assert_eq(page_lsn(frame->data), 0);
	cr_assert_eq(get_leaf(&f, pageno), -EIO, "nothing may refer to it yet");
	pool_put(frame);
	cr_assert_eq(stat_of(&f, STAT_dev_reads), reads);
	cr_assert_eq(read_one(&f, 0), 5, "as on the device");

	change_one(&f, 1, 6, true);
	cr_assert_eq(read_one(&f, 1), 6);
	pool_count(f.pool, &counts);
	cr_assert_eq(counts.dirty, 1);
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
	cr_assert_eq(read_one(&f, 0), 5);
	cr_assert_eq(pool_new(f.pool, pageno, PAGE_TREE, INDEX_LOB, 3, &frame), 0);
	cr_assert_eq(page_lsn(frame->data), 0);
	cr_assert_eq(atomic_load(&frame->latch.order), INDEX_LOB << 8 | 3);
	pool_put(frame);
	change_one(&f, 0, 6, true);
	change_one(&f, 0, 7, true); /* dirty as it is */
	cr_assert_eq(read_one(&f, 0), 7);
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
	change_one(&f, 0, 1, true);
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

/* ------------------------------------------------------------- flush list */

/* INV-POOL-6: mtrs enter the list in another order than that of their LSNs. */
Test(pool, the_list_is_sorted_whatever_the_order_of_entry)
{
	static const lsn_t starts[] = {500, 300, 900, 100, 700, 101, 899};
	struct fixture f;
	struct frame *frames[array_count(starts)], *listed[array_count(starts)];
	lsn_t last = 0;

	fixture_open(&f, &(struct fixture_params){.no_log = true});
	cr_assert_eq(pool_oldest_lsn(f.pool), UINT64_MAX);
	for (unsigned i = 0; i < array_count(starts); i++) {
		fixture_put_page(&f, fixture_page(&f, i), 1, 1);
		frames[i] = fixture_get(&f, fixture_page(&f, i));
		latch_x(&frames[i]->latch);
		pool_changed(frames[i], starts[i], starts[i] + 50);
		pool_changed(frames[i], starts[i] + 60, starts[i] + 70); /* its oldest stays */
		cr_assert_eq(page_lsn(frames[i]->data), starts[i] + 70);
		unlatch_x(&frames[i]->latch);
	}
	cr_assert_eq(pool_oldest_lsn(f.pool), 100);
	cr_assert_eq(pool_collect_dirty(f.pool, 900, listed, 7), 6, "below 900");
	for (unsigned i = 0; i < 6; i++) {
		cr_assert_lt(last, atomic_load(&listed[i]->oldest_lsn));
		last = atomic_load(&listed[i]->oldest_lsn);
		pool_put(listed[i]);
	}
	cr_assert_eq(pool_collect_dirty(f.pool, UINT64_MAX, listed, 2), 2);
	pool_put(listed[0]);
	pool_put(listed[1]);
	for (unsigned i = 0; i < array_count(starts); i++)
		pool_put(frames[i]);
	fixture_close(&f);
}

/* INV-POOL-1, the part of the list. */
Test(pool, a_change_during_a_write_keeps_the_page_listed)
{
	struct fixture f;
	struct frame *frame, *other;
	struct pool_counts counts;

	fixture_open(&f, &(struct fixture_params){.no_log = true});
	for (unsigned i = 0; i < 2; i++)
		fixture_put_page(&f, fixture_page(&f, i), 1, 1);
	frame = fixture_get(&f, fixture_page(&f, 0));
	other = fixture_get(&f, fixture_page(&f, 1));
	latch_x(&frame->latch);
	pool_changed(frame, 100, 150);
	pool_pin(frame);
	pool_write_begin(frame);
	pool_changed(frame, 300, 350);
	pool_changed(frame, 400, 450);
	unlatch_x(&frame->latch);
	latch_x(&other->latch);
	pool_changed(other, 200, 250);
	unlatch_x(&other->latch);
	cr_assert_eq(pool_oldest_lsn(f.pool), 100, "until the write is durable");
	pool_write_done(frame);
	cr_assert_eq(pool_oldest_lsn(f.pool), 200);
	cr_assert_eq(atomic_load(&frame->oldest_lsn), 300, "the first change since the copy");

	latch_s(&frame->latch);
	pool_pin(frame);
	pool_write_begin(frame);
	unlatch_s(&frame->latch);
	pool_write_failed(frame);
	cr_assert_eq(atomic_load(&frame->oldest_lsn), 300, "a failed write cleans nothing");

	latch_s(&frame->latch);
	pool_pin(frame);
	pool_write_begin(frame);
	unlatch_s(&frame->latch);
	pool_write_done(frame);
	cr_assert_eq(atomic_load(&frame->oldest_lsn), 0);
	pool_count(f.pool, &counts);
	cr_assert_eq(counts.dirty, 1);
	pool_put(frame);
	pool_put(other);
	fixture_close(&f);
}

/* ---------------------------------------------------- INV-POOL-2: tickets */

static uint64_t tickets_free(struct fixture *f)
{
	struct pool_counts counts;

	pool_count(f->pool, &counts);
	return counts.tickets_free;
}

static void take_and_give(void *arg)
{
	struct fixture *f = arg;

	check(pool_take_tickets(f->pool, MTR_PAGES_MAX) == 0);
	atomic_store(&done, 1);
	pool_give_tickets(f->pool, MTR_PAGES_MAX);
}

static void count_ticket_waits(const char *name)
{
	if (strcmp(name, "pool:ticket_wait") == 0)
		atomic_fetch_add(&waiting, 1);
}

Test(pool, tickets_are_fewer_than_frames_and_dirty_frames_take_them)
{
	struct fixture f;
	unsigned large = 0, small = 0;

	fixture_open(&f, &plain);
	change_one(&f, 0, 1, true);
	cr_assert_eq(tickets_free(&f), POOL_FRAMES_MIN - POOL_FRAMES_SPARE - 1);
	while (pool_try_take_tickets(f.pool, POOL_TICKETS_SMALL + 1))
		large++;
	cr_assert_eq(large, (POOL_FRAMES_MIN - POOL_FRAMES_SPARE - POOL_FRAMES_READING - 1) /
			    (POOL_TICKETS_SMALL + 1));
	while (pool_try_take_tickets(f.pool, 1))
		small++;
	cr_assert_geq(small, POOL_FRAMES_READING, "kept for those who read");
	cr_assert_eq(tickets_free(&f), 0);
	pool_give_tickets(f.pool, large * (POOL_TICKETS_SMALL + 1) + small);
	fixture_close(&f);
}

Test(pool, who_waits_for_tickets_gets_those_that_come_back)
{
	struct fixture f;
	struct os_thread thread;

	fixture_open(&f, &plain);
	cr_assert_eq(pool_take_tickets(f.pool, POOL_TICKETS_MAX), 0);
	os_linux_set_point_handler(count_ticket_waits);
	cr_assert_eq(os_thread_start(&thread, "taker", take_and_give, &f), 0);
	while (!atomic_load(&waiting))
		sched_yield();
	cr_assert_eq(atomic_load(&done), 0);
	pool_give_tickets(f.pool, POOL_TICKETS_MAX);
	os_thread_join(&thread);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(atomic_load(&done), 1);
	cr_assert_eq(stat_of(&f, STAT_pool_ticket_waits), 1);
	fixture_close(&f);
}

Test(pool, nobody_waits_for_tickets_inside_an_epoch, .signal = SIGABRT)
{
	struct fixture f;

	fixture_open(&f, &plain);
	cr_assert_eq(pool_take_tickets(f.pool, POOL_TICKETS_MAX), 0);
	epoch_enter(&f.volume->epochs);
	(void)!pool_take_tickets(f.pool, POOL_TICKETS_MAX);
}

/* Far more pages than frames are dirtied: the taker of tickets has them written back. */
Test(pool, dirty_pages_are_written_back_for_those_who_want_tickets)
{
	struct fixture f;
	const unsigned pages = 1000, at_once = 8;

	fixture_open(&f, &plain);
	for (unsigned i = 0; i < pages; i += at_once) {
		uint64_t pagenos[8];

		for (unsigned k = 0; k < at_once; k++)
			pagenos[k] = fixture_page(&f, i + k);
		fixture_change(&f, pagenos, at_once, i, true);
	}
	for (unsigned i = 0; i < pages; i++)
		cr_assert_eq(read_one(&f, i), i / at_once * at_once);
	cr_assert_gt(stat_of(&f, STAT_flush_pages), pages - POOL_FRAMES_MIN);
	cr_assert_eq(stat_of(&f, STAT_pool_frame_waits), 0, "a frame was there each time");
	fixture_close(&f);
}

Test(pool, reading_goes_on_after_a_failure_and_changing_does_not_wait)
{
	struct fixture f;
	unsigned granted = 0;
	int rc;

	fixture_open(&f, &plain);
	fixture_put_page(&f, fixture_page(&f, 999), 5, LSN_FIRST);
	atomic_store(&f.volume->failed, true); /* it never writes back again */
	for (unsigned i = 0; i < POOL_FRAMES_MIN && granted == i; i++) {
		rc = pool_take_tickets(f.pool, POOL_TICKETS_SMALL + 1);
		if (rc) {
			cr_assert_eq(rc, -EIO);
			break;
		}
		pool_give_tickets(f.pool, POOL_TICKETS_SMALL + 1);
		change_one(&f, i, i, true);
		granted++;
	}
	cr_assert_gt(granted, 100);
	cr_assert_lt(granted, POOL_FRAMES_MIN - POOL_FRAMES_READING);
	cr_assert_eq(pool_take_tickets(f.pool, 2), 0);
	cr_assert_eq(read_one(&f, 999), 5);
	pool_give_tickets(f.pool, 2);
	fixture_close(&f);
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
	cr_assert_eq(read_one(&f, 0), 0);
	reads = stat_of(&f, STAT_dev_reads);
	epoch_enter(&f.volume->epochs);
	pool_prefetch(f.pool, pagenos, 5, PAGE_TREE, FIXTURE_INDEX);
	epoch_exit(&f.volume->epochs);
	cr_assert_eq(stat_of(&f, STAT_dev_reads) - reads, 3);
	cr_assert_eq(stat_of(&f, STAT_corruptions), 0);
	reads = stat_of(&f, STAT_dev_reads);
	cr_assert_eq(read_one(&f, 1), 1);
	cr_assert_eq(read_one(&f, 3), 3);
	cr_assert_eq(stat_of(&f, STAT_dev_reads), reads);
	cr_assert_eq(get_leaf(&f, pagenos[2]), -EIO);
	cr_assert_eq(stat_of(&f, STAT_corruptions), 1);
	cr_assert_eq(tickets_free(&f), POOL_FRAMES_MIN - POOL_FRAMES_SPARE);
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
	cr_assert_eq(stat_of(&f, STAT_pool_misses), 0);
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
