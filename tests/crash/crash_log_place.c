/*
 * Power cuts where the log is not just a region that stays: on a device of its own,
 * while it is resized, while it is scrubbed.
 *
 * As crash_core.c: workloads run once on recorded devices, a snapshot is taken after
 * each statement, and then the power is cut before every event.  An external log is a
 * second device that loses its power at the same moment: of either, any of the
 * writes that were not flushed may be there, independently of the other.
 *
 * Each state must mount, show one of the snapshots, not older than the last
 * statement that had promised durability; pass the engine's check and that of fsck,
 * which also says that the blocks of the log belong to it and to nobody else; and
 * go on working, which includes another resize.  For some states the power is cut
 * again during recovery, which also finishes what a resize had left.
 *
 *	crash_log_place                 all kinds, a sample of the events of long ones
 *	TEST_SCALE=8 crash_log_place    all events
 */
#include "engine/base/message.h"
#include "tests/lib/crash_state.h"
#include "tests/lib/scratch.h"
#include "tests/lib/script.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define VOLUME_BYTES (10u << 20)
#define EXTERNAL_ROOM (4u << 20) /* the log's device is larger than the log */
#define STATES_AIM 160u          /* of one workload, about */

static const struct kind {
	const char *name;
	bool external, pmem, scrub;
	enum log_mode mode;
} kinds[] = {
	{"inside, pwrite", false, false, false, LOG_MODE_PWRITE},
	{"inside, dsync", false, false, true, LOG_MODE_DSYNC},
	{"inside, mapped", false, true, true, LOG_MODE_MAPPED},
	{"external, pwrite", true, false, true, LOG_MODE_PWRITE},
	{"external, direct", true, false, false, LOG_MODE_DIRECT},
	{"external, dsync", true, false, false, LOG_MODE_DSYNC},
	{"external, mapped", true, true, false, LOG_MODE_MAPPED},
	{"external, mapped by pages", true, false, false, LOG_MODE_MAPPED},
};

static const char set_up[] = "mkdir d; create a; write a 0 9000 1; create b; write b 0 300 2;"
			     "create d/c; write d/c 0 20000 3; sync";

static const char *const scripts[] = {
	/* the log as such */
	"write a 0 4096 15; append a 5000 13; sync; rename a f; write d/c 4000 9000 16; fsync d/c;"
	"unlink b; create n; write n 0 70000 12; sync; trunc d/c 5000; setx f user.n 900 3; flush;"
	"create o; write o 0 8000 5; sync",
	/* out of its home, larger in place, smaller in place, to another run, home again */
	"create n; resize 768; write n 0 9000 4; sync; create o; resize 1024; unlink a; sync;"
	"resize 800; create p; write p 0 5000 6; resize 1500; rename p q; sync; resize 512;"
	"create r; sync",
	/* with what it gives up being used at once */
	"resize 900; unlink d/c; resize 512; purge; sync; create x; write x 0 300000 7; sync;"
	"write x 0 300000 8; resize 640; write x 4096 4096 9; sync",
	/* the same size: nothing; too small: nothing; twice */
	"resize 512; resize 3; create s; resize 700; resize 700; write s 0 6000 1; sync",
	/* zeros behind the checkpoint */
	"create one; create two; unlink one; scrub; create three; sync; unlink two; scrub;"
	"write three 0 9000 5; scrub; create four; sync; scrub",
};

static uint64_t states, cuts_in_recovery;

struct pair {
	struct device *dev, *log; /* log: NULL where it is within the volume */
};

struct run {
	const struct kind *kind;
	const char *name;
	struct script script;
	struct pair at;
	struct volume *volume;
	struct core *core;
	char *snapshot[SCRIPT_STATEMENTS_MAX + 1];
	struct promise {
		bool made;
		size_t event, log_event;
	} promise[SCRIPT_STATEMENTS_MAX + 1];
};

struct place {
	size_t event, log_event;
	int variant;
	uint64_t seed;
};

static noreturn void fail(const struct run *run, const struct place *place, const char *what)
{
	fprintf(stderr,
		"crash_log_place: %s\n  %s: %s\n  cut before events %zu and %zu, variant %d, seed "
		"%" PRIu64 "\n",
		what, run->kind->name, run->name, place->event, place->log_event, place->variant,
		place->seed);
	exit(1);
}

/* --------------------------------------------------------------- devices */

static struct pair pair_format(const struct kind *kind)
{
	struct format_params params = {
		.size_bytes = VOLUME_BYTES,
		.page_size = SCRATCH_PAGE,
		.log_bytes = SCRATCH_LOG,
		.uuid = "scratch-volume!",
		.log_uuid = "scratch-its-log",
		.hash_seed = "scratch-hashseed",
	};
	struct pair pair = {0};

	check(dev_open_memory(&pair.dev, VOLUME_BYTES) == 0);
	if (kind->external)
		check(dev_open_memory(&pair.log, EXTERNAL_ROOM) == 0);
	if (kind->pmem)
		dev_memory_be_pmem(pair.log ? pair.log : pair.dev);
	params.log_dev = pair.log;
	check(volume_format(pair.dev, &params, NULL) == 0);
	return pair;
}

static void pair_record(struct pair pair)
{
	if (pair.log)
		dev_record_start_pair(pair.dev, pair.log);
	else
		dev_record_start(pair.dev);
}

static void pair_stop(struct pair pair)
{
	dev_record_stop(pair.dev);
	if (pair.log)
		dev_record_stop(pair.log);
}

static struct pair pair_end(struct pair pair)
{
	struct pair after = {0};

	check(dev_record_cut(pair.dev, dev_record_count(pair.dev), &after.dev) == 0);
	if (pair.log)
		check(dev_record_cut(pair.log, dev_record_count(pair.log), &after.log) == 0);
	return after;
}

static void pair_close(struct pair pair)
{
	dev_close(pair.log);
	dev_close(pair.dev);
}

/* What became of either device's undecided writes. */
static const enum dev_cut_mode variants[][2] = {
	{CUT_PREFIX, CUT_PREFIX},     {CUT_DROP_ALL, CUT_DROP_ALL}, {CUT_DROP_ALL, CUT_PREFIX},
	{CUT_PREFIX, CUT_DROP_ALL},   {CUT_SUBSET, CUT_SUBSET},     {CUT_TORN, CUT_TORN},
	{CUT_DROP_ONE, CUT_DROP_ONE}, {CUT_KEEP_ONE, CUT_KEEP_ONE},
};

/* False: nothing that the first variant does not give. */
static bool pair_state(struct pair pair, const struct place *place, struct pair *out)
{
	const enum dev_cut_mode *mode = variants[place->variant];
	bool varies = false, log_varies = false;

	*out = (struct pair){0};
	check(dev_record_state(pair.dev, place->event, mode[0], place->seed, &out->dev, &varies) ==
	      0);
	if (pair.log)
		check(dev_record_state(pair.log, place->log_event, mode[1], place->seed * 31 + 7,
				       &out->log, &log_varies) == 0);
	if (varies || log_varies)
		return true;
	pair_close(*out);
	return false;
}

/* ------------------------------------------------------------- recording */

static int open_pair(const struct kind *kind, struct pair pair, struct volume **volume,
		     struct core **core)
{
	const struct volume_options options = {
		.cache_bytes = SCRATCH_CACHE,
		.log_buffer_bytes = 1u << 20,
		.log_mode = kind->mode,
		.log_dev = pair.log,
		.log_scrub = kind->scrub,
		.no_background = true,
	};
	int rc = volume_open(volume, pair.dev, &options);

	if (rc == 0)
		check(core_open(core, *volume) == 0);
	return rc;
}

static struct pair prepare(const struct kind *kind)
{
	struct pair pair = pair_format(kind), after;
	struct volume *volume;
	struct core *core;

	pair_record(pair);
	check(open_pair(kind, pair, &volume, &core) == 0);
	crash_run(core, set_up);
	after = pair_end(pair);
	crash_abandon(volume, core);
	return after;
}

static void note_promise(struct run *run, unsigned i)
{
	run->promise[i] = (struct promise){
		.made = true,
		.event = dev_record_count(run->at.dev),
		.log_event = run->at.log ? dev_record_count(run->at.log) : 0,
	};
}

static void record(struct run *run, const char *text)
{
	run->at = prepare(run->kind);
	script_parse(&run->script, text);
	pair_record(run->at);
	run->promise[0] = (struct promise){.made = true};
	check(open_pair(run->kind, run->at, &run->volume, &run->core) == 0);
	run->snapshot[0] = core_snapshot(run->core);
	for (unsigned i = 0; i < run->script.count; i++) {
		const char *statement = run->script.statement[i];
		int rc = script_run(run->core, statement);

		check(rc == 0 || (rc == -EINVAL && strcmp(statement, "resize 3") == 0));
		if (rc == 0 && script_is_sync(statement))
			note_promise(run, i + 1);
		run->snapshot[i + 1] = core_snapshot(run->core);
		check(run->snapshot[i + 1] != NULL);
	}
	check(script_run(run->core, "flush") == 0);
	pair_stop(run->at);
}

static void end(struct run *run)
{
	for (unsigned i = 0; i <= run->script.count; i++)
		free(run->snapshot[i]);
	script_free(&run->script);
	crash_abandon(run->volume, run->core);
}

/* --------------------------------------------------------------- judging */

static void judge_contents(const struct run *run, const struct place *place, struct core *core)
{
	unsigned oldest = 0;
	const char *wrong;

	for (unsigned i = 0; i <= run->script.count; i++) {
		const struct promise *promise = &run->promise[i];

		if (promise->made && promise->event <= place->event &&
		    promise->log_event <= place->log_event)
			oldest = i;
	}
	wrong = crash_shows(core, run->snapshot, oldest, run->script.count);
	if (wrong)
		fail(run, place, wrong);
}

static void go_on(const struct run *run, const struct place *place, struct volume *volume,
		  struct core *core)
{
	static const char *const more[] = {"create zz", "write zz 0 60000 99", "resize 720",
					   "rename zz zd", "resize 600", "unlink zd", "purge",
					   "scrub"};

	for (size_t i = 0; i < array_count(more); i++)
		if (script_run(core, more[i]))
			fail(run, place, "the recovered volume does not go on working");
	if (scratch_problems(volume) > 0)
		fail(run, place, "problems after going on");
}

static void judge(const struct run *run, const struct place *place, struct pair at, bool further)
{
	const char *wrong = further ? crash_fsck_recovered(at.dev, at.log) : NULL;
	struct volume *volume;
	struct core *core;

	states++;
	if (wrong)
		fail(run, place, wrong);
	if (open_pair(run->kind, at, &volume, &core))
		fail(run, place, "does not mount");
	if (volume->geo.other.start)
		fail(run, place, "a resize is left unfinished");
	judge_contents(run, place, core);
	if (scratch_problems(volume) > 0)
		fail(run, place, "volume_check finds problems");
	if (further)
		go_on(run, place, volume, core);
	crash_abandon(volume, core);
}

/* --------------------------------------------------------------- cutting */

/* The power is cut at an event of one device; the other stands where it stood then. */
static struct place place_at(struct pair at, bool of_log, size_t event)
{
	struct place place = {.event = event, .log_event = event};

	if (!at.log)
		place.log_event = 0;
	else if (of_log)
		place.event = dev_record_before(at.dev, at.log, event);
	else
		place.log_event = dev_record_before(at.log, at.dev, event);
	return place;
}

static void cut_recovery(const struct run *run, const struct place *place, struct pair at)
{
	struct volume *volume;
	struct core *core;

	pair_record(at);
	if (open_pair(run->kind, at, &volume, &core))
		fail(run, place, "does not mount");
	pair_stop(at);
	for (int of_log = 0; of_log <= (at.log != NULL); of_log++) {
		size_t count = dev_record_count(of_log ? at.log : at.dev);
		size_t step = test_scale() > 1 ? 1 : 1 + count / 12;

		for (size_t event = 0; event <= count; event += step) {
			struct place again = place_at(at, of_log, event);
			struct pair state;

			again.variant = (int)(event % 2 ? 4 : 5);
			again.seed = place->seed + event;
			if (!pair_state(at, &again, &state))
				continue;
			cuts_in_recovery++;
			judge(run, place, state, false);
		}
	}
	crash_abandon(volume, core);
}

static void cut_at(const struct run *run, bool of_log, size_t event, uint64_t *number)
{
	for (int variant = 0; variant < (int)array_count(variants); variant++) {
		struct place place = place_at(run->at, of_log, event);
		struct pair state;

		place.variant = variant;
		place.seed = event * 101 + (uint64_t)variant + of_log;
		if (!pair_state(run->at, &place, &state))
			continue;
		if (++*number % 41 == 7)
			cut_recovery(run, &place, state);
		else
			judge(run, &place, state, *number % 5 == 0);
	}
}

static void try_script(const struct kind *kind, const char *text, unsigned scale)
{
	struct run run = {.kind = kind, .name = text};
	uint64_t number = 0;

	record(&run, text);
	for (int of_log = 0; of_log <= (run.at.log != NULL); of_log++) {
		size_t count = dev_record_count(of_log ? run.at.log : run.at.dev);
		size_t step = 1 + count * array_count(variants) / (STATES_AIM * scale);

		/* No event is always left out: the first differs from kind to kind. */
		for (size_t event = (size_t)(kind - kinds) % step; event <= count; event += step)
			cut_at(&run, of_log, event, &number);
	}
	end(&run);
}

int main(void)
{
	unsigned scale = test_scale();

	message_quiet(LOG_CRIT);
	for (size_t k = 0; k < array_count(kinds); k++)
		for (size_t i = 0; i < array_count(scripts); i++)
			try_script(&kinds[k], scripts[i], scale);
	printf("crash_log_place: %" PRIu64 " states, %" PRIu64 " of them after a cut in recovery\n",
	       states, cuts_in_recovery);
	return 0;
}
