/*
 * Reading the live part of a log: [checkpoint, checkpoint + capacity).
 *
 * The log is read in chunks as far as the scan gets, into an image that is not
 * circular, so that an mtr that straddles the end is contiguous like any other.
 *
 * Nothing read is trusted.  A length is bounded by what is live and by
 * LOG_BUFFER_BYTES_MAX, the longest mtr that can have been appended; nothing
 * is given to the visitor before its CRC holds.
 *
 * INV-LOG-5.  The scan stops at the first byte that is not the start of a valid
 * mtr.  Groups are written one at a time, each only after the flush of the one
 * before, and each begins with a mark: so while group k is torn, no mark
 * behind it exists in this epoch, and a valid one that does exist says that
 * the stop is damage in something that was durable.  A group is never longer
 * than the buffer: the mark of the group after the stop is found within
 * LOG_BUFFER_BYTES_MAX of it.  The same holds for a stop below the mark that
 * the checkpoint block knows of.
 */
#include "log/log_internal.h"

#include <errno.h>
#include <stdlib.h>

#define RECORD_HEAD_MAX 11u /* type and the longest varint */

/* Makes the image hold everything below `end`, which is at most image_limit. */
static int image_need(struct log *log, lsn_t end)
{
	lsn_t to = log->image_loaded + LOG_SCAN_CHUNK_BYTES;
	lsn_t last = lsn_round_up(log->image_limit, log->shape.block);
	int err;

	check(end <= log->image_limit);
	if (end <= log->image_loaded)
		return 0;
	if (!log->image) {
		log->image = os_alloc_large(last - log->image_start);
		if (!log->image)
			return -ENOMEM;
	}
	if (log_ahead_start(log, last))
		return log_ahead_need(log, end);
	if (to < end)
		to = lsn_round_up(end, log->shape.block);
	if (to > last)
		to = last;
	err = log_image_read(log, log->image_loaded, to);
	if (!err)
		log->image_loaded = to;
	return err;
}

static const uint8_t *image_at(const struct log *log, lsn_t lsn)
{
	return log->image + (lsn - log->image_start);
}

static lsn_t lsn_min(lsn_t a, lsn_t b)
{
	return a < b ? a : b;
}

/*
 * Walks the records from `start`.  1: they are well-formed and *end is where
 * the sequence byte stands, loaded with its CRC; 0: no mtr here.
 */
static int records_walk(struct log *log, lsn_t start, lsn_t limit, lsn_t *end)
{
	lsn_t at = start;

	for (;;) {
		uint64_t len;
		size_t head;
		int err = image_need(log, lsn_min(at + RECORD_HEAD_MAX, limit));

		if (err)
			return err;
		if (limit - at < MTR_TRAILER_BYTES)
			return 0;
		if (*image_at(log, at) < REC_MARK)
			break;
		head = varint_get(image_at(log, at + 1), lsn_min(limit - at, RECORD_HEAD_MAX) - 1,
				  &len);
		if (!head || len > limit - at - 1 - head)
			return 0;
		at += 1 + head + len;
	}
	*end = at;
	return at > start;
}

/* 1: a valid mtr starts here; 0: none does; or a read error. */
static int mtr_at(struct log *log, lsn_t start, struct log_mtr *mtr)
{
	lsn_t limit = lsn_min(log->image_limit, start + LOG_BUFFER_BYTES_MAX);
	lsn_t end = start;
	le32 crc;
	int rc = records_walk(log, start, limit, &end);

	if (rc <= 0)
		return rc;
	mtr->start = start;
	mtr->end = end + MTR_TRAILER_BYTES;
	mtr->records = image_at(log, start);
	mtr->records_bytes = end - start;
	if (*image_at(log, end) != log_sequence_byte(&log->shape, end))
		return 0;
	memcpy(&crc, image_at(log, end + 1), sizeof(crc));
	if (le32_get(crc) !=
	    log_records_crc(log->found.generation, mtr->records, mtr->records_bytes))
		return 0;
	mtr->marks = 0;
	/* A mark elsewhere than where it was written is not part of this log. */
	return log_mark_parse(&log->shape, log->found.generation, start, mtr->records,
			      mtr->records_bytes, &mtr->marks) >= 0;
}

/* INV-LOG-5: looks for a mark behind a stop. */
static int probe_marks(struct log *log, lsn_t stop, struct log_scan_result *result)
{
	const uint32_t block = log->shape.block;
	lsn_t limit = lsn_min(log->image_limit, stop + LOG_BUFFER_BYTES_MAX + 2 * block);

	for (lsn_t at = lsn_round_up(stop + 1, block); at + MARK_MTR_BYTES <= limit; at += block) {
		struct log_mtr mtr;
		int rc = image_need(log, at + MARK_MTR_BYTES);

		if (rc)
			return rc;
		if (*image_at(log, at) != REC_MARK)
			continue;
		rc = mtr_at(log, at, &mtr);
		if (rc < 0)
			return rc;
		if (rc && mtr.marks) {
			result->damaged = true;
			result->damage_mark = at;
			return 0;
		}
	}
	return 0;
}

static int find_damage(struct log *log, struct log_scan_result *result)
{
	if (result->end < log->found.marked_lsn) {
		result->damaged = true;
		result->damage_mark = log->found.marked_lsn;
		return 0;
	}
	return probe_marks(log, result->end, result);
}

static int scan(struct log *log, log_visitor visit, void *arg, struct log_scan_result *result)
{
	struct log_mtr mtr;
	int rc;

	while ((rc = mtr_at(log, result->end, &mtr)) > 0) {
		rc = visit(arg, &mtr);
		if (rc)
			return rc > 0 ? 0 : rc; /* the visitor's cut: not a stop */
		result->end = mtr.end;
		if (mtr.marks > result->marked_lsn)
			result->marked_lsn = mtr.marks;
	}
	return rc ? rc : find_damage(log, result);
}

int log_scan(struct log *log, log_visitor visit, void *arg, struct log_scan_result *result)
{
	int rc;

	check(!log->started);
	*result = (struct log_scan_result){
		.end = log->found.lsn,
		.marked_lsn = log->found.marked_lsn,
	};
	rc = scan(log, visit, arg, result);
	log_ahead_stop(log);
	return rc;
}
