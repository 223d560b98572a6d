/*
 * Cases that users of other filesystems met (the numbers are those of the list
 * that tests/mount/test_cases.sh names), each in a directory of its own:
 *
 *	cases_tool              the names of all cases
 *	cases_tool CASE DIR     runs one; DIR is empty
 *
 * Exit code 0: as POSIX and Linux have it; 1: not, with the line that found it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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

#define GIB (1ll << 30)

#define expect(condition) \
	do { \
		if (!(condition)) \
			unexpected(__LINE__, #condition); \
	} while (0)
#define expect_errno(call, error) \
	do { \
		errno = 0; \
		if ((call) != -1 || errno != (error)) \
			unexpected(__LINE__, #call " fails with " #error); \
	} while (0)

static void unexpected(int line, const char *what)
{
	fprintf(stderr, "cases_tool.c:%d: not so: %s (errno: %s)\n", line, what, strerror(errno));
	_exit(1);
}

/* --- helpers ---------------------------------------------------------------- */

static int make(const char *name, const char *contents)
{
	int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0644);

	expect(fd >= 0);
	expect(write(fd, contents, strlen(contents)) == (ssize_t)strlen(contents));
	return fd;
}

static void make_closed(const char *name, const char *contents)
{
	expect(close(make(name, contents)) == 0);
}

static void expect_contents(const char *name, const char *contents)
{
	char found[256];
	int fd = open(name, O_RDONLY);
	ssize_t n;

	expect(fd >= 0);
	n = read(fd, found, sizeof(found));
	expect(n == (ssize_t)strlen(contents) && memcmp(found, contents, (size_t)n) == 0);
	close(fd);
}

static void expect_zeros(int fd, off_t from, off_t to)
{
	static char buf[65536];

	while (from < to) {
		size_t want = to - from < (off_t)sizeof(buf) ? (size_t)(to - from) : sizeof(buf);
		ssize_t n = pread(fd, buf, want, from);

		expect(n > 0);
		for (ssize_t i = 0; i < n; i++)
			expect(buf[i] == 0);
		from += n;
	}
}

static unsigned count_names(const char *dir)
{
	DIR *stream = opendir(dir);
	unsigned count = 0;

	expect(stream);
	while (readdir(stream))
		count++;
	closedir(stream);
	return count - 2; /* . and .. */
}

static nlink_t links_of(const char *name)
{
	struct stat st;

	expect(stat(name, &st) == 0);
	return st.st_nlink;
}

/* Runs `body` in another process until the parent has done its part. */
static pid_t start(void (*body)(void))
{
	pid_t child = fork();

	expect(child >= 0);
	if (child == 0) {
		body();
		_exit(0);
	}
	return child;
}

static void expect_success(pid_t child)
{
	int status;

	expect(waitpid(child, &status, 0) == child);
	expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* --- names ------------------------------------------------------------------ */

static void keep_opening(void)
{
	for (int i = 0; i < 1500; i++) {
		int fd = open("f", O_RDONLY);

		expect(fd >= 0);
		close(fd);
	}
}

/* 1 */
static void rename_while_opened(void)
{
	pid_t reader;

	make_closed("f", "first");
	reader = start(keep_opening);
	for (int i = 0; i < 700; i++) {
		make_closed("new", "next");
		expect(rename("new", "f") == 0);
	}
	expect_success(reader);
}

/* 2 */
static void write_after_rename_over(void)
{
	int fd = make("1", "one");

	make_closed("2", "two");
	expect(rename("1", "2") == 0);
	expect(pwrite(fd, "ONE and more", 12, 0) == 12);
	expect_contents("2", "ONE and more");
	close(fd);
	expect_contents("2", "ONE and more");
	expect(count_names(".") == 1);
}

/* 3 */
static void rename_to_own_link(void)
{
	make_closed("a", "text");
	expect(link("a", "b") == 0);
	expect(rename("a", "b") == 0);
	expect(links_of("a") == 2 && links_of("b") == 2);
	expect(count_names(".") == 2);
}

static void move_b_into_a(void)
{
	for (int i = 0; i < 300; i++)
		if (rename("b", "a/b") == 0)
			expect(rename("a/b", "b") == 0);
}

/* 5 */
static void directories_into_each_other(void)
{
	pid_t other;

	expect(mkdir("a", 0755) == 0 && mkdir("b", 0755) == 0);
	make_closed("a/in-a", "");
	make_closed("b/in-b", "");
	other = start(move_b_into_a);
	for (int i = 0; i < 300; i++)
		if (rename("a", "b/a") == 0)
			expect(rename("b/a", "a") == 0);
	expect_success(other);
	expect(access("a/in-a", F_OK) == 0 && access("b/in-b", F_OK) == 0);
	expect(count_names(".") == 2 && links_of(".") == 4);
	expect_errno(rename("a", "a/below"), EINVAL);
	expect(mkdir("a/c", 0755) == 0);
	expect_errno(rename("a", "a/c/a"), EINVAL);
}

/* 6: exchange is not built: it says so and changes nothing */
static void rename_flags(void)
{
	make_closed("a", "aa");
	make_closed("b", "bb");
	if (renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE) == 0) {
		expect_contents("a", "bb");
		expect_contents("b", "aa");
	} else {
		expect(errno == EINVAL);
		expect_contents("a", "aa");
		expect_contents("b", "bb");
	}
	expect_errno(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", 1 << 20), EINVAL);
	expect(count_names(".") == 2);
}

/* 7 */
static void rename_noreplace(void)
{
	make_closed("a", "aa");
	make_closed("b", "bb");
	expect_errno(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_NOREPLACE), EEXIST);
	expect_contents("a", "aa");
	expect_contents("b", "bb");
	expect(renameat2(AT_FDCWD, "a", AT_FDCWD, "c", RENAME_NOREPLACE) == 0);
	expect_contents("c", "aa");
	expect_errno(renameat2(AT_FDCWD, "a", AT_FDCWD, "d", RENAME_NOREPLACE), ENOENT);
}

/* 8 */
static void use_of_an_unlinked_file(void)
{
	struct stat st;
	char found[8] = "";
	int fd = make("f", "text");

	expect(unlink("f") == 0);
	expect(count_names(".") == 0);
	expect(fchmod(fd, 0600) == 0 && fchown(fd, getuid(), getgid()) == 0);
	expect(fstat(fd, &st) == 0 && st.st_nlink == 0 && (st.st_mode & 0777) == 0600);
	expect(pwrite(fd, "TEXT", 4, 100000) == 4);
	expect(fsync(fd) == 0);
	expect(pread(fd, found, 4, 0) == 4 && strcmp(found, "text") == 0);
	expect(pread(fd, found, 4, 100000) == 4 && strcmp(found, "TEXT") == 0);
	expect(fsetxattr(fd, "user.a", "b", 1, 0) == 0);
	expect(fgetxattr(fd, "user.a", found, 8) == 1);
	expect(ftruncate(fd, 2) == 0 && fstat(fd, &st) == 0 && st.st_size == 2);
	expect(count_names(".") == 0);
	make_closed("f", "another");
	expect(fstat(fd, &st) == 0 && st.st_size == 2);
	close(fd);
}

/* 10 */
static void unlink_while_reading(void)
{
	enum { FILES = 256 };
	bool seen[FILES] = {false};
	struct dirent *entry;
	unsigned count = 0;
	DIR *stream;
	char name[32];

	expect(mkdir("d", 0755) == 0);
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "d/%d-with-a-longer-name", i);
		make_closed(name, "");
	}
	stream = opendir("d");
	while ((entry = readdir(stream)) != NULL) {
		int i = atoi(entry->d_name);

		if (entry->d_name[0] == '.')
			continue;
		expect(!seen[i]);
		seen[i] = true;
		count++;
		expect(unlinkat(dirfd(stream), entry->d_name, 0) == 0);
	}
	closedir(stream);
	expect(count == FILES);
	expect(rmdir("d") == 0);
}

/* 11, and that names which come and go do not disturb those that stay */
static void telldir_and_seekdir(void)
{
	enum { FILES = 2000 };
	static long place[FILES + 2];
	static char names[FILES + 2][32];
	unsigned count = 0;
	struct dirent *entry;
	DIR *stream;
	char name[32];

	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "name-%d", i);
		make_closed(name, "");
	}
	stream = opendir(".");
	for (;;) {
		long here = telldir(stream);

		entry = readdir(stream);
		if (!entry)
			break;
		expect(count < FILES + 2);
		place[count] = here;
		snprintf(names[count++], sizeof(names[0]), "%.31s", entry->d_name);
	}
	expect(count == FILES + 2);
	for (unsigned i = 0; i < count; i += 7) {
		unsigned k = i * 611 % count;

		seekdir(stream, place[k]);
		entry = readdir(stream);
		expect(entry && strcmp(entry->d_name, names[k]) == 0);
	}
	for (unsigned i = 0; i < count; i += 2)
		if (strncmp(names[i], "name-", 5) == 0)
			expect(unlink(names[i]) == 0);
	for (unsigned i = 1; i + 2 < count; i += 50) {
		seekdir(stream, place[i]);
		entry = readdir(stream);
		expect(entry && strcmp(entry->d_name, names[i]) == 0);
	}
	rewinddir(stream);
	for (count = 0; readdir(stream); count++)
		;
	expect(count >= FILES / 2 && count <= FILES / 2 + 3);
	closedir(stream);
}

/* 12 */
static void odd_names(void)
{
	char name[300];

	memset(name, 'x', 255);
	name[255] = 0;
	make_closed(name, "long");
	expect_contents(name, "long");
	for (int i = 0; i < 86; i++)
		memcpy(name + 3 * i, "\xe2\x82\xac", 3);
	name[258] = 0;
	expect_errno(open(name, O_RDWR | O_CREAT, 0644), ENAMETOOLONG);
	expect_errno(mkdir(name, 0755), ENAMETOOLONG);
	name[255] = 0;
	make_closed(name, "euros");
	make_closed("\xff\xfe no utf-8 \x80\n\t", "odd");
	expect_contents("\xff\xfe no utf-8 \x80\n\t", "odd");
	make_closed("A", "upper");
	make_closed("a", "lower");
	expect_contents("A", "upper");
	expect(count_names(".") == 5);
}

/* --- data -------------------------------------------------------------------- */

enum { RECORDS = 3000, RECORD = 96 };

static void append_records(char letter)
{
	char record[RECORD];
	int fd = open("log", O_WRONLY | O_APPEND | O_CREAT, 0644);

	expect(fd >= 0);
	memset(record, letter, RECORD - 1);
	record[RECORD - 1] = '\n';
	for (int i = 0; i < RECORDS; i++)
		expect(write(fd, record, RECORD) == RECORD);
	expect(close(fd) == 0);
}

static void append_a(void)
{
	append_records('a');
}

static void *append_b(void *arg)
{
	append_records('b');
	return arg;
}

/* 17: by another process and by two threads of this one */
static void appends_by_several(void)
{
	static char found[3 * RECORDS * RECORD + 1];
	pthread_t threads[2];
	pid_t other;
	int fd, a = 0;

	make_closed("log", "");
	other = start(append_a);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, append_b, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	expect_success(other);
	fd = open("log", O_RDONLY);
	expect(read(fd, found, sizeof(found)) == 3 * RECORDS * RECORD);
	for (char *record = found; record < found + 3 * RECORDS * RECORD; record += RECORD) {
		for (int i = 1; i < RECORD - 1; i++)
			expect(record[i] == record[0]);
		expect(record[RECORD - 1] == '\n');
		a += record[0] == 'a';
	}
	expect(a == RECORDS);
	close(fd);
}

/* 19 */
static void mapped_writes(int flags)
{
	enum { LEN = 1 << 20 };
	char found[3];
	uint8_t *map;
	int fd = open("mapped", O_RDWR | O_CREAT | O_TRUNC | flags, 0644);

	expect(fd >= 0 && ftruncate(fd, LEN) == 0);
	map = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	expect(map != MAP_FAILED);
	for (int i = 0; i < LEN; i += 1000)
		map[i] = (uint8_t)(i / 1000);
	expect(msync(map, LEN, MS_SYNC) == 0);
	memcpy(map + 5000, "abc", 3);
	expect(munmap(map, LEN) == 0 && close(fd) == 0);
	fd = open("mapped", O_RDONLY);
	expect(pread(fd, found, 3, 5000) == 3 && memcmp(found, "abc", 3) == 0);
	map = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
	for (int i = 6000; i < LEN; i += 1000)
		expect(map[i] == (uint8_t)(i / 1000) && map[i + 1] == 0);
	munmap(map, LEN);
	close(fd);
}

static void shared_mappings(void)
{
	mapped_writes(0);
	mapped_writes(O_DIRECT);
}

/* 19: the same file written directly and through the page cache */
static void direct_beside_buffered(void)
{
	enum { LEN = 65536 };
	uint8_t *aligned = aligned_alloc(4096, LEN);
	uint8_t found[LEN];
	int direct, fd = make("f", "start");

	direct = open("f", O_RDWR | O_DIRECT);
	expect(aligned && direct >= 0);
	for (int round = 0; round < 20; round++) {
		memset(aligned, round + 1, LEN);
		expect(pwrite(direct, aligned, LEN, 0) == LEN);
		expect(pread(fd, found, LEN, 0) == LEN && memcmp(found, aligned, LEN) == 0);
		memset(found, round + 100, 5000);
		expect(pwrite(fd, found, 5000, 3000) == 5000);
		expect(pread(direct, aligned, LEN, 0) == LEN && memcmp(found, aligned + 3000, 5000) == 0);
		expect(aligned[2999] == round + 1 && aligned[8000] == round + 1);
	}
	free(aligned);
	close(direct);
	close(fd);
}

/* 20 */
static void gap_after_truncate(void)
{
	static const off_t sizes[] = {0, 4, 4096, 5000};
	static char full[8192];

	memset(full, 'x', sizeof(full));
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);

		expect(pwrite(fd, full, sizeof(full), 0) == (ssize_t)sizeof(full));
		if (i % 2)
			expect(fsync(fd) == 0);
		expect(ftruncate(fd, sizes[i]) == 0);
		expect(pwrite(fd, "end", 3, 65536) == 3);
		expect_zeros(fd, sizes[i], 65536);
		expect(close(fd) == 0);
		fd = open("f", O_RDONLY | O_DIRECT);
		expect(fd >= 0);
		close(fd);
	}
}

/*
 * 21.  Linux asks a FUSE server about holes without handing over dirty pages
 * first; fsync does, and so does the fstat that programs begin with.
 */
static void holes(void)
{
	static char block[8192];
	int fd = open("f", O_RDWR | O_CREAT, 0644);

	memset(block, 'x', sizeof(block));
	expect(lseek(fd, 0, SEEK_HOLE) == -1 && errno == ENXIO);
	expect(write(fd, block, sizeof(block)) == (ssize_t)sizeof(block) && fsync(fd) == 0);
	expect(lseek(fd, 0, SEEK_HOLE) == 8192);
	expect(lseek(fd, 8191, SEEK_HOLE) == 8192);
	expect(lseek(fd, 0, SEEK_DATA) == 0 && lseek(fd, 8191, SEEK_DATA) == 8191);
	expect_errno(lseek(fd, 8192, SEEK_DATA), ENXIO);
	expect_errno(lseek(fd, 8192, SEEK_HOLE), ENXIO);
	expect(pwrite(fd, "x", 1, 1 << 20) == 1 && fsync(fd) == 0);
	expect(lseek(fd, 0, SEEK_HOLE) == 8192);
	expect(lseek(fd, 10000, SEEK_DATA) == 1 << 20);
	expect(lseek(fd, 1 << 20, SEEK_HOLE) == (1 << 20) + 1);
	expect(ftruncate(fd, 2 << 20) == 0);
	expect(lseek(fd, (1 << 20) + 4096, SEEK_HOLE) == (1 << 20) + 4096);
	expect_errno(lseek(fd, (1 << 20) + 4096, SEEK_DATA), ENXIO);
	close(fd);
	fd = open("inline", O_RDWR | O_CREAT, 0644);
	expect(write(fd, "tiny", 4) == 4 && fsync(fd) == 0);
	expect(lseek(fd, 0, SEEK_HOLE) == 4 && lseek(fd, 1, SEEK_DATA) == 1);
	close(fd);
}

/* 22: what is not built says so and changes nothing */
static void unsupported_modes(void)
{
	static const int modes[] = {
		0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		FALLOC_FL_ZERO_RANGE,
	};
	static char block[8192];
	struct stat st;
	int fd = make("f", "");

	memset(block, 'x', sizeof(block));
	expect(write(fd, block, sizeof(block)) == (ssize_t)sizeof(block) && fsync(fd) == 0);
	for (unsigned i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		if (fallocate(fd, modes[i], 0, 4096) != 0)
			expect(errno == EOPNOTSUPP);
		else if (modes[i] & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
			expect_zeros(fd, 0, 4096);
		expect(fstat(fd, &st) == 0 && st.st_size == 8192);
	}
	expect(posix_fallocate(fd, 0, 100000) == 0); /* libc writes instead */
	expect(fstat(fd, &st) == 0 && st.st_size == 100000);
	close(fd);
}

/* 23 */
static void sparse_files(void)
{
	static const off_t places[] = {2 * GIB + 1, 4 * GIB - 1, 4 * GIB + 4095, 5000 * GIB};
	struct stat st;
	char found = 0;
	int at_end, fd = make("f", "");

	for (unsigned i = 0; i < sizeof(places) / sizeof(*places); i++) {
		expect(pwrite(fd, "x", 1, places[i]) == 1);
		expect(fsync(fd) == 0 && fstat(fd, &st) == 0);
		expect(st.st_size == places[i] + 1 && st.st_blocks <= 64);
		expect(pread(fd, &found, 1, places[i]) == 1 && found == 'x');
		expect_zeros(fd, places[i] - 2000, places[i]);
	}
	expect(lseek(fd, 0, SEEK_DATA) == (2 * GIB + 1) / 4096 * 4096);
	expect(ftruncate(fd, INT64_MAX) == 0);
	expect(fstat(fd, &st) == 0 && st.st_size == INT64_MAX);
	expect_errno(pwrite(fd, "xy", 2, INT64_MAX - 1), EINVAL);
	at_end = open("f", O_WRONLY | O_APPEND);
	expect_errno(write(at_end, "x", 1), EFBIG);
	close(at_end);
	expect(ftruncate(fd, 3 * GIB) == 0);
	expect(pread(fd, &found, 1, 2 * GIB + 1) == 1 && found == 'x');
	expect(ftruncate(fd, 0) == 0 && fstat(fd, &st) == 0 && st.st_blocks == 0);
	close(fd);
}

/* --- attributes -------------------------------------------------------------- */

static const struct timespec times[][2] = {
	{{-14245441, 750000000}, {-14245441, 750000000}},
	{{2177452800, 1}, {2177452800, 999999999}},     /* 2039 */
	{{16725225600, 0}, {16725225600, 123456789}},   /* 2500 */
	{{0, 0}, {0, 1}},
	{{-62135596800, 5}, {253402300799, 999999999}}, /* the years 1 and 9999 */
};

static void check_times(void)
{
	for (unsigned i = 0; i < sizeof(times) / sizeof(*times); i++) {
		struct stat st;
		char name[8];

		snprintf(name, sizeof(name), "%u", i);
		expect(stat(name, &st) == 0);
		expect(st.st_atim.tv_sec == times[i][0].tv_sec);
		expect(st.st_atim.tv_nsec == times[i][0].tv_nsec);
		expect(st.st_mtim.tv_sec == times[i][1].tv_sec);
		expect(st.st_mtim.tv_nsec == times[i][1].tv_nsec);
	}
}

/* 25; a second run in the same directory, after a mount, only looks */
static void time_stamps(void)
{
	for (unsigned i = 0; i < sizeof(times) / sizeof(*times); i++) {
		char name[8];

		snprintf(name, sizeof(name), "%u", i);
		if (access(name, F_OK) == 0)
			continue;
		make_closed(name, "x");
		expect(utimensat(AT_FDCWD, name, times[i], 0) == 0);
	}
	check_times();
}

/* 29 */
static void xattr_limits(void)
{
	static char value[65536 + 1], found[65536 + 1];
	char list[64];

	make_closed("f", "");
	expect(listxattr("f", NULL, 0) == 0);
	expect(setxattr("f", "user.one", "1", 1, 0) == 0);
	expect(setxattr("f", "user.two", "22", 2, 0) == 0);
	expect(listxattr("f", NULL, 0) == 18);
	expect_errno(listxattr("f", list, 17), ERANGE);
	expect(listxattr("f", list, 18) == 18);
	expect(getxattr("f", "user.two", NULL, 0) == 2);
	expect_errno(getxattr("f", "user.two", found, 1), ERANGE);
	expect_errno(getxattr("f", "user.three", found, 1), ENODATA);
	expect_errno(setxattr("f", "user.one", "1", 1, XATTR_CREATE), EEXIST);
	expect_errno(setxattr("f", "user.three", "1", 1, XATTR_REPLACE), ENODATA);
	for (size_t i = 0; i < sizeof(value); i++)
		value[i] = (char)(i * 7 + i / 256);
	expect(setxattr("f", "user.large", value, 65536, 0) == 0);
	expect(getxattr("f", "user.large", found, 65536) == 65536);
	expect(memcmp(found, value, 65536) == 0);
	expect_errno(setxattr("f", "user.larger", value, 65537, 0), E2BIG);
	expect(setxattr("f", "user.empty", "", 0, 0) == 0);
	expect(getxattr("f", "user.empty", found, 10) == 0);
	expect(removexattr("f", "user.large") == 0);
	expect_errno(removexattr("f", "user.large"), ENODATA);
	expect(listxattr("f", NULL, 0) == 29);
}

/* About a thousand per file must fit. */
static void many_xattrs(void)
{
	static char list[65536];
	char name[32], value[64];
	ssize_t len = 0;

	make_closed("f", "");
	for (int i = 0; i < 1000; i++) {
		int name_len = snprintf(name, sizeof(name), "user.number-%d", i);

		snprintf(value, sizeof(value), "the value of %d", i);
		expect(setxattr("f", name, value, strlen(value), XATTR_CREATE) == 0);
		len += name_len + 1;
	}
	expect(listxattr("f", list, sizeof(list)) == len);
	for (int i = 0; i < 1000; i++) {
		char found[64] = "";

		snprintf(name, sizeof(name), "user.number-%d", i);
		snprintf(value, sizeof(value), "the value of %d", i);
		expect(getxattr("f", name, found, sizeof(found)) == (ssize_t)strlen(value));
		expect(strcmp(found, value) == 0);
	}
	expect(unlink("f") == 0);
}

/* --- all ------------------------------------------------------------------------ */

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"rename_while_opened", rename_while_opened},
	{"write_after_rename_over", write_after_rename_over},
	{"rename_to_own_link", rename_to_own_link},
	{"directories_into_each_other", directories_into_each_other},
	{"rename_flags", rename_flags},
	{"rename_noreplace", rename_noreplace},
	{"use_of_an_unlinked_file", use_of_an_unlinked_file},
	{"unlink_while_reading", unlink_while_reading},
	{"telldir_and_seekdir", telldir_and_seekdir},
	{"odd_names", odd_names},
	{"appends_by_several", appends_by_several},
	{"shared_mappings", shared_mappings},
	{"direct_beside_buffered", direct_beside_buffered},
	{"gap_after_truncate", gap_after_truncate},
	{"holes", holes},
	{"unsupported_modes", unsupported_modes},
	{"sparse_files", sparse_files},
	{"time_stamps", time_stamps},
	{"xattr_limits", xattr_limits},
	{"many_xattrs", many_xattrs},
};

int main(int argc, char **argv)
{
	const unsigned count = sizeof(cases) / sizeof(*cases);

	if (argc == 1)
		for (unsigned i = 0; i < count; i++)
			puts(cases[i].name);
	if (argc == 1)
		return 0;
	if (argc != 3 || chdir(argv[2]) != 0)
		return fputs("usage: cases_tool [CASE DIR]\n", stderr), 1;
	for (unsigned i = 0; i < count; i++) {
		if (strcmp(argv[1], cases[i].name) == 0) {
			cases[i].run();
			return 0;
		}
	}
	return fprintf(stderr, "no case '%s'\n", argv[1]), 1;
}
