/*
 * The report of one run as one JSON object:
 *
 *	{"volume": "disk.img",
 *	 "problems": [{"number": 406, "name": "DIRENT_CHILD", "severity": "wrong",
 *	               "repairable": true, "left": false, "text": "...", "where": "..."}],
 *	 "messages": ["..."],
 *	 "files": 1, "directories": 1, "others": 0, "blocks_used": 10, "blocks_total": 100,
 *	 "exit": 1}
 *
 * A problem that stays is told once more with "left": true.  The five counts are
 * missing when the volume was not walked.
 */
#ifndef BLINKFS_FSCK_JSON_H
#define BLINKFS_FSCK_JSON_H

#include "fsck/check.h"

#include <stdio.h>

struct json {
	FILE *out;      /* not owned */
	FILE *messages; /* memory; owned */
	char *text;
	size_t size;
	bool any_problem, any_message;
	bool walked;
	struct fsck_result result; /* its numbers only */
};

int json_begin(struct json *json, FILE *out, const char *volume) must_check;
void json_problem(struct json *json, const struct fsck_problem *problem, bool left);
void json_message(struct json *json, const char *line);
void json_result(struct json *json, const struct fsck_result *result);
void json_end(struct json *json, int exit);

#endif
