/*
 * Power cuts while a volume grows, and while its free space is given back to the device.
 *
 * Workloads run once on a recorded device, a snapshot is taken after each statement, and
 * then the power is cut before every event.  Each state must mount with one of the sizes
 * that the workload passes through, not smaller than the last one that was told; show
 * one of the snapshots, not older than the last statement that had promised durability;
 * pass the engine's check and that of fsck; and go on working, which includes growing
 * again.  For some states the power is cut once more during the mount that follows, which
 * also does away with a copy of the superblock that a growth has left at the device's end.
 *
 * A discard leaves garbage on this device, so whoever relied on what was there, or on
 * zeros, would be found.
 *
 *	crash_grow                 a sample of the states of long workloads
 *	TEST_SCALE=8 crash_grow    all of them
 */
#include "engine/base/message.h"
#include "tests/lib/crash_state.h"
#include "tests/lib/scratch.h"
#include "tests/lib/script.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGER_COPIES 1u
#define STATES_AIM 50u /* of one workload, about */
#define GROUP_KIB (GROUP_BLOCKS(SCRATCH_PAGE) * (uint64_t)(BLOCK_SIZE / 1024))

static const char set_up[] = "mkdir d; create a; write a 0 90000 1; create b; write b 0 300 2;"
			     "create d/c; write d/c 0 1000000 3; append d/c 900000 4; sync";

/* The size of the volume, that of the device, and what happens. */
static const struct workload {
	uint64_t kib, device_kib;
	const char *text;
} workloads[] = {
	/* within the first group; the same size is nothing to do */
	{6144, 16384,
	 "create n; grow 8192; write n 0 9000 4; sync; grow 8192; create o; write o 0 1000000 5;"
	 "append o 1000000 6; sync; grow 16384; create p; write p 0 1000000 7; sync"},
	/* to the device's end, by several groups, into which a file is written at once */
	{6144, 3 * GROUP_KIB,
	 "create n; grow 402653184; grow 300000; write n 0 900000 4; fsync n; unlink a;"
	 "grow 387072; create o; write o 0 900000 5; sync"},
	/* the copy of the superblock lies where the first new bitmap page goes (INV-GROW-3) */
	{0, 2 * GROUP_KIB + 4096,
	 "create n; write n 0 9000 4; sync; grow 200000; create o; write o 0 900000 5; sync;"
	 "grow 262144; rename o q; sync"},
	/* blocks that are written, freed, discarded, and used again */
	{8192, 8192,
	 "unlink d/c; purge; trim; create x; write x 0 900000 7; sync; unlink a; purge; settle;"
	 "trim; write x 0 900000 8; fsync x; trunc x 5000; purge; settle; trim;"
	 "create y; write y 0 1000000 9; trim; sync"},
	/* both */
	{6144, 16384,
	 "unlink d/c; purge; settle; trim; grow 12288; trim; create x; write x 0 1000000 7; sync;"
	 "unlink x; purge; settle; grow 16384; trim; create y; write y 0 900000 8; sync"},
};

static uint64_t states, cuts_in_mount, smaller, larger;

struct run {
	const struct workload *workload;
	struct script script;
	struct device *dev; /* owned by volume */
	struct volume *volume;
	struct core *core;
	char *snapshot[SCRIPT_STATEMENTS_MAX + 1];
	uint64_t blocks[SCRIPT_STATEMENTS_MAX + 1];    /* of the volume after each statement */
	size_t event[SCRIPT_STATEMENTS_MAX + 1];       /* count of events by then */
	bool durable[SCRIPT_STATEMENTS_MAX + 1];       /* it promised that */
	unsigned larger_copies; /* states with one that a growth has left, whose mount was cut */
};

struct place {
	size_t event;
	enum dev_cut_mode mode;
	uint64_t seed;
};

static noreturn void fail(const struct run *run, const struct place *place, const char *what)
{
	fprintf(stderr,
		"crash_grow: %s\n  %s\n  cut before event %zu, mode %d, seed %" PRIu64 "\n", what,
		run->workload->text, place->event, (int)place->mode, place->seed);
	exit(1);
}

/* ------------------------------------------------------------- recording */

static struct device *format(const struct workload *workload)
{
	struct format_params params = {
		.size_bytes = workload->kib * 1024,
		.page_size = SCRATCH_PAGE,
		.log_bytes = SCRATCH_LOG,
		.uuid = "scratch-volume!",
		.hash_seed = "scratch-hashseed",
	};
	struct geometry geo;
	struct device *dev;

	check(dev_open_memory(&dev, workload->device_kib * 1024) == 0);
	if (params.size_bytes == 0) {
		/* Just one group, and the copy behind it. */
		params.size_bytes = GROUP_KIB * 1024;
		params.dry_run = true;
		check(volume_format(dev, &params, &geo) == 0);
		params.size_bytes = (geo.groups_start + geo.group_blocks + 1) * BLOCK_SIZE;
		params.dry_run = false;
	}
	check(volume_format(dev, &params, &geo) == 0);
	check(geo.group_count == 1);
	return dev;
}

static const struct crash_medium medium; /* the usual */

static void note(struct run *run, unsigned i, bool durable)
{
	run->event[i] = dev_record_count(run->dev);
	run->blocks[i] = run->volume->geo.block_count;
	run->durable[i] = durable;
	run->snapshot[i] = core_snapshot(run->core);
	check(run->snapshot[i] != NULL);
}

static void record(struct run *run)
{
	run->dev = crash_set_up(format(run->workload), set_up, &medium);
	script_parse(&run->script, run->workload->text);
	dev_record_start(run->dev);
	check(crash_open(run->dev, &medium, &run->volume, &run->core) == 0);
	note(run, 0, true);
	run->event[0] = 0;
	for (unsigned i = 0; i < run->script.count; i++) {
		const char *statement = run->script.statement[i];
		int rc = script_run(run->core, statement);
		bool too_large = strcmp(statement, "grow 402653184") == 0;

		if (rc != (too_large ? -ENOSPC : 0)) {
			fprintf(stderr, "crash_grow: %s: %d\n", statement, rc);
			exit(1);
		}
		note(run, i + 1, script_is_sync(statement));
	}
	check(script_run(run->core, "flush") == 0);
	dev_record_stop(run->dev);
}

static void end(struct run *run)
{
	for (unsigned i = 0; i <= run->script.count; i++)
		free(run->snapshot[i]);
	script_free(&run->script);
	crash_abandon(run->volume, run->core);
}

/* --------------------------------------------------------------- judging */

/* Where the workload was at the cut: everything up to *oldest is promised. */
static void judge_size(const struct run *run, const struct place *place, uint64_t blocks)
{
	uint64_t least = run->blocks[0], most = least;
	unsigned i = 0;

	while (i <= run->script.count && run->event[i] <= place->event)
		least = most = run->blocks[i++];
	/* What was under way may have come to be; in two steps it may stand between. */
	if (i <= run->script.count)
		most = run->blocks[i];
	smaller += least < most && blocks < most;
	larger += least < most && blocks == most;
	if (blocks < least || blocks > most ||
	    (blocks != least && blocks != most && run->workload->kib))
		fail(run, place, "neither the old size nor the new one");
}

static void judge_contents(const struct run *run, const struct place *place, struct core *core)
{
	unsigned oldest = 0;
	const char *wrong;

	for (unsigned i = 0; i <= run->script.count; i++)
		if (run->durable[i] && run->event[i] <= place->event)
			oldest = i;
	wrong = crash_shows(core, run->snapshot, oldest, run->script.count);
	if (wrong)
		fail(run, place, wrong);
}

/* Until a size is reached that fills the device, and then some. */
static void go_on(const struct run *run, const struct place *place, struct volume *volume,
		  struct core *core)
{
	static const char *const more[] = {"create zz", "write zz 0 600000 99", "trim", "grow 0",
					   "rename zz zd", "write zd 0 600000 98", "purge",
					   "settle", "trim", "unlink zd", "purge", "flush"};

	for (size_t i = 0; i < array_count(more); i++)
		if (script_run(core, more[i]))
			fail(run, place, "the recovered volume does not go on working");
	if (volume->geo.block_count != run->workload->device_kib * 1024 / BLOCK_SIZE)
		fail(run, place, "not as large as its device");
	if (scratch_problems(volume) > 0)
		fail(run, place, "problems after going on");
}

static void judge(const struct run *run, const struct place *place, struct device *dev,
		  bool further)
{
	const char *wrong = further ? crash_fsck_recovered(dev, NULL) : NULL;
	struct volume *volume;
	struct core *core;

	states++;
	if (wrong)
		fail(run, place, wrong);
	if (crash_open(dev, &medium, &volume, &core))
		fail(run, place, "does not mount");
	judge_size(run, place, volume->geo.block_count);
	judge_contents(run, place, core);
	if (scratch_problems(volume) > 0)
		fail(run, place, "volume_check finds problems");
	if (further)
		go_on(run, place, volume, core);
	crash_abandon(volume, core);
}

/* --------------------------------------------------------------- cutting */

/* Has a growth that was not made left its copy of the superblock at the device's end? */
static bool has_larger_copy(struct device *dev)
{
	struct disk_superblock primary, copy;

	check(dev_read(dev, &primary, BLOCK_SIZE, 0) == 0);
	check(dev_read(dev, &copy, BLOCK_SIZE, dev->size_bytes - BLOCK_SIZE) == 0);
	return memcmp(copy.magic, SB_MAGIC, sizeof(copy.magic)) == 0 &&
	       le64_get(copy.block_count) > le64_get(primary.block_count);
}

static void cut_mount(const struct run *run, const struct place *place, struct device *dev,
		      bool all)
{
	struct volume *volume;
	struct core *core;
	size_t count, step;

	dev_record_start(dev);
	if (crash_open(dev, &medium, &volume, &core))
		fail(run, place, "does not mount");
	dev_record_stop(dev);
	count = dev_record_count(dev);
	step = all || test_scale() > 1 ? 1 : 1 + count / 6;
	for (size_t event = 0; event <= count; event += step) {
		/* Of a superblock that is torn, both parts that differ have to be there. */
		for (unsigned seed = 0; seed < (all ? 5 : 1); seed++) {
			struct device *state;
			bool varies;

			check(dev_record_state(dev, event, event % 3 || all ? CUT_TORN : CUT_SUBSET,
					       place->seed + event + seed * 1000, &state,
					       &varies) == 0);
			if (!varies) {
				dev_close(state);
				continue;
			}
			cuts_in_mount++;
			judge(run, place, state, false);
		}
	}
	crash_abandon(volume, core);
}

static void cut_at(struct run *run, size_t event, uint64_t *number)
{
	for (enum dev_cut_mode mode = CUT_PREFIX; mode <= CUT_TORN; mode++) {
		struct place place = {.event = event, .mode = mode, .seed = event * 101 + mode};
		struct device *state;
		bool varies;

		check(dev_record_state(run->dev, event, mode, place.seed, &state, &varies) == 0);
		if (!varies && mode != CUT_PREFIX) {
			dev_close(state);
			continue;
		}
		if (run->larger_copies < LARGER_COPIES && has_larger_copy(state)) {
			run->larger_copies++;
			cut_mount(run, &place, state, true);
		} else if (++*number % 41 == 3) {
			cut_mount(run, &place, state, false);
		} else {
			judge(run, &place, state, *number % 5 == 0);
		}
	}
}

/* Each event of a growth is tried, many of discards, of the rest a sample. */
static bool is_of_interest(const struct run *run, size_t event)
{
	unsigned i = 0;

	while (i < run->script.count && run->event[i + 1] < event)
		i++;
	if (i == run->script.count)
		return false;
	return strncmp(run->script.statement[i], "grow", 4) == 0 ||
	       (event % 6 == 0 && strncmp(run->script.statement[i], "trim", 4) == 0);
}

static void try_workload(const struct workload *workload)
{
	struct run run = {.workload = workload};
	uint64_t number = 0;
	size_t count, step;

	record(&run);
	count = dev_record_count(run.dev);
	step = 1 + count * 6 / (STATES_AIM * test_scale());
	for (size_t event = 0; event <= count; event++)
		if (event % step == 0 || is_of_interest(&run, event))
			cut_at(&run, event, &number);
	end(&run);
}

int main(void)
{
	message_quiet(LOG_CRIT);
	for (size_t i = 0; i < array_count(workloads); i++)
		try_workload(&workloads[i]);
	if (smaller == 0 || larger == 0) {
		fprintf(stderr, "crash_grow: only one size was ever found\n");
		return 1;
	}
	printf("crash_grow: %" PRIu64 " states, %" PRIu64 " of them after a cut in a mount; of "
	       "those within a growth %" PRIu64 " had the old size, %" PRIu64 " the new one\n",
	       states, cuts_in_mount, smaller, larger);
	return 0;
}
