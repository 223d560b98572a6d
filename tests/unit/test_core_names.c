/* Names: look-up, creation, removal, rename, listing, look-up counts. */
#include "engine/base/error.h"
#include "engine/mtr.h"
#include "fs/name.h"
#include "tests/lib/core_rig.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define VOLUME_BYTES (32u << 20)

static struct rig rig;

static void setup(void)
{
	rig_open(&rig, VOLUME_BYTES, 4096, false);
}

static void teardown(void)
{
	rig_close(&rig);
}

TestSuite(names, .init = setup, .fini = teardown);

static uint64_t ino_of(uint64_t parent, const char *name)
{
	struct core_attr attr;

	return rig_lookup(&rig, parent, name, &attr) ? 0 : attr.ino;
}

static int create(uint64_t parent, const char *name, uint32_t mode, struct core_attr *attr)
{
	int rc = core_create(rig.core, VIEW_BASE, &rig_cred, parent, name, strlen(name), mode, 0,
			     attr);

	if (rc == 0)
		core_forget(rig.core, attr->ino, 1);
	return rc;
}

/* --- create and look-up -------------------------------------------------- */

Test(names, create_and_look_up)
{
	struct core_attr made, found;

	cr_assert_eq(create(INO_ROOT, "f", S_IFREG | 0640, &made), 0);
	cr_assert_eq(made.mode, S_IFREG | 0640);
	cr_assert_eq(made.nlink, 1);
	cr_assert_eq(made.uid, 1000);
	cr_assert_eq(rig_lookup(&rig, INO_ROOT, "f", &found), 0);
	cr_assert_eq(found.ino, made.ino);
	cr_assert_eq(found.btime.tv_sec, made.btime.tv_sec);
	cr_assert_eq(rig_lookup(&rig, INO_ROOT, "g", &found), -ENOENT);
	cr_assert_eq(create(INO_ROOT, "f", S_IFREG | 0600, &made), -EEXIST);
	cr_assert_eq(rig_lookup(&rig, made.ino, "x", &found), -ENOTDIR);
	cr_assert_eq(create(made.ino, "x", S_IFREG | 0600, &made), -ENOTDIR);
	cr_assert_eq(rig_lookup(&rig, 999999, "x", &found), -ENOENT);
	cr_assert_eq(create(INO_ROOT, "l", S_IFLNK | 0600, &made), -EINVAL);
	cr_assert_eq(create(INO_ROOT, "p", S_IFIFO | 0600, &made), 0);
	cr_assert_eq(core_create(rig.core, VIEW_BASE, &rig_cred, INO_ROOT, "c", 1, S_IFCHR | 0600,
				 0x0103, &made), 0);
	cr_assert_eq(made.rdev, 0x0103);
	cr_assert_eq(core_lookup(rig.core, 1, INO_ROOT, "f", 1, &found), -EOPNOTSUPP);
}

Test(names, dots)
{
	uint64_t d = rig_dir(&rig, INO_ROOT, "d"), e = rig_dir(&rig, d, "e");
	struct core_attr attr;

	cr_assert_eq(ino_of(e, "."), e);
	cr_assert_eq(ino_of(e, ".."), d);
	cr_assert_eq(ino_of(INO_ROOT, ".."), INO_ROOT);
	cr_assert_eq(create(d, ".", S_IFREG | 0600, &attr), -EEXIST);
	cr_assert_eq(create(d, "..", S_IFDIR | 0700, &attr), -EEXIST);
	cr_assert_eq(rig_unlink(&rig, d, "."), -EISDIR);
	cr_assert_eq(rig_rmdir(&rig, d, "."), -EINVAL);
	cr_assert_eq(rig_rmdir(&rig, d, ".."), -ENOTEMPTY);
	cr_assert_eq(rig_rename(&rig, d, ".", INO_ROOT, "x"), -EBUSY);
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "d", d, ".."), -EBUSY);
}

/* CASES 12 */
Test(names, lengths_and_bytes)
{
	char name[300];
	struct core_attr attr;

	memset(name, 'n', sizeof(name));
	name[255] = '\0';
	cr_assert_neq(rig_file(&rig, INO_ROOT, name), 0);
	cr_assert_neq(ino_of(INO_ROOT, name), 0);
	name[255] = 'n';
	name[256] = '\0';
	cr_assert_eq(create(INO_ROOT, name, S_IFREG | 0600, &attr), -ENAMETOOLONG);
	cr_assert_eq(rig_lookup(&rig, INO_ROOT, name, &attr), -ENAMETOOLONG);
	for (unsigned i = 0; i < 86; i++)
		memcpy(name + i * 3, "\xe2\x82\xac", 3);
	name[258] = '\0';
	cr_assert_eq(create(INO_ROOT, name, S_IFREG | 0600, &attr), -ENAMETOOLONG);
	cr_assert_eq(create(INO_ROOT, "\xff\xfe\x80 no utf-8\n", S_IFREG | 0600, &attr), 0);
	cr_assert_neq(ino_of(INO_ROOT, "\xff\xfe\x80 no utf-8\n"), 0);
	cr_assert_eq(create(INO_ROOT, "", S_IFREG | 0600, &attr), -ENOENT);
	cr_assert_eq(create(INO_ROOT, "a/b", S_IFREG | 0600, &attr), -EINVAL);
	cr_assert_eq(core_create(rig.core, VIEW_BASE, &rig_cred, INO_ROOT, "a\0b", 3,
				 S_IFREG | 0600, 0, &attr), -EINVAL);
}

Test(names, setgid_directories_pass_their_group_on)
{
	struct core_cred cred = {.uid = 1, .gid = 2};
	struct core_attr attr = {.gid = 77};
	uint64_t d = rig_dir(&rig, INO_ROOT, "d");

	attr.mode = 02775;
	cr_assert_eq(core_setattr(rig.core, VIEW_BASE, d, CORE_SET_GID | CORE_SET_MODE, &attr), 0);
	cr_assert_eq(core_create(rig.core, VIEW_BASE, &cred, d, "f", 1, S_IFREG | 0644, 0, &attr),
		     0);
	cr_assert_eq(attr.gid, 77);
	cr_assert_eq(attr.mode, S_IFREG | 0644);
	core_forget(rig.core, attr.ino, 1);
	cr_assert_eq(core_create(rig.core, VIEW_BASE, &cred, d, "e", 1, S_IFDIR | 0755, 0, &attr),
		     0);
	cr_assert_eq(attr.gid, 77);
	cr_assert_eq(attr.mode, S_IFDIR | 02755);
	core_forget(rig.core, attr.ino, 1);
}

/* --- link counts and sizes of directories -------------------------------- */

Test(names, directory_counts)
{
	uint64_t d = rig_dir(&rig, INO_ROOT, "d"), e;
	struct core_attr before = rig_attr(&rig, d), after;

	cr_assert_eq(before.nlink, 2);
	cr_assert_eq(before.size, 0);
	rig_tick();
	e = rig_dir(&rig, d, "e");
	rig_file(&rig, d, "f");
	after = rig_attr(&rig, d);
	cr_assert_eq(after.nlink, 3);
	cr_assert_eq(after.size, 64);
	cr_assert_gt(after.change, before.change);
	cr_assert(after.mtime.tv_sec > before.mtime.tv_sec ||
		  after.mtime.tv_nsec != before.mtime.tv_nsec);
	cr_assert_eq(rig_rmdir(&rig, INO_ROOT, "d"), -ENOTEMPTY);
	cr_assert_eq(rig_unlink(&rig, d, "e"), -EISDIR);
	cr_assert_eq(rig_rmdir(&rig, d, "f"), -ENOTDIR);
	cr_assert_eq(rig_rmdir(&rig, d, "e"), 0);
	cr_assert_eq(rig_unlink(&rig, d, "f"), 0);
	cr_assert_eq(rig_unlink(&rig, d, "f"), -ENOENT);
	cr_assert_eq(rig_rmdir(&rig, d, "e"), -ENOENT);
	after = rig_attr(&rig, d);
	cr_assert_eq(after.nlink, 2);
	cr_assert_eq(after.size, 0);
	cr_assert_eq(rig_rmdir(&rig, INO_ROOT, "d"), 0);
	rig_purge(&rig);
	cr_assert_eq(core_getattr(rig.core, VIEW_BASE, e, &after), -ENOENT);
	cr_assert_eq(core_getattr(rig.core, VIEW_BASE, d, &after), -ENOENT);
}

Test(names, links)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f"), d = rig_dir(&rig, INO_ROOT, "d");

	cr_assert_eq(rig_link(&rig, f, d, "g"), 0);
	cr_assert_eq(rig_attr(&rig, f).nlink, 2);
	cr_assert_eq(ino_of(d, "g"), f);
	cr_assert_eq(rig_link(&rig, f, d, "g"), -EEXIST);
	cr_assert_eq(rig_link(&rig, d, INO_ROOT, "h"), -EPERM);
	cr_assert_eq(rig_link(&rig, f, f, "h"), -ENOTDIR);
	cr_assert_eq(rig_link(&rig, 99999, d, "h"), -ENOENT);
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "f"), 0);
	cr_assert_eq(rig_attr(&rig, f).nlink, 1);
	rig_purge(&rig);
	cr_assert_eq(ino_of(d, "g"), f);
}

/* Raises a link count where its limit can be met. */
static void set_nlink(uint64_t ino, uint32_t nlink)
{
	uint8_t key[KEY_INODE_BYTES], value[1024];
	const void *old;
	struct mtr *m;
	size_t len;
	le32 raw = le32_make(nlink);
	int rc;

	be64_put(key, ino);
	cr_assert_eq(mtr_begin(rig.volume, 0, &m), 0);
	mtr_want_key(m, INDEX_INODES, key, sizeof(key));
	do {
		cr_assert_eq(mtr_latch(m), 0);
		cr_assert_eq(mtr_lookup(m, INDEX_INODES, key, sizeof(key), &old, &len), 0);
		memcpy(value, old, len);
		memcpy(value + offsetof(struct disk_inode, nlink), &raw, sizeof(raw));
		mtr_put(m, INDEX_INODES, key, sizeof(key), value, len);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	cr_assert_eq(rc, 0);
}

Test(names, link_limit)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f"), d = rig_dir(&rig, INO_ROOT, "d");
	struct core_attr attr;

	rig_dir(&rig, INO_ROOT, "e");
	set_nlink(f, LINKS_MAX - 1);
	cr_assert_eq(rig_link(&rig, f, INO_ROOT, "g"), 0);
	cr_assert_eq(rig_link(&rig, f, INO_ROOT, "h"), -EMLINK);
	set_nlink(d, LINKS_MAX);
	cr_assert_eq(create(d, "sub", S_IFDIR | 0755, &attr), -EMLINK);
	cr_assert_eq(create(d, "file", S_IFREG | 0644, &attr), 0);
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "e", d, "e"), -EMLINK);
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "f", d, "f"), 0);
}

/* --- symlinks ------------------------------------------------------------ */

Test(names, symlinks_short_and_long)
{
	static const size_t lengths[] = {1, 100, 512, 513, 4095};
	char target[4097], read[SYMLINK_BYTES_MAX + 1];
	struct core_attr attr;

	memset(target, 't', sizeof(target));
	for (unsigned i = 0; i < array_count(lengths); i++) {
		char name[8];

		snprintf(name, sizeof(name), "s%u", i);
		cr_assert_eq(core_symlink(rig.core, VIEW_BASE, &rig_cred, INO_ROOT, name,
					  strlen(name), target, lengths[i], &attr), 0);
		core_forget(rig.core, attr.ino, 1);
		cr_assert_eq(attr.mode, S_IFLNK | 0777);
		cr_assert_eq(attr.size, lengths[i]);
		cr_assert_eq(attr.blocks_512, lengths[i] > 512 ? 8 : 0);
		cr_assert_eq(core_readlink(rig.core, VIEW_BASE, attr.ino, read), 0);
		cr_assert_eq(strlen(read), lengths[i]);
		cr_assert_eq(memcmp(read, target, lengths[i]), 0);
	}
	rig_reopen(&rig, false);
	cr_assert_eq(core_readlink(rig.core, VIEW_BASE, ino_of(INO_ROOT, "s4"), read), 0);
	cr_assert_eq(strlen(read), 4095);
	cr_assert_eq(core_symlink(rig.core, VIEW_BASE, &rig_cred, INO_ROOT, "x", 1, target, 4096,
				  &attr), -ENAMETOOLONG);
	cr_assert_eq(core_symlink(rig.core, VIEW_BASE, &rig_cred, INO_ROOT, "x", 1, "", 0, &attr),
		     -ENOENT);
	cr_assert_eq(core_readlink(rig.core, VIEW_BASE, INO_ROOT, read), -EINVAL);
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "s4"), 0);
}

/* --- rename -------------------------------------------------------------- */

Test(names, rename_moves_and_replaces)
{
	uint64_t d = rig_dir(&rig, INO_ROOT, "d"), f = rig_file(&rig, INO_ROOT, "f");
	uint64_t g = rig_held_file(&rig, d, "g");

	cr_assert_eq(rig_rename(&rig, INO_ROOT, "f", INO_ROOT, "f2"), 0);
	cr_assert_eq(ino_of(INO_ROOT, "f2"), f);
	cr_assert_eq(ino_of(INO_ROOT, "f"), 0);
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "f2", d, "g"), 0);
	cr_assert_eq(ino_of(d, "g"), f);
	cr_assert_eq(rig_attr(&rig, INO_ROOT).size, 32);
	cr_assert_eq(rig_attr(&rig, d).size, 32);
	cr_assert_eq(rig_attr(&rig, g).nlink, 0); /* held, so it is still there */
	core_forget(rig.core, g, 1);
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "f2", d, "h"), -ENOENT);
	cr_assert_eq(rig_rename(&rig, d, "g", f, "h"), -ENOTDIR);
	cr_assert_eq(rig_rename(&rig, d, "g", d, "g"), 0);
	cr_assert_eq(ino_of(d, "g"), f);
}

/* CASES 3 */
Test(names, rename_of_one_inode_to_itself_does_nothing)
{
	uint64_t a = rig_file(&rig, INO_ROOT, "a");

	cr_assert_eq(rig_link(&rig, a, INO_ROOT, "b"), 0);
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "a", INO_ROOT, "b"), 0);
	cr_assert_eq(ino_of(INO_ROOT, "a"), a);
	cr_assert_eq(ino_of(INO_ROOT, "b"), a);
	cr_assert_eq(rig_attr(&rig, a).nlink, 2);
}

/* CASES 4 */
Test(names, rename_of_directories)
{
	uint64_t a = rig_dir(&rig, INO_ROOT, "a"), b = rig_dir(&rig, INO_ROOT, "b");
	uint64_t f = rig_file(&rig, b, "f"), c = rig_dir(&rig, a, "c");

	cr_assert_eq(rig_rename(&rig, INO_ROOT, "a", INO_ROOT, "b"), -ENOTEMPTY);
	cr_assert_eq(ino_of(b, "f"), f);
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "a", b, "f"), -ENOTDIR);
	cr_assert_eq(rig_rename(&rig, b, "f", INO_ROOT, "a"), -EISDIR);
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "a", a, "x"), -EINVAL);
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "a", c, "x"), -EINVAL);
	cr_assert_eq(rig_rename(&rig, a, "c", INO_ROOT, "a"), -ENOTEMPTY);
	cr_assert_eq(rig_unlink(&rig, b, "f"), 0);
	cr_assert_eq(rig_attr(&rig, INO_ROOT).nlink, 4);
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "a", INO_ROOT, "b"), 0); /* over an empty one */
	cr_assert_eq(rig_attr(&rig, INO_ROOT).nlink, 3);
	cr_assert_eq(ino_of(INO_ROOT, "b"), a);
	cr_assert_eq(ino_of(a, ".."), INO_ROOT);
	cr_assert_eq(rig_rename(&rig, a, "c", INO_ROOT, "c"), 0);
	cr_assert_eq(ino_of(c, ".."), INO_ROOT);
	cr_assert_eq(rig_attr(&rig, INO_ROOT).nlink, 4);
	cr_assert_eq(rig_attr(&rig, a).nlink, 2);
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "c", a, "c"), 0);
	cr_assert_eq(ino_of(c, ".."), a);
	cr_assert_eq(rig_attr(&rig, a).nlink, 3);
}

/* CASES 6, 7 */
Test(names, rename_flags)
{
	uint64_t a = rig_file(&rig, INO_ROOT, "a"), b = rig_file(&rig, INO_ROOT, "b");

	cr_assert_eq(core_rename(rig.core, VIEW_BASE, INO_ROOT, "a", 1, INO_ROOT, "b", 1,
				 CORE_RENAME_NOREPLACE), -EEXIST);
	for (unsigned flags = 3; flags < 9; flags++)
		cr_assert_eq(core_rename(rig.core, VIEW_BASE, INO_ROOT, "a", 1, INO_ROOT, "b", 1,
					 flags), -EINVAL);
	cr_assert_eq(ino_of(INO_ROOT, "a"), a);
	cr_assert_eq(ino_of(INO_ROOT, "b"), b);
	cr_assert_eq(core_rename(rig.core, VIEW_BASE, INO_ROOT, "a", 1, INO_ROOT, "c", 1,
				 CORE_RENAME_NOREPLACE), 0);
	cr_assert_eq(ino_of(INO_ROOT, "c"), a);
}

/* CASES 2 */
Test(names, rename_keeps_the_inode_for_who_has_it_open)
{
	uint64_t f = rig_held_file(&rig, INO_ROOT, "1");
	char buf[8];
	size_t done;

	cr_assert_eq(rig_rename(&rig, INO_ROOT, "1", INO_ROOT, "2"), 0);
	cr_assert_eq(rig_write(&rig, f, 0, "data", 4), 0);
	cr_assert_eq(core_read(rig.core, VIEW_BASE, ino_of(INO_ROOT, "2"), 0, buf, 8, &done), 0);
	cr_assert_eq(done, 4);
	cr_assert_eq(memcmp(buf, "data", 4), 0);
	core_forget(rig.core, f, 1);
}

/* --- orphans ------------------------------------------------------------- */

/* CASES 8 */
Test(names, an_open_inode_without_name_lives)
{
	uint64_t f = rig_held_file(&rig, INO_ROOT, "f");
	struct core_attr attr = {.mode = 0600};
	uint8_t big[20000], read[20000];
	size_t done;

	rig_fill(big, sizeof(big), 1);
	cr_assert_eq(rig_write(&rig, f, 0, big, sizeof(big)), 0);
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "f"), 0);
	rig_purge(&rig);
	cr_assert_eq(core_setattr(rig.core, VIEW_BASE, f, CORE_SET_MODE, &attr), 0);
	cr_assert_eq(attr.nlink, 0);
	cr_assert_eq(rig_write(&rig, f, 20000, big, 5000), 0);
	cr_assert_eq(rig_truncate(&rig, f, 15000), 0);
	cr_assert_eq(rig_truncate(&rig, f, 18000), 0);
	cr_assert_eq(core_read(rig.core, VIEW_BASE, f, 0, read, sizeof(read), &done), 0);
	cr_assert_eq(done, 18000);
	cr_assert_eq(memcmp(read, big, 15000), 0);
	for (unsigned i = 15000; i < 18000; i++)
		cr_assert_eq(read[i], 0);
	cr_assert_eq(rig_link(&rig, f, INO_ROOT, "again"), -ENOENT);
	rig_purge(&rig);
	cr_assert_eq(rig_attr(&rig, f).size, 18000);
	core_forget(rig.core, f, 1);
	rig_purge(&rig);
	cr_assert_eq(core_getattr(rig.core, VIEW_BASE, f, &attr), -ENOENT);
}

/* CASES 9 */
Test(names, orphans_are_reclaimed_after_a_crash)
{
	uint64_t f = rig_held_file(&rig, INO_ROOT, "f");
	static uint8_t big[1u << 20];
	struct statvfs before, after;
	struct core_attr attr;

	rig_purge(&rig);
	cr_assert_eq(core_statfs(rig.core, VIEW_BASE, &before), 0);
	for (unsigned i = 0; i < 4; i++)
		cr_assert_eq(rig_write(&rig, f, (uint64_t)i << 20, big, sizeof(big)), 0);
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "f"), 0);
	cr_assert_eq(core_fsync(rig.core, VIEW_BASE, f, false), 0);
	rig_reopen(&rig, true);
	rig_purge(&rig);
	cr_assert_eq(core_getattr(rig.core, VIEW_BASE, f, &attr), -ENOENT);
	cr_assert_eq(core_statfs(rig.core, VIEW_BASE, &after), 0);
	cr_assert_geq(after.f_bfree + 16, before.f_bfree);
}

Test(names, a_removed_directory_that_is_open)
{
	uint64_t d = rig_dir(&rig, INO_ROOT, "d");
	struct core_attr attr;

	cr_assert_eq(core_lookup(rig.core, VIEW_BASE, INO_ROOT, "d", 1, &attr), 0);
	cr_assert_eq(rig_rmdir(&rig, INO_ROOT, "d"), 0);
	cr_assert_eq(create(d, "x", S_IFREG | 0600, &attr), -ENOENT);
	cr_assert_eq(create(d, "x", S_IFDIR | 0700, &attr), -ENOENT);
	rig_file(&rig, INO_ROOT, "f");
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "f", d, "f"), -ENOENT);
	cr_assert_eq(rig_attr(&rig, d).nlink, 0);
	core_forget(rig.core, d, 1);
}

/* --- names with one hash ------------------------------------------------- */

/* Entries of other names where `name` would go: collision numbers [from, to). */
static void occupy(uint64_t parent, const char *name, unsigned from, unsigned to, bool erase)
{
	for (unsigned c = from; c < to; c++) {
		struct name_entry entry = {.found = false};
		char other[32];
		struct mtr *m;
		int rc;

		snprintf(other, sizeof(other), "other%u", c);
		name_key(entry.key, parent, name_suffix(rig.volume, name, strlen(name)) | c);
		cr_assert_eq(mtr_begin(rig.volume, 0, &m), 0);
		name_want(m, &entry);
		do {
			cr_assert_eq(mtr_latch(m), 0);
			if (erase)
				name_delete(m, &entry);
			else
				name_put(m, &entry, 12345, S_IFREG, other, strlen(other));
			rc = mtr_commit(m);
		} while (rc == -BE_AGAIN);
		mtr_end(m);
		cr_assert_eq(rc, 0);
	}
}

/* INV-NAME-1 */
Test(names, collisions_take_the_lowest_free_number_and_end_at_128)
{
	uint64_t d = rig_dir(&rig, INO_ROOT, "d"), f;
	struct name_entry entry;
	struct core_attr attr;

	occupy(d, "f", 0, 128, false);
	cr_assert_eq(create(d, "f", S_IFREG | 0600, &attr), -ENOSPC);
	cr_assert_eq(rig_lookup(&rig, d, "f", &attr), -ENOENT);
	occupy(d, "f", 3, 4, true);
	occupy(d, "f", 100, 101, true);
	cr_assert_eq(create(d, "f", S_IFREG | 0600, &attr), 0);
	f = attr.ino;
	cr_assert_eq(name_find(rig.volume, d, "f", 1, &entry), 0);
	cr_assert(entry.found);
	cr_assert_eq(be64_get(entry.key + 8) & COLLISION_MASK, 3);
	cr_assert_eq(ino_of(d, "f"), f);
	occupy(d, "f", 0, 3, true);
	cr_assert_eq(ino_of(d, "f"), f);
	cr_assert_eq(rig_rename(&rig, d, "f", INO_ROOT, "f"), 0);
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "f", d, "f"), 0);
	cr_assert_eq(name_find(rig.volume, d, "f", 1, &entry), 0);
	cr_assert_eq(be64_get(entry.key + 8) & COLLISION_MASK, 0);
	cr_assert_eq(rig_unlink(&rig, d, "f"), 0);
}

/* --- listing ------------------------------------------------------------- */

#define LISTED_MAX 2000

struct listed {
	unsigned count, room;
	struct {
		char name[256];
		uint64_t ino, cookie;
		uint32_t type;
	} entry[LISTED_MAX];
};

static int collect(void *arg, const struct core_dirent *d)
{
	struct listed *l = arg;

	if (l->room-- == 0)
		return 1;
	cr_assert(d->attr == NULL || d->attr->ino == d->ino);
	memcpy(l->entry[l->count].name, d->name, d->name_len);
	l->entry[l->count].name[d->name_len] = '\0';
	l->entry[l->count].ino = d->ino;
	l->entry[l->count].cookie = d->cookie;
	l->entry[l->count++].type = d->type;
	return 0;
}

/* Lists in portions of `room` entries. */
static void list(uint64_t dir, bool with_attr, unsigned room, struct listed *l)
{
	unsigned before;

	l->count = 0;
	do {
		before = l->count;
		l->room = room;
		cr_assert_eq(core_readdir(rig.core, VIEW_BASE, dir,
					  before ? l->entry[before - 1].cookie : 0, with_attr,
					  collect, l), 0);
	} while (l->count > before);
	for (unsigned i = 0; with_attr && i < l->count; i++)
		if (l->entry[i].cookie > 2)
			core_forget(rig.core, l->entry[i].ino, 1);
}

static struct listed listed;

Test(names, listing_is_complete_and_in_order)
{
	uint64_t d = rig_dir(&rig, INO_ROOT, "d");
	unsigned seen = 0;

	for (unsigned i = 0; i < 500; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%u", i);
		cr_assert_neq(i % 10 ? rig_file(&rig, d, name) : rig_dir(&rig, d, name), 0);
	}
	for (unsigned plus = 0; plus < 2; plus++) {
		list(d, plus, 7, &listed);
		cr_assert_eq(listed.count, 502);
		cr_assert_str_eq(listed.entry[0].name, ".");
		cr_assert_eq(listed.entry[0].ino, d);
		cr_assert_str_eq(listed.entry[1].name, "..");
		cr_assert_eq(listed.entry[1].ino, INO_ROOT);
		for (unsigned i = 1; i < listed.count; i++)
			cr_assert_gt(listed.entry[i].cookie, listed.entry[i - 1].cookie);
		seen = 0;
		for (unsigned i = 2; i < listed.count; i++) {
			unsigned number = (unsigned)atoi(listed.entry[i].name + 1);

			cr_assert_eq(listed.entry[i].ino, ino_of(d, listed.entry[i].name));
			cr_assert_eq(listed.entry[i].type, number % 10 ? S_IFREG : S_IFDIR);
			seen += number;
		}
		cr_assert_eq(seen, 499 * 500 / 2);
	}
	cr_assert_eq(core_readdir(rig.core, VIEW_BASE, ino_of(d, "n1"), 0, false, collect, &listed),
		     -ENOTDIR);
}

/* CASES 10 */
Test(names, removing_while_listing)
{
	uint64_t d = rig_dir(&rig, INO_ROOT, "d");
	unsigned removed = 0;
	uint64_t cookie = 2;

	for (unsigned i = 0; i < 256; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%u", i);
		cr_assert_neq(rig_file(&rig, d, name), 0);
	}
	for (;;) {
		listed.count = 0;
		listed.room = 5;
		cr_assert_eq(core_readdir(rig.core, VIEW_BASE, d, cookie, false, collect, &listed),
			     0);
		if (listed.count == 0)
			break;
		for (unsigned i = 0; i < listed.count; i++)
			cr_assert_eq(rig_unlink(&rig, d, listed.entry[i].name), 0);
		removed += listed.count;
		cookie = listed.entry[listed.count - 1].cookie;
	}
	cr_assert_eq(removed, 256);
	cr_assert_eq(rig_rmdir(&rig, INO_ROOT, "d"), 0);
}

/* CASES 11 */
Test(names, cookies_lead_back_to_the_same_entry)
{
	uint64_t d = rig_dir(&rig, INO_ROOT, "d");
	struct core_attr attr;

	for (unsigned i = 0; i < 50; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%u", i);
		rig_file(&rig, d, name);
	}
	list(d, false, 100, &listed);
	for (unsigned i = 3; i < 52; i += 7) {
		static struct listed again;

		rig_unlink(&rig, d, listed.entry[i - 1].name); /* others come and go */
		again.count = 0;
		again.room = 1;
		cr_assert_eq(core_readdir(rig.core, VIEW_BASE, d, listed.entry[i - 1].cookie, false,
					  collect, &again), 0);
		cr_assert_eq(again.count, 1);
		cr_assert_str_eq(again.entry[0].name, listed.entry[i].name);
	}
	/* a directory that is gone shows nothing */
	rig_dir(&rig, INO_ROOT, "gone");
	cr_assert_eq(core_lookup(rig.core, VIEW_BASE, INO_ROOT, "gone", 4, &attr), 0);
	cr_assert_eq(rig_rmdir(&rig, INO_ROOT, "gone"), 0);
	list(attr.ino, false, 10, &listed);
	cr_assert_eq(listed.count, 0);
	core_forget(rig.core, attr.ino, 1);
}

/* --- whole volume -------------------------------------------------------- */

/* CASES 16 */
Test(names, statfs_counts_inodes)
{
	struct statvfs start, now;

	cr_assert_eq(core_statfs(rig.core, VIEW_BASE, &start), 0);
	cr_assert_eq(start.f_files - start.f_ffree, 1);
	for (unsigned i = 0; i < 100; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%u", i);
		rig_file(&rig, INO_ROOT, name);
	}
	cr_assert_eq(core_statfs(rig.core, VIEW_BASE, &now), 0);
	cr_assert_eq(now.f_files - now.f_ffree, 101);
	rig_reopen(&rig, false);
	rig_file(&rig, INO_ROOT, "late");
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "n7"), 0);
	rig_purge(&rig);
	cr_assert_eq(core_statfs(rig.core, VIEW_BASE, &now), 0); /* counts here */
	cr_assert_eq(now.f_files - now.f_ffree, 101);
	for (unsigned i = 0; i < 100; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%u", i);
		cr_assert_eq(rig_unlink(&rig, INO_ROOT, name), i == 7 ? -ENOENT : 0);
	}
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "late"), 0);
	rig_purge(&rig);
	cr_assert_eq(core_statfs(rig.core, VIEW_BASE, &now), 0);
	cr_assert_eq(now.f_files - now.f_ffree, 1);
}

static uint64_t free_blocks(struct rig *of)
{
	struct statvfs now;

	cr_assert_eq(core_statfs(of->core, VIEW_BASE, &now), 0);
	return now.f_bfree;
}

/* Each call waits for purge; more than one only where the machine is very slow. */
static bool gets_back(struct rig *of, uint64_t blocks)
{
	for (unsigned i = 0; i < 100; i++)
		if (free_blocks(of) >= blocks)
			return true;
	return false;
}

Test(names, statfs_counts_what_was_removed)
{
	static uint8_t buf[1u << 20];
	uint64_t f, held, before;
	struct rig own;

	rig_open(&own, 128u << 20, 16384, true);
	f = rig_file(&own, INO_ROOT, "f");
	held = rig_held_file(&own, INO_ROOT, "held");
	before = free_blocks(&own);
	for (unsigned i = 0; i < 16; i++) {
		cr_assert_eq(rig_write(&own, f, i * sizeof(buf), buf, sizeof(buf)), 0);
		cr_assert_eq(rig_write(&own, held, i * sizeof(buf), buf, sizeof(buf)), 0);
	}
	cr_assert_eq(rig_unlink(&own, INO_ROOT, "f"), 0);
	cr_assert_eq(rig_unlink(&own, INO_ROOT, "held"), 0);
	cr_assert(gets_back(&own, before - 4096 - 64));
	cr_assert_lt(free_blocks(&own), before - 4096 + 64, "it is in use");
	core_forget(own.core, held, 1);
	cr_assert(gets_back(&own, before - 64));
	rig_close(&own);
}

Test(names, read_only_refuses_changes)
{
	uint64_t d = rig_dir(&rig, INO_ROOT, "d"), f = rig_file(&rig, d, "f");
	struct core_attr attr = {0};
	char c = 'c';
	size_t len;

	rig_reopen_read_only(&rig);
	cr_assert_eq(ino_of(d, "f"), f);
	cr_assert_eq(create(d, "g", S_IFREG | 0600, &attr), -EROFS);
	cr_assert_eq(rig_unlink(&rig, d, "f"), -EROFS);
	cr_assert_eq(rig_rmdir(&rig, INO_ROOT, "d"), -EROFS);
	cr_assert_eq(rig_rename(&rig, d, "f", d, "g"), -EROFS);
	cr_assert_eq(rig_link(&rig, f, d, "g"), -EROFS);
	cr_assert_eq(rig_write(&rig, f, 0, &c, 1), -EROFS);
	cr_assert_eq(rig_truncate(&rig, f, 9), -EROFS);
	cr_assert_eq(core_setxattr(rig.core, VIEW_BASE, f, "user.a", &c, 1, 0), -EROFS);
	cr_assert_eq(core_removexattr(rig.core, VIEW_BASE, f, "user.a"), -EROFS);
	cr_assert_eq(core_accessed(rig.core, VIEW_BASE, f, CORE_ATIME_STRICT), 0);
	cr_assert_eq(core_fsync(rig.core, VIEW_BASE, f, false), 0);
	cr_assert_eq(core_read(rig.core, VIEW_BASE, f, 0, &c, 1, &len), 0);
	cr_assert_eq(core_getxattr(rig.core, VIEW_BASE, f, "user.a", &c, 1, &len), -ENODATA);
}

/* A tree with a directory inside itself, as only damage can make it. */
Test(names, damaged_trees_give_errors)
{
	uint64_t d = rig_dir(&rig, INO_ROOT, "d"), e = rig_dir(&rig, d, "e");
	struct name_entry entry;
	struct core_attr attr;
	struct mtr *m;
	int rc;

	cr_assert_eq(name_find(rig.volume, e, "loop", 4, &entry), 0);
	cr_assert_eq(mtr_begin(rig.volume, 0, &m), 0);
	name_want(m, &entry);
	do {
		cr_assert_eq(mtr_latch(m), 0);
		name_put(m, &entry, e, S_IFDIR, "loop", 4);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	cr_assert_eq(rig_rmdir(&rig, e, "loop"), -EIO);
	cr_assert_eq(rig_rename(&rig, e, "loop", e, "x"), -EIO);
	cr_assert_eq(rig_rename(&rig, e, "loop", d, "x"), -EIO);
	cr_assert_eq(rig_lookup(&rig, e, "loop", &attr), 0);
	cr_assert_eq(name_find(rig.volume, e, "stray", 5, &entry), 0);
	cr_assert_eq(mtr_begin(rig.volume, 0, &m), 0);
	name_want(m, &entry);
	do {
		cr_assert_eq(mtr_latch(m), 0);
		name_put(m, &entry, 777777, S_IFREG, "stray", 5);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	cr_assert_eq(rig_lookup(&rig, e, "stray", &attr), -EIO);
}
