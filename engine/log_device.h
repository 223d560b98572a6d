/*
 * Which device an external log is on, and whether what is there is the right one.
 *
 * The superblock knows the log's UUID, and as a hint the path where it was last;
 * who mounts may say another one.  Neither is believed: the header has to carry the
 * UUID (INV-SB-3), and log_open() compares generations.  A path that has proved
 * right becomes the hint (volume_options.log_path).
 *
 * INV-REC-2: the lock is on the log device as well, by opening it like any other.
 */
#ifndef BLINKFS_ENGINE_LOG_DEVICE_H
#define BLINKFS_ENGINE_LOG_DEVICE_H

#include "engine/dev/device.h"

struct log_device_request {
	const char *path;  /* as the user says; NULL: the hint */
	const char *how;   /* to say so: "-o log=PATH", for messages */
	unsigned flags;    /* enum dev_open_flags */
	uint64_t wait_ns;  /* for the lock */
};

/*
 * For the volume on `dev`.  *out: NULL when its log is within it, or when it is no
 * volume (which volume_open() explains).  On failure the reason has been told:
 *	-BE_NOLOG   not there, not a log, another volume's, cut short
 *	-BE_BUSY    in use
 *	-EINVAL     a path was given, but the log is within the volume
 */
int log_device_open(struct device **out, struct device *dev,
		    const struct log_device_request *request) must_check;

#endif
