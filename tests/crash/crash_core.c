/*
 * Power cuts over the file system core: the promises of a mount, in every
 * recorded state of many small workloads.
 *
 * Each workload runs once on a device that remembers every write and flush,
 * after a set-up that is durable, and a snapshot of all that a user can see is
 * taken after each operation.  Then the power is cut before every event, with
 * the writes since the last flush there, missing, reordered and torn.  Each
 * state must recover to exactly one of the snapshots (atomic operations, order),
 * not older than the last sync that had returned (durability); it must pass the
 * engine's check and that of fsck; and it must go on working.  For some states
 * the power is cut again during recovery.
 *
 *	crash_core                 singles, and a sample of the pairs
 *	TEST_SCALE=8 crash_core    all pairs, more seeds
 *	crash_core 'SETUP|SCRIPT'  one workload
 */
#include "engine/base/message.h"
#include "tests/lib/crash_state.h"
#include "tests/lib/scratch.h"
#include "tests/lib/script.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char setup_default[] =
	"mkdir d; mkdir e; create a; write a 0 9000 1; create b; write b 0 300 2;"
	"create d/c; write d/c 0 20000 3; link a d/l; symlink s b; setx a user.k 40 4; sync";

/* Each is a workload by itself, and with every other one behind it. */
static const char *const operations[] = {
	"create n",
	"mkdir d/n",
	"create x; write x 0 100 11",           /* small: inline */
	"create y; write y 0 70000 12",         /* extents */
	"append a 5000 13",
	"append b 3000 14",                     /* inline grows into blocks */
	"write a 0 4096 15",                    /* overwrite a block */
	"write d/c 4000 9000 16",               /* overwrite in the middle, unaligned */
	"write b 100000 50 17",                 /* across a hole */
	"rename a f",
	"rename b a",                           /* over an existing file */
	"tmplink d/t 9000 37",                  /* a file that had no name at first */
	"rename d/c e/c",
	"rename e g",
	"exchange a d/c",
	"exchange d b",                         /* a directory and a file */
	"whiteout b e/w",
	"whiteout d/c a",                       /* over an existing file */
	"unlink b",
	"unlink a",                             /* one of two links */
	"hold d/c; unlink d/c",                 /* unlinked but open */
	"link d/c e/l",
	"trunc d/c 0",
	"trunc d/c 5000",                       /* inside a block */
	"trunc a 100000",
	"falloc d/c 8192 40000",                /* holes behind what is there */
	"punch d/c 3000 14000",                 /* edges inside of blocks */
	"zero d/c 4096 30000",
	"create m; copy d/c m",                 /* shared from then on */
	"rmdir e",
	"symlink t a-target-of-some-length",
	"setx a user.new 2000 18",
	"setx a user.k 200 19",
	"rmx a user.k",
	"chmod a 600",
	"dacl d 7; mkdir d/q",                  /* with both ACLs from its first instant */
	"unlink d/c; purge",
	"create tmp; write tmp 0 6000 20; rename tmp b",
};

/* Longer ones: typical programs, and what is known to be delicate. */
static const char *const scenarios[] = {
	"create tmp; write tmp 0 6000 20; fsync tmp; rename tmp b; sync",
	"create t; write t 0 8192 21; rename t a; create t; write t 0 8192 22; rename t a",
	"write a 0 4096 23; fsync a; write a 0 4096 24; flush; write a 0 4096 25; sync",
	"unlink d/c; purge; sync; flush; create z; write z 0 20000 26; sync; write z 4096 4096 27",
	"trunc d/c 0; sync; flush; write d/c 65536 100 28; sync",
	"write d/c 0 8192 29; trunc d/c 4; write d/c 65536 4096 30; sync",
	"mkdir d/m; create d/m/q; write d/m/q 0 5000 31; rename d/m e/m; rmdir d; sync",
	"tmplink t 20000 38; sync; write t 4096 100 39; tmplink s 10 40; unlink t; purge; sync",
	"exchange d/c e; exchange a d/l; sync; exchange d/c a; unlink b; exchange e d",
	"create p; create q; create r; unlink q; flush; create q; unlink p; sync; flush",
	"append b 600 32; append b 600 33; append b 600 34; append b 600 35; sync; trunc b 10",
	"falloc d/c 0 60000; sync; write d/c 20480 4096 37; write d/c 30000 9000 38; sync",
	"falloc b 0 40000; write b 8192 12288 39; punch b 10000 9000; write b 12288 4096 40",
	"create v; falloc v 4096 65536; flush; write v 0 9000 41; unlink d/c; purge; sync",
	"falloc d/c 8192 40000; copy d/c a; sync; write d/c 9000 12000 42; write a 8192 4096 43",
	"copy d/c a; zero d/c 4096 12288; sync; write d/c 3000 9000 44; punch a 100 9000; sync",
	"copy d/c a; falloc a 0 60000; unlink d/c; flush; write a 0 30000 45; purge; sync",
	"dacl d 7; sync; create d/p; mkdir d/q; tmplink d/t 10 46; rmx d/p system.posix_acl_access",
	"acl a 6; chmod a 640; sync; acl a 5; flush; acl b 7; chmod b 400; rename a b; sync",
	"hold a; unlink a; unlink d/l; write d/c 0 10 36; drop a; purge; sync",
};

static uint64_t workloads, states, cuts_in_recovery;

/* In all that follows. */
static struct crash_medium medium;

struct run {
	const char *name;           /* for messages */
	struct script script;
	struct device *dev;         /* owned by volume */
	struct volume *volume;
	struct core *core;
	char *snapshot[SCRIPT_STATEMENTS_MAX + 1];
	/* Event from which on snapshot i is the oldest allowed. */
	size_t durable_at[SCRIPT_STATEMENTS_MAX + 1];
};

struct place {
	size_t event;
	enum dev_cut_mode mode;
	uint64_t seed;
};

static noreturn void fail(const struct run *run, const struct place *place, const char *what)
{
	fprintf(stderr,
		"crash_core: %s\n  workload: %s\n  cut before event %zu, mode %d, seed %" PRIu64
		"\n",
		what, run->name, place->event, place->mode, place->seed);
	exit(1);
}

/* ------------------------------------------------------------- recording */

static void record(struct run *run, const char *setup, const char *text)
{
	run->dev = crash_prepare(setup, &medium);
	script_parse(&run->script, text);
	dev_record_start(run->dev);
	check(crash_open(run->dev, &medium, &run->volume, &run->core) == 0);
	run->snapshot[0] = core_snapshot(run->core);
	run->durable_at[0] = 0;
	for (unsigned i = 0; i < run->script.count; i++) {
		const char *statement = run->script.statement[i];
		int rc = script_run(run->core, statement);

		/* In a pair the second may find the first's doing in its way. */
		run->durable_at[i + 1] = rc == 0 && script_is_sync(statement)
						 ? dev_record_count(run->dev) : SIZE_MAX;
		run->snapshot[i + 1] = core_snapshot(run->core);
		check(run->snapshot[i + 1] != NULL);
	}
	/* Write everything back, so that cuts in that are tried as well. */
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

static void judge_contents(const struct run *run, const struct place *place, struct core *core)
{
	unsigned oldest = 0;
	const char *wrong;

	for (unsigned i = 0; i <= run->script.count; i++)
		if (run->durable_at[i] <= place->event)
			oldest = i;
	wrong = crash_shows(core, run->snapshot, oldest, run->script.count);
	if (wrong)
		fail(run, place, wrong);
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
	judge_contents(run, place, core);
	if (scratch_problems(volume) > 0)
		fail(run, place, "volume_check finds problems");
	wrong = further ? crash_go_on(volume, core) : NULL;
	if (wrong)
		fail(run, place, wrong);
	crash_abandon(volume, core);
}

/* Recovery is cut short at some of its own events, and run again. */
static void cut_recovery(const struct run *run, const struct place *place, struct device *dev)
{
	struct volume *volume;
	struct core *core;
	size_t count;

	dev_record_start(dev);
	if (crash_open(dev, &medium, &volume, &core))
		fail(run, place, "does not mount");
	dev_record_stop(dev);
	count = dev_record_count(dev);
	for (size_t event = 0; event <= count; event += 1 + count / 10) {
		for (int m = 0; m < 2; m++) {
			struct device *again;
			bool varies;

			check(dev_record_state(dev, event, m ? CUT_TORN : CUT_SUBSET,
					       place->seed + event, &again, &varies) == 0);
			cuts_in_recovery++;
			judge(run, place, again, false);
		}
	}
	crash_abandon(volume, core);
}

static void try_workload(const char *setup, const char *text, unsigned seeds)
{
	struct run run = {.name = text};
	uint64_t number = 0;

	record(&run, setup, text);
	workloads++;
	for (size_t event = 0; event <= dev_record_count(run.dev); event += medium.pmem ? 3 : 1) {
		for (unsigned m = CUT_PREFIX; m <= CUT_TORN + seeds - 1; m++) {
			struct place place = {
				.event = event,
				.mode = m < CUT_TORN ? (enum dev_cut_mode)m : CUT_TORN,
				.seed = workloads * 1000003 + event * 101 + m,
			};
			struct device *dev;
			bool varies;

			check(dev_record_state(run.dev, event, place.mode, place.seed, &dev,
					       &varies) == 0);
			if (!varies && m != CUT_PREFIX) {
				dev_close(dev);
				continue;
			}
			if (number++ % 97 == 11)
				cut_recovery(&run, &place, dev);
			else
				judge(&run, &place, dev, number % 4 == 0);
		}
	}
	end(&run);
}

/* A pair, with a sync between (and after) or without. */
static void try_pair(const char *first, const char *second, bool synced)
{
	char text[512];

	snprintf(text, sizeof(text), synced ? "%s; sync; %s; sync" : "%s; %s", first, second);
	try_workload(setup_default, text, 1);
}

int main(int argc, char **argv)
{
	unsigned scale = test_scale();
	size_t pairs_step = scale > 1 ? 1 : 13;
	size_t n = array_count(operations), pair = 0;

	message_quiet(LOG_CRIT);
	if (argc > 1) {
		char *bar = strchr(argv[1], '|');

		if (bar)
			*bar = '\0';
		try_workload(bar ? argv[1] : setup_default, bar ? bar + 1 : argv[1], 4);
		printf("crash_core: %" PRIu64 " states\n", states);
		return 0;
	}
	for (size_t i = 0; i < n; i++) {
		char synced[256];

		try_workload(setup_default, operations[i], 2 * scale);
		snprintf(synced, sizeof(synced), "%s; sync", operations[i]);
		try_workload(setup_default, synced, 2 * scale);
	}
	for (size_t i = 0; i < array_count(scenarios); i++)
		try_workload(setup_default, scenarios[i], 3 * scale);
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < n; k++, pair++)
			if (pair % pairs_step == 0)
				try_pair(operations[i], operations[k], pair / pairs_step % 2);
	/* Where log and data become durable by different means. */
	for (size_t i = 0; i < array_count(scenarios); i++) {
		medium.log_mode = LOG_MODE_DSYNC;
		try_workload(setup_default, scenarios[i], scale);
		medium.log_mode = LOG_MODE_MAPPED;
		medium.pmem = true;
		try_workload(setup_default, scenarios[i], scale);
		medium.pmem = false;
	}
	printf("crash_core: %" PRIu64 " workloads, %" PRIu64 " states, %" PRIu64
	       " of them after a cut in recovery\n",
	       workloads, states, cuts_in_recovery);
	return 0;
}
