/* Shared by the files of the B-link index. */
#ifndef BLINKFS_ENGINE_TREE_INTERNAL_H
#define BLINKFS_ENGINE_TREE_INTERNAL_H

#include "engine/base/error.h"
#include "engine/pool.h"
#include "engine/redo.h"
#include "engine/tree.h"
#include "engine/volume.h"

/*
 * A path that is longer than this comes from a cycle in a damaged tree: more
 * right moves and restarts than any concurrency explains.
 */
#define TREE_STEPS_MAX (1u << 20)

enum latch_mode { LATCH_S, LATCH_X };

/* Counts what had to be waited for: the order of a page's latch tells its level. */
static inline void tree_latch(struct tree *tree, struct frame *frame, enum latch_mode mode)
{
	bool slept = mode == LATCH_X ? latch_x(&frame->latch) : latch_s(&frame->latch);

	if (slept) {
		bool leaf = (atomic_load_explicit(&frame->latch.order, memory_order_relaxed) &
			     0xff) == 0;

		stat_add(&tree->volume->stats,
			 mode == LATCH_X
				 ? (leaf ? STAT_tree_waits_leaf_x : STAT_tree_waits_internal_x)
				 : (leaf ? STAT_tree_waits_leaf_s : STAT_tree_waits_internal_s),
			 1);
	}
}

static inline void tree_latch_index_s(struct tree *tree)
{
	if (latch_s(&tree->index_latch))
		stat_add(&tree->volume->stats, STAT_tree_waits_index, 1);
}

static inline void tree_unlatch(struct frame *frame, enum latch_mode mode)
{
	if (mode == LATCH_X)
		unlatch_x(&frame->latch);
	else
		unlatch_s(&frame->latch);
}

/*
 * The page on `level` that covers key: pinned and latched.  One latch is held
 * at a time and no latch while a page is read.  The caller is inside an epoch,
 * so a page number that was just read names no other page by now; at worst the
 * page is DEAD.  -BE_NOTFOUND: the tree has no such level.
 */
int tree_descend(struct tree *tree, const struct key *key, unsigned level, enum latch_mode mode,
		 struct frame **out) must_check;

/*
 * The page that covers what lies just below key, latched S: low fence < key <= high
 * fence.  An empty key is the end of the index.
 */
int tree_descend_before(struct tree *tree, const struct key *key, unsigned level,
			struct frame **out) must_check;

/* The same for reading: S, with the index latch S where smo=index-latch. */
int tree_find(struct tree *tree, const struct key *key, unsigned level,
	      struct frame **out) must_check;
int tree_find_leaf_before(struct tree *tree, const struct key *key, struct frame **out) must_check;

/*
 * tree_classic.c: from a parent, latched S, to its child, so that nobody can change
 * both in between.  The parent is let go in any case.
 */
int tree_step_coupled(struct tree *tree, struct frame *parent, uint64_t child,
		      enum latch_mode mode, struct frame **out) must_check;

static inline bool page_is_dead(const void *page)
{
	return tree_page(page)->head.flags & PAGE_DEAD;
}

static inline bool page_is_incomplete(const void *page)
{
	return tree_page(page)->head.flags & PAGE_INCOMPLETE;
}

static inline unsigned page_slots(const void *page)
{
	return le16_get(tree_page(page)->slot_count);
}

static inline struct key key_make(const void *bytes, size_t len)
{
	struct key key = {.len = (uint8_t)len};

	check(len <= KEY_BYTES_MAX);
	if (len > 0)
		memcpy(key.bytes, bytes, len);
	return key;
}

static inline bool key_equal(const struct key *a, const struct key *b)
{
	return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

/* ------------------------------------------------- structure changes */

/*
 * What a structure change holds besides latches: tickets for the pages that it
 * pins, log bytes, the index latch S (classic: SX), an epoch.
 */
#define SMO_PAGES_MAX 6u
#define SMO_STEP_PAGES 4u /* more of them for each more level of a classic cascade */

struct smo {
	struct tree *tree;
	struct redo redo;
	unsigned tickets;
	struct frame *pinned[SMO_PAGES_MAX + SMO_STEP_PAGES * TREE_LEVELS_MAX];
	unsigned pinned_count;
	bool entered;
	bool sx;                 /* the index latch is held SX */
};

/*
 * Tickets, then log bytes (the one order of reservations), then index latch and epoch.
 * steps: mini-transactions that it may take, each as large as tree_smo_log_bytes().
 */
int smo_begin(struct smo *smo, struct tree *tree, enum smo_mode mode, unsigned steps) must_check;
/* Remembers a pinned frame: smo_end() unpins it. */
void smo_pin(struct smo *smo, struct frame *frame);
void smo_end(struct smo *smo);

/* Pages for splits, from the page pool, and what has become of one. */
int smo_take_page(struct tree *tree, unsigned level, unsigned mtr_flags,
		  uint64_t *pageno) must_check;
struct new_page {
	uint64_t pageno;
	struct frame *frame, *bitmap;
};
/* Pins frames for a page from the page pool.  Nothing latched yet but the index. */
int smo_pin_new(struct smo *smo, struct new_page *new, unsigned level) must_check;
/* Moves all of the root, latched X, into a new page below it. */
void smo_raise_root(struct smo *smo, struct frame *root, struct new_page *new);
/* What is >= at moves from `left` into the new page, both latched X. */
void smo_move_right(struct smo *smo, struct frame *left, const struct key *at,
		    struct new_page *new);
/* The commit of a split's first (or only) mini-transaction, counted. */
void smo_commit_split(struct smo *smo, unsigned level);

/* Room for one more entry of any separator? */
bool smo_parent_has_room(struct tree *tree, const void *page);
/* Where a full parent should be split, when an entry is to go in at `at`. */
struct key smo_parent_boundary(const struct frame *parent, const struct key *at);

/* tree_split() as smo=index-latch does it. */
int tree_split_classic(struct tree *tree, const struct key *at, unsigned level,
		       unsigned mtr_flags) must_check;

/* Allocation bits of a metadata page, once an mtr; its bitmap page is pinned, not latched. */
void smo_page_bits(struct smo *smo, struct frame *bitmap, uint64_t pageno, bool used);

/* Shortest key s with left < s <= right. */
struct key key_separator(const struct key *left, const struct key *right);

/*
 * Where a page splits (tree_boundary.c).  Each insert is noted, so that a run can be
 * told from chance.  Frame latched X.
 */
void tree_note_insert(struct frame *frame, unsigned slot);
enum boundary_kind {
	BOUNDARY_BALANCED,
	BOUNDARY_BEFORE_NEW,  /* what is new goes right, with what lies behind it */
	BOUNDARY_BEHIND_NEW,  /* what is new stays left, what lies behind it goes */
};
/* before, behind: bytes of what lies on either side of the new entries. */
enum boundary_kind tree_boundary_kind(const struct frame *frame, uint64_t before, uint64_t behind);

/* The best of the places that are offered one after the other, for a balanced split. */
struct balance {
	uint64_t total;       /* bytes of all */
	uint64_t cost;        /* of the best so far; UINT64_MAX: none */
};
/* Only there the separator's length is asked for. */
bool balance_is_near(const struct balance *balance, uint64_t left_bytes);
/* Is a split with `left_bytes` on the left, and a separator of so many bytes, better? */
bool balance_offer(struct balance *balance, uint64_t left_bytes, unsigned separator_len);

/* Is this, verified but perhaps read long ago, the page of that level whose low fence is `low`? */
bool tree_page_begins_at(const void *page, const struct tree *tree, unsigned level,
			 const struct key *low);

#endif
