/*
 *	           taken              next             count
 *	 done with | being walked ... | not yet read ... |
 *	                 batches [taken, next) are being read or ready, each in slot
 *	                 number % slots
 *
 * A batch is begun only when its slot is free: next - taken < slots.  Nobody waits for
 * the walk but for that; the walk waits only for a batch that somebody reads just now.
 */
#include "fsck/ahead.h"

#include "engine/base/error.h"
#include "engine/base/latch.h"

#include <errno.h>
#include <stdlib.h>

#define PAGES_MIN 4u /* of a batch */

struct slot {
	bool ready; /* [lock: latch]; the rest is its reader's, then the walk's */
	struct ahead_batch batch;
};

struct ahead {
	const struct raw_volume *raw;
	unsigned threads, slots;
	struct slot *slot;
	struct os_thread thread[AHEAD_THREADS_MAX];
	unsigned started;
	struct waitq work, ready;

	struct latch latch; /* RANK_LEAF */
	/* [lock: latch] */
	const uint64_t *pageno;
	size_t count;
	unsigned per_batch;
	size_t taken, next, batches;
	unsigned reading;
	bool stop;
};

/* ------------------------------------------------------------------ a batch */

static unsigned request_pages(struct ahead *ahead, struct ahead_batch *batch,
			      const uint64_t *pageno, struct dev_request *requests)
{
	uint32_t page_size = ahead->raw->geo.page_size;
	unsigned wanted = 0;

	for (unsigned i = 0; i < batch->count; i++) {
		batch->page[i].rc = -BE_FORMAT;
		batch->page[i].why = "no page number";
		if (raw_pageno_valid(ahead->raw, pageno[i]))
			requests[wanted++] = (struct dev_request){
				.buf = batch->pages + (size_t)i * page_size,
				.len = page_size,
				.offset = pageno[i] * BLOCK_SIZE,
			};
	}
	return wanted;
}

static void read_batch(struct ahead *ahead, struct ahead_batch *batch, const uint64_t *pageno)
{
	struct dev_request requests[AHEAD_PAGES];
	unsigned wanted = request_pages(ahead, batch, pageno, requests), request = 0;

	batch->error = 0;
	if (wanted && dev_batch(ahead->raw->dev, requests, wanted) == -ENOMEM) {
		batch->error = -ENOMEM;
		return;
	}
	for (unsigned i = 0; i < batch->count; i++) {
		const uint8_t *page = batch->pages + (size_t)i * ahead->raw->geo.page_size;
		int rc;

		if (!raw_pageno_valid(ahead->raw, pageno[i]))
			continue;
		rc = requests[request++].result;
		batch->page[i].why = error_text(rc);
		if (!rc)
			rc = raw_judge_page(ahead->raw, pageno[i], page, &batch->page[i].why);
		batch->page[i].rc = rc;
	}
}

/* Takes the next batch, if there is one with a free slot; reads it; the latch is held X. */
static bool read_one_locked(struct ahead *ahead)
{
	size_t number = ahead->next, first = number * ahead->per_batch;
	struct slot *slot = &ahead->slot[number % ahead->slots];
	size_t left = ahead->count - first;

	if (number == ahead->batches || number - ahead->taken >= ahead->slots)
		return false;
	ahead->next++;
	ahead->reading++;
	slot->batch.count = left < ahead->per_batch ? (unsigned)left : ahead->per_batch;
	unlatch_x(&ahead->latch);
	read_batch(ahead, &slot->batch, ahead->pageno + first);
	latch_x(&ahead->latch);
	slot->ready = true;
	ahead->reading--;
	return true;
}

/* -------------------------------------------------------------- the threads */

static void reader_main(void *arg)
{
	struct ahead *ahead = arg;
	bool stop = false;

	while (!stop) {
		uint32_t ticket = waitq_ticket(&ahead->work);
		bool did;

		latch_x(&ahead->latch);
		stop = ahead->stop;
		did = !stop && read_one_locked(ahead);
		unlatch_x(&ahead->latch);
		if (did)
			waitq_wake_all(&ahead->ready);
		else if (!stop)
			waitq_wait(&ahead->work, ticket, OS_FOREVER);
	}
}

/* Where no thread can be had, the walk goes on without. */
static void start_threads(struct ahead *ahead)
{
	while (ahead->started + 1 < ahead->threads &&
	       os_thread_start(&ahead->thread[ahead->started], "fsck-ahead", reader_main,
			       ahead) == 0)
		ahead->started++;
	if (ahead->started + 1 < ahead->threads)
		ahead->threads = ahead->started + 1;
}

/* ----------------------------------------------------------------- the walk */

static void wait_for_readers(struct ahead *ahead)
{
	for (;;) {
		uint32_t ticket = waitq_ticket(&ahead->ready);
		bool idle;

		latch_x(&ahead->latch);
		ahead->batches = ahead->next;
		idle = ahead->reading == 0;
		unlatch_x(&ahead->latch);
		if (idle)
			return;
		waitq_wait(&ahead->ready, ticket, OS_FOREVER);
	}
}

/* Full ones, unless that leaves somebody without work. */
static unsigned batch_pages(const struct ahead *ahead, size_t count)
{
	size_t fit = AHEAD_BYTES / ahead->raw->geo.page_size;
	size_t share = count / (2 * ahead->threads) + 1;

	if (ahead->threads == 1 || share > fit)
		return (unsigned)fit;
	return share > PAGES_MIN ? (unsigned)share : PAGES_MIN;
}

void ahead_begin(struct ahead *ahead, const uint64_t *pageno, size_t count)
{
	unsigned per_batch = batch_pages(ahead, count);
	size_t batches = (count + per_batch - 1) / per_batch;

	wait_for_readers(ahead);
	latch_x(&ahead->latch);
	ahead->per_batch = per_batch;
	ahead->pageno = pageno;
	ahead->count = count;
	ahead->taken = ahead->next = 0;
	ahead->batches = batches;
	for (unsigned i = 0; i < ahead->slots; i++)
		ahead->slot[i].ready = false;
	unlatch_x(&ahead->latch);
	if (batches > 1)
		start_threads(ahead);
	if (ahead->started && batches > 1)
		waitq_wake_all(&ahead->work);
}

const struct ahead_batch *ahead_next(struct ahead *ahead)
{
	struct slot *slot;
	bool ready = false;

	/* Only the walk changes these. */
	check(ahead->taken < ahead->batches);
	slot = &ahead->slot[ahead->taken % ahead->slots];
	while (!ready) {
		uint32_t ticket = waitq_ticket(&ahead->ready);

		latch_x(&ahead->latch);
		if (!slot->ready && ahead->next == ahead->taken)
			(void)read_one_locked(ahead);
		ready = slot->ready;
		unlatch_x(&ahead->latch);
		if (!ready)
			waitq_wait(&ahead->ready, ticket, OS_FOREVER);
	}
	return &slot->batch;
}

void ahead_done(struct ahead *ahead)
{
	latch_x(&ahead->latch);
	ahead->slot[ahead->taken % ahead->slots].ready = false;
	ahead->taken++;
	unlatch_x(&ahead->latch);
	if (ahead->started)
		waitq_wake_all(&ahead->work);
}

/* ----------------------------------------------------------- open and close */

int ahead_open(struct ahead **out, const struct raw_volume *raw, unsigned threads)
{
	struct ahead *ahead = calloc(1, sizeof(*ahead));

	if (!ahead)
		return -ENOMEM;
	ahead->raw = raw;
	ahead->threads = threads < 1 ? 1 : threads;
	if (ahead->threads > AHEAD_THREADS_MAX)
		ahead->threads = AHEAD_THREADS_MAX;
	ahead->slots = ahead->threads == 1 ? 1 : 2 * ahead->threads;
	latch_init(&ahead->latch, RANK_LEAF, 0);
	ahead->slot = calloc(ahead->slots, sizeof(*ahead->slot));
	if (!ahead->slot)
		goto fail;
	for (unsigned i = 0; i < ahead->slots; i++) {
		ahead->slot[i].batch.pages = malloc(AHEAD_BYTES);
		if (!ahead->slot[i].batch.pages)
			goto fail;
	}
	*out = ahead;
	return 0;
fail:
	ahead_close(ahead);
	return -ENOMEM;
}

void ahead_close(struct ahead *ahead)
{
	if (!ahead)
		return;
	latch_x(&ahead->latch);
	ahead->stop = true;
	unlatch_x(&ahead->latch);
	waitq_wake_all(&ahead->work);
	for (unsigned i = 0; i < ahead->started; i++)
		os_thread_join(&ahead->thread[i]);
	for (unsigned i = 0; ahead->slot && i < ahead->slots; i++)
		free(ahead->slot[i].batch.pages);
	free(ahead->slot);
	free(ahead);
}
