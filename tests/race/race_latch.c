/*
 * Latches and wait queues between threads.  Run under TSan, which sees the
 * plain variables that the latches protect; also checks what it can by itself.
 *
 *	race_latch [ROUNDS]
 */
#include "engine/base/latch.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4
#define CELLS 8
#define READERS 3

static unsigned rounds = 20000;

static struct {
	struct latch latch;
	uint64_t cell[CELLS];        /* [lock: latch]: all equal */
	_Atomic uint64_t increments; /* how often somebody added one to each */
} shared;

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* Gives the processor away now and then at the interesting points. */
static void yield_sometimes(const char *name)
{
	static _Thread_local uint64_t random;

	if (random == 0)
		random = (uintptr_t)&random;
	if (next_random(&random) % (strcmp(name, "latch:sleep") == 0 ? 2 : 8) == 0)
		sched_yield();
}

static void run_threads(int count, void (*fn)(void *))
{
	struct os_thread thread[THREADS + 1];
	uint64_t seed[THREADS + 1];

	check(count <= THREADS + 1);
	for (int i = 0; i < count; i++) {
		seed[i] = (uint64_t)i + 1;
		check(os_thread_start(&thread[i], "race", fn, &seed[i]) == 0);
	}
	for (int i = 0; i < count; i++)
		os_thread_join(&thread[i]);
}

static void reset_shared(void)
{
	memset(shared.cell, 0, sizeof(shared.cell));
	atomic_store(&shared.increments, 0);
	latch_init(&shared.latch, RANK_INODE, 1);
}

/* Both stay inside long enough, now and then, for the others to fall asleep. */
static void add_one(void)
{
	for (int i = 0; i < CELLS; i++) {
		shared.cell[i]++;
		if (i == CELLS / 2)
			yield_sometimes("inside");
	}
	atomic_fetch_add(&shared.increments, 1);
}

static void expect_equal(void)
{
	uint64_t first = shared.cell[0];

	yield_sometimes("inside");
	for (int i = 1; i < CELLS; i++)
		check(shared.cell[i] == first);
}

static void expect_all_done(void)
{
	expect_equal();
	check(shared.cell[0] == atomic_load(&shared.increments));
	latch_set_order(&shared.latch, 1); /* checks that no bit is left behind */
}

static void only_writes(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < rounds; i++) {
		latch_x(&shared.latch);
		add_one();
		unlatch_x(&shared.latch);
	}
}

static void anything(void *arg)
{
	uint64_t *random = arg;

	for (unsigned i = 0; i < rounds; i++) {
		switch (next_random(random) % 4) {
		case 0:
			latch_x(&shared.latch);
			add_one();
			unlatch_x(&shared.latch);
			break;
		case 1:
			latch_s(&shared.latch);
			expect_equal();
			unlatch_s(&shared.latch);
			break;
		case 2:
			if (latch_try_x(&shared.latch)) {
				add_one();
				unlatch_x(&shared.latch);
			}
			break;
		default:
			if (latch_try_s(&shared.latch)) {
				expect_equal();
				unlatch_s(&shared.latch);
			}
		}
	}
}

/* --- sleepers: who comes in, and in which order --------------------------- */

static struct {
	_Atomic uint32_t inside;
	_Atomic bool writer_was_in;
} meeting;

/* Waits until `count` threads more than at `before` have gone to sleep at the latch. */
static void await_sleepers(uint64_t before, uint64_t count)
{
	while (latch_wait_count(RANK_INODE) < before + count)
		sched_yield();
}

static void meet_inside(void *arg)
{
	(void)arg;
	latch_s(&shared.latch);
	atomic_fetch_add(&meeting.inside, 1);
	while (atomic_load(&meeting.inside) < READERS) /* ends only if all get in */
		sched_yield();
	unlatch_s(&shared.latch);
}

/* Readers that sleep because of a writer are all let in when it leaves. */
static void test_readers_wake_together(void)
{
	struct os_thread thread[READERS];
	uint64_t before = latch_wait_count(RANK_INODE);

	reset_shared();
	atomic_store(&meeting.inside, 0);
	latch_x(&shared.latch);
	for (int i = 0; i < READERS; i++)
		check(os_thread_start(&thread[i], "reader", meet_inside, NULL) == 0);
	await_sleepers(before, READERS);
	unlatch_x(&shared.latch);
	for (int i = 0; i < READERS; i++)
		os_thread_join(&thread[i]);
	expect_all_done();
}

static void write_once(void *arg)
{
	(void)arg;
	latch_x(&shared.latch);
	add_one();
	atomic_store(&meeting.writer_was_in, true);
	unlatch_x(&shared.latch);
}

static void read_after_writer(void *arg)
{
	(void)arg;
	latch_s(&shared.latch);
	check(atomic_load(&meeting.writer_was_in));
	unlatch_s(&shared.latch);
}

/* A reader that comes after a waiting writer goes in after it, so readers cannot starve it. */
static void test_writer_before_later_readers(void)
{
	struct os_thread writer, reader;
	uint64_t before = latch_wait_count(RANK_INODE);

	reset_shared();
	atomic_store(&meeting.writer_was_in, false);
	latch_s(&shared.latch);
	check(os_thread_start(&writer, "writer", write_once, NULL) == 0);
	await_sleepers(before, 1);
	check(!latch_try_s(&shared.latch));
	check(os_thread_start(&reader, "reader", read_after_writer, NULL) == 0);
	await_sleepers(before, 2);
	unlatch_s(&shared.latch);
	os_thread_join(&writer);
	os_thread_join(&reader);
	expect_all_done();
}

/* --- a writer among readers that never all leave -------------------------- */

static struct {
	_Atomic uint32_t entries;
	_Atomic bool writer_done;
} stream;

static void read_or_write(void *arg)
{
	bool is_writer = *(uint64_t *)arg == 1;

	for (int i = 0; is_writer && i < 100; i++)
		write_once(NULL);
	if (is_writer)
		atomic_store(&stream.writer_done, true);
	while (!atomic_load(&stream.writer_done)) {
		uint32_t mine;

		latch_s(&shared.latch);
		mine = atomic_fetch_add(&stream.entries, 1);
		/* Leaves once another reader has come in, or none can. */
		for (int i = 0; i < 20 && atomic_load(&stream.entries) == mine + 1; i++)
			sched_yield();
		unlatch_s(&shared.latch);
	}
}

static void test_no_starvation(void)
{
	reset_shared();
	run_threads(THREADS, read_or_write);
	expect_all_done();
}

/* --- wait queues ---------------------------------------------------------- */

static struct {
	struct waitq queue;
	_Atomic uint64_t turn;
	uint64_t plain; /* handed on by the turn */
} baton;

static void pass_baton(void *arg)
{
	uint64_t me = *(uint64_t *)arg - 1;

	for (unsigned i = 0; i < rounds / 10; i++) {
		for (;;) {
			uint32_t ticket = waitq_ticket(&baton.queue);

			if (atomic_load(&baton.turn) % THREADS == me)
				break;
			waitq_wait(&baton.queue, ticket, OS_FOREVER);
		}
		baton.plain++;
		atomic_fetch_add(&baton.turn, 1);
		waitq_wake_all(&baton.queue);
	}
}

int main(int argc, char **argv)
{
	if (argc > 1)
		rounds = (unsigned)strtoul(argv[1], NULL, 10);
	os_linux_set_point_handler(yield_sometimes);

	reset_shared();
	run_threads(THREADS, only_writes);
	expect_all_done();
	check(shared.cell[0] == (uint64_t)rounds * THREADS);

	reset_shared();
	run_threads(THREADS, anything);
	expect_all_done();

	test_readers_wake_together();
	test_writer_before_later_readers();
	test_no_starvation();

	run_threads(THREADS, pass_baton);
	check(baton.plain == (uint64_t)(rounds / 10) * THREADS);

	printf("race_latch: ok, %u rounds, %llu sleeps\n", rounds,
	       (unsigned long long)latch_wait_count(RANK_INODE));
	return 0;
}
