/*
 * Assertions that stay on in release builds.
 *
 * check() states what this program itself guarantees.  It never judges bytes
 * that came from a disk, a socket or a user: those are verified by code that
 * returns an error (see corrupt_at() in engine/volume.h).
 */
#ifndef BLINKFS_BASE_CHECK_H
#define BLINKFS_BASE_CHECK_H

#include <assert.h>
#include <stdnoreturn.h>

noreturn void check_failed(const char *file, int line, const char *what);

#define check(condition)                                                       \
	((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition))

/* Marks functions whose result must not be dropped. */
#define must_check __attribute__((warn_unused_result))
#define printf_like(string, first) __attribute__((format(printf, string, first)))

#define array_count(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#endif
