/*
 * Another size or place for a log that is in use (log.h, INV-LOG-8).
 *
 * INV-LOG-8: a log moves only while it is frozen and empty: every byte below
 * next_lsn is durable, marked, in place and checkpointed, and nobody has a
 * reservation.  Then all of it that a recovery needs is one LSN.
 *
 *	                       this place, this size     the other place or size
 *	before                 as it was                 nothing
 *	header, flush          as it was                 a header
 *	checkpoint blocks      empty, from the new LSN   empty, from the new LSN
 *	superblock: the switch no longer looked at       the log
 *
 * The new LSN is next_lsn rounded up, so that no page is ever newer than its log;
 * first_lsn is the same, so the first lap of the new size begins there.
 *
 * In the same place the two checkpoint blocks are shared by both sizes: that they
 * carry the new generation makes whatever lies in the records void for either, by
 * the seed of its CRC, without a byte of it being overwritten (INV-LOG-6).  The
 * header goes where the one in use is not (LOG_HEADER_1 or 0); they are told apart
 * by size, which differs.
 *
 * INV-LOG-11: holds go to the new LSN with everything else.  Whoever holds has read all
 * that was there before, since the checkpoint stands where its hold does; the bytes
 * from there to the new LSN exist in no log.  He has to know of the move, since what
 * comes is of another epoch: the archive begins a new file (archive.h), a backup
 * forbids the move (log_resize.h).
 *
 * crash before the switch: the superblock names the old size, whose header and one
 * of whose checkpoint blocks are good.  After it: the same of the new one.
 */
#include "log/log_internal.h"

#include <errno.h>
#include <stdlib.h>

struct log_move {
	struct device *dev;
	struct log_shape shape;
	uint64_t generation;
	lsn_t lsn;
	uint8_t *buffer; /* NULL: mapped */
	uint64_t buffer_bytes;
	unsigned checkpoint_slot;
	uint64_t checkpoint_sequence;
	uint64_t tally;
};

/* ----------------------------------------------------------------- freezing */

int log_freeze(struct log *log)
{
	bool dead, busy;

	check(log->started);
	latch_check_may_wait();
	latch_x(&log->latch);
	check(!log->frozen);
	log->frozen = true;
	unlatch_x(&log->latch);
	os_point("log:freezing");
	for (;;) {
		uint32_t ticket;

		latch_x(&log->latch);
		dead = atomic_load(&log->dead);
		busy = log->reserved > 0;
		ticket = waitq_ticket(&log->frozen_queue);
		unlatch_x(&log->latch);
		if (dead || !busy)
			break;
		waitq_wait(&log->frozen_queue, ticket, OS_FOREVER);
	}
	if (!dead)
		return 0;
	log_thaw(log);
	return -BE_LOGDEAD;
}

void log_thaw(struct log *log)
{
	uint64_t waiter;

	latch_x(&log->latch);
	check(log->frozen);
	log->frozen = false;
	waiter = log_space_grant_locked(log);
	unlatch_x(&log->latch);
	log_space_wake(log, waiter);
}

/* --------------------------------------------------------------- preparing */

static bool is_empty(struct log *log)
{
	lsn_t next = atomic_load(&log->next_lsn);
	bool empty;

	latch_x(&log->latch);
	check(log->frozen);
	/* An archive follows (INV-LOG-11); what a backup reads is one stretch of one epoch. */
	empty = log->reserved == 0 && !log->in_flight && log->group_start == next &&
		atomic_load(&log->durable_lsn) == next && atomic_load(&log->marked_lsn) == next &&
		atomic_load(&log->checkpoint_lsn) == next &&
		atomic_load(&log->hold[LOG_HOLD_BACKUP]) == LSN_NONE;
	unlatch_x(&log->latch);
	return empty;
}

static int shape_make(const struct log *log, const struct log_place *to, lsn_t lsn,
		      struct log_shape *shape)
{
	bool same = to->dev == log->dev && to->offset == log->shape.offset;

	if (to->offset > to->dev->size_bytes ||
	    to->size_bytes > to->dev->size_bytes - to->offset ||
	    to->size_bytes < LOG_RECORDS_START + LOG_CAPACITY_MIN(LOG_BLOCK_MAX))
		return -EINVAL;
	*shape = log->shape;
	shape->offset = to->offset;
	shape->capacity = to->size_bytes - LOG_RECORDS_START;
	shape->header_slot = same ? !log->shape.header_slot : 0;
	shape->first_lsn = lsn;
	shape->block = shape->header_block;
	return same && shape->capacity == log->shape.capacity ? -EINVAL : 0;
}

/*
 * The one way to the medium goes, the other one comes: both at a time would be two
 * locks on one region.  Nothing is written meanwhile.
 */
static int medium_change(struct log *log, struct log_move *move)
{
	enum log_mode mode = log->medium.mode;
	struct log_shape old = log->shape;
	int err, again;

	log_medium_close(&log->medium);
	err = log_medium_open(&log->medium, move->dev, log->data, &move->shape, mode);
	if (!err) {
		move->shape.block = log->medium.block;
		return 0;
	}
	old.block = old.header_block;
	again = log_medium_open(&log->medium, log->dev, log->data, &old, mode);
	if (again) {
		log_fail(log, again);
		return -BE_LOGDEAD;
	}
	if (log->mapped)
		log->buffer = log->medium.map.at;
	return err;
}

static int write_checkpoints(struct log *log, struct log_move *move)
{
	const uint64_t at[2] = {LOG_CHECKPOINT_0, LOG_CHECKPOINT_1};
	int err = 0;

	move->checkpoint_slot = log->checkpoint_slot;
	move->checkpoint_sequence = log->checkpoint_sequence;
	move->tally = log_tally(log);
	for (unsigned i = 0; i < 2 && !err; i++) {
		struct checkpoint checkpoint = {
			.lsn = move->lsn,
			.marked_lsn = move->lsn,
			.generation = move->generation,
			.sequence = ++move->checkpoint_sequence,
			.tally = move->tally,
			.mapped = log->mapped,
		};
		struct disk_checkpoint disk;

		move->checkpoint_slot = !move->checkpoint_slot;
		log_checkpoint_make(&disk, log->uuid, &checkpoint);
		err = dev_write(move->dev, &disk, sizeof(disk),
				move->shape.offset + at[move->checkpoint_slot]);
		if (!err)
			err = dev_flush(move->dev);
		os_point("log:move_checkpoint");
	}
	return err;
}

static int write_all(struct log *log, struct log_move *move)
{
	int err = log_header_write(move->dev, &move->shape, log->uuid);

	if (!err)
		err = dev_flush(move->dev);
	os_point("log:move_header");
	return err ? err : write_checkpoints(log, move);
}

static int buffer_prepare(const struct log *log, struct log_move *move)
{
	/* Large blocks: whatever the medium will want. */
	struct log_shape shape = move->shape;

	if (log->mapped) {
		move->buffer_bytes = shape.capacity;
		return 0;
	}
	shape.block = log->shape.block;
	move->buffer_bytes = log_buffer_size(&shape, log->buffer_wanted);
	move->buffer = aligned_alloc(LOG_BLOCK_MAX,
				     lsn_round_up(move->buffer_bytes, LOG_BLOCK_MAX));
	return move->buffer ? 0 : -ENOMEM;
}

static void move_free(struct log_move *move)
{
	free(move->buffer);
	free(move);
}

lsn_t log_move_lsn(struct log *log)
{
	return lsn_round_up(atomic_load(&log->next_lsn), LOG_BLOCK_MAX);
}

int log_move_prepare(struct log *log, const struct log_place *to, uint64_t generation,
		     struct log_move **out)
{
	lsn_t lsn = log_move_lsn(log);
	struct log_move *move;
	int err;

	latch_check_may_wait();
	if (atomic_load(&log->dead))
		return -BE_LOGDEAD;
	if (!is_empty(log))
		return -EBUSY;
	/* INV-LOG-6: an epoch that was in use would make old bytes valid again. */
	check(generation > log->epoch);
	move = calloc(1, sizeof(*move));
	if (!move)
		return -ENOMEM;
	move->dev = to->dev;
	move->generation = generation;
	move->lsn = lsn;
	err = shape_make(log, to, lsn, &move->shape);
	if (!err)
		err = buffer_prepare(log, move);
	if (!err)
		err = medium_change(log, move);
	if (err) {
		move_free(move);
		return err;
	}
	err = write_all(log, move);
	if (err) {
		/* Which of it has arrived is unknown. */
		log_fail(log, err);
		log_move_install(log, move);
		return -BE_LOGDEAD;
	}
	*out = move;
	return 0;
}

/* -------------------------------------------------------------- installing */

void log_move_install(struct log *log, struct log_move *move)
{
	uint8_t *old = log->mapped ? NULL : log->buffer;

	latch_x(&log->latch);
	check(log->frozen && log->reserved == 0);
	log->dev = move->dev;
	log->shape = move->shape;
	log->epoch = move->generation;
	log->buffer = log->mapped ? log->medium.map.at : move->buffer;
	log->buffer_bytes = move->buffer_bytes;
	log->checkpoint_slot = move->checkpoint_slot;
	log->checkpoint_sequence = move->checkpoint_sequence;
	log->checkpoint_marked = log->checkpoint_older = log->scrubbed = move->lsn;
	log->group_start = log->group_marks = log->flight_end = move->lsn;
	atomic_store(&log->next_lsn, move->lsn);
	atomic_store(&log->durable_lsn, move->lsn);
	atomic_store(&log->marked_lsn, move->lsn);
	atomic_store(&log->checkpoint_lsn, move->lsn);
	log_holds_move_locked(log, move->lsn);
	log_tally_move_locked(log, move->lsn);
	log_publish(log);
	unlatch_x(&log->latch);
	move->buffer = NULL;
	move_free(move);
	free(old);
}
