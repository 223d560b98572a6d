/*
 * Reading a volume without the engine; see raw.h.
 */
#include "fsck/raw.h"

#include "engine/base/crc32c.h"
#include "engine/base/error.h"
#include "engine/page.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <xxhash.h>

const char *const raw_index_names[INDEX_COUNT] = {
	"dirents", "inodes", "xattrs", "lob", "shares", "purge", "txn", "overlay",
};

const uint8_t raw_key_bytes[INDEX_COUNT] = {
	[INDEX_DIRENTS] = KEY_DIRENT_BYTES, [INDEX_INODES] = KEY_INODE_BYTES,
	[INDEX_XATTRS] = KEY_XATTR_BYTES,   [INDEX_LOB] = KEY_LOB_BYTES,
	[INDEX_SHARES] = KEY_SHARE_BYTES,   [INDEX_PURGE] = KEY_PURGE_BYTES,
};

int raw_open(struct raw_volume *raw, struct device *dev)
{
	uint64_t end;
	int rc;

	memset(raw, 0, sizeof(*raw));
	raw->dev = dev;
	rc = superblock_read(dev, &raw->sb, NULL);
	if (!rc)
		rc = geometry_decode(&raw->sb, &raw->geo);
	if (rc)
		return rc;
	memcpy(raw->tag, raw->sb.uuid, sizeof(raw->tag));
	end = raw->geo.groups_start + (uint64_t)raw->geo.group_count * raw->geo.group_blocks;
	if (end > raw->geo.block_count - 1)
		end = raw->geo.block_count - 1;
	raw->groups_end = end;
	return 0;
}

bool raw_superblock_valid(const struct disk_superblock *sb)
{
	struct disk_superblock copy = *sb;
	struct geometry geo;

	copy.crc = le32_make(0);
	return memcmp(sb->magic, SB_MAGIC, sizeof(sb->magic)) == 0 &&
	       crc32c(0, &copy, sizeof(copy)) == le32_get(sb->crc) &&
	       geometry_decode(sb, &geo) == 0;
}

bool raw_checkpoint_valid(const struct raw_volume *raw, struct device *log_dev, unsigned which)
{
	struct disk_checkpoint checkpoint;
	uint64_t at = which ? LOG_CHECKPOINT_1 : LOG_CHECKPOINT_0;
	le32 crc;

	if (dev_read(log_dev ? log_dev : raw->dev, &checkpoint, sizeof(checkpoint),
		     raw->geo.log_start * BLOCK_SIZE + at))
		return false;
	crc = checkpoint.crc;
	checkpoint.crc = le32_make(0);
	return memcmp(checkpoint.magic, CHECKPOINT_MAGIC, sizeof(checkpoint.magic)) == 0 &&
	       memcmp(checkpoint.tag, raw->sb.log_uuid, sizeof(checkpoint.tag)) == 0 &&
	       crc32c(0, &checkpoint, sizeof(checkpoint)) == le32_get(crc);
}

/* ------------------------------------------------------------------ pages */

int raw_judge_page(const struct raw_volume *raw, uint64_t pageno, const void *page,
		   const char **why)
{
	return page_verify(page, raw->geo.page_size, pageno, raw->tag, why);
}

int raw_read_page(const struct raw_volume *raw, uint64_t pageno, void *page, const char **why)
{
	int rc = dev_read(raw->dev, page, raw->geo.page_size, pageno * BLOCK_SIZE);

	if (rc) {
		*why = error_text(rc);
		return rc;
	}
	return raw_judge_page(raw, pageno, page, why);
}

bool raw_blocks_valid(const struct raw_volume *raw, uint64_t start, uint64_t count)
{
	return start >= raw->geo.groups_start && start < raw->groups_end &&
	       count <= raw->groups_end - start;
}

bool raw_pageno_valid(const struct raw_volume *raw, uint64_t pageno)
{
	return pageno % raw->geo.page_blocks == 0 &&
	       raw_blocks_valid(raw, pageno, raw->geo.page_blocks);
}

uint64_t raw_bitmap_page(const struct raw_volume *raw, uint32_t group)
{
	return raw->geo.groups_start + (uint64_t)group * raw->geo.group_blocks;
}

bool raw_blocks_fixed(const struct raw_volume *raw, uint64_t start, uint64_t count)
{
	uint64_t first = start - raw->geo.groups_start, last = first + count - 1;
	uint32_t group_blocks = raw->geo.group_blocks, page_blocks = raw->geo.page_blocks;

	/* bitmap, system page and roots are the head of group 0 */
	if (first < (uint64_t)page_blocks * (2 + INDEX_COUNT))
		return true;
	return first % group_blocks < page_blocks || first / group_blocks != last / group_blocks;
}

/* ------------------------------------------------------------------- keys */

int raw_key_compare(const struct raw_key *a, const struct raw_key *b)
{
	unsigned common = a->len < b->len ? a->len : b->len;
	int order = memcmp(a->bytes, b->bytes, common);

	return order ? order : (int)a->len - (int)b->len;
}

uint64_t raw_name_hash(const struct raw_volume *raw, const void *name, size_t len)
{
	return raw_seeded_hash(raw->sb.hash_seed, name, len);
}

uint64_t raw_seeded_hash(const uint8_t hash_seed[16], const void *name, size_t len)
{
	uint64_t hash;
	le64 seed;

	memcpy(&seed, hash_seed, sizeof(seed));
	hash = XXH3_64bits_withSeed(name, len, le64_get(seed)) & ((1ull << 56) - 1);
	return hash ? hash : 1;
}

uint32_t raw_likely_mode(const struct disk_inode *inode)
{
	uint32_t mode = le32_get(inode->mode);

	switch (mode & S_IFMT) {
	case S_IFREG:
	case S_IFDIR:
	case S_IFLNK:
	case S_IFBLK:
	case S_IFCHR:
	case S_IFIFO:
	case S_IFSOCK:
		return mode & (S_IFMT | 07777);
	default:
		return (mode & 07777) | (le64_get(inode->parent) ? S_IFDIR : S_IFREG);
	}
}

static const struct disk_tree_page *tree_head(const void *page)
{
	return page;
}

unsigned raw_slots(const void *page)
{
	return le16_get(tree_head(page)->slot_count);
}

uint64_t raw_right(const void *page)
{
	return le64_get(tree_head(page)->right);
}

static void take_fence(struct raw_key *key, const uint8_t *bytes, unsigned len)
{
	check(len <= KEY_BYTES_MAX);
	key->len = (uint8_t)len;
	memcpy(key->bytes, bytes, len);
}

void raw_low(const void *page, struct raw_key *key)
{
	take_fence(key, tree_head(page)->low, tree_head(page)->low_len);
}

void raw_high(const void *page, struct raw_key *key)
{
	take_fence(key, tree_head(page)->high, tree_head(page)->high_len);
}

void raw_entry(const void *page, unsigned slot, struct raw_entry *entry)
{
	const uint8_t *bytes = page;
	const struct disk_tree_page *head = tree_head(page);
	struct disk_record record;
	unsigned prefix_len = head->prefix_len;
	const uint8_t *at;
	le16 offset;

	memcpy(&offset, bytes + sizeof(*head) + slot * sizeof(offset), sizeof(offset));
	at = bytes + le16_get(offset);
	memcpy(&record, at, sizeof(record));
	at += sizeof(record);
	check(prefix_len + record.key_len <= KEY_BYTES_MAX);
	memcpy(entry->key.bytes, head->low, prefix_len);
	memcpy(entry->key.bytes + prefix_len, at, record.key_len);
	entry->key.len = (uint8_t)(prefix_len + record.key_len);
	entry->value = at + record.key_len;
	entry->value_len = le16_get(record.value_len);
}

uint64_t raw_child(const void *page, unsigned slot)
{
	struct raw_entry entry;
	le64 child;

	raw_entry(page, slot, &entry);
	check(entry.value_len == sizeof(child));
	memcpy(&child, entry.value, sizeof(child));
	return le64_get(child);
}

/* ----------------------------------------------------------------- cursor */

/* Reads a page that must be of this index (and level, when not negative). */
static int cursor_read(struct raw_cursor *c, uint64_t pageno, int level)
{
	const char *why;
	int rc;

	if (!raw_pageno_valid(c->raw, pageno) || c->pages_left-- == 0)
		return -BE_FORMAT;
	rc = raw_read_page(c->raw, pageno, c->page, &why);
	if (rc)
		return rc;
	if (raw_head(c->page)->type != PAGE_TREE || raw_head(c->page)->index != c->index ||
	    (raw_head(c->page)->flags & PAGE_DEAD) ||
	    (level >= 0 && raw_head(c->page)->level != level))
		return -BE_IDENTITY;
	c->pageno = pageno;
	c->slot = 0;
	return 0;
}

/* Moves right while the key lies behind the page. */
static int cursor_chase(struct raw_cursor *c, const struct raw_key *key)
{
	for (;;) {
		struct raw_key high;
		int rc;

		raw_high(c->page, &high);
		if (high.len == 0 || raw_key_compare(key, &high) < 0)
			return 0;
		rc = cursor_read(c, raw_right(c->page), raw_head(c->page)->level);
		if (rc)
			return rc;
	}
}

/* Number of slots whose key is below `key`, or not above it when `inclusive`. */
static unsigned count_below(const void *page, const struct raw_key *key, bool inclusive)
{
	unsigned low = 0, high = raw_slots(page);

	while (low < high) {
		unsigned middle = (low + high) / 2;
		struct raw_entry entry;
		int order;

		raw_entry(page, middle, &entry);
		order = raw_key_compare(&entry.key, key);
		if (order < 0 || (order == 0 && inclusive))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int raw_cursor_open(struct raw_cursor *c, const struct raw_volume *raw, unsigned index,
		    const struct raw_key *from)
{
	int rc;

	memset(c, 0, sizeof(*c));
	c->raw = raw;
	c->index = index;
	c->pages_left = (raw->groups_end - raw->geo.groups_start) / raw->geo.page_blocks + 1;
	c->page = malloc(raw->geo.page_size);
	if (!c->page)
		return -ENOMEM;
	rc = cursor_read(c, le64_get(raw->sb.root[index]), -1);
	while (!rc) {
		unsigned below;

		rc = cursor_chase(c, from);
		if (rc)
			break;
		if (raw_head(c->page)->level == 0) {
			c->slot = count_below(c->page, from, false);
			break;
		}
		below = count_below(c->page, from, true);
		rc = below ? cursor_read(c, raw_child(c->page, below - 1),
					 raw_head(c->page)->level - 1)
			   : -BE_FORMAT;
	}
	return rc;
}

int raw_cursor_next(struct raw_cursor *c)
{
	while (c->slot >= raw_slots(c->page)) {
		uint64_t right = raw_right(c->page);
		int rc = right ? cursor_read(c, right, 0) : -BE_END;

		if (rc)
			return rc;
	}
	raw_entry(c->page, c->slot++, &c->entry);
	return 0;
}

void raw_cursor_close(struct raw_cursor *c)
{
	free(c->page);
}
