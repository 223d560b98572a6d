/*
 * Who needs the log longer than recovery does: archive and backup.
 *
 * INV-LOG-2, second half: the checkpoint stays at or below every hold, so what
 * a holder has not read yet is not overwritten.  A hold begins at the newest
 * checkpoint that is written or being written, both read and set under the
 * latch: no checkpoint can slip by in between.  Holds move forward only.
 *
 * A hold that keeps a checkpoint back is told so (the callback), and is told by
 * log_hold_move() that somebody waits for the checkpoint that it has allowed.
 *
 * Also the two things that a holder does with the bytes: log_read(), of what is
 * durable, and log_parse(), which needs neither a log nor its shape.
 */
#include "log/log_internal.h"

#include <errno.h>

/* ------------------------------------------------------------------ holds */

void log_holds_init(struct log *log)
{
	for (unsigned i = 0; i < LOG_HOLDERS; i++)
		atomic_init(&log->hold[i], LSN_NONE);
}

void log_set_hold_callback(struct log *log, void (*late)(void *arg), void *arg)
{
	latch_x(&log->latch);
	log->hold_late = late;
	log->hold_late_arg = arg;
	unlatch_x(&log->latch);
}

lsn_t log_hold(struct log *log, enum log_holder who)
{
	lsn_t from;

	check(log->started && who < LOG_HOLDERS);
	latch_x(&log->latch);
	check(atomic_load(&log->hold[who]) == LSN_NONE);
	from = atomic_load(&log->checkpoint_lsn);
	if (log->checkpoint_next > from)
		from = log->checkpoint_next;
	atomic_store(&log->hold[who], from);
	atomic_store(&log->was_held, true);
	unlatch_x(&log->latch);
	return from;
}

bool log_hold_move(struct log *log, enum log_holder who, lsn_t lsn)
{
	bool kept_back;

	latch_x(&log->latch);
	check(lsn >= atomic_load(&log->hold[who]) && lsn <= atomic_load(&log->durable_lsn));
	atomic_store(&log->hold[who], lsn);
	kept_back = log->hold_kept_back;
	log->hold_kept_back = false;
	unlatch_x(&log->latch);
	return kept_back;
}

bool log_release(struct log *log, enum log_holder who)
{
	bool kept_back;

	latch_x(&log->latch);
	atomic_store(&log->hold[who], LSN_NONE);
	kept_back = log->hold_kept_back;
	log->hold_kept_back = false;
	unlatch_x(&log->latch);
	return kept_back;
}

void log_holds_move_locked(struct log *log, lsn_t lsn)
{
	for (unsigned i = 0; i < LOG_HOLDERS; i++)
		if (atomic_load(&log->hold[i]) != LSN_NONE)
			atomic_store(&log->hold[i], lsn);
	log->checkpoint_next = lsn;
	log->hold_kept_back = false;
}

bool log_was_held(struct log *log)
{
	return atomic_load(&log->was_held);
}

lsn_t log_checkpoint_allowed(struct log *log, lsn_t lsn)
{
	void (*late)(void *arg) = NULL;
	void *arg = NULL;

	latch_x(&log->latch);
	for (unsigned i = 0; i < LOG_HOLDERS; i++) {
		lsn_t hold = atomic_load(&log->hold[i]);

		if (hold >= lsn)
			continue;
		lsn = hold;
		log->hold_kept_back = true;
		late = log->hold_late;
		arg = log->hold_late_arg;
	}
	if (lsn > log->checkpoint_next)
		log->checkpoint_next = lsn;
	unlatch_x(&log->latch);
	if (late)
		late(arg);
	return lsn;
}

/* --------------------------------------------------------------- reading */

int log_read(struct log *log, lsn_t from, lsn_t to, void *buf)
{
	uint8_t *at = buf;

	check(from <= to && (!log->started || to <= atomic_load(&log->durable_lsn)));
	while (from < to) {
		uint64_t left = log_lap_left(&log->shape, from);
		uint64_t len = to - from < left ? to - from : left;
		int err = 0;

		if (log->started && log->mapped)
			memcpy(at, log->buffer + log_buffer_at(log, from), len);
		else
			err = dev_read(log->dev, at, len, log_offset(&log->shape, from));
		if (err)
			return err;
		at += len;
		from += len;
	}
	return 0;
}

static uint64_t get64(const uint8_t *p)
{
	le64 disk;

	memcpy(&disk, p, sizeof(disk));
	return le64_get(disk);
}

/* The bytes of records at `bytes`, behind which the trailer stands; 0: none. */
static size_t records_length(const uint8_t *bytes, size_t left)
{
	size_t at = 0;

	while (left - at >= MTR_TRAILER_BYTES && bytes[at] >= REC_MARK) {
		uint64_t len;
		size_t head = varint_get(bytes + at + 1, left - at - 1, &len);

		if (!head || len > left - at - 1 - head)
			return 0;
		at += 1 + head + len;
	}
	return left - at >= MTR_TRAILER_BYTES ? at : 0;
}

bool log_parse(uint64_t epoch, lsn_t start, const uint8_t *bytes, size_t left, struct log_mtr *mtr)
{
	size_t records = records_length(bytes, left);
	le32 crc;

	if (records == 0)
		return false;
	memcpy(&crc, bytes + records + 1, sizeof(crc));
	if (bytes[records] > 1 || le32_get(crc) != log_records_crc(epoch, bytes, records))
		return false;
	*mtr = (struct log_mtr){
		.start = start,
		.end = start + records + MTR_TRAILER_BYTES,
		.records = bytes,
		.records_bytes = records,
	};
	if (bytes[0] != REC_MARK)
		return true;
	/* A mark says where it stands: so bytes of another place are not taken for these. */
	if (records != MARK_MTR_BYTES - MTR_TRAILER_BYTES || get64(bytes + 2) != start ||
	    get64(bytes + 10) != epoch)
		return false;
	mtr->marks = get64(bytes + 18);
	return true;
}
