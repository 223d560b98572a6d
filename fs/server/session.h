/*
 * The FUSE session: its options, the mount, messages of libfuse.
 */
#ifndef BLINKFS_SERVER_SESSION_H
#define BLINKFS_SERVER_SESSION_H

#include "fs/server/server.h"

/* Sets server->session and mounts it.  On failure the reason has been told. */
int session_mount(struct server *server) must_check;
/* After serving has ended: unmounts if that has not happened, frees. */
void session_close(struct server *server);

/* -o remount,...: changes the kernel's flags of an existing mount. */
int session_remount(const struct server_options *options) must_check;

#endif
