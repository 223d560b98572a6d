/*
 * How `blinkfs scrub` talks to the server: ioctl(2) on any directory of the mount, as
 * backups do (backup_ioctl.h), from root and whoever runs the server.
 *
 *	START    a thread of the server's begins; it goes on when the caller ends
 *	STATUS   how far it is, or how the last one ended
 *	CANCEL   it ends soon
 *	FINDING  the n-th damage of the last scrub, in words
 */
#ifndef BLINKFS_SERVER_SCRUB_IOCTL_H
#define BLINKFS_SERVER_SCRUB_IOCTL_H

#include <stdint.h>
#include <sys/ioctl.h>

struct blinkfs_scrub_start {
	uint64_t bytes_per_second; /* 0: no limit */
};

enum blinkfs_scrub_state { SCRUB_IDLE, SCRUB_RUNNING, SCRUB_ENDED };

struct blinkfs_scrub_status {
	uint32_t state;
	int32_t error;       /* ENDED: 0, -ECANCELED or another code of error.h */
	uint64_t number;     /* of the scrub: 1 is the first of this mount */
	uint64_t pages, blocks, bytes, bytes_passed, bytes_used;
	uint64_t skipped, unreachable, bad_pages, bad_blocks;
	uint64_t findings;   /* kept, and so to be had */
	uint64_t seconds;    /* that it took so far */
	uint64_t ended_time; /* ENDED: seconds since 1970 */
	uint32_t cached;     /* not past the kernel's cache */
	uint32_t reserved;
};

#define SCRUB_FINDINGS_MAX 1000u
#define SCRUB_TEXT_BYTES 1792u

struct blinkfs_scrub_finding {
	uint64_t n;          /* in: 0 is the first */
	char text[SCRUB_TEXT_BYTES]; /* out */
};

#define BLINKFS_IOC_SCRUB_START _IOW('b', 0x48, struct blinkfs_scrub_start)
#define BLINKFS_IOC_SCRUB_STATUS _IOR('b', 0x49, struct blinkfs_scrub_status)
#define BLINKFS_IOC_SCRUB_CANCEL _IO('b', 0x4a)
#define BLINKFS_IOC_SCRUB_FINDING _IOWR('b', 0x4b, struct blinkfs_scrub_finding)

#endif
