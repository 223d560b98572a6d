/* Redo of log bytes on pages that lie anywhere: see replay.h. */
#include "engine/replay.h"

#include "engine/page.h"
#include "engine/recovery_internal.h"

#include <errno.h>
#include <stdlib.h>

int replay_begin(struct replay *replay, const struct replay_target *target, uint64_t epoch,
		 lsn_t from, lsn_t until)
{
	*replay = (struct replay){
		.target = target,
		.epoch = epoch,
		.next = from,
		.until = until,
	};
	replay->page = aligned_alloc(PAGE_SIZE_MIN, target->page_size);
	return replay->page ? 0 : -ENOMEM;
}

void replay_end(struct replay *replay)
{
	free(replay->page);
	free(replay->owed);
	replay->page = NULL;
	replay->owed = NULL;
}

/* -------------------------------------------------------------- what is owed */

bool replay_owes(const struct replay *replay, uint64_t *pageno)
{
	if (replay->owed_count > 0)
		*pageno = replay->owed[0];
	return replay->owed_count > 0;
}

static int owe(struct replay *replay, uint64_t pageno)
{
	for (size_t i = 0; i < replay->owed_count; i++)
		if (replay->owed[i] == pageno)
			return 0;
	if (replay->owed_count == replay->owed_cap) {
		size_t cap = replay->owed_cap ? replay->owed_cap * 2 : 64;
		void *grown = realloc(replay->owed, cap * sizeof(replay->owed[0]));

		if (grown == NULL)
			return -ENOMEM;
		replay->owed = grown;
		replay->owed_cap = cap;
	}
	replay->owed[replay->owed_count++] = pageno;
	return 0;
}

static void paid(struct replay *replay, uint64_t pageno)
{
	for (size_t i = 0; i < replay->owed_count; i++)
		if (replay->owed[i] == pageno)
			replay->owed[i] = replay->owed[--replay->owed_count];
}

/* ---------------------------------------------------------------- collecting */

static bool names_page(const struct log_rec *rec)
{
	return rec->type >= REC_PAGE_INIT || rec->type == REC_FREE_PAGE;
}

static int collect_data(struct replay *replay, lsn_t end, const struct log_rec *rec)
{
	const struct replay_target *target = replay->target;
	uint64_t start, count;
	size_t at = varint_get(rec->body, rec->len, &start);
	size_t n = at ? varint_get(rec->body + at, rec->len - at, &count) : 0;

	if (at == 0 || n == 0 || count == 0 || count > WRITE_BLOCKS_MAX ||
	    rec->len != at + n + count * sizeof(le32) || start < target->first_block ||
	    start >= target->end_block || count > target->end_block - start)
		return -BE_DAMAGE;
	if (target->data == NULL)
		return 0;
	return target->data(target->arg, end, start, (uint32_t)count,
			    (const void *)(rec->body + at + n));
}

static int collect_log_other(struct replay *replay, const struct log_rec *rec)
{
	const struct replay_target *target = replay->target;
	uint64_t start, blocks;
	size_t at = varint_get(rec->body, rec->len, &start);
	size_t n = at ? varint_get(rec->body + at, rec->len - at, &blocks) : 0;

	if (n == 0 || rec->len != at + n)
		return -BE_DAMAGE;
	if (target->log_other)
		target->log_other(target->arg, start, blocks);
	return 0;
}

static int collect_volume_size(struct replay *replay, const struct log_rec *rec)
{
	const struct replay_target *target = replay->target;
	uint64_t blocks, groups;
	size_t at = varint_get(rec->body, rec->len, &blocks);
	size_t n = at ? varint_get(rec->body + at, rec->len - at, &groups) : 0;

	if (n == 0 || rec->len != at + n)
		return -BE_DAMAGE;
	return target->volume_size ? target->volume_size(target->arg, blocks, groups) : 0;
}

static int collect_record(struct replay *replay, struct change_table *table, lsn_t end,
			  const struct log_rec *rec, const uint8_t *head)
{
	struct change change = {.end = end, .record = head};
	uint64_t pageno;

	if (rec->type == REC_DATA)
		return collect_data(replay, end, rec);
	if (rec->type == REC_LOG_OTHER && end > replay->after)
		return collect_log_other(replay, rec);
	if (rec->type == REC_VOLUME_SIZE && end > replay->after)
		return collect_volume_size(replay, rec);
	/* Its pages may be something else by now. */
	if (!names_page(rec) || end <= replay->after)
		return 0;
	if (varint_get(rec->body, rec->len, &pageno) == 0 || rec->type >= REC_LIMIT ||
	    pageno < replay->target->first_block || pageno >= replay->target->end_block)
		return -BE_DAMAGE;
	change.voids = rec->type == REC_FREE_PAGE || rec->type == REC_PAGE_INIT;
	return table_add(table, pageno, &change);
}

static int collect_mtr(struct replay *replay, struct change_table *table, const struct log_mtr *mtr)
{
	struct log_cursor cursor = {mtr->records, mtr->records_bytes};
	const uint8_t *head = cursor.next;
	struct log_rec rec;
	int rc;

	while ((rc = log_next_record(&cursor, &rec)) > 0) {
		rc = collect_record(replay, table, mtr->end, &rec, head);
		if (rc)
			return rc;
		head = cursor.next;
	}
	return rc ? -BE_DAMAGE : 0;
}

/* ------------------------------------------------------------------ applying */

static struct log_rec body_of(const struct change *change)
{
	struct log_cursor cursor = {change->record, SIZE_MAX / 2}; /* it has been walked */
	struct log_rec rec;
	uint64_t pageno;
	size_t n;

	check(log_next_record(&cursor, &rec) == 1);
	n = varint_get(rec.body, rec.len, &pageno);
	rec.body += n;
	rec.len -= n;
	return rec;
}

static int apply_change(struct replay *replay, uint64_t pageno, const struct change *change)
{
	const struct replay_target *target = replay->target;
	struct log_rec rec = body_of(change);

	if (page_redo(replay->page, target->page_size, pageno, target->tag, rec.type, rec.body,
		      rec.len))
		return -BE_DAMAGE;
	page_set_lsn(replay->page, change->end);
	return 0;
}

/* What survived of a page's changes, on the page as it is. */
static int apply_page(struct replay *replay, const struct page_changes *page)
{
	const struct replay_target *target = replay->target;
	const struct change_chunk *chunk = page->first;
	bool initialised = chunk->change[page->begin].voids;
	uint32_t at = page->begin;
	bool changed = false;
	lsn_t have = 0;
	int rc = target->read(target->arg, page->pageno, replay->page);

	if (rc < 0)
		return rc;
	if (rc == 0 && !initialised)
		return owe(replay, page->pageno);
	/* A former page of this number, or the bytes that were there: the first record says all. */
	if (rc > 0 && !(initialised && page_lsn(replay->page) < chunk->change[at].end))
		have = page_lsn(replay->page);
	rc = 0;
	for (uint32_t left = page->count; left > 0 && rc == 0; left--, at++) {
		if (at == CHANGES_PER_CHUNK) {
			chunk = chunk->next;
			at = 0;
		}
		if (chunk->change[at].end <= have)
			continue;
		rc = apply_change(replay, page->pageno, &chunk->change[at]);
		changed = true;
	}
	if (rc || !changed)
		return rc;
	replay->pages++;
	paid(replay, page->pageno);
	page_seal(replay->page, target->page_size);
	return target->write(target->arg, page->pageno, replay->page);
}

static int apply_table(struct replay *replay, struct change_table *table)
{
	const struct replay_target *target = replay->target;
	int rc = 0;

	table_settle(table, INT64_MAX);
	for (size_t i = 0; i < table->bucket_count; i++) {
		for (struct page_changes *page = table->bucket[i]; page && rc == 0;
		     page = page->next) {
			if (page->first) {
				rc = apply_page(replay, page);
				continue;
			}
			paid(replay, page->pageno);
			if (target->freed)
				rc = target->freed(target->arg, page->pageno);
		}
	}
	return rc;
}

int replay_bytes(struct replay *replay, const uint8_t *bytes, size_t len, size_t *used)
{
	struct change_table table = {0};
	struct log_mtr mtr;
	size_t at = 0;
	int rc = 0;

	while (rc == 0 && !replay->stopped &&
	       log_parse(replay->epoch, replay->next, bytes + at, len - at, &mtr)) {
		if (mtr.end > replay->until) {
			replay->stopped = true;
			break;
		}
		rc = collect_mtr(replay, &table, &mtr);
		at += mtr.end - mtr.start;
		replay->next = mtr.end;
		replay->mtrs++;
	}
	if (rc == 0)
		rc = apply_table(replay, &table);
	table_free(&table);
	*used = at;
	return rc;
}

int replay_list_pages(uint64_t epoch, lsn_t from, const uint8_t *bytes, size_t len,
		      int (*visit)(void *arg, uint64_t pageno, bool initialised), void *arg,
		      size_t *used)
{
	struct log_mtr mtr;
	size_t at = 0;
	int rc = 0;

	while (rc == 0 && log_parse(epoch, from + at, bytes + at, len - at, &mtr)) {
		struct log_cursor cursor = {mtr.records, mtr.records_bytes};
		struct log_rec rec;
		uint64_t pageno;

		while (rc == 0 && log_next_record(&cursor, &rec) > 0)
			if (names_page(&rec) && varint_get(rec.body, rec.len, &pageno) > 0)
				rc = visit(arg, pageno,
					   rec.type == REC_PAGE_INIT || rec.type == REC_FREE_PAGE);
		at += mtr.end - mtr.start;
	}
	*used = at;
	return rc;
}
