/*
 * Latches and allocators under load, for the build that this program belongs to
 * (make LATCH=..., ALLOC=...).
 *
 *	latch_bench latch [--ms N]          latches alone, 1 to 64 threads
 *	latch_bench engine DIR [--ms N]     files created through the core
 *
 * latch: each thread takes a latch, looks at or changes what it protects (some
 * 30 ns), lets go; `one` latch that all share, or `many` of which each time another
 * one is taken; `read`: 1 of 20 acquisitions is X, `write`: 1 of 2.
 * engine: DIR should be in memory (/dev/shm), the log never goes round: what is
 * left is the engine's work, with some twenty allocations a file.
 *
 * One line of JSON a measurement: how many a second, and how much processor time
 * each takes, which a busy machine disturbs less.
 */
#include "engine/base/message.h"
#include "tests/lib/core_load.h"
#include "tests/lib/scratch.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef ALLOC_NAME
#define ALLOC_NAME "system"
#endif

#define LATCHES 1024u
#define CELLS 8u

struct guarded {
	_Alignas(64) struct latch latch;
	uint64_t cell[CELLS]; /* [lock: latch] */
};

static struct guarded guarded[LATCHES];
static _Atomic bool go, stop;

struct thread {
	_Alignas(64) uint64_t random;
	uint64_t rounds, sum;
	unsigned latches, x_of; /* one acquisition of so many is X */
	struct os_thread id;
};

static void read_or_write(struct thread *thread, struct guarded *what, bool write)
{
	if (write) {
		latch_x(&what->latch);
		for (unsigned i = 0; i < CELLS; i++)
			what->cell[i]++;
		unlatch_x(&what->latch);
	} else {
		latch_s(&what->latch);
		for (unsigned i = 0; i < CELLS; i++)
			thread->sum += what->cell[i];
		unlatch_s(&what->latch);
	}
}

static void work(void *arg)
{
	struct thread *thread = arg;

	while (!atomic_load_explicit(&go, memory_order_acquire))
		;
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		uint64_t random = random_next(&thread->random);

		read_or_write(thread, &guarded[random % thread->latches],
			      (random >> 32) % thread->x_of == 0);
		thread->rounds++;
	}
}

static void sleep_ms(unsigned ms)
{
	usleep(ms * 1000);
}

struct result {
	double rate, cpu_ns; /* a second; of one */
};

static double cpu_ns(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e9 +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e3;
}

static struct result result_of(uint64_t done, uint64_t start_ns, double start_cpu_ns)
{
	return (struct result){
		.rate = (double)done * 1e9 / (double)(os_mono_ns() - start_ns),
		.cpu_ns = (cpu_ns() - start_cpu_ns) / (double)(done ? done : 1),
	};
}

static struct result measure(unsigned threads, unsigned latches, unsigned x_of, unsigned ms)
{
	struct thread *thread = aligned_alloc(64, threads * sizeof(*thread));
	uint64_t rounds = 0, start;
	double cpu;

	check(thread != NULL);
	atomic_store(&go, false);
	atomic_store(&stop, false);
	for (unsigned i = 0; i < threads; i++) {
		thread[i] = (struct thread){.random = i, .latches = latches, .x_of = x_of};
		check(os_thread_start(&thread[i].id, "latch", work, &thread[i]) == 0);
	}
	start = os_mono_ns();
	cpu = cpu_ns();
	atomic_store_explicit(&go, true, memory_order_release);
	sleep_ms(ms);
	atomic_store(&stop, true);
	for (unsigned i = 0; i < threads; i++) {
		os_thread_join(&thread[i].id);
		rounds += thread[i].rounds;
	}
	free(thread);
	return result_of(rounds, start, cpu);
}

static void bench_latches(unsigned ms)
{
	static const struct {
		const char *name;
		unsigned latches, x_of;
	} loads[] = {
		{"one-read", 1, 20},
		{"one-write", 1, 2},
		{"many-read", LATCHES, 20},
		{"many-write", LATCHES, 2},
	};

	for (unsigned i = 0; i < LATCHES; i++)
		latch_init(&guarded[i].latch, RANK_LEAF, i);
	for (unsigned load = 0; load < array_count(loads); load++) {
		for (unsigned threads = 1; threads <= 64; threads *= 2) {
			uint64_t waits = latch_wait_count(RANK_LEAF);
			struct result result =
				measure(threads, loads[load].latches, loads[load].x_of, ms);

			waits = latch_wait_count(RANK_LEAF) - waits;
			printf("{\"latch\": \"%s\", \"alloc\": \"%s\", \"load\": \"%s\", "
			       "\"threads\": %u, \"rate\": %.0f, \"cpu_ns\": %.0f, "
			       "\"waits\": %llu}\n",
			       latch_kind(), ALLOC_NAME, loads[load].name, threads, result.rate,
			       result.cpu_ns, (unsigned long long)waits);
			fflush(stdout);
		}
	}
}

/* --------------------------------------------------------------- the engine */

static bool is_over(void *arg)
{
	return atomic_load_explicit((_Atomic bool *)arg, memory_order_relaxed);
}

static void bench_engine(const char *dir, unsigned threads, unsigned ms)
{
	struct volume_options options = {
		.cache_bytes = 512u << 20,
		.commit_interval_ns = OS_FOREVER,
		.no_background = true,
	};
	struct core_load *load = aligned_alloc(64, sizeof(*load));
	struct result result;
	char path[4096];
	uint64_t start;
	double cpu;

	snprintf(path, sizeof(path), "%s/latch-bench.img", dir);
	core_load_format(path, 1024u << 20, 0, 512u << 20);
	atomic_store(&stop, false);
	check(load != NULL);
	*load = (struct core_load){.core = core_load_open(path, &options),
				   .threads = threads,
				   .enough = is_over,
				   .arg = &stop};
	start = os_mono_ns();
	cpu = cpu_ns();
	core_load_start(load);
	sleep_ms(ms);
	atomic_store(&stop, true);
	core_load_join(load);
	result = result_of(core_load_files(load), start, cpu);
	printf("{\"latch\": \"%s\", \"alloc\": \"%s\", \"load\": \"engine-create\", "
	       "\"threads\": %u, \"rate\": %.0f, \"cpu_ns\": %.0f}\n",
	       latch_kind(), ALLOC_NAME, threads, result.rate, result.cpu_ns);
	core_load_abandon(load->core);
	free(load);
	unlink(path);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"ms", required_argument, NULL, 'm'},
						{NULL, 0, NULL, 0}};
	unsigned ms = 200;
	int option;

	message_quiet(LOG_ERR);
	while ((option = getopt_long(argc, argv, "m:", options, NULL)) != -1)
		ms = option == 'm' ? (unsigned)strtoul(optarg, NULL, 10) : 0;
	if (ms > 0 && argc - optind == 1 && strcmp(argv[optind], "latch") == 0) {
		bench_latches(ms);
		return 0;
	}
	if (ms > 0 && argc - optind == 2 && strcmp(argv[optind], "engine") == 0) {
		for (unsigned threads = 1; threads <= 64; threads *= 8)
			bench_engine(argv[optind + 1], threads, ms);
		return 0;
	}
	fputs("usage: latch_bench latch|engine DIR [--ms N]\n", stderr);
	return 2;
}
