/*
 * Fills a mount until there is no space, and checks that it was nothing else.
 *
 *	fill_tool big FILE          one file, fsync every 4 MiB; prints MiB
 *	fill_tool many DIR SIZE [N] files of SIZE bytes, synced now and then, at most N;
 *	                            prints their number
 *	fill_tool again FILE        overwrites a file in place, which takes new blocks:
 *	                            ends when it is done, or with ENOSPC; prints MiB
 *	fill_tool commits FILE N    N records of 96 bytes, each made durable by itself
 *	fill_tool check PATH        what these have left has the right contents: each file
 *	                            up to its size, zeros only where an error was told
 *
 * The only error allowed is ENOSPC, from whichever call tells it, and fsync after
 * it must come back.  Exit code 0: so it was; 1: not, and the output says what.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK (128u << 10)
#define SYNC_EVERY (4u << 20)
#define MANY_SYNC_EVERY 64u /* files */

static int complain(const char *what, const char *path)
{
	fprintf(stderr, "%s %s: %s\n", what, path, strerror(errno));
	return 1;
}

/* The word at each 8-byte offset depends on the offset and the file's number. */
static void fill(uint8_t *buf, size_t len, uint64_t offset, uint64_t number)
{
	for (size_t i = 0; i < len; i++) {
		uint64_t word = ((offset + i) / 8 + number * 1000003) * 0x9e3779b97f4a7c15ull;

		buf[i] = (uint8_t)(word >> 8 * ((offset + i) % 8)) | 1; /* never zero */
	}
}

/* -1 with errno. */
static int write_all(int fd, const uint8_t *buf, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, buf, len);

		if (n < 0)
			return -1;
		buf += n;
		len -= (size_t)n;
	}
	return 0;
}

/* After an error: it was the right one, and the file can still be synced and closed. */
static int finish_full(int fd, const char *what, const char *path)
{
	if (errno != ENOSPC)
		return complain(what, path);
	if (fsync(fd) != 0 && errno != ENOSPC)
		return complain("fsync after ENOSPC", path);
	if (fsync(fd) != 0 && errno != ENOSPC)
		return complain("second fsync after ENOSPC", path);
	if (close(fd) != 0 && errno != ENOSPC)
		return complain("close after ENOSPC", path);
	return 0;
}

/* Writes from the beginning up to `limit`; *full: it ended with ENOSPC. */
static int write_file(const char *path, uint64_t limit, bool *full)
{
	static uint8_t buf[CHUNK];
	uint64_t done = 0;
	int fd = open(path, O_RDWR | O_CREAT, 0644);
	int rc = 0;

	*full = false;
	if (fd < 0)
		return complain("open", path);
	while (done < limit && !*full) {
		size_t len = limit - done < CHUNK ? (size_t)(limit - done) : CHUNK;

		fill(buf, len, done, 0);
		*full = write_all(fd, buf, len) != 0;
		done += len;
		if (!*full && done % SYNC_EVERY == 0)
			*full = fsync(fd) != 0;
	}
	if (!*full)
		*full = fsync(fd) != 0;
	if (*full)
		rc = finish_full(fd, "writing", path);
	else if (close(fd) != 0)
		rc = complain("close", path);
	printf("%llu\n", (unsigned long long)done >> 20);
	return rc;
}

static int fill_big(const char *path)
{
	bool full;
	int rc = write_file(path, UINT64_MAX, &full);

	return rc;
}

static int fill_again(const char *path)
{
	struct stat st;
	bool full;

	if (stat(path, &st) != 0)
		return complain("stat", path);
	return write_file(path, (uint64_t)st.st_size / CHUNK * CHUNK, &full);
}

/* One more small file: 0, 1 after a complaint, or 2 when there is no space. */
static int one_more(const char *dir, unsigned number, size_t size, uint8_t *buf)
{
	char path[4200];
	int fd;

	snprintf(path, sizeof(path), "%s/%u", dir, number);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
	if (fd < 0)
		return errno == ENOSPC ? 2 : complain("create", path);
	fill(buf, size, 0, number);
	if (write_all(fd, buf, size) != 0 ||
	    (number % MANY_SYNC_EVERY == 0 && fsync(fd) != 0))
		return finish_full(fd, "writing", path) ? 1 : 2;
	if (close(fd) != 0)
		return errno == ENOSPC ? 2 : complain("close", path);
	return 0;
}

static int fill_many(const char *dir, size_t size, unsigned most)
{
	uint8_t *buf = malloc(size + 1);
	unsigned count = 0;
	int rc = 0;

	if (!buf || (mkdir(dir, 0755) != 0 && errno != EEXIST))
		return complain("mkdir", dir);
	while (rc == 0 && count < most) {
		rc = one_more(dir, count + 1, size, buf);
		count += rc == 0;
	}
	printf("%u\n", count);
	free(buf);
	return rc == 1;
}

/* The file starts anew now and then, which frees blocks. */
static int many_commits(const char *path, unsigned count)
{
	uint8_t record[96];
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);

	if (fd < 0)
		return complain("open", path);
	for (unsigned i = 0; i < count; i++) {
		fill(record, sizeof(record), i % 500 * sizeof(record), 0);
		if (i % 500 == 0 && ftruncate(fd, 0) != 0)
			return complain("truncate", path);
		if (write_all(fd, record, sizeof(record)) != 0 || fdatasync(fd) != 0)
			return complain("commit", path);
	}
	return close(fd) ? complain("close", path) : 0;
}

/* Each byte is the one written, or zero in a block that the volume had no space for. */
static int check_file(const char *path, uint64_t number)
{
	static uint8_t found[CHUNK], wanted[CHUNK];
	int fd = open(path, O_RDONLY);
	uint64_t at = 0;
	ssize_t n;

	if (fd < 0)
		return complain("open", path);
	while ((n = read(fd, found, CHUNK)) > 0) {
		fill(wanted, (size_t)n, at, number);
		for (ssize_t i = 0; i < n; i++) {
			if (found[i] && found[i] != wanted[i]) {
				fprintf(stderr, "%s: wrong at %llu\n", path,
					(unsigned long long)at + (unsigned long long)i);
				return 1;
			}
		}
		at += (uint64_t)n;
	}
	if (n < 0)
		return complain("read", path);
	return close(fd) ? complain("close", path) : 0;
}

static int check_dir(const char *dir)
{
	DIR *stream = opendir(dir);
	struct dirent *entry;
	int rc = 0;

	if (!stream)
		return complain("opendir", dir);
	while (rc == 0 && (entry = readdir(stream)) != NULL) {
		char path[4200];

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		rc = check_file(path, strtoull(entry->d_name, NULL, 10));
	}
	closedir(stream);
	return rc;
}

static int check_path(const char *path)
{
	struct stat st;

	if (stat(path, &st) != 0)
		return complain("stat", path);
	return S_ISDIR(st.st_mode) ? check_dir(path) : check_file(path, 0);
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "big") == 0)
		return fill_big(argv[2]);
	if (argc >= 4 && strcmp(argv[1], "many") == 0)
		return fill_many(argv[2], strtoull(argv[3], NULL, 10),
				 argc > 4 ? (unsigned)atoi(argv[4]) : UINT32_MAX);
	if (argc == 4 && strcmp(argv[1], "commits") == 0)
		return many_commits(argv[2], (unsigned)atoi(argv[3]));
	if (argc == 3 && strcmp(argv[1], "again") == 0)
		return fill_again(argv[2]);
	if (argc == 3 && strcmp(argv[1], "check") == 0)
		return check_path(argv[2]);
	fputs("usage: fill_tool big FILE | many DIR SIZE [N] | again FILE | commits FILE N | "
	      "check PATH\n", stderr);
	return 1;
}
