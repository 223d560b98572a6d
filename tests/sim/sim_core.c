/*
 * The file system core on simulated surroundings: see world.h for what must hold.
 *
 *	sim_core                      a few seeds, and one of them twice
 *	sim_core SEED [OPERATIONS [lies]]   one run; prints its digest.  lies: flushes do
 *	                              nothing, and the run has to fail
 *	sim_core -m MINUTES [SEED [OPERATIONS]]   seeds from SEED on, for so long
 *
 * Each run is a process of its own, begun anew, so that nothing but the seed goes
 * into it.
 */
#include "engine/base/message.h"
#include "tests/lib/scratch.h"
#include "tests/sim/world.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OPERATIONS 20000u
#define SHORT_OPERATIONS 4000u
#define SHORT_SEEDS 12u

/* --- one run ------------------------------------------------------------------ */

static char replay[128];

/* Whatever ends the program too early: how to have it again. */
static void say_replay(int signal_number)
{
	ssize_t ignored = write(STDERR_FILENO, replay, strlen(replay));

	(void)ignored;
	signal(signal_number, SIG_DFL);
	raise(signal_number);
}

static int run(uint64_t seed, uint64_t operations, bool lying_disk)
{
	struct tally t;
	uint64_t digest;

	snprintf(replay, sizeof(replay), "again: make sim SEED=%" PRIu64 " OPS=%" PRIu64 "\n", seed,
		 operations);
	signal(SIGABRT, say_replay);
	signal(SIGSEGV, say_replay);
	message_quiet(getenv("SIM_VERBOSE") ? LOG_DEBUG : LOG_EMERG);
	digest = world_run(seed, operations, lying_disk, getenv("SIM_VERBOSE") != NULL, &t);
	printf("%" PRIu64 ": digest %016" PRIx64 ", %" PRIu64 " operations, %" PRIu64
	       " lives, %" PRIu64 " cuts, %" PRIu64 " deaths, %" PRIu64 " failures, %" PRIu64
	       " errors, %" PRIu64 " full, %" PRIu64 " opens failed, %" PRIu64
	       " contests\n", seed, digest,
	       t.operations, t.lives, t.cuts, t.deaths, t.failures, t.errors, t.full,
	       t.opens_failed, t.contests);
	for (unsigned i = 0; getenv("SIM_VERBOSE") && i < STAT_COUNT; i++)
		fprintf(stderr, "%24s %" PRIu64 "\n", stat_name((enum stat_id)i), t.stat[i]);
	return 0;
}

/* --- several ------------------------------------------------------------------ */

/* Its line of output; false: it failed. */
static bool run_apart(uint64_t seed, uint64_t operations, const char *more, char *line,
		      size_t room)
{
	char command[256];
	FILE *output;

	snprintf(command, sizeof(command), "exec /proc/%d/exe %" PRIu64 " %" PRIu64 " %s",
		 (int)getpid(), seed, operations, more);
	output = popen(command, "r");
	check(output);
	if (!fgets(line, (int)room, output))
		line[0] = '\0';
	return pclose(output) == 0 && line[0];
}

/* Does it notice what it is there to notice? */
static bool notices_lies(void)
{
	char line[512];

	for (uint64_t seed = 1; seed <= SHORT_SEEDS; seed++)
		if (!run_apart(seed, SHORT_OPERATIONS, "lies 2>/dev/null", line, sizeof(line)))
			return true;
	fprintf(stderr, "a disk that lies about flushes goes unnoticed\n");
	return false;
}

static int run_short(void)
{
	char line[512], again[512];
	unsigned failed = !notices_lies();

	for (uint64_t seed = 1; seed <= SHORT_SEEDS * test_scale(); seed++) {
		if (!run_apart(seed, SHORT_OPERATIONS, "", line, sizeof(line))) {
			failed++;
			continue;
		}
		fputs(line, stdout);
		if (seed % SHORT_SEEDS)
			continue;
		/* INV-SIM-1; what was never written to must not matter either. */
		setenv("MALLOC_PERTURB_", "165", 1);
		if (!run_apart(seed, SHORT_OPERATIONS, "", again, sizeof(again)) ||
		    strcmp(line, again)) {
			fprintf(stderr, "not the same run:\n%s%s", line, again);
			failed++;
		}
		unsetenv("MALLOC_PERTURB_");
	}
	return failed ? 1 : 0;
}

static int run_for(uint64_t minutes, uint64_t seed, uint64_t operations)
{
	time_t end = time(NULL) + (time_t)(60 * minutes);
	uint64_t first = seed, failed = 0, done = 0, operations_done;
	char line[512];

	for (; time(NULL) < end; seed++) {
		if (!run_apart(seed, operations, "", line, sizeof(line))) {
			failed++;
			printf("seed %" PRIu64 " fails\n", seed);
			fflush(stdout);
		} else if (sscanf(line, "%*u: digest %*x, %" SCNu64, &operations_done) == 1) {
			done += operations_done;
		}
	}
	printf("seeds %" PRIu64 " to %" PRIu64 ", %" PRIu64 " operations: %" PRIu64 " failed\n",
	       first, seed - 1, done, failed);
	return failed ? 1 : 0;
}

static uint64_t number(int argc, char **argv, int i, uint64_t otherwise)
{
	return i < argc ? strtoull(argv[i], NULL, 0) : otherwise;
}

int main(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "-m") == 0)
		return run_for(number(argc, argv, 2, 1), number(argc, argv, 3, 1),
			       number(argc, argv, 4, OPERATIONS));
	if (argc > 1)
		return run(number(argc, argv, 1, 1), number(argc, argv, 2, OPERATIONS),
			   argc > 3 && strcmp(argv[3], "lies") == 0);
	return run_short();
}
