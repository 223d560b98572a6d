/*
 * Splits: publish the right sibling, then install it in the parent.
 *
 *	            parent                         parent
 *	          [.. L ..]                      [.. L  at ..]
 *	             |                              |    |
 *	(1)    L* ------> R          (2)            L -> R
 *	   [low, at)   [at, high)
 *	   * INCOMPLETE
 *
 * crash before (1) is logged: nothing happened; R's blocks were reserved in
 * memory only.  After (1): L* and R hold everything, R is reached through the
 * right link; whoever changes L next, or recovery, does (2).  After (2): done.
 * Each of (1) and (2) is one mtr.
 *
 * Usually (2) follows (1) at once: L's latch is handed over from the one mtr to the
 * other, and the parent that the descent came by is latched and verified; one
 * reservation serves both (INV-LOG-1).  A parent that is full, or no longer L's, is
 * left to tree_complete_split(), with nothing latched and a reservation of its own:
 * there a split of the parent may come first, by the same two steps a level up.
 *
 * The root stays where it is: when it has to be split, its contents first move
 * into a new page one level down, in one mtr.
 *
 * Latches: L, then R (left to right); L, then the parent (bottom up).  The bitmap page
 * is latched last, by the commit, for a moment (redo_bits_late()): all splits of a group
 * want it.  Never two pages of which one has to be found while the other is
 * held: pages are located and pinned first, latched and verified after.
 */
#include "engine/tree_internal.h"

#include "engine/mtr.h"
#include "engine/space.h"

uint64_t tree_smo_log_bytes(uint32_t page_size)
{
	/* One load of a page, the rest is small: publish and install take less than 600. */
	return BODY_BYTES_MAX(page_size) + 1024u;
}

int smo_begin(struct smo *smo, struct tree *tree, enum smo_mode mode, unsigned steps)
{
	struct volume *volume = tree->volume;
	int rc;

	*smo = (struct smo){.tree = tree, .sx = mode == SMO_INDEX_LATCH};
	smo->tickets = SMO_PAGES_MAX + (steps - 1) * SMO_STEP_PAGES;
	rc = pool_take_tickets(volume->pool, smo->tickets);
	if (rc)
		return rc;
	rc = redo_begin(&smo->redo, volume, steps * tree_smo_log_bytes(volume->geo.page_size));
	if (rc) {
		pool_give_tickets(volume->pool, smo->tickets);
		return rc;
	}
	tree_latch_index_s(tree);
	if (smo->sx) {
		if (latch_x(&tree->sx_latch))
			stat_add(&volume->stats, STAT_tree_waits_index, 1);
		stat_add(&volume->stats, STAT_tree_index_latch_sx, 1);
	}
	epoch_enter(&volume->epochs);
	smo->entered = true;
	return 0;
}

void smo_pin(struct smo *smo, struct frame *frame)
{
	check(smo->pinned_count < smo->tickets);
	smo->pinned[smo->pinned_count++] = frame;
}

void smo_end(struct smo *smo)
{
	if (!smo->entered)
		return;
	while (smo->pinned_count > 0)
		pool_put(smo->pinned[--smo->pinned_count]);
	epoch_exit(&smo->tree->volume->epochs);
	if (smo->sx)
		unlatch_x(&smo->tree->sx_latch);
	unlatch_s(&smo->tree->index_latch);
	redo_end(&smo->redo);
	pool_give_tickets(smo->tree->volume->pool, smo->tickets);
	smo->entered = false;
}

void smo_page_bits(struct smo *smo, struct frame *bitmap, uint64_t pageno, bool used)
{
	const struct geometry *geo = &smo->tree->volume->geo;
	uint64_t bit = (pageno - geo->groups_start) % geo->group_blocks;

	redo_bits_late(&smo->redo, bitmap, used, bit, geo->page_blocks);
}

struct key key_separator(const struct key *left, const struct key *right)
{
	struct key separator = *right;
	unsigned same = 0;

	check(key_compare(left->bytes, left->len, right->bytes, right->len) < 0);
	while (same < left->len && left->bytes[same] == right->bytes[same])
		same++;
	separator.len = (uint8_t)(same + 1);
	memset(separator.bytes + separator.len, 0, KEY_BYTES_MAX - separator.len);
	return separator;
}

/* ------------------------------------------------------ (1) publishing */

int smo_pin_new(struct smo *smo, struct new_page *new, unsigned level)
{
	struct volume *volume = smo->tree->volume;
	int rc = space_pin_bitmap(volume, new->pageno, &new->bitmap);

	if (rc)
		return rc;
	smo_pin(smo, new->bitmap);
	rc = pool_new(volume->pool, new->pageno, PAGE_TREE, smo->tree->id, level, &new->frame);
	if (rc)
		return rc;
	smo_pin(smo, new->frame);
	return 0;
}

void smo_raise_root(struct smo *smo, struct frame *root, struct new_page *new)
{
	struct redo *redo = &smo->redo;
	unsigned level = tree_page(root->data)->head.level;
	const struct key none = {.len = 0};
	le64 child = le64_make(new->pageno);
	unsigned count = page_slots(root->data);

	check(level + 1 < TREE_LEVELS_MAX);
	latch_x(&new->frame->latch);
	redo_page(redo, new->frame, REC_PAGE_INIT,
		  redo_page_init(redo->body, PAGE_TREE, smo->tree->id, (uint8_t)level, 0, &none,
				 &none, 0));
	if (count > 0)
		redo_page(redo, new->frame, REC_LOAD, redo_load(redo->body, root->data, 0, count));
	redo_page(redo, root, REC_PAGE_INIT,
		  redo_page_init(redo->body, PAGE_TREE, smo->tree->id, (uint8_t)(level + 1), 0,
				 &none, &none, 0));
	redo_page(redo, root, REC_INSERT,
		  redo_insert(redo->body, 0, none.bytes, 0, &child, sizeof(child)));
	smo_page_bits(smo, new->bitmap, new->pageno, true);
	stat_add(&smo->tree->volume->stats, STAT_tree_split_redo_bytes, redo->len);
	redo_commit(redo);
	latch_set_order(&root->latch, (uint64_t)smo->tree->id << 8 | (level + 1));
	unlatch_x(&new->frame->latch);
	stat_add(&smo->tree->volume->stats, STAT_tree_root_raises, 1);
}

void smo_move_right(struct smo *smo, struct frame *left, const struct key *at,
		    struct new_page *new)
{
	struct redo *redo = &smo->redo;
	const struct disk_tree_page *page = tree_page(left->data);
	unsigned count = page_slots(left->data);
	bool exact;
	unsigned keep = page_lower_bound(left->data, at->bytes, at->len, &exact);
	struct key high;

	page_high(left->data, &high);
	redo_page(redo, new->frame, REC_PAGE_INIT,
		  redo_page_init(redo->body, PAGE_TREE, smo->tree->id, page->head.level, 0, at,
				 &high, le64_get(page->right)));
	if (keep < count)
		redo_page(redo, new->frame, REC_LOAD,
			  redo_load(redo->body, left->data, keep, count - keep));
	redo_page(redo, left, REC_SPLIT_LEFT,
		  redo_split_left(redo->body, keep, at, new->pageno));
}

void smo_commit_split(struct smo *smo, unsigned level)
{
	struct stats *stats = &smo->tree->volume->stats;

	stat_add(stats, STAT_tree_split_redo_bytes, smo->redo.len);
	redo_commit(&smo->redo);
	stat_add(stats, level == 0 ? STAT_tree_splits_leaf : STAT_tree_splits_internal, 1);
}

/* Step (1) for the page `left`, latched X. */
static void publish(struct smo *smo, struct frame *left, const struct key *at, struct new_page *new)
{
	latch_x(&new->frame->latch);
	smo_move_right(smo, left, at, new);
	smo_page_bits(smo, new->bitmap, new->pageno, true);
	smo_commit_split(smo, tree_page(left->data)->head.level);
	unlatch_x(&new->frame->latch);
}

/* What step (2) works on. */
struct pending {
	struct frame *left;
	struct key at;      /* high fence of left = low fence of right */
	uint64_t right;
	unsigned level;
	bool above;         /* the parent turned out to be INCOMPLETE itself */
};

static bool is_parent_for(const void *page, const struct pending *pending)
{
	return !page_is_dead(page) && tree_page(page)->head.level == pending->level + 1 &&
	       page_covers(page, pending->at.bytes, pending->at.len);
}

static bool has_entry(const void *page, const struct key *key)
{
	bool exact;

	page_lower_bound(page, key->bytes, key->len, &exact);
	return exact;
}

/* Both pages latched X and verified: the mtr of step (2). */
static void install(struct smo *smo, struct frame *parent, struct pending *pending)
{
	struct redo *redo = &smo->redo;
	le64 child = le64_make(pending->right);
	bool exact;
	unsigned slot = page_lower_bound(parent->data, pending->at.bytes, pending->at.len, &exact);

	redo_page(redo, parent, REC_INSERT,
		  redo_insert(redo->body, slot, pending->at.bytes, pending->at.len, &child,
			      sizeof(child)));
	redo_page(redo, pending->left, REC_FLAGS,
		  redo_flags(redo->body, tree_page(pending->left->data)->head.flags &
						 (uint8_t)~PAGE_INCOMPLETE));
	tree_note_insert(parent, slot);
	stat_add(&smo->tree->volume->stats, STAT_tree_split_redo_bytes, redo->len);
	redo_commit(redo);
	pending->above = page_is_incomplete(parent->data);
	stat_add(&smo->tree->volume->stats, STAT_tree_parent_installs, 1);
}

enum split_result {
	SPLIT_DONE,       /* `at` is a boundary, or cannot be one any more */
	SPLIT_INSTALLED,  /* both steps are done */
	SPLIT_PUBLISHED,  /* the first one; the parent was not as remembered, or is full */
	SPLIT_RAISED,     /* the root: once more */
	SPLIT_FOREIGN,    /* an incomplete split of somebody else comes first */
};

/*
 * The page to split, latched X, and its parent, pinned and not latched: what is
 * remembered of it is verified when it is latched.  NULL: none, it is the root.
 */
static int find_both(struct smo *smo, const struct key *at, unsigned level, struct frame **parent,
		     struct frame **left)
{
	struct tree *tree = smo->tree;
	const void *page;
	uint64_t child;
	int rc = tree_descend(tree, at, level + 1, LATCH_S, parent);

	if (rc) {
		*parent = NULL;
		return rc == -BE_NOTFOUND ? tree_descend(tree, at, level, LATCH_X, left) : rc;
	}
	smo_pin(smo, *parent);
	page = (*parent)->data;
	child = page_child(page, page_child_slot(page, at->bytes, at->len));
	tree_unlatch(*parent, LATCH_S);
	os_point("split:located");
	rc = pool_get(tree->volume->pool, child, PAGE_TREE, tree->id, left);
	if (rc)
		return rc;
	tree_latch(tree, *left, LATCH_X);
	page = (*left)->data;
	if (!page_is_dead(page) && tree_page(page)->head.level == level &&
	    page_covers(page, at->bytes, at->len))
		return 0;
	tree_unlatch(*left, LATCH_X);
	pool_put(*left);
	return tree_descend(tree, at, level, LATCH_X, left);
}

/*
 * Step (2) at once, the latch of the left page being handed over from one mtr to the
 * next: nobody sees the page INCOMPLETE, and nothing has to be found again.
 * false: not possible; the page stays INCOMPLETE.
 */
static bool install_at_once(struct smo *smo, struct frame *parent, struct pending *pending)
{
	bool fits;

	if (parent == NULL)
		return false;
	redo_again(&smo->redo);
	os_point("split:handover");
	tree_latch(smo->tree, parent, LATCH_X);
	fits = is_parent_for(parent->data, pending) && !has_entry(parent->data, &pending->at) &&
	       smo_parent_has_room(smo->tree, parent->data);
	if (fits) {
		install(smo, parent, pending);
		stat_add(&smo->tree->volume->stats, STAT_tree_handovers, 1);
	}
	tree_unlatch(parent, LATCH_X);
	return fits;
}

/*
 * One try.  *used: the new page became part of the tree.  *above: a split of the parent
 * was met that has to be completed.
 */
static int try_split(struct smo *smo, const struct key *at, unsigned level, struct new_page *new,
		     enum split_result *result, bool *used, bool *above)
{
	struct frame *left, *parent;
	bool exact;
	int rc;

	rc = smo_pin_new(smo, new, level);
	if (rc)
		return rc;
	rc = find_both(smo, at, level, &parent, &left);
	if (rc == -BE_NOTFOUND) {
		*result = SPLIT_DONE; /* the root has been lowered below this level */
		return 0;
	}
	if (rc)
		return rc;
	smo_pin(smo, left);

	page_lower_bound(left->data, at->bytes, at->len, &exact);
	if (key_compare(at->bytes, at->len, tree_page(left->data)->low,
			tree_page(left->data)->low_len) == 0 ||
	    (level > 0 && !exact)) {
		*result = SPLIT_DONE;
	} else if (page_is_incomplete(left->data)) {
		*result = SPLIT_FOREIGN;
	} else if (atomic_load_explicit(&left->pageno, memory_order_relaxed) == smo->tree->root) {
		smo_raise_root(smo, left, new);
		*result = SPLIT_RAISED;
		*used = true;
	} else {
		struct pending pending = {
			.left = left, .at = *at, .right = new->pageno, .level = level};

		publish(smo, left, at, new);
		*used = true;
		*result = install_at_once(smo, parent, &pending) ? SPLIT_INSTALLED
								 : SPLIT_PUBLISHED;
		*above = pending.above;
	}
	unlatch_x(&left->latch);
	return 0;
}

int smo_take_page(struct tree *tree, unsigned level, unsigned mtr_flags, uint64_t *pageno)
{
	struct space *space = tree->volume->space;
	unsigned flags = mtr_flags & MTR_PRIVILEGED ? SPACE_PRIVILEGED : 0;
	int rc;

	while ((rc = space_take_index_page(space, tree->id, level, flags, tree->root, pageno)) ==
	       -BE_AGAIN) {
		stat_add(&tree->volume->stats, STAT_tree_pool_empty_retries, 1);
		rc = space_refill_pages(space, flags);
		if (rc)
			return rc;
	}
	return rc;
}

int tree_split(struct tree *tree, const struct key *at, unsigned level, unsigned mtr_flags)
{
	struct volume *volume = tree->volume;
	enum split_result result;

	if (volume_smo(volume) == SMO_INDEX_LATCH)
		return tree_split_classic(tree, at, level, mtr_flags);
	do {
		struct new_page new = {0};
		struct smo smo;
		bool used = false, above = false;
		int rc = smo_take_page(tree, level, mtr_flags, &new.pageno);

		if (rc)
			return rc;
		rc = smo_begin(&smo, tree, SMO_BLINK, 1);
		if (rc == 0)
			rc = try_split(&smo, at, level, &new, &result, &used, &above);
		if (used)
			space_used(volume->space, new.pageno, volume->geo.page_blocks);
		else
			space_untake_page(volume->space, new.pageno);
		smo_end(&smo);
		if (rc)
			return rc;
		if (result == SPLIT_FOREIGN || result == SPLIT_PUBLISHED) {
			os_point("split:published");
			rc = tree_complete_split(tree, at, level, mtr_flags);
		} else if (above) {
			rc = tree_complete_split(tree, at, level + 1, mtr_flags);
		}
		if (rc)
			return rc;
	} while (result == SPLIT_RAISED || result == SPLIT_FOREIGN);
	return 0;
}

/* ------------------------------------------------------ (2) installing */

/*
 * Finds the INCOMPLETE page: the one that covers key, or, since key may lie in
 * the right half, the left neighbour that ends where key's page begins.
 */
static int find_pending(struct smo *smo, const struct key *key, unsigned level,
			struct pending *pending)
{
	struct frame *frame;
	struct key low;
	int rc = tree_descend(smo->tree, key, level, LATCH_S, &frame);

	if (rc)
		return rc;
	if (!page_is_incomplete(frame->data)) {
		page_low(frame->data, &low);
		tree_unlatch(frame, LATCH_S);
		pool_put(frame);
		if (low.len == 0)
			return -BE_NOTFOUND;
		rc = tree_descend_before(smo->tree, &low, level, &frame);
		if (rc)
			return rc;
	}
	smo_pin(smo, frame);
	if (page_is_incomplete(frame->data)) {
		pending->level = level;
		pending->left = frame;
		page_high(frame->data, &pending->at);
		pending->right = le64_get(tree_page(frame->data)->right);
	} else {
		rc = -BE_NOTFOUND;
	}
	tree_unlatch(frame, LATCH_S);
	return rc;
}

static bool still_pending(const struct pending *pending)
{
	const void *page = pending->left->data;
	struct key high;

	page_high(page, &high);
	return !page_is_dead(page) && page_is_incomplete(page) && key_equal(&high, &pending->at) &&
	       le64_get(tree_page(page)->right) == pending->right;
}

bool smo_parent_has_room(struct tree *tree, const void *page)
{
	return page_room(page, tree->volume->geo.page_size) >=
	       page_cost(KEY_BYTES_MAX, sizeof(le64));
}

struct key smo_parent_boundary(const struct frame *parent, const struct key *at)
{
	const void *page = parent->data;
	unsigned count = page_slots(page);
	bool exact;
	unsigned slot = page_lower_bound(page, at->bytes, at->len, &exact);
	uint64_t bytes = 0, before = 0;
	struct balance balance = {.cost = UINT64_MAX};
	enum boundary_kind kind;
	struct key key, best = {0};

	check(count >= 2 && slot > 0 && !exact);
	for (unsigned i = 0; i < count; i++) {
		bytes += page_slot_bytes(page, i);
		before += i < slot ? page_slot_bytes(page, i) : 0;
	}
	kind = tree_boundary_kind(parent, before, bytes - before);
	/* A boundary is one of the keys: the last before the new one goes along with it. */
	if (kind != BOUNDARY_BALANCED) {
		unsigned first = kind == BOUNDARY_BEFORE_NEW ? slot - 1 : slot;

		if (first > 0) {
			page_key(page, first, &best);
			return best;
		}
	}
	balance.total = bytes;
	before = page_slot_bytes(page, 0);
	for (unsigned i = 1; i < count; i++) {
		page_key(page, i, &key);
		if (balance_offer(&balance, before, key.len))
			best = key;
		before += page_slot_bytes(page, i);
	}
	return best;
}

/*
 * One try of step (2).  *full: the parent has to be split at *boundary first.  *above:
 * the parent's own split has to be completed.
 */
static int try_install(struct smo *smo, const struct key *key, unsigned level, bool *full,
		       bool *above, struct key *boundary)
{
	uint32_t page_size = smo->tree->volume->geo.page_size;
	struct pending pending = {.above = false};
	struct frame *parent;
	int rc = find_pending(smo, key, level, &pending);

	if (rc)
		return rc == -BE_NOTFOUND ? 0 : rc;
	rc = tree_locate(smo->tree, &pending.at, level + 1, &parent);
	if (rc)
		return rc == -BE_NOTFOUND ? -BE_AGAIN : rc;
	smo_pin(smo, parent);
	os_point("split:install");

	tree_latch(smo->tree, pending.left, LATCH_X);
	if (!still_pending(&pending)) { /* INV-TREE-6 */
		tree_unlatch(pending.left, LATCH_X);
		return -BE_AGAIN;
	}
	tree_latch(smo->tree, parent, LATCH_X);
	if (!is_parent_for(parent->data, &pending)) {
		rc = -BE_AGAIN;
	} else if (has_entry(parent->data, &pending.at)) {
		rc = corrupt_at(smo->tree->volume,
				atomic_load_explicit(&parent->pageno, memory_order_relaxed),
				"tree_split", "INCOMPLETE page whose sibling has an entry");
	} else if (page_room(parent->data, page_size) < page_cost(pending.at.len, sizeof(le64))) {
		*full = true;
		*boundary = smo_parent_boundary(parent, &pending.at);
	} else {
		install(smo, parent, &pending);
		*above = pending.above;
	}
	unlatch_x(&parent->latch);
	unlatch_x(&pending.left->latch);
	return rc;
}

int tree_complete_split(struct tree *tree, const struct key *key, unsigned level,
			unsigned mtr_flags)
{
	for (;;) {
		struct smo smo;
		struct key boundary;
		bool full = false, above = false;
		int rc = smo_begin(&smo, tree, SMO_BLINK, 1);

		if (rc)
			return rc;
		rc = try_install(&smo, key, level, &full, &above, &boundary);
		smo_end(&smo);
		if (rc == -BE_AGAIN)
			continue;
		if (rc == 0 && above) {
			level++;
			continue;
		}
		if (rc || !full)
			return rc;
		rc = tree_split(tree, &boundary, level + 1, mtr_flags);
		if (rc)
			return rc;
	}
}
