/* The steps of a backup: see backup.h. */
#include "engine/backup_internal.h"

#include "engine/flush.h"
#include "engine/log_resize.h"
#include "engine/page.h"
#include "engine/replay.h"
#include "engine/space.h"

#include <errno.h>
#include <stdlib.h>

#define EXTENSIONS_MAX 100u
#define RESIZE_LOOK_NS 20000000ull

int backup_look(struct backup *b)
{
	const struct backup_params *params = b->params;

	if (params->progress)
		params->progress(params->arg, &b->progress);
	if (params->cancelled && params->cancelled(params->arg))
		return -ECANCELED;
	return atomic_load(&b->volume->failed) ? -EIO : 0;
}

/* -------------------------------------------------------- steps 1, 2: hold, c */

static int begin(struct backup *b)
{
	struct volume *volume = b->volume;
	struct log *log = volume->log;
	lsn_t at;
	int rc;

	/* In this order: what is freed above c is held, whenever c comes to be. */
	space_hold(volume->space, SPACE_HOLD_BACKUP, log_next_lsn(log));
	rc = log_mark(log, log_next_lsn(log));
	if (rc)
		return rc;
	(void)log_hold(log, LOG_HOLD_BACKUP);
	b->log.volume = volume;
	at = log_durable_lsn(log);
	rc = flush_until(volume->flusher, at);
	if (rc) {
		log_release(log, LOG_HOLD_BACKUP);
		return rc;
	}
	b->start = at;
	if (log_hold_move(log, LOG_HOLD_BACKUP, at))
		flusher_want_space(volume->flusher, at);
	rc = backup_log_start(b);
	if (rc)
		log_release(log, LOG_HOLD_BACKUP);
	return rc;
}

/* ------------------------------------------------------------------ step 4: e */

static int choose_end(struct backup *b)
{
	struct log *log = b->volume->log;
	int rc = log_mark(log, log_next_lsn(log));

	if (rc)
		return rc;
	b->end = log_durable_lsn(log);
	return backup_log_need(b, b->end);
}

struct fill {
	struct backup *b;
	lsn_t newest; /* of the pages that were fetched */
};

/* A page that was left out, since it had not changed, and has changed now. */
static int fill_in(void *arg, uint64_t pageno, bool initialised)
{
	struct fill *fill = arg;
	struct backup *b = fill->b;
	struct backup_page *page = initialised ? NULL : backup_find(&b->index, pageno);
	int rc;

	if (page == NULL || page->offset > 0)
		return 0;
	rc = backup_fetch_in_place(b, pageno);
	if (rc)
		return rc;
	if (page_lsn(b->page) > fill->newest)
		fill->newest = page_lsn(b->page);
	page_seal(b->page, b->volume->geo.page_size);
	return backup_put_page(b, pageno, false);
}

/*
 * For an incremental: pages that were left out of it need their copy all the same
 * when the log up to e changes them.  They are fetched now, from their places, where
 * they are hardly ever newer than e; else e moves on, and a few more may be met.
 */
static int fill_left_out(struct backup *b)
{
	struct fill fill = {.b = b};
	lsn_t at = b->start;
	int rc = 0;

	if (b->end == b->start) /* nothing was logged meanwhile: there are no bytes of it */
		return 0;
	for (unsigned i = 0; i < EXTENSIONS_MAX && rc == 0; i++) {
		size_t used = 0;

		rc = replay_list_pages(b->generation, at, b->log.bytes + (at - b->start),
				       b->end - at, fill_in, &fill, &used);
		if (rc)
			return rc;
		if (used != b->end - at)
			return -BE_DAMAGE;
		if (fill.newest <= b->end)
			return 0;
		at = b->end;
		stat_add(&b->volume->stats, STAT_backup_extensions, 1);
		rc = choose_end(b);
	}
	return rc ? rc : -EAGAIN;
}

/* --------------------------------------------------------------- step 5: redo */

static int redo_read(void *arg, uint64_t pageno, void *buf)
{
	struct backup *b = arg;
	const struct backup_page *page = backup_find(&b->index, pageno);
	int rc;

	if (page == NULL || page->offset == 0)
		return 0;
	rc = backup_get_page(b, page, buf);
	return rc ? rc : 1;
}

static int redo_write(void *arg, uint64_t pageno, const void *buf)
{
	struct backup *b = arg;

	memcpy(b->page, buf, b->volume->geo.page_size);
	return backup_put_page(b, pageno, false);
}

static int redo_freed(void *arg, uint64_t pageno)
{
	struct backup_page *page = backup_find(&((struct backup *)arg)->index, pageno);

	if (page)
		page->freed = true;
	return 0;
}

static int redo(struct backup *b)
{
	const struct geometry *geo = &b->volume->geo;
	struct replay_target target = {
		.page_size = geo->page_size,
		.first_block = geo->groups_start,
		.end_block = geo->block_count,
		.read = redo_read,
		.write = redo_write,
		.freed = redo_freed,
		.arg = b,
	};
	struct replay replay;
	uint64_t pageno;
	size_t used = 0;
	int rc;

	if (b->end == b->start)
		return 0;
	memcpy(target.tag, b->volume->tag, sizeof(target.tag));
	rc = replay_begin(&replay, &target, b->generation, b->start, b->end);
	if (rc)
		return rc;
	rc = replay_bytes(&replay, b->log.bytes, b->end - b->start, &used);
	if (rc == 0 && (used != b->end - b->start || replay_owes(&replay, &pageno)))
		rc = -BE_DAMAGE;
	replay_end(&replay);
	return rc;
}

/* ------------------------------------------------------------------ the whole */

static int put_superblock(struct backup *b)
{
	latch_x(&b->volume->sb_latch);
	b->sb = b->volume->sb;
	unlatch_x(&b->volume->sb_latch);
	memcpy(b->blocks, &b->sb, sizeof(b->sb));
	return backup_chunk(b, BACKUP_SUPER, 0, 1, b->blocks);
}

static int copy_pages(struct backup *b)
{
	int rc = backup_walk(b);

	os_point("backup:walked");
	if (rc == 0)
		rc = choose_end(b);
	if (rc == 0)
		rc = fill_left_out(b);
	return rc;
}

/* INV-BAK-4.  A resize that is under way ends first. */
static int keep_log_in_place(struct backup *b)
{
	struct waitq *queue = &b->volume->hold_queue;
	int rc = 0;

	for (;;) {
		uint32_t ticket = waitq_ticket(queue);

		if (log_resize_forbid(b->volume))
			return 0;
		os_point("backup:resize_under_way");
		rc = backup_look(b);
		if (rc)
			return rc;
		waitq_wait(queue, ticket, RESIZE_LOOK_NS);
	}
}

/* Steps 1 to 4. */
static int copy_metadata(struct backup *b)
{
	int rc = keep_log_in_place(b);

	if (rc)
		return rc;
	b->generation = log_epoch(b->volume->log);
	rc = put_superblock(b);
	if (rc == 0)
		rc = begin(b);
	os_point("backup:begun");
	if (rc == 0)
		rc = copy_pages(b);
	backup_log_stop(b); /* the log is let go */
	log_resize_allow(b->volume);
	os_point("backup:log_let_go");
	return rc;
}

static int run(struct backup *b)
{
	int rc = copy_metadata(b);

	if (rc == 0)
		rc = redo(b);
	backup_log_free(b);
	if (rc)
		return rc;
	b->progress.lsn = b->end;
	os_point("backup:redone");
	/* Everything below e is listed afterwards (INV-WRITTEN-2). */
	rc = flush_until(b->volume->flusher, b->end);
	if (rc == 0)
		rc = backup_data(b);
	space_hold(b->volume->space, SPACE_HOLD_BACKUP, SPACE_UNHELD);
	return rc ? rc : backup_finish_file(b);
}

static int judge_call(struct volume *volume, const struct backup_params *params)
{
	if (volume->options.read_only)
		return -EROFS;
	if (params->since > log_next_lsn(volume->log))
		return -EINVAL;
	return 0;
}

int backup_run(struct volume *volume, const struct backup_params *params,
	       struct backup_progress *result)
{
	struct backup b = {
		.volume = volume,
		.params = params,
		.file_at = BACKUP_HEADER_BYTES,
	};
	uint8_t *page_buffer, *block_buffer;
	int rc = judge_call(volume, params);

	if (rc)
		return rc;
	if (atomic_exchange(&volume->backing_up, true))
		return -EBUSY;
	os_random_bytes(b.id, sizeof(b.id));
	/* Before c, so before e is chosen (INV-WRITTEN-1). */
	written_begin(&volume->written, volume->geo.block_count);
	page_buffer = backup_buffer(volume->geo.page_blocks, &b.page);
	block_buffer = backup_buffer(1, &b.blocks);
	rc = page_buffer && block_buffer ? run(&b) : -ENOMEM;
	written_end(&volume->written, rc ? 0 : b.end);
	/* INV-BAK-1 */
	space_hold(volume->space, SPACE_HOLD_BACKUP, SPACE_UNHELD);
	space_advance(volume->space);
	backup_index_free(&b.index);
	free(block_buffer);
	free(page_buffer);
	*result = b.progress;
	atomic_store(&volume->backing_up, false);
	return rc;
}
