/*
 * The only way a page changes: one redo record applied to it.
 *
 * What a record does depends on nothing but the bytes of the page and of the
 * record, so the page that recovery rebuilds equals the one that was there.
 *
 *	INV-PAGE-6  page_room() >= page_cost() of whole keys: an insert succeeds
 *	            (argued in page.c)
 *	INV-PAGE-7  a record that fails leaves the page as it was: each function
 *	            first reads and judges the whole body, then changes
 *	INV-PAGE-8  a page that obeys INV-PAGE-1 to 5 obeys them afterwards, except
 *	            that an internal page is empty from its initialisation to its
 *	            first record
 *
 * The body is not trusted; the page is, unless REC_PAGE_INIT replaces it: it was
 * verified when it was read and changed by nothing else since.
 */
#include "engine/base/error.h"
#include "engine/page_internal.h"
#include "log/log.h"

/* The page that a record is applied to. */
struct target {
	union {
		uint8_t *bytes;
		struct disk_page *head;
		struct disk_tree_page *tree;
		struct disk_bitmap_page *bitmap;
		struct disk_system_page *system;
	};
	uint32_t size;
	uint64_t pageno;
	const uint8_t *tag;
};

/* ------------------------------------------------------ reading a body */

/* After a read past the end all that follows reads as zeros, and `bad` stays set. */
struct reader {
	const uint8_t *next;
	size_t left;
	bool bad;
};

static const uint8_t *take_bytes(struct reader *r, size_t len)
{
	const uint8_t *bytes = r->next;

	if (len > r->left) {
		r->bad = true;
		return NULL;
	}
	r->next += len;
	r->left -= len;
	return bytes;
}

static uint8_t take_u8(struct reader *r)
{
	const uint8_t *byte = take_bytes(r, 1);

	return byte ? *byte : 0;
}

static uint64_t take_varint(struct reader *r)
{
	uint64_t value = 0;
	size_t len = r->left > 0 ? varint_get(r->next, r->left, &value) : 0;

	if (len == 0)
		r->bad = true;
	else
		take_bytes(r, len);
	return len ? value : 0;
}

/* u8 length, bytes: appended to *key. */
static void take_key_part(struct reader *r, struct key *key)
{
	uint8_t len = take_u8(r);
	const uint8_t *bytes = take_bytes(r, len);

	if (!bytes || key->len + len > KEY_BYTES_MAX) {
		r->bad = true;
		return;
	}
	copy_bytes(key->bytes + key->len, bytes, len);
	key->len += len;
}

static bool ended(const struct reader *r)
{
	return !r->bad && r->left == 0;
}

/* --------------------------------------------------- judging tree pages */

static bool covers(const struct disk_tree_page *tree, const struct key *key)
{
	return page_covers(tree, key->bytes, key->len);
}

/* Order of the key in `slot` against a key that the page covers. */
static int compare_slot(const struct disk_tree_page *tree, unsigned slot, const struct key *key)
{
	const struct disk_record *record = page_record(tree, slot);

	return compare_keys(record_suffix(record), record->key_len, key->bytes + tree->prefix_len,
			    key->len - tree->prefix_len);
}

/* Sizes that any record must have, and INV-PAGE-3. */
static bool record_allowed(const struct target *t, size_t key_len, size_t value_len)
{
	if (key_len + value_len > RECORD_BYTES_MAX(t->size))
		return false;
	return t->head->level == 0 || value_len == CHILD_BYTES;
}

/* INV-PAGE-3: may this key be the first of the page? */
static bool first_allowed(const struct target *t, const struct key *key)
{
	return t->head->level == 0 ||
	       compare_keys(key->bytes, key->len, t->tree->low, t->tree->low_len) == 0;
}

/* ------------------------------------------------------------ any page */

struct init {
	uint8_t type, index, level, flags;
	struct key low, high;
	uint64_t right;
};

/* INV-PAGE-5, for fences, right link and flags that are to be. */
static bool links_allowed(const struct target *t, uint8_t flags, const struct key *high,
			  uint64_t right)
{
	if ((flags & ~(PAGE_INCOMPLETE | PAGE_DEAD)) != 0)
		return false;
	if ((high->len == 0) != (right == 0))
		return false;
	if (right == 0)
		return (flags & PAGE_INCOMPLETE) == 0;
	return right != t->pageno;
}

static bool init_allowed(const struct target *t, const struct init *init)
{
	if (init->type == PAGE_TREE) {
		if (init->index >= INDEX_COUNT || init->level >= TREE_LEVELS_MAX)
			return false;
		if (!links_allowed(t, init->flags, &init->high, init->right))
			return false;
		return init->high.len == 0 ||
		       compare_keys(init->low.bytes, init->low.len, init->high.bytes,
				    init->high.len) < 0;
	}
	if (init->index || init->level || init->flags || init->low.len || init->high.len)
		return false;
	if (init->type == PAGE_BITMAP)
		return init->right <= UINT32_MAX;
	return init->type == PAGE_SYSTEM && init->right == 0;
}

static void init_head(struct target *t, const struct init *init)
{
	le64 lsn = t->head->lsn;

	memset(t->bytes, 0, t->size);
	t->head->lsn = lsn;
	t->head->type = init->type;
	t->head->index = init->index;
	t->head->level = init->level;
	t->head->flags = init->flags;
	t->head->pageno = le64_make(t->pageno);
	memcpy(t->head->tag, t->tag, sizeof(t->head->tag));
}

static int apply_page_init(struct target *t, struct reader *r)
{
	struct init init = {0};

	init.type = take_u8(r);
	init.index = take_u8(r);
	init.level = take_u8(r);
	init.flags = take_u8(r);
	take_key_part(r, &init.low);
	take_key_part(r, &init.high);
	init.right = take_varint(r);
	if (!ended(r) || !init_allowed(t, &init))
		return -BE_FORMAT;

	init_head(t, &init);
	if (init.type == PAGE_TREE) {
		t->tree->right = le64_make(init.right);
		t->tree->low_len = init.low.len;
		t->tree->high_len = init.high.len;
		memcpy(t->tree->low, init.low.bytes, KEY_BYTES_MAX);
		memcpy(t->tree->high, init.high.bytes, KEY_BYTES_MAX);
		t->tree->heap_start = le32_make(t->size);
		t->tree->prefix_len = edit_best_prefix(t->tree);
	} else if (init.type == PAGE_BITMAP) {
		t->bitmap->group = le32_make((uint32_t)init.right);
	}
	return 0;
}

/* ---------------------------------------------------------- tree pages */

struct load_record {
	struct key key;
	const uint8_t *value;
	size_t value_len;
};

/* The key begins with the shared part already: of a load, or of the record before. */
static void take_load_record(struct reader *r, const struct key *shared, struct load_record *record)
{
	record->key.len = shared->len;
	take_key_part(r, &record->key);
	record->value_len = take_varint(r);
	record->value = take_bytes(r, record->value_len);
}

/*
 * Judges all records of a load and counts them.  Their keys ascend, so that the page
 * covers all of them when it covers the first and the last.
 */
static bool load_allowed(const struct target *t, struct reader r, const struct key *shared,
			 unsigned *count, size_t *cost)
{
	struct load_record record[2] = {{.key = *shared}, {.key = *shared}};
	unsigned present = page_slot_count(t->tree);
	const struct key *key = NULL, *last = NULL;

	*count = 0;
	*cost = 0;
	for (; r.left > 0; last = key) {
		struct load_record *next = &record[*count % 2];

		take_load_record(&r, shared, next);
		key = &next->key;
		if (r.bad || !record_allowed(t, key->len, next->value_len))
			return false;
		if (last) {
			if (compare_keys(last->bytes + shared->len, last->len - shared->len,
					 key->bytes + shared->len, key->len - shared->len) >= 0)
				return false;
		} else if (!covers(t->tree, key)) {
			return false;
		} else if (present > 0) {
			if (compare_slot(t->tree, present - 1, key) >= 0)
				return false;
		} else if (!first_allowed(t, key)) {
			return false;
		}
		*cost += page_cost(key->len, next->value_len);
		*count += 1;
	}
	return !r.bad && (!last || covers(t->tree, last));
}

static int apply_load(struct target *t, struct reader *r)
{
	struct load_record record = {0};
	struct key shared = {0};
	unsigned count;
	size_t cost;

	take_key_part(r, &shared);
	record.key = shared;
	if (r->bad || !load_allowed(t, *r, &shared, &count, &cost) ||
	    !edit_fits(t->tree, t->size, count, cost))
		return -BE_FORMAT;

	if (page_slot_count(t->tree) == 0 && t->tree->prefix_len != edit_best_prefix(t->tree))
		edit_rebuild(t->tree, t->size, edit_best_prefix(t->tree));
	edit_make_room(t->tree, t->size, count, cost);
	while (r->left > 0) {
		take_load_record(r, &shared, &record);
		edit_insert(t->tree, page_slot_count(t->tree), &record.key, record.value,
			    record.value_len);
	}
	return 0;
}

/* Would `key` in front of `slot` keep the order? */
static bool insert_allowed(const struct target *t, uint64_t slot, const struct key *key)
{
	unsigned count = page_slot_count(t->tree);

	if (slot > count || !covers(t->tree, key))
		return false;
	if (slot == 0 && !first_allowed(t, key))
		return false;
	if (slot > 0 && compare_slot(t->tree, (unsigned)slot - 1, key) >= 0)
		return false;
	return slot == count || compare_slot(t->tree, (unsigned)slot, key) > 0;
}

static int apply_insert(struct target *t, struct reader *r)
{
	struct key key = {0};
	uint64_t slot = take_varint(r);
	size_t value_len, cost;

	take_key_part(r, &key);
	value_len = r->left;
	if (r->bad || !record_allowed(t, key.len, value_len) || !insert_allowed(t, slot, &key))
		return -BE_FORMAT;
	cost = page_cost(key.len, value_len);
	if (!edit_fits(t->tree, t->size, 1, cost))
		return -BE_FORMAT;

	edit_make_room(t->tree, t->size, 1, cost);
	edit_insert(t->tree, (unsigned)slot, &key, r->next, value_len);
	return 0;
}

static int apply_update(struct target *t, struct reader *r)
{
	uint64_t slot = take_varint(r);
	size_t value_len = r->left;
	const struct disk_record *record;

	if (r->bad || slot >= page_slot_count(t->tree))
		return -BE_FORMAT;
	record = page_record(t->tree, (unsigned)slot);
	if (!record_allowed(t, (size_t)t->tree->prefix_len + record->key_len, value_len) ||
	    !edit_value_fits(t->tree, t->size, (unsigned)slot, value_len))
		return -BE_FORMAT;

	edit_set_value(t->tree, t->size, (unsigned)slot, r->next, value_len);
	return 0;
}

static int apply_patch(struct target *t, struct reader *r)
{
	uint64_t slot = take_varint(r);
	uint64_t offset = take_varint(r);
	uint16_t value_len;

	if (r->bad || slot >= page_slot_count(t->tree))
		return -BE_FORMAT;
	value_len = le16_get(page_record(t->tree, (unsigned)slot)->value_len);
	if (offset > value_len || r->left > value_len - offset)
		return -BE_FORMAT;

	edit_patch(t->tree, (unsigned)slot, offset, r->next, r->left);
	return 0;
}

static int apply_delete(struct target *t, struct reader *r)
{
	uint64_t slot = take_varint(r);

	if (!ended(r) || slot >= page_slot_count(t->tree))
		return -BE_FORMAT;
	if (slot == 0 && t->head->level > 0)
		return -BE_FORMAT; /* INV-PAGE-3 */

	edit_remove(t->tree, t->size, (unsigned)slot);
	return 0;
}

/*
 * Does `high` lie between slots keep - 1 and keep, and inside the page's range?
 * An internal page always keeps its first record: the key is not above the low fence.
 */
static bool split_allowed(const struct disk_tree_page *tree, uint64_t keep, const struct key *high)
{
	unsigned count = page_slot_count(tree);

	if (keep > count || !covers(tree, high))
		return false;
	if (compare_keys(high->bytes, high->len, tree->low, tree->low_len) == 0)
		return false;
	if (keep > 0 && compare_slot(tree, (unsigned)keep - 1, high) >= 0)
		return false;
	return keep == count || compare_slot(tree, (unsigned)keep, high) >= 0;
}

static int apply_split_left(struct target *t, struct reader *r)
{
	struct key high = {0};
	uint64_t keep = take_varint(r), right;
	uint8_t flags = t->head->flags | PAGE_INCOMPLETE;

	take_key_part(r, &high);
	right = take_varint(r);
	if (!ended(r) || !split_allowed(t->tree, keep, &high) ||
	    !links_allowed(t, flags, &high, right))
		return -BE_FORMAT;

	t->head->flags = flags;
	edit_set_fence(t->tree, &high, right);
	edit_truncate(t->tree, t->size, (unsigned)keep);
	return 0;
}

static int apply_flags(struct target *t, struct reader *r)
{
	struct key high;
	uint8_t flags = take_u8(r);

	page_high(t->tree, &high);
	if (!ended(r) || !links_allowed(t, flags, &high, le64_get(t->tree->right)))
		return -BE_FORMAT;

	t->head->flags = flags;
	return 0;
}

/* Length of the prefix that a new high fence leaves. */
static uint8_t prefix_with(const struct disk_tree_page *tree, const struct key *high)
{
	uint8_t len = 0;

	while (len < tree->prefix_len && len < high->len && tree->low[len] == high->bytes[len])
		len++;
	return len;
}

/* Is `high` above the low fence and every key?  Unlike other keys it may lie outside the range. */
static bool fence_allowed(const struct disk_tree_page *tree, const struct key *high)
{
	unsigned count = page_slot_count(tree);
	struct key last;

	if (high->len == 0)
		return true;
	if (compare_keys(high->bytes, high->len, tree->low, tree->low_len) <= 0)
		return false;
	if (count == 0)
		return true;
	page_key(tree, count - 1, &last);
	return compare_keys(last.bytes, last.len, high->bytes, high->len) < 0;
}

static int apply_fence(struct target *t, struct reader *r)
{
	struct key high = {0};
	uint64_t right;
	uint8_t prefix_len;
	uint32_t longer;

	take_key_part(r, &high);
	right = take_varint(r);
	if (!ended(r) || !fence_allowed(t->tree, &high) ||
	    !links_allowed(t, t->head->flags, &high, right))
		return -BE_FORMAT;
	prefix_len = prefix_with(t->tree, &high);
	longer = (uint32_t)(t->tree->prefix_len - prefix_len) * page_slot_count(t->tree);
	if (longer > page_room(t->tree, t->size))
		return -BE_FORMAT;

	edit_set_fence(t->tree, &high, right);
	if (prefix_len < t->tree->prefix_len)
		edit_rebuild(t->tree, t->size, prefix_len);
	return 0;
}

/* ------------------------------------------------ bitmap and system pages */

static int apply_bits(struct target *t, struct reader *r)
{
	uint8_t *bits = t->bytes + sizeof(struct disk_bitmap_page);
	uint8_t value = take_u8(r);
	uint64_t first = take_varint(r);
	uint64_t count = take_varint(r);
	uint64_t limit = GROUP_BLOCKS(t->size);

	if (!ended(r) || value > 1 || first > limit || count > limit - first)
		return -BE_FORMAT;
	if (!page_bits_are(t->bytes, first, count, !value))
		return -BE_FORMAT;

	for (uint64_t bit = first; bit < first + count; bit++)
		bits[bit / 8] ^= (uint8_t)(1u << bit % 8);
	return 0;
}

static int apply_counter(struct target *t, struct reader *r)
{
	uint64_t counter = take_varint(r);
	const uint8_t *bytes = take_bytes(r, sizeof(le64));
	le64 value;

	if (!ended(r) || counter >= COUNTER_COUNT)
		return -BE_FORMAT;
	memcpy(&value, bytes, sizeof(value));
	if (le64_get(value) < le64_get(t->system->counter[counter]))
		return -BE_FORMAT; /* INV-ID-1 */

	t->system->counter[counter] = value;
	return 0;
}

/* ---------------------------------------------------------------- dispatch */

static const struct {
	enum page_type type; /* PAGE_NONE: any */
	int (*apply)(struct target *t, struct reader *r);
} records[] = {
	[REC_PAGE_INIT] = {PAGE_NONE, apply_page_init},
	[REC_LOAD] = {PAGE_TREE, apply_load},
	[REC_INSERT] = {PAGE_TREE, apply_insert},
	[REC_UPDATE] = {PAGE_TREE, apply_update},
	[REC_PATCH] = {PAGE_TREE, apply_patch},
	[REC_DELETE] = {PAGE_TREE, apply_delete},
	[REC_SPLIT_LEFT] = {PAGE_TREE, apply_split_left},
	[REC_FLAGS] = {PAGE_TREE, apply_flags},
	[REC_FENCE] = {PAGE_TREE, apply_fence},
	[REC_BITS] = {PAGE_BITMAP, apply_bits},
	[REC_COUNTER] = {PAGE_SYSTEM, apply_counter},
};
static_assert(array_count(records) == REC_LIMIT, "each page record has its function");

int page_redo(void *page, uint32_t page_size, uint64_t pageno, const uint8_t tag[8], uint8_t type,
	      const uint8_t *body, size_t len)
{
	struct target t = {.bytes = page, .size = page_size, .pageno = pageno, .tag = tag};
	struct reader r = {.next = body, .left = len};

	check(page_size >= PAGE_SIZE_MIN && page_size <= PAGE_SIZE_MAX);
	if (type >= REC_LIMIT || !records[type].apply)
		return -BE_FORMAT;
	if (records[type].type != PAGE_NONE &&
	    (records[type].type != t.head->type || le64_get(t.head->pageno) != pageno))
		return -BE_FORMAT;
	return records[type].apply(&t, &r);
}
