/*
 * Finding the page that covers a key (Lehman and Yao's search).
 *
 * What a search may meet, and why it is right nevertheless:
 *	a page that was split since its number was read: key >= high, go right
 *	an INCOMPLETE page: the same
 *	a DEAD page: its keys have moved left, restart from the root
 *	a root that was raised: the root's page number is fixed, its entries lead
 *	    down; a remembered level is compared with the page's own (INV-TREE-4)
 */
#include "engine/tree_internal.h"

/* Left alone, then the next page: no latch is held in between. */
static int step(struct tree *tree, uint64_t pageno, enum latch_mode mode, struct frame **out)
{
	int rc = pool_get(tree->volume->pool, pageno, PAGE_TREE, tree->id, out);

	if (rc == 0)
		tree_latch(tree, *out, mode);
	return rc;
}

static void leave(struct frame *frame, enum latch_mode mode)
{
	tree_unlatch(frame, mode);
	pool_put(frame);
}

/* From a parent, latched S, to its child. */
static int step_down(struct tree *tree, struct frame *parent, uint64_t child, enum latch_mode mode,
		     struct frame **out)
{
	if (volume_smo(tree->volume) == SMO_INDEX_LATCH)
		return tree_step_coupled(tree, parent, child, mode, out);
	leave(parent, LATCH_S);
	os_point("tree:down");
	return step(tree, child, mode, out);
}

/*
 * What is looked for: the page that covers a key; or, `before`, the one that covers what
 * lies just below it, so that its low fence < key <= its high fence.  Before an empty
 * key: the last page.
 */
struct target {
	const struct key *key;
	bool before;
};

static bool lies_right(const void *page, const struct target *target)
{
	const struct disk_tree_page *tree = tree_page(page);
	const struct key *key = target->key;

	if (!target->before)
		return page_is_left_of(page, key->bytes, key->len);
	return tree->high_len > 0 && (key->len == 0 || key_compare(key->bytes, key->len, tree->high,
								   tree->high_len) > 0);
}

static bool lies_left(const void *page, const struct target *target)
{
	const struct disk_tree_page *tree = tree_page(page);
	const struct key *key = target->key;
	int order = key_compare(key->bytes, key->len, tree->low, tree->low_len);

	return target->before ? key->len > 0 && order <= 0 : order < 0;
}

static unsigned child_slot(const void *page, const struct target *target)
{
	const struct key *key = target->key;
	bool exact;

	if (!target->before)
		return page_child_slot(page, key->bytes, key->len);
	if (key->len == 0)
		return page_slots(page) - 1;
	/* INV-PAGE-3, and the low fence lies below the key. */
	return page_lower_bound(page, key->bytes, key->len, &exact) - 1;
}

static int descend(struct tree *tree, const struct target *target, unsigned level,
		   enum latch_mode mode, struct frame **out)
{
	struct stats *stats = &tree->volume->stats;
	uint64_t pageno = tree->root;
	unsigned expected = TREE_LEVELS_MAX; /* unknown: at the root */
	enum latch_mode now = LATCH_S;
	struct frame *frame;
	int rc = step(tree, pageno, now, &frame);

	for (unsigned steps = 0; rc == 0 && steps < TREE_STEPS_MAX; steps++) {
		const void *page = frame->data;
		unsigned page_level = tree_page(page)->head.level;

		if (page_is_dead(page) ||
		    (expected != TREE_LEVELS_MAX && page_level != expected)) {
			leave(frame, now);
			stat_add(stats, STAT_tree_restarts, 1);
			os_point("tree:restart");
			pageno = tree->root;
			expected = TREE_LEVELS_MAX;
			now = LATCH_S;
			rc = step(tree, pageno, now, &frame);
			continue;
		}
		expected = page_level;
		if (lies_right(page, target)) {
			pageno = le64_get(tree_page(page)->right);
			leave(frame, now);
			stat_add(stats, STAT_tree_right_moves, 1);
			os_point("tree:right");
			rc = step(tree, pageno, now, &frame);
			continue;
		}
		/* Low fences never change (INV-TREE-5): only damage leads too far right. */
		if (lies_left(page, target)) {
			leave(frame, now);
			return corrupt_at(tree->volume, pageno, "tree_descend",
					  "low fence above the key that led here");
		}
		if (page_level < level) {
			leave(frame, now);
			return -BE_NOTFOUND;
		}
		if (page_level == level) {
			if (now == mode) {
				*out = frame;
				return 0;
			}
			leave(frame, now); /* the root itself: once more with X */
			now = mode;
			rc = step(tree, pageno, now, &frame);
			continue;
		}
		if (page_slots(page) == 0) {
			leave(frame, now);
			return corrupt_at(tree->volume, pageno, "tree_descend",
					  "internal page without entries");
		}
		pageno = page_child(page, child_slot(page, target));
		expected = page_level - 1;
		/* X only where it may be needed: on the wanted level. */
		now = expected == level ? mode : LATCH_S;
		rc = step_down(tree, frame, pageno, now, &frame);
	}
	if (rc)
		return rc;
	leave(frame, now);
	return corrupt_at(tree->volume, pageno, "tree_descend", "the path does not end");
}

int tree_descend(struct tree *tree, const struct key *key, unsigned level, enum latch_mode mode,
		 struct frame **out)
{
	const struct target target = {.key = key};

	return descend(tree, &target, level, mode, out);
}

int tree_descend_before(struct tree *tree, const struct key *key, unsigned level,
			struct frame **out)
{
	const struct target target = {.key = key, .before = true};

	return descend(tree, &target, level, LATCH_S, out);
}

/*
 * For who reads: where the classic protocol rules, the index latch is held S until the
 * page is latched.  Who changes holds it already.
 */
static int find(struct tree *tree, const struct target *target, unsigned level, struct frame **out)
{
	bool latched = volume_smo(tree->volume) == SMO_INDEX_LATCH &&
		       !latch_held(&tree->index_latch);
	int rc;

	if (latched)
		tree_latch_index_s(tree);
	rc = descend(tree, target, level, LATCH_S, out);
	if (latched)
		unlatch_s(&tree->index_latch);
	return rc;
}

int tree_find(struct tree *tree, const struct key *key, unsigned level, struct frame **out)
{
	const struct target target = {.key = key};

	return find(tree, &target, level, out);
}

int tree_find_leaf_before(struct tree *tree, const struct key *key, struct frame **out)
{
	const struct target target = {.key = key, .before = true};

	return find(tree, &target, 0, out);
}

int tree_locate(struct tree *tree, const struct key *key, unsigned level, struct frame **out)
{
	int rc = tree_find(tree, key, level, out);

	if (rc == 0)
		tree_unlatch(*out, LATCH_S);
	return rc;
}

int tree_locate_leaf(struct tree *tree, const struct key *key, struct frame **out)
{
	return tree_locate(tree, key, 0, out);
}

/* Latched S, until end_reading(). */
static int begin_reading(struct tree *tree, const struct key *key, struct frame **leaf)
{
	struct volume *volume = tree->volume;
	int rc = pool_take_tickets(volume->pool, TREE_READ_TICKETS);

	if (rc)
		return rc;
	epoch_enter(&volume->epochs);
	rc = tree_find(tree, key, 0, leaf);
	epoch_exit(&volume->epochs);
	if (rc)
		pool_give_tickets(volume->pool, TREE_READ_TICKETS);
	return rc;
}

static void end_reading(struct tree *tree, struct frame *leaf)
{
	leave(leaf, LATCH_S);
	pool_give_tickets(tree->volume->pool, TREE_READ_TICKETS);
}

static void copy_value(const void *page, unsigned slot, void *value, size_t cap, size_t *len)
{
	struct page_entry entry;

	page_entry(page, slot, &entry);
	*len = entry.value_len;
	memcpy(value, entry.value, entry.value_len < cap ? entry.value_len : cap);
}

int tree_get(struct tree *tree, const void *key, size_t key_len, void *value, size_t cap,
	     size_t *len)
{
	struct key wanted = key_make(key, key_len);
	struct frame *leaf;
	unsigned slot;
	bool exact;
	int rc = begin_reading(tree, &wanted, &leaf);

	if (rc)
		return rc;
	slot = page_lower_bound(leaf->data, wanted.bytes, wanted.len, &exact);
	if (exact)
		copy_value(leaf->data, slot, value, cap, len);
	end_reading(tree, leaf);
	return exact ? 0 : -BE_NOTFOUND;
}

int tree_first(struct tree *tree, const void *low, const void *high, size_t key_len,
	       struct key *found, void *value, size_t cap, size_t *len)
{
	struct key at = key_make(low, key_len), end = key_make(high, key_len);

	/* Leaf by leaf, as a cursor does (INV-CURSOR-1). */
	for (;;) {
		struct frame *leaf;
		unsigned slot;
		bool exact, ends;
		int rc = begin_reading(tree, &at, &leaf);

		if (rc)
			return rc;
		slot = page_lower_bound(leaf->data, at.bytes, at.len, &exact);
		ends = slot < page_slots(leaf->data) ||
		       !page_is_left_of(leaf->data, end.bytes, end.len);
		if (slot < page_slots(leaf->data))
			page_key(leaf->data, slot, found);
		if (slot == page_slots(leaf->data) ||
		    key_compare(found->bytes, found->len, end.bytes, end.len) > 0)
			rc = -BE_NOTFOUND;
		else
			copy_value(leaf->data, slot, value, cap, len);
		page_high(leaf->data, &at);
		end_reading(tree, leaf);
		if (ends)
			return rc;
		os_point("tree:first_next");
	}
}

bool tree_page_begins_at(const void *page, const struct tree *tree, unsigned level,
			 const struct key *low)
{
	const struct disk_page *head = page;
	struct key begin;

	if (head->type != PAGE_TREE || head->index != tree->id || head->level != level ||
	    page_is_dead(page))
		return false;
	page_low(page, &begin);
	return key_equal(&begin, low);
}
