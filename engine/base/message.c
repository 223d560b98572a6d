/*
 * One message, one line, one write(2), so that lines of several threads and
 * processes never mix.  Takes no lock and allocates nothing on the stderr
 * path: check_failed() ends here, whatever the thread holds.
 */
#include "engine/base/message.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES_MAX 1024
#define PROGRAM_BYTES_MAX 64

/* Of the whole process, as stderr and syslog are. */
static char program_name[PROGRAM_BYTES_MAX] = "blinkfs"; /* set before other threads start */
static atomic_bool to_syslog;
static atomic_int priority_max = LOG_DEBUG;

void message_init(const char *program, bool use_syslog)
{
	snprintf(program_name, sizeof(program_name), "%s", program);
	if (use_syslog)
		openlog(program_name, LOG_PID, LOG_DAEMON);
	atomic_store(&to_syslog, use_syslog);
}

void message_quiet(int max_priority)
{
	atomic_store(&priority_max, max_priority);
}

static void write_line(const char *text)
{
	char line[PROGRAM_BYTES_MAX + LINE_BYTES_MAX];
	int len = snprintf(line, sizeof(line), "%s: %s\n", program_name, text);
	ssize_t written;

	if (len <= 0)
		return;
	if ((size_t)len >= sizeof(line))
		len = sizeof(line) - 1;
	line[len - 1] = '\n';
	do
		written = write(STDERR_FILENO, line, (size_t)len);
	while (written < 0 && errno == EINTR);
}

void message(int priority, const char *format, ...)
{
	char text[LINE_BYTES_MAX];
	int saved = errno;
	va_list args;

	if (priority > atomic_load_explicit(&priority_max, memory_order_relaxed))
		return;
	va_start(args, format);
	if (vsnprintf(text, sizeof(text), format, args) < 0)
		text[0] = '\0';
	va_end(args);
	for (char *c = strchr(text, '\n'); c; c = strchr(c, '\n'))
		*c = ' ';

	if (atomic_load_explicit(&to_syslog, memory_order_relaxed))
		syslog(priority, "%s", text);
	else
		write_line(text);
	errno = saved;
}
