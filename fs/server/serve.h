/*
 * One mount from beginning to end.
 */
#ifndef BLINKFS_SERVER_SERVE_H
#define BLINKFS_SERVER_SERVE_H

#include "fs/server/daemon.h"
#include "fs/server/options.h"

/* Exit codes of `blinkfs VOLUME DIR`. */
enum {
	EXIT_DONE = 0,
	EXIT_NOT_MOUNTED = 1, /* also: could not be closed cleanly (foreground) */
	EXIT_DAMAGED = 3,     /* run fsck.blinkfs */
};

/* Opens, mounts, serves until unmounted or told to stop, closes.  Returns the exit code. */
int serve_volume(const struct server_options *options, struct daemon *daemon);

#endif
