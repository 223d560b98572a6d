/*
 * Does a steady load stall when the log goes round?
 *
 *	stall_bench DIR [--log-mib N] [--laps N] [--threads N] [--cache-mib N]
 *
 * Threads create files through the core, in a volume on a file, until the log
 * has been written `laps` times over.  Every 100 ms it is noted how many files
 * there are and how far the checkpoint lies behind.  Prints one line of JSON:
 *
 *	waits                         for log space, tickets, frames: each a stall
 *	age_max, age_mean             log behind the checkpoint, as a share of it
 *	rate_mean, rate_p5, rate_min  files a second, over intervals of 100 ms
 *	rates                         all of them, in order
 */
#include "engine/base/message.h"
#include "engine/pool.h"
#include "tests/lib/core_load.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define INTERVAL_NS 100000000ull
#define INTERVALS_MAX 36000u /* an hour */

struct bench {
	const char *dir;
	uint64_t log_bytes, cache_bytes;
	unsigned laps, threads;
	char path[4096];
	struct volume *volume;
	lsn_t until;
	double rate[INTERVALS_MAX];
	unsigned intervals;
	double age_max, age_sum;
	uint64_t dirty_max;
};

static bool has_lapped(void *arg)
{
	struct bench *bench = arg;

	return log_next_lsn(bench->volume->log) >= bench->until;
}

static void look(struct bench *bench)
{
	struct log *log = bench->volume->log;
	lsn_t checkpoint = log_checkpoint_lsn(log);
	double age = (double)(log_next_lsn(log) - checkpoint) / (double)log_capacity(log);
	struct pool_counts counts;

	pool_count(bench->volume->pool, &counts);
	bench->age_max = age > bench->age_max ? age : bench->age_max;
	bench->age_sum += age;
	bench->dirty_max = counts.dirty > bench->dirty_max ? counts.dirty : bench->dirty_max;
}

static void watch(struct bench *bench, struct core_load *load)
{
	uint64_t at = os_mono_ns(), files = 0;

	while (!has_lapped(bench) && bench->intervals < INTERVALS_MAX) {
		uint64_t next = at + INTERVAL_NS, now, sum;
		struct timespec until = {.tv_sec = (time_t)(next / 1000000000u),
					 .tv_nsec = (long)(next % 1000000000u)};

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
		now = os_mono_ns();
		sum = core_load_files(load);
		bench->rate[bench->intervals++] = (double)(sum - files) * 1e9 / (double)(now - at);
		files = sum;
		at = now;
		look(bench);
	}
}

/* ---------------------------------------------------------------- results */

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return left < right ? -1 : left > right;
}

static void print_counters(const struct volume *volume)
{
	static const enum stat_id shown[] = {
		STAT_log_space_waits, STAT_pool_ticket_waits, STAT_pool_frame_waits,
		STAT_log_checkpoints, STAT_log_groups,	      STAT_flush_batches,
		STAT_flush_pages,     STAT_flush_pages_doublewritten,
	};

	for (size_t i = 0; i < array_count(shown); i++)
		printf("\"%s\": %llu, ", stat_name(shown[i]),
		       (unsigned long long)stat_read(&volume->stats, shown[i]));
}

static void print_result(struct bench *bench, uint64_t files, double seconds)
{
	static double sorted[INTERVALS_MAX];

	memcpy(sorted, bench->rate, bench->intervals * sizeof(sorted[0]));
	qsort(sorted, bench->intervals, sizeof(sorted[0]), compare);
	printf("{\"log_mib\": %llu, \"cache_mib\": %llu, \"laps\": %u, \"threads\": %u, "
	       "\"files\": %llu, \"seconds\": %.2f, ",
	       (unsigned long long)(bench->log_bytes >> 20),
	       (unsigned long long)(bench->cache_bytes >> 20), bench->laps, bench->threads,
	       (unsigned long long)files, seconds);
	print_counters(bench->volume);
	printf("\"age_max\": %.3f, \"age_mean\": %.3f, \"dirty_max\": %llu, ", bench->age_max,
	       bench->age_sum / (bench->intervals ? bench->intervals : 1),
	       (unsigned long long)bench->dirty_max);
	printf("\"rate_mean\": %.0f, \"rate_p50\": %.0f, \"rate_p5\": %.0f, \"rate_min\": %.0f, "
	       "\"rates\": [",
	       (double)files / seconds, sorted[bench->intervals / 2],
	       sorted[bench->intervals / 20], sorted[0]);
	for (unsigned i = 0; i < bench->intervals; i++)
		printf("%s%.0f", i ? ", " : "", bench->rate[i]);
	printf("]}\n");
}

static void run(struct bench *bench)
{
	struct volume_options options = {.cache_bytes = bench->cache_bytes};
	struct core_load *load = aligned_alloc(64, sizeof(*load));
	struct core *core;
	uint64_t start;

	/* A file takes some 250 bytes of pages and 350 of log. */
	core_load_format(bench->path, bench->log_bytes * (bench->laps * 2 + 8) + (128u << 20), 0,
			 bench->log_bytes);
	core = core_load_open(bench->path, &options);
	bench->volume = core_volume(core);
	bench->until = log_next_lsn(bench->volume->log) +
		       bench->laps * log_capacity(bench->volume->log);
	check(load != NULL);
	*load = (struct core_load){
		.core = core, .threads = bench->threads, .enough = has_lapped, .arg = bench};
	start = os_mono_ns();
	core_load_start(load);
	watch(bench, load);
	core_load_join(load);
	print_result(bench, core_load_files(load), (double)(os_mono_ns() - start) / 1e9);
	core_load_close(core);
	free(load);
	unlink(bench->path);
}

static bool parse(int argc, char **argv, struct bench *bench)
{
	static const struct option options[] = {
		{"log-mib", required_argument, NULL, 'l'},
		{"laps", required_argument, NULL, 'n'},
		{"threads", required_argument, NULL, 't'},
		{"cache-mib", required_argument, NULL, 'c'},
		{NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "l:n:t:c:", options, NULL)) != -1) {
		uint64_t value = option == '?' ? 0 : strtoull(optarg, NULL, 10);

		switch (option) {
		case 'l':
			bench->log_bytes = value << 20;
			break;
		case 'n':
			bench->laps = (unsigned)value;
			break;
		case 't':
			bench->threads = (unsigned)value;
			break;
		case 'c':
			bench->cache_bytes = value << 20;
			break;
		default:
			return false;
		}
	}
	if (optind != argc - 1)
		return false;
	bench->dir = argv[optind];
	return bench->log_bytes > 0 && bench->cache_bytes > 0 && bench->laps > 0 &&
	       bench->threads > 0 && bench->threads <= CORE_LOAD_THREADS_MAX;
}

int main(int argc, char **argv)
{
	static struct bench bench = {
		.log_bytes = 32u << 20,
		.cache_bytes = CACHE_BYTES_DEFAULT,
		.laps = 10,
		.threads = 2,
	};

	message_quiet(LOG_ERR);
	if (!parse(argc, argv, &bench)) {
		fputs("usage: stall_bench DIR [--log-mib N] [--laps N] [--threads N] "
		      "[--cache-mib N]\n",
		      stderr);
		return 2;
	}
	snprintf(bench.path, sizeof(bench.path), "%s/stall.img", bench.dir);
	run(&bench);
	return 0;
}
