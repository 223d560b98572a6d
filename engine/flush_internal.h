/*
 * What the files of the flusher share.  Other parts include flush.h only.
 *
 *	flush.c         batches, checkpoints, flush_until() and its kin
 *	flush_pace.c    when to write what
 *	flush_thread.c  the two threads: write-back, and the log
 */
#ifndef BLINKFS_ENGINE_FLUSH_INTERNAL_H
#define BLINKFS_ENGINE_FLUSH_INTERNAL_H

#include "engine/flush.h"
#include "engine/pool_internal.h"

/* A batch: large enough that its three flushes are shared, small enough to hold nobody up. */
#define FLUSH_BATCH_PAGES_MAX 256u
#define FLUSH_BATCH_BYTES_MAX (4u << 20)

/*
 * Wakes a thread once, when the log has grown to an LSN.  Heard by every commit,
 * so looking at it costs one load.
 */
struct bell {
	_Alignas(64) _Atomic uint64_t rings_at; /* UINT64_MAX = it has rung, or nobody waits */
	struct waitq queue;
};

static inline void bell_hear(struct bell *bell, lsn_t lsn)
{
	if (lsn >= atomic_load_explicit(&bell->rings_at, memory_order_relaxed) &&
	    atomic_exchange(&bell->rings_at, UINT64_MAX) != UINT64_MAX)
		waitq_wake_all(&bell->queue);
}

/* What the pacing remembers from one round to the next. */
struct pace {
	uint64_t changed_at_ns; /* when next_lsn was last seen to move */
	lsn_t next_seen;
	lsn_t settled;          /* next_lsn when all was clean and checkpointed */
	bool wait_busy;         /* the last batch skipped pages */
};

struct flusher {
	struct volume *volume;    /* constant */
	uint32_t batch_max;       /* pages; constant */

	/*
	 * One batch or checkpoint at a time.  This is no latch, since it is held over
	 * waits (log_mark()); nobody who holds it waits for anything but the log, the
	 * device, and a page latch with nothing else latched.
	 */
	_Atomic uint32_t turn_taken;
	struct waitq turn_queue;
	uint8_t *copies;              /* [lock: turn] batch_max pages */
	struct frame **frames;        /* [lock: turn] in order of page numbers, in two runs: */
	uint32_t protected_count;     /* [lock: turn] the first so many go through doublewrite */
	struct dev_request *requests; /* [lock: turn] */

	/* the threads and those who ask them */
	struct os_thread thread, log_thread;
	_Atomic bool running, stop;
	_Atomic uint64_t wants_below; /* somebody waits for a checkpoint at this LSN */
	struct bell work;             /* of the thread that writes back */
	struct bell log_work;         /* of the one that makes the log durable */
	struct pace pace;             /* [of the thread that writes back] */
};

struct batch_result {
	uint32_t written, skipped; /* pages; skipped ones were latched X by somebody */
};

/*
 * Steps 1 to 5 of flush.h, on the oldest pages with changes below `below`.
 * wait_busy: waits for page latches instead of skipping.  A failure fails the
 * volume.
 */
int flush_batch(struct flusher *flusher, lsn_t below, bool wait_busy,
		struct batch_result *result) must_check;
/* Step 6.  advance_min: not for less progress than that. */
int flush_checkpoint(struct flusher *flusher, uint64_t advance_min) must_check;
/*
 * flush_pace.c: one round of whoever writes back.  Returns how long he may sleep
 * unless his bell rings.  Errors have failed the volume.
 */
uint64_t flush_round(struct flusher *flusher, uint64_t now_ns);
/* flush_thread.c: the same for the log.  *commit_at_ns: the end of the commit interval. */
uint64_t flush_log_round(struct flusher *flusher, uint64_t now_ns, uint64_t *commit_at_ns);
/* After progress: lets go what waited for it. */
void flush_tell_space(struct flusher *flusher);

#endif
