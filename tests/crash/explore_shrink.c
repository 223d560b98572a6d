/*
 * Making a failure small: statements are dropped as long as the rest still fails, then the
 * simplest cut that fails is looked for.  Each try is a process of its own, so that a
 * program that dies is a failure like any other.
 */
#include "tests/crash/explore.h"

#include "tests/lib/script.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRY_SECONDS 900u /* a program that waits for ever has failed */

struct shared {
	struct explore_place place;
	struct explore_totals totals;
};

/* false: it fails, and shared->place says where. */
static bool try_text(const struct explorer *x, struct shared *shared, const char *text)
{
	int status;
	pid_t child;

	memset(&shared->place, 0, sizeof(shared->place));
	child = fork();
	check(child >= 0);
	if (child == 0) {
		struct explorer own = *x;

		own.place = &shared->place;
		own.totals = &shared->totals;
		own.seen = NULL;
		own.thorough = true;
		own.simple_first = true;
		check(freopen("/dev/null", "w", stderr) != NULL);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(TRY_SECONDS);
		_exit(explore_workload(&own, text) ? 0 : 1);
	}
	check(waitpid(child, &status, 0) == child);
	if (WIFSIGNALED(status))
		snprintf(shared->place.what, sizeof(shared->place.what), "the program dies: %s",
			 strsignal(WTERMSIG(status)));
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void without(const struct script *script, unsigned left_out, char text[EXPLORE_TEXT_MAX])
{
	FILE *out = fmemopen(text, EXPLORE_TEXT_MAX, "w");
	const char *between = "";

	check(out != NULL);
	for (unsigned i = 0; i < script->count; i++) {
		if (i == left_out)
			continue;
		fprintf(out, "%s%s", between, script->statement[i]);
		between = "; ";
	}
	check(fclose(out) == 0);
}

/* One statement less, or false. */
static bool drop_one(const struct explorer *x, struct shared *shared, struct explore_place *best)
{
	struct script script;
	bool smaller = false;

	script_parse(&script, best->workload);
	for (unsigned i = 0; i < script.count && script.count > 1 && !smaller; i++) {
		char text[EXPLORE_TEXT_MAX];

		without(&script, i, text);
		smaller = !try_text(x, shared, text);
		if (smaller)
			*best = shared->place;
	}
	script_free(&script);
	return smaller;
}

static void print(const struct explorer *x, const char *program, const struct explore_place *place)
{
	const char *log = x->medium.pmem ? "mapped"
			  : x->medium.log_mode == LOG_MODE_DSYNC ? "dsync" : NULL;

	fprintf(stderr, "crash_explore: %s\n  after: %s\n  then: %s\n  replay: %s",
		place->what, explore_setup, place->workload, program);
	if (log)
		fprintf(stderr, " --log %s", log);
	fprintf(stderr, " --replay '%s'", place->workload);
	for (unsigned i = 0; i < place->cuts; i++)
		fprintf(stderr, "%s%zu:%s:%llu", i ? "," : " --cut ", place->cut[i].event,
			explore_mode_name(place->cut[i].mode),
			(unsigned long long)place->cut[i].seed);
	fprintf(stderr, "\n");
	if (place->cuts > 0)
		fprintf(stderr, "  cut before event %zu of %zu\n", place->cut[0].event,
			place->events);
}

void explore_shrink(const struct explorer *x, const char *program)
{
	struct explore_place best = *x->place;
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	check(shared != MAP_FAILED);
	if (try_text(x, shared, best.workload))
		fprintf(stderr, "crash_explore: not so when tried by itself:\n");
	else
		best = shared->place;
	while (drop_one(x, shared, &best))
		;
	print(x, program, &best);
	munmap(shared, sizeof(*shared));
}
