/*
 * The background thread: when to write what.
 *
 *	pressure   when                                        what
 *	log        somebody waits for log space, or more than  flush_until() back to 3/8
 *	           half of the log lies behind the checkpoint
 *	frames     somebody waits for tickets, or more than    batches back to 3/8
 *	           half of the frames are dirty
 *	some       more than a quarter of either               a batch a tick
 *	idle       nothing was appended for IDLE_NS            a batch a tick, at last a
 *	                                                       checkpoint of everything, so
 *	                                                       that a recovery is short
 *	none       else                                        nothing
 *
 * And every commit_interval, whatever the pressure, the log becomes durable.
 *
 * INV-FLUSH-2: this thread holds no tickets and no log space, so it can always
 * go on, and whoever waits for either is served in the end, or is told that the
 * volume has failed.
 */
#include "engine/flush_internal.h"

#include "engine/space.h"

#define TICK_NS 50000000ull
#define TICK_IDLE_NS 1000000000ull
#define IDLE_NS 1000000000ull

/* What the thread remembers. */
struct rounds {
	struct flusher *flusher;
	uint64_t commit_at_ns;  /* OS_FOREVER = never */
	uint64_t changed_at_ns; /* when next_lsn was last seen to move */
	lsn_t next_seen;
	lsn_t settled;          /* next_lsn when all was clean and checkpointed */
	bool wait_busy;         /* the last batch skipped pages */
};

enum pressure { PRESSURE_NONE, PRESSURE_IDLE, PRESSURE_SOME, PRESSURE_FRAMES, PRESSURE_LOG };

static uint64_t commit_interval(const struct volume *volume)
{
	uint64_t interval = volume->options.commit_interval_ns;

	return interval ? interval : COMMIT_INTERVAL_NS;
}

static uint64_t add_ns(uint64_t now, uint64_t ns)
{
	return ns == OS_FOREVER ? OS_FOREVER : now + ns;
}

static lsn_t log_age(struct log *log)
{
	lsn_t checkpoint = log_checkpoint_lsn(log);

	return log_next_lsn(log) - checkpoint;
}

static enum pressure judge(struct rounds *rounds, uint64_t now)
{
	struct flusher *flusher = rounds->flusher;
	struct log *log = flusher->volume->log;
	struct pool *pool = flusher->volume->pool;
	uint64_t dirty = pool_dirty_count(pool), frames = pool->frame_count;
	uint64_t age = log_age(log), capacity = log_capacity(log);

	if (age > capacity / 2 || atomic_load(&flusher->wants_below) > log_checkpoint_lsn(log))
		return PRESSURE_LOG;
	if (pool_wants_frames(pool) || dirty > frames / 2)
		atomic_store(&flusher->wants_frames, true);
	else if (dirty <= frames / 8 * 3)
		atomic_store(&flusher->wants_frames, false);
	if (atomic_load(&flusher->wants_frames))
		return PRESSURE_FRAMES;
	if (dirty > frames / 4 || age > capacity / 4)
		return PRESSURE_SOME;
	if (log_next_lsn(log) != rounds->settled && now - rounds->changed_at_ns >= IDLE_NS)
		return PRESSURE_IDLE;
	return PRESSURE_NONE;
}

/* Errors have failed the volume already, which ends the rounds. */
static void write_some(struct rounds *rounds)
{
	struct flusher *flusher = rounds->flusher;
	struct batch_result result;

	if (flush_batch(flusher, UINT64_MAX, rounds->wait_busy, &result))
		return;
	rounds->wait_busy = result.skipped > 0;
	if (flush_checkpoint(flusher, log_capacity(flusher->volume->log) / 16))
		return;
	flush_tell_space(flusher);
}

static void make_log_space(struct flusher *flusher)
{
	struct log *log = flusher->volume->log;
	lsn_t wanted = atomic_load(&flusher->wants_below);
	uint64_t keep = log_capacity(log) / 8 * 3;

	if (log_age(log) > keep && log_next_lsn(log) - keep > wanted)
		wanted = log_next_lsn(log) - keep;
	(void)!flush_until(flusher, wanted);
}

/* Idle: nothing is dirty any more.  Returns with a checkpoint that spares recovery any work. */
static void settle(struct rounds *rounds)
{
	struct flusher *flusher = rounds->flusher;

	if (flush_everything(flusher) == 0)
		rounds->settled = log_next_lsn(flusher->volume->log);
}

/* How long to sleep after having done something about it. */
static uint64_t relieve(struct rounds *rounds, enum pressure pressure)
{
	switch (pressure) {
	case PRESSURE_LOG:
		make_log_space(rounds->flusher);
		return 0;
	case PRESSURE_FRAMES:
		write_some(rounds);
		return 0;
	case PRESSURE_SOME:
		write_some(rounds);
		return TICK_NS;
	case PRESSURE_IDLE:
		if (pool_dirty_count(rounds->flusher->volume->pool) > 0)
			write_some(rounds);
		else
			settle(rounds);
		return TICK_NS;
	case PRESSURE_NONE:
		break;
	}
	return log_next_lsn(rounds->flusher->volume->log) == rounds->settled ? TICK_IDLE_NS
									     : TICK_NS;
}

/* Makes the log durable; when blocks wait for a mark to be reused, with a mark (INV-LOG-7). */
static int commit_log(struct volume *volume)
{
	lsn_t next = log_next_lsn(volume->log);

	if (volume->space && space_has_deferred(volume->space))
		return log_mark(volume->log, next);
	return log_flush(volume->log, next);
}

static void commit(struct rounds *rounds, uint64_t now)
{
	if (now < rounds->commit_at_ns)
		return;
	rounds->commit_at_ns = add_ns(now, commit_interval(rounds->flusher->volume));
	if (commit_log(rounds->flusher->volume) == 0)
		flush_tell_space(rounds->flusher);
}

static uint64_t run_round(struct rounds *rounds)
{
	struct volume *volume = rounds->flusher->volume;
	uint64_t now = os_mono_ns(), sleep_ns, until_commit;
	lsn_t next = log_next_lsn(volume->log);

	if (atomic_load(&volume->failed))
		return OS_FOREVER; /* flusher_stop() wakes */
	if (next != rounds->next_seen)
		rounds->changed_at_ns = now;
	commit(rounds, now);
	sleep_ns = relieve(rounds, judge(rounds, now));
	rounds->next_seen = log_next_lsn(volume->log); /* marks of ours are no activity */
	until_commit = rounds->commit_at_ns > now ? rounds->commit_at_ns - now : 0;
	return sleep_ns < until_commit ? sleep_ns : until_commit;
}

static void thread_main(void *arg)
{
	struct flusher *flusher = arg;
	uint64_t now = os_mono_ns();
	struct rounds rounds = {
		.flusher = flusher,
		.commit_at_ns = add_ns(now, commit_interval(flusher->volume)),
		.changed_at_ns = now,
	};

	for (;;) {
		uint32_t ticket = waitq_ticket(&flusher->work_queue);
		uint64_t sleep_ns;

		if (atomic_load(&flusher->stop))
			return;
		sleep_ns = run_round(&rounds);
		if (sleep_ns > 0)
			waitq_wait(&flusher->work_queue, ticket, sleep_ns);
	}
}

int flusher_start(struct flusher *flusher)
{
	int rc;

	if (flusher->volume->options.no_background)
		return 0;
	check(!atomic_load(&flusher->running));
	atomic_store(&flusher->stop, false);
	atomic_store(&flusher->running, true);
	rc = os_thread_start(&flusher->thread, "flusher", thread_main, flusher);
	if (rc)
		atomic_store(&flusher->running, false);
	return rc;
}

void flusher_stop(struct flusher *flusher)
{
	if (!flusher || !atomic_load(&flusher->running))
		return;
	atomic_store(&flusher->stop, true);
	waitq_wake_all(&flusher->work_queue);
	os_thread_join(&flusher->thread);
	atomic_store(&flusher->running, false);
}

static void raise_to(_Atomic uint64_t *value, uint64_t to)
{
	uint64_t old = atomic_load(value);

	while (old < to && !atomic_compare_exchange_weak(value, &old, to))
		;
}

void flusher_want_space(void *arg, lsn_t below)
{
	struct flusher *flusher = arg;

	if (!atomic_load(&flusher->running)) {
		/* An error has failed the volume; who waits for the space is told by the log. */
		(void)!flush_until(flusher, below);
		return;
	}
	raise_to(&flusher->wants_below, below);
	waitq_wake_all(&flusher->work_queue);
}

void flusher_want_frames(struct flusher *flusher)
{
	if (!atomic_load(&flusher->running))
		return;
	atomic_store(&flusher->wants_frames, true);
	waitq_wake_all(&flusher->work_queue);
}
