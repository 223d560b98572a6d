/*
 * Power cuts while a nearly full volume overwrites the same file again and
 * again, so that each freed block is soon used for something else.
 *
 * The oracle: after each operation, the version of each block and the end LSN.
 * A state cut at any write or flush, with lost, reordered and torn writes, must
 * recover to the blocks as they were after the last operation below the cut of
 * the log: every write is atomic (old or new, never a mixture), no block of an
 * older state was reused too early (INV-LOG-7), none is lost or owned twice
 * (INV-LOB-3), and nothing that was durable is missing.  Then purge finishes
 * what was detached, and the volume is checked again.
 *
 * With an even seed the switches (tunables.def) change before each operation.
 *
 *	crash_lob [SEED]
 */
#include "engine/flush.h"
#include "engine/purge.h"
#include "tests/lib/lob_rig.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LOB 10u     /* overwritten */
#define FILLER_LOB 11u   /* takes the rest of the volume, less SPARE_BLOCKS */
#define BLOCKS 48u
#define SPARE_BLOCKS 40u
#define OPERATIONS 70u

struct moment {
	lsn_t end;
	uint32_t version[BLOCKS];
};

static struct {
	struct moment moment[OPERATIONS + 1];
	unsigned moments;
	struct {
		size_t event;
		lsn_t durable;
	} promise[OPERATIONS + 1];
	unsigned promises;
} history;

static struct {
	uint64_t states, drains;
} totals;

static uint64_t seed, seed_number;

static void note_moment(struct volume *v)
{
	history.moment[history.moments++].end = log_next_lsn(v->log);
	history.promise[history.promises].event = dev_record_count(v->dev);
	history.promise[history.promises++].durable = log_durable_lsn(v->log);
}

/* Contents that a queue record names, not the file: detached and replaced in one mtr each. */
static void detach_filler(struct volume *v, uint64_t first, uint64_t end)
{
	uint64_t number;
	struct mtr *m;
	int rc;

	check(id_take(v, COUNTER_PURGE, &number) == 0);
	check(mtr_begin(v, 0, &m) == 0);
	purge_want(m, number);
	do {
		check(mtr_latch(m) == 0);
		purge_stage(m, number, PURGE_LOB, 0, FILLER_LOB, first, end);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	check(rc == 0);
	mtr_end(m);
}

static int overwrite(struct volume *v, uint32_t version[BLOCKS], uint32_t next)
{
	uint64_t first = random_next(&seed) % BLOCKS;
	uint64_t length = 1 + random_next(&seed) % (random_next(&seed) % 2 ? 3 : BLOCKS);
	uint64_t end = first + length < BLOCKS ? first + length : BLOCKS;
	int rc;

	if (random_next(&seed) % 6 == 0) {
		next = 0;
		rc = lob_rig_hole(v, FILE_LOB, first, end, NULL);
	} else {
		rc = lob_rig_write(v, FILE_LOB, first, (uint32_t)(end - first), next, 0, NULL);
	}
	for (uint64_t b = first; rc == 0 && b < end; b++)
		version[b] = next;
	return rc;
}

static void settle_sometimes(struct volume *v)
{
	switch (random_next(&seed) % 6) {
	case 0:
		check(log_flush(v->log, log_next_lsn(v->log)) == 0);
		break;
	case 1:
		check(log_mark(v->log, log_next_lsn(v->log)) == 0);
		space_advance(v->space);
		break;
	case 2:
		if (random_next(&seed) % 3 == 0)
			check(flush_everything(v->flusher) == 0);
		break;
	}
}

static void run_operations(struct volume *v)
{
	uint64_t detached = 0;

	note_moment(v);
	for (unsigned i = 1; i <= OPERATIONS; i++) {
		struct moment *moment = &history.moment[i];
		int rc;

		memcpy(moment->version, history.moment[i - 1].version, sizeof(moment->version));
		if (seed_number % 2 == 0)
			lob_rig_switch(v, &seed);
		rc = overwrite(v, moment->version, i);
		if (rc == -ENOSPC) {
			rc = space_drain(v->space);
			check(rc == 0 || rc == -ENOSPC);
			totals.drains++;
		}
		if (i % 20 == 0) {
			detach_filler(v, detached, detached + 5);
			detached += 5;
		}
		note_moment(v);
		settle_sometimes(v);
	}
}

/* ------------------------------------------------------------------- states */

static const struct moment *moment_at(lsn_t cut)
{
	unsigned i = history.moments;

	while (i > 1 && history.moment[i - 1].end > cut)
		i--;
	return &history.moment[i - 1];
}

static void compare(struct volume *v, const struct moment *moment)
{
	uint32_t found[BLOCKS];

	check(lob_rig_read(v, FILE_LOB, 0, BLOCKS, found) == 0);
	check(memcmp(found, moment->version, sizeof(found)) == 0);
	check(scratch_problems(v) == 0);
}

static void judge(struct device *state, size_t event)
{
	struct volume *v = lob_rig_open(state);
	const struct moment *moment = moment_at(v->recovered_lsn);

	for (unsigned i = 0; i < history.promises; i++)
		if (history.promise[i].event <= event)
			check(v->recovered_lsn >= history.promise[i].durable);
	compare(v, moment);
	check(purge_drain(v->purge, NULL) == 0);
	check(space_drain(v->space) != -EIO);
	compare(v, moment);
	volume_abandon(v);
	totals.states++;
}

static void judge_all(struct device *dev)
{
	for (size_t event = 0; event <= dev_record_count(dev); event++) {
		for (int mode = CUT_PREFIX; mode <= CUT_TORN; mode++) {
			struct device *state;
			bool varies;

			check(dev_record_state(dev, event, (enum dev_cut_mode)mode,
					       random_next(&seed), &state, &varies) == 0);
			if (varies)
				judge(state, event);
			else
				dev_close(state);
		}
	}
}

/* --------------------------------------------------------------------- setup */

static struct device *nearly_full(void)
{
	struct volume *v = lob_rig_format(SCRATCH_BYTES, SCRATCH_PAGE, SCRATCH_LOG);
	struct space_counts counts;
	struct device *dev;
	uint64_t at = 0;

	space_count(v->space, &counts);
	while (counts.free > counts.kept + SPARE_BLOCKS + BLOCKS + 100) {
		check(lob_rig_write(v, FILLER_LOB, at, 100, 1, 0, NULL) == 0);
		at += 100;
		space_count(v->space, &counts);
	}
	check(lob_rig_write(v, FILLER_LOB, at,
			    (uint32_t)(counts.free - counts.kept - SPARE_BLOCKS - BLOCKS), 1, 0,
			    NULL) == 0);
	check(volume_sync(v) == 0);
	dev = scratch_crash(v);
	return dev;
}

static void run(uint64_t number)
{
	struct volume *v;
	struct device *dev;

	printf("seed %" PRIu64 "\n", number);
	fflush(stdout);
	seed = seed_number = number;
	memset(&history, 0, sizeof(history));
	v = lob_rig_open(nearly_full());
	check(log_flush(v->log, log_next_lsn(v->log)) == 0);
	dev = v->dev;
	dev_record_start(dev);
	run_operations(v);
	judge_all(dev);
	check(volume_close(v) == 0);
}

int main(int argc, char **argv)
{
	const char *given = argc > 1 ? argv[1] : getenv("TEST_SEED");

	if (given) {
		run(strtoull(given, NULL, 10));
	} else {
		for (uint64_t number = 1; number <= 2 * test_scale(); number++)
			run(number);
	}
	printf("%" PRIu64 " states, %" PRIu64 " drains\n", totals.states, totals.drains);
	return 0;
}
