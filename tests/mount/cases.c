/*
 * Faults that users of comparable filesystems have met, tried on a mount.
 *
 *	cases DIR [NAME]
 *
 * One function per case; each works in a directory of its own below DIR.  What
 * needs privileges is left out without them.
 */
#include "engine/base/check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static noreturn void failed(const char *what, int line)
{
	fprintf(stderr, "cases.c:%d: %s (errno: %s)\n", line, what, strerror(errno));
	exit(1);
}
#define must(condition) ((condition) ? (void)0 : failed(#condition, __LINE__))
#define must_fail(call, error) (errno = 0, must((call) < 0 && errno == (error)))

/* --- helpers -------------------------------------------------------------- */

static int create(const char *name)
{
	int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0644);

	must(fd >= 0);
	return fd;
}

static void touch(const char *name)
{
	close(create(name));
}

static void put(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	must(fd >= 0);
	must(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	must(close(fd) == 0);
}

static bool holds(const char *name, const char *text)
{
	char buf[256] = "";
	int fd = open(name, O_RDONLY);
	ssize_t n;

	must(fd >= 0);
	n = read(fd, buf, sizeof(buf));
	close(fd);
	return n == (ssize_t)strlen(text) && memcmp(buf, text, (size_t)n) == 0;
}

static off_t size_of(const char *name)
{
	struct stat st;

	must(lstat(name, &st) == 0);
	return st.st_size;
}

static nlink_t links_of(const char *name)
{
	struct stat st;

	must(lstat(name, &st) == 0);
	return st.st_nlink;
}

/* --- names ---------------------------------------------------------------- */

static atomic_bool stop;

static void *rename_over(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < 2000; i++) {
		put("new", "text");
		must(rename("new", "f") == 0);
	}
	atomic_store(&stop, true);
	return NULL;
}

static void open_while_renamed_over(void)
{
	pthread_t thread;

	put("f", "text");
	atomic_store(&stop, false);
	must(pthread_create(&thread, NULL, rename_over, NULL) == 0);
	while (!atomic_load(&stop))
		must(holds("f", "text"));
	pthread_join(thread, NULL);
}

static void write_after_rename(void)
{
	int fd = create("1");

	must(rename("1", "2") == 0);
	must(write(fd, "data", 4) == 4);
	close(fd);
	must(holds("2", "data"));
}

static void rename_of_hard_links(void)
{
	put("a", "x");
	must(link("a", "b") == 0);
	must(rename("a", "b") == 0);
	must(links_of("a") == 2 && links_of("b") == 2);
}

static void rename_over_directory(void)
{
	must(mkdir("full", 0755) == 0 && mkdir("empty", 0755) == 0 && mkdir("src", 0755) == 0);
	put("full/file", "kept");
	must_fail(rename("src", "full"), ENOTEMPTY);
	must(holds("full/file", "kept"));
	must(rename("src", "empty") == 0);
	must_fail(rename("full", "full/sub"), EINVAL);
	put("plain", "x");
	must_fail(rename("plain", "empty"), EISDIR);
	must_fail(rename("empty", "plain"), ENOTDIR);
}

static void *move_into(void *arg)
{
	const char *const *names = arg;

	for (unsigned i = 0; i < 300; i++)
		if (rename(names[0], names[1]) == 0)
			must(rename(names[1], names[0]) == 0);
	return NULL;
}

/* mv a b/ against mv b a/: never a cycle. */
static void crossing_moves(void)
{
	static const char *a_to_b[] = {"a", "b/a"}, *b_to_a[] = {"b", "a/b"};
	pthread_t one, two;

	must(mkdir("a", 0755) == 0 && mkdir("b", 0755) == 0);
	must(pthread_create(&one, NULL, move_into, a_to_b) == 0);
	must(pthread_create(&two, NULL, move_into, b_to_a) == 0);
	pthread_join(one, NULL);
	pthread_join(two, NULL);
	must(rmdir("a") == 0 && rmdir("b") == 0);
}

static void rename_flags(void)
{
	put("a", "a");
	put("b", "b");
	must_fail(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_NOREPLACE), EEXIST);
	must(renameat2(AT_FDCWD, "a", AT_FDCWD, "c", RENAME_NOREPLACE) == 0);
	must_fail(renameat2(AT_FDCWD, "b", AT_FDCWD, "c", 1u << 20), EINVAL);
	must(holds("b", "b") && holds("c", "a"));
}

static void unlinked_file_lives(void)
{
	struct stat st;
	char buf[8];
	int fd = create("f");

	must(unlink("f") == 0);
	must(fchmod(fd, 0600) == 0 && fstat(fd, &st) == 0);
	must(st.st_nlink == 0 && (st.st_mode & 07777) == 0600);
	must(pwrite(fd, "hidden", 6, 0) == 6 && pread(fd, buf, sizeof(buf), 0) == 6);
	must(ftruncate(fd, 3) == 0 && fsync(fd) == 0);
	must_fail(linkat(AT_FDCWD, "f", AT_FDCWD, "g", 0), ENOENT);
	close(fd);
	must(rmdir(".") != 0);
}

#define MANY 256

static void listing_while_unlinking(void)
{
	bool seen[MANY] = {false};
	struct dirent *entry;
	DIR *dir;

	must(mkdir("d", 0755) == 0);
	for (int i = 0; i < MANY; i++) {
		char name[32];

		snprintf(name, sizeof(name), "d/%d", i);
		touch(name);
	}
	dir = opendir("d");
	must(dir != NULL);
	while ((entry = readdir(dir)) != NULL) {
		int i = atoi(entry->d_name);

		if (entry->d_name[0] == '.')
			continue;
		must(!seen[i]);
		seen[i] = true;
		must(unlinkat(dirfd(dir), entry->d_name, 0) == 0);
	}
	closedir(dir);
	for (int i = 0; i < MANY; i++)
		must(seen[i]);
	must(rmdir("d") == 0);
}

static void telldir_and_back(void)
{
	struct dirent *entry;
	char name[256];
	long place;
	DIR *dir;

	for (int i = 0; i < 2000; i++) {
		snprintf(name, sizeof(name), "%d", i);
		touch(name);
	}
	dir = opendir(".");
	for (int i = 0; i < 1000; i++)
		must(readdir(dir) != NULL);
	place = telldir(dir);
	entry = readdir(dir);
	must(entry != NULL);
	strcpy(name, entry->d_name);
	while (readdir(dir))
		;
	seekdir(dir, place);
	entry = readdir(dir);
	must(entry != NULL && strcmp(entry->d_name, name) == 0);
	rewinddir(dir);
	must(readdir(dir) != NULL);
	closedir(dir);
}

static void odd_names(void)
{
	char name[300];

	memset(name, 'x', sizeof(name));
	name[255] = '\0';
	touch(name);
	for (int i = 0; i < 86; i++)
		memcpy(name + 3 * i, "\xe2\x82\xac", 3);
	name[258] = '\0';
	must_fail(open(name, O_CREAT | O_RDWR, 0644), ENAMETOOLONG);
	touch("\xff\xfe\x01");
	must(unlink("\xff\xfe\x01") == 0);
}

/* --- contents ------------------------------------------------------------- */

#define RECORD 96
#define RECORDS 500

static void *append_records(void *arg)
{
	char record[RECORD];
	int fd = open("log", O_WRONLY | O_APPEND);

	must(fd >= 0);
	memset(record, *(const char *)arg, sizeof(record));
	for (int i = 0; i < RECORDS; i++)
		must(write(fd, record, sizeof(record)) == RECORD);
	must(close(fd) == 0);
	return NULL;
}

static void appending_threads(void)
{
	char record[RECORD];
	pthread_t one, two;
	int fd = create("log");

	must(pthread_create(&one, NULL, append_records, "a") == 0);
	must(pthread_create(&two, NULL, append_records, "b") == 0);
	pthread_join(one, NULL);
	pthread_join(two, NULL);
	must(size_of("log") == 2 * RECORDS * RECORD);
	while (read(fd, record, sizeof(record)) == RECORD)
		for (int i = 1; i < RECORD; i++)
			must(record[i] == record[0] && (record[0] == 'a' || record[0] == 'b'));
	close(fd);
}

static void shared_mapping(void)
{
	const size_t len = 1 << 20;
	int fd = create("map");
	char *map, byte;

	must(ftruncate(fd, (off_t)len) == 0);
	map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(map != MAP_FAILED);
	for (size_t i = 0; i < len; i += 4096)
		map[i] = (char)(i / 4096);
	must(msync(map, len, MS_SYNC) == 0);
	for (size_t i = 0; i < len; i += 4096)
		must(pread(fd, &byte, 1, (off_t)i) == 1 && byte == (char)(i / 4096));
	must(pwrite(fd, "!", 1, 5000) == 1 && map[5000] == '!');
	must(munmap(map, len) == 0);
	close(fd);
}

static void direct_io(void)
{
	char *buf;
	int fd = open("direct", O_RDWR | O_CREAT | O_DIRECT, 0644);

	must(fd >= 0);
	must(posix_memalign((void **)&buf, 4096, 1 << 20) == 0);
	memset(buf, 'd', 1 << 20);
	must(pwrite(fd, buf, 1 << 20, 4096) == 1 << 20);
	memset(buf, 0, 1 << 20);
	must(pread(fd, buf, 1 << 20, 0) == 1 << 20);
	must(buf[0] == 0 && buf[4095] == 0 && buf[4096] == 'd');
	must(size_of("direct") == (1 << 20) + 4096);
	free(buf);
	close(fd);
}

static bool all_zero(int fd, off_t from, off_t end)
{
	char buf[4096];

	for (off_t at = from; at < end; at += (off_t)sizeof(buf)) {
		size_t want = end - at < (off_t)sizeof(buf) ? (size_t)(end - at) : sizeof(buf);

		must(pread(fd, buf, want, at) == (ssize_t)want);
		for (size_t i = 0; i < want; i++)
			if (buf[i])
				return false;
	}
	return true;
}

/* Old bytes never return. */
static void gap_after_truncate(void)
{
	static const off_t cuts[] = {0, 4, 4096, 5000};
	char buf[8192];

	memset(buf, 'o', sizeof(buf));
	for (unsigned i = 0; i < 4; i++) {
		int fd = open("gap", O_RDWR | O_CREAT | O_TRUNC, 0644);

		must(fd >= 0);
		must(write(fd, buf, sizeof(buf)) == (ssize_t)sizeof(buf));
		must(i % 2 == 0 || fsync(fd) == 0);
		must(ftruncate(fd, cuts[i]) == 0);
		must(pwrite(fd, "x", 1, 65536) == 1);
		must(all_zero(fd, cuts[i], 65536));
		close(fd);
	}
}

static void seek_data_and_hole(void)
{
	char block[4096];
	int fd = create("sparse");

	memset(block, 1, sizeof(block));
	must(write(fd, block, sizeof(block)) == (ssize_t)sizeof(block) && fsync(fd) == 0);
	must(lseek(fd, 0, SEEK_HOLE) == 4096);
	must_fail(lseek(fd, 4096, SEEK_DATA), ENXIO);
	must(pwrite(fd, block, sizeof(block), 1 << 20) == (ssize_t)sizeof(block));
	must(fsync(fd) == 0);
	must(lseek(fd, 4096, SEEK_DATA) == 1 << 20);
	must(lseek(fd, 0, SEEK_HOLE) == 4096);
	must_fail(lseek(fd, 1 << 30, SEEK_HOLE), ENXIO);
	close(fd);
}

static void large_offsets(void)
{
	int fd = create("large");

	must(pwrite(fd, "x", 1, (2ll << 30) + 1) == 1);
	must(size_of("large") == (2ll << 30) + 2);
	must(ftruncate(fd, INT64_MAX) == 0);
	must(size_of("large") == INT64_MAX);
	must(pwrite(fd, "x", 1, INT64_MAX - 1) == 1 && fsync(fd) == 0);
	must_fail(pwrite(fd, "x", 1, INT64_MAX), EINVAL); /* says the kernel */
	must(ftruncate(fd, 0) == 0);
	close(fd);
}

static void truncate_on_open(void)
{
	put("t", "something long");
	put("t", "short");
	must(holds("t", "short"));
	must(close(open("t", O_WRONLY | O_TRUNC)) == 0);
	must(size_of("t") == 0);
	must(close(open("t", O_WRONLY | O_CREAT | O_TRUNC, 0644)) == 0);
}

/* --- attributes ------------------------------------------------------------ */

static void extreme_times(void)
{
	static const struct timespec times[] = {
		{-14245441, 750000000}, {2177452800, 1}, {16725225600, 999999999}, {0, 0},
	};
	struct stat st;

	touch("time");
	for (unsigned i = 0; i < 4; i++) {
		struct timespec pair[2] = {times[i], times[(i + 1) % 4]};

		must(utimensat(AT_FDCWD, "time", pair, 0) == 0 && stat("time", &st) == 0);
		must(memcmp(&st.st_atim, &pair[0], sizeof(pair[0])) == 0);
		must(memcmp(&st.st_mtim, &pair[1], sizeof(pair[1])) == 0);
	}
}

static void xattr_limits(void)
{
	static char value[65536], list[70000];
	char buf[8];

	touch("x");
	memset(value, 'v', sizeof(value));
	must(setxattr("x", "user.a", "12345", 5, 0) == 0);
	must(getxattr("x", "user.a", NULL, 0) == 5);
	must_fail(getxattr("x", "user.a", buf, 3), ERANGE);
	must(listxattr("x", NULL, 0) == 7);
	must_fail(listxattr("x", buf, 3), ERANGE);
	must_fail(setxattr("x", "user.a", "y", 1, XATTR_CREATE), EEXIST);
	must_fail(setxattr("x", "user.b", "y", 1, XATTR_REPLACE), ENODATA);
	must(setxattr("x", "user.big", value, sizeof(value), 0) == 0);
	must(getxattr("x", "user.big", list, sizeof(list)) == (ssize_t)sizeof(value));
	must_fail(setxattr("x", "user.more", list, sizeof(value) + 1, 0), E2BIG);
	for (int i = 0; i < 1000; i++) {
		snprintf(list, sizeof(list), "user.%d", i);
		must(setxattr("x", list, "v", 1, 0) == 0);
	}
	must(listxattr("x", list, sizeof(list)) > 7000);
	must(unlink("x") == 0);
}

/* A handle of a file survives the kernel's forgetting it. */
static void file_handles(void)
{
	struct {
		struct file_handle head;
		unsigned char bytes[MAX_HANDLE_SZ];
	} handle = {.head.handle_bytes = MAX_HANDLE_SZ};
	int mount_id, dir = open(".", O_RDONLY), caches, fd;

	must(mkdir("sub", 0755) == 0);
	put("sub/file", "by handle");
	must(name_to_handle_at(AT_FDCWD, "sub/file", &handle.head, &mount_id, 0) == 0);
	caches = open("/proc/sys/vm/drop_caches", O_WRONLY);
	if (caches >= 0) {
		sync();
		must(write(caches, "2", 1) == 1);
		close(caches);
	}
	fd = open_by_handle_at(dir, &handle.head, O_RDONLY);
	if (fd < 0 && errno == EPERM)
		return;
	must(fd >= 0);
	close(fd);
	must(unlink("sub/file") == 0);
	must_fail(open_by_handle_at(dir, &handle.head, O_RDONLY), ESTALE);
	close(dir);
}

static void locks_are_the_kernels(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = create("lock");
	pid_t child;
	int status;

	must(fcntl(fd, F_SETLK, &lock) == 0);
	child = fork();
	if (child == 0) {
		int other = open("lock", O_RDWR);

		_exit(fcntl(other, F_SETLK, &lock) == -1 && errno == EAGAIN ? 0 : 1);
	}
	must(waitpid(child, &status, 0) == child && status == 0);
	close(fd);
}

/* Not there yet, and saying so. */
static void refusals(void)
{
	int fd = create("f");

	must_fail(fallocate(fd, 0, 0, 4096), EOPNOTSUPP);
	touch("g");
	must_fail(renameat2(AT_FDCWD, "f", AT_FDCWD, "g", RENAME_EXCHANGE), EINVAL);
	must(mkdir("no", 0755) == 0);
	must_fail(unlink("no"), EISDIR);
	must_fail(rmdir("f"), ENOTDIR);
	must_fail(link("no", "hard"), EPERM);
	close(fd);
}

/* --------------------------------------------------------------------------- */

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"open_while_renamed_over", open_while_renamed_over},
	{"write_after_rename", write_after_rename},
	{"rename_of_hard_links", rename_of_hard_links},
	{"rename_over_directory", rename_over_directory},
	{"crossing_moves", crossing_moves},
	{"rename_flags", rename_flags},
	{"unlinked_file_lives", unlinked_file_lives},
	{"listing_while_unlinking", listing_while_unlinking},
	{"telldir_and_back", telldir_and_back},
	{"odd_names", odd_names},
	{"appending_threads", appending_threads},
	{"shared_mapping", shared_mapping},
	{"direct_io", direct_io},
	{"gap_after_truncate", gap_after_truncate},
	{"seek_data_and_hole", seek_data_and_hole},
	{"large_offsets", large_offsets},
	{"truncate_on_open", truncate_on_open},
	{"extreme_times", extreme_times},
	{"xattr_limits", xattr_limits},
	{"file_handles", file_handles},
	{"locks_are_the_kernels", locks_are_the_kernels},
	{"refusals", refusals},
};

int main(int argc, char **argv)
{
	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: cases DIR [NAME]\n");
		return 2;
	}
	for (unsigned i = 0; i < array_count(cases); i++) {
		if (argc == 3 && strcmp(argv[2], cases[i].name) != 0)
			continue;
		printf("%s\n", cases[i].name);
		fflush(stdout);
		must(chdir(argv[1]) == 0);
		must(mkdir(cases[i].name, 0755) == 0 && chdir(cases[i].name) == 0);
		cases[i].run();
	}
	return 0;
}
