/*
 * File handles, as an NFS server uses them.
 *
 *	handle_tool save PATH FILE         the handle of PATH into FILE
 *	handle_tool cat MOUNTPOINT FILE    the contents of what the handle means
 *	handle_tool path MOUNTPOINT FILE   its path, which takes the kernel looking for it
 *
 * Exit code 1, and the error's text, when it cannot be opened.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Noreturn void fail(const char *what)
{
	perror(what);
	exit(1);
}

union buffer {
	struct file_handle handle;
	char bytes[sizeof(struct file_handle) + MAX_HANDLE_SZ];
};

static void save(const char *path, const char *file)
{
	union buffer buffer = {.handle.handle_bytes = MAX_HANDLE_SZ};
	FILE *out = fopen(file, "w");
	int mount_id;

	if (!out || name_to_handle_at(AT_FDCWD, path, &buffer.handle, &mount_id, 0) != 0)
		fail(path);
	if (fwrite(&buffer, sizeof(buffer), 1, out) != 1 || fclose(out) != 0)
		fail(file);
}

static int open_handle(const char *mount, const char *file)
{
	int dir = open(mount, O_RDONLY | O_DIRECTORY), fd;
	FILE *in = fopen(file, "r");
	union buffer buffer;

	if (dir < 0 || !in || fread(&buffer, sizeof(buffer), 1, in) != 1)
		fail(file);
	fclose(in);
	fd = open_by_handle_at(dir, &buffer.handle, O_RDONLY);
	if (fd < 0)
		fail("open_by_handle_at");
	return fd;
}

static void cat(int fd)
{
	char buf[4096];
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0)
		if (write(STDOUT_FILENO, buf, (size_t)n) != n)
			fail("stdout");
	if (n < 0)
		fail("read");
}

static void print_path(int fd)
{
	char link[64], path[4096];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		fail(link);
	path[n] = '\0';
	puts(path);
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "save") == 0)
		save(argv[2], argv[3]);
	else if (argc == 4 && strcmp(argv[1], "cat") == 0)
		cat(open_handle(argv[2], argv[3]));
	else if (argc == 4 && strcmp(argv[1], "path") == 0)
		print_path(open_handle(argv[2], argv[3]));
	else
		return 2;
	return 0;
}
