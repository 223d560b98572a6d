/* Threads that commit until the time is over; all begin at once. */
#include "bench/log/bench.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/os.h"

#define LATENCIES_MOST 200000u

struct worker {
	pthread_t thread;
	const struct committer *committer;
	void *self;
	unsigned number;
	pthread_barrier_t *start;
	const _Atomic bool *stop;
	_Alignas(64) uint64_t commits;
	uint32_t *latency_ns; /* may be NULL */
};

void die(const char *what)
{
	fprintf(stderr, "log_bench: %s: %s\n", what, strerror(errno));
	exit(1);
}

void sleep_ns(uint64_t ns)
{
	struct timespec left = {
		.tv_sec = (time_t)(ns / 1000000000u),
		.tv_nsec = (long)(ns % 1000000000u),
	};

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
		;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint64_t before, now;

	pthread_barrier_wait(w->start);
	before = os_mono_ns();
	while (!atomic_load_explicit(w->stop, memory_order_relaxed)) {
		w->committer->commit(w->self, w->number);
		if (w->latency_ns && w->commits < LATENCIES_MOST) {
			now = os_mono_ns();
			w->latency_ns[w->commits] = (uint32_t)(now - before);
			before = now;
		}
		w->commits++;
	}
	return NULL;
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static double median_us(uint32_t *latency_ns, uint64_t count)
{
	if (count > LATENCIES_MOST)
		count = LATENCIES_MOST;
	if (count == 0)
		return 0;
	qsort(latency_ns, count, sizeof(*latency_ns), compare);
	return latency_ns[count / 2] / 1000.0;
}

struct run_result run(const struct committer *committer, void *self, unsigned threads,
		      uint64_t duration_ns)
{
	static uint32_t latency_ns[LATENCIES_MOST];
	struct worker *workers = aligned_alloc(64, threads * sizeof(*workers));
	struct run_result result = {0};
	_Atomic bool stop = false;
	pthread_barrier_t start;
	uint64_t began, commits = 0;

	if (!workers)
		die("memory");
	pthread_barrier_init(&start, NULL, threads + 1);
	for (unsigned i = 0; i < threads; i++) {
		workers[i] = (struct worker){
			.committer = committer,
			.self = self,
			.number = i,
			.start = &start,
			.stop = &stop,
			.latency_ns = threads == 1 ? latency_ns : NULL,
		};
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			die("thread");
	}
	pthread_barrier_wait(&start);
	began = os_mono_ns();
	sleep_ns(duration_ns);
	atomic_store(&stop, true);
	for (unsigned i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		commits += workers[i].commits;
	}
	result.rate = (double)commits * 1e9 / (double)(os_mono_ns() - began);
	if (threads == 1)
		result.median_us = median_us(latency_ns, commits);
	pthread_barrier_destroy(&start);
	free(workers);
	return result;
}
