/*
 * Ready pages of the indexes, in front of the page pool of the volume, so that
 * splits of different indexes do not meet at one list.
 *
 *	pageno[0 .. count)                          target
 *	|<- internal ->|<------ leaf ------>|  ...    |
 *	 splits above    splits of leaves     to be found by the refill
 *
 * INV-READY-1: a leaf's split leaves the last READY_INTERNAL pages alone, so that the
 * cascade above it finds its pages.
 * INV-READY-2: they live in memory only: busy in the map, free in statfs, nobody's
 * reservation; a crash leaks nothing, since the bit is set by the mtr of the split.
 * INV-READY-3: when blocks are short they go back to the map before anybody hears
 * -ENOSPC.
 *
 * Small by default: an index that never splits has none; one that finds its list empty
 * asks for twice as many from then on, up to a share of the volume.  A thread fills the
 * lists, a page for each index in turn, so that a busy one does not starve the others;
 * at most PAGES_REFILL_MAX at one wake, then it looks anew who wants what.
 */
#include "engine/space_internal.h"

#include "engine/base/error.h"

#include <errno.h>

#define READY_FIRST 4u     /* what an index asks for at its first split */
#define READY_INTERNAL 2u
#define READY_SHARE 1024u  /* of the volume, at most, for each index */
#define ROOM_FACTOR 8u     /* only while the map has so many times what all may have */

static uint32_t count_of(const struct ready_list *list)
{
	return atomic_load_explicit(&list->count, memory_order_relaxed);
}

static uint32_t target_of(const struct ready_list *list)
{
	return atomic_load_explicit(&list->target, memory_order_relaxed);
}

static void want_more(struct ready *ready, struct ready_list *list)
{
	uint32_t target = target_of(list);
	uint32_t more = target == 0 ? READY_FIRST : 2 * target;

	if (more > ready->target_max)
		more = ready->target_max;
	atomic_store_explicit(&list->target, more, memory_order_relaxed);
}

static bool pop(struct ready_list *list, uint32_t keep, uint64_t *pageno)
{
	uint32_t count;

	latch_x(&list->latch);
	count = count_of(list);
	if (count > keep) {
		*pageno = list->pageno[count - 1];
		atomic_store_explicit(&list->count, count - 1, memory_order_relaxed);
	}
	unlatch_x(&list->latch);
	return count > keep;
}

static bool push(struct ready_list *list, uint64_t pageno)
{
	uint32_t count;
	bool wanted;

	latch_x(&list->latch);
	count = count_of(list);
	wanted = count < target_of(list);
	if (wanted) {
		list->pageno[count] = pageno;
		atomic_store_explicit(&list->count, count + 1, memory_order_relaxed);
	}
	unlatch_x(&list->latch);
	return wanted;
}

int space_take_index_page(struct space *space, unsigned index, unsigned level, unsigned flags,
			  uint64_t hint, uint64_t *pageno)
{
	struct ready *ready = &space->ready;
	struct ready_list *list = &ready->list[index];
	bool privileged = flags & SPACE_PRIVILEGED;
	bool got = pop(list, level > 0 || privileged ? 0 : READY_INTERNAL, pageno);

	if (!got && ready->target_max > 0)
		want_more(ready, list);
	if (count_of(list) <= target_of(list) / 2 && ready->running &&
	    !atomic_exchange(&ready->wanted, true))
		waitq_wake_all(&ready->wake);
	if (!got)
		return space_take_page(space, flags, hint, pageno);
	atomic_fetch_add(&space->reserved, space->page_blocks);
	return 0;
}

static bool refill_one(struct space *space, struct ready_list *list)
{
	uint64_t pageno;

	if (count_of(list) >= target_of(list) || !pages_find(space, &pageno))
		return false;
	if (!push(list, pageno))
		space_give(space, pageno, space->page_blocks);
	return true;
}

bool ready_refill(struct space *space)
{
	struct ready *ready = &space->ready;
	int64_t room = (int64_t)ready->target_max * INDEX_COUNT * space->page_blocks * ROOM_FACTOR;
	unsigned found = 0, idle = 0;

	while (idle < INDEX_COUNT && found < PAGES_REFILL_MAX) {
		struct ready_list *list = &ready->list[ready->turn++ % INDEX_COUNT];

		if (atomic_load(&space->free) < room)
			return false;
		if (refill_one(space, list)) {
			found++;
			idle = 0;
		} else {
			idle++;
		}
	}
	os_point("ready:filled");
	return found == PAGES_REFILL_MAX;
}

void ready_break(struct space *space, uint64_t blocks)
{
	for (unsigned i = 0; i < INDEX_COUNT; i++) {
		uint64_t pageno;

		while (atomic_load(&space->free) < (int64_t)blocks &&
		       pop(&space->ready.list[i], 0, &pageno))
			space_give(space, pageno, space->page_blocks);
	}
}

uint64_t ready_count(struct space *space)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < INDEX_COUNT; i++)
		count += count_of(&space->ready.list[i]);
	return count;
}

void ready_init(struct space *space)
{
	struct ready *ready = &space->ready;
	uint64_t share = atomic_load(&space->total) / space->page_blocks / READY_SHARE;

	for (unsigned i = 0; i < INDEX_COUNT; i++)
		latch_init(&ready->list[i].latch, RANK_LEAF, 0);
	ready->target_max = share < READY_MAX ? (uint32_t)share : READY_MAX;
	if (ready->target_max <= READY_INTERNAL)
		ready->target_max = 0;
}

/* -------------------------------------------------------------- the thread */

static void run(void *arg)
{
	struct space *space = arg;
	struct ready *ready = &space->ready;

	while (!atomic_load(&ready->stop)) {
		uint32_t ticket = waitq_ticket(&ready->wake);

		if (atomic_exchange(&ready->wanted, false)) {
			while (ready_refill(space))
				;
			continue;
		}
		if (!atomic_load(&ready->stop))
			waitq_wait(&ready->wake, ticket, OS_FOREVER);
	}
}

int space_start(struct space *space)
{
	struct ready *ready = &space->ready;
	int rc = trim_start(space);

	if (rc || ready->target_max == 0)
		return rc;
	rc = os_thread_start(&ready->thread, "blinkfs-pages", run, space);
	ready->running = rc == 0;
	return rc;
}

void space_stop(struct space *space)
{
	struct ready *ready = &space->ready;

	trim_stop(space);
	if (!ready->running)
		return;
	atomic_store(&ready->stop, true);
	waitq_wake_all(&ready->wake);
	os_thread_join(&ready->thread);
	ready->running = false;
	atomic_store(&ready->stop, false);
}
