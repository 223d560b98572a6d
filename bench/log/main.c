/*
 * Commits per second, the log beside what programs do without one.
 *
 *	log_bench FOLDER        files and log.json go there
 *
 * ROUNDS        7
 * DURATION_MS   120, of each run
 * MEMORY        /dev/shm: a tmpfs, for what is measured in memory
 *
 * Settings: the disk that FOLDER is on; the same behind flushes that take 1.5 ms
 * longer (on it a group is worth more, as on a disk without a cache that
 * survives); tmpfs.  Each way runs once a round, one after the other, so that
 * whatever else the machine does meets all of them.  A ratio is the median of
 * the rounds' ratios, a rate the median of the rates.
 */
#include "bench/log/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS_MOST 100u
#define THREAD_COUNTS 4u
#define LONE_SLICES 5u
#define LONE_SLICE_NS 25000000ull

enum setting { DISK, SLOW, MEMORY, SETTINGS };

static const char *const setting_names[SETTINGS] = {"disk", "slowflush", "tmpfs"};
static const unsigned thread_counts[THREAD_COUNTS] = {1, 4, 16, 64};

struct way {
	const char *name;
	enum setting setting;
	const struct committer *committer;
	void *self;
	struct run_result result[THREAD_COUNTS][ROUNDS_MOST];
};

#define WAY(called, where, how) {.name = called, .setting = where, .committer = how}

static struct way ways[] = {
	WAY("plain", DISK, &plain_overwrite),
	WAY("plain_append", DISK, &plain_append),
	WAY("serial", DISK, &serial),
	WAY("bare_group", DISK, &bare_group),
	WAY("bare_group_append", DISK, &bare_group_append),
	WAY("log_pwrite", DISK, &logged_pwrite),
	WAY("log_direct", DISK, &logged_direct),
	WAY("log_dsync", DISK, &logged_dsync),
	WAY("log_mapped", DISK, &logged_mapped),
	WAY("plain", SLOW, &plain_overwrite),
	WAY("serial", SLOW, &serial),
	WAY("bare_group", SLOW, &bare_group),
	WAY("log_pwrite", SLOW, &logged_pwrite),
	WAY("bare_group", MEMORY, &bare_group),
	WAY("log_pwrite", MEMORY, &logged_pwrite),
	WAY("log_mapped", MEMORY, &logged_mapped),
};

static unsigned rounds = 7;
static uint64_t duration_ns = 120000000;
static double lone_ratio[ROUNDS_MOST * LONE_SLICES], lone_raw_us[ROUNDS_MOST * LONE_SLICES],
	lone_log_us[ROUNDS_MOST * LONE_SLICES];
static unsigned lone_count;

/* ---------------------------------------------------------------- medians */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(const double *values, unsigned count)
{
	double sorted[ROUNDS_MOST * LONE_SLICES];

	memcpy(sorted, values, count * sizeof(*values));
	qsort(sorted, count, sizeof(*sorted), compare);
	return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

static double rate_of(const struct way *way, unsigned count)
{
	double rates[ROUNDS_MOST];

	for (unsigned round = 0; round < rounds; round++)
		rates[round] = way->result[count][round].rate;
	return median(rates, rounds);
}

static const struct way *find(const char *name, enum setting setting)
{
	for (unsigned i = 0; i < array_count(ways); i++)
		if (ways[i].setting == setting && strcmp(ways[i].name, name) == 0)
			return &ways[i];
	die(name);
}

/* Of two ways in one setting, each with so many threads. */
static double ratio(enum setting setting, const char *name, unsigned threads, const char *over,
		    unsigned over_threads)
{
	const struct way *a = find(name, setting), *b = find(over, setting);
	double ratios[ROUNDS_MOST];
	unsigned at = 0, over_at = 0;

	for (unsigned i = 0; i < THREAD_COUNTS; i++) {
		at = thread_counts[i] == threads ? i : at;
		over_at = thread_counts[i] == over_threads ? i : over_at;
	}
	for (unsigned round = 0; round < rounds; round++)
		ratios[round] = a->result[at][round].rate / b->result[over_at][round].rate;
	return median(ratios, rounds);
}

/* -------------------------------------------------------------- measuring */

/* Slices in turn, since a lone committer's times are those of the disk, and drift. */
static void measure_lone(const struct way *raw, const struct way *log)
{
	for (unsigned i = 0; i < LONE_SLICES; i++) {
		struct run_result r = run(raw->committer, raw->self, 1, LONE_SLICE_NS);
		struct run_result l = run(log->committer, log->self, 1, LONE_SLICE_NS);

		if (r.median_us <= 0 || l.median_us <= 0)
			continue;
		lone_raw_us[lone_count] = r.median_us;
		lone_log_us[lone_count] = l.median_us;
		lone_ratio[lone_count++] = r.median_us / l.median_us;
	}
}

static void measure(unsigned round)
{
	for (unsigned n = 0; n < THREAD_COUNTS; n++)
		for (unsigned i = 0; i < array_count(ways); i++)
			ways[i].result[n][round] = run(ways[i].committer, ways[i].self,
						       thread_counts[n], duration_ns);
	measure_lone(find("plain", DISK), find("log_pwrite", DISK));
}

static void open_ways(const char *folder, const char *memory)
{
	for (unsigned i = 0; i < array_count(ways); i++) {
		struct way *way = &ways[i];
		char path[4096];

		snprintf(path, sizeof(path), "%s/log_bench.%d.%u",
			 way->setting == MEMORY ? memory : folder, (int)getpid(), i);
		way->self = way->committer->open(path, way->setting == SLOW ? SLOW_FLUSH_NS : 0);
		unlink(path); /* gone when this program ends, however it ends */
	}
}

/* ---------------------------------------------------------------- report */

static void report_rates(FILE *out)
{
	fprintf(out, "  \"commits_per_second\": {");
	for (unsigned s = 0; s < SETTINGS; s++) {
		bool first = true;

		fprintf(out, "%s\n    \"%s\": {", s ? "," : "", setting_names[s]);
		for (unsigned i = 0; i < array_count(ways); i++) {
			if (ways[i].setting != s)
				continue;
			fprintf(out, "%s\n      \"%s\": {", first ? "" : ",", ways[i].name);
			first = false;
			for (unsigned n = 0; n < THREAD_COUNTS; n++)
				fprintf(out, "%s\"%u\": %.0f", n ? ", " : "", thread_counts[n],
					rate_of(&ways[i], n));
			fprintf(out, "}");
		}
		fprintf(out, "\n    }");
	}
	fprintf(out, "\n  },\n");
}

struct figure {
	const char *name;
	double value;
};

static void report(const char *folder, const struct figure *figures, size_t count)
{
	char path[4096];
	FILE *out;

	snprintf(path, sizeof(path), "%s/log.json", folder);
	out = fopen(path, "w");
	if (!out)
		die(path);
	fprintf(out, "{\n");
	report_rates(out);
	fprintf(out, "  \"lone_median_us\": {\"raw\": %.1f, \"log\": %.1f},\n  \"rounds\": %u,\n",
		median(lone_raw_us, lone_count), median(lone_log_us, lone_count), rounds);
	fprintf(out, "  \"summary\": {");
	for (size_t i = 0; i < count; i++)
		fprintf(out, "%s\n    \"%s\": %.3f", i ? "," : "", figures[i].name,
			figures[i].value);
	fprintf(out, "\n  }\n}\n");
	if (fclose(out) != 0)
		die(path);
}

static void print_table(const struct figure *figures, size_t count)
{
	printf("%-10s %-18s", "commits/s", "threads");
	for (unsigned n = 0; n < THREAD_COUNTS; n++)
		printf(" %9u", thread_counts[n]);
	for (unsigned i = 0; i < array_count(ways); i++) {
		printf("\n%-10s %-18s", setting_names[ways[i].setting], ways[i].name);
		for (unsigned n = 0; n < THREAD_COUNTS; n++)
			printf(" %9.0f", rate_of(&ways[i], n));
	}
	printf("\n\none thread, median: raw %.1f us, log %.1f us\n\n",
	       median(lone_raw_us, lone_count), median(lone_log_us, lone_count));
	for (size_t i = 0; i < count; i++)
		printf("%-30s %9.3f\n", figures[i].name, figures[i].value);
}

static unsigned long from_environment(const char *name, unsigned long otherwise)
{
	const char *text = getenv(name);

	return text ? strtoul(text, NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
	const char *memory = getenv("MEMORY");

	if (argc != 2) {
		fprintf(stderr, "usage: log_bench FOLDER\n");
		return 2;
	}
	rounds = (unsigned)from_environment("ROUNDS", rounds);
	duration_ns = from_environment("DURATION_MS", duration_ns / 1000000) * 1000000;
	if (rounds == 0 || rounds > ROUNDS_MOST || duration_ns == 0) {
		errno = EINVAL;
		die("ROUNDS, DURATION_MS");
	}
	open_ways(argv[1], memory ? memory : "/dev/shm");
	for (unsigned round = 0; round < rounds; round++)
		measure(round);

	const struct figure figures[] = {
		{"group64_over_bare64", ratio(DISK, "log_pwrite", 64, "bare_group", 64)},
		{"group64_over_bare64_slowflush", ratio(SLOW, "log_pwrite", 64, "bare_group", 64)},
		{"group64_over_plain1_slowflush", ratio(SLOW, "log_pwrite", 64, "plain", 1)},
		{"circular_over_append", ratio(DISK, "log_pwrite", 64, "bare_group_append", 64)},
		{"circular_over_append_plain1", ratio(DISK, "plain", 1, "plain_append", 1)},
		{"lone_over_raw", median(lone_ratio, lone_count)},
		{"mapped_over_pwrite_tmpfs", ratio(MEMORY, "log_mapped", 1, "log_pwrite", 1)},
		{"mapped64_over_pwrite64_tmpfs", ratio(MEMORY, "log_mapped", 64, "log_pwrite", 64)},
		{"direct_over_pwrite", ratio(DISK, "log_direct", 1, "log_pwrite", 1)},
		{"direct64_over_pwrite64", ratio(DISK, "log_direct", 64, "log_pwrite", 64)},
		{"dsync_over_pwrite", ratio(DISK, "log_dsync", 1, "log_pwrite", 1)},
		{"flushes_per_durable_create", flushes_per_durable_create(argv[1])},
	};

	print_table(figures, array_count(figures));
	report(argv[1], figures, array_count(figures));
	for (unsigned i = 0; i < array_count(ways); i++)
		ways[i].committer->close(ways[i].self);
	return 0;
}
