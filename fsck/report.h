/*
 * What fsck says: one line a problem, "[number] text: where", or what a caller
 * makes of it.
 *
 * Of each kind the first REPORT_LINES_MAX are told, the others counted.  While
 * holding, what the present walk finds is kept: once the walk has ended it is
 * known whether a repair follows (then what is new is told) or nothing (then
 * what is left is told).
 */
#ifndef BLINKFS_FSCK_REPORT_H
#define BLINKFS_FSCK_REPORT_H

#include "fsck/check.h"

#define REPORT_LINES_MAX 200u
#define REPORT_KINDS_MAX 128u
#define REPORT_HELD_MAX 2000u
#define REPORT_TOLD_MAX 20000u

struct report_entry {
	const struct fsck_problem_kind *kind;
	bool repairable;
	char *detail; /* owned */
};

struct report {
	void (*print)(void *arg, const char *line);
	/* Instead of a line; `left`: it is known that this one stays.  NULL = lines. */
	void (*found)(void *arg, const struct fsck_problem *problem, bool left);
	void *arg;
	bool verbose; /* every line is printed */
	struct {
		unsigned number;
		uint64_t lines;
	} kind[REPORT_KINDS_MAX];
	unsigned kinds;
	struct report_entry held[REPORT_HELD_MAX];
	unsigned held_count;
	uint64_t held_lost;
	bool holding;
	uint64_t told[REPORT_TOLD_MAX]; /* hashes of what was told */
	unsigned told_count;
};

void report_init(struct report *report, void (*print)(void *arg, const char *line), void *arg,
		 bool verbose);
void report_free(struct report *report);

void report_line(struct report *report, const char *format, ...) printf_like(2, 3);
/* A problem found outside the walk. */
void report_problem(struct report *report, enum fsck_problem_id id, const char *format, ...)
	printf_like(3, 4);
/* A fsck_report. */
void report_found(void *report, const struct fsck_problem *problem);

/* How many lines of each kind were not printed; the counts begin anew. */
void report_rest(struct report *report);

void report_hold(struct report *report);
void report_forget(struct report *report); /* what is held */
/* Tells what is held and was not told before; goes on holding. */
void report_news(struct report *report, const char *title);
/* Tells all that is held, behind a title: it is left.  Holds no longer. */
void report_left(struct report *report, const char *title);

#endif
