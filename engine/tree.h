/*
 * B-link index: reading, and the structure changes.  Contents are changed by
 * mini-transactions only (mtr.h).
 *
 * After Lehman and Yao (1981) with Lanin and Shasha's deletion of empty pages:
 * every page has a fence [low, high) and a right link; a search holds one S
 * latch at a time and moves right when key >= high.
 *
 * A split is two mtrs:
 *	(1) publish: new right sibling, link, high key, INCOMPLETE on the left page
 *	(2) install: the parent's entry; INCOMPLETE cleared
 * Between them, and after a crash between them, every key can be found through
 * the right link.  Whoever meets an INCOMPLETE page while changing things
 * completes it; recovery completes the rest.
 *
 * A merge is one mtr over left page, right page and parent: the right page's
 * records move left, the right page turns DEAD.  A root with one child takes its
 * contents in.
 *
 * Invariants (tree_check()):
 *	INV-TREE-1  a page is merged only into a left neighbour under the same parent,
 *	            neither INCOMPLETE; it is marked DEAD, and whoever reaches a DEAD
 *	            page restarts from the root
 *	INV-TREE-2  on each level the fences of consecutive pages meet: high = next low
 *	INV-TREE-3  each page but a root, and but the right half of an INCOMPLETE
 *	            split, has exactly one entry in its parent, whose key is its low
 *	INV-TREE-4  a page's level and index never change while it is reachable, but for
 *	            the level of the root, under its X latch
 *	INV-TREE-5  a low fence never changes; a high fence changes under X of its page
 *	INV-TREE-6  nobody waits for a latch while he holds a DEAD page
 */
#ifndef BLINKFS_ENGINE_TREE_H
#define BLINKFS_ENGINE_TREE_H

#include "engine/base/latch.h"
#include "engine/page.h"

struct check_report;
struct frame;
struct volume;

/*
 * How the structure of an index is changed.  Both leave the same pages on the medium,
 * and each can meet what the other does: they are switched while in use.
 */
enum smo_mode {
	SMO_BLINK,       /* two small mtrs a level, index latch S: tree_split.c */
	SMO_INDEX_LATCH, /* the classic protocol, index latch SX: tree_classic.c */
	SMO_MODE_COUNT
};
const char *smo_mode_name(enum smo_mode mode);              /* "blink", "index-latch" */
bool smo_mode_parse(const char *name, enum smo_mode *mode); /* false: no such name */

struct tree {
	struct volume *volume;
	uint64_t root;            /* page number, fixed */
	/*
	 * S by all who change, and by those who read where smo=index-latch; X never on
	 * the normal path (INV-MTR-1 f).
	 */
	struct latch index_latch;
	/*
	 * X behind index_latch S is the index latch SX of the classic protocol: it lets S
	 * in and holds SX and X off.
	 */
	struct latch sx_latch;
	uint8_t id;               /* enum index_id */
};

/* ---------------------------------------------------------------- reading */
/* All of these latch and release inside; nothing above RANK_PAGE may be held. */

#define TREE_READ_TICKETS 2u /* pages that a search pins at once: a parent and its child */

/*
 * Copies the value of an exact key.  *len gets the value's length even when
 * cap is less (then the first cap bytes are copied).  -BE_NOTFOUND.
 */
int tree_get(struct tree *tree, const void *key, size_t key_len, void *value, size_t cap,
	     size_t *len) must_check;

/*
 * The first entry of [low, high]: its key, and its value as above.  -BE_NOTFOUND: there is
 * none.  For a few entries of which mostly none or the first is wanted; it copies no leaf.
 */
int tree_first(struct tree *tree, const void *low, const void *high, size_t key_len,
	       struct key *found, void *value, size_t cap, size_t *len) must_check;

/*
 * Cursor.  It works on a private copy of one leaf at a time, so no latch or pin
 * is held between calls, and an entry that exists throughout is seen exactly
 * once, in either direction.  The copy may be stale by the time it is read.
 *
 * It stands between two entries: next passes the one behind, prev the one in front.
 *
 *	struct tree_cursor c;
 *	int rc = tree_cursor_open(&c, tree, from, from_len);
 *	while (rc == 0 && (rc = tree_cursor_next(&c)) == 0)
 *		use(c.key, c.value, c.value_len);
 *	tree_cursor_close(&c);         // always; rc is -BE_END at the end
 */
struct tree_cursor {
	struct tree *tree;
	uint8_t *copy;            /* page_size bytes, owned */
	unsigned slot;            /* of the entry behind it */
	struct key key;
	const uint8_t *value;     /* points into the copy, valid until the next call */
	size_t value_len;
};
int tree_cursor_open(struct tree_cursor *cursor, struct tree *tree, const void *from,
		     size_t from_len) must_check;
/* In front of the first entry >= from; an empty key: behind the last entry of all. */
int tree_cursor_open_before(struct tree_cursor *cursor, struct tree *tree, const void *from,
			    size_t from_len) must_check;
int tree_cursor_next(struct tree_cursor *cursor) must_check;
int tree_cursor_prev(struct tree_cursor *cursor) must_check; /* -BE_END at the beginning */
void tree_cursor_close(struct tree_cursor *cursor);

/* Verifies INV-TREE-* and INV-PAGE-* on a quiet tree. */
int tree_check(struct tree *tree, struct check_report *report) must_check;

/* ------------------------------------------- for mtr.c, purge, recovery */

/*
 * Finds the leaf that covers key: pinned, not latched, with an epoch held by
 * the caller since before, and TREE_READ_TICKETS.  It may have changed by the time
 * it is latched.
 */
int tree_locate_leaf(struct tree *tree, const struct key *key, struct frame **out) must_check;
/* The same on any level. */
int tree_locate(struct tree *tree, const struct key *key, unsigned level,
		struct frame **out) must_check;

/*
 * Makes `at` a page boundary on `level`: splits the page that covers it so that
 * the right page starts with `at`, and completes the split.  Nothing to do when
 * a page starts there already.  On an internal level `at` must be one of the
 * page's keys, else nothing happens (the caller looks again).  Takes its own
 * reservations; nothing latched, pinned or reserved by the caller.
 * -ENOSPC: no page to be had; nothing changed.
 */
int tree_split(struct tree *tree, const struct key *at, unsigned level,
	       unsigned mtr_flags) must_check;
/* Installs the parent entry that the page which covers key lacks; 0 also when it lacks none. */
int tree_complete_split(struct tree *tree, const struct key *key, unsigned level,
			unsigned mtr_flags) must_check;
/*
 * Merges a sparse page that covers key with a neighbour, if the invariants allow, and
 * so on upwards; lowers the root when it has one child.  Best effort.
 */
int tree_shrink(struct tree *tree, const struct key *key, unsigned level) must_check;
/* Log bytes of one structure change at most: what its reservation asks for. */
uint64_t tree_smo_log_bytes(uint32_t page_size);

#endif
