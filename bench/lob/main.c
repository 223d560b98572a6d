/*
 * What the five measures for large objects bring, each alone and together.
 *
 *	lob_bench FOLDER        the volume and lob.json go there
 *
 * ROUNDS        5
 * DURATION_MS   250, of each run
 * THREADS       32
 * MODE          direct; "cached": data is copied to the kernel's cache and no more
 * SETTINGS      all; "two": only none and all of the measures
 *
 * A round runs each operation with each setting, the settings one after the
 * other, so that whatever else the machine does meets all of them.  A ratio is
 * the median of the rounds' ratios, a rate the median of the rates.
 */
#include "bench/lob/bench.h"

#include "engine/base/message.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

noreturn void die(const char *what, int error)
{
	fprintf(stderr, "lob_bench: %s: %s\n", what, error_text(error));
	exit(1);
}

static unsigned switches_of(unsigned setting)
{
	if (setting == SETTING_NONE)
		return 0;
	if (setting == SETTING_ALL)
		return ALL_ON;
	if (setting < SETTING_BUT)
		return 1u << (setting - SETTING_ALONE);
	return ALL_ON & ~(1u << (setting - SETTING_BUT));
}

static unsigned from_environment(const char *name, unsigned otherwise, unsigned most)
{
	const char *text = getenv(name);
	unsigned long value = text ? strtoul(text, NULL, 10) : otherwise;

	if (value == 0 || value > most) {
		fprintf(stderr, "lob_bench: %s must be 1 to %u\n", name, most);
		exit(2);
	}
	return (unsigned)value;
}

int main(int argc, char **argv)
{
	static struct results results;
	const char *which = getenv("SETTINGS");
	unsigned settings = which && strcmp(which, "two") == 0 ? SETTING_ALONE : SETTINGS;
	struct load *load;

	if (argc != 2) {
		fprintf(stderr, "usage: lob_bench FOLDER\n");
		return 2;
	}
	message_quiet(LOG_ERR);
	results.rounds = from_environment("ROUNDS", 5, ROUNDS_MOST);
	results.duration_ms = from_environment("DURATION_MS", 250, 60000);
	results.threads = from_environment("THREADS", 32, THREADS_MOST);
	results.direct = !getenv("MODE") || strcmp(getenv("MODE"), "cached") != 0;
	load = load_open(argv[1], results.threads, results.direct);
	for (unsigned round = 0; round < results.rounds; round++)
		for (unsigned operation = 0; operation < OPERATIONS; operation++)
			for (unsigned setting = 0; setting < settings; setting++)
				results.at[setting][operation][round] =
					load_run(load, (enum operation)operation,
						 switches_of(setting), results.duration_ms);
	report(&results, argv[1]);
	load_close(load);
	return 0;
}
