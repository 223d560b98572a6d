/*
 * Merges: a sparse page's records move into its left neighbour, the page dies.
 *
 *	     parent                      parent
 *	 [.. L  R  N ..]             [.. L  N ..]
 *	     |  |                        |
 *	     L->R->N       one mtr       L------->N      R: DEAD, freed
 *
 * INV-TREE-1: L and R have entries side by side in one parent, and neither is
 * INCOMPLETE.  An empty page is the case where nothing has to move, however full the
 * other is.  A page that has no left neighbour with room takes its right one in.
 *
 * crash before the mtr is logged: nothing happened.  After: done; the blocks of
 * R were given back by the same mtr, and are reused only once no reader can hold
 * R's number (epoch), and the checkpoint has passed (INV-REC-1).
 *
 * A reader that still finds R sees DEAD and restarts from the root.  One that
 * reads L before and after sees either fence; both are right at their time.
 *
 * A root that has a single child C takes in what that has, in one mtr, and the tree is
 * a level lower; the root's number stays.  Only down to level 1: a root that was a
 * leaf once more would be latched as one by who changes contents, beside leaves that
 * were found before, and an index that small is not worth it.
 *
 *	root [C]                root [.. L N ..]
 *	     |        one mtr        |  |
 *	C [.. L N ..]  ----->        L->N               C: DEAD, freed
 *
 * Who remembers the root as it was finds another level there, and looks again; who
 * has read C's number finds it DEAD.
 *
 * INV-TREE-6: nobody waits for a latch while he holds a DEAD page: each page is judged
 * as soon as it is latched.  So the order of the root's latch may fall with its level:
 * the pages that its waiters hold are of the levels below, or, if C was their parent,
 * are found DEAD and let go.
 */
#include "engine/tree_internal.h"

#include "engine/space.h"

/* Below a quarter full a page is worth a try; a merged one stays below three quarters. */
static bool is_sparse(const void *page, uint32_t page_size)
{
	uint32_t capacity = page_capacity(page_size);

	return capacity - page_room(page, page_size) < capacity / 4;
}

/* The prefix that [low of left, high of right) allows: shorter than either page's. */
static unsigned common_prefix(const void *left, const void *right)
{
	const struct disk_tree_page *l = tree_page(left), *r = tree_page(right);
	unsigned prefix = 0;

	while (prefix < l->low_len && prefix < r->high_len && l->low[prefix] == r->high[prefix])
		prefix++;
	return prefix;
}

/*
 * The bytes of all records under the common prefix are what REC_FENCE and REC_LOAD need.
 * Some room must be left, or the next insert would split again; not if nothing moves.
 */
static bool fit_together(const void *left, const void *right, uint32_t page_size)
{
	uint32_t capacity = page_capacity(page_size);
	uint32_t bytes = page_load_bytes(left) + page_load_bytes(right) -
			 common_prefix(left, right) * (page_slots(left) + page_slots(right));

	if (page_slots(left) == 0 || page_slots(right) == 0)
		return bytes <= capacity;
	return bytes <= capacity / 4 * 3;
}

struct pair {
	uint64_t left, right;
	struct key at;               /* low fence of right */
	struct frame *parent, *left_frame, *right_frame, *bitmap;
};

enum side { SIDE_LEFT, SIDE_RIGHT, SIDES };

/*
 * Reads the parent for the neighbour, on one side, of the page whose low fence is `low`.
 * -BE_NOTFOUND: none under this parent; *alone: the page is its parent's only child.
 */
static int choose_pair(struct smo *smo, const struct key *low, uint64_t pageno, unsigned level,
		       enum side side, struct pair *pair, bool *alone)
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
	if (!exact || page_child(page, slot) != pageno || count < 2 ||
	    (side == SIDE_LEFT ? slot == 0 : slot + 1 == count)) {
		*alone = exact && count == 1;
		rc = -BE_NOTFOUND;
	} else {
		unsigned right = side == SIDE_LEFT ? slot : slot + 1;

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
	rc = space_pin_bitmap(volume, pair->right, &pair->bitmap);
	if (rc)
		return rc;
	smo_pin(smo, pair->bitmap);
	return 0;
}

/* All three latched X and alive: do the invariants still allow it? */
static bool may_merge(struct smo *smo, const struct pair *pair, unsigned level, unsigned *slot)
{
	const void *left = pair->left_frame->data;
	const void *right = pair->right_frame->data;
	const void *parent = pair->parent->data;
	const struct disk_tree_page *l = tree_page(left), *r = tree_page(right);
	bool exact;

	if (page_is_incomplete(left) || page_is_incomplete(right))
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

/* Latched X one after the other; false: one of them is DEAD, none is latched. */
static bool latch_pair(struct smo *smo, struct pair *pair)
{
	struct frame *frame[] = {pair->left_frame, pair->right_frame, pair->parent};
	unsigned count = 0;

	while (count < array_count(frame)) {
		tree_latch(smo->tree, frame[count], LATCH_X);
		if (page_is_dead(frame[count++]->data))
			break;
	}
	if (!page_is_dead(frame[count - 1]->data))
		return true;
	while (count > 0)
		tree_unlatch(frame[--count], LATCH_X);
	return false;
}

static void unlatch_pair(struct pair *pair)
{
	unlatch_x(&pair->parent->latch);
	unlatch_x(&pair->right_frame->latch);
	unlatch_x(&pair->left_frame->latch);
}

/* ------------------------------------------------------- lowering the root */

struct lowering {
	struct frame *root, *child, *bitmap;
	uint64_t child_pageno;
};

/* -BE_NOTFOUND: the root has other children, or leaves for children. */
static int pin_lowering(struct smo *smo, struct lowering *low)
{
	struct volume *volume = smo->tree->volume;
	const void *page;
	int rc = pool_get(volume->pool, smo->tree->root, PAGE_TREE, smo->tree->id, &low->root);

	if (rc)
		return rc;
	smo_pin(smo, low->root);
	page = low->root->data;
	tree_latch(smo->tree, low->root, LATCH_S);
	if (tree_page(page)->head.level < 2 || page_slots(page) != 1)
		rc = -BE_NOTFOUND;
	else
		low->child_pageno = page_child(page, 0);
	tree_unlatch(low->root, LATCH_S);
	if (rc)
		return rc;
	rc = pool_get(volume->pool, low->child_pageno, PAGE_TREE, smo->tree->id, &low->child);
	if (rc)
		return rc;
	smo_pin(smo, low->child);
	rc = space_pin_bitmap(volume, low->child_pageno, &low->bitmap);
	if (rc)
		return rc;
	smo_pin(smo, low->bitmap);
	return 0;
}

static bool may_lower(const struct lowering *low)
{
	const void *root = low->root->data, *child = low->child->data;
	unsigned level = tree_page(root)->head.level;

	return level >= 2 && page_slots(root) == 1 && page_child(root, 0) == low->child_pageno &&
	       tree_page(child)->head.level == level - 1 && !page_is_incomplete(child) &&
	       le64_get(tree_page(child)->right) == 0;
}

static void lower(struct smo *smo, const struct lowering *low)
{
	struct redo *redo = &smo->redo;
	struct volume *volume = smo->tree->volume;
	uint8_t level = tree_page(low->child->data)->head.level;
	const struct key none = {.len = 0};

	redo_page(redo, low->root, REC_PAGE_INIT,
		  redo_page_init(redo->body, PAGE_TREE, smo->tree->id, level, 0, &none, &none, 0));
	redo_page(redo, low->root, REC_LOAD,
		  redo_load(redo->body, low->child->data, 0, page_slots(low->child->data)));
	redo_page(redo, low->child, REC_FLAGS, redo_flags(redo->body, PAGE_DEAD));
	smo_page_bits(smo, low->bitmap, low->child_pageno, false);
	redo_note(redo, REC_FREE_PAGE, varint_put(redo->body, low->child_pageno));
	redo_commit(redo);
	latch_lower_order(&low->root->latch, (uint64_t)smo->tree->id << 8 | level);
	space_freed(volume->space, low->child_pageno, volume->geo.page_blocks, redo->lsn, true);
	stat_add(&volume->stats, STAT_tree_root_lowerings, 1);
}

/* *again: it was lowered, and may be once more. */
static int try_lower(struct smo *smo, bool *again)
{
	struct lowering low;
	int rc = pin_lowering(smo, &low);

	if (rc)
		return rc;
	os_point("lower:pinned");
	tree_latch(smo->tree, low.child, LATCH_X);
	if (page_is_dead(low.child->data)) {
		tree_unlatch(low.child, LATCH_X);
		return 0;
	}
	tree_latch(smo->tree, low.root, LATCH_X);
	if (may_lower(&low)) {
		lower(smo, &low);
		*again = true;
	}
	unlatch_x(&low.root->latch);
	unlatch_x(&low.child->latch);
	return 0;
}

static int lower_root(struct tree *tree)
{
	bool again;
	int rc;

	do {
		struct smo smo;

		rc = smo_begin(&smo, tree, volume_smo(tree->volume), 1);
		if (rc)
			return rc;
		again = false;
		rc = try_lower(&smo, &again);
		smo_end(&smo);
	} while (again);
	return rc == -BE_NOTFOUND ? 0 : rc;
}

/* -------------------------------------------------------------- from below */

struct shrinking {
	enum side side;
	bool up;        /* the parent may be sparse now, or has only this child */
	bool at_root;   /* the page is the root */
	bool ended;     /* merged, or nothing to merge: the other side need not be tried */
};

/* One try with the neighbour on one side. */
static int try_shrink(struct smo *smo, const struct key *key, unsigned level,
		      struct shrinking *state)
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
	state->at_root = pageno == smo->tree->root;
	state->ended = !sparse || state->at_root;
	if (state->ended)
		return 0;
	rc = choose_pair(smo, &low, pageno, level, state->side, &pair, &state->up);
	if (rc == 0)
		rc = pin_pair(smo, &pair);
	if (rc)
		return rc;
	os_point("merge:pinned");

	if (!latch_pair(smo, &pair))
		return 0;
	if (may_merge(smo, &pair, level, &slot)) {
		merge(smo, &pair, slot);
		state->up = is_sparse(pair.parent->data, page_size);
		state->ended = true;
	}
	unlatch_pair(&pair);
	return 0;
}

/* Left first: there the page itself goes. */
static int shrink_level(struct tree *tree, const struct key *key, unsigned level,
			struct shrinking *state)
{
	*state = (struct shrinking){0};
	for (; state->side < SIDES && !state->ended; state->side++) {
		struct smo smo;
		int rc = smo_begin(&smo, tree, volume_smo(tree->volume), 1);

		if (rc)
			return rc;
		rc = try_shrink(&smo, key, level, state);
		smo_end(&smo);
		if (rc && rc != -BE_NOTFOUND)
			return rc;
	}
	return 0;
}

int tree_shrink(struct tree *tree, const struct key *key, unsigned level)
{
	struct shrinking state = {.up = true};

	for (; state.up && level + 1 < TREE_LEVELS_MAX; level++) {
		int rc = shrink_level(tree, key, level, &state);

		if (rc)
			return rc;
	}
	return state.at_root && level > 2 ? lower_root(tree) : 0;
}
