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
 * mtr.  A mark of this epoch that says "all below d was durable" with d above the
 * stop makes it damage in something that was durable; so does the mark that the
 * checkpoint block knows of.  Where such a mark can be:
 *
 *	written in groups  each only after the flush of the one before, each with a
 *	                   mark that names its own start.  So behind a torn group
 *	                   there is none, and the mark of the group after a damaged
 *	                   one is at most the longest group away,
 *	                   LOG_BUFFER_BYTES_MAX.
 *	mapped             a group may arrive before an earlier one: its mark names
 *	                   what was durable when it was opened, and is no witness
 *	                   for more.  A group has no greatest length, so everything
 *	                   live is looked at.
 *
 * A mark lies within one block, and so is looked for without the image.
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

/* Does a mark of this log stand at `at`, where these bytes were read? */
static bool mark_at(const struct log *log, lsn_t at, const uint8_t *bytes, lsn_t *durable)
{
	const size_t records = MARK_MTR_BYTES - MTR_TRAILER_BYTES;
	le32 crc;

	if (bytes[0] != REC_MARK || bytes[records] != log_sequence_byte(&log->shape, at + records))
		return false;
	memcpy(&crc, bytes + records + 1, sizeof(crc));
	return le32_get(crc) == log_records_crc(log->found.generation, bytes, records) &&
	       log_mark_parse(&log->shape, log->found.generation, at, bytes, records, durable) > 0;
}

/* Looks at the block boundaries in [from, to), which does not cross the end of a lap. */
static int probe_chunk(struct log *log, uint8_t *chunk, lsn_t from, lsn_t to,
		       struct log_scan_result *result)
{
	int err = dev_read(log->dev, chunk, to - from, log_offset(&log->shape, from));

	for (lsn_t at = from; at + MARK_MTR_BYTES <= to && !err; at += log->shape.block) {
		lsn_t durable;

		if (!mark_at(log, at, chunk + (at - from), &durable) || durable <= result->end)
			continue;
		result->damaged = true;
		result->damage_mark = durable;
		break;
	}
	return err;
}

static int probe_marks(struct log *log, struct log_scan_result *result)
{
	const uint32_t block = log->shape.block;
	lsn_t at = lsn_round_up(result->end + 1, block);
	lsn_t limit = log->image_limit;
	uint8_t *chunk;
	int err = 0;

	if (!log->found.mapped)
		limit = lsn_min(limit, result->end + LOG_BUFFER_BYTES_MAX + 2 * block);
	if (at >= limit)
		return 0;
	chunk = malloc(lsn_min(limit - at, LOG_SCAN_CHUNK_BYTES));
	if (!chunk)
		return -ENOMEM;
	while (at < limit && !err && !result->damaged) {
		lsn_t to = lsn_min(limit, at + LOG_SCAN_CHUNK_BYTES);

		to = lsn_min(to, at + log_lap_left(&log->shape, at));
		err = probe_chunk(log, chunk, at, to, result);
		at = to;
	}
	free(chunk);
	return err;
}

static int find_damage(struct log *log, struct log_scan_result *result)
{
	if (result->end < log->found.marked_lsn) {
		result->damaged = true;
		result->damage_mark = log->found.marked_lsn;
		return 0;
	}
	return probe_marks(log, result);
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
