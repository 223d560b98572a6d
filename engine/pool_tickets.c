/*
 * Tickets: INV-POOL-2.  pool.c has the argument.
 *
 * One word counts tickets and dirty frames together, so that a grant is one
 * compare-and-swap and pays for nothing else.
 *
 * No wakeup is lost: who waits raises ticket_waiters before it looks at `load`
 * for the last time; who lowers `load` does so before it looks at
 * ticket_waiters; both in the one order of seq_cst.
 */
#include "engine/flush.h"
#include "engine/pool_internal.h"

#include <errno.h>

#define ONE_TICKET (1ull << 32)
/* The flusher is asked again by then; wakeups come without it. */
#define ASK_AGAIN_NS 100000000ull

static uint64_t tickets_of(uint64_t load)
{
	return load >> 32;
}

static uint64_t dirty_of(uint64_t load)
{
	return (uint32_t)load;
}

/* Most tickets and dirty frames that there may be after a grant of so many. */
static uint64_t limit_for(const struct pool *pool, unsigned pages)
{
	uint64_t limit = pool->frame_count - POOL_FRAMES_SPARE;

	return pages > POOL_TICKETS_SMALL ? limit - POOL_FRAMES_READING : limit;
}

bool pool_try_take_tickets(struct pool *pool, unsigned pages)
{
	uint64_t limit = limit_for(pool, pages);
	uint64_t load = atomic_load(&pool->load);

	do {
		if (tickets_of(load) + dirty_of(load) + pages > limit)
			return false;
	} while (!atomic_compare_exchange_weak(&pool->load, &load, load + pages * ONE_TICKET));
	return true;
}

static void wake_waiters(struct pool *pool)
{
	if (atomic_load(&pool->ticket_waiters) > 0)
		waitq_wake_all(&pool->ticket_queue);
}

void pool_give_tickets(struct pool *pool, unsigned pages)
{
	check(tickets_of(atomic_fetch_sub(&pool->load, pages * ONE_TICKET)) >= pages);
	wake_waiters(pool);
}

void pool_count_dirty(struct pool *pool, int delta)
{
	uint64_t before;

	if (delta > 0) {
		before = atomic_fetch_add(&pool->load, (uint64_t)delta);
		check(dirty_of(before) < pool->frame_count);
		if (dirty_of(before) + 1 == atomic_load_explicit(&pool->dirty_wanted,
								 memory_order_relaxed) &&
		    pool->volume->flusher)
			flusher_want_frames(pool->volume->flusher);
		return;
	}
	before = atomic_fetch_sub(&pool->load, (uint64_t)-delta);
	check(dirty_of(before) >= (uint64_t)-delta);
	wake_waiters(pool);
}

uint32_t pool_dirty_count(const struct pool *pool)
{
	return (uint32_t)dirty_of(atomic_load(&pool->load));
}

bool pool_wants_frames(struct pool *pool)
{
	return atomic_load(&pool->ticket_waiters) > 0 && pool_dirty_count(pool) > 0;
}

/* A volume that has failed never cleans a frame again: only tickets can come back. */
static int judge_failed(struct pool *pool, unsigned pages)
{
	if (!atomic_load(&pool->volume->failed))
		return 0;
	return pool_dirty_count(pool) + pages > limit_for(pool, pages) ? -EIO : 0;
}

static int wait_for_tickets(struct pool *pool, unsigned pages)
{
	for (;;) {
		uint32_t ticket = waitq_ticket(&pool->ticket_queue);
		bool waits = true;
		int rc;

		if (pool_try_take_tickets(pool, pages))
			return 0;
		rc = judge_failed(pool, pages);
		if (rc == 0 && pool->volume->flusher)
			rc = flusher_clean_frames(pool->volume->flusher, &waits);
		if (rc)
			return rc;
		os_point("pool:ticket_wait");
		if (waits)
			waitq_wait(&pool->ticket_queue, ticket, ASK_AGAIN_NS);
	}
}

int pool_take_tickets(struct pool *pool, unsigned pages)
{
	int rc;

	check(pages > 0 && pages <= POOL_TICKETS_MAX);
	if (pool_try_take_tickets(pool, pages))
		return 0;
	latch_check_may_wait();
	stat_add(&pool->volume->stats, STAT_pool_ticket_waits, 1);
	atomic_fetch_add(&pool->ticket_waiters, 1);
	rc = wait_for_tickets(pool, pages);
	atomic_fetch_sub(&pool->ticket_waiters, 1);
	return rc;
}
