/*
 * What the files of the flusher share.  Other parts include flush.h only.
 *
 *	flush.c         batches, checkpoints, flush_until() and its kin
 *	flush_thread.c  the background thread: when to write what
 */
#ifndef BLINKFS_ENGINE_FLUSH_INTERNAL_H
#define BLINKFS_ENGINE_FLUSH_INTERNAL_H

#include "engine/flush.h"
#include "engine/pool_internal.h"

/* A batch: large enough that its three flushes are shared, small enough to hold nobody up. */
#define FLUSH_BATCH_PAGES_MAX 256u
#define FLUSH_BATCH_BYTES_MAX (4u << 20)

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

	/* the background thread and those who ask it */
	struct os_thread thread;
	_Atomic bool running, stop;
	_Atomic bool wants_frames;
	_Atomic uint64_t wants_below; /* somebody waits for a checkpoint at this LSN */
	struct waitq work_queue;
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
/* After progress: lets go what waited for it. */
void flush_tell_space(struct flusher *flusher);

#endif
