/*
 * Which frame holds which page: hash, free list, CLOCK.
 *
 * A look-up takes one of POOL_SHARDS latches for a few instructions.  CLOCK
 * (Corbato 1968): the hand passes over the frames and evicts the first that is
 * clean, unpinned and was not used since it came by last.
 *
 * INV-POOL-4: a frame is evicted only under the X latch of its page's shard, with
 * no pin, clean, in this order of looking (pool.c has the reason).
 */
#include "engine/flush.h"
#include "engine/pool_internal.h"

#include <errno.h>
#include <stdlib.h>

#define HAND_PASSES_MAX 4u    /* before it pauses; two suffice unless pins move about */
#define PAUSE_NS 1000000ull
#define PAUSES_MAX 60000u     /* a minute in which a frame that must exist is not met: a bug */

static uint32_t bucket_of(const struct pool *pool, uint64_t pageno)
{
	/* Fibonacci hashing: the upper bits of the product are well mixed. */
	return (uint32_t)((pageno * 0x9e3779b97f4a7c15ull) >> 32) & (pool->bucket_count - 1);
}

struct pool_shard *pool_shard(struct pool *pool, uint64_t pageno)
{
	return &pool->shards[bucket_of(pool, pageno) % POOL_SHARDS];
}

struct frame *pool_find_locked(struct pool *pool, uint64_t pageno)
{
	struct frame *frame = pool->buckets[bucket_of(pool, pageno)];

	while (frame && atomic_load_explicit(&frame->pageno, memory_order_relaxed) != pageno)
		frame = frame->hash_next;
	return frame;
}

void pool_insert_locked(struct pool *pool, struct frame *frame)
{
	struct frame **bucket = &pool->buckets[bucket_of(pool, atomic_load(&frame->pageno))];

	frame->hash_next = *bucket;
	*bucket = frame;
}

void pool_remove_locked(struct pool *pool, struct frame *frame)
{
	struct frame **at = &pool->buckets[bucket_of(pool, atomic_load(&frame->pageno))];

	while (*at != frame) {
		check(*at != NULL);
		at = &(*at)->hash_next;
	}
	*at = frame->hash_next;
}

void pool_frame_give(struct pool *pool, struct frame *frame)
{
	check(atomic_load(&frame->pins) == 0 && atomic_load(&frame->oldest_lsn) == 0);
	atomic_store_explicit(&frame->state, FRAME_FREE, memory_order_relaxed);
	latch_x(&pool->free_latch);
	frame->hash_next = pool->free_first;
	pool->free_first = frame;
	unlatch_x(&pool->free_latch);
}

static struct frame *free_list_take(struct pool *pool)
{
	struct frame *frame;

	latch_x(&pool->free_latch);
	frame = pool->free_first;
	if (frame)
		pool->free_first = frame->hash_next;
	unlatch_x(&pool->free_latch);
	return frame;
}

/* Can this frame be evicted?  A guess without the shard's latch, certain with it. */
static bool is_evictable(const struct frame *frame)
{
	return atomic_load_explicit(&frame->state, memory_order_acquire) == FRAME_READY &&
	       atomic_load_explicit(&frame->pins, memory_order_acquire) == 0 &&
	       atomic_load_explicit(&frame->oldest_lsn, memory_order_acquire) == 0;
}

static bool evict(struct pool *pool, struct frame *frame)
{
	uint64_t pageno = atomic_load_explicit(&frame->pageno, memory_order_relaxed);
	struct latch *latch = &pool_shard(pool, pageno)->latch;
	bool evicted = false;

	os_point("pool:evict");
	latch_x(latch);
	if (atomic_load_explicit(&frame->pageno, memory_order_relaxed) == pageno &&
	    is_evictable(frame)) {
		pool_remove_locked(pool, frame);
		atomic_store_explicit(&frame->state, FRAME_FREE, memory_order_relaxed);
		evicted = true;
	}
	unlatch_x(latch);
	if (evicted)
		stat_add(&pool->volume->stats, STAT_pool_evictions, 1);
	return evicted;
}

static struct frame *clock_take(struct pool *pool)
{
	for (uint64_t i = 0; i < (uint64_t)HAND_PASSES_MAX * pool->frame_count; i++) {
		uint32_t at = atomic_fetch_add_explicit(&pool->hand, 1, memory_order_relaxed);
		struct frame *frame = &pool->frames[at % pool->frame_count];

		if (!is_evictable(frame))
			continue;
		if (atomic_load_explicit(&frame->referenced, memory_order_relaxed))
			atomic_store_explicit(&frame->referenced, false, memory_order_relaxed);
		else if (evict(pool, frame))
			return frame;
	}
	return NULL;
}

/*
 * INV-POOL-2: there is a frame.  The hand can miss it, when pins move from
 * frames before the hand to frames behind it; then it goes round again.
 */
struct frame *pool_frame_take(struct pool *pool)
{
	_Atomic uint32_t nobody_wakes = 0;

	for (uint32_t pauses = 0; pauses < PAUSES_MAX; pauses++) {
		struct frame *frame = free_list_take(pool);

		if (!frame)
			frame = clock_take(pool);
		if (frame) {
			atomic_store_explicit(&frame->init_lsn, 0, memory_order_relaxed);
			return frame;
		}
		stat_add(&pool->volume->stats, STAT_pool_frame_waits, 1);
		if (pool->volume->flusher)
			flusher_want_frames(pool->volume->flusher);
		os_wait(&nobody_wakes, 0, PAUSE_NS);
	}
	check_failed(__FILE__, __LINE__, "INV-POOL-2: all frames are pinned or dirty");
}

/* Zeros.  Each look-up goes to a random place in both tables: huge pages spare it a step. */
static void *table_alloc(size_t count, size_t size)
{
	void *table = os_alloc_large(count * size);

	if (table)
		memset(table, 0, count * size);
	return table;
}

int pool_frames_open(struct pool *pool, uint32_t frame_count)
{
	uint32_t buckets = POOL_SHARDS;

	while (buckets < frame_count)
		buckets *= 2;
	pool->bucket_count = buckets;
	pool->buckets = table_alloc(buckets, sizeof(pool->buckets[0]));
	pool->shards = aligned_alloc(_Alignof(struct pool_shard),
				     POOL_SHARDS * sizeof(pool->shards[0]));
	pool->frames = table_alloc(frame_count, sizeof(pool->frames[0]));
	/* The kernel gives memory as frames come into use. */
	pool->memory = os_alloc_large((size_t)frame_count * pool->page_size);
	if (!pool->buckets || !pool->shards || !pool->frames || !pool->memory)
		return -ENOMEM;
	for (uint32_t i = 0; i < POOL_SHARDS; i++)
		latch_init(&pool->shards[i].latch, RANK_POOL, i);
	for (uint32_t i = frame_count; i-- > 0;) {
		struct frame *frame = &pool->frames[i];

		frame->pool = pool;
		frame->data = pool->memory + (size_t)i * pool->page_size;
		latch_init(&frame->latch, RANK_PAGE, 0);
		frame->hash_next = pool->free_first;
		pool->free_first = frame;
	}
	pool->frame_count = frame_count;
	return 0;
}

void pool_frames_close(struct pool *pool)
{
	free(pool->memory);
	free(pool->frames);
	free(pool->shards);
	free(pool->buckets);
}
