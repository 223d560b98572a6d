/*
 * How long latches are held, for benchmarks: make LATCH=timed.  Included by latch.c
 * alone.  The usual build has none of it.
 *
 * A thread counts for itself; its counts outlive it, so that all of them can be added
 * up.  Reading those of a thread that runs gives each figure as of some moment.
 */
#ifndef BLINKFS_BASE_LATCH_TIMED_H
#define BLINKFS_BASE_LATCH_TIMED_H

#include <stdlib.h>

/* About 30 us: whoever held a latch for so long was not running, which is not what is asked. */
#define TICKS_MOST 100000u

/* mode[0]: S, mode[1]: X */
struct thread_times {
	struct thread_times *next; /* constant once in the list */
	struct {
		_Atomic uint64_t ticks, count;
	} mode[2][RANK_COUNT][LATCH_SUBS];
};

static struct thread_times *_Atomic all_times;
static _Thread_local struct thread_times *own_times;

uint64_t latch_clock(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	return os_mono_ns();
#endif
}

static struct thread_times *times_of_thread(void)
{
	struct thread_times *times = own_times;

	if (times)
		return times;
	times = calloc(1, sizeof(*times));
	check(times != NULL);
	own_times = times;
	times->next = atomic_load(&all_times);
	while (!atomic_compare_exchange_weak(&all_times, &times->next, times))
		;
	return times;
}

static uint32_t sub_of(const struct held *held)
{
	uint64_t sub = 0;

	if (held->rank == RANK_PAGE)
		sub = held->order & 0xff;
	else if (held->rank == RANK_LEAF)
		sub = held->order;
	else if (held->rank == RANK_POOL)
		sub = held->order >= 256; /* POOL_SHARDS: the free list's */
	return sub < LATCH_SUBS ? (uint32_t)sub : LATCH_SUBS - 1;
}

static void time_begin(struct held *held)
{
	held->since = latch_clock();
}

static void time_end(const struct held *held)
{
	uint64_t ticks = latch_clock() - held->since;
	struct thread_times *times = times_of_thread();
	uint32_t sub = sub_of(held);

	/* One writer: a load and a store do. */
#define RAISE(what, by) atomic_store_explicit(&(what), \
		atomic_load_explicit(&(what), memory_order_relaxed) + (by), memory_order_relaxed)
	RAISE(times->mode[held->exclusive][held->rank][sub].ticks,
	      ticks < TICKS_MOST ? ticks : 0);
	RAISE(times->mode[held->exclusive][held->rank][sub].count, 1);
#undef RAISE
}

static void times_add(struct latch_times *sum, const struct thread_times *times)
{
	for (unsigned rank = 0; rank < RANK_COUNT; rank++) {
		for (unsigned sub = 0; sub < LATCH_SUBS; sub++) {
			sum->s[rank][sub].ticks += atomic_load(&times->mode[0][rank][sub].ticks);
			sum->s[rank][sub].count += atomic_load(&times->mode[0][rank][sub].count);
			sum->x[rank][sub].ticks += atomic_load(&times->mode[1][rank][sub].ticks);
			sum->x[rank][sub].count += atomic_load(&times->mode[1][rank][sub].count);
		}
	}
}

void latch_times_own(struct latch_times *times)
{
	memset(times, 0, sizeof(*times));
	times_add(times, times_of_thread());
}

void latch_times_all(struct latch_times *times)
{
	memset(times, 0, sizeof(*times));
	for (const struct thread_times *t = atomic_load(&all_times); t; t = t->next)
		times_add(times, t);
}

#endif
