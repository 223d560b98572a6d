/* Attributes: times, modes, owners, set-id bits, atime. */
#include "fs/core_internal.h"
#include "fs/inode_table.h"
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
	rig_close(&rig);
}

TestSuite(attr, .init = setup, .fini = teardown);

static int set(uint64_t ino, unsigned what, struct core_attr *attr)
{
	return core_setattr(rig.core, VIEW_BASE, ino, what, attr);
}

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* CASES 25 */
Test(attr, times_come_back_exactly)
{
	static const struct timespec times[] = {
		{0, 0},
		{-14245441, 750000000},
		{-1, 999999999},
		{2177452800, 1},          /* 2039 */
		{16725225600, 123456789}, /* 2500 */
		{INT64_MAX, 999999999},
		{INT64_MIN, 1},
	};
	uint64_t f = rig_file(&rig, INO_ROOT, "f");

	for (unsigned i = 0; i < array_count(times); i++) {
		struct core_attr attr = {
			.atime = times[i],
			.mtime = times[array_count(times) - 1 - i],
		};
		struct core_attr want = attr;

		cr_assert_eq(set(f, CORE_SET_ATIME | CORE_SET_MTIME, &attr), 0);
		if (i % 2)
			rig_reopen(&rig, false);
		attr = rig_attr(&rig, f);
		cr_assert(same_time(attr.atime, want.atime));
		cr_assert(same_time(attr.mtime, want.mtime));
	}
}

Test(attr, bad_times_are_refused)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f");
	struct core_attr attr = {.atime = {1, 1000000000}};

	cr_assert_eq(set(f, CORE_SET_ATIME, &attr), -EINVAL);
	attr.atime.tv_nsec = -1;
	cr_assert_eq(set(f, CORE_SET_ATIME, &attr), -EINVAL);
	cr_assert_eq(set(f, CORE_SET_ATIME_NOW, &attr), 0);
	cr_assert_eq(set(999, CORE_SET_ATIME_NOW, &attr), -ENOENT);
}

Test(attr, modes_and_owners)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f");
	struct core_attr before = rig_attr(&rig, f), attr = {.mode = 07751, .uid = 5, .gid = 6};

	cr_assert_eq(set(f, CORE_SET_MODE, &attr), 0);
	cr_assert_eq(attr.mode, S_IFREG | 07751);
	cr_assert_eq(attr.uid, 1000);
	cr_assert(same_time(attr.mtime, before.mtime));
	cr_assert_gt(attr.change, before.change);
	attr.uid = 5;
	attr.gid = 6;
	cr_assert_eq(set(f, CORE_SET_UID | CORE_SET_GID, &attr), 0);
	cr_assert_eq(attr.uid, 5);
	cr_assert_eq(attr.gid, 6);
	cr_assert_eq(attr.mode, S_IFREG | 07751);
	cr_assert_eq(set(f, 0, &attr), 0);
	cr_assert_eq(attr.gid, 6);
}

/* CASES 27 */
Test(attr, set_id_bits_go)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f"), d = rig_dir(&rig, INO_ROOT, "d");
	const struct core_cred root = {.uid = 0};
	struct core_attr attr = {.mode = 06777};

	cr_assert_eq(set(f, CORE_SET_MODE, &attr), 0);
	cr_assert_eq(rig_write(&rig, f, 0, "x", 1), 0);
	cr_assert_eq(rig_attr(&rig, f).mode & 07777, 06777);
	cr_assert_eq(core_write(rig.core, VIEW_BASE, f, 0, "x", 1, CORE_WRITE_KILL_SUID), 0);
	cr_assert_eq(rig_attr(&rig, f).mode & 07777, 0777);
	for (unsigned mode = 0; mode < 4; mode++) {
		static const unsigned modes[] = {0, CORE_KEEP_SIZE, CORE_ZERO_RANGE,
						 CORE_PUNCH_HOLE | CORE_KEEP_SIZE};

		attr.mode = 06777;
		cr_assert_eq(set(f, CORE_SET_MODE, &attr), 0);
		cr_assert_eq(core_fallocate(rig.core, VIEW_BASE, f, modes[mode], 0, 9000), 0);
		cr_assert_eq(rig_attr(&rig, f).mode & 07777, 06777);
		cr_assert_eq(core_fallocate(rig.core, VIEW_BASE, f,
					    modes[mode] | CORE_FALLOCATE_KILL_SUID, 0, 9000), 0);
		cr_assert_eq(rig_attr(&rig, f).mode & 07777, 0777);
	}
	attr.mode = 06767; /* not group-executable: setgid means something else */
	cr_assert_eq(set(f, CORE_SET_MODE, &attr), 0);
	attr.size = 0;
	cr_assert_eq(set(f, CORE_SET_SIZE | CORE_KILL_SUID, &attr), 0);
	cr_assert_eq(rig_attr(&rig, f).mode & 07777, 02767);
	cr_assert_eq(core_create(rig.core, VIEW_BASE, &root, INO_ROOT, "p", 1, S_IFIFO | 06777, 0,
				 &attr), 0);
	core_forget(rig.core, attr.ino, 1);
	cr_assert_eq(set(attr.ino, CORE_SET_UID | CORE_KILL_SUID, &attr), 0);
	cr_assert_eq(attr.mode & 07777, 0777);
	attr.mode = 02777;
	cr_assert_eq(set(d, CORE_SET_MODE, &attr), 0);
	cr_assert_eq(set(d, CORE_SET_UID | CORE_KILL_SUID, &attr), 0);
	cr_assert_eq(rig_attr(&rig, d).mode & 07777, 02777);
}

/* Of a file whose group may not execute it: only who is not of the group takes setgid away. */
Test(attr, setgid_without_group_execution_goes_with_outsiders)
{
	static const unsigned modes[] = {0, CORE_KEEP_SIZE, CORE_ZERO_RANGE,
					 CORE_PUNCH_HOLE | CORE_KEEP_SIZE};
	uint64_t f = rig_file(&rig, INO_ROOT, "f"), d = rig_dir(&rig, INO_ROOT, "d");
	struct core_attr attr = {.mode = 06767};

	for (unsigned outsider = 0; outsider < 2; outsider++) {
		unsigned left = outsider ? 0767 : 02767;

		attr.mode = 06767;
		cr_assert_eq(set(f, CORE_SET_MODE, &attr), 0);
		cr_assert_eq(core_write(rig.core, VIEW_BASE, f, 0, "x", 1, CORE_WRITE_KILL_SUID |
					(outsider ? CORE_WRITE_OUTSIDER : 0)), 0);
		cr_assert_eq(rig_attr(&rig, f).mode & 07777, left);
		for (unsigned i = 0; i < array_count(modes); i++) {
			attr.mode = 06767;
			cr_assert_eq(set(f, CORE_SET_MODE, &attr), 0);
			cr_assert_eq(core_fallocate(rig.core, VIEW_BASE, f, modes[i] |
						    CORE_FALLOCATE_KILL_SUID |
						    (outsider ? CORE_FALLOCATE_OUTSIDER : 0),
						    0, 9000), 0);
			cr_assert_eq(rig_attr(&rig, f).mode & 07777, left);
		}
		attr.mode = 06767;
		cr_assert_eq(set(f, CORE_SET_MODE, &attr), 0);
		attr.size = 10;
		cr_assert_eq(set(f, CORE_SET_SIZE | CORE_KILL_SUID |
				 (outsider ? CORE_OUTSIDER : 0), &attr), 0);
		cr_assert_eq(attr.mode & 07777, left);
	}
	attr.mode = 02767;
	cr_assert_eq(set(d, CORE_SET_MODE, &attr), 0);
	cr_assert_eq(set(d, CORE_SET_UID | CORE_KILL_SUID | CORE_OUTSIDER, &attr), 0);
	cr_assert_eq(attr.mode & 07777, 02767, "of a directory it means something else");
}

Test(attr, truncate_sets_other_attributes_in_one)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f");
	struct core_attr attr;
	static uint8_t buf[50000];

	cr_assert_eq(rig_write(&rig, f, 0, buf, sizeof(buf)), 0);
	attr = (struct core_attr){.size = 12345, .mode = 0600, .mtime = {77, 88}};
	cr_assert_eq(set(f, CORE_SET_SIZE | CORE_SET_MODE | CORE_SET_MTIME, &attr), 0);
	cr_assert_eq(attr.size, 12345);
	cr_assert_eq(attr.mode, S_IFREG | 0600);
	cr_assert_eq(attr.mtime.tv_sec, 77);
	attr = (struct core_attr){.size = 0};
	cr_assert_eq(set(f, CORE_SET_SIZE, &attr), 0);
	cr_assert_gt(attr.mtime.tv_sec, 77);
	cr_assert_eq(attr.blocks_512, 0);
}

/* What the kernel sends after each unlink under the writeback cache. */
Test(attr, the_change_time_of_a_removed_file_is_not_logged)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f");
	struct core_attr attr = {.ctime = {12345, 6}};
	lsn_t before;

	cr_assert_eq(core_unlink(rig.core, VIEW_BASE, INO_ROOT, "f", 1), 0);
	before = log_next_lsn(rig.volume->log);
	cr_assert_eq(set(f, CORE_SET_CTIME, &attr), 0);
	cr_assert_eq(log_next_lsn(rig.volume->log), before);
	cr_assert_eq(attr.ctime.tv_sec, 12345);
	cr_assert_eq(attr.nlink, 0);
	attr.mode = 0600;
	cr_assert_eq(set(f, CORE_SET_MODE | CORE_SET_CTIME, &attr), 0);
	cr_assert_eq(rig_attr(&rig, f).mode & 07777, 0600, "all else is");
}

/* CASES 26 */
Test(attr, atime_follows_the_policy)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f");
	struct core_attr attr, before;

	attr = (struct core_attr){.atime = {100, 0}, .mtime = {200, 0}, .ctime = {200, 0}};
	cr_assert_eq(set(f, CORE_SET_ATIME | CORE_SET_MTIME | CORE_SET_CTIME, &attr), 0);
	cr_assert_eq(attr.ctime.tv_sec, 200);
	cr_assert_eq(core_accessed(rig.core, VIEW_BASE, f, CORE_ATIME_RELATIVE), 0);
	before = attr;
	attr = rig_attr(&rig, f);
	cr_assert_gt(attr.atime.tv_sec, 200); /* was not after mtime */
	cr_assert_eq(attr.ctime.tv_sec, 200);
	cr_assert_eq(attr.change, before.change);
	before = attr;
	cr_assert_eq(core_accessed(rig.core, VIEW_BASE, f, CORE_ATIME_RELATIVE), 0);
	cr_assert(same_time(rig_attr(&rig, f).atime, before.atime));
	rig_tick();
	cr_assert_eq(core_accessed(rig.core, VIEW_BASE, f, CORE_ATIME_STRICT), 0);
	cr_assert_not(same_time(rig_attr(&rig, f).atime, before.atime));
	attr.atime.tv_sec = before.atime.tv_sec - 90000; /* a day and more ago */
	cr_assert_eq(set(f, CORE_SET_ATIME | CORE_SET_CTIME, &attr), 0);
	cr_assert_eq(core_accessed(rig.core, VIEW_BASE, f, CORE_ATIME_RELATIVE), 0);
	cr_assert_geq(rig_attr(&rig, f).atime.tv_sec, before.atime.tv_sec);
}

static struct timespec read_at(uint64_t ino)
{
	struct core_attr old = {.atime = {100, 0}};

	cr_assert_eq(set(ino, CORE_SET_ATIME, &old), 0);
	cr_assert_eq(core_accessed(rig.core, VIEW_BASE, ino, CORE_ATIME_STRICT), 0);
	return rig_attr(&rig, ino).atime;
}

static struct timespec stored(uint64_t ino)
{
	cr_assert_eq(core_fsync(rig.core, VIEW_BASE, INO_ROOT, false), 0);
	rig_reopen(&rig, true);
	return rig_attr(&rig, ino).atime;
}

/* INV-INODE-7 */
Test(attr, reading_logs_nothing_and_is_seen)
{
	uint64_t f = rig_held_file(&rig, INO_ROOT, "f");
	struct timespec first = read_at(f);
	lsn_t before = log_next_lsn(rig.volume->log);
	struct core_attr attr;

	cr_assert_gt(first.tv_sec, 100);
	rig_tick();
	cr_assert_eq(core_accessed(rig.core, VIEW_BASE, f, CORE_ATIME_STRICT), 0);
	cr_assert_not(same_time(rig_attr(&rig, f).atime, first));
	cr_assert_eq(log_next_lsn(rig.volume->log), before);
	cr_assert_eq(rig_lookup(&rig, INO_ROOT, "f", &attr), 0);
	cr_assert(same_time(attr.atime, rig_attr(&rig, f).atime));
	core_forget(rig.core, f, 1);
}

Test(attr, a_kept_atime_is_stored_by_whatever_comes_next)
{
	static uint8_t buf[20000];
	struct core_attr attr;

	for (unsigned how = 0; how < 8; how++) {
		uint64_t f = rig_held_file(&rig, INO_ROOT, "f");
		struct timespec seen = read_at(f);

		switch (how) {
		case 0: /* a small write */
			cr_assert_eq(rig_write(&rig, f, 0, "x", 1), 0);
			break;
		case 1: /* a large one */
			cr_assert_eq(rig_write(&rig, f, 0, buf, sizeof(buf)), 0);
			break;
		case 2:
			attr.mode = 0600;
			cr_assert_eq(set(f, CORE_SET_MODE, &attr), 0);
			cr_assert(same_time(attr.atime, seen));
			break;
		case 3:
			cr_assert_eq(rig_truncate(&rig, f, 10), 0);
			break;
		case 4:
			cr_assert_eq(core_fsync(rig.core, VIEW_BASE, f, false), 0);
			break;
		case 5:
			core_forget(rig.core, f, 1);
			break;
		case 6: /* close */
			rig_reopen(&rig, false);
			break;
		default: /* an explicit one wins, whatever is done then */
			attr.atime = seen = (struct timespec){7, 8};
			cr_assert_eq(set(f, CORE_SET_ATIME, &attr), 0);
			cr_assert_eq(core_fsync(rig.core, VIEW_BASE, f, false), 0);
			core_forget(rig.core, f, 1);
		}
		cr_assert(same_time(rig_attr(&rig, f).atime, seen), "%u", how);
		/* The core's close writes it, too: what was stored before is what counts. */
		cr_assert(how == 3 || !inode_kept_atime(&rig.core->table, f, &seen), "%u", how);
		seen = rig_attr(&rig, f).atime;
		cr_assert(same_time(stored(f), seen), "%u", how);
		cr_assert_eq(rig_unlink(&rig, INO_ROOT, "f"), 0);
	}
}

Test(attr, an_explicit_atime_is_not_overtaken)
{
	uint64_t f = rig_held_file(&rig, INO_ROOT, "f");
	struct timespec kept = read_at(f);
	struct core_attr attr = {.atime = {7, 8}};

	cr_assert(inode_keep_atime(&rig.core->table, f, kept));
	cr_assert_eq(set(f, CORE_SET_ATIME, &attr), 0);
	inode_atime_written(&rig.core->table, f, kept);
	core_forget(rig.core, f, 1);
	cr_assert_eq(rig_attr(&rig, f).atime.tv_sec, 7);
	cr_assert_not(inode_keep_atime(&rig.core->table, f, kept), "nobody looked it up");
	/* Then it is stored at once. */
	cr_assert_eq(core_accessed(rig.core, VIEW_BASE, f, CORE_ATIME_STRICT), 0);
	cr_assert_gt(stored(f).tv_sec, 7);
}

static uint64_t overtaken;

static void set_meanwhile(const char *point)
{
	struct core_attr attr = {.atime = {7, 8}};
	uint64_t ino = overtaken;

	if (strcmp(point, "core:atime_write") != 0 || ino == 0)
		return;
	overtaken = 0;
	cr_assert_eq(set(ino, CORE_SET_ATIME, &attr), 0);
}

/* A kept time is on its way to the record when an explicit one comes. */
Test(attr, an_explicit_atime_stays_whatever_was_kept_before)
{
	uint64_t f = rig_held_file(&rig, INO_ROOT, "f");

	read_at(f);
	overtaken = f;
	os_linux_set_point_handler(set_meanwhile);
	cr_assert_eq(core_fsync(rig.core, VIEW_BASE, f, false), 0);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(overtaken, 0);
	cr_assert_eq(rig_attr(&rig, f).atime.tv_sec, 7);
	cr_assert_eq(stored(f).tv_sec, 7);
}

Test(attr, change_is_raised_by_each_change)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f"), last = rig_attr(&rig, f).change;
	struct core_attr attr;

	cr_assert_eq(rig_write(&rig, f, 0, "x", 1), 0);
	cr_assert_gt(rig_attr(&rig, f).change, last);
	last = rig_attr(&rig, f).change;
	cr_assert_eq(rig_truncate(&rig, f, 1), 0);
	cr_assert_gt(rig_attr(&rig, f).change, last);
	last = rig_attr(&rig, f).change;
	cr_assert_eq(rig_link(&rig, f, INO_ROOT, "g"), 0);
	cr_assert_gt(rig_attr(&rig, f).change, last);
	last = rig_attr(&rig, f).change;
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "g", INO_ROOT, "h"), 0);
	cr_assert_gt(rig_attr(&rig, f).change, last);
	last = rig_attr(&rig, f).change;
	cr_assert_eq(core_setxattr(rig.core, VIEW_BASE, f, "user.a", "b", 1, 0), 0);
	attr = rig_attr(&rig, f);
	cr_assert_gt(attr.change, last);
}

static uint64_t ahead_ns;

static uint64_t later_ns(const struct os *os)
{
	(void)os;
	return os_linux.mono_ns(&os_linux) + ahead_ns;
}

/* INV-INODE-5 */
Test(attr, link_counts_settle_before_they_are_cached)
{
	struct os os = os_linux;
	uint64_t f = rig_held_file(&rig, INO_ROOT, "a");
	uint64_t g = rig_held_file(&rig, INO_ROOT, "g");
	struct core_attr attr;

	os.mono_ns = later_ns;
	os_set_current(&os);
	cr_assert(rig_attr(&rig, f).links_settled);
	cr_assert_eq(rig_link(&rig, f, INO_ROOT, "b"), 0);
	cr_assert_not(rig_attr(&rig, f).links_settled);
	cr_assert_eq(rig_lookup(&rig, INO_ROOT, "a", &attr), 0);
	cr_assert_not(attr.links_settled);
	ahead_ns = LINKS_SETTLE_NS;
	cr_assert(rig_attr(&rig, f).links_settled);

	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "a"), 0);
	cr_assert_not(rig_attr(&rig, f).links_settled);
	ahead_ns *= 2;
	cr_assert(rig_attr(&rig, f).links_settled);

	cr_assert_eq(rig_link(&rig, f, INO_ROOT, "a"), 0);
	ahead_ns += LINKS_SETTLE_NS;
	cr_assert_eq(rig_rename(&rig, INO_ROOT, "g", INO_ROOT, "a"), 0);
	cr_assert_not(rig_attr(&rig, f).links_settled);
	cr_assert(rig_attr(&rig, g).links_settled);
	cr_assert(rig_attr(&rig, INO_ROOT).links_settled);
	os_set_current(NULL);
	core_forget(rig.core, f, 2);
	core_forget(rig.core, g, 1);
}
