/*
 * Switches that may be set while the volume is open (tunables.def).  Whoever
 * asks decides once for what it is about to do, so a change in between does no
 * harm; nothing waits for one to take effect.
 */
#ifndef BLINKFS_ENGINE_TUNABLES_H
#define BLINKFS_ENGINE_TUNABLES_H

#include <stdatomic.h>
#include <stdbool.h>

enum tunable {
#define X(name, text) TUNABLE_##name,
#include "engine/tunables.def"
#undef X
	TUNABLE_COUNT
};

struct tunables {
	_Atomic bool on[TUNABLE_COUNT];
};

void tunables_init(struct tunables *tunables); /* all on */
const char *tunable_name(enum tunable tunable);
/* TUNABLE_COUNT: there is none of this name. */
enum tunable tunable_find(const char *name);

static inline bool tunable_is_on(const struct tunables *tunables, enum tunable tunable)
{
	return atomic_load_explicit(&tunables->on[tunable], memory_order_relaxed);
}

static inline void tunable_set(struct tunables *tunables, enum tunable tunable, bool on)
{
	atomic_store_explicit(&tunables->on[tunable], on, memory_order_relaxed);
}

#endif
