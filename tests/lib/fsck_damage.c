/* Volumes with much that is wrong: see fsck_damage.h. */
#include "tests/lib/fsck_damage.h"

#include "tests/lib/fsck_fault.h"

/* Something for each round of mini-transactions, and for the bitmaps. */
static void damage_counts(struct world *w, struct image *i)
{
	struct key key;
	uint64_t start;

	for (unsigned n = 0; n < 20; n++)
		EDIT_INODE(w->many_file[n * 7], inode.nlink = le32_make(2 + n % 5));
	EDIT_INODE(w->small, inode.xattr_count = le32_make(0));
	EDIT_INODE(w->big, inode.blocks = le64_make(0));
	EDIT_INODE(w->dir, inode.entries = le64_make(9));
	image_set_counter(i, COUNTER_PURGE, 1);
	image_set_counter(i, COUNTER_INO, 20);
	image_set_bits(i, i->raw.groups_end - 50, 7, true);
	start = le64_get(fault_extent(i, fault_lob(i, w->big), 0, &key)->start);
	image_set_bits(i, start + 2, 3, false);
	key = image_name_key(i, INO_ROOT, "empty");
	image_delete(i, INDEX_DIRENTS, &key);
}

/* What gets a name, a copy, another key, an owner. */
static void damage_records(struct world *w, struct image *i)
{
	struct key key = image_name_key(i, INO_ROOT, "sparse");
	le64 start;

	image_delete(i, INDEX_DIRENTS, &key);
	key = image_name_key(i, INO_ROOT, "dir");
	image_delete(i, INDEX_DIRENTS, &key);
	key = image_key_ino(w->deep);
	image_delete(i, INDEX_INODES, &key);
	EDIT_INODE(w->small, inode.mode = le32_make(0));
	EDIT_INODE(w->orphan, inode.lob = le64_make(0));
	start = fault_extent(i, fault_lob(i, w->big), 0, &key)->start;
	fault_extent(i, fault_lob(i, w->sparse), 0, &key)->start = start;
	image_store(i, true);
	key = image_name_key(i, INO_ROOT, "link");
	image_find(i, INDEX_DIRENTS, &key);
	((struct disk_dirent *)image_value(i, NULL))->name[0] = 'L';
	image_store(i, true);
}

static void smash_page(struct image *i, uint64_t pageno)
{
	image_load(i, pageno);
	i->page[300] ^= 1;
	image_store(i, false);
}

/* The root of each index that has more than one page, a leaf, the system page. */
static void damage_trees(struct world *w, struct image *i)
{
	(void)w;
	fault_second_leaf(i);
	smash_page(i, i->pageno);
	smash_page(i, fault_root(i, INDEX_INODES));
	smash_page(i, fault_root(i, INDEX_DIRENTS));
	smash_page(i, fault_root(i, INDEX_XATTRS));
	smash_page(i, i->raw.geo.system_page);
}

static void damage_superblocks(struct world *w, struct image *i)
{
	check(dev_write(w->dev, "??", 2, 8) == 0);
	check(dev_write(w->dev, "??", 2, (i->raw.geo.block_count - 1) * BLOCK_SIZE + 8) == 0);
}

/* Of a world that died: its log breaks off below a mark. */
static void damage_log(struct world *w, struct image *i)
{
	uint64_t log = i->raw.geo.log_start * BLOCK_SIZE;
	char bytes[1024];

	memset(bytes, '?', sizeof(bytes));
	check(dev_write(w->dev, bytes, sizeof(bytes), log + LOG_RECORDS_START + 30 * 1024) == 0);
}

static void damage_log_header(struct world *w, struct image *i)
{
	check(dev_write(w->dev, "?", 1, i->raw.geo.log_start * BLOCK_SIZE + 3) == 0);
}

const struct damage fsck_damages[] = {
	{"counts", damage_counts, false},
	{"records", damage_records, false},
	{"trees", damage_trees, false},
	{"superblocks", damage_superblocks, false},
	{"log", damage_log, true},
	{"log header", damage_log_header, false},
	{NULL, NULL, false},
};
