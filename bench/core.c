/*
 * What an operation costs without FUSE: the file system core called directly.
 *
 *	core [--threads N] [--files M] [VOLUME]
 *
 * The calls are those that the kernel makes of each system call under the
 * mount's options, so that "us a call" of this program and of meta through a
 * mount can be subtracted: the rest is FUSE's.
 *
 *	create   getattr of the directory, look-up, create, forget
 *	stat     look-up, forget
 *	durable  getattr, look-up, create, write of 4 KiB, fsync, forget
 *	unlink   getattr, unlink, setattr of the change time (writeback cache), forget
 *
 * Without VOLUME: 1 GiB of memory, whose writes and flushes cost next to
 * nothing.  VOLUME, at least as large, is formatted, whatever it holds.  Each thread has a
 * directory of its own; M is the number of files of each.
 */
#include "fs/core.h"
#include "engine/base/error.h"

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define VOLUME_BYTES (1ull << 30)
#define LOG_BYTES (128ull << 20)
#define BENCH_THREADS_MAX 64
#define SMALL_BYTES 4096

struct load {
	struct core *core;
	const char *volume;
	unsigned threads, files;
	pthread_barrier_t barrier;
	const struct operation *operation;
};

struct thread {
	struct load *load;
	pthread_t id;
	uint64_t dir;
	uint64_t *inos; /* of the files, as the kernel would know them */
};

struct operation {
	const char *name;
	int (*run)(struct thread *thread, unsigned file);
};

static const struct core_cred cred;

static void demand(int rc, const char *what)
{
	if (rc == 0)
		return;
	fprintf(stderr, "core: %s: %s\n", what, error_text(rc));
	exit(1);
}

static double now_us(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static double cpu_us(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* -------------------------------------------------------------- operations */

static size_t make_name(char *name, size_t cap, const char *prefix, unsigned file)
{
	return (size_t)snprintf(name, cap, "%s-%u", prefix, file);
}

static int create(struct thread *thread, const char *prefix, unsigned file, uint64_t *ino)
{
	struct core *core = thread->load->core;
	struct core_attr attr;
	char name[64];
	size_t len = make_name(name, sizeof(name), prefix, file);
	int rc = core_getattr(core, VIEW_BASE, thread->dir, &attr);

	if (!rc && core_lookup(core, VIEW_BASE, thread->dir, name, len, &attr) != -ENOENT)
		rc = -EEXIST;
	if (!rc)
		rc = core_create(core, VIEW_BASE, &cred, thread->dir, name, len, S_IFREG | 0644, 0,
				 &attr);
	*ino = attr.ino;
	return rc;
}

static int run_create(struct thread *thread, unsigned file)
{
	int rc = create(thread, "file", file, &thread->inos[file]);

	if (!rc)
		core_forget(thread->load->core, thread->inos[file], 1);
	return rc;
}

static int run_stat(struct thread *thread, unsigned file)
{
	struct core *core = thread->load->core;
	struct core_attr attr;
	char name[64];
	size_t len = make_name(name, sizeof(name), "file", file);
	int rc = core_lookup(core, VIEW_BASE, thread->dir, name, len, &attr);

	if (!rc)
		core_forget(core, attr.ino, 1);
	return rc;
}

static int run_durable(struct thread *thread, unsigned file)
{
	static const char block[SMALL_BYTES];
	struct core *core = thread->load->core;
	uint64_t ino;
	int rc = create(thread, "durable", file, &ino);

	if (!rc)
		rc = core_write(core, VIEW_BASE, ino, 0, block, sizeof(block), 0);
	if (!rc)
		rc = core_fsync(core, VIEW_BASE, ino, false);
	if (!rc)
		core_forget(core, ino, 1);
	return rc;
}

static int run_unlink(struct thread *thread, unsigned file)
{
	struct core *core = thread->load->core;
	struct core_attr attr;
	char name[64];
	size_t len = make_name(name, sizeof(name), "file", file);
	int rc = core_lookup(core, VIEW_BASE, thread->dir, name, len, &attr);
	uint64_t ino = attr.ino;

	if (!rc)
		rc = core_getattr(core, VIEW_BASE, thread->dir, &attr);
	if (!rc)
		rc = core_unlink(core, VIEW_BASE, thread->dir, name, len);
	attr.ctime = os_realtime();
	if (!rc)
		rc = core_setattr(core, VIEW_BASE, ino, CORE_SET_CTIME, &attr);
	if (!rc)
		core_forget(core, ino, 1);
	return rc;
}

static const struct operation operations[] = {
	{"create", run_create},
	{"stat", run_stat},
	{"durable", run_durable},
	{"unlink", run_unlink},
};

/* ----------------------------------------------------------------- threads */

static void *thread_main(void *arg)
{
	struct thread *thread = arg;
	struct load *load = thread->load;

	for (size_t i = 0; i < array_count(operations); i++) {
		pthread_barrier_wait(&load->barrier);
		for (unsigned file = 0; file < load->files; file++)
			demand(operations[i].run(thread, file), operations[i].name);
		pthread_barrier_wait(&load->barrier);
	}
	return NULL;
}

static void start(struct thread *thread, struct load *load, unsigned number)
{
	struct core_attr attr;
	char name[32];
	size_t len = make_name(name, sizeof(name), "dir", number);

	*thread = (struct thread){.load = load};
	demand(core_create(load->core, VIEW_BASE, &cred, INO_ROOT, name, len, S_IFDIR | 0755, 0,
			   &attr),
	       "mkdir");
	thread->dir = attr.ino;
	thread->inos = calloc(load->files, sizeof(thread->inos[0]));
	demand(thread->inos ? 0 : -ENOMEM, "memory");
	demand(-pthread_create(&thread->id, NULL, thread_main, thread), "thread");
}

static void measure(struct load *load, const struct operation *operation)
{
	double files = (double)load->files * load->threads;
	double begin, cpu;

	begin = now_us();
	cpu = cpu_us();
	pthread_barrier_wait(&load->barrier); /* go */
	pthread_barrier_wait(&load->barrier); /* all are done */
	cpu = cpu_us() - cpu;
	begin = now_us() - begin;
	printf("{\"op\": \"%s\", \"threads\": %u, \"files\": %.0f, \"rate\": %.0f, "
	       "\"cpu_us\": %.2f}\n",
	       operation->name, load->threads, files, files / begin * 1e6, cpu / files);
}

static void run(struct load *load)
{
	struct thread threads[BENCH_THREADS_MAX];

	pthread_barrier_init(&load->barrier, NULL, load->threads + 1);
	for (unsigned i = 0; i < load->threads; i++)
		start(&threads[i], load, i);
	for (size_t i = 0; i < array_count(operations); i++)
		measure(load, &operations[i]);
	for (unsigned i = 0; i < load->threads; i++) {
		pthread_join(threads[i].id, NULL);
		free(threads[i].inos);
	}
	pthread_barrier_destroy(&load->barrier);
}

/* ------------------------------------------------------------------ volume */

static struct volume *open_volume(const char *path)
{
	struct format_params params = {
		.size_bytes = VOLUME_BYTES,
		.log_bytes = LOG_BYTES,
		.uuid = "bench-of-core!!",
		.hash_seed = "bench-hash-seed",
	};
	struct volume_options options = {0};
	struct volume *volume;
	struct device *dev;

	if (path)
		demand(dev_open_file(&dev, path, 0, 0), path);
	else
		demand(dev_open_memory(&dev, VOLUME_BYTES), "memory");
	demand(volume_format(dev, &params, NULL), "format");
	demand(volume_open(&volume, dev, &options), "open");
	return volume;
}

static bool parse(int argc, char **argv, struct load *load)
{
	static const struct option options[] = {
		{"threads", required_argument, NULL, 't'},
		{"files", required_argument, NULL, 'n'},
		{NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "t:n:", options, NULL)) != -1) {
		if (option == 't')
			load->threads = (unsigned)strtoul(optarg, NULL, 10);
		else if (option == 'n')
			load->files = (unsigned)strtoul(optarg, NULL, 10);
		else
			return false;
	}
	if (optind < argc)
		load->volume = argv[optind++];
	return optind == argc && load->files > 0 && load->threads >= 1 &&
	       load->threads <= BENCH_THREADS_MAX;
}

int main(int argc, char **argv)
{
	struct load load = {.threads = 1, .files = 20000};
	struct volume *volume;

	if (!parse(argc, argv, &load)) {
		fputs("usage: core [--threads N] [--files M] [VOLUME]\n", stderr);
		return 2;
	}
	volume = open_volume(load.volume);
	demand(core_open(&load.core, volume), "core");
	run(&load);
	core_close(load.core);
	demand(volume_close(volume), "close");
	return 0;
}
