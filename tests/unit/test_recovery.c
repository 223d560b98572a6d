/*
 * Recovery, rule by rule: small logs made by hand, each of which shows what one
 * rule is for.  Power cuts are in tests/crash, threads in tests/race.
 */
#include "engine/recovery.h"
#include "engine/base/crc32c.h"
#include "engine/base/message.h"
#include "tests/lib/pool_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#define DATA_BLOCK(f) (fixture_page(f, 400))

static struct fixture f;
static struct fixture_params after_params; /* of the mount that recovers */

/* ------------------------------------------------------- logs made by hand */

static void begin(void)
{
	message_quiet(LOG_CRIT);
	fixture_open(&f, &(struct fixture_params){0});
	for (unsigned i = 0; i < 4; i++)
		fixture_put_page(&f, fixture_page(&f, i), 100 + i, LSN_FIRST);
}

static struct redo begin_mtr(void)
{
	struct redo redo;

	check(redo_begin(&redo, f.volume, 4096) == 0);
	return redo;
}

static void change(struct redo *redo, unsigned page, uint64_t value, bool init)
{
	uint64_t pageno = fixture_page(&f, page);
	struct frame *frame = init ? fixture_new(&f, pageno) : fixture_get(&f, pageno);

	latch_x(&frame->latch);
	fixture_stage(redo, frame, value, init);
}

static void free_page(struct redo *redo, unsigned page)
{
	redo_note(redo, REC_FREE_PAGE, varint_put(redo->body, fixture_page(&f, page)));
}

/* "One block was written": what is there is what its CRC says, or it is not. */
static void data(struct redo *redo, uint64_t block, uint8_t byte, bool written)
{
	uint8_t bytes[BLOCK_SIZE];
	size_t len = varint_put(redo->body, block);
	le32 crc;

	memset(bytes, byte, sizeof(bytes));
	crc = le32_make(crc32c(0, bytes, sizeof(bytes)));
	len += varint_put(redo->body + len, 1);
	memcpy(redo->body + len, &crc, sizeof(crc));
	redo_note(redo, REC_DATA, len + sizeof(crc));
	if (written)
		check(dev_write(f.dev, bytes, sizeof(bytes), block * BLOCK_SIZE) == 0);
}

static lsn_t end_mtr(struct redo *redo)
{
	lsn_t start = log_next_lsn(f.log);

	redo_commit(redo);
	for (unsigned i = 0; i < redo->changed_count; i++) {
		unlatch_x(&redo->changed[i].frame->latch);
		pool_put(redo->changed[i].frame);
	}
	redo_end(redo);
	return start;
}

static lsn_t change_one(unsigned page, uint64_t value)
{
	struct redo redo = begin_mtr();

	change(&redo, page, value, false);
	return end_mtr(&redo);
}

/* The process dies. */
static void die(void)
{
	struct device *dev = fixture_crash(&f);

	fixture_reopen(&f, &after_params, dev);
}

/* All of the log is written, then the process dies; recovery's result. */
static int recover(lsn_t *cut)
{
	check(log_flush(f.log, log_next_lsn(f.log)) == 0);
	die();
	return recovery_run(f.volume, FIXTURE_GENERATION + 1, cut);
}

static lsn_t recovered(void)
{
	lsn_t cut;

	cr_assert_eq(recover(&cut), 0);
	cr_assert_eq(fixture_stat(&f, STAT_corruptions), 0);
	return cut;
}

static void expect_value(unsigned page, uint64_t value)
{
	uint64_t found;

	cr_assert(fixture_value_in_place(&f, fixture_page(&f, page), &found));
	cr_assert_eq(found, value);
}

static void fill_place(unsigned page, uint8_t byte)
{
	uint8_t bytes[PAGE_SIZE_MIN];

	memset(bytes, byte, sizeof(bytes));
	check(dev_write(f.dev, bytes, sizeof(bytes), fixture_page(&f, page) * BLOCK_SIZE) == 0);
}

static void expect_place(unsigned page, uint8_t byte)
{
	uint8_t bytes[PAGE_SIZE_MIN];

	check(dev_read(f.dev, bytes, sizeof(bytes), fixture_page(&f, page) * BLOCK_SIZE) == 0);
	for (unsigned i = 0; i < sizeof(bytes); i++)
		cr_assert_eq(bytes[i], byte);
}

/* --------------------------------------------------------------- INV-REC-1 */

Test(recovery, changes_are_redone)
{
	begin();
	change_one(0, 1);
	change_one(1, 2);
	change_one(0, 3);
	recovered();
	expect_value(0, 3);
	expect_value(1, 2);
	expect_value(2, 102);
	cr_assert_eq(fixture_stat(&f, STAT_recovery_pages), 2);
	fixture_close(&f);
}

Test(recovery, a_freed_page_is_left_alone)
{
	struct redo redo;

	begin();
	change_one(0, 1);
	redo = begin_mtr();
	free_page(&redo, 0);
	end_mtr(&redo);
	fill_place(0, 0x77);
	recovered();
	expect_place(0, 0x77);
	cr_assert_eq(fixture_stat(&f, STAT_recovery_pages), 0);
	fixture_close(&f);
}

Test(recovery, a_page_that_is_initialised_is_not_read)
{
	struct redo redo;

	begin();
	change_one(0, 1);
	redo = begin_mtr();
	free_page(&redo, 0);
	end_mtr(&redo);
	redo = begin_mtr();
	change(&redo, 0, 7, true);
	end_mtr(&redo);
	change_one(0, 8);
	fill_place(0, 0x77);
	recovered();
	expect_value(0, 8);
	cr_assert_eq(fixture_stat(&f, STAT_pool_misses), 0);
	fixture_close(&f);
}

/* What is void is decided below the cut: the FREE_PAGE that is cut off frees nothing. */
Test(recovery, a_free_above_the_cut_does_not_count)
{
	struct redo redo;
	lsn_t start;

	begin();
	change_one(0, 1);
	redo = begin_mtr();
	free_page(&redo, 0);
	data(&redo, DATA_BLOCK(&f), 5, false);
	start = end_mtr(&redo);
	change_one(1, 2);
	cr_assert_eq(recovered(), start);
	expect_value(0, 1);
	expect_value(1, 101);
	cr_assert_eq(fixture_stat(&f, STAT_recovery_pages), 1);
	fixture_close(&f);
}

Test(recovery, an_initialisation_above_the_cut_does_not_count)
{
	struct redo redo;
	lsn_t start;

	begin();
	change_one(0, 1);
	redo = begin_mtr();
	change(&redo, 0, 9, true);
	data(&redo, DATA_BLOCK(&f), 5, false);
	start = end_mtr(&redo);
	cr_assert_eq(recovered(), start);
	expect_value(0, 1);
	fixture_close(&f);
}

/* A torn page is restored if there is something to redo on it, and only then. */
Test(recovery, a_torn_page_is_restored_unless_it_was_freed)
{
	for (unsigned freed = 0; freed < 2; freed++) {
		uint8_t page[PAGE_SIZE_MIN];
		uint64_t offset;

		begin();
		change_one(0, 1);
		if (freed) {
			struct redo redo = begin_mtr();

			free_page(&redo, 0);
			end_mtr(&redo);
		}
		offset = fixture_page(&f, 0) * BLOCK_SIZE;
		check(dev_read(f.dev, page, sizeof(page), offset) == 0);
		offset = f.volume->geo.dw_start * BLOCK_SIZE;
		check(dev_write(f.dev, page, sizeof(page), offset) == 0);
		fill_place(0, 0x77);
		recovered();
		if (freed)
			expect_place(0, 0x77);
		else
			expect_value(0, 1);
		cr_assert_eq(fixture_stat(&f, STAT_recovery_torn_repaired), !freed);
		fixture_close(&f);
	}
}

/* ------------------------------------------------------ INV-LOG-5: the cut */

Test(recovery, the_log_is_cut_before_the_first_entry_without_its_data)
{
	struct redo redo;
	lsn_t start;

	begin();
	redo = begin_mtr();
	change(&redo, 0, 1, false);
	data(&redo, DATA_BLOCK(&f), 5, true);
	end_mtr(&redo);
	redo = begin_mtr();
	change(&redo, 0, 2, false);
	data(&redo, DATA_BLOCK(&f) + 1, 6, true);
	data(&redo, DATA_BLOCK(&f) + 2, 7, false);
	start = end_mtr(&redo);
	redo = begin_mtr();
	change(&redo, 0, 3, false);
	data(&redo, DATA_BLOCK(&f) + 3, 8, false);
	end_mtr(&redo);
	cr_assert_eq(recovered(), start);
	expect_value(0, 1);
	cr_assert_eq(fixture_stat(&f, STAT_recovery_mtrs), 2, "the group's mark, one change");
	fixture_close(&f);
}

/* Blocks may be used again once a mark covers their freeing: then nobody looks at them. */
Test(recovery, data_below_a_mark_is_not_read)
{
	struct redo redo;

	begin();
	redo = begin_mtr();
	change(&redo, 0, 1, false);
	data(&redo, DATA_BLOCK(&f), 5, false);
	end_mtr(&redo);
	check(log_mark(f.log, log_next_lsn(f.log)) == 0);
	change_one(1, 2);
	recovered();
	expect_value(0, 1);
	expect_value(1, 2);
	fixture_close(&f);
}

/* The mark is in the checkpoint block only: the group after the entry was never written. */
Test(recovery, data_below_the_mark_of_the_checkpoint_is_not_read)
{
	struct redo redo;
	lsn_t cut;

	begin();
	redo = begin_mtr();
	change(&redo, 0, 1, false);
	data(&redo, DATA_BLOCK(&f), 5, false);
	end_mtr(&redo);
	check(log_mark(f.log, log_next_lsn(f.log)) == 0);
	check(log_checkpoint(f.log, log_checkpoint_lsn(f.log)) == 0);
	die();
	cr_assert_gt(log_found_checkpoint(f.log)->marked_lsn, log_found_checkpoint(f.log)->lsn);
	cr_assert_eq(recovery_run(f.volume, FIXTURE_GENERATION + 1, &cut), 0);
	expect_value(0, 1);
	fixture_close(&f);
}

/* The first to find something says so when another one has found more, and before him. */
static void meet(const char *name)
{
	static _Atomic unsigned arrived;
	bool first;

	if (strcmp(name, "recovery:failed") != 0)
		return;
	first = atomic_fetch_add(&arrived, 1) == 0;
	for (unsigned i = 0; i < 3000 && !(first && atomic_load(&arrived) > 1); i++)
		sched_yield();
}

/* Many entries to verify: the lowest that fails decides, whoever finds it. */
Test(recovery, the_cut_is_at_the_lowest_of_many)
{
	lsn_t start = 0;

	begin();
	after_params.background = true;
	os_linux_set_point_handler(meet);
	for (unsigned i = 0; i < 300; i++) {
		struct redo redo = begin_mtr();
		lsn_t at;

		change(&redo, 0, i, false);
		data(&redo, DATA_BLOCK(&f) + i, (uint8_t)i, i < 200 || i % 7 == 0);
		at = end_mtr(&redo);
		if (i == 200)
			start = at;
	}
	cr_assert_eq(recovered(), start);
	os_linux_set_point_handler(NULL);
	expect_value(0, 199);
	fixture_close(&f);
}

/* ------------------------------------------------------------------ damage */

static void nonsense(struct redo *redo)
{
	redo_note(redo, REC_FREE_PAGE, varint_put(redo->body, f.volume->geo.block_count));
}

Test(recovery, nonsense_in_the_log_is_damage)
{
	struct redo redo;
	lsn_t cut;

	begin();
	change_one(0, 1);
	redo = begin_mtr();
	nonsense(&redo);
	end_mtr(&redo);
	change_one(0, 2);
	cr_assert_eq(recover(&cut), -BE_DAMAGE);
	expect_value(0, 100);
	fixture_close(&f);
}

Test(recovery, nonsense_above_the_cut_is_cut_off)
{
	struct redo redo;

	begin();
	change_one(0, 1);
	redo = begin_mtr();
	data(&redo, DATA_BLOCK(&f), 5, false);
	end_mtr(&redo);
	redo = begin_mtr();
	nonsense(&redo);
	end_mtr(&redo);
	recovered();
	expect_value(0, 1);
	fixture_close(&f);
}

/* INV-LOG-5: what a mark has called durable has to be there. */
Test(recovery, a_log_that_ends_below_a_mark_is_damage)
{
	lsn_t start, cut;
	uint8_t byte;
	uint64_t at;

	begin();
	start = change_one(0, 1);
	check(log_mark(f.log, log_next_lsn(f.log)) == 0);
	at = f.volume->geo.log_start * BLOCK_SIZE + LOG_RECORDS_START + (start - LSN_FIRST) + 40;
	check(dev_read(f.dev, &byte, 1, at) == 0);
	byte ^= 1;
	check(dev_write(f.dev, &byte, 1, at) == 0);
	cr_assert_eq(recover(&cut), -BE_DAMAGE);
	expect_value(0, 100);
	fixture_close(&f);
}

Test(recovery, a_page_from_the_future_is_damage)
{
	lsn_t cut;

	begin();
	change_one(0, 1);
	fixture_put_page(&f, fixture_page(&f, 0), 9, log_next_lsn(f.log) + 100000);
	cr_assert_eq(recover(&cut), -EIO);
	cr_assert_eq(fixture_stat(&f, STAT_corruptions), 1);
	fixture_close(&f);
}

Test(recovery, changes_that_are_in_place_are_not_redone)
{
	begin();
	change_one(0, 1);
	change_one(0, 2);
	/* As if written after the second change, with contents that tell. */
	fixture_put_page(&f, fixture_page(&f, 0), 55, log_next_lsn(f.log));
	change_one(1, 3);
	recovered();
	expect_value(0, 55);
	expect_value(1, 3);
	fixture_close(&f);
}

/* They are completed once the volume is open; here it is only noted that they are there. */
Test(recovery, incomplete_splits_are_noted)
{
	const struct key high = {.len = 1, .bytes = "b"};
	struct redo redo;

	begin();
	redo = begin_mtr();
	change(&redo, 0, 1, false);
	redo_page(&redo, redo.changed[0].frame, REC_SPLIT_LEFT,
		  redo_split_left(redo.body, 1, &high, fixture_page(&f, 3)));
	end_mtr(&redo);
	recovered();
	cr_assert_eq(f.volume->incomplete_count, 1);
	cr_assert_eq(f.volume->incomplete[0].index, FIXTURE_INDEX);
	cr_assert_eq(f.volume->incomplete[0].level, 0);
	free(f.volume->incomplete);
	fixture_close(&f);
}

/* --------------------------------------------------------- INV-LOG-6, order */

static unsigned met;

static void expect_order(const char *name)
{
	uint64_t value;

	if (strcmp(name, "recovery:in_place") != 0 && strcmp(name, "log:checkpoint") != 0)
		return;
	/* Everything is in place, durably, before the first checkpoint block is written. */
	check(fixture_value_in_place(&f, fixture_page(&f, 0), &value) && value == 1);
	if (strcmp(name, "recovery:in_place") == 0)
		check(atomic_load(&f.dev->flushed) == atomic_load(&f.dev->written));
	met++;
}

Test(recovery, pages_are_durably_in_place_before_the_log_starts_anew)
{
	lsn_t cut;

	begin();
	change_one(0, 1);
	check(log_flush(f.log, log_next_lsn(f.log)) == 0);
	die();
	os_linux_set_point_handler(expect_order);
	cr_assert_eq(recovery_run(f.volume, FIXTURE_GENERATION + 1, &cut), 0);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(met, 3, "in place, then two blocks");
	fixture_close(&f);
}
