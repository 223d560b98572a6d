/*
 * How `blinkfs backup` talks to the server: ioctl(2) on any directory of the mount,
 * which needs neither a socket nor a name, and reaches the right server by itself.
 *
 *	START   the server opens descriptor `fd` of the calling process anew (through
 *	        /proc) and writes the backup there, by a thread of its own
 *	STATUS  how far it is, and how it ended
 *
 * Who may: root, and whoever runs the server, who can read the volume's image anyway.
 * The file is opened by the command, with the rights of who called it; the server
 * adds none of its own.  The backup ends when the process does that called it.
 */
#ifndef BLINKFS_SERVER_BACKUP_IOCTL_H
#define BLINKFS_SERVER_BACKUP_IOCTL_H

#include <stdint.h>
#include <sys/ioctl.h>

struct blinkfs_backup_start {
	int32_t fd;
	uint32_t reserved;
	uint64_t since;            /* 0: full */
	uint8_t base_id[16];       /* of the backup that `since` is from; or zeros */
	uint8_t uuid[16];          /* of the volume, where the caller knows it; or zeros */
	uint64_t base_generation;  /* 0: unknown */
	uint64_t bytes_per_second; /* 0: no limit */
};

enum blinkfs_backup_state { BACKUP_IDLE, BACKUP_RUNNING, BACKUP_ENDED };

struct blinkfs_backup_status {
	uint32_t state;
	int32_t error;             /* ENDED: 0 or a negative code of error.h */
	int32_t pid;               /* who called it, as the server sees processes */
	uint32_t is_mine;          /* it was who asks now */
	uint64_t pages, blocks, bytes, lsn, bad_blocks;
};

#define BLINKFS_IOC_BACKUP_START _IOW('b', 0x40, struct blinkfs_backup_start)
#define BLINKFS_IOC_BACKUP_STATUS _IOR('b', 0x41, struct blinkfs_backup_status)

#endif
