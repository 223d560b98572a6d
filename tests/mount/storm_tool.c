/*
 * Many threads in one small tree, without any regard for each other.
 *
 *	storm_tool run DIR SECONDS THREADS SEED
 *		Random operations on the same few names.  They may fail for what the
 *		others do (ENOENT, EEXIST, ...), never for anything else.  When the server
 *		is killed meanwhile, the threads just end.
 *	storm_tool check DIR
 *		What is left is consistent: each name leads somewhere, link counts are the
 *		numbers of names, inode numbers tell files apart, and each 4 KiB block is
 *		one that was written as a whole.
 *
 * Exit code 0: so it is; 1: not, and the output says what.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 64u
#define BLOCK 4096u
#define BLOCKS_MAX 40u /* of a file */
#define DIRS 4u
#define FILES 12u
#define PATH_BYTES 64u

struct storm {
	pthread_t thread;
	uint64_t random;
	uint64_t done, refused;
	const char *what;  /* what is being done, for the message when it fails */
	_Atomic bool ended;
};

static _Atomic bool stopping, broken;

static uint64_t below(struct storm *s, uint64_t limit)
{
	uint64_t z = (s->random += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (z ^ (z >> 31)) % limit;
}

/* --- names ------------------------------------------------------------------- */

static void directory(struct storm *s, char *path)
{
	int len = sprintf(path, "d%u", (unsigned)below(s, DIRS));

	while (below(s, 3) == 0 && len < 12)
		len += sprintf(path + len, "/d%u", (unsigned)below(s, DIRS));
}

static void file(struct storm *s, char *path)
{
	if (below(s, 8) == 0) {
		sprintf(path, "f%u", (unsigned)below(s, FILES));
		return;
	}
	directory(s, path);
	sprintf(path + strlen(path), "/f%u", (unsigned)below(s, FILES));
}

/* --- operations: 0 or -1 with errno -------------------------------------------- */

/* A block is filled with one word. */
static void fill(struct storm *s, uint64_t *block)
{
	uint64_t word = below(s, UINT64_MAX) | 1;

	for (unsigned i = 0; i < BLOCK / sizeof(word); i++)
		block[i] = word;
}

static int write_blocks(struct storm *s, int fd)
{
	static _Thread_local uint64_t data[8 * BLOCK / sizeof(uint64_t)]
		__attribute__((aligned(BLOCK)));
	unsigned count = 1 + (unsigned)below(s, 8);
	off_t offset = (off_t)below(s, BLOCKS_MAX - count) * BLOCK;

	for (unsigned i = 0; i < count; i++)
		fill(s, data + i * BLOCK / sizeof(*data));
	return pwrite(fd, data, count * BLOCK, offset) < 0 ? -1 : 0;
}

static int use_file(struct storm *s)
{
	static _Thread_local uint8_t found[8 * BLOCK] __attribute__((aligned(BLOCK)));
	int flags = O_RDWR | (below(s, 2) ? O_CREAT : 0) | (below(s, 12) ? 0 : O_TRUNC) |
		    (below(s, 4) ? 0 : O_DIRECT) | (below(s, 12) ? 0 : O_EXCL);
	unsigned times = 1 + (unsigned)below(s, 6);
	char path[PATH_BYTES];
	int fd, rc = 0;

	file(s, path);
	s->what = "open";
	fd = open(path, flags, 0644);
	if (fd < 0)
		return -1;
	while (rc == 0 && times-- > 0) {
		off_t offset = (off_t)below(s, BLOCKS_MAX) * BLOCK;

		switch (below(s, 9)) {
		case 0:
			s->what = "truncate";
			rc = ftruncate(fd, offset);
			break;
		case 1:
			s->what = "fsync";
			rc = fsync(fd);
			break;
		case 2 ... 3:
			s->what = "read";
			rc = pread(fd, found, sizeof(found), offset) < 0 ? -1 : 0;
			break;
		case 4:
			s->what = "chmod";
			rc = fchmod(fd, 0600 + (mode_t)below(s, 0100));
			break;
		case 6:
			s->what = "fallocate";
			rc = fallocate(fd, below(s, 2) ? FALLOC_FL_KEEP_SIZE
						       : FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				       offset, BLOCK * (1 + (off_t)below(s, 8)));
			break;
		case 5:
			s->what = "lseek";
			rc = lseek(fd, offset, below(s, 2) ? SEEK_DATA : SEEK_HOLE) < 0 ? -1 : 0;
			break;
		default:
			s->what = "write";
			rc = write_blocks(s, fd);
		}
	}
	if (rc) {
		int error = errno;

		close(fd);
		errno = error;
		return -1;
	}
	s->what = "close";
	return close(fd);
}

static int rename_something(struct storm *s)
{
	char from[PATH_BYTES], to[PATH_BYTES];
	bool files = below(s, 3) > 0;

	s->what = "rename";
	if (files) {
		file(s, from);
		file(s, to);
	} else {
		directory(s, from);
		directory(s, to);
	}
	return renameat2(AT_FDCWD, from, AT_FDCWD, to, below(s, 5) ? 0 : RENAME_NOREPLACE);
}

static int make_something(struct storm *s)
{
	char path[PATH_BYTES], target[PATH_BYTES];

	s->what = "link, symlink or mkdir";
	switch (below(s, 4)) {
	case 0:
		file(s, path);
		file(s, target);
		return link(target, path);
	case 1:
		file(s, path);
		directory(s, target);
		return symlink(target, path);
	default:
		directory(s, path);
		return mkdir(path, 0755);
	}
}

static int remove_something(struct storm *s)
{
	char path[PATH_BYTES];

	s->what = "unlink or rmdir";
	if (below(s, 4) == 0) {
		directory(s, path);
		return rmdir(path);
	}
	file(s, path);
	return unlink(path);
}

static int change_xattrs(struct storm *s)
{
	static const char *const names[] = {"user.a", "user.b", "user.another"};
	const char *name = names[below(s, 3)];
	static _Thread_local char value[10000], list[1000];
	char path[PATH_BYTES];

	s->what = "xattr";
	file(s, path);
	switch (below(s, 4)) {
	case 0:
		return lremovexattr(path, name);
	case 1:
		return llistxattr(path, list, sizeof(list)) < 0 ? -1 : 0;
	case 2:
		return lgetxattr(path, name, value, sizeof(value)) < 0 ? -1 : 0;
	default:
		return lsetxattr(path, name, value, below(s, below(s, 4) ? 100 : sizeof(value)), 0);
	}
}

static int list_something(struct storm *s)
{
	struct dirent *entry;
	char path[PATH_BYTES];
	struct stat st;
	DIR *stream;
	int rc = 0;

	s->what = "reading a directory";
	directory(s, path);
	stream = opendir(path);
	if (!stream)
		return -1;
	while (rc == 0 && (errno = 0, entry = readdir(stream)) != NULL)
		if (below(s, 3) == 0)
			rc = fstatat(dirfd(stream), entry->d_name, &st, AT_SYMLINK_NOFOLLOW);
	rc = errno ? -1 : 0;
	if (rc) {
		int error = errno;

		closedir(stream);
		errno = error;
		return -1;
	}
	return closedir(stream);
}

static int operate(struct storm *s)
{
	switch (below(s, 16)) {
	case 0 ... 5:
		return use_file(s);
	case 6 ... 7:
		return rename_something(s);
	case 8 ... 10:
		return make_something(s);
	case 11 ... 12:
		return remove_something(s);
	case 13 ... 14:
		return change_xattrs(s);
	default:
		return list_something(s);
	}
}

/* What others' operations may do to one's own. */
static bool is_expected(int error)
{
	static const int expected[] = {
		ENOENT, EEXIST, ENOTEMPTY, EISDIR, ENOTDIR, EINVAL, ELOOP, EPERM, ENODATA, ENXIO,
	};

	for (unsigned i = 0; i < sizeof(expected) / sizeof(*expected); i++)
		if (error == expected[i])
			return true;
	return false;
}

static void *rage(void *arg)
{
	struct storm *s = arg;

	while (!atomic_load(&stopping)) {
		if (operate(s) == 0) {
			s->done++;
			continue;
		}
		s->refused++;
		if (is_expected(errno))
			continue;
		if (errno != ENOTCONN && errno != ECONNABORTED) {
			/* The server's death shows in several ways; is it alive? */
			struct statvfs figures;
			int error = errno;

			if (statvfs(".", &figures) == 0) {
				fprintf(stderr, "%s failed: %s\n", s->what, strerror(error));
				atomic_store(&broken, true);
			}
		}
		break;
	}
	atomic_store(&s->ended, true);
	return NULL;
}

static bool all_ended(const struct storm *storms, unsigned threads)
{
	for (unsigned i = 0; i < threads; i++)
		if (!atomic_load(&storms[i].ended))
			return false;
	return true;
}

static int run(char **argv)
{
	static struct storm storms[THREADS_MAX];
	unsigned threads = (unsigned)atoi(argv[4]);
	unsigned tenths = (unsigned)atoi(argv[3]) * 10;
	const struct timespec tenth = {.tv_nsec = 100000000};
	uint64_t done = 0, refused = 0;

	if (threads == 0 || threads > THREADS_MAX || chdir(argv[2]) != 0)
		return perror(argv[2]), 1;
	alarm(tenths / 10 + 100);
	for (unsigned i = 0; i < threads; i++) {
		storms[i].random = strtoull(argv[5], NULL, 10) * 1000 + i;
		pthread_create(&storms[i].thread, NULL, rage, &storms[i]);
	}
	while (tenths-- > 0 && !all_ended(storms, threads))
		nanosleep(&tenth, NULL);
	atomic_store(&stopping, true);
	for (unsigned i = 0; i < threads; i++) {
		pthread_join(storms[i].thread, NULL);
		done += storms[i].done;
		refused += storms[i].refused;
	}
	printf("%llu operations, %llu refused\n", (unsigned long long)done,
	       (unsigned long long)refused);
	return atomic_load(&broken);
}

/* --- check ------------------------------------------------------------------------ */

struct found {
	ino_t ino;
	mode_t type;
	nlink_t nlink, names; /* of a directory, names: its subdirectories and 2 */
};

static struct found *all;
static size_t all_count, all_room;
static unsigned problems;

static void problem(const char *path, const char *what)
{
	fprintf(stderr, "%s: %s\n", path, what);
	problems++;
}

static struct found *found_for(const struct stat *st, const char *path)
{
	for (size_t i = 0; i < all_count; i++) {
		if (all[i].ino != st->st_ino)
			continue;
		if (all[i].type != (st->st_mode & S_IFMT) || S_ISDIR(st->st_mode))
			problem(path, "inode number of something else");
		return &all[i];
	}
	if (all_count == all_room) {
		all_room = all_room ? all_room * 2 : 1024;
		all = realloc(all, all_room * sizeof(*all));
		if (!all)
			abort();
	}
	all[all_count] = (struct found){.ino = st->st_ino, .type = st->st_mode & S_IFMT,
					.nlink = st->st_nlink};
	return &all[all_count++];
}

static void check_blocks(const char *path, off_t size)
{
	uint64_t block[BLOCK / sizeof(uint64_t)];
	int fd = open(path, O_RDONLY);
	off_t offset = 0;
	ssize_t n;

	if (fd < 0) {
		problem(path, strerror(errno));
		return;
	}
	while ((n = pread(fd, block, BLOCK, offset)) > 0) {
		for (size_t i = 1; i < (size_t)n / sizeof(*block); i++) {
			if (block[i] != block[0]) {
				problem(path, "a block is a mixture");
				break;
			}
		}
		offset += n;
	}
	if (n < 0 || offset != size)
		problem(path, n < 0 ? strerror(errno) : "shorter than its size");
	close(fd);
}

/* The number of subdirectories. */
static nlink_t subdirectories(const char *path)
{
	DIR *stream = opendir(path);
	struct dirent *entry;
	nlink_t count = 0;

	if (!stream) {
		problem(path, strerror(errno));
		return 0;
	}
	while ((entry = readdir(stream)) != NULL) {
		struct stat st;

		if (fstatat(dirfd(stream), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
			problem(path, "lists a name that leads nowhere");
			continue;
		}
		if ((st.st_mode & S_IFMT) >> 12 != entry->d_type)
			problem(path, "lists a name with a wrong type");
		if (S_ISDIR(st.st_mode) && strcmp(entry->d_name, ".") != 0 &&
		    strcmp(entry->d_name, "..") != 0)
			count++;
	}
	closedir(stream);
	return count;
}

static int check_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	struct found *found = found_for(st, path);

	(void)type, (void)ftw;
	found->names++;
	if (S_ISDIR(st->st_mode))
		found->names = subdirectories(path) + 2;
	else if (S_ISREG(st->st_mode))
		check_blocks(path, st->st_size);
	return 0;
}

static int check(const char *dir)
{
	if (nftw(dir, check_one, 32, FTW_PHYS) != 0)
		return perror(dir), 1;
	for (size_t i = 0; i < all_count; i++) {
		if (all[i].names == all[i].nlink)
			continue;
		fprintf(stderr, "inode %ju (mode %o): nlink %ju, but %ju are found\n",
			(uintmax_t)all[i].ino, all[i].type, (uintmax_t)all[i].nlink,
			(uintmax_t)all[i].names);
		problems++;
	}
	free(all);
	return problems > 0;
}

int main(int argc, char **argv)
{
	if (argc == 6 && strcmp(argv[1], "run") == 0)
		return run(argv);
	if (argc == 3 && strcmp(argv[1], "check") == 0)
		return check(argv[2]);
	fputs("usage: storm_tool run DIR SECONDS THREADS SEED | check DIR\n", stderr);
	return 1;
}
