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

static int step(struct tree *tree, uint64_t pageno, enum latch_mode mode, struct frame **out)
{
	struct frame *frame;
	int rc = pool_get(tree->volume->pool, pageno, PAGE_TREE, tree->id, &frame);

	if (rc)
		return rc;
	if (mode == LATCH_X)
		latch_x(&frame->latch);
	else
		latch_s(&frame->latch);
	*out = frame;
	return 0;
}

static void leave(struct frame *frame, enum latch_mode mode)
{
	tree_unlatch(frame, mode);
	pool_put(frame);
}

int tree_descend(struct tree *tree, const struct key *key, unsigned level, enum latch_mode mode,
		 struct frame **out)
{
	struct stats *stats = &tree->volume->stats;
	uint64_t pageno = tree->root;
	unsigned expected = TREE_LEVELS_MAX; /* unknown: at the root */

	for (unsigned steps = 0; steps < TREE_STEPS_MAX; steps++) {
		/* X only where it may be needed: on the wanted level. */
		enum latch_mode now = expected == level ? mode : LATCH_S;
		struct frame *frame;
		const void *page;
		unsigned page_level;
		int rc = step(tree, pageno, now, &frame);

		if (rc)
			return rc;
		page = frame->data;
		page_level = tree_page(page)->head.level;
		if (page_is_dead(page) ||
		    (expected != TREE_LEVELS_MAX && page_level != expected)) {
			leave(frame, now);
			stat_add(stats, STAT_tree_restarts, 1);
			os_point("tree:restart");
			pageno = tree->root;
			expected = TREE_LEVELS_MAX;
			continue;
		}
		if (page_is_left_of(page, key->bytes, key->len)) {
			pageno = le64_get(tree_page(page)->right);
			leave(frame, now);
			stat_add(stats, STAT_tree_right_moves, 1);
			os_point("tree:right");
			expected = page_level;
			continue;
		}
		/* Low fences never change (INV-TREE-5): only damage leads too far right. */
		if (!page_covers(page, key->bytes, key->len)) {
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
			expected = page_level;
			continue;
		}
		if (page_slots(page) == 0) {
			leave(frame, now);
			return corrupt_at(tree->volume, pageno, "tree_descend",
					  "internal page without entries");
		}
		pageno = page_child(page, page_child_slot(page, key->bytes, key->len));
		leave(frame, now);
		os_point("tree:down");
		expected = page_level - 1;
	}
	return corrupt_at(tree->volume, pageno, "tree_descend", "the path does not end");
}

int tree_locate(struct tree *tree, const struct key *key, unsigned level, struct frame **out)
{
	int rc = tree_descend(tree, key, level, LATCH_S, out);

	if (rc == 0)
		tree_unlatch(*out, LATCH_S);
	return rc;
}

int tree_locate_leaf(struct tree *tree, const struct key *key, struct frame **out)
{
	return tree_locate(tree, key, 0, out);
}

int tree_get(struct tree *tree, const void *key, size_t key_len, void *value, size_t cap,
	     size_t *len)
{
	struct volume *volume = tree->volume;
	struct key wanted = key_make(key, key_len);
	struct page_entry entry;
	struct frame *leaf;
	unsigned slot;
	bool exact;
	int rc = pool_take_tickets(volume->pool, 1);

	if (rc)
		return rc;
	epoch_enter(&volume->epochs);
	rc = tree_descend(tree, &wanted, 0, LATCH_S, &leaf);
	epoch_exit(&volume->epochs);
	if (rc)
		goto out;
	slot = page_lower_bound(leaf->data, wanted.bytes, wanted.len, &exact);
	if (exact) {
		page_entry(leaf->data, slot, &entry);
		*len = entry.value_len;
		memcpy(value, entry.value, entry.value_len < cap ? entry.value_len : cap);
	} else {
		rc = -BE_NOTFOUND;
	}
	leave(leaf, LATCH_S);
out:
	pool_give_tickets(volume->pool, 1);
	return rc;
}
