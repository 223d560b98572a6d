/*
 * What the files of the pool share, and its side towards the flusher.  Other
 * parts include pool.h only.
 *
 *	pool.c          the argument; open, close, get, new, put
 *	pool_frames.c   hash, free list, CLOCK: which frame holds which page
 *	pool_read.c     reading and judging pages, prefetch
 *	pool_tickets.c  INV-POOL-2
 *	pool_dirty.c    flush list (INV-POOL-1)
 */
#ifndef BLINKFS_ENGINE_POOL_INTERNAL_H
#define BLINKFS_ENGINE_POOL_INTERNAL_H

#include "engine/base/error.h"
#include "engine/pool.h"
#include "engine/volume.h"

#define POOL_SHARDS 256u      /* latches of the hash: far more than threads that run */
#define POOL_PREFETCH_MAX 32u /* pages of one batch of reads */
/* Frames that tickets never count on: pins without tickets (open, tools, checks). */
#define POOL_FRAMES_SPARE 32u
/*
 * Whoever asks for more tickets than POOL_TICKETS_SMALL may be about to dirty
 * pages, and leaves this many frames to those who only read.  So reading goes on
 * where dirty pages can never be written again (a failed volume).
 */
#define POOL_FRAMES_READING MTR_PAGES_MAX
#define POOL_TICKETS_SMALL 4u
#define POOL_FRAMES_MIN (4u * MTR_PAGES_MAX)
static_assert(POOL_FRAMES_MIN >= POOL_FRAMES_SPARE + POOL_FRAMES_READING + POOL_TICKETS_MAX,
	      "the largest request can be granted by the smallest pool");

/*
 *	FREE -> READING -> READY -> FREE (evicted)
 *	           |  `--> FAILED -> FREE (when the last who waited has let go)
 *	           `-----> READING_WAITED, then like READING
 *	FREE or READY (clean) -> NEW -> READY (first change)
 *	                           `--> FREE (let go without a change)
 *
 * A frame is in the hash in all states but FREE and FAILED.
 */
enum frame_state {
	FRAME_FREE,
	FRAME_READING,        /* one thread reads; nobody looks at the contents */
	FRAME_READING_WAITED, /* the same, and somebody sleeps on the state */
	FRAME_READY,
	FRAME_NEW,            /* for the caller of pool_new() only */
	FRAME_FAILED,         /* frame->error says why */
};

struct pool_shard {
	_Alignas(64) struct latch latch; /* RANK_POOL, order = number of the shard */
};

struct pool {
	/* constant */
	struct volume *volume;
	uint32_t page_size;
	uint32_t frame_count;
	uint32_t bucket_count;      /* a power of two */
	uint8_t *memory;            /* frame_count pages */
	struct frame *frames;
	struct pool_shard *shards;

	struct frame **buckets;     /* [lock: shard bucket % POOL_SHARDS] */

	struct latch free_latch;    /* RANK_POOL, order = POOL_SHARDS */
	struct frame *free_first;   /* [lock: free_latch] */

	struct latch list_latch;    /* RANK_FLUSHLIST */
	struct frame *oldest;       /* [lock: list_latch] */
	struct frame *newest;       /* [lock: list_latch] */

	_Alignas(64) _Atomic uint32_t hand; /* CLOCK */
	/* INV-POOL-2: tickets in the high half, dirty frames in the low half. */
	_Alignas(64) _Atomic uint64_t load;
	_Atomic uint32_t ticket_waiters;
	_Atomic uint32_t dirty_wanted; /* wakes the flusher as the dirty frames become so many */
	struct waitq ticket_queue;
};

/* ----------------------------------------------------------- pool_frames.c */

int pool_frames_open(struct pool *pool, uint32_t frame_count) must_check;
void pool_frames_close(struct pool *pool);
struct pool_shard *pool_shard(struct pool *pool, uint64_t pageno);
/* Latch of the page's shard held. */
struct frame *pool_find_locked(struct pool *pool, uint64_t pageno);
void pool_insert_locked(struct pool *pool, struct frame *frame);
void pool_remove_locked(struct pool *pool, struct frame *frame);
/* A frame in state FREE that belongs to the caller.  The caller has an unused ticket. */
struct frame *pool_frame_take(struct pool *pool);
void pool_frame_give(struct pool *pool, struct frame *frame);

/* ------------------------------------------------------------- pool_read.c */

/* Can this be the number of a metadata page of this type on this volume? */
bool pool_page_number_valid(const struct volume *volume, uint64_t pageno, enum page_type type);
static inline uint32_t pool_kind(enum page_type type, unsigned index)
{
	return (uint32_t)type << 8 | index;
}

static inline bool pool_kind_matches(uint32_t kind, enum page_type type, unsigned index)
{
	return kind >> 8 == (uint32_t)type && (index == POOL_ANY_INDEX || (kind & 0xff) == index);
}
/* Gives a frame that nobody else has pinned the kind, rank and order of its page. */
void pool_frame_describe(struct frame *frame, enum page_type type, unsigned index, unsigned level);
/* Reads into a frame in state READING; settles it READY, or FAILED and without the caller's pin. */
int pool_frame_read(struct frame *frame) must_check;

/* ---------------------------------------------------------- pool_tickets.c */

bool pool_try_take_tickets(struct pool *pool, unsigned pages) must_check;
void pool_count_dirty(struct pool *pool, int delta);
uint32_t pool_dirty_count(const struct pool *pool);
/* Somebody waits for tickets, and cleaning frames could serve him. */
bool pool_wants_frames(struct pool *pool);

/* ------------------------------------------------------------ pool_dirty.c */

/*
 * For flush.c.  The caller has a pin and the S latch: the copy that it takes
 * under this latch is about to be written.
 */
void pool_write_begin(struct frame *frame);
/* INV-POOL-1: after the flush that covers the write.  Unpins the frame. */
void pool_write_done(struct frame *frame);
/* The write failed: the frame stays as dirty as it was.  Unpins it. */
void pool_write_failed(struct frame *frame);

#endif
