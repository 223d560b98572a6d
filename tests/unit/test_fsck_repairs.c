/*
 * What a repair saves: after the damage and fsck -y, the volume is opened and
 * what could be kept is looked at.  That each fault is found and is gone
 * afterwards is tested in test_fsck_faults*.c.
 */
#include "fsck/borrow.h"
#include "fsck/session.h"
#include "tests/lib/core_rig.h"
#include "tests/lib/fsck_fault.h"
#include "tests/lib/scratch.h"

#include "engine/base/error.h"
#include "engine/base/message.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define BIG_BYTES (9 * BLOCK_SIZE + 4) /* /big of the world */

struct scene {
	struct world world;
	struct image image;
	struct rig rig; /* once mended */
	char text[65536];
};

static struct scene *scene_make(void)
{
	struct scene *s = calloc(1, sizeof(*s));

	cr_assert_not_null(s);
	message_quiet(LOG_CRIT);
	world_make(&s->world);
	image_open(&s->image, s->world.dev);
	return s;
}

static void collect(void *arg, const char *line)
{
	struct scene *s = arg;
	size_t len = strlen(s->text);

	snprintf(s->text + len, sizeof(s->text) - len, "%s\n", line);
}

static int run(struct scene *s, enum session_mode mode)
{
	const struct session_options options = {
		.mode = mode,
		.force = true,
		.data = true,
		.print = collect,
		.arg = s,
		.cache_bytes = WORLD_CACHE,
	};

	s->text[0] = '\0';
	return session_run_on(s->world.dev, "volume", &options);
}

/* Repairs, and opens what is there now. */
static void mend(struct scene *s)
{
	const struct volume_options options = {.no_background = true, .cache_bytes = WORLD_CACHE};

	cr_assert_eq(run(s, MODE_REPAIR), EXIT_CORRECTED, "%s", s->text);
	cr_assert_eq(run(s, MODE_NO), EXIT_CLEAN, "%s", s->text);
	s->rig.dev = s->world.dev;
	cr_assert_eq(volume_open(&s->rig.volume, scratch_keep(s->world.dev), &options), 0);
	cr_assert_eq(core_open(&s->rig.core, s->rig.volume), 0);
}

static void scene_free(struct scene *s)
{
	if (s->rig.core) {
		core_close(s->rig.core);
		cr_assert_eq(volume_close(s->rig.volume), 0);
	}
	world_free(&s->world);
	free(s);
}

/* The inode at a path; 0: there is none. */
static uint64_t at(struct scene *s, const char *path)
{
	struct core_attr attr = {.ino = INO_ROOT};
	char copy[300], *rest = copy;

	snprintf(copy, sizeof(copy), "%s", path);
	for (char *name = strtok_r(copy, "/", &rest); name; name = strtok_r(NULL, "/", &rest))
		if (rig_lookup(&s->rig, attr.ino, name, &attr) != 0)
			return 0;
	return attr.ino;
}

static uint64_t at_number(struct scene *s, const char *before, uint64_t ino, const char *behind)
{
	char path[300];

	snprintf(path, sizeof(path), "%s#%lu%s", before, (unsigned long)ino, behind);
	return at(s, path);
}

static void expect_bytes(struct scene *s, uint64_t ino, uint64_t offset, const void *bytes,
			 size_t len)
{
	uint8_t *got = calloc(1, len);
	size_t done;

	cr_assert_eq(core_read(s->rig.core, VIEW_BASE, ino, offset, got, len, &done), 0);
	cr_assert_eq(done, len);
	cr_assert_eq(memcmp(got, bytes, len), 0);
	free(got);
}

static void expect_big(struct scene *s, uint64_t ino)
{
	uint8_t *want = malloc(BIG_BYTES);

	rig_fill(want, 9 * BLOCK_SIZE, s->world.big);
	memcpy(want + 9 * BLOCK_SIZE, "tail", 4);
	expect_bytes(s, ino, 0, want, BIG_BYTES);
	free(want);
}

/* What the world has from the beginning, under its names. */
static void expect_whole_world(struct scene *s)
{
	char name[64];

	cr_assert_eq(at(s, "small"), s->world.small);
	cr_assert_eq(at(s, "dir/sub/deep"), s->world.deep);
	cr_assert_eq(at(s, "dir/hard"), s->world.big);
	cr_assert_eq(at(s, "link"), s->world.link);
	for (unsigned i = 0; i < WORLD_MANY; i++) {
		snprintf(name, sizeof(name), "many/a file with number %u", i);
		cr_assert_eq(at(s, name), s->world.many_file[i]);
	}
	expect_bytes(s, s->world.small, 0, "hello", 5);
	expect_big(s, s->world.big);
}

static void delete_name(struct scene *s, uint64_t parent, const char *name)
{
	struct key key = image_name_key(&s->image, parent, name);

	image_delete(&s->image, INDEX_DIRENTS, &key);
}

static void insert_name(struct scene *s, uint64_t parent, const char *name, uint64_t child,
			uint8_t type)
{
	uint8_t value[sizeof(struct disk_dirent) + NAME_BYTES_MAX];
	struct disk_dirent dirent = {.child = le64_make(child), .type = type};
	struct key key = image_name_key(&s->image, parent, name);

	memcpy(value, &dirent, sizeof(dirent));
	memcpy(value + sizeof(dirent), name, strlen(name));
	image_insert(&s->image, INDEX_DIRENTS, &key, value, sizeof(dirent) + strlen(name));
}

static void delete_inode(struct scene *s, uint64_t ino)
{
	struct key key = image_key_ino(ino);

	image_delete(&s->image, INDEX_INODES, &key);
}

static void smash_page(struct scene *s, uint64_t pageno)
{
	image_load(&s->image, pageno);
	s->image.page[300] ^= 1;
	image_store(&s->image, false);
}

/* --- lost+found ---------------------------------------------------------------- */

Test(fsck_repairs, file_without_a_name)
{
	struct scene *s = scene_make();
	struct core_attr attr;

	delete_name(s, INO_ROOT, "big");
	delete_name(s, s->world.dir, "hard");
	mend(s);
	cr_assert_eq(at_number(s, "lost+found/", s->world.big, ""), s->world.big);
	attr = rig_attr(&s->rig, s->world.big);
	cr_assert_eq(attr.nlink, 1);
	expect_big(s, s->world.big);
	attr = rig_attr(&s->rig, at(s, "lost+found"));
	cr_assert_eq(attr.mode, S_IFDIR | 0700);
	cr_assert_eq(attr.nlink, 2);
	scene_free(s);
}

Test(fsck_repairs, directory_without_a_name)
{
	struct scene *s = scene_make();

	delete_name(s, INO_ROOT, "dir");
	mend(s);
	cr_assert_eq(at_number(s, "lost+found/", s->world.dir, "/sub/deep"), s->world.deep);
	cr_assert_eq(rig_attr(&s->rig, at(s, "lost+found")).nlink, 3);
	expect_bytes(s, s->world.deep, 0, "deep", 4);
	scene_free(s);
}

Test(fsck_repairs, cycle_of_directories)
{
	struct scene *s = scene_make();

	delete_name(s, INO_ROOT, "dir");
	insert_name(s, s->world.sub, "dir", s->world.dir, DT_DIR);
	mend(s);
	cr_assert(at_number(s, "lost+found/", s->world.dir, "/sub/deep") == s->world.deep ||
		  at_number(s, "lost+found/", s->world.sub, "/deep") == s->world.deep);
	scene_free(s);
}

/* The names are taken: by a file, and by another entry. */
Test(fsck_repairs, lost_found_is_in_the_way)
{
	struct scene *s = scene_make();

	insert_name(s, INO_ROOT, "lost+found", s->world.empty, DT_REG);
	delete_name(s, INO_ROOT, "sparse");
	mend(s);
	cr_assert_eq(at(s, "lost+found"), s->world.empty);
	cr_assert_eq(at_number(s, "lost+found.1/", s->world.sparse, ""), s->world.sparse);
	scene_free(s);
}

Test(fsck_repairs, number_is_taken)
{
	struct scene *s = scene_make();
	char name[32];

	delete_name(s, INO_ROOT, "many");
	insert_name(s, INO_ROOT, "lost+found", s->world.many, DT_DIR);
	snprintf(name, sizeof(name), "#%lu", (unsigned long)s->world.sparse);
	insert_name(s, s->world.many, name, s->world.empty, DT_REG);
	delete_name(s, INO_ROOT, "sparse");
	mend(s);
	cr_assert_eq(at_number(s, "lost+found/", s->world.sparse, ""), s->world.empty);
	cr_assert_eq(at_number(s, "lost+found/", s->world.sparse, ".1"), s->world.sparse);
	scene_free(s);
}

/* --- inodes ---------------------------------------------------------------------- */

/* The directory is made again, so the names in it are kept. */
Test(fsck_repairs, lost_directory)
{
	struct scene *s = scene_make();

	delete_inode(s, s->world.sub);
	mend(s);
	cr_assert_eq(at(s, "dir/sub/deep"), s->world.deep);
	cr_assert_eq(rig_attr(&s->rig, s->world.sub).mode, S_IFDIR | 0700);
	scene_free(s);
}

Test(fsck_repairs, lost_root_directory)
{
	struct scene *s = scene_make();

	delete_inode(s, INO_ROOT);
	mend(s);
	expect_whole_world(s);
	cr_assert_eq(rig_attr(&s->rig, INO_ROOT).mode, S_IFDIR | 0755);
	scene_free(s);
}

/* Its contents become a file with a new number. */
Test(fsck_repairs, lost_inode_of_a_file)
{
	struct scene *s = scene_make();
	uint64_t found = 0;

	delete_inode(s, s->world.big);
	mend(s);
	cr_assert_eq(at(s, "big"), 0);
	for (uint64_t ino = s->world.orphan; !found && ino < s->world.orphan + 1000; ino++)
		found = at_number(s, "lost+found/", ino, "");
	cr_assert_neq(found, 0);
	cr_assert_eq(rig_attr(&s->rig, found).size, 10 * BLOCK_SIZE);
	expect_big(s, found);
	scene_free(s);
}

Test(fsck_repairs, type_of_an_inode)
{
	struct scene *s = scene_make();
	struct image *i = &s->image;

	EDIT_INODE(s->world.dir, inode.mode = le32_make(0755));
	EDIT_INODE(s->world.small, inode.mode = le32_make(0123456000));
	mend(s);
	cr_assert_eq(at(s, "dir/sub/deep"), s->world.deep);
	expect_bytes(s, at(s, "small"), 0, "hello", 5);
	scene_free(s);
}

Test(fsck_repairs, size_of_an_inode)
{
	struct scene *s = scene_make();
	struct image *i = &s->image;

	EDIT_INODE(s->world.big, inode.size = le64_make(1ull << 63));
	EDIT_INODE(s->world.small, inode.size = le64_make(2));
	mend(s);
	cr_assert_eq(rig_attr(&s->rig, s->world.big).size, 10 * BLOCK_SIZE);
	expect_big(s, s->world.big);
	cr_assert_eq(rig_attr(&s->rig, s->world.small).size, 5);
	scene_free(s);
}

/* --- contents ---------------------------------------------------------------------- */

/* Both extents are right about the blocks: the second owner gets a copy. */
Test(fsck_repairs, blocks_used_twice_are_copied)
{
	struct scene *s = scene_make();
	struct image *i = &s->image;
	struct disk_inode inode;
	struct key key, other;
	struct disk_extent *extent;
	uint64_t first, second;
	uint8_t value[200];
	size_t len;

	fault_extent(i, fault_lob(i, s->world.big), 0, &key);
	extent = image_value(i, &len);
	cr_assert(len <= sizeof(value));
	memcpy(value, extent, len);
	first = le64_get(extent->start);
	image_get_inode(i, s->world.empty, &inode);
	inode.lob = le64_make(1000);
	inode.size = le64_make(9 * BLOCK_SIZE);
	image_put_inode(i, s->world.empty, &inode);
	other = image_key_pair(1000, be64_get(key.bytes + 8));
	image_insert(i, INDEX_LOB, &other, value, len);
	mend(s);
	expect_big(s, s->world.big);
	for (unsigned block = 0; block < 9; block++) {
		uint8_t want[9 * BLOCK_SIZE];

		rig_fill(want, sizeof(want), s->world.big);
		expect_bytes(s, s->world.empty, block * BLOCK_SIZE, want + block * BLOCK_SIZE,
			     BLOCK_SIZE);
	}
	second = le64_get(fault_extent(i, 1000, 0, &key)->start);
	cr_assert_neq(first, second);
	scene_free(s);
}

/* The checksums say that the blocks are not the second owner's: it gets a hole. */
Test(fsck_repairs, blocks_of_another_become_a_hole)
{
	struct scene *s = scene_make();
	struct image *i = &s->image;
	uint8_t zeros[BLOCK_SIZE] = {0};
	struct key key;
	le64 start = fault_extent(i, fault_lob(i, s->world.big), 0, &key)->start;

	fault_extent(i, fault_lob(i, s->world.sparse), 0, &key)->start = start;
	image_store(i, true);
	mend(s);
	expect_big(s, s->world.big);
	expect_bytes(s, s->world.sparse, 0, zeros, sizeof(zeros));
	scene_free(s);
}

Test(fsck_repairs, contents_of_two_stay_with_the_first)
{
	struct scene *s = scene_make();
	struct image *i = &s->image;
	uint64_t lob = fault_lob(i, s->world.big);

	EDIT_INODE(s->world.sparse, inode.lob = le64_make(lob));
	mend(s);
	expect_big(s, s->world.big);
	scene_free(s);
}

/* --- names ---------------------------------------------------------------------- */

Test(fsck_repairs, name_under_a_wrong_hash)
{
	struct scene *s = scene_make();
	struct key key = image_name_key(&s->image, INO_ROOT, "big");

	cr_assert(image_find(&s->image, INDEX_DIRENTS, &key));
	((struct disk_dirent *)image_value(&s->image, NULL))->name[0] = 'B';
	image_store(&s->image, true);
	mend(s);
	cr_assert_eq(at(s, "Big"), s->world.big);
	scene_free(s);
}

/* Of two names of a directory the one stays that its record says. */
Test(fsck_repairs, second_name_of_a_directory)
{
	struct scene *s = scene_make();

	insert_name(s, INO_ROOT, "again", s->world.sub, DT_DIR);
	mend(s);
	cr_assert_eq(at(s, "dir/sub/deep"), s->world.deep);
	cr_assert_eq(at(s, "again"), 0);
	scene_free(s);
}

/* --- trees ---------------------------------------------------------------------- */

/* INV-FSCK-3: nothing is lost with a root, in whatever index. */
Test(fsck_repairs, roots)
{
	for (unsigned index = 0; index < INDEX_COUNT; index++) {
		struct scene *s = scene_make();

		image_load(&s->image, fault_root(&s->image, index));
		if (image_head(&s->image)->level > 0) {
			smash_page(s, fault_root(&s->image, index));
			mend(s);
			expect_whole_world(s);
		}
		scene_free(s);
	}
}

/* Entries of the leaf are lost, those of all others are not. */
Test(fsck_repairs, leaf)
{
	struct scene *s = scene_make();
	unsigned left = 0;
	char name[64];

	fault_second_leaf(&s->image);
	smash_page(s, s->image.pageno);
	mend(s);
	for (unsigned i = 0; i < WORLD_MANY; i++) {
		snprintf(name, sizeof(name), "many/a file with number %u", i);
		left += at(s, name) != 0;
	}
	cr_assert(left > WORLD_MANY / 2 && left < WORLD_MANY, "%u", left);
	expect_big(s, s->world.big);
	scene_free(s);
}

/*
 * An older version of a leaf, from before it was split, still says that it covers
 * everything up to its former end: what the newer pages say counts.
 */
Test(fsck_repairs, stale_left_half)
{
	struct scene *s = scene_make();
	struct image *i = &s->image;
	struct disk_tree_page *page = (struct disk_tree_page *)i->page;
	uint8_t high[KEY_BYTES_MAX], high_len;
	uint64_t first;

	image_load(i, fault_root(i, INDEX_INODES));
	first = page_child(i->page, 1);
	image_load(i, page_child(i->page, 3));
	high_len = page->high_len;
	memcpy(high, page->high, sizeof(high));
	image_load(i, first);
	page->high_len = high_len;
	memcpy(page->high, high, sizeof(high));
	page_set_lsn(i->page, 1);
	image_store(i, true);
	mend(s);
	expect_whole_world(s);
	scene_free(s);
}

/* Without the incomplete mark the right half of a split hangs on a link alone. */
Test(fsck_repairs, page_that_no_parent_knows)
{
	struct scene *s = scene_make();
	struct image *i = &s->image;
	uint8_t body[64];

	image_load(i, fault_root(i, INDEX_INODES));
	cr_assert_eq(page_redo(i->page, WORLD_PAGE, i->pageno, i->raw.tag, REC_DELETE, body,
			       redo_delete(body, 2)),
		     0);
	image_store(i, true);
	mend(s);
	expect_whole_world(s);
	scene_free(s);
}

/* No free block to build it in: said, left, and nothing else is touched. */
Test(fsck_repairs, no_room_for_a_tree)
{
	struct scene *s = scene_make();
	uint64_t first = s->image.raw.geo.groups_start;

	image_set_bits(&s->image, first, s->image.raw.groups_end - first, true);
	smash_page(s, fault_root(&s->image, INDEX_INODES));
	cr_assert(run(s, MODE_REPAIR) & EXIT_UNCORRECTED, "%s", s->text);
	cr_assert_not_null(strstr(s->text, "no room to build an index anew"), "%s", s->text);
	cr_assert_eq(run(s, MODE_NO), EXIT_UNCORRECTED);
	cr_assert_not_null(strstr(s->text, "[702]"), "%s", s->text);
	scene_free(s);
}

/* --- the volume ---------------------------------------------------------------------- */

/* All names get another hash. */
Test(fsck_repairs, no_superblock)
{
	struct scene *s = scene_make();
	uint8_t zeros[BLOCK_SIZE] = {0};
	uint64_t last = s->image.raw.geo.block_count - 1;

	cr_assert_eq(dev_write(s->world.dev, zeros, sizeof(zeros), 0), 0);
	cr_assert_eq(dev_write(s->world.dev, zeros, sizeof(zeros), last * BLOCK_SIZE), 0);
	mend(s);
	expect_whole_world(s);
	scene_free(s);
}

/* What an earlier volume left behind is no reason to overwrite what came after it. */
Test(fsck_repairs, something_else_in_block_0)
{
	struct scene *s = scene_make();
	uint8_t other[BLOCK_SIZE] = {[1080] = 0x53, [1081] = 0xef}, now[BLOCK_SIZE];
	uint64_t last = s->image.raw.geo.block_count - 1;

	cr_assert_eq(dev_write(s->world.dev, other, sizeof(other), 0), 0);
	cr_assert_eq(dev_write(s->world.dev, other, sizeof(other), last * BLOCK_SIZE), 0);
	cr_assert_eq(run(s, MODE_REPAIR), EXIT_UNCORRECTED);
	cr_assert_not_null(strstr(s->text, "-y does not overwrite block 0"), "%s", s->text);
	cr_assert_eq(dev_read(s->world.dev, now, sizeof(now), 0), 0);
	cr_assert_eq(memcmp(now, other, sizeof(now)), 0);
	scene_free(s);
}

/* The volume ends before its device: no place tells where the copy is. */
Test(fsck_repairs, superblock_before_the_end)
{
	struct device *dev, *larger;
	struct scene *s = scene_make();
	uint8_t *bytes = malloc(WORLD_BYTES), seed[16];

	memcpy(seed, s->image.raw.sb.hash_seed, sizeof(seed));
	cr_assert_eq(dev_read(s->world.dev, bytes, WORLD_BYTES, 0), 0);
	memset(bytes, 0, BLOCK_SIZE);
	cr_assert_eq(dev_open_memory(&larger, 2 * WORLD_BYTES), 0);
	cr_assert_eq(dev_write(larger, bytes, WORLD_BYTES, 0), 0);
	dev = s->world.dev;
	s->world.dev = larger;
	dev_close(dev);
	mend(s);
	cr_assert_eq(memcmp(s->rig.volume->sb.hash_seed, seed, sizeof(seed)), 0);
	expect_whole_world(s);
	free(bytes);
	scene_free(s);
}

Test(fsck_repairs, log_that_is_gone)
{
	struct scene *s = scene_make();
	uint64_t log = s->image.raw.geo.log_start * BLOCK_SIZE;
	uint8_t zeros[3 * BLOCK_SIZE] = {0};

	cr_assert_eq(dev_write(s->world.dev, zeros, sizeof(zeros), log), 0);
	mend(s);
	expect_whole_world(s);
	scene_free(s);
}

static struct scene *scene_with_broken_log(void)
{
	struct scene *s = calloc(1, sizeof(*s));
	char bytes[1024];
	uint64_t log;

	cr_assert_not_null(s);
	message_quiet(LOG_CRIT);
	world_make_crashed(&s->world);
	image_open(&s->image, s->world.dev);
	log = s->image.raw.geo.log_start * BLOCK_SIZE + LOG_RECORDS_START;
	memset(bytes, '?', sizeof(bytes));
	cr_assert_eq(dev_write(s->world.dev, bytes, sizeof(bytes), log + 40 * 1024), 0);
	return s;
}

static void expect_world_before_the_break(struct scene *s)
{
	char name[64];

	cr_assert_eq(at(s, "dir/sub/deep"), s->world.deep);
	expect_big(s, s->world.big);
	for (unsigned i = 0; i < 60; i++) {
		snprintf(name, sizeof(name), "many/a file with number %u", i);
		cr_assert_eq(at(s, name), s->world.many_file[i]);
	}
	cr_assert_eq(at(s, "lost+found"), 0);
}

/* Everything before the break is there, whole mini-transactions of it. */
Test(fsck_repairs, log_that_breaks_off)
{
	struct scene *s = scene_with_broken_log();

	mend(s);
	expect_world_before_the_break(s);
	scene_free(s);
}

/* The same power cut has torn a page, of which the doublewrite area has a copy. */
Test(fsck_repairs, log_that_breaks_off_and_a_torn_page)
{
	struct scene *s = scene_with_broken_log();
	uint64_t root = le64_get(s->image.raw.sb.root[INDEX_XATTRS]);
	uint8_t value[20];
	size_t len;

	image_load(&s->image, root);
	cr_assert_eq(dev_write(s->world.dev, s->image.page, WORLD_PAGE,
			       s->image.raw.geo.dw_start * BLOCK_SIZE + WORLD_PAGE), 0);
	memset(s->image.page + 512, 0x55, 512);
	image_store(&s->image, false);
	mend(s);
	expect_world_before_the_break(s);
	/* The log has changes of this page only, not its beginning. */
	cr_assert_eq(core_getxattr(s->rig.core, VIEW_BASE, s->world.small, "user.short", value,
				   sizeof(value), &len), 0);
	scene_free(s);
}

/* What is free is told by a tree that is broken, too: no page of any tree is given away. */
Test(fsck_repairs, bitmap_beside_a_broken_tree)
{
	struct scene *s = scene_make();

	smash_page(s, s->image.raw.geo.groups_start);
	smash_page(s, le64_get(s->image.raw.sb.root[INDEX_DIRENTS]));
	mend(s);
	expect_whole_world(s);
	scene_free(s);
}

/* --- who decides ------------------------------------------------------------------ */

struct person {
	char asked[4096];
	unsigned yes; /* number of the kind that may be repaired */
};

static void ignore(void *arg, const char *line)
{
	(void)arg;
	(void)line;
}

static bool answer(void *arg, const char *question)
{
	struct person *person = arg;
	size_t len = strlen(person->asked);
	unsigned number = 0;

	snprintf(person->asked + len, sizeof(person->asked) - len, "%s\n", question);
	cr_assert_eq(sscanf(question, "Repair [%u]", &number), 1);
	return number == person->yes;
}

/* Each kind is asked about once, and what is not wanted stays. */
Test(fsck_repairs, one_question_for_each_kind)
{
	struct scene *s = scene_make();
	struct image *i = &s->image;
	struct person person = {.yes = 410};
	const struct session_options options = {
		.mode = MODE_ASK,
		.force = true,
		.print = ignore,
		.ask = answer,
		.arg = &person,
		.cache_bytes = WORLD_CACHE,
	};

	EDIT_INODE(s->world.many_file[3], inode.nlink = le32_make(5));
	EDIT_INODE(s->world.many_file[4], inode.nlink = le32_make(5));
	delete_inode(s, s->world.empty);
	cr_assert_eq(session_run_on(s->world.dev, "volume", &options),
		     EXIT_CORRECTED | EXIT_UNCORRECTED);
	cr_assert_str_eq(person.asked,
			 "Repair [406] a directory entry leads to no inode (1)?\n"
			 "Repair [410] an inode's link count is wrong (2)?\n");
	mend(s);
	scene_free(s);
}

/* INV-FSCK-1: what a broken tree hides is not taken for free, whoever says yes. */
Test(fsck_repairs, leaks_wait_for_what_is_hidden)
{
	struct scene *s = scene_make();
	struct person person = {.yes = 702};
	const struct session_options options = {
		.mode = MODE_ASK,
		.force = true,
		.print = ignore,
		.ask = answer,
		.arg = &person,
		.cache_bytes = WORLD_CACHE,
	};
	uint8_t before[WORLD_PAGE], after[WORLD_PAGE];
	uint64_t bitmap = s->image.raw.geo.groups_start * BLOCK_SIZE;

	smash_page(s, fault_root(&s->image, INDEX_LOB));
	cr_assert_eq(dev_read(s->world.dev, before, sizeof(before), bitmap), 0);
	cr_assert_eq(session_run_on(s->world.dev, "volume", &options), EXIT_UNCORRECTED);
	cr_assert_eq(dev_read(s->world.dev, after, sizeof(after), bitmap), 0);
	cr_assert_eq(memcmp(before, after, sizeof(before)), 0);
	cr_assert_null(strstr(person.asked, "[702]"), "%s", person.asked);
	scene_free(s);
}

/* -p repairs what is safe and leaves the rest. */
Test(fsck_repairs, preening)
{
	struct scene *s = scene_make();
	struct image *i = &s->image;

	EDIT_INODE(s->world.many_file[3], inode.nlink = le32_make(5));
	delete_inode(s, s->world.empty);
	cr_assert_eq(run(s, MODE_PREEN), EXIT_CORRECTED | EXIT_UNCORRECTED, "%s", s->text);
	cr_assert_eq(run(s, MODE_NO), EXIT_UNCORRECTED);
	cr_assert_null(strstr(s->text, "[410]"));
	cr_assert_not_null(strstr(s->text, "[406]"));
	mend(s);
	scene_free(s);
}
