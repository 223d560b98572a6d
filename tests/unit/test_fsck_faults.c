/*
 * Each fault of fsck/problem.def, made by editing a quiet volume whose checksums
 * are right again afterwards: it is found under its number, and what can be
 * repaired is clean after the repair.
 */
#include "fsck/check.h"
#include "fsck/session.h"
#include "tests/lib/fsck_world.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- running fsck ------------------------------------------------------------ */

struct output {
	char text[65536];
	size_t len;
};

static void collect(void *arg, const char *line)
{
	struct output *out = arg;
	int n = snprintf(out->text + out->len, sizeof(out->text) - out->len, "%s\n", line);

	if (n > 0 && out->len + (size_t)n < sizeof(out->text))
		out->len += (size_t)n;
}

static int run(const char *path, enum session_mode mode, struct output *out)
{
	struct session_options options = {
		.mode = mode, .force = true, .data = true, .print = collect, .arg = out,
	};

	out->len = 0;
	out->text[0] = '\0';
	return session_run(path, &options);
}

static void expect_number(const struct output *out, unsigned number)
{
	char want[16];

	snprintf(want, sizeof(want), "[%u]", number);
	cr_assert(strstr(out->text, want), "%s is not in:\n%s", want, out->text);
}

enum outcome { STAYS, REPAIRED };

typedef void (*fault_fn)(struct world *w, struct image *i);

static void try_fault(fault_fn fault, unsigned number, enum outcome outcome)
{
	struct output *out = malloc(sizeof(*out));
	struct world world;
	struct image image;
	char path[64];
	int bits;

	cr_assert_not_null(out);
	world_make(&world);
	image_open(&image, world.dev);
	fault(&world, &image);
	world_save(&world, path);

	bits = run(path, MODE_NO, out);
	cr_assert_eq(bits, EXIT_UNCORRECTED, "%d:\n%s", bits, out->text);
	expect_number(out, number);
	bits = run(path, MODE_REPAIR, out);
	expect_number(out, number);
	if (outcome == REPAIRED) {
		cr_assert_eq(bits, EXIT_CORRECTED, "%d:\n%s", bits, out->text);
		bits = run(path, MODE_NO, out);
		cr_assert_eq(bits, EXIT_CLEAN, "%d:\n%s", bits, out->text);
	} else {
		cr_assert(bits & EXIT_UNCORRECTED, "%d:\n%s", bits, out->text);
	}
	unlink(path);
	world_free(&world);
	free(out);
}

#define FAULT(name, number, outcome)                                                      \
	static void fault_##name(struct world *w, struct image *i);                       \
	Test(fsck_faults, name)                                                           \
	{                                                                                 \
		try_fault(fault_##name, number, outcome);                                 \
	}                                                                                 \
	static void fault_##name(__attribute__((unused)) struct world *w, struct image *i)

static uint64_t root_of(const struct image *i, unsigned index)
{
	return le64_get(i->raw.sb.root[index]);
}

/* Loads the second of the inode index's leaves. */
static void load_second_leaf(struct image *i)
{
	image_load(i, root_of(i, INDEX_INODES));
	image_load(i, page_child(i->page, 1));
}

/* --- pages and trees ----------------------------------------------------------- */

FAULT(page_crc, 102, STAYS)
{
	load_second_leaf(i);
	i->page[3000] ^= 1;
	image_store(i, false);
}

FAULT(page_identity, 103, STAYS)
{
	load_second_leaf(i);
	image_head(i)->pageno = le64_make(i->pageno + 1);
	image_store(i, true);
}

FAULT(page_format, 104, STAYS)
{
	load_second_leaf(i);
	((struct disk_tree_page *)i->page)->heap_start = le32_make(7);
	image_store(i, true);
}

FAULT(page_of_another_index, 105, STAYS)
{
	load_second_leaf(i);
	image_head(i)->index = INDEX_LOB;
	image_store(i, true);
}

FAULT(page_level, 106, STAYS)
{
	image_load(i, root_of(i, INDEX_INODES));
	image_head(i)->level = 2;
	image_store(i, true);
}

static void set_child(struct image *i, unsigned slot, uint64_t child)
{
	struct key key;

	image_load(i, root_of(i, INDEX_INODES));
	page_key(i->page, slot, &key);
	i->slot = slot;
	*(le64 *)image_value(i, NULL) = le64_make(child);
	image_store(i, true);
}

FAULT(child_on_the_superblock, 107, STAYS)
{
	set_child(i, 1, 0);
}

FAULT(child_past_the_end, 107, STAYS)
{
	set_child(i, 1, 1ull << 60);
}

FAULT(child_on_a_bitmap, 107, STAYS)
{
	set_child(i, 1, i->raw.geo.groups_start);
}

FAULT(child_on_another_root, 107, STAYS)
{
	set_child(i, 1, root_of(i, INDEX_TXN));
}

FAULT(child_twice, 108, STAYS)
{
	image_load(i, root_of(i, INDEX_INODES));
	set_child(i, 1, page_child(i->page, 2));
}

FAULT(cycle_to_the_root, 108, STAYS)
{
	set_child(i, 1, root_of(i, INDEX_INODES));
}

FAULT(dead_page, 109, STAYS)
{
	load_second_leaf(i);
	image_head(i)->flags |= PAGE_DEAD;
	image_store(i, true);
}

static void move_separator(struct image *i)
{
	struct key key;
	struct page_entry entry;

	image_load(i, root_of(i, INDEX_INODES));
	page_key(i->page, 1, &key);
	page_entry(i->page, 1, &entry);
	((uint8_t *)(uintptr_t)entry.suffix)[entry.suffix_len - 1]--;
	image_store(i, true);
}

FAULT(low_fence, 110, STAYS)
{
	move_separator(i);
}

FAULT(high_fence, 111, STAYS)
{
	move_separator(i);
}

FAULT(right_link, 112, STAYS)
{
	load_second_leaf(i);
	((struct disk_tree_page *)i->page)->right = le64_make(root_of(i, INDEX_TXN));
	image_store(i, true);
}

FAULT(stale_incomplete_mark, 113, STAYS)
{
	load_second_leaf(i);
	image_head(i)->flags |= PAGE_INCOMPLETE;
	image_store(i, true);
}

FAULT(root_with_sibling, 114, STAYS)
{
	struct disk_tree_page *page = (struct disk_tree_page *)i->page;

	image_load(i, root_of(i, INDEX_SHARES));
	page->right = le64_make(root_of(i, INDEX_TXN));
	page->high_len = 8;
	memset(page->high, 0xff, 8);
	image_store(i, true);
}

FAULT(key_length, 115, STAYS)
{
	struct disk_purge purge = {.kind = PURGE_LOB, .lob = le64_make(1)};
	struct key key = image_key_ino(3);

	key.len = 7;
	image_insert(i, INDEX_PURGE, &key, &purge, sizeof(purge));
}

FAULT(leaves_exchanged, 116, STAYS)
{
	uint64_t one, two;

	image_load(i, root_of(i, INDEX_INODES));
	one = page_child(i->page, 1);
	two = page_child(i->page, 2);
	set_child(i, 1, two);
	set_child(i, 2, one);
}

FAULT(page_from_the_future, 117, STAYS)
{
	load_second_leaf(i);
	page_set_lsn(i->page, 1ull << 50);
	image_store(i, true);
}

FAULT(unused_index, 118, STAYS)
{
	struct key key = image_key_ino(1);

	image_insert(i, INDEX_TXN, &key, "x", 1);
}

FAULT(system_page, 119, STAYS)
{
	image_load(i, i->raw.geo.system_page);
	i->page[200] ^= 1;
	image_store(i, false);
}

FAULT(counter_below_its_least, 120, STAYS)
{
	image_set_counter(i, COUNTER_TXN, 0);
}

/* --- inodes ---------------------------------------------------------------------- */

#define EDIT_INODE(ino, statement)                                                        \
	do {                                                                              \
		struct disk_inode inode;                                                  \
		image_get_inode(i, ino, &inode);                                          \
		statement;                                                                \
		image_put_inode(i, ino, &inode);                                          \
	} while (0)

FAULT(inode_short, 201, STAYS)
{
	struct key key = image_key_ino(w->empty);

	image_update(i, INDEX_INODES, &key, "short", 5);
}

FAULT(inode_with_bytes_behind, 201, STAYS)
{
	EDIT_INODE(w->small, inode.flags = le32_make(0));
}

FAULT(inode_number, 202, STAYS)
{
	struct key key = image_key_ino(1ull << 48);
	struct disk_inode inode;

	image_get_inode(i, w->empty, &inode);
	image_insert(i, INDEX_INODES, &key, &inode, sizeof(inode));
}

FAULT(inode_mode, 203, STAYS)
{
	EDIT_INODE(w->empty, inode.mode = le32_make(0644));
}

FAULT(inode_flags, 204, STAYS)
{
	EDIT_INODE(w->empty, inode.flags = le32_make(0x80));
}

FAULT(inode_size, 205, STAYS)
{
	EDIT_INODE(w->empty, inode.size = le64_make(1ull << 63));
}

FAULT(inode_smaller_than_inline, 205, STAYS)
{
	EDIT_INODE(w->small, inode.size = le64_make(4));
}

FAULT(directory_with_contents, 206, STAYS)
{
	EDIT_INODE(w->dir, inode.lob = le64_make(900));
}

FAULT(dead_range_without_record, 207, STAYS)
{
	EDIT_INODE(w->big, inode.dead_first = le64_make(20); inode.dead_end = le64_make(30));
}

FAULT(inode_time, 208, STAYS)
{
	EDIT_INODE(w->empty, inode.mtime.nsec = le32_make(1000000000));
}

FAULT(inode_above_mark, 209, REPAIRED)
{
	image_set_counter(i, COUNTER_INO, w->orphan);
}

FAULT(no_root, 210, STAYS)
{
	struct key key = image_key_ino(INO_ROOT);

	image_delete(i, INDEX_INODES, &key);
}

FAULT(inode_blocks, 211, REPAIRED)
{
	EDIT_INODE(w->big, inode.blocks = le64_make(77));
}

FAULT(file_with_parent, 212, STAYS)
{
	EDIT_INODE(w->big, inode.parent = le64_make(1));
}

/* --- extents ---------------------------------------------------------------------- */

static struct disk_extent *find_extent(struct image *i, uint64_t lob, uint64_t block,
				       struct key *key)
{
	struct key from = image_key_pair(lob, block);

	cr_assert(image_find(i, INDEX_LOB, &from));
	image_slot_key(i, key);
	return image_value(i, NULL);
}

static uint64_t lob_of(struct image *i, uint64_t ino)
{
	struct disk_inode inode;

	image_get_inode(i, ino, &inode);
	return le64_get(inode.lob);
}

FAULT(extent_length, 301, STAYS)
{
	struct key key;

	find_extent(i, lob_of(i, w->big), 0, &key)->length = le32_make(3);
	image_store(i, true);
}

FAULT(extent_codec, 301, STAYS)
{
	struct key key;

	find_extent(i, lob_of(i, w->big), 0, &key)->codec = 1;
	image_store(i, true);
}

FAULT(extent_overlap, 302, STAYS)
{
	struct disk_extent extent = {
		.start = le64_make(i->raw.groups_end - 3), .length = le32_make(3),
		.stored = le32_make(3), .flags = EXTENT_UNWRITTEN,
	};
	struct key key = image_key_pair(lob_of(i, w->big), 10);

	image_insert(i, INDEX_LOB, &key, &extent, sizeof(extent));
}

FAULT(extent_outside, 303, STAYS)
{
	struct key key;

	find_extent(i, lob_of(i, w->big), 0, &key)->start = le64_make(0);
	image_store(i, true);
}

FAULT(extent_over_the_system_page, 303, STAYS)
{
	struct key key;

	find_extent(i, lob_of(i, w->big), 0, &key)->start = le64_make(i->raw.geo.system_page);
	image_store(i, true);
}

FAULT(blocks_twice, 304, STAYS)
{
	struct key key;
	le64 start = find_extent(i, lob_of(i, w->big), 0, &key)->start;

	find_extent(i, lob_of(i, w->sparse), 0, &key)->start = start;
	image_store(i, true);
}

FAULT(extent_over_a_page, 304, STAYS)
{
	struct key key;
	uint64_t leaf;

	load_second_leaf(i);
	leaf = i->pageno;
	find_extent(i, lob_of(i, w->sparse), 0, &key)->start = le64_make(leaf);
	image_store(i, true);
}

FAULT(lob_of_nobody, 305, STAYS)
{
	EDIT_INODE(w->sparse, inode.lob = le64_make(0); inode.blocks = le64_make(0));
}

FAULT(lob_of_two, 306, STAYS)
{
	uint64_t lob = lob_of(i, w->big);

	EDIT_INODE(w->sparse, inode.lob = le64_make(lob));
}

FAULT(lob_above_mark, 307, REPAIRED)
{
	image_set_counter(i, COUNTER_LOB, 1);
}

static void insert_share(struct image *i, uint64_t last, uint32_t length, uint32_t references)
{
	struct disk_share share = {le32_make(length), le32_make(references)};
	struct key key = image_key_ino(last);

	image_insert(i, INDEX_SHARES, &key, &share, sizeof(share));
}

FAULT(share_of_one, 311, STAYS)
{
	insert_share(i, 400, 2, 1);
}

FAULT(share_overlap, 312, STAYS)
{
	insert_share(i, 400, 5, 2);
	insert_share(i, 402, 5, 2);
}

FAULT(share_count, 313, STAYS)
{
	struct key key;
	uint64_t start = le64_get(find_extent(i, lob_of(i, w->big), 0, &key)->start);

	insert_share(i, start + 3, 4, 2);
}

/* --- names -------------------------------------------------------------------------- */

static struct disk_dirent *find_name(struct image *i, uint64_t parent, const char *name)
{
	struct key key = image_name_key(i, parent, name), found;
	struct disk_dirent *dirent;
	size_t len;

	cr_assert(image_find(i, INDEX_DIRENTS, &key));
	image_slot_key(i, &found);
	dirent = image_value(i, &len);
	cr_assert(len == sizeof(*dirent) + strlen(name) &&
		  memcmp(dirent->name, name, strlen(name)) == 0);
	return dirent;
}

static void insert_name(struct image *i, uint64_t parent, const char *name, unsigned collision,
			uint64_t child, uint8_t type)
{
	uint8_t value[sizeof(struct disk_dirent) + NAME_BYTES_MAX];
	struct disk_dirent dirent = {.child = le64_make(child), .type = type};
	struct key key = image_name_key(i, parent, name);

	key.bytes[15] = (uint8_t)(key.bytes[15] + collision);
	memcpy(value, &dirent, sizeof(dirent));
	memcpy(value + sizeof(dirent), name, strlen(name));
	image_insert(i, INDEX_DIRENTS, &key, value, sizeof(dirent) + strlen(name));
}

static void delete_name(struct image *i, uint64_t parent, const char *name)
{
	struct key key = image_name_key(i, parent, name);

	image_delete(i, INDEX_DIRENTS, &key);
}

FAULT(name_with_slash, 401, STAYS)
{
	find_name(i, INO_ROOT, "small")->name[2] = '/';
	image_store(i, true);
}

FAULT(name_dot_dot, 401, STAYS)
{
	insert_name(i, w->dir, "..", 0, INO_ROOT, DT_DIR);
}

FAULT(name_type, 402, STAYS)
{
	find_name(i, INO_ROOT, "small")->type = DT_DIR;
	image_store(i, true);
}

FAULT(name_hash, 403, STAYS)
{
	find_name(i, INO_ROOT, "small")->name[0] = 'S';
	image_store(i, true);
}

FAULT(name_twice, 404, STAYS)
{
	insert_name(i, INO_ROOT, "small", 1, w->empty, DT_REG);
}

FAULT(name_in_no_directory, 405, STAYS)
{
	insert_name(i, 900, "lost", 0, w->empty, DT_REG);
}

FAULT(name_in_a_file, 405, STAYS)
{
	insert_name(i, w->big, "lost", 0, w->empty, DT_REG);
}

FAULT(name_of_nothing, 406, STAYS)
{
	find_name(i, INO_ROOT, "small")->child = le64_make(900);
	image_store(i, true);
}

FAULT(directory_with_two_names, 407, STAYS)
{
	insert_name(i, INO_ROOT, "again", 0, w->sub, DT_DIR);
}

FAULT(name_of_the_root, 407, STAYS)
{
	insert_name(i, w->sub, "root", 0, INO_ROOT, DT_DIR);
}

FAULT(parent_elsewhere, 408, REPAIRED)
{
	EDIT_INODE(w->sub, inode.parent = le64_make(w->many));
}

FAULT(parent_of_the_root, 408, REPAIRED)
{
	EDIT_INODE(INO_ROOT, inode.parent = le64_make(w->many));
}

FAULT(entries, 409, REPAIRED)
{
	EDIT_INODE(w->many, inode.entries = le64_make(3));
}

FAULT(nlink_of_a_file, 410, REPAIRED)
{
	EDIT_INODE(w->big, inode.nlink = le32_make(1));
}

FAULT(nlink_of_a_directory, 410, REPAIRED)
{
	EDIT_INODE(INO_ROOT, inode.nlink = le32_make(9));
}

FAULT(directory_inside_itself, 411, STAYS)
{
	delete_name(i, INO_ROOT, "dir");
	insert_name(i, w->sub, "dir", 0, w->dir, DT_DIR);
}

FAULT(directory_without_name, 411, STAYS)
{
	delete_name(i, INO_ROOT, "dir");
}

FAULT(file_without_name, 412, REPAIRED)
{
	delete_name(i, INO_ROOT, "empty");
}

FAULT(contents_without_name, 412, STAYS)
{
	delete_name(i, INO_ROOT, "sparse");
}

FAULT(orphan_without_record, 413, REPAIRED)
{
	delete_name(i, INO_ROOT, "sparse");
	EDIT_INODE(w->sparse, inode.nlink = le32_make(0));
}

FAULT(orphan_with_name, 414, REPAIRED)
{
	uint64_t key_number;
	struct disk_inode orphan;
	struct key key;

	image_get_inode(i, w->orphan, &orphan);
	key_number = le64_get(orphan.purge_key);
	key = image_key_ino(key_number);
	cr_assert(image_find(i, INDEX_PURGE, &key));
	((struct disk_purge *)image_value(i, NULL))->ino = le64_make(w->empty);
	image_store(i, true);
	EDIT_INODE(w->orphan, inode.purge_key = le64_make(0));
	EDIT_INODE(w->empty, inode.nlink = le32_make(0);
		   inode.purge_key = le64_make(key_number));
}

FAULT(orphan_with_entries, 415, STAYS)
{
	delete_name(i, INO_ROOT, "many");
	EDIT_INODE(w->many, inode.nlink = le32_make(0));
}

/* --- extended attributes ---------------------------------------------------------------- */

static struct disk_xattr *find_xattr(struct image *i, uint64_t ino, const char *name)
{
	struct key key = image_name_key(i, ino, name);

	cr_assert(image_find(i, INDEX_XATTRS, &key));
	return image_value(i, NULL);
}

FAULT(xattr_length, 501, STAYS)
{
	find_xattr(i, w->small, "user.short")->value_len = le32_make(19);
	image_store(i, true);
}

FAULT(xattr_hash, 502, STAYS)
{
	((uint8_t *)(find_xattr(i, w->small, "user.short") + 1))[0] = 'U';
	image_store(i, true);
}

FAULT(xattr_twice, 503, STAYS)
{
	uint8_t value[256];
	size_t len;
	struct key key = image_name_key(i, w->small, "user.short");

	memcpy(value, find_xattr(i, w->small, "user.short"), 46);
	image_value(i, &len);
	cr_assert_eq(len, 46);
	key.bytes[15]++;
	image_insert(i, INDEX_XATTRS, &key, value, len);
}

FAULT(xattr_of_nobody, 504, STAYS)
{
	uint8_t value[256];
	struct key key = image_name_key(i, 900, "user.short");

	memcpy(value, find_xattr(i, w->small, "user.short"), 46);
	image_insert(i, INDEX_XATTRS, &key, value, 46);
}

FAULT(xattr_count, 505, REPAIRED)
{
	EDIT_INODE(w->small, inode.xattr_count = le32_make(5));
}

FAULT(xattr_blocks, 506, STAYS)
{
	find_xattr(i, w->small, "user.long")->value_len = le32_make(60000);
	image_store(i, true);
}

FAULT(xattr_without_blocks, 506, STAYS)
{
	find_xattr(i, w->small, "user.long")->lob = le64_make(900);
	image_store(i, true);
}

/* --- purge records ------------------------------------------------------------------------- */

static void insert_purge(struct image *i, uint64_t number, const struct disk_purge *purge)
{
	struct key key = image_key_ino(number);

	image_insert(i, INDEX_PURGE, &key, purge, sizeof(*purge));
}

FAULT(purge_kind, 601, STAYS)
{
	insert_purge(i, 700, &(struct disk_purge){.kind = 9});
}

FAULT(purge_of_nothing, 602, STAYS)
{
	insert_purge(i, 700, &(struct disk_purge){.kind = PURGE_ORPHAN, .ino = le64_make(900)});
}

FAULT(purge_of_a_file_with_links, 602, STAYS)
{
	insert_purge(i, 700, &(struct disk_purge){.kind = PURGE_ORPHAN, .ino = le64_make(w->big)});
	EDIT_INODE(w->big, inode.purge_key = le64_make(700));
}

FAULT(purge_record_missing, 603, STAYS)
{
	EDIT_INODE(w->big, inode.purge_key = le64_make(700));
}

FAULT(purge_outside, 604, STAYS)
{
	struct {
		struct disk_purge head;
		struct disk_purge_extent extent;
	} purge = {
		{.kind = PURGE_EXTENTS, .count = le32_make(1)},
		{le64_make(1), le32_make(5)},
	};
	struct key key = image_key_ino(700);

	image_insert(i, INDEX_PURGE, &key, &purge, sizeof(purge));
}

FAULT(purge_above_mark, 605, REPAIRED)
{
	image_set_counter(i, COUNTER_PURGE, 1);
}

/* --- bitmaps ---------------------------------------------------------------------------------- */

FAULT(bitmap_page, 701, REPAIRED)
{
	image_load(i, i->raw.geo.groups_start);
	i->page[300] ^= 8;
	image_store(i, false);
}

FAULT(bitmap_of_another_group, 701, REPAIRED)
{
	image_load(i, i->raw.geo.groups_start);
	((struct disk_bitmap_page *)i->page)->group = le32_make(4);
	image_store(i, true);
}

FAULT(leak, 702, REPAIRED)
{
	image_set_bits(i, i->raw.groups_end - 5, 5, true);
	image_set_bits(i, i->raw.groups_end - 100, 1, true);
}

FAULT(used_but_free, 703, REPAIRED)
{
	struct key key;
	uint64_t start = le64_get(find_extent(i, lob_of(i, w->big), 0, &key)->start);

	image_set_bits(i, start + 2, 3, false);
}

FAULT(page_but_free, 703, REPAIRED)
{
	uint64_t leaf;

	load_second_leaf(i);
	leaf = i->pageno;
	image_set_bits(i, leaf, 1, false);
}

FAULT(bits_past_the_end, 704, REPAIRED)
{
	image_set_bits(i, i->raw.groups_end + 3, 2, true);
}

/* --- contents --------------------------------------------------------------------------------- */

FAULT(data_crc, 801, STAYS)
{
	struct key key;
	uint64_t start = le64_get(find_extent(i, lob_of(i, w->big), 0, &key)->start);

	cr_assert_eq(dev_write(w->dev, "damage", 6, (start + 4) * BLOCK_SIZE + 100), 0);
}

FAULT(data_tail, 803, STAYS)
{
	EDIT_INODE(w->big, inode.size = le64_make(9 * BLOCK_SIZE + 1));
}

/* --- superblocks -------------------------------------------------------------------------------- */

static void smash_block(struct world *w, uint64_t block)
{
	cr_assert_eq(dev_write(w->dev, "?????????????", 13, block * BLOCK_SIZE + 500), 0);
}

FAULT(primary, 1, REPAIRED)
{
	(void)i;
	smash_block(w, 0);
}

FAULT(copy, 2, REPAIRED)
{
	smash_block(w, i->raw.geo.block_count - 1);
}

FAULT(flagged, 3, REPAIRED)
{
	i->raw.sb.state = le32_make(SB_DAMAGED);
	cr_assert_eq(superblock_write(w->dev, &i->raw.sb), 0);
}

/* --- several at once ---------------------------------------------------------------------------- */

FAULT(many_counts, 410, REPAIRED)
{
	for (unsigned n = 0; n < WORLD_MANY; n++)
		EDIT_INODE(w->many_file[n], inode.nlink = le32_make(2 + n % 5));
	EDIT_INODE(w->small, inode.xattr_count = le32_make(0));
	EDIT_INODE(w->big, inode.blocks = le64_make(0));
	image_set_counter(i, COUNTER_PURGE, 1);
	image_set_bits(i, i->raw.groups_end - 50, 7, true);
	delete_name(i, INO_ROOT, "empty");
	load_second_leaf(i);
	image_set_bits(i, i->pageno, 1, false);
}
