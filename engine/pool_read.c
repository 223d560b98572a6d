/*
 * Reading pages into frames, and judging what was read.
 *
 * INV-POOL-5: nobody sees the contents of a frame before page_verify(), the
 * page's place on this volume and its LSN have been found right.
 */
#include "engine/pool_internal.h"

#include <limits.h>
#include <stdio.h>

/* Is there a log to whose end a page LSN can be compared?  Not before recovery has ended. */
static bool log_is_appending(const struct volume *volume, lsn_t *next)
{
	*next = volume->log ? log_next_lsn(volume->log) : 0;
	return *next > 0;
}

bool pool_page_number_valid(const struct volume *volume, uint64_t pageno, enum page_type type)
{
	const struct geometry *geo = &volume->geo;
	uint64_t end = geo->groups_start + (uint64_t)geo->group_count * geo->group_blocks;
	uint64_t in_group;

	if (end > geo->block_count - 1)
		end = geo->block_count - 1; /* the copy of the superblock */
	if (pageno < geo->groups_start || pageno >= end || end - pageno < geo->page_blocks ||
	    pageno % geo->page_blocks != 0)
		return false;
	in_group = (pageno - geo->groups_start) % geo->group_blocks;
	return (in_group == 0) == (type == PAGE_BITMAP) &&
	       (pageno == geo->system_page) == (type == PAGE_SYSTEM);
}

static uint64_t group_of(const struct volume *volume, uint64_t pageno)
{
	return (pageno - volume->geo.groups_start) / volume->geo.group_blocks;
}

void pool_frame_describe(struct frame *frame, enum page_type type, unsigned index, unsigned level)
{
	const struct volume *volume = frame->pool->volume;
	uint64_t pageno = atomic_load_explicit(&frame->pageno, memory_order_relaxed);

	atomic_store_explicit(&frame->kind, pool_kind(type, index), memory_order_relaxed);
	frame->insert_slot = 0;
	frame->insert_run = 0;
	if (type == PAGE_BITMAP)
		latch_init(&frame->latch, RANK_BITMAP, group_of(volume, pageno));
	else if (type == PAGE_SYSTEM)
		latch_init(&frame->latch, RANK_SYSTEM, 0);
	else
		latch_init(&frame->latch, RANK_PAGE, (uint64_t)index << 8 | level);
}

/* Moves on from READING, and wakes those who wait for that. */
static void settle(struct frame *frame, enum frame_state state)
{
	if (atomic_exchange(&frame->state, state) == FRAME_READING_WAITED)
		os_wake(&frame->state, INT_MAX);
}

/* Removes the frame from the hash, so that the next who wants the page reads anew. */
static void fail(struct frame *frame, int error)
{
	struct pool *pool = frame->pool;
	struct latch *latch = &pool_shard(pool, atomic_load(&frame->pageno))->latch;

	latch_x(latch);
	pool_remove_locked(pool, frame);
	unlatch_x(latch);
	frame->error = error;
	settle(frame, FRAME_FAILED);
	pool_put(frame);
}

static void succeed(struct frame *frame)
{
	const struct disk_page *head = (const struct disk_page *)frame->data;

	pool_frame_describe(frame, head->type, head->index, head->level);
	settle(frame, FRAME_READY);
}

/* INV-POOL-5. */
static int judge(const struct frame *frame, const char **why)
{
	const struct volume *volume = frame->pool->volume;
	const struct disk_page *head = (const struct disk_page *)frame->data;
	uint64_t pageno = atomic_load_explicit(&frame->pageno, memory_order_relaxed);
	lsn_t next;
	int rc;

	*why = NULL;
	rc = page_verify(frame->data, frame->pool->page_size, pageno, volume->tag, why);
	if (rc == 0 && !pool_page_number_valid(volume, pageno, head->type)) {
		*why = "no place for a page of this type";
		rc = -BE_IDENTITY;
	}
	if (rc == 0 && head->type == PAGE_BITMAP &&
	    le32_get(((const struct disk_bitmap_page *)head)->group) != group_of(volume, pageno)) {
		*why = "bitmap of another group";
		rc = -BE_IDENTITY;
	}
	if (rc == 0 && log_is_appending(volume, &next) && page_lsn(frame->data) > next)
		rc = -BE_FUTURE;
	if (rc && !*why)
		*why = error_text(rc);
	return rc;
}

int pool_frame_read(struct frame *frame)
{
	struct pool *pool = frame->pool;
	uint64_t pageno = atomic_load_explicit(&frame->pageno, memory_order_relaxed);
	const char *why;
	int rc;

	os_point("pool:reading");
	rc = dev_read(pool->volume->dev, frame->data, pool->page_size, pageno * BLOCK_SIZE);
	if (rc == 0 && judge(frame, &why))
		rc = corrupt_at(pool->volume, pageno, "pool_get", why);
	if (rc)
		fail(frame, rc);
	else
		succeed(frame);
	return rc;
}

/* A frame in state READING when the page is missing, else NULL.  The caller has a ticket. */
static struct frame *prefetch_begin(struct pool *pool, uint64_t pageno)
{
	struct latch *latch = &pool_shard(pool, pageno)->latch;
	struct frame *frame;
	bool missing;

	latch_s(latch);
	missing = !pool_find_locked(pool, pageno);
	unlatch_s(latch);
	if (!missing)
		return NULL;
	frame = pool_frame_take(pool);
	latch_x(latch);
	missing = !pool_find_locked(pool, pageno);
	if (missing) {
		atomic_store_explicit(&frame->pageno, pageno, memory_order_relaxed);
		atomic_store_explicit(&frame->pins, 1, memory_order_relaxed);
		atomic_store_explicit(&frame->referenced, true, memory_order_relaxed);
		atomic_store_explicit(&frame->state, FRAME_READING, memory_order_relaxed);
		pool_insert_locked(pool, frame);
	}
	unlatch_x(latch);
	if (missing)
		return frame;
	pool_frame_give(pool, frame);
	return NULL;
}

/* Those who wait for the page meanwhile get -BE_AGAIN, and then read and report for themselves. */
static void prefetch_end(struct frame *frame, int error)
{
	const char *why;

	if (error == 0)
		error = judge(frame, &why);
	if (error) {
		fail(frame, -BE_AGAIN);
	} else {
		succeed(frame);
		pool_put(frame);
	}
}

static void prefetch_some(struct pool *pool, const uint64_t *pagenos, size_t count,
			  enum page_type type)
{
	struct dev_request requests[POOL_PREFETCH_MAX];
	struct frame *frames[POOL_PREFETCH_MAX];
	size_t missing = 0;

	for (size_t i = 0; i < count; i++) {
		struct frame *frame = NULL;

		if (pool_page_number_valid(pool->volume, pagenos[i], type))
			frame = prefetch_begin(pool, pagenos[i]);
		if (!frame)
			continue;
		frames[missing] = frame;
		requests[missing++] = (struct dev_request){
			.buf = frame->data,
			.len = pool->page_size,
			.offset = pagenos[i] * BLOCK_SIZE,
		};
	}
	if (missing == 0)
		return;
	os_point("pool:prefetch");
	/* Each element has its own result. */
	(void)!dev_batch(pool->volume->dev, requests, missing);
	stat_add(&pool->volume->stats, STAT_pool_misses, missing);
	for (size_t i = 0; i < missing; i++)
		prefetch_end(frames[i], requests[i].result);
}

bool pool_prefetch(struct pool *pool, const uint64_t *pagenos, size_t count, enum page_type type,
		   unsigned index)
{
	(void)index; /* judged by the pool_get() that follows */
	latch_check_none_from(RANK_PAGE);
	for (size_t done = 0; done < count;) {
		size_t some = count - done;

		if (some > POOL_PREFETCH_MAX)
			some = POOL_PREFETCH_MAX;
		if (!pool_try_take_tickets(pool, (unsigned)some))
			return false;
		prefetch_some(pool, pagenos + done, some, type);
		pool_give_tickets(pool, (unsigned)some);
		done += some;
	}
	return true;
}
