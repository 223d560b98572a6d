/*
 * Long runs of blocks, for the redo log (log_resize.c).
 *
 *	free --take--> reserved --mtr sets bits--> used
 *	free <--give-- held <----mtr clears bits-- used
 *
 * A held run is in no queue: the bits are clear on the medium, or soon will be, and
 * only the superblock knows that nobody may have the blocks yet.
 */
#include "engine/space_internal.h"

#include <errno.h>

static bool take_anywhere(struct space *space, uint32_t blocks, uint64_t *start)
{
	uint32_t measured = blocks < RUN_MEASURE_MAX ? blocks : RUN_MEASURE_MAX;

	for (uint32_t number = 0; number < space->group_count; number++) {
		struct group *group;
		uint32_t bit;

		if (space_load(space, number))
			continue;
		group = space_group(space, number);
		if (atomic_load(&group->free) >= blocks &&
		    atomic_load(&group->longest) >= measured &&
		    group_take(space, group, 0, blocks, false, &bit)) {
			*start = space_first_block(space, number) + bit;
			return true;
		}
	}
	return false;
}

static bool take_at(struct space *space, uint64_t at, uint32_t blocks)
{
	uint32_t bit;
	struct group *group;

	if (!geometry_is_in_group(&space->volume->geo, at, blocks))
		return false;
	if (space_load(space, (uint32_t)((at - space->volume->geo.groups_start) /
					 space->group_blocks)))
		return false;
	group = space_group_of(space, at, blocks, &bit);
	return group_take_at(space, group, bit, blocks, false);
}

static int take_run(struct space *space, uint64_t blocks, uint64_t at, uint64_t *start)
{
	bool taken;

	if (!space_claim(space, blocks, 0))
		return -ENOSPC;
	*start = at;
	taken = at ? take_at(space, at, (uint32_t)blocks)
		   : take_anywhere(space, (uint32_t)blocks, start);
	if (!taken) {
		atomic_fetch_add(&space->free, (int64_t)blocks);
		return -ENOSPC;
	}
	atomic_fetch_add(&space->reserved, blocks);
	return 0;
}

int space_take_run(struct space *space, uint64_t blocks, uint64_t at, uint64_t *start)
{
	int rc;

	if (blocks >= space->group_blocks)
		return -ENOSPC;
	/* A step of a trim in the middle of the only run would break it for a moment. */
	trim_exclude(space);
	rc = take_run(space, blocks, at, start);
	trim_allow(space);
	return rc;
}

void space_hold_run(struct space *space, uint64_t start, uint64_t blocks)
{
	check(blocks > 0 && atomic_load(&space->held_start) == 0);
	atomic_store(&space->held_start, start);
}

void space_give_run(struct space *space, uint64_t start, uint64_t blocks, bool was_reserved)
{
	if (was_reserved)
		check(atomic_fetch_sub(&space->reserved, blocks) >= blocks);
	if (atomic_load(&space->held_start) == start)
		atomic_store(&space->held_start, 0);
	space_give(space, start, blocks);
}
