/*
 * Changes to a quiet image by hand: pages are read, edited, sealed again and
 * written back, as damage that no checksum shows.  For tests of fsck.  Failures
 * end the program.
 */
#ifndef BLINKFS_TESTS_IMAGE_EDIT_H
#define BLINKFS_TESTS_IMAGE_EDIT_H

#include "engine/format.h"
#include "engine/page.h"
#include "fsck/raw.h"

struct image {
	struct raw_volume raw;
	uint8_t page[PAGE_SIZE_MAX]; /* the one being edited */
	uint64_t pageno;
	unsigned slot;
};

void image_open(struct image *image, struct device *dev);

void image_load(struct image *image, uint64_t pageno);
/* Seals (or not) and writes the page. */
void image_store(struct image *image, bool seal);
struct disk_page *image_head(struct image *image);

struct key image_key_ino(uint64_t ino);
struct key image_key_pair(uint64_t first, uint64_t second); /* dirents, xattrs, lob */

/* Loads the leaf with the first entry >= key of an index; its slot.  False: none. */
bool image_find(struct image *image, unsigned index, const struct key *key);
/* The value of the slot found, to be changed in place before image_store(). */
void *image_value(struct image *image, size_t *len);
void image_slot_key(struct image *image, struct key *key);

/* One record, in place on its leaf. */
void image_insert(struct image *image, unsigned index, const struct key *key, const void *value,
		  size_t len);
void image_delete(struct image *image, unsigned index, const struct key *key);
void image_update(struct image *image, unsigned index, const struct key *key, const void *value,
		  size_t len);

void image_set_bits(struct image *image, uint64_t block, uint64_t count, bool value);
void image_set_counter(struct image *image, enum counter counter, uint64_t value);

/* Inode records. */
void image_get_inode(struct image *image, uint64_t ino, struct disk_inode *inode);
void image_put_inode(struct image *image, uint64_t ino, const struct disk_inode *inode);
/* Key of a name, or of an attribute, that is the first with its hash. */
struct key image_name_key(struct image *image, uint64_t parent, const char *name);

#endif
