/*
 * Power cuts under the flusher: at each write and flush of a random workload,
 * with lost, reordered and torn writes, and again while recovering.
 *
 * Some of the mtrs initialise their pages: those are written without doublewrite
 * (INV-DW-2), may be torn in place, and must not be read.
 *
 * The oracle: each mtr sets its pages to its own number, so a prefix of the mtrs
 * has exactly one state.  After recovery with the cut at LSN l the pages must
 * have the values that the mtrs below l gave them, l must not lie below what was
 * durable at the cut, and no page in place may have been ahead of the log.
 *
 *	crash_flush [SEED]    one workload; else several, TEST_SCALE times as many
 */
#include "engine/recovery.h"
#include "tests/lib/pool_fixture.h"
#include "tests/lib/scratch.h"

#include <stdio.h>
#include <stdlib.h>

#define PAGES 24u
#define MTRS 160u
#define FIRST_MOUNT (FIXTURE_GENERATION + 1)
#define SECOND_MOUNT (FIXTURE_GENERATION + 2)

static const struct fixture_params params = {.groups = 1, .dw_slots = 6};

struct mtr_done {
	uint64_t pages; /* bit mask */
	lsn_t end;
};

static struct {
	struct mtr_done mtr[MTRS]; /* in LSN order; mtr i sets value i + 1 */
	struct {
		size_t event;
		lsn_t durable;
	} promise[MTRS + 1];
	unsigned promises;
} history;

static struct {
	uint64_t states, recoveries_cut, torn;
} totals;

static uint64_t random_state;

static uint64_t random_below(uint64_t limit)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (random_state >> 33) % limit;
}

static void note_promise(struct fixture *f)
{
	history.promise[history.promises].event = dev_record_count(f->dev);
	history.promise[history.promises++].durable = log_durable_lsn(f->log);
}

static void run_mtr(struct fixture *f, unsigned number)
{
	uint64_t pagenos[3], mask = 0;
	unsigned count = 0;

	for (unsigned i = 0; i < 3; i++)
		mask |= 1ull << random_below(PAGES);
	for (unsigned i = 0; i < PAGES; i++)
		if (mask >> i & 1)
			pagenos[count++] = fixture_page(f, i);
	history.mtr[number].pages = mask;
	history.mtr[number].end =
		fixture_change(f, pagenos, count, number + 1, random_below(4) == 0);
}

static void run_workload(struct fixture *f)
{
	for (unsigned i = 0; i < MTRS; i++) {
		run_mtr(f, i);
		switch (random_below(12)) {
		case 0:
			check(flush_everything(f->flusher) == 0);
			break;
		case 1:
			check(flush_until(f->flusher, history.mtr[random_below(i + 1)].end) == 0);
			break;
		case 2:
			check(log_flush(f->log, log_next_lsn(f->log)) == 0);
			break;
		}
		note_promise(f);
	}
}

static lsn_t promised_at(size_t event)
{
	lsn_t durable = 0;

	for (unsigned i = 0; i < history.promises && history.promise[i].event <= event; i++)
		durable = history.promise[i].durable;
	return durable;
}

static uint64_t expected_value(unsigned page, lsn_t cut)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < MTRS && history.mtr[i].end <= cut; i++)
		if (history.mtr[i].pages >> page & 1)
			value = i + 1;
	return value;
}

/* Recovers a state and judges the result; returns the device that it was given. */
static struct device *recover(struct device *state, lsn_t promised, uint64_t generation,
			      bool record)
{
	struct fixture f;
	lsn_t cut;

	if (record)
		dev_record_start(state);
	fixture_reopen(&f, &params, state);
	check(recovery_run(f.volume, generation, &cut) == 0);
	check(cut >= promised);
	for (unsigned i = 0; i < PAGES; i++) {
		struct frame *frame = fixture_get(&f, fixture_page(&f, i));

		check(fixture_value(frame) == expected_value(i, cut));
		pool_put(frame);
	}
	check(stat_read(&f.volume->stats, STAT_corruptions) == 0);
	totals.torn += stat_read(&f.volume->stats, STAT_recovery_torn_repaired);
	return fixture_crash(&f);
}

/* Recovery is cut short at each of its own events, and run again. */
static void recover_twice(struct device *state, lsn_t promised, uint64_t seed)
{
	static const enum dev_cut_mode modes[] = {CUT_PREFIX, CUT_DROP_ALL, CUT_TORN};
	struct device *first = recover(state, promised, FIRST_MOUNT, true);
	size_t events = dev_record_count(first);

	for (size_t event = 0; event <= events; event++) {
		struct device *again;
		bool varies;

		check(dev_record_state(first, event, modes[event % 3], seed, &again,
				       &varies) == 0);
		dev_close(recover(again, promised, SECOND_MOUNT, false));
		totals.recoveries_cut++;
	}
	dev_close(first);
}

static void cut_at(struct fixture *f, size_t event)
{
	static const enum dev_cut_mode modes[] = {CUT_PREFIX, CUT_DROP_ALL, CUT_DROP_ONE,
						  CUT_KEEP_ONE, CUT_SUBSET, CUT_TORN, CUT_TORN};
	lsn_t promised = promised_at(event);

	for (unsigned i = 0; i < array_count(modes); i++) {
		struct device *state;
		bool varies;

		check(dev_record_state(f->dev, event, modes[i], event * 7 + i, &state,
				       &varies) == 0);
		if (!varies) {
			dev_close(state);
			continue;
		}
		totals.states++;
		if ((event + i) % 16 == 0)
			recover_twice(state, promised, event);
		else
			dev_close(recover(state, promised, FIRST_MOUNT, false));
	}
}

static void run_seed(uint64_t seed)
{
	struct fixture f;

	memset(&totals, 0, sizeof(totals));
	memset(&history, 0, sizeof(history));
	random_state = seed;
	fixture_open(&f, &params);
	for (unsigned i = 0; i < PAGES; i++)
		fixture_put_page(&f, fixture_page(&f, i), 0, LSN_FIRST);
	check(dev_flush(f.dev) == 0);
	dev_record_start(f.dev);
	run_workload(&f);
	dev_record_stop(f.dev);
	check(fixture_stat(&f, STAT_flush_pages) >
	      fixture_stat(&f, STAT_flush_pages_doublewritten));
	for (size_t event = 0; event <= dev_record_count(f.dev); event++)
		cut_at(&f, event);
	check(totals.torn > 0);
	printf("crash_flush: seed %lu, %lu states, %lu recoveries cut, %lu torn pages restored\n",
	       seed, totals.states, totals.recoveries_cut, totals.torn);
	fflush(stdout);
	fixture_close(&f);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		run_seed(strtoull(argv[1], NULL, 0));
		return 0;
	}
	for (uint64_t seed = 1; seed <= 4 * test_scale(); seed++)
		run_seed(seed);
	return 0;
}
