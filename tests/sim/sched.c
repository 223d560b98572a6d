/*
 * The scheduler: see sim.h.
 *
 *	RUNNABLE --chosen--> runs --wait, sleep--> WAITING --wake, deadline--> RUNNABLE
 *	                      |--point----------> RUNNABLE
 *	                      `--end------------> DONE --joined--> free
 *
 * There is no thread of the scheduler's own: whoever gives up its turn chooses
 * the next one and switches to it.
 */
#include "tests/sim/sim.h"

#include "engine/base/latch.h"
#include "tests/lib/scratch.h"
#include "tests/sim/fiber.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define FIBERS_MAX 128u
#define NAME_BYTES 16u
#define SWITCH_NS 3000u  /* the most that a turn takes, as the clock sees it */
#define FAVOURITE_NS 500000u
#define READ_NS 20u      /* a look at the clock takes time, so a loop of them ends */
#define IDLE_MAX 20000000u /* switches without progress: nobody waits so long */
#define BORN_S 1800000000 /* what the wall clock says at the beginning */

enum state { FREE, RUNNABLE, WAITING, DONE };

struct thread {
	struct sim *sim;
	struct fiber *fiber;
	enum state state;
	const _Atomic uint32_t *word; /* waits on it; NULL: sleeps */
	uint64_t deadline;            /* while WAITING */
	const char *point;            /* last passed */
	char name[NAME_BYTES];
	void (*fn)(void *arg);
	void *arg;
	_Atomic uint32_t done;        /* what a join waits on */
};

struct point_class {
	const char *name;
	unsigned class;
};

struct sim {
	struct os os;
	uint64_t random;
	uint64_t now_ns;
	uint64_t digest;
	uint64_t switches, idle;      /* idle: since the last progress */
	struct sim_temper temper;
	uint64_t points_left;         /* until the next switch at one */
	struct thread *runs;
	struct point_class class[256];
	unsigned used;                /* threads below may be in use */
	struct thread thread[FIBERS_MAX];
};

static struct sim *sim_of(const struct os *os)
{
	return os->priv;
}

/* --- choices ------------------------------------------------------------------- */

uint64_t sim_random(struct sim *sim)
{
	return random_next(&sim->random);
}

uint64_t sim_below(struct sim *sim, uint64_t limit)
{
	return sim_random(sim) % limit;
}

bool sim_once_in(struct sim *sim, uint64_t every)
{
	return every && sim_below(sim, every) == 0;
}

void sim_trace(struct sim *sim, uint64_t what)
{
	uint64_t mixed = (sim->digest ^ what) * 0x9e3779b97f4a7c15ull;

	sim->digest = mixed ^ (mixed >> 29);
}

uint64_t sim_digest(const struct sim *sim)
{
	return sim->digest;
}

uint64_t sim_now_ns(const struct sim *sim)
{
	return sim->now_ns;
}

uint64_t sim_switches(const struct sim *sim)
{
	return sim->switches;
}

void sim_progress(struct sim *sim)
{
	sim->idle = 0;
}

/* --- who is next ----------------------------------------------------------------- */

static void print_thread(const struct sim *sim, const struct thread *t)
{
	fprintf(stderr, "  %3d %-15s ", (int)(t - sim->thread), t->name);
	if (t->state == WAITING && t->word)
		fprintf(stderr, "waits on a word that is %" PRIu32, atomic_load(t->word));
	else if (t->state == WAITING)
		fprintf(stderr, "sleeps");
	else
		fprintf(stderr, "%s", t->state == DONE ? "has ended" : "can run");
	if (t->state == WAITING && t->deadline != OS_FOREVER)
		fprintf(stderr, ", until %" PRIu64 " ns", t->deadline);
	fprintf(stderr, "; passed %s last\n", t->point ? t->point : "no point");
}

void sim_print(const struct sim *sim)
{
	fprintf(stderr, "simulation: at %" PRIu64 " ns, %" PRIu64 " switches\n", sim->now_ns,
		sim->switches);
	for (unsigned i = 0; i < sim->used; i++)
		if (sim->thread[i].state != FREE)
			print_thread(sim, &sim->thread[i]);
}

static void wake_due(struct sim *sim)
{
	for (unsigned i = 0; i < sim->used; i++) {
		struct thread *t = &sim->thread[i];

		if (t->state == WAITING && t->deadline <= sim->now_ns)
			t->state = RUNNABLE;
	}
}

/* INV-SIM-3 */
static void jump(struct sim *sim)
{
	uint64_t next = OS_FOREVER;

	for (unsigned i = 0; i < sim->used; i++)
		if (sim->thread[i].state == WAITING && sim->thread[i].deadline < next)
			next = sim->thread[i].deadline;
	if (next == OS_FOREVER) {
		fprintf(stderr, "simulation: deadlock: nobody can run, and nothing is awaited\n");
		sim_print(sim);
		abort();
	}
	sim->now_ns = next > sim->now_ns ? next : sim->now_ns;
}

static struct thread *choose(struct sim *sim)
{
	struct thread *runnable[FIBERS_MAX];
	unsigned count = 0;

	for (unsigned i = 0; i < sim->used; i++)
		if (sim->thread[i].state == RUNNABLE)
			runnable[count++] = &sim->thread[i];
	return count ? runnable[count == 1 ? 0 : sim_below(sim, count)] : NULL;
}

/* A wait may end without reason; whoever waits has to look again. */
static void wake_somebody(struct sim *sim)
{
	struct thread *t = &sim->thread[sim_below(sim, sim->used)];

	if (t->state == WAITING && t->word)
		t->state = RUNNABLE;
}

static struct thread *next_thread(struct sim *sim)
{
	struct thread *next;

	sim->switches++;
	if (++sim->idle > IDLE_MAX) {
		fprintf(stderr, "simulation: no progress\n");
		sim_print(sim);
		abort();
	}
	sim->now_ns += sim_below(sim, SWITCH_NS);
	if (sim_once_in(sim, sim->temper.spurious_every))
		wake_somebody(sim);
	wake_due(sim);
	while ((next = choose(sim)) == NULL) {
		jump(sim);
		wake_due(sim);
	}
	sim_trace(sim, (uint64_t)(next - sim->thread) + (sim->now_ns << 8));
	return next;
}

static void give_up_turn(struct sim *sim)
{
	struct thread *self = sim->runs, *next = next_thread(sim);

	if (next == self)
		return;
	sim->runs = next;
	fiber_switch(self->fiber, next->fiber);
}

void sim_sleep(struct sim *sim, uint64_t ns)
{
	struct thread *self = sim->runs;

	self->word = NULL;
	self->deadline = sim->now_ns + ns;
	self->state = WAITING;
	give_up_turn(sim);
}

/* --- struct os ------------------------------------------------------------------- */

static uint64_t sim_mono_ns(const struct os *os)
{
	struct sim *sim = sim_of(os);

	sim->now_ns += READ_NS;
	return sim->now_ns;
}

static struct timespec sim_realtime(const struct os *os)
{
	uint64_t ns = sim_mono_ns(os);

	return (struct timespec){.tv_sec = BORN_S + (time_t)(ns / 1000000000),
				 .tv_nsec = (long)(ns % 1000000000)};
}

static void sim_random_bytes(const struct os *os, void *buf, size_t len)
{
	uint8_t *at = buf;

	for (size_t i = 0; i < len; i++)
		at[i] = (uint8_t)sim_random(sim_of(os));
}

static void sim_wait(const struct os *os, _Atomic uint32_t *word, uint32_t expected,
		     uint64_t timeout_ns)
{
	struct sim *sim = sim_of(os);
	struct thread *self = sim->runs;

	if (atomic_load(word) != expected)
		return;
	self->word = word;
	self->deadline = timeout_ns < OS_FOREVER - sim->now_ns ? sim->now_ns + timeout_ns
							       : OS_FOREVER;
	self->state = WAITING;
	give_up_turn(sim);
}

static void sim_wake(const struct os *os, _Atomic uint32_t *word, int count)
{
	struct sim *sim = sim_of(os);
	struct thread *waiter[FIBERS_MAX];
	unsigned waiters = 0;

	for (unsigned i = 0; i < sim->used; i++)
		if (sim->thread[i].state == WAITING && sim->thread[i].word == word)
			waiter[waiters++] = &sim->thread[i];
	for (; count > 0 && waiters > 0; count--) {
		unsigned chosen = (unsigned)count >= waiters ? 0
							      : (unsigned)sim_below(sim, waiters);

		waiter[chosen]->state = RUNNABLE;
		waiter[chosen] = waiter[--waiters];
	}
}

static void draw_points(struct sim *sim)
{
	sim->points_left = sim->temper.switch_every
				   ? 1 + sim_below(sim, 2 * (uint64_t)sim->temper.switch_every)
				   : UINT64_MAX;
}

/* By what the name says; where it lies only says where the answer was kept. */
static unsigned class_of(struct sim *sim, const char *name)
{
	struct point_class *known = &sim->class[((uintptr_t)name >> 3) % array_count(sim->class)];

	if (known->name == name)
		return known->class;
	*known = (struct point_class){
		.name = name,
		.class = 1 + (unsigned)(XXH3_64bits(name, strlen(name)) % SIM_CLASSES),
	};
	if (strcmp(name, "latch:acquire") == 0) /* too many */
		known->class = 0;
	return known->class;
}

static void sim_point(const struct os *os, const char *name)
{
	struct sim *sim = sim_of(os);

	sim->runs->point = name;
	if (sim->temper.favourite && class_of(sim, name) == sim->temper.favourite &&
	    sim_below(sim, 3) == 0) {
		sim_sleep(sim, sim_below(sim, FAVOURITE_NS));
		return;
	}
	if (--sim->points_left > 0)
		return;
	draw_points(sim);
	if (sim_once_in(sim, sim->temper.stall_every))
		sim_sleep(sim, sim_below(sim, sim->temper.stall_ns));
	else
		give_up_turn(sim);
}

static unsigned sim_processors(const struct os *os)
{
	return sim_of(os)->temper.processors;
}

/* --- threads --------------------------------------------------------------------- */

static struct thread *thread_take(struct sim *sim, const char *name)
{
	unsigned i = 0;

	while (i < FIBERS_MAX && sim->thread[i].state != FREE)
		i++;
	check(i < FIBERS_MAX);
	if (i >= sim->used)
		sim->used = i + 1;
	sim->thread[i] = (struct thread){.sim = sim, .state = RUNNABLE};
	snprintf(sim->thread[i].name, NAME_BYTES, "%s", name);
	return &sim->thread[i];
}

static void thread_main(void *arg)
{
	struct thread *self = arg;
	struct sim *sim = self->sim;

	os_set_current(&sim->os);
	self->fn(self->arg);
	latch_check_none_from(0);
	latch_check_may_wait();
	self->state = DONE;
	atomic_store(&self->done, 1);
	sim_wake(&sim->os, &self->done, 1);
	sim->runs = next_thread(sim);
	fiber_leave(self->fiber, sim->runs->fiber);
}

static int sim_thread_start(const struct os *os, struct os_thread *out, const char *name,
			    void (*fn)(void *), void *arg)
{
	struct thread *t = thread_take(sim_of(os), name);

	t->fn = fn;
	t->arg = arg;
	t->fiber = fiber_new(thread_main, t);
	out->handle = t;
	return 0;
}

static void sim_thread_join(const struct os *os, struct os_thread *thread)
{
	struct thread *t = thread->handle;

	while (!atomic_load(&t->done))
		sim_wait(os, &t->done, 0, OS_FOREVER);
	check(t->state == DONE);
	fiber_free(t->fiber);
	t->state = FREE;
	thread->handle = NULL;
}

/* --- beginning and end ------------------------------------------------------------ */

struct sim *sim_begin(uint64_t seed)
{
	struct sim *sim = calloc(1, sizeof(*sim));

	check(sim);
	sim->random = seed;
	sim->os = (struct os){
		.mono_ns = sim_mono_ns,
		.realtime = sim_realtime,
		.random_bytes = sim_random_bytes,
		.thread_start = sim_thread_start,
		.thread_join = sim_thread_join,
		.wait = sim_wait,
		.wake = sim_wake,
		.point = sim_point,
		.processors = sim_processors,
		.priv = sim,
	};
	sim_set_temper(sim, &(struct sim_temper){.processors = 2});
	sim->runs = thread_take(sim, "main");
	sim->runs->fiber = fiber_main();
	os_set_current(&sim->os);
	return sim;
}

void sim_end(struct sim *sim)
{
	for (unsigned i = 1; i < sim->used; i++)
		check(sim->thread[i].state == FREE);
	os_set_current(NULL);
	fiber_free(sim->thread[0].fiber);
	free(sim);
}

void sim_set_temper(struct sim *sim, const struct sim_temper *temper)
{
	sim->temper = *temper;
	draw_points(sim);
}
