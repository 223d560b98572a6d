/*
 * Writing back: batches, checkpoints, and whoever asks for them.
 * flush.h has the steps of a batch and what a crash after each leaves.
 *
 * INV-WAL-1: a page is written in place only when a durable mark covers its LSN.
 * A change that the log could lose is then never in place.  A copy in a slot may
 * be ahead of the log until the mark is durable: recovery uses none past the cut
 * (INV-REC-1), and needs none, since nothing is written in place before.
 *
 * INV-LOG-2, why the checkpoint is right.  An mtr with start s goes: LSN range
 * (s is registered as unlisted), flush list, log_listed().  flush_checkpoint()
 * reads log_unlisted_lsn() as u FIRST, pool_oldest_lsn() as o second.  For each
 * mtr that changes a page:
 *
 *	not listed when u was read     u <= s
 *	listed before                  its pages were on the flush list before o was
 *	                               read: they still are, then o <= s; or they
 *	                               have left, being durably in place
 *	appended after u was read      u <= s, since u is at most next_lsn
 *
 * So min(u, o) has every change below it in place.  In the other order, an mtr
 * could enter the list between the two and be in neither.
 *
 * INV-FLUSH-1: flush_until() ends.  When `below` is listed, a page whose oldest
 * change is below it is copied at most once more: changes after the copy have
 * LSNs at or above next_lsn of then, so at or above `below`.  A busy page is
 * skipped once; after that its latch is waited for, with nothing else latched.
 */
#include "engine/flush_internal.h"

#include "engine/archive.h"
#include "engine/doublewrite.h"
#include "engine/space.h"

#include <errno.h>
#include <stdlib.h>

#define LISTED_WAIT_NS 50000ull

/* ------------------------------------------------------------- the turn */

static void turn_take(struct flusher *flusher)
{
	latch_check_may_wait();
	for (;;) {
		uint32_t ticket = waitq_ticket(&flusher->turn_queue);

		if (atomic_exchange(&flusher->turn_taken, 1) == 0)
			return;
		waitq_wait(&flusher->turn_queue, ticket, OS_FOREVER);
	}
}

static void turn_give(struct flusher *flusher)
{
	check(atomic_exchange(&flusher->turn_taken, 0) == 1);
	waitq_wake_all(&flusher->turn_queue);
}

/* False during recovery: the log is open, but not for appending. */
static bool log_is_appending(const struct volume *volume)
{
	return volume->log && log_next_lsn(volume->log) > 0;
}

/* ------------------------------------------------------------- one batch */

static uint8_t *copy_at(const struct flusher *flusher, uint32_t i)
{
	return flusher->copies + (size_t)i * flusher->volume->geo.page_size;
}

static int compare_pageno(const void *a, const void *b)
{
	uint64_t left = atomic_load(&(*(struct frame *const *)a)->pageno);
	uint64_t right = atomic_load(&(*(struct frame *const *)b)->pageno);

	return left < right ? -1 : left > right;
}

/*
 * INV-DW-2: a page that is written without doublewrite is one that no recovery
 * reads: its REC_PAGE_INIT lies at or above every checkpoint that recovery could
 * begin at, and below a durable mark before the page is written (INV-WAL-1).  The
 * turn is held until the page is durably in place, and no checkpoint is written
 * without it; init_lsn only grows while the frame is pinned.
 */
static bool is_rebuilt_by_recovery(const struct flusher *flusher, const struct frame *frame)
{
	struct log *log = flusher->volume->log;
	lsn_t init = atomic_load_explicit(&frame->init_lsn, memory_order_relaxed);
	lsn_t checkpoint = log_is_appending(flusher->volume) ? log_checkpoint_lsn(log)
				      : log		     ? log_found_checkpoint(log)->lsn
							     : UINT64_MAX;

	return init > 0 && init >= checkpoint;
}

/* Those that need doublewrite first, each part in order of page numbers. */
static uint32_t sort_frames(struct flusher *flusher, size_t count)
{
	struct frame **frames = flusher->frames;
	size_t protected = 0;

	for (size_t i = 0; i < count; i++) {
		struct frame *frame = frames[i];

		if (is_rebuilt_by_recovery(flusher, frame))
			continue;
		frames[i] = frames[protected];
		frames[protected++] = frame;
	}
	qsort(frames, protected, sizeof(frames[0]), compare_pageno);
	qsort(frames + protected, count - protected, sizeof(frames[0]), compare_pageno);
	return (uint32_t)protected;
}

/* Copies one page under its S latch.  False: busy. */
static bool copy_page(struct frame *frame, uint8_t *copy, uint32_t page_size, bool wait_busy)
{
	if (wait_busy)
		latch_s(&frame->latch);
	else if (!latch_try_s(&frame->latch))
		return false;
	memcpy(copy, frame->data, page_size);
	pool_write_begin(frame);
	unlatch_s(&frame->latch);
	return true;
}

/* Step 1.  Fills copies and the same number of frames. */
static void copy_pages(struct flusher *flusher, lsn_t below, bool wait_busy,
		       struct batch_result *result)
{
	struct volume *volume = flusher->volume;
	size_t count = pool_collect_dirty(volume->pool, below, flusher->frames, flusher->batch_max);
	uint32_t protected;

	*result = (struct batch_result){0};
	flusher->protected_count = 0;
	if (count == 0)
		return;
	protected = sort_frames(flusher, count);
	for (size_t i = 0; i < count; i++) {
		struct frame *frame = flusher->frames[i];

		if (i == protected)
			flusher->protected_count = result->written;
		if (copy_page(frame, copy_at(flusher, result->written), volume->geo.page_size,
			      wait_busy)) {
			flusher->frames[result->written++] = frame;
		} else {
			pool_put(frame);
			result->skipped++;
		}
	}
	if (protected == count)
		flusher->protected_count = result->written;
	stat_add(&volume->stats, STAT_flush_skipped_busy, result->skipped);
}

/* What reaches the medium is a page that the next mount will accept. */
static int seal_pages(struct flusher *flusher, uint32_t count, lsn_t *highest)
{
	uint32_t page_size = flusher->volume->geo.page_size;

	*highest = 0;
	for (uint32_t i = 0; i < count; i++) {
		uint8_t *copy = copy_at(flusher, i);

		check(le64_get(((struct disk_page *)copy)->pageno) ==
		      atomic_load(&flusher->frames[i]->pageno));
		if (page_verify_structure(copy, page_size, NULL))
			return -BE_FORMAT;
		page_seal(copy, page_size);
		if (page_lsn(copy) > *highest)
			*highest = page_lsn(copy);
	}
	return 0;
}

/* Step 3, INV-WAL-1.  Recovery has flushed the whole log that it redoes, and its data. */
static int write_ahead(struct flusher *flusher, lsn_t highest)
{
	struct log *log = flusher->volume->log;
	int rc;

	if (!log_is_appending(flusher->volume))
		return 0;
	rc = log_mark(log, highest);
	check(rc || log_marked_lsn(log) >= highest);
	return rc;
}

/* Step 4.  Pages that are neighbours are one request. */
static int write_in_place(struct flusher *flusher, uint32_t count)
{
	const struct geometry *geo = &flusher->volume->geo;
	struct dev_request *request = NULL;
	size_t requests = 0;
	int rc;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t offset = atomic_load(&flusher->frames[i]->pageno) * BLOCK_SIZE;

		if (request && request->offset + request->len == offset) {
			request->len += geo->page_size;
			continue;
		}
		request = &flusher->requests[requests++];
		*request = (struct dev_request){
			.buf = copy_at(flusher, i),
			.len = geo->page_size,
			.offset = offset,
			.is_write = true,
		};
	}
	rc = dev_batch(flusher->volume->dev, flusher->requests, requests);
	return rc ? rc : dev_flush(flusher->volume->dev);
}

/* Steps 2 to 4. */
static int write_pages(struct flusher *flusher, uint32_t count)
{
	struct volume *volume = flusher->volume;
	uint64_t written = 0;
	lsn_t highest;
	int rc = seal_pages(flusher, count, &highest);

	os_point("flush:copied");
	if (rc == 0 && flusher->protected_count > 0) {
		rc = doublewrite_write(volume, flusher->copies, flusher->protected_count);
		written = atomic_load(&volume->dev->written);
		os_point("flush:slots_written");
	}
	if (rc == 0)
		rc = write_ahead(flusher, highest);
	if (rc == 0)
		rc = dev_flush_up_to(volume->dev, written);
	if (rc)
		return rc;
	os_point("flush:doublewritten");
	rc = write_in_place(flusher, count);
	if (rc)
		return rc;
	os_point("flush:in_place");
	return 0;
}

static int batch_in_turn(struct flusher *flusher, lsn_t below, bool wait_busy,
			 struct batch_result *result)
{
	struct volume *volume = flusher->volume;
	int rc;

	*result = (struct batch_result){0};
	if (atomic_load(&volume->failed))
		return -EIO;
	copy_pages(flusher, below, wait_busy, result);
	if (result->written == 0)
		return 0;
	rc = write_pages(flusher, result->written);
	if (rc)
		volume_fail(volume, "cannot write pages back", rc);
	for (uint32_t i = 0; i < result->written; i++) {
		if (rc)
			pool_write_failed(flusher->frames[i]);
		else
			pool_write_done(flusher->frames[i]);
	}
	if (rc)
		return rc;
	stat_add(&volume->stats, STAT_flush_pages, result->written);
	stat_add(&volume->stats, STAT_flush_pages_doublewritten, flusher->protected_count);
	stat_add(&volume->stats, STAT_flush_batches, 1);
	return 0;
}

int flush_batch(struct flusher *flusher, lsn_t below, bool wait_busy, struct batch_result *result)
{
	int rc;

	turn_take(flusher);
	rc = batch_in_turn(flusher, below, wait_busy, result);
	turn_give(flusher);
	return rc;
}

/* ------------------------------------------------------------ checkpoint */

int flush_checkpoint(struct flusher *flusher, uint64_t advance_min)
{
	struct log *log = flusher->volume->log;
	lsn_t lsn, other;
	int rc = 0;

	turn_take(flusher);
	lsn = log_unlisted_lsn(log); /* first: see the head of this file */
	os_point("flush:unlisted_read");
	other = pool_oldest_lsn(flusher->volume->pool);
	lsn = other < lsn ? other : lsn;
	other = log_durable_lsn(log);
	lsn = other < lsn ? other : lsn;
	if (atomic_load(&flusher->volume->failed))
		rc = -EIO;
	else if (lsn >= log_checkpoint_lsn(log) + advance_min)
		rc = log_checkpoint(log, lsn);
	turn_give(flusher);
	if (rc == 0)
		os_point("flush:checkpointed");
	return rc;
}

void flush_tell_space(struct flusher *flusher)
{
	if (flusher->volume->space)
		space_advance(flusher->volume->space);
}

/* ------------------------------------------------------ who wants it done */

/* Waits until every mtr with a start below `below` is listed: between the two nobody waits. */
static void wait_until_listed(struct log *log, lsn_t below)
{
	_Atomic uint32_t nobody_wakes = 0;

	while (log_unlisted_lsn(log) < below) {
		os_point("flush:wait_listed");
		os_wait(&nobody_wakes, 0, LISTED_WAIT_NS);
	}
}

int flush_until(struct flusher *flusher, lsn_t below)
{
	struct volume *volume = flusher->volume;
	struct log *log = volume->log;
	struct batch_result result = {0};
	int rc;

	latch_check_may_wait();
	check(log_is_appending(volume));
	if (atomic_load(&volume->failed))
		return -EIO;
	below = log_tally_ceil(log, below);
	rc = log_flush(log, below);
	if (rc)
		return rc;
	if (volume->archive)
		archive_help(volume->archive, below);
	wait_until_listed(log, below);
	while (rc == 0 && pool_oldest_lsn(volume->pool) < below)
		rc = flush_batch(flusher, below, result.skipped > 0, &result);
	if (rc == 0)
		rc = flush_checkpoint(flusher, 0);
	if (rc)
		return rc;
	check(log_checkpoint_lsn(log) >= below || log_was_held(log));
	flush_tell_space(flusher);
	return 0;
}

int flush_everything(struct flusher *flusher)
{
	struct volume *volume = flusher->volume;
	lsn_t now;
	int rc;

	check(log_is_appending(volume));
	if (atomic_load(&volume->failed))
		return -EIO;
	now = log_next_lsn(volume->log);
	/* What was freed below waits for a mark as well as for the checkpoint (INV-LOG-7). */
	rc = log_mark(volume->log, now);
	return rc ? rc : flush_until(flusher, now);
}

void flusher_pause(struct flusher *flusher)
{
	turn_take(flusher);
}

void flusher_resume(struct flusher *flusher)
{
	turn_give(flusher);
}

int flusher_scrub(struct flusher *flusher)
{
	int rc = -EIO;

	turn_take(flusher);
	if (!atomic_load(&flusher->volume->failed))
		rc = log_scrub(flusher->volume->log);
	turn_give(flusher);
	return rc;
}

int flusher_scrub_all(struct flusher *flusher)
{
	int rc = flush_checkpoint(flusher, 0); /* the block that was not written last */

	while (rc == 0 && (rc = flusher_scrub(flusher)) > 0)
		rc = 0;
	return rc;
}

int flush_recovered(struct flusher *flusher)
{
	struct batch_result result;
	int rc = 0;

	check(!log_is_appending(flusher->volume));
	while (rc == 0 && pool_oldest_lsn(flusher->volume->pool) != UINT64_MAX)
		rc = flush_batch(flusher, UINT64_MAX, true, &result);
	return rc;
}

int flush_recovered_batch(struct flusher *flusher)
{
	struct batch_result result;
	int rc;

	check(!log_is_appending(flusher->volume));
	if (pool_dirty_count(flusher->volume->pool) < flusher->batch_max)
		return 0;
	rc = flush_batch(flusher, UINT64_MAX, true, &result);
	return rc ? rc : result.written > 0;
}

int flusher_clean_frames(struct flusher *flusher, bool *waits)
{
	struct batch_result result;
	int rc;

	*waits = true;
	if (atomic_load(&flusher->running)) {
		flusher_want_frames(flusher);
		return 0;
	}
	rc = flush_batch(flusher, UINT64_MAX, true, &result);
	*waits = result.written == 0; /* nothing is dirty: only tickets can come back */
	return rc;
}

/* --------------------------------------------------------- open and close */

int flusher_open(struct flusher **out, struct volume *volume)
{
	uint32_t page_size = volume->geo.page_size;
	uint32_t batch_max = FLUSH_BATCH_BYTES_MAX / page_size;
	struct flusher *flusher;

	if (batch_max > FLUSH_BATCH_PAGES_MAX)
		batch_max = FLUSH_BATCH_PAGES_MAX;
	if (batch_max > volume->geo.dw_slots)
		batch_max = volume->geo.dw_slots;
	if (batch_max == 0)
		return -BE_FORMAT;
	flusher = aligned_alloc(_Alignof(struct flusher), sizeof(*flusher));
	if (!flusher)
		return -ENOMEM;
	memset(flusher, 0, sizeof(*flusher));
	atomic_store(&flusher->work.rings_at, UINT64_MAX);
	atomic_store(&flusher->log_work.rings_at, UINT64_MAX);
	flusher->volume = volume;
	flusher->batch_max = batch_max;
	flusher->copies = aligned_alloc(PAGE_SIZE_MIN, (size_t)batch_max * page_size);
	flusher->frames = calloc(batch_max, sizeof(flusher->frames[0]));
	flusher->requests = calloc(batch_max, sizeof(flusher->requests[0]));
	if (!flusher->copies || !flusher->frames || !flusher->requests) {
		flusher_close(flusher);
		return -ENOMEM;
	}
	*out = flusher;
	return 0;
}

void flusher_close(struct flusher *flusher)
{
	if (!flusher)
		return;
	check(!atomic_load(&flusher->running));
	free(flusher->requests);
	free(flusher->frames);
	free(flusher->copies);
	free(flusher);
}
