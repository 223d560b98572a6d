/*
 * Gathering: whether the leader of a group waits a moment for more to come.
 *
 * Threads that commit over and over fall into two crowds that take turns: while the
 * group of one is in flight the other can only wait, so a flush serves half of
 * them, and each of them waits for two flushes.
 *
 *	flight   A-------B-------A-------B-------     without: two crowds
 *	flight   AB------.AB------.AB------           with: one; '.' is the wait
 *
 * Where flushes are slow, the leader waits for those whom the last flight has
 * served: they come back within microseconds, or not at all.
 *
 * How many: those and the ones that wait already.  How long: a part of the last
 * flight, counted from its end, so that a lone committer (it is all that was
 * served) and the first one after an idle time never wait.  Where a flight is
 * short, nobody does.  When fewer than half of the missing came, not again for a
 * number of groups: a wait in vain costs a quarter of a flight at most, once in
 * that number.
 *
 * All of it under log->latch, which makes it exact; nothing depends on it but
 * speed.
 */
#include "log/log_internal.h"

#define GATHER_FLIGHT_MIN_NS 500000ull /* below, sleeping and waking is what takes the time */
#define GATHER_MOST_NS 5000000ull
#define GATHER_SHARE 4u
#define GATHER_REST_GROUPS 16u

void log_gather_landed_locked(struct log *log, uint64_t callers, uint64_t flight_ns)
{
	struct log_gather *g = &log->gather;
	uint64_t pause_ns = flight_ns / GATHER_SHARE;

	g->expected = 0;
	if (flight_ns < GATHER_FLIGHT_MIN_NS)
		return;
	if (g->rest_groups) {
		g->rest_groups--;
		return;
	}
	g->expected = g->callers + callers;
	g->until_ns = os_mono_ns() + (pause_ns < GATHER_MOST_NS ? pause_ns : GATHER_MOST_NS);
}

bool log_gather_arrived_locked(struct log *log)
{
	struct log_gather *g = &log->gather;

	g->callers++;
	return g->waits_for && g->callers == g->waits_for;
}

uint64_t log_gather_pause_locked(struct log *log)
{
	struct log_gather *g = &log->gather;
	uint64_t now_ns;

	if (g->callers >= g->expected)
		return 0;
	now_ns = os_mono_ns();
	if (now_ns >= g->until_ns)
		return 0;
	g->waits_for = g->expected;
	g->had = g->callers;
	return g->until_ns - now_ns;
}

uint64_t log_gather_closed_locked(struct log *log)
{
	struct log_gather *g = &log->gather;
	uint64_t callers = g->callers;

	if (g->waits_for && (callers - g->had) * 2 < g->waits_for - g->had)
		g->rest_groups = GATHER_REST_GROUPS;
	g->waits_for = 0;
	g->expected = 0;
	g->callers = 0;
	return callers;
}
