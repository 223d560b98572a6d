/*
 * Sums up what mount.sh measured.
 *
 *	report [--json FILE] < RAW
 *
 * A line of RAW: ROUND SYSTEM NAME SERVER_CPU_US {"rate": ..., ...}
 *
 * Prints a table of medians over the rounds.  FILE gets the ratios ("summary":
 * the first system's median rate divided by another's), the medians, and
 * every measurement as it came.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define SYSTEMS_MAX 8
#define NAMES_MAX 32
#define ROUNDS_MAX 1000
#define LINE_MAX_BYTES 1024

struct series {
	unsigned count;
	double rate[ROUNDS_MAX];
	double cpu_us[ROUNDS_MAX]; /* of one operation; 0 = not measured */
};

struct line {
	unsigned round;
	char system[32], name[32], result[LINE_MAX_BYTES];
	double server_cpu_us;
};

struct report {
	unsigned systems, names, lines_count, lines_cap;
	char system[SYSTEMS_MAX][32], name[NAMES_MAX][32];
	struct series *series[SYSTEMS_MAX][NAMES_MAX];
	struct line *lines;
};

static void fail(const char *what)
{
	fprintf(stderr, "report: %s\n", what);
	exit(1);
}

/* ------------------------------------------------------------------ reading */

/* The value of a number in a line of JSON that this folder's programs printed. */
static double number_in(const char *json, const char *key)
{
	char quoted[64];
	const char *at;

	snprintf(quoted, sizeof(quoted), "\"%s\": ", key);
	at = strstr(json, quoted);
	return at ? strtod(at + strlen(quoted), NULL) : 0;
}

static unsigned index_of(char names[][32], unsigned *count, unsigned max, const char *name)
{
	unsigned i = 0;

	while (i < *count && strcmp(names[i], name) != 0)
		i++;
	if (i == max)
		fail("too many names");
	if (i == *count)
		snprintf(names[(*count)++], 32, "%s", name);
	return i;
}

static struct series *series_of(struct report *report, const struct line *line)
{
	unsigned s = index_of(report->system, &report->systems, SYSTEMS_MAX, line->system);
	unsigned n = index_of(report->name, &report->names, NAMES_MAX, line->name);
	struct series **series = &report->series[s][n];

	if (!*series)
		*series = calloc(1, sizeof(**series));
	if (!*series)
		fail("out of memory");
	return *series;
}

static void add(struct report *report, const struct line *line)
{
	struct series *series = series_of(report, line);
	double files = number_in(line->result, "files");

	if (series->count == ROUNDS_MAX)
		fail("too many rounds");
	series->rate[series->count] = number_in(line->result, "rate");
	if (files > 0)
		series->cpu_us[series->count] = number_in(line->result, "cpu_us") +
						line->server_cpu_us / files;
	series->count++;
	if (report->lines_count == report->lines_cap) {
		report->lines_cap = report->lines_cap * 2 + 64;
		report->lines = realloc(report->lines, report->lines_cap * sizeof(*line));
		if (!report->lines)
			fail("out of memory");
	}
	report->lines[report->lines_count++] = *line;
}

static void read_all(struct report *report)
{
	char text[LINE_MAX_BYTES];

	while (fgets(text, sizeof(text), stdin)) {
		struct line line;

		text[strcspn(text, "\n")] = '\0';
		if (sscanf(text, "%u %31s %31s %lf %1023[^\n]", &line.round, line.system, line.name,
			   &line.server_cpu_us, line.result) != 5)
			fail("not a measurement");
		add(report, &line);
	}
}

/* ----------------------------------------------------------------- medians */

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return left < right ? -1 : left > right;
}

static double median(const double *values, unsigned count)
{
	double sorted[ROUNDS_MAX];

	if (count == 0)
		return 0;
	memcpy(sorted, values, count * sizeof(values[0]));
	qsort(sorted, count, sizeof(sorted[0]), compare);
	return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

static double rate(const struct report *report, unsigned system, unsigned name)
{
	const struct series *series = report->series[system][name];

	return series ? median(series->rate, series->count) : 0;
}

static double cpu_us(const struct report *report, unsigned system, unsigned name)
{
	const struct series *series = report->series[system][name];

	return series ? median(series->cpu_us, series->count) : 0;
}

/* The first system's rate to another's; 0 = one of them was not measured. */
static double ratio(const struct report *report, unsigned other, unsigned name)
{
	double theirs = rate(report, other, name);

	return theirs > 0 ? rate(report, 0, name) / theirs : 0;
}

/* ------------------------------------------------------------------- table */

static void print_table(const struct report *report)
{
	printf("\n%-10s", "");
	for (unsigned s = 0; s < report->systems; s++)
		printf(" %10s %8s", report->system[s], "us CPU");
	for (unsigned s = 1; s < report->systems; s++)
		printf("   /%-7s", report->system[s]);
	puts("");
	for (unsigned n = 0; n < report->names; n++) {
		printf("%-10s", report->name[n]);
		for (unsigned s = 0; s < report->systems; s++)
			printf(" %10.0f %8.1f", rate(report, s, n), cpu_us(report, s, n));
		for (unsigned s = 1; s < report->systems; s++)
			printf("   %-8.2f", ratio(report, s, n));
		puts("");
	}
	puts("\nmedians: operations a second (seq*: MiB a second), us of CPU for one operation");
}

/* -------------------------------------------------------------------- JSON */

static void write_summary(FILE *out, const struct report *report)
{
	const char *comma = "";

	fputs("  \"summary\": {", out);
	for (unsigned n = 0; n < report->names; n++)
		for (unsigned s = 1; s < report->systems; s++) {
			if (ratio(report, s, n) == 0)
				continue;
			fprintf(out, "%s\n    \"%s_%s\": %.3f", comma, report->name[n],
				report->system[s], ratio(report, s, n));
			comma = ",";
		}
	fputs("\n  },\n", out);
}

static void write_medians(FILE *out, const struct report *report, const char *key,
			  double (*value)(const struct report *, unsigned, unsigned))
{
	fprintf(out, "  \"%s\": {", key);
	for (unsigned s = 0; s < report->systems; s++) {
		fprintf(out, "%s\n    \"%s\": {", s ? "," : "", report->system[s]);
		for (unsigned n = 0; n < report->names; n++)
			fprintf(out, "%s\"%s\": %.2f", n ? ", " : "", report->name[n],
				value(report, s, n));
		fputs("}", out);
	}
	fputs("\n  },\n", out);
}

static void write_json(FILE *out, const struct report *report)
{
	struct utsname uts;

	uname(&uts);
	fprintf(out, "{\n  \"kernel\": \"%s\",\n  \"cpus\": %ld,\n", uts.release,
		sysconf(_SC_NPROCESSORS_ONLN));
	fprintf(out, "  \"rounds\": %u,\n",
		report->lines_count ? report->lines[report->lines_count - 1].round : 0);
	write_summary(out, report);
	write_medians(out, report, "median_rate", rate);
	write_medians(out, report, "median_cpu_us", cpu_us);
	fputs("  \"raw\": [", out);
	for (unsigned i = 0; i < report->lines_count; i++) {
		const struct line *line = &report->lines[i];

		fprintf(out,
			"%s\n    {\"round\": %u, \"system\": \"%s\", \"name\": \"%s\", "
			"\"server_cpu_us\": %.0f, \"result\": %s}",
			i ? "," : "", line->round, line->system, line->name, line->server_cpu_us,
			line->result);
	}
	fputs("\n  ]\n}\n", out);
}

static void write_file(const char *path, const struct report *report)
{
	FILE *out = fopen(path, "w");

	if (!out)
		fail(strerror(errno));
	write_json(out, report);
	if (fclose(out) != 0)
		fail(strerror(errno));
	printf("%s\n", path);
}

int main(int argc, char **argv)
{
	static struct report report;

	if (argc != 1 && !(argc == 3 && strcmp(argv[1], "--json") == 0))
		fail("usage: report [--json FILE] < RAW");
	read_all(&report);
	print_table(&report);
	if (argc == 3)
		write_file(argv[2], &report);
	for (unsigned s = 0; s < SYSTEMS_MAX; s++)
		for (unsigned n = 0; n < NAMES_MAX; n++)
			free(report.series[s][n]);
	free(report.lines);
	return 0;
}
