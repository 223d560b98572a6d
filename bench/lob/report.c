/* Medians, ratios, table and JSON of the runs. */
#include "bench/lob/bench.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

const char *operation_name(enum operation operation)
{
	static const char *const names[OPERATIONS] = {"update_16k", "update_64k", "update_256k",
						      "insert_16k", "insert_64k"};

	return names[operation];
}

const char *setting_name(unsigned setting)
{
	static char text[64];

	if (setting == SETTING_NONE)
		return "none";
	if (setting == SETTING_ALL)
		return "all";
	if (setting < SETTING_BUT)
		snprintf(text, sizeof(text), "only_%s",
			 tunable_name((enum tunable)(setting - SETTING_ALONE)));
	else
		snprintf(text, sizeof(text), "without_%s",
			 tunable_name((enum tunable)(setting - SETTING_BUT)));
	return text;
}

/* ---------------------------------------------------------------- medians */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median_of(double *values, unsigned count)
{
	qsort(values, count, sizeof(*values), compare);
	return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* What is looked at in a run. */
typedef double (*figure)(const struct run_result *result);

static double rate(const struct run_result *result)
{
	return result->rate;
}

static double settled_rate(const struct run_result *result)
{
	return result->settled_rate;
}

static double all_waits(const struct run_result *result)
{
	double sum = 0;

	for (unsigned rank = 0; rank < RANK_COUNT; rank++)
		sum += result->waits[rank];
	return sum;
}

/* The latches that the measures are about: of the index, and of the free map. */
static double index_and_space_waits(const struct run_result *result)
{
	return result->waits[RANK_INDEX] + result->waits[RANK_SPACE];
}

static double waits_per_op(const struct run_result *result)
{
	return all_waits(result) / result->rate;
}

static double data_blocks(const struct run_result *result)
{
	return result->purge_data_blocks;
}

static double latched_misses(const struct run_result *result)
{
	return result->latched_misses;
}

static double writes_per_op(const struct run_result *result)
{
	return result->writes_per_op;
}

static double reserves_per_op(const struct run_result *result)
{
	return result->reserves_per_op;
}

static double log_bytes_per_op(const struct run_result *result)
{
	return result->log_bytes_per_op;
}

static double median(const struct results *r, unsigned setting, unsigned operation, figure figure)
{
	double values[ROUNDS_MOST];

	for (unsigned i = 0; i < r->rounds; i++)
		values[i] = figure(&r->at[setting][operation][i]);
	return median_of(values, r->rounds);
}

static double median_waits(const struct results *r, unsigned setting, unsigned operation,
			   unsigned rank)
{
	double values[ROUNDS_MOST];

	for (unsigned i = 0; i < r->rounds; i++)
		values[i] = r->at[setting][operation][i].waits[rank];
	return median_of(values, r->rounds);
}

/* Of the rounds' ratios of two settings; a figure of nothing at all counts as 1. */
static double ratio(const struct results *r, unsigned operation, figure figure, unsigned over,
		    unsigned under)
{
	double values[ROUNDS_MOST];

	for (unsigned i = 0; i < r->rounds; i++) {
		double below = figure(&r->at[under][operation][i]);

		values[i] = figure(&r->at[over][operation][i]) / (below > 0 ? below : 1);
	}
	return median_of(values, r->rounds);
}

static bool was_run(const struct results *r, unsigned setting)
{
	return r->at[setting][0][0].rate > 0;
}

/* ------------------------------------------------------------------- JSON */

static const struct {
	const char *name;
	figure figure;
} shown[] = {
	{"ops_per_second", rate},
	{"ops_per_second_purge_included", settled_rate},
	{"latch_waits_per_second", all_waits},
	{"index_and_space_latch_waits_per_second", index_and_space_waits},
	{"latch_waits_per_op", waits_per_op},
	{"purge_data_blocks_read_per_second", data_blocks},
	{"index_pages_read_latched_per_second", latched_misses},
	{"writes_per_op", writes_per_op},
	{"reservations_per_op", reserves_per_op},
	{"log_bytes_per_op", log_bytes_per_op},
};

static void put_run(FILE *out, const struct results *r, unsigned setting, unsigned operation)
{
	bool first = true;

	fprintf(out, "{");
	for (size_t i = 0; i < array_count(shown); i++)
		fprintf(out, "\"%s\": %.2f, ", shown[i].name,
			median(r, setting, operation, shown[i].figure));
	fprintf(out, "\"waits_by_kind\": {");
	for (unsigned rank = 0; rank < RANK_COUNT; rank++) {
		double waits = median_waits(r, setting, operation, rank);

		if (waits <= 0)
			continue;
		fprintf(out, "%s\"%s\": %.1f", first ? "" : ", ", rank_name((enum rank)rank),
			waits);
		first = false;
	}
	fprintf(out, "}}");
}

static void put_summary(FILE *out, const struct results *r)
{
	double most_blocks = 0;

	for (unsigned operation = 0; operation < OPERATIONS; operation++) {
		double blocks = median(r, SETTING_ALL, operation, data_blocks);

		most_blocks = blocks > most_blocks ? blocks : most_blocks;
		fprintf(out, "    \"%s_ratio\": %.3f,\n", operation_name((enum operation)operation),
			ratio(r, operation, rate, SETTING_ALL, SETTING_NONE));
		fprintf(out, "    \"%s_purge_included_ratio\": %.3f,\n",
			operation_name((enum operation)operation),
			ratio(r, operation, settled_rate, SETTING_ALL, SETTING_NONE));
		fprintf(out, "    \"%s_latch_wait_per_op_ratio\": %.3f,\n",
			operation_name((enum operation)operation),
			ratio(r, operation, waits_per_op, SETTING_NONE, SETTING_ALL));
	}
	fprintf(out, "    \"latch_wait_ratio\": %.3f,\n",
		ratio(r, UPDATE_16K, index_and_space_waits, SETTING_NONE, SETTING_ALL));
	fprintf(out, "    \"latch_wait_all_kinds_ratio\": %.3f,\n",
		ratio(r, UPDATE_16K, all_waits, SETTING_NONE, SETTING_ALL));
	fprintf(out, "    \"purge_data_blocks_read\": %.0f\n", most_blocks);
}

static void put_json(FILE *out, const struct results *r)
{
	fprintf(out, "{\n  \"rounds\": %u, \"threads\": %u, \"duration_ms\": %u,\n", r->rounds,
		r->threads, r->duration_ms);
	fprintf(out, "  \"data\": \"%s\",\n", r->direct ? "direct" : "cached");
	fprintf(out, "  \"runs\": {");
	for (unsigned operation = 0; operation < OPERATIONS; operation++) {
		fprintf(out, "%s\n    \"%s\": {", operation ? "," : "",
			operation_name((enum operation)operation));
		for (unsigned setting = 0; setting < SETTINGS; setting++) {
			if (!was_run(r, setting))
				continue;
			fprintf(out, "%s\n      \"%s\": ", setting ? "," : "",
				setting_name(setting));
			put_run(out, r, setting, operation);
		}
		fprintf(out, "\n    }");
	}
	fprintf(out, "\n  },\n  \"summary\": {\n");
	put_summary(out, r);
	fprintf(out, "  }\n}\n");
}

/* ------------------------------------------------------------------ table */

static void print_table(const struct results *r)
{
	printf("%-28s", "ops/s (latch waits/s)");
	for (unsigned operation = 0; operation < OPERATIONS; operation++)
		printf(" %18s", operation_name((enum operation)operation));
	printf("\n");
	for (unsigned setting = 0; setting < SETTINGS; setting++) {
		if (!was_run(r, setting))
			continue;
		printf("%-28s", setting_name(setting));
		for (unsigned operation = 0; operation < OPERATIONS; operation++)
			printf(" %8.0f (%7.0f)", median(r, setting, operation, rate),
			       median(r, setting, operation, all_waits));
		printf("\n");
	}
	printf("\n");
	put_summary(stdout, r);
}

void report(const struct results *results, const char *folder)
{
	char path[4096];
	FILE *out;

	print_table(results);
	snprintf(path, sizeof(path), "%s/lob.json", folder);
	out = fopen(path, "w");
	if (!out)
		die(path, -errno);
	put_json(out, results);
	if (fclose(out) != 0)
		die(path, -errno);
}
