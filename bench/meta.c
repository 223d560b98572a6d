/*
 * Metadata load: many small operations by several threads.
 *
 *	meta DIR --op create|stat|unlink|durable [--threads N] [--files M] [--shared]
 *
 *	create   creates M empty files and closes them
 *	stat     cold stats of M files: nothing about them is in the kernel
 *	unlink   removes M files
 *	durable  creates a file, writes 4 KiB, fsyncs, closes; M times; the files
 *	         are removed again outside of the measured time
 *
 * M is the number of files of all threads together.  Each thread works in a
 * directory of its own, DIR/meta-K, or all in DIR/meta-0 (--shared).  stat and
 * unlink want the files of an earlier create with the same arguments.
 *
 * Cold: root drops the kernel's dentries and inodes first.  Others cannot;
 * then names are asked for that do not exist and have not been asked for
 * before, which reaches the filesystem too ("cold": "absent").
 *
 * Prints one line of JSON; rate is operations per second from the moment when
 * all threads start together to the end of the last, cpu_us what one operation
 * took of this process's CPU time, kernel included.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 256
#define SMALL_BYTES 4096
#define SETTLE_NS 300000000 /* what was dropped is forgotten by the filesystem in the background */

struct load {
	const char *dir;
	const struct operation *operation;
	unsigned threads, files;
	bool shared, absent;
	pthread_barrier_t start;
	double cpu_us; /* of all threads */
};

struct thread {
	struct load *load;
	unsigned number, files;
	pthread_t id;
	int dir_fd;
	uint64_t *took_ns; /* one an operation */
	uint64_t begin_ns, end_ns;
};

struct operation {
	const char *name;
	bool wants_cold, cleans_up;
	int (*run)(const struct thread *thread, const char *name);
};

static uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void fail(const char *what, const char *name)
{
	fprintf(stderr, "meta: %s %s: %s\n", what, name, strerror(errno));
	exit(1);
}

/* -------------------------------------------------------------- operations */

static int run_create(const struct thread *thread, const char *name)
{
	int fd = openat(thread->dir_fd, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);

	return fd < 0 ? -1 : close(fd);
}

static int run_stat(const struct thread *thread, const char *name)
{
	struct stat st;
	int rc = fstatat(thread->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW);

	if (thread->load->absent)
		return rc != 0 && errno == ENOENT ? 0 : -1;
	return rc;
}

static int run_unlink(const struct thread *thread, const char *name)
{
	return unlinkat(thread->dir_fd, name, 0);
}

static int run_durable(const struct thread *thread, const char *name)
{
	static const char block[SMALL_BYTES] = "what an application wants to keep";
	int fd = openat(thread->dir_fd, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
	int rc;

	if (fd < 0)
		return -1;
	rc = write(fd, block, sizeof(block)) == sizeof(block) ? fsync(fd) : -1;
	if (close(fd) != 0)
		rc = -1;
	return rc;
}

static const struct operation operations[] = {
	{.name = "create", .run = run_create},
	{.name = "stat", .run = run_stat, .wants_cold = true},
	{.name = "unlink", .run = run_unlink},
	{.name = "durable", .run = run_durable, .cleans_up = true},
};

/* ----------------------------------------------------------------- threads */

static int open_thread_dir(const struct load *load, unsigned number)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/meta-%u", load->dir, load->shared ? 0 : number);
	if (mkdir(path, 0755) != 0 && errno != EEXIST)
		fail("mkdir", path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		fail("open", path);
	return fd;
}

static void prepare(struct thread *thread, struct load *load, unsigned number)
{
	*thread = (struct thread){.load = load, .number = number};
	thread->files = load->files / load->threads + (number < load->files % load->threads);
	thread->dir_fd = open_thread_dir(load, number);
	thread->took_ns = calloc(thread->files + 1, sizeof(thread->took_ns[0]));
	if (!thread->took_ns)
		fail("memory", "");
}

struct name {
	char text[64];
};

static struct name name_of(const struct thread *thread, unsigned i)
{
	const struct load *load = thread->load;
	const char *prefix = load->absent                 ? "absent"
			     : load->operation->cleans_up ? load->operation->name
							  : "file";
	struct name name;

	snprintf(name.text, sizeof(name.text), "%s-%u-%u", prefix, thread->number, i);
	return name;
}

static void *thread_main(void *arg)
{
	struct thread *thread = arg;
	const struct load *load = thread->load;
	uint64_t before, after;

	pthread_barrier_wait(&thread->load->start);
	before = thread->begin_ns = now_ns();
	for (unsigned i = 0; i < thread->files; i++) {
		struct name name = name_of(thread, i);

		if (load->operation->run(thread, name.text) != 0)
			fail(load->operation->name, name.text);
		after = now_ns();
		thread->took_ns[i] = after - before;
		before = after;
	}
	thread->end_ns = before;
	return NULL;
}

static void clean_up(const struct thread *thread)
{
	for (unsigned i = 0; i < thread->files; i++) {
		struct name name = name_of(thread, i);

		if (unlinkat(thread->dir_fd, name.text, 0) != 0)
			fail("unlink", name.text);
	}
}

static double cpu_us(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* False: this process may not. */
static bool drop_caches(void)
{
	const struct timespec settle = {.tv_nsec = SETTLE_NS};
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
	bool dropped;

	if (fd < 0)
		return false;
	sync();
	dropped = write(fd, "2", 1) == 1;
	close(fd);
	if (dropped)
		nanosleep(&settle, NULL);
	return dropped;
}

/* ------------------------------------------------------------------ result */

static int compare_ns(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

static uint64_t *gather(const struct thread *threads, const struct load *load)
{
	uint64_t *all = calloc(load->files + 1, sizeof(all[0]));
	size_t count = 0;

	if (!all)
		fail("memory", "");
	for (unsigned i = 0; i < load->threads; i++) {
		memcpy(all + count, threads[i].took_ns, threads[i].files * sizeof(all[0]));
		count += threads[i].files;
	}
	qsort(all, count, sizeof(all[0]), compare_ns);
	return all;
}

static double percentile_us(const uint64_t *sorted, unsigned count, unsigned percent)
{
	uint64_t at = (uint64_t)count * percent / 100;

	return (double)sorted[at < count ? at : count - 1] / 1e3;
}

static double seconds_taken(const struct load *load, const struct thread *threads)
{
	uint64_t begin = threads[0].begin_ns, end = 0;

	for (unsigned i = 0; i < load->threads; i++) {
		begin = threads[i].begin_ns < begin ? threads[i].begin_ns : begin;
		end = threads[i].end_ns > end ? threads[i].end_ns : end;
	}
	return (double)(end - begin) / 1e9;
}

static void print_result(const struct load *load, const struct thread *threads)
{
	uint64_t *sorted = gather(threads, load);
	double seconds = seconds_taken(load, threads);

	printf("{\"op\": \"%s\", \"threads\": %u, \"files\": %u, \"seconds\": %.4f, ",
	       load->operation->name, load->threads, load->files, seconds);
	printf("\"rate\": %.1f, \"cpu_us\": %.2f, ", load->files / seconds,
	       load->cpu_us / load->files);
	if (load->operation->wants_cold)
		printf("\"cold\": \"%s\", ", load->absent ? "absent" : "dropped");
	printf("\"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n",
	       percentile_us(sorted, load->files, 50), percentile_us(sorted, load->files, 99),
	       percentile_us(sorted, load->files, 100));
	free(sorted);
}

static void run(struct load *load)
{
	struct thread threads[THREADS_MAX];

	if (load->operation->wants_cold)
		load->absent = !drop_caches();
	for (unsigned i = 0; i < load->threads; i++)
		prepare(&threads[i], load, i);
	pthread_barrier_init(&load->start, NULL, load->threads);
	load->cpu_us = cpu_us();
	for (unsigned i = 0; i < load->threads; i++)
		if (pthread_create(&threads[i].id, NULL, thread_main, &threads[i]) != 0)
			fail("thread", "");
	for (unsigned i = 0; i < load->threads; i++)
		pthread_join(threads[i].id, NULL);
	load->cpu_us = cpu_us() - load->cpu_us;
	print_result(load, threads);
	for (unsigned i = 0; i < load->threads; i++) {
		if (load->operation->cleans_up)
			clean_up(&threads[i]);
		close(threads[i].dir_fd);
		free(threads[i].took_ns);
	}
	pthread_barrier_destroy(&load->start);
}

/* --------------------------------------------------------------- arguments */

static const struct operation *operation_named(const char *name)
{
	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
		if (strcmp(operations[i].name, name) == 0)
			return &operations[i];
	return NULL;
}

static bool parse(int argc, char **argv, struct load *load)
{
	static const struct option options[] = {
		{"op", required_argument, NULL, 'o'},
		{"threads", required_argument, NULL, 't'},
		{"files", required_argument, NULL, 'n'},
		{"shared", no_argument, NULL, 's'},
		{NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "o:t:n:s", options, NULL)) != -1) {
		if (option == 'o')
			load->operation = operation_named(optarg);
		else if (option == 't')
			load->threads = (unsigned)strtoul(optarg, NULL, 10);
		else if (option == 'n')
			load->files = (unsigned)strtoul(optarg, NULL, 10);
		else if (option == 's')
			load->shared = true;
		else
			return false;
	}
	if (optind != argc - 1)
		return false;
	load->dir = argv[optind];
	return load->operation && load->threads >= 1 && load->threads <= THREADS_MAX &&
	       load->files >= load->threads;
}

int main(int argc, char **argv)
{
	struct load load = {.threads = 1, .files = 10000};

	if (!parse(argc, argv, &load)) {
		fputs("usage: meta DIR --op create|stat|unlink|durable [--threads N] [--files M] "
		      "[--shared]\n",
		      stderr);
		return 2;
	}
	run(&load);
	return 0;
}
