/*
 * Reading a volume without the engine: pages from the device, slots decoded
 * here.  Only page_verify() is shared with the engine; it judges a page by
 * itself, and what it has accepted is decoded without further bounds checks
 * but those that cost nothing.
 */
#ifndef BLINKFS_FSCK_RAW_H
#define BLINKFS_FSCK_RAW_H

#include "engine/format.h"
#include "engine/volume.h"

struct raw_volume {
	struct device *dev; /* not owned */
	struct disk_superblock sb;
	struct geometry geo;
	uint8_t tag[8];
	uint64_t groups_end; /* first block behind the groups */
};

int raw_open(struct raw_volume *raw, struct device *dev) must_check;
/* Is this block a superblock by itself: magic, checksum, geometry? */
bool raw_superblock_valid(const struct disk_superblock *sb);

/*
 * Is checkpoint block 0 or 1 of the log one by itself: magic, tag, checksum?
 * log_dev: of an external log, else NULL.
 */
bool raw_checkpoint_valid(const struct raw_volume *raw, struct device *log_dev, unsigned which);

/* An I/O error, or what page_verify() says: -BE_CRC, -BE_IDENTITY, -BE_FORMAT; *why is its text. */
int raw_read_page(const struct raw_volume *raw, uint64_t pageno, void *page,
		  const char **why) must_check;
int raw_judge_page(const struct raw_volume *raw, uint64_t pageno, const void *page,
		   const char **why) must_check;
/* May a metadata page have this number? */
bool raw_pageno_valid(const struct raw_volume *raw, uint64_t pageno);
/* Do blocks [start, start + count) lie within the groups? */
bool raw_blocks_valid(const struct raw_volume *raw, uint64_t start, uint64_t count);
/* Do they touch a bitmap page, the system page or a root? */
bool raw_blocks_fixed(const struct raw_volume *raw, uint64_t start, uint64_t count);
uint64_t raw_bitmap_page(const struct raw_volume *raw, uint32_t group);

/*
 * Of directory entries and attributes: the low 56 bits of the 64-bit XXH3 of the
 * name, seeded with the first 8 bytes of the superblock's hash_seed; 1 for 0.
 */
uint64_t raw_name_hash(const struct raw_volume *raw, const void *name, size_t len);
uint64_t raw_seeded_hash(const uint8_t hash_seed[16], const void *name, size_t len);

struct raw_key {
	uint8_t len;
	uint8_t bytes[KEY_BYTES_MAX];
};
int raw_key_compare(const struct raw_key *a, const struct raw_key *b);

/* The mode of an inode; where it has no known type, that of which its other fields speak. */
uint32_t raw_likely_mode(const struct disk_inode *inode);

struct raw_entry {
	struct raw_key key;
	const uint8_t *value; /* points into the page */
	uint16_t value_len;
};

static inline const struct disk_page *raw_head(const void *page)
{
	return page;
}
unsigned raw_slots(const void *page);
uint64_t raw_right(const void *page);
void raw_low(const void *page, struct raw_key *key);
void raw_high(const void *page, struct raw_key *key); /* len 0: infinite */
/* The page was verified as a tree page, slot < raw_slots(). */
void raw_entry(const void *page, unsigned slot, struct raw_entry *entry);
uint64_t raw_child(const void *page, unsigned slot);

/*
 * Forward cursor by descent and right links, for looking at a volume that may
 * be in use; the walk of fsck does not use it.
 *
 *	rc = raw_cursor_open(&c, raw, index, &from);
 *	while (rc == 0 && (rc = raw_cursor_next(&c)) == 0)
 *		use(c.entry);
 *	raw_cursor_close(&c);   // always; rc is -BE_END at the end
 */
struct raw_cursor {
	const struct raw_volume *raw;
	uint8_t *page;
	uint64_t pageno;
	unsigned slot, index;
	uint64_t pages_left; /* bound: a cycle of right links ends as -BE_FORMAT */
	struct raw_entry entry;
};
int raw_cursor_open(struct raw_cursor *cursor, const struct raw_volume *raw, unsigned index,
		    const struct raw_key *from) must_check;
int raw_cursor_next(struct raw_cursor *cursor) must_check;
void raw_cursor_close(struct raw_cursor *cursor);

extern const char *const raw_index_names[INDEX_COUNT];
extern const uint8_t raw_key_bytes[INDEX_COUNT]; /* 0: not in use in this version */

#endif
