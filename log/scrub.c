/*
 * Zeros behind the checkpoint, so that names and contents that are gone do not
 * linger in the log (log_scrub=on).
 *
 *	      checkpoint + capacity =
 *	older   newer                      next            scrubbed     older + capacity
 *	--|------|---- needed ... ----------|--- zeros ----|-- old bytes --|-
 *	                                          ^ appends come from here
 *
 * INV-LOG-9: what is overwritten is free: both checkpoint blocks, durably, have
 * passed it, so no recovery reads it, whichever block is lost.  While a batch is
 * under way nothing above its start is granted (log->scrubbing), and it begins only
 * above all that had been granted before: an append is never overwritten.
 *
 * Archive and backup read what is at or above their holds (hold.c).  The newest
 * checkpoint is at or below every hold, and a batch ends below the older one's lap, so
 * what is zeroed was below both checkpoints in the lap before, hence below the holds.
 *
 * What is there is looked at first: a log that was scrubbed before it was closed
 * is read once by the next mount, and not written.
 *
 * For the scan zeros are the end of the log like any other bytes that are not a
 * mini-transaction of this epoch; a mark that is gone makes no damage, since the
 * checkpoint is above what it said.
 *
 *	crash after        recovery does
 *	zeros written      nothing of it: they lie in what it takes for free space
 */
#include "log/log_internal.h"

#include <errno.h>
#include <stdlib.h>

#define SCRUB_BATCH_BYTES (256u << 10)

/* [*from, *to): the next batch, within one lap, blocks.  False: nothing is left. */
static bool batch_begin(struct log *log, lsn_t *from, lsn_t *to)
{
	const uint32_t block = log->shape.block;
	lsn_t newer, limit;
	bool some;

	latch_x(&log->latch);
	newer = atomic_load(&log->checkpoint_lsn);
	for (unsigned i = 0; i < LOG_HOLDERS; i++)
		check(atomic_load(&log->hold[i]) >= newer);
	limit = log->checkpoint_older < newer ? log->checkpoint_older : newer;
	limit = (limit + log->shape.capacity) / block * block;
	*from = log_promised_end_locked(log, 0);
	if (*from < log->scrubbed)
		*from = log->scrubbed;
	*from = lsn_round_up(*from, block);
	*to = *from + SCRUB_BATCH_BYTES;
	if (*to > *from + log_lap_left(&log->shape, *from))
		*to = *from + log_lap_left(&log->shape, *from);
	if (*to > limit)
		*to = limit;
	some = *from < *to;
	if (some)
		log->scrubbing = *from;
	unlatch_x(&log->latch);
	return some;
}

static void batch_end(struct log *log, lsn_t to)
{
	uint64_t waiter;

	latch_x(&log->latch);
	log->scrubbed = to;
	log->scrubbing = LSN_NONE;
	waiter = log_space_grant_locked(log);
	unlatch_x(&log->latch);
	log_space_wake(log, waiter);
}

static bool is_zero(const uint8_t *bytes, size_t len)
{
	return bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0;
}

/* By the way that appends take: two ways to one page of the kernel's would not see each other. */
static int zero_written(struct log *log, lsn_t from, size_t len, bool *wrote)
{
	struct device *way = log->medium.lane ? log->medium.lane : log->dev;
	uint64_t offset = log_offset(&log->shape, from);
	uint8_t *bytes = aligned_alloc(LOG_BLOCK_MAX, SCRUB_BATCH_BYTES);
	int err = bytes ? dev_read(way, bytes, len, offset) : -ENOMEM;

	*wrote = !err && !is_zero(bytes, len);
	if (*wrote) {
		memset(bytes, 0, len);
		err = dev_write(way, bytes, len, offset);
	}
	free(bytes);
	return err;
}

static void zero_mapped(struct log *log, lsn_t from, size_t len, bool *wrote)
{
	uint8_t *at = log->buffer + log_buffer_at(log, from);

	*wrote = !is_zero(at, len);
	if (!*wrote)
		return;
	memset(at, 0, len);
	if (log->medium.map.byte_addressable)
		dev_persist(log->dev, &log->medium.map, at, len);
}

static int scrub_batch(struct log *log, lsn_t from, lsn_t to)
{
	bool wrote = false;
	int err = 0;

	os_point("log:scrubbing");
	if (log->mapped)
		zero_mapped(log, from, to - from, &wrote);
	else
		err = zero_written(log, from, to - from, &wrote);
	if (wrote && !err) {
		log->scrub_unflushed = true;
		log_stat(log, STAT_log_scrub_batches, 1);
		log_stat(log, STAT_log_scrub_bytes, to - from);
	}
	return err;
}

static int scrub_finish(struct log *log)
{
	int err = log->scrub_unflushed ? dev_flush(log->dev) : 0;

	log->scrub_unflushed = false;
	return err;
}

int log_scrub(struct log *log)
{
	lsn_t from, to;
	bool more;
	int err;

	check(log->started);
	latch_check_may_wait();
	if (atomic_load(&log->dead))
		return -BE_LOGDEAD;
	more = batch_begin(log, &from, &to);
	if (!more) {
		err = scrub_finish(log);
	} else {
		err = scrub_batch(log, from, to);
		batch_end(log, err ? from : to);
	}
	if (err == -ENOMEM)
		return 0; /* another time */
	if (err) {
		log_fail(log, err);
		return -BE_LOGDEAD;
	}
	return more;
}
