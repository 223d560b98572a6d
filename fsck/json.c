/* The report as JSON: see json.h. */
#include "fsck/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the UTF-8 character at p; 0: it is none. */
static unsigned utf8_bytes(const uint8_t *p)
{
	unsigned n = *p >= 0xf0 && *p < 0xf5   ? 4
		     : *p >= 0xe0 && *p < 0xf0 ? 3
		     : *p >= 0xc2 && *p < 0xe0 ? 2
					       : 0;

	for (unsigned i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) ||
	    (*p == 0xf0 && p[1] < 0x90) || (*p == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}

/* Names may be any bytes: what is not UTF-8 is shown as if it were Latin-1. */
static void put_string(FILE *out, const char *text)
{
	fputc('"', out);
	for (const uint8_t *p = (const uint8_t *)text; *p;) {
		unsigned n = *p < 0x80 ? 1 : utf8_bytes(p);

		if (*p < 0x20 || *p == 0x7f || n == 0) {
			fprintf(out, "\\u%04x", *p++);
			continue;
		}
		if (*p == '"' || *p == '\\')
			fputc('\\', out);
		fwrite(p, 1, n, out);
		p += n;
	}
	fputc('"', out);
}

int json_begin(struct json *json, FILE *out, const char *volume)
{
	memset(json, 0, sizeof(*json));
	json->out = out;
	json->messages = open_memstream(&json->text, &json->size);
	if (!json->messages)
		return -ENOMEM;
	fputs("{\"volume\": ", out);
	put_string(out, volume);
	fputs(",\n \"problems\": [", out);
	return 0;
}

void json_problem(struct json *json, const struct fsck_problem *problem, bool left)
{
	static const char *const severities[] = {
		[SEVERITY_NOTE] = "note",
		[SEVERITY_COUNT] = "count",
		[SEVERITY_WRONG] = "wrong",
		[SEVERITY_HIDES] = "hides",
	};

	fprintf(json->out,
		"%s\n  {\"number\": %u, \"name\": \"%s\", \"severity\": \"%s\", "
		"\"repairable\": %s, \"left\": %s, \"text\": ",
		json->any_problem ? "," : "", problem->number,
		fsck_problem_kind(problem->number)->name, severities[problem->severity],
		problem->repair == REPAIR_NONE ? "false" : "true", left ? "true" : "false");
	put_string(json->out, problem->title);
	fputs(", \"where\": ", json->out);
	put_string(json->out, problem->detail);
	fputc('}', json->out);
	json->any_problem = true;
}

void json_message(struct json *json, const char *line)
{
	if (json->any_message)
		fputs(", ", json->messages);
	put_string(json->messages, line);
	json->any_message = true;
}

void json_result(struct json *json, const struct fsck_result *result)
{
	json->result = *result;
	json->walked = true;
}

void json_end(struct json *json, int exit)
{
	const struct fsck_result *r = &json->result;

	fclose(json->messages);
	fprintf(json->out, "],\n \"messages\": [%s],\n", json->text ? json->text : "");
	if (json->walked)
		fprintf(json->out,
			" \"files\": %" PRIu64 ", \"directories\": %" PRIu64
			", \"others\": %" PRIu64 ", \"blocks_used\": %" PRIu64
			", \"blocks_total\": %" PRIu64 ",\n",
			r->files, r->directories, r->others, r->blocks_used, r->blocks_total);
	fprintf(json->out, " \"exit\": %d}\n", exit);
	free(json->text);
}
