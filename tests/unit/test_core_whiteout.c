/* What moves leaves a whiteout behind: core_rename_whiteout(). */
#include "tests/lib/core_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

static struct rig rig;

static void setup(void)
{
	rig_open(&rig, 16u << 20, 4096, false);
}

static void teardown(void)
{
	cr_assert_eq(rig_problems(&rig), 0);
	rig_close(&rig);
}

TestSuite(whiteout, .init = setup, .fini = teardown);

static const struct core_cred someone = {.uid = 1000, .gid = 1001, .umask = 0};

static int white(uint64_t parent, const char *name, uint64_t to, const char *to_name,
		 unsigned flags)
{
	return core_rename_whiteout(rig.core, VIEW_BASE, &someone, parent, name, strlen(name), to,
				    to_name, strlen(to_name), flags);
}

/* Of inode 0: there is none. */
static struct core_attr named(uint64_t parent, const char *name)
{
	struct core_attr attr = {0};

	if (rig_lookup(&rig, parent, name, &attr) == 0)
		core_forget(rig.core, attr.ino, 1);
	return attr;
}

static uint64_t inodes(void)
{
	struct statvfs s;

	cr_assert_eq(core_statfs(rig.core, VIEW_BASE, &s), 0);
	return s.f_files - s.f_ffree;
}

static void expect_whiteout(uint64_t parent, const char *name)
{
	struct core_attr attr = named(parent, name);

	cr_expect_eq(attr.mode, S_IFCHR);
	cr_expect_eq(attr.rdev, 0);
	cr_expect_eq(attr.nlink, 1);
	cr_expect_eq(attr.uid, 1000);
	cr_expect_eq(attr.size, 0);
}

Test(whiteout, stays_behind_a_file)
{
	uint64_t d = rig_dir(&rig, INO_ROOT, "d"), a = rig_file(&rig, INO_ROOT, "a");
	uint64_t before = inodes();
	struct core_attr root = rig_attr(&rig, INO_ROOT);

	cr_assert_eq(white(INO_ROOT, "a", d, "b", CORE_RENAME_NOREPLACE), 0);
	cr_expect_eq(named(d, "b").ino, a);
	expect_whiteout(INO_ROOT, "a");
	cr_expect_eq(named(INO_ROOT, "a").gid, 1001);
	cr_expect_eq(inodes(), before + 1);
	cr_expect_eq(rig_attr(&rig, INO_ROOT).size, root.size);
	cr_expect_eq(rig_attr(&rig, INO_ROOT).nlink, root.nlink);
	rig_reopen(&rig, false);
	expect_whiteout(INO_ROOT, "a");
	cr_expect_eq(inodes(), before + 1);
	cr_expect_eq(rig_unlink(&rig, INO_ROOT, "a"), 0);
	rig_purge(&rig);
	cr_expect_eq(inodes(), before);
}

Test(whiteout, stays_behind_a_directory_that_replaces_one)
{
	uint64_t d = rig_dir(&rig, INO_ROOT, "d"), e = rig_dir(&rig, INO_ROOT, "e");
	uint64_t moved = rig_dir(&rig, d, "x");

	rig_dir(&rig, e, "y");
	cr_assert_eq(white(d, "x", e, "y", 0), 0);
	cr_expect_eq(named(e, "y").ino, moved);
	cr_expect_eq(named(moved, "..").ino, e);
	expect_whiteout(d, "x");
	cr_expect_eq(rig_attr(&rig, d).nlink, 2);
	cr_expect_eq(rig_attr(&rig, e).nlink, 3);
	cr_expect_eq(rig_rmdir(&rig, INO_ROOT, "d"), -ENOTEMPTY);
	cr_expect_eq(white(INO_ROOT, "e", e, "z", 0), -EINVAL);
	cr_expect_eq(white(e, "y", INO_ROOT, "e2", 0), 0);
	expect_whiteout(e, "y");
	cr_expect_eq(rig_attr(&rig, e).nlink, 2);
}

Test(whiteout, is_itself_moved_and_replaced)
{
	uint64_t a = rig_file(&rig, INO_ROOT, "a"), first;

	cr_assert_eq(white(INO_ROOT, "a", INO_ROOT, "b", 0), 0);
	first = named(INO_ROOT, "a").ino;
	cr_assert_eq(white(INO_ROOT, "a", INO_ROOT, "c", 0), 0);
	cr_expect_eq(named(INO_ROOT, "c").ino, first);
	expect_whiteout(INO_ROOT, "a");
	cr_expect_neq(named(INO_ROOT, "a").ino, first);
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "b", INO_ROOT, "a"), 0);
	cr_expect_eq(named(INO_ROOT, "a").ino, a);
}

Test(whiteout, belongs_to_the_group_of_a_setgid_directory)
{
	uint64_t d = rig_dir(&rig, INO_ROOT, "d");
	struct core_attr attr = {.mode = 02777, .gid = 77};

	rig_file(&rig, d, "a");
	cr_assert_eq(core_setattr(rig.core, VIEW_BASE, d, CORE_SET_MODE | CORE_SET_GID, &attr), 0);
	cr_assert_eq(white(d, "a", d, "b", 0), 0);
	expect_whiteout(d, "a");
	cr_expect_eq(named(d, "a").gid, 77);
}

Test(whiteout, is_not_left_where_nothing_moves)
{
	uint64_t a = rig_file(&rig, INO_ROOT, "a"), before;

	cr_assert_eq(rig_link(&rig, a, INO_ROOT, "l"), 0);
	before = inodes();
	cr_expect_eq(white(INO_ROOT, "a", INO_ROOT, "l", 0), 0);
	cr_expect_eq(white(INO_ROOT, "a", INO_ROOT, "a", 0), 0);
	cr_expect_eq(white(INO_ROOT, "x", INO_ROOT, "y", 0), -ENOENT);
	cr_expect_eq(white(INO_ROOT, "a", INO_ROOT, "l", CORE_RENAME_NOREPLACE), -EEXIST);
	cr_expect_eq(white(INO_ROOT, "a", INO_ROOT, "l", CORE_RENAME_EXCHANGE), -EINVAL);
	cr_expect_eq(named(INO_ROOT, "a").ino, a);
	cr_expect_eq(named(INO_ROOT, "l").ino, a);
	cr_expect_eq(inodes(), before);
}
