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
 * pins, log bytes, the index latch S, an epoch.
 */
#define SMO_PAGES_MAX 6u

struct smo {
	struct tree *tree;
	struct redo redo;
	struct frame *pinned[SMO_PAGES_MAX];
	unsigned pinned_count;
	bool entered;
};

/* Tickets, then log bytes (the one order of reservations), then index latch and epoch. */
int smo_begin(struct smo *smo, struct tree *tree) must_check;
/* Remembers a pinned frame: smo_end() unpins it. */
void smo_pin(struct smo *smo, struct frame *frame);
void smo_end(struct smo *smo);

/* Allocation bits of a metadata page, once an mtr; its bitmap page is pinned, not latched. */
void smo_page_bits(struct smo *smo, struct frame *bitmap, uint64_t pageno, bool used);

/* Shortest key s with left < s <= right. */
struct key key_separator(const struct key *left, const struct key *right);

#endif
