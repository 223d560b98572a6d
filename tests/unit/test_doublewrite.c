/*
 * Restoring torn pages: each condition of INV-REC-1.  That the running system
 * writes the copies that recovery needs is shown by tests/crash/crash_flush.c.
 */
#include "engine/doublewrite.h"
#include "tests/lib/pool_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>

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
	cr_assert_eq(fixture_stat(&f, STAT_recovery_torn_repaired), 1);

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
