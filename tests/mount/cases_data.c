/*
 * Contents and attributes: what users of other filesystems met (the numbers are
 * those of the list that tests/mount/test_cases.sh names).
 *
 *	cases_data [CASE DIR]
 */
#include "tests/lib/cases.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define GIB (1ll << 30)

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
		expect(pread(direct, aligned, LEN, 0) == LEN);
		expect(memcmp(found, aligned + 3000, 5000) == 0);
		expect(aligned[2999] == round + 1 && aligned[8000] == round + 1);
	}
	free(aligned);
	close(direct);
	close(fd);
}

enum { STAMPED = 64 * 1024, STAMPED_BLOCKS = STAMPED / 4096 };
static _Atomic bool stamping;

static void *read_stamps(void *arg)
{
	uint8_t *found = aligned_alloc(4096, STAMPED);
	int fd = open("f", O_RDONLY | O_DIRECT);

	expect(found && fd >= 0);
	while (atomic_load(&stamping)) {
		expect(pread(fd, found, STAMPED, 0) == STAMPED);
		for (int i = 1; i < STAMPED_BLOCKS; i++)
			expect(found[i * 4096] == found[0] && found[i * 4096 + 4095] == found[0]);
	}
	close(fd);
	free(found);
	return arg;
}

/* A direct read sees one direct write or the other, whatever purge does meanwhile. */
static void direct_reads_are_whole(void)
{
	uint8_t *data = aligned_alloc(4096, STAMPED);
	int fd = open("f", O_RDWR | O_CREAT | O_DIRECT, 0644);
	pthread_t threads[3];

	expect(data && fd >= 0);
	memset(data, 0, STAMPED);
	expect(pwrite(fd, data, STAMPED, 0) == STAMPED);
	atomic_store(&stamping, true);
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, read_stamps, NULL);
	for (int i = 0; i < 1500; i++) {
		memset(data, i, STAMPED);
		expect(pwrite(fd, data, STAMPED, 0) == STAMPED);
	}
	atomic_store(&stamping, false);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	close(fd);
	free(data);
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

/* OPEN is not implemented, so O_TRUNC comes as a truncate of its own. */
static void truncate_on_open(void)
{
	struct stat st;

	make_closed("f", "something long");
	expect(close(open("f", O_WRONLY | O_TRUNC)) == 0);
	expect(stat("f", &st) == 0 && st.st_size == 0);
	expect(close(open("f", O_WRONLY | O_CREAT | O_TRUNC, 0644)) == 0);
	expect(close(open("new", O_WRONLY | O_CREAT | O_TRUNC, 0644)) == 0);
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

/*
 * What write() has taken and nobody has synced is data, before, between and behind what
 * the server has; nothing is closed here, since that would write it back.
 */
static void holes_before_write_back(void)
{
	static char data[200000];
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	ssize_t len = (ssize_t)sizeof(data);
	off_t page = sysconf(_SC_PAGESIZE), hole;

	memset(data, 'x', sizeof(data));
	expect(pwrite(fd, data, sizeof(data), 0) == len);
	expect(lseek(fd, 0, SEEK_DATA) == 0 && lseek(fd, 0, SEEK_HOLE) == len);
	expect(pwrite(fd, data, sizeof(data), 8 << 20) == len);
	expect(lseek(fd, 1 << 20, SEEK_DATA) == 8 << 20);
	expect(pwrite(fd, data, sizeof(data), 4 << 20) == len);
	expect(pwrite(fd, data, sizeof(data), len) == len);
	hole = lseek(fd, 0, SEEK_HOLE);
	expect(hole >= 2 * len && hole < 2 * len + page);
	expect(lseek(fd, hole, SEEK_DATA) == 4 << 20);
	expect(lseek(fd, (8 << 20) + 1, SEEK_HOLE) == (8 << 20) + len);
	expect(pwrite(fd, data, sizeof(data), 16 << 20) == len);
	expect(lseek(fd, 12 << 20, SEEK_HOLE) == 12 << 20);
	expect(lseek(fd, 12 << 20, SEEK_DATA) == 16 << 20);
	expect(close(fd) == 0);
}

/* No file with contents has no blocks: tar -S would save zeros. */
static void contents_have_blocks(void)
{
	static char data[100000];
	static const size_t sizes[] = {1, 511, 513, 2048, 2049, sizeof(data)};
	struct stat st;

	memset(data, 'x', sizeof(data));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);

		expect(write(fd, data, sizes[i]) == (ssize_t)sizes[i] && fsync(fd) == 0);
		expect(fstat(fd, &st) == 0 && st.st_blocks > 0);
		expect(st.st_blocks * 512 >= (off_t)sizes[i]);
		expect(close(fd) == 0 && stat("f", &st) == 0 && st.st_blocks > 0);
	}
}

static void expect_blocks(int fd, off_t size, blkcnt_t blocks)
{
	struct stat st;

	expect(fsync(fd) == 0 && fstat(fd, &st) == 0);
	expect(st.st_size == size && st.st_blocks == blocks * 8);
}

/* 22 */
static void allocated_ranges(void)
{
	const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	static char block[8192];
	char found[8192];
	int fd = make("f", "");

	memset(block, 'x', sizeof(block));
	expect(write(fd, block, sizeof(block)) == (ssize_t)sizeof(block));
	expect(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 1 << 20) == 0);
	expect_blocks(fd, 8192, 256);
	expect(lseek(fd, 0, SEEK_HOLE) == 8192);
	expect(posix_fallocate(fd, 0, 100000) == 0);
	expect_blocks(fd, 100000, 256);
	expect_zeros(fd, 8192, 100000);
	expect(lseek(fd, 8192, SEEK_DATA) == -1 && errno == ENXIO);
	expect(pwrite(fd, "y", 1, 50000) == 1);
	expect_blocks(fd, 100000, 256);
	expect(lseek(fd, 8192, SEEK_DATA) == 49152);
	expect(fallocate(fd, punch, 100, 8000) == 0);
	expect(pread(fd, found, sizeof(found), 0) == (ssize_t)sizeof(found));
	expect(memcmp(found, block, 100) == 0 && memcmp(found + 8100, block, 92) == 0);
	expect_zeros(fd, 100, 8100);
	expect(fallocate(fd, punch, 0, 8192) == 0);
	expect_blocks(fd, 100000, 254);
	expect(fallocate(fd, FALLOC_FL_ZERO_RANGE, 40000, 100000) == 0);
	expect_zeros(fd, 0, 140000);
	expect_blocks(fd, 140000, 254);
	expect(ftruncate(fd, 140000) == 0);
	expect_blocks(fd, 140000, 33);
	expect_errno(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 4096), EOPNOTSUPP);
	expect_errno(fallocate(fd, 0, 0, 1ll << 45), ENOSPC);
	expect_blocks(fd, 140000, 33);
	expect(ftruncate(fd, 0) == 0);
	expect_blocks(fd, 0, 0);
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
	expect(pwrite(fd, "x", 1, INT64_MAX - 1) == 1 && fsync(fd) == 0);
	expect_errno(pwrite(fd, "xy", 2, INT64_MAX - 1), EINVAL); /* says the kernel */
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

/* --- all ----------------------------------------------------------------- */

/* What nobody has synced or closed is data, too: cp would copy a hole. */
static void holes_beside_mapped_writes(void)
{
	enum { FAR = 1 << 20, MAPPED = 614400 };
	static char text[100000], back[100000];
	int fd = open("open", O_RDWR | O_CREAT, 0644);
	char *map;

	expect(fd >= 0);
	memset(text, 'x', sizeof(text));
	expect(write(fd, text, sizeof(text)) == sizeof(text));
	expect(pwrite(fd, text, 5000, FAR) == 5000);
	map = mmap(NULL, FAR, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	expect(map != MAP_FAILED);
	map[MAPPED] = 'm';
	expect(lseek(fd, 150000, SEEK_DATA) == MAPPED);
	expect(map[MAPPED] == 'm' && map[0] == 'x');
	map[MAPPED + 1] = 'n';
	expect(lseek(fd, MAPPED, SEEK_HOLE) == MAPPED + 4096);
	expect(munmap(map, FAR) == 0);
	expect(pread(fd, back, sizeof(back), 0) == sizeof(back));
	expect(memcmp(text, back, sizeof(back)) == 0);
	expect(pread(fd, back, 2, MAPPED) == 2 && memcmp(back, "mn", 2) == 0);
	expect(close(fd) == 0);
}

static const struct case_entry cases[] = {
	{"appends_by_several", appends_by_several},
	{"shared_mappings", shared_mappings},
	{"direct_beside_buffered", direct_beside_buffered},
	{"direct_reads_are_whole", direct_reads_are_whole},
	{"gap_after_truncate", gap_after_truncate},
	{"truncate_on_open", truncate_on_open},
	{"holes", holes},
	{"holes_before_write_back", holes_before_write_back},
	{"contents_have_blocks", contents_have_blocks},
	{"holes_beside_mapped_writes", holes_beside_mapped_writes},
	{"allocated_ranges", allocated_ranges},
	{"sparse_files", sparse_files},
	{"time_stamps", time_stamps},
	{"xattr_limits", xattr_limits},
	{"many_xattrs", many_xattrs},
};

int main(int argc, char **argv)
{
	return cases_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
