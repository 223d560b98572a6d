/*
 * What the protocol has and libfuse 3.14 does not pass on.
 */
#ifndef BLINKFS_SERVER_RAWINIT_H
#define BLINKFS_SERVER_RAWINIT_H

#include "fs/server/server.h"

/* Put between libfuse and /dev/fuse by fuse_session_custom_io(). */
extern const struct fuse_custom_io raw_io;

#endif
