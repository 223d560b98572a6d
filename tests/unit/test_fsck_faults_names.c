/*
 * Faults of names, attributes, purge records, bitmaps, contents and superblocks;
 * see test_fsck_faults.c.
 */
#include "tests/lib/fsck_fault.h"

#include <dirent.h>
#include <sys/stat.h>

/* --- names ------------------------------------------------------------------- */

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

FAULT(name_with_slash, 401, REPAIRED)
{
	find_name(i, INO_ROOT, "small")->name[2] = '/';
	image_store(i, true);
}

FAULT(name_dot_dot, 401, REPAIRED)
{
	insert_name(i, w->dir, "..", 0, INO_ROOT, DT_DIR);
}

FAULT(name_type, 402, REPAIRED)
{
	find_name(i, INO_ROOT, "small")->type = DT_DIR;
	image_store(i, true);
}

FAULT(name_hash, 403, REPAIRED)
{
	find_name(i, INO_ROOT, "small")->name[0] = 'S';
	image_store(i, true);
}

FAULT(name_twice, 404, REPAIRED)
{
	insert_name(i, INO_ROOT, "small", 1, w->empty, DT_REG);
}

FAULT(name_in_no_directory, 405, REPAIRED)
{
	insert_name(i, 900, "lost", 0, w->empty, DT_REG);
}

FAULT(name_in_a_file, 405, REPAIRED)
{
	insert_name(i, w->big, "lost", 0, w->empty, DT_REG);
}

FAULT(name_of_nothing, 406, REPAIRED)
{
	find_name(i, INO_ROOT, "small")->child = le64_make(900);
	image_store(i, true);
}

FAULT(directory_with_two_names, 407, REPAIRED)
{
	insert_name(i, INO_ROOT, "again", 0, w->sub, DT_DIR);
}

FAULT(name_of_the_root, 407, REPAIRED)
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

FAULT(directory_inside_itself, 411, REPAIRED)
{
	delete_name(i, INO_ROOT, "dir");
	insert_name(i, w->sub, "dir", 0, w->dir, DT_DIR);
}

FAULT(directory_without_name, 411, REPAIRED)
{
	delete_name(i, INO_ROOT, "dir");
}

FAULT(file_without_name, 412, REPAIRED)
{
	delete_name(i, INO_ROOT, "empty");
}

FAULT(contents_without_name, 416, REPAIRED)
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
	EDIT_INODE(w->empty, inode.nlink = le32_make(0); inode.purge_key = le64_make(key_number));
}

FAULT(orphan_with_entries, 415, REPAIRED)
{
	delete_name(i, INO_ROOT, "many");
	EDIT_INODE(w->many, inode.nlink = le32_make(0));
}

/* --- extended attributes ----------------------------------------------------- */

static struct disk_xattr *find_xattr(struct image *i, uint64_t ino, const char *name)
{
	struct key key = image_name_key(i, ino, name);

	cr_assert(image_find(i, INDEX_XATTRS, &key));
	return image_value(i, NULL);
}

FAULT(xattr_length, 501, REPAIRED)
{
	find_xattr(i, w->small, "user.short")->value_len = le32_make(19);
	image_store(i, true);
}

FAULT(xattr_hash, 502, REPAIRED)
{
	((uint8_t *)(find_xattr(i, w->small, "user.short") + 1))[0] = 'U';
	image_store(i, true);
}

FAULT(xattr_twice, 503, REPAIRED)
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

FAULT(xattr_of_nobody, 504, REPAIRED)
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

FAULT(xattr_blocks, 506, REPAIRED)
{
	find_xattr(i, w->small, "user.long")->value_len = le32_make(60000);
	image_store(i, true);
}

FAULT(xattr_without_blocks, 506, REPAIRED)
{
	find_xattr(i, w->small, "user.long")->lob = le64_make(900);
	image_store(i, true);
}

static void insert_acl(struct image *i, uint64_t ino, uint8_t mask_tag)
{
	static const char name[] = "system.posix_acl_access";
	const uint8_t list[] = {
		2, 0, 0, 0,
		0x01, 0, 7, 0, 255, 255, 255, 255,
		0x02, 0, 6, 0, 232, 3, 0, 0,
		0x04, 0, 5, 0, 255, 255, 255, 255,
		mask_tag, 0, 7, 0, 255, 255, 255, 255,
		0x20, 0, 4, 0, 255, 255, 255, 255,
	};
	struct disk_xattr head = {
		.value_len = le32_make(sizeof(list)),
		.name_len = sizeof(name) - 1,
	};
	struct key key = image_name_key(i, ino, name);
	uint8_t value[256];

	memcpy(value, &head, sizeof(head));
	memcpy(value + sizeof(head), name, sizeof(name) - 1);
	memcpy(value + sizeof(head) + sizeof(name) - 1, list, sizeof(list));
	image_insert(i, INDEX_XATTRS, &key, value, sizeof(head) + sizeof(name) - 1 + sizeof(list));
}

FAULT(acl_without_mask, 507, REPAIRED)
{
	insert_acl(i, w->small, 0x08);
	EDIT_INODE(w->small, inode.xattr_count = le32_make(le32_get(inode.xattr_count) + 1));
}

static void set_permissions(struct image *i, uint64_t ino, uint32_t permissions)
{
	EDIT_INODE(ino, inode.mode = le32_make((le32_get(inode.mode) & ~0777u) | permissions));
}

/* A good one is none: only the count is wrong. */
FAULT(acl_not_counted, 505, REPAIRED)
{
	insert_acl(i, w->small, 0x10);
	set_permissions(i, w->small, 0774);
}

FAULT(acl_and_mode, 508, REPAIRED)
{
	insert_acl(i, w->small, 0x10);
	set_permissions(i, w->small, 0754); /* the owning group's, not the mask's */
	EDIT_INODE(w->small, inode.xattr_count = le32_make(le32_get(inode.xattr_count) + 1));
}

/* --- purge records ----------------------------------------------------------- */

static void insert_purge(struct image *i, uint64_t number, const struct disk_purge *purge)
{
	struct key key = image_key_ino(number);

	image_insert(i, INDEX_PURGE, &key, purge, sizeof(*purge));
}

FAULT(purge_kind, 601, REPAIRED)
{
	insert_purge(i, 700, &(struct disk_purge){.kind = 9});
}

FAULT(purge_of_nothing, 602, REPAIRED)
{
	insert_purge(i, 700, &(struct disk_purge){.kind = PURGE_ORPHAN, .ino = le64_make(900)});
}

FAULT(purge_of_a_file_with_links, 602, REPAIRED)
{
	insert_purge(i, 700, &(struct disk_purge){.kind = PURGE_ORPHAN, .ino = le64_make(w->big)});
	EDIT_INODE(w->big, inode.purge_key = le64_make(700));
}

FAULT(purge_record_missing, 603, REPAIRED)
{
	EDIT_INODE(w->big, inode.purge_key = le64_make(700));
}

FAULT(purge_outside, 604, REPAIRED)
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

/* What is to be freed belongs to a file, or to two records at once. */
FAULT(purge_of_blocks_in_use, 304, REPAIRED)
{
	struct {
		struct disk_purge head;
		struct disk_purge_extent extent;
	} purge = {
		{.kind = PURGE_EXTENTS, .count = le32_make(1)},
		{.length = le32_make(2)},
	};
	struct key key;

	purge.extent.start = fault_extent(i, fault_lob(i, w->big), 0, &key)->start;
	key = image_key_ino(700);
	image_insert(i, INDEX_PURGE, &key, &purge, sizeof(purge));
}

FAULT(purge_past_an_extent, 305, REPAIRED)
{
	struct key key = image_key_ino(0);

	cr_assert(image_find(i, INDEX_PURGE, &key));
	cr_assert_eq(((struct disk_purge *)image_value(i, NULL))->kind, PURGE_LOB);
	((struct disk_purge *)image_value(i, NULL))->first = le64_make(1);
	image_store(i, true);
}

FAULT(purge_above_mark, 605, REPAIRED)
{
	image_set_counter(i, COUNTER_PURGE, 1);
}

/* --- bitmaps ----------------------------------------------------------------- */

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
	uint64_t start = le64_get(fault_extent(i, fault_lob(i, w->big), 0, &key)->start);

	image_set_bits(i, start + 2, 3, false);
}

FAULT(page_but_free, 703, REPAIRED)
{
	uint64_t leaf;

	fault_second_leaf(i);
	leaf = i->pageno;
	image_set_bits(i, leaf, 1, false);
}

FAULT(bits_past_the_end, 704, REPAIRED)
{
	image_set_bits(i, i->raw.groups_end + 3, 2, true);
}

FAULT(wrong_count, 705, REPAIRED)
{
	cr_assert_eq(log_write_tally(w->dev, i->raw.geo.log_start * BLOCK_SIZE,
				     i->raw.sb.log_uuid, 1000), 0);
}

/* --- contents ---------------------------------------------------------------- */

FAULT(data_crc, 801, STAYS)
{
	struct key key;
	uint64_t start = le64_get(fault_extent(i, fault_lob(i, w->big), 0, &key)->start);

	cr_assert_eq(dev_write(w->dev, "damage", 6, (start + 4) * BLOCK_SIZE + 100), 0);
}

FAULT(data_tail, 803, STAYS)
{
	EDIT_INODE(w->big, inode.size = le64_make(9 * BLOCK_SIZE + 1));
}

/* --- superblocks ------------------------------------------------------------- */

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

FAULT(both, 4, REPAIRED)
{
	smash_block(w, 0);
	smash_block(w, i->raw.geo.block_count - 1);
}

FAULT(checkpoint, 13, REPAIRED)
{
	uint64_t log = i->raw.geo.log_start * BLOCK_SIZE;

	cr_assert_eq(dev_write(w->dev, "?", 1, log + LOG_CHECKPOINT_1 + 30), 0);
}

FAULT(log_header, 12, REPAIRED)
{
	cr_assert_eq(dev_write(w->dev, "?", 1, i->raw.geo.log_start * BLOCK_SIZE + 30), 0);
}

FAULT(flagged, 3, REPAIRED)
{
	i->raw.sb.state = le32_make(SB_DAMAGED);
	cr_assert_eq(superblock_write(w->dev, &i->raw.sb), 0);
}

/* --- several at once --------------------------------------------------------- */

static void many_faults(struct world *w, struct image *i)
{
	for (unsigned n = 0; n < WORLD_MANY; n++)
		EDIT_INODE(w->many_file[n], inode.nlink = le32_make(2 + n % 5));
	EDIT_INODE(w->small, inode.xattr_count = le32_make(0));
	EDIT_INODE(w->big, inode.blocks = le64_make(0));
	image_set_counter(i, COUNTER_PURGE, 1);
	image_set_bits(i, i->raw.groups_end - 50, 7, true);
	delete_name(i, INO_ROOT, "empty");
	fault_second_leaf(i);
	image_set_bits(i, i->pageno, 1, false);
}

/* Rounds of repair: bitmaps, then high-water marks, then counts. */
Test(fsck_faults, many_at_once)
{
	const char *wrong = fault_try(many_faults, 410, REPAIRED);

	cr_assert_null(wrong, "%s", wrong);
}
