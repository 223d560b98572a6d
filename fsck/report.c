/* What fsck says: see report.h. */
#include "fsck/report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 2048u

void report_init(struct report *report, void (*print)(void *arg, const char *line), void *arg,
		 bool verbose)
{
	memset(report, 0, sizeof(*report));
	report->print = print;
	report->arg = arg;
	report->verbose = verbose;
}

void report_free(struct report *report)
{
	report_forget(report);
}

void report_line(struct report *report, const char *format, ...)
{
	char line[LINE_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	report->print(report->arg, line);
}

/* Counts a line of this kind: is it one of those that are printed? */
static bool count_line(struct report *report, unsigned number)
{
	unsigned i = 0;

	while (i < report->kinds && report->kind[i].number != number)
		i++;
	if (i == report->kinds) {
		check(i < REPORT_KINDS_MAX);
		report->kind[i].number = number;
		report->kind[i].lines = 0;
		report->kinds++;
	}
	return ++report->kind[i].lines <= REPORT_LINES_MAX || report->verbose;
}

/* FNV-1a. */
static uint64_t hash_of(const struct fsck_problem *problem)
{
	uint64_t hash = 0xcbf29ce484222325u ^ problem->number;

	for (const char *p = problem->detail; *p; p++)
		hash = (hash ^ (uint8_t)*p) * 0x100000001b3u;
	return hash;
}

static bool was_told(const struct report *report, uint64_t hash)
{
	for (unsigned i = 0; i < report->told_count; i++)
		if (report->told[i] == hash)
			return true;
	return false;
}

static void tell(struct report *report, const struct fsck_problem *problem, bool left)
{
	if (report->told_count < REPORT_TOLD_MAX)
		report->told[report->told_count++] = hash_of(problem);
	if (report->found)
		report->found(report->arg, problem, left);
	else
		report_line(report, "[%u] %s: %s", problem->number, problem->title,
			    problem->detail);
}

static void hold(struct report *report, const struct fsck_problem *problem)
{
	char *copy = report->held_count < REPORT_HELD_MAX ? strdup(problem->detail) : NULL;

	if (copy)
		report->held[report->held_count++] = (struct report_entry){
			fsck_problem_kind(problem->number), problem->repair != REPAIR_NONE, copy};
	else
		report->held_lost++;
}

static struct fsck_problem held_problem(const struct report_entry *entry)
{
	return (struct fsck_problem){
		.number = entry->kind->number,
		.severity = entry->kind->severity,
		.repair = entry->repairable ? entry->kind->repair : REPAIR_NONE,
		.title = entry->kind->title,
		.detail = entry->detail,
	};
}

void report_found(void *arg, const struct fsck_problem *problem)
{
	struct report *report = arg;

	if (!count_line(report, problem->number))
		return;
	if (report->holding)
		hold(report, problem);
	else
		tell(report, problem, false);
}

void report_problem(struct report *report, enum fsck_problem_id id, const char *format, ...)
{
	const struct fsck_problem_kind *kind = fsck_problem_kind(id);
	char detail[LINE_BYTES / 2];
	struct fsck_problem problem = {
		.number = kind->number,
		.severity = kind->severity,
		.repair = kind->repair,
		.title = kind->title,
		.detail = detail,
	};
	va_list args;

	va_start(args, format);
	vsnprintf(detail, sizeof(detail), format, args);
	va_end(args);
	report_found(report, &problem);
}

void report_rest(struct report *report)
{
	for (unsigned i = 0; i < report->kinds && !report->verbose; i++)
		if (report->kind[i].lines > REPORT_LINES_MAX)
			report_line(report, "[%u] %s: %" PRIu64 " more (-v shows them)",
				    report->kind[i].number,
				    fsck_problem_kind(report->kind[i].number)->title,
				    report->kind[i].lines - REPORT_LINES_MAX);
	report->kinds = 0;
}

void report_hold(struct report *report)
{
	report->holding = true;
}

void report_forget(struct report *report)
{
	for (unsigned i = 0; i < report->held_count; i++)
		free(report->held[i].detail);
	report->held_count = 0;
	report->held_lost = 0;
	report->kinds = 0;
}

void report_news(struct report *report, const char *title)
{
	bool titled = false;

	for (unsigned i = 0; i < report->held_count; i++) {
		struct fsck_problem problem = held_problem(&report->held[i]);

		if (was_told(report, hash_of(&problem)))
			continue;
		if (!titled && !report->found)
			report->print(report->arg, title);
		titled = true;
		tell(report, &problem, false);
	}
}

void report_left(struct report *report, const char *title)
{
	report->holding = false;
	if (report->held_count && !report->found)
		report->print(report->arg, title);
	for (unsigned i = 0; i < report->held_count; i++) {
		struct fsck_problem problem = held_problem(&report->held[i]);

		tell(report, &problem, true);
	}
	if (report->held_lost)
		report_line(report, "%" PRIu64 " more lines", report->held_lost);
	report_rest(report);
	report_forget(report);
}
