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
 * Each of (1) and (2) is one mtr with a reservation of its own (INV-LOG-1).
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
	/* One load of a page, the rest is small. */
	return BODY_BYTES_MAX(page_size) + 1024u;
}

int smo_begin(struct smo *smo, struct tree *tree)
{
	struct volume *volume = tree->volume;
	int rc;

	*smo = (struct smo){.tree = tree};
	rc = pool_take_tickets(volume->pool, SMO_PAGES_MAX);
	if (rc)
		return rc;
	rc = redo_begin(&smo->redo, volume, tree_smo_log_bytes(volume->geo.page_size));
	if (rc) {
		pool_give_tickets(volume->pool, SMO_PAGES_MAX);
		return rc;
	}
	latch_s(&tree->index_latch);
	epoch_enter(&volume->epochs);
	smo->entered = true;
	return 0;
}

void smo_pin(struct smo *smo, struct frame *frame)
{
	check(smo->pinned_count < SMO_PAGES_MAX);
	smo->pinned[smo->pinned_count++] = frame;
}

void smo_end(struct smo *smo)
{
	if (!smo->entered)
		return;
	while (smo->pinned_count > 0)
		pool_put(smo->pinned[--smo->pinned_count]);
	epoch_exit(&smo->tree->volume->epochs);
	unlatch_s(&smo->tree->index_latch);
	redo_end(&smo->redo);
	pool_give_tickets(smo->tree->volume->pool, SMO_PAGES_MAX);
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

struct new_page {
	uint64_t pageno;
	struct frame *frame, *bitmap;
};

/* Pins frames for a page from the page pool.  Nothing latched yet but the index, S. */
static int new_page_pin(struct smo *smo, struct new_page *new, unsigned level)
{
	struct volume *volume = smo->tree->volume;
	int rc = pool_get(volume->pool, space_bitmap_page(volume, new->pageno), PAGE_BITMAP, 0,
			  &new->bitmap);

	if (rc)
		return rc;
	smo_pin(smo, new->bitmap);
	rc = pool_new(volume->pool, new->pageno, PAGE_TREE, smo->tree->id, level, &new->frame);
	if (rc)
		return rc;
	smo_pin(smo, new->frame);
	return 0;
}

/* Moves all of the root, latched X, into a new page below it. */
static void raise_root(struct smo *smo, struct frame *root, struct new_page *new)
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
	redo_commit(redo);
	latch_set_order(&root->latch, (uint64_t)smo->tree->id << 8 | (level + 1));
	unlatch_x(&new->frame->latch);
	stat_add(&smo->tree->volume->stats, STAT_tree_root_raises, 1);
}

/* Step (1) for the page `left`, latched X: what is >= at moves into the new page. */
static void publish(struct smo *smo, struct frame *left, const struct key *at, struct new_page *new)
{
	struct redo *redo = &smo->redo;
	const struct disk_tree_page *page = tree_page(left->data);
	unsigned count = page_slots(left->data);
	bool exact;
	unsigned keep = page_lower_bound(left->data, at->bytes, at->len, &exact);
	struct key high;

	page_high(left->data, &high);
	latch_x(&new->frame->latch);
	redo_page(redo, new->frame, REC_PAGE_INIT,
		  redo_page_init(redo->body, PAGE_TREE, smo->tree->id, page->head.level, 0, at,
				 &high, le64_get(page->right)));
	if (keep < count)
		redo_page(redo, new->frame, REC_LOAD,
			  redo_load(redo->body, left->data, keep, count - keep));
	redo_page(redo, left, REC_SPLIT_LEFT,
		  redo_split_left(redo->body, keep, at, new->pageno));
	smo_page_bits(smo, new->bitmap, new->pageno, true);
	redo_commit(redo);
	unlatch_x(&new->frame->latch);
	stat_add(&smo->tree->volume->stats,
		 page->head.level == 0 ? STAT_tree_splits_leaf : STAT_tree_splits_internal, 1);
}

enum split_result {
	SPLIT_DONE,       /* `at` is a boundary, or cannot be one any more */
	SPLIT_PUBLISHED,
	SPLIT_RAISED,     /* the root: once more */
	SPLIT_FOREIGN,    /* an incomplete split of somebody else comes first */
};

/* One try.  *used: the new page became part of the tree. */
static int try_split(struct smo *smo, const struct key *at, unsigned level, struct new_page *new,
		     enum split_result *result, bool *used)
{
	struct frame *left;
	bool exact;
	int rc;

	rc = new_page_pin(smo, new, level);
	if (rc)
		return rc;
	rc = tree_descend(smo->tree, at, level, LATCH_X, &left);
	if (rc)
		return rc == -BE_NOTFOUND ? -BE_AGAIN : rc;
	smo_pin(smo, left);

	page_lower_bound(left->data, at->bytes, at->len, &exact);
	if (key_compare(at->bytes, at->len, tree_page(left->data)->low,
			tree_page(left->data)->low_len) == 0 ||
	    (level > 0 && !exact)) {
		*result = SPLIT_DONE;
	} else if (page_is_incomplete(left->data)) {
		*result = SPLIT_FOREIGN;
	} else if (atomic_load_explicit(&left->pageno, memory_order_relaxed) == smo->tree->root) {
		raise_root(smo, left, new);
		*result = SPLIT_RAISED;
		*used = true;
	} else {
		publish(smo, left, at, new);
		*result = SPLIT_PUBLISHED;
		*used = true;
	}
	unlatch_x(&left->latch);
	return 0;
}

static int take_page(struct tree *tree, unsigned mtr_flags, uint64_t *pageno)
{
	struct space *space = tree->volume->space;
	unsigned flags = mtr_flags & MTR_PRIVILEGED ? SPACE_PRIVILEGED : 0;
	int rc;

	while ((rc = space_take_page(space, flags, tree->root, pageno)) == -BE_AGAIN) {
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

	do {
		struct new_page new = {0};
		struct smo smo;
		bool used = false;
		int rc = take_page(tree, mtr_flags, &new.pageno);

		if (rc)
			return rc;
		rc = smo_begin(&smo, tree);
		if (rc == 0)
			rc = try_split(&smo, at, level, &new, &result, &used);
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
			if (rc)
				return rc;
		}
	} while (result == SPLIT_RAISED || result == SPLIT_FOREIGN);
	return 0;
}

/* ------------------------------------------------------ (2) installing */

/* What step (2) found out about the left page. */
struct pending {
	struct frame *left;
	struct key at;      /* high fence of left = low fence of right */
	uint64_t right;
	unsigned level;
};

/*
 * Finds the INCOMPLETE page: the one that covers key, or, since key may lie in
 * the right half, the left neighbour that ends where key's page begins.
 */
static int find_pending(struct smo *smo, const struct key *key, unsigned level,
			struct pending *pending)
{
	struct key probe = *key;
	int rc;

	pending->level = level;
	for (int tries = 0; tries < 2; tries++) {
		struct frame *frame;

		rc = tree_descend(smo->tree, &probe, level, LATCH_S, &frame);
		if (rc)
			return rc;
		if (page_is_incomplete(frame->data)) {
			pending->left = frame;
			page_high(frame->data, &pending->at);
			pending->right = le64_get(tree_page(frame->data)->right);
			tree_unlatch(frame, LATCH_S);
			smo_pin(smo, frame);
			return 0;
		}
		page_low(frame->data, &probe);
		tree_unlatch(frame, LATCH_S);
		pool_put(frame);
		if (probe.len == 0)
			break;
		/* The greatest key below `low`, for all that our keys can be. */
		while (probe.len > 0 && probe.bytes[probe.len - 1] == 0)
			probe.len--;
		if (probe.len == 0)
			break;
		probe.bytes[probe.len - 1]--;
		memset(probe.bytes + probe.len, 0xff, KEY_BYTES_MAX - probe.len);
		probe.len = KEY_BYTES_MAX;
	}
	return -BE_NOTFOUND;
}

static bool still_pending(const struct pending *pending)
{
	const void *page = pending->left->data;
	struct key high;

	page_high(page, &high);
	return !page_is_dead(page) && page_is_incomplete(page) && key_equal(&high, &pending->at) &&
	       le64_get(tree_page(page)->right) == pending->right;
}

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

/* Where a full parent should be split, when an entry is to go in at `at`. */
static struct key parent_boundary(const void *page, const struct key *at)
{
	unsigned count = page_slots(page);
	bool exact;
	unsigned slot = page_lower_bound(page, at->bytes, at->len, &exact);
	struct key key;

	check(count >= 2);
	/* Ascending runs: leave the page full, take only its last entry along. */
	page_key(page, slot == count ? count - 1 : count / 2, &key);
	return key;
}

/* Both pages latched X and verified: the mtr of step (2). */
static void install(struct smo *smo, struct frame *parent, const struct pending *pending)
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
	redo_commit(redo);
	stat_add(&smo->tree->volume->stats, STAT_tree_parent_installs, 1);
}

/* One try of step (2).  *full: the parent has to be split at *boundary first. */
static int try_install(struct smo *smo, const struct key *key, unsigned level, bool *full,
		       struct key *boundary)
{
	uint32_t page_size = smo->tree->volume->geo.page_size;
	struct pending pending;
	struct frame *parent;
	int rc = find_pending(smo, key, level, &pending);

	if (rc)
		return rc == -BE_NOTFOUND ? 0 : rc;
	rc = tree_locate(smo->tree, &pending.at, level + 1, &parent);
	if (rc)
		return rc == -BE_NOTFOUND ? -BE_AGAIN : rc;
	smo_pin(smo, parent);
	os_point("split:install");

	latch_x(&pending.left->latch);
	latch_x(&parent->latch);
	if (!still_pending(&pending) || !is_parent_for(parent->data, &pending)) {
		rc = -BE_AGAIN;
	} else if (has_entry(parent->data, &pending.at)) {
		rc = corrupt_at(smo->tree->volume,
				atomic_load_explicit(&parent->pageno, memory_order_relaxed),
				"tree_split", "INCOMPLETE page whose sibling has an entry");
	} else if (page_room(parent->data, page_size) < page_cost(pending.at.len, sizeof(le64))) {
		*full = true;
		*boundary = parent_boundary(parent->data, &pending.at);
	} else {
		install(smo, parent, &pending);
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
		bool full = false;
		int rc = smo_begin(&smo, tree);

		if (rc)
			return rc;
		rc = try_install(&smo, key, level, &full, &boundary);
		smo_end(&smo);
		if (rc == -BE_AGAIN)
			continue;
		if (rc || !full)
			return rc;
		rc = tree_split(tree, &boundary, level + 1, mtr_flags);
		if (rc)
			return rc;
	}
}
