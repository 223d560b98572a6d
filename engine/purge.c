/*
 * Purge: the queue and who works on it.
 *
 * The queue is the purge index, in the order in which things were detached.  A
 * pass goes over all records once; what cannot be claimed is left for a later
 * pass.  One thread works at a time: the background thread, or who drains
 * (ENOSPC, tests); others wait for it, holding nothing.
 *
 *	         kick                     pass over the queue
 *	idle ----------> running: for each record: claim, steps, release
 *	  ^                 |
 *	  '-----------------' all done.  Something was busy: again after a while
 *
 * INV-LOCK-3: inodes are only tried (hooks->claim); an inode that is worked on
 * for its dead range is let go between steps, so that nobody waits for long.
 * Nothing is held while a pass waits for log space or tickets, but a claim.
 *
 * INV-PURGE-1: records are re-read under the latches by each step, so it does not
 * matter that the cursor's copy is old, nor that a writer drains a dead range at
 * the same time: whoever comes second finds the work done.
 *
 * INV-PURGE-2: volume->purge_waiting is the number of records in the queue: counted
 * when the volume is opened, then changed by each commit under the latch of the leaf
 * that it changes.
 *
 * INV-PURGE-3: whoever detaches faster than purge reclaims is slowed down to
 * THREADS / PACE_NS a second, beyond PURGE_LAG_MAX records.
 */
#include "engine/purge_internal.h"

#include "engine/base/error.h"
#include "engine/base/message.h"
#include "engine/space_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define LINGER_NS 5000000ull
#define PACE_NS 2000000ull
#define CATCH_UP_NS 200000000ull
#define RETRY_NS_MIN 100000000ull
#define RETRY_NS_MAX 10000000000ull

struct purge {
	struct volume *volume;
	struct latch latch;          /* RANK_LEAF */
	struct purge_hooks hooks;    /* [lock: latch] */
	_Atomic bool working;        /* a pass is under way */
	_Atomic uint64_t begun, done; /* passes; the last one that saw the whole queue */
	_Atomic uint64_t in_use;     /* records that the last whole pass could not claim */
	_Atomic unsigned interrupts; /* who wants passes to end early */
	struct waitq idle;           /* whoever waits for one of these to fall */
	_Atomic bool kicked, stopping;
	struct waitq wake;
	struct waitq hurry;          /* woken to end a linger() */
	struct os_thread thread;
	bool started;
	_Atomic bool complained;     /* about an error; the next success clears it */
};

struct pass {
	bool background;             /* ends early when the thread shall stop */
	bool worked, interrupted;
	uint64_t skipped;            /* records */
	int error;                   /* the first; the others are gone on with */
};

/* --------------------------------------------------------------- one record */

static struct purge_hooks get_hooks(struct purge *purge)
{
	struct purge_hooks hooks;

	latch_s(&purge->latch);
	hooks = purge->hooks;
	unlatch_s(&purge->latch);
	return hooks;
}

static int claimed_step(struct purge *purge, uint64_t number, const struct purge_record *record)
{
	struct purge_hooks hooks = get_hooks(purge);
	int rc;

	if (hooks.claim && !hooks.claim(hooks.arg, record->ino)) {
		stat_add(&purge->volume->stats, STAT_purge_busy_skips, 1);
		return STEP_BUSY;
	}
	os_point("purge:claimed");
	if (record->kind == PURGE_DEAD) {
		rc = purge_dead_step(purge->volume, number, record->ino);
	} else {
		do
			rc = purge_orphan_step(purge->volume, number, record->ino);
		while (rc == 0);
	}
	if (hooks.release)
		hooks.release(hooks.arg, record->ino, rc == STEP_GONE);
	return rc == STEP_GONE ? 0 : rc;
}

static int step(struct purge *purge, uint64_t number)
{
	struct volume *volume = purge->volume;
	struct purge_record record;
	int rc = purge_record_read(volume, number, &record);

	if (rc)
		return rc == -BE_NOTFOUND ? STEP_DONE : rc;
	switch (record.kind) {
	case PURGE_LOB:
		return purge_lob_step(volume, number, &record);
	case PURGE_EXTENTS:
		return purge_extents_step(volume, number);
	case PURGE_ORPHAN:
	case PURGE_DEAD:
		return claimed_step(purge, number, &record);
	}
	return corrupt_at(volume, 0, "purge", "unknown kind of record");
}

static bool must_stop(struct purge *purge, const struct pass *pass)
{
	return atomic_load(&purge->volume->failed) ||
	       (pass->background && atomic_load(&purge->stopping));
}

static bool must_pause(struct purge *purge, struct pass *pass)
{
	pass->interrupted |= atomic_load(&purge->interrupts) > 0;
	return pass->interrupted || must_stop(purge, pass);
}

static int work_on(struct purge *purge, uint64_t number, struct pass *pass)
{
	bool settled = false;
	int rc = 0;

	while (rc == 0 && !must_pause(purge, pass)) {
		rc = step(purge, number);
		if (rc == 0 || rc == STEP_DONE)
			pass->worked = true;
		if (rc == -ENOSPC && !settled) {
			/* Not space_drain(), which would wait for us. */
			settled = true;
			rc = space_settle(purge->volume->space);
		}
		os_point("purge:batch");
	}
	if (rc == STEP_DONE) {
		stat_add(&purge->volume->stats, STAT_purge_records, 1);
		rc = 0;
	}
	return rc;
}

/* ------------------------------------------------------------------- a pass */

static void note_result(struct purge *purge, struct pass *pass, uint64_t number, int rc)
{
	if (rc == STEP_BUSY)
		pass->skipped++;
	if (rc >= 0)
		return;
	if (pass->error == 0)
		pass->error = rc;
	if (!atomic_load(&purge->volume->failed) && !atomic_exchange(&purge->complained, true))
		message(LOG_ERR, "purge: record %" PRIu64 " cannot be worked on: %s", number,
			error_text(rc));
}

/* At once, or one by one when that cannot be. */
static void work_on_batch(struct purge *purge, struct purge_batch *batch, struct pass *pass)
{
	int rc = -E2BIG;

	if (batch->count > 1 && !must_pause(purge, pass))
		rc = purge_batch_step(purge->volume, batch);
	if (rc == 0) {
		pass->worked = true;
		os_point("purge:batch");
	}
	for (unsigned i = 0; rc && i < batch->count && !must_pause(purge, pass); i++)
		note_result(purge, pass, batch->lob[i].number,
			    work_on(purge, batch->lob[i].number, pass));
	batch->count = 0;
}

/* A record as the cursor has it: kept for a batch, or worked on. */
static void take_record(struct purge *purge, struct purge_batch *batch, struct pass *pass,
			uint64_t number, const struct tree_cursor *cursor)
{
	struct purge_record record;

	if (purge_record_decode(purge->volume, cursor->value, cursor->value_len, &record) == 0) {
		if (purge_batch_add(batch, number, &record))
			return;
		work_on_batch(purge, batch, pass);
		if (purge_batch_add(batch, number, &record))
			return;
	}
	note_result(purge, pass, number, work_on(purge, number, pass));
}

static void run_pass(struct purge *purge, struct pass *pass)
{
	struct purge_batch batch = {.count = 0};
	struct key from = purge_key(0);
	struct tree_cursor cursor;
	struct tree *queue = &purge->volume->index[INDEX_PURGE];
	uint64_t number_of_pass = atomic_fetch_add(&purge->begun, 1) + 1;
	int rc = tree_cursor_open(&cursor, queue, from.bytes, from.len);

	while (rc == 0 && !must_pause(purge, pass) && (rc = tree_cursor_next(&cursor)) == 0) {
		uint64_t number;

		if (cursor.key.len != KEY_PURGE_BYTES) {
			rc = corrupt_at(purge->volume, 0, "purge", "key of wrong length");
			break;
		}
		number = be64_get(cursor.key.bytes);
		take_record(purge, &batch, pass, number, &cursor);
	}
	tree_cursor_close(&cursor);
	work_on_batch(purge, &batch, pass);
	if (rc && rc != -BE_END)
		note_result(purge, pass, 0, rc);
	if (pass->error == 0)
		atomic_store(&purge->complained, false);
	if (rc == -BE_END) {
		atomic_store(&purge->in_use, pass->skipped);
		atomic_store(&purge->done, number_of_pass);
	}
}

/* As far as the queue can be read: what is damaged is met, and named, by a pass. */
static void count_waiting(struct volume *volume)
{
	struct tree_cursor cursor;
	uint64_t count = 0;
	int rc = tree_cursor_open(&cursor, &volume->index[INDEX_PURGE], NULL, 0);

	while (rc == 0 && (rc = tree_cursor_next(&cursor)) == 0)
		count++;
	tree_cursor_close(&cursor);
	atomic_store(&volume->purge_waiting, (int64_t)count);
}

uint64_t purge_lag(const struct volume *volume)
{
	int64_t waiting = atomic_load_explicit(&volume->purge_waiting, memory_order_relaxed);

	return waiting > 0 ? (uint64_t)waiting : 0;
}

static bool is_far_behind(const struct purge *purge)
{
	struct volume *volume = purge->volume;

	return purge_lag(volume) > atomic_load(&volume->purge_lag_max) +
					   atomic_load(&purge->in_use);
}

void purge_pace(struct volume *volume)
{
	struct purge *purge = volume->purge;
	uint32_t ticket;

	if (!purge || !purge->started || !is_far_behind(purge))
		return;
	latch_check_none_from(RANK_RENAME);
	ticket = waitq_ticket(&purge->idle);
	stat_add(&volume->stats, STAT_purge_paces, 1);
	purge_kick(purge);
	if (is_far_behind(purge))
		waitq_wait(&purge->idle, ticket, PACE_NS);
}

/* A whole pass that begins from now on has seen all that was there. */
void purge_catch_up(struct volume *volume)
{
	struct purge *purge = volume->purge;
	uint64_t begun, until;

	if (!purge || !purge->started || purge_lag(volume) == 0)
		return;
	latch_check_none_from(RANK_RENAME);
	begun = atomic_load(&purge->begun);
	until = os_mono_ns() + CATCH_UP_NS;
	while (atomic_load(&purge->done) <= begun && os_mono_ns() < until) {
		uint32_t ticket = waitq_ticket(&purge->idle);

		purge_kick(purge);
		waitq_wake_all(&purge->hurry);
		if (atomic_load(&purge->done) <= begun)
			waitq_wait(&purge->idle, ticket, PACE_NS);
	}
}

static void pass_enter(struct purge *purge, bool interrupting)
{
	for (;;) {
		uint32_t ticket = waitq_ticket(&purge->idle);

		if ((interrupting || atomic_load(&purge->interrupts) == 0) &&
		    !atomic_exchange(&purge->working, true))
			return;
		waitq_wait(&purge->idle, ticket, OS_FOREVER);
	}
}

static void pass_leave(struct purge *purge)
{
	atomic_store(&purge->working, false);
	waitq_wake_all(&purge->idle);
}

/* Passes until one finds nothing to do. */
static void run_passes(struct purge *purge, struct pass *pass)
{
	bool worked = false;

	do {
		pass->worked = pass->interrupted = false;
		pass->skipped = 0;
		pass_enter(purge, false);
		run_pass(purge, pass);
		pass_leave(purge);
		worked |= pass->worked;
	} while ((pass->worked || pass->interrupted) && !must_stop(purge, pass));
	pass->worked = worked;
}

int purge_drain(struct purge *purge, bool *worked)
{
	struct pass pass = {0};

	latch_check_none_from(RANK_RENAME);
	if (!purge->volume->options.read_only)
		run_passes(purge, &pass);
	if (worked)
		*worked = pass.worked;
	return pass.error;
}

/* --------------------------------------------------------------- the thread */

/*
 * One pass for many removals: whoever removes pays for a wake-up of this
 * thread only when it has nothing left to do.
 */
static void linger(struct purge *purge)
{
	uint32_t ticket = waitq_ticket(&purge->hurry);

	if (!atomic_load(&purge->stopping))
		waitq_wait(&purge->hurry, ticket, LINGER_NS);
}

static void purge_main(void *arg)
{
	struct purge *purge = arg;
	uint64_t retry_ns = RETRY_NS_MIN;
	bool again = true; /* what an earlier mount left */

	while (!atomic_load(&purge->stopping)) {
		uint32_t ticket = waitq_ticket(&purge->wake);
		struct pass pass = {.background = true};

		if (!again && atomic_load(&purge->kicked))
			linger(purge);
		if (atomic_exchange(&purge->kicked, false) || again) {
			run_passes(purge, &pass);
			again = false;
			if (pass.worked)
				retry_ns = RETRY_NS_MIN;
			if (!pass.skipped && pass.error == 0)
				continue;
		}
		if (!pass.skipped && pass.error == 0) {
			waitq_wait(&purge->wake, ticket, OS_FOREVER);
			continue;
		}
		waitq_wait(&purge->wake, ticket, retry_ns);
		retry_ns = retry_ns * 2 < RETRY_NS_MAX ? retry_ns * 2 : RETRY_NS_MAX;
		again = true;
	}
}

void purge_kick(struct purge *purge)
{
	if (!atomic_exchange(&purge->kicked, true))
		waitq_wake_all(&purge->wake);
}

int purge_start(struct purge *purge)
{
	int rc;

	if (purge->volume->options.read_only)
		return 0;
	rc = os_thread_start(&purge->thread, "purge", purge_main, purge);
	purge->started = rc == 0;
	return rc;
}

void purge_stop(struct purge *purge)
{
	if (!purge->started)
		return;
	atomic_store(&purge->stopping, true);
	waitq_wake_all(&purge->wake);
	waitq_wake_all(&purge->hurry);
	os_thread_join(&purge->thread);
	purge->started = false;
	atomic_store(&purge->stopping, false);
}

/* ----------------------------------------------------------- open and close */

int purge_open(struct purge **out, struct volume *volume)
{
	struct purge *purge = calloc(1, sizeof(*purge));

	if (purge == NULL)
		return -ENOMEM;
	purge->volume = volume;
	atomic_store(&volume->purge_lag_max, PURGE_LAG_MAX);
	count_waiting(volume);
	latch_init(&purge->latch, RANK_LEAF, 0);
	*out = purge;
	return 0;
}

void purge_close(struct purge *purge)
{
	check(!purge->started);
	free(purge);
}

void purge_set_hooks(struct purge *purge, const struct purge_hooks *hooks)
{
	/* No pass may be inside the old ones; it need not do all its work first. */
	atomic_fetch_add(&purge->interrupts, 1);
	pass_enter(purge, true);
	latch_x(&purge->latch);
	purge->hooks = hooks ? *hooks : (struct purge_hooks){0};
	unlatch_x(&purge->latch);
	atomic_fetch_sub(&purge->interrupts, 1);
	pass_leave(purge);
}
