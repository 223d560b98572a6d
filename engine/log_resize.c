/* Resizing the log of a volume in use; log_resize.h has the steps and what each leaves. */
#include "engine/log_resize.h"

#include "engine/archive.h"
#include "engine/base/message.h"
#include "engine/base/units.h"
#include "engine/flush.h"
#include "engine/mtr.h"
#include "engine/pool.h"
#include "engine/redo.h"
#include "engine/space.h"
#include "engine/volume.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum log_use { LOG_USE_NONE, LOG_USE_RESIZE, LOG_USE_BACKUP };

struct blocks {
	uint64_t start, count; /* count 0: none */
};

struct resize {
	struct volume *volume;
	char *why;
	struct blocks before, after; /* of the log */
	struct blocks taken, left;   /* in groups: `other` before and after the switch */
	bool bits_set;               /* those of `taken` */
};

static int printf_like(3, 4) refuse(struct resize *r, int rc, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(r->why, LOG_RESIZE_TEXT_BYTES, format, args);
	va_end(args);
	return rc;
}

/* ------------------------------------------------------------- superblock */

static void set_other(struct disk_superblock *sb, void *arg)
{
	const struct blocks *other = arg;

	sb->log_other = le64_make(other->count ? other->start : 0);
	sb->log_other_blocks = le64_make(other->count);
}

static int write_other(struct volume *volume, struct blocks other)
{
	int rc;

	os_point(other.count ? "resize:naming" : "resize:forgetting");
	rc = volume_change_superblock(volume, set_other, &other);
	if (rc == 0) {
		volume->geo.other.start = other.count ? other.start : 0;
		volume->geo.other.blocks = other.count;
	}
	os_point("resize:other");
	return rc;
}

/* Step 5: from here on both generations are accepted (INV-SB-3). */
static void raise_generation(struct disk_superblock *sb, void *arg)
{
	sb->mount_gen = le64_make(le64_get(sb->mount_gen) + 1);
	*(uint64_t *)arg = le64_get(sb->mount_gen);
}

/* Step 7. */
static void switch_log(struct disk_superblock *sb, void *arg)
{
	struct resize *r = arg;

	sb->log_gen = sb->mount_gen;
	sb->log_start = le64_make(r->after.start);
	sb->log_bytes = le64_make(r->after.count * BLOCK_SIZE);
	set_other(sb, &r->left);
}

/* ----------------------------------------------------------------- bitmaps */

/* One mini-transaction, durable on return. */
static int change_bits(struct volume *volume, struct blocks run, bool set)
{
	struct mtr *m;
	lsn_t lsn = 0;
	int rc = mtr_begin(volume, MTR_PRIVILEGED, &m);

	if (rc)
		return rc;
	mtr_want_bits(m, run.start, run.count);
	mtr_want_log(m, redo_record_bytes(21));
	do {
		rc = mtr_latch(m);
		if (rc)
			break;
		if (set)
			mtr_set_bits(m, run.start, run.count);
		else
			mtr_clear_bits(m, run.start, run.count);
		mtr_log_other(m, set ? run.start : 0, set ? run.count : 0);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	if (rc == 0)
		lsn = mtr_lsn(m);
	mtr_end(m);
	os_point(set ? "resize:bits_set" : "resize:bits_cleared");
	return rc ? rc : log_mark(volume->log, lsn);
}

static int are_bits_set(struct volume *volume, struct blocks run, bool *set)
{
	uint64_t pageno = space_bitmap_page(volume, run.start);
	struct frame *frame;
	int rc = pool_take_tickets(volume->pool, 1);

	if (rc)
		return rc;
	rc = pool_get(volume->pool, pageno, PAGE_BITMAP, 0, &frame);
	if (rc == 0) {
		latch_s(&frame->latch);
		*set = page_bits_are(frame->data, run.start - pageno, run.count, true);
		unlatch_s(&frame->latch);
		pool_put(frame);
	}
	pool_give_tickets(volume->pool, 1);
	return rc;
}

/*
 * The blocks of `other`, whose bits are set, become free.  INV-LOG-10: they are
 * handed out only when the superblock does not name them any more, or a crash would
 * take them from their new owner.
 */
static int give_back(struct volume *volume, struct blocks run)
{
	int rc;

	space_hold_run(volume->space, run.start, run.count);
	rc = change_bits(volume, run, false);
	if (rc == 0)
		rc = write_other(volume, (struct blocks){0});
	/* After a failure they stay taken until the next mount. */
	if (rc == 0)
		space_give_run(volume->space, run.start, run.count, false);
	return rc;
}

/* For restore: from here on they are anybody's. */
static int note_forgotten(struct volume *volume)
{
	struct mtr *m;
	int rc = mtr_begin(volume, MTR_PRIVILEGED, &m);

	if (rc)
		return rc;
	mtr_want_log(m, redo_record_bytes(21));
	do {
		rc = mtr_latch(m);
		if (rc)
			break;
		mtr_log_other(m, 0, 0);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	return rc;
}

int log_resize_settle(struct volume *volume)
{
	struct blocks other = {volume->geo.other.start, volume->geo.other.blocks};
	bool set;
	int rc;

	if (other.count == 0)
		return 0;
	rc = are_bits_set(volume, other, &set);
	if (rc == 0 && set)
		return give_back(volume, other);
	if (rc == 0)
		rc = note_forgotten(volume);
	return rc ? rc : write_other(volume, (struct blocks){0});
}

/* ---------------------------------------------------------------- planning */

static int take_run(struct resize *r, uint64_t blocks, uint64_t at, uint64_t *start)
{
	struct space *space = r->volume->space;
	int rc = space_take_run(space, blocks, at, start);

	if (rc == -ENOSPC && at == 0) {
		/* What was freed a moment ago may make the piece. */
		rc = space_drain(space);
		if (rc == 0 || rc == -ENOSPC)
			rc = space_take_run(space, blocks, at, start);
	}
	return rc;
}

static int plan_internal(struct resize *r)
{
	const struct geometry *geo = &r->volume->geo;
	bool in_group = r->before.start >= geo->groups_start;
	uint64_t home = geo->groups_start - geo->home_start, end, more;
	char size[SIZE_TEXT_BYTES];
	int rc;

	r->after.start = r->before.start;
	if (r->after.count <= home) {
		r->after.start = geo->home_start;
		if (in_group)
			r->left = r->before;
		return 0;
	}
	if (r->after.count > geo->group_blocks - geo->page_blocks)
		return refuse(r, -EINVAL, "too large: with pages of this size at most %s fit",
			      size_text((geo->group_blocks - geo->page_blocks) *
						(uint64_t)BLOCK_SIZE, size));
	end = r->before.start + r->before.count;
	if (in_group && r->after.count < r->before.count) {
		r->left.start = r->before.start + r->after.count;
		r->left.count = r->before.count - r->after.count;
		return 0;
	}
	more = r->after.count - r->before.count;
	if (in_group && take_run(r, more, end, &end) == 0) {
		r->taken = (struct blocks){end, more};
		return 0;
	}
	rc = take_run(r, r->after.count, 0, &r->after.start);
	if (rc == -ENOSPC)
		return refuse(r, rc, "no free space of %s in one piece; free some, or choose less",
			      size_text(r->after.count * (uint64_t)BLOCK_SIZE, size));
	if (rc)
		return refuse(r, rc, "%s", error_text(rc));
	r->taken = r->after;
	if (in_group)
		r->left = r->before;
	return 0;
}

static int plan_external(struct resize *r)
{
	struct device *dev = r->volume->log_dev;
	uint64_t bytes = r->after.count * BLOCK_SIZE;
	char size[SIZE_TEXT_BYTES];
	int rc = bytes > dev->size_bytes ? dev_resize(dev, bytes) : 0;

	r->after.start = 0;
	if (rc == -EOPNOTSUPP)
		return refuse(r, -ENOSPC, "the log's device %s has only %s", dev->path,
			      size_text(dev->size_bytes, size));
	return rc ? refuse(r, rc, "the log's file %s cannot grow: %s", dev->path, error_text(rc))
		  : 0;
}

static int plan(struct resize *r)
{
	const struct geometry *geo = &r->volume->geo;
	uint64_t least = volume_log_bytes_min(geo->page_size);
	char size[SIZE_TEXT_BYTES];

	if (r->after.count * BLOCK_SIZE < least)
		return refuse(r, -EINVAL, "too small: for pages of this size it is at least %s",
			      size_text(least, size));
	if (r->after.count > INT64_MAX / 4 / BLOCK_SIZE)
		return refuse(r, -EINVAL, "too large");
	return geo->log_external ? plan_external(r) : plan_internal(r);
}

/* ------------------------------------------------------------------- steps */

/* Steps 1 and 2. */
static int take(struct resize *r)
{
	int rc;

	if (r->taken.count == 0)
		return 0;
	rc = write_other(r->volume, r->taken);
	if (rc == 0)
		rc = change_bits(r->volume, r->taken, true);
	r->bits_set = rc == 0;
	return rc;
}

/* Step 3: what was no log before. */
static int prewrite(struct resize *r)
{
	struct device *dev = r->volume->log_dev;
	uint64_t skip = r->after.start == r->before.start ? r->before.count : 0;
	int rc = 0;

	if (skip < r->after.count)
		rc = log_prewrite(dev, (r->after.start + skip) * BLOCK_SIZE,
				  (r->after.count - skip) * BLOCK_SIZE);
	os_point("resize:prewritten");
	if (rc)
		return rc;
	/* Its error may be the only sign of writes of others that were lost. */
	rc = dev_flush(dev);
	if (rc)
		volume_fail(r->volume, "the redo log's device cannot be flushed", rc);
	return rc;
}

/* As it will be after the switch. */
static struct geometry geometry_after(const struct resize *r)
{
	struct geometry geo = r->volume->geo;

	geo.log_start = r->after.start;
	geo.log_bytes = r->after.count * BLOCK_SIZE;
	geo.other.start = r->left.count ? r->left.start : 0;
	geo.other.blocks = r->left.count;
	return geo;
}

/* Step 5, and the archive knows what comes. */
static int announce(struct resize *r, uint64_t *generation)
{
	struct volume *volume = r->volume;
	struct geometry geo = geometry_after(r);
	int rc = volume_change_superblock(volume, raise_generation, generation);

	os_point("resize:generation");
	if (rc == 0 && volume->archive)
		archive_move_next(volume->archive, *generation, &geo);
	return rc;
}

/* Steps 6 and 7, the log being empty and nobody else at it. */
static int switch_over(struct resize *r, uint64_t generation)
{
	struct volume *volume = r->volume;
	struct log_place to = {
		.dev = volume->log_dev,
		.offset = r->after.start * BLOCK_SIZE,
		.size_bytes = r->after.count * BLOCK_SIZE,
	};
	const struct geometry after = geometry_after(r);
	struct log_move *move;
	int rc = log_move_prepare(volume->log, &to, generation, &move);

	if (rc)
		return rc;
	os_point("resize:prepared");
	rc = volume_change_superblock(volume, switch_log, r);
	os_point("resize:switched");
	/* Whether or not: after a failure nothing is written to either any more. */
	log_move_install(volume->log, move);
	if (rc)
		return rc;
	volume->geo.log_start = after.log_start;
	volume->geo.log_bytes = after.log_bytes;
	volume->geo.other = after.other;
	stat_add(&volume->stats, STAT_log_resizes, 1);
	return 0;
}

/* Step 4.  The checkpoint follows the archive, which follows what is durable. */
static int empty_log(struct resize *r, bool *archiving)
{
	struct volume *volume = r->volume;
	int rc = flush_everything(volume->flusher);

	if (rc || !volume->archive)
		return rc;
	*archiving = archive_move_begin(volume->archive);
	if (!*archiving)
		return refuse(r, -EBUSY, "the log archive has not caught up; try again later");
	return flush_everything(volume->flusher);
}

/* Steps 4 to 8. */
static int switch_frozen(struct resize *r)
{
	struct volume *volume = r->volume;
	bool archiving = false;
	uint64_t generation;
	int rc = log_freeze(volume->log);

	if (rc)
		return rc;
	os_point("resize:frozen");
	rc = empty_log(r, &archiving);
	if (rc == 0)
		rc = announce(r, &generation);
	if (rc == 0) {
		flusher_pause(volume->flusher);
		rc = switch_over(r, generation);
		flusher_resume(volume->flusher);
	}
	if (archiving)
		archive_move_end(volume->archive);
	log_thaw(volume->log);
	return rc;
}

/* Nothing was switched: what was taken goes back. */
static void undo(struct resize *r)
{
	struct volume *volume = r->volume;
	struct device *dev = volume->log_dev;
	int rc = 0;

	if (atomic_load(&volume->failed))
		return;
	if (volume->geo.log_external)
		rc = dev_resize(dev, r->before.count * BLOCK_SIZE);
	else if (r->bits_set)
		rc = give_back(volume, r->taken);
	else if (r->taken.count && (rc = write_other(volume, (struct blocks){0})) == 0)
		space_give_run(volume->space, r->taken.start, r->taken.count, true);
	if (rc && rc != -EOPNOTSUPP)
		message(LOG_WARNING, "%s: what was taken for the log is free again only after the "
				     "next mount: %s",
			dev->path, error_text(rc));
}

/* Step 9 and 10.  The log has its new size, whatever comes of it. */
static void finish(struct resize *r)
{
	struct volume *volume = r->volume;
	int rc = 0;

	if (r->left.count)
		rc = give_back(volume, r->left);
	else if (volume->geo.log_external && r->after.count < r->before.count)
		rc = dev_resize(volume->log_dev, r->after.count * BLOCK_SIZE);
	if (rc && rc != -EOPNOTSUPP)
		message(LOG_WARNING, "%s: what the log gave up is free after the next mount: %s",
			volume->log_dev->path, error_text(rc));
}

static int explain(struct resize *r, int rc)
{
	if (r->why[0] != '\0')
		return rc;
	if (rc == -EBUSY)
		return refuse(r, rc, "the log is still needed as it is; try again later");
	if (rc == -EOPNOTSUPP || rc == -EINVAL)
		return refuse(r, -EINVAL, "not possible on this medium in this log_mode");
	return refuse(r, error_errno(rc), "%s", error_text(rc));
}

static int resize(struct resize *r)
{
	int rc = plan(r);

	if (rc)
		return rc;
	rc = take(r);
	if (rc == 0)
		rc = prewrite(r);
	if (rc == 0 && r->volume->archive)
		archive_catch_up(r->volume->archive);
	if (rc == 0)
		rc = switch_frozen(r);
	if (rc) {
		undo(r);
		return explain(r, rc);
	}
	finish(r);
	return 0;
}

/* ----------------------------------------------------------- who is at it */

bool log_resize_forbid(struct volume *volume)
{
	unsigned none = LOG_USE_NONE;

	return atomic_compare_exchange_strong(&volume->log_use, &none, LOG_USE_BACKUP);
}

void log_resize_allow(struct volume *volume)
{
	check(atomic_exchange(&volume->log_use, LOG_USE_NONE) != LOG_USE_NONE);
	waitq_wake_all(&volume->hold_queue);
}

int log_resize_exclude(struct volume *volume, char why[LOG_RESIZE_TEXT_BYTES])
{
	struct resize r = {.volume = volume, .why = why};
	unsigned use = LOG_USE_NONE;

	if (atomic_compare_exchange_strong(&volume->log_use, &use, LOG_USE_RESIZE))
		return 0;
	if (use == LOG_USE_BACKUP)
		return refuse(&r, -EBUSY, "a backup is reading the log; try again when it has come "
					  "to the contents of files, or end it");
	return refuse(&r, -EBUSY, "%s",
		      atomic_load(&volume->frozen) ? "the volume is frozen"
						   : "another resize is under way");
}

int log_resize(struct volume *volume, uint64_t bytes, char why[LOG_RESIZE_TEXT_BYTES])
{
	struct resize r = {
		.volume = volume,
		.why = why,
		.after.count = bytes / BLOCK_SIZE,
	};
	int rc = 0;

	latch_check_may_wait();
	why[0] = '\0';
	if (volume->options.read_only)
		return refuse(&r, -EROFS, "mounted read-only");
	if (atomic_load(&volume->failed))
		return refuse(&r, -EIO, "the volume has failed and is read-only");
	rc = log_resize_exclude(volume, why);
	if (rc)
		return rc;
	r.before = (struct blocks){volume->geo.log_start, volume->geo.log_bytes / BLOCK_SIZE};
	if (r.after.count != r.before.count)
		rc = resize(&r);
	log_resize_allow(volume);
	return rc;
}
