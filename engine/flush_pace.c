/*
 * When to write back what.
 *
 *	  checkpoint                               next
 *	-----|------------ age: 3/8 -----------------|------------ free: 5/8 ----------|
 *	     |<- due ->|<- a batch may go ->|
 *	              aim = next - 3/8     aim + 1/16
 *
 *	duty     when                                        what
 *	wanted   somebody waits for log space                flush_until() what he wants
 *	age      the oldest change not in place lies         batches of the oldest pages,
 *	         further back than the aim                   until it does not
 *	frames   more than 3/8 of the frames are dirty, or   the same
 *	         somebody waits for tickets
 *	idle     nothing was appended for IDLE_NS            a batch a tick, at last a
 *	                                                     checkpoint of everything, so
 *	                                                     that a recovery is short
 *
 * The aim moves with the log, and a commit rings the bell each time that the log
 * has grown by a step, or the dirty frames by theirs.  So a steady load meets a
 * steady write-back at its own rate, and neither the log nor the frames run out
 * unless the medium is slower than the load for as long as 5/8 of the log last.
 * The checkpoint, and with it the length of a recovery, stays within the age, a
 * step and what one batch takes.  A larger age would write less (a page that is
 * changed again and again is written once an age), a smaller one leaves more room,
 * which a small log needs more: there it is 1/4.
 *
 * A batch takes the oldest pages up to a bit more than is due: it is filled where
 * pages are many, and its flushes are shared.
 */
#include "engine/flush_internal.h"

#define TICK_NS 100000000ull
#define TICK_IDLE_NS 1000000000ull
#define IDLE_NS 1000000000ull
#define STUCK_NS 1000000ull /* what is oldest is about to be listed, or latched by somebody */

/* Shares of the log. */
#define AGE_AIM(capacity) ((capacity) > LOG_LARGE ? (capacity) / 8 * 3 : (capacity) / 4)
#define LOG_LARGE (64u << 20)
#define AGE_AHEAD(capacity) ((capacity) / 16)
#define CHECKPOINT_EACH(capacity) ((capacity) / 32)
/* Of the frames. */
#define DIRTY_AIM(frames) ((frames) / 8 * 3)
#define DIRTY_STEP(frames) ((frames) / 64 + 1)

/* Log between two rings: a sixteenth of a small log, no more than that of a large one. */
#define STEP_BYTES (1u << 20)

static uint64_t step_bytes(uint64_t capacity)
{
	uint64_t step = capacity / 64 > STEP_BYTES ? capacity / 64 : STEP_BYTES;

	return step < capacity / 16 ? step : capacity / 16;
}

enum duty { DUTY_NONE, DUTY_IDLE, DUTY_FRAMES, DUTY_AGE, DUTY_WANTED };

static lsn_t aim_of(struct log *log)
{
	uint64_t next = log_next_lsn(log), aim = AGE_AIM(log_capacity(log));

	return next > aim ? next - aim : 0;
}

static enum duty judge(const struct flusher *flusher, uint64_t now_ns)
{
	struct log *log = flusher->volume->log;
	struct pool *pool = flusher->volume->pool;
	lsn_t aim = aim_of(log), checkpoint = log_checkpoint_lsn(log);

	if (atomic_load(&flusher->wants_below) > checkpoint)
		return DUTY_WANTED;
	if (pool_oldest_lsn(pool) < aim || checkpoint + AGE_AHEAD(log_capacity(log)) < aim)
		return DUTY_AGE;
	if (pool_wants_frames(pool) || pool_dirty_count(pool) > DIRTY_AIM(pool->frame_count))
		return DUTY_FRAMES;
	if (log_next_lsn(log) != flusher->pace.settled &&
	    now_ns - flusher->pace.changed_at_ns >= IDLE_NS)
		return DUTY_IDLE;
	return DUTY_NONE;
}

/* One batch below `below`.  False: nothing could be written. */
static bool write_some(struct flusher *flusher, lsn_t below)
{
	struct log *log = flusher->volume->log;
	lsn_t checkpoint = log_checkpoint_lsn(log);
	struct batch_result result;

	if (flush_batch(flusher, below, flusher->pace.wait_busy, &result))
		return false;
	flusher->pace.wait_busy = result.skipped > 0;
	if (flush_checkpoint(flusher, CHECKPOINT_EACH(log_capacity(log))))
		return false;
	flush_tell_space(flusher);
	return result.written > 0 || log_checkpoint_lsn(log) > checkpoint;
}

/* Idle: nothing is dirty any more.  Returns with a checkpoint that spares recovery any work. */
static void settle(struct flusher *flusher)
{
	int rc = flush_everything(flusher);

	if (rc == 0 && flusher->volume->options.log_scrub)
		rc = flush_checkpoint(flusher, 0); /* in the other block as well */
	if (rc == 0)
		flusher->pace.settled = log_next_lsn(flusher->volume->log);
}

/* A batch between rounds, so that it never keeps a duty waiting for long. */
static uint64_t scrub(struct flusher *flusher, uint64_t sleep_ns)
{
	if (!flusher->volume->options.log_scrub)
		return sleep_ns;
	return flusher_scrub(flusher) > 0 ? 0 : sleep_ns;
}

/* How long to sleep after having done something about it. */
static uint64_t relieve(struct flusher *flusher, enum duty duty)
{
	struct volume *volume = flusher->volume;

	switch (duty) {
	case DUTY_WANTED:
		(void)!flush_until(flusher, atomic_load(&flusher->wants_below));
		/* Held back by an archive or a backup, which asks again once it has moved on. */
		return log_checkpoint_lsn(volume->log) < atomic_load(&flusher->wants_below)
			       ? STUCK_NS : 0;
	case DUTY_AGE:
		return write_some(flusher, aim_of(volume->log) +
						   AGE_AHEAD(log_capacity(volume->log)))
			       ? 0 : STUCK_NS;
	case DUTY_FRAMES:
		return write_some(flusher, UINT64_MAX) ? 0 : STUCK_NS;
	case DUTY_IDLE:
		if (pool_dirty_count(volume->pool) > 0)
			(void)!write_some(flusher, UINT64_MAX);
		else
			settle(flusher);
		return TICK_NS;
	case DUTY_NONE:
		break;
	}
	return log_next_lsn(volume->log) == flusher->pace.settled ? TICK_IDLE_NS : TICK_NS;
}

/* Before the next look at what is to be done: what comes later rings. */
static void set_bell(struct flusher *flusher)
{
	struct volume *volume = flusher->volume;
	uint32_t dirty = pool_dirty_count(volume->pool), aim = DIRTY_AIM(volume->pool->frame_count);

	atomic_store(&flusher->work.rings_at,
		     log_next_lsn(volume->log) + step_bytes(log_capacity(volume->log)));
	atomic_store(&volume->pool->dirty_wanted,
		     (dirty > aim ? dirty : aim) + DIRTY_STEP(volume->pool->frame_count));
}

uint64_t flush_round(struct flusher *flusher, uint64_t now_ns)
{
	struct pace *pace = &flusher->pace;
	lsn_t next = log_next_lsn(flusher->volume->log);
	uint64_t sleep_ns;

	if (next != pace->next_seen)
		pace->changed_at_ns = now_ns;
	set_bell(flusher);
	sleep_ns = relieve(flusher, judge(flusher, now_ns));
	sleep_ns = scrub(flusher, sleep_ns);
	pace->next_seen = log_next_lsn(flusher->volume->log); /* marks of ours are no activity */
	return sleep_ns;
}
