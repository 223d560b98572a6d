/*
 * The page pool and the page reserve: page-shaped pieces that are kept for metadata.
 *
 *	pool       pageno[0 .. count)               reserve, as bits of the groups
 *	|<----- kept ----->|<----- work ----->|     |<----------- held ---------->|
 *	 privileged callers  everybody's pages       everybody's pages, when the
 *	                                             map has no whole piece any more
 *
 * A page wants its blocks in one aligned piece, data is content with any.  So data
 * that comes and goes leaves a map with many free blocks and no piece for a page,
 * and then nothing could be created on a volume that is half empty.  Hence
 *
 * INV-SPACE-3: file data never gets a block of the reserve, kept pages included: a
 * share of the volume (RESERVE_SHARE), at least KEPT_SHARE.  While the reserve
 * lacks pieces, each piece that becomes whole goes there under the same latch
 * (group_give()), before a writer can break it.
 *
 * b. While groups are not loaded (space_load.c) the reserve wants only the share of those
 * that are; each gives its own when it is loaded, and statfs counts as withheld what the
 * others will give.
 *
 * The kept part is the reserve of those who free space: as long as it is there,
 * unlink, rename, truncate and purge find a page for a split and a block for a
 * rewritten tail.  As long as both parts together have fewer pages than that,
 * space_claim() denies as many blocks of the map to the others.
 *
 * The pool exists so that a split takes a page from a list under a leaf latch and
 * never searches a map.  Its working part comes from whole pieces that data could
 * have had as well, and goes back to it when blocks are short.
 *
 * Pieces of both are busy in the map, count as free for statfs, and are nobody's
 * reservation.  They live in memory only: a crash leaks nothing.
 */
#include "engine/space_internal.h"

#include "engine/base/error.h"

#include <errno.h>

#define RESERVE_SHARE 32u /* of the volume: kept pages and held ones */
#define KEPT_SHARE 64u    /* of the volume, at most */
#define WORK_SHARE 128u
#define WORK_PAGES_MIN 2u
#define ROOM_FACTOR 4u    /* work pages are kept ready only while the map has so many times more */

/* ---------------------------------------------------------------- the reserve */

/* INV-SPACE-3 b */
static uint64_t target_now(struct space *space)
{
	uint64_t known = atomic_load(&space->loaded) + (uint64_t)atomic_load(&space->bad_count);
	uint64_t target = space->reserve.target, count = space->group_count;

	return known < count ? target * known / count : target;
}

/* At most `want` slots; how many. */
static uint32_t take_slots(struct space *space, uint32_t want)
{
	struct page_reserve *reserve = &space->reserve;
	uint64_t held = atomic_load(&reserve->held), target = target_now(space);
	uint64_t slots;

	do {
		if (held >= target)
			return 0;
		slots = target - held < want ? target - held : want;
	} while (!atomic_compare_exchange_weak(&reserve->held, &held, held + slots));
	return (uint32_t)slots;
}

bool pages_hold_begin(struct space *space, uint32_t blocks)
{
	if (take_slots(space, 1) == 0)
		return false;
	if (blocks == 0 || space_claim(space, blocks, SPACE_PRIVILEGED))
		return true;
	atomic_fetch_sub(&space->reserve.held, 1);
	return false;
}

/* Whole pieces of one group; false: the reserve or the count of free blocks has no more room. */
static bool hold_some(struct space *space, struct group *group)
{
	uint32_t want = atomic_load_explicit(&group->whole, memory_order_relaxed);
	uint32_t slots = take_slots(space, want);
	uint64_t blocks = (uint64_t)slots * space->page_blocks;
	uint32_t got = 0;
	bool claimed = slots > 0 && space_claim(space, blocks, SPACE_PRIVILEGED);

	if (claimed) {
		got = group_hold(space, group, slots);
		atomic_fetch_add(&space->free, (int64_t)(slots - got) * space->page_blocks);
	}
	atomic_fetch_sub(&space->reserve.held, slots - got);
	return claimed;
}

void pages_group_loaded(struct space *space, struct group *group)
{
	if (atomic_load(&space->reserve.held) < target_now(space) &&
	    atomic_load_explicit(&group->whole, memory_order_relaxed) > 0)
		hold_some(space, group);
}

static void hold_more(struct space *space)
{
	for (uint32_t number = 0; number < space->group_count; number++) {
		struct group *group = space_group(space, number);

		if (atomic_load(&space->reserve.held) >= target_now(space))
			return;
		if (group && atomic_load_explicit(&group->whole, memory_order_relaxed) > 0 &&
		    !hold_some(space, group))
			return;
	}
}

/* A piece of the reserve, from the lowest group that has one. */
static bool take_held(struct space *space, uint64_t *pageno)
{
	for (uint32_t number = 0; number < space->group_count; number++) {
		struct group *group = space_group(space, number);
		uint32_t bit;

		if (group && group_unhold(space, group, &bit)) {
			atomic_fetch_sub(&space->reserve.held, 1);
			*pageno = space_first_block(space, number) + bit;
			return true;
		}
	}
	return false;
}

uint64_t pages_withheld(struct space *space)
{
	uint64_t ready = atomic_load(&space->pages.count);
	/* Groups that are not loaded have their share. */
	uint64_t have = ready + atomic_load(&space->reserve.held) + space->reserve.target -
			target_now(space);
	uint64_t all = space->pages.kept + space->reserve.target;

	if (have > all)
		have = all;
	return have > space->pages.kept ? have : space->pages.kept;
}

/* ------------------------------------------------------------------- the pool */

/* A page-shaped piece of the map, from the lowest group that has one. */
static bool take_whole(struct space *space, uint64_t *pageno)
{
	if (!space_claim(space, space->page_blocks, SPACE_PRIVILEGED))
		return false;
	for (uint32_t number = 0; number < space->group_count; number++) {
		struct group *group = space_group(space, number);
		uint32_t bit;

		if (group && group_take_page(space, group, &bit)) {
			*pageno = space_first_block(space, number) + bit;
			return true;
		}
	}
	atomic_fetch_add(&space->free, space->page_blocks);
	return false;
}

bool pages_find(struct space *space, uint64_t *pageno)
{
	return take_whole(space, pageno);
}

static bool take_piece(struct space *space, bool from_reserve, uint64_t *pageno)
{
	if (take_whole(space, pageno))
		return true;
	if (!from_reserve || !take_held(space, pageno))
		return false;
	stat_add(&space->volume->stats, STAT_space_reserve_pages, 1);
	return true;
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

static void fill(struct space *space, uint32_t target, bool from_reserve)
{
	struct page_pool *pages = &space->pages;

	for (unsigned i = 0; i < PAGES_REFILL_MAX; i++) {
		uint64_t pageno;

		if (atomic_load(&pages->count) >= target ||
		    !take_piece(space, from_reserve, &pageno))
			return;
		if (!push_page(pages, pageno))
			space_give(space, pageno, space->page_blocks);
	}
}

void pages_refill(struct space *space)
{
	struct page_pool *pages = &space->pages;
	int64_t room = (int64_t)pages->work * space->page_blocks * ROOM_FACTOR;

	fill(space, pages->kept, true);
	hold_more(space);
	if (atomic_load(&space->free) >= room)
		fill(space, pages->kept + pages->work, false);
}

void pages_break(struct space *space, uint64_t blocks)
{
	uint64_t pageno;

	ready_break(space, blocks);
	while (atomic_load(&space->free) < (int64_t)blocks &&
	       pop_page(space, space->pages.kept, 0, &pageno))
		space_give(space, pageno, space->page_blocks);
}

bool pages_give_up(struct space *space, uint64_t *pageno)
{
	return take_held(space, pageno) || pop_page(space, 0, 0, pageno);
}

void pages_set_targets(struct space *space)
{
	struct page_pool *pages = &space->pages;
	uint64_t volume_pages = space->total / space->page_blocks;
	uint64_t kept = volume_pages / KEPT_SHARE;
	uint64_t work = volume_pages / WORK_SHARE;
	uint64_t reserve = volume_pages / RESERVE_SHARE;

	if (kept > PAGES_KEPT_MAX)
		kept = PAGES_KEPT_MAX;
	if (work > PAGES_WORK_MAX)
		work = PAGES_WORK_MAX;
	if (work < WORK_PAGES_MIN)
		work = WORK_PAGES_MIN;
	pages->kept = (uint32_t)kept;
	pages->work = (uint32_t)work;
	space->reserve.target = reserve > kept ? reserve - kept : 0;
}

void pages_init(struct space *space)
{
	latch_init(&space->pages.latch, RANK_LEAF, 0);
	pages_set_targets(space);
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
	struct space_look before = space_look(space);

	for (unsigned attempt = 0; attempt < 2 || space_load_more(space); attempt++) {
		pages_refill(space);
		fill(space, least, true);
		if (atomic_load(&pages->count) >= least)
			return 0;
		ready_break(space, INT64_MAX); /* INV-READY-3 */
		space_advance(space);
	}
	defer_note_enospc(space, before);
	stat_add(&space->volume->stats, STAT_space_enospc, 1);
	return -ENOSPC;
}
