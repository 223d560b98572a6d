/* Programs that consist of cases: see cases.h. */
#include "tests/lib/cases.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

noreturn void unexpected(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: not so: %s (errno: %s)\n", file, line, what, strerror(errno));
	_exit(1);
}

int make(const char *name, const char *contents)
{
	int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0644);

	expect(fd >= 0);
	expect(write(fd, contents, strlen(contents)) == (ssize_t)strlen(contents));
	return fd;
}

void make_closed(const char *name, const char *contents)
{
	expect(close(make(name, contents)) == 0);
}

void expect_contents(const char *name, const char *contents)
{
	char found[256];
	int fd = open(name, O_RDONLY);
	ssize_t n;

	expect(fd >= 0);
	n = read(fd, found, sizeof(found));
	expect(n == (ssize_t)strlen(contents) && memcmp(found, contents, (size_t)n) == 0);
	close(fd);
}

void expect_zeros(int fd, off_t from, off_t to)
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

unsigned count_names(const char *dir)
{
	DIR *stream = opendir(dir);
	unsigned count = 0;

	expect(stream);
	while (readdir(stream))
		count++;
	closedir(stream);
	return count - 2; /* . and .. */
}

nlink_t links_of(const char *name)
{
	struct stat st;

	expect(stat(name, &st) == 0);
	return st.st_nlink;
}

pid_t start(void (*body)(void))
{
	pid_t child = fork();

	expect(child >= 0);
	if (child == 0) {
		body();
		_exit(0);
	}
	return child;
}

void expect_success(pid_t child)
{
	int status;

	expect(waitpid(child, &status, 0) == child);
	expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int cases_main(int argc, char **argv, const struct case_entry *cases, unsigned count)
{
	if (argc == 1) {
		for (unsigned i = 0; i < count; i++)
			puts(cases[i].name);
		return 0;
	}
	if (argc != 3 || chdir(argv[2]) != 0)
		return fprintf(stderr, "usage: %s [CASE DIR]\n", argv[0]), 1;
	for (unsigned i = 0; i < count; i++) {
		if (strcmp(argv[1], cases[i].name) == 0) {
			cases[i].run();
			return 0;
		}
	}
	return fprintf(stderr, "no case '%s'\n", argv[1]), 1;
}
