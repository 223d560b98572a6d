/*
 * The table of problems and what is said about it elsewhere agree: each number is
 * in the manual page, under the option that repairs it, and each is made by a
 * test.  Run from the top folder of the sources, as make does.
 */
#include "fsck/check.h"

#include "engine/base/check.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *whole_file(const char *path)
{
	FILE *file = fopen(path, "r");
	char *text;
	long size;

	cr_assert_not_null(file, "%s: run this from the top folder", path);
	cr_assert_eq(fseek(file, 0, SEEK_END), 0);
	size = ftell(file);
	rewind(file);
	text = calloc(1, (size_t)size + 1);
	cr_assert_eq(fread(text, 1, (size_t)size, file), (size_t)size);
	fclose(file);
	return text;
}

static const struct row {
	unsigned number;
	enum fsck_repair repair;
	const char *title;
} rows[] = {
#define X(name, number, severity, repair, title) {number, REPAIR_##repair, title},
#include "fsck/problem.def"
#undef X
};

Test(fsck_table, manual_page_names_each_number)
{
	static const char *const options[] = {
		[REPAIR_NONE] = "\\(em",
		[REPAIR_SAFE] = "\\-p",
		[REPAIR_FULL] = "\\-y",
		[REPAIR_REOPEN] = "\\-p",
	};
	char *text = whole_file("fsck/fsck.blinkfs.8");
	const char *at = text;
	size_t found = 0;

	for (size_t i = 0; i < array_count(rows); i++) {
		char head[64];

		snprintf(head, sizeof(head), "\n.BR %u \" (%s)\"\n", rows[i].number,
			 options[rows[i].repair]);
		cr_assert_not_null(strstr(text, head), "%u is missing, or under another option",
				   rows[i].number);
	}
	while ((at = strstr(at, "\n.BR ")) != NULL)
		found += strtoul(at += 5, NULL, 10) != 0;
	cr_assert_eq(found, array_count(rows), "the manual page has %zu numbers, the table %zu",
		     found, array_count(rows));
	free(text);
}

static bool is_known(unsigned long number)
{
	for (size_t i = 0; i < array_count(rows); i++)
		if (rows[i].number == number)
			return true;
	return false;
}

/* Tests of numbers that the table does not have. */
static unsigned unknown_faults(const char *text)
{
	unsigned unknown = 0, faults = 0;

	while ((text = strstr(text, "\nFAULT(")) != NULL) {
		text = strchr(text, ',');
		cr_assert_not_null(text);
		unknown += !is_known(strtoul(++text, NULL, 10));
		faults++;
	}
	cr_assert_gt(faults, 20);
	return unknown;
}

Test(fsck_table, numbers_are_of_one_thing_each)
{
	for (size_t i = 0; i < array_count(rows); i++) {
		cr_assert(rows[i].number > 0 && rows[i].number < 900);
		cr_assert(i == 0 || rows[i].number > rows[i - 1].number, "%u", rows[i].number);
		cr_assert(*rows[i].title);
	}
}

/* 11, 101 and 802 are made in test_fsck.c: by a dead volume, and by reads that fail. */
Test(fsck_table, each_number_is_made_by_a_test)
{
	static const unsigned elsewhere[] = {11, 101, 802};
	char *faults = whole_file("tests/unit/test_fsck_faults.c");
	char *names = whole_file("tests/unit/test_fsck_faults_names.c");
	char *sessions = whole_file("tests/unit/test_fsck.c");

	for (size_t i = 0; i < array_count(rows); i++) {
		char stays[32], repaired[32], other[32], line[32];
		bool made;

		snprintf(stays, sizeof(stays), ", %u, STAYS)", rows[i].number);
		snprintf(repaired, sizeof(repaired), ", %u, REPAIRED)", rows[i].number);
		snprintf(other, sizeof(other), "(&n, %u)", rows[i].number);
		snprintf(line, sizeof(line), "\"[%u]\"", rows[i].number);
		made = strstr(faults, stays) || strstr(names, stays) || strstr(faults, repaired) ||
		       strstr(names, repaired);
		for (size_t j = 0; j < array_count(elsewhere); j++)
			if (elsewhere[j] == rows[i].number)
				made = strstr(sessions, other) || strstr(sessions, line);
		cr_assert(made, "%u", rows[i].number);
		/* What can be repaired is, by each test that makes it; the rest stays. */
		cr_assert((rows[i].repair == REPAIR_NONE) ||
			  (!strstr(faults, stays) && !strstr(names, stays)), "%u stays",
			  rows[i].number);
		cr_assert((rows[i].repair != REPAIR_NONE) ||
			  (!strstr(faults, repaired) && !strstr(names, repaired)), "%u goes",
			  rows[i].number);
	}
	cr_assert_eq(unknown_faults(faults) + unknown_faults(names), 0);
	free(faults);
	free(names);
	free(sessions);
}
