/*
 * The classic protocol (smo=index-latch), to compare with: that of InnoDB since 5.7,
 * as well as it can be done on these pages.
 *
 *	search	    index latch S; page latches S coupled from parent to child; the index
 *		    latch is let go when the leaf is latched
 *	change	    first try: as a search, then the leaf X (mtr_latch())
 *	split	    when the leaf is full: everything is let go, then the index latch SX,
 *		    which lets S in and holds SX off; the whole cascade from the top down
 *
 * Steps of a cascade; each is one mtr, after which the tree is whole: no page is ever
 * INCOMPLETE.
 *
 *	P full, L full		P split		      L split
 *	     P			  P    P'		  P    P'
 *	   / | \		 / \    \		 /|\    \
 *	  .  L  .		.   L    .		. L L'   .
 *
 *	(0) a full root moves into a page below it, and so gets room
 *	(1) the highest full page whose parent has room: contents, link, fence and the
 *	    parent's entry in one mtr; then the one below it, down to the wanted level
 *
 * crash after any step: whole, an upper page perhaps split a little early.
 * Before the first: nothing happened.
 *
 * INV-CLASSIC-1: a page and its parent change together under both X latches, so who
 * comes from a parent by coupling finds the child as the parent tells.
 * INV-CLASSIC-2: log bytes, page tickets and new pages for all steps are there before
 * the index latch is taken; what they do not suffice for is begun anew with more.
 *
 * Where it is better than its model, so that the comparison is not won by neglect:
 * SX and not X; a cascade that takes the pages it needs before its latch; page latches
 * X on two levels at a time, not on the whole path; a reader that finds a child latched
 * lets its parent go before it sleeps (it must: latches are waited for bottom up, see
 * rank.def) and proves by the fences that nothing was missed.
 *
 * Both protocols at once.  While the switch is turned some threads work by the one
 * and some by the other.  Nothing found before a latch is trusted under it, right links
 * and fences are kept by both, and an INCOMPLETE page that is met is completed first;
 * so each is right whatever the other does.
 */
#include "engine/tree_internal.h"

#include "engine/mtr.h"
#include "engine/space.h"

#define FOREIGN_MAX 4096u /* incomplete splits met in one go: more only in a damaged tree */

int tree_step_coupled(struct tree *tree, struct frame *parent, uint64_t child,
		      enum latch_mode mode, struct frame **out)
{
	struct pool *pool = tree->volume->pool;
	bool pinned = pool_try_get(pool, child, PAGE_TREE, tree->id, out);
	bool coupled = false;
	int rc = 0;

	if (pinned)
		coupled = mode == LATCH_X ? latch_try_x(&(*out)->latch)
					  : latch_try_s(&(*out)->latch);
	tree_unlatch(parent, LATCH_S);
	pool_put(parent);
	if (coupled)
		return 0;
	os_point("tree:down");
	if (!pinned)
		rc = pool_get(pool, child, PAGE_TREE, tree->id, out);
	if (rc == 0)
		tree_latch(tree, *out, mode);
	return rc;
}

/* ---------------------------------------------------------------- one step */

struct step {
	struct frame *left;
	struct frame *parent; /* NULL: left is the root, to be raised */
	struct key at;
	unsigned level;
};

enum outcome {
	OUTCOME_DONE,    /* `at` is a boundary, or cannot be one any more */
	OUTCOME_STEP,    /* there is a step to be taken */
	OUTCOME_FOREIGN, /* an incomplete split, at step.at on step.level, comes first */
};

static bool is_boundary(const void *page, const struct key *at, unsigned level)
{
	const struct disk_tree_page *tree = tree_page(page);
	bool exact;

	if (key_compare(at->bytes, at->len, tree->low, tree->low_len) == 0)
		return true;
	page_lower_bound(page, at->bytes, at->len, &exact);
	return level > 0 && !exact;
}

static bool is_child(const void *parent, const struct key *at, const struct frame *frame)
{
	uint64_t pageno = atomic_load_explicit(&frame->pageno, memory_order_relaxed);

	return page_child(parent, page_child_slot(parent, at->bytes, at->len)) == pageno;
}

static bool has_entry(const void *parent, const struct key *at)
{
	bool exact;

	page_lower_bound(parent, at->bytes, at->len, &exact);
	return exact;
}

static bool is_root(const struct smo *smo, const struct frame *frame)
{
	return atomic_load_explicit(&frame->pageno, memory_order_relaxed) == smo->tree->root;
}

/* Finds the page to split at step->at and pins it; its parent, if that has room. */
static int look_at(struct smo *smo, struct step *step, enum outcome *outcome, bool *full)
{
	struct tree *tree = smo->tree;
	int rc = tree_descend(tree, &step->at, step->level, LATCH_S, &step->left);

	step->parent = NULL;
	*full = false;
	*outcome = OUTCOME_STEP;
	if (rc == -BE_NOTFOUND) {
		step->left = NULL;
		*outcome = OUTCOME_DONE; /* the root has been lowered below this level */
		return 0;
	}
	if (rc)
		return rc;
	if (is_boundary(step->left->data, &step->at, step->level))
		*outcome = OUTCOME_DONE;
	else if (page_is_incomplete(step->left->data))
		*outcome = OUTCOME_FOREIGN;
	tree_unlatch(step->left, LATCH_S);
	smo_pin(smo, step->left);
	if (*outcome != OUTCOME_STEP || is_root(smo, step->left))
		return 0;

	rc = tree_descend(tree, &step->at, step->level + 1, LATCH_S, &step->parent);
	if (rc)
		return rc == -BE_NOTFOUND ? -BE_AGAIN : rc;
	if (!is_child(step->parent->data, &step->at, step->left)) {
		*outcome = OUTCOME_FOREIGN;
	} else if (has_entry(step->parent->data, &step->at)) {
		rc = corrupt_at(tree->volume, tree->root, "tree_split",
				"an entry that is not the low fence of its page");
	} else if (!smo_parent_has_room(tree, step->parent->data)) {
		*full = true;
		step->at = smo_parent_boundary(step->parent, &step->at);
		step->level++;
	}
	tree_unlatch(step->parent, LATCH_S);
	smo_pin(smo, step->parent);
	return rc;
}

/* The highest step that is due, and how many there are in all. */
static int plan(struct smo *smo, const struct key *at, unsigned level, struct step *step,
		enum outcome *outcome, unsigned *needed)
{
	unsigned kept = smo->pinned_count;
	bool full = true;

	*step = (struct step){.at = *at, .level = level};
	for (*needed = 0; full; ++*needed) {
		int rc;

		while (smo->pinned_count > kept)
			pool_put(smo->pinned[--smo->pinned_count]);
		rc = look_at(smo, step, outcome, &full);
		if (rc)
			return rc;
	}
	if (*outcome == OUTCOME_DONE && step->level > level)
		return -BE_AGAIN; /* no longer as it was when the page below was looked at */
	if (*outcome == OUTCOME_STEP && step->parent == NULL)
		++*needed;
	return 0;
}

/* Both latched X: is it still what was planned? */
static bool may_split(struct smo *smo, const struct step *step)
{
	const void *left = step->left->data;
	const void *parent = step->parent->data;
	const struct key *at = &step->at;

	if (page_is_dead(left) || page_is_incomplete(left) || page_is_dead(parent) ||
	    tree_page(left)->head.level != step->level ||
	    tree_page(parent)->head.level != step->level + 1 ||
	    !page_covers(left, at->bytes, at->len) || !page_covers(parent, at->bytes, at->len))
		return false;
	return !is_boundary(left, at, step->level) && is_child(parent, at, step->left) &&
	       smo_parent_has_room(smo->tree, parent);
}

/* INV-CLASSIC-1 */
static void split(struct smo *smo, const struct step *step, struct new_page *new)
{
	struct redo *redo = &smo->redo;
	le64 child = le64_make(new->pageno);
	unsigned slot = page_child_slot(step->parent->data, step->at.bytes, step->at.len) + 1;

	smo_move_right(smo, step->left, &step->at, new);
	redo_page(redo, step->left, REC_FLAGS,
		  redo_flags(redo->body, tree_page(step->left->data)->head.flags &
						 (uint8_t)~PAGE_INCOMPLETE));
	redo_page(redo, step->parent, REC_INSERT,
		  redo_insert(redo->body, slot, step->at.bytes, step->at.len, &child,
			      sizeof(child)));
	tree_note_insert(step->parent, slot);
	smo_page_bits(smo, new->bitmap, new->pageno, true);
	smo_commit_split(smo, step->level);
	stat_add(&smo->tree->volume->stats, STAT_tree_parent_installs, 1);
}

/* -BE_AGAIN: it was not as planned, and nothing was done. */
static int take_step(struct smo *smo, const struct step *step, struct new_page *new)
{
	int rc = smo_pin_new(smo, new, step->level);

	if (rc)
		return rc;
	os_point("classic:step");
	tree_latch(smo->tree, step->left, LATCH_X);
	if (page_is_dead(step->left->data)) {
		rc = -BE_AGAIN; /* INV-TREE-6 */
	} else if (step->parent == NULL) {
		if (tree_page(step->left->data)->head.level == step->level)
			smo_raise_root(smo, step->left, new);
		else
			rc = -BE_AGAIN;
	} else {
		latch_x(&new->frame->latch);
		tree_latch(smo->tree, step->parent, LATCH_X);
		if (may_split(smo, step))
			split(smo, step, new);
		else
			rc = -BE_AGAIN;
		unlatch_x(&step->parent->latch);
		unlatch_x(&new->frame->latch);
	}
	unlatch_x(&step->left->latch);
	return rc;
}

/* ------------------------------------------------------------- the cascade */

#define STEPS_MAX TREE_LEVELS_MAX

struct cascade {
	struct tree *tree;
	const struct key *at;
	unsigned level;
	unsigned steps, steps_max;  /* what is reserved, what can be (INV-CLASSIC-2) */
	unsigned needed;            /* found out under the latch */
	unsigned pages, used;
	struct new_page page[STEPS_MAX];
};

/* Under SX, as far as the reservation goes. */
static int go_down(struct smo *smo, struct cascade *cascade, struct step *step,
		   enum outcome *outcome)
{
	while (cascade->used < cascade->steps) {
		int rc = plan(smo, cascade->at, cascade->level, step, outcome, &cascade->needed);

		if (rc || *outcome != OUTCOME_STEP)
			return rc;
		if (cascade->used == 0 && cascade->needed > cascade->steps &&
		    cascade->steps < cascade->steps_max)
			return 0;
		rc = take_step(smo, step, &cascade->page[cascade->used]);
		if (rc)
			return rc;
		redo_again(&smo->redo);
		cascade->used++;
		os_point("classic:stepped");
	}
	return 0;
}

static int reserve_pages(struct cascade *cascade, unsigned mtr_flags)
{
	while (cascade->pages < cascade->steps) {
		struct new_page *page = &cascade->page[cascade->pages];
		int rc;

		*page = (struct new_page){0};
		rc = smo_take_page(cascade->tree, cascade->level + cascade->pages,
				   mtr_flags, &page->pageno);
		if (rc)
			return rc;
		cascade->pages++;
	}
	return 0;
}

static void settle_pages(struct cascade *cascade)
{
	struct volume *volume = cascade->tree->volume;

	for (unsigned i = 0; i < cascade->pages; i++) {
		if (i < cascade->used)
			space_used(volume->space, cascade->page[i].pageno,
				   volume->geo.page_blocks);
		else
			space_untake_page(volume->space, cascade->page[i].pageno);
	}
	cascade->pages = cascade->used = 0;
}

static int try_cascade(struct cascade *cascade, unsigned mtr_flags, struct step *step,
		       enum outcome *outcome)
{
	struct smo smo = {0};
	int rc = reserve_pages(cascade, mtr_flags);

	*outcome = OUTCOME_STEP;
	cascade->needed = 0;
	if (rc == 0)
		rc = smo_begin(&smo, cascade->tree, SMO_INDEX_LATCH, cascade->steps);
	if (rc == 0) {
		os_point("classic:latched");
		rc = go_down(&smo, cascade, step, outcome);
	}
	settle_pages(cascade);
	smo_end(&smo);
	return rc;
}

/* As many as a quarter of the log has room for, which is one at least. */
static unsigned steps_max(struct volume *volume)
{
	uint64_t steps = log_reserve_max(volume->log) / 4 /
			 tree_smo_log_bytes(volume->geo.page_size);

	return steps < 1 ? 1 : steps < STEPS_MAX ? (unsigned)steps : STEPS_MAX;
}

int tree_split_classic(struct tree *tree, const struct key *at, unsigned level, unsigned mtr_flags)
{
	struct cascade cascade = {
		.tree = tree,
		.at = at,
		.level = level,
		.steps = 1,
		.steps_max = steps_max(tree->volume),
	};
	enum outcome outcome = OUTCOME_STEP;
	unsigned foreign = 0;

	while (outcome != OUTCOME_DONE) {
		struct step step;
		int rc = try_cascade(&cascade, mtr_flags, &step, &outcome);

		if (rc == -BE_AGAIN) {
			outcome = OUTCOME_STEP;
			continue;
		}
		if (rc)
			return rc;
		if (outcome == OUTCOME_FOREIGN) {
			if (++foreign > FOREIGN_MAX)
				return corrupt_at(tree->volume, tree->root, "tree_split",
						  "a page has no entry in its parent");
			rc = tree_complete_split(tree, &step.at, step.level, mtr_flags);
			if (rc)
				return rc;
		}
		if (cascade.needed > cascade.steps)
			cascade.steps = cascade.needed < cascade.steps_max ? cascade.needed
									   : cascade.steps_max;
	}
	return 0;
}
