/*
 *	blink_bench FOLDER            writes FOLDER/blink.json
 *	blink_bench FOLDER serial     (LATCH=timed) writes FOLDER/blink.serial
 *
 * ROWS          of 2,500 bytes (150000: 400 MB); rows of 64 bytes: so many that their
 *               leaves are half as many
 * ROUNDS        5
 * MIXED_ROUNDS  3; 0: no mixed loads
 *
 * A round runs each number of threads in both modes, one after the other, each run on a
 * copy of the same filled volume; which mode comes first changes from round to round.
 * Figures are medians over the rounds, ratios medians of the rounds' ratios.
 *
 * After these rounds come as many with inserts that arrive by a schedule (open.c), the
 * same one for both modes: shares of what 32 threads with the index latch have done.
 *
 * During a run nothing is read from the device, which is proven by its counter, and no
 * page is written back; the log is flushed lazily, by its own thread, as it grows.  After
 * each run rows are counted and the tree is checked.
 */
#include "bench/blink/blink.h"

#include "engine/base/message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LARGE_BYTES 2500u
#define SMALL_BYTES 64u
#define SMALL_ROWS_PER_ROW 16u /* 210 rows a leaf instead of 6 */
#define SETS 2u
#define THREAD_COUNTS 4u
#define OFFER_COUNT 3u
#define OFFER_THREADS 3u /* place in thread_counts: 32 */
#define MIXED_THREADS 8u
#define CACHE_LEAST (256u * PAGE_SIZE_DEFAULT) /* POOL_FRAMES_MIN */

static const unsigned thread_counts[THREAD_COUNTS] = {1, 2, 8, 32};
static const unsigned offers[OFFER_COUNT] = {50, 70, 90}; /* hundredths */

struct bench {
	unsigned rounds, mixed_rounds;
	struct set set[SETS];
	struct run_result split[SETS][THREAD_COUNTS][SMO_MODE_COUNT][ROUNDS_MOST];
	struct run_result open[SETS][OFFER_COUNT][SMO_MODE_COUNT][ROUNDS_MOST];
	struct run_result mixed[8][SMO_MODE_COUNT][ROUNDS_MOST];
	FILE *out;
};

static struct bench bench;

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

typedef double (*figure_fn)(const struct run_result *result);

static double rate(const struct run_result *r) { return r->rate; }
static double cpu(const struct run_result *r) { return r->cpu_us; }
static double p50(const struct run_result *r) { return r->latency.p50_us; }
static double p95(const struct run_result *r) { return r->latency.p95_us; }
static double p99(const struct run_result *r) { return r->latency.p99_us; }
static double most(const struct run_result *r) { return r->latency.max_us; }
static double late(const struct run_result *r) { return r->late_us; }
static double splits(const struct run_result *r) { return (double)r->stats[STAT_tree_splits_leaf]; }

static double median(const struct run_result *results, unsigned rounds, figure_fn figure)
{
	double values[ROUNDS_MOST];

	for (unsigned i = 0; i < rounds; i++)
		values[i] = figure(&results[i]);
	return median_of(values, rounds);
}

static double ratio(const struct run_result *over, const struct run_result *under, unsigned rounds,
		    figure_fn figure)
{
	double values[ROUNDS_MOST];

	for (unsigned i = 0; i < rounds; i++)
		values[i] = figure(&over[i]) / figure(&under[i]);
	return median_of(values, rounds);
}

/* ---------------------------------------------------------------- running */

static void prove_in_memory(const struct run_result *result)
{
	if (result->stats[STAT_dev_reads])
		die("the device was read while inserts were measured", -EIO);
	if (result->stats[STAT_flush_pages])
		die("pages were written back while inserts were measured", -EIO);
}

static void run_split(const struct set *set, unsigned threads, struct schedule *schedule,
		      enum smo_mode mode, struct run_result *result)
{
	struct volume *volume = set_open(set, mode, 0);
	struct load load = {.do_one = load_insert, .set = set, .operations = set->inserts,
			    .threads = threads, .schedule = schedule};
	int64_t rows;

	load_run(&load, volume, result, &rows);
	prove_in_memory(result);
	set_check(volume, set->rows + (uint64_t)rows);
	volume_abandon(volume);
}

static void split_round(unsigned round)
{
	for (unsigned s = 0; s < SETS; s++) {
		for (unsigned t = 0; t < THREAD_COUNTS; t++) {
			for (unsigned turn = 0; turn < SMO_MODE_COUNT; turn++) {
				enum smo_mode mode = (turn + round) % SMO_MODE_COUNT;

				run_split(&bench.set[s], thread_counts[t], NULL, mode,
					  &bench.split[s][t][mode][round]);
			}
		}
	}
}

static void open_round(unsigned round, struct schedule schedules[SETS][OFFER_COUNT])
{
	for (unsigned s = 0; s < SETS; s++) {
		for (unsigned o = 0; o < OFFER_COUNT; o++) {
			for (unsigned turn = 0; turn < SMO_MODE_COUNT; turn++) {
				enum smo_mode mode = (turn + round) % SMO_MODE_COUNT;

				run_split(&bench.set[s], thread_counts[OFFER_THREADS],
					  &schedules[s][o], mode, &bench.open[s][o][mode][round]);
			}
		}
	}
}

static void open_rounds(void)
{
	struct schedule schedules[SETS][OFFER_COUNT];

	for (unsigned s = 0; s < SETS; s++) {
		double capacity = median(bench.split[s][OFFER_THREADS][SMO_INDEX_LATCH],
					 bench.rounds, rate);

		for (unsigned o = 0; o < OFFER_COUNT; o++)
			schedule_make(&schedules[s][o], bench.set[s].inserts,
				      capacity * offers[o] / 100, s * OFFER_COUNT + o);
	}
	for (unsigned round = 0; round < bench.rounds; round++)
		open_round(round, schedules);
	for (unsigned s = 0; s < SETS; s++)
		for (unsigned o = 0; o < OFFER_COUNT; o++)
			schedule_free(&schedules[s][o]);
}

static void run_mixed(const struct mixed *mixed, enum smo_mode mode, struct run_result *result)
{
	const struct set *set = &bench.set[1];
	uint64_t cache = mixed->cache_share
				 ? set->leaves * PAGE_SIZE_DEFAULT / mixed->cache_share : 0;
	struct volume *volume =
		set_open(set, mode, cache && cache < CACHE_LEAST ? CACHE_LEAST : cache);
	struct load load = {.do_one = mixed->do_one, .set = set,
			    .operations = set->inserts / MIXED_THREADS * MIXED_THREADS *
					  mixed->per_insert,
			    .threads = MIXED_THREADS};
	int64_t rows;

	load_run(&load, volume, result, &rows);
	set_check(volume, set->rows + (uint64_t)rows);
	volume_abandon(volume);
}

static void mixed_round(unsigned round)
{
	for (unsigned i = 0; i < mixed_count; i++) {
		for (unsigned turn = 0; turn < SMO_MODE_COUNT; turn++) {
			enum smo_mode mode = (turn + round) % SMO_MODE_COUNT;

			run_mixed(&mixed_loads[i], mode, &bench.mixed[i][mode][round]);
		}
	}
}

/* ----------------------------------------------------------------- report */

static void print_run(const char *name, unsigned threads, const struct run_result *results,
		      unsigned rounds)
{
	printf("%-24s %7u %10.0f %8.1f %9.1f %9.1f %9.1f %9.0f %9.0f\n", name, threads,
	       median(results, rounds, rate), median(results, rounds, cpu),
	       median(results, rounds, p50), median(results, rounds, p95),
	       median(results, rounds, p99), median(results, rounds, most),
	       median(results, rounds, splits));
}

static void print_open(void)
{
	char name[64];

	for (unsigned s = 0; s < SETS; s++) {
		for (unsigned o = 0; o < OFFER_COUNT; o++) {
			for (unsigned mode = 0; mode < SMO_MODE_COUNT; mode++) {
				snprintf(name, sizeof(name), "%u%%, %u b, %s", offers[o],
					 bench.set[s].payload, smo_mode_name(mode));
				print_run(name, thread_counts[OFFER_THREADS],
					  bench.open[s][o][mode], bench.rounds);
			}
		}
	}
}

static void print_tables(void)
{
	char name[64];

	printf("%-24s %7s %10s %8s %9s %9s %9s %9s %9s\n", "inserts that split", "threads",
	       "a second", "cpu us", "p50 us", "p95 us", "p99 us", "max us", "splits");
	for (unsigned s = 0; s < SETS; s++) {
		for (unsigned t = 0; t < THREAD_COUNTS; t++) {
			for (unsigned mode = 0; mode < SMO_MODE_COUNT; mode++) {
				snprintf(name, sizeof(name), "%u bytes, %s", bench.set[s].payload,
					 smo_mode_name(mode));
				print_run(name, thread_counts[t], bench.split[s][t][mode],
					  bench.rounds);
			}
		}
	}
	print_open();
	for (unsigned i = 0; bench.mixed_rounds && i < mixed_count; i++) {
		for (unsigned mode = 0; mode < SMO_MODE_COUNT; mode++) {
			snprintf(name, sizeof(name), "%s, %s", mixed_loads[i].name,
				 smo_mode_name(mode));
			print_run(name, MIXED_THREADS, bench.mixed[i][mode], bench.mixed_rounds);
		}
	}
}

/* Counters that moved, of the run in the middle by rate. */
static void report_counters(const struct run_result *results, unsigned rounds)
{
	double middle = median(results, rounds, rate);
	const struct run_result *chosen = results;

	for (unsigned i = 0; i < rounds; i++)
		if (results[i].rate <= middle && (results[i].rate > chosen->rate ||
						  chosen->rate > middle))
			chosen = &results[i];
	fprintf(bench.out, "\"counters\": {");
	for (unsigned i = 0, any = 0; i < STAT_COUNT; i++)
		if (chosen->stats[i])
			fprintf(bench.out, "%s\"%s\": %llu", any++ ? ", " : "", stat_name(i),
				(unsigned long long)chosen->stats[i]);
	fprintf(bench.out, "}, \"latch_waits\": {");
	for (unsigned i = 0, any = 0; i < RANK_COUNT; i++)
		if (chosen->waits[i])
			fprintf(bench.out, "%s\"%s\": %llu", any++ ? ", " : "", rank_name(i),
				(unsigned long long)chosen->waits[i]);
	fprintf(bench.out, "}}");
}

static void report_run(bool first, const char *load, unsigned payload, unsigned threads,
		       enum smo_mode mode, const struct run_result *results, unsigned rounds)
{
	fprintf(bench.out, "%s\n    {\"load\": \"%s\", \"payload\": %u, \"threads\": %u, "
		"\"mode\": \"%s\", \"rate\": %.0f, \"cpu_us\": %.2f, \"p50_us\": %.1f, "
		"\"p95_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, \"splits\": %.0f, "
		"\"offered\": %.0f, \"late_us\": %.1f,\n     ",
		first ? "" : ",", load, payload, threads, smo_mode_name(mode),
		median(results, rounds, rate), median(results, rounds, cpu),
		median(results, rounds, p50), median(results, rounds, p95),
		median(results, rounds, p99), median(results, rounds, most),
		median(results, rounds, splits), results[0].offered,
		median(results, rounds, late));
	report_counters(results, rounds);
}

static void report_runs(void)
{
	bool first = true;

	fprintf(bench.out, "  \"runs\": [");
	for (unsigned s = 0; s < SETS; s++) {
		for (unsigned t = 0; t < THREAD_COUNTS; t++) {
			for (unsigned mode = 0; mode < SMO_MODE_COUNT; mode++) {
				report_run(first, "split", bench.set[s].payload, thread_counts[t],
					   mode, bench.split[s][t][mode], bench.rounds);
				first = false;
			}
		}
	}
	for (unsigned s = 0; s < SETS; s++)
		for (unsigned o = 0; o < OFFER_COUNT; o++)
			for (unsigned mode = 0; mode < SMO_MODE_COUNT; mode++)
				report_run(false, "open", bench.set[s].payload,
					   thread_counts[OFFER_THREADS], mode,
					   bench.open[s][o][mode], bench.rounds);
	for (unsigned i = 0; bench.mixed_rounds && i < mixed_count; i++)
		for (unsigned mode = 0; mode < SMO_MODE_COUNT; mode++)
			report_run(false, mixed_loads[i].name, bench.set[1].payload,
				   MIXED_THREADS, mode, bench.mixed[i][mode], bench.mixed_rounds);
	fprintf(bench.out, "\n  ],\n");
}

static void figure(const char *name, double value)
{
	fprintf(bench.out, "    \"%s\": %.4g,\n", name, value);
	printf("%-28s %12.4g\n", name, value);
}

/* X on an index latch, of all blink runs and rounds. */
static double index_x_latches(void)
{
	uint64_t sum = 0;

	for (unsigned s = 0; s < SETS; s++)
		for (unsigned t = 0; t < THREAD_COUNTS; t++)
			for (unsigned round = 0; round < bench.rounds; round++)
				sum += bench.split[s][t][SMO_BLINK][round]
					       .stats[STAT_tree_index_latch_x];
	return (double)sum;
}

/* Above 1: an insert waits less with blink, at the same number of inserts a second. */
static void report_offers(unsigned s, const char *suffix)
{
	char name[64];

	for (unsigned o = 0; o < OFFER_COUNT; o++) {
		const struct run_result *blink = bench.open[s][o][SMO_BLINK];
		const struct run_result *classic = bench.open[s][o][SMO_INDEX_LATCH];

		snprintf(name, sizeof(name), "p95_ratio_32_offered_%u%s", offers[o], suffix);
		figure(name, ratio(classic, blink, bench.rounds, p95));
		snprintf(name, sizeof(name), "p99_ratio_32_offered_%u%s", offers[o], suffix);
		figure(name, ratio(classic, blink, bench.rounds, p99));
	}
}

static void report_figures(void)
{
	char name[64];

	for (unsigned s = 0; s < SETS; s++) {
		const char *suffix = s ? "_small" : "";

		for (unsigned t = 0; t < THREAD_COUNTS; t++) {
			const struct run_result *blink = bench.split[s][t][SMO_BLINK];
			const struct run_result *classic = bench.split[s][t][SMO_INDEX_LATCH];

			snprintf(name, sizeof(name), "ratio_%u%s", thread_counts[t], suffix);
			figure(name, ratio(blink, classic, bench.rounds, rate));
			snprintf(name, sizeof(name), "p95_ratio_%u%s", thread_counts[t], suffix);
			figure(name, ratio(classic, blink, bench.rounds, p95));
		}
		report_offers(s, suffix);
		snprintf(name, sizeof(name), "splits_blink%s", suffix);
		figure(name, median(bench.split[s][THREAD_COUNTS - 1][SMO_BLINK], bench.rounds,
				    splits));
		snprintf(name, sizeof(name), "splits_index_latch%s", suffix);
		figure(name, median(bench.split[s][THREAD_COUNTS - 1][SMO_INDEX_LATCH],
				    bench.rounds, splits));
	}
	for (unsigned i = 0; bench.mixed_rounds && i < mixed_count; i++) {
		snprintf(name, sizeof(name), "ratio_%s", mixed_loads[i].name);
		figure(name, ratio(bench.mixed[i][SMO_BLINK], bench.mixed[i][SMO_INDEX_LATCH],
				   bench.mixed_rounds, rate));
	}
	figure("index_x_latches", index_x_latches());
}

/* What the timed build has found, if it ran. */
static void report_serial(const char *folder)
{
	char path[4096], name[64];
	double value;
	FILE *in;

	snprintf(path, sizeof(path), "%s/blink.serial", folder);
	in = fopen(path, "r");
	if (!in)
		return;
	while (fscanf(in, "%63s %lf", name, &value) == 2)
		figure(name, value);
	fclose(in);
}

static void report(const char *folder)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/blink.json", folder);
	bench.out = fopen(path, "w");
	if (!bench.out)
		die(path, -errno);
	fprintf(bench.out, "{\n");
	for (unsigned s = 0; s < SETS; s++)
		fprintf(bench.out, "  \"set_%u\": {\"rows\": %llu, \"leaves\": %llu, "
			"\"inserts\": %llu},\n", bench.set[s].payload,
			(unsigned long long)bench.set[s].rows,
			(unsigned long long)bench.set[s].leaves,
			(unsigned long long)bench.set[s].inserts);
	report_runs();
	print_tables();
	fprintf(bench.out, "  \"summary\": {\n");
	printf("\n");
	report_figures();
	report_serial(folder);
	fprintf(bench.out, "    \"rounds\": %u\n  }\n}\n", bench.rounds);
	if (fclose(bench.out))
		die(path, -errno);
}

static int measure_serial(const char *folder)
{
	char path[4096];
	FILE *out;
	bool measured;

	snprintf(path, sizeof(path), "%s/blink.serial", folder);
	out = fopen(path, "w");
	if (!out)
		die(path, -errno);
	measured = serial_measure(&bench.set[0], out);
	if (fclose(out))
		die(path, -errno);
	if (!measured)
		fputs("blink_bench: serial wants a build with LATCH=timed\n", stderr);
	return measured ? 0 : 2;
}

int main(int argc, char **argv)
{
	uint64_t rows = from_environment("ROWS", 150000);
	bool serial = argc == 3 && strcmp(argv[2], "serial") == 0;
	int status = 0;

	bench.rounds = (unsigned)from_environment("ROUNDS", 5);
	bench.mixed_rounds = (unsigned)from_environment("MIXED_ROUNDS", 3);
	if ((argc != 2 && !serial) || !bench.rounds || bench.rounds > ROUNDS_MOST ||
	    bench.mixed_rounds > ROUNDS_MOST || rows < 1000) {
		fputs("usage: ROWS=150000 ROUNDS=5 MIXED_ROUNDS=3 blink_bench FOLDER [serial]\n"
		      "ROWS: at least 1000, rounds: at most 25\n", stderr);
		return 2;
	}
	message_quiet(LOG_ERR);
	set_make(&bench.set[0], LARGE_BYTES, rows);
	if (serial) {
		status = measure_serial(argv[1]);
	} else {
		set_make(&bench.set[1], SMALL_BYTES, rows * SMALL_ROWS_PER_ROW);
		for (unsigned round = 0; round < bench.rounds; round++)
			split_round(round);
		open_rounds();
		for (unsigned round = 0; round < bench.mixed_rounds; round++)
			mixed_round(round);
		report(argv[1]);
		set_free(&bench.set[1]);
	}
	set_free(&bench.set[0]);
	return status;
}
