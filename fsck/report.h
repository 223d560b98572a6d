/*
 * What fsck says: one line a problem, "[number] text: where".
 *
 * Of each kind the first REPORT_LINES_MAX lines are printed, the others
 * counted.  While holding, lines of problems are kept instead of printed, so
 * that only those of the last walk are shown.
 */
#ifndef BLINKFS_FSCK_REPORT_H
#define BLINKFS_FSCK_REPORT_H

#include "fsck/check.h"

#define REPORT_LINES_MAX 200u
#define REPORT_KINDS_MAX 128u
#define REPORT_HELD_MAX 2000u

struct report {
	void (*print)(void *arg, const char *line);
	void *arg;
	bool verbose; /* every line is printed */
	struct {
		unsigned number;
		uint64_t lines;
	} kind[REPORT_KINDS_MAX];
	unsigned kinds;
	char *held[REPORT_HELD_MAX]; /* owned */
	unsigned held_count;
	uint64_t held_lost;
	bool holding;
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
/* Prints what is held, behind a title, and holds no longer. */
void report_release(struct report *report, const char *title);

#endif
