/*
 *	engines_bench FOLDER DATA     writes FOLDER/engines.json, databases below DATA
 *
 * ROUNDS       3
 * DURATION_MS  300, of each phase
 * ROWS         120000 of 2,500 bytes, five times as many of 64
 *
 * A round: each engine in turn makes a database, fills it with ascending even keys (one
 * thread, not measured), and then with each number of threads
 *
 *	insert   odd keys in one permuted order, spread over everything
 *	read     a row that exists, anywhere
 *	scan     1,000 rows in key order from anywhere; a row counts as an operation
 *
 * The order of inserts goes on from one number of threads to the next, of which each has
 * a third of them; it ends early when that is used up.  What was read
 * is compared with what was written.
 */
#include "bench/engines/engines.h"

#include <errno.h>
#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MOST 25u
#define PAYLOADS 2u
#define THREAD_COUNTS 3u
#define SCAN_ROWS 1000u
#define SMALL_FACTOR 5u

enum phase { INSERT, READ, SCAN, PHASES };

static const char *const phase_names[PHASES] = {"insert", "read", "scan"};
static const unsigned payloads[PAYLOADS] = {2500, 64};
static const unsigned thread_counts[THREAD_COUNTS] = {1, 8, 32};
static const struct engine *const engines[] = {
	&engine_blinkfs,
#ifdef HAVE_LMDB
	&engine_lmdb,
#endif
#ifdef HAVE_BDB
	&engine_bdb,
#endif
#ifdef HAVE_ROCKSDB
	&engine_rocksdb,
#endif
#ifdef HAVE_SQLITE
	&engine_sqlite,
#endif
};
#define ENGINES (sizeof(engines) / sizeof(engines[0]))

static double rates[ENGINES][PAYLOADS][PHASES][THREAD_COUNTS][ROUNDS_MOST];
static double cpu_us[ENGINES][PAYLOADS][PHASES][THREAD_COUNTS][ROUNDS_MOST];
static unsigned rounds;
static uint64_t duration_ns, rows_large;

struct run {
	const struct engine *engine;
	void *db;
	enum phase phase;
	unsigned payload;
	uint64_t rows;
	_Atomic uint64_t *next_insert; /* number of the next insert, less than insert_end */
	uint64_t insert_end;           /* each number of threads has its share */
	_Atomic bool stop;
	pthread_barrier_t start;
};

struct worker {
	_Alignas(64) struct run *run;
	pthread_t thread;
	uint64_t random, done;
};

noreturn void fail(const char *engine, const char *what, const char *why)
{
	fprintf(stderr, "engines_bench: %s: %s: %s\n", engine, what, why);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static double process_us(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static uint64_t random_of(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static void make_key(uint8_t key[KEY_BYTES], uint64_t number)
{
	for (unsigned i = 0; i < KEY_BYTES; i++)
		key[i] = (uint8_t)(number >> 8 * (KEY_BYTES - 1 - i));
}

static void put(const struct run *run, void *session, uint64_t number)
{
	uint8_t key[KEY_BYTES], value[VALUE_MOST];

	make_key(key, number);
	memset(value, (int)(number % 251), run->payload);
	run->engine->put(session, key, value, run->payload);
}

/* The i-th of all numbers below rows, each once: rows is no multiple of the step. */
static uint64_t permuted(uint64_t i, uint64_t rows)
{
	return i * 7919u % rows;
}

/* One operation of the phase, or for a scan many; 0: there is nothing left to do. */
static uint64_t operate(const struct run *run, void *session, uint64_t *random)
{
	uint64_t number = 2 * (random_of(random) % run->rows);
	uint8_t key[KEY_BYTES], value[VALUE_MOST];
	size_t len = 0;

	switch (run->phase) {
	case INSERT:
		number = atomic_fetch_add(run->next_insert, 1);
		if (number >= run->insert_end)
			return 0;
		put(run, session, 2 * permuted(number, run->rows) + 1);
		return 1;
	case READ:
		make_key(key, number);
		if (!run->engine->get(session, key, value, &len) || len != run->payload ||
		    value[0] != number % 251 || value[len - 1] != number % 251)
			fail(run->engine->name, "read", "not what was written");
		return 1;
	case SCAN:
		make_key(key, number / 2); /* so that there are enough rows behind it */
		if (run->engine->scan(session, key, SCAN_ROWS) == 0)
			fail(run->engine->name, "scan", "no rows");
		return SCAN_ROWS;
	case PHASES:
		break;
	}
	return 0;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct run *run = w->run;
	void *session = run->engine->begin(run->db);
	uint64_t done;

	pthread_barrier_wait(&run->start);
	while (!atomic_load_explicit(&run->stop, memory_order_relaxed)) {
		done = operate(run, session, &w->random);
		w->done += done;
		if (!done)
			break;
	}
	pthread_barrier_wait(&run->start);
	run->engine->end(session);
	return NULL;
}

static void *stop_in_time(void *arg)
{
	struct run *run = arg;
	struct timespec time = {.tv_sec = (time_t)(duration_ns / 1000000000u),
				.tv_nsec = (long)(duration_ns % 1000000000u)};

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &time, &time) == EINTR)
		;
	atomic_store(&run->stop, true);
	return NULL;
}

/* Operations a second, and processor time of one, that of background threads included. */
static double measure(struct run *run, unsigned threads, double *cpu)
{
	struct worker worker[THREADS_MOST];
	uint64_t began, done = 0;
	pthread_t timer;

	atomic_store(&run->stop, false);
	pthread_barrier_init(&run->start, NULL, threads + 1);
	for (unsigned i = 0; i < threads; i++) {
		worker[i] = (struct worker){.run = run, .random = i + threads};
		if (pthread_create(&worker[i].thread, NULL, work, &worker[i]))
			fail(run->engine->name, "thread", "cannot be made");
	}
	pthread_barrier_wait(&run->start);
	began = now_ns();
	*cpu = process_us();
	if (pthread_create(&timer, NULL, stop_in_time, run))
		fail(run->engine->name, "thread", "cannot be made");
	pthread_barrier_wait(&run->start);
	began = now_ns() - began;
	*cpu = process_us() - *cpu;
	for (unsigned i = 0; i < threads; i++) {
		pthread_join(worker[i].thread, NULL);
		done += worker[i].done;
	}
	pthread_join(timer, NULL);
	pthread_barrier_destroy(&run->start);
	*cpu /= (double)(done ? done : 1);
	return (double)done * 1e9 / (double)began;
}

static int remove_entry(const char *path, const struct stat *stat, int flag, struct FTW *ftw)
{
	(void)stat;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static void remove_tree(const char *path)
{
	nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static char data_folder[4096];

static void clean_up(void)
{
	if (*data_folder)
		remove_tree(data_folder);
}

static void run_engine(size_t e, unsigned p, unsigned round)
{
	_Atomic uint64_t next_insert = 0;
	struct run run = {.engine = engines[e], .payload = payloads[p],
			  .rows = (p ? rows_large * SMALL_FACTOR : rows_large) | 1,
			  .next_insert = &next_insert};
	void *session;

	remove_tree(data_folder);
	if (mkdir(data_folder, 0700))
		fail(run.engine->name, data_folder, strerror(errno));
	run.db = run.engine->open(data_folder, run.rows * (run.payload + 64) * 3);
	session = run.engine->begin(run.db);
	for (uint64_t i = 0; i < run.rows; i++)
		put(&run, session, 2 * i);
	run.engine->end(session);
	for (unsigned t = 0; t < THREAD_COUNTS; t++) {
		atomic_store(&next_insert, run.rows * t / THREAD_COUNTS);
		run.insert_end = run.rows * (t + 1) / THREAD_COUNTS;
		for (run.phase = 0; run.phase < PHASES; run.phase++)
			rates[e][p][run.phase][t][round] =
				measure(&run, thread_counts[t], &cpu_us[e][p][run.phase][t][round]);
	}
	run.engine->close(run.db);
}

/* ----------------------------------------------------------------- report */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(const double *values)
{
	double sorted[ROUNDS_MOST];

	memcpy(sorted, values, rounds * sizeof(*values));
	qsort(sorted, rounds, sizeof(*sorted), compare);
	return sorted[rounds / 2];
}

static void report_engine(FILE *out, size_t e)
{
	const char *separator = "";

	fprintf(out, "%s\n    \"%s\": {\"setting\": \"%s\"", e ? "," : "", engines[e]->name,
		engines[e]->setting);
	for (unsigned p = 0; p < PAYLOADS; p++) {
		fprintf(out, ",\n      \"%u\": {", payloads[p]);
		separator = "";
		for (unsigned phase = 0; phase < PHASES; phase++) {
			for (unsigned t = 0; t < THREAD_COUNTS; t++) {
				fprintf(out, "%s\"%s_%u\": %.0f, \"%s_%u_cpu_us\": %.3f", separator,
					phase_names[phase], thread_counts[t],
					median(rates[e][p][phase][t]), phase_names[phase],
					thread_counts[t], median(cpu_us[e][p][phase][t]));
				separator = ", ";
			}
		}
		fprintf(out, "}");
	}
	fprintf(out, "}");
}

/* blinkfs to the best of the others. */
static void report_summary(FILE *out)
{
	const char *separator = "";

	fprintf(out, "  \"summary\": {");
	for (unsigned p = 0; p < PAYLOADS; p++) {
		for (unsigned phase = 0; phase < PHASES; phase++) {
			for (unsigned t = 0; t < THREAD_COUNTS; t++) {
				double own = median(rates[0][p][phase][t]), best = 0;

				for (size_t e = 1; e < ENGINES; e++)
					if (median(rates[e][p][phase][t]) > best)
						best = median(rates[e][p][phase][t]);
				if (best > 0)
					fprintf(out, "%s\n    \"%s_%u_%u_over_best\": %.3f",
						separator, phase_names[phase], payloads[p],
						thread_counts[t], own / best);
				separator = ",";
			}
		}
	}
	fprintf(out, "\n  }\n");
}

static void report(const char *folder)
{
	char path[4096];
	FILE *out;

	snprintf(path, sizeof(path), "%s/engines.json", folder);
	out = fopen(path, "w");
	if (!out)
		fail("report", path, strerror(errno));
	fprintf(out, "{\n  \"rounds\": %u,\n  \"rows\": %llu,\n  \"engines\": {", rounds,
		(unsigned long long)rows_large);
	for (size_t e = 0; e < ENGINES; e++)
		report_engine(out, e);
	fprintf(out, "\n  },\n");
	report_summary(out);
	fprintf(out, "}\n");
	if (fclose(out))
		fail("report", path, strerror(errno));
}

typedef double table[PAYLOADS][PHASES][THREAD_COUNTS][ROUNDS_MOST];

static void print_table(const char *title, const table *values, const char *format)
{
	printf("%-10s %-12s", title, "engine");
	for (unsigned phase = 0; phase < PHASES; phase++)
		for (unsigned t = 0; t < THREAD_COUNTS; t++)
			printf(" %7s/%-2u", phase_names[phase], thread_counts[t]);
	printf("\n");
	for (unsigned p = 0; p < PAYLOADS; p++) {
		for (size_t e = 0; e < ENGINES; e++) {
			printf("%10u %-12s", payloads[p], engines[e]->name);
			for (unsigned phase = 0; phase < PHASES; phase++)
				for (unsigned t = 0; t < THREAD_COUNTS; t++)
					printf(format, median(values[e][p][phase][t]));
			printf("\n");
		}
	}
	printf("\n");
}

static void print_settings(void)
{
	for (size_t e = 0; e < ENGINES; e++)
		printf("%-12s %s\n", engines[e]->name, engines[e]->setting);
}

static unsigned long from_environment(const char *name, unsigned long otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtoul(text, NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
	rounds = (unsigned)from_environment("ROUNDS", 3);
	duration_ns = from_environment("DURATION_MS", 300) * 1000000u;
	rows_large = from_environment("ROWS", 120000);
	if (argc != 3 || !rounds || rounds > ROUNDS_MOST || !duration_ns || rows_large < 1000) {
		fputs("usage: ROUNDS=3 DURATION_MS=300 ROWS=120000 engines_bench FOLDER DATA\n"
		      "ROUNDS: at most 25; ROWS: at least 1000\n", stderr);
		return 2;
	}
	snprintf(data_folder, sizeof(data_folder), "%s/engines.%d", argv[2], (int)getpid());
	atexit(clean_up);
	for (unsigned round = 0; round < rounds; round++)
		for (unsigned p = 0; p < PAYLOADS; p++)
			for (size_t e = 0; e < ENGINES; e++)
				run_engine(e, p, round);
	print_table("a second", rates, " %10.0f");
	print_table("cpu us", cpu_us, " %10.2f");
	print_settings();
	report(argv[1]);
	return 0;
}
