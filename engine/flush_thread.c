/*
 * The background threads, and those who ask them.
 *
 *	thread        sleeps until                         does
 *	flusher       its bell rings, somebody wants       flush_round()
 *	              space or frames, or a tick
 *	log           its bell rings, or commit_interval   flush_log_round()
 *
 * The log has a thread of its own so that its buffer is emptied also while a batch
 * of pages is being written: then nobody who commits waits for the buffer.
 *
 * INV-FLUSH-2: these threads hold no tickets and no log space, so they can always
 * go on, and whoever waits for either is served in the end, or is told that the
 * volume has failed.
 */
#include "engine/flush_internal.h"

#include "engine/space.h"

#define LOG_WRITE_BYTES (2u << 20) /* a write that a medium does at its full speed */

/* ------------------------------------------------------------ write-back */

static void flusher_main(void *arg)
{
	struct flusher *flusher = arg;

	flusher->pace = (struct pace){.changed_at_ns = os_mono_ns()};
	for (;;) {
		uint32_t ticket = waitq_ticket(&flusher->work.queue);
		uint64_t sleep_ns = OS_FOREVER; /* failed: flusher_stop() wakes */

		if (atomic_load(&flusher->stop))
			return;
		if (!atomic_load(&flusher->volume->failed))
			sleep_ns = flush_round(flusher, os_mono_ns());
		if (sleep_ns > 0)
			waitq_wait(&flusher->work.queue, ticket, sleep_ns);
	}
}

/* ---------------------------------------------------------------- the log */

static uint64_t add_ns(uint64_t now, uint64_t ns)
{
	return ns == OS_FOREVER ? OS_FOREVER : now + ns;
}

static uint64_t commit_interval(const struct volume *volume)
{
	uint64_t interval = volume->options.commit_interval_ns;

	return interval ? interval : COMMIT_INTERVAL_NS;
}

/* So much of the log is written before anybody asks for it: the rest of the buffer is room. */
static uint64_t write_bytes(struct log *log)
{
	uint64_t share = log_buffer_bytes(log) / 4;

	return share < LOG_WRITE_BYTES ? share : LOG_WRITE_BYTES;
}

/* Makes the log durable; when blocks wait for a mark to be reused, with a mark (INV-LOG-7). */
static int commit_log(struct volume *volume)
{
	lsn_t next = log_next_lsn(volume->log);

	if (volume->space && space_has_deferred(volume->space))
		return log_mark(volume->log, next);
	return log_flush(volume->log, next);
}

uint64_t flush_log_round(struct flusher *flusher, uint64_t now, uint64_t *commit_at_ns)
{
	struct volume *volume = flusher->volume;
	struct log *log = volume->log;
	uint64_t limit = write_bytes(log);

	atomic_store(&flusher->log_work.rings_at, log_durable_lsn(log) + limit);
	if (now >= *commit_at_ns) {
		*commit_at_ns = add_ns(now, commit_interval(volume));
		if (commit_log(volume) == 0)
			flush_tell_space(flusher);
		return 0;
	}
	if (log_next_lsn(log) - log_durable_lsn(log) >= limit) {
		(void)!log_flush(log, log_next_lsn(log));
		return 0;
	}
	return *commit_at_ns == OS_FOREVER ? OS_FOREVER : *commit_at_ns - now;
}

static void log_main(void *arg)
{
	struct flusher *flusher = arg;
	uint64_t commit_at_ns = add_ns(os_mono_ns(), commit_interval(flusher->volume));

	for (;;) {
		uint32_t ticket = waitq_ticket(&flusher->log_work.queue);
		uint64_t sleep_ns = OS_FOREVER;

		if (atomic_load(&flusher->stop))
			return;
		if (!atomic_load(&flusher->volume->failed))
			sleep_ns = flush_log_round(flusher, os_mono_ns(), &commit_at_ns);
		if (sleep_ns > 0)
			waitq_wait(&flusher->log_work.queue, ticket, sleep_ns);
	}
}

/* --------------------------------------------------------- start and stop */

int flusher_start(struct flusher *flusher)
{
	int rc;

	if (flusher->volume->options.no_background)
		return 0;
	check(!atomic_load(&flusher->running));
	atomic_store(&flusher->stop, false);
	rc = os_thread_start(&flusher->log_thread, "log", log_main, flusher);
	if (rc)
		return rc;
	atomic_store(&flusher->running, true);
	rc = os_thread_start(&flusher->thread, "flusher", flusher_main, flusher);
	if (rc == 0)
		return 0;
	atomic_store(&flusher->running, false);
	atomic_store(&flusher->stop, true);
	waitq_wake_all(&flusher->log_work.queue);
	os_thread_join(&flusher->log_thread);
	return rc;
}

void flusher_stop(struct flusher *flusher)
{
	if (!flusher || !atomic_load(&flusher->running))
		return;
	atomic_store(&flusher->stop, true);
	waitq_wake_all(&flusher->work.queue);
	waitq_wake_all(&flusher->log_work.queue);
	os_thread_join(&flusher->thread);
	os_thread_join(&flusher->log_thread);
	atomic_store(&flusher->running, false);
}

/* ------------------------------------------------------------ who asks them */

static void raise_to(_Atomic uint64_t *value, uint64_t to)
{
	uint64_t old = atomic_load(value);

	while (old < to && !atomic_compare_exchange_weak(value, &old, to))
		;
}

void flusher_hear(struct flusher *flusher, lsn_t lsn)
{
	bell_hear(&flusher->work, lsn);
	bell_hear(&flusher->log_work, lsn);
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
	waitq_wake_all(&flusher->work.queue);
}

void flusher_want_frames(struct flusher *flusher)
{
	if (atomic_load(&flusher->running))
		waitq_wake_all(&flusher->work.queue);
}
