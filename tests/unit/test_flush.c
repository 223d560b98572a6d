/*
 * The flusher: each invariant of flush.h, flush.c and doublewrite.c by a test
 * that fails without it.  Power cuts are in tests/crash/crash_flush.c, threads
 * in tests/race/race_pool.c.
 */
#include "engine/doublewrite.h"
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

static uint64_t stat_of(struct fixture *f, enum stat_id stat)
{
	return stat_read(&f->volume->stats, stat);
}

static lsn_t change_one(struct fixture *f, unsigned page, uint64_t value, bool init)
{
	uint64_t pageno = fixture_page(f, page);

	return fixture_change(f, &pageno, 1, value, init);
}

static void change_pages(struct fixture *f, unsigned pages, uint64_t value, bool init)
{
	for (unsigned i = 0; i < pages; i++)
		change_one(f, i, value + i, init);
}

static void expect_in_place(struct fixture *f, unsigned pages, uint64_t value)
{
	for (unsigned i = 0; i < pages; i++) {
		uint64_t found;

		cr_assert(fixture_value_in_place(f, fixture_page(f, i), &found));
		cr_assert_eq(found, value + i);
	}
}

static uint64_t dirty_count(struct fixture *f)
{
	struct pool_counts counts;

	pool_count(f->pool, &counts);
	return counts.dirty;
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
	cr_assert_eq(dirty_count(&f), 0);
	cr_assert_eq(pool_oldest_lsn(f.pool), UINT64_MAX);
	cr_assert_eq(stat_of(&f, STAT_flush_pages), 50, "each page once");
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
	cr_assert_eq(stat_of(&f, STAT_flush_batches), 0);
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
		change_one(&f, i, i, true);
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

/* At the first write outside the log a durable mark covers every page LSN. */
static void expect_marked(const char *name)
{
	lsn_t lsn;

	if (strcmp(name, "flush:doublewritten") != 0)
		return;
	met++;
	for (uint32_t i = 0; i < shared->volume->geo.dw_slots; i++) {
		struct disk_page head;

		check(dev_read(shared->dev, &head, sizeof(head),
			       (shared->volume->geo.dw_start + i) * BLOCK_SIZE) == 0);
		lsn = le64_get(head.lsn);
		check(lsn <= log_marked_lsn(shared->log));
	}
}

Test(flush, a_page_is_written_below_a_durable_mark_only)
{
	struct fixture f;

	fixture_open(&f, &plain);
	shared = &f;
	change_pages(&f, 40, 1, true);
	cr_assert_lt(log_durable_lsn(f.log), log_next_lsn(f.log));
	os_linux_set_point_handler(expect_marked);
	cr_assert_eq(flush_everything(f.flusher), 0);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(met, 3, "batches of 16 slots");
	fixture_close(&f);
}

/* ------------------------------------------------------------- INV-POOL-1 */

static void change_between(const char *name)
{
	if (strcmp(name, "flush:copied") == 0 && met++ == 0)
		change_one(shared, 0, 1000, false);
}

Test(flush, a_page_that_changes_while_it_is_written_stays_dirty)
{
	struct fixture f;
	lsn_t first_end;
	uint64_t value;

	fixture_open(&f, &plain);
	shared = &f;
	change_one(&f, 0, 1, true);
	first_end = log_next_lsn(f.log);
	os_linux_set_point_handler(change_between);
	cr_assert_eq(flush_until(f.flusher, first_end), 0);
	os_linux_set_point_handler(NULL);
	cr_assert(fixture_value_in_place(&f, fixture_page(&f, 0), &value));
	cr_assert_eq(value, 1);
	cr_assert_eq(dirty_count(&f), 1);
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
	change_one(&f, 0, 1, true);
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
	change_one(&f, 0, 1, true);
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
	cr_assert_eq(stat_of(&f, STAT_flush_skipped_busy), 1);
	cr_assert_eq(stat_of(&f, STAT_flush_batches), 2);
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
				cr_assert(dirty_count(&f) > 0 || log_dead(f.log));
			}
			cr_assert_leq(log_checkpoint_lsn(f.log), pool_oldest_lsn(f.pool));
			fixture_close(&f);
			if (!failed)
				break;
			cr_assert_lt(nth, 39);
		}
	}
}

Test(flush, a_broken_page_is_not_written)
{
	struct fixture f;
	struct frame *frame;
	uint64_t value;

	fixture_open(&f, &plain);
	change_one(&f, 0, 1, true);
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
		change_one(&f, changes % 30, changes, changes < 30);
		changes++;
	}
	cr_assert_geq(log_checkpoint_lsn(f.log), first + (laps - 1) * log_capacity(f.log));
	cr_assert_gt(stat_of(&f, STAT_log_space_waits), 0);
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
	return dirty_count(f) == 0 && log_checkpoint_lsn(f->log) + 2048 >= log_next_lsn(f->log);
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
		checkpoints = stat_of(&f, STAT_log_checkpoints);
		os_linux.wait(&os_linux, &word, 0, 1500000000ull);
	}
	cr_assert_eq(log_next_lsn(f.log), settled);
	cr_assert_eq(stat_of(&f, STAT_log_checkpoints), checkpoints);
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
	cr_assert_eq(stat_of(&f, STAT_flush_batches), 0, "the log alone");
	fixture_close(&f);
}

static bool is_half_clean(struct fixture *f)
{
	return dirty_count(f) <= POOL_FRAMES_MIN / 2;
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
		change_one(&f, page++ % 1000, 7, false);
	fixture_close(&f);
}

/* ------------------------------------------------------------ doublewrite */

static uint64_t survivor;

static bool survives(void *arg, uint64_t pageno)
{
	return pageno == *(uint64_t *)arg;
}

/* Puts a valid page with this value and LSN into a slot. */
static void put_slot(struct fixture *f, uint32_t slot, uint64_t pageno, uint64_t value, lsn_t lsn)
{
	uint8_t page[PAGE_SIZE_MIN], before[PAGE_SIZE_MIN];
	uint64_t offset = pageno * BLOCK_SIZE;

	check(dev_read(f->dev, before, sizeof(before), offset) == 0);
	fixture_put_page(f, pageno, value, lsn);
	check(dev_read(f->dev, page, sizeof(page), offset) == 0);
	check(dev_write(f->dev, page, sizeof(page),
			(f->volume->geo.dw_start + slot) * BLOCK_SIZE) == 0);
	check(dev_write(f->dev, before, sizeof(before), offset) == 0);
}

static void tear(struct fixture *f, uint64_t block)
{
	uint8_t sector[512];

	memset(sector, 0x5a, sizeof(sector));
	check(dev_write(f->dev, sector, sizeof(sector), block * BLOCK_SIZE + 1024) == 0);
}

/* The value in place after restoring between LSNs 1000 and 2000; 0: no valid page. */
static uint64_t restored(struct fixture *f, uint64_t pageno)
{
	uint64_t value;

	survivor = pageno;
	cr_assert_eq(doublewrite_restore(f->volume, 1000, 2000, survives, &survivor), 0);
	return fixture_value_in_place(f, pageno, &value) ? value : 0;
}

/* INV-REC-1, each condition. */
Test(doublewrite, restores_what_is_torn_and_nothing_else)
{
	struct fixture f;
	uint64_t pageno, other, value;

	fixture_open(&f, &(struct fixture_params){.no_log = true});
	pageno = fixture_page(&f, 0);
	other = fixture_page(&f, 1);
	cr_assert_eq(restored(&f, pageno), 0, "no copy at all");

	fixture_put_page(&f, pageno, 1, 900);
	put_slot(&f, 3, pageno, 2, 1500);
	cr_assert_eq(restored(&f, pageno), 1, "valid in place: left alone, be it older");

	tear(&f, pageno);
	survivor = other;
	cr_assert_eq(doublewrite_restore(f.volume, 1000, 2000, survives, &survivor), 0);
	cr_assert_not(fixture_value_in_place(&f, pageno, &value), "nothing in the log survives");
	cr_assert_eq(restored(&f, pageno), 2);
	cr_assert_eq(stat_of(&f, STAT_recovery_torn_repaired), 1);

	tear(&f, pageno);
	put_slot(&f, 1, pageno, 4, 1600);
	put_slot(&f, 9, pageno, 5, 1550);
	cr_assert_eq(restored(&f, pageno), 4, "the highest LSN");

	tear(&f, pageno);
	put_slot(&f, 2, pageno, 6, 2001);
	cr_assert_eq(restored(&f, pageno), 4, "not past the cut");

	tear(&f, pageno);
	tear(&f, f.volume->geo.dw_start + 1);
	cr_assert_eq(restored(&f, pageno), 5, "a torn copy is none");

	tear(&f, pageno);
	for (uint32_t slot = 0; slot < f.volume->geo.dw_slots; slot++)
		put_slot(&f, slot, pageno, 7, 999);
	cr_assert_eq(restored(&f, pageno), 0, "not below the checkpoint");
	for (uint32_t slot = 0; slot < f.volume->geo.dw_slots; slot++)
		put_slot(&f, slot, pageno, 7, 1000);
	f.volume->tag[0] ^= 1;
	cr_assert_eq(restored(&f, pageno), 0, "of another volume");
	f.volume->tag[0] ^= 1;
	cr_assert_eq(restored(&f, pageno), 7);
	fixture_close(&f);
}

Test(doublewrite, what_was_restored_is_durable)
{
	struct fixture f;
	struct device *state;
	bool varies;
	uint64_t pageno;
	uint8_t page[PAGE_SIZE_MIN];

	fixture_open(&f, &(struct fixture_params){.no_log = true});
	pageno = fixture_page(&f, 0);
	put_slot(&f, 0, pageno, 7, 1000);
	dev_record_start(f.dev);
	cr_assert_eq(restored(&f, pageno), 7);
	cr_assert_eq(dev_record_state(f.dev, dev_record_count(f.dev), CUT_DROP_ALL, 0, &state,
				      &varies), 0);
	cr_assert_eq(dev_read(state, page, sizeof(page), pageno * BLOCK_SIZE), 0);
	cr_assert_eq(page_verify(page, sizeof(page), pageno, f.volume->tag, NULL), 0);
	dev_close(state);
	fixture_close(&f);
}

Test(doublewrite, errors_are_returned)
{
	struct fixture f;
	uint64_t pageno;

	fixture_open(&f, &(struct fixture_params){.no_log = true});
	pageno = fixture_page(&f, 0);
	survivor = pageno;
	put_slot(&f, 0, pageno, 7, 1000);
	for (unsigned nth = 0; nth < 2; nth++) {
		dev_memory_fail(f.dev, FAULT_READ, nth, -EIO, false);
		cr_assert_eq(doublewrite_restore(f.volume, 1000, 2000, survives, &survivor), -EIO);
	}
	dev_memory_fail(f.dev, FAULT_WRITE, 0, -EIO, false);
	cr_assert_eq(doublewrite_restore(f.volume, 1000, 2000, survives, &survivor), -EIO);
	dev_memory_fail(f.dev, FAULT_FLUSH, 0, -EIO, false);
	cr_assert_eq(doublewrite_restore(f.volume, 1000, 2000, survives, &survivor), -EIO);
	fixture_close(&f);
}

/* --------------------------------------------------------------- recovery */

/* As recovery does it: far more pages than frames, and no log to append to. */
Test(flush, recovered_pages_are_written_through_doublewrite)
{
	struct fixture f;
	const unsigned pages = 600;
	struct redo redo;

	fixture_open(&f, &(struct fixture_params){.no_log = true});
	redo = (struct redo){.volume = f.volume, .reserved = 4096, .records = malloc(4096),
			     .body = malloc(BODY_BYTES_MAX(PAGE_SIZE_MIN))};
	for (unsigned i = 0; i < pages; i++) {
		struct frame *frame;

		cr_assert_eq(pool_take_tickets(f.pool, 1), 0);
		frame = fixture_new(&f, fixture_page(&f, i));
		latch_x(&frame->latch);
		redo.len = redo.changed_count = 0;
		fixture_stage(&redo, frame, 9 + i, true);
		pool_changed(frame, 100 + i, 101 + i);
		unlatch_x(&frame->latch);
		pool_put(frame);
		pool_give_tickets(f.pool, 1);
	}
	cr_assert_gt(dirty_count(&f), 0);
	cr_assert_eq(flush_recovered(f.flusher), 0);
	cr_assert_eq(dirty_count(&f), 0);
	expect_in_place(&f, pages, 9);
	free(redo.records);
	free(redo.body);
	fixture_close(&f);
}
