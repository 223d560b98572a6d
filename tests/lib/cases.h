/*
 * For programs that consist of cases, each tried in an empty directory of its own:
 *
 *	PROGRAM              the names of all cases
 *	PROGRAM CASE DIR     runs one; DIR is empty
 *
 * Exit code 0: as expected; 1: not, and stderr has the line that found it.
 */
#ifndef BLINKFS_TESTS_CASES_H
#define BLINKFS_TESTS_CASES_H

#include <errno.h>
#include <stdnoreturn.h>
#include <sys/types.h>

#define expect(condition) \
	((condition) ? (void)0 : unexpected(__FILE__, __LINE__, #condition))
#define expect_errno(call, error) \
	(errno = 0, (call) == -1 && errno == (error) \
			    ? (void)0 \
			    : unexpected(__FILE__, __LINE__, #call " fails with " #error))
noreturn void unexpected(const char *file, int line, const char *what);

struct case_entry {
	const char *name;
	void (*run)(void);
};
int cases_main(int argc, char **argv, const struct case_entry *cases, unsigned count);

/* A new file; open, or closed again. */
int make(const char *name, const char *contents);
void make_closed(const char *name, const char *contents);
void expect_contents(const char *name, const char *contents);
void expect_zeros(int fd, off_t from, off_t to);
unsigned count_names(const char *dir);
nlink_t links_of(const char *name);

/* Another process, and that it found all as expected. */
pid_t start(void (*body)(void));
void expect_success(pid_t child);

#endif
