/* Access control lists: what is valid, modes, inheritance. */
#include "engine/mtr.h"
#include "fs/acl.h"
#include "tests/lib/core_rig.h"

#include <criterion/criterion.h>
#include <errno.h>

#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"

static struct rig rig;

static void setup(void)
{
	rig_open(&rig, 16u << 20, 4096, false);
}

static void teardown(void)
{
	rig_close(&rig);
}

TestSuite(acl, .init = setup, .fini = teardown);

struct entry {
	unsigned tag, perm;
	uint32_t id;
};
#define OWNER 1
#define USER 2
#define GROUP_OWNER 4
#define GROUP 8
#define MASK 16
#define OTHER 32
#define NOBODY UINT32_MAX

struct list {
	uint8_t bytes[4096 + 64];
	size_t len;
};

static void add(struct list *list, struct entry e)
{
	const uint8_t bytes[] = {
		(uint8_t)e.tag, (uint8_t)(e.tag >> 8), (uint8_t)e.perm, (uint8_t)(e.perm >> 8),
		(uint8_t)e.id, (uint8_t)(e.id >> 8), (uint8_t)(e.id >> 16), (uint8_t)(e.id >> 24),
	};

	memcpy(list->bytes + list->len, bytes, sizeof(bytes));
	list->len += sizeof(bytes);
}

static struct list make(const struct entry *entries, size_t count)
{
	struct list list = {.bytes = {2}, .len = 4};

	for (size_t i = 0; i < count; i++)
		add(&list, entries[i]);
	return list;
}
#define LIST(...)                                                                                  \
	make((const struct entry[]){__VA_ARGS__},                                                  \
	     sizeof((const struct entry[]){__VA_ARGS__}) / sizeof(struct entry))

static int set(uint64_t ino, const char *name, const struct list *list)
{
	return core_setxattr(rig.core, VIEW_BASE, ino, name, list->bytes, list->len, 0);
}

static bool has(uint64_t ino, const char *name)
{
	size_t len;

	return core_getxattr(rig.core, VIEW_BASE, ino, name, NULL, 0, &len) == 0;
}

static bool is(uint64_t ino, const char *name, const struct list *want)
{
	uint8_t value[4096];
	size_t len;

	return core_getxattr(rig.core, VIEW_BASE, ino, name, value, sizeof(value), &len) == 0 &&
	       len == want->len && memcmp(value, want->bytes, len) == 0;
}

static uint32_t mode_of(uint64_t ino)
{
	return rig_attr(&rig, ino).mode & 07777;
}

static uint64_t made(uint64_t parent, const char *name, uint32_t mode, uint32_t umask)
{
	const struct core_cred cred = {.uid = 1000, .gid = 1000, .umask = umask};
	struct core_attr attr;

	cr_assert_eq(core_create(rig.core, VIEW_BASE, &cred, parent, name, strlen(name), mode, 0,
				 &attr), 0);
	core_forget(rig.core, attr.ino, 1);
	return attr.ino;
}

/* INV-ACL-1 */
Test(acl, only_valid_lists_are_taken)
{
	const struct {
		struct list list;
		bool valid;
	} lists[] = {
		{LIST({OWNER, 7, NOBODY}, {GROUP_OWNER, 5, NOBODY}, {OTHER, 4, NOBODY}), true},
		{LIST({OWNER, 7, 0}, {USER, 7, 1}, {USER, 0, 1}, {GROUP_OWNER, 5, 0},
		      {GROUP, 7, 9}, {MASK, 3, 0}, {OTHER, 0, 0}), true},
		{LIST({OWNER, 7, 0}, {GROUP_OWNER, 5, 0}, {MASK, 3, 0}, {OTHER, 0, 0}), true},
		{LIST({OWNER, 7, 0}, {GROUP_OWNER, 5, 0}), false},
		{LIST({OWNER, 7, 0}, {OTHER, 5, 0}), false},
		{LIST({GROUP_OWNER, 7, 0}, {OTHER, 5, 0}), false},
		{LIST({OWNER, 7, 0}, {OWNER, 7, 0}, {GROUP_OWNER, 5, 0}, {OTHER, 0, 0}), false},
		{LIST({GROUP_OWNER, 7, 0}, {OWNER, 7, 0}, {OTHER, 0, 0}), false},
		{LIST({OWNER, 8, 0}, {GROUP_OWNER, 5, 0}, {OTHER, 0, 0}), false},
		{LIST({OWNER, 7, 0}, {USER, 7, 1}, {GROUP_OWNER, 5, 0}, {OTHER, 0, 0}), false},
		{LIST({OWNER, 7, 0}, {USER, 7, NOBODY}, {GROUP_OWNER, 5, 0}, {MASK, 7, 0},
		      {OTHER, 0, 0}), false},
		{LIST({OWNER, 7, 0}, {3, 7, 1}, {GROUP_OWNER, 5, 0}, {MASK, 7, 0}, {OTHER, 0, 0}),
		 false},
		{LIST({OWNER, 7, 0}, {GROUP_OWNER, 5, 0}, {OTHER, 0, 0}, {64, 0, 0}), false},
		{LIST({0, 7, 0}, {OWNER, 7, 0}, {GROUP_OWNER, 5, 0}, {OTHER, 0, 0}), false},
	};
	uint64_t d = rig_dir(&rig, INO_ROOT, "d");
	struct list list = lists[0].list;

	for (unsigned i = 0; i < array_count(lists); i++)
		cr_expect_eq(set(d, DEFAULT, &lists[i].list), lists[i].valid ? 0 : -EINVAL, "%u",
			     i);
	list.len--;
	cr_assert_eq(set(d, DEFAULT, &list), -EINVAL);
	list.len = 3;
	cr_assert_eq(set(d, DEFAULT, &list), -EINVAL);
	list = lists[0].list;
	list.bytes[0] = 1;
	cr_assert_eq(set(d, DEFAULT, &list), -EINVAL);
}

/* INV-ACL-2, INV-ACL-3 */
Test(acl, mode_and_list_say_the_same)
{
	const struct list full = LIST({OWNER, 6, NOBODY}, {USER, 7, 5}, {GROUP_OWNER, 1, NOBODY},
				      {MASK, 4, NOBODY}, {OTHER, 2, NOBODY});
	const struct list after = LIST({OWNER, 7, NOBODY}, {USER, 7, 5}, {GROUP_OWNER, 1, NOBODY},
				       {MASK, 5, NOBODY}, {OTHER, 0, NOBODY});
	const struct list minimal = LIST({OWNER, 5, NOBODY}, {GROUP_OWNER, 0, NOBODY},
					 {OTHER, 1, NOBODY});
	uint64_t f = rig_file(&rig, INO_ROOT, "f");
	struct core_attr attr = {.mode = 06750, .size = 0};

	cr_assert_eq(core_setattr(rig.core, VIEW_BASE, f, CORE_SET_MODE, &attr), 0);
	cr_assert_eq(set(f, ACCESS, &full), 0);
	cr_assert_eq(mode_of(f), 06642);
	cr_assert(is(f, ACCESS, &full));
	attr.mode = 0750;
	cr_assert_eq(core_setattr(rig.core, VIEW_BASE, f, CORE_SET_MODE, &attr), 0);
	cr_assert(is(f, ACCESS, &after));
	/* With a truncation, too: of inline contents, and of blocks */
	for (unsigned i = 0; i < 2; i++) {
		static uint8_t buf[20000];

		cr_assert_eq(set(f, ACCESS, &full), 0);
		cr_assert_eq(rig_write(&rig, f, 0, buf, i ? sizeof(buf) : 100), 0);
		attr = (struct core_attr){.mode = 0750, .size = 50};
		cr_assert_eq(core_setattr(rig.core, VIEW_BASE, f, CORE_SET_MODE | CORE_SET_SIZE,
					  &attr), 0);
		cr_assert(is(f, ACCESS, &after));
	}
	cr_assert_eq(set(f, ACCESS, &minimal), 0);
	cr_assert_not(has(f, ACCESS));
	cr_assert_eq(mode_of(f), 0501);
	cr_assert_eq(set(f, ACCESS, &minimal), 0, "again, there being none");
	cr_assert_eq(core_removexattr(rig.core, VIEW_BASE, f, ACCESS), -ENODATA);
}

Test(acl, set_to_nothing_is_removed)
{
	const struct list none = {.bytes = {2}, .len = 4};
	const struct list some = LIST({OWNER, 7, NOBODY}, {GROUP_OWNER, 5, NOBODY},
				      {OTHER, 4, NOBODY});
	uint64_t d = rig_dir(&rig, INO_ROOT, "d");

	cr_assert_eq(set(d, DEFAULT, &none), 0);
	cr_assert_eq(set(d, DEFAULT, &some), 0);
	cr_assert(has(d, DEFAULT), "a default list is kept however little it says");
	cr_assert_eq(mode_of(d), 0755);
	cr_assert_eq(set(d, DEFAULT, &none), 0);
	cr_assert_not(has(d, DEFAULT));
}

Test(acl, who_can_have_which)
{
	const struct list some = LIST({OWNER, 7, NOBODY}, {GROUP_OWNER, 5, NOBODY},
				      {OTHER, 4, NOBODY});
	uint64_t f = rig_file(&rig, INO_ROOT, "f");
	struct core_attr attr;

	cr_assert_eq(set(f, DEFAULT, &some), -EACCES);
	cr_assert_eq(core_symlink(rig.core, VIEW_BASE, &rig_cred, INO_ROOT, "s", 1, "x", 1, &attr),
		     0);
	core_forget(rig.core, attr.ino, 1);
	cr_assert_eq(set(attr.ino, ACCESS, &some), -EOPNOTSUPP);
	cr_assert_eq(set(999, ACCESS, &some), -ENOENT);
}

Test(acl, setgid_goes_when_asked_for)
{
	const struct list some = LIST({OWNER, 7, NOBODY}, {USER, 5, 1}, {GROUP_OWNER, 5, NOBODY},
				      {MASK, 5, NOBODY}, {OTHER, 4, NOBODY});
	uint64_t f = made(INO_ROOT, "f", S_IFREG | 06755, 0);

	cr_assert_eq(core_setxattr(rig.core, VIEW_BASE, f, ACCESS, some.bytes, some.len,
				   CORE_XATTR_KILL_SGID), 0);
	cr_assert_eq(mode_of(f), 04754);
}

Test(acl, what_a_directory_hands_on)
{
	const struct list defaults = LIST({OWNER, 7, NOBODY}, {USER, 7, 5},
					  {GROUP_OWNER, 5, NOBODY}, {MASK, 7, NOBODY},
					  {OTHER, 1, NOBODY});
	const struct list of_file = LIST({OWNER, 6, NOBODY}, {USER, 7, 5},
					 {GROUP_OWNER, 5, NOBODY}, {MASK, 6, NOBODY},
					 {OTHER, 0, NOBODY});
	const struct core_cred cred = {.uid = 1, .gid = 1, .umask = 077};
	uint64_t d = rig_dir(&rig, INO_ROOT, "d"), plain = rig_dir(&rig, INO_ROOT, "p"), sub, f;
	struct core_attr attr;

	cr_assert_eq(set(d, DEFAULT, &defaults), 0);
	cr_assert_eq(mode_of(made(plain, "f", S_IFREG | 0666, 027)), 0640);
	sub = made(d, "sub", S_IFDIR | 0777, 077); /* CASES 28 */
	cr_assert_eq(mode_of(sub), 0771);
	cr_assert(is(sub, DEFAULT, &defaults));
	cr_assert(is(sub, ACCESS, &defaults));
	f = made(sub, "f", S_IFREG | 0666, 077);
	cr_assert_eq(mode_of(f), 0660);
	cr_assert(is(f, ACCESS, &of_file));
	cr_assert_not(has(f, DEFAULT));
	cr_assert_eq(core_symlink(rig.core, VIEW_BASE, &cred, d, "s", 1, "x", 1, &attr), 0);
	core_forget(rig.core, attr.ino, 1);
	cr_assert_eq(attr.mode & 0777, 0777);
	cr_assert_not(has(attr.ino, ACCESS));
	cr_assert_eq(core_tmpfile(rig.core, VIEW_BASE, &cred, d, 0666, &attr), 0);
	cr_assert_eq(attr.mode & 0777, 0660);
	cr_assert(is(attr.ino, ACCESS, &of_file));
	core_forget(rig.core, attr.ino, 1);
	rig_reopen(&rig, false);
	cr_assert(is(f, ACCESS, &of_file));
}

/* INV-ACL-4: as many entries as a record takes, and none more. */
Test(acl, a_list_fits_a_record_or_is_refused)
{
	struct list list = LIST({OWNER, 7, NOBODY});
	uint64_t d = rig_dir(&rig, INO_ROOT, "d");
	uint32_t count = (RECORD_BYTES_MAX(4096) - KEY_XATTR_BYTES - sizeof(struct disk_xattr) -
			  strlen(DEFAULT) - 4) / 8;

	for (uint32_t i = 0; i < count - 4; i++)
		add(&list, (struct entry){USER, 7, i});
	add(&list, (struct entry){GROUP_OWNER, 5, NOBODY});
	add(&list, (struct entry){MASK, 7, NOBODY});
	add(&list, (struct entry){OTHER, 5, NOBODY});
	cr_assert_eq(set(d, DEFAULT, &list), 0);
	cr_assert(is(made(d, "sub", S_IFDIR | 0777, 0), ACCESS, &list));
	memmove(list.bytes + 20, list.bytes + 12, list.len - 12);
	list.len += 8;
	cr_assert_eq(set(d, DEFAULT, &list), -E2BIG);
}

/* It would be no list that a mode can follow. */
Test(acl, a_broken_list_of_the_medium_is_an_error)
{
	const struct list good = LIST({OWNER, 7, NOBODY}, {USER, 5, 1}, {GROUP_OWNER, 5, NOBODY},
				      {MASK, 5, NOBODY}, {OTHER, 4, NOBODY});
	struct core_attr attr = {.mode = 0600};
	uint64_t d = rig_dir(&rig, INO_ROOT, "d");
	uint8_t key[KEY_XATTR_BYTES];
	struct tree_cursor cursor;
	const void *old;
	uint8_t value[256];
	struct mtr *m;
	size_t len;

	cr_assert_eq(set(d, DEFAULT, &good), 0);
	be64_put(key, d);
	be64_put(key + 8, 0);
	cr_assert_eq(tree_cursor_open(&cursor, &rig.volume->index[INDEX_XATTRS], key, sizeof(key)),
		     0);
	cr_assert_eq(tree_cursor_next(&cursor), 0);
	memcpy(key, cursor.key.bytes, sizeof(key));
	tree_cursor_close(&cursor);
	cr_assert_eq(mtr_begin(rig.volume, 0, &m), 0);
	mtr_want_key(m, INDEX_XATTRS, key, sizeof(key));
	cr_assert_eq(mtr_latch(m), 0);
	cr_assert_eq(mtr_lookup(m, INDEX_XATTRS, key, sizeof(key), &old, &len), 0);
	memcpy(value, old, len);
	value[sizeof(struct disk_xattr) + strlen(DEFAULT) + 4] = OTHER; /* the owner's */
	mtr_put(m, INDEX_XATTRS, key, sizeof(key), value, len);
	cr_assert_eq(mtr_commit(m), 0);
	mtr_end(m);
	cr_assert_eq(core_create(rig.core, VIEW_BASE, &rig_cred, d, "f", 1, S_IFREG | 0600, 0,
				 &attr), -EIO);
	cr_assert(atomic_load(&rig.volume->corrupt));
	cr_assert_eq(set(d, DEFAULT, &good), 0, "a new one repairs it");
}
