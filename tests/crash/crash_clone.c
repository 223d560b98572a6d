/*
 * Power cuts while three LOBs are cloned from each other, overwritten, cut, allocated,
 * dropped and purged, all in small ranges, so that shares are split, joined, and counted up
 * and down.
 *
 * The oracle: after each operation, the version of each block of each LOB and the
 * end LSN.  A state cut at any write or flush, with lost, reordered and torn writes,
 * must recover to all LOBs as they were after the last operation below the cut:
 * a clone shares all or nothing, an overwrite of either side leaves the other, also
 * when it goes into unwritten blocks in place, a
 * dropped LOB frees only what nobody else has.  Counts and bits must be exact
 * (volume_check(), and fsck for some states), before purge has finished what was
 * dropped and after.
 *
 * Then the same for a LOB of many extents, cloned twice batch by batch.
 *
 *	crash_clone [SEED]
 */
#include "engine/flush.h"
#include "engine/purge_internal.h"
#include "fsck/check.h"
#include "tests/lib/lob_rig.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOBS 3u
#define BLOCKS 24u
#define LONG_BLOCKS 160u /* of a clone by batches: more than two leaves of extents */
#define OPERATIONS 60u
#define FSCK_EVERY 16u

struct moment {
	lsn_t end;
	uint64_t lob[LOBS];
	uint32_t version[LOBS][LONG_BLOCKS];
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
	uint64_t states, clones, batches, short_clones, allocations, in_place, fscks;
} totals;

static uint64_t seed, blocks;

static uint64_t below(uint64_t limit)
{
	return random_next(&seed) % limit;
}

static void note_moment(struct volume *v)
{
	history.moment[history.moments++].end = log_next_lsn(v->log);
	history.promise[history.promises].event = dev_record_count(v->dev);
	history.promise[history.promises++].durable = log_durable_lsn(v->log);
}

/* --------------------------------------------------------------- operations */

static void choose_range(uint64_t *first, uint64_t *end)
{
	*first = below(BLOCKS);
	*end = *first + 1 + below(below(2) ? 4 : BLOCKS);
	if (*end > BLOCKS)
		*end = BLOCKS;
}

/* What was allocated last, of which part may be unwritten still. */
static struct {
	unsigned which;
	uint64_t first, end;
} allocated;

static void overwrite(struct volume *v, struct moment *now, unsigned which, uint32_t version)
{
	uint64_t first, end;

	choose_range(&first, &end);
	switch (below(6)) {
	case 0:
		version = 0;
		check(lob_rig_hole(v, now->lob[which], first, end, NULL) == 0);
		break;
	case 1 ... 2:
		version = 0;
		check(lob_rig_allocate(v, now->lob[which], first, (uint32_t)(end - first), NULL) ==
		      0);
		allocated.which = which;
		allocated.first = first;
		allocated.end = end;
		totals.allocations++;
		break;
	default:
		if (below(2) && allocated.end > 0) {
			which = allocated.which;
			first = allocated.first + below(allocated.end - allocated.first);
			end = first + 1 + below(allocated.end - first);
		}
		check(lob_rig_write(v, now->lob[which], first, (uint32_t)(end - first), version, 0,
				    NULL) == 0);
	}
	for (uint64_t b = first; b < end; b++)
		now->version[which][b] = version;
}

static void clone(struct volume *v, struct moment *now, unsigned which)
{
	unsigned source = (which + 1 + (unsigned)below(LOBS - 1)) % LOBS;
	uint64_t first, end, done;

	choose_range(&first, &end);
	check(lob_rig_clone(v, now->lob[which], now->lob[source], first, end, NULL, &done) == 0);
	totals.short_clones += done < end;
	for (uint64_t b = first; b < done; b++)
		now->version[which][b] = now->version[source][b];
	totals.clones++;
}

/* As unlink does: the contents go to purge, something new begins. */
static void drop(struct volume *v, struct moment *now, unsigned which)
{
	uint64_t number, next_lob;
	struct mtr *m;
	int rc;

	check(id_take(v, COUNTER_LOB, &next_lob) == 0);
	check(id_take(v, COUNTER_PURGE, &number) == 0);
	check(mtr_begin(v, MTR_PRIVILEGED, &m) == 0);
	purge_want(m, number);
	do {
		check(mtr_latch(m) == 0);
		purge_stage(m, number, PURGE_LOB, 0, now->lob[which], 0, UINT64_MAX);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	check(rc == 0);
	mtr_end(m);
	now->lob[which] = next_lob;
	memset(now->version[which], 0, sizeof(now->version[which]));
}

static void settle_sometimes(struct volume *v)
{
	switch (below(7)) {
	case 0:
		check(log_flush(v->log, log_next_lsn(v->log)) == 0);
		break;
	case 1:
		check(log_mark(v->log, log_next_lsn(v->log)) == 0);
		space_advance(v->space);
		break;
	case 2:
		if (below(3) == 0)
			check(flush_everything(v->flusher) == 0);
		break;
	case 3:
		check(purge_drain(v->purge, NULL) == 0);
		break;
	}
}

static void begin(struct volume *v, struct moment *now)
{
	*now = (struct moment){.end = 0};
	for (unsigned i = 0; i < LOBS; i++)
		check(id_take(v, COUNTER_LOB, &now->lob[i]) == 0);
}

static void run_operations(struct volume *v)
{
	struct moment now;

	begin(v, &now);
	history.moment[0] = now;
	note_moment(v);
	for (unsigned i = 1; i <= OPERATIONS; i++) {
		unsigned which = (unsigned)below(LOBS);

		if (below(12) == 0)
			drop(v, &now, which);
		else if (below(2))
			clone(v, &now, which);
		else
			overwrite(v, &now, which, i);
		history.moment[i] = now;
		note_moment(v);
		settle_sometimes(v);
	}
}

/* The second and the third LOB get all of the first, an extent a block, batch by batch. */
static void run_batches(struct volume *v)
{
	struct moment now;

	begin(v, &now);
	for (uint32_t b = LONG_BLOCKS; b-- > 0;) {
		now.version[0][b] = b + 1;
		check(lob_rig_write(v, now.lob[0], b, 1, b + 1, 0, NULL) == 0);
	}
	check(log_flush(v->log, log_next_lsn(v->log)) == 0);
	dev_record_start(v->dev);
	history.moment[0] = now;
	note_moment(v);
	for (unsigned which = 1; which < LOBS; which++) {
		for (uint64_t at = 0, done; at < LONG_BLOCKS; at = done, totals.batches++) {
			uint64_t end = at + 30 + below(60);

			check(lob_rig_clone(v, now.lob[which], now.lob[0], at,
					    end < LONG_BLOCKS ? end : LONG_BLOCKS, NULL,
					    &done) == 0);
			for (uint64_t b = at; b < done; b++)
				now.version[which][b] = now.version[0][b];
			totals.short_clones += done < end && done < LONG_BLOCKS;
			history.moment[history.moments] = now;
			note_moment(v);
			settle_sometimes(v);
		}
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
	uint32_t found[LONG_BLOCKS];

	for (unsigned i = 0; i < LOBS; i++) {
		check(lob_rig_read(v, moment->lob[i], 0, (uint32_t)blocks, found) == 0);
		check(memcmp(found, moment->version[i], blocks * sizeof(found[0])) == 0);
	}
	check(scratch_problems(v) == 0);
}

/* LOBs of this test have no owner: that is all that fsck may complain about. */
static void note_problem(void *arg, const struct fsck_problem *problem)
{
	(void)arg;
	if (problem->number == FSCK_LOB_UNOWNED || problem->number == FSCK_INODE_ROOT)
		return;
	fprintf(stderr, "fsck: %s: %s\n", problem->title, problem->detail);
	abort();
}

static void run_fsck(struct device *state)
{
	struct fsck_options options = {.data = true};
	struct fsck_result result;

	check(fsck_recover_and_walk(state, SCRATCH_CACHE, &options, note_problem, NULL,
				    &result) == 0);
	fsck_result_free(&result);
	totals.fscks++;
}

static void judge(struct device *state, size_t event)
{
	const struct moment *moment;
	struct volume *v;

	if (totals.states++ % FSCK_EVERY == 0)
		run_fsck(state);
	v = lob_rig_open(state);
	moment = moment_at(v->recovered_lsn);
	for (unsigned i = 0; i < history.promises; i++)
		if (history.promise[i].event <= event)
			check(v->recovered_lsn >= history.promise[i].durable);
	compare(v, moment);
	check(purge_drain(v->purge, NULL) == 0);
	compare(v, moment);
	for (unsigned i = 0; i < LOBS; i++)
		check(lob_rig_hole(v, moment->lob[i], 0, blocks, NULL) == 0);
	check(scratch_problems(v) == 0);
	volume_abandon(v);
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

static void run(uint64_t number, bool batches)
{
	struct volume *v = lob_rig_format(SCRATCH_BYTES, SCRATCH_PAGE, SCRATCH_LOG);
	struct device *dev = v->dev;

	printf("seed %" PRIu64 "\n", number);
	fflush(stdout);
	seed = number;
	memset(&history, 0, sizeof(history));
	memset(&allocated, 0, sizeof(allocated));
	blocks = batches ? LONG_BLOCKS : BLOCKS;
	if (batches) {
		run_batches(v);
	} else {
		check(log_flush(v->log, log_next_lsn(v->log)) == 0);
		dev_record_start(dev);
		run_operations(v);
	}
	totals.in_place += stat_read(&v->stats, STAT_lob_write_blocks_in_place);
	judge_all(dev);
	check(volume_close(v) == 0);
}

int main(int argc, char **argv)
{
	const char *given = argc > 1 ? argv[1] : getenv("TEST_SEED");

	if (given) {
		run(strtoull(given, NULL, 10), false);
		run(strtoull(given, NULL, 10), true);
	} else {
		for (uint64_t number = 1; number <= 8 * test_scale(); number++)
			run(number, false);
		for (uint64_t number = 1; number <= 2 * test_scale(); number++)
			run(number, true);
	}
	check(given || (totals.in_place > 50 && totals.short_clones > 0));
	printf("%" PRIu64 " states, %" PRIu64 " by fsck, %" PRIu64 " clones, %" PRIu64
	       " batches (%" PRIu64 " ended by a leaf), %" PRIu64 " allocations, %" PRIu64
	       " blocks in place\n",
	       totals.states, totals.fscks, totals.clones, totals.batches, totals.short_clones,
	       totals.allocations, totals.in_place);
	return 0;
}
