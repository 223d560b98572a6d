/*
 * The pool's flush list and tickets: each invariant by a test that fails without
 * it.  Many threads at once are in tests/race/race_pool.c.
 */
#include "engine/pool_internal.h"
#include "tests/lib/pool_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>

static const struct fixture_params plain = {0};

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
	cr_assert_eq(fixture_counts(&f).dirty, 1);
	pool_put(frame);
	pool_put(other);
	fixture_close(&f);
}

/* ---------------------------------------------------- INV-POOL-2: tickets */

static _Atomic uint32_t waiting, done;

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
	fixture_change_one(&f, 0, 1, true);
	cr_assert_eq(fixture_counts(&f).tickets_free, POOL_FRAMES_MIN - POOL_FRAMES_SPARE - 1);
	while (pool_try_take_tickets(f.pool, POOL_TICKETS_SMALL + 1))
		large++;
	cr_assert_eq(large, (POOL_FRAMES_MIN - POOL_FRAMES_SPARE - POOL_FRAMES_READING - 1) /
			    (POOL_TICKETS_SMALL + 1));
	while (pool_try_take_tickets(f.pool, 1))
		small++;
	cr_assert_geq(small, POOL_FRAMES_READING, "kept for those who read");
	cr_assert_eq(fixture_counts(&f).tickets_free, 0);
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
	cr_assert_eq(fixture_stat(&f, STAT_pool_ticket_waits), 1);
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
		cr_assert_eq(fixture_read_one(&f, i), i / at_once * at_once);
	cr_assert_gt(fixture_stat(&f, STAT_flush_pages), pages - POOL_FRAMES_MIN);
	cr_assert_eq(fixture_stat(&f, STAT_pool_frame_waits), 0, "a frame was there each time");
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
		fixture_change_one(&f, i, i, true);
		granted++;
	}
	cr_assert_gt(granted, 100);
	cr_assert_lt(granted, POOL_FRAMES_MIN - POOL_FRAMES_READING);
	cr_assert_eq(pool_take_tickets(f.pool, 2), 0);
	cr_assert_eq(fixture_read_one(&f, 999), 5);
	pool_give_tickets(f.pool, 2);
	fixture_close(&f);
}
