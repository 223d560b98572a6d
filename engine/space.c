/*
 * The free map as a whole: opening, claims, reservations, counts.
 *
 * Life of a block:
 *
 *	           space_reserve        mtr_commit: space_used
 *	   free ------------------> reserved ------------------> used
 *	    ^  <------------------                                 |
 *	    |      space_unreserve                                 | mtr_commit:
 *	    |                                                      v space_freed
 *	    '------------------------------------------------- deferred
 *	       space_advance: mark (page: checkpoint) and epochs have passed
 *
 * Only used has its bit set on the medium; reserved and deferred are memory.
 *
 *	crash while     the mount afterwards finds
 *	reserved        free: nothing was logged
 *	used            used, if the mtr was durable; else free, as if reserved
 *	deferred        free, if the freeing mtr was durable; else used, with its
 *	                contents: nobody was allowed to write there (INV-LOG-7)
 *
 * INV-SPACE-1: space->free <= zero bits of all maps: a claim lowers the count
 * before bits are taken, a give clears bits before it raises the count.  So
 * whoever has claimed n blocks finds n free bits, though perhaps in too many
 * pieces, and competing threads never search in vain for lack of blocks.
 *
 * The reserve for privileged callers lies in the page pool (space_pages.c), as
 * page-shaped pieces; while the pool lacks some of it, that many blocks of the
 * map are denied to the others.
 */
#include "engine/space_internal.h"

#include "engine/mtr.h"
#include "engine/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RESERVE_GROUPS_MAX (MTR_GROUPS_MAX / 2) /* the other half is for what the mtr frees */
#define PREFETCH_GROUPS 32u
#define THRIFTY_SHARE 4u  /* below total / 4 free blocks small pieces come from broken ones */
#define THRIFTY_GROUPS 4u /* that are searched for broken ones */

/* ------------------------------------------------------------------ opening */

static int load_group(struct space *space, uint32_t number)
{
	struct volume *volume = space->volume;
	struct group *group = &space->group[number];
	uint64_t first = space_first_block(space, number);
	uint64_t end = volume->geo.block_count - 1; /* the last block is the superblock's copy */
	const struct disk_bitmap_page *page;
	struct frame *frame;
	uint32_t bits = space->group_blocks;
	int rc = pool_get(volume->pool, first, PAGE_BITMAP, 0, &frame);

	if (rc)
		return rc;
	if (first + bits > end)
		bits = (uint32_t)(end - first);
	latch_s(&frame->latch);
	page = (const struct disk_bitmap_page *)frame->data;
	if (le32_get(page->group) != number)
		rc = corrupt_at(volume, first, "space_open", "bitmap of another group");
	else if (!page_bits_are(frame->data, 0, space->page_blocks, true))
		rc = corrupt_at(volume, first, "space_open", "bitmap page marked free");
	else
		memcpy(group->busy, page + 1, (bits + 7) / 8);
	unlatch_s(&frame->latch);
	pool_put(frame);
	if (rc)
		return rc;
	for (uint32_t bit = bits; bit % 8; bit++)
		group->busy[bit / 64] |= 1ull << bit % 64;
	space->total += bits;
	group_loaded(space, group);
	atomic_fetch_add_explicit(&space->free, atomic_load(&group->free), memory_order_relaxed);
	return 0;
}

static void prefetch_groups(struct space *space, uint32_t from)
{
	uint64_t pageno[PREFETCH_GROUPS];
	size_t count = 0;

	while (count < PREFETCH_GROUPS && from + count < space->group_count) {
		pageno[count] = space_first_block(space, from + (uint32_t)count);
		count++;
	}
	pool_prefetch(space->volume->pool, pageno, count, PAGE_BITMAP, 0);
}

static int load_groups(struct space *space)
{
	struct pool *pool = space->volume->pool;
	int rc = pool_take_tickets(pool, 1);

	if (rc)
		return rc;
	for (uint32_t number = 0; number < space->group_count && rc == 0; number++) {
		if (number % PREFETCH_GROUPS == 0)
			prefetch_groups(space, number);
		rc = load_group(space, number);
	}
	pool_give_tickets(pool, 1);
	return rc;
}

int space_open(struct space **out, struct volume *volume)
{
	const struct geometry *geo = &volume->geo;
	struct space *space = calloc(1, sizeof(*space));
	int rc = -ENOMEM;

	*out = NULL;
	if (space == NULL)
		return -ENOMEM;
	space->volume = volume;
	space->group_count = geo->group_count;
	space->group_blocks = geo->group_blocks;
	space->page_blocks = geo->page_blocks;
	space->words = (geo->group_blocks + 63) / 64;
	space->group = calloc(space->group_count, sizeof(*space->group));
	space->busy = calloc(space->group_count, space->words * sizeof(*space->busy));
	if (space->group == NULL || space->busy == NULL)
		goto out;
	for (uint32_t number = 0; number < space->group_count; number++)
		group_init(space, number, space->busy + (size_t)number * space->words);
	rc = defer_init(space);
	if (rc)
		goto out;
	rc = load_groups(space);
	if (rc)
		goto out;
	pages_init(space);
	ready_init(space);
	for (unsigned shard = 0; shard < STAT_SHARDS; shard++)
		space->near[shard] = geo->groups_start + space->total / STAT_SHARDS * shard;
	*out = space;
	return 0;
out:
	space_close(space);
	return rc;
}

void space_close(struct space *space)
{
	if (space == NULL)
		return;
	defer_destroy(space);
	free(space->busy);
	free(space->group);
	free(space);
}

/* ------------------------------------------------------------------- blocks */

uint64_t space_bitmap_page(const struct volume *volume, uint64_t block)
{
	const struct geometry *geo = &volume->geo;

	check(block >= geo->groups_start);
	return block - (block - geo->groups_start) % geo->group_blocks;
}

struct group *space_group_of(struct space *space, uint64_t start, uint64_t count, uint32_t *bit)
{
	uint64_t index = start - space->volume->geo.groups_start;
	uint64_t number = index / space->group_blocks;

	*bit = (uint32_t)(index % space->group_blocks);
	check(start >= space->volume->geo.groups_start && number < space->group_count);
	check(count > 0 && *bit + count <= space->group_blocks);
	return &space->group[number];
}

bool space_claim(struct space *space, uint64_t blocks, unsigned flags)
{
	int64_t free = atomic_load(&space->free);
	int64_t denied;

	do {
		uint32_t ready = atomic_load(&space->pages.count);
		uint32_t kept = space->pages.kept;

		denied = 0;
		if (!(flags & SPACE_PRIVILEGED) && ready < kept)
			denied = (int64_t)(kept - ready) * space->page_blocks;
		if (free < (int64_t)blocks + denied)
			return false;
	} while (!atomic_compare_exchange_weak(&space->free, &free, free - (int64_t)blocks));
	return true;
}

void space_give(struct space *space, uint64_t start, uint64_t count)
{
	uint32_t bit;
	struct group *group = space_group_of(space, start, count, &bit);

	group_give(space, group, bit, (uint32_t)count);
	atomic_fetch_add(&space->free, (int64_t)count);
}

/* ------------------------------------------------------------- reservations */

static void add_piece(struct space *space, struct reservation *r, const struct group *group,
		      uint32_t first, uint32_t length)
{
	uint32_t number = (uint32_t)(group - space->group);

	check(r->count < RESERVE_EXTENTS_MAX);
	r->piece[r->count++] = (struct piece){
		.start = space_first_block(space, number) + first,
		.length = length,
	};
	r->blocks += length;
}

/* One piece, from the group of `near` onwards. */
static bool take_one(struct space *space, uint64_t near, uint32_t blocks, bool thrifty,
		     struct reservation *out)
{
	uint64_t index = near - space->volume->geo.groups_start;
	uint32_t number = (uint32_t)(index / space->group_blocks);
	uint32_t from = (uint32_t)(index % space->group_blocks);
	uint32_t groups = space->group_count;

	if (thrifty && groups > THRIFTY_GROUPS)
		groups = THRIFTY_GROUPS;
	for (uint32_t i = 0; i < groups; i++) {
		struct group *group = &space->group[number];
		uint32_t first;

		if (atomic_load_explicit(&group->longest, memory_order_relaxed) >= blocks &&
		    atomic_load_explicit(&group->free, memory_order_relaxed) >= blocks &&
		    group_take(space, group, from, blocks, thrifty, &first)) {
			add_piece(space, out, group, first, blocks);
			return true;
		}
		from = UINT32_MAX;
		number = number + 1 < space->group_count ? number + 1 : 0;
	}
	return false;
}

static bool used_already(const uint32_t *numbers, unsigned count, uint32_t number)
{
	for (unsigned i = 0; i < count; i++)
		if (numbers[i] == number)
			return true;
	return false;
}

/* The group with the most free blocks among those that were not tried. */
static bool richest_group(struct space *space, const uint32_t *tried, unsigned count, uint32_t *out)
{
	uint32_t most = 0;

	for (uint32_t number = 0; number < space->group_count; number++) {
		uint32_t free = atomic_load_explicit(&space->group[number].free,
						     memory_order_relaxed);

		if (free > most && !used_already(tried, count, number)) {
			most = free;
			*out = number;
		}
	}
	return most > 0;
}

/*
 * Few pieces: in each group the longest runs first, as long as those that are
 * left could still make up the rest.
 */
static bool take_scattered(struct space *space, uint32_t blocks, struct reservation *out)
{
	uint32_t tried[RESERVE_GROUPS_MAX];

	for (unsigned count = 0; count < RESERVE_GROUPS_MAX && out->blocks < blocks; count++) {
		struct run run[RESERVE_EXTENTS_MAX];
		uint64_t want = blocks - out->blocks;
		unsigned room = RESERVE_EXTENTS_MAX - out->count;
		unsigned groups_left = RESERVE_GROUPS_MAX - count;
		unsigned share = groups_left > 1 && space->group_count > 1 ? 2 : 1;
		uint32_t shortest = (uint32_t)((want + room * share - 1) / (room * share));
		uint32_t number;
		unsigned taken;

		if (room == 0 || !richest_group(space, tried, count, &number))
			break;
		tried[count] = number;
		taken = group_take_longest(space, &space->group[number], want, shortest, room, run);
		for (unsigned i = 0; i < taken; i++)
			add_piece(space, out, &space->group[number], run[i].first, run[i].length);
	}
	return out->blocks == blocks;
}

static void give_pieces(struct space *space, const struct reservation *r)
{
	for (unsigned i = 0; i < r->count; i++)
		space_give(space, r->piece[i].start, r->piece[i].length);
}

static bool near_is_sound(const struct space *space, uint64_t near)
{
	uint64_t start = space->volume->geo.groups_start;

	return near >= start &&
	       near - start < (uint64_t)space->group_count * space->group_blocks;
}

/* Finds what was claimed. */
static bool take_claimed(struct space *space, uint32_t blocks, uint64_t hint,
			 struct reservation *out)
{
	_Atomic uint64_t *near = &space->near[stats_shard()];
	uint64_t from = hint;
	bool small = blocks < space->page_blocks;
	bool scarce = atomic_load(&space->free) < (int64_t)(space->total / THRIFTY_SHARE);

	if (!near_is_sound(space, from))
		from = atomic_load_explicit(near, memory_order_relaxed);
	if (near_is_sound(space, from)) {
		uint32_t bit;
		struct group *group = space_group_of(space, from, 1, &bit);

		if (group_take_at(space, group, bit, blocks)) {
			add_piece(space, out, group, bit, blocks);
			goto found;
		}
	} else {
		from = space->volume->geo.groups_start;
	}
	if ((small && scarce && take_one(space, from, blocks, true, out)) ||
	    take_one(space, from, blocks, false, out))
		goto found;
	stat_add(&space->volume->stats, STAT_space_scattered, 1);
	if (!take_scattered(space, blocks, out)) {
		give_pieces(space, out);
		return false;
	}
found:
	if (hint == 0)
		atomic_store_explicit(near, out->piece[out->count - 1].start +
						    out->piece[out->count - 1].length,
				      memory_order_relaxed);
	return true;
}

static bool reserve_once(struct space *space, uint32_t blocks, uint64_t hint, unsigned flags,
			 struct reservation *out)
{
	out->count = 0;
	out->blocks = 0;
	if (!space_claim(space, blocks, flags))
		return false;
	if (take_claimed(space, blocks, hint, out))
		return true;
	/* What was taken is back by now; the rest of the claim was never found. */
	atomic_fetch_add(&space->free, (int64_t)(blocks - out->blocks));
	out->count = 0;
	out->blocks = 0;
	return false;
}

int space_reserve(struct space *space, uint64_t blocks, uint64_t hint, unsigned flags,
		  struct reservation *out)
{
	struct stats *stats = &space->volume->stats;
	uint32_t n = (uint32_t)blocks;

	check(blocks > 0 && blocks <= WRITE_BLOCKS_MAX);
	if (!reserve_once(space, n, hint, flags, out)) {
		space_advance(space);
		pages_break(space, blocks,
			    flags & SPACE_PRIVILEGED ? 0 : space->pages.kept);
		if (!reserve_once(space, n, hint, flags, out)) {
			defer_note_enospc(space);
			stat_add(stats, STAT_space_enospc, 1);
			return -ENOSPC;
		}
	}
	atomic_fetch_add(&space->reserved, blocks);
	stat_add(stats, STAT_space_reserves, 1);
	stat_add(stats, STAT_space_blocks_reserved, blocks);
	os_point("space:reserved");
	return 0;
}

void space_unreserve(struct space *space, const struct reservation *reservation)
{
	give_pieces(space, reservation);
	atomic_fetch_sub(&space->reserved, reservation->blocks);
}

void space_used(struct space *space, uint64_t start, uint64_t count)
{
	uint32_t bit;
	struct group *group = space_group_of(space, start, count, &bit);
	uint64_t reserved = atomic_fetch_sub(&space->reserved, count);

	check(reserved >= count);
	check(group_busy(group, bit, (uint32_t)count));
}

void space_count(struct space *space, struct space_counts *counts)
{
	int64_t free = atomic_load(&space->free);
	uint64_t ready = (atomic_load(&space->pages.count) + ready_count(space)) *
			 space->page_blocks;
	uint64_t kept = (uint64_t)space->pages.kept * space->page_blocks;

	counts->total = space->total;
	counts->free = (free > 0 ? (uint64_t)free : 0) + ready;
	counts->deferred = atomic_load(&space->defer.blocks) - atomic_load(&space->defer.lost);
	counts->reserved = atomic_load(&space->reserved);
	counts->kept = kept < counts->free ? kept : counts->free;
}
