/*
 * Counters, sharded by thread so that counting never bounces a cache line
 * between cores; a reader adds the shards up.
 */
#ifndef BLINKFS_BASE_STATS_H
#define BLINKFS_BASE_STATS_H

#include <stdatomic.h>
#include <stdint.h>

enum stat_id {
#define X(name) STAT_##name,
#include "engine/base/stats.def"
#undef X
	STAT_COUNT
};

#define STAT_SHARDS 16

struct stats {
	struct {
		_Alignas(64) _Atomic uint64_t value[STAT_COUNT];
	} shard[STAT_SHARDS];
};

unsigned stats_thread(void); /* number of the calling thread; threads get them in turn */
unsigned stats_shard(void);  /* the same, < STAT_SHARDS */

static inline void stat_add(struct stats *stats, enum stat_id stat, uint64_t n)
{
	atomic_fetch_add_explicit(&stats->shard[stats_shard()].value[stat], n,
				  memory_order_relaxed);
}

uint64_t stat_read(const struct stats *stats, enum stat_id stat);
const char *stat_name(enum stat_id stat);

#endif
