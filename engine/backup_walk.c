/*
 * Every metadata page of the volume, once, while it is in use (step 3).
 *
 * A page's copy may be of any moment between c and now, since the log from c on
 * brings it to e (INV-REPLAY-1).  So it is taken from where it costs least: from
 * the pool when it is there, else from its place, past the pool, which is left to
 * those who work.  What must not happen is to miss a page.
 *
 * INV-BAK-3: each page that is reachable in an index from c to e is copied.  Each
 * level is walked along its right links, by keys:
 *
 *	the accepted copies of a level have ranges [low, high) that join without a
 *	gap, from minus to plus infinity; each copy is a version that its page
 *	had at some moment between c and e
 *
 * Let Q be on the level throughout, with the low fence q (it never changes,
 * INV-TREE-5).  At each moment the ranges of a level's pages are disjoint, so no
 * version of another page covers q; some accepted copy does; so it is one of Q.
 * Pages that come later begin with a REC_PAGE_INIT in the log; pages that go have a
 * FREE_PAGE there (INV-REPLAY-2).
 *
 * The root is not on one level throughout: it is raised, and lowered again (tree_merge.c),
 * by a REC_PAGE_INIT each time; its low fence is empty on any level.  It is copied first
 * of all, and perhaps again as a page of a level, which is one more version of it.
 * Raised: what it had is in a new page.  Lowered: the level that it was on is gone, and of
 * the pages of the level below there was but one, which is DEAD and freed by the same
 * mtr; the root alone has that level's range, so ranges of a level stay disjoint.  So a
 * page Q that is on its level from c to e is not the root, nor its child that went, and
 * of its level there has been some page all the time: the walk of that level finds it.
 * A level that a search does not find has no such Q, and is done with: the FREE_PAGE of
 * whatever was there, and of copies that were accepted before, lies below e, which is
 * chosen after the search has seen the lower root.
 *
 * A right link is a hint.  It is followed when the page that it names, as found,
 * has the index, the level, and the low fence that is due; anything else (it was
 * merged away, or is being read) is answered by a search from the root.  "As
 * found" is a version of now: when the pool does not have a page that is
 * reachable, its place has the newest version; and a page that is no longer
 * reachable keeps its bytes, its blocks being held (INV-LOG-7).
 */
#include "engine/backup_internal.h"

#include "engine/pool_internal.h"
#include "engine/tree_internal.h"

#include <errno.h>

#define TORN_TRIES 20u
#define TORN_WAIT_NS 2000000ull

/* ---------------------------------------------------------------- one page */

static void copy_frame(struct backup *b, struct frame *frame)
{
	memcpy(b->page, frame->data, b->volume->geo.page_size);
}

static bool fetch_from_pool(struct backup *b, uint64_t pageno)
{
	struct frame *frame;

	if (!pool_peek(b->volume->pool, pageno, &frame))
		return false;
	latch_s(&frame->latch);
	copy_frame(b, frame);
	unlatch_s(&frame->latch);
	pool_put(frame);
	return true;
}

static int read_place(struct backup *b, uint64_t pageno)
{
	const struct geometry *geo = &b->volume->geo;
	int rc = dev_read(b->volume->dev, b->page, geo->page_size, pageno * BLOCK_SIZE);

	return rc ? rc : page_verify(b->page, geo->page_size, pageno, b->volume->tag, NULL);
}

/* A page that was live at c, whose bytes in place may be half written just now. */
int backup_fetch_in_place(struct backup *b, uint64_t pageno)
{
	struct waitq nobody = {0};
	int rc = read_place(b, pageno);

	for (unsigned i = 0; rc && i < TORN_TRIES; i++) {
		if (fetch_from_pool(b, pageno))
			return 0;
		waitq_wait(&nobody, waitq_ticket(&nobody), TORN_WAIT_NS);
		rc = read_place(b, pageno);
	}
	if (rc)
		return corrupt_at(b->volume, pageno, "backup", error_text(rc));
	return 0;
}

/* A fixed page: it exists for as long as the volume does. */
static int copy_fixed(struct backup *b, uint64_t pageno)
{
	int rc = fetch_from_pool(b, pageno) ? 0 : backup_fetch_in_place(b, pageno);

	if (rc)
		return rc;
	page_seal(b->page, b->volume->geo.page_size);
	return backup_put_page(b, pageno, false);
}

/* ----------------------------------------------------------------- indexes */

struct walk {
	struct backup *b;
	struct tree *tree;
	unsigned level;
	struct key due;     /* the low fence of the next page */
	uint64_t hint;      /* its number, perhaps; 0 = unknown */
};

static bool follow_hint(struct walk *w)
{
	struct backup *b = w->b;

	if (w->hint == 0 || !pool_page_number_valid(b->volume, w->hint, PAGE_TREE))
		return false;
	if (!fetch_from_pool(b, w->hint) && read_place(b, w->hint) != 0)
		return false;
	return tree_page_begins_at(b->page, w->tree, w->level, &w->due);
}

/* The page that covers the due key now. */
static int search(struct walk *w)
{
	struct volume *volume = w->b->volume;
	struct frame *frame;
	int rc;

	epoch_enter(&volume->epochs);
	rc = tree_descend(w->tree, &w->due, w->level, LATCH_S, &frame);
	epoch_exit(&volume->epochs);
	if (rc)
		return rc;
	copy_frame(w->b, frame);
	unlatch_s(&frame->latch);
	pool_put(frame);
	return 0;
}

/* Accepts the page in b->page; true: it was the last of its level. */
static int accept_page(struct walk *w, bool *last)
{
	struct backup *b = w->b;
	const struct disk_tree_page *page = tree_page(b->page);
	uint64_t pageno = le64_get(page->head.pageno);
	struct key high;
	lsn_t since = b->params->since;

	page_high(b->page, &high);
	w->hint = le64_get(page->right);
	*last = w->hint == 0;
	if (!*last && key_compare(high.bytes, high.len, w->due.bytes, w->due.len) <= 0)
		return corrupt_at(b->volume, pageno, "backup", "a page's range is empty");
	w->due = high;
	page_seal(b->page, b->volume->geo.page_size);
	return backup_put_page(b, pageno, since > 0 && page_lsn(b->page) <= since);
}

static int walk_level(struct backup *b, struct tree *tree, unsigned level, uint64_t first)
{
	struct walk w = {.b = b, .tree = tree, .level = level, .hint = first};
	struct pool *pool = b->volume->pool;
	bool last = false;
	int rc = 0;

	while (rc == 0 && !last) {
		rc = pool_take_tickets(pool, 2);
		if (rc)
			return rc;
		rc = follow_hint(&w) ? 0 : search(&w);
		pool_give_tickets(pool, 2);
		if (rc == -BE_NOTFOUND) /* the root was lowered */
			return 0;
		if (rc == 0)
			rc = accept_page(&w, &last);
		os_point("backup:page");
		if (rc == 0)
			rc = backup_look(b);
	}
	return rc;
}

static int walk_tree(struct backup *b, struct tree *tree)
{
	unsigned level;
	int rc = copy_fixed(b, tree->root);

	if (rc)
		return rc;
	level = tree_page(b->page)->head.level;
	os_point("backup:root");
	/* A level that is added later consists of new pages, and the root. */
	for (unsigned l = level + 1; l-- > 0 && rc == 0;)
		rc = walk_level(b, tree, l, l == level ? tree->root : 0);
	return rc;
}

int backup_walk(struct backup *b)
{
	const struct geometry *geo = &b->volume->geo;
	int rc = copy_fixed(b, geo->system_page);

	for (unsigned i = 0; rc == 0 && i < INDEX_COUNT; i++)
		rc = walk_tree(b, &b->volume->index[i]);
	/* All of them, changed or not: they are few, and fsck may have rewritten one. */
	for (uint32_t i = 0; rc == 0 && i < geo->group_count; i++) {
		rc = copy_fixed(b, geo->groups_start + (uint64_t)i * geo->group_blocks);
		if (rc == 0)
			rc = backup_look(b);
	}
	return rc;
}
