/*
 * The flush list: dirty frames by the start of their oldest change.
 *
 * INV-POOL-1: a page leaves the flush list only after the device flush that
 * covers its write, and only if it was not changed again.  A change that comes
 * while a copy is being written is remembered as later_lsn, and becomes the
 * frame's oldest change when the write has ended.
 *
 *	clean --change--> dirty --write_begin--> writing --write_done--> clean
 *	                    ^                      |   \
 *	                    |                 change    write_failed: oldest stays
 *	                    |                      v
 *	                    +---- write_done --- writing, later
 *
 * INV-POOL-6: the list ascends from `oldest` to `newest`, so its head is the
 * pool's share in the checkpoint (INV-LOG-2).
 *
 * A frame that is dirty and not being written needs no further entry: its
 * oldest change stays the oldest, since changes of one page come in LSN order.
 * So most changes take no latch here.  This is right because `writing` is set
 * under the page's latch: with X held it cannot become true, and if it is false
 * nobody makes the frame clean.
 */
#include "engine/pool_internal.h"

static void list_insert_locked(struct pool *pool, struct frame *frame)
{
	lsn_t lsn = atomic_load_explicit(&frame->oldest_lsn, memory_order_relaxed);
	struct frame *older = pool->newest;

	while (older && atomic_load_explicit(&older->oldest_lsn, memory_order_relaxed) > lsn)
		older = older->flush_prev;
	frame->flush_prev = older;
	frame->flush_next = older ? older->flush_next : pool->oldest;
	if (frame->flush_next)
		frame->flush_next->flush_prev = frame;
	else
		pool->newest = frame;
	if (older)
		older->flush_next = frame;
	else
		pool->oldest = frame;
}

static void list_remove_locked(struct pool *pool, struct frame *frame)
{
	if (frame->flush_next)
		frame->flush_next->flush_prev = frame->flush_prev;
	else
		pool->newest = frame->flush_prev;
	if (frame->flush_prev)
		frame->flush_prev->flush_next = frame->flush_next;
	else
		pool->oldest = frame->flush_next;
	frame->flush_prev = frame->flush_next = NULL;
}

/* Returns whether the frame was clean. */
static bool list_enter(struct frame *frame, lsn_t start)
{
	struct pool *pool = frame->pool;
	lsn_t oldest;

	latch_x(&pool->list_latch);
	oldest = atomic_load_explicit(&frame->oldest_lsn, memory_order_relaxed);
	if (oldest == 0) {
		atomic_store_explicit(&frame->oldest_lsn, start, memory_order_relaxed);
		list_insert_locked(pool, frame);
	} else if (atomic_load_explicit(&frame->writing, memory_order_relaxed) &&
		   frame->later_lsn == 0) {
		frame->later_lsn = start;
	}
	unlatch_x(&pool->list_latch);
	return oldest == 0;
}

/* What may change with a page's contents while its latch is held: a root's level (INV-TREE-4). */
static void update_order(struct frame *frame)
{
	const struct disk_page *head = (const struct disk_page *)frame->data;
	uint64_t order = (uint64_t)head->index << 8 | head->level;

	check(atomic_load_explicit(&frame->kind, memory_order_relaxed) ==
	      pool_kind(head->type, head->index));
	/* Whoever waits for this latch has checked the lower order: the higher is right too. */
	if (head->type == PAGE_TREE && order != atomic_load(&frame->latch.order))
		atomic_store(&frame->latch.order, order);
}

void pool_initialised(struct frame *frame, lsn_t start)
{
	check(latch_held_x(&frame->latch));
	check(atomic_load_explicit(&frame->init_lsn, memory_order_relaxed) <= start);
	atomic_store_explicit(&frame->init_lsn, start, memory_order_relaxed);
}

void pool_changed(struct frame *frame, lsn_t start, lsn_t end)
{
	check(latch_held_x(&frame->latch));
	check(0 < start && start < end && page_lsn(frame->data) <= end);
	page_set_lsn(frame->data, end);
	update_order(frame);
	/* `writing` is read first: write_done() stores oldest_lsn before it. */
	if (atomic_load_explicit(&frame->writing, memory_order_acquire) ||
	    atomic_load_explicit(&frame->oldest_lsn, memory_order_acquire) == 0) {
		if (list_enter(frame, start))
			pool_count_dirty(frame->pool, 1);
	}
	if (atomic_load_explicit(&frame->state, memory_order_relaxed) == FRAME_NEW)
		atomic_store_explicit(&frame->state, FRAME_READY, memory_order_release);
}

lsn_t pool_oldest_lsn(struct pool *pool)
{
	lsn_t lsn = UINT64_MAX;

	latch_s(&pool->list_latch);
	if (pool->oldest)
		lsn = atomic_load_explicit(&pool->oldest->oldest_lsn, memory_order_relaxed);
	unlatch_s(&pool->list_latch);
	return lsn;
}

/* A listed frame cannot be evicted: it is dirty until somebody takes the list's latch. */
static void pin_listed(struct frame *frame)
{
	struct latch *latch =
		&pool_shard(frame->pool, atomic_load_explicit(&frame->pageno,
							      memory_order_relaxed))->latch;

	latch_s(latch);
	atomic_fetch_add_explicit(&frame->pins, 1, memory_order_relaxed);
	unlatch_s(latch);
}

size_t pool_collect_dirty(struct pool *pool, lsn_t below, struct frame **out, size_t max)
{
	size_t count = 0;

	latch_s(&pool->list_latch);
	for (struct frame *frame = pool->oldest; frame && count < max; frame = frame->flush_next) {
		if (atomic_load_explicit(&frame->oldest_lsn, memory_order_relaxed) >= below)
			break;
		pin_listed(frame);
		out[count++] = frame;
	}
	unlatch_s(&pool->list_latch);
	return count;
}

void pool_write_begin(struct frame *frame)
{
	struct pool *pool = frame->pool;

	check(latch_held(&frame->latch));
	latch_x(&pool->list_latch);
	check(!atomic_load(&frame->writing) && atomic_load(&frame->oldest_lsn) > 0);
	frame->later_lsn = 0;
	atomic_store_explicit(&frame->writing, true, memory_order_release);
	unlatch_x(&pool->list_latch);
}

void pool_write_done(struct frame *frame)
{
	struct pool *pool = frame->pool;
	lsn_t later;

	latch_x(&pool->list_latch);
	check(atomic_load(&frame->writing));
	later = frame->later_lsn;
	list_remove_locked(pool, frame);
	atomic_store_explicit(&frame->oldest_lsn, later, memory_order_release);
	if (later)
		list_insert_locked(pool, frame);
	atomic_store_explicit(&frame->writing, false, memory_order_release);
	unlatch_x(&pool->list_latch);
	pool_put(frame);
	if (!later)
		pool_count_dirty(pool, -1);
}

void pool_write_failed(struct frame *frame)
{
	struct pool *pool = frame->pool;

	latch_x(&pool->list_latch);
	frame->later_lsn = 0;
	atomic_store_explicit(&frame->writing, false, memory_order_release);
	unlatch_x(&pool->list_latch);
	pool_put(frame);
}
