/*
 * A regular file or block device.
 *
 * One transfer is a pread() or pwrite(): nothing is faster.  A batch goes
 * through io_uring, in slices of one ring; rings are made when first needed
 * and kept in a pool, from which each call takes one for itself.  Where the
 * kernel refuses a ring, the batch is done one by one.
 *
 * INV-DEV-3: when a call returns, the kernel no longer uses its buffers,
 * whatever has failed.
 * INV-DEV-4: a ring in the pool has nothing in flight and nothing queued.
 * INV-DEV-5: a failure to write back is final and nobody's flush misses it.  The
 * kernel reports such an error once to each open file description, so
 * concurrent flushes go through descriptions of their own: none can use up the
 * report that another one waits for.  From the first failure on all flushes
 * fail.
 * INV-REC-2: the lock is on the description that does the I/O.  Requests in
 * flight of a process that died pin this description, and so the lock: whoever
 * gets it next knows that no write of its predecessor is still to come.
 */
#include "engine/base/error.h"
#include "engine/base/latch.h"
#include "engine/base/os.h"
#include "engine/dev/device.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define RING_ENTRIES 64u            /* slice of a batch: enough to fill an SSD's queue */
#define RINGS_KEPT 16u              /* more threads than that may have rings, but not keep them */
#define TRANSFER_BYTES_MAX (1u << 30) /* the kernel ends a transfer at 2 GiB less a page */
#define FLUSHERS 4u                 /* concurrent flushes; more take turns */
#define LOCK_POLL_NS 10000000ull
#define REAP_PAUSE_NS 1000000ull

struct file_device {
	struct device dev;
	int fd;                     /* all transfers, and the lock */
	struct {
		struct latch latch; /* held over a flush through fd */
		int fd;
	} flusher[FLUSHERS];
	_Atomic int flush_error;    /* sticky */
	atomic_bool no_rings;       /* the kernel will never give one */
	_Atomic(struct io_uring *) rings[RINGS_KEPT];
};

static struct file_device *file_device(struct device *dev)
{
	return container_of(dev, struct file_device, dev);
}

static void sleep_ns(uint64_t ns)
{
	const struct os *os = os_current();
	_Atomic uint32_t never = 0;

	os->wait(os, &never, 0, ns);
}

/* --- one transfer -------------------------------------------------------- */

static int transfer(int fd, void *buf, size_t len, uint64_t offset, bool is_write)
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

static int file_read(struct device *dev, void *buf, size_t len, uint64_t offset)
{
	return transfer(file_device(dev)->fd, buf, len, offset, false);
}

static int file_write(struct device *dev, const void *buf, size_t len, uint64_t offset)
{
	return transfer(file_device(dev)->fd, (void *)buf, len, offset, true);
}

static unsigned flusher_take(struct file_device *file)
{
	for (unsigned i = 0; i < FLUSHERS; i++)
		if (latch_try_x(&file->flusher[i].latch))
			return i;
	latch_x(&file->flusher[0].latch);
	return 0;
}

static int file_flush(struct device *dev)
{
	struct file_device *file = file_device(dev);
	unsigned i = flusher_take(file);
	int error = atomic_load(&file->flush_error);

	if (error == 0 && fdatasync(file->flusher[i].fd) != 0) {
		error = -errno;
		atomic_store(&file->flush_error, error);
	}
	unlatch_x(&file->flusher[i].latch);
	return error;
}

/* Descriptions for flushing: of the same file, whatever its name is by now. */
static int open_flushers(struct file_device *file)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
	for (unsigned i = 0; i < FLUSHERS; i++) {
		file->flusher[i].fd =
			open(path, (file->dev.read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
		if (file->flusher[i].fd < 0)
			return -errno;
	}
	return 0;
}

/* --- the pool of rings --------------------------------------------------- */

static void ring_destroy(struct io_uring *ring)
{
	io_uring_queue_exit(ring);
	free(ring);
}

static struct io_uring *ring_create(struct file_device *file)
{
	struct io_uring *ring = malloc(sizeof(*ring));
	int error;

	if (!ring)
		return NULL;
	error = io_uring_queue_init(RING_ENTRIES, ring, 0);
	if (!error)
		return ring;
	if (error == -ENOSYS || error == -EPERM)
		atomic_store_explicit(&file->no_rings, true, memory_order_relaxed);
	free(ring);
	return NULL;
}

/* NULL: do without. */
static struct io_uring *ring_take(struct file_device *file)
{
	if (atomic_load_explicit(&file->no_rings, memory_order_relaxed))
		return NULL;
	for (unsigned i = 0; i < RINGS_KEPT; i++) {
		struct io_uring *ring = atomic_exchange(&file->rings[i], NULL);

		if (ring)
			return ring;
	}
	return ring_create(file);
}

static void ring_put(struct file_device *file, struct io_uring *ring)
{
	for (unsigned i = 0; i < RINGS_KEPT; i++) {
		struct io_uring *none = NULL;

		if (atomic_compare_exchange_strong(&file->rings[i], &none, ring))
			return;
	}
	ring_destroy(ring);
}

/* --- batches ------------------------------------------------------------- */

#define RESULT_PENDING 1 /* no request was made, or it has to be made again */

static void prepare(struct io_uring *ring, int fd, struct dev_request *request)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	unsigned len = request->len < TRANSFER_BYTES_MAX ? (unsigned)request->len
							 : TRANSFER_BYTES_MAX;

	check(sqe != NULL); /* by INV-DEV-4 and the size of a slice */
	if (request->is_write)
		io_uring_prep_write(sqe, fd, request->buf, len, request->offset);
	else
		io_uring_prep_read(sqe, fd, request->buf, len, request->offset);
	io_uring_sqe_set_data(sqe, request);
	request->result = RESULT_PENDING;
}

/* A short transfer, or one that the kernel wants to see again, goes on with pread or pwrite. */
static void complete(int fd, struct dev_request *request, int n)
{
	if (n == -EINTR || n == -EAGAIN)
		n = 0;
	if (n < 0)
		request->result = n;
	else
		request->result = transfer(fd, (char *)request->buf + n, request->len - (size_t)n,
					   request->offset + (uint64_t)n, request->is_write);
}

/* Waits for `count` completions.  Cannot fail: the kernel owns their buffers until then. */
static void reap(struct io_uring *ring, int fd, size_t count)
{
	while (count > 0) {
		struct io_uring_cqe *cqe;
		int error = io_uring_wait_cqe(ring, &cqe);

		if (error) {
			if (error != -EINTR)
				sleep_ns(REAP_PAUSE_NS);
			continue;
		}
		complete(fd, io_uring_cqe_get_data(cqe), cqe->res);
		io_uring_cqe_seen(ring, cqe);
		count--;
	}
}

/*
 * Performs up to RING_ENTRIES requests.  Returns false when the kernel did not
 * take all of them; the ring must then not be used again (INV-DEV-4), and the
 * requests that are still pending have not been made.
 */
static bool run_slice(struct io_uring *ring, int fd, struct dev_request *requests, size_t count)
{
	size_t submitted = 0;

	for (size_t i = 0; i < count; i++)
		prepare(ring, fd, &requests[i]);
	while (submitted < count) {
		int n = io_uring_submit_and_wait(ring, (unsigned)(count - submitted));

		if (n == -EINTR)
			continue;
		if (n <= 0)
			break;
		submitted += (size_t)n;
	}
	reap(ring, fd, submitted);
	return submitted == count;
}

static void run_pending(int fd, struct dev_request *requests, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (requests[i].result == RESULT_PENDING)
			requests[i].result = transfer(fd, requests[i].buf, requests[i].len,
						      requests[i].offset, requests[i].is_write);
}

static void run_on_ring(struct file_device *file, struct dev_request *requests, size_t count)
{
	struct io_uring *ring = ring_take(file);
	bool intact = ring != NULL;

	for (size_t done = 0; intact && done < count; done += RING_ENTRIES) {
		size_t left = count - done;

		intact = run_slice(ring, file->fd, requests + done,
				   left < RING_ENTRIES ? left : RING_ENTRIES);
	}
	if (intact)
		ring_put(file, ring);
	else if (ring)
		ring_destroy(ring);
}

static int file_batch(struct device *dev, struct dev_request *requests, size_t count)
{
	struct file_device *file = file_device(dev);
	int first = 0;

	for (size_t i = 0; i < count; i++)
		requests[i].result = RESULT_PENDING;
	if (count > 1)
		run_on_ring(file, requests, count);
	run_pending(file->fd, requests, count);
	for (size_t i = 0; i < count && !first; i++)
		first = requests[i].result;
	return first;
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
		sleep_ns(pause_ns);
	}
}

static int lock_waiting(int fd, unsigned flags, uint64_t start_ns, uint64_t wait_ns)
{
	bool shared = flags & (DEV_READ_ONLY | DEV_SHARED_LOCK);

	for (;;) {
		struct flock lock = {
			.l_type = shared ? F_RDLCK : F_WRLCK,
			.l_whence = SEEK_SET,
		};
		uint64_t pause_ns;

		if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
			return 0;
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN && errno != EACCES)
			return -errno;
		pause_ns = poll_ns(start_ns, wait_ns);
		if (pause_ns == 0)
			return -BE_BUSY;
		sleep_ns(pause_ns);
	}
}

static int stat_kind(const struct stat *st)
{
	if (S_ISREG(st->st_mode) || S_ISBLK(st->st_mode))
		return 0;
	return S_ISDIR(st->st_mode) ? -EISDIR : -EINVAL;
}

static int size_of(int fd, uint64_t *size_bytes)
{
	struct stat st;
	int error;

	if (fstat(fd, &st) != 0)
		return -errno;
	error = stat_kind(&st);
	if (error)
		return error;
	*size_bytes = (uint64_t)st.st_size;
	if (S_ISBLK(st.st_mode) && ioctl(fd, BLKGETSIZE64, size_bytes) != 0)
		return -errno;
	return 0;
}

static void file_close(struct device *dev)
{
	struct file_device *file = file_device(dev);

	for (unsigned i = 0; i < RINGS_KEPT; i++) {
		struct io_uring *ring = atomic_exchange(&file->rings[i], NULL);

		if (ring)
			ring_destroy(ring);
	}
	for (unsigned i = 0; i < FLUSHERS; i++)
		if (file->flusher[i].fd >= 0)
			close(file->flusher[i].fd);
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
};

static int open_and_lock(struct file_device *file, const char *path, unsigned flags,
			 uint64_t wait_ns)
{
	uint64_t start_ns = os_mono_ns();
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
		error = lock_waiting(file->fd, flags, start_ns, wait_ns);
		if (error)
			return error;
	}
	/* Only now: a predecessor may still have changed it. */
	error = size_of(file->fd, &file->dev.size_bytes);
	return error ? error : open_flushers(file);
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
	file->fd = -1;
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
