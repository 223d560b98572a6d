/*
 * The open loop: when operations arrive, whatever has become of those before.
 *
 * A closed loop asks each thread for its next insert when it has done the last one, so
 * threads that wait offer no load, and the wait of one stands for all the inserts that
 * would have come meanwhile (coordinated omission).  Here arrivals are fixed beforehand,
 * a Poisson process of a given rate.  A thread that has nothing to do takes the next
 * arrival and sleeps until then; what is late by then begins at once.  Latency counts
 * from the arrival, so it has what an insert waited for a thread, for a processor and
 * for its latches.
 *
 * Sleeping costs a timer and a wake-up for each insert, some microseconds of processor
 * time, the same in both modes; spinning would take one of few processors away.
 */
#include "bench/blink/blink.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#define BEGIN_NS 2000000u /* after the start of the run: all threads are asleep by then */

void schedule_make(struct schedule *schedule, uint64_t arrivals, double rate, uint64_t seed)
{
	double at_ns = BEGIN_NS;

	*schedule = (struct schedule){.arrivals = arrivals, .rate = rate};
	schedule->due_ns = malloc(arrivals * sizeof(*schedule->due_ns));
	demand(schedule->due_ns ? 0 : -ENOMEM, "memory");
	for (uint64_t i = 0; i < arrivals; i++) {
		/* In (0, 1]: 53 random bits, as many as a double has. */
		double chance = ((double)(random_of(&seed) >> 11) + 1) * 0x1p-53;

		at_ns -= log(chance) * 1e9 / rate;
		schedule->due_ns[i] = (uint64_t)at_ns;
	}
}

void schedule_free(struct schedule *schedule)
{
	free(schedule->due_ns);
}

void schedule_start(struct schedule *schedule)
{
	schedule->start_ns = os_mono_ns();
	atomic_store(&schedule->next, 0);
}

void schedule_join(void)
{
	prctl(PR_SET_TIMERSLACK, 1ul); /* of this thread: wake when asked to, not within 50 us */
}

bool schedule_await(struct schedule *schedule, uint64_t *number, uint64_t *due_ns)
{
	struct timespec until;

	*number = atomic_fetch_add_explicit(&schedule->next, 1, memory_order_relaxed);
	if (*number >= schedule->arrivals)
		return false;
	*due_ns = schedule->start_ns + schedule->due_ns[*number];
	if (os_mono_ns() >= *due_ns)
		return true;
	until = (struct timespec){.tv_sec = (time_t)(*due_ns / 1000000000),
				  .tv_nsec = (long)(*due_ns % 1000000000)};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
	return true;
}
