/* Files that are made without a name: core_tmpfile(), and core_link() of them. */
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
	rig_close(&rig); /* checks the volume */
}

TestSuite(tmpfile, .init = setup, .fini = teardown);

static uint64_t make(uint64_t parent)
{
	struct core_attr attr;

	cr_assert_eq(core_tmpfile(rig.core, VIEW_BASE, &rig_cred, parent, 0640, &attr), 0);
	cr_assert_eq(attr.nlink, 0);
	cr_assert_eq(attr.mode, S_IFREG | 0640);
	return attr.ino;
}

static bool exists(uint64_t ino)
{
	struct core_attr attr;

	return core_getattr(rig.core, VIEW_BASE, ino, &attr) == 0;
}

Test(tmpfile, lives_while_it_is_looked_up)
{
	struct core_attr root = rig_attr(&rig, INO_ROOT);
	uint64_t ino = make(INO_ROOT);

	cr_assert_eq(rig_write(&rig, ino, 0, "text", 4), 0);
	rig_purge(&rig);
	cr_assert_eq(rig_attr(&rig, ino).size, 4);
	cr_assert_eq(rig_attr(&rig, INO_ROOT).change, root.change, "the directory is as before");
	core_forget(rig.core, ino, 1);
	rig_purge(&rig);
	cr_assert(!exists(ino));
}

Test(tmpfile, gets_a_name_and_keeps_its_contents)
{
	static uint8_t big[30000], read[30000];
	uint64_t d = rig_dir(&rig, INO_ROOT, "d"), ino = make(d);
	struct core_attr attr;
	size_t done;

	rig_fill(big, sizeof(big), 1);
	cr_assert_eq(rig_write(&rig, ino, 0, big, sizeof(big)), 0);
	cr_assert_eq(rig_link(&rig, ino, d, "named"), 0);
	core_forget(rig.core, ino, 1);
	rig_purge(&rig);
	rig_reopen(&rig, false);
	rig_purge(&rig);
	cr_assert_eq(rig_lookup(&rig, d, "named", &attr), 0);
	cr_assert_eq(attr.ino, ino);
	cr_assert_eq(attr.nlink, 1);
	cr_assert_eq(core_read(rig.core, VIEW_BASE, ino, 0, read, sizeof(read), &done), 0);
	cr_assert_eq(memcmp(read, big, sizeof(big)), 0);
	cr_assert_eq(rig_unlink(&rig, d, "named"), 0);
	rig_purge(&rig);
	cr_assert(!exists(ino));
}

/* Once it had a name it is like any other: what loses its last one gets no new one. */
Test(tmpfile, only_the_first_name_is_for_free)
{
	uint64_t ino = make(INO_ROOT);

	cr_assert_eq(rig_link(&rig, ino, INO_ROOT, "a"), 0);
	cr_assert_eq(rig_link(&rig, ino, INO_ROOT, "b"), 0);
	cr_assert_eq(rig_attr(&rig, ino).nlink, 2);
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "a"), 0);
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "b"), 0);
	cr_assert_eq(rig_link(&rig, ino, INO_ROOT, "c"), -ENOENT);
	rig_purge(&rig);
	cr_assert(exists(ino));
	core_forget(rig.core, ino, 1);
	rig_purge(&rig);
	cr_assert(!exists(ino));
}

Test(tmpfile, a_failed_link_leaves_it_as_it_was)
{
	uint64_t ino = make(INO_ROOT);

	cr_assert_neq(rig_file(&rig, INO_ROOT, "taken"), 0);
	cr_assert_eq(rig_link(&rig, ino, INO_ROOT, "taken"), -EEXIST);
	cr_assert_eq(rig_attr(&rig, ino).nlink, 0);
	cr_assert_eq(rig_link(&rig, ino, INO_ROOT, "free"), 0);
	core_forget(rig.core, ino, 1);
}

Test(tmpfile, cut_before_it_got_its_name)
{
	static uint8_t big[1u << 20];
	uint64_t ino = make(INO_ROOT);
	struct core_attr attr;

	for (unsigned i = 0; i < 6; i++)
		cr_assert_eq(rig_write(&rig, ino, (uint64_t)i << 20, big, sizeof(big)), 0);
	cr_assert_eq(rig_truncate(&rig, ino, 100), 0);
	cr_assert_eq(rig_link(&rig, ino, INO_ROOT, "cut"), 0);
	cr_assert_eq(core_fsync(rig.core, VIEW_BASE, ino, false), 0);
	core_forget(rig.core, ino, 1);
	rig_reopen(&rig, true);
	cr_assert_eq(rig_problems(&rig), 0);
	cr_assert_eq(rig_lookup(&rig, INO_ROOT, "cut", &attr), 0);
	cr_assert_eq(attr.size, 100);
	cr_assert_eq(attr.blocks_512, 8, "the rest has been reclaimed");
}

Test(tmpfile, is_gone_after_a_crash)
{
	uint64_t ino = make(INO_ROOT);

	cr_assert_eq(rig_write(&rig, ino, 0, "text", 4), 0);
	cr_assert_eq(core_fsync(rig.core, VIEW_BASE, ino, false), 0);
	rig_reopen(&rig, true);
	rig_purge(&rig);
	cr_assert(!exists(ino));
}

Test(tmpfile, is_counted)
{
	struct statvfs before, with, after;
	uint64_t ino;

	cr_assert_eq(core_statfs(rig.core, VIEW_BASE, &before), 0);
	ino = make(INO_ROOT);
	cr_assert_eq(core_statfs(rig.core, VIEW_BASE, &with), 0);
	core_forget(rig.core, ino, 1);
	rig_purge(&rig);
	cr_assert_eq(core_statfs(rig.core, VIEW_BASE, &after), 0);
	cr_assert_eq(with.f_files - with.f_ffree, before.f_files - before.f_ffree + 1);
	cr_assert_eq(after.f_files - after.f_ffree, before.f_files - before.f_ffree);
}

Test(tmpfile, wants_a_directory)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f"), d = rig_dir(&rig, INO_ROOT, "d");
	struct core_attr attr = {.mode = 02775, .gid = 77};

	cr_assert_eq(core_tmpfile(rig.core, VIEW_BASE, &rig_cred, f, 0600, &attr), -ENOTDIR);
	attr = (struct core_attr){.mode = 02775, .gid = 77};
	cr_assert_eq(core_setattr(rig.core, VIEW_BASE, d, CORE_SET_MODE | CORE_SET_GID, &attr), 0);
	cr_assert_eq(core_tmpfile(rig.core, VIEW_BASE, &rig_cred, d, 0600, &attr), 0);
	cr_assert_eq(attr.gid, 77, "a setgid directory passes its group on");
	core_forget(rig.core, attr.ino, 1);
}
