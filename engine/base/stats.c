/*
 * Sharded counters.  A thread keeps the shard that it drew at its first count;
 * shards are shared when there are more threads, hence the atomic additions.
 */
#include "engine/base/stats.h"

#include "engine/base/check.h"

static const char *const names[STAT_COUNT] = {
#define X(name) [STAT_##name] = #name,
#include "engine/base/stats.def"
#undef X
};

unsigned stats_thread(void)
{
	static _Atomic unsigned next;
	static _Thread_local unsigned mine_plus_one;

	if (mine_plus_one == 0)
		mine_plus_one = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) + 1;
	return mine_plus_one - 1;
}

unsigned stats_shard(void)
{
	return stats_thread() % STAT_SHARDS;
}

uint64_t stat_read(const struct stats *stats, enum stat_id stat)
{
	uint64_t sum = 0;

	check((unsigned)stat < STAT_COUNT);
	for (unsigned i = 0; i < STAT_SHARDS; i++)
		sum += atomic_load_explicit(&stats->shard[i].value[stat], memory_order_relaxed);
	return sum;
}

const char *stat_name(enum stat_id stat)
{
	check((unsigned)stat < STAT_COUNT);
	return names[stat];
}
