/* Flags of inodes: what immutable and append-only forbid. */
#include "tests/lib/core_rig.h"

#include <criterion/criterion.h>
#include <errno.h>

#define AT VIEW_BASE

static struct rig rig;
static uint64_t f, d, inside;

static void setup(void)
{
	rig_open(&rig, 32u << 20, 4096, false);
	f = rig_file(&rig, INO_ROOT, "f");
	d = rig_dir(&rig, INO_ROOT, "d");
	inside = rig_file(&rig, d, "inside");
	cr_assert_eq(rig_write(&rig, f, 0, "text", 4), 0);
}

static void teardown(void)
{
	rig_close(&rig);
}

TestSuite(flags, .init = setup, .fini = teardown);

static void set_flags(uint64_t ino, unsigned flags)
{
	cr_assert_eq(core_set_flags(rig.core, AT, ino, flags), 0);
	cr_assert_eq(rig_attr(&rig, ino).flags, flags);
}

static int set(uint64_t ino, unsigned what)
{
	struct core_attr attr = {.mode = 0600, .atime = {5, 0}, .mtime = {5, 0}, .ctime = {5, 0}};

	return core_setattr(rig.core, AT, ino, what, &attr);
}

static int create(uint64_t parent, const char *name)
{
	struct core_attr attr;
	int rc = core_create(rig.core, AT, &rig_cred, parent, name, strlen(name), S_IFREG | 0644, 0,
			     &attr);

	if (rc == 0)
		core_forget(rig.core, attr.ino, 1);
	return rc;
}

/* INV-SB-4, which INV-FLAG-3 needs: until it is durable, nobody else sees that flags are used. */
static unsigned changes, seen_early;

static void look_at_superblock(const char *point)
{
	if (strcmp(point, "superblock:changed") != 0)
		return;
	changes++;
	seen_early += !latch_held_x(&rig.volume->sb_latch);
}

Test(flags, are_seen_in_the_superblock_when_they_are_durable_there)
{
	os_linux_set_point_handler(look_at_superblock);
	set_flags(f, CORE_FLAG_IMMUTABLE);
	os_linux_set_point_handler(NULL);
	cr_assert_gt(changes, 0);
	cr_assert_eq(seen_early, 0);
}

static void change_nothing(struct disk_superblock *sb, void *arg)
{
	(void)sb, (void)arg;
}

/* INV-SB-1: after an update that failed nobody knows which of the two counts. */
Test(flags, a_superblock_that_is_half_there_is_not_written_again)
{
	dev_memory_fail(rig.dev, FAULT_WRITE, 0, -EIO, false);
	cr_assert_eq(volume_change_superblock(rig.volume, change_nothing, NULL), -EIO);
	cr_assert_eq(volume_change_superblock(rig.volume, change_nothing, NULL), -EIO);
	rig_reopen(&rig, true);
	cr_assert_eq(volume_change_superblock(rig.volume, change_nothing, NULL), 0);
}

static int exchange(uint64_t a, const char *name, uint64_t b, const char *other)
{
	return core_rename(rig.core, AT, a, name, strlen(name), b, other, strlen(other),
			   CORE_RENAME_EXCHANGE);
}

/* INV-FLAG-1, INV-FLAG-3 */
Test(flags, immutable_file)
{
	uint64_t from = rig_file(&rig, INO_ROOT, "from"), done;
	uint64_t blocks = rig_file(&rig, INO_ROOT, "blocks");
	static uint8_t buf[8192];
	struct core_attr before;

	cr_assert_eq(rig_write(&rig, from, 0, buf, sizeof(buf)), 0);
	cr_assert_eq(rig_write(&rig, blocks, 0, buf, sizeof(buf)), 0);
	cr_assert_eq(core_setxattr(rig.core, AT, f, "user.a", "b", 1, 0), 0);
	set_flags(f, CORE_FLAG_NODUMP);
	cr_assert_not(core_flags_used(rig.core));
	set_flags(f, CORE_FLAG_IMMUTABLE | CORE_FLAG_NODUMP);
	cr_assert(core_flags_used(rig.core));
	set_flags(blocks, CORE_FLAG_IMMUTABLE);
	cr_assert_eq(core_fsync(rig.core, AT, f, false), 0);
	rig_reopen(&rig, true);
	cr_assert(core_flags_used(rig.core));
	before = rig_attr(&rig, f);
	cr_assert_eq(before.flags, CORE_FLAG_IMMUTABLE | CORE_FLAG_NODUMP);
	cr_expect_eq(rig_write(&rig, f, 0, "x", 1), -EPERM);
	cr_expect_eq(core_write(rig.core, AT, f, 0, "x", 1, CORE_WRITE_APPEND), -EPERM);
	cr_expect_eq(core_write(rig.core, AT, f, 4, "x", 1, CORE_WRITE_KEEP_TIMES), -EPERM);
	cr_expect_eq(rig_truncate(&rig, f, 0), -EPERM);
	cr_expect_eq(rig_truncate(&rig, f, 10), -EPERM);
	cr_expect_eq(set(f, CORE_SET_MODE), -EPERM);
	cr_expect_eq(set(f, CORE_SET_UID), -EPERM);
	cr_expect_eq(set(f, CORE_SET_ATIME_NOW | CORE_SET_MTIME_NOW), -EPERM);
	cr_expect_eq(core_fallocate(rig.core, AT, f, CORE_KEEP_SIZE, 0, 10), -EPERM);
	cr_expect_eq(core_copy(rig.core, AT, from, 0, f, 0, 4096, &done), -EPERM);
	cr_expect_eq(core_copy(rig.core, AT, from, 0, blocks, 0, 4096, &done), -EPERM);
	cr_expect_eq(core_setxattr(rig.core, AT, f, "user.a", "c", 1, 0), -EPERM);
	cr_expect_eq(core_removexattr(rig.core, AT, f, "user.a"), -EPERM);
	cr_expect_eq(rig_unlink(&rig, INO_ROOT, "f"), -EPERM);
	cr_expect_eq(rig_link(&rig, f, INO_ROOT, "g"), -EPERM);
	cr_expect_eq(rig_rename(&rig, INO_ROOT, "f", INO_ROOT, "g"), -EPERM);
	cr_expect_eq(rig_rename(&rig, INO_ROOT, "from", INO_ROOT, "f"), -EPERM);
	cr_expect_eq(exchange(INO_ROOT, "from", INO_ROOT, "f"), -EPERM);
	cr_expect_eq(exchange(INO_ROOT, "f", INO_ROOT, "from"), -EPERM);
	cr_expect_eq(rig_attr(&rig, f).change, before.change);
	/* What the kernel kept of times may still come. */
	cr_expect_eq(set(f, CORE_SET_MTIME | CORE_SET_CTIME | CORE_SET_KEPT_TIMES), 0);
	cr_expect_eq(set(f, CORE_SET_MTIME | CORE_SET_MODE | CORE_SET_KEPT_TIMES), -EPERM);
	set_flags(f, 0);
	cr_assert_eq(rig_write(&rig, f, 0, "x", 1), 0);
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "f"), 0);
}

Test(flags, directories)
{
	set_flags(d, CORE_FLAG_IMMUTABLE);
	cr_expect_eq(create(d, "new"), -EPERM);
	cr_expect_eq(rig_link(&rig, f, d, "new"), -EPERM);
	cr_expect_eq(rig_unlink(&rig, d, "inside"), -EPERM);
	cr_expect_eq(rig_rename(&rig, d, "inside", INO_ROOT, "x"), -EPERM);
	cr_expect_eq(rig_rename(&rig, INO_ROOT, "f", d, "x"), -EPERM);
	cr_expect_eq(exchange(INO_ROOT, "f", d, "inside"), -EPERM);
	cr_expect_eq(rig_rmdir(&rig, INO_ROOT, "d"), -EPERM);
	cr_expect_eq(rig_write(&rig, inside, 0, "x", 1), 0);
	set_flags(d, CORE_FLAG_APPEND);
	cr_expect_eq(create(d, "new"), 0);
	cr_expect_eq(rig_rename(&rig, INO_ROOT, "f", d, "moved"), 0);
	cr_expect_eq(rig_rename(&rig, d, "moved", INO_ROOT, "f"), -EPERM);
	cr_expect_eq(rig_rename(&rig, d, "new", d, "newer"), -EPERM);
	cr_expect_eq(rig_unlink(&rig, d, "new"), -EPERM);
	cr_expect_eq(create(INO_ROOT, "over"), 0);
	cr_expect_eq(rig_rename(&rig, INO_ROOT, "over", d, "new"), -EPERM);
	cr_expect_eq(set(d, CORE_SET_MODE), -EPERM);
	set_flags(d, CORE_FLAG_NODUMP | CORE_FLAG_NOATIME);
	cr_expect_eq(create(d, "heir"), 0);
	cr_expect_eq(rig_unlink(&rig, d, "new"), 0);
}

/* INV-FLAG-2: inline, over the edge to blocks, in blocks; and a crash */
Test(flags, append_only)
{
	static uint8_t old[100000], more[120000], read[120000];
	size_t lens[] = {100, 10000, 100000}, done;
	uint64_t done64;

	rig_fill(old, sizeof(old), 1);
	for (unsigned i = 0; i < array_count(lens); i++) {
		size_t len = lens[i];
		uint64_t g = rig_file(&rig, INO_ROOT, "g");

		cr_assert_eq(rig_write(&rig, g, 0, old, len), 0);
		set_flags(g, CORE_FLAG_APPEND);
		memcpy(more, old, len);
		rig_fill(more + len, sizeof(more) - len, 2);
		more[len / 2] ^= 1;
		cr_expect_eq(rig_write(&rig, g, 0, more, len + 50), -EPERM);
		cr_expect_eq(rig_write(&rig, g, len / 2, more + len / 2, 1), -EPERM);
		more[len / 2] ^= 1;
		more[len - 1] ^= 1;
		cr_expect_eq(rig_write(&rig, g, len - 1, more + len - 1, 2), -EPERM);
		more[len - 1] ^= 1;
		cr_expect_eq(rig_truncate(&rig, g, len - 1), -EPERM);
		cr_expect_eq(core_fallocate(rig.core, AT, g, CORE_PUNCH_HOLE | CORE_KEEP_SIZE, 0,
					    10), -EPERM);
		cr_expect_eq(core_fallocate(rig.core, AT, g, 0, 0, len), 0);
		cr_expect_eq(core_copy(rig.core, AT, f, 0, g, 0, 4, &done64), -EPERM);
		cr_expect_eq(rig_write(&rig, g, len / 2, more + len / 2, 60), 0, "the same");
		cr_expect_eq(rig_write(&rig, g, 0, more, len + 5000), 0, "a page that grew");
		cr_expect_eq(core_write(rig.core, AT, g, 0, more + len + 5000, 100,
					CORE_WRITE_APPEND), 0);
		cr_expect_eq(rig_write(&rig, g, len + 5100, more + len + 5100, 10), 0);
		cr_assert_eq(core_read(rig.core, AT, g, 0, read, sizeof(read), &done), 0);
		cr_assert_eq(done, len + 5110);
		cr_assert_eq(memcmp(read, more, done), 0);
		cr_expect_eq(set(g, CORE_SET_ATIME_NOW | CORE_SET_MTIME), 0);
		cr_expect_eq(set(g, CORE_SET_ATIME | CORE_SET_MTIME), -EPERM);
		cr_expect_eq(set(g, CORE_SET_MTIME), -EPERM);
		cr_expect_eq(set(g, CORE_SET_ATIME_NOW | CORE_SET_MODE), -EPERM);
		cr_expect_eq(set(g, CORE_SET_MTIME | CORE_SET_CTIME | CORE_SET_KEPT_TIMES), 0);
		cr_expect_eq(rig_unlink(&rig, INO_ROOT, "g"), -EPERM);
		set_flags(g, 0);
		cr_expect_eq(rig_unlink(&rig, INO_ROOT, "g"), 0);
	}
}

/* They are of the inode's life with names: what has none is reclaimed. */
Test(flags, an_orphan_with_flags_is_reclaimed)
{
	uint64_t g = rig_held_file(&rig, INO_ROOT, "g");
	struct core_attr attr;

	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "g"), 0);
	set_flags(g, CORE_FLAG_IMMUTABLE);
	core_forget(rig.core, g, 1);
	rig_purge(&rig);
	cr_assert_eq(core_getattr(rig.core, AT, g, &attr), -ENOENT);
}

Test(flags, noatime)
{
	struct timespec before;

	set_flags(f, CORE_FLAG_NOATIME);
	before = rig_attr(&rig, f).atime;
	cr_assert_eq(core_accessed(rig.core, AT, f, CORE_ATIME_STRICT), 0);
	cr_assert_eq(rig_attr(&rig, f).atime.tv_nsec, before.tv_nsec);
	cr_assert_eq(rig_attr(&rig, f).atime.tv_sec, before.tv_sec);
}
