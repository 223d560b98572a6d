/*
 * Names and directories: what users of other filesystems met (the numbers are
 * those of the list that tests/mount/test_cases.sh names).
 *
 *	cases_names [CASE DIR]
 */
#include "tests/lib/cases.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/xattr.h>
#include <unistd.h>

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

/* 4 */
static void rename_over_directories(void)
{
	expect(mkdir("full", 0755) == 0 && mkdir("empty", 0755) == 0 && mkdir("d", 0755) == 0);
	make_closed("full/file", "kept");
	make_closed("plain", "x");
	expect_errno(rename("d", "full"), ENOTEMPTY);
	expect_contents("full/file", "kept");
	expect(rename("d", "empty") == 0);
	expect_errno(rename("full", "full/below"), EINVAL);
	expect_errno(rename("plain", "empty"), EISDIR);
	expect_errno(rename("empty", "plain"), ENOTDIR);
	expect_errno(unlink("empty"), EISDIR);
	expect_errno(rmdir("plain"), ENOTDIR);
	expect_errno(rmdir("full"), ENOTEMPTY);
	expect_errno(link("empty", "hard"), EPERM);
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

static int exchange(const char *a, const char *b)
{
	return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}

/* 6 */
static void rename_flags(void)
{
	int fd = make("a", "aa");

	make_closed("b", "bb");
	expect(exchange("a", "b") == 0);
	expect_contents("a", "bb");
	expect(pwrite(fd, "AA", 2, 0) == 2);
	close(fd);
	expect_contents("b", "AA");
	expect_errno(exchange("a", "c"), ENOENT);
	expect_errno(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", 1 << 20), EINVAL);
	expect(count_names(".") == 2);

	expect(mkdir("d", 0755) == 0 && mkdir("d/e", 0755) == 0);
	make_closed("d/e/f", "deep");
	expect(exchange("a", "d/e") == 0); /* a file and a directory */
	expect_contents("d/e", "bb");
	expect_contents("a/f", "deep");
	expect(links_of("d") == 2 && links_of("a") == 2);
	expect_contents("a/../b", "AA"); /* its parent is another one */
	expect_errno(exchange("a", "a/f"), EINVAL);
	expect_errno(exchange("d/e", "d"), EINVAL);
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

/* As an NFS server keeps them.  Only root may. */
static void file_handles(void)
{
	struct {
		struct file_handle head;
		unsigned char bytes[MAX_HANDLE_SZ];
	} handle = {.head.handle_bytes = MAX_HANDLE_SZ}, gone = handle;
	char found[5] = "";
	int mount_id, fd, here = open(".", O_RDONLY);

	expect(mkdir("d", 0755) == 0);
	make_closed("d/f", "text");
	make_closed("g", "gone");
	expect(name_to_handle_at(AT_FDCWD, "d/f", &handle.head, &mount_id, 0) == 0);
	expect(name_to_handle_at(AT_FDCWD, "g", &gone.head, &mount_id, 0) == 0);
	fd = open_by_handle_at(here, &handle.head, O_RDONLY);
	if (fd < 0 && errno == EPERM)
		return;
	expect(fd >= 0 && read(fd, found, 4) == 4 && strcmp(found, "text") == 0);
	close(fd);
	expect(rename("d/f", "moved") == 0 && unlink("g") == 0);
	make_closed("g", "another");
	expect_errno(open_by_handle_at(here, &gone.head, O_RDONLY), ESTALE);
	fd = open_by_handle_at(here, &handle.head, O_RDONLY);
	expect(fd >= 0 && read(fd, found, 4) == 4 && strcmp(found, "text") == 0);
	close(fd);
	close(here);
}

/* Locks are kept by the kernel. */
static void try_the_lock(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = open("f", O_RDWR);

	expect_errno(fcntl(fd, F_SETLK, &lock), EAGAIN);
}

static void locks(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = make("f", "");

	expect(fcntl(fd, F_SETLK, &lock) == 0);
	expect_success(start(try_the_lock));
	close(fd);
}

/* --- opening what is made --------------------------------------------------- */

/* As an ordinary user: without what root may do in spite of modes. */
static void drop_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

	expect(syscall(SYS_capset, &header, none) == 0);
}

static void make_without_permissions(void)
{
	char byte;
	int fd;

	drop_capabilities();
	fd = open("none", O_RDWR | O_CREAT | O_EXCL, 0);
	expect(fd >= 0 && write(fd, "kept", 4) == 4 && pread(fd, &byte, 1, 3) == 1 && byte == 't');
	close(fd);
	expect_errno(open("none", O_RDONLY), EACCES);
	expect_errno(open("none", O_RDWR | O_CREAT, 0666), EACCES);
	fd = open("read_only", O_WRONLY | O_CREAT | O_TRUNC, 0444);
	expect(fd >= 0 && write(fd, "kept", 4) == 4);
	close(fd);
	expect_contents("read_only", "kept");
}

/* A mode does not bind whoever makes the file, but everybody after. */
static void open_what_was_made(void)
{
	struct stat st;
	int fd;

	expect_success(start(make_without_permissions));
	expect(stat("none", &st) == 0 && (st.st_mode & 07777) == 0 && st.st_size == 4);

	umask(027);
	fd = open("masked", O_RDWR | O_CREAT, 0666);
	expect(fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0640);
	expect(pwrite(fd, "old", 3, 0) == 3);
	close(fd);
	expect_errno(open("masked", O_RDWR | O_CREAT | O_EXCL, 0666), EEXIST);
	fd = open("masked", O_RDWR | O_CREAT | O_TRUNC, 0666);
	expect(fd >= 0 && fstat(fd, &st) == 0 && st.st_size == 0);
	close(fd);
	expect_errno(open(".", O_RDWR | O_CREAT, 0666), EISDIR);
	expect(symlink("behind", "link") == 0);
	fd = open("link", O_RDWR | O_CREAT, 0600);
	expect(fd >= 0 && write(fd, "x", 1) == 1);
	close(fd);
	expect_contents("behind", "x");
	expect_errno(open("link", O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
}

/* --- files without a name ---------------------------------------------------- */

/* Older ones do not ask a FUSE server. */
static bool kernel_at_least(unsigned major, unsigned minor)
{
	unsigned is_major = 0, is_minor = 0;
	struct utsname name;

	expect(uname(&name) == 0 && sscanf(name.release, "%u.%u", &is_major, &is_minor) == 2);
	return is_major > major || (is_major == major && is_minor >= minor);
}

static int open_nameless(int flags)
{
	return open(".", O_TMPFILE | O_RDWR | flags, 0666);
}

static void link_descriptor(int fd, const char *name, int error)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (error)
		expect_errno(linkat(AT_FDCWD, path, AT_FDCWD, name, AT_SYMLINK_FOLLOW), error);
	else
		expect(linkat(AT_FDCWD, path, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0);
}

static void nameless_files(void)
{
	struct stat st;
	int fd;

	umask(027);
	fd = open_nameless(0);
	if (fd < 0 && errno == EOPNOTSUPP && !kernel_at_least(6, 2))
		return;
	expect(fd >= 0 && count_names(".") == 0);
	expect(write(fd, "first text", 10) == 10);
	expect(fstat(fd, &st) == 0 && st.st_nlink == 0 && st.st_size == 10);
	expect((st.st_mode & 07777) == 0640);
	link_descriptor(fd, "named", 0);
	expect(fstat(fd, &st) == 0 && st.st_nlink == 1);
	expect(pwrite(fd, "FIRST", 5, 0) == 5);
	close(fd);
	expect_contents("named", "FIRST text");

	fd = open_nameless(O_EXCL); /* never to be named */
	expect(fd >= 0);
	link_descriptor(fd, "other", ENOENT);
	close(fd);

	fd = open_nameless(0);
	link_descriptor(fd, "named", EEXIST);
	link_descriptor(fd, "second", 0);
	expect(unlink("second") == 0);
	link_descriptor(fd, "third", ENOENT);
	close(fd);
	expect_errno(open("named", O_TMPFILE | O_RDWR, 0600), ENOTDIR);
	expect(count_names(".") == 1);
}

/* --- birth ------------------------------------------------------------------- */

static struct statx_timestamp birth_of(const char *name)
{
	struct statx st;

	expect(statx(AT_FDCWD, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &st) ==
	       0);
	expect((st.stx_mask & STATX_BTIME) || !kernel_at_least(6, 6));
	return st.stx_btime;
}

static bool same_moment(struct statx_timestamp a, struct statx_timestamp b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static void time_of_birth(void)
{
	const struct timespec old[] = {{1000, 0}, {1000, 0}};
	struct statx_timestamp born;
	struct stat st;
	struct statx stx;
	int fd = make("f", "");

	born = birth_of("f");
	if (!kernel_at_least(6, 6))
		return;
	expect(fstat(fd, &st) == 0);
	expect(born.tv_sec <= st.st_mtim.tv_sec + 1 && born.tv_sec >= st.st_mtim.tv_sec - 60);
	expect(futimens(fd, old) == 0 && write(fd, "text", 4) == 4 && chmod("f", 0604) == 0);
	close(fd);
	expect(rename("f", "g") == 0);
	expect(same_moment(birth_of("g"), born));
	expect(statx(AT_FDCWD, "g", 0, STATX_BASIC_STATS | STATX_BTIME, &stx) == 0);
	expect(stx.stx_size == 4 && stx.stx_mode == (S_IFREG | 0604) && stx.stx_nlink == 1);
	expect(mkdir("d", 0755) == 0 && symlink("g", "l") == 0);
	expect(birth_of("d").tv_sec >= born.tv_sec && birth_of("l").tv_sec >= born.tv_sec);
	expect(mknod("pipe", S_IFIFO | 0600, 0) == 0 && birth_of("pipe").tv_sec >= born.tv_sec);
}

/* --- all ----------------------------------------------------------------- */

static const struct case_entry cases[] = {
	{"rename_while_opened", rename_while_opened},
	{"write_after_rename_over", write_after_rename_over},
	{"rename_to_own_link", rename_to_own_link},
	{"rename_over_directories", rename_over_directories},
	{"directories_into_each_other", directories_into_each_other},
	{"rename_flags", rename_flags},
	{"rename_noreplace", rename_noreplace},
	{"use_of_an_unlinked_file", use_of_an_unlinked_file},
	{"unlink_while_reading", unlink_while_reading},
	{"telldir_and_seekdir", telldir_and_seekdir},
	{"odd_names", odd_names},
	{"file_handles", file_handles},
	{"locks", locks},
	{"open_what_was_made", open_what_was_made},
	{"nameless_files", nameless_files},
	{"time_of_birth", time_of_birth},
};

int main(int argc, char **argv)
{
	return cases_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
