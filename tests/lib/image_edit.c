#include "tests/lib/image_edit.h"

#include "engine/base/error.h"

#include <stdio.h>
#include <stdlib.h>

static void demand(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "image edit: %s\n", what);
	abort();
}

void image_open(struct image *image, struct device *dev)
{
	demand(raw_open(&image->raw, dev) == 0, "open");
}

void image_load(struct image *image, uint64_t pageno)
{
	image->pageno = pageno;
	demand(dev_read(image->raw.dev, image->page, image->raw.geo.page_size,
			pageno * BLOCK_SIZE) == 0,
	       "read");
}

void image_store(struct image *image, bool seal)
{
	if (seal)
		page_seal(image->page, image->raw.geo.page_size);
	demand(dev_write(image->raw.dev, image->page, image->raw.geo.page_size,
			 image->pageno * BLOCK_SIZE) == 0,
	       "write");
}

struct disk_page *image_head(struct image *image)
{
	return (struct disk_page *)image->page;
}

struct key image_key_ino(uint64_t ino)
{
	struct key key = {.len = 8};

	be64_put(key.bytes, ino);
	return key;
}

struct key image_key_pair(uint64_t first, uint64_t second)
{
	struct key key = {.len = 16};

	be64_put(key.bytes, first);
	be64_put(key.bytes + 8, second);
	return key;
}

bool image_find(struct image *image, unsigned index, const struct key *key)
{
	struct raw_key from = {.len = key->len};
	struct raw_cursor c;
	int rc;

	memcpy(from.bytes, key->bytes, key->len);
	rc = raw_cursor_open(&c, &image->raw, index, &from);
	if (rc == 0)
		rc = raw_cursor_next(&c);
	demand(rc == 0 || rc == -BE_END, "cursor");
	if (rc == 0) {
		image_load(image, c.pageno);
		image->slot = c.slot - 1;
	}
	raw_cursor_close(&c);
	return rc == 0;
}

void *image_value(struct image *image, size_t *len)
{
	struct page_entry entry;

	page_entry(image->page, image->slot, &entry);
	if (len)
		*len = entry.value_len;
	return (void *)(uintptr_t)entry.value;
}

void image_slot_key(struct image *image, struct key *key)
{
	page_key(image->page, image->slot, key);
}

/* The leaf that covers the key. */
static void load_leaf(struct image *image, unsigned index, const struct key *key)
{
	image_load(image, le64_get(image->raw.sb.root[index]));
	while (image_head(image)->level > 0)
		image_load(image, page_child(image->page,
					     page_child_slot(image->page, key->bytes, key->len)));
}

static void redo(struct image *image, uint8_t type, const uint8_t *body, size_t len)
{
	demand(page_redo(image->page, image->raw.geo.page_size, image->pageno, image->raw.tag, type,
			 body, len) == 0,
	       "the record does not fit the page");
	image_store(image, true);
}

void image_insert(struct image *image, unsigned index, const struct key *key, const void *value,
		  size_t len)
{
	uint8_t body[BODY_BYTES_MAX(PAGE_SIZE_MAX)];
	bool exact;
	unsigned slot;

	load_leaf(image, index, key);
	slot = page_lower_bound(image->page, key->bytes, key->len, &exact);
	demand(!exact, "the key exists");
	redo(image, REC_INSERT, body, redo_insert(body, slot, key->bytes, key->len, value, len));
}

static unsigned exact_slot(struct image *image, unsigned index, const struct key *key)
{
	bool exact;
	unsigned slot;

	load_leaf(image, index, key);
	slot = page_lower_bound(image->page, key->bytes, key->len, &exact);
	demand(exact, "no such key");
	return slot;
}

void image_delete(struct image *image, unsigned index, const struct key *key)
{
	uint8_t body[32];
	unsigned slot = exact_slot(image, index, key);

	redo(image, REC_DELETE, body, redo_delete(body, slot));
}

void image_update(struct image *image, unsigned index, const struct key *key, const void *value,
		  size_t len)
{
	uint8_t body[BODY_BYTES_MAX(PAGE_SIZE_MAX)];
	unsigned slot = exact_slot(image, index, key);

	redo(image, REC_UPDATE, body, redo_update(body, slot, value, len));
}

void image_set_bits(struct image *image, uint64_t block, uint64_t count, bool value)
{
	const struct geometry *geo = &image->raw.geo;
	uint64_t bit = (block - geo->groups_start) % geo->group_blocks;
	uint8_t *bits = image->page + sizeof(struct disk_bitmap_page);

	image_load(image, block - bit);
	for (; count > 0; bit++, count--)
		bits[bit / 8] = (uint8_t)((bits[bit / 8] & ~(1u << (bit % 8))) |
					  ((unsigned)value << (bit % 8)));
	image_store(image, true);
}

void image_set_counter(struct image *image, enum counter counter, uint64_t value)
{
	struct disk_system_page *page = (struct disk_system_page *)image->page;

	image_load(image, image->raw.geo.system_page);
	page->counter[counter] = le64_make(value);
	image_store(image, true);
}

void image_get_inode(struct image *image, uint64_t ino, struct disk_inode *inode)
{
	struct key key = image_key_ino(ino);
	struct page_entry entry;

	page_entry(image->page, exact_slot(image, INDEX_INODES, &key), &entry);
	demand(entry.value_len >= sizeof(*inode), "short inode");
	memcpy(inode, entry.value, sizeof(*inode));
}

void image_put_inode(struct image *image, uint64_t ino, const struct disk_inode *inode)
{
	struct key key = image_key_ino(ino);

	image->slot = exact_slot(image, INDEX_INODES, &key);
	memcpy(image_value(image, NULL), inode, sizeof(*inode));
	image_store(image, true);
}

struct key image_name_key(struct image *image, uint64_t parent, const char *name)
{
	return image_key_pair(parent, raw_name_hash(&image->raw, name, strlen(name)) << 7);
}
