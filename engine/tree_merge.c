/*
 * Merges: a sparse page's records move into its left neighbour, the page dies.
 *
 *	     parent                      parent
 *	 [.. L  R  N ..]             [.. L  N ..]
 *	     |  |                        |
 *	     L->R->N       one mtr       L------->N      R: DEAD, freed
 *
 * INV-TREE-1: L and R have entries side by side in one parent, and neither is
 * INCOMPLETE.  An empty page is the case where nothing has to move.  The first
 * child of a parent takes its right neighbour in instead of going itself.
 *
 * crash before the mtr is logged: nothing happened.  After: done; the blocks of
 * R were given back by the same mtr, and are reused only once no reader can hold
 * R's number (epoch), and the checkpoint has passed (INV-REC-1).
 *
 * A reader that still finds R sees DEAD and restarts from the root.  One that
 * reads L before and after sees either fence; both are right at their time.
 */
#include "engine/tree_internal.h"

#include "engine/space.h"

/* Below a quarter full a page is worth a try; a merged one stays below three quarters. */
static bool is_sparse(const void *page, uint32_t page_size)
{
	return page_load_bytes(page) < page_capacity(page_size) / 4;
}

static bool fit_together(const void *left, const void *right, uint32_t page_size)
{
	return page_load_bytes(left) + page_load_bytes(right) <= page_capacity(page_size) / 4 * 3;
}

struct pair {
	uint64_t left, right;
	struct key at;               /* low fence of right */
	struct frame *parent, *left_frame, *right_frame, *bitmap;
};

/*
 * Reads the parent for the neighbours of the page whose low fence is `low`.
 * -BE_NOTFOUND: no merge possible under this parent; *alone: the page is its
 * parent's only child.
 */
static int choose_pair(struct smo *smo, const struct key *low, uint64_t pageno, unsigned level,
		       struct pair *pair, bool *alone)
{
	const void *page;
	unsigned slot, count;
	bool exact;
	int rc = tree_descend(smo->tree, low, level + 1, LATCH_S, &pair->parent);

	if (rc)
		return rc;
	smo_pin(smo, pair->parent);
	page = pair->parent->data;
	count = page_slots(page);
	slot = page_lower_bound(page, low->bytes, low->len, &exact);
	if (!exact || page_child(page, slot) != pageno || count < 2) {
		*alone = exact && count == 1;
		rc = -BE_NOTFOUND;
	} else {
		unsigned right = slot > 0 ? slot : 1;

		pair->left = page_child(page, right - 1);
		pair->right = page_child(page, right);
		page_key(page, right, &pair->at);
	}
	tree_unlatch(pair->parent, LATCH_S);
	return rc;
}

static int pin_pair(struct smo *smo, struct pair *pair)
{
	struct volume *volume = smo->tree->volume;
	int rc = pool_get(volume->pool, pair->left, PAGE_TREE, smo->tree->id, &pair->left_frame);

	if (rc)
		return rc;
	smo_pin(smo, pair->left_frame);
	rc = pool_get(volume->pool, pair->right, PAGE_TREE, smo->tree->id, &pair->right_frame);
	if (rc)
		return rc;
	smo_pin(smo, pair->right_frame);
	rc = pool_get(volume->pool, space_bitmap_page(volume, pair->right), PAGE_BITMAP, 0,
		      &pair->bitmap);
	if (rc)
		return rc;
	smo_pin(smo, pair->bitmap);
	return 0;
}

/* All three latched X: do the invariants still allow it? */
static bool may_merge(struct smo *smo, const struct pair *pair, unsigned level, unsigned *slot)
{
	const void *left = pair->left_frame->data;
	const void *right = pair->right_frame->data;
	const void *parent = pair->parent->data;
	const struct disk_tree_page *l = tree_page(left), *r = tree_page(right);
	bool exact;

	if (page_is_dead(left) || page_is_dead(right) || page_is_dead(parent) ||
	    page_is_incomplete(left) || page_is_incomplete(right))
		return false;
	if (l->head.level != level || r->head.level != level ||
	    tree_page(parent)->head.level != level + 1 || le64_get(l->right) != pair->right)
		return false;
	if (!page_covers(parent, pair->at.bytes, pair->at.len))
		return false;
	*slot = page_lower_bound(parent, pair->at.bytes, pair->at.len, &exact);
	if (!exact || *slot == 0 || page_child(parent, *slot) != pair->right ||
	    page_child(parent, *slot - 1) != pair->left)
		return false;
	return fit_together(left, right, smo->tree->volume->geo.page_size);
}

static void merge(struct smo *smo, const struct pair *pair, unsigned slot)
{
	struct redo *redo = &smo->redo;
	struct volume *volume = smo->tree->volume;
	const void *right = pair->right_frame->data;
	unsigned count = page_slots(right);
	struct key high;

	page_high(right, &high);
	redo_page(redo, pair->left_frame, REC_FENCE,
		  redo_fence(redo->body, &high, le64_get(tree_page(right)->right)));
	if (count > 0)
		redo_page(redo, pair->left_frame, REC_LOAD, redo_load(redo->body, right, 0, count));
	redo_page(redo, pair->right_frame, REC_FLAGS, redo_flags(redo->body, PAGE_DEAD));
	redo_page(redo, pair->parent, REC_DELETE, redo_delete(redo->body, slot));
	smo_page_bits(smo, pair->bitmap, pair->right, false);
	redo_note(redo, REC_FREE_PAGE, varint_put(redo->body, pair->right));
	redo_commit(redo);
	space_freed(volume->space, pair->right, volume->geo.page_blocks, redo->lsn, true);
	stat_add(&volume->stats, STAT_tree_merges, 1);
}

/* One try; *up: the parent may be sparse now, or has only this child. */
static int try_shrink(struct smo *smo, const struct key *key, unsigned level, bool *up)
{
	uint32_t page_size = smo->tree->volume->geo.page_size;
	struct pair pair = {0};
	struct frame *page;
	struct key low;
	uint64_t pageno;
	unsigned slot;
	bool sparse;
	int rc = tree_descend(smo->tree, key, level, LATCH_S, &page);

	if (rc)
		return rc;
	page_low(page->data, &low);
	pageno = atomic_load_explicit(&page->pageno, memory_order_relaxed);
	sparse = is_sparse(page->data, page_size) && !page_is_incomplete(page->data);
	tree_unlatch(page, LATCH_S);
	pool_put(page);
	if (!sparse || pageno == smo->tree->root)
		return 0;
	rc = choose_pair(smo, &low, pageno, level, &pair, up);
	if (rc)
		return rc;
	rc = pin_pair(smo, &pair);
	if (rc)
		return rc;
	os_point("merge:pinned");

	tree_latch(smo->tree, pair.left_frame, LATCH_X);
	tree_latch(smo->tree, pair.right_frame, LATCH_X);
	tree_latch(smo->tree, pair.parent, LATCH_X);
	if (may_merge(smo, &pair, level, &slot)) {
		merge(smo, &pair, slot);
		*up = is_sparse(pair.parent->data, page_size);
	}
	unlatch_x(&pair.parent->latch);
	unlatch_x(&pair.right_frame->latch);
	unlatch_x(&pair.left_frame->latch);
	return 0;
}

int tree_shrink(struct tree *tree, const struct key *key, unsigned level)
{
	bool up = true;

	for (; up && level + 1 < TREE_LEVELS_MAX; level++) {
		struct smo smo;
		int rc = smo_begin(&smo, tree, volume_smo(tree->volume), 1);

		if (rc)
			return rc;
		up = false;
		rc = try_shrink(&smo, key, level, &up);
		smo_end(&smo);
		if (rc && rc != -BE_NOTFOUND)
			return rc;
	}
	return 0;
}
