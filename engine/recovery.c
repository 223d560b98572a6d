/*
 * Recovery, steps 1 to 6 of recovery.h.
 *
 * The log is read twice: once to find the newest mark, since data is verified
 * only behind it, and once to collect records by page.  Records stay where the
 * scan put them; the table holds pointers.
 */
#include "engine/recovery.h"

#include "engine/base/crc32c.h"
#include "engine/base/message.h"
#include "engine/doublewrite.h"
#include "engine/flush.h"
#include "engine/pool.h"
#include "engine/tree_internal.h"
#include "engine/volume.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* One page record to redo. */
struct change {
	lsn_t start, end;        /* of its mtr */
	const uint8_t *body;     /* without the page number */
	size_t len;
	uint8_t type;
};

struct page_changes {
	uint64_t pageno;
	struct change *change;
	uint32_t count, cap;
	bool freed;              /* INV-REC-1: the last word on this page is FREE_PAGE */
	struct page_changes *next; /* hash chain */
};

struct recovery {
	struct volume *volume;
	lsn_t marked, cut;
	uint64_t mtrs;
	struct page_changes **bucket;
	size_t bucket_count, page_count;
};

/* -------------------------------------------------------------- the table */

static size_t hash_page(const struct recovery *r, uint64_t pageno)
{
	return (size_t)((pageno * 0x9e3779b97f4a7c15ull) >> 20) & (r->bucket_count - 1);
}

static struct page_changes *find_page(const struct recovery *r, uint64_t pageno)
{
	struct page_changes *page = r->bucket[hash_page(r, pageno)];

	while (page && page->pageno != pageno)
		page = page->next;
	return page;
}

static int grow_table(struct recovery *r)
{
	struct page_changes **old = r->bucket;
	size_t old_count = r->bucket_count;
	size_t count = old_count ? old_count * 2 : 1024;
	struct page_changes **bucket = calloc(count, sizeof(*bucket));

	if (bucket == NULL)
		return -ENOMEM;
	r->bucket = bucket;
	r->bucket_count = count;
	for (size_t i = 0; i < old_count; i++) {
		struct page_changes *page, *next;

		for (page = old[i]; page; page = next) {
			size_t at = hash_page(r, page->pageno);

			next = page->next;
			page->next = bucket[at];
			bucket[at] = page;
		}
	}
	free(old);
	return 0;
}

static int add_page(struct recovery *r, uint64_t pageno, struct page_changes **out)
{
	struct page_changes *page = find_page(r, pageno);
	size_t at;

	if (page == NULL) {
		if (r->page_count >= r->bucket_count) {
			int rc = grow_table(r);

			if (rc)
				return rc;
		}
		page = calloc(1, sizeof(*page));
		if (page == NULL)
			return -ENOMEM;
		page->pageno = pageno;
		at = hash_page(r, pageno);
		page->next = r->bucket[at];
		r->bucket[at] = page;
		r->page_count++;
	}
	*out = page;
	return 0;
}

static void free_table(struct recovery *r)
{
	for (size_t i = 0; i < r->bucket_count; i++) {
		struct page_changes *page, *next;

		for (page = r->bucket[i]; page; page = next) {
			next = page->next;
			free(page->change);
			free(page);
		}
	}
	free(r->bucket);
}

static int add_change(struct page_changes *page, const struct change *change)
{
	if (page->count == page->cap) {
		uint32_t cap = page->cap ? page->cap * 2 : 4;
		void *grown = realloc(page->change, cap * sizeof(*page->change));

		if (grown == NULL)
			return -ENOMEM;
		page->change = grown;
		page->cap = cap;
	}
	page->change[page->count++] = *change;
	return 0;
}

/* --------------------------------------- 2. is the data of an entry there? */

static int data_is_there(struct volume *volume, const struct log_rec *rec, bool *there)
{
	uint64_t start, count;
	size_t at = varint_get(rec->body, rec->len, &start);
	size_t n = at ? varint_get(rec->body + at, rec->len - at, &count) : 0;
	const uint8_t *crcs = rec->body + at + n;
	uint8_t *buf;
	int rc;

	if (at == 0 || n == 0 || count == 0 || count > WRITE_BLOCKS_MAX ||
	    rec->len != at + n + count * sizeof(le32) || start >= volume->geo.block_count ||
	    count > volume->geo.block_count - start)
		return -BE_DAMAGE;
	buf = malloc(count * BLOCK_SIZE);
	if (buf == NULL)
		return -ENOMEM;
	rc = dev_read(volume->dev, buf, count * BLOCK_SIZE, start * BLOCK_SIZE);
	for (uint64_t i = 0; rc == 0 && *there && i < count; i++) {
		le32 crc;

		memcpy(&crc, crcs + i * sizeof(crc), sizeof(crc));
		*there = crc32c(0, buf + i * BLOCK_SIZE, BLOCK_SIZE) == le32_get(crc);
	}
	free(buf);
	return rc;
}

/* INV-LOG-5: 1 = cut before this mtr. */
static int verify_data(struct recovery *r, const struct log_mtr *mtr)
{
	struct log_cursor cursor = {mtr->records, mtr->records_bytes};
	struct log_rec rec;
	int rc;

	while ((rc = log_next_record(&cursor, &rec)) > 0) {
		bool there = true;

		if (rec.type != REC_DATA)
			continue;
		rc = data_is_there(r->volume, &rec, &there);
		if (rc)
			return rc;
		if (!there)
			return 1;
	}
	return rc;
}

/* ------------------------------------------------------- 3. collecting */

static int collect_record(struct recovery *r, const struct log_mtr *mtr, const struct log_rec *rec)
{
	struct page_changes *page;
	uint64_t pageno;
	size_t n;
	int rc;

	if (rec->type < REC_PAGE_INIT && rec->type != REC_FREE_PAGE)
		return 0;
	n = varint_get(rec->body, rec->len, &pageno);
	if (n == 0 || rec->type >= REC_LIMIT || pageno < r->volume->geo.groups_start ||
	    pageno >= r->volume->geo.block_count)
		return -BE_DAMAGE;
	rc = add_page(r, pageno, &page);
	if (rc)
		return rc;
	/* INV-REC-1: what came before is void. */
	if (rec->type == REC_FREE_PAGE || rec->type == REC_PAGE_INIT)
		page->count = 0;
	page->freed = rec->type == REC_FREE_PAGE;
	if (page->freed)
		return 0;
	return add_change(page, &(struct change){.start = mtr->start,
						 .end = mtr->end,
						 .type = rec->type,
						 .body = rec->body + n,
						 .len = rec->len - n});
}

static int collect_mtr(void *arg, const struct log_mtr *mtr)
{
	struct recovery *r = arg;
	struct log_cursor cursor = {mtr->records, mtr->records_bytes};
	struct log_rec rec;
	int rc = 0;

	if (mtr->end > r->marked)
		rc = verify_data(r, mtr);
	if (rc)
		return rc;
	while ((rc = log_next_record(&cursor, &rec)) > 0) {
		rc = collect_record(r, mtr, &rec);
		if (rc)
			return rc;
	}
	r->mtrs++;
	return rc;
}

static int visit_nothing(void *arg, const struct log_mtr *mtr)
{
	(void)arg;
	(void)mtr;
	return 0;
}

static int scan(struct recovery *r)
{
	struct volume *volume = r->volume;
	struct log_scan_result result;
	int rc = log_scan(volume->log, visit_nothing, NULL, &result);

	if (rc)
		return rc;
	if (result.damaged) {
		message(LOG_ERR,
			"%s: the redo log is damaged at LSN %" PRIu64 ": entries up to %" PRIu64
			" were durable; run fsck.blinkfs, or mount read-only another copy",
			volume->dev->path, result.end, result.damage_mark);
		return -BE_DAMAGE;
	}
	r->marked = result.marked_lsn;
	rc = log_scan(volume->log, collect_mtr, r, &result);
	if (rc == -BE_DAMAGE || rc == -BE_FORMAT) {
		message(LOG_ERR, "%s: the redo log holds a malformed entry; run fsck.blinkfs",
			volume->dev->path);
		return -BE_DAMAGE;
	}
	r->cut = result.end;
	return rc;
}

/* ---------------------------------------------------------------- 5. redo */

static bool page_survives(void *arg, uint64_t pageno)
{
	const struct page_changes *page = find_page(arg, pageno);

	return page && !page->freed && page->count > 0;
}

/* What kind of frame an initialised page needs. */
static int init_kind(const struct change *init, enum page_type *type, unsigned *index,
		     unsigned *level)
{
	if (init->len < 3)
		return -BE_DAMAGE;
	*type = init->body[0];
	*index = init->body[1];
	*level = init->body[2];
	return 0;
}

static enum page_type type_of(const struct volume *volume, uint64_t pageno)
{
	const struct geometry *geo = &volume->geo;

	if (pageno == geo->system_page)
		return PAGE_SYSTEM;
	if ((pageno - geo->groups_start) % geo->group_blocks == 0)
		return PAGE_BITMAP;
	return PAGE_TREE;
}

static int get_page(struct volume *volume, const struct page_changes *page, struct frame **out)
{
	enum page_type type;
	unsigned index, level;
	int rc;

	if (page->change[0].type != REC_PAGE_INIT)
		return pool_get(volume->pool, page->pageno, type_of(volume, page->pageno),
				POOL_ANY_INDEX, out);
	rc = init_kind(&page->change[0], &type, &index, &level);
	if (rc)
		return rc;
	return pool_new(volume->pool, page->pageno, type, index, level, out);
}

static int redo_changes(struct recovery *r, const struct page_changes *page, struct frame *frame)
{
	struct volume *volume = r->volume;
	bool fresh = page->change[0].type == REC_PAGE_INIT;
	lsn_t in_place = fresh ? 0 : page_lsn(frame->data);

	if (in_place > r->cut)
		return corrupt_at(volume, page->pageno, "recovery", "page LSN past the end of the log");
	for (uint32_t i = 0; i < page->count; i++) {
		const struct change *change = &page->change[i];

		if (change->end <= in_place)
			continue;
		if (page_redo(frame->data, volume->geo.page_size, page->pageno, volume->tag,
			      change->type, change->body, change->len))
			return corrupt_at(volume, page->pageno, "recovery",
					  "log entry does not fit the page");
		pool_changed(frame, change->start, change->end);
	}
	return 0;
}

/* Splits that the crash interrupted are completed once the volume is open. */
static int note_incomplete(struct volume *volume, const void *page)
{
	const struct disk_tree_page *tree = tree_page(page);
	struct incomplete_split *grown;

	if (tree->head.type != PAGE_TREE || !page_is_incomplete(page) || page_is_dead(page))
		return 0;
	grown = realloc(volume->incomplete, (volume->incomplete_count + 1) * sizeof(*grown));
	if (grown == NULL)
		return -ENOMEM;
	volume->incomplete = grown;
	grown += volume->incomplete_count++;
	grown->index = tree->head.index;
	grown->level = tree->head.level;
	page_low(page, &grown->low);
	return 0;
}

static int redo_page_changes(struct recovery *r, const struct page_changes *page)
{
	struct volume *volume = r->volume;
	struct frame *frame;
	int rc;

	if (page->freed || page->count == 0)
		return 0;
	rc = pool_take_tickets(volume->pool, 1);
	if (rc)
		return rc;
	rc = get_page(volume, page, &frame);
	if (rc)
		goto out;
	latch_x(&frame->latch);
	rc = redo_changes(r, page, frame);
	if (rc == 0)
		rc = note_incomplete(volume, frame->data);
	unlatch_x(&frame->latch);
	pool_put(frame);
	stat_add(&volume->stats, STAT_recovery_pages, 1);
out:
	pool_give_tickets(volume->pool, 1);
	return rc;
}

static int redo_all(struct recovery *r)
{
	for (size_t i = 0; i < r->bucket_count; i++) {
		for (struct page_changes *page = r->bucket[i]; page; page = page->next) {
			int rc = redo_page_changes(r, page);

			if (rc)
				return rc;
		}
	}
	return 0;
}

/* ------------------------------------------------------------------- steps */

static int start_log(struct volume *volume, lsn_t cut, uint64_t generation)
{
	struct log_options options = {
		.buffer_bytes = volume->options.log_buffer_bytes,
		.mode = volume->options.read_only ? LOG_MODE_AUTO : volume->options.log_mode,
		.on_dead = volume_log_dead,
		.on_dead_arg = volume,
	};
	int rc = log_start(volume->log, cut, generation, &options);

	if (rc == -EOPNOTSUPP)
		message(LOG_ERR, "%s: log_mode=%s is not possible on this medium",
			volume->dev->path, log_mode_name(options.mode));
	return rc;
}

int recovery_run(struct volume *volume, uint64_t new_generation, lsn_t *cut)
{
	struct recovery r = {.volume = volume};
	int rc = dev_flush(volume->dev);

	if (rc == 0)
		rc = grow_table(&r);
	if (rc == 0)
		rc = scan(&r);
	os_point("recovery:scanned");
	if (rc == 0)
		rc = doublewrite_restore(volume, log_found_checkpoint(volume->log)->lsn, r.cut,
					 page_survives, &r);
	os_point("recovery:restored");
	if (rc == 0)
		rc = redo_all(&r);
	if (rc == 0)
		rc = flush_recovered(volume->flusher);
	os_point("recovery:in_place");
	free_table(&r);
	if (rc == 0)
		rc = start_log(volume, r.cut, new_generation);
	stat_add(&volume->stats, STAT_recovery_mtrs, r.mtrs);
	*cut = r.cut;
	return rc;
}
