/*
 * Power cuts under a log that is written in groups: pwrite and direct, where one
 * flush covers log and data, and dsync, where data has a flush of its own, before
 * or after the log is durable.  What is verified stands in log_life.h.
 *
 *	crash_log [SEED]    one workload a kind; else several, TEST_SCALE times as many
 */
#include "tests/crash/log_life.h"

#include <stdlib.h>

static const struct life_kind kinds[] = {
	{.name = "pwrite", .mode = LOG_MODE_PWRITE, .block = 512},
	{.name = "pwrite, small blocks", .mode = LOG_MODE_PWRITE, .block = 64},
	{.name = "direct", .mode = LOG_MODE_DIRECT, .block = 512},
	{.name = "dsync", .mode = LOG_MODE_DSYNC, .block = 512},
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
