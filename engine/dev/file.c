/*
 * A regular file or block device: transfers, flushes, opening.
 *
 * One transfer is a pread() or pwrite(): nothing is faster.  Batches are in
 * file_ring.c.
 *
 * INV-DEV-3: when a call returns, the kernel no longer uses its buffers,
 * whatever has failed.
 * INV-DEV-5: a failure to write back is final and nobody's flush misses it.  The
 * kernel reports such an error once to each open file description, so
 * concurrent flushes go through descriptions of their own: none can use up the
 * report that another one waits for.  From the first failure on all flushes
 * fail.
 * INV-REC-2: the lock is on the description that does the I/O.  Requests in
 * flight of a process that died pin this description, and so the lock: whoever
 * gets it next knows that no write of its predecessor is still to come.
 */
#include "engine/dev/file_internal.h"

#include "engine/base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_POLL_NS 10000000ull
#define FILE_BLOCK_BYTES 512u /* of a regular file: a sector of most disks */

void file_sleep(uint64_t ns)
{
	_Atomic uint32_t never = 0;

	os_wait(&never, 0, ns);
}

/* --- one transfer -------------------------------------------------------- */

int file_transfer(int fd, void *buf, size_t len, uint64_t offset, bool is_write)
{
	char *at = buf;

	while (len > 0) {
		size_t piece = len < TRANSFER_BYTES_MAX ? len : TRANSFER_BYTES_MAX;
		ssize_t n = is_write ? pwrite(fd, at, piece, (off_t)offset)
				     : pread(fd, at, piece, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EIO; /* shorter than it was when opened */
		at += n;
		offset += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int file_read(struct device *dev, void *buf, size_t len, uint64_t offset)
{
	return file_transfer(file_device(dev)->fd, buf, len, offset, false);
}

int file_write(struct device *dev, const void *buf, size_t len, uint64_t offset)
{
	return file_transfer(file_device(dev)->fd, (void *)buf, len, offset, true);
}

unsigned file_flusher_take(struct file_device *file)
{
	for (unsigned i = 0; i < FLUSHERS; i++)
		if (latch_try_x(&file->flusher[i].latch))
			return i;
	latch_x(&file->flusher[0].latch);
	return 0;
}

int file_flusher_give(struct file_device *file, unsigned i, int error)
{
	int sticky = 0;

	if (error)
		atomic_compare_exchange_strong(&file->flush_error, &sticky, error);
	unlatch_x(&file->flusher[i].latch);
	return error;
}

static int file_flush(struct device *dev)
{
	struct file_device *file = file_device(dev);
	unsigned i = file_flusher_take(file);
	int error = atomic_load(&file->flush_error);

	if (error == 0 && fdatasync(file->flusher[i].fd) != 0)
		error = -errno;
	return file_flusher_give(file, i, error);
}

int file_reopen(int fd, int os_flags)
{
	char path[64];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, os_flags | O_CLOEXEC);
	return again < 0 ? -errno : again;
}

static int open_flushers(struct file_device *file)
{
	int os_flags = file->dev.read_only ? O_RDONLY : O_RDWR;

	for (unsigned i = 0; i < FLUSHERS; i++) {
		int fd = file_reopen(file->fd, os_flags);

		if (fd < 0)
			return fd;
		file->flusher[i].fd = fd;
	}
	file->beside_fd = file_reopen(file->fd, os_flags);
	return file->beside_fd < 0 ? file->beside_fd : 0;
}

static int file_resize(struct device *dev, uint64_t size_bytes)
{
	struct file_device *file = file_device(dev);

	if (file->is_block)
		return -EOPNOTSUPP;
	while (ftruncate(file->fd, (off_t)size_bytes) != 0)
		if (errno != EINTR)
			return -errno;
	return fsync(file->fd) != 0 ? -errno : 0;
}

/* --- opening ------------------------------------------------------------- */

/* Time left until the deadline, at most one poll; 0 when it has passed. */
static uint64_t poll_ns(uint64_t start_ns, uint64_t wait_ns)
{
	uint64_t waited_ns = os_mono_ns() - start_ns;
	uint64_t left_ns = waited_ns < wait_ns ? wait_ns - waited_ns : 0;

	return left_ns < LOCK_POLL_NS ? left_ns : LOCK_POLL_NS;
}

/*
 * Readers that share a block device cannot open it O_EXCL, which would keep
 * them from each other; the lock alone keeps writers out.
 */
static int open_flags(unsigned flags, bool is_block)
{
	bool exclusive = is_block && !(flags & (DEV_NO_LOCK | DEV_SHARED_LOCK));

	return (flags & DEV_READ_ONLY ? O_RDONLY : O_RDWR) | (exclusive ? O_EXCL : 0) | O_CLOEXEC;
}

/* EBUSY is what O_EXCL gives while somebody else has the block device. */
static int open_waiting(const char *path, int os_flags, uint64_t start_ns, uint64_t wait_ns)
{
	for (;;) {
		int fd = open(path, os_flags);
		uint64_t pause_ns;

		if (fd >= 0)
			return fd;
		if (errno == EINTR)
			continue;
		if (errno != EBUSY)
			return -errno;
		pause_ns = poll_ns(start_ns, wait_ns);
		if (pause_ns == 0)
			return -BE_BUSY;
		file_sleep(pause_ns);
	}
}

int file_lock(int fd, short type, uint64_t offset, uint64_t len)
{
	struct flock lock = {
		.l_type = type,
		.l_whence = SEEK_SET,
		.l_start = (off_t)offset,
		.l_len = (off_t)len,
	};

	while (fcntl(fd, F_OFD_SETLK, &lock) != 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

static int lock_waiting(int fd, short type, uint64_t start_ns, uint64_t wait_ns)
{
	for (;;) {
		uint64_t pause_ns;
		int error = file_lock(fd, type, 0, 0);

		if (error != -EAGAIN && error != -EACCES)
			return error;
		pause_ns = poll_ns(start_ns, wait_ns);
		if (pause_ns == 0)
			return -BE_BUSY;
		file_sleep(pause_ns);
	}
}

static int stat_kind(const struct stat *st)
{
	if (S_ISREG(st->st_mode) || S_ISBLK(st->st_mode))
		return 0;
	return S_ISDIR(st->st_mode) ? -EISDIR : -EINVAL;
}

static int file_measure(struct device *dev, uint64_t *size_bytes)
{
	struct file_device *file = file_device(dev);
	struct stat st;

	if (file->is_block)
		return ioctl(file->fd, BLKGETSIZE64, size_bytes) == 0 ? 0 : -errno;
	if (fstat(file->fd, &st) != 0)
		return -errno;
	*size_bytes = (uint64_t)st.st_size;
	return 0;
}

/*
 * A file gets a hole, a block device is told.  There is no request for the latter that
 * io_uring of every kernel knows, and neither is worth a ring: whoever discards has a
 * thread of his own.
 */
static int file_discard(struct device *dev, uint64_t offset, uint64_t len)
{
	struct file_device *file = file_device(dev);
	int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, rc;
	uint64_t range[2] = {offset, len};

	do {
		rc = file->is_block ? ioctl(file->fd, BLKDISCARD, range)
				    : fallocate(file->fd, mode, (off_t)offset, (off_t)len);
	} while (rc != 0 && errno == EINTR);
	if (rc == 0)
		return 0;
	return errno == ENOSYS || errno == ENOTTY ? -EOPNOTSUPP : -errno;
}

static int size_of(struct file_device *file)
{
	int block_bytes = FILE_BLOCK_BYTES;
	uint64_t size_bytes;
	struct stat st;
	int error;

	if (fstat(file->fd, &st) != 0)
		return -errno;
	error = stat_kind(&st);
	if (error)
		return error;
	file->is_block = S_ISBLK(st.st_mode);
	error = file_measure(&file->dev, &size_bytes);
	if (error)
		return error;
	file->dev.size_bytes = size_bytes;
	if (file->is_block && ioctl(file->fd, BLKSSZGET, &block_bytes) != 0)
		return -errno;
	file->dev.byte_addressable = !file->is_block && file_is_memory(file->fd);
	file->dev.block_bytes = file->dev.byte_addressable ? DEV_MAP_LINE : (uint32_t)block_bytes;
	return 0;
}

void file_close(struct device *dev)
{
	struct file_device *file = file_device(dev);

	file_rings_close(file);
	for (unsigned i = 0; i < FLUSHERS; i++)
		if (file->flusher[i].fd >= 0)
			close(file->flusher[i].fd);
	if (file->beside_fd >= 0)
		close(file->beside_fd);
	if (file->direct_fd >= 0)
		close(file->direct_fd);
	if (file->fd >= 0)
		close(file->fd);
	free(file);
}

static const struct device_ops file_ops = {
	.read = file_read,
	.write = file_write,
	.batch = file_batch,
	.flush = file_flush,
	.close = file_close,
	.flush_begin = file_flush_begin,
	.flush_end = file_flush_end,
	.resize = file_resize,
	.measure = file_measure,
	.discard = file_discard,
	.open_lane = file_open_lane,
	.map = file_map,
	.persist = file_persist,
	.unmap = file_unmap,
};

static int open_and_lock(struct file_device *file, const char *path, unsigned flags,
			 uint64_t wait_ns)
{
	uint64_t start_ns = os_mono_ns();
	bool shared = flags & (DEV_READ_ONLY | DEV_SHARED_LOCK);
	struct stat st;
	int error;

	/* Looks before it opens: opening a FIFO would wait, opening a tape would act. */
	if (stat(path, &st) != 0)
		return -errno;
	error = stat_kind(&st);
	if (error)
		return error;
	file->fd = open_waiting(path, open_flags(flags, S_ISBLK(st.st_mode)), start_ns, wait_ns);
	if (file->fd < 0)
		return file->fd;
	if (!(flags & DEV_NO_LOCK)) {
		error = lock_waiting(file->fd, shared ? F_RDLCK : F_WRLCK, start_ns, wait_ns);
		if (error)
			return error;
		file->is_locked = !shared;
	}
	/* Only now: a predecessor may still have changed it. */
	error = size_of(file);
	if (!error)
		error = open_flushers(file);
	return error ? error : file_open_direct(file);
}

int dev_open_file(struct device **out, const char *path, unsigned flags, uint64_t wait_ns)
{
	struct file_device *file = calloc(1, sizeof(*file));
	int error;

	latch_check_may_wait();
	if (!file)
		return -ENOMEM;
	file->dev.ops = &file_ops;
	file->dev.read_only = flags & DEV_READ_ONLY;
	file->fd = file->beside_fd = file->direct_fd = -1;
	for (unsigned i = 0; i < FLUSHERS; i++) {
		latch_init(&file->flusher[i].latch, RANK_DEVICE, i);
		file->flusher[i].fd = -1;
	}
	snprintf(file->dev.path, sizeof(file->dev.path), "%s", path);
	error = open_and_lock(file, path, flags, wait_ns);
	if (error) {
		file_close(&file->dev);
		return error;
	}
	*out = &file->dev;
	return 0;
}
