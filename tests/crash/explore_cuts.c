/*
 * Where the power is cut.
 *
 * Between two flushes there is a group of writes that a cut may lose.  Before each event:
 * all that was written so far, none of the group, and samples of the other modes, among
 * them the last write torn.  Where the group ends, or everywhere when thorough: each
 * single write missing, each alone, each torn at 512 bytes, and more subsets.
 */
#include "tests/crash/explore.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SINGLES_MAX 48u /* of a group: more, such as the lines of a map, are sampled evenly */
#define FEW_WRITES 4u   /* of these each is torn behind each of its first sectors */
#define SECTORS_MAX 9u
#define SUBSETS 3u      /* of a whole group, for each of the two modes */

static void add(struct explore_plan *plan, size_t event, enum dev_cut_mode mode, uint64_t seed)
{
	if (plan->count == plan->room) {
		plan->room = plan->room ? plan->room * 2 : 256;
		plan->cut = realloc(plan->cut, plan->room * sizeof(*plan->cut));
		check(plan->cut != NULL);
	}
	plan->cut[plan->count++] = (struct explore_cut){event, mode, seed};
}

static void add_whole_group(struct explore_plan *plan, size_t event, size_t undecided)
{
	size_t step = 1 + undecided / SINGLES_MAX;

	for (size_t i = 0; i < undecided; i += step) {
		add(plan, event, CUT_DROP_ONE, i);
		add(plan, event, CUT_KEEP_ONE, i);
		add(plan, event, CUT_TORN_ONE, i);
		/* Such as a group of the log: entries that arrived, and others that did not. */
		for (size_t k = 1; k <= SECTORS_MAX && undecided <= FEW_WRITES; k++)
			add(plan, event, CUT_TORN_ONE, i + k * undecided);
	}
	for (uint64_t seed = 0; seed < SUBSETS; seed++) {
		add(plan, event, CUT_SUBSET, event * 101 + seed);
		add(plan, event, CUT_TORN, event * 101 + seed);
	}
}

static void add_within_group(struct explore_plan *plan, size_t event, size_t undecided)
{
	add(plan, event, CUT_TORN_ONE, undecided - 1);
	add(plan, event, CUT_KEEP_ONE, undecided - 1);
	add(plan, event, CUT_DROP_ONE, event * 7 % undecided);
	add(plan, event, event % 2 ? CUT_TORN : CUT_SUBSET, event * 101);
}

void explore_plan_make(struct explore_plan *plan, struct device *dev, size_t first, bool thorough)
{
	size_t count = dev_record_count(dev);

	*plan = (struct explore_plan){0};
	for (size_t event = first; event <= count; event++) {
		size_t undecided = dev_record_undecided(dev, event);
		bool ends = event == count || dev_record_undecided(dev, event + 1) <= undecided;

		add(plan, event, CUT_PREFIX, 0);
		if (undecided == 0)
			continue;
		add(plan, event, CUT_DROP_ALL, 0);
		if (ends || thorough)
			add_whole_group(plan, event, undecided);
		else
			add_within_group(plan, event, undecided);
	}
}

void explore_plan_free(struct explore_plan *plan)
{
	free(plan->cut);
}

static int simplicity(const void *a, const void *b)
{
	static const int rank[] = {[CUT_PREFIX] = 0,   [CUT_DROP_ALL] = 1, [CUT_DROP_ONE] = 2,
				   [CUT_TORN_ONE] = 3, [CUT_KEEP_ONE] = 4, [CUT_SUBSET] = 5,
				   [CUT_TORN] = 6};
	const struct explore_cut *x = a, *y = b;

	if (x->mode != y->mode)
		return rank[x->mode] - rank[y->mode];
	if (x->event != y->event)
		return x->event < y->event ? -1 : 1;
	return x->seed < y->seed ? -1 : x->seed > y->seed;
}

void explore_plan_sort_simple(struct explore_plan *plan)
{
	qsort(plan->cut, plan->count, sizeof(*plan->cut), simplicity);
}

/* ------------------------------------------------------------------- text */

static const char *const mode_names[] = {
	[CUT_PREFIX] = "prefix",     [CUT_DROP_ALL] = "drop-all", [CUT_DROP_ONE] = "drop-one",
	[CUT_KEEP_ONE] = "keep-one", [CUT_SUBSET] = "subset",     [CUT_TORN] = "torn",
	[CUT_TORN_ONE] = "torn-one",
};

const char *explore_mode_name(enum dev_cut_mode mode)
{
	return mode_names[mode];
}

bool explore_cut_parse(struct explore_cut *cut, const char *text, const char **end)
{
	char mode[16];
	int at = 0;

	if (sscanf(text, "%zu:%15[a-z-]:%" SCNu64 "%n", &cut->event, mode, &cut->seed, &at) != 3)
		return false;
	*end = text + at;
	for (size_t i = 0; i < array_count(mode_names); i++) {
		if (strcmp(mode_names[i], mode) == 0) {
			cut->mode = (enum dev_cut_mode)i;
			return true;
		}
	}
	return false;
}
