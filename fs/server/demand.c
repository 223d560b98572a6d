/*
 * A score between two bounds: a look that found something waiting raises it,
 * one that did not lowers it by less; at the upper bound one more reader is
 * wanted, at the lower one fewer, and it begins anew in between.
 */
#include "fs/server/demand.h"

#include <unistd.h>

#define READERS_MIN 2u
#define SCORE_UP 8
#define SCORE_DOWN (-32)
#define SCORE_WAITING 1
#define SCORE_EMPTY (-2)

void demand_init(struct demand *demand, unsigned max_threads)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	demand->min = max_threads < READERS_MIN ? max_threads : READERS_MIN;
	demand->max = cpus < READERS_MIN ? READERS_MIN : (unsigned)cpus;
	if (demand->max > max_threads)
		demand->max = max_threads;
	atomic_init(&demand->wanted, demand->min);
	atomic_init(&demand->score, 0);
}

static bool step(struct demand *demand, bool up)
{
	unsigned wanted = demand_wanted(demand);

	atomic_store_explicit(&demand->score, 0, memory_order_relaxed);
	if (wanted == (up ? demand->max : demand->min))
		return false;
	return atomic_compare_exchange_strong(&demand->wanted, &wanted,
					      up ? wanted + 1 : wanted - 1) && up;
}

/* A lost update of the score does no harm: it is an estimate. */
bool demand_seen(struct demand *demand, bool waiting)
{
	int score = atomic_load_explicit(&demand->score, memory_order_relaxed) +
		    (waiting ? SCORE_WAITING : SCORE_EMPTY);

	if (score >= SCORE_UP || score <= SCORE_DOWN)
		return step(demand, score >= SCORE_UP);
	atomic_store_explicit(&demand->score, score, memory_order_relaxed);
	return false;
}

void demand_missed(struct demand *demand)
{
	step(demand, true);
}
