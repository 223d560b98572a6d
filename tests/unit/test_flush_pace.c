/*
 * The pacing of write-back (flush_pace.c), without threads or clocks: whenever a
 * bell rings, the test does what the thread would do, and nothing else.  So it is
 * the pacing alone that keeps the log and the frames from running out, and each
 * wait that it lets happen is counted.
 */
#include "engine/flush_internal.h"
#include "tests/lib/pool_fixture.h"

#include <criterion/criterion.h>

#define LAPS 10u

/* What a run showed. */
struct seen {
	uint64_t rings, log_rings;
	uint64_t age_max;       /* log behind the checkpoint */
	uint64_t batches_max;   /* of one ring */
	uint64_t dirty_max;
};

static bool has_rung(struct bell *bell)
{
	return atomic_load(&bell->rings_at) == UINT64_MAX;
}

static bool frames_rang(struct fixture *f)
{
	return pool_dirty_count(f->pool) >= atomic_load(&f->pool->dirty_wanted);
}

/* The thread that writes back, from a ring until it would sleep; at most `rounds`. */
static void write_back(struct fixture *f, struct seen *seen, unsigned rounds)
{
	uint64_t before = fixture_stat(f, STAT_flush_batches), batches;

	while (rounds-- > 0 && flush_round(f->flusher, 0) == 0)
		;
	batches = fixture_stat(f, STAT_flush_batches) - before;
	seen->batches_max = batches > seen->batches_max ? batches : seen->batches_max;
	seen->rings++;
}

static void write_log(struct fixture *f, struct seen *seen)
{
	uint64_t never = OS_FOREVER;

	while (flush_log_round(f->flusher, 0, &never) == 0)
		;
	seen->log_rings++;
}

static void look(struct fixture *f, struct seen *seen)
{
	uint64_t age = log_next_lsn(f->log) - log_checkpoint_lsn(f->log);
	uint64_t dirty = pool_dirty_count(f->pool);

	seen->age_max = age > seen->age_max ? age : seen->age_max;
	seen->dirty_max = dirty > seen->dirty_max ? dirty : seen->dirty_max;
}

/* Changes one page after another until the log has gone round LAPS times. */
static struct seen run(struct fixture *f, unsigned pages, unsigned rounds)
{
	lsn_t until = log_next_lsn(f->log) + LAPS * log_capacity(f->log);
	struct seen seen = {0};

	write_back(f, &seen, 1);
	write_log(f, &seen);
	for (uint64_t i = 0; log_next_lsn(f->log) < until; i++) {
		/* Scattered, the same each time. */
		fixture_change_one(f, (unsigned)(i * 7919 % pages), i, i < pages);
		look(f, &seen);
		if (has_rung(&f->flusher->work) || frames_rang(f))
			write_back(f, &seen, rounds);
		if (has_rung(&f->flusher->log_work))
			write_log(f, &seen);
	}
	return seen;
}

static void expect_no_wait(struct fixture *f)
{
	cr_assert_eq(fixture_stat(f, STAT_log_space_waits), 0);
	cr_assert_eq(fixture_stat(f, STAT_pool_ticket_waits), 0);
	cr_assert_eq(fixture_stat(f, STAT_pool_frame_waits), 0);
}

Test(pace, the_log_goes_round_and_nobody_waits_for_it)
{
	struct fixture f;
	struct seen seen;
	uint64_t capacity;

	fixture_open(&f, &(struct fixture_params){.frames = 8192});
	capacity = log_capacity(f.log);
	seen = run(&f, 1800, UINT32_MAX);
	expect_no_wait(&f);
	cr_assert_gt(seen.age_max, capacity / 4, "written no earlier than needed");
	cr_assert_lt(seen.age_max, capacity / 8 * 3, "a quarter, a step, and what is rounded");
	cr_assert_geq(seen.rings, LAPS * 12, "in small steps");
	/* A quarter of the log is changes of some 1,700 pages, or 106 batches of 16. */
	cr_assert_leq(seen.batches_max, 80);
	fixture_close(&f);
}

/* The flusher gets to one batch a ring only: it has the rest of the log in reserve. */
Test(pace, a_slow_flusher_keeps_up_with_a_steady_load)
{
	struct fixture f;
	struct seen seen;

	fixture_open(&f, &(struct fixture_params){.frames = 2048, .dw_slots = 64});
	seen = run(&f, 600, 1);
	expect_no_wait(&f);
	cr_assert_lt(seen.age_max, log_capacity(f.log) / 8 * 7);
	fixture_close(&f);
}

/* Many pages, few frames, a log that would take long to fill. */
Test(pace, frames_are_cleaned_before_they_run_out)
{
	struct fixture f;
	struct seen seen;

	fixture_open(&f, &(struct fixture_params){.log_bytes = 2u << 20});
	seen = run(&f, 1500, UINT32_MAX);
	expect_no_wait(&f);
	cr_assert_leq(seen.dirty_max, POOL_FRAMES_MIN / 2);
	cr_assert_geq(seen.dirty_max, POOL_FRAMES_MIN / 4);
	fixture_close(&f);
}

/* Else whoever commits would wait for the buffer, which is far smaller than the log. */
Test(pace, the_log_is_written_before_its_buffer_is_full)
{
	struct fixture f;
	struct seen seen;

	fixture_open(&f, &(struct fixture_params){.frames = 2048,
						  .log_bytes = 2u << 20,
						  .log_buffer_bytes = 64u << 10});
	seen = run(&f, 20, UINT32_MAX);
	expect_no_wait(&f);
	cr_assert_geq(seen.log_rings, LAPS * (2u << 20) / (64u << 10));
	fixture_close(&f);
}

/* Far from being due, but somebody wants a large reservation. */
Test(pace, whoever_waits_for_space_is_served)
{
	struct fixture f;
	lsn_t wanted;

	fixture_open(&f, &(struct fixture_params){0});
	for (unsigned i = 0; i < 10; i++)
		fixture_change_one(&f, i, i, true);
	wanted = log_next_lsn(f.log);
	fixture_change_one(&f, 0, 1, false);
	cr_assert_gt(flush_round(f.flusher, 0), 0);
	cr_assert_lt(log_checkpoint_lsn(f.log), wanted);
	atomic_store(&f.flusher->wants_below, wanted);
	cr_assert_eq(flush_round(f.flusher, 0), 0);
	cr_assert_geq(log_checkpoint_lsn(f.log), wanted);
	fixture_close(&f);
}

Test(pace, a_bell_rings_once)
{
	struct fixture f;
	struct bell *bell;
	uint32_t before;

	fixture_open(&f, &(struct fixture_params){0});
	bell = &f.flusher->work;
	fixture_change_one(&f, 0, 1, true);
	atomic_store(&bell->rings_at, log_next_lsn(f.log) + 200);
	before = atomic_load(&bell->queue.sequence);
	fixture_change_one(&f, 0, 2, false);
	cr_assert_eq(atomic_load(&bell->queue.sequence), before);
	for (unsigned i = 0; i < 10; i++)
		fixture_change_one(&f, 0, i, false);
	cr_assert_eq(atomic_load(&bell->queue.sequence), before + 1);
	cr_assert(has_rung(bell));
	fixture_close(&f);
}
