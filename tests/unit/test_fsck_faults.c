/*
 * Each fault of fsck/problem.def, made by editing a quiet volume whose checksums
 * are right again afterwards.  Here: pages, inodes, extents; the others are in
 * test_fsck_faults_names.c.
 */
#include "fsck/check.h"
#include "tests/lib/fsck_fault.h"

#include <sys/stat.h>

/* --- and none ------------------------------------------------------------------ */

static void count_problem(void *arg, const struct fsck_problem *problem)
{
	(void)problem;
	++*(unsigned *)arg;
}

Test(fsck_faults, none)
{
	const struct fsck_options options = {.data = true};
	struct fsck_result result;
	struct world world;
	unsigned count = 0;

	world_make(&world);
	cr_assert_eq(fsck_walk(world.dev, &options, count_problem, &count, &result), 0);
	cr_assert_eq(count, 0);
	world_free(&world);
}

/* --- pages and trees ----------------------------------------------------------- */

FAULT(page_crc, 102, REPAIRED)
{
	fault_second_leaf(i);
	i->page[3000] ^= 1;
	image_store(i, false);
}

FAULT(page_identity, 103, REPAIRED)
{
	fault_second_leaf(i);
	image_head(i)->pageno = le64_make(i->pageno + 1);
	image_store(i, true);
}

FAULT(page_format, 104, REPAIRED)
{
	fault_second_leaf(i);
	((struct disk_tree_page *)i->page)->heap_start = le32_make(7);
	image_store(i, true);
}

FAULT(page_of_another_index, 105, REPAIRED)
{
	fault_second_leaf(i);
	image_head(i)->index = INDEX_LOB;
	image_store(i, true);
}

FAULT(page_level, 106, REPAIRED)
{
	image_load(i, fault_root(i, INDEX_INODES));
	image_head(i)->level = 2;
	image_store(i, true);
}

static void set_child(struct image *i, unsigned slot, uint64_t child)
{
	struct key key;

	image_load(i, fault_root(i, INDEX_INODES));
	page_key(i->page, slot, &key);
	i->slot = slot;
	*(le64 *)image_value(i, NULL) = le64_make(child);
	image_store(i, true);
}

FAULT(child_on_the_superblock, 107, REPAIRED)
{
	set_child(i, 1, 0);
}

FAULT(child_past_the_end, 107, REPAIRED)
{
	set_child(i, 1, 1ull << 60);
}

FAULT(child_on_a_bitmap, 107, REPAIRED)
{
	set_child(i, 1, i->raw.geo.groups_start);
}

FAULT(child_on_another_root, 107, REPAIRED)
{
	set_child(i, 1, fault_root(i, INDEX_TXN));
}

FAULT(child_twice, 108, REPAIRED)
{
	image_load(i, fault_root(i, INDEX_INODES));
	set_child(i, 1, page_child(i->page, 2));
}

FAULT(cycle_to_the_root, 108, REPAIRED)
{
	set_child(i, 1, fault_root(i, INDEX_INODES));
}

FAULT(dead_page, 109, REPAIRED)
{
	fault_second_leaf(i);
	image_head(i)->flags |= PAGE_DEAD;
	image_store(i, true);
}

static void move_separator(struct image *i)
{
	struct key key;
	struct page_entry entry;

	image_load(i, fault_root(i, INDEX_INODES));
	page_key(i->page, 1, &key);
	page_entry(i->page, 1, &entry);
	((uint8_t *)(uintptr_t)entry.suffix)[entry.suffix_len - 1]--;
	image_store(i, true);
}

FAULT(low_fence, 110, REPAIRED)
{
	move_separator(i);
}

FAULT(high_fence, 111, REPAIRED)
{
	move_separator(i);
}

FAULT(right_link, 112, REPAIRED)
{
	fault_second_leaf(i);
	((struct disk_tree_page *)i->page)->right = le64_make(fault_root(i, INDEX_TXN));
	image_store(i, true);
}

FAULT(stale_incomplete_mark, 113, REPAIRED)
{
	fault_second_leaf(i);
	image_head(i)->flags |= PAGE_INCOMPLETE;
	image_store(i, true);
}

FAULT(root_with_sibling, 114, REPAIRED)
{
	struct disk_tree_page *page = (struct disk_tree_page *)i->page;

	image_load(i, fault_root(i, INDEX_SHARES));
	page->right = le64_make(fault_root(i, INDEX_TXN));
	page->high_len = 8;
	memset(page->high, 0xff, 8);
	image_store(i, true);
}

FAULT(key_length, 115, REPAIRED)
{
	struct disk_purge purge = {.kind = PURGE_LOB, .lob = le64_make(1)};
	struct key key = image_key_ino(3);

	key.len = 7;
	image_insert(i, INDEX_PURGE, &key, &purge, sizeof(purge));
}

FAULT(leaves_exchanged, 116, REPAIRED)
{
	uint64_t one, two;

	image_load(i, fault_root(i, INDEX_INODES));
	one = page_child(i->page, 1);
	two = page_child(i->page, 2);
	set_child(i, 1, two);
	set_child(i, 2, one);
}

FAULT(page_from_the_future, 117, REPAIRED)
{
	fault_second_leaf(i);
	page_set_lsn(i->page, 1ull << 50);
	image_store(i, true);
}

FAULT(page_from_nowhere, 117, REPAIRED)
{
	fault_second_leaf(i);
	page_set_lsn(i->page, UINT64_MAX - 5);
	image_store(i, true);
}

FAULT(bitmap_from_the_future, 117, REPAIRED)
{
	image_load(i, i->raw.geo.groups_start);
	page_set_lsn(i->page, 1ull << 40);
	image_store(i, true);
}

FAULT(unused_index, 118, REPAIRED)
{
	struct key key = image_key_ino(1);

	image_insert(i, INDEX_TXN, &key, "x", 1);
}

FAULT(system_page, 119, REPAIRED)
{
	image_load(i, i->raw.geo.system_page);
	i->page[200] ^= 1;
	image_store(i, false);
}

FAULT(counter_below_its_least, 120, REPAIRED)
{
	image_set_counter(i, COUNTER_TXN, 0);
}

/* --- inodes ---------------------------------------------------------------------- */

FAULT(inode_short, 201, REPAIRED)
{
	struct key key = image_key_ino(w->empty);

	image_update(i, INDEX_INODES, &key, "short", 5);
}

FAULT(inode_with_bytes_behind, 201, REPAIRED)
{
	EDIT_INODE(w->small, inode.flags = le32_make(0));
}

FAULT(inode_number, 202, REPAIRED)
{
	struct key key = image_key_ino(1ull << 48);
	struct disk_inode inode;

	image_get_inode(i, w->empty, &inode);
	image_insert(i, INDEX_INODES, &key, &inode, sizeof(inode));
}

FAULT(inode_mode, 203, REPAIRED)
{
	EDIT_INODE(w->empty, inode.mode = le32_make(0644));
}

FAULT(inode_flags, 204, REPAIRED)
{
	EDIT_INODE(w->empty, inode.flags = le32_make(0x80));
}

FAULT(inode_size, 205, REPAIRED)
{
	EDIT_INODE(w->empty, inode.size = le64_make(1ull << 63));
}

FAULT(inode_smaller_than_inline, 205, REPAIRED)
{
	EDIT_INODE(w->small, inode.size = le64_make(4));
}

FAULT(directory_with_contents, 206, REPAIRED)
{
	EDIT_INODE(w->dir, inode.lob = le64_make(900));
}

FAULT(dead_range_without_record, 207, REPAIRED)
{
	EDIT_INODE(w->big, inode.dead_first = le64_make(20); inode.dead_end = le64_make(30));
}

FAULT(inode_time, 208, REPAIRED)
{
	EDIT_INODE(w->empty, inode.mtime.nsec = le32_make(1000000000));
}

FAULT(inode_above_mark, 209, REPAIRED)
{
	image_set_counter(i, COUNTER_INO, w->orphan);
}

FAULT(no_root, 210, REPAIRED)
{
	struct key key = image_key_ino(INO_ROOT);

	image_delete(i, INDEX_INODES, &key);
}

FAULT(inode_blocks, 211, REPAIRED)
{
	EDIT_INODE(w->big, inode.blocks = le64_make(77));
}

FAULT(file_with_parent, 212, REPAIRED)
{
	EDIT_INODE(w->big, inode.parent = le64_make(1));
}

/* --- extents ---------------------------------------------------------------------- */

FAULT(extent_length, 301, REPAIRED)
{
	struct key key;

	fault_extent(i, fault_lob(i, w->big), 0, &key)->length = le32_make(3);
	image_store(i, true);
}

FAULT(extent_codec, 301, REPAIRED)
{
	struct key key;

	fault_extent(i, fault_lob(i, w->big), 0, &key)->codec = 1;
	image_store(i, true);
}

FAULT(extent_overlap, 302, REPAIRED)
{
	struct disk_extent extent = {
		.start = le64_make(i->raw.groups_end - 3),
		.length = le32_make(3),
		.stored = le32_make(3),
		.flags = EXTENT_UNWRITTEN,
	};
	struct key key = image_key_pair(fault_lob(i, w->big), 10);

	image_insert(i, INDEX_LOB, &key, &extent, sizeof(extent));
}

FAULT(extent_outside, 303, REPAIRED)
{
	struct key key;

	fault_extent(i, fault_lob(i, w->big), 0, &key)->start = le64_make(0);
	image_store(i, true);
}

FAULT(extent_over_the_system_page, 303, REPAIRED)
{
	struct key key;

	fault_extent(i, fault_lob(i, w->big), 0, &key)->start = le64_make(i->raw.geo.system_page);
	image_store(i, true);
}

FAULT(blocks_twice, 304, REPAIRED)
{
	struct key key;
	le64 start = fault_extent(i, fault_lob(i, w->big), 0, &key)->start;

	fault_extent(i, fault_lob(i, w->sparse), 0, &key)->start = start;
	image_store(i, true);
}

FAULT(extent_over_a_page, 304, REPAIRED)
{
	struct key key;
	uint64_t leaf;

	fault_second_leaf(i);
	leaf = i->pageno;
	fault_extent(i, fault_lob(i, w->sparse), 0, &key)->start = le64_make(leaf);
	image_store(i, true);
}

FAULT(lob_of_nobody, 305, REPAIRED)
{
	EDIT_INODE(w->sparse, inode.lob = le64_make(0); inode.blocks = le64_make(0));
}

FAULT(lob_of_two, 306, REPAIRED)
{
	uint64_t lob = fault_lob(i, w->big);

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

FAULT(share_of_one, 311, REPAIRED)
{
	insert_share(i, 400, 2, 1);
}

FAULT(share_overlap, 312, REPAIRED)
{
	insert_share(i, 400, 5, 2);
	insert_share(i, 402, 5, 2);
}

FAULT(share_count, 313, REPAIRED)
{
	struct key key;
	uint64_t start = le64_get(fault_extent(i, fault_lob(i, w->big), 0, &key)->start);

	insert_share(i, start + 3, 4, 2);
}

/* Two extents name a block, as its share says, but one of them would be written in place. */
FAULT(share_of_unwritten, 314, STAYS)
{
	struct key key;
	uint64_t start = le64_get(fault_extent(i, fault_lob(i, w->big), 0, &key)->start);
	struct disk_extent extent = {
		.start = le64_make(start),
		.length = le32_make(1),
		.stored = le32_make(1),
		.flags = EXTENT_UNWRITTEN,
	};

	key = image_key_pair(fault_lob(i, w->sparse), 1u << 20);
	image_insert(i, INDEX_LOB, &key, &extent, sizeof(extent));
	insert_share(i, start, 1, 2);
}
