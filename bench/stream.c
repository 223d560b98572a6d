/*
 * Sequential load: one large file.
 *
 *	stream FILE --op write|read [--mib N]
 *
 *	write    writes N MiB from the beginning and ends with fsync; the time
 *	         includes it
 *	read     reads the file to its end, cold: the kernel's page cache is
 *	         dropped first (by root: all of it, else the file's)
 *
 * Every 4 KiB carry their position: what is read is checked, outside of the
 * measured time's noise (one comparison a block).  Prints one line of JSON;
 * rate is in MiB/s.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHUNK_BYTES (1u << 20)
#define BLOCK_BYTES 4096u

static void fail(const char *what, const char *path)
{
	fprintf(stderr, "stream: %s %s: %s\n", what, path, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void mark(char *chunk, uint64_t chunk_number)
{
	for (uint64_t i = 0; i < CHUNK_BYTES / BLOCK_BYTES; i++) {
		uint64_t block = chunk_number * (CHUNK_BYTES / BLOCK_BYTES) + i;

		memcpy(chunk + i * BLOCK_BYTES, &block, sizeof(block));
	}
}

static bool marked(const char *chunk, size_t len, uint64_t chunk_number)
{
	for (uint64_t i = 0; i < len / BLOCK_BYTES; i++) {
		uint64_t block = chunk_number * (CHUNK_BYTES / BLOCK_BYTES) + i;

		if (memcmp(chunk + i * BLOCK_BYTES, &block, sizeof(block)) != 0)
			return false;
	}
	return true;
}

static uint64_t write_file(const char *path, char *chunk, uint64_t chunks)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);

	if (fd < 0)
		fail("open", path);
	for (uint64_t i = 0; i < chunks; i++) {
		mark(chunk, i);
		if (write(fd, chunk, CHUNK_BYTES) != CHUNK_BYTES)
			fail("write", path);
	}
	if (fsync(fd) != 0)
		fail("fsync", path);
	close(fd);
	return chunks * CHUNK_BYTES;
}

static uint64_t read_file(const char *path, char *chunk)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t total = 0;
	ssize_t n;

	if (fd < 0)
		fail("open", path);
	while ((n = read(fd, chunk, CHUNK_BYTES)) > 0) {
		if (!marked(chunk, (size_t)n, total / CHUNK_BYTES)) {
			errno = EILSEQ;
			fail("compare", path);
		}
		total += (uint64_t)n;
	}
	if (n < 0)
		fail("read", path);
	close(fd);
	return total;
}

static void drop_cache(const char *path)
{
	int caches = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		fail("open", path);
	fsync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
	if (caches >= 0) {
		if (write(caches, "3", 1) != 1)
			fail("drop", "caches");
		close(caches);
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"op", required_argument, NULL, 'o'},
		{"mib", required_argument, NULL, 'm'},
		{NULL, 0, NULL, 0},
	};
	const char *op = "", *path;
	uint64_t mib = 512, begin, bytes;
	double seconds;
	char *chunk;
	int option;

	while ((option = getopt_long(argc, argv, "o:m:", options, NULL)) != -1) {
		if (option == 'o')
			op = optarg;
		else if (option == 'm')
			mib = strtoull(optarg, NULL, 10);
		else
			optind = argc; /* falls into the usage below */
	}
	if (optind != argc - 1 || mib == 0 ||
	    (strcmp(op, "write") != 0 && strcmp(op, "read") != 0)) {
		fputs("usage: stream FILE --op write|read [--mib N]\n", stderr);
		return 2;
	}
	path = argv[optind];
	chunk = aligned_alloc(BLOCK_BYTES, CHUNK_BYTES);
	if (!chunk)
		fail("memory", "");
	memset(chunk, 0x5a, CHUNK_BYTES);

	if (op[0] == 'r')
		drop_cache(path);
	begin = now_ns();
	bytes = op[0] == 'r' ? read_file(path, chunk) : write_file(path, chunk, mib);
	seconds = (double)(now_ns() - begin) / 1e9;
	printf("{\"op\": \"seq%s\", \"mib\": %llu, \"seconds\": %.4f, \"rate\": %.1f}\n", op,
	       (unsigned long long)(bytes >> 20), seconds, (double)(bytes >> 20) / seconds);
	free(chunk);
	return 0;
}
