/* Giving free space back to the device: what is told, when, and who has it meanwhile. */
#include "engine/flush.h"
#include "engine/space_internal.h"
#include "tests/lib/hoard.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#define VOLUME_BYTES (16u << 20)
#define LOG_BYTES (1u << 20)
#define PAGE 8192u /* two blocks a page */

static struct device *inner;
static struct volume *v;
static uint8_t *told; /* a byte a block: how often the device was told of it */

static void note(void *arg, uint64_t offset, uint64_t len)
{
	(void)arg;
	for (uint64_t b = offset / BLOCK_SIZE; b < (offset + len) / BLOCK_SIZE; b++) {
		cr_assert(geometry_is_in_group(&v->geo, b, 1));
		told[b]++;
	}
}

static void make(bool discard)
{
	struct volume_options options = {
		.cache_bytes = 4u << 20,
		.log_buffer_bytes = 1u << 20,
		.no_background = true,
		.discard = discard,
	};
	struct device *dev;

	inner = scratch_format(VOLUME_BYTES, PAGE, LOG_BYTES);
	dev = scratch_keep(inner);
	cr_assert_eq(volume_open(&v, dev, &options), 0);
	told = calloc(VOLUME_BYTES / BLOCK_SIZE, 1);
	scratch_watch_discards(dev, note, NULL);
}

static void end(void)
{
	os_linux_set_point_handler(NULL);
	cr_assert_eq(volume_close(v), 0);
	dev_close(inner);
	free(told);
}

static int trim(uint64_t from, uint64_t to, uint32_t shortest, bool stale, uint64_t *blocks)
{
	struct space_trim job = {.at = from, .end = to, .shortest = shortest, .stale = stale};
	int rc;

	do {
		rc = space_trim_step(v->space, &job);
	} while (rc > 0);
	*blocks = job.trimmed;
	return rc;
}

static uint64_t trim_all(bool stale)
{
	uint64_t blocks;

	memset(told, 0, VOLUME_BYTES / BLOCK_SIZE);
	cr_assert_eq(trim(0, UINT64_MAX, 1, stale, &blocks), 0);
	return blocks;
}

static uint64_t count_told(const struct reservation *r)
{
	uint64_t count = 0;

	for (unsigned p = 0; p < r->count; p++)
		for (uint32_t b = 0; b < r->piece[p].length; b++)
			count += told[r->piece[p].start + b];
	return count;
}

static uint64_t map_free(void)
{
	return (uint64_t)atomic_load(&v->space->free);
}

static void settle(void)
{
	cr_assert_eq(space_settle(v->space), 0);
}

Test(trim, tells_all_that_the_map_has_and_nothing_else)
{
	struct reservation used, reserved, freed;
	uint64_t free;

	make(false);
	cr_assert_eq(space_reserve(v->space, 100, 0, 0, &used), 0);
	hoard_bits(v, &used, true);
	cr_assert_eq(space_reserve(v->space, 50, 0, 0, &reserved), 0);
	cr_assert_eq(space_reserve(v->space, 30, 0, 0, &freed), 0);
	hoard_bits(v, &freed, true);
	hoard_bits(v, &freed, false);
	free = map_free();
	cr_assert_eq(trim_all(false), free);
	cr_assert_eq(count_told(&used), 0);
	cr_assert_eq(count_told(&reserved), 0);
	/* INV-LOG-7: no mark covers the mtr that freed them. */
	cr_assert_eq(count_told(&freed), 0);
	settle();
	cr_assert_eq(trim_all(false), map_free());
	cr_assert_eq(count_told(&freed), 30);
	free += map_free();
	cr_assert_eq(stat_read(&v->stats, STAT_dev_discard_bytes), free * BLOCK_SIZE);
	space_unreserve(v->space, &reserved);
	hoard_bits(v, &used, false);
	cr_assert_eq(scratch_problems(v), 0);
	end();
}

/* What an archive or a backup holds back is not free. */
Test(trim, respects_holds)
{
	struct reservation r;

	make(false);
	for (enum space_holder who = 0; who < SPACE_HOLDERS; who++) {
		cr_assert_eq(space_reserve(v->space, 40, 0, 0, &r), 0);
		hoard_bits(v, &r, true);
		space_hold(v->space, who, log_next_lsn(v->log));
		hoard_bits(v, &r, false);
		settle();
		trim_all(false);
		cr_assert_eq(count_told(&r), 0);
		space_hold(v->space, who, SPACE_UNHELD);
		settle();
		trim_all(false);
		cr_assert_eq(count_told(&r), 40);
	}
	end();
}

Test(trim, ranges_and_shortest_runs)
{
	uint64_t start, blocks;
	struct reservation r;

	make(false);
	start = v->geo.groups_start + 1000;
	cr_assert_eq(trim(start, start + 10, 1, false, &blocks), 0);
	cr_assert_eq(blocks, 10);
	for (uint64_t b = 0; b < VOLUME_BYTES / BLOCK_SIZE; b++)
		cr_assert_eq(told[b], b >= start && b < start + 10);
	cr_assert_eq(trim(0, v->geo.groups_start, 1, false, &blocks), 0);
	cr_assert_eq(blocks, 0);
	cr_assert_eq(trim(UINT64_MAX - 5, UINT64_MAX, 1, false, &blocks), 0);
	cr_assert_eq(blocks, 0);
	cr_assert_eq(trim(0, UINT64_MAX, UINT32_MAX, false, &blocks), 0);
	cr_assert_eq(blocks, 0);
	/* A hole of five blocks among used ones. */
	cr_assert_eq(space_reserve(v->space, 25, 0, 0, &r), 0);
	cr_assert_eq(r.count, 1);
	hoard_bits(v, &r, true);
	r.piece[0] = (struct piece){r.piece[0].start + 10, 5};
	r.blocks = 5;
	hoard_bits(v, &r, false);
	settle();
	start = r.piece[0].start;
	cr_assert_eq(trim(start - 10, start + 15, 6, false, &blocks), 0);
	cr_assert_eq(blocks, 0);
	cr_assert_eq(trim(start - 10, start + 15, 5, false, &blocks), 0);
	cr_assert_eq(blocks, 5);
	end();
}

/* INV-TRIM-3. */
Test(trim, stale_is_what_was_freed_since)
{
	struct space_trim_counts counts;
	struct reservation r, again;

	make(true);
	cr_assert_eq(trim_all(true), 0);
	cr_assert_eq(space_reserve(v->space, 200, 0, 0, &r), 0);
	hoard_bits(v, &r, true);
	hoard_bits(v, &r, false);
	cr_assert_eq(trim_all(true), 0);
	settle();
	space_trim_count(v->space, &counts);
	cr_assert_eq(counts.stale, 200);
	/* What is used again is not free, and not stale. */
	cr_assert_eq(space_reserve(v->space, 60, r.piece[0].start, 0, &again), 0);
	space_trim_count(v->space, &counts);
	cr_assert_eq(counts.stale, 140);
	cr_assert_eq(trim_all(true), 140);
	cr_assert_eq(count_told(&r), 140);
	cr_assert_eq(count_told(&again), 0);
	cr_assert_eq(trim_all(true), 0);
	space_unreserve(v->space, &again);
	cr_assert_eq(trim_all(true), 60);
	/* By hand, all of it: nothing is left for the background. */
	cr_assert_eq(space_reserve(v->space, 10, 0, 0, &r), 0);
	space_unreserve(v->space, &r);
	cr_assert_eq(trim_all(false), map_free());
	cr_assert_eq(trim_all(true), 0);
	end();
}

Test(trim, failures_change_nothing)
{
	uint64_t free, blocks;

	make(false);
	free = map_free();
	dev_memory_fail(inner, FAULT_DISCARD, 0, -EIO, true);
	cr_assert_eq(trim(0, UINT64_MAX, 1, false, &blocks), -EIO);
	cr_assert_eq(blocks, 0);
	dev_memory_fail(inner, FAULT_DISCARD, 0, -EOPNOTSUPP, true);
	cr_assert_eq(trim(0, UINT64_MAX, 1, false, &blocks), -EOPNOTSUPP);
	cr_assert_eq(map_free(), free);
	cr_assert_eq(stat_read(&v->stats, STAT_dev_discards), 0);
	dev_memory_fail(inner, 0, 0, 0, false);
	cr_assert_eq(trim_all(false), free);
	cr_assert_not(atomic_load(&v->failed));
	end();
}

/* ------------------------------------------------- while a discard is in flight */

static struct os_thread thread;
static _Atomic bool taken, failed_once;
static struct waitq changed;
static int reserved_rc, drained_rc;
static bool served;

static void await(_Atomic bool *flag)
{
	while (!atomic_load(flag)) {
		uint32_t ticket = waitq_ticket(&changed);

		if (!atomic_load(flag))
			waitq_wait(&changed, ticket, OS_FOREVER);
	}
}

static void set(_Atomic bool *flag)
{
	atomic_store(flag, true);
	waitq_wake_all(&changed);
}

/* All but a few blocks are taken: these few are what the step has. */
static void write_when_full(void *arg)
{
	struct reservation r;

	(void)arg;
	await(&taken);
	reserved_rc = space_reserve(v->space, 3, 0, 0, &r);
	set(&failed_once);
	drained_rc = space_drain(v->space);
	if (drained_rc == 0 && space_reserve(v->space, 3, 0, 0, &r) == 0) {
		served = true;
		space_unreserve(v->space, &r);
	}
}

/* INV-TRIM-1: everything that can be had is had; nothing of it is what the step has. */
static void take_all_beside(const char *name)
{
	struct hoard hoard;

	if (strcmp(name, "trim:taken") != 0)
		return;
	os_linux_set_point_handler(NULL);
	hoard = hoard_take(v, 0);
	cr_assert_gt(hoard.count, 0);
	for (unsigned i = 0; i < hoard.count; i++)
		told[hoard.r[i].piece[0].start] = 100;
	hoard_give(v, &hoard);
}

Test(trim, nobody_is_given_what_is_in_flight)
{
	struct space_trim job = {.end = UINT64_MAX, .shortest = 1};
	uint64_t free;
	unsigned own = 0;

	make(false);
	free = hoard_counts(v).free;
	os_linux_set_point_handler(take_all_beside);
	cr_assert_eq(space_trim_step(v->space, &job), 1);
	for (uint64_t b = 0; b < VOLUME_BYTES / BLOCK_SIZE; b++) {
		cr_assert_neq(told[b], 101, "a block that was in flight had another owner");
		own += told[b] == 1;
	}
	cr_assert_eq(own, job.trimmed);
	cr_assert_leq(job.trimmed, free / 2, "INV-TRIM-2");
	cr_assert_eq(hoard_counts(v).free, free);
	end();
}

static _Atomic bool run_taken;
static int run_rc;

static void take_long_run(void *arg)
{
	uint64_t start;

	run_rc = space_take_run(v->space, *(uint64_t *)arg, 0, &start);
	atomic_store(&run_taken, true);
	if (run_rc == 0)
		space_give_run(v->space, start, *(uint64_t *)arg, true);
}

/* Until the other one waits for the step to end, or has not waited. */
static void wait_for_run(const char *name)
{
	if (strcmp(name, "trim:taken") != 0)
		return;
	os_linux_set_point_handler(NULL);
	set(&taken);
	while (!atomic_load(&v->space->trim.turn.waiters) && !atomic_load(&run_taken))
		sched_yield();
}

static void start_long_run(void *arg)
{
	await(&taken);
	take_long_run(arg);
}

/* For the log: all that is free in one run, in whose middle a step is under way. */
Test(trim, does_not_break_the_run_that_the_log_wants)
{
	struct space_trim job = {.end = UINT64_MAX, .shortest = 1};
	uint64_t blocks;

	make(false);
	blocks = map_free() - 8;
	job.at = v->geo.groups_start + v->space->group_count + 1000;
	cr_assert_eq(os_thread_start(&thread, "log", start_long_run, &blocks), 0);
	os_linux_set_point_handler(wait_for_run);
	cr_assert_eq(space_trim_step(v->space, &job), 1);
	os_thread_join(&thread);
	cr_assert_eq(run_rc, 0);
	end();
}

static void wait_for_failure(const char *name)
{
	if (strcmp(name, "trim:taken") != 0)
		return;
	os_linux_set_point_handler(NULL);
	set(&taken);
	await(&failed_once);
}

/* INV-TRIM-4: who finds nothing because of a step is served after it. */
Test(trim, nobody_hears_enospc_for_what_is_in_flight)
{
	struct space_trim job = {.end = UINT64_MAX, .shortest = 1};
	struct hoard hoard;

	make(false);
	hoard = hoard_take(v, 0);
	for (unsigned i = 0; i < 3; i++)
		hoard_give_one(v, &hoard, i);
	/* Three are free, one of them is in flight, and three are asked for. */
	cr_assert_eq(os_thread_start(&thread, "writer", write_when_full, NULL), 0);
	os_linux_set_point_handler(wait_for_failure);
	cr_assert_eq(space_trim_step(v->space, &job), 1);
	os_thread_join(&thread);
	cr_assert_eq(job.trimmed, 1);
	cr_assert_eq(reserved_rc, -ENOSPC);
	cr_assert_eq(drained_rc, 0);
	cr_assert(served);
	hoard_give(v, &hoard);
	end();
}
