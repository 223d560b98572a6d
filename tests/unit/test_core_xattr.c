/* Extended attributes. */
#include "fs/record.h"
#include "tests/lib/core_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>

static struct rig rig;
static uint64_t f;

static void setup(void)
{
	rig_open(&rig, 32u << 20, 4096, false);
	f = rig_file(&rig, INO_ROOT, "f");
}

static void teardown(void)
{
	rig_close(&rig);
}

TestSuite(xattr, .init = setup, .fini = teardown);

static int set(const char *name, const void *value, size_t len, unsigned flags)
{
	return core_setxattr(rig.core, VIEW_BASE, f, name, value, len, flags);
}

static int get(const char *name, void *value, size_t cap, size_t *len)
{
	return core_getxattr(rig.core, VIEW_BASE, f, name, value, cap, len);
}

static uint64_t free_blocks(void)
{
	struct statvfs s;

	rig_purge(&rig);
	cr_assert_eq(core_statfs(rig.core, VIEW_BASE, &s), 0);
	return s.f_bfree;
}

Test(xattr, set_get_remove)
{
	char buf[64];
	size_t len;

	cr_assert_eq(get("user.a", buf, sizeof(buf), &len), -ENODATA);
	cr_assert_eq(set("user.a", "value", 5, 0), 0);
	cr_assert_eq(get("user.a", buf, sizeof(buf), &len), 0);
	cr_assert_eq(len, 5);
	cr_assert_eq(memcmp(buf, "value", 5), 0);
	cr_assert_eq(get("user.a", NULL, 0, &len), 0);
	cr_assert_eq(len, 5);
	cr_assert_eq(get("user.a", buf, 4, &len), -ERANGE);
	cr_assert_eq(get("user.b", buf, sizeof(buf), &len), -ENODATA);
	cr_assert_eq(set("user.a", "w", 1, CORE_XATTR_CREATE), -EEXIST);
	cr_assert_eq(set("user.b", "w", 1, CORE_XATTR_REPLACE), -ENODATA);
	cr_assert_eq(set("user.a", "w", 1, CORE_XATTR_REPLACE), 0);
	cr_assert_eq(set("user.b", "", 0, CORE_XATTR_CREATE), 0);
	cr_assert_eq(get("user.b", buf, sizeof(buf), &len), 0);
	cr_assert_eq(len, 0);
	cr_assert_eq(set("user.b", "w", 1, 4), -EINVAL);
	cr_assert_eq(core_removexattr(rig.core, VIEW_BASE, f, "user.a"), 0);
	cr_assert_eq(core_removexattr(rig.core, VIEW_BASE, f, "user.a"), -ENODATA);
	cr_assert_eq(core_removexattr(rig.core, VIEW_BASE, f, "user.b"), 0);
	cr_assert_eq(core_removexattr(rig.core, VIEW_BASE, f, "user.b"), -ENODATA);
	cr_assert_eq(core_setxattr(rig.core, VIEW_BASE, 999, "user.a", "x", 1, 0), -ENOENT);
}

Test(xattr, names)
{
	char name[300], buf[8];
	size_t len;

	memset(name, 'x', sizeof(name));
	name[255] = '\0';
	cr_assert_eq(set(name, "v", 1, 0), 0);
	cr_assert_eq(get(name, buf, sizeof(buf), &len), 0);
	name[255] = 'x';
	name[256] = '\0';
	cr_assert_eq(set(name, "v", 1, 0), -ERANGE);
	cr_assert_eq(get(name, buf, sizeof(buf), &len), -ERANGE);
	cr_assert_eq(set("", "v", 1, 0), -ERANGE);
}

/* CASES 29 */
Test(xattr, large_values)
{
	static uint8_t in[XATTR_VALUE_MAX + 8], out[XATTR_VALUE_MAX + 8];
	static const size_t lengths[] = {700, 1200, 4096, 4097, 50000, XATTR_VALUE_MAX};
	uint64_t before = free_blocks();
	size_t len;

	rig_fill(in, sizeof(in), 3);
	for (unsigned i = 0; i < array_count(lengths); i++) {
		cr_assert_eq(set("user.big", in + i, lengths[i], 0), 0);
		cr_assert_eq(get("user.big", out, sizeof(out), &len), 0);
		cr_assert_eq(len, lengths[i]);
		cr_assert_eq(memcmp(out, in + i, len), 0);
		cr_assert_eq(get("user.big", out, lengths[i] - 1, &len), -ERANGE);
	}
	cr_assert_eq(set("user.big", in, XATTR_VALUE_MAX + 1, 0), -E2BIG);
	cr_assert_eq(get("user.big", NULL, 0, &len), 0);
	cr_assert_eq(len, XATTR_VALUE_MAX);
	rig_reopen(&rig, true); /* without fsync: it may be the value or none */
	if (get("user.big", out, sizeof(out), &len) == 0) {
		cr_assert_eq(core_removexattr(rig.core, VIEW_BASE, f, "user.big"), 0);
		cr_assert_geq(free_blocks() + 4, before);
	}
}

/* A replaced value's LOB goes; so do those of an inode that goes. */
Test(xattr, space_of_values_comes_back)
{
	static uint8_t in[20000];
	uint64_t before = free_blocks();

	for (unsigned i = 0; i < 50; i++)
		cr_assert_eq(set("user.a", in, 5000 + i * 300, 0), 0);
	cr_assert_geq(free_blocks() + 16, before);
	for (unsigned i = 0; i < 40; i++) {
		char name[16];

		snprintf(name, sizeof(name), "user.%u", i);
		cr_assert_eq(set(name, in, 9000, 0), 0);
	}
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "f"), 0);
	cr_assert_geq(free_blocks() + 24, before);
}

Test(xattr, many_and_listing)
{
	static char list[64 * 1024];
	unsigned seen = 0;
	struct record record;
	size_t len, all;

	cr_assert_eq(core_listxattr(rig.core, VIEW_BASE, f, list, sizeof(list), &len), 0);
	cr_assert_eq(len, 0);
	for (unsigned i = 0; i < 1500; i++) {
		char name[32], value[32];

		snprintf(name, sizeof(name), "user.number%u", i);
		snprintf(value, sizeof(value), "value %u", i);
		cr_assert_eq(set(name, value, strlen(value), CORE_XATTR_CREATE), 0);
	}
	cr_assert_eq(core_listxattr(rig.core, VIEW_BASE, f, NULL, 0, &all), 0);
	cr_assert_eq(core_listxattr(rig.core, VIEW_BASE, f, list, all - 1, &len), -ERANGE);
	cr_assert_eq(core_listxattr(rig.core, VIEW_BASE, f, list, all, &len), 0);
	cr_assert_eq(len, all);
	for (size_t at = 0; at < len; at += strlen(list + at) + 1) {
		char want[32], value[32];
		size_t value_len;

		cr_assert_eq(get(list + at, value, sizeof(value), &value_len), 0);
		snprintf(want, sizeof(want), "value %s", list + at + strlen("user.number"));
		cr_assert_eq(value_len, strlen(want));
		cr_assert_eq(memcmp(value, want, value_len), 0);
		seen++;
	}
	cr_assert_eq(seen, 1500);
	cr_assert_eq(record_read(rig.volume, f, &record, NULL), 0);
	cr_assert_eq(record.xattr_count, 1500);
	/* INV-XATTR-1 after the last one is gone */
	for (size_t at = 0; at < len; at += strlen(list + at) + 1)
		cr_assert_eq(core_removexattr(rig.core, VIEW_BASE, f, list + at), 0);
	cr_assert_eq(record_read(rig.volume, f, &record, NULL), 0);
	cr_assert_eq(record.xattr_count, 0);
	cr_assert_eq(core_listxattr(rig.core, VIEW_BASE, f, list, sizeof(list), &len), 0);
	cr_assert_eq(len, 0);
}

Test(xattr, directories_and_symlinks_have_them_too)
{
	uint64_t d = rig_dir(&rig, INO_ROOT, "d");
	struct core_attr attr;
	char buf[8];
	size_t len;

	cr_assert_eq(core_symlink(rig.core, VIEW_BASE, &rig_cred, INO_ROOT, "l", 1, "target", 6,
				  &attr), 0);
	core_forget(rig.core, attr.ino, 1);
	cr_assert_eq(core_setxattr(rig.core, VIEW_BASE, d, "user.d", "1", 1, 0), 0);
	cr_assert_eq(core_setxattr(rig.core, VIEW_BASE, attr.ino, "trusted.l", "2", 1, 0), 0);
	cr_assert_eq(core_getxattr(rig.core, VIEW_BASE, d, "user.d", buf, 8, &len), 0);
	cr_assert_eq(core_getxattr(rig.core, VIEW_BASE, attr.ino, "trusted.l", buf, 8, &len), 0);
	cr_assert_eq(buf[0], '2');
	cr_assert_eq(rig_rmdir(&rig, INO_ROOT, "d"), 0);
}
