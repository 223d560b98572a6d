/*
 * The flusher: each invariant of flush.h and flush.c by a test that fails
 * without it.  Power cuts are in tests/crash/crash_flush.c, threads in
 * tests/race/race_pool.c.
 */
#include "engine/flush_internal.h"
#include "tests/lib/pool_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

static const struct fixture_params plain = {0};

/* For the handlers of points. */
static struct fixture *shared;
static unsigned met;

static void change_pages(struct fixture *f, unsigned pages, uint64_t value, bool init)
{
	for (unsigned i = 0; i < pages; i++)
		fixture_change_one(f, i, value + i, init);
}

static void expect_in_place(struct fixture *f, unsigned pages, uint64_t value)
{
	for (unsigned i = 0; i < pages; i++) {
		uint64_t found;

		cr_assert(fixture_value_in_place(f, fixture_page(f, i), &found));
		cr_assert_eq(found, value + i);
	}
}

/* Appends an mtr without page records; it stays unlisted. */
static struct log_ticket append_note(struct fixture *f)
{
	uint8_t records[10 + MTR_TRAILER_BYTES] = {REC_NONCE, 8};
	struct log_ticket ticket;

	check(log_reserve(f->log, sizeof(records)) == 0);
	log_append(f->log, records, 10, &ticket);
	return ticket;
}

/* ------------------------------------------------------- what is promised */

Test(flush, everything_is_in_place_and_checkpointed)
{
	struct fixture f;
	lsn_t end;

	fixture_open(&f, &plain);
	change_pages(&f, 50, 100, true);
	change_pages(&f, 10, 100, false);
	end = log_next_lsn(f.log);
	cr_assert_eq(flush_everything(f.flusher), 0);
	expect_in_place(&f, 50, 100);
	cr_assert_geq(log_checkpoint_lsn(f.log), end);
	cr_assert_geq(log_marked_lsn(f.log), end);
	cr_assert_eq(fixture_counts(&f).dirty, 0);
	cr_assert_eq(pool_oldest_lsn(f.pool), UINT64_MAX);
	cr_assert_eq(fixture_stat(&f, STAT_flush_pages), 50, "each page once");
	fixture_close(&f);
}

Test(flush, a_checkpoint_is_written_when_nothing_is_dirty_too)
{
	struct fixture f;
	struct log_ticket ticket;

	fixture_open(&f, &plain);
	ticket = append_note(&f);
	log_listed(f.log, &ticket);
	cr_assert_eq(flush_everything(f.flusher), 0);
	cr_assert_geq(log_checkpoint_lsn(f.log), ticket.end);
	cr_assert_eq(fixture_stat(&f, STAT_flush_batches), 0);
	fixture_close(&f);
}

Test(flush, until_stops_where_it_was_told)
{
	struct fixture f;
	lsn_t middle = 0;
	uint64_t value;

	fixture_open(&f, &plain);
	for (unsigned i = 0; i < 40; i++) {
		if (i == 20)
			middle = log_next_lsn(f.log);
		fixture_change_one(&f, i, i, true);
	}
	cr_assert_eq(flush_until(f.flusher, middle), 0);
	expect_in_place(&f, 20, 0);
	cr_assert_not(fixture_value_in_place(&f, fixture_page(&f, 20), &value));
	cr_assert_geq(log_checkpoint_lsn(f.log), middle);
	cr_assert_eq(flush_until(f.flusher, UINT64_MAX), 0);
	expect_in_place(&f, 40, 0);
	fixture_close(&f);
}

Test(flush, pages_of_each_size)
{
	for (uint32_t page_size = PAGE_SIZE_MIN; page_size <= PAGE_SIZE_MAX; page_size *= 2) {
		struct fixture f;

		fixture_open(&f, &(struct fixture_params){.page_size = page_size, .groups = 1});
		change_pages(&f, 40, 7, true);
		cr_assert_eq(flush_everything(f.flusher), 0);
		expect_in_place(&f, 40, 7);
		fixture_close(&f);
	}
}

/* -------------------------------------------------------------- INV-WAL-1 */

/* At the first write outside the log a durable mark covers the LSN of each page written. */
static void expect_marked(const char *name)
{
	if (strcmp(name, "flush:doublewritten") != 0)
		return;
	met++;
	for (uint32_t i = 0; i < shared->volume->geo.dw_slots; i++) {
		struct disk_page head;

		check(dev_read(shared->dev, &head, sizeof(head),
			       (shared->volume->geo.dw_start + i) * BLOCK_SIZE) == 0);
		check(le64_get(head.lsn) > 0);
		check(le64_get(head.lsn) <= log_marked_lsn(shared->log));
	}
}

Test(flush, a_page_is_written_below_a_durable_mark_only)
{
	struct fixture f;
	struct batch_result result;

	fixture_open(&f, &plain);
	shared = &f;
	change_pages(&f, 40, 1, true);
	cr_assert_eq(flush_everything(f.flusher), 0);
	change_pages(&f, 40, 2, false);
	cr_assert_lt(log_durable_lsn(f.log), log_next_lsn(f.log));
	os_linux_set_point_handler(expect_marked);
	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(flush_batch(f.flusher, UINT64_MAX, false, &result), 0);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(met, 3, "batches of 16 slots");
	cr_assert_eq(fixture_counts(&f).dirty, 0);
	fixture_close(&f);
}

/* --------------------------------------------------------------- INV-DW-2 */

static uint64_t doublewritten(struct fixture *f)
{
	return fixture_stat(f, STAT_flush_pages_doublewritten);
}

Test(flush, initialised_pages_go_without_doublewrite_until_the_checkpoint_has_passed)
{
	struct fixture f;
	struct batch_result result;

	fixture_open(&f, &plain);
	change_pages(&f, 5, 1, true);
	cr_assert_eq(flush_batch(f.flusher, UINT64_MAX, false, &result), 0);
	cr_assert_eq(result.written, 5);
	cr_assert_eq(doublewritten(&f), 0);
	/* Nothing was checkpointed: recovery still begins with their initialisation. */
	change_pages(&f, 5, 2, false);
	fixture_put_page(&f, fixture_page(&f, 7), 7, 1);
	fixture_change_one(&f, 7, 8, false);
	cr_assert_eq(flush_batch(f.flusher, UINT64_MAX, false, &result), 0);
	cr_assert_eq(result.written, 6);
	cr_assert_eq(doublewritten(&f), 1, "the page that was there before");
	expect_in_place(&f, 5, 2);
	cr_assert_eq(flush_checkpoint(f.flusher, 0), 0);
	change_pages(&f, 5, 3, false);
	cr_assert_eq(flush_everything(f.flusher), 0);
	cr_assert_eq(doublewritten(&f), 6);
	expect_in_place(&f, 5, 3);
	fixture_close(&f);
}

/* The frame's next page knows nothing of the initialisation of its last one. */
Test(flush, a_page_that_was_read_is_doublewritten)
{
	struct fixture f;
	struct batch_result result;

	fixture_open(&f, &plain);
	for (unsigned i = 300; i < 300 + POOL_FRAMES_MIN; i++)
		fixture_put_page(&f, fixture_page(&f, i), i, 1);
	fixture_change_one(&f, 0, 1, true);
	cr_assert_eq(flush_batch(f.flusher, UINT64_MAX, false, &result), 0);
	for (unsigned i = 300; i < 300 + POOL_FRAMES_MIN; i++)
		(void)fixture_read_one(&f, i);
	cr_assert_gt(fixture_stat(&f, STAT_pool_evictions), 0);
	cr_assert_eq(doublewritten(&f), 0);
	change_pages(&f, 1, 2, false);
	for (unsigned i = 300 + POOL_FRAMES_MIN; i-- > 200 + POOL_FRAMES_MIN;)
		fixture_change_one(&f, i, i, false);
	cr_assert_eq(flush_everything(f.flusher), 0);
	cr_assert_eq(doublewritten(&f), 101);
	fixture_close(&f);
}

/* ------------------------------------------------------------- INV-POOL-1 */

static void change_between(const char *name)
{
	if (strcmp(name, "flush:copied") == 0 && met++ == 0)
		fixture_change_one(shared, 0, 1000, false);
}

Test(flush, a_page_that_changes_while_it_is_written_stays_dirty)
{
	struct fixture f;
	lsn_t first_end;
	uint64_t value;

	fixture_open(&f, &plain);
	shared = &f;
	fixture_change_one(&f, 0, 1, true);
	first_end = log_next_lsn(f.log);
	os_linux_set_point_handler(change_between);
	cr_assert_eq(flush_until(f.flusher, first_end), 0);
	os_linux_set_point_handler(NULL);
	cr_assert(fixture_value_in_place(&f, fixture_page(&f, 0), &value));
	cr_assert_eq(value, 1);
	cr_assert_eq(fixture_counts(&f).dirty, 1);
	cr_assert_geq(pool_oldest_lsn(f.pool), first_end, "the second change");
	cr_assert_geq(log_checkpoint_lsn(f.log), first_end);
	cr_assert_leq(log_checkpoint_lsn(f.log), pool_oldest_lsn(f.pool));
	cr_assert_eq(flush_everything(f.flusher), 0);
	cr_assert(fixture_value_in_place(&f, fixture_page(&f, 0), &value));
	cr_assert_eq(value, 1000);
	fixture_close(&f);
}

/* Until the flush that covers it, the page counts for the checkpoint. */
static void expect_listed(const char *name)
{
	if (strcmp(name, "flush:copied") != 0 && strcmp(name, "flush:doublewritten") != 0 &&
	    strcmp(name, "flush:in_place") != 0)
		return;
	met++;
	check(pool_oldest_lsn(shared->pool) < log_next_lsn(shared->log));
}

Test(flush, a_page_leaves_the_list_after_the_flush_in_place)
{
	struct fixture f;

	fixture_open(&f, &plain);
	shared = &f;
	fixture_change_one(&f, 0, 1, true);
	os_linux_set_point_handler(expect_listed);
	cr_assert_eq(flush_everything(f.flusher), 0);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(met, 3);
	fixture_close(&f);
}

/* -------------------------------------------------------------- INV-LOG-2 */

static struct log_ticket late;

/* An mtr that has its LSN enters the list between the two looks of the checkpoint. */
static void enter_late(const char *name)
{
	struct frame *frame;

	if (strcmp(name, "flush:unlisted_read") != 0 || met++ > 0)
		return;
	frame = fixture_get(shared, fixture_page(shared, 0));
	latch_x(&frame->latch);
	pool_changed(frame, late.start, late.end);
	log_listed(shared->log, &late);
	unlatch_x(&frame->latch);
	pool_put(frame);
}

Test(flush, the_checkpoint_does_not_pass_an_mtr_that_is_being_listed)
{
	struct fixture f;

	fixture_open(&f, &plain);
	shared = &f;
	fixture_change_one(&f, 0, 1, true);
	cr_assert_eq(flush_everything(f.flusher), 0);
	late = append_note(&f);
	cr_assert_eq(log_flush(f.log, late.end), 0);
	os_linux_set_point_handler(enter_late);
	cr_assert_eq(flush_checkpoint(f.flusher, 0), 0);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(met, 1);
	cr_assert_leq(log_checkpoint_lsn(f.log), late.start);
	cr_assert_eq(flush_everything(f.flusher), 0);
	cr_assert_geq(log_checkpoint_lsn(f.log), late.end);
	fixture_close(&f);
}

static void list_late(const char *name)
{
	if (strcmp(name, "flush:wait_listed") == 0 && met++ == 3)
		log_listed(shared->log, &late);
}

static void checkpoint_now(void *arg)
{
	struct fixture *f = arg;

	check(log_flush(f->log, log_next_lsn(f->log)) == 0);
	check(flush_checkpoint(f->flusher, 0) == 0);
}

/* While an mtr has its LSN and its pages are not on the list yet. */
static void checkpoint_between(const char *name)
{
	struct os_thread thread;

	if (strcmp(name, "redo:appended") != 0 || met++ > 0)
		return;
	check(os_thread_start(&thread, "checkpoint", checkpoint_now, shared) == 0);
	os_thread_join(&thread);
}

Test(flush, a_commit_is_listed_after_its_pages)
{
	struct fixture f;
	lsn_t start;

	fixture_open(&f, &plain);
	shared = &f;
	fixture_change_one(&f, 0, 1, true);
	cr_assert_eq(flush_everything(f.flusher), 0);
	start = log_next_lsn(f.log) + MARK_MTR_BYTES; /* it opens a group */
	os_linux_set_point_handler(checkpoint_between);
	fixture_change_one(&f, 0, 2, false);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(met, 1);
	cr_assert_leq(log_checkpoint_lsn(f.log), start);
	fixture_close(&f);
}

Test(flush, until_waits_for_an_mtr_that_is_being_listed)
{
	struct fixture f;

	fixture_open(&f, &plain);
	shared = &f;
	late = append_note(&f);
	os_linux_set_point_handler(list_late);
	cr_assert_eq(flush_until(f.flusher, late.end), 0);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(met, 4);
	cr_assert_geq(log_checkpoint_lsn(f.log), late.end);
	fixture_close(&f);
}

Test(flush, the_checkpoint_is_durable_log_at_most)
{
	struct fixture f;
	lsn_t end;

	fixture_open(&f, &plain);
	late = append_note(&f);
	log_listed(f.log, &late);
	end = log_durable_lsn(f.log);
	cr_assert_lt(end, late.end);
	cr_assert_eq(flush_checkpoint(f.flusher, 0), 0);
	cr_assert_leq(log_checkpoint_lsn(f.log), end);
	fixture_close(&f);
}

/* ------------------------------------------------- INV-FLUSH-1: busy pages */

static _Atomic uint32_t holding, let_go;

static void hold_latched(void *arg)
{
	struct fixture *f = arg;
	struct frame *frame = fixture_get(f, fixture_page(f, 0));

	latch_x(&frame->latch);
	atomic_store(&holding, 1);
	while (!atomic_load(&let_go))
		sched_yield();
	unlatch_x(&frame->latch);
	pool_put(frame);
}

static void let_go_when_waited_for(const char *name)
{
	if (strcmp(name, "flush:in_place") == 0)
		met++;
	if (strcmp(name, "latch:sleep") == 0 && met > 0)
		atomic_store(&let_go, 1);
}

Test(flush, a_busy_page_is_skipped_once_and_then_waited_for)
{
	struct fixture f;
	struct os_thread thread;

	fixture_open(&f, &plain);
	change_pages(&f, 5, 1, true);
	cr_assert_eq(os_thread_start(&thread, "holder", hold_latched, &f), 0);
	while (!atomic_load(&holding))
		sched_yield();
	os_linux_set_point_handler(let_go_when_waited_for);
	cr_assert_eq(flush_everything(f.flusher), 0);
	os_linux_set_point_handler(NULL);
	os_thread_join(&thread);
	expect_in_place(&f, 5, 1);
	cr_assert_eq(fixture_stat(&f, STAT_flush_skipped_busy), 1);
	cr_assert_eq(fixture_stat(&f, STAT_flush_batches), 2);
	fixture_close(&f);
}

/* ------------------------------------------------------------------ errors */

Test(flush, a_failure_is_final_and_cleans_nothing)
{
	static const unsigned kinds[] = {FAULT_WRITE, FAULT_FLUSH};

	for (unsigned i = 0; i < 2; i++) {
		for (unsigned nth = 0; nth < 40; nth++) {
			struct fixture f;
			bool failed;

			fixture_open(&f, &plain);
			change_pages(&f, 20, 1, true);
			dev_memory_fail(f.dev, kinds[i], nth, -EIO, false);
			failed = flush_everything(f.flusher) != 0;
			if (failed) {
				cr_assert(f.volume->failed || log_dead(f.log));
				cr_assert_neq(flush_everything(f.flusher), 0, "never tried again");
				cr_assert_eq(fixture_counts(&f).dirty,
					     20 - fixture_stat(&f, STAT_flush_pages));
			}
			cr_assert_leq(log_checkpoint_lsn(f.log), pool_oldest_lsn(f.pool));
			fixture_close(&f);
			if (!failed)
				break;
			cr_assert_lt(nth, 39);
		}
	}
}

/* Who waits for tickets hears of a failure, though nothing is ever cleaned or given back again. */
Test(flush, who_waits_for_tickets_hears_of_a_failure)
{
	struct fixture f;
	uint64_t pageno;
	int rc = 0;

	fixture_open(&f, &(struct fixture_params){.background = true,
						  .commit_interval_ns = OS_FOREVER});
	dev_memory_fail(f.dev, FAULT_WRITE, 3, -EIO, true);
	for (unsigned i = 0; i < POOL_FRAMES_MIN && rc == 0; i++) {
		rc = pool_take_tickets(f.pool, MTR_PAGES_MAX);
		if (rc == 0) {
			struct frame *frame;

			pageno = fixture_page(&f, i);
			frame = fixture_new(&f, pageno);
			latch_x(&frame->latch);
			fixture_fill(frame, i);
			pool_changed(frame, 1 + i, 2 + i);
			unlatch_x(&frame->latch);
			pool_put(frame);
			pool_give_tickets(f.pool, MTR_PAGES_MAX);
		}
	}
	cr_assert_eq(rc, -EIO);
	cr_assert(f.volume->failed);
	fixture_close(&f);
}

Test(flush, a_broken_page_is_not_written)
{
	struct fixture f;
	struct frame *frame;
	uint64_t value;

	fixture_open(&f, &plain);
	fixture_change_one(&f, 0, 1, true);
	frame = fixture_get(&f, fixture_page(&f, 0));
	((struct disk_tree_page *)frame->data)->slot_count = le16_make(60000);
	pool_put(frame);
	cr_assert_eq(flush_everything(f.flusher), -BE_FORMAT);
	cr_assert(f.volume->failed);
	cr_assert_not(fixture_value_in_place(&f, fixture_page(&f, 0), &value));
	fixture_close(&f);
}

/* ----------------------------------------------------- without a thread */

Test(flush, who_waits_for_log_space_makes_it_where_no_thread_runs)
{
	struct fixture f;
	uint64_t laps = 4, changes = 0;
	lsn_t first;

	fixture_open(&f, &plain);
	first = log_next_lsn(f.log);
	while (log_next_lsn(f.log) - first < laps * log_capacity(f.log)) {
		fixture_change_one(&f, changes % 30, changes, changes < 30);
		changes++;
	}
	cr_assert_geq(log_checkpoint_lsn(f.log), first + (laps - 1) * log_capacity(f.log));
	cr_assert_gt(fixture_stat(&f, STAT_log_space_waits), 0);
	fixture_close(&f);
}

Test(flush, waits_only_where_waiting_is_allowed, .signal = SIGABRT)
{
	struct fixture f;

	fixture_open(&f, &plain);
	epoch_enter(&f.volume->epochs);
	(void)!flush_everything(f.flusher);
}

/* ------------------------------------------------------------- the thread */

#define DEADLINE_NS 20000000000ull

static bool wait_until(bool (*reached)(struct fixture *f), struct fixture *f)
{
	uint64_t deadline = os_mono_ns() + DEADLINE_NS;

	while (!reached(f)) {
		if (os_mono_ns() > deadline)
			return false;
		sched_yield();
	}
	return true;
}

static bool is_settled(struct fixture *f)
{
	return fixture_counts(f).dirty == 0 &&
	       log_checkpoint_lsn(f->log) + 2048 >= log_next_lsn(f->log);
}

Test(flush, an_idle_volume_is_written_back)
{
	struct fixture f;
	lsn_t settled;
	uint64_t checkpoints;

	fixture_open(&f, &(struct fixture_params){.background = true,
						  .commit_interval_ns = OS_FOREVER});
	change_pages(&f, 40, 5, true);
	cr_assert(wait_until(is_settled, &f));
	expect_in_place(&f, 40, 5);

	/* And then it is quiet: no mark causes another. */
	for (unsigned i = 0; i < 2; i++) {
		_Atomic uint32_t word = 0;

		settled = log_next_lsn(f.log);
		checkpoints = fixture_stat(&f, STAT_log_checkpoints);
		os_linux.wait(&os_linux, &word, 0, 1500000000ull);
	}
	cr_assert_eq(log_next_lsn(f.log), settled);
	cr_assert_eq(fixture_stat(&f, STAT_log_checkpoints), checkpoints);
	fixture_close(&f);
}

static bool is_durable(struct fixture *f)
{
	return log_durable_lsn(f->log) == log_next_lsn(f->log);
}

Test(flush, the_log_is_durable_after_the_commit_interval)
{
	struct fixture f;

	fixture_open(&f, &(struct fixture_params){.background = true,
						  .commit_interval_ns = 100000000ull});
	change_pages(&f, 3, 5, true);
	cr_assert(wait_until(is_durable, &f));
	cr_assert_eq(fixture_stat(&f, STAT_flush_batches), 0, "the log alone");
	fixture_close(&f);
}

static bool is_half_clean(struct fixture *f)
{
	return fixture_counts(f).dirty <= POOL_FRAMES_MIN / 2;
}

Test(flush, the_thread_keeps_half_of_the_frames_clean_and_the_log_free)
{
	struct fixture f;
	lsn_t first;
	unsigned page = 0;

	fixture_open(&f, &(struct fixture_params){.background = true,
						  .commit_interval_ns = OS_FOREVER});
	change_pages(&f, 1000, 1, true);
	cr_assert(wait_until(is_half_clean, &f));
	first = log_next_lsn(f.log);
	while (log_next_lsn(f.log) - first < 3 * log_capacity(f.log))
		fixture_change_one(&f, page++ % 1000, 7, false);
	fixture_close(&f);
}

/* --------------------------------------------------------------- recovery */

/* As recovery does it: far more pages than frames, and no log to append to. */
Test(flush, recovered_pages_are_written_through_doublewrite)
{
	struct fixture f;
	const unsigned pages = 600;

	fixture_open(&f, &(struct fixture_params){.no_log = true});
	for (unsigned i = 0; i < pages; i++) {
		struct frame *frame;

		cr_assert_eq(pool_take_tickets(f.pool, 1), 0);
		frame = fixture_new(&f, fixture_page(&f, i));
		latch_x(&frame->latch);
		fixture_fill(frame, 9 + i);
		pool_changed(frame, 100 + i, 101 + i);
		unlatch_x(&frame->latch);
		pool_put(frame);
		pool_give_tickets(f.pool, 1);
	}
	cr_assert_gt(fixture_counts(&f).dirty, 0);
	cr_assert_eq(flush_recovered(f.flusher), 0);
	cr_assert_eq(fixture_counts(&f).dirty, 0);
	expect_in_place(&f, pages, 9);
	fixture_close(&f);
}
