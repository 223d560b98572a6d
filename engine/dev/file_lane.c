/*
 * A lane of a file device: a second description of the same file, opened
 * O_DIRECT, with or without O_DSYNC.
 *
 * INV-REC-2 for lanes: what is in flight through a lane must keep the next mount
 * waiting, should this process die.  So the lane's region is locked by the
 * lane's own description.  The device gives that part of its lock up first;
 * nobody can get in between, since everybody asks for the whole file, of which
 * the device keeps the rest.  A lane that only reads needs none of it.
 */
#include "engine/dev/file_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/stat.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIRECT_ALIGN_UNKNOWN 4096u /* where the kernel does not say: no disk wants more */

static const struct device_ops lane_ops = {
	.read = file_read,
	.write = file_write,
	.batch = file_batch,
	.close = file_close,
	.write_beside_flush = file_write_beside_flush,
};

uint32_t file_direct_align(const struct file_device *file)
{
	uint32_t align = DIRECT_ALIGN_UNKNOWN;
	int sector;

	if (file->is_block)
		return ioctl(file->fd, BLKSSZGET, &sector) == 0 ? (uint32_t)sector : 0;
#ifdef STATX_DIOALIGN
	struct statx stx;

	if (statx(file->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 &&
	    (stx.stx_mask & STATX_DIOALIGN)) {
		align = stx.stx_dio_offset_align > stx.stx_dio_mem_align ? stx.stx_dio_offset_align
									 : stx.stx_dio_mem_align;
	}
#endif
	return align;
}

static int take_lock(const struct file_device *file, int fd, uint64_t offset, uint64_t len)
{
	int error = file->is_locked ? file_lock(file->fd, F_UNLCK, offset, len) : 0;

	return !error && file->is_locked ? file_lock(fd, F_WRLCK, offset, len) : error;
}

static int open_description(const struct file_device *file, unsigned flags)
{
	int access = flags & LANE_READ ? O_RDONLY : O_RDWR;
	int fd = file_reopen(file->fd, access | O_DIRECT | (flags & LANE_DSYNC ? O_DSYNC : 0));

	return fd == -EINVAL ? -EOPNOTSUPP : fd;
}

int file_open_lane(struct device *dev, unsigned flags, uint64_t offset, uint64_t len,
		   struct device **out)
{
	struct file_device *file = file_device(dev);
	struct file_device *lane;
	uint32_t align = file_direct_align(file);
	int error = -EOPNOTSUPP;

	if (!(flags & LANE_DIRECT) || align == 0 || (offset | len) % align)
		return error;
	lane = calloc(1, sizeof(*lane));
	if (!lane)
		return -ENOMEM;
	lane->dev.ops = &lane_ops;
	lane->dev.size_bytes = dev->size_bytes;
	lane->dev.block_bytes = dev->block_bytes;
	lane->dev.align = align;
	snprintf(lane->dev.path, sizeof(lane->dev.path), "%s", dev->path);
	for (unsigned i = 0; i < FLUSHERS; i++)
		lane->flusher[i].fd = -1;
	lane->beside_fd = lane->direct_fd = -1;
	lane->fd = open_description(file, flags);
	lane->dev.read_only = flags & LANE_READ;
	error = lane->fd < 0 ? lane->fd : 0;
	if (!error && !(flags & LANE_READ))
		error = take_lock(file, lane->fd, offset, len);
	if (error) {
		file_close(&lane->dev);
		return error;
	}
	*out = &lane->dev;
	return 0;
}
