/*
 * The end of a program that broke its own promise: one line, then abort(), so
 * that a supervisor or a debugger sees the state as it was.
 */
#include "engine/base/check.h"

#include "engine/base/message.h"

#include <stdlib.h>

noreturn void check_failed(const char *file, int line, const char *what)
{
	message(LOG_CRIT, "%s:%d: check failed: %s", file, line, what);
	abort();
}
