/*
 * Reading pages: search, access, sizes.  See page.h for the invariants.
 *
 * Room (INV-PAGE-6).  page_room() counts all bytes that no record and no slot
 * uses, wherever they lie; page_cost() is what a record would take if the page
 * had no prefix at all.  When room >= cost, an insert succeeds:
 *
 *	- either the bytes lie in one piece, and the record, whose stored key is
 *	  at most the whole key, fits there;
 *	- or the page is compacted first.  Compaction turns garbage into free
 *	  space and sets the prefix to the longest that both fences allow.  By
 *	  INV-PAGE-4 the present prefix is no longer than that, so each record
 *	  keeps its size or shrinks, and the room can only grow.
 *
 * A fence that moves left (REC_SPLIT_LEFT) keeps the prefix valid: everything
 * in [low, high) shares it, the new fence too.  Only a fence that moves right
 * (REC_FENCE) can shorten it, which makes every record longer; whoever asks
 * for that adds up what all take without a prefix (page_load_bytes()), less the
 * prefix that the new fences allow (tree_merge.c).
 */
#include "engine/page.h"

#include "engine/base/crc32c.h"
#include "engine/page_internal.h"

int key_compare(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
	return compare_keys(a, a_len, b, b_len);
}

/* ---------------------------------------------------------- any page */

void page_seal(void *page, uint32_t page_size)
{
	struct disk_page *head = page;
	size_t skip = sizeof(head->crc);

	head->crc = le32_make(crc32c(0, (const uint8_t *)page + skip, page_size - skip));
}

uint64_t page_lsn(const void *page)
{
	const struct disk_page *head = page;

	return le64_get(head->lsn);
}

void page_set_lsn(void *page, uint64_t lsn)
{
	struct disk_page *head = page;

	head->lsn = le64_make(lsn);
}

/* ------------------------------------------------------------- search */

bool page_is_left_of(const void *page, const uint8_t *key, size_t key_len)
{
	const struct disk_tree_page *tree = tree_page(page);

	return tree->high_len > 0 && compare_keys(key, key_len, tree->high, tree->high_len) >= 0;
}

bool page_covers(const void *page, const uint8_t *key, size_t key_len)
{
	const struct disk_tree_page *tree = tree_page(page);

	return compare_keys(key, key_len, tree->low, tree->low_len) >= 0 &&
	       !page_is_left_of(page, key, key_len);
}

unsigned page_lower_bound(const void *page, const uint8_t *key, size_t key_len, bool *exact)
{
	const struct disk_tree_page *tree = tree_page(page);
	unsigned first = 0, end = page_slot_count(tree);
	size_t prefix_len = tree->prefix_len;

	check(key_len >= prefix_len && memcmp(key, tree->low, prefix_len) == 0);
	*exact = false;
	while (first < end) {
		unsigned middle = first + (end - first) / 2;
		const struct disk_record *record = page_record(tree, middle);
		int order = compare_keys(record_suffix(record), record->key_len, key + prefix_len,
					 key_len - prefix_len);

		if (order == 0) {
			*exact = true;
			return middle;
		}
		if (order < 0)
			first = middle + 1;
		else
			end = middle;
	}
	return first;
}

unsigned page_child_slot(const void *page, const uint8_t *key, size_t key_len)
{
	bool exact;
	unsigned slot = page_lower_bound(page, key, key_len, &exact);

	if (exact)
		return slot;
	check(slot > 0); /* INV-PAGE-3: the first key is the low fence */
	return slot - 1;
}

/* ------------------------------------------------------------- access */

void page_entry(const void *page, unsigned slot, struct page_entry *entry)
{
	const struct disk_tree_page *tree = tree_page(page);
	const struct disk_record *record;

	check(slot < page_slot_count(tree));
	record = page_record(tree, slot);
	entry->suffix = record_suffix(record);
	entry->suffix_len = record->key_len;
	entry->value = record_value(record);
	entry->value_len = le16_get(record->value_len);
}

uint64_t page_child(const void *page, unsigned slot)
{
	struct page_entry entry;
	le64 child;

	page_entry(page, slot, &entry);
	check(entry.value_len == sizeof(child));
	memcpy(&child, entry.value, sizeof(child));
	return le64_get(child);
}

void page_key(const void *page, unsigned slot, struct key *key)
{
	const struct disk_tree_page *tree = tree_page(page);
	struct page_entry entry;

	page_entry(page, slot, &entry);
	check(tree->prefix_len + entry.suffix_len <= KEY_BYTES_MAX);
	key->len = tree->prefix_len + entry.suffix_len;
	copy_bytes(key->bytes, tree->low, tree->prefix_len);
	copy_bytes(key->bytes + tree->prefix_len, entry.suffix, entry.suffix_len);
}

void page_low(const void *page, struct key *key)
{
	key->len = tree_page(page)->low_len;
	memcpy(key->bytes, tree_page(page)->low, KEY_BYTES_MAX);
}

void page_high(const void *page, struct key *key)
{
	key->len = tree_page(page)->high_len;
	memcpy(key->bytes, tree_page(page)->high, KEY_BYTES_MAX);
}

/* -------------------------------------------------------------- sizes */

uint32_t page_room(const void *page, uint32_t page_size)
{
	const struct disk_tree_page *tree = tree_page(page);
	uint32_t room = page_free_bytes(tree) + le32_get(tree->garbage);

	check(room <= page_capacity(page_size));
	return room;
}

uint32_t page_cost(size_t key_len, size_t value_len)
{
	return (uint32_t)(RECORD_HEAD_BYTES + SLOT_BYTES + key_len + value_len);
}

uint32_t page_slot_bytes(const void *page, unsigned slot)
{
	check(slot < page_slot_count(tree_page(page)));
	return record_bytes(page_record(tree_page(page), slot)) + SLOT_BYTES;
}

uint32_t page_load_bytes(const void *page)
{
	const struct disk_tree_page *tree = tree_page(page);
	unsigned count = page_slot_count(tree);
	uint32_t bytes = count * tree->prefix_len;

	for (unsigned slot = 0; slot < count; slot++)
		bytes += page_slot_bytes(page, slot);
	return bytes;
}

uint32_t page_capacity(uint32_t page_size)
{
	return page_size - TREE_HEAD_BYTES;
}

/* ------------------------------------------------------- bitmap pages */

static const uint8_t *bitmap_bits(const void *page)
{
	return (const uint8_t *)page + sizeof(struct disk_bitmap_page);
}

bool page_bit(const void *page, uint64_t bit)
{
	return bitmap_bits(page)[bit / 8] >> (bit % 8) & 1;
}

bool page_bits_are(const void *page, uint64_t first, uint64_t count, bool value)
{
	const uint8_t *bits = bitmap_bits(page);
	uint8_t full = value ? 0xff : 0;

	while (count > 0) {
		if (first % 8 == 0 && count >= 8) {
			if (bits[first / 8] != full)
				return false;
			first += 8;
			count -= 8;
		} else {
			if (page_bit(page, first) != value)
				return false;
			first++;
			count--;
		}
	}
	return true;
}
