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
 * Pages are kept apart from data (space_pages.c), as pieces that are busy here.
 * What lies in the map is anybody's, but small data goes to what is left of broken
 * pieces before it breaks a whole one: it is the only use that such rests have.
 */
#include "engine/space_internal.h"

#include "engine/mtr.h"
#include "engine/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RESERVE_GROUPS_MAX (MTR_GROUPS_MAX / 2) /* the other half is for what the mtr frees */
#define FIRST_GROUPS 2u    /* loaded by a mount: where the indexes begin */
#define LOADS_FOR_ONE_PIECE 8u /* groups that are read before a reservation is scattered */
#define SCARCE_SHARE 4u    /* fewer free blocks than total / 4: no file breaks pieces to grow */
#define THRIFTY_GROUPS 64u /* that are asked for broken pieces, if not scarce */

/* ------------------------------------------------------------------ opening */

int space_grow_begin(struct space *space, uint32_t group_count)
{
	return space_table_grow(space, group_count);
}

int space_open(struct space **out, struct volume *volume)
{
	const struct geometry *geo = &volume->geo;
	struct space *space = calloc(1, sizeof(*space));
	int rc;

	*out = NULL;
	if (space == NULL)
		return -ENOMEM;
	space->volume = volume;
	space->group_blocks = geo->group_blocks;
	space->page_blocks = geo->page_blocks;
	space->words = (geo->group_blocks + 63) / 64;
	latch_init(&space->load_latch, RANK_SPACE, 0);
	rc = defer_init(space);
	if (rc == 0)
		rc = space_table_grow(space, geo->group_count);
	if (rc)
		goto out;
	space->group_count = geo->group_count;
	rc = space_load_first(space, FIRST_GROUPS);
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
	space_table_free(space);
	free(space);
}

void space_grow(struct space *space, uint64_t old_end, uint64_t new_end)
{
	check(old_end >= space->end); /* what is too short for a group is in none */
	space_load_grown(space, space->group_count, new_end);
	/* Now that there is room for more. */
	pages_set_targets(space);
	pages_refill(space);
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
	struct group *group;

	*bit = (uint32_t)(index % space->group_blocks);
	check(start >= space->volume->geo.groups_start && number < space->group_count);
	check(count > 0 && *bit + count <= space->group_blocks);
	group = space_group(space, (uint32_t)number);
	check(group); /* INV-SPACE-4 */
	return group;
}

bool space_claim(struct space *space, uint64_t blocks, unsigned flags)
{
	int64_t free = atomic_load(&space->free);
	int64_t denied;

	do {
		uint64_t pages = atomic_load(&space->pages.count) +
				 atomic_load(&space->reserve.held);
		uint64_t kept = space->pages.kept;

		denied = 0;
		if (!(flags & SPACE_PRIVILEGED) && pages < kept)
			denied = (int64_t)(kept - pages) * space->page_blocks;
		if (free < (int64_t)blocks + denied)
			return false;
	} while (!atomic_compare_exchange_weak(&space->free, &free, free - (int64_t)blocks));
	return true;
}

void space_give(struct space *space, uint64_t start, uint64_t count)
{
	uint32_t bit;
	struct group *group = space_group_of(space, start, count, &bit);

	count -= group_give(space, group, bit, (uint32_t)count);
	atomic_fetch_add(&space->free, (int64_t)count);
}

/* ------------------------------------------------------------- reservations */

static void add_piece(struct space *space, struct reservation *r, const struct group *group,
		      uint32_t first, uint32_t length)
{
	check(r->count < RESERVE_EXTENTS_MAX);
	r->piece[r->count++] = (struct piece){
		.start = space_first_block(space, group->number) + first,
		.length = length,
	};
	r->blocks += length;
}

/* May a run of so many blocks be there?  A guess without the latch, wrong only for a moment. */
static bool may_have(const struct space *space, const struct group *group, uint32_t blocks,
		     bool thrifty)
{
	uint32_t free, longest, whole;

	if (group == NULL)
		return false;
	free = atomic_load_explicit(&group->free, memory_order_relaxed);
	if (free < blocks)
		return false;
	longest = atomic_load_explicit(thrifty ? &group->broken : &group->longest,
				       memory_order_relaxed);
	if (longest < blocks)
		return false;
	whole = atomic_load_explicit(&group->whole, memory_order_relaxed);
	return !thrifty || free - whole * space->page_blocks >= blocks;
}

/* One piece, from the group of `near` onwards, of so many groups. */
static bool take_one(struct space *space, uint64_t near, uint32_t blocks, bool thrifty,
		     uint32_t groups, struct reservation *out)
{
	uint64_t index = near - space->volume->geo.groups_start;
	uint32_t number = (uint32_t)(index / space->group_blocks);
	uint32_t from = (uint32_t)(index % space->group_blocks);

	/* The bitmap page is nobody's neighbour: the group is meant, not the place. */
	if (from < space->page_blocks)
		from = UINT32_MAX;
	for (uint32_t i = 0; i < groups; i++) {
		struct group *group = space_group(space, number);
		uint32_t first;

		if (may_have(space, group, blocks, thrifty) &&
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
		struct group *group = space_group(space, number);
		uint32_t free = group ? atomic_load_explicit(&group->free, memory_order_relaxed)
				      : 0;

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
		struct group *group;
		uint32_t number;
		unsigned taken;

		if (room == 0 || !richest_group(space, tried, count, &number))
			break;
		tried[count] = number;
		group = space_group(space, number);
		taken = group_take_longest(space, group, want, shortest, room, run);
		for (unsigned i = 0; i < taken; i++)
			add_piece(space, out, group, run[i].first, run[i].length);
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

/* Exactly there, if it is free. */
static bool take_there(struct space *space, uint64_t start, uint32_t blocks, bool thrifty,
		       struct reservation *out)
{
	uint64_t index = start - space->volume->geo.groups_start;
	struct group *group = space_group(space, (uint32_t)(index / space->group_blocks));
	uint32_t bit = (uint32_t)(index % space->group_blocks);

	if (group == NULL || !group_take_at(space, group, bit, blocks, thrifty))
		return false;
	add_piece(space, out, group, bit, blocks);
	return true;
}

/*
 * Less than a page: what is left of broken pieces comes first.  A file that grows
 * (it has a hint) may go on behind its last block all the same while there is plenty,
 * else one that grows in small steps would lie in as many pieces.
 */
static bool take_small(struct space *space, uint64_t near, uint32_t blocks, bool grows,
		       struct reservation *out)
{
	bool scarce = atomic_load(&space->free) < (int64_t)(space->total / SCARCE_SHARE);
	uint32_t groups = space->group_count;

	if (take_there(space, near, blocks, scarce || !grows, out))
		return true;
	if (groups > THRIFTY_GROUPS && !scarce)
		groups = THRIFTY_GROUPS;
	return take_one(space, near, blocks, true, groups, out);
}

/* A piece that has to be broken is broken at its start: two would be lost else. */
static uint64_t piece_behind(const struct space *space, uint64_t block)
{
	uint64_t start = space->volume->geo.groups_start;
	uint64_t index = (block - start + space->page_blocks - 1) / space->page_blocks;
	uint64_t next = start + index * space->page_blocks;

	return near_is_sound(space, next) ? next : start;
}

/* Near there, in groups that are loaded. */
static bool take_near(struct space *space, uint32_t blocks, uint64_t near, bool grows,
		      struct reservation *out)
{
	if (blocks < space->page_blocks) {
		if (take_small(space, near, blocks, grows, out))
			return true;
		near = piece_behind(space, near);
	}
	return take_there(space, near, blocks, false, out) ||
	       take_one(space, near, blocks, false, space->group_count, out);
}

/* The same in groups that are read now. */
static bool take_unread(struct space *space, uint32_t blocks, struct reservation *out)
{
	struct group *group;

	for (unsigned i = 0; i < LOADS_FOR_ONE_PIECE; i++) {
		group = space_load_more(space);
		if (group == NULL)
			return false;
		if (take_one(space, space_first_block(space, group->number), blocks, false, 1, out))
			return true;
	}
	return false;
}

/* Finds what was claimed. */
static bool take_claimed(struct space *space, uint32_t blocks, uint64_t hint,
			 struct reservation *out)
{
	_Atomic uint64_t *last = &space->near[stats_shard()];
	uint64_t start = space->volume->geo.groups_start, near = hint;

	if (!near_is_sound(space, near))
		near = atomic_load_explicit(last, memory_order_relaxed);
	if (!near_is_sound(space, near))
		near = start;
	/* A bad one is passed over. */
	(void)!space_load(space, (uint32_t)((near - start) / space->group_blocks));
	if (take_near(space, blocks, near, near == hint, out) || take_unread(space, blocks, out))
		goto found;
	stat_add(&space->volume->stats, STAT_space_scattered, 1);
	if (!take_scattered(space, blocks, out)) {
		give_pieces(space, out);
		return false;
	}
found:
	if (hint == 0)
		atomic_store_explicit(last, out->piece[out->count - 1].start +
						    out->piece[out->count - 1].length,
				      memory_order_relaxed);
	return true;
}

static bool claim_and_take(struct space *space, uint32_t blocks, uint64_t hint, unsigned flags,
			   struct reservation *out, bool *claimed)
{
	out->count = 0;
	out->blocks = 0;
	*claimed = space_claim(space, blocks, flags);
	if (!*claimed)
		return false;
	if (take_claimed(space, blocks, hint, out))
		return true;
	/* What was taken is back by now; the rest of the claim was never found. */
	atomic_fetch_add(&space->free, (int64_t)(blocks - out->blocks));
	out->count = 0;
	out->blocks = 0;
	return false;
}

/* In vain only when no group is left to be read. */
static bool reserve_once(struct space *space, uint32_t blocks, uint64_t hint, unsigned flags,
			 struct reservation *out)
{
	bool claimed;

	do {
		if (claim_and_take(space, blocks, hint, flags, out, &claimed))
			return true;
	} while (claimed && space_load_more(space));
	return false;
}

/* For a privileged caller that the map has nothing for: the first blocks of whole pages. */
static bool reserve_from_pages(struct space *space, uint32_t blocks, struct reservation *out)
{
	while (out->blocks < blocks && out->count < RESERVE_GROUPS_MAX) {
		uint32_t rest = blocks - (uint32_t)out->blocks, bit;
		uint32_t length = rest < space->page_blocks ? rest : space->page_blocks;
		uint64_t pageno;
		struct group *group;

		if (!pages_give_up(space, &pageno))
			break;
		group = space_group_of(space, pageno, space->page_blocks, &bit);
		add_piece(space, out, group, bit, length);
		if (length < space->page_blocks)
			space_give(space, pageno + length, space->page_blocks - length);
	}
	if (out->blocks == blocks)
		return true;
	give_pieces(space, out);
	return false;
}

static bool reserve_again(struct space *space, uint32_t blocks, uint64_t hint, unsigned flags,
			  struct reservation *out)
{
	space_advance(space);
	pages_break(space, blocks);
	return reserve_once(space, blocks, hint, flags, out) ||
	       (flags & SPACE_PRIVILEGED && reserve_from_pages(space, blocks, out));
}

int space_reserve(struct space *space, uint64_t blocks, uint64_t hint, unsigned flags,
		  struct reservation *out)
{
	struct stats *stats = &space->volume->stats;
	struct space_look before = space_look(space);
	uint32_t n = (uint32_t)blocks;

	check(blocks > 0 && blocks <= WRITE_BLOCKS_MAX);
	if (!reserve_once(space, n, hint, flags, out) &&
	    !reserve_again(space, n, hint, flags, out)) {
		defer_note_enospc(space, before);
		stat_add(stats, STAT_space_enospc, 1);
		*out = (struct reservation){.count = 0};
		return -ENOSPC;
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
	uint64_t pages = atomic_load(&space->pages.count) + atomic_load(&space->reserve.held) +
			 ready_count(space);
	uint64_t all = (space->pages.kept + space->reserve.target) * space->page_blocks;
	uint64_t kept = pages_withheld(space) * space->page_blocks;

	counts->total = space->total;
	counts->free = (free > 0 ? (uint64_t)free : 0) + pages * space->page_blocks +
		       atomic_load(&space->trim.in_flight);
	counts->deferred = atomic_load(&space->defer.blocks) - atomic_load(&space->defer.lost);
	counts->pinned = defer_pinned(space);
	if (counts->pinned > counts->deferred)
		counts->pinned = counts->deferred;
	counts->reserved = atomic_load(&space->reserved);
	/* What comes back goes to the reserve first. */
	kept += kept < all ? counts->deferred - counts->pinned : 0;
	if (kept > all)
		kept = all;
	counts->kept = kept < space_returning(counts) ? kept : space_returning(counts);
}
