/* Repairs: see repair.h. */
#include "fsck/repair.h"

#include "fsck/borrow.h"
#include "fsck/raw.h"
#include "fsck/rebuild.h"
#include "fsck/repair_internal.h"
#include "fsck/replay.h"
#include "fsck/walk.h"

#include "engine/base/error.h"
#include "engine/flush.h"
#include "engine/page.h"
#include "engine/space.h"
#include "engine/volume.h"

#include <errno.h>
#include <stdlib.h>

/*
 * Nothing runs in the background: log space is freed, and pages of the pool are made
 * clean, by flushing now and then.  A fix changes a few pages.
 */
#define PAGES_PER_FIX 16u
#define LOG_SHARE 8u

static bool is_due(const struct repair_round *round, const struct fsck_fix *fix)
{
	return fsck_fix_phase(fix) == round->phase && round->approved[fix->number];
}

/* ------------------------------------------------------------------ bitmaps */

struct bitmap_job {
	struct raw_volume raw;
	uint64_t lsn;
	uint8_t *page; /* of `group` */
	uint32_t group;
	bool loaded;
};

static int store_group(struct bitmap_job *job)
{
	uint64_t offset = raw_bitmap_page(&job->raw, job->group) * BLOCK_SIZE;

	if (!job->loaded)
		return 0;
	job->loaded = false;
	page_seal(job->page, job->raw.geo.page_size);
	return dev_write(job->raw.dev, job->page, job->raw.geo.page_size, offset);
}

static void set_bits(struct bitmap_job *job, uint64_t start, uint64_t count)
{
	uint64_t bit = (start - job->raw.geo.groups_start) % job->raw.geo.group_blocks;
	uint8_t *bits = job->page + sizeof(struct disk_bitmap_page);

	check(bit + count <= job->raw.geo.group_blocks);
	for (; count > 0; bit++, count--)
		bits[bit / 8] |= (uint8_t)(1u << (bit % 8));
}

static uint64_t group_blocks(const struct bitmap_job *job, uint64_t *first)
{
	uint64_t offset = (uint64_t)job->group * job->raw.geo.group_blocks, left;

	*first = job->raw.geo.groups_start + offset;
	left = job->raw.groups_end - *first;
	return left < job->raw.geo.group_blocks ? left : job->raw.geo.group_blocks;
}

/* Pages of trees, whether anything refers to them or not. */
static int set_page_bits(struct bitmap_job *job)
{
	uint32_t page_blocks = job->raw.geo.page_blocks;
	uint64_t first, count = group_blocks(job, &first);
	uint8_t *page = malloc(job->raw.geo.page_size);
	const char *why;
	int rc = page ? 0 : -ENOMEM;

	for (uint64_t at = first; at + page_blocks <= first + count && rc != -ENOMEM;
	     at += page_blocks) {
		rc = raw_read_page(&job->raw, at, page, &why);
		if (rc == 0 && raw_head(page)->type == PAGE_TREE)
			set_bits(job, at, page_blocks);
	}
	free(page);
	return rc == -ENOMEM ? rc : 0;
}

static int new_bitmap(struct bitmap_job *job, enum new_bitmap how)
{
	uint8_t body[BODY_BYTES_MAX(64)];
	const struct key unbounded = {0};
	uint64_t pageno = raw_bitmap_page(&job->raw, job->group), first, count;
	size_t len = redo_page_init(body, PAGE_BITMAP, 0, 0, 0, &unbounded, &unbounded, job->group);
	int rc;

	memset(job->page, 0, job->raw.geo.page_size);
	rc = page_redo(job->page, job->raw.geo.page_size, pageno, job->raw.tag, REC_PAGE_INIT, body,
		       len);
	check(rc == 0);
	page_set_lsn(job->page, job->lsn);
	count = group_blocks(job, &first);
	if (how == BITMAP_USED)
		set_bits(job, first, count);
	return how == BITMAP_PAGES ? set_page_bits(job) : 0;
}

/* fresh: built anew, in this way. */
static int load_group(struct bitmap_job *job, uint32_t group, const enum new_bitmap *fresh)
{
	const char *why;
	int rc;

	if (job->loaded && job->group == group && !fresh)
		return 0;
	rc = store_group(job);
	if (rc)
		return rc;
	job->group = group;
	if (fresh)
		rc = new_bitmap(job, *fresh);
	else
		rc = raw_read_page(&job->raw, raw_bitmap_page(&job->raw, group), job->page, &why);
	job->loaded = !rc;
	return rc;
}

static int apply_bitmap_fix(struct bitmap_job *job, const struct fsck_fix *fix)
{
	const struct geometry *geo = &job->raw.geo;
	enum new_bitmap how = (enum new_bitmap)fix->value;
	int rc;

	if (fix->kind == FIX_NEW_BITMAP)
		return load_group(job, (uint32_t)fix->id, &how);
	if (fix->kind == FIX_TALLY) /* forgotten (session.c) */
		return 0;
	rc = load_group(job, (uint32_t)((fix->id - geo->groups_start) / geo->group_blocks), NULL);
	if (!rc)
		set_bits(job, fix->id, fix->value);
	return rc;
}

int repair_bitmaps(struct device *dev, const struct repair_round *round)
{
	struct bitmap_job job = {.lsn = round->lsn};
	int rc = raw_open(&job.raw, dev);

	if (rc)
		return rc;
	job.page = malloc(job.raw.geo.page_size);
	if (!job.page)
		return -ENOMEM;
	for (size_t i = 0; i < round->result->fix_count && !rc; i++)
		if (is_due(round, &round->result->fixes[i]))
			rc = apply_bitmap_fix(&job, &round->result->fixes[i]);
	if (!rc)
		rc = store_group(&job);
	if (!rc)
		rc = dev_flush(dev);
	free(job.page);
	return rc;
}

/* ------------------------------------------------------------------- engine */

static int clear_or_count(struct volume *volume, const struct fsck_fix *fix)
{
	struct mtr *m;
	int rc = mtr_begin(volume, MTR_PRIVILEGED, &m);

	if (rc)
		return rc;
	do {
		rc = mtr_latch(m);
		if (rc)
			break;
		if (fix->kind == FIX_CLEAR_BITS)
			mtr_clear_bits(m, fix->id, fix->value);
		else
			mtr_counter(m, (enum counter)fix->id, fix->value);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	return rc;
}

static int apply_once(struct volume *volume, const struct fsck_fix *fix)
{
	switch (fix->kind) {
	case FIX_CLEAR_BITS:
	case FIX_COUNTER:
		return clear_or_count(volume, fix);
	case FIX_MAKE_DIR:
		return repair_make_dir(volume, fix->id);
	case FIX_RECONNECT:
		return repair_reconnect(volume, fix);
	case FIX_ADOPT:
		return repair_adopt(volume, fix);
	case FIX_RENAME:
		return repair_rename(volume, fix);
	case FIX_DROP_XATTR:
		return repair_drop_xattr(volume, fix);
	case FIX_COPY:
		return repair_copy(volume, fix);
	case FIX_PURGE_ALL:
	case FIX_DELETE:
	case FIX_PUT:
	case FIX_TYPE:
		return repair_record(volume, fix);
	default:
		return repair_inode_fields(volume, fix);
	}
}

static int apply_fix(struct volume *volume, const struct fsck_fix *fix)
{
	int rc = apply_once(volume, fix);

	if (rc == -ENOSPC && space_drain(volume->space) == 0)
		rc = apply_once(volume, fix);
	return rc;
}

static bool wants_flush(struct volume *volume, uint64_t done)
{
	uint64_t cache = volume->options.cache_bytes ? volume->options.cache_bytes
						     : CACHE_BYTES_DEFAULT;
	uint64_t live = log_next_lsn(volume->log) - log_checkpoint_lsn(volume->log);

	return done * PAGES_PER_FIX >= cache / volume->geo.page_size ||
	       live >= log_capacity(volume->log) / LOG_SHARE;
}

static int apply_fixes(struct volume *volume, const struct repair_round *round)
{
	uint64_t done = 0; /* since the last flush */
	int rc = 0;

	for (size_t i = 0; round->result && i < round->result->fix_count && !rc; i++) {
		if (!is_due(round, &round->result->fixes[i]))
			continue;
		rc = apply_fix(volume, &round->result->fixes[i]);
		if (rc || !wants_flush(volume, ++done))
			continue;
		rc = flush_everything(volume->flusher);
		done = 0;
	}
	return rc;
}

int repair_engine(struct device *dev, struct device *log_dev, uint64_t cache_bytes,
		  const struct repair_round *round)
{
	const struct volume_options options = {
		.no_background = true,
		.ignore_damage = true,
		.cache_bytes = cache_bytes,
		.log_dev = log_dev,
	};
	struct volume *volume;
	int rc = borrow_volume(&volume, dev, &options), closed;

	if (rc)
		return rc;
	rc = apply_fixes(volume, round);
	closed = volume_close(volume);
	return rc ? rc : closed;
}

/* -------------------------------------------------------------------- rounds */

int repair_trees(struct device *dev, struct device *log_dev, const struct repair_round *round)
{
	bool rebuilt[INDEX_COUNT] = {false}, system = false;
	uint64_t lsn = 0;
	int rc = 0;

	for (size_t i = 0; i < round->result->fix_count && !rc; i++) {
		const struct fsck_fix *fix = &round->result->fixes[i];

		if (!is_due(round, fix))
			continue;
		if (fix->kind == FIX_SYSTEM && !system)
			rc = rebuild_system(dev, round);
		else if (fix->kind == FIX_REBUILD && !rebuilt[fix->id])
			rc = rebuild_index(dev, round, (unsigned)fix->id);
		else if (fix->kind == FIX_LSN && fix->value > lsn && fix->value < LSN_PLAUSIBLE_MAX)
			lsn = fix->value;
		if (fix->kind == FIX_SYSTEM)
			system = true;
		else if (fix->kind == FIX_REBUILD)
			rebuilt[fix->id] = true;
	}
	return rc || !lsn ? rc : log_go_on_at(dev, log_dev, lsn);
}

bool repair_has(const struct fsck_result *result, enum fix_phase phase, const bool *approved)
{
	const struct repair_round round = {.result = result, .phase = phase, .approved = approved};

	for (size_t i = 0; i < result->fix_count; i++)
		if (is_due(&round, &result->fixes[i]))
			return true;
	return false;
}
