/* The server's side of `blinkfs backup`; backup_ioctl.h has the protocol. */
#ifndef BLINKFS_SERVER_BACKUP_SERVE_H
#define BLINKFS_SERVER_BACKUP_SERVE_H

#include "fs/server/server.h"

#include "fs/server/backup_ioctl.h"

struct backup_service;

int backup_service_open(struct backup_service **out, struct volume *volume) must_check;
/* Ends a backup that runs.  NULL is allowed. */
void backup_service_close(struct backup_service *service);

void backup_service_status(struct backup_service *service, struct blinkfs_backup_status *status);
/* Either of the two, from who may ask for it.  False: no ioctl of backups. */
bool backup_service_ioctl(fuse_req_t req, unsigned cmd, const void *in, size_t in_len,
			  size_t out_room);

#endif
