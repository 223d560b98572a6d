/*
 * Pool, flusher and epochs between threads, under TSan, with yields at the
 * interesting points: far more pages than frames, small log, all at once
 *
 *	changers    mtrs over up to three pages
 *	readers     pages and prefetches, inside epochs
 *	flusher     flush_until(), flush_everything(), beside the background thread
 *	recycler    makes a page anew, when its epoch has passed; a follower reads it
 *
 * A page holds its value twice, and the value only grows.  In the end each page
 * in place has the last value.
 *
 *	race_pool [SEED]    one round; else TEST_SCALE rounds
 */
#include "engine/pool_internal.h"
#include "tests/lib/pool_fixture.h"
#include "tests/lib/scratch.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define PAGES 900u /* and two more for the recycler */
static_assert(PAGES % 2 == 0, "the recycler's pages differ in the lowest bit");
#define HOT_PAGES 20u
#define CHANGERS 3u
#define ROUNDS 1000u /* of each changer; the others go on as long as they do */

static struct fixture f;
static _Atomic uint64_t values[PAGES];   /* last value, set under the page's X latch */
static _Atomic uint64_t next_value = 1;
static _Atomic uint32_t changers_left = CHANGERS;
static _Atomic uint64_t yields;

struct worker {
	struct os_thread thread;
	uint64_t random;
};

static uint64_t random_below(struct worker *w, uint64_t limit)
{
	w->random = w->random * 6364136223846793005u + 1442695040888963407u;
	return (w->random >> 33) % limit;
}

static unsigned random_page(struct worker *w)
{
	return (unsigned)random_below(w, random_below(w, 3) ? PAGES : HOT_PAGES);
}

static void yield_sometimes(const char *name)
{
	(void)name;
	if (atomic_fetch_add_explicit(&yields, 1, memory_order_relaxed) % 7 == 0)
		sched_yield();
}

/* Up to three different pages in ascending order. */
static unsigned choose_pages(struct worker *w, unsigned *pages)
{
	unsigned count = 0, base = random_page(w);

	for (unsigned i = 0; i < 3 && base < PAGES; i++) {
		pages[count++] = base;
		base += 1 + (unsigned)random_below(w, 5);
	}
	return count;
}

static void change_pages(struct worker *w)
{
	struct frame *frames[3];
	unsigned pages[3], count = choose_pages(w, pages);
	struct redo redo;
	uint64_t value;

	check(pool_take_tickets(f.pool, count) == 0);
	check(redo_begin(&redo, f.volume, FIXTURE_MTR_BYTES(count)) == 0);
	epoch_enter(&f.volume->epochs);
	for (unsigned i = 0; i < count; i++)
		frames[i] = fixture_get(&f, fixture_page(&f, pages[i]));
	for (unsigned i = 0; i < count; i++)
		latch_x(&frames[i]->latch);
	value = atomic_fetch_add(&next_value, 1);
	for (unsigned i = 0; i < count; i++) {
		check(fixture_value(frames[i]) == atomic_load(&values[pages[i]]));
		fixture_stage(&redo, frames[i], value, false);
		atomic_store(&values[pages[i]], value);
	}
	redo_commit(&redo);
	for (unsigned i = 0; i < count; i++) {
		unlatch_x(&frames[i]->latch);
		pool_put(frames[i]);
	}
	epoch_exit(&f.volume->epochs);
	redo_end(&redo);
	pool_give_tickets(f.pool, count);
	if (random_below(w, 50) == 0)
		check(log_flush(f.log, redo.lsn) == 0);
}

static void changer(void *arg)
{
	struct worker *w = arg;

	for (unsigned i = 0; i < ROUNDS; i++)
		change_pages(w);
	atomic_fetch_sub(&changers_left, 1);
}

static void read_page(struct worker *w)
{
	unsigned page = random_page(w);
	uint64_t before = atomic_load(&values[page]), value;
	struct frame *frame;

	check(pool_take_tickets(f.pool, 2) == 0);
	epoch_enter(&f.volume->epochs);
	frame = fixture_get(&f, fixture_page(&f, page));
	latch_s(&frame->latch);
	value = fixture_value(frame);
	check(value >= before && value == atomic_load(&values[page]));
	unlatch_s(&frame->latch);
	pool_put(frame);
	epoch_exit(&f.volume->epochs);
	pool_give_tickets(f.pool, 2);
}

static void prefetch_pages(struct worker *w)
{
	uint64_t pagenos[8];

	for (unsigned i = 0; i < array_count(pagenos); i++)
		pagenos[i] = fixture_page(&f, random_page(w));
	pool_prefetch(f.pool, pagenos, array_count(pagenos), PAGE_TREE, FIXTURE_INDEX);
}

static void reader(void *arg)
{
	struct worker *w = arg;

	while (atomic_load(&changers_left) > 0) {
		read_page(w);
		if (random_below(w, 10) == 0)
			prefetch_pages(w);
	}
}

static void flusher(void *arg)
{
	struct worker *w = arg;

	while (atomic_load(&changers_left) > 0) {
		lsn_t now = log_next_lsn(f.log);

		if (random_below(w, 2) == 0) {
			check(flush_everything(f.flusher) == 0);
			check(log_checkpoint_lsn(f.log) >= now);
		} else {
			check(flush_until(f.flusher, now - random_below(w, 10000)) == 0);
		}
		for (unsigned i = 0; i < 20; i++)
			read_page(w);
	}
}

/* One of two pages is in use; the follower goes where this points, inside an epoch. */
static _Atomic uint64_t in_use;

static void recycler(void *arg)
{
	(void)arg;
	for (unsigned spare = PAGES + 1; atomic_load(&changers_left) > 0; spare ^= 1) {
		uint64_t fresh = fixture_page(&f, spare), retired;

		fixture_change(&f, &fresh, 1, atomic_load(&next_value), true);
		atomic_store(&in_use, fresh);
		retired = epoch_retire(&f.volume->epochs);
		while (!epoch_passed(&f.volume->epochs, retired))
			sched_yield();
		/* Reuse waits for the checkpoint as well (INV-LOG-7, INV-REC-1). */
		check(flush_everything(f.flusher) == 0);
	}
}

static void follower(void *arg)
{
	(void)arg;
	while (atomic_load(&changers_left) > 0) {
		struct frame *frame;

		check(pool_take_tickets(f.pool, 1) == 0);
		epoch_enter(&f.volume->epochs);
		frame = fixture_get(&f, atomic_load(&in_use));
		latch_s(&frame->latch);
		check(fixture_value(frame) > 0);
		unlatch_s(&frame->latch);
		pool_put(frame);
		epoch_exit(&f.volume->epochs);
		pool_give_tickets(f.pool, 1);
	}
}

static void run(uint64_t seed)
{
	static void (*const roles[])(void *) = {changer, changer, changer,  reader,
						reader,  flusher, recycler, follower};
	struct worker workers[array_count(roles)];

	for (unsigned i = 0; i < array_count(roles); i++) {
		workers[i].random = seed * 1000 + i;
		check(os_thread_start(&workers[i].thread, "worker", roles[i], &workers[i]) == 0);
	}
	for (unsigned i = 0; i < array_count(roles); i++)
		os_thread_join(&workers[i].thread);
}

static void verify_in_place(void)
{
	struct pool_counts counts;

	check(flush_everything(f.flusher) == 0);
	pool_count(f.pool, &counts);
	check(counts.dirty == 0 && counts.pinned == 0);
	check(counts.tickets_free == counts.frames - POOL_FRAMES_SPARE);
	for (unsigned i = 0; i < PAGES; i++) {
		uint64_t value;

		check(fixture_value_in_place(&f, fixture_page(&f, i), &value));
		check(value == atomic_load(&values[i]));
	}
}

static void run_round(uint64_t seed)
{
	fixture_open(&f, &(struct fixture_params){.background = true,
						  .commit_interval_ns = 50000000ull});
	for (unsigned i = 0; i < PAGES + 2; i++)
		fixture_put_page(&f, fixture_page(&f, i), i < PAGES ? 0 : 1, LSN_FIRST);
	for (unsigned i = 0; i < PAGES; i++)
		atomic_store(&values[i], 0);
	atomic_store(&next_value, 1);
	atomic_store(&changers_left, CHANGERS);
	atomic_store(&in_use, fixture_page(&f, PAGES));
	os_linux_set_point_handler(yield_sometimes);
	run(seed);
	verify_in_place();
	os_linux_set_point_handler(NULL);
	printf("race_pool: ok, seed %lu, %lu evictions, %lu batches, %lu ticket waits, "
	       "%lu frame waits\n",
	       seed, fixture_stat(&f, STAT_pool_evictions), fixture_stat(&f, STAT_flush_batches),
	       fixture_stat(&f, STAT_pool_ticket_waits), fixture_stat(&f, STAT_pool_frame_waits));
	fflush(stdout);
	fixture_close(&f);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		run_round(strtoull(argv[1], NULL, 0));
		return 0;
	}
	for (uint64_t seed = 1; seed <= test_scale(); seed++)
		run_round(seed);
	return 0;
}
