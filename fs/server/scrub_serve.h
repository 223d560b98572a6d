/* The server's side of `blinkfs scrub`; scrub_ioctl.h has the protocol. */
#ifndef BLINKFS_SERVER_SCRUB_SERVE_H
#define BLINKFS_SERVER_SCRUB_SERVE_H

#include "fs/server/server.h"

#include "fs/server/scrub_ioctl.h"

struct scrub_service;

int scrub_service_open(struct scrub_service **out, struct volume *volume) must_check;
/* Ends a scrub that runs.  NULL is allowed. */
void scrub_service_close(struct scrub_service *service);

void scrub_service_status(struct scrub_service *service, struct blinkfs_scrub_status *status);
/* One of the four, from who may ask for it.  False: no ioctl of scrubbing. */
bool scrub_service_ioctl(fuse_req_t req, unsigned cmd, const void *in, size_t in_len,
			 size_t out_room);

#endif
