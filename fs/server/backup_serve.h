/* The server's side of `blinkfs backup`; backup_ioctl.h has the protocol. */
#ifndef BLINKFS_SERVER_BACKUP_SERVE_H
#define BLINKFS_SERVER_BACKUP_SERVE_H

#include "fs/server/server.h"

#include "fs/server/backup_ioctl.h"

struct backup_service;

int backup_service_open(struct backup_service **out, struct volume *volume) must_check;
/* Ends a backup that runs.  NULL is allowed. */
void backup_service_close(struct backup_service *service);

/* pid: the process whose descriptor it is. */
int backup_service_start(struct backup_service *service, pid_t pid,
			 const struct blinkfs_backup_start *start) must_check;
void backup_service_status(struct backup_service *service, struct blinkfs_backup_status *status);

#endif
