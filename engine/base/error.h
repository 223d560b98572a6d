/*
 * Error codes.  Functions return 0 or a negative code: a negative errno, or a
 * negative BE_ code from error.def, which names the cause more closely.
 */
#ifndef BLINKFS_BASE_ERROR_H
#define BLINKFS_BASE_ERROR_H

enum error_code {
	BE_FIRST = 4096, /* above every errno */
#define X(name, number, text) name,
#include "engine/base/error.def"
#undef X
	BE_LAST
};

/* The public (negative errno) form of any negative code; 0 stays 0. */
int error_errno(int code);

/* A constant text for any negative code (strerror() of an errno). */
const char *error_text(int code);

#endif
