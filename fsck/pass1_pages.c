/*
 * Pass 1: pages and trees.
 *
 * Each tree is walked depth first in key order, so that on every level pages
 * are met from left to right.  Checked are
 *
 *	- each page by itself (page_verify): checksum, identity, structure
 *	- type, index and level; no page is entered twice, none is dead
 *	- INV-TREE-2: fences meet; right links lead to the next page of the level
 *	- INV-TREE-3: each page has one entry in its parent whose key is its low
 *	  fence, except the right half of an INCOMPLETE split, which is reached
 *	  through the right link
 *	- keys have the length of their index and ascend over the whole tree
 *
 * Memory: one page a level, some batches of leaves (ahead.h).  A page that is refused hides
 * what is below it; the walk goes on behind it.
 */
#include "fsck/walk.h"

#include "engine/base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Numbers that were handed out and are gone again: a new system page skips so many. */
#define COUNTER_MARGIN (1u << 20)

/* The last page that was met on a level. */
struct level {
	bool known; /* false after a page that was refused: its link is unknown */
	uint64_t pageno, right;
};

struct tree_walk {
	struct walk *w;
	unsigned index;
	entry_visitor visit;
	struct level level[TREE_LEVELS_MAX];
	uint8_t *page[TREE_LEVELS_MAX]; /* allocated when first needed */
	struct raw_key last;            /* the entry handed out last */
	bool any;
	uint64_t listed; /* bit number - 101: this problem's repair is listed */
};

static const char *index_name(const struct tree_walk *t)
{
	return raw_index_names[t->index];
}

/* ---------------------------------------------------------------- one page */

/* Whatever is wrong with a tree, it is rebuilt from its leaves. */
static void printf_like(3, 4)
	broken(struct tree_walk *t, enum fsck_problem_id id, const char *detail, ...)
{
	const struct fsck_fix fix = {.kind = FIX_REBUILD, .id = t->index};
	uint64_t bit = 1ull << (id - FSCK_PAGE_UNREADABLE);
	va_list args;

	va_start(args, detail);
	if (t->listed & bit)
		problem_v(t->w, id, NULL, detail, args);
	else
		problem_v(t->w, id, &fix, detail, args);
	va_end(args);
	t->listed |= bit;
	t->w->rebuild = true;
}

static void refuse(struct tree_walk *t, uint64_t pageno, int rc, const char *why)
{
	enum fsck_problem_id id = rc == -BE_CRC        ? FSCK_PAGE_CRC
				  : rc == -BE_IDENTITY ? FSCK_PAGE_IDENTITY
				  : rc == -BE_FORMAT   ? FSCK_PAGE_FORMAT
						       : FSCK_PAGE_UNREADABLE;

	broken(t, id, "index %s, page %" PRIu64 ": %s", index_name(t), pageno, why);
}

/* Is the number one that a tree page can have, met for the first time? */
static bool enter(struct tree_walk *t, uint64_t pageno, uint64_t from)
{
	const struct geometry *geo = &t->w->raw.geo;
	bool root = pageno == le64_get(t->w->raw.sb.root[t->index]);

	if (!raw_pageno_valid(&t->w->raw, pageno) ||
	    (!root && raw_blocks_fixed(&t->w->raw, pageno, geo->page_blocks))) {
		broken(t, FSCK_PAGE_NUMBER, "index %s, page %" PRIu64 " refers to page %" PRIu64,
		       index_name(t), from, pageno);
		return false;
	}
	if (!claim_page(t->w, pageno)) {
		broken(t, FSCK_PAGE_TWICE, "index %s, page %" PRIu64 " refers to page %" PRIu64,
		       index_name(t), from, pageno);
		return false;
	}
	return true;
}

/* What the tree expects of a page, beside its own structure; level < 0: any. */
static bool judge(struct tree_walk *t, uint64_t pageno, const void *page, int level)
{
	const struct disk_page *head = raw_head(page);
	char what[32];

	if (head->type != PAGE_TREE || head->index != t->index) {
		broken(t, FSCK_PAGE_KIND, "index %s, page %" PRIu64 ": type %u, index %u",
		       index_name(t), pageno, head->type, head->index);
		return false;
	}
	if (head->flags & PAGE_DEAD) {
		broken(t, FSCK_PAGE_DEAD, "index %s, page %" PRIu64, index_name(t), pageno);
		return false;
	}
	if (level >= 0 && head->level != level) {
		broken(t, FSCK_PAGE_LEVEL, "index %s, page %" PRIu64 ": level %u instead of %d",
		       index_name(t), pageno, head->level, level);
		return false;
	}
	if (le64_get(head->lsn) >= LSN_PLAUSIBLE_MAX) {
		broken(t, FSCK_PAGE_FUTURE, "index %s, page %" PRIu64 ": LSN %" PRIu64,
		       index_name(t), pageno, le64_get(head->lsn));
		return true;
	}
	snprintf(what, sizeof(what), "index %s", index_name(t));
	note_lsn(t->w, what, pageno, page);
	return true;
}

/* Claims, reads and judges. */
static bool fetch(struct tree_walk *t, uint64_t pageno, uint64_t from, int level, void *page)
{
	const char *why;
	int rc;

	if (!enter(t, pageno, from))
		return false;
	rc = raw_read_page(&t->w->raw, pageno, page, &why);
	if (rc) {
		refuse(t, pageno, rc, why);
		return false;
	}
	return judge(t, pageno, page, level);
}

static int level_page(struct tree_walk *t, unsigned level, uint8_t **out)
{
	if (!t->page[level])
		t->page[level] = malloc(t->w->raw.geo.page_size);
	*out = t->page[level];
	return *out ? 0 : -ENOMEM;
}

/* ------------------------------------------------------------------ entries */

static int visit_leaf(struct tree_walk *t, const void *page)
{
	unsigned slots = raw_slots(page);
	uint64_t pageno = le64_get(raw_head(page)->pageno);

	if (walk_cancelled(t->w))
		return -ECANCELED;
	for (unsigned slot = 0; slot < slots; slot++) {
		struct raw_entry entry;
		int rc;

		raw_entry(page, slot, &entry);
		if (raw_key_bytes[t->index] && entry.key.len != raw_key_bytes[t->index]) {
			broken(t, FSCK_KEY_FORMAT, "index %s, page %" PRIu64 ", slot %u: %u bytes",
			       index_name(t), pageno, slot, entry.key.len);
			continue;
		}
		if (t->any && raw_key_compare(&t->last, &entry.key) >= 0) {
			broken(t, FSCK_KEY_ORDER, "index %s, page %" PRIu64 ", slot %u",
			       index_name(t), pageno, slot);
			continue;
		}
		t->last = entry.key;
		t->any = true;
		rc = t->visit(t->w, &entry);
		if (rc)
			return rc;
	}
	return 0;
}

/* ------------------------------------------------------------------- shape */

/* INV-TREE-2 between this page and the one met before it on its level. */
static void follow_level(struct tree_walk *t, const void *page)
{
	struct level *level = &t->level[raw_head(page)->level];
	uint64_t pageno = le64_get(raw_head(page)->pageno);

	if (level->known && level->right != pageno)
		broken(t, FSCK_RIGHT_LINK,
		       "index %s, page %" PRIu64 ": leads to page %" PRIu64 " instead of %" PRIu64,
		       index_name(t), level->pageno, level->right, pageno);
	*level = (struct level){true, pageno, raw_right(page)};
}

static void check_low(struct tree_walk *t, const void *page, const struct raw_key *low)
{
	struct raw_key own;

	raw_low(page, &own);
	if (raw_key_compare(&own, low) != 0)
		broken(t, FSCK_FENCE_LOW, "index %s, page %" PRIu64, index_name(t),
		       le64_get(raw_head(page)->pageno));
}

/* len 0 of a high fence is plus infinity. */
static bool same_high(const struct raw_key *a, const struct raw_key *b)
{
	return raw_key_compare(a, b) == 0;
}

static int walk_children(struct tree_walk *t, const uint8_t *page);

static uint8_t *batch_page(const struct tree_walk *t, const struct ahead_batch *batch, unsigned i)
{
	return batch->pages + (size_t)i * t->w->raw.geo.page_size;
}

/*
 * The page in `page`, known to the parent, and the right siblings that its
 * INCOMPLETE mark says the parent lacks.  Together they cover [low, high).
 */
static int walk_chain(struct tree_walk *t, const uint8_t *page, const struct raw_key *low,
		      const struct raw_key *high)
{
	struct raw_key next_low = *low;

	for (;;) {
		unsigned level = raw_head(page)->level;
		uint64_t pageno = le64_get(raw_head(page)->pageno), right = raw_right(page);
		bool incomplete = raw_head(page)->flags & PAGE_INCOMPLETE;
		struct raw_key own_high;
		uint8_t *buf;
		int rc;

		follow_level(t, page);
		check_low(t, page, &next_low);
		raw_high(page, &own_high);
		rc = level ? walk_children(t, page) : visit_leaf(t, page);
		if (rc)
			return rc;
		if (same_high(&own_high, high)) {
			if (incomplete)
				broken(t, FSCK_STALE_MARK, "index %s, page %" PRIu64, index_name(t),
				       pageno);
			return 0;
		}
		if (!incomplete) {
			broken(t, FSCK_FENCE_HIGH, "index %s, page %" PRIu64, index_name(t),
			       pageno);
			return 0;
		}
		rc = level_page(t, level, &buf);
		if (rc)
			return rc;
		if (!fetch(t, right, pageno, (int)level, buf)) {
			t->level[level].known = false;
			return 0;
		}
		next_low = own_high;
		page = buf;
	}
}

/* As fetch(), of a leaf that was read ahead. */
static bool fetch_ahead(struct tree_walk *t, uint64_t pageno, uint64_t from,
			const struct ahead_batch *batch, unsigned i)
{
	if (!enter(t, pageno, from))
		return false;
	if (batch->page[i].rc) {
		refuse(t, pageno, batch->page[i].rc, batch->page[i].why);
		return false;
	}
	return judge(t, pageno, batch_page(t, batch, i), 0);
}

/* [low, high) that the parent's slot promises its child. */
static void child_fences(const uint8_t *page, unsigned slot, struct raw_key *low,
			 struct raw_key *high)
{
	struct raw_entry entry;

	raw_entry(page, slot, &entry);
	*low = entry.key;
	if (slot + 1 < raw_slots(page)) {
		raw_entry(page, slot + 1, &entry);
		*high = entry.key;
	} else {
		raw_high(page, high);
	}
}

static int walk_batch(struct tree_walk *t, const uint8_t *page, const uint64_t *child,
		      unsigned first, const struct ahead_batch *batch)
{
	uint64_t from = le64_get(raw_head(page)->pageno);
	int rc = batch->error;

	for (unsigned i = 0; i < batch->count && !rc; i++) {
		struct raw_key low, high;

		child_fences(page, first + i, &low, &high);
		if (fetch_ahead(t, child[first + i], from, batch, i))
			rc = walk_chain(t, batch_page(t, batch, i), &low, &high);
		else
			t->level[0].known = false;
	}
	return rc;
}

static int walk_leaves(struct tree_walk *t, const uint8_t *page)
{
	struct walk *w = t->w;
	unsigned slots = raw_slots(page);
	uint64_t *child = malloc((slots + 1) * sizeof(*child));
	int rc = child ? 0 : -ENOMEM;

	if (!rc && !w->ahead)
		rc = ahead_open(&w->ahead, &w->raw, w->options->threads);
	if (rc)
		goto out;
	for (unsigned i = 0; i < slots; i++)
		child[i] = raw_child(page, i);
	ahead_begin(w->ahead, child, slots);
	for (unsigned first = 0; first < slots && !rc;) {
		const struct ahead_batch *batch = ahead_next(w->ahead);

		rc = walk_batch(t, page, child, first, batch);
		first += batch->count;
		ahead_done(w->ahead);
	}
	if (rc) { /* the threads read by `child` */
		ahead_close(w->ahead);
		w->ahead = NULL;
	}
out:
	free(child);
	return rc;
}

static int walk_children(struct tree_walk *t, const uint8_t *page)
{
	unsigned level = raw_head(page)->level - 1u, slots = raw_slots(page);
	uint64_t pageno = le64_get(raw_head(page)->pageno);
	uint8_t *buf;
	int rc;

	if (level == 0)
		return walk_leaves(t, page);
	rc = level_page(t, level, &buf);
	for (unsigned slot = 0; slot < slots && !rc; slot++) {
		struct raw_key low, high;

		child_fences(page, slot, &low, &high);
		if (fetch(t, raw_child(page, slot), pageno, (int)level, buf))
			rc = walk_chain(t, buf, &low, &high);
		else
			t->level[level].known = false;
	}
	return rc;
}

static int walk_from_root(struct tree_walk *t)
{
	uint64_t root = le64_get(t->w->raw.sb.root[t->index]);
	struct raw_key low, high, none = {0};
	uint8_t *page;
	int rc = level_page(t, TREE_LEVELS_MAX - 1, &page);

	if (rc || !fetch(t, root, 0, -1, page))
		return rc;
	raw_low(page, &low);
	raw_high(page, &high);
	if (low.len || high.len || (raw_head(page)->flags & PAGE_INCOMPLETE))
		broken(t, FSCK_ROOT_SHAPE, "index %s, page %" PRIu64, index_name(t), root);
	else
		rc = walk_chain(t, page, &none, &none);
	for (unsigned i = 0; i < TREE_LEVELS_MAX && !rc; i++)
		if (t->level[i].known && t->level[i].right)
			broken(t, FSCK_RIGHT_LINK,
			       "index %s, page %" PRIu64 ": leads to page %" PRIu64
			       " instead of the end",
			       index_name(t), t->level[i].pageno, t->level[i].right);
	return rc;
}

int pass1_tree(struct walk *w, unsigned index, entry_visitor visit)
{
	struct tree_walk t = {.w = w, .index = index, .visit = visit};
	int rc = walk_from_root(&t);

	for (unsigned i = 0; i < TREE_LEVELS_MAX; i++)
		free(t.page[i]);
	return rc;
}

/* -------------------------------------------------------------- fixed pages */

int pass1_system(struct walk *w)
{
	static const uint64_t least[] = {
		[COUNTER_INO] = INO_FIRST_FREE,
		[COUNTER_LOB] = 1,
		[COUNTER_PURGE] = 1,
		[COUNTER_TXN] = 1,
	};
	const struct disk_system_page *system = (const void *)w->page_buf;
	const struct geometry *geo = &w->raw.geo;
	const char *why = "it is of another type";
	int rc;

	for (uint32_t group = 0; group < geo->group_count; group++)
		claim_page(w, raw_bitmap_page(&w->raw, group));
	claim_page(w, geo->system_page);
	rc = raw_read_page(&w->raw, geo->system_page, w->page_buf, &why);
	if (rc || system->head.type != PAGE_SYSTEM) {
		problem_edit(w, FSCK_SYSTEM_PAGE, NULL, "page %" PRIu64 ": %s", geo->system_page,
			     why);
		return 0;
	}
	w->counters_known = true;
	note_lsn(w, "system page", geo->system_page, w->page_buf);
	for (unsigned i = 0; i < COUNTER_COUNT; i++)
		w->counter[i] = le64_get(system->counter[i]);
	for (unsigned i = 0; i < array_count(least); i++)
		if (w->counter[i] < least[i])
			problem_fix(w, FSCK_COUNTER_MARK, FIX_COUNTER, i, least[i],
				    "counter %u is %" PRIu64, i, w->counter[i]);
	return 0;
}

void pass1_counters(struct walk *w)
{
	uint64_t mark[COUNTER_COUNT] = {
		[COUNTER_INO] = INO_FIRST_FREE,
		[COUNTER_LOB] = w->lob.any ? w->lob.lob + 1 : 1,
		[COUNTER_PURGE] = 1,
		[COUNTER_TXN] = 1,
	};

	if (w->counters_known)
		return;
	if (w->inodes.count && w->inodes.at[w->inodes.count - 1].ino >= mark[COUNTER_INO])
		mark[COUNTER_INO] = w->inodes.at[w->inodes.count - 1].ino + 1;
	for (size_t i = 0; i < w->owners.count; i++)
		if (w->owners.at[i].lob >= mark[COUNTER_LOB])
			mark[COUNTER_LOB] = w->owners.at[i].lob + 1;
	for (size_t i = 0; i < w->purges.count; i++)
		if (w->purges.at[i].key >= mark[COUNTER_PURGE])
			mark[COUNTER_PURGE] = w->purges.at[i].key + 1;
	w->number = FSCK_SYSTEM_PAGE;
	for (unsigned i = 0; i < COUNTER_COUNT; i++) {
		uint64_t margin = mark[i] && mark[i] < UINT64_MAX - COUNTER_MARGIN ? COUNTER_MARGIN
										   : 0;

		list_fix(w, &(struct fsck_fix){
				    .kind = FIX_SYSTEM, .id = i, .value = mark[i] + margin});
	}
}
