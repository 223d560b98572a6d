/*
 * Metadata pages as bytes: pure functions, no locks, no I/O, no allocation.
 *
 * page_redo() is the only way in which a page changes: the running system
 * builds a redo record, appends it to its mini-transaction and applies it with
 * page_redo(); recovery reads the record back and applies it with the same
 * function.  So what recovery rebuilds is what was there, byte for byte
 * (the CRC field apart, which page_seal() fills in before a write).
 *
 * Invariants of a tree page (verified by page_verify()):
 *	INV-PAGE-1  keys ascend strictly; each lies in [low, high)
 *	INV-PAGE-2  slots, records and garbage account for every byte of the heap;
 *	            records do not overlap
 *	INV-PAGE-3  an internal page's first key equals its low fence; its values
 *	            are 8 bytes
 *	INV-PAGE-4  prefix_len <= common prefix of low and high (0 when either is infinite)
 *	INV-PAGE-5  the rightmost page (right == 0) has no high key, and only it;
 *	            an INCOMPLETE page has a right link
 *
 * And of the functions:
 *	INV-PAGE-6  page_room() >= page_cost() with the whole key: REC_INSERT succeeds
 *	INV-PAGE-7  a page_redo() that fails has changed nothing
 *	INV-PAGE-8  page_redo() keeps INV-PAGE-1 to 5; between its REC_PAGE_INIT and
 *	            its first record an internal page is empty, which no page that
 *	            is written may be
 */
#ifndef BLINKFS_ENGINE_PAGE_H
#define BLINKFS_ENGINE_PAGE_H

#include "engine/format.h"

#include <stdbool.h>
#include <stddef.h>

/* A key by value. */
struct key {
	uint8_t len;
	uint8_t bytes[KEY_BYTES_MAX];
};
/* < 0, 0, > 0 in memcmp() order, a prefix before its extensions. */
int key_compare(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len);

/* ---------------------------------------------------------- any page */

/* Fills in the CRC. */
void page_seal(void *page, uint32_t page_size);

/*
 * Judges bytes from a disk: CRC (-BE_CRC), page number and tag (-BE_IDENTITY),
 * then everything that the type promises (-BE_FORMAT).  Never reads outside
 * the page, whatever the bytes.  *why (may be NULL) gets a constant text.
 */
int page_verify(const void *page, uint32_t page_size, uint64_t pageno, const uint8_t tag[8],
		const char **why) must_check;
/* The structural part alone, for asserting our own work. */
int page_verify_structure(const void *page, uint32_t page_size, const char **why) must_check;

/*
 * Applies one page record (type >= REC_PAGE_INIT); body is without the page
 * number.  0, or -BE_FORMAT when the record does not fit the page (then the
 * page is unchanged): a bug for the running system, corruption in recovery.
 * REC_PAGE_INIT sets everything but the LSN, from pageno and tag, whatever the
 * page was; any other record wants a verified page of that number.  The body
 * does not overlap the page.
 */
int page_redo(void *page, uint32_t page_size, uint64_t pageno, const uint8_t tag[8], uint8_t type,
	      const uint8_t *body, size_t len) must_check;

uint64_t page_lsn(const void *page);
void page_set_lsn(void *page, uint64_t lsn);

/* --------------------------------------------------------- tree pages */

struct page_entry {
	const uint8_t *suffix;   /* key without the page's prefix; points into the page */
	uint8_t suffix_len;
	const uint8_t *value;
	uint16_t value_len;
};

static inline const struct disk_tree_page *tree_page(const void *page)
{
	return page;
}

/* Is key in [low, high)? */
bool page_covers(const void *page, const uint8_t *key, size_t key_len);
/* key >= high: a search has to move right. */
bool page_is_left_of(const void *page, const uint8_t *key, size_t key_len);

/* First slot whose key >= `key` (slot_count when none); *exact: equal.  The page covers key. */
unsigned page_lower_bound(const void *page, const uint8_t *key, size_t key_len, bool *exact);
/* Internal page that covers key: slot of the last entry <= key. */
unsigned page_child_slot(const void *page, const uint8_t *key, size_t key_len);

void page_entry(const void *page, unsigned slot, struct page_entry *entry);
uint64_t page_child(const void *page, unsigned slot);
void page_key(const void *page, unsigned slot, struct key *key); /* whole key */
void page_low(const void *page, struct key *key);
void page_high(const void *page, struct key *key);

/* Bytes for records and slots: free space and garbage together. */
uint32_t page_room(const void *page, uint32_t page_size);
/* What a record with a whole key of key_len takes at most, slot included. */
uint32_t page_cost(size_t key_len, size_t value_len);
/* What deleting (or replacing) a slot gives back. */
uint32_t page_slot_bytes(const void *page, unsigned slot);
/* Sum of page_cost() with whole keys over all slots. */
uint32_t page_load_bytes(const void *page);
/* All that an empty page offers. */
uint32_t page_capacity(uint32_t page_size);

/* ------------------------------------------- building record bodies */

/*
 * Each writes a body (without page number) and returns its length.  The
 * buffers must have room for BODY_BYTES_MAX(page_size).
 */
#define BODY_BYTES_MAX(page_size) ((page_size) + 128u)
size_t redo_page_init(uint8_t *body, uint8_t type, uint8_t index, uint8_t level, uint8_t flags,
		      const struct key *low, const struct key *high, uint64_t right);
size_t redo_load(uint8_t *body, const void *from_page, unsigned first, unsigned count);
size_t redo_insert(uint8_t *body, unsigned slot, const uint8_t *key, size_t key_len,
		   const void *value, size_t value_len);
size_t redo_update(uint8_t *body, unsigned slot, const void *value, size_t value_len);
size_t redo_patch(uint8_t *body, unsigned slot, unsigned offset, const void *bytes, size_t len);
size_t redo_delete(uint8_t *body, unsigned slot);
size_t redo_split_left(uint8_t *body, unsigned keep, const struct key *high, uint64_t right);
size_t redo_flags(uint8_t *body, uint8_t flags);
size_t redo_fence(uint8_t *body, const struct key *high, uint64_t right);
size_t redo_bits(uint8_t *body, bool value, uint64_t first, uint64_t count);
/* How many more blocks a body of REC_BITS makes used; 0 when it is malformed. */
int64_t redo_bits_change(const uint8_t *body, size_t len);
size_t redo_counter(uint8_t *body, unsigned counter, uint64_t value);

/* ------------------------------------------------------- bitmap pages */

bool page_bit(const void *page, uint64_t bit);
/* Do all bits of [first, first + count) equal value? */
bool page_bits_are(const void *page, uint64_t first, uint64_t count, bool value);

#endif
