/*
 * The buffer pool: opening, and the life of pins.
 *
 * INV-POOL-2, the argument that a frame can always be found.  N frames take
 * part in it (POOL_FRAMES_SPARE are left out).  T is the number of tickets that
 * are held, D that of dirty frames, K that of frames which those who hold
 * tickets have dirtied since they took them.
 *
 *	grant     only while D + T (with the new tickets) <= N
 *	rule      a holder of n tickets has at most n frames that it pins or has
 *	          dirtied since it took them; so it returns n tickets for at most
 *	          n frames that leave K
 *
 * Then D - K + T <= N at all times: a grant keeps it, as K >= 0; dirtying
 * raises D and K alike; giving n tickets back lowers T by n and K by at most n;
 * cleaning lowers D.  A frame that cannot be evicted is dirty or pinned, so it
 * is one of D - K, or one that a holder has dirtied or pinned, of which each
 * holder has no more than tickets; a holder who has one ticket unused therefore
 * leaves at least one frame that is free or clean and unpinned.  (The flusher
 * pins dirty frames only, and counts a frame as clean after it let go.)
 *
 * So to find a frame is a matter of looking, never of waiting for the flusher,
 * and may be done inside an epoch; the waiting, for holders and flusher, is done
 * in pool_take_tickets(), where nothing is held.  It ends: the flusher needs no
 * tickets, holders wait for log space at most, which the flusher makes.
 *
 * Pins.  A pin is taken under the S latch of the page's shard (0 -> 1), or by
 * somebody who has one.  Eviction holds that latch X, sees no pin, and only then
 * looks at oldest_lsn: without a pin nobody can dirty the frame, so clean stays
 * clean.  (The other order could see a frame clean that is dirtied, and only
 * then unpinned.)
 *
 * INV-POOL-3: at any time at most one frame that is not FAILED belongs to a
 * page; while it is READING, all who want the page wait for that one read.
 * They wait on frame->state directly and not through waitq_wait(), since this is
 * a wait for device I/O, which an epoch allows: the reader that they wait for
 * holds no latch, and waits for the device alone.
 */
#include "engine/pool_internal.h"

#include "engine/base/message.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define PINNED_WAIT_NS 1000000ull
#define PINNED_WAITS_MAX 10000u /* 10 s: longer than the slowest batch of reads */

int pool_open(struct pool **out, struct volume *volume, uint64_t cache_bytes)
{
	uint64_t count = cache_bytes / volume->geo.page_size;
	struct pool *pool;
	int rc;

	if (count < POOL_FRAMES_MIN) {
		message(LOG_ERR,
			"the cache holds %" PRIu64 " pages of %" PRIu32
			" bytes; %u at least are needed for operations to go on side by side",
			count, volume->geo.page_size, POOL_FRAMES_MIN);
		return -BE_TOOSMALL;
	}
	if (count > INT32_MAX)
		return -EINVAL;
	pool = aligned_alloc(_Alignof(struct pool), sizeof(*pool));
	if (!pool)
		return -ENOMEM;
	*pool = (struct pool){.volume = volume, .page_size = volume->geo.page_size};
	latch_init(&pool->free_latch, RANK_POOL, POOL_SHARDS);
	latch_init(&pool->list_latch, RANK_FLUSHLIST, 0);
	rc = pool_frames_open(pool, (uint32_t)count);
	if (rc) {
		pool_close(pool);
		return rc;
	}
	*out = pool;
	return 0;
}

void pool_close(struct pool *pool)
{
	if (!pool)
		return;
	for (uint32_t i = 0; i < pool->frame_count; i++)
		check(atomic_load(&pool->frames[i].pins) == 0);
	check(atomic_load(&pool->load) >> 32 == 0);
	pool_frames_close(pool);
	free(pool);
}

/* Waits for the one read of the page (INV-POOL-3). */
static void wait_for_read(struct frame *frame)
{
	uint32_t state = atomic_load_explicit(&frame->state, memory_order_acquire);

	while (state == FRAME_READING || state == FRAME_READING_WAITED) {
		os_point("pool:wait_for_read");
		if (state == FRAME_READING_WAITED ||
		    atomic_compare_exchange_strong(&frame->state, &state, FRAME_READING_WAITED))
			os_wait(&frame->state, FRAME_READING_WAITED, OS_FOREVER);
		state = atomic_load_explicit(&frame->state, memory_order_acquire);
	}
}

/* Pins the page's frame if it has one.  Shard latched S or X. */
static struct frame *find_and_pin_locked(struct pool *pool, uint64_t pageno, bool *unpublished)
{
	struct frame *frame = pool_find_locked(pool, pageno);

	*unpublished = frame && atomic_load(&frame->state) == FRAME_NEW;
	if (!frame || *unpublished)
		return NULL;
	atomic_fetch_add_explicit(&frame->pins, 1, memory_order_relaxed);
	return frame;
}

/*
 * Pins the frame of a page, or makes one.  *read: the caller has to read it.
 * -BE_FORMAT: the page is just being allocated, so nothing may refer to it.
 */
static int pin_or_make(struct pool *pool, uint64_t pageno, struct frame **out, bool *read)
{
	struct latch *latch = &pool_shard(pool, pageno)->latch;
	struct frame *frame, *spare;
	bool unpublished;

	*read = false;
	latch_s(latch);
	frame = find_and_pin_locked(pool, pageno, &unpublished);
	unlatch_s(latch);
	if (unpublished)
		return -BE_FORMAT;
	if (frame)
		goto out;

	spare = pool_frame_take(pool);
	os_point("pool:miss");
	latch_x(latch);
	frame = find_and_pin_locked(pool, pageno, &unpublished);
	if (!frame && !unpublished) {
		frame = spare;
		spare = NULL;
		*read = true;
		atomic_store_explicit(&frame->pageno, pageno, memory_order_relaxed);
		atomic_store_explicit(&frame->pins, 1, memory_order_relaxed);
		atomic_store_explicit(&frame->state, FRAME_READING, memory_order_relaxed);
		pool_insert_locked(pool, frame);
	}
	unlatch_x(latch);
	if (spare)
		pool_frame_give(pool, spare);
	if (unpublished)
		return -BE_FORMAT;
out:
	*out = frame;
	return 0;
}

/* -BE_AGAIN: a prefetch failed to read the page; the next try reads it itself. */
static int get_once(struct pool *pool, uint64_t pageno, struct frame **out)
{
	struct frame *frame;
	bool read;
	int rc = pin_or_make(pool, pageno, &frame, &read);

	if (rc == -BE_FORMAT)
		return corrupt_at(pool->volume, pageno, "pool_get",
				  "refers to a page that is free");
	if (rc)
		return rc;
	stat_add(&pool->volume->stats, read ? STAT_pool_misses : STAT_pool_hits, 1);
	if (read && latch_holds_rank(RANK_INDEX))
		stat_add(&pool->volume->stats, STAT_pool_latched_misses, 1);
	if (read) {
		rc = pool_frame_read(frame);
	} else {
		wait_for_read(frame);
		if (atomic_load_explicit(&frame->state, memory_order_acquire) == FRAME_FAILED) {
			rc = frame->error;
			pool_put(frame);
		}
	}
	if (rc)
		return rc;
	if (!atomic_load_explicit(&frame->referenced, memory_order_relaxed))
		atomic_store_explicit(&frame->referenced, true, memory_order_relaxed);
	*out = frame;
	return 0;
}

static bool is_expected(const struct frame *frame, enum page_type type, unsigned index)
{
	uint32_t kind = atomic_load_explicit(&frame->kind, memory_order_relaxed);

	if (index == POOL_ANY_INDEX)
		return kind >> 8 == (uint32_t)type;
	return kind == pool_kind(type, index);
}

int pool_get(struct pool *pool, uint64_t pageno, enum page_type type, unsigned index,
	     struct frame **out)
{
	struct frame *frame;
	int rc;

	latch_check_none_from(RANK_PAGE);
	if (!pool_page_number_valid(pool->volume, pageno, type))
		return corrupt_at(pool->volume, pageno, "pool_get", "no such page number");
	do {
		rc = get_once(pool, pageno, &frame);
	} while (rc == -BE_AGAIN); /* each time a prefetch of another thread has failed */
	if (rc)
		return rc;
	if (!is_expected(frame, type, index)) {
		pool_put(frame);
		return corrupt_at(pool->volume, pageno, "pool_get",
				  "page of another type or index");
	}
	*out = frame;
	return 0;
}

static bool find_ready(struct pool *pool, uint64_t pageno, struct frame **out)
{
	struct latch *latch = &pool_shard(pool, pageno)->latch;
	struct frame *frame;

	latch_s(latch);
	frame = pool_find_locked(pool, pageno);
	if (frame && atomic_load_explicit(&frame->state, memory_order_acquire) == FRAME_READY)
		atomic_fetch_add_explicit(&frame->pins, 1, memory_order_relaxed);
	else
		frame = NULL;
	unlatch_s(latch);
	*out = frame;
	return frame != NULL;
}

bool pool_peek(struct pool *pool, uint64_t pageno, struct frame **out)
{
	return find_ready(pool, pageno, out);
}

bool pool_try_get(struct pool *pool, uint64_t pageno, enum page_type type, unsigned index,
		  struct frame **out)
{
	if (!find_ready(pool, pageno, out))
		return false;
	if (!is_expected(*out, type, index)) {
		pool_put(*out);
		return false;
	}
	stat_add(&pool->volume->stats, STAT_pool_hits, 1);
	if (!atomic_load_explicit(&(*out)->referenced, memory_order_relaxed))
		atomic_store_explicit(&(*out)->referenced, true, memory_order_relaxed);
	return true;
}

static void make_new(struct frame *frame, enum page_type type, unsigned index, unsigned level)
{
	memset(frame->data, 0, sizeof(struct disk_page)); /* LSN 0: older than every change */
	atomic_store_explicit(&frame->pins, 1, memory_order_relaxed);
	pool_frame_describe(frame, type, index, level);
	atomic_store_explicit(&frame->state, FRAME_NEW, memory_order_release);
}

/*
 * One try of pool_new(): NULL and *busy when somebody has the page's former
 * frame pinned.  A former frame that is dirty stays READY and listed.
 */
static struct frame *new_once(struct pool *pool, uint64_t pageno, enum page_type type,
			      unsigned index, unsigned level, struct frame **busy)
{
	struct latch *latch = &pool_shard(pool, pageno)->latch;
	struct frame *spare = pool_frame_take(pool);
	struct frame *frame;

	*busy = NULL;
	latch_x(latch);
	frame = pool_find_locked(pool, pageno);
	if (!frame) {
		frame = spare;
		spare = NULL;
		atomic_store_explicit(&frame->pageno, pageno, memory_order_relaxed);
		make_new(frame, type, index, level);
		pool_insert_locked(pool, frame);
	} else if (atomic_load_explicit(&frame->pins, memory_order_acquire) > 0) {
		*busy = frame;
		frame = NULL;
	} else if (atomic_load_explicit(&frame->oldest_lsn, memory_order_acquire) > 0) {
		atomic_store_explicit(&frame->pins, 1, memory_order_relaxed);
		pool_frame_describe(frame, type, index, level);
	} else {
		make_new(frame, type, index, level);
	}
	unlatch_x(latch);
	if (spare)
		pool_frame_give(pool, spare);
	return frame;
}

/*
 * The former life of a page is over when its number is given out again: no
 * reader can reach it (INV-LOG-7), and it is in place.  A pin can be left for a
 * moment: a flusher's that has just written it, a prefetch's.
 */
int pool_new(struct pool *pool, uint64_t pageno, enum page_type type, unsigned index,
	     unsigned level, struct frame **out)
{

	latch_check_none_from(RANK_PAGE);
	if (!pool_page_number_valid(pool->volume, pageno, type))
		return corrupt_at(pool->volume, pageno, "pool_new",
				  "no place for a page of this type");
	for (unsigned i = 0; i < PINNED_WAITS_MAX; i++) {
		struct frame *busy;
		uint32_t pins;

		*out = new_once(pool, pageno, type, index, level, &busy);
		if (*out)
			return 0;
		os_point("pool:new_waits");
		pins = atomic_load(&busy->pins);
		if (pins > 0)
			os_wait(&busy->pins, pins, PINNED_WAIT_NS);
	}
	return corrupt_at(pool->volume, pageno, "pool_new", "a page that should be free is in use");
}

void pool_pin(struct frame *frame)
{
	check(atomic_fetch_add_explicit(&frame->pins, 1, memory_order_relaxed) > 0);
}

/* The last to let go of a frame without contents makes it free. */
static void put_without_contents(struct frame *frame)
{
	struct pool *pool = frame->pool;
	struct latch *latch = &pool_shard(pool, atomic_load(&frame->pageno))->latch;
	uint32_t state, pins;

	latch_x(latch);
	state = atomic_load(&frame->state);
	pins = atomic_fetch_sub(&frame->pins, 1);
	check(pins > 0);
	if (pins == 1 && state == FRAME_NEW)
		pool_remove_locked(pool, frame);
	unlatch_x(latch);
	if (pins == 1 && state != FRAME_READY)
		pool_frame_give(pool, frame);
}

void pool_put(struct frame *frame)
{
	uint32_t state = atomic_load_explicit(&frame->state, memory_order_relaxed);

	if (state == FRAME_NEW || state == FRAME_FAILED)
		put_without_contents(frame);
	else
		check(atomic_fetch_sub_explicit(&frame->pins, 1, memory_order_release) > 0);
}

void pool_count(struct pool *pool, struct pool_counts *counts)
{
	uint64_t load = atomic_load(&pool->load);
	uint64_t limit = pool->frame_count - POOL_FRAMES_SPARE;
	uint64_t used = (load >> 32) + (uint32_t)load;

	*counts = (struct pool_counts){
		.frames = pool->frame_count,
		.dirty = (uint32_t)load,
		.tickets_free = used < limit ? limit - used : 0,
	};
	for (uint32_t i = 0; i < pool->frame_count; i++)
		counts->pinned += atomic_load_explicit(&pool->frames[i].pins,
						       memory_order_relaxed) > 0;
}
