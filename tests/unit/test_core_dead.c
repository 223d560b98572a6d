/*
 * INV-LOB-2: what is cut off never comes back, also when there is too much of it
 * for one mini-transaction; and the fallbacks of writes to scattered files.
 */
#include "fs/core_internal.h"
#include "tests/lib/core_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB (1u << 20)
#define FILE_MIB 20u /* more blocks than a truncate drains itself */
#define CUT (5ull * MIB + 100)

static struct rig rig;
static uint64_t f;
static uint8_t buf[MIB], out[MIB];

static void setup(void)
{
	rig_open(&rig, 80u << 20, 4096, false);
	f = rig_file(&rig, INO_ROOT, "f");
}

static void teardown(void)
{
	rig_close(&rig);
}

TestSuite(dead, .init = setup, .fini = teardown);

static struct record record_of(uint64_t ino)
{
	struct record record;

	cr_assert_eq(record_read(rig.volume, ino, &record, NULL), 0);
	return record;
}

static bool has_dead(void)
{
	struct record record = record_of(f);

	return record_has_dead(&record);
}

static void fill_and_cut(void)
{
	rig_fill(buf, sizeof(buf), 1);
	for (unsigned i = 0; i < FILE_MIB; i++)
		cr_assert_eq(rig_write(&rig, f, (uint64_t)i * MIB, buf, MIB), 0);
	cr_assert_eq(rig_truncate(&rig, f, CUT), 0);
	cr_assert(has_dead());
}

static void expect_zeros(uint64_t from, uint64_t end)
{
	while (from < end) {
		size_t want = end - from < MIB ? end - from : MIB, done;

		cr_assert_eq(core_read(rig.core, VIEW_BASE, f, from, out, want, &done), 0);
		cr_assert_eq(done, want);
		for (size_t i = 0; i < done; i++)
			cr_assert_eq(out[i], 0, "old byte at %lu", (unsigned long)(from + i));
		from += done;
	}
}

static void expect_head(void)
{
	size_t done;

	cr_assert_eq(core_read(rig.core, VIEW_BASE, f, CUT - 100, out, 100, &done), 0);
	cr_assert_eq(memcmp(out, buf, 100), 0);
}

Test(dead, extending_over_a_dead_range_drains_it)
{
	struct core_attr attr;

	fill_and_cut();
	cr_assert_eq(rig_truncate(&rig, f, (uint64_t)FILE_MIB * MIB), 0);
	cr_assert_not(has_dead());
	expect_head();
	expect_zeros(CUT, (uint64_t)FILE_MIB * MIB);
	attr = rig_attr(&rig, f);
	cr_assert_eq(attr.blocks_512, (CUT / 4096 + 1) * 8);
}

Test(dead, writing_into_a_dead_range_drains_it)
{
	fill_and_cut();
	cr_assert_eq(rig_write(&rig, f, 100, "x", 1), 0); /* below it: no need */
	cr_assert(has_dead());
	cr_assert_eq(rig_write(&rig, f, 10ull * MIB, "x", 1), 0);
	cr_assert_not(has_dead());
	expect_head();
	expect_zeros(CUT, 10ull * MIB);
	cr_assert_eq(rig_truncate(&rig, f, 12ull * MIB), 0);
	expect_zeros(10ull * MIB + 1, 12ull * MIB);
}

Test(dead, the_range_outlives_a_crash)
{
	uint64_t end;

	fill_and_cut();
	cr_assert_eq(core_fsync(rig.core, VIEW_BASE, f, false), 0);
	rig_reopen(&rig, true);
	cr_assert(has_dead());
	cr_assert_eq(core_seek(rig.core, VIEW_BASE, f, 0, SEEK_HOLE, &end), 0);
	cr_assert_eq(end, CUT);
	expect_head();
	rig_purge(&rig);
	cr_assert_not(has_dead());
	cr_assert_eq(record_of(f).purge_key, 0);
	cr_assert_eq(rig_truncate(&rig, f, (uint64_t)FILE_MIB * MIB), 0);
	expect_zeros(CUT, (uint64_t)FILE_MIB * MIB);
}

/* Purge drains dead ranges of files that are open: only their locks count. */
Test(dead, an_open_file_is_drained_too)
{
	struct core_attr attr;

	cr_assert_eq(core_lookup(rig.core, VIEW_BASE, INO_ROOT, "f", 1, &attr), 0);
	fill_and_cut();
	rig_purge(&rig);
	cr_assert_not(has_dead());
	expect_head();
	core_forget(rig.core, f, 1);
}

Test(dead, cutting_again)
{
	fill_and_cut();
	cr_assert_eq(rig_truncate(&rig, f, 4096), 0);
	cr_assert_eq(rig_truncate(&rig, f, (uint64_t)FILE_MIB * MIB), 0);
	expect_zeros(4096, (uint64_t)FILE_MIB * MIB);
}

/* The LOB goes as a whole: its dead range's record becomes the LOB's. */
Test(dead, truncate_to_zero_and_unlink_take_the_range_along)
{
	struct statvfs before, after;

	rig_purge(&rig);
	cr_assert_eq(core_statfs(rig.core, VIEW_BASE, &before), 0);
	fill_and_cut();
	cr_assert_eq(rig_truncate(&rig, f, 0), 0);
	cr_assert_not(has_dead());
	cr_assert_eq(record_of(f).purge_key, 0);
	rig_purge(&rig);
	fill_and_cut();
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "f"), 0);
	rig_purge(&rig);
	cr_assert_eq(core_statfs(rig.core, VIEW_BASE, &after), 0);
	cr_assert_geq(after.f_bfree + 16, before.f_bfree);
}

Test(dead, of_an_orphan)
{
	struct core_attr attr;

	cr_assert_eq(core_lookup(rig.core, VIEW_BASE, INO_ROOT, "f", 1, &attr), 0);
	fill_and_cut();
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "f"), 0);
	cr_assert(has_dead());
	rig_purge(&rig);
	expect_head();
	cr_assert_eq(rig_truncate(&rig, f, 15ull * MIB), 0);
	expect_zeros(CUT, 15ull * MIB);
	for (unsigned i = 6; i < FILE_MIB; i++)
		cr_assert_eq(rig_write(&rig, f, (uint64_t)i * MIB, buf, MIB), 0);
	cr_assert_eq(rig_truncate(&rig, f, CUT), 0); /* now by an orphan itself */
	cr_assert_not(has_dead());
	cr_assert_neq(record_of(f).purge_key, 0);
	cr_assert_eq(rig_truncate(&rig, f, 15ull * MIB), 0);
	expect_zeros(CUT, 15ull * MIB);
	core_forget(rig.core, f, 1);
	rig_purge(&rig);
	cr_assert_eq(core_getattr(rig.core, VIEW_BASE, f, &attr), -ENOENT);
}

/* --- a write over blocks in more groups than one mini-transaction may touch  */

#define SCATTERED 24u

Test(scattered, writes_are_split_and_counted)
{
	struct rig wide;
	struct inode *inode;
	uint64_t g;
	size_t done;

	rig_open(&wide, 4ull << 30, 4096, false);
	g = rig_held_file(&wide, INO_ROOT, "g");
	cr_assert_eq(inode_pin(&wide.core->table, g, &inode), 0);
	cr_assert_geq(wide.volume->geo.group_count, SCATTERED);
	for (unsigned i = 0; i < SCATTERED; i++) {
		atomic_store(&inode->near_block, wide.volume->geo.groups_start +
			     (uint64_t)wide.volume->geo.group_blocks * i + 5000);
		cr_assert_eq(rig_write(&wide, g, i * 4096, buf, 4096), 0);
	}
	rig_fill(buf, sizeof(buf), 9);
	cr_assert_eq(rig_write(&wide, g, 10, buf, SCATTERED * 4096 - 20), 0);
	cr_assert_geq(stat_read(&wide.volume->stats, STAT_lob_split_publishes), 1);
	cr_assert_eq(core_read(wide.core, VIEW_BASE, g, 10, out, SCATTERED * 4096 - 20, &done), 0);
	cr_assert_eq(done, SCATTERED * 4096 - 20);
	cr_assert_eq(memcmp(out, buf, done), 0);
	cr_assert_eq(rig_attr(&wide, g).blocks_512, SCATTERED * 8);
	/* and a truncate of the like, which falls back to a dead range */
	for (unsigned i = 0; i < SCATTERED; i++) {
		atomic_store(&inode->near_block, wide.volume->geo.groups_start +
			     (uint64_t)wide.volume->geo.group_blocks * i + 6000);
		cr_assert_eq(rig_write(&wide, g, i * 4096, buf, 4096), 0);
	}
	cr_assert_eq(rig_truncate(&wide, g, 4096), 0);
	cr_assert_eq(rig_attr(&wide, g).blocks_512, 8);
	inode_unpin(&wide.core->table, inode);
	core_forget(wide.core, g, 1);
	rig_close(&wide);
}
