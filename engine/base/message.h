/*
 * Messages for people: one line each, to stderr (default) or syslog.
 */
#ifndef BLINKFS_BASE_MESSAGE_H
#define BLINKFS_BASE_MESSAGE_H

#include "engine/base/check.h"

#include <stdbool.h>
#include <syslog.h>

/* program: prefix of each line ("mkfs.blinkfs"); use_syslog: where they go. */
void message_init(const char *program, bool use_syslog);
void message_quiet(int max_priority); /* drop lines with a priority number above (LOG_ERR, ...) */

/* priority: LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO of syslog(3). */
void message(int priority, const char *format, ...) printf_like(2, 3);

#endif
