/*
 * Is this page what it claims to be?  Judges bytes of any origin, reads nothing
 * outside the page, and knows nothing of the volume's geometry: whether a page
 * number exists is asked by whoever follows it.
 *
 * Shares no code with page_redo.c: each decodes the format by itself, so that
 * a mistake in one is seen by the other.  Invariants: see page.h.
 *
 * Each *_problem() function returns NULL or a constant text.
 */
#include "engine/base/crc32c.h"
#include "engine/base/error.h"
#include "engine/page.h"

#define HEAD_BYTES ((uint32_t)sizeof(struct disk_tree_page))

/* ------------------------------------------------------- heap accounting */

/* One bit for each byte of the page that a record uses. */
struct byte_map {
	uint64_t word[PAGE_SIZE_MAX / 64];
};

/* Marks bytes [from, from + len), len > 0; false when one was marked already. */
static bool map_take(struct byte_map *map, uint32_t from, uint32_t len)
{
	while (len > 0) {
		uint32_t shift = from % 64;
		uint32_t take = len < 64 - shift ? len : 64 - shift;
		uint64_t mask = (take == 64 ? UINT64_MAX : (1ull << take) - 1) << shift;
		uint64_t *word = &map->word[from / 64];

		if (*word & mask)
			return false;
		*word |= mask;
		from += take;
		len -= take;
	}
	return true;
}

/* ------------------------------------------------------------- tree pages */

/* A page under verification; its numbers are within bounds once head_problem() has passed. */
struct subject {
	const uint8_t *bytes;
	const struct disk_tree_page *tree;
	uint32_t size;
	uint32_t heap_start, garbage;
	uint32_t slots;
};

static const char *fence_problem(const struct disk_tree_page *tree)
{
	bool rightmost = le64_get(tree->right) == 0;

	if (tree->low_len > KEY_BYTES_MAX || tree->high_len > KEY_BYTES_MAX)
		return "fence too long";
	if (rightmost != (tree->high_len == 0))
		return "high fence without right link, or the reverse"; /* INV-PAGE-5 */
	if (rightmost && (tree->head.flags & PAGE_INCOMPLETE))
		return "incomplete split without right link"; /* INV-PAGE-5 */
	if (!rightmost && le64_get(tree->right) == le64_get(tree->head.pageno))
		return "right link to itself";
	if (!rightmost && key_compare(tree->low, tree->low_len, tree->high, tree->high_len) >= 0)
		return "fences out of order";
	if (tree->prefix_len > tree->low_len || tree->prefix_len > tree->high_len ||
	    memcmp(tree->low, tree->high, tree->prefix_len) != 0)
		return "prefix longer than the fences share"; /* INV-PAGE-4 */
	return NULL;
}

static const char *head_problem(const struct subject *s)
{
	const struct disk_page *head = &s->tree->head;

	if (head->index >= INDEX_COUNT)
		return "unknown index";
	if (head->level >= TREE_LEVELS_MAX)
		return "level too high";
	if (head->flags & ~(PAGE_INCOMPLETE | PAGE_DEAD))
		return "unknown flags";
	if (s->heap_start > s->size || s->heap_start < HEAD_BYTES + s->slots * sizeof(le16))
		return "heap outside the page or over the slots";
	if (s->garbage > s->size - s->heap_start)
		return "more garbage than heap";
	if (head->level > 0 && s->slots == 0 && !(head->flags & PAGE_DEAD))
		return "internal page without children"; /* INV-PAGE-3 */
	return fence_problem(s->tree);
}

/* The record in a slot, as offsets that lie within the page. */
struct item {
	const uint8_t *suffix;
	uint32_t offset, suffix_len, value_len, bytes;
};

static const char *item_problem(const struct subject *s, unsigned slot, struct item *item)
{
	struct disk_record record;
	le16 offset;

	memcpy(&offset, s->bytes + HEAD_BYTES + slot * sizeof(offset), sizeof(offset));
	item->offset = le16_get(offset);
	if (item->offset < s->heap_start || item->offset > s->size - sizeof(record))
		return "slot outside the heap";
	memcpy(&record, s->bytes + item->offset, sizeof(record));
	item->suffix = s->bytes + item->offset + sizeof(record);
	item->suffix_len = record.key_len;
	item->value_len = le16_get(record.value_len);
	item->bytes = (uint32_t)sizeof(record) + item->suffix_len + item->value_len;
	if (item->bytes > s->size - item->offset)
		return "record past the end of the page";
	if (s->tree->prefix_len + item->suffix_len > KEY_BYTES_MAX)
		return "key too long";
	if (s->tree->prefix_len + item->suffix_len + item->value_len > RECORD_BYTES_MAX(s->size))
		return "record too long";
	if (s->tree->head.level > 0 && item->value_len != sizeof(le64))
		return "child pointer of a wrong size"; /* INV-PAGE-3 */
	return NULL;
}

/* Key of `item` against a fence; both begin with the page's prefix. */
static int compare_fence(const struct subject *s, const struct item *item, const uint8_t *fence,
			 uint32_t fence_len)
{
	uint32_t prefix_len = s->tree->prefix_len;

	return key_compare(item->suffix, item->suffix_len, fence + prefix_len,
			   fence_len - prefix_len);
}

/* INV-PAGE-1 and INV-PAGE-3: the place of a key among its neighbours and fences. */
static const char *order_problem(const struct subject *s, unsigned slot, const struct item *item,
				 const struct item *before)
{
	const struct disk_tree_page *tree = s->tree;

	if (slot == 0) {
		int order = compare_fence(s, item, tree->low, tree->low_len);

		if (order < 0)
			return "key below the low fence";
		if (order > 0 && tree->head.level > 0)
			return "first key of an internal page is not its low fence";
	} else if (key_compare(before->suffix, before->suffix_len, item->suffix,
			       item->suffix_len) >= 0) {
		return "keys out of order";
	}
	if (slot == s->slots - 1 && tree->high_len > 0 &&
	    compare_fence(s, item, tree->high, tree->high_len) >= 0)
		return "key not below the high fence";
	return NULL;
}

static const char *tree_problem(const void *page, uint32_t page_size)
{
	struct subject s = {.bytes = page, .tree = page, .size = page_size};
	struct item item = {0}, before;
	struct byte_map map;
	uint32_t used = 0;
	const char *problem;

	s.heap_start = le32_get(s.tree->heap_start);
	s.garbage = le32_get(s.tree->garbage);
	s.slots = le16_get(s.tree->slot_count);
	problem = head_problem(&s);
	memset(&map, 0, page_size / 8);
	for (unsigned slot = 0; slot < s.slots && !problem; slot++) {
		before = item;
		problem = item_problem(&s, slot, &item);
		if (!problem)
			problem = order_problem(&s, slot, &item, &before);
		if (!problem && !map_take(&map, item.offset, item.bytes))
			problem = "records overlap"; /* INV-PAGE-2 */
		used += item.bytes;
	}
	if (!problem && used + s.garbage != page_size - s.heap_start)
		problem = "heap bytes unaccounted for"; /* INV-PAGE-2 */
	return problem;
}

/* --------------------------------------------------------------- all pages */

static const char *page_problem(const void *page, uint32_t page_size)
{
	const struct disk_page *head = page;

	if (head->type == PAGE_TREE)
		return tree_problem(page, page_size);
	if (head->type != PAGE_BITMAP && head->type != PAGE_SYSTEM)
		return "unknown page type";
	if (head->index != 0 || head->level != 0 || head->flags != 0)
		return "index, level or flags where there are none";
	return NULL;
}

static int verdict(int code, const char *text, const char **why)
{
	if (why)
		*why = text;
	return code;
}

int page_verify_structure(const void *page, uint32_t page_size, const char **why)
{
	const char *problem;

	check(page_size >= PAGE_SIZE_MIN && page_size <= PAGE_SIZE_MAX);
	problem = page_problem(page, page_size);
	return problem ? verdict(-BE_FORMAT, problem, why) : 0;
}

int page_verify(const void *page, uint32_t page_size, uint64_t pageno, const uint8_t tag[8],
		const char **why)
{
	const struct disk_page *head = page;
	size_t skip = sizeof(head->crc);

	check(page_size >= PAGE_SIZE_MIN && page_size <= PAGE_SIZE_MAX);
	if (crc32c(0, (const uint8_t *)page + skip, page_size - skip) != le32_get(head->crc))
		return verdict(-BE_CRC, "page checksum", why);
	if (le64_get(head->pageno) != pageno)
		return verdict(-BE_IDENTITY, "page has another number", why);
	if (memcmp(head->tag, tag, sizeof(head->tag)) != 0)
		return verdict(-BE_IDENTITY, "page of another volume", why);
	return page_verify_structure(page, page_size, why);
}
