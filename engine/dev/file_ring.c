/*
 * Batches of a file device through io_uring, in slices of one ring; rings are
 * made when first needed and kept in a pool, from which each call takes one for
 * itself.  Where the kernel refuses a ring, the batch is done one by one.
 *
 * INV-DEV-4: a ring in the pool has nothing in flight and nothing queued.
 */
#include "engine/dev/file_internal.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <unistd.h>

#define RING_ENTRIES 256u /* slice of a batch: all of a scattered MiB */
#define REAP_PAUSE_NS 1000000ull

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

static void prepare(struct io_uring *ring, const struct file_device *file,
		    struct dev_request *request)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	int fd = file_way(file, request);
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
static void complete(struct file_device *file, struct dev_request *request, int n)
{
	if (n == -EINTR || n == -EAGAIN || file_direct_refused(file, request, n))
		n = 0;
	if (n < 0)
		request->result = n;
	else
		request->result = file_transfer(file->fd, (char *)request->buf + n,
						request->len - (size_t)n,
						request->offset + (uint64_t)n, request->is_write);
}

/* What one slice carries: requests, and at most one flush beside them. */
struct slice {
	struct file_device *file;
	struct dev_request *requests;
	size_t count;
	int flush_fd;     /* < 0: no flush */
	int flush_result; /* RESULT_PENDING: not made */
};

static void prepare_flush(struct io_uring *ring, const struct slice *slice)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	check(sqe != NULL);
	io_uring_prep_fsync(sqe, slice->flush_fd, IORING_FSYNC_DATASYNC);
	io_uring_sqe_set_data(sqe, NULL);
}

static void completed(struct slice *slice, const struct io_uring_cqe *cqe)
{
	struct dev_request *request = io_uring_cqe_get_data(cqe);

	if (request)
		complete(slice->file, request, cqe->res);
	else if (cqe->res != -EINTR && cqe->res != -EAGAIN)
		slice->flush_result = cqe->res;
}

/* Waits for `count` completions.  Cannot fail: the kernel owns their buffers until then. */
static void reap(struct io_uring *ring, struct slice *slice, size_t count)
{
	while (count > 0) {
		struct io_uring_cqe *cqe;
		int error = io_uring_wait_cqe(ring, &cqe);

		if (error) {
			if (error != -EINTR)
				file_sleep(REAP_PAUSE_NS);
			continue;
		}
		completed(slice, cqe);
		io_uring_cqe_seen(ring, cqe);
		count--;
	}
}

/*
 * Performs up to RING_ENTRIES requests.  Returns false when the kernel did not
 * take all of them; the ring must then not be used again (INV-DEV-4), and the
 * requests that are still pending have not been made.
 */
static bool run_slice(struct io_uring *ring, struct slice *slice)
{
	size_t count = slice->count + (slice->flush_fd >= 0);
	size_t submitted = 0;

	check(count <= RING_ENTRIES);
	/* The flush first: another thread of the kernel's takes it on while we write. */
	if (slice->flush_fd >= 0)
		prepare_flush(ring, slice);
	for (size_t i = 0; i < slice->count; i++)
		prepare(ring, slice->file, &slice->requests[i]);
	while (submitted < count) {
		int n = io_uring_submit_and_wait(ring, (unsigned)(count - submitted));

		if (n == -EINTR)
			continue;
		if (n <= 0)
			break;
		submitted += (size_t)n;
	}
	reap(ring, slice, submitted);
	return submitted == count;
}

static int transfer(int fd, const struct dev_request *request)
{
	return file_transfer(fd, request->buf, request->len, request->offset, request->is_write);
}

static void run_pending(struct file_device *file, struct dev_request *requests, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct dev_request *request = &requests[i];

		if (request->result != RESULT_PENDING)
			continue;
		request->result = transfer(file_way(file, request), request);
		if (file_direct_refused(file, request, request->result))
			request->result = transfer(file->fd, request);
	}
}

static void run_on_ring(struct file_device *file, struct dev_request *requests, size_t count)
{
	struct io_uring *ring = ring_take(file);
	bool intact = ring != NULL;

	for (size_t done = 0; intact && done < count; done += RING_ENTRIES) {
		size_t left = count - done;
		struct slice slice = {
			.file = file,
			.requests = requests + done,
			.count = left < RING_ENTRIES ? left : RING_ENTRIES,
			.flush_fd = -1,
		};

		intact = run_slice(ring, &slice);
	}
	if (intact)
		ring_put(file, ring);
	else if (ring)
		ring_destroy(ring);
}

static int first_error(const struct dev_request *requests, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (requests[i].result)
			return requests[i].result;
	return 0;
}

static void all_pending(struct dev_request *requests, size_t count)
{
	for (size_t i = 0; i < count; i++)
		requests[i].result = RESULT_PENDING;
}

int file_batch(struct device *dev, struct dev_request *requests, size_t count)
{
	struct file_device *file = file_device(dev);

	all_pending(requests, count);
	if (count > 1)
		run_on_ring(file, requests, count);
	run_pending(file, requests, count);
	return first_error(requests, count);
}

/* --- a flush of the device beside writes to a lane of it ------------------ */

static void run_beside(struct file_device *lane, struct slice *slice)
{
	struct io_uring *ring = ring_take(lane);

	if (!ring)
		return;
	if (run_slice(ring, slice))
		ring_put(lane, ring);
	else
		ring_destroy(ring);
}

/* Without a ring: one after the other. */
int file_write_beside_flush(struct device *dev, struct dev_request *requests, size_t count)
{
	struct file_device *lane = file_device(dev);
	struct file_device *base = file_device(dev->base);
	unsigned i = file_flusher_take(base);
	struct slice slice = {
		.file = lane,
		.requests = requests,
		.count = count,
		.flush_fd = base->flusher[i].fd,
		.flush_result = RESULT_PENDING,
	};
	int error = atomic_load(&base->flush_error);

	all_pending(requests, count);
	if (!error) {
		run_beside(lane, &slice);
		run_pending(lane, requests, count);
		error = slice.flush_result;
		if (error == RESULT_PENDING)
			error = fdatasync(slice.flush_fd) ? -errno : 0;
	}
	error = file_flusher_give(base, i, error);
	return error ? error : first_error(requests, count);
}

/* --- a flush that begins and ends ----------------------------------------- */

/*
 * INV-DEV-5: through a description of its own, which no other flush uses: there
 * is one of these at a time.  Without a ring all of it is done at the end.
 */
void file_flush_begin(struct device *dev, struct dev_flush *flush)
{
	struct file_device *file = file_device(dev);
	struct slice slice = {.flush_fd = file->beside_fd};
	struct io_uring *ring = ring_take(file);

	if (!ring)
		return;
	prepare_flush(ring, &slice);
	if (io_uring_submit(ring) == 1)
		flush->ring = ring;
	else
		ring_destroy(ring);
}

int file_flush_end(struct dev_flush *flush)
{
	struct file_device *file = file_device(flush->dev);
	struct slice slice = {.flush_fd = file->beside_fd, .flush_result = RESULT_PENDING};
	int error, sticky = 0;

	if (flush->ring) {
		reap(flush->ring, &slice, 1);
		ring_put(file, flush->ring);
	}
	error = slice.flush_result;
	if (error == RESULT_PENDING)
		error = fdatasync(slice.flush_fd) ? -errno : 0;
	if (error)
		atomic_compare_exchange_strong(&file->flush_error, &sticky, error);
	return error ? error : atomic_load(&file->flush_error);
}

void file_rings_close(struct file_device *file)
{
	for (unsigned i = 0; i < RINGS_KEPT; i++) {
		struct io_uring *ring = atomic_exchange(&file->rings[i], NULL);

		if (ring)
			ring_destroy(ring);
	}
}
