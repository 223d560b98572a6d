/* Threads that do operations, all beginning at once or by a schedule; each one is timed. */
#include "bench/blink/blink.h"

#include "engine/mtr.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

struct worker {
	_Alignas(64) const struct load *load;
	struct volume *volume;
	pthread_barrier_t *barrier;
	unsigned number;
	uint32_t *latency_ns; /* of this thread's operations */
	uint64_t count;
	uint64_t late_ns; /* all of them together */
	int64_t rows;
	struct os_thread thread;
};

int insert_row(struct volume *volume, uint64_t number, unsigned payload)
{
	uint8_t key[KEY_BYTES], value[PAYLOAD_MOST];
	struct mtr *m;
	int rc;

	row_key(key, number);
	memset(value, (int)(number % 251), payload);
	rc = mtr_begin(volume, 0, &m);
	if (rc)
		return rc;
	mtr_want_key(m, BENCH_INDEX, key, sizeof(key));
	do {
		rc = mtr_latch(m);
		if (rc)
			break;
		mtr_put(m, BENCH_INDEX, key, sizeof(key), value, payload);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	return rc;
}

int delete_row(struct volume *volume, uint64_t number)
{
	uint8_t key[KEY_BYTES];
	const void *value;
	struct mtr *m;
	size_t len;
	int rc;

	row_key(key, number);
	rc = mtr_begin(volume, 0, &m);
	if (rc)
		return rc;
	mtr_want_key(m, BENCH_INDEX, key, sizeof(key));
	do {
		rc = mtr_latch(m);
		if (rc == 0)
			rc = mtr_lookup(m, BENCH_INDEX, key, sizeof(key), &value, &len);
		if (rc)
			break;
		mtr_delete(m, BENCH_INDEX, key, sizeof(key));
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	return rc;
}

int load_insert(const struct load *load, struct volume *volume, uint64_t number, uint64_t *random)
{
	(void)random;
	demand(insert_row(volume, insert_number(load->set, number), load->set->payload), "insert");
	return 1;
}

static void note(struct worker *w, uint64_t from_ns, uint64_t until_ns)
{
	uint64_t ns = until_ns - from_ns;

	w->latency_ns[w->count++] = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
}

/* One operation after the other. */
static void work_closed(struct worker *w)
{
	const struct load *load = w->load;
	uint64_t random = w->number, before = os_mono_ns(), now;

	for (uint64_t i = w->number; i < load->operations; i += load->threads) {
		w->rows += load->do_one(load, w->volume, i, &random);
		now = os_mono_ns();
		note(w, before, now);
		before = now;
	}
}

static void work_open(struct worker *w)
{
	const struct load *load = w->load;
	uint64_t random = w->number, number, due_ns;

	while (schedule_await(load->schedule, &number, &due_ns)) {
		w->late_ns += os_mono_ns() - due_ns;
		w->rows += load->do_one(load, w->volume, number, &random);
		note(w, due_ns, os_mono_ns());
	}
}

static void work(void *arg)
{
	struct worker *w = arg;

	if (w->load->schedule)
		schedule_join();
	pthread_barrier_wait(w->barrier);
	if (w->load->schedule)
		work_open(w);
	else
		work_closed(w);
	pthread_barrier_wait(w->barrier);
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static double at_share(const uint32_t *sorted, uint64_t count, double share)
{
	return sorted[(uint64_t)((double)(count - 1) * share)] / 1000.0;
}

static double cpu_us(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* Adds (sign 1) what counters say, or takes it away. */
static void add_counters(struct volume *volume, struct run_result *result, int sign)
{
	for (unsigned i = 0; i < STAT_COUNT; i++)
		result->stats[i] += (uint64_t)sign * stat_read(&volume->stats, i);
	for (unsigned i = 0; i < RANK_COUNT; i++)
		result->waits[i] += (uint64_t)sign * latch_wait_count(i);
}

/* The most operations that one thread may get. */
static uint64_t share_of(const struct load *load)
{
	return load->schedule ? load->operations : load->operations / load->threads + 1;
}

void load_run(const struct load *load, struct volume *volume, struct run_result *result,
	      int64_t *rows)
{
	uint64_t share = share_of(load), count = 0, late_ns = 0, elapsed;
	uint32_t *latency_ns = malloc(share * load->threads * sizeof(*latency_ns));
	struct worker *workers = aligned_alloc(64, load->threads * sizeof(*workers));
	pthread_barrier_t barrier;
	double cpu;

	demand(latency_ns && workers ? 0 : -ENOMEM, "memory");
	memset(latency_ns, 0, share * load->threads * sizeof(*latency_ns));
	memset(result, 0, sizeof(*result));
	pthread_barrier_init(&barrier, NULL, load->threads + 1);
	for (unsigned i = 0; i < load->threads; i++) {
		workers[i] = (struct worker){.load = load, .volume = volume, .barrier = &barrier,
					     .number = i, .latency_ns = latency_ns + i * share};
		demand(os_thread_start(&workers[i].thread, "insert", work, &workers[i]), "thread");
	}
	add_counters(volume, result, -1);
	cpu = cpu_us();
	elapsed = os_mono_ns();
	if (load->schedule)
		schedule_start(load->schedule);
	pthread_barrier_wait(&barrier); /* go */
	pthread_barrier_wait(&barrier); /* all are done */
	elapsed = os_mono_ns() - elapsed;
	cpu = cpu_us() - cpu;
	add_counters(volume, result, 1);
	*rows = 0;
	for (unsigned i = 0; i < load->threads; i++) {
		os_thread_join(&workers[i].thread);
		memmove(latency_ns + count, workers[i].latency_ns,
			workers[i].count * sizeof(*latency_ns));
		count += workers[i].count;
		late_ns += workers[i].late_ns;
		*rows += workers[i].rows;
	}
	qsort(latency_ns, count, sizeof(*latency_ns), compare);
	result->rate = (double)count * 1e9 / (double)elapsed;
	result->cpu_us = cpu / (double)count;
	result->offered = load->schedule ? load->schedule->rate : 0;
	result->late_us = (double)late_ns / (double)count / 1000;
	result->latency = (struct latencies){
		at_share(latency_ns, count, 0.5), at_share(latency_ns, count, 0.95),
		at_share(latency_ns, count, 0.99), at_share(latency_ns, count, 1),
	};
	pthread_barrier_destroy(&barrier);
	free(workers);
	free(latency_ns);
}
