/*
 * Moving bytes in a tree page: the steps that page_redo() is made of.
 *
 * Nothing here judges; whoever calls has made sure that the page covers the
 * key, that the order stays, and that there is room (edit_fits()).
 *
 * The prefix is chosen when a page is empty and when it is compacted, as long
 * as both fences allow, and shortened when a fence demands it.  Compaction
 * lays the records down in key order from the page's end and zeroes the rest,
 * so its result depends on the page's bytes alone.
 */
#include "engine/page_internal.h"

static le16 *slots(struct disk_tree_page *tree)
{
	return (le16 *)(tree + 1);
}

static uint8_t *at(struct disk_tree_page *tree, uint32_t offset)
{
	return (uint8_t *)tree + offset;
}

static void add_garbage(struct disk_tree_page *tree, uint32_t bytes)
{
	tree->garbage = le32_make(le32_get(tree->garbage) + bytes);
}

/* ----------------------------------------------------- prefix, compaction */

uint8_t edit_best_prefix(const struct disk_tree_page *tree)
{
	uint8_t shorter = tree->low_len < tree->high_len ? tree->low_len : tree->high_len;
	uint8_t len = 0;

	while (len < shorter && tree->low[len] == tree->high[len])
		len++;
	return len;
}

/* Not inlined, so that the scratch page burdens the stack only here. */
__attribute__((noinline)) void edit_rebuild(struct disk_tree_page *tree, uint32_t page_size,
					    uint8_t prefix_len)
{
	uint8_t old[PAGE_SIZE_MAX];
	unsigned count = page_slot_count(tree);
	uint32_t old_start = le32_get(tree->heap_start);
	uint32_t start = page_size;
	uint32_t slots_end = TREE_HEAD_BYTES + count * SLOT_BYTES;
	size_t longer = tree->prefix_len > prefix_len ? tree->prefix_len - prefix_len : 0;
	size_t cut = prefix_len > tree->prefix_len ? prefix_len - tree->prefix_len : 0;

	memcpy(old + old_start, at(tree, old_start), page_size - old_start);
	for (unsigned slot = 0; slot < count; slot++) {
		const struct disk_record *from =
			(const void *)(old + le16_get(slots(tree)[slot]));
		size_t kept = from->key_len - cut + le16_get(from->value_len);
		struct disk_record *to;

		start -= RECORD_HEAD_BYTES + (uint32_t)(longer + kept);
		check(start >= slots_end && start < page_size);
		to = (void *)at(tree, start);
		to->value_len = from->value_len;
		to->key_len = (uint8_t)(from->key_len + longer - cut);
		to->reserved = 0;
		memcpy(to + 1, tree->low + prefix_len, longer);
		memcpy((uint8_t *)(to + 1) + longer, record_suffix(from) + cut, kept);
		slots(tree)[slot] = le16_make((uint16_t)start);
	}
	memset(at(tree, slots_end), 0, start - slots_end);
	tree->heap_start = le32_make(start);
	tree->garbage = le32_make(0);
	tree->prefix_len = prefix_len;
}

void edit_set_fence(struct disk_tree_page *tree, const struct key *high, uint64_t right)
{
	memset(tree->high, 0, KEY_BYTES_MAX);
	memcpy(tree->high, high->bytes, high->len);
	tree->high_len = high->len;
	tree->right = le64_make(right);
}

/* ------------------------------------------------------------------- room */

bool edit_fits(const struct disk_tree_page *tree, uint32_t page_size, unsigned count, size_t cost)
{
	uint8_t best = edit_best_prefix(tree);
	size_t saved = (size_t)(best - tree->prefix_len) * page_slot_count(tree);

	return cost - (size_t)count * best <= page_room(tree, page_size) + saved;
}

void edit_make_room(struct disk_tree_page *tree, uint32_t page_size, unsigned count, size_t cost)
{
	if (page_free_bytes(tree) < cost - (size_t)count * tree->prefix_len)
		edit_rebuild(tree, page_size, edit_best_prefix(tree));
}

bool edit_value_fits(const struct disk_tree_page *tree, uint32_t page_size, unsigned slot,
		     size_t value_len)
{
	const struct disk_record *record = page_record(tree, slot);
	size_t saved = (size_t)(edit_best_prefix(tree) - tree->prefix_len) * page_slot_count(tree);
	size_t needed = RECORD_HEAD_BYTES + record->key_len + value_len;

	return needed <= page_room(tree, page_size) + record_bytes(record) + saved;
}

/* ---------------------------------------------------------------- records */

void edit_insert(struct disk_tree_page *tree, unsigned slot, const struct key *key,
		 const uint8_t *value, size_t value_len)
{
	unsigned count = page_slot_count(tree);
	size_t suffix_len = key->len - tree->prefix_len;
	uint32_t bytes = RECORD_HEAD_BYTES + (uint32_t)(suffix_len + value_len);
	uint32_t start;
	struct disk_record *record;

	check(page_free_bytes(tree) >= bytes + SLOT_BYTES);
	start = le32_get(tree->heap_start) - bytes;
	record = (void *)at(tree, start);
	record->value_len = le16_make((uint16_t)value_len);
	record->key_len = (uint8_t)suffix_len;
	record->reserved = 0;
	copy_bytes((uint8_t *)(record + 1), key->bytes + tree->prefix_len, suffix_len);
	memcpy((uint8_t *)(record + 1) + suffix_len, value, value_len);
	memmove(slots(tree) + slot + 1, slots(tree) + slot, (count - slot) * sizeof(le16));
	slots(tree)[slot] = le16_make((uint16_t)start);
	tree->heap_start = le32_make(start);
	tree->slot_count = le16_make((uint16_t)(count + 1));
}

void edit_remove(struct disk_tree_page *tree, uint32_t page_size, unsigned slot)
{
	unsigned count = page_slot_count(tree) - 1;

	add_garbage(tree, record_bytes(page_record(tree, slot)));
	memmove(slots(tree) + slot, slots(tree) + slot + 1, (count - slot) * sizeof(le16));
	tree->slot_count = le16_make((uint16_t)count);
	if (count == 0)
		edit_rebuild(tree, page_size, edit_best_prefix(tree));
}

void edit_truncate(struct disk_tree_page *tree, uint32_t page_size, unsigned keep)
{
	if (keep == page_slot_count(tree))
		return;
	tree->slot_count = le16_make((uint16_t)keep);
	edit_rebuild(tree, page_size, edit_best_prefix(tree));
}

void edit_patch(struct disk_tree_page *tree, unsigned slot, size_t offset, const uint8_t *bytes,
		size_t len)
{
	uint8_t *value = at(tree, le16_get(slots(tree)[slot])) + RECORD_HEAD_BYTES +
			 page_record(tree, slot)->key_len;

	memcpy(value + offset, bytes, len);
}

void edit_set_value(struct disk_tree_page *tree, uint32_t page_size, unsigned slot,
		    const uint8_t *value, size_t value_len)
{
	struct disk_record *record = (void *)at(tree, le16_get(slots(tree)[slot]));
	uint16_t old_len = le16_get(record->value_len);
	struct key key;

	if (value_len <= old_len) {
		edit_patch(tree, slot, 0, value, value_len);
		record->value_len = le16_make((uint16_t)value_len);
		add_garbage(tree, old_len - (uint32_t)value_len);
		return;
	}
	/* Removed before the room is made, so that a compaction drops the old one. */
	page_key(tree, slot, &key);
	edit_remove(tree, page_size, slot);
	edit_make_room(tree, page_size, 1, page_cost(key.len, value_len));
	edit_insert(tree, slot, &key, value, value_len);
}
