/*
 * The crash explorer: bounded black-box crash testing of the core.
 *
 *	explore_table.c    workloads by number: every operation on a few files and
 *	                   directories, every sequence of them, with and without syncs
 *	explore_model.c    what may be seen after a cut, from a filesystem in plain memory
 *	explore_cuts.c     where the power is cut, and what of the undecided writes arrives
 *	explore_run.c      one workload: recorded, cut, each state judged
 *	explore_seen.c     states that were judged before, in any workload
 *	explore_shrink.c   a failing workload made small; the line that replays it
 *	explore_slices.c   many workloads, by several processes, over several runs
 *	crash_explore.c    the program
 *
 * INV-EXPLORE-1: a run is a function of its workload: one thread, a clock that stands
 * still, seeds of cuts made from their place.  So a line replays, and equal states of
 * different workloads are equal bytes.
 * INV-EXPLORE-2: what recovery makes of a state is a function of its bytes alone; only
 * whether that is allowed depends on the workload.  So each distinct state is recovered,
 * checked and used once, and remembered by what was found in it.
 * INV-EXPLORE-3: what is allowed comes from the model, never from the product.
 */
#ifndef BLINKFS_TESTS_EXPLORE_H
#define BLINKFS_TESTS_EXPLORE_H

#include "engine/dev/device.h"
#include "tests/lib/crash_state.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPLORE_TEXT_MAX 512u
#define EXPLORE_OPERATIONS_MAX 3u

/* ----------------------------------------------------------- explore_table.c */

/* Durable before each workload. */
extern const char explore_setup[];

unsigned explore_operations(void);
/* Workloads of so many operations, each with one of the ways to sync behind it. */
uint64_t explore_count(unsigned length);
/*
 * The text of number n.  Numbers are spread evenly over all workloads of a length, so that
 * any range of them is a sample.
 */
void explore_text(unsigned length, uint64_t n, char text[EXPLORE_TEXT_MAX]);

/* ----------------------------------------------------------- explore_model.c */

#define EXPLORE_STATES_MAX 64u

/* Everything that may be seen after a cut, in order. */
struct explore_model {
	unsigned count;
	struct {
		char *text;        /* as core_snapshot() */
		uint64_t hash;     /* of the text */
	} state[EXPLORE_STATES_MAX];
	unsigned statements;
	int result[EXPLORE_STATES_MAX];     /* of each statement */
	unsigned reached[EXPLORE_STATES_MAX]; /* the state after each statement */
	bool fails;            /* some statement does */
};

/* What setup and then text do; false: the model does not know a statement of it. */
bool explore_model_run(struct explore_model *model, const char *text);
void explore_model_free(struct explore_model *model);
uint64_t explore_hash(const void *bytes, size_t len);

/* ------------------------------------------------------------ explore_cuts.c */

struct explore_cut {
	size_t event;
	enum dev_cut_mode mode;
	uint64_t seed;
};

struct explore_plan {
	struct explore_cut *cut;
	size_t count, room;
};

/*
 * The cuts of a recording from event `first` on.  thorough: everything that the modes
 * can choose, as far as it can be counted; else samples within a group of writes, and
 * each single one where the group ends.
 */
void explore_plan_make(struct explore_plan *plan, struct device *dev, size_t first, bool thorough);
void explore_plan_free(struct explore_plan *plan);
/* The simplest first: what is missing, then when. */
void explore_plan_sort_simple(struct explore_plan *plan);

const char *explore_mode_name(enum dev_cut_mode mode);
/* "EVENT:MODE:SEED"; false: it is not one. */
bool explore_cut_parse(struct explore_cut *cut, const char *text, const char **end);

/* ------------------------------------------------------------ explore_seen.c */

/* Shared by all processes that are forked after it was made. */
struct explore_seen;
struct explore_seen *explore_seen_new(void);
void explore_seen_free(struct explore_seen *seen);
/* 0: not seen. */
uint64_t explore_seen_find(struct explore_seen *seen, uint64_t state);
void explore_seen_add(struct explore_seen *seen, uint64_t state, uint64_t contents);
/* The bytes of dev, as far as they differ from those of base. */
uint64_t explore_state_hash(struct device *dev, struct device *base);

/* ------------------------------------------------------------- explore_run.c */

#define EXPLORE_CUTS_MAX 3u /* of one state: of the workload, of its recovery, of that one's */

struct explore_totals {
	_Atomic uint64_t workloads, states, distinct, recovery_cuts;
};

/* Lies in memory that a parent can see, so that the death of a child says where. */
struct explore_place {
	char workload[EXPLORE_TEXT_MAX];
	struct explore_cut cut[EXPLORE_CUTS_MAX];
	unsigned cuts;
	size_t events;         /* of the recording */
	char what[256];        /* empty: nothing is wrong so far */
	bool busy;             /* within a workload */
};

struct explorer {
	struct crash_medium medium;
	struct device *base;    /* formatted, set up; never written */
	struct explore_seen *seen;  /* NULL: judge each state anew */
	struct explore_totals *totals;
	struct explore_place *place;
	struct device *looked_at;   /* at each entry of the log; NULL: none */
	bool thorough;
	bool simple_first;      /* cuts in the order of explore_plan_sort_simple() */
	bool show;              /* failures: print what was found and what is allowed */
	unsigned recovery_every; /* of the distinct states, one in so many is cut in recovery */
};

void explorer_init(struct explorer *x, const struct crash_medium *medium);
void explorer_end(struct explorer *x);
/* false: something is wrong, x->place says what and where. */
bool explore_workload(struct explorer *x, const char *text);
/* One state of it, whatever was seen before. */
bool explore_one(struct explorer *x, const char *text, const struct explore_cut *cut,
		 unsigned cuts);

/* ---------------------------------------------------------- explore_shrink.c */

/*
 * x->place is of a failure, or of where a process died.  Finds a shorter workload and a
 * simpler cut that fail as well, in processes of their own; prints what, where, and the
 * line that replays it.
 */
void explore_shrink(const struct explorer *x, const char *program);

/* ---------------------------------------------------------- explore_slices.c */

struct explore_part {
	unsigned length;
	uint64_t from, to;
};

struct explore_slices {
	const struct explore_part *part;
	unsigned parts;
	unsigned jobs;
	const char *progress_path; /* NULL: none; else slices that are done are skipped */
	const char *program;
};

/* Exit code of a test. */
int explore_slices_run(const struct explorer *x, const struct explore_slices *slices);

#endif
