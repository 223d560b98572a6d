/*
 * What is common to all devices: bounds, permissions and counting.
 *
 * INV-DEV-1: an implementation sees only transfers inside [0, size_bytes), of at
 * least one byte, and no write when the device is read-only.
 * INV-DEV-2: the counters hold what has succeeded.
 * INV-DEV-6: `flushed` is never above what is durable: a write counts when it has
 * ended, a flush covers the writes counted before it began.
 */
#include "engine/dev/device.h"

#include <errno.h>

static int transfer_error(const struct device *dev, size_t len, uint64_t offset, bool is_write)
{
	if (is_write && dev->read_only)
		return -EROFS;
	if (offset > dev->size_bytes || len > dev->size_bytes - offset)
		return -EIO;
	return 0;
}

/* Failed writes too: a part of them may have arrived. */
static void note_written(struct device *dev, uint64_t writes)
{
	atomic_fetch_add(&dev->written, writes);
}

static void note_flushed(struct device *dev, uint64_t written)
{
	uint64_t flushed = atomic_load(&dev->flushed);

	while (flushed < written &&
	       !atomic_compare_exchange_weak(&dev->flushed, &flushed, written))
		;
}

static void count_transfer(struct device *dev, size_t len, bool is_write)
{
	if (!dev->stats)
		return;
	stat_add(dev->stats, is_write ? STAT_dev_writes : STAT_dev_reads, 1);
	stat_add(dev->stats, is_write ? STAT_dev_write_bytes : STAT_dev_read_bytes, len);
}

int dev_read(struct device *dev, void *buf, size_t len, uint64_t offset)
{
	int error = transfer_error(dev, len, offset, false);

	if (error || len == 0)
		return error;
	error = dev->ops->read(dev, buf, len, offset);
	if (!error)
		count_transfer(dev, len, false);
	return error;
}

int dev_write(struct device *dev, const void *buf, size_t len, uint64_t offset)
{
	int error = transfer_error(dev, len, offset, true);

	if (error || len == 0)
		return error;
	error = dev->ops->write(dev, buf, len, offset);
	note_written(dev, 1);
	if (!error)
		count_transfer(dev, len, true);
	return error;
}

/* Length of the run of requests, from the first on, that the implementation may see. */
static size_t valid_run(const struct device *dev, const struct dev_request *requests, size_t count)
{
	size_t run = 0;

	while (run < count && requests[run].len > 0 &&
	       !transfer_error(dev, requests[run].len, requests[run].offset,
			       requests[run].is_write))
		run++;
	return run;
}

static int run_one_by_one(struct device *dev, struct dev_request *requests, size_t count)
{
	int first = 0;

	for (size_t i = 0; i < count; i++) {
		struct dev_request *r = &requests[i];

		r->result = r->is_write ? dev->ops->write(dev, r->buf, r->len, r->offset)
					: dev->ops->read(dev, r->buf, r->len, r->offset);
		first = first ? first : r->result;
	}
	return first;
}

static int run_batch(struct device *dev, struct dev_request *requests, size_t count)
{
	int first = dev->ops->batch ? dev->ops->batch(dev, requests, count)
				    : run_one_by_one(dev, requests, count);
	uint64_t writes = 0;

	for (size_t i = 0; i < count; i++) {
		writes += requests[i].is_write;
		if (!requests[i].result)
			count_transfer(dev, requests[i].len, requests[i].is_write);
	}
	note_written(dev, writes);
	return first;
}

int dev_batch(struct device *dev, struct dev_request *requests, size_t count)
{
	int first = 0;

	for (size_t i = 0; i < count;) {
		size_t run = valid_run(dev, requests + i, count - i);
		struct dev_request *stopped = &requests[i + run];
		int error = run > 0 ? run_batch(dev, requests + i, run) : 0;

		first = first ? first : error;
		i += run;
		if (i < count) {
			stopped->result = transfer_error(dev, stopped->len, stopped->offset,
							 stopped->is_write);
			first = first ? first : stopped->result;
			i++;
		}
	}
	return first;
}

int dev_flush(struct device *dev)
{
	uint64_t written = atomic_load(&dev->written);
	int error = dev->ops->flush(dev);

	if (error)
		return error;
	note_flushed(dev, written);
	if (dev->stats)
		stat_add(dev->stats, STAT_dev_flushes, 1);
	return 0;
}

int dev_flush_up_to(struct device *dev, uint64_t written)
{
	return atomic_load(&dev->flushed) >= written ? 0 : dev_flush(dev);
}

void dev_close(struct device *dev)
{
	if (dev)
		dev->ops->close(dev);
}
