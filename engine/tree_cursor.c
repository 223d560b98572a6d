/*
 * Forward cursors: a private copy of one leaf at a time.
 *
 * INV-CURSOR-1: the next leaf is found by the copy's high fence, not by its
 * right link.  Fences of consecutive copies therefore meet whatever splits and
 * merges happened between, so no key range is read twice or skipped, and an
 * entry that exists throughout is seen exactly once.
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

static int load_leaf(struct tree_cursor *cursor, const struct key *from)
{
	struct volume *volume = cursor->tree->volume;
	struct frame *leaf;
	bool exact;
	int rc = 0;

	if (!cursor->in_epoch) {
		rc = pool_take_tickets(volume->pool, TREE_READ_TICKETS);
		if (rc)
			return rc;
		epoch_enter(&volume->epochs);
	}
	rc = tree_find(cursor->tree, from, 0, &leaf);
	if (rc == 0) {
		copy_page(cursor->copy, leaf->data, volume->geo.page_size);
		tree_unlatch(leaf, LATCH_S);
		pool_put(leaf);
		cursor->slot = page_lower_bound(cursor->copy, from->bytes, from->len, &exact);
	}
	if (!cursor->in_epoch) {
		epoch_exit(&volume->epochs);
		pool_give_tickets(volume->pool, TREE_READ_TICKETS);
	}
	return rc;
}

static int cursor_open(struct tree_cursor *cursor, struct tree *tree, const void *from,
		       size_t from_len, bool in_epoch)
{
	struct key key = key_make(from, from_len);

	*cursor = (struct tree_cursor){.tree = tree, .in_epoch = in_epoch};
	cursor->copy = malloc(tree->volume->geo.page_size);
	if (cursor->copy == NULL)
		return -ENOMEM;
	return load_leaf(cursor, &key);
}

int tree_cursor_open(struct tree_cursor *cursor, struct tree *tree, const void *from,
		     size_t from_len)
{
	return cursor_open(cursor, tree, from, from_len, false);
}

int tree_cursor_open_in_epoch(struct tree_cursor *cursor, struct tree *tree, const void *from,
			      size_t from_len)
{
	return cursor_open(cursor, tree, from, from_len, true);
}

int tree_cursor_next(struct tree_cursor *cursor)
{
	struct page_entry entry;

	while (cursor->slot >= page_slots(cursor->copy)) {
		struct key high;
		int rc;

		page_high(cursor->copy, &high);
		if (high.len == 0)
			return -BE_END;
		os_point("cursor:next_leaf");
		rc = load_leaf(cursor, &high);
		if (rc)
			return rc;
	}
	page_key(cursor->copy, cursor->slot, &cursor->key);
	page_entry(cursor->copy, cursor->slot, &entry);
	cursor->value = entry.value;
	cursor->value_len = entry.value_len;
	cursor->slot++;
	return 0;
}

void tree_cursor_close(struct tree_cursor *cursor)
{
	free(cursor->copy);
	cursor->copy = NULL;
}
