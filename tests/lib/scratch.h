/* Volumes in memory for tests. */
#ifndef BLINKFS_TESTS_SCRATCH_H
#define BLINKFS_TESTS_SCRATCH_H

#include "engine/volume.h"

/* Small enough for hundreds of thousands of crash states. */
#define SCRATCH_BYTES (4u << 20)
#define SCRATCH_PAGE 4096u
#define SCRATCH_LOG (512u << 10)
#define SCRATCH_CACHE (2u << 20)

/* Any failure of these ends the program with a message: they are not what is tested. */
struct device *scratch_format(uint64_t size_bytes, uint32_t page_size, uint64_t log_bytes);
struct volume *scratch_open(struct device *dev, bool background);
struct volume *scratch_volume(void); /* all of the sizes above, no background threads */
/* A device over `inner` that a volume may own and close: inner outlives it. */
struct device *scratch_keep(struct device *inner);
/* The same, as a file of that size which may be extended as far as the inner one goes. */
struct device *scratch_keep_file(struct device *inner, uint64_t size_bytes);
/* Called with each discard of such a device, before it is done. */
void scratch_watch_discards(struct device *kept,
			    void (*fn)(void *arg, uint64_t offset, uint64_t len), void *arg);
/* Checks the volume; prints each problem; returns their number. */
uint64_t scratch_problems(struct volume *volume);
/* Ends the volume as a dead process would; returns the device as it is then. */
struct device *scratch_crash(struct volume *volume);

/* A small seeded generator: the same numbers for the same seed everywhere. */
static inline uint64_t random_next(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* TEST_SCALE of the environment: how much longer than usual a test should run. */
unsigned test_scale(void);

#endif
