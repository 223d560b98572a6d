/*
 * The page pool: page-shaped pieces kept ready, so that a split takes one from
 * a list under a leaf latch and never searches a map.
 *
 *	pageno[0 .. count)
 *	|<----- kept ----->|<----- work ----->|
 *	 privileged callers  everybody
 *
 * The kept part is the volume's reserve: as long as it is there, unlink,
 * rename, truncate and purge find a page for a split and a block for a rewritten
 * tail, also on a volume so scattered that its map has no page-shaped piece.
 * A kept page that was used is replaced from the first blocks that are freed;
 * until then space_claim() denies as many blocks of the map to the others.
 *
 * A ready page is busy in the map, counts as free for statfs, and is nobody's
 * reservation.  It lives in memory only: a crash leaks nothing.
 */
#include "engine/space_internal.h"

#include "engine/base/error.h"

#include <errno.h>

#define KEPT_SHARE 64u   /* of the volume, at most */
#define WORK_SHARE 128u
#define WORK_PAGES_MIN 2u
#define ROOM_FACTOR 4u   /* work pages are kept ready only while the map has so many times more */

/* A page-shaped piece of the map, near the lowest group that has one. */
static bool take_piece(struct space *space, uint64_t *pageno)
{
	if (!space_claim(space, space->page_blocks, SPACE_PRIVILEGED))
		return false;
	for (uint32_t number = 0; number < space->group_count; number++) {
		struct group *group = &space->group[number];
		uint32_t bit;

		if (atomic_load_explicit(&group->longest, memory_order_relaxed) >=
			    space->page_blocks &&
		    group_take_page(space, group, &bit)) {
			*pageno = space_first_block(space, number) + bit;
			return true;
		}
	}
	atomic_fetch_add(&space->free, space->page_blocks);
	return false;
}

bool pages_find(struct space *space, uint64_t *pageno)
{
	return take_piece(space, pageno);
}

static bool push_page(struct page_pool *pages, uint64_t pageno)
{
	uint32_t count;

	latch_x(&pages->latch);
	count = atomic_load_explicit(&pages->count, memory_order_relaxed);
	if (count < pages->kept + pages->work) {
		pages->pageno[count] = pageno;
		atomic_store(&pages->count, count + 1);
	}
	unlatch_x(&pages->latch);
	return count < pages->kept + pages->work;
}

/* A ready page while more than `keep` are there: one of the hint's group when there is one. */
static bool pop_page(struct space *space, uint32_t keep, uint64_t hint, uint64_t *pageno)
{
	struct page_pool *pages = &space->pages;
	uint64_t start = space->volume->geo.groups_start;
	uint32_t count, chosen;

	latch_x(&pages->latch);
	count = atomic_load_explicit(&pages->count, memory_order_relaxed);
	if (count <= keep) {
		unlatch_x(&pages->latch);
		return false;
	}
	chosen = count - 1;
	for (uint32_t i = 0; hint >= start && i < count; i++) {
		if ((pages->pageno[i] - start) / space->group_blocks ==
		    (hint - start) / space->group_blocks) {
			chosen = i;
			break;
		}
	}
	*pageno = pages->pageno[chosen];
	pages->pageno[chosen] = pages->pageno[count - 1];
	atomic_store(&pages->count, count - 1);
	unlatch_x(&pages->latch);
	return true;
}

static void fill(struct space *space, uint32_t target)
{
	struct page_pool *pages = &space->pages;

	for (unsigned i = 0; i < PAGES_REFILL_MAX; i++) {
		uint64_t pageno;

		if (atomic_load(&pages->count) >= target || !take_piece(space, &pageno))
			return;
		if (!push_page(pages, pageno))
			space_give(space, pageno, space->page_blocks);
	}
}

void pages_refill(struct space *space)
{
	struct page_pool *pages = &space->pages;
	int64_t room = (int64_t)pages->work * space->page_blocks * ROOM_FACTOR;
	uint32_t target = pages->kept;

	if (atomic_load(&space->free) >= room)
		target += pages->work;
	fill(space, target);
}

void pages_break(struct space *space, uint64_t blocks, uint32_t keep)
{
	uint64_t pageno;

	ready_break(space, blocks);
	while (atomic_load(&space->free) < (int64_t)blocks && pop_page(space, keep, 0, &pageno))
		space_give(space, pageno, space->page_blocks);
}

void pages_init(struct space *space)
{
	struct page_pool *pages = &space->pages;
	uint64_t volume_pages = space->total / space->page_blocks;
	uint64_t kept = volume_pages / KEPT_SHARE;
	uint64_t work = volume_pages / WORK_SHARE;

	latch_init(&pages->latch, RANK_LEAF, 0);
	pages->kept = kept < PAGES_KEPT_MAX ? (uint32_t)kept : PAGES_KEPT_MAX;
	pages->work = work < PAGES_WORK_MAX ? (uint32_t)work : PAGES_WORK_MAX;
	if (pages->work < WORK_PAGES_MIN)
		pages->work = WORK_PAGES_MIN;
	pages_refill(space);
}

int space_take_page(struct space *space, unsigned flags, uint64_t hint, uint64_t *pageno)
{
	uint32_t keep = flags & SPACE_PRIVILEGED ? 0 : space->pages.kept;

	if (!pop_page(space, keep, hint, pageno))
		return -BE_AGAIN;
	atomic_fetch_add(&space->reserved, space->page_blocks);
	return 0;
}

void space_untake_page(struct space *space, uint64_t pageno)
{
	atomic_fetch_sub(&space->reserved, space->page_blocks);
	if (!push_page(&space->pages, pageno))
		space_give(space, pageno, space->page_blocks);
}

int space_refill_pages(struct space *space, unsigned flags)
{
	struct page_pool *pages = &space->pages;
	uint32_t least = flags & SPACE_PRIVILEGED ? 1 : pages->kept + 1;

	for (unsigned attempt = 0; attempt < 2; attempt++) {
		pages_refill(space);
		fill(space, least);
		if (atomic_load(&pages->count) >= least)
			return 0;
		ready_break(space, INT64_MAX); /* INV-READY-3 */
		space_advance(space);
	}
	defer_note_enospc(space);
	stat_add(&space->volume->stats, STAT_space_enospc, 1);
	return -ENOSPC;
}
