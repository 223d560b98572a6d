/*
 * The crash explorer: see explore.h.
 *
 *	crash_explore                       operations alone, a sample of longer ones
 *	crash_explore --long                what `make crash-all` runs; hours
 *	crash_explore --length N --from I --to K   workloads of one length by number
 *	crash_explore --list ...            the same, only their texts
 *	crash_explore --replay TEXT [--cut EVENT:MODE:SEED[,...]]
 *	                                    one workload; one state of it
 *
 *	--jobs N         processes (default 1)
 *	--progress FILE  slices that are done, to go on from after an interruption
 *	--log pwrite|dsync|mapped   how the log gets to its medium
 *	--thorough       in those of length 1 every cut, recovery at the start as well
 */
#include "tests/crash/explore.h"

#include "engine/base/message.h"
#include "tests/lib/scratch.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In about half, and a quarter, of these numbers each operation has something to do. */
#define LONG_PAIRS 110000u
#define LONG_TRIPLES 20000u
/* Seconds; a sanitized program takes seven times as long. */
#ifdef __SANITIZE_ADDRESS__
#define SHORT_SHARE 6u
#else
#define SHORT_SHARE 1u
#endif
#define SHORT_SINGLES (480u / SHORT_SHARE)
#define SHORT_PAIRS (120u / SHORT_SHARE)
#define SHORT_TRIPLES (36u / SHORT_SHARE)
#define SHORT_MAPPED (48u / SHORT_SHARE)

static const char usage[] =
	"usage: crash_explore [--long | --length N --from I --to K [--list]] [--jobs N]\n"
	"                     [--progress FILE] [--log pwrite|dsync|mapped] [--thorough]\n"
	"       crash_explore [--log pwrite|dsync|mapped] --replay TEXT\n"
	"                     [--cut EVENT:MODE:SEED[,...]]\n";

struct arguments {
	struct crash_medium medium;
	const char *replay, *cut, *progress;
	uint64_t from, to;
	unsigned length, jobs;
	bool whole, list, thorough;
};

static bool number(const char *text, uint64_t *out)
{
	char *end;

	*out = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && *end == '\0';
}

static bool set_medium(struct crash_medium *medium, const char *text)
{
	*medium = (struct crash_medium){.log_mode = LOG_MODE_AUTO};
	if (strcmp(text, "pwrite") == 0)
		return true;
	if (strcmp(text, "dsync") == 0)
		medium->log_mode = LOG_MODE_DSYNC;
	else if (strcmp(text, "mapped") == 0)
		*medium = (struct crash_medium){.log_mode = LOG_MODE_MAPPED, .pmem = true};
	else
		return false;
	return true;
}

static bool parse(struct arguments *a, int argc, char **argv)
{
	static const struct option options[] = {
		{"long", no_argument, NULL, 'a'},          {"length", required_argument, NULL, 'n'},
		{"from", required_argument, NULL, 'f'},    {"to", required_argument, NULL, 't'},
		{"list", no_argument, NULL, 'l'},          {"jobs", required_argument, NULL, 'j'},
		{"progress", required_argument, NULL, 'p'}, {"log", required_argument, NULL, 'm'},
		{"thorough", no_argument, NULL, 'x'},      {"replay", required_argument, NULL, 'r'},
		{"cut", required_argument, NULL, 'c'},     {NULL, 0, NULL, 0},
	};
	uint64_t n;
	int option;

	*a = (struct arguments){.jobs = 1};
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		bool good = true;

		switch (option) {
		case 'a': a->whole = true; break;
		case 'l': a->list = true; break;
		case 'x': a->thorough = true; break;
		case 'r': a->replay = optarg; break;
		case 'c': a->cut = optarg; break;
		case 'p': a->progress = optarg; break;
		case 'm': good = set_medium(&a->medium, optarg); break;
		case 'f': good = number(optarg, &a->from); break;
		case 't': good = number(optarg, &a->to); break;
		case 'n':
			good = number(optarg, &n) && n > 0 && n <= EXPLORE_OPERATIONS_MAX;
			a->length = good ? (unsigned)n : 0;
			break;
		case 'j':
			good = number(optarg, &n) && n > 0 && n <= 64;
			a->jobs = good ? (unsigned)n : 1;
			break;
		default: good = false;
		}
		if (!good)
			return false;
	}
	if (a->length && (a->to == 0 || a->to > explore_count(a->length)))
		a->to = explore_count(a->length);
	return optind == argc && !(a->cut && !a->replay) && !(a->list && !a->length) &&
	       a->from <= a->to;
}

static int list(const struct arguments *a)
{
	for (uint64_t n = a->from; n < a->to; n++) {
		char text[EXPLORE_TEXT_MAX];

		explore_text(a->length, n, text);
		puts(text);
	}
	return 0;
}

/* Everything about a failure, and its shorter form. */
static int replay(struct explorer *x, const struct arguments *a, const char *program)
{
	struct explore_cut cut[EXPLORE_CUTS_MAX];
	struct explore_totals totals = {0};
	struct explore_place place = {.busy = false};
	unsigned cuts = 0;
	bool good;

	for (const char *at = a->cut; at && *at; at += *at == ',') {
		if (cuts == EXPLORE_CUTS_MAX || !explore_cut_parse(&cut[cuts++], at, &at))
			return fputs(usage, stderr), 2;
	}
	if (strlen(a->replay) >= EXPLORE_TEXT_MAX)
		return fprintf(stderr, "crash_explore: a workload has at most %u characters\n",
			       EXPLORE_TEXT_MAX - 1), 2;
	x->totals = &totals;
	x->place = &place;
	x->show = true;
	x->thorough = true;
	good = cuts ? explore_one(x, a->replay, cut, cuts) : explore_workload(x, a->replay);
	printf("crash_explore: %" PRIu64 " states, %" PRIu64 " of them distinct, %zu events\n",
	       totals.states, totals.distinct, place.events);
	if (!good && cuts)
		fprintf(stderr, "crash_explore: %s\n", place.what);
	if (!good && !cuts)
		explore_shrink(x, program);
	return !good;
}

/* One explorer, of one medium. */
static int run_parts(const struct arguments *a, const struct explore_part *part, unsigned parts,
		     const char *program)
{
	const struct explore_slices slices = {
		.part = part,
		.parts = parts,
		.jobs = a->jobs,
		.progress_path = a->progress,
		.program = program,
	};
	struct explorer x;
	int rc;

	explorer_init(&x, &a->medium);
	x.thorough = a->thorough || a->whole;
	if (a->replay) {
		rc = replay(&x, a, program);
	} else {
		x.seen = explore_seen_new();
		rc = explore_slices_run(&x, &slices);
		explore_seen_free(x.seen);
	}
	explorer_end(&x);
	return rc;
}

static int run_short(struct arguments *a, const char *program)
{
	const unsigned scale = test_scale();
	const struct explore_part part[] = {
		{1, 0, scale > 1 ? explore_count(1) : SHORT_SINGLES},
		{2, 0, (uint64_t)SHORT_PAIRS * scale},
		{3, 0, (uint64_t)SHORT_TRIPLES * scale},
	};
	const struct explore_part mapped[] = {{1, 0, SHORT_MAPPED * (scale < 10 ? scale : 10)}};
	int rc = run_parts(a, part, 3, program);

	if (rc)
		return rc;
	check(set_medium(&a->medium, "mapped"));
	return run_parts(a, mapped, 1, program);
}

/* Other media than the usual one: the shortest, and fewer of the others. */
static int run_long(struct arguments *a, const char *program)
{
	const unsigned share = a->medium.log_mode == LOG_MODE_AUTO ? 1 : 10;
	const struct explore_part part[] = {
		{1, 0, explore_count(1)}, {2, 0, LONG_PAIRS / share}, {3, 0, LONG_TRIPLES / share}};

	return run_parts(a, part, 3, program);
}

int main(int argc, char **argv)
{
	struct explore_part given;
	struct arguments a;

	message_quiet(LOG_CRIT);
	if (!parse(&a, argc, argv))
		return fputs(usage, stderr), 2;
	if (a.list)
		return list(&a);
	if (a.whole)
		return run_long(&a, argv[0]);
	if (!a.length && !a.replay)
		return run_short(&a, argv[0]);
	given = (struct explore_part){a.length, a.from, a.to};
	return run_parts(&a, &given, 1, argv[0]);
}
