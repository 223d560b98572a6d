/*
 * One workload: run once on a recording device beside the model, then each planned cut's
 * state is judged.
 *
 * A state must mount; show what the model allows from the last sync on that had returned
 * before the cut; pass fsck's walk; go on working, and be whole after that.  The states
 * of some recoveries, each cut short as well, must show the same, twice over.
 */
#include "tests/crash/explore.h"

#include "tests/lib/scratch.h"
#include "tests/lib/script.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECOVERY_EVENTS 8u /* of a recovery that are cut */

/* --------------------------------------------- a clock that stands still */

static struct timespec still_realtime(const struct os *os)
{
	(void)os;
	return (struct timespec){.tv_sec = 1700000000, .tv_nsec = 5};
}

static void still_random(const struct os *os, void *buf, size_t len)
{
	(void)os;
	memset(buf, 0x5a, len);
}

/* A mapped log shows each entry on its way, as it would be if the power failed between two. */
static void look(const struct os *os, const char *name)
{
	struct device *dev = ((struct explorer *)os->priv)->looked_at;

	if (dev && strcmp(name, "log:copied") == 0)
		dev_record_look(dev);
}

static struct os still_os;

void explorer_init(struct explorer *x, const struct crash_medium *medium)
{
	*x = (struct explorer){.medium = *medium, .recovery_every = 61};
	still_os = os_linux;
	still_os.realtime = still_realtime;
	still_os.random_bytes = still_random;
	still_os.point = look;
	still_os.priv = x;
	os_set_current(&still_os);
	x->base = crash_prepare(explore_setup, medium);
	dev_record_start(x->base);
}

void explorer_end(struct explorer *x)
{
	dev_close(x->base);
}

/* ------------------------------------------------------------------ a run */

struct run {
	struct explorer *x;
	struct explore_model model;
	struct script script;
	struct device *dev;    /* owned by volume */
	struct volume *volume;
	struct core *core;
	size_t opened;         /* the first event after recovery */
	size_t durable_at[SCRIPT_STATEMENTS_MAX]; /* of each statement; SIZE_MAX: it is no sync */
	unsigned oldest;       /* state that is allowed at the present cut */
};

static bool wrong(struct run *run, const char *what)
{
	snprintf(run->x->place->what, sizeof(run->x->place->what), "%s", what);
	return false;
}

static void show(const struct run *run, const char *found)
{
	if (!run->x->show)
		return;
	fprintf(stderr, "found:\n%s", found ? found : "nothing\n");
	for (unsigned i = run->oldest; i < run->model.count; i++)
		fprintf(stderr, "allowed, state %u:\n%s", i, run->model.state[i].text);
}

static uint64_t hash_of(const char *snapshot)
{
	return explore_hash(snapshot, strlen(snapshot));
}

/* The statement's result, and what can be seen after it, without any crash. */
static bool judge_live(struct run *run, unsigned i, int rc)
{
	char what[256];
	char *found;
	bool same;

	if (rc != run->model.result[i]) {
		snprintf(what, sizeof(what), "'%s' is %d, the model says %d",
			 run->script.statement[i], rc, run->model.result[i]);
		return wrong(run, what);
	}
	run->oldest = run->model.reached[i];
	found = core_snapshot(run->core);
	same = found && hash_of(found) == run->model.state[run->oldest].hash;
	if (!same)
		show(run, found);
	free(found);
	snprintf(what, sizeof(what), "after '%s' the files are not as the model's",
		 run->script.statement[i]);
	return same || wrong(run, what);
}

static bool record(struct run *run)
{
	bool good = true;

	check(dev_record_cut(run->x->base, 0, &run->dev) == 0);
	dev_record_start(run->dev);
	if (crash_open(run->dev, &run->x->medium, &run->volume, &run->core))
		return wrong(run, "the volume does not mount at the start");
	run->opened = dev_record_count(run->dev);
	still_os.priv = run->x;
	run->x->looked_at = run->x->medium.pmem ? run->dev : NULL;
	for (unsigned i = 0; i < run->script.count && good; i++) {
		const char *statement = run->script.statement[i];
		int rc = script_run(run->core, statement);

		run->durable_at[i] = rc == 0 && script_is_sync(statement)
					     ? dev_record_count(run->dev) : SIZE_MAX;
		good = judge_live(run, i, rc);
	}
	/* Write everything back, so that cuts in that are tried as well. */
	if (good && script_run(run->core, "flush"))
		good = wrong(run, "the volume cannot be written back");
	run->x->looked_at = NULL;
	dev_record_stop(run->dev);
	run->x->place->events = dev_record_count(run->dev);
	return good;
}

/* --------------------------------------------------------------- judging */

static void find_oldest(struct run *run, size_t event)
{
	run->oldest = 0;
	for (unsigned i = 0; i < run->model.statements; i++)
		if (run->durable_at[i] <= event)
			run->oldest = run->model.reached[i];
}

static bool judge_contents(struct run *run, uint64_t found)
{
	for (unsigned i = run->model.count; i-- > 0;)
		if (run->model.state[i].hash == found)
			return i >= run->oldest || wrong(run, "what was durable is lost");
	return wrong(run, "not a state between two operations");
}

static bool judge(struct run *run, struct device *dev, unsigned depth);

/* At some of the events that recovery caused; dev holds them. */
static bool cut_recovery(struct run *run, struct device *dev, unsigned depth)
{
	struct explore_place *place = run->x->place;
	size_t count = dev_record_count(dev);
	size_t step = 1 + count / RECOVERY_EVENTS;
	bool good = true;

	for (size_t event = depth % step; event <= count && good; event += step) {
		static const enum dev_cut_mode modes[] = {CUT_PREFIX, CUT_SUBSET, CUT_TORN};

		for (unsigned m = 0; m < array_count(modes) && good; m++) {
			struct explore_cut cut = {event, modes[m], event * 11 + depth};
			struct device *again;
			bool varies;

			check(dev_record_state(dev, event, cut.mode, cut.seed, &again, &varies) ==
			      0);
			if (!varies) {
				dev_close(again);
				continue;
			}
			atomic_fetch_add(&run->x->totals->recovery_cuts, 1);
			place->cut[depth] = cut;
			place->cuts = depth + 1;
			good = judge(run, again, depth);
		}
	}
	if (good)
		place->cuts = depth;
	return good;
}

static bool judge_open(struct run *run, struct volume *volume, struct core *core,
		       uint64_t *contents)
{
	char *found = core_snapshot(core);
	const char *what = NULL;
	bool good;

	if (found == NULL)
		return wrong(run, "something cannot be read");
	*contents = hash_of(found);
	good = judge_contents(run, *contents);
	if (!good)
		show(run, found);
	free(found);
	if (good)
		what = crash_fsck_open(volume);
	if (good && !what)
		what = crash_go_on(volume, core);
	return what ? wrong(run, what) : good;
}

/* Takes over dev.  depth: so many cuts have led to it, the first one not counted. */
static bool judge(struct run *run, struct device *dev, unsigned depth)
{
	struct explorer *x = run->x;
	uint64_t state = explore_state_hash(dev, x->base);
	uint64_t contents = x->seen ? explore_seen_find(x->seen, state) : 0;
	bool cuts = depth + 1 < EXPLORE_CUTS_MAX && x->recovery_every > 0 &&
		    state % x->recovery_every == 0;
	struct volume *volume;
	struct core *core;
	bool good;

	atomic_fetch_add(&x->totals->states, 1);
	if (contents) {
		dev_close(dev);
		return judge_contents(run, contents);
	}
	atomic_fetch_add(&x->totals->distinct, 1);
	if (cuts)
		dev_record_start(dev);
	if (crash_open(dev, &x->medium, &volume, &core))
		return wrong(run, "does not mount");
	if (cuts)
		dev_record_stop(dev);
	good = judge_open(run, volume, core, &contents);
	if (good && cuts)
		good = cut_recovery(run, dev, depth + 1);
	crash_abandon(volume, core);
	if (good && x->seen)
		explore_seen_add(x->seen, state, contents);
	return good;
}

/* ---------------------------------------------------------------- a workload */

static bool judge_cut(struct run *run, const struct explore_cut *cut)
{
	struct explore_place *place = run->x->place;
	struct device *dev;
	bool varies;

	check(dev_record_state(run->dev, cut->event, cut->mode, cut->seed, &dev, &varies) == 0);
	if (!varies) {
		dev_close(dev);
		return true;
	}
	place->cut[0] = *cut;
	place->cuts = 1;
	find_oldest(run, cut->event);
	return judge(run, dev, 0);
}

static bool try_cuts(struct run *run)
{
	struct explore_plan plan;
	bool good = true;

	explore_plan_make(&plan, run->dev, run->x->thorough ? 0 : run->opened, run->x->thorough);
	if (run->x->simple_first)
		explore_plan_sort_simple(&plan);
	for (size_t i = 0; i < plan.count && good; i++)
		good = judge_cut(run, &plan.cut[i]);
	explore_plan_free(&plan);
	return good;
}

static bool begin(struct run *run, struct explorer *x, const char *text)
{
	bool good;

	*run = (struct run){.x = x};
	snprintf(x->place->workload, sizeof(x->place->workload), "%s", text);
	x->place->cuts = 0;
	x->place->events = 0;
	x->place->what[0] = '\0';
	x->place->busy = true;
	if (!explore_model_run(&run->model, text))
		return wrong(run, "the model does not know a statement of it");
	script_parse(&run->script, text);
	good = record(run);
	atomic_fetch_add(&x->totals->workloads, 1);
	return good;
}

static void end(struct run *run)
{
	if (run->volume)
		crash_abandon(run->volume, run->core);
	script_free(&run->script);
	explore_model_free(&run->model);
	run->x->place->busy = false;
}

bool explore_workload(struct explorer *x, const char *text)
{
	struct run run;
	bool good = begin(&run, x, text) && try_cuts(&run);

	end(&run);
	return good;
}

/* The cuts of a recovery are found by going through it again. */
static bool judge_cuts(struct run *run, const struct explore_cut *cut, unsigned cuts)
{
	struct device *dev;
	bool good, varies;

	find_oldest(run, cut[0].event);
	check(dev_record_state(run->dev, cut[0].event, cut[0].mode, cut[0].seed, &dev, &varies) ==
	      0);
	for (unsigned i = 1; i < cuts; i++) {
		struct volume *volume;
		struct device *again;
		struct core *core;

		dev_record_start(dev);
		if (crash_open(dev, &run->x->medium, &volume, &core))
			return wrong(run, "does not mount");
		dev_record_stop(dev);
		if (cut[i].event > dev_record_count(dev))
			good = wrong(run, "the recovery does not have so many events");
		else
			good = dev_record_state(dev, cut[i].event, cut[i].mode, cut[i].seed, &again,
						&varies) == 0;
		crash_abandon(volume, core);
		if (!good)
			return false;
		dev = again;
	}
	memcpy(run->x->place->cut, cut, cuts * sizeof(*cut));
	run->x->place->cuts = cuts;
	return judge(run, dev, EXPLORE_CUTS_MAX);
}

bool explore_one(struct explorer *x, const char *text, const struct explore_cut *cut,
		 unsigned cuts)
{
	struct run run;
	bool good = begin(&run, x, text);

	if (good && cut[0].event > dev_record_count(run.dev))
		good = wrong(&run, "the workload does not have so many events");
	good = good && judge_cuts(&run, cut, cuts);
	end(&run);
	return good;
}
