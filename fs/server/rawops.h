/*
 * Operations that the protocol has and libfuse 3.14 does not know.
 */
#ifndef BLINKFS_SERVER_RAWOPS_H
#define BLINKFS_SERVER_RAWOPS_H

#include "fs/server/server.h"

enum { RAW_TMPFILE = 51, RAW_STATX = 52 };

/* Answers a request that nobody has decoded. */
void rawops_refuse(struct server *server, uint64_t unique, int error);
/* A request as it was read.  True: it was one of these, and has been answered. */
bool rawops_serve(struct server *server, const void *request, size_t len);

#endif
