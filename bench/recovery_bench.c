/*
 * How fast is recovery?
 *
 *	recovery_bench DIR --log-mib N [--rounds N] [--threads N] [--cache-mib N]
 *
 * Fills the log of a new volume with file creations that nobody writes back,
 * ends as if the process had died, and then, in each round:
 *
 *	read     reads the log's part of the file, cold, in 1 MiB pieces
 *	recover  opens a copy of the volume, cold: scan, redo, write-back, and what
 *	         else a mount does
 *
 * So the two rates are of the same bytes on the same disk.  Prints one line of
 * JSON with the medians; rates are in MiB/s.  DIR must have room for two volumes.
 */
#include "engine/base/message.h"
#include "tests/lib/core_load.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <unistd.h>

#define MIB (1024.0 * 1024.0)
#define ROUNDS_MAX 25u
#define CHUNK_BYTES (1u << 20)

enum phase { PHASE_READ, PHASE_SCAN, PHASE_REDO, PHASE_OPEN, PHASE_CPU, PHASE_COUNT };

struct bench {
	const char *dir;
	uint64_t log_bytes;
	uint64_t cache_bytes;
	unsigned rounds, threads;
	char crashed[4096], copy[4096];
	struct core *core;
	uint64_t files, live_bytes, pages;
	uint64_t log_offset;
	double seconds[PHASE_COUNT][ROUNDS_MAX];
};

static uint64_t begun_at, scanned_at, in_place_at;

static void fail(const char *what)
{
	fprintf(stderr, "recovery_bench: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* ------------------------------------------------------------ a full log */

static bool log_is_full(void *arg)
{
	struct bench *bench = arg;
	struct log *log = core_volume(bench->core)->log;

	return log_next_lsn(log) - log_checkpoint_lsn(log) > log_capacity(log) / 100 * 94;
}

static void fill_log(struct bench *bench)
{
	struct volume_options options = {
		.cache_bytes = bench->log_bytes * 3 + (64u << 20),
		.commit_interval_ns = OS_FOREVER,
		.no_background = true,
	};
	struct core_load *load = aligned_alloc(64, sizeof(*load));
	struct volume *volume;

	core_load_format(bench->crashed, bench->log_bytes * 5 + (256u << 20), 0, bench->log_bytes);
	bench->core = core_load_open(bench->crashed, &options);
	volume = core_volume(bench->core);
	if (!load)
		fail("memory");
	*load = (struct core_load){
		.core = bench->core,
		.threads = bench->threads,
		.enough = log_is_full,
		.arg = bench,
	};
	core_load_start(load);
	core_load_join(load);
	if (volume_sync(volume) || stat_read(&volume->stats, STAT_flush_batches))
		fail("the log did not fill by itself");
	bench->files = core_load_files(load);
	bench->live_bytes = log_next_lsn(volume->log) - log_checkpoint_lsn(volume->log);
	bench->log_offset = volume->geo.log_start * BLOCK_SIZE;
	core_load_abandon(bench->core);
	free(load);
}

/* --------------------------------------------------------------- a round */

static void make_cold(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fdatasync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		fail(path);
	close(fd);
}

/* Holes stay holes where the system can tell them. */
static void copy_file(const char *from, const char *to)
{
	int in = open(from, O_RDONLY | O_CLOEXEC);
	int out = open(to, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
	off_t size = in < 0 ? -1 : lseek(in, 0, SEEK_END), at = 0;

	if (in < 0 || out < 0 || size < 0)
		fail(to);
	while (at < size) {
		ssize_t n = sendfile(out, in, &at, CHUNK_BYTES);

		if (n <= 0)
			fail(to);
	}
	if (fsync(out))
		fail(to);
	close(in);
	close(out);
}

static double seconds_since(uint64_t start_ns)
{
	return (double)(os_mono_ns() - start_ns) / 1e9;
}

static double cpu_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static double read_log(const struct bench *bench)
{
	int fd = open(bench->crashed, O_RDONLY | O_CLOEXEC);
	uint64_t start = os_mono_ns();
	char *chunk = malloc(CHUNK_BYTES);

	if (fd < 0 || !chunk)
		fail(bench->crashed);
	for (uint64_t at = 0; at < bench->live_bytes; at += CHUNK_BYTES)
		if (pread(fd, chunk, CHUNK_BYTES, (off_t)(bench->log_offset + at)) <= 0)
			fail(bench->crashed);
	free(chunk);
	close(fd);
	return seconds_since(start);
}

static void note_phase(const char *name)
{
	if (strcmp(name, "recovery:begun") == 0)
		begun_at = os_mono_ns();
	else if (strcmp(name, "recovery:scanned") == 0)
		scanned_at = os_mono_ns();
	else if (strcmp(name, "recovery:in_place") == 0)
		in_place_at = os_mono_ns();
}

static void run_round(struct bench *bench, unsigned round)
{
	struct volume_options options = {
		.cache_bytes = bench->cache_bytes,
		.commit_interval_ns = OS_FOREVER,
	};
	uint64_t start;
	double cpu;
	struct core *core;

	make_cold(bench->crashed);
	bench->seconds[PHASE_READ][round] = read_log(bench);
	copy_file(bench->crashed, bench->copy);
	make_cold(bench->copy);
	os_linux_set_point_handler(note_phase);
	start = os_mono_ns();
	cpu = cpu_seconds();
	core = core_load_open(bench->copy, &options);
	bench->seconds[PHASE_CPU][round] = cpu_seconds() - cpu;
	bench->seconds[PHASE_OPEN][round] = seconds_since(start);
	bench->seconds[PHASE_SCAN][round] = (double)(scanned_at - begun_at) / 1e9;
	bench->seconds[PHASE_REDO][round] = (double)(in_place_at - scanned_at) / 1e9;
	os_linux_set_point_handler(NULL);
	bench->pages = stat_read(&core_volume(core)->stats, STAT_recovery_pages);
	core_load_abandon(core);
}

/* ---------------------------------------------------------------- results */

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return left < right ? -1 : left > right;
}

static double median(struct bench *bench, enum phase phase)
{
	qsort(bench->seconds[phase], bench->rounds, sizeof(double), compare);
	return bench->seconds[phase][bench->rounds / 2];
}

static void print_result(struct bench *bench)
{
	double mib = (double)bench->live_bytes / MIB;
	double read = median(bench, PHASE_READ), open = median(bench, PHASE_OPEN);

	printf("{\"log_mib\": %.0f, \"live_mib\": %.1f, \"files\": %llu, \"pages\": %llu, "
	       "\"rounds\": %u, \"cache_mib\": %.0f, ",
	       (double)bench->log_bytes / MIB, mib, (unsigned long long)bench->files,
	       (unsigned long long)bench->pages, bench->rounds, (double)bench->cache_bytes / MIB);
	printf("\"read_s\": %.3f, \"scan_s\": %.3f, \"redo_s\": %.3f, \"open_s\": %.3f, "
	       "\"cpu_s\": %.3f, ", read,
	       median(bench, PHASE_SCAN), median(bench, PHASE_REDO), open,
	       median(bench, PHASE_CPU));
	printf("\"read_rate\": %.0f, \"scan_rate\": %.0f, \"replay_rate\": %.0f, "
	       "\"replay_to_read\": %.3f}\n",
	       mib / read, mib / median(bench, PHASE_SCAN), mib / open, read / open);
}

static bool parse(int argc, char **argv, struct bench *bench)
{
	static const struct option options[] = {
		{"log-mib", required_argument, NULL, 'l'},
		{"rounds", required_argument, NULL, 'r'},
		{"threads", required_argument, NULL, 't'},
		{"cache-mib", required_argument, NULL, 'c'},
		{NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "l:r:t:c:", options, NULL)) != -1) {
		uint64_t value = option == '?' ? 0 : strtoull(optarg, NULL, 10);

		switch (option) {
		case 'l':
			bench->log_bytes = value << 20;
			break;
		case 'r':
			bench->rounds = (unsigned)value;
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
	return bench->log_bytes > 0 && bench->rounds > 0 && bench->rounds <= ROUNDS_MAX &&
	       bench->threads > 0 && bench->threads <= CORE_LOAD_THREADS_MAX;
}

int main(int argc, char **argv)
{
	struct bench bench = {
		.log_bytes = 64u << 20,
		.cache_bytes = CACHE_BYTES_DEFAULT,
		.rounds = 3,
		.threads = 2,
	};

	message_quiet(LOG_ERR);
	if (!parse(argc, argv, &bench)) {
		fputs("usage: recovery_bench DIR [--log-mib N] [--rounds N] [--threads N] "
		      "[--cache-mib N]\n",
		      stderr);
		return 2;
	}
	snprintf(bench.crashed, sizeof(bench.crashed), "%s/recovery-crashed.img", bench.dir);
	snprintf(bench.copy, sizeof(bench.copy), "%s/recovery-copy.img", bench.dir);
	fill_log(&bench);
	for (unsigned round = 0; round < bench.rounds; round++)
		run_round(&bench, round);
	print_result(&bench);
	unlink(bench.crashed);
	unlink(bench.copy);
	return 0;
}
