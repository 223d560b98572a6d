/* A log that recovery refuses: see replay.h. */
#include "fsck/replay.h"

#include "fsck/raw.h"

#include "engine/base/error.h"
#include "engine/page.h"
#include "log/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* A record of one page, where the scan found it. */
struct change {
	uint64_t pageno, end; /* end LSN of its mtr */
	uint64_t order;
	const uint8_t *body; /* behind the page number */
	size_t len;
	uint8_t type;
};

struct replay {
	struct raw_volume raw;
	struct device *log_dev; /* of an external log, else NULL */
	struct log *log;
	struct change *change;
	size_t count, room;
	bool malformed;
	uint8_t *batch;  /* dw_slots pages */
	uint64_t *place; /* their numbers */
	uint32_t batched;
	uint64_t applied, skipped; /* records */
};

/* ------------------------------------------------------------------ collecting */

static int add_change(struct replay *r, const struct log_mtr *mtr, const struct log_rec *record)
{
	struct change *change;
	uint64_t pageno;
	size_t used = varint_get(record->body, record->len, &pageno);

	if (!used || record->type >= REC_LIMIT || !raw_pageno_valid(&r->raw, pageno))
		return -BE_FORMAT;
	if (r->count == r->room) {
		size_t room = r->room ? r->room * 2 : 1024;
		struct change *moved = reallocarray(r->change, room, sizeof(*moved));

		if (!moved)
			return -ENOMEM;
		r->change = moved;
		r->room = room;
	}
	change = &r->change[r->count];
	*change = (struct change){
		.pageno = pageno,
		.end = mtr->end,
		.order = r->count++,
		.body = record->body + used,
		.len = record->len - used,
		.type = record->type,
	};
	return 0;
}

/* An mtr is taken as a whole, or the log ends before it. */
static int visit(void *arg, const struct log_mtr *mtr)
{
	struct replay *r = arg;
	struct log_cursor cursor = {mtr->records, mtr->records_bytes};
	size_t before = r->count;
	struct log_rec record;
	int rc;

	while ((rc = log_next_record(&cursor, &record)) > 0) {
		if (record.type < REC_PAGE_INIT && record.type != REC_FREE_PAGE)
			continue;
		rc = add_change(r, mtr, &record);
		if (rc)
			break;
	}
	if (rc == -BE_FORMAT) {
		r->count = before;
		r->malformed = true;
		return 1;
	}
	return rc;
}

static int compare_changes(const void *a, const void *b)
{
	const struct change *x = a, *y = b;

	if (x->pageno != y->pageno)
		return x->pageno < y->pageno ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

/* -------------------------------------------------------------------- applying */

/* As the engine does: a durable copy first, then in place. */
static int write_batch(struct replay *r)
{
	uint32_t page_size = r->raw.geo.page_size;
	int rc;

	if (!r->batched)
		return 0;
	rc = dev_write(r->raw.dev, r->batch, (size_t)r->batched * page_size,
		       r->raw.geo.dw_start * BLOCK_SIZE);
	if (!rc)
		rc = dev_flush(r->raw.dev);
	for (uint32_t i = 0; i < r->batched && !rc; i++)
		rc = dev_write(r->raw.dev, r->batch + (size_t)i * page_size, page_size,
			       r->place[i] * BLOCK_SIZE);
	if (!rc)
		rc = dev_flush(r->raw.dev);
	r->batched = 0;
	return rc;
}

static bool is_good(const struct replay *r, uint64_t pageno, const uint8_t *page)
{
	const char *why;

	return raw_judge_page(&r->raw, pageno, page, &why) == 0;
}

/* All records of one page. */
static int apply_page(struct replay *r, const struct change *change, size_t count)
{
	uint32_t page_size = r->raw.geo.page_size;
	uint8_t *page = r->batch + (size_t)r->batched * page_size;
	uint64_t pageno = change->pageno, in_place;
	bool changed = false, good;
	const char *why;
	int rc;

	rc = raw_read_page(&r->raw, pageno, page, &why);
	if (rc == -ENOMEM)
		return rc;
	good = rc == 0;
	in_place = good ? page_lsn(page) : 0; /* mtrs below it are there as a whole */
	for (size_t i = 0; i < count; i++) {
		const struct change *c = &change[i];

		if (c->type == REC_FREE_PAGE || c->end <= in_place)
			continue;
		if (!good && c->type != REC_PAGE_INIT) {
			r->skipped++;
			continue;
		}
		if (page_redo(page, page_size, pageno, r->raw.tag, c->type, c->body, c->len)) {
			good = false;
			r->skipped++;
			continue;
		}
		page_set_lsn(page, c->end);
		good = changed = true;
		r->applied++;
	}
	if (!changed || !good || page_verify_structure(page, page_size, &why))
		return 0;
	page_seal(page, page_size);
	r->place[r->batched++] = pageno;
	return r->batched == r->raw.geo.dw_slots ? write_batch(r) : 0;
}

static int apply_all(struct replay *r)
{
	int rc = 0;

	if (r->count)
		qsort(r->change, r->count, sizeof(*r->change), compare_changes);
	for (size_t i = 0, next; i < r->count && !rc; i = next) {
		for (next = i + 1;
		     next < r->count && r->change[next].pageno == r->change[i].pageno;)
			next++;
		rc = apply_page(r, &r->change[i], next - i);
	}
	return rc ? rc : write_batch(r);
}

/* Pages that a crash tore, of which the area has a whole copy. */
static int restore_torn(struct replay *r, uint64_t checkpoint_lsn)
{
	uint32_t page_size = r->raw.geo.page_size;
	uint8_t *in_place = malloc(page_size);
	const char *why;
	int rc = in_place ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < r->raw.geo.dw_slots && !rc; i++) {
		uint64_t offset = r->raw.geo.dw_start * BLOCK_SIZE + (uint64_t)i * page_size;
		uint64_t pageno;

		if (dev_read(r->raw.dev, r->batch, page_size, offset))
			continue;
		pageno = le64_get(raw_head(r->batch)->pageno);
		if (!raw_pageno_valid(&r->raw, pageno) || !is_good(r, pageno, r->batch) ||
		    page_lsn(r->batch) < checkpoint_lsn ||
		    raw_read_page(&r->raw, pageno, in_place, &why) == 0)
			continue;
		rc = dev_write(r->raw.dev, r->batch, page_size, pageno * BLOCK_SIZE);
	}
	free(in_place);
	return rc ? rc : dev_flush(r->raw.dev);
}

/* ------------------------------------------------------------------ a new begin */

static struct log_place place_of(const struct raw_volume *raw, struct device *log_dev)
{
	struct log_place place = {
		.dev = log_dev ? log_dev : raw->dev,
		.data = log_dev ? raw->dev : NULL,
		.offset = raw->geo.log_start * BLOCK_SIZE,
		.size_bytes = raw->geo.log_bytes,
	};

	memcpy(place.uuid, raw->sb.log_uuid, sizeof(place.uuid));
	return place;
}

/* INV-SB-3, as a mount does: the generation is durable before the log carries it. */
static int begin_again(struct raw_volume *raw, struct log *log, uint64_t lsn)
{
	const struct checkpoint *found = log_found_checkpoint(log);
	uint64_t generation = le64_get(raw->sb.mount_gen);
	int rc;

	if (generation < found->generation)
		generation = found->generation;
	if (lsn < le64_get(raw->sb.log_reached)) /* else it would be taken for an older copy */
		lsn = le64_get(raw->sb.log_reached);
	raw->sb.mount_gen = le64_make(generation + 1);
	raw->sb.log_gen = le64_make(found->generation);
	rc = superblock_write(raw->dev, &raw->sb);
	if (!rc)
		rc = log_start(log, lsn > found->lsn ? lsn : found->lsn, generation + 1, NULL);
	raw->sb.log_gen = raw->sb.mount_gen;
	return rc ? rc : superblock_write(raw->dev, &raw->sb);
}

/* There is no log, or none of this volume: a new one takes its place. */
static int make_log(struct replay *r, uint64_t lsn_max)
{
	const struct log_place place = place_of(&r->raw, r->log_dev);
	uint64_t generation = le64_get(r->raw.sb.mount_gen);
	int rc = r->log_dev ? log_format_external(r->log_dev, place.size_bytes, place.uuid,
						  r->raw.sb.uuid, generation)
			    : log_format(place.dev, place.offset, place.size_bytes, place.uuid,
					 generation);

	if (!rc)
		rc = dev_flush(place.dev);
	if (!rc)
		rc = log_open(&r->log, &place, generation, generation);
	return rc ? rc : begin_again(&r->raw, r->log, lsn_max);
}

static int replay_log(struct replay *r, uint64_t lsn_max, struct log_scan_result *found)
{
	int rc = log_scan(r->log, visit, r, found);

	if (rc)
		return rc;
	rc = restore_torn(r, log_found_checkpoint(r->log)->lsn);
	if (!rc)
		rc = apply_all(r);
	if (found->damage_mark > lsn_max)
		lsn_max = found->damage_mark;
	if (found->end > lsn_max)
		lsn_max = found->end;
	return rc ? rc : begin_again(&r->raw, r->log, lsn_max);
}

static int run(struct replay *r, uint64_t lsn_max, char *line, size_t size)
{
	const struct log_place place = place_of(&r->raw, r->log_dev);
	struct log_scan_result found = {0};
	int rc = log_open(&r->log, &place, le64_get(r->raw.sb.log_gen),
			  le64_get(r->raw.sb.mount_gen));

	if (rc == -BE_NOVOLUME || rc == -BE_DAMAGE || rc == -BE_VERSION || rc == -EIO) {
		snprintf(line, size,
			 "the log is gone: a new one begins; what was only in it is lost");
		return make_log(r, lsn_max);
	}
	if (rc)
		return rc;
	rc = replay_log(r, lsn_max, &found);
	snprintf(line, size,
		 "the log was applied up to LSN %" PRIu64 " and cut there: %" PRIu64
		 " records applied, %" PRIu64 " not, since their pages are broken",
		 found.end, r->applied, r->skipped);
	return rc;
}

int replay_by_force(struct device *dev, struct device *log_dev, uint64_t lsn_max,
		    void (*say)(void *arg, const char *line), void *arg)
{
	struct replay r = {.log_dev = log_dev};
	char line[192];
	int rc = raw_open(&r.raw, dev);

	if (rc)
		return rc;
	r.batch = aligned_alloc(BLOCK_SIZE, (size_t)r.raw.geo.dw_slots * r.raw.geo.page_size);
	r.place = calloc(r.raw.geo.dw_slots, sizeof(*r.place));
	rc = r.batch && r.place ? run(&r, lsn_max, line, sizeof(line)) : -ENOMEM;
	if (!rc)
		say(arg, line);
	log_close(r.log);
	free(r.change);
	free(r.place);
	free(r.batch);
	return rc;
}

int log_go_on_at(struct device *dev, struct device *log_dev, uint64_t lsn)
{
	struct log_place place;
	struct raw_volume raw;
	struct log *log = NULL;
	int rc = raw_open(&raw, dev);

	if (rc)
		return rc;
	place = place_of(&raw, log_dev);
	rc = log_open(&log, &place, le64_get(raw.sb.log_gen), le64_get(raw.sb.mount_gen));
	if (!rc)
		rc = begin_again(&raw, log, lsn);
	log_close(log);
	return rc;
}
