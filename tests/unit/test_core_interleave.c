/*
 * Interleavings forced at the core's own points: what happens when somebody
 * else acts just there.  The core holds nothing at these points, so the handler
 * can be that somebody.
 */
#include "engine/flush.h"
#include "fs/core_internal.h"
#include "tests/lib/core_rig.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

static struct rig rig;
static const char *at;
static unsigned times;
static void (*act)(void);
static uint64_t dir;

/* Runs `act` at the first `times` arrivals at `at`, not at those that it causes itself. */
static void handler(const char *point)
{
	static bool inside;

	if (inside || times == 0 || strcmp(point, at))
		return;
	times--;
	inside = true;
	act();
	inside = false;
}

static void arm(const char *point, unsigned arrivals, void (*what)(void))
{
	at = point;
	times = arrivals;
	act = what;
}

static void setup(void)
{
	rig_open(&rig, 48u << 20, 4096, false);
	dir = rig_dir(&rig, INO_ROOT, "dir");
	os_linux_set_point_handler(handler);
}

static void teardown(void)
{
	os_linux_set_point_handler(NULL);
	rig_close(&rig);
}

TestSuite(interleave, .init = setup, .fini = teardown);

static uint64_t ino_of(uint64_t parent, const char *name)
{
	struct core_attr attr;

	return rig_lookup(&rig, parent, name, &attr) ? 0 : attr.ino;
}

static bool exists(uint64_t ino)
{
	struct core_attr attr;

	return core_getattr(rig.core, VIEW_BASE, ino, &attr) == 0;
}

/* --- look-up ------------------------------------------------------------- */

static void remove_and_purge(void)
{
	cr_assert_eq(rig_unlink(&rig, dir, "f"), 0);
	rig_purge(&rig);
}

/* The name is found, then it and its inode go. */
Test(interleave, lookup_of_what_is_removed)
{
	struct core_attr attr;

	rig_file(&rig, dir, "f");
	arm("core:found_name", 1, remove_and_purge);
	cr_assert_eq(rig_lookup(&rig, dir, "f", &attr), -ENOENT);
	cr_assert_eq(times, 0);
	rig_file(&rig, dir, "f");
	arm("core:looked_up", 1, remove_and_purge);
	cr_assert_eq(rig_lookup(&rig, dir, "f", &attr), -ENOENT);
	cr_assert_eq(times, 0);
	rig_purge(&rig);
	cr_assert_eq(inode_table_count(&rig.core->table), 0);
}

static void remove_check_and_purge(void)
{
	uint64_t ino = ino_of(dir, "f");

	cr_assert_eq(rig_unlink(&rig, dir, "f"), 0);
	rig_purge(&rig);
	cr_assert(exists(ino)); /* INV-INODE-3: the count was raised before this point */
}

Test(interleave, a_raised_count_keeps_purge_away)
{
	struct core_attr attr;

	rig_file(&rig, dir, "f");
	arm("core:looked_up", 1, remove_check_and_purge);
	cr_assert_eq(rig_lookup(&rig, dir, "f", &attr), -ENOENT);
	cr_assert_eq(times, 0);
}

static void replace(void)
{
	cr_assert_neq(rig_file(&rig, dir, "new"), 0);
	cr_assert_eq(rig_rename(&rig, dir, "new", dir, "f"), 0);
	rig_purge(&rig);
}

/* CASES 1: replaced each time it is found, it is still never missing. */
Test(interleave, lookup_of_what_is_replaced)
{
	struct core_attr attr;

	rig_file(&rig, dir, "f");
	arm("core:found_name", 20, replace);
	cr_assert_eq(rig_lookup(&rig, dir, "f", &attr), 0);
	cr_assert_eq(times, 0);
	cr_assert_eq(attr.nlink, 1);
	cr_assert_eq(attr.ino, ino_of(dir, "f"));
}

/* --- INV-LOCK-1 ---------------------------------------------------------- */

Test(interleave, unlink_takes_what_has_the_name_under_its_locks)
{
	uint64_t old = rig_file(&rig, dir, "f");

	arm("core:found_name", 3, replace);
	cr_assert_eq(rig_unlink(&rig, dir, "f"), 0);
	cr_assert_eq(times, 0);
	cr_assert_eq(ino_of(dir, "f"), 0);
	rig_purge(&rig);
	cr_assert_not(exists(old));
	cr_assert_eq(rig_attr(&rig, dir).size, 0);
}

static void make_directory_of_it(void)
{
	cr_assert_eq(rig_unlink(&rig, dir, "f"), 0);
	cr_assert_neq(rig_dir(&rig, dir, "f"), 0);
}

Test(interleave, unlink_finds_a_directory_instead)
{
	rig_file(&rig, dir, "f");
	arm("core:found_name", 1, make_directory_of_it);
	cr_assert_eq(rig_unlink(&rig, dir, "f"), -EISDIR);
	cr_assert_eq(rig_rmdir(&rig, dir, "f"), 0);
}

static void fill_directory(void)
{
	cr_assert_neq(rig_file(&rig, ino_of(dir, "d"), "x"), 0);
}

Test(interleave, rmdir_of_what_is_not_empty_any_more)
{
	rig_dir(&rig, dir, "d");
	arm("core:found_name", 1, fill_directory);
	cr_assert_eq(rig_rmdir(&rig, dir, "d"), -ENOTEMPTY);
	cr_assert_neq(ino_of(ino_of(dir, "d"), "x"), 0);
}

Test(interleave, rename_of_what_is_replaced)
{
	uint64_t old = rig_file(&rig, dir, "f"), target = rig_file(&rig, INO_ROOT, "to");

	arm("core:found_name", 2, replace);
	cr_assert_eq(rig_rename(&rig, dir, "f", INO_ROOT, "to"), 0);
	cr_assert_eq(ino_of(dir, "f"), 0);
	cr_assert_neq(ino_of(INO_ROOT, "to"), old);
	cr_assert_neq(ino_of(INO_ROOT, "to"), target);
	rig_purge(&rig);
	cr_assert_not(exists(target));
}

static void move_the_other_way(void)
{
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "b", ino_of(INO_ROOT, "a"), "b"), 0);
}

/* CASES 5 */
Test(interleave, two_directories_into_each_other)
{
	uint64_t a = rig_dir(&rig, INO_ROOT, "a"), b = rig_dir(&rig, INO_ROOT, "b");

	arm("core:found_name", 1, move_the_other_way);
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "a", b, "a"), -EINVAL);
	cr_assert_eq(ino_of(INO_ROOT, "a"), a);
	cr_assert_eq(ino_of(a, "b"), b);
	cr_assert_eq(rig_attr(&rig, INO_ROOT).nlink, 4);
	cr_assert_eq(rig_attr(&rig, a).nlink, 3);
}

static void replace_forever(void)
{
	times = 1;
	replace();
}

/* Overtaken again and again, an operation gives up instead of running for ever. */
Test(interleave, restarts_are_bounded)
{
	rig_file(&rig, dir, "f");
	arm("core:found_name", 1, replace_forever);
	cr_assert_eq(rig_unlink(&rig, dir, "f"), -EAGAIN);
	times = 0;
	cr_assert_eq(rig_unlink(&rig, dir, "f"), 0);
}

/* --- statfs's census ----------------------------------------------------- */

static void change_inodes(void)
{
	rig_file(&rig, dir, "made");
	cr_assert_eq(rig_unlink(&rig, dir, "f3"), 0);
	rig_purge(&rig);
}

/* INV-CENSUS-1: what comes and goes during the scan is counted once. */
Test(interleave, inodes_change_while_they_are_counted)
{
	struct statvfs s;
	char name[16];

	for (unsigned i = 0; i < 50; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		rig_file(&rig, dir, name);
	}
	rig_reopen(&rig, false);
	arm("census:scan", 1, change_inodes);
	cr_assert_eq(core_statfs(rig.core, VIEW_BASE, &s), 0);
	cr_assert_eq(times, 0);
	rig_purge(&rig);
	cr_assert_eq(core_statfs(rig.core, VIEW_BASE, &s), 0);
	cr_assert_eq(s.f_files - s.f_ffree, 52);
}

/* --- writers and readers: the other one is a thread, since here locks are held  */

static uint64_t file;
static pthread_t other;
static _Atomic bool other_done;

struct other_write {
	uint64_t offset;
	size_t len;
	uint8_t byte;
};
static struct other_write other_write;

static void *write_other(void *arg)
{
	uint8_t buf[16384];

	(void)arg;
	memset(buf, other_write.byte, sizeof(buf));
	cr_assert_eq(rig_write(&rig, file, other_write.offset, buf, other_write.len), 0);
	atomic_store(&other_done, true);
	return NULL;
}

/* Two in the queue of the file's ranges: one holds, the other waits. */
static bool somebody_waits(void)
{
	struct inode *inode;
	bool waits;

	cr_assert_eq(inode_pin(&rig.core->table, file, &inode), 0);
	latch_s(&inode->ranges.latch);
	waits = inode->ranges.head && inode->ranges.head->next &&
		!inode->ranges.head->next->granted;
	unlatch_s(&inode->ranges.latch);
	inode_unpin(&rig.core->table, inode);
	return waits;
}

/* The other writer runs until it is done or has to wait for us. */
static void let_other_write(void)
{
	atomic_store(&other_done, false);
	pthread_create(&other, NULL, write_other, NULL);
	while (!atomic_load(&other_done) && !somebody_waits())
		sched_yield();
}

static void make_file(size_t len)
{
	static uint8_t zeros[65536];

	file = rig_file(&rig, dir, "file");
	cr_assert_eq(rig_write(&rig, file, 0, zeros, len), 0);
}

static void expect_bytes(uint64_t offset, size_t len, uint8_t byte)
{
	uint8_t buf[16384];
	size_t done;

	cr_assert_eq(core_read(rig.core, VIEW_BASE, file, offset, buf, len, &done), 0);
	cr_assert_eq(done, len);
	for (size_t i = 0; i < len; i++)
		cr_assert_eq(buf[i], byte, "byte %zu of %lu", i, (unsigned long)offset);
}

/* INV-LOB-1: from the old contents of a block to its publication nobody else writes it. */
Test(interleave, writers_of_one_block)
{
	uint8_t ours[100];

	make_file(8192);
	memset(ours, 1, sizeof(ours));
	other_write = (struct other_write){.offset = 200, .len = 100, .byte = 2};
	arm("lob:written", 1, let_other_write);
	cr_assert_eq(rig_write(&rig, file, 50, ours, sizeof(ours)), 0);
	cr_assert_eq(times, 0);
	pthread_join(other, NULL);
	expect_bytes(0, 50, 0);
	expect_bytes(50, 100, 1);
	expect_bytes(150, 50, 0);
	expect_bytes(200, 100, 2);
}

/* INV-WRITE-2: both writers' changes of the record stay. */
Test(interleave, writers_of_disjoint_blocks_go_on_side_by_side)
{
	uint8_t ours[4096];

	make_file(8192);
	memset(ours, 1, sizeof(ours));
	other_write = (struct other_write){.offset = 16384, .len = 5000, .byte = 2};
	arm("lob:written", 1, let_other_write);
	cr_assert_eq(rig_write(&rig, file, 8192, ours, sizeof(ours)), 0);
	cr_assert_eq(times, 0);
	cr_assert(atomic_load(&other_done), "the other one had to wait");
	pthread_join(other, NULL);
	cr_assert_eq(rig_attr(&rig, file).size, 16384 + 5000);
	cr_assert_eq(rig_attr(&rig, file).blocks_512, 5 * 8);
	expect_bytes(8192, 4096, 1);
	expect_bytes(16384, 5000, 2);
}

/* Everything that can be reused is; the blocks that a reader may still read are not. */
static void *overwrite_and_reuse(void *arg)
{
	uint64_t filler = rig_file(&rig, dir, "filler");
	uint8_t junk[16384];

	memset(junk, 0xee, sizeof(junk));
	write_other(arg);
	cr_assert_eq(flush_everything(rig.volume->flusher), 0);
	space_advance(rig.volume->space);
	for (unsigned i = 0; i < 32; i++)
		cr_assert_eq(rig_write(&rig, filler, i * sizeof(junk), junk, sizeof(junk)), 0);
	return NULL;
}

static void let_other_reuse(void)
{
	pthread_create(&other, NULL, overwrite_and_reuse, NULL);
	pthread_join(other, NULL);
}

/* INV-LOB-4: a read that has its mappings reads what they name. */
Test(interleave, blocks_of_a_reader_are_not_reused)
{
	make_file(16384);
	other_write = (struct other_write){.offset = 0, .len = 16384, .byte = 2};
	arm("core:read_mapped", 1, let_other_reuse);
	expect_bytes(0, 16384, 0);
	cr_assert_eq(times, 0);
	expect_bytes(0, 16384, 2);
	cr_assert_eq(stat_read(&rig.volume->stats, STAT_lob_crc_errors), 0);
}

/* --- telling purge ------------------------------------------------------- */

static void count_kick(void *arg)
{
	++*(unsigned *)arg;
}

/* INV-INODE-4 */
Test(interleave, the_last_forget_of_an_orphan_tells_purge)
{
	unsigned kicks = 0;
	void (*idle)(void *) = rig.core->table.orphan_idle;
	uint64_t held = rig_held_file(&rig, dir, "held");

	rig_file(&rig, dir, "not held");
	rig.core->table.orphan_idle = count_kick;
	rig.core->table.arg = &kicks;
	cr_assert_eq(rig_unlink(&rig, dir, "held"), 0);
	cr_assert_eq(kicks, 0);
	core_forget(rig.core, held, 1);
	cr_assert_eq(kicks, 1);
	cr_assert_eq(rig_rename(&rig, dir, "not held", dir, "moved"), 0);
	cr_assert_eq(kicks, 1);
	rig_file(&rig, dir, "not held");
	cr_assert_eq(rig_rename(&rig, dir, "not held", dir, "moved"), 0);
	cr_assert_eq(kicks, 2);
	rig.core->table.orphan_idle = idle;
	rig.core->table.arg = rig.core;
}
