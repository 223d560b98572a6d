/* Full volumes, by the core's calls: space that comes back in small pieces can be used. */
#include "engine/base/os.h"
#include "fs/inode_table.h"
#include "tests/lib/core_rig.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB (1ull << 20)
#define FILE_BYTES 5000u /* two blocks: half of the smallest page-shaped piece */

static const char *name_of(const char *prefix, unsigned i)
{
	static char name[32];

	snprintf(name, sizeof(name), "%s%u", prefix, i);
	return name;
}

/* 0, or what the create or the write said; a file that could not be written is removed. */
static int make_file(struct rig *rig, const char *name, size_t len)
{
	static uint8_t bytes[FILE_BYTES + 8];
	struct core_attr attr;
	int rc = core_create(rig->core, VIEW_BASE, &rig_cred, INO_ROOT, name, strlen(name),
			     S_IFREG | 0644, 0, &attr);

	if (rc)
		return rc;
	rig_fill(bytes, len, attr.ino);
	rc = rig_write(rig, attr.ino, 0, bytes, len);
	core_forget(rig->core, attr.ino, 1);
	if (rc)
		cr_assert_eq(rig_unlink(rig, INO_ROOT, name), 0);
	return rc;
}

static unsigned make_files(struct rig *rig, const char *prefix, size_t len)
{
	unsigned count = 0;
	int rc;

	while ((rc = make_file(rig, name_of(prefix, count), len)) == 0)
		count++;
	cr_assert_eq(rc, -ENOSPC);
	return count;
}

static struct statvfs statfs_of(struct rig *rig)
{
	struct statvfs st;

	cr_assert_eq(core_statfs(rig->core, VIEW_BASE, &st), 0);
	return st;
}

static void unlink_files(struct rig *rig, const char *prefix, unsigned count, unsigned step)
{
	for (unsigned i = 0; i < count; i += step)
		cr_assert_eq(rig_unlink(rig, INO_ROOT, name_of(prefix, i)), 0);
	rig_purge(rig);
}

/*
 * Every second small file of a full volume is removed: half of it is free, and no
 * piece for a page anywhere.  As many can be made again.
 */
static void refill(uint32_t page_size, uint64_t size_bytes)
{
	struct rig rig;
	struct statvfs empty, full;
	unsigned first, again;

	rig_open(&rig, size_bytes, page_size, false);
	empty = statfs_of(&rig);
	first = make_files(&rig, "a", FILE_BYTES);
	full = statfs_of(&rig);
	cr_assert_lt(full.f_bavail, empty.f_blocks / 100);
	cr_assert_gt(full.f_bfree, empty.f_blocks / 100);
	unlink_files(&rig, "a", first, 2);
	cr_assert_gt(statfs_of(&rig).f_bavail, first * 9 / 10);
	again = make_files(&rig, "b", FILE_BYTES);
	cr_assert_gt(again, first / 2 * 9 / 10, "%u, then only %u of %u", first, again, first / 2);
	cr_assert_lt(statfs_of(&rig).f_bavail, empty.f_blocks / 100);
	for (unsigned i = 1; i < first; i += 2)
		cr_assert_eq(rig_unlink(&rig, INO_ROOT, name_of("a", i)), 0);
	unlink_files(&rig, "b", again, 1);
	cr_assert_gt(statfs_of(&rig).f_bfree, empty.f_bfree * 99 / 100);
	cr_assert_gt(make_files(&rig, "c", FILE_BYTES), first * 9 / 10);
	rig_close(&rig);
}

Test(core_full, room_in_small_pieces_can_be_used)
{
	refill(4096, 16 * MIB);
	refill(16384, 32 * MIB);
	refill(65536, 64 * MIB);
}

/* Contents within the inodes want nothing but pages. */
Test(core_full, inodes_find_pages_between_data)
{
	struct rig rig;
	unsigned first, again;

	rig_open(&rig, 32 * MIB, 16384, false);
	first = make_files(&rig, "a", FILE_BYTES);
	unlink_files(&rig, "a", first, 2);
	again = make_files(&rig, "b", 100);
	cr_assert_gt(again, 500, "only %u", again);
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "a1", INO_ROOT, "a_name_of_another_length"), 0);
	unlink_files(&rig, "b", again, 1);
	rig_close(&rig);
}

/* The smallest volumes there are: what frees space works when they are full, then all is back. */
static void smallest(uint32_t page_size)
{
	struct rig rig;
	struct statvfs empty;
	struct core_attr attr;
	unsigned count, small;

	rig_open(&rig, (uint64_t)page_size * (256 + 64 + 12), page_size, false);
	empty = statfs_of(&rig);
	cr_assert_lt(empty.f_blocks, 70 * page_size / BLOCK_SIZE);
	cr_assert_gt(empty.f_bavail, 40 * page_size / BLOCK_SIZE);
	count = make_files(&rig, "a", FILE_BYTES);
	cr_assert_gt(count, 30 * page_size / 2 / BLOCK_SIZE, "only %u", count);
	small = make_files(&rig, "s", 10);
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "a0", INO_ROOT, "a_longer_name"), 0);
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "a1", INO_ROOT, "a2"), 0);
	cr_assert_eq(rig_lookup(&rig, INO_ROOT, "a3", &attr), 0);
	cr_assert_eq(rig_truncate(&rig, attr.ino, 4200), 0);
	cr_assert_eq(rig_truncate(&rig, attr.ino, 0), 0);
	rig_reopen(&rig, true);
	for (unsigned i = 3; i < count; i++)
		cr_assert_eq(rig_unlink(&rig, INO_ROOT, name_of("a", i)), 0);
	unlink_files(&rig, "s", small, 1);
	cr_assert_gt(statfs_of(&rig).f_bavail, empty.f_bavail * 8 / 10);
	cr_assert_eq(make_file(&rig, "again", FILE_BYTES), 0);
	rig_close(&rig);
}

Test(core_full, the_smallest_volumes)
{
	for (uint32_t page_size = PAGE_SIZE_MIN; page_size <= PAGE_SIZE_MAX; page_size *= 2)
		smallest(page_size);
}

/* A write that was acknowledged elsewhere finds no room: told until something has come free. */
Test(core_full, a_noted_shortage_lasts_until_something_is_free)
{
	struct core_attr attr;
	struct rig rig;
	unsigned count;

	rig_open(&rig, 16 * MIB, 4096, false);
	cr_assert_eq(core_create(rig.core, VIEW_BASE, &rig_cred, INO_ROOT, "late", 4,
				 S_IFREG | 0644, 0, &attr), 0);
	count = make_files(&rig, "a", FILE_BYTES);
	cr_assert_eq(core_shortage(rig.core, VIEW_BASE, attr.ino), 0, "nobody has noted one");
	core_shortage_note(rig.core, VIEW_BASE, attr.ino);
	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(core_shortage(rig.core, VIEW_BASE, attr.ino), -ENOSPC);
	/* Another file's business stays its own. */
	cr_assert_eq(core_shortage(rig.core, VIEW_BASE, attr.ino + 1), 0);

	/* What purge has yet to give back counts: the asking drains it. */
	for (unsigned i = 0; i < count / 2; i++)
		cr_assert_eq(rig_unlink(&rig, INO_ROOT, name_of("a", i)), 0);
	cr_assert_eq(core_shortage(rig.core, VIEW_BASE, attr.ino), 0);
	/* It is over, whatever comes next. */
	cr_assert_gt(make_files(&rig, "b", FILE_BYTES), count / 4);
	cr_assert_eq(core_shortage(rig.core, VIEW_BASE, attr.ino), 0);

	/* With the last look-up the note goes as well. */
	core_shortage_note(rig.core, VIEW_BASE, attr.ino);
	cr_assert_eq(core_shortage(rig.core, VIEW_BASE, attr.ino), -ENOSPC);
	core_forget(rig.core, attr.ino, 1);
	cr_assert_eq(core_shortage(rig.core, VIEW_BASE, attr.ino), 0);
	rig_close(&rig);
}

static uint64_t ahead_ns;

static uint64_t later_ns(const struct os *os)
{
	(void)os;
	return os_linux.mono_ns(&os_linux) + ahead_ns;
}

/* INV-INODE-10: attributes that must not be cached are wanted for reading, too. */
Test(core_full, a_shortage_is_not_told_to_who_may_be_reading)
{
	struct os os = os_linux;
	struct core_attr attr;
	struct rig rig;

	os.mono_ns = later_ns;
	os_set_current(&os);
	rig_open(&rig, 16 * MIB, 4096, false);
	cr_assert_eq(core_create(rig.core, VIEW_BASE, &rig_cred, INO_ROOT, "late", 4,
				 S_IFREG | 0644, 0, &attr), 0);
	cr_assert_gt(make_files(&rig, "a", FILE_BYTES), 0);
	core_shortage_note(rig.core, VIEW_BASE, attr.ino);
	for (unsigned i = 0; i < 2; i++) {
		cr_assert_eq(core_shortage(rig.core, VIEW_BASE, attr.ino), -ENOSPC);
		if (i == 0)
			cr_assert_eq(rig_link(&rig, attr.ino, INO_ROOT, "other"), 0);
		else
			cr_assert_eq(rig_unlink(&rig, INO_ROOT, "late"), 0);
		cr_assert_eq(core_shortage(rig.core, VIEW_BASE, attr.ino), 1);
		cr_assert_eq(core_shortage(rig.core, VIEW_BASE, attr.ino), 1, "not settled");
		ahead_ns += LINKS_SETTLE_NS;
		cr_assert_eq(core_shortage(rig.core, VIEW_BASE, attr.ino), 1, "now they are");
	}
	cr_assert_eq(core_shortage(rig.core, VIEW_BASE, attr.ino), -ENOSPC);
	core_forget(rig.core, attr.ino, 1);
	rig_close(&rig);
	os_set_current(NULL);
}
