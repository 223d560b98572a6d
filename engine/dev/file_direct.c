/*
 * Transfers past the kernel's cache of the medium: long runs of file data, which
 * the mount's own cache keeps already.  A second copy of them would cost as much
 * processor time again and drive out pages of the indexes, which are kept.
 *
 * The two ways may meet on the same bytes, since blocks change hands: the kernel
 * writes its dirty copies back before a direct transfer and drops them for a
 * direct write.  Nobody transfers one block both ways at once.
 *
 * INV-REC-2: a write in flight here pins this description, so it too holds a lock
 * that its successor has to wait for: one byte behind everything, which the other
 * description gives up first.  Nobody gets in between, since everybody asks for the
 * whole file.
 * INV-DEV-8: what cannot go this way (alignment, a filesystem without it, one that
 * refuses later) goes the other one, with the same result.
 */
#include "engine/dev/file_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define LOCK_BYTE ((uint64_t)INT64_MAX - 1) /* no medium is so large */

int file_open_direct(struct file_device *file)
{
	int error = 0;

	file->direct_align = file_direct_align(file);
	if (file->dev.byte_addressable || file->direct_align == 0)
		return 0;
	file->direct_fd = file_reopen(file->fd, O_DIRECT |
				      (file->dev.read_only ? O_RDONLY : O_RDWR));
	if (file->direct_fd < 0 || !file->is_locked)
		return 0;
	error = file_lock(file->fd, F_UNLCK, LOCK_BYTE, 1);
	return error ? error : file_lock(file->direct_fd, F_WRLCK, LOCK_BYTE, 1);
}

int file_way(const struct file_device *file, const struct dev_request *request)
{
	uint64_t bits = (uintptr_t)request->buf | request->len | request->offset;

	if (!request->past_cache || file->direct_fd < 0 || bits % file->direct_align ||
	    atomic_load_explicit(&file->no_direct, memory_order_relaxed))
		return file->fd;
	if (file->dev.stats)
		stat_add(file->dev.stats, STAT_dev_direct_bytes, request->len);
	return file->direct_fd;
}

bool file_direct_refused(struct file_device *file, const struct dev_request *request, int error)
{
	if (error != -EINVAL || !request->past_cache || file->direct_fd < 0)
		return false;
	atomic_store_explicit(&file->no_direct, true, memory_order_relaxed);
	return true;
}
