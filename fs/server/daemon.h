/*
 * Becoming a daemon whose parent waits until the mount is live.
 */
#ifndef BLINKFS_SERVER_DAEMON_H
#define BLINKFS_SERVER_DAEMON_H

#include "engine/base/check.h"

#include <stdbool.h>

struct daemon {
	bool is_child;
	int pipe; /* to the parent; -1 in the foreground and once it has been told */
};

/*
 * Forks, before any thread exists.  In the parent: waits for daemon_live() or
 * the child's end, and returns with is_child false and *exit_code set.  In the
 * child stderr stays the caller's until daemon_live().
 */
int daemon_start(struct daemon *daemon, int *exit_code) must_check;

/* The mount is live: lets the parent go, messages go to syslog from now on. */
void daemon_live(struct daemon *daemon);

#endif
