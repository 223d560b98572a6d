/*
 * Random operations on a page, of every page size and several kinds of keys:
 *
 *	oracle  a sorted array of keys and values says what the page must hold
 *	replay  each record is applied to a copy as well; the bytes stay equal
 *	room    INV-PAGE-6: what page_room() promises, page_redo() does
 *
 * A failure prints the seed; TEST_SEED=n runs that one alone, TEST_SCALE=n
 * runs n times as many.
 */
#include "engine/base/error.h"
#include "engine/page.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 12u
#define STEPS 1500u
#define ITEMS_MAX (PAGE_SIZE_MAX / 6)
#define PAGENO 40u
static const uint8_t TAG[8] = "volume 1";

struct item {
	struct key key;
	uint8_t *value;
	size_t len;
};

struct world {
	uint64_t seed, state;
	uint32_t size;
	uint8_t *page, *copy, *before, *body;
	struct item *items;    /* the oracle */
	unsigned count;
	struct key low, high;  /* as the page has them */
	struct key shared;     /* what all keys begin with */
	uint8_t level, flags;
	uint64_t right;
	uint64_t pages;        /* numbers of pages to the right; each new */
	bool fixed_keys;       /* all of 16 bytes, as most indexes have */
};

#define expect(w, condition) \
	cr_assert(condition, "TEST_SEED=%lu, page size %u", (unsigned long)(w)->seed, (w)->size)

/* ---------------------------------------------------------------- randomness */

static uint64_t draw(struct world *w) /* splitmix64 */
{
	uint64_t z = w->state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static unsigned below(struct world *w, unsigned limit)
{
	return (unsigned)(draw(w) % limit);
}

/* Begins with w->shared; from a small alphabet, so that prefixes and neighbours are common. */
static struct key random_key(struct world *w)
{
	struct key key = w->shared;
	unsigned len = w->fixed_keys ? 16 : key.len + 1 + below(w, KEY_BYTES_MAX - key.len);

	while (key.len < len)
		key.bytes[key.len++] = (uint8_t)(below(w, 4) ? below(w, 4) : draw(w));
	return key;
}

static size_t random_value(struct world *w, size_t key_len, uint8_t *value)
{
	size_t max = RECORD_BYTES_MAX(w->size) - key_len;
	size_t len = w->level > 0 ? 8 : below(w, 20) == 0 ? below(w, max + 1) : below(w, 60);

	for (size_t i = 0; i < len; i++)
		value[i] = (uint8_t)draw(w);
	return len;
}

/* --------------------------------------------------------------------- pages */

/* Applies a record to the page and to its copy. */
static int redo(struct world *w, uint8_t type, size_t len)
{
	const char *why = "";
	int rc;

	expect(w, len <= BODY_BYTES_MAX(w->size));
	memcpy(w->before, w->page, w->size);
	rc = page_redo(w->page, w->size, PAGENO, TAG, type, w->body, len);
	if (rc != 0)
		expect(w, memcmp(w->page, w->before, w->size) == 0); /* INV-PAGE-7 */
	expect(w, page_redo(w->copy, w->size, PAGENO, TAG, type, w->body, len) == rc);
	expect(w, memcmp(w->page, w->copy, w->size) == 0);
	if (tree_page(w->page)->head.level == 0 || w->count > 0) /* INV-PAGE-8 */
		expect(w, page_verify_structure(w->page, w->size, &why) == 0);
	return rc;
}

static bool same_key(const struct key *a, const struct key *b)
{
	return key_compare(a->bytes, a->len, b->bytes, b->len) == 0;
}

static void compare_with_oracle(struct world *w)
{
	const struct disk_tree_page *tree = tree_page(w->page);
	struct page_entry entry;
	struct key key;
	uint32_t used = 0, load = 0;

	expect(w, le16_get(tree->slot_count) == w->count);
	for (unsigned slot = 0; slot < w->count; slot++) {
		const struct item *item = &w->items[slot];

		page_key(w->page, slot, &key);
		page_entry(w->page, slot, &entry);
		expect(w, same_key(&key, &item->key));
		expect(w, entry.value_len == item->len);
		expect(w, memcmp(entry.value, item->value, item->len) == 0);
		used += page_slot_bytes(w->page, slot);
		load += page_cost(item->key.len, item->len);
	}
	expect(w, page_room(w->page, w->size) == page_capacity(w->size) - used);
	expect(w, page_load_bytes(w->page) == load);
	page_low(w->page, &key);
	expect(w, same_key(&key, &w->low));
	page_high(w->page, &key);
	expect(w, same_key(&key, &w->high));
	expect(w, le64_get(tree->right) == w->right);
	expect(w, tree->head.flags == w->flags);
}

/* ----------------------------------------------------------------- the oracle */

static unsigned oracle_find(const struct world *w, const struct key *key, bool *exact)
{
	unsigned slot = 0;
	int order = 1;

	while (slot < w->count &&
	       (order = key_compare(w->items[slot].key.bytes, w->items[slot].key.len, key->bytes,
				    key->len)) < 0)
		slot++;
	*exact = slot < w->count && order == 0;
	return slot;
}

static bool oracle_covers(const struct world *w, const struct key *key)
{
	return key_compare(key->bytes, key->len, w->low.bytes, w->low.len) >= 0 &&
	       (w->high.len == 0 ||
		key_compare(key->bytes, key->len, w->high.bytes, w->high.len) < 0);
}

static void oracle_set(struct item *item, const uint8_t *value, size_t len)
{
	free(item->value);
	item->value = malloc(len + 1);
	memcpy(item->value, value, len);
	item->len = len;
}

static void oracle_insert(struct world *w, unsigned slot, const struct key *key,
			  const uint8_t *value, size_t len)
{
	struct item item = {.key = *key};

	oracle_set(&item, value, len);
	memmove(w->items + slot + 1, w->items + slot, (w->count - slot) * sizeof(item));
	w->items[slot] = item;
	w->count++;
}

static void oracle_delete(struct world *w, unsigned slot)
{
	free(w->items[slot].value);
	w->count--;
	memmove(w->items + slot, w->items + slot + 1, (w->count - slot) * sizeof(w->items[0]));
}

/* ----------------------------------------------------------------- operations */

static int insert(struct world *w, unsigned slot, const struct key *key, const uint8_t *value,
		  size_t len)
{
	return redo(w, REC_INSERT, redo_insert(w->body, slot, key->bytes, key->len, value, len));
}

static void do_insert(struct world *w)
{
	struct key key = random_key(w);
	uint8_t value[RECORD_BYTES_MAX(PAGE_SIZE_MAX)];
	size_t len = random_value(w, key.len, value);
	uint32_t room = page_room(w->page, w->size), cost;
	bool exact, found;
	unsigned slot;
	int rc;

	if (w->level > 0 && w->count == 0)
		key = w->low;
	cost = page_cost(key.len, len);
	if (!oracle_covers(w, &key)) {
		expect(w, !page_covers(w->page, key.bytes, key.len));
		slot = below(w, w->count + 1);
		expect(w, insert(w, slot, &key, value, len) != 0);
		return;
	}
	expect(w, page_covers(w->page, key.bytes, key.len));
	slot = oracle_find(w, &key, &exact);
	expect(w, page_lower_bound(w->page, key.bytes, key.len, &found) == slot);
	expect(w, found == exact);
	if (w->level > 0 && w->count > 0)
		expect(w, page_child_slot(w->page, key.bytes, key.len) == slot - !exact);
	if (below(w, 8) == 0) {
		unsigned wrong = below(w, w->count + 2);

		if (wrong != slot || exact)
			expect(w, insert(w, wrong, &key, value, len) != 0);
	}
	rc = insert(w, slot, &key, value, len);
	if (exact) {
		expect(w, rc != 0);
		return;
	}
	expect(w, rc == 0 || room < cost); /* INV-PAGE-6 */
	if (rc == 0)
		oracle_insert(w, slot, &key, value, len);
}

static void do_update(struct world *w)
{
	uint8_t value[RECORD_BYTES_MAX(PAGE_SIZE_MAX)];
	unsigned slot = below(w, w->count);
	struct item *item = &w->items[slot];
	size_t len = random_value(w, item->key.len, value);
	uint32_t room = page_room(w->page, w->size) + page_slot_bytes(w->page, slot);
	int rc = redo(w, REC_UPDATE, redo_update(w->body, slot, value, len));

	expect(w, rc == 0 || room < page_cost(item->key.len, len));
	if (rc == 0)
		oracle_set(item, value, len);
}

static void do_patch(struct world *w)
{
	unsigned slot = below(w, w->count);
	struct item *item = &w->items[slot];
	unsigned offset = below(w, (unsigned)item->len + 1);
	uint8_t bytes[64];
	size_t len = below(w, sizeof(bytes));
	int rc;

	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)draw(w);
	rc = redo(w, REC_PATCH, redo_patch(w->body, slot, offset, bytes, len));
	expect(w, (rc == 0) == (offset + len <= item->len));
	if (rc == 0)
		memcpy(item->value + offset, bytes, len);
}

static void do_delete(struct world *w)
{
	unsigned slot = below(w, w->count);
	int rc = redo(w, REC_DELETE, redo_delete(w->body, slot));

	expect(w, (rc == 0) == (w->level == 0 || slot > 0));
	if (rc == 0)
		oracle_delete(w, slot);
}

/* A key that separates slot keep - 1 from slot keep, and lies above the low fence. */
static bool separator(struct world *w, unsigned keep, struct key *high)
{
	if (keep < w->count) {
		*high = w->items[keep].key;
	} else {
		*high = random_key(w);
		if (w->count > 0 && key_compare(high->bytes, high->len,
						w->items[keep - 1].key.bytes,
						w->items[keep - 1].key.len) <= 0)
			return false;
	}
	return oracle_covers(w, high) && !same_key(high, &w->low) && (w->level == 0 || keep > 0);
}

/* Builds the page that a split puts to the right, from slot `first` on. */
static void right_page(struct world *w, uint8_t *right, uint64_t pageno, unsigned first,
		       const struct key *low)
{
	size_t len = redo_page_init(w->body, PAGE_TREE, 0, w->level, w->flags, low, &w->high,
				    w->right);

	memset(right, 0, w->size);
	expect(w, page_redo(right, w->size, pageno, TAG, REC_PAGE_INIT, w->body, len) == 0);
	len = redo_load(w->body, w->page, first, w->count - first);
	expect(w, page_redo(right, w->size, pageno, TAG, REC_LOAD, w->body, len) == 0);
	expect(w, page_room(right, w->size) + page_load_bytes(w->page) >= page_capacity(w->size));
}

/* Takes back what a split took away, as a merge does: fence, then load. */
static void merge(struct world *w, const uint8_t *right, const struct key *high,
		  uint64_t right_link)
{
	size_t len = redo_flags(w->body, 0);

	expect(w, redo(w, REC_FLAGS, len) == 0);
	expect(w, redo(w, REC_FENCE, redo_fence(w->body, high, right_link)) == 0);
	len = redo_load(w->body, right, 0, le16_get(tree_page(right)->slot_count));
	expect(w, redo(w, REC_LOAD, len) == 0);
	w->high = *high;
	w->right = right_link;
	w->flags = 0;
}

static void do_split(struct world *w)
{
	uint8_t *right = malloc(w->size);
	unsigned keep = below(w, 4) ? w->count / 2 : below(w, w->count + 1);
	struct key low, high = w->high;
	uint64_t right_link = w->right, pageno = ++w->pages;
	bool mergeable = page_load_bytes(w->page) <= page_capacity(w->size);

	if (!separator(w, keep, &low))
		goto out;
	if (w->level == 0 || keep < w->count)
		right_page(w, right, pageno, keep, &low);
	else
		mergeable = false;
	expect(w, redo(w, REC_SPLIT_LEFT, redo_split_left(w->body, keep, &low, pageno)) == 0);
	w->high = low;
	w->right = pageno;
	w->flags |= PAGE_INCOMPLETE;
	if (mergeable && below(w, 3)) {
		merge(w, right, &high, right_link);
		goto out;
	}
	while (w->count > keep)
		oracle_delete(w, w->count - 1);
out:
	free(right);
}

/* Moves the high fence to the right: the prefix may get shorter. */
static void do_widen(struct world *w)
{
	struct key high = random_key(w);
	bool fits = page_load_bytes(w->page) <= page_capacity(w->size);
	int rc;

	if (below(w, 4) == 0)
		high.len = 0;
	else if (below(w, 2))
		high.bytes[below(w, high.len)]++;
	if (high.len > 0 && (w->high.len == 0 ||
			     key_compare(high.bytes, high.len, w->high.bytes, w->high.len) < 0))
		return;
	if (high.len == 0 && (w->flags & PAGE_INCOMPLETE))
		return;
	rc = redo(w, REC_FENCE, redo_fence(w->body, &high, high.len ? ++w->pages : 0));
	expect(w, rc == 0 || !fits);
	if (rc == 0) {
		w->high = high;
		w->right = high.len ? w->pages : 0;
	}
}

static void do_flags(struct world *w)
{
	uint8_t flags = (uint8_t)below(w, 8);
	int rc = redo(w, REC_FLAGS, redo_flags(w->body, flags));

	expect(w, (rc == 0) == (flags < 4 && (w->right != 0 || !(flags & PAGE_INCOMPLETE))));
	if (rc == 0)
		w->flags = flags;
}

/* Any type with a body of noise, or a sound body with one byte changed. */
static void do_noise(struct world *w)
{
	size_t len = below(w, 24);
	uint8_t *trial = malloc(w->size);

	for (size_t i = 0; i < len; i++)
		w->body[i] = (uint8_t)(below(w, 2) ? below(w, 20) : draw(w));
	memcpy(trial, w->page, w->size);
	if (page_redo(trial, w->size, PAGENO, TAG,
		      (uint8_t)(REC_LOAD + below(w, REC_LIMIT - REC_LOAD)), w->body, len) == 0)
		expect(w, w->count == 0 || page_verify_structure(trial, w->size, NULL) == 0);
	else
		expect(w, memcmp(trial, w->page, w->size) == 0);
	free(trial);
}

static void step(struct world *w)
{
	unsigned dice = below(w, 100);

	if (w->count == 0 || dice < 55)
		do_insert(w);
	else if (dice < 70)
		do_update(w);
	else if (dice < 75)
		do_patch(w);
	else if (dice < 90)
		do_delete(w);
	else if (dice < 92)
		do_split(w);
	else if (dice < 94)
		do_widen(w);
	else if (dice < 96)
		do_flags(w);
	else
		do_noise(w);
}

/* ----------------------------------------------------------------------- runs */

static void start(struct world *w)
{
	size_t len;

	w->fixed_keys = below(w, 2);
	w->level = below(w, 3) == 0;
	w->shared.len = 0;
	for (unsigned i = below(w, w->fixed_keys ? 15 : 28); i > 0; i--)
		w->shared.bytes[w->shared.len++] = (uint8_t)below(w, 255);
	w->low = w->high = (struct key){0};
	if (below(w, 3)) {
		w->high = w->shared; /* all that begins with it */
		w->high.bytes[w->high.len++] = 0xff;
		w->right = ++w->pages;
	}
	if (below(w, 3) || w->high.len == 0)
		w->low = w->shared;
	len = redo_page_init(w->body, PAGE_TREE, 0, w->level, 0, &w->low, &w->high, w->right);
	expect(w, redo(w, REC_PAGE_INIT, len) == 0);
}

static void run(uint64_t seed, uint32_t size)
{
	struct world w = {.seed = seed, .state = seed, .size = size, .pages = PAGENO};

	w.page = calloc(1, size);
	w.copy = calloc(1, size);
	w.before = malloc(size);
	w.body = malloc(BODY_BYTES_MAX(size));
	w.items = calloc(ITEMS_MAX, sizeof(w.items[0]));
	start(&w);
	for (unsigned i = 0; i < STEPS; i++) {
		step(&w);
		if (i % 16 == 0 || i == STEPS - 1)
			compare_with_oracle(&w);
	}
	while (w.count > 0)
		oracle_delete(&w, w.count - 1);
	free(w.items);
	free(w.body);
	free(w.before);
	free(w.copy);
	free(w.page);
}

static void run_seeds(uint32_t size)
{
	const char *one = getenv("TEST_SEED"), *scale = getenv("TEST_SCALE");
	uint64_t seeds = SEEDS * (scale ? strtoull(scale, NULL, 0) : 1);

	if (one) {
		run(strtoull(one, NULL, 0), size);
		return;
	}
	for (uint64_t seed = 1; seed <= seeds; seed++)
		run(seed, size);
}

Test(page_random, size_4k) { run_seeds(4096); }
Test(page_random, size_8k) { run_seeds(8192); }
Test(page_random, size_16k) { run_seeds(16384); }
Test(page_random, size_32k) { run_seeds(32768); }
Test(page_random, size_64k) { run_seeds(65536); }
