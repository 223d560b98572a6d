/*
 * Cursors: a private copy of one leaf at a time.
 *
 * INV-CURSOR-1: the next leaf is found by the copy's high fence, not by its
 * right link.  Fences of consecutive copies therefore meet whatever splits and
 * merges happened between, so no key range is read twice or skipped, and an
 * entry that exists throughout is seen exactly once.
 *
 * INV-CURSOR-2: backwards likewise, by the low fence: the leaf before it is the one
 * that covers what lies just below, and of that only what lies below counts.  (A merge
 * may have moved the entries of the copy there.)  There are no left links, and none
 * are missed: the copy holds no latch, so nothing is waited for to the left.
 */
#include "engine/tree_internal.h"

#include <errno.h>
#include <stdlib.h>

/* Head, slots and heap; the free middle is not worth its copying. */
static void copy_page(uint8_t *to, const uint8_t *from, uint32_t page_size)
{
	const struct disk_tree_page *head = tree_page(from);
	size_t low = sizeof(*head) + le16_get(head->slot_count) * sizeof(le16);
	size_t heap = le32_get(head->heap_start);

	memcpy(to, from, low);
	memcpy(to + heap, from + heap, page_size - heap);
}

/*
 * The leaf that covers `at`, or, `before`, what lies just below; the cursor stands in
 * front of its first entry >= at.
 */
static int load_leaf(struct tree_cursor *cursor, const struct key *at, bool before)
{
	struct volume *volume = cursor->tree->volume;
	struct frame *leaf;
	bool exact;
	int rc = pool_take_tickets(volume->pool, TREE_READ_TICKETS);

	if (rc)
		return rc;
	epoch_enter(&volume->epochs);
	rc = before ? tree_find_leaf_before(cursor->tree, at, &leaf)
		    : tree_find(cursor->tree, at, 0, &leaf);
	if (rc == 0) {
		copy_page(cursor->copy, leaf->data, volume->geo.page_size);
		tree_unlatch(leaf, LATCH_S);
		pool_put(leaf);
		cursor->slot = before && at->len == 0
				       ? page_slots(cursor->copy)
				       : page_lower_bound(cursor->copy, at->bytes, at->len, &exact);
	}
	epoch_exit(&volume->epochs);
	pool_give_tickets(volume->pool, TREE_READ_TICKETS);
	return rc;
}

static int cursor_open(struct tree_cursor *cursor, struct tree *tree, const void *from,
		       size_t from_len, bool before)
{
	struct key key = key_make(from, from_len);

	*cursor = (struct tree_cursor){.tree = tree};
	cursor->copy = malloc(tree->volume->geo.page_size);
	if (cursor->copy == NULL)
		return -ENOMEM;
	return load_leaf(cursor, &key, before);
}

int tree_cursor_open(struct tree_cursor *cursor, struct tree *tree, const void *from,
		     size_t from_len)
{
	return cursor_open(cursor, tree, from, from_len, false);
}

int tree_cursor_open_before(struct tree_cursor *cursor, struct tree *tree, const void *from,
			    size_t from_len)
{
	return cursor_open(cursor, tree, from, from_len, true);
}

static void show(struct tree_cursor *cursor, unsigned slot)
{
	struct page_entry entry;

	page_key(cursor->copy, slot, &cursor->key);
	page_entry(cursor->copy, slot, &entry);
	cursor->value = entry.value;
	cursor->value_len = entry.value_len;
}

int tree_cursor_next(struct tree_cursor *cursor)
{
	while (cursor->slot >= page_slots(cursor->copy)) {
		struct key high;
		int rc;

		page_high(cursor->copy, &high);
		if (high.len == 0)
			return -BE_END;
		os_point("cursor:next_leaf");
		rc = load_leaf(cursor, &high, false);
		if (rc)
			return rc;
	}
	show(cursor, cursor->slot++);
	return 0;
}

int tree_cursor_prev(struct tree_cursor *cursor)
{
	while (cursor->slot == 0) {
		struct key low;
		int rc;

		page_low(cursor->copy, &low);
		if (low.len == 0)
			return -BE_END;
		os_point("cursor:previous_leaf");
		rc = load_leaf(cursor, &low, true);
		if (rc)
			return rc;
	}
	show(cursor, --cursor->slot);
	return 0;
}

void tree_cursor_close(struct tree_cursor *cursor)
{
	free(cursor->copy);
	cursor->copy = NULL;
}
