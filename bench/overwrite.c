/*
 * Random overwrites of a large file, through the file system core over a file.
 *
 *	overwrite FOLDER     writes FOLDER/overwrite.json; the image lies in FOLDER, sparse
 *
 * FILE_MIB   1024
 * WRITES     1000000, of one block each, at random
 * CACHE_MIB  256
 *
 * For each tenth of the writes: how many a second there were, what one took of the
 * processor, the log and the device; how many extents the file has then, and how many
 * leaves they fill.  Before and after all of them the file is read from its beginning,
 * cold, in pieces of 1 MiB, and its contents are compared.
 */
#include "engine/base/message.h"
#include "engine/lob_internal.h"
#include "fs/core.h"
#include "fs/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PARTS 10u
#define CHUNK_BLOCKS (WRITE_BYTES_MAX / BLOCK_SIZE)

static const struct core_cred cred;

struct part {
	double rate, cpu_us;
	double log_bytes, device_bytes;  /* for each write, writing back included */
	uint64_t extents, leaves;
};

struct run {
	struct part part[PARTS];
	uint64_t extents_before, leaves_before;
	double read_before, read_after; /* MiB a second */
};

struct bench {
	uint64_t blocks, writes, cache_bytes;
	char image[4096];
	int image_fd;              /* keeps it, its name being gone at once */
	struct core *core;
	struct volume *volume;
	uint64_t ino, random;
	uint32_t *version; /* of each block */
	uint8_t *chunk;
};

static void demand(int rc, const char *what)
{
	if (rc == 0)
		return;
	fprintf(stderr, "overwrite: %s: %s\n", what, error_text(rc));
	exit(1);
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static uint64_t next_random(struct bench *bench)
{
	bench->random ^= bench->random << 13;
	bench->random ^= bench->random >> 7;
	bench->random ^= bench->random << 17;
	return bench->random;
}

/* ----------------------------------------------------------------- contents */

static void fill(uint8_t *at, uint64_t block, uint32_t version)
{
	uint64_t *word = (uint64_t *)(void *)at;

	memset(at, (int)version, BLOCK_SIZE);
	word[0] = block;
	word[1] = version;
}

static bool is_right(const uint8_t *at, uint64_t block, uint32_t version)
{
	const uint64_t *word = (const uint64_t *)(const void *)at;

	return word[0] == block && word[1] == version && at[BLOCK_SIZE - 1] == (uint8_t)version;
}

static void write_all(struct bench *bench)
{
	for (uint64_t at = 0; at < bench->blocks; at += CHUNK_BLOCKS) {
		for (uint64_t i = 0; i < CHUNK_BLOCKS; i++)
			fill(bench->chunk + i * BLOCK_SIZE, at + i, 0);
		demand(core_write(bench->core, VIEW_BASE, bench->ino, at * BLOCK_SIZE, bench->chunk,
				  WRITE_BYTES_MAX, 0), "write");
	}
}

static void drop_cache(struct bench *bench)
{
	demand(core_fsync(bench->core, VIEW_BASE, bench->ino, false), "fsync");
	demand(-posix_fadvise(bench->image_fd, 0, 0, POSIX_FADV_DONTNEED), bench->image);
}

static double read_all(struct bench *bench)
{
	uint64_t from;

	drop_cache(bench);
	from = os_mono_ns();
	for (uint64_t at = 0; at < bench->blocks; at += CHUNK_BLOCKS) {
		size_t done;

		demand(core_read(bench->core, VIEW_BASE, bench->ino, at * BLOCK_SIZE, bench->chunk,
				 WRITE_BYTES_MAX, &done), "read");
		for (uint64_t i = 0; i < CHUNK_BLOCKS; i++)
			if (!is_right(bench->chunk + i * BLOCK_SIZE, at + i,
				      bench->version[at + i]))
				demand(-EILSEQ, "compare");
	}
	return (double)(bench->blocks * BLOCK_SIZE >> 20) * 1e9 / (double)(os_mono_ns() - from);
}

/* ---------------------------------------------------------------- measuring */

struct mark {
	uint64_t ns, log, device;
	double cpu_us;
};

static double process_us(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void set_mark(const struct bench *bench, struct mark *mark)
{
	const struct stats *stats = &bench->volume->stats;

	mark->ns = os_mono_ns();
	mark->cpu_us = process_us();
	mark->log = stat_read(stats, STAT_log_append_bytes);
	mark->device = stat_read(stats, STAT_dev_write_bytes);
}

static int count_extent(void *arg, const struct extent *extent)
{
	(void)extent;
	++*(uint64_t *)arg;
	return 0;
}

static void count_extents(struct bench *bench, uint64_t *extents, uint64_t *leaves)
{
	struct lob_visitor visitor = {.visit = count_extent, .arg = extents};
	struct record record;

	*extents = 0;
	demand(record_read(bench->volume, bench->ino, &record, NULL), "record");
	demand(lob_walk(bench->volume, record.lob, 0, &visitor, false), "extents");
	*leaves = visitor.leaves;
}

static void end_part(struct bench *bench, const struct mark *from, uint64_t operations,
		     struct part *part)
{
	double count = (double)operations;
	struct mark to;

	set_mark(bench, &to);
	part->rate = count * 1e9 / (double)(to.ns - from->ns);
	part->cpu_us = (to.cpu_us - from->cpu_us) / count;
	part->log_bytes = (double)(to.log - from->log) / count;
	part->device_bytes = (double)(to.device - from->device) / count;
	count_extents(bench, &part->extents, &part->leaves);
}

static void overwrite(struct bench *bench)
{
	uint64_t block = next_random(bench) % bench->blocks;

	fill(bench->chunk, block, ++bench->version[block]);
	demand(core_write(bench->core, VIEW_BASE, bench->ino, block * BLOCK_SIZE, bench->chunk,
			  BLOCK_SIZE, 0), "overwrite");
}

static void overwrite_all(struct bench *bench, struct run *run)
{
	uint64_t done = 0;

	for (unsigned i = 0; i < PARTS; i++) {
		uint64_t from = done, end = bench->writes * (i + 1) / PARTS;
		struct mark mark;

		set_mark(bench, &mark);
		for (; done < end; done++)
			overwrite(bench);
		end_part(bench, &mark, end - from, &run->part[i]);
		fprintf(stderr, "%llu writes, %.0f a second, %llu extents\n",
			(unsigned long long)end, run->part[i].rate,
			(unsigned long long)run->part[i].extents);
	}
}

/* ---------------------------------------------------------------------- run */

static void open_core(struct bench *bench)
{
	struct format_params params = {
		.size_bytes = bench->blocks * BLOCK_SIZE * 3 + (512u << 20),
		.uuid = "bench-overwrite",
		.hash_seed = "bench-hash-seed",
	};
	struct volume_options options = {.cache_bytes = bench->cache_bytes};
	int fd = open(bench->image, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
	struct device *dev;

	if (fd < 0 || ftruncate(fd, (off_t)params.size_bytes))
		demand(-errno, bench->image);
	bench->image_fd = fd;
	demand(dev_open_file(&dev, bench->image, 0, 0), bench->image);
	unlink(bench->image); /* gone when this program ends, however it ends */
	demand(volume_format(dev, &params, NULL), "format");
	demand(volume_open(&bench->volume, dev, &options), "open");
	demand(core_open(&bench->core, bench->volume), "core");
}

static void run_all(struct bench *bench, struct run *run)
{
	struct core_attr attr;

	memset(bench->version, 0, bench->blocks * sizeof(*bench->version));
	bench->random = 0x9e3779b97f4a7c15ull;
	open_core(bench);
	demand(core_create(bench->core, VIEW_BASE, &cred, INO_ROOT, "file", 4, S_IFREG | 0644, 0,
			   &attr), "create");
	bench->ino = attr.ino;
	write_all(bench);
	count_extents(bench, &run->extents_before, &run->leaves_before);
	run->read_before = read_all(bench);
	overwrite_all(bench, run);
	run->read_after = read_all(bench);
	core_forget(bench->core, attr.ino, 1);
	core_close(bench->core);
	demand(volume_close(bench->volume), "close");
	close(bench->image_fd);
}

/* ------------------------------------------------------------------- report */

static double per_mib(const struct bench *bench, uint64_t extents)
{
	return (double)extents / (double)(bench->blocks * BLOCK_SIZE >> 20);
}

static void print_run(const struct bench *bench, const struct run *run)
{
	printf("%llu overwrites of %llu MiB; %.1f extents a MiB before, in %llu leaves\n",
	       (unsigned long long)bench->writes,
	       (unsigned long long)(bench->blocks * BLOCK_SIZE >> 20),
	       per_mib(bench, run->extents_before), (unsigned long long)run->leaves_before);
	printf("%-10s %10s %8s %10s %10s %10s %8s\n", "", "a second", "cpu us", "log bytes",
	       "dev bytes", "ext/MiB", "leaves");
	for (unsigned i = 0; i < PARTS; i++) {
		const struct part *part = &run->part[i];

		printf("tenth %-4u %10.0f %8.2f %10.0f %10.0f %10.1f %8llu\n", i + 1, part->rate,
		       part->cpu_us, part->log_bytes, part->device_bytes,
		       per_mib(bench, part->extents), (unsigned long long)part->leaves);
	}
	printf("read cold: %.0f MiB a second before, %.0f after\n", run->read_before,
	       run->read_after);
}

static void write_part(FILE *out, const struct bench *bench, const struct part *part,
		       const char *separator)
{
	fprintf(out, "    {\"rate\": %.0f, \"cpu_us\": %.3f, \"log_bytes\": %.1f, "
		"\"device_bytes\": %.1f, \"extents_per_mib\": %.2f, \"leaves\": %llu}%s\n",
		part->rate, part->cpu_us, part->log_bytes, part->device_bytes,
		per_mib(bench, part->extents), (unsigned long long)part->leaves, separator);
}

static void write_summary(FILE *out, const struct bench *bench, const struct run *run)
{
	const struct part *first = &run->part[0], *last = &run->part[PARTS - 1];

	fprintf(out, "  \"summary\": {\"last_over_first\": %.3f, \"cpu_first_over_last\": %.3f, "
		"\"extents_per_mib\": %.2f, \"leaves\": %llu,\n    \"read_before_mib_s\": %.1f, "
		"\"read_after_mib_s\": %.1f, \"read_after_over_before\": %.3f}\n",
		last->rate / first->rate, first->cpu_us / last->cpu_us,
		per_mib(bench, last->extents), (unsigned long long)last->leaves, run->read_before,
		run->read_after, run->read_after / run->read_before);
}

static void report(const struct bench *bench, const char *folder, const struct run *run)
{
	char path[4096];
	FILE *out;

	snprintf(path, sizeof(path), "%s/overwrite.json", folder);
	out = fopen(path, "w");
	if (!out)
		demand(-errno, path);
	fprintf(out, "{\n  \"file_mib\": %llu, \"writes\": %llu, \"cache_mib\": %llu,\n"
		"  \"tenths\": [\n", (unsigned long long)(bench->blocks * BLOCK_SIZE >> 20),
		(unsigned long long)bench->writes, (unsigned long long)(bench->cache_bytes >> 20));
	for (unsigned i = 0; i < PARTS; i++)
		write_part(out, bench, &run->part[i], i + 1 < PARTS ? "," : "");
	fprintf(out, "  ],\n");
	write_summary(out, bench, run);
	fprintf(out, "}\n");
	if (fclose(out))
		demand(-errno, path);
}

int main(int argc, char **argv)
{
	static struct bench bench;
	struct run run;

	bench.blocks = from_environment("FILE_MIB", 1024) * CHUNK_BLOCKS;
	bench.writes = from_environment("WRITES", 1000000);
	bench.cache_bytes = from_environment("CACHE_MIB", 256) << 20;
	if (argc != 2 || bench.blocks == 0 || bench.writes < PARTS) {
		fputs("usage: FILE_MIB=1024 WRITES=1000000 CACHE_MIB=256 overwrite FOLDER\n",
		      stderr);
		return 2;
	}
	message_quiet(LOG_ERR);
	bench.version = malloc(bench.blocks * sizeof(*bench.version));
	bench.chunk = aligned_alloc(BLOCK_SIZE, WRITE_BYTES_MAX);
	demand(bench.version && bench.chunk ? 0 : -ENOMEM, "memory");
	snprintf(bench.image, sizeof(bench.image), "%s/overwrite.%d.img", argv[1], (int)getpid());
	run_all(&bench, &run);
	print_run(&bench, &run);
	report(&bench, argv[1], &run);
	free(bench.version);
	free(bench.chunk);
	return 0;
}
