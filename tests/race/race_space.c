/*
 * The free map under threads: no block has two owners, none is reused while a
 * reader that could know it is inside its epoch, and in the end all is back.
 *
 * Each thread reserves, then gives back at once, or publishes by an mtr, lets
 * its blocks be seen, takes them back out of sight, and frees them by an mtr.
 * A shadow array knows the owner of each block; readers follow published pieces
 * inside an epoch and demand that the owner does not change meanwhile.  One thread
 * takes pages down into the reserve and gives them back, beside data that breaks
 * whole pieces and makes new ones.  Another one gives free space back to the device: what
 * the device is told of has no owner, from before until after (INV-TRIM-1).
 */
#include "engine/space_internal.h"

#include "engine/mtr.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define WRITERS 4u
#define READERS 2u
#define SLOTS 16u
#define PIECES_A_MTR 8u
#define ROUNDS 1500u
#define VOLUME_BYTES (5u << 20) /* little, so that blocks are soon used again */
#define LARGE_PAGE 8192u        /* two blocks a page: pieces can be broken */
#define LARGE_VOLUME_BYTES (6u << 20)
#define LARGE_LOG (1u << 20)
#define PAGES 8u
#define PAGE_OWNER UINT32_MAX

#define WATCH_YIELDS 300u
#define DISCARD_YIELDS 3u

/* A piece that readers can find: first block << 32 | name of its reservation; 0 = nothing. */
struct published {
	_Atomic uint64_t piece;
};

struct race {
	struct volume *volume;
	uint64_t blocks;
	_Atomic uint32_t *owner;     /* of each block of the volume: a reservation's name */
	_Atomic uint32_t names;
	struct published slot[WRITERS][SLOTS];
	_Atomic bool stop;
	_Atomic uint64_t checked, discarded;
};

struct worker {
	struct race *race;
	uint32_t id;
	struct os_thread thread;
};

/* Yields at the points between steps, so that other threads get between them. */
static void point(const char *name)
{
	(void)name;
	sched_yield();
}

static void own(struct race *race, const struct reservation *r, uint32_t from, uint32_t to)
{
	for (unsigned p = 0; p < r->count; p++)
		for (uint64_t b = 0; b < r->piece[p].length; b++)
			check(atomic_exchange(&race->owner[r->piece[p].start + b], to) == from);
}

/* As a commit of extents would, a few pieces at a time. */
static void change_bits(struct race *race, const struct reservation *r, bool set)
{
	for (unsigned done = 0; done < r->count; done += PIECES_A_MTR) {
		unsigned end = done + PIECES_A_MTR < r->count ? done + PIECES_A_MTR : r->count;
		struct mtr *m;
		int rc = mtr_begin(race->volume, MTR_PRIVILEGED, &m);

		check(rc == 0);
		do {
			check(mtr_latch(m) == 0);
			for (unsigned p = done; p < end; p++) {
				if (set)
					mtr_set_bits(m, r->piece[p].start, r->piece[p].length);
				else
					mtr_clear_bits(m, r->piece[p].start, r->piece[p].length);
			}
			rc = mtr_commit(m);
		} while (rc == -BE_AGAIN);
		check(rc == 0);
		mtr_end(m);
	}
}

static bool reserve(struct race *race, uint64_t *seed, struct reservation *r)
{
	uint64_t blocks = 1 + random_next(seed) % (random_next(seed) % 8 ? 20 : 257);
	uint64_t hint = random_next(seed) % 2 ? random_next(seed) % race->blocks : 0;
	int rc = space_reserve(race->volume->space, blocks, hint, 0, r);

	if (rc == -ENOSPC) {
		rc = space_drain(race->volume->space);
		check(rc == 0 || rc == -ENOSPC);
		return false;
	}
	check(rc == 0);
	return true;
}

static void write_loop(void *arg)
{
	struct worker *w = arg;
	struct race *race = w->race;
	struct reservation held[SLOTS] = {0};
	uint32_t name[SLOTS];
	uint64_t seed = w->id;

	for (unsigned i = 0; i < ROUNDS * test_scale(); i++) {
		unsigned at = random_next(&seed) % SLOTS;
		struct reservation *r = &held[at];

		if (r->count > 0) {
			/* Out of sight first: blocks are freed by who unlinked them. */
			atomic_store(&race->slot[w->id - 1][at].piece, 0);
			own(race, r, name[at], 0);
			change_bits(race, r, false);
			r->count = 0;
			continue;
		}
		if (!reserve(race, &seed, r)) {
			r->count = 0;
			continue;
		}
		name[at] = atomic_fetch_add(&race->names, 1) + 1;
		own(race, r, 0, name[at]);
		if (random_next(&seed) % 3 == 0) {
			own(race, r, name[at], 0);
			space_unreserve(race->volume->space, r);
			r->count = 0;
			continue;
		}
		change_bits(race, r, true);
		atomic_store(&race->slot[w->id - 1][at].piece, r->piece[0].start << 32 | name[at]);
	}
	for (unsigned at = 0; at < SLOTS; at++) {
		if (held[at].count == 0)
			continue;
		atomic_store(&race->slot[w->id - 1][at].piece, 0);
		own(race, &held[at], name[at], 0);
		change_bits(race, &held[at], false);
	}
}

/* INV-LOG-7: whoever finds a block inside an epoch meets no new owner there until it leaves. */
static void read_loop(void *arg)
{
	struct worker *w = arg;
	struct race *race = w->race;
	uint64_t seed = 1000 + w->id;

	while (!atomic_load(&race->stop)) {
		struct published *slot = &race->slot[random_next(&seed) % WRITERS]
						    [random_next(&seed) % SLOTS];
		uint64_t piece;

		epoch_enter(&race->volume->epochs);
		piece = atomic_load(&slot->piece);
		for (unsigned i = 0; piece != 0 && i < WATCH_YIELDS; i++) {
			uint32_t owner = atomic_load(&race->owner[piece >> 32]);

			check(owner == (uint32_t)piece || owner == 0);
			sched_yield();
		}
		epoch_exit(&race->volume->epochs);
		if (piece != 0)
			atomic_fetch_add(&race->checked, 1);
	}
}

static void own_page(struct race *race, uint64_t pageno, uint32_t from, uint32_t to)
{
	for (uint32_t b = 0; b < race->volume->geo.page_blocks; b++)
		check(atomic_exchange(&race->owner[pageno + b], to) == from);
}

static unsigned take_pages(struct race *race, uint64_t pageno[PAGES])
{
	struct space *space = race->volume->space;
	unsigned count = 0;

	while (count < PAGES && space_refill_pages(space, 0) == 0)
		if (space_take_page(space, 0, 0, &pageno[count]) == 0)
			own_page(race, pageno[count++], 0, PAGE_OWNER);
	return count;
}

static void advance_loop(void *arg)
{
	struct worker *w = arg;
	struct volume *volume = w->race->volume;
	uint64_t pageno[PAGES];

	while (!atomic_load(&w->race->stop)) {
		struct space_counts counts;
		unsigned pages;

		check(log_mark(volume->log, log_next_lsn(volume->log)) == 0);
		space_advance(volume->space);
		pages = take_pages(w->race, pageno);
		space_count(volume->space, &counts);
		check(counts.free <= counts.total);
		sched_yield();
		while (pages > 0) {
			own_page(w->race, pageno[--pages], PAGE_OWNER, 0);
			space_untake_page(volume->space, pageno[pages]);
		}
	}
}

static void check_free(struct race *race, uint64_t offset, uint64_t len)
{
	for (uint64_t b = 0; b < len / BLOCK_SIZE; b++)
		check(atomic_load(&race->owner[offset / BLOCK_SIZE + b]) == 0);
}

static void watch_discard(void *arg, uint64_t offset, uint64_t len)
{
	struct race *race = arg;

	for (unsigned i = 0; i < DISCARD_YIELDS; i++) {
		check_free(race, offset, len);
		sched_yield();
	}
	atomic_fetch_add(&race->discarded, len / BLOCK_SIZE);
}

static void trim_loop(void *arg)
{
	struct worker *w = arg;
	struct space *space = w->race->volume->space;

	while (!atomic_load(&w->race->stop)) {
		struct space_trim job = {.end = UINT64_MAX, .shortest = 1};
		int rc;

		do {
			rc = space_trim_step(space, &job);
			check(rc >= 0);
		} while (rc > 0 && !atomic_load(&w->race->stop));
		sched_yield();
	}
}

static void start(struct worker *w, struct race *race, uint32_t id, void (*loop)(void *))
{
	w->race = race;
	w->id = id;
	check(os_thread_start(&w->thread, "race", loop, w) == 0);
}

static void run(uint64_t volume_bytes, uint32_t page_size, uint64_t log_bytes)
{
	struct worker writer[WRITERS], reader[READERS], advancer, trimmer;
	struct device *inner = scratch_format(volume_bytes, page_size, log_bytes);
	struct device *dev = scratch_keep(inner);
	struct space_counts before, after;
	struct race race = {.blocks = volume_bytes / BLOCK_SIZE};
	struct page_reserve *reserve;
	uint64_t pages;

	race.volume = scratch_open(dev, true);
	scratch_watch_discards(dev, watch_discard, &race);
	race.owner = calloc(race.blocks, sizeof(*race.owner));
	check(race.owner != NULL);
	reserve = &race.volume->space->reserve;
	check(reserve->target > 0);
	space_count(race.volume->space, &before);
	for (unsigned i = 0; i < WRITERS; i++)
		start(&writer[i], &race, i + 1, write_loop);
	for (unsigned i = 0; i < READERS; i++)
		start(&reader[i], &race, i + 1, read_loop);
	start(&advancer, &race, 1, advance_loop);
	start(&trimmer, &race, 1, trim_loop);
	for (unsigned i = 0; i < WRITERS; i++)
		os_thread_join(&writer[i].thread);
	atomic_store(&race.stop, true);
	for (unsigned i = 0; i < READERS; i++)
		os_thread_join(&reader[i].thread);
	os_thread_join(&advancer.thread);
	os_thread_join(&trimmer.thread);
	check(space_settle(race.volume->space) == 0);
	space_count(race.volume->space, &after);
	check(after.deferred == 0 && after.reserved == 0);
	check(after.free == before.free && after.kept == before.kept);
	check(atomic_load(&reserve->held) == reserve->target);
	check(scratch_problems(race.volume) == 0);
	pages = stat_read(&race.volume->stats, STAT_space_reserve_pages);
	check(volume_close(race.volume) == 0);
	printf("race_space: %llu blocks watched, %llu pages from the reserve, %llu blocks "
	       "discarded\n",
	       (unsigned long long)atomic_load(&race.checked), (unsigned long long)pages,
	       (unsigned long long)atomic_load(&race.discarded));
	dev_close(inner);
	free(race.owner);
}

int main(void)
{
	os_linux_set_point_handler(point);
	run(VOLUME_BYTES, SCRATCH_PAGE, SCRATCH_LOG);
	run(LARGE_VOLUME_BYTES, LARGE_PAGE, LARGE_LOG);
	return 0;
}
