/*
 * One pass over the log: every page record into the table, every "written now"
 * into the list of suspects, until the log ends.  Then the cut (INV-LOG-5):
 *
 *	checkpoint ......... newest mark ......... end of the log
 *	    data is known to be there  |  data is read and compared: the log is cut
 *	                               |  before the first mtr whose data is missing
 *
 * A mark clears the suspects below it as it is met, so only those of the last
 * groups are ever kept.  What was collected above the cut is dropped by
 * table_settle(); what is wrong with an mtr above it does not matter.
 */
#include "engine/recovery_internal.h"

#include "engine/base/crc32c.h"
#include "engine/base/message.h"
#include "engine/base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define MTRS_PER_LOOK 8192u /* at the clock */

/* ------------------------------------------------------------ collecting */

static int add_suspect(struct recovery *r, const struct log_mtr *mtr, const struct log_rec *rec)
{
	if (r->suspect_count == r->suspect_cap) {
		size_t cap = r->suspect_cap ? r->suspect_cap * 2 : 64;
		void *grown = realloc(r->suspect, cap * sizeof(*r->suspect));

		if (grown == NULL)
			return -ENOMEM;
		r->suspect = grown;
		r->suspect_cap = cap;
	}
	r->suspect[r->suspect_count++] = (struct suspect){
		.start = mtr->start,
		.end = mtr->end,
		.mtrs = r->mtrs,
		.tally = r->tally,
		.body = rec->body,
		.len = rec->len,
	};
	return 0;
}

static void clear_suspects(struct recovery *r, lsn_t marked)
{
	size_t cleared = 0;

	if (r->suspect_count > 0 && r->suspect[r->suspect_count - 1].end <= marked)
		cleared = r->suspect_count;
	while (cleared < r->suspect_count && r->suspect[cleared].end <= marked)
		cleared++;
	r->suspect_count -= cleared;
	if (cleared > 0 && r->suspect_count > 0)
		memmove(r->suspect, r->suspect + cleared, r->suspect_count * sizeof(*r->suspect));
}

/* 0, -ENOMEM, or -BE_DAMAGE: no such record was ever appended. */
static int collect_record(struct recovery *r, const struct log_mtr *mtr, const struct log_rec *rec,
			  const uint8_t *head, int64_t *tally)
{
	struct change change = {.end = mtr->end, .record = head};
	uint64_t pageno;

	if (rec->type == REC_DATA)
		return add_suspect(r, mtr, rec);
	if (rec->type < REC_PAGE_INIT && rec->type != REC_FREE_PAGE)
		return 0;
	if (varint_get(rec->body, rec->len, &pageno) == 0 || rec->type >= REC_LIMIT ||
	    pageno < r->volume->geo.groups_start || pageno >= r->volume->geo.block_count)
		return -BE_DAMAGE;
	if (rec->type == REC_BITS) {
		size_t at = varint_get(rec->body, rec->len, &pageno);

		*tally += redo_bits_change(rec->body + at, rec->len - at);
	}
	change.voids = rec->type == REC_FREE_PAGE || rec->type == REC_PAGE_INIT;
	return table_add(&r->table, pageno, &change);
}

static int collect_records(struct recovery *r, const struct log_mtr *mtr)
{
	struct log_cursor cursor = {mtr->records, mtr->records_bytes};
	const uint8_t *head = cursor.next;
	struct log_rec rec;
	int64_t tally = 0;
	int rc;

	while ((rc = log_next_record(&cursor, &rec)) > 0) {
		rc = collect_record(r, mtr, &rec, head, &tally);
		if (rc)
			return rc;
		head = cursor.next;
	}
	if (r->tally)
		r->tally += (uint64_t)tally;
	return rc;
}

static void say_how_far(const struct recovery *r, lsn_t end)
{
	char text[SIZE_TEXT_BYTES];

	message(LOG_INFO, "%s: recovery: %s of the log read", r->volume->dev->path,
		size_text(end - log_found_checkpoint(r->volume->log)->lsn, text));
}

static int collect_mtr(void *arg, const struct log_mtr *mtr)
{
	struct recovery *r = arg;
	int rc;

	if (mtr->marks)
		clear_suspects(r, mtr->marks);
	if (r->mtrs % MTRS_PER_LOOK == 0 && recovery_speaks(r))
		say_how_far(r, mtr->end);
	if (r->malformed != UINT64_MAX)
		return 0;
	rc = collect_records(r, mtr);
	if (rc == -BE_DAMAGE || rc == -BE_FORMAT) {
		r->malformed = mtr->start;
		return 0;
	}
	r->mtrs++;
	return rc;
}

/* ----------------------------------------- is the data of an entry there? */

static int decode_data(const struct volume *volume, const struct suspect *suspect, uint64_t *start,
		       uint64_t *count, const uint8_t **crcs)
{
	size_t at = varint_get(suspect->body, suspect->len, start);
	size_t n = at ? varint_get(suspect->body + at, suspect->len - at, count) : 0;

	*crcs = suspect->body + at + n;
	if (at == 0 || n == 0 || *count == 0 || *count > WRITE_BLOCKS_MAX ||
	    suspect->len != at + n + *count * sizeof(le32) || *start >= volume->geo.block_count ||
	    *count > volume->geo.block_count - *start)
		return -BE_DAMAGE;
	return 0;
}

/* 0: it is; 1: it is missing; or an error. */
static int verify_suspect(void *arg, size_t i)
{
	struct recovery *r = arg;
	struct volume *volume = r->volume;
	uint64_t start, count;
	const uint8_t *crcs;
	uint8_t *buf;
	int rc = decode_data(volume, &r->suspect[i], &start, &count, &crcs);

	if (rc)
		return rc;
	buf = malloc(count * BLOCK_SIZE);
	if (buf == NULL)
		return -ENOMEM;
	rc = dev_read(volume->dev, buf, count * BLOCK_SIZE, start * BLOCK_SIZE);
	for (uint64_t block = 0; rc == 0 && block < count; block++) {
		le32 crc;

		memcpy(&crc, crcs + block * sizeof(crc), sizeof(crc));
		rc = crc32c(0, buf + block * BLOCK_SIZE, BLOCK_SIZE) != le32_get(crc);
	}
	free(buf);
	return rc;
}

/* INV-LOG-5. */
static int fix_cut(struct recovery *r, const struct log_scan_result *result)
{
	size_t missing;
	int rc;

	r->cut = result->end;
	clear_suspects(r, result->marked_lsn);
	rc = recovery_parallel(r, "blocks of new data verified", r->suspect_count, verify_suspect,
			       r, &missing);
	if (rc > 0) {
		r->cut = r->suspect[missing].start;
		r->mtrs = r->suspect[missing].mtrs;
		r->tally = r->suspect[missing].tally;
		rc = 0;
	}
	if (rc == 0 && r->malformed < r->cut)
		rc = -BE_DAMAGE;
	if (rc == -BE_DAMAGE)
		message(LOG_ERR, "%s: the redo log holds a malformed entry; run fsck.blinkfs",
			r->volume->dev->path);
	return rc;
}

int recovery_scan(struct recovery *r)
{
	struct volume *volume = r->volume;
	struct log_scan_result result;
	int rc;

	r->malformed = UINT64_MAX;
	r->tally = log_found_checkpoint(volume->log)->tally;
	rc = log_scan(volume->log, collect_mtr, r, &result);
	if (rc)
		return rc;
	if (result.damaged) {
		message(LOG_ERR,
			"%s: the redo log is damaged at LSN %" PRIu64 ": entries up to %" PRIu64
			" were durable; run fsck.blinkfs, or mount read-only another copy",
			volume->dev->path, result.end, result.damage_mark);
		return -BE_DAMAGE;
	}
	rc = fix_cut(r, &result);
	if (rc == 0 && r->cut < le64_get(volume->sb.log_reached)) {
		message(LOG_ERR,
			"%s: the redo log on %s ends at LSN %" PRIu64 ", but had reached %" PRIu64
			": it is an older copy",
			volume->dev->path, volume->log_dev->path, r->cut,
			le64_get(volume->sb.log_reached));
		rc = volume->geo.log_external ? -BE_OLDLOG : -BE_DAMAGE;
	}
	if (rc == 0)
		table_settle(&r->table, r->cut);
	return rc;
}
