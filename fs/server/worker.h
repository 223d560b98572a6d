/*
 * The threads that serve requests.
 */
#ifndef BLINKFS_SERVER_WORKER_H
#define BLINKFS_SERVER_WORKER_H

#include "fs/server/server.h"

typedef void (*workers_serve)(void *arg, const struct fuse_buf *request);

/* serve: NULL, libfuse gets all requests. */
int workers_create(struct workers **out, struct fuse_session *session, unsigned max_threads,
		   workers_serve serve, void *serve_arg) must_check;
/* Serves until the kernel has ended the connection or workers_stop() was called. */
int workers_run(struct workers *workers) must_check;
/* Waits, bounded, until no request is at hand or in work.  From another thread than a worker. */
void workers_settle(struct workers *workers);
/* Ends workers_run() though the connection lives; running operations are finished. */
void workers_stop(struct workers *workers);
void workers_free(struct workers *workers);
/* Calls fn from this thread, of whatever kind, as a worker would that has no place. */
void worker_lend(struct workers *workers, void (*fn)(void *arg), void *arg);

/* The longest request: a WRITE and what stands in front of its data. */
#define WORKER_REQUEST_BYTES (WRITE_BYTES_MAX + BLOCK_SIZE)

/* ----------------------------------------------- for the calling worker */

/* Scratch memory of at least len bytes, aligned to a block, until the next call; NULL: none. */
void *worker_buffer(size_t len);

void worker_set_kill(bool kill);
/* Does the request at work demand that setuid and setgid be dropped? */
bool worker_kill(void);

#endif
