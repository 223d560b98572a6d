/*
 * Reading ahead of the scan, by a thread of its own.
 *
 *	image_start ...... scanned ...... loaded ........ limit
 *	                       |<- at most AHEAD_BYTES ->|
 *
 * A log that is soon read to its end is read by the scan itself; from
 * AHEAD_AFTER_BYTES on it is likely to be long, and the medium and the processor
 * work side by side.  The thread ends when it has read everything, at an error,
 * and when the scan stops.
 *
 * `loaded` is stored after the bytes below it, so the scan may look at them
 * without a latch; the thread never touches them again.
 */
#include "log/log_internal.h"

#define AHEAD_AFTER_BYTES (4u << 20)
#define AHEAD_BYTES (16u << 20)

int log_image_read(struct log *log, lsn_t from, lsn_t to)
{
	while (from < to) {
		uint64_t len = to - from;
		int err;

		if (len > log_lap_left(&log->shape, from))
			len = log_lap_left(&log->shape, from);
		err = dev_read(log->dev, log->image + (from - log->image_start), len,
			       log_offset(&log->shape, from));
		if (err)
			return err;
		from += len;
	}
	return 0;
}

static bool may_read(struct log_ahead *ahead, lsn_t at)
{
	return at < atomic_load(&ahead->wanted) + AHEAD_BYTES;
}

static void read_ahead(void *arg)
{
	struct log *log = arg;
	struct log_ahead *ahead = &log->ahead;
	lsn_t at = atomic_load(&ahead->loaded);
	int err = 0;

	while (at < ahead->limit && !err) {
		uint32_t ticket = waitq_ticket(&ahead->reader_queue);
		lsn_t to = at + LOG_SCAN_CHUNK_BYTES;

		if (atomic_load(&ahead->stop))
			return;
		if (!may_read(ahead, at)) {
			waitq_wait(&ahead->reader_queue, ticket, OS_FOREVER);
			continue;
		}
		if (to > ahead->limit)
			to = ahead->limit;
		os_point("log:ahead");
		err = log_image_read(log, at, to);
		at = to;
		if (err)
			atomic_store(&ahead->error, err);
		else
			atomic_store(&ahead->loaded, at);
		waitq_wake_all(&ahead->scan_queue);
	}
}

bool log_ahead_start(struct log *log, lsn_t limit)
{
	struct log_ahead *ahead = &log->ahead;

	if (ahead->running)
		return true;
	if (log->image_loaded - log->image_start < AHEAD_AFTER_BYTES)
		return false;
	ahead->limit = limit;
	atomic_store(&ahead->loaded, log->image_loaded);
	atomic_store(&ahead->wanted, log->image_loaded);
	atomic_store(&ahead->stop, false);
	atomic_store(&ahead->error, 0);
	ahead->running = os_thread_start(&ahead->thread, "log-read", read_ahead, log) == 0;
	return ahead->running;
}

int log_ahead_need(struct log *log, lsn_t end)
{
	struct log_ahead *ahead = &log->ahead;
	int err = 0;

	atomic_store(&ahead->wanted, end);
	waitq_wake_all(&ahead->reader_queue);
	for (;;) {
		uint32_t ticket = waitq_ticket(&ahead->scan_queue);

		log->image_loaded = atomic_load(&ahead->loaded);
		if (log->image_loaded >= end)
			return 0;
		err = atomic_load(&ahead->error);
		if (err)
			return err;
		waitq_wait(&ahead->scan_queue, ticket, OS_FOREVER);
	}
}

void log_ahead_stop(struct log *log)
{
	struct log_ahead *ahead = &log->ahead;

	if (!ahead->running)
		return;
	atomic_store(&ahead->stop, true);
	waitq_wake_all(&ahead->reader_queue);
	os_thread_join(&ahead->thread);
	log->image_loaded = atomic_load(&ahead->loaded);
	ahead->running = false;
}
