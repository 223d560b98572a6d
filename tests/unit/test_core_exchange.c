/* Two names change places: rename with CORE_RENAME_EXCHANGE. */
#include "tests/lib/core_rig.h"

#include <criterion/criterion.h>
#include <errno.h>

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

TestSuite(exchange, .init = setup, .fini = teardown);

static int exchange(uint64_t parent, const char *name, uint64_t other, const char *other_name)
{
	return core_rename(rig.core, VIEW_BASE, parent, name, strlen(name), other, other_name,
			   strlen(other_name), CORE_RENAME_EXCHANGE);
}

static uint64_t ino_of(uint64_t parent, const char *name)
{
	struct core_attr attr;

	if (rig_lookup(&rig, parent, name, &attr) != 0)
		return 0;
	core_forget(rig.core, attr.ino, 1);
	return attr.ino;
}

Test(exchange, files_of_one_directory)
{
	uint64_t a = rig_file(&rig, INO_ROOT, "a"), b = rig_file(&rig, INO_ROOT, "bee");
	struct core_attr before = rig_attr(&rig, INO_ROOT), after;

	cr_assert_eq(exchange(INO_ROOT, "a", INO_ROOT, "bee"), 0);
	cr_assert_eq(ino_of(INO_ROOT, "a"), b);
	cr_assert_eq(ino_of(INO_ROOT, "bee"), a);
	cr_assert_eq(rig_attr(&rig, a).nlink, 1);
	after = rig_attr(&rig, INO_ROOT);
	cr_assert_eq(after.nlink, before.nlink);
	cr_assert_eq(after.size, before.size);
	cr_assert_gt(after.change, before.change);
	rig_reopen(&rig, false);
	cr_assert_eq(ino_of(INO_ROOT, "a"), b);
}

Test(exchange, needs_both_names)
{
	uint64_t a = rig_file(&rig, INO_ROOT, "a");

	cr_assert_eq(exchange(INO_ROOT, "a", INO_ROOT, "b"), -ENOENT);
	cr_assert_eq(exchange(INO_ROOT, "b", INO_ROOT, "a"), -ENOENT);
	cr_assert_eq(exchange(INO_ROOT, "a", INO_ROOT, "a"), 0);
	cr_assert_eq(exchange(INO_ROOT, "a", a, "x"), -ENOTDIR);
	cr_assert_eq(exchange(INO_ROOT, "a", INO_ROOT, ".."), -EBUSY);
	cr_assert_eq(ino_of(INO_ROOT, "a"), a);
}

Test(exchange, two_names_of_one_inode_stay)
{
	uint64_t a = rig_file(&rig, INO_ROOT, "a");
	struct core_attr before;

	cr_assert_eq(rig_link(&rig, a, INO_ROOT, "b"), 0);
	before = rig_attr(&rig, a);
	cr_assert_eq(exchange(INO_ROOT, "a", INO_ROOT, "b"), 0);
	cr_assert_eq(rig_attr(&rig, a).change, before.change);
}

Test(exchange, a_file_and_a_full_directory)
{
	uint64_t d = rig_dir(&rig, INO_ROOT, "d"), sub = rig_dir(&rig, d, "sub");
	uint64_t f = rig_file(&rig, INO_ROOT, "f"), deep = rig_file(&rig, sub, "deep");

	cr_assert_eq(exchange(INO_ROOT, "f", d, "sub"), 0);
	cr_assert_eq(ino_of(INO_ROOT, "f"), sub);
	cr_assert_eq(ino_of(d, "sub"), f);
	cr_assert_eq(ino_of(sub, "deep"), deep);
	cr_assert_eq(ino_of(sub, ".."), INO_ROOT, "its parent is another one");
	cr_assert_eq(rig_attr(&rig, d).nlink, 2);
	cr_assert_eq(rig_attr(&rig, INO_ROOT).nlink, 4);
	cr_assert_eq(rig_rmdir(&rig, d, "sub"), -ENOTDIR);
	cr_assert_eq(exchange(d, "sub", INO_ROOT, "f"), 0);
	cr_assert_eq(ino_of(sub, ".."), d);
	cr_assert_eq(rig_attr(&rig, d).nlink, 3);
}

Test(exchange, directories_of_two_parents)
{
	uint64_t p = rig_dir(&rig, INO_ROOT, "p"), q = rig_dir(&rig, INO_ROOT, "q");
	uint64_t x = rig_dir(&rig, p, "x"), y = rig_dir(&rig, q, "y");

	cr_assert_eq(exchange(p, "x", q, "y"), 0);
	cr_assert_eq(ino_of(x, ".."), q);
	cr_assert_eq(ino_of(y, ".."), p);
	cr_assert_eq(rig_attr(&rig, p).nlink, 3);
	cr_assert_eq(rig_attr(&rig, q).nlink, 3);
}

/* INV-RENAME-1, for both of them. */
Test(exchange, no_directory_into_itself)
{
	uint64_t a = rig_dir(&rig, INO_ROOT, "a"), b = rig_dir(&rig, a, "b");
	uint64_t f = rig_file(&rig, b, "f");

	cr_assert_eq(exchange(INO_ROOT, "a", a, "b"), -EINVAL);
	cr_assert_eq(exchange(a, "b", INO_ROOT, "a"), -EINVAL);
	cr_assert_eq(exchange(INO_ROOT, "a", b, "f"), -EINVAL);
	cr_assert_eq(exchange(b, "f", INO_ROOT, "a"), -EINVAL);
	cr_assert_eq(ino_of(b, "f"), f);
}

Test(exchange, not_on_a_read_only_volume)
{
	cr_assert_neq(rig_file(&rig, INO_ROOT, "a"), 0);
	cr_assert_neq(rig_file(&rig, INO_ROOT, "b"), 0);
	rig_reopen_read_only(&rig);
	cr_assert_eq(exchange(INO_ROOT, "a", INO_ROOT, "b"), -EROFS);
}
