/*
 * Recovery, steps 1 to 6 of recovery.h: their order, and the threads that they
 * are done with.
 */
#include "engine/recovery_internal.h"

#include "engine/archive.h"
#include "engine/base/message.h"
#include "engine/base/units.h"
#include "engine/doublewrite.h"
#include "engine/space.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define SPEAK_NS 2000000000ull

/* -------------------------------------------------------------- progress */

bool recovery_speaks(struct recovery *r)
{
	uint64_t now = os_mono_ns();

	if (now - r->said_ns < SPEAK_NS)
		return false;
	r->said_ns = now;
	return true;
}

/* A recovery that nobody noticed is not worth a line. */
static void say_the_end(const struct recovery *r)
{
	uint64_t took_ms = (os_mono_ns() - r->started_ns) / 1000000;
	lsn_t from = log_found_checkpoint(r->volume->log)->lsn;
	char text[SIZE_TEXT_BYTES];

	if (took_ms < SPEAK_NS / 1000000)
		return;
	message(LOG_INFO,
		"%s: recovered %" PRIu64 " transactions on %zu pages from %s of the log in %" PRIu64
		".%" PRIu64 " s",
		r->volume->dev->path, r->mtrs, r->page_count, size_text(r->cut - from, text),
		took_ms / 1000, took_ms % 1000 / 100);
}

/* --------------------------------------------------------------- threads */

struct parallel {
	struct recovery *r;
	const char *what;
	size_t count;
	int (*work)(void *arg, size_t i);
	void *arg;
	_Atomic size_t next;
	struct latch latch;
	_Atomic size_t failed; /* [lock: latch to write] lowest; count = none */
	int result;            /* [lock: latch] */
};

static void note_failure(struct parallel *p, size_t i, int rc)
{
	os_point("recovery:failed");
	latch_x(&p->latch);
	if (i < atomic_load(&p->failed)) {
		atomic_store(&p->failed, i);
		p->result = rc;
	}
	unlatch_x(&p->latch);
}

/* Numbers are given out in order, so whoever fails knows that all lower ones are in good hands. */
static void work_off(struct parallel *p, bool speaks)
{
	for (;;) {
		size_t i = atomic_fetch_add(&p->next, 1);
		int rc;

		if (i >= p->count || i > atomic_load(&p->failed))
			return;
		rc = p->work(p->arg, i);
		if (rc)
			note_failure(p, i, rc);
		if (speaks && recovery_speaks(p->r))
			message(LOG_INFO, "%s: recovery: %zu of %zu %s", p->r->volume->dev->path, i,
				p->count, p->what);
	}
}

static void helper(void *arg)
{
	work_off(arg, false);
}

/* Twice the processors, since each of them waits for the device now and then. */
static unsigned threads_for(const struct recovery *r, size_t count)
{
	size_t threads = 2 * (size_t)os_processors();

	if (r->volume->options.no_background)
		return 1;
	if (threads > count)
		threads = count;
	return threads < RECOVERY_THREADS_MAX ? (unsigned)threads : RECOVERY_THREADS_MAX;
}

int recovery_parallel(struct recovery *r, const char *what, size_t count,
		      int (*work)(void *arg, size_t i), void *arg, size_t *failed)
{
	struct parallel p = {
		.r = r, .what = what, .count = count, .work = work, .arg = arg, .failed = count};
	struct os_thread thread[RECOVERY_THREADS_MAX];
	unsigned threads = threads_for(r, count), started = 0;

	latch_init(&p.latch, RANK_LEAF, 0);
	/* Where a thread cannot be had, the others do its part. */
	while (started + 1 < threads &&
	       os_thread_start(&thread[started], "recovery", helper, &p) == 0)
		started++;
	work_off(&p, true);
	while (started > 0)
		os_thread_join(&thread[--started]);
	*failed = atomic_load(&p.failed);
	return p.result;
}

/* ------------------------------------------------------------------ steps */

static bool page_survives(void *arg, uint64_t pageno)
{
	const struct page_changes *page = table_find(&((struct recovery *)arg)->table, pageno);

	return page && page->first;
}

/* INV-LOG-12: from checkpoint and log; else, once, from the bitmaps, which are in place. */
static int find_tally(struct recovery *r)
{
	if (space_used_is_possible(r->volume, r->tally))
		return 0;
	os_point("recovery:counting");
	return space_count_used(r->volume, &r->tally);
}

static int start_log(struct volume *volume, lsn_t cut, uint64_t generation, uint64_t tally)
{
	struct log_options options = {
		.buffer_bytes = volume->options.log_buffer_bytes,
		.mode = volume->options.read_only ? LOG_MODE_AUTO : volume->options.log_mode,
		.scrub = volume->options.log_scrub && !volume->options.read_only,
		.tally = tally,
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
	struct recovery r = {.volume = volume, .started_ns = os_mono_ns()};
	int rc = dev_flush(volume->dev);

	if (rc == 0 && volume->log_dev != volume->dev)
		rc = dev_flush(volume->log_dev);
	r.said_ns = r.started_ns;
	os_point("recovery:begun");
	if (rc == 0)
		rc = recovery_scan(&r);
	os_point("recovery:scanned");
	if (rc == 0)
		rc = doublewrite_restore(volume, log_found_checkpoint(volume->log)->lsn, r.cut,
					 page_survives, &r);
	os_point("recovery:restored");
	if (rc == 0)
		rc = recovery_apply(&r);
	os_point("recovery:in_place");
	table_free(&r.table);
	free(r.suspect);
	/* The last time that the old generation's log can be read. */
	if (rc == 0 && volume->archive)
		archive_recovered(volume->archive, r.cut);
	if (rc == 0)
		rc = find_tally(&r);
	if (rc == 0)
		rc = start_log(volume, r.cut, new_generation, r.tally);
	if (rc == 0)
		say_the_end(&r);
	stat_add(&volume->stats, STAT_recovery_mtrs, r.mtrs);
	*cut = r.cut;
	return rc;
}
