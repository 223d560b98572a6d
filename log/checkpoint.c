/*
 * Checkpoint blocks.
 *
 * Two blocks, written alternately: the one written last stays valid while the
 * other is being replaced.
 *
 * INV-LOG-2: checkpoint_lsn, which reservation counts from, moves only after
 * the flush of the block that carries it.
 *
 *	crash after         recovery does
 *	write of the block  starts at the old checkpoint or the new one; both are
 *	                    right: everything below the new one is in place, and
 *	                    nothing below the old one's end was overwritten
 *	flush               starts at the new one
 *	reuse of the space  the same
 *
 * INV-LOG-12: an LSN is written only together with the tally as of it, so a checkpoint may
 * lie a little lower than what was asked for (tally.c).
 */
#include "log/log_internal.h"

int log_checkpoint_write(struct log *log, lsn_t lsn, lsn_t marked, uint64_t tally)
{
	const uint64_t at[2] = {LOG_CHECKPOINT_0, LOG_CHECKPOINT_1};
	const unsigned slot = !log->checkpoint_slot;
	struct checkpoint checkpoint = {
		.lsn = lsn,
		.marked_lsn = marked,
		.generation = log->epoch,
		.sequence = log->checkpoint_sequence + 1,
		.tally = tally,
		.mapped = log->mapped,
	};
	struct disk_checkpoint disk;
	int err;

	log_checkpoint_make(&disk, log->uuid, &checkpoint);
	err = dev_write(log->dev, &disk, sizeof(disk), log->shape.offset + at[slot]);
	if (err)
		return err;
	os_point("log:checkpoint");
	err = dev_flush(log->dev);
	if (err)
		return err;
	log->checkpoint_older = atomic_load(&log->checkpoint_lsn);
	log->checkpoint_slot = slot;
	log->checkpoint_sequence = checkpoint.sequence;
	log->checkpoint_marked = marked;
	return 0;
}

/*
 * The oldest change that is not in place may belong to the open group: its LSN
 * lies above durable_lsn, by the group's mark at least.  Nothing but the mark
 * is between, and a group ends at an mtr boundary, so durable_lsn is as good.
 */
static int checkpoint_advance(struct log *log, lsn_t lsn)
{
	lsn_t marked = atomic_load(&log->marked_lsn);
	lsn_t durable = atomic_load(&log->durable_lsn);
	lsn_t now = atomic_load(&log->checkpoint_lsn);
	uint64_t wake, tally;
	int err;

	if (lsn > durable)
		lsn = durable;
	lsn = log_checkpoint_allowed(log, log_tally_floor(log, lsn, &tally));
	if (lsn < now)
		lsn = now;
	lsn = log_tally_floor(log, lsn, &tally);
	check(lsn >= now);
	if (lsn == now && marked == log->checkpoint_marked &&
	    !(log->scrub && log->checkpoint_older < now))
		return 0;
	err = log_checkpoint_write(log, lsn, marked, tally);
	if (err) {
		log_fail(log, err);
		return -BE_LOGDEAD;
	}
	log_stat(log, STAT_log_checkpoints, 1);
	latch_x(&log->latch);
	atomic_store(&log->checkpoint_lsn, lsn);
	log_tally_drop_locked(log, lsn);
	wake = log_space_grant_locked(log);
	unlatch_x(&log->latch);
	log_space_wake(log, wake);
	return 0;
}

int log_checkpoint(struct log *log, lsn_t lsn)
{
	int err = -BE_LOGDEAD;

	check(log->started);
	latch_check_may_wait();
	check(!atomic_exchange(&log->checkpointing, true));
	check(lsn <= atomic_load(&log->next_lsn));
	if (!atomic_load(&log->dead))
		err = checkpoint_advance(log, lsn);
	atomic_store(&log->checkpointing, false);
	return err;
}
