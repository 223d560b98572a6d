/*
 * Every page of every index, as it is in place.
 *
 * Each level is walked along its right links, by keys, as in backup_walk.c, which has the
 * proof that no page is missed.  A page that the link names, that is good in place, and
 * that has the low fence that is due, is judged: nothing was latched for it, and
 * the pool has not been asked to keep it.  Anything else is answered by a search from
 * the root, in the flusher's turn (INV-SCRUB-2):
 *
 *	in the pool, dirty,    its first contents may never have been written: put off
 *	  since it was made    until it has been written back
 *	else                   what is in place is a whole page of that number, in the
 *	                       version that the pool has or an older one
 *
 * What a page that the search cannot read leads to is found by the next higher page that
 * it can read, which says which page that was and where the next one begins.  Pages
 * below a damaged one are reached by the links of their level, if by anything.
 */
#include "engine/scrub_internal.h"

#include "engine/flush.h"
#include "engine/pool_internal.h"
#include "engine/tree_internal.h"

#include <errno.h>

#define READS 2u
#define LATE_MAX 256u /* pages that wait to be written; then all of them are */

struct late {
	struct key low;
	unsigned level;
};

struct walk {
	struct scrub *s;
	struct tree *tree;
	unsigned level;
	struct key due;  /* the low fence of the next page */
	uint64_t hint;   /* its number, perhaps; 0 = unknown */
	struct late *late;
	unsigned late_count;
	bool again;      /* those that were put off: not once more */
};

/* ---------------------------------------------------------------- one page */

/* The pool's version names newer extents: fewer of them have gone. */
static void take_newest(struct walk *w)
{
	struct scrub *s = w->s;
	uint32_t page_size = s->volume->geo.page_size;
	struct frame *frame;
	bool taken = false;

	if (pool_peek(s->volume->pool, w->hint, &frame)) {
		latch_s(&frame->latch);
		taken = tree_page_begins_at(frame->data, w->tree, w->level, &w->due);
		if (taken)
			memcpy(s->page, frame->data, page_size);
		unlatch_s(&frame->latch);
		pool_put(frame);
	}
	if (!taken)
		memcpy(s->page, s->place, page_size);
}

static void count_page(struct scrub *s)
{
	s->progress.pages++;
	s->progress.bytes_passed += s->volume->geo.page_size;
	stat_add(&s->volume->stats, STAT_scrub_pages, 1);
}

/* False: not what was hoped for, which need not be damage. */
static bool follow_hint(struct walk *w)
{
	struct scrub *s = w->s;
	uint32_t page_size = s->volume->geo.page_size;
	const char *why = NULL;

	if (w->hint == 0 || !pool_page_number_valid(s->volume, w->hint, PAGE_TREE) ||
	    scrub_read(s, s->place, page_size, w->hint * BLOCK_SIZE) != 0 ||
	    scrub_judge_page(s, w->hint, &why) != 0 ||
	    !tree_page_begins_at(s->place, w->tree, w->level, &w->due))
		return false;
	take_newest(w);
	count_page(s);
	return true;
}

static void report(struct walk *w, uint64_t pageno, const char *why)
{
	struct scrub_damage damage = {
		.place = SCRUB_TREE_PAGE,
		.block = pageno,
		.index = w->tree->id,
		.level = w->level,
		.why = why,
	};

	count_page(w->s);
	scrub_found(w->s, &damage);
}

/* Has what a REC_PAGE_INIT has made of the page come to its place?  Latched. */
static bool is_in_place(const struct frame *frame)
{
	lsn_t init = atomic_load_explicit(&frame->init_lsn, memory_order_relaxed);
	lsn_t oldest = atomic_load_explicit(&frame->oldest_lsn, memory_order_acquire);

	return init == 0 || oldest == 0 || oldest > init;
}

/* In the flusher's turn, the page pinned.  NULL, or what is wrong with it in place. */
static const char *judge_in_place(struct walk *w, uint64_t pageno)
{
	struct scrub *s = w->s;
	const struct disk_page *head = (const struct disk_page *)s->place;
	const char *why = NULL;
	int rc = -EIO;

	/* This may be the first look: an error is believed when it comes twice. */
	for (unsigned i = 0; rc && i < READS; i++)
		rc = scrub_read(s, s->place, s->volume->geo.page_size, pageno * BLOCK_SIZE);
	if (rc)
		return error_text(rc);
	if (scrub_judge_page(s, pageno, &why) != 0)
		return why;
	return head->type == PAGE_TREE && head->index == w->tree->id ? NULL
								      : error_text(-BE_IDENTITY);
}

static void put_off(struct walk *w, const struct key *low)
{
	if (w->again) {
		w->s->progress.skipped++;
		return;
	}
	check(w->late_count < LATE_MAX);
	w->late[w->late_count++] = (struct late){.low = *low, .level = w->level};
}

/* The page that covers the due key now, into s->page; judged, or put off. */
static int search(struct walk *w)
{
	struct scrub *s = w->s;
	struct volume *volume = s->volume;
	const char *why = NULL;
	uint64_t pageno = 0;
	bool in_place = false;
	struct frame *frame;
	struct key low;
	int rc;

	stat_add(&volume->stats, STAT_scrub_searches, 1);
	os_point("scrub:search");
	flusher_pause(volume->flusher);
	epoch_enter(&volume->epochs);
	rc = tree_find(w->tree, &w->due, w->level, &frame);
	if (rc == 0) {
		memcpy(s->page, frame->data, volume->geo.page_size);
		pageno = atomic_load(&frame->pageno);
		in_place = is_in_place(frame);
		tree_unlatch(frame, LATCH_S);
		os_point("scrub:located");
		if (in_place)
			why = judge_in_place(w, pageno);
		pool_put(frame);
	}
	epoch_exit(&volume->epochs);
	flusher_resume(volume->flusher);
	if (rc)
		return rc;
	page_low(s->page, &low);
	if (!in_place)
		put_off(w, &low);
	else if (why)
		report(w, pageno, why);
	else
		count_page(s);
	return 0;
}

/* ------------------------------------------------------- what cannot be read */

/* From the lowest page above that can be read: which page is it, and what follows? */
static int find_above(struct walk *w, uint64_t *child, unsigned *child_level, struct key *next)
{
	struct volume *volume = w->s->volume;
	int rc = pool_take_tickets(volume->pool, TREE_READ_TICKETS);

	if (rc)
		return rc;
	rc = -EIO;
	for (unsigned level = w->level + 1; rc != 0 && level < TREE_LEVELS_MAX; level++) {
		struct frame *frame;
		unsigned slot;

		epoch_enter(&volume->epochs);
		rc = tree_find(w->tree, &w->due, level, &frame);
		epoch_exit(&volume->epochs);
		if (rc)
			continue;
		slot = page_child_slot(frame->data, w->due.bytes, w->due.len);
		*child = page_child(frame->data, slot);
		*child_level = level - 1;
		if (slot + 1 < page_slots(frame->data))
			page_key(frame->data, slot + 1, next);
		else
			page_high(frame->data, next);
		tree_unlatch(frame, LATCH_S);
		pool_put(frame);
	}
	pool_give_tickets(volume->pool, TREE_READ_TICKETS);
	return rc;
}

/* True: the walk of the level goes on at the new due key. */
static bool step_over(struct walk *w, int why)
{
	unsigned child_level = 0;
	struct key next = {0};
	uint64_t child = 0;
	bool more;

	if (find_above(w, &child, &child_level, &next) != 0) {
		child = w->tree->root;
		child_level = w->level;
	}
	/* Of a higher level: told when that was walked. */
	if (child_level == w->level)
		report(w, child, error_text(why));
	else
		w->s->progress.unreachable++;
	more = next.len > 0 &&
	       key_compare(next.bytes, next.len, w->due.bytes, w->due.len) > 0;
	w->due = next;
	w->hint = 0;
	return more;
}

/* ----------------------------------------------------------------- one level */

static int judge_late(struct walk *w)
{
	struct volume *volume = w->s->volume;
	struct walk again = *w;
	int rc, found;

	if (w->late_count == 0)
		return 0;
	rc = flush_until(volume->flusher, log_next_lsn(volume->log));
	os_point("scrub:late");
	again.again = true;
	for (unsigned i = 0; rc == 0 && i < w->late_count; i++) {
		again.due = w->late[i].low;
		again.level = w->late[i].level;
		rc = pool_take_tickets(volume->pool, TREE_READ_TICKETS);
		if (rc)
			break;
		/* Whatever it is that covers the key now. */
		found = search(&again);
		pool_give_tickets(volume->pool, TREE_READ_TICKETS);
		if (found == -BE_NOTFOUND)
			w->s->progress.skipped++;
		else if (found)
			(void)step_over(&again, found);
		rc = scrub_pause(w->s);
	}
	w->late_count = 0;
	return rc;
}

/* The page in s->page is done with but for its contents.  *last: of its level. */
static int accept_page(struct walk *w, bool *last)
{
	struct scrub *s = w->s;
	const struct disk_tree_page *page = tree_page(s->page);
	struct key high;

	page_high(s->page, &high);
	w->hint = le64_get(page->right);
	*last = w->hint == 0;
	if (!*last && key_compare(high.bytes, high.len, w->due.bytes, w->due.len) <= 0)
		return corrupt_at(s->volume, le64_get(page->head.pageno), "scrub",
				  "a page's range is empty");
	w->due = high;
	return w->tree->id == INDEX_LOB && w->level == 0 ? scrub_leaf(s) : 0;
}

static int walk_level(struct walk *w)
{
	struct pool *pool = w->s->volume->pool;
	bool last = false;

	while (!last) {
		int rc = pool_take_tickets(pool, TREE_READ_TICKETS);

		if (rc)
			return rc;
		rc = follow_hint(w) ? 0 : search(w);
		pool_give_tickets(pool, TREE_READ_TICKETS);
		os_point("scrub:page");
		if (rc == -BE_NOTFOUND) /* the root was lowered */
			return 0;
		if (rc == 0) {
			rc = accept_page(w, &last);
		} else {
			last = !step_over(w, rc);
			rc = 0;
		}
		if (rc == 0 && w->late_count == LATE_MAX)
			rc = judge_late(w);
		if (rc == 0)
			rc = scrub_pause(w->s);
		if (rc)
			return rc;
	}
	return 0;
}

/* ----------------------------------------------------------------- the whole */

/* A level that is added later consists of new pages, and the root. */
static int root_level(struct walk *w, unsigned *level)
{
	struct pool *pool = w->s->volume->pool;
	struct frame *frame;
	int rc = pool_take_tickets(pool, 1);

	if (rc)
		return rc;
	rc = pool_get(pool, w->tree->root, PAGE_TREE, w->tree->id, &frame);
	if (rc == 0) {
		latch_s(&frame->latch);
		*level = tree_page(frame->data)->head.level;
		unlatch_s(&frame->latch);
		pool_put(frame);
	}
	pool_give_tickets(pool, 1);
	return rc;
}

static int walk_tree(struct scrub *s, struct tree *tree, struct late *late)
{
	struct walk w = {.s = s, .tree = tree, .late = late};
	unsigned level = 0;
	int rc = root_level(&w, &level);

	if (rc) {
		report(&w, tree->root, error_text(rc));
		return scrub_pause(s);
	}
	for (unsigned l = level + 1; l-- > 0 && rc == 0;) {
		w.level = l;
		w.due = (struct key){0};
		w.hint = l == level ? tree->root : 0;
		rc = walk_level(&w);
	}
	return rc ? rc : judge_late(&w);
}

int scrub_walk(struct scrub *s)
{
	struct late late[LATE_MAX];
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < INDEX_COUNT; i++)
		rc = walk_tree(s, &s->volume->index[i], late);
	return rc;
}
