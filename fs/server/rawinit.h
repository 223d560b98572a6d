/*
 * What the protocol has and libfuse 3.14 does not pass on.
 */
#ifndef BLINKFS_SERVER_RAWINIT_H
#define BLINKFS_SERVER_RAWINIT_H

#include "fs/server/server.h"

#include <linux/fuse.h>

/* Granted when the kernel offers them. */
#define RAW_GRANTED (FUSE_HANDLE_KILLPRIV_V2 | FUSE_SETXATTR_EXT)

/* Put between libfuse and /dev/fuse by fuse_session_custom_io(). */
extern const struct fuse_custom_io raw_io;

#endif
