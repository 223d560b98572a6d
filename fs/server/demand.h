/*
 * How many workers should wait for requests at once.
 *
 * Two, for a single client.  With one alone, server and client sleep in turn on CPUs
 * of their own, and each request wakes two idle CPUs: on an idle virtual machine four
 * times the cost of a request.  With two, one is on its way back to the queue while
 * the other already serves, and no CPU falls asleep in between.  More than two only
 * spread the requests over cold caches.
 * Several clients at once have a use for as many as there are CPUs.  They show
 * in the queue: right after a request was taken another one lies there.  One
 * client leaves FORGETs and read-ahead there now and then, so it takes several
 * such looks to believe it.
 */
#ifndef BLINKFS_SERVER_DEMAND_H
#define BLINKFS_SERVER_DEMAND_H

#include <stdatomic.h>
#include <stdbool.h>

/* Not a divisor of what one client's calls send in turn: each kind gets its look. */
#define DEMAND_LOOK_EVERY 7u

struct demand {
	unsigned min, max;
	_Atomic unsigned wanted; /* min .. max */
	_Atomic int score;
};

void demand_init(struct demand *demand, unsigned max_threads);
static inline unsigned demand_wanted(const struct demand *demand)
{
	return atomic_load_explicit(&demand->wanted, memory_order_relaxed);
}
/* A look at the queue, and what it found; true: one more is wanted than before. */
bool demand_seen(struct demand *demand, bool waiting);
/* The last reader went away to wait: somebody had to be woken, which a second one spares. */
void demand_missed(struct demand *demand);

#endif
