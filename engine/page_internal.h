/*
 * How the records of a tree page are found, and the steps that change one.
 * Only page.c, page_edit.c and page_redo.c include this; the verifier decodes
 * for itself.
 *
 * All of it trusts the page: it was verified when it came from a disk, and
 * changed by page_redo() alone since then.
 */
#ifndef BLINKFS_ENGINE_PAGE_INTERNAL_H
#define BLINKFS_ENGINE_PAGE_INTERNAL_H

#include "engine/page.h"

#define SLOT_BYTES ((uint32_t)sizeof(le16))
#define RECORD_HEAD_BYTES ((uint32_t)sizeof(struct disk_record))
#define TREE_HEAD_BYTES ((uint32_t)sizeof(struct disk_tree_page))
#define CHILD_BYTES ((uint32_t)sizeof(le64))

static inline unsigned page_slot_count(const struct disk_tree_page *page)
{
	return le16_get(page->slot_count);
}

static inline const le16 *page_slot_array(const struct disk_tree_page *page)
{
	return (const le16 *)(page + 1);
}

static inline const struct disk_record *page_record(const struct disk_tree_page *page,
						    unsigned slot)
{
	return (const void *)((const uint8_t *)page + le16_get(page_slot_array(page)[slot]));
}

static inline const uint8_t *record_suffix(const struct disk_record *record)
{
	return (const uint8_t *)(record + 1);
}

static inline const uint8_t *record_value(const struct disk_record *record)
{
	return record_suffix(record) + record->key_len;
}

/* Without the slot. */
static inline uint32_t record_bytes(const struct disk_record *record)
{
	return RECORD_HEAD_BYTES + record->key_len + le16_get(record->value_len);
}

/* Free bytes that lie in one piece, between slots and records. */
static inline uint32_t page_free_bytes(const struct disk_tree_page *page)
{
	return le32_get(page->heap_start) - TREE_HEAD_BYTES - page_slot_count(page) * SLOT_BYTES;
}

/* memcpy() for a few bytes: keys. */
static inline void copy_bytes(uint8_t *to, const uint8_t *from, size_t len)
{
	if (len > 16) {
		memcpy(to, from, len);
	} else if (len >= 8) { /* two pieces that may overlap, here and below */
		memcpy(to, from, 8);
		memcpy(to + len - 8, from + len - 8, 8);
	} else if (len >= 4) {
		memcpy(to, from, 4);
		memcpy(to + len - 4, from + len - 4, 4);
	} else {
		for (size_t i = 0; i < len; i++)
			to[i] = from[i];
	}
}

/* memcmp() order of the first `len` bytes. */
static inline int compare_bytes(const uint8_t *a, const uint8_t *b, size_t len)
{
	/* 8 bytes at a time; the last time overlaps bytes that were equal. */
	for (size_t at = 0; at < len && len >= 8; at += 8) {
		size_t from = at + 8 <= len ? at : len - 8;
		uint64_t a_word = be64_get(a + from), b_word = be64_get(b + from);

		if (a_word != b_word)
			return a_word < b_word ? -1 : 1;
	}
	return len == 0 || len >= 8 ? 0 : memcmp(a, b, len);
}

static inline int compare_keys(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
	int order = compare_bytes(a, b, a_len < b_len ? a_len : b_len);

	return order ? order : (a_len > b_len) - (a_len < b_len);
}

/* ------------------------------------------------ page_edit.c: the steps */

/* INV-PAGE-4: the longest prefix that all keys between the page's fences share. */
uint8_t edit_best_prefix(const struct disk_tree_page *tree);
/* Compacts, with a prefix that may be longer or shorter than the present one. */
void edit_rebuild(struct disk_tree_page *tree, uint32_t page_size, uint8_t prefix_len);
/* Leaves the prefix alone, which is too long then if the fence moved right. */
void edit_set_fence(struct disk_tree_page *tree, const struct key *high, uint64_t right);

/* Is there room for `count` records of `cost` bytes by page_cost(), compacted if need be? */
bool edit_fits(const struct disk_tree_page *tree, uint32_t page_size, unsigned count, size_t cost);
/* Compacts unless they fit as the page is. */
void edit_make_room(struct disk_tree_page *tree, uint32_t page_size, unsigned count, size_t cost);
/* Would the record of `slot` fit with a value of this length? */
bool edit_value_fits(const struct disk_tree_page *tree, uint32_t page_size, unsigned slot,
		     size_t value_len);

/* value must not be NULL, even when it is empty. */
void edit_insert(struct disk_tree_page *tree, unsigned slot, const struct key *key,
		 const uint8_t *value, size_t value_len);
void edit_remove(struct disk_tree_page *tree, uint32_t page_size, unsigned slot);
/* Drops all slots from `keep` on. */
void edit_truncate(struct disk_tree_page *tree, uint32_t page_size, unsigned keep);
void edit_patch(struct disk_tree_page *tree, unsigned slot, size_t offset, const uint8_t *bytes,
		size_t len);
void edit_set_value(struct disk_tree_page *tree, uint32_t page_size, unsigned slot,
		    const uint8_t *value, size_t value_len);

#endif
