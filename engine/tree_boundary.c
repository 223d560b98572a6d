/*
 * Where to split a full page.
 *
 *	append      all that is new lies behind the page: nothing moves, a new page begins
 *	ascending   a run goes on in the middle of the page (one file grows among others).
 *		    The page is cut where it goes on, on that side of the new entry that
 *		    leaves it in the emptier half: what is dense stays so
 *	descending  likewise.  Only a right sibling can be made (INV-TREE-5), so a run at
 *		    the front moves a page once where two halves would move otherwise,
 *		    and leaves it full
 *	else        in two halves, by bytes; among the places near the middle the one
 *		    with the shortest separator, which makes parents broader
 *
 * A run is told by the frame (a hint, lost with the frame): inserts each of which went
 * right behind, or right before, the one before it.
 */
#include "engine/tree_internal.h"

#define RUN_MIN 4         /* inserts; fewer come by chance */
#define RUN_CAP 1000
#define MIDDLE_PART 10u   /* +- total / MIDDLE_PART is near the middle */

void tree_note_insert(struct frame *frame, unsigned slot)
{
	int run = frame->insert_run;

	if (slot == frame->insert_slot + 1u)
		run = run > 0 ? run + 1 : 1;
	else if (slot == frame->insert_slot)
		run = run < 0 ? run - 1 : -1;
	else
		run = 0;
	if (run <= RUN_CAP && run >= -RUN_CAP)
		frame->insert_run = (int16_t)run;
	frame->insert_slot = (uint16_t)slot;
}

enum boundary_kind tree_boundary_kind(const struct frame *frame, uint64_t before, uint64_t behind)
{
	if (behind == 0 && before > 0)
		return BOUNDARY_BEFORE_NEW;
	if (frame->insert_run >= RUN_MIN)
		return before >= behind ? BOUNDARY_BEFORE_NEW : BOUNDARY_BEHIND_NEW;
	if (frame->insert_run <= -RUN_MIN && before <= behind)
		return BOUNDARY_BEHIND_NEW;
	return BOUNDARY_BALANCED;
}

static uint64_t distance_of(const struct balance *balance, uint64_t left_bytes)
{
	uint64_t middle = balance->total / 2;

	return left_bytes > middle ? left_bytes - middle : middle - left_bytes;
}

bool balance_is_near(const struct balance *balance, uint64_t left_bytes)
{
	return distance_of(balance, left_bytes) <= balance->total / MIDDLE_PART;
}

bool balance_offer(struct balance *balance, uint64_t left_bytes, unsigned separator_len)
{
	uint64_t distance = distance_of(balance, left_bytes);
	bool near = balance_is_near(balance, left_bytes);
	uint64_t cost = (near ? separator_len : KEY_BYTES_MAX + 1) * (balance->total + 1) +
			distance;

	if (cost >= balance->cost)
		return false;
	balance->cost = cost;
	return true;
}
