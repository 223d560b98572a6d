/*
 * States that were judged, by a hash of their bytes, with a hash of what recovery found
 * in them (INV-EXPLORE-2).  Open addressing in memory that forked processes share: an
 * entry's key is claimed first and its value follows, so a value of 0 is "not yet".
 * A full neighbourhood forgets the newcomer; then it is judged again.
 */
#include "tests/crash/explore.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SEEN_ENTRIES (1ull << 22)
#define PROBES_MAX 32u
#define BLOCK_BYTES 4096u

struct explore_seen {
	struct {
		_Atomic uint64_t state, contents;
	} entry[SEEN_ENTRIES];
};

struct explore_seen *explore_seen_new(void)
{
	struct explore_seen *seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE,
					 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	check(seen != MAP_FAILED);
	return seen;
}

void explore_seen_free(struct explore_seen *seen)
{
	munmap(seen, sizeof(*seen));
}

uint64_t explore_seen_find(struct explore_seen *seen, uint64_t state)
{
	for (uint64_t i = 0; i < PROBES_MAX; i++) {
		uint64_t at = (state + i) % SEEN_ENTRIES;
		uint64_t there = atomic_load_explicit(&seen->entry[at].state, memory_order_acquire);

		if (there == 0)
			return 0;
		if (there == state)
			return atomic_load_explicit(&seen->entry[at].contents,
						    memory_order_acquire);
	}
	return 0;
}

void explore_seen_add(struct explore_seen *seen, uint64_t state, uint64_t contents)
{
	check(state != 0 && contents != 0);
	for (uint64_t i = 0; i < PROBES_MAX; i++) {
		uint64_t at = (state + i) % SEEN_ENTRIES, free = 0;

		if (atomic_compare_exchange_strong(&seen->entry[at].state, &free, state) ||
		    free == state) {
			atomic_store_explicit(&seen->entry[at].contents, contents,
					      memory_order_release);
			return;
		}
	}
}

/* -------------------------------------------------------------------- hash */

static uint64_t block_hash(uint64_t number, const void *bytes)
{
	static const unsigned char zeros[BLOCK_BYTES];

	return explore_hash(bytes ? bytes : zeros, BLOCK_BYTES) * (2 * number + 1) ^
	       explore_hash(&number, sizeof(number));
}

/* A sum in which an equal block counts nothing, whether it is shared or not. */
static void add_block(void *arg, uint64_t number, const void *here, const void *there)
{
	*(uint64_t *)arg += block_hash(number, here) - block_hash(number, there);
}

uint64_t explore_state_hash(struct device *dev, struct device *base)
{
	uint64_t sum = 0;

	dev_memory_compare(dev, base, add_block, &sum);
	sum = explore_hash(&sum, sizeof(sum));
	return sum ? sum : 1;
}
