/*
 * Bytes for tests of devices: the same in each run.
 */
#ifndef BLINKFS_TESTS_DEV_RANDOM_H
#define BLINKFS_TESTS_DEV_RANDOM_H

#include <stddef.h>
#include <stdint.h>

static uint64_t random_state = 1;

static inline uint64_t random_below(uint64_t limit)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (random_state >> 33) % limit;
}

static inline void fill_random(void *buf, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((unsigned char *)buf)[i] = (unsigned char)random_below(256);
}

#endif
