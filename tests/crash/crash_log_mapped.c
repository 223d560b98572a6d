/*
 * Power cuts under a mapped log: any subset of the lines that were not persisted,
 * each as it was at some time.  Byte-addressable, where log and data become
 * durable by different means, and written back by pages, where one flush does
 * both.  What is verified stands in log_life.h.
 *
 *	crash_log_mapped [SEED]    one workload a kind; else several, TEST_SCALE times as many
 */
#include "tests/crash/log_life.h"

#include <stdlib.h>

static const struct life_kind kinds[] = {
	{.name = "mapped, pmem", .mode = LOG_MODE_MAPPED, .block = 64, .pmem = true},
	{.name = "mapped, pages", .mode = LOG_MODE_MAPPED, .block = 512},
};

int main(int argc, char **argv)
{
	const char *scale = getenv("TEST_SCALE");
	uint64_t count = scale ? strtoull(scale, NULL, 10) : 1;

	for (unsigned kind = 0; kind < array_count(kinds); kind++) {
		if (argc > 1)
			life_run(&kinds[kind], strtoull(argv[1], NULL, 10));
		for (uint64_t workload = 1; argc == 1 && workload <= count; workload++)
			life_run(&kinds[kind], workload);
	}
	return 0;
}
