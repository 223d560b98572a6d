/*
 * What is common to all devices: bounds, permissions and counting.
 *
 * INV-DEV-1: an implementation sees only transfers inside [0, size_bytes), of at
 * least one byte, aligned as it demands, and no write when the device is
 * read-only.
 * INV-DEV-2: the counters hold what has succeeded.
 * INV-DEV-6: `flushed` is never above what is durable: a write counts when it has
 * ended, a flush covers the writes counted before it began.  A discard is no write
 * here: nobody needs it to be durable.
 * INV-OS-3: transfers and flushes may keep the thread: os_may_block() comes first.
 */
#include "engine/dev/device.h"

#include "engine/base/os.h"

#include <errno.h>

static int transfer_error(const struct device *dev, size_t len, uint64_t offset, bool is_write)
{
	if (is_write && dev->read_only)
		return -EROFS;
	if (offset > dev->size_bytes || len > dev->size_bytes - offset)
		return -EIO;
	return 0;
}

static bool is_aligned(const struct device *dev, const void *buf, size_t len, uint64_t offset)
{
	return dev->align <= 1 || (((uintptr_t)buf | len | offset) & (dev->align - 1)) == 0;
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
	check(is_aligned(dev, buf, len, offset));
	os_may_block();
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
	check(is_aligned(dev, buf, len, offset));
	os_may_block();
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

static void count_batch(struct device *dev, const struct dev_request *requests, size_t count)
{
	uint64_t writes = 0;

	for (size_t i = 0; i < count; i++) {
		writes += requests[i].is_write;
		if (!requests[i].result)
			count_transfer(dev, requests[i].len, requests[i].is_write);
	}
	if (writes)
		note_written(dev, writes);
}

static int run_batch(struct device *dev, struct dev_request *requests, size_t count)
{
	int first;

	for (size_t i = 0; i < count; i++)
		check(is_aligned(dev, requests[i].buf, requests[i].len, requests[i].offset));
	os_may_block();
	first = dev->ops->batch ? dev->ops->batch(dev, requests, count)
				: run_one_by_one(dev, requests, count);
	count_batch(dev, requests, count);
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

static void count_flush(struct device *dev, uint64_t written)
{
	note_flushed(dev, written);
	if (dev->stats)
		stat_add(dev->stats, STAT_dev_flushes, 1);
}

int dev_flush(struct device *dev)
{
	struct device *flushed = dev->base ? dev->base : dev;
	uint64_t written = atomic_load(&flushed->written);
	int error;

	os_may_block();
	error = flushed->ops->flush(flushed);
	if (!error)
		count_flush(flushed, written);
	return error;
}

int dev_flush_up_to(struct device *dev, uint64_t written)
{
	return atomic_load(&dev->flushed) >= written ? 0 : dev_flush(dev);
}

int dev_flush_written(struct device *dev)
{
	return atomic_load(&dev->flushed) >= atomic_load(&dev->written) ? 0 : dev_flush(dev);
}

void dev_flush_begin(struct device *dev, struct dev_flush *flush)
{
	check(!dev->base);
	*flush = (struct dev_flush){.dev = dev, .written = atomic_load(&dev->written)};
	flush->needed = atomic_load(&dev->flushed) < flush->written;
	if (flush->needed && dev->ops->flush_begin)
		dev->ops->flush_begin(dev, flush);
}

int dev_flush_end(struct dev_flush *flush)
{
	struct device *dev = flush->dev;
	int error;

	if (!flush->needed)
		return 0;
	error = dev->ops->flush_end ? dev->ops->flush_end(flush) : dev->ops->flush(dev);
	if (!error)
		count_flush(dev, flush->written);
	return error;
}

int dev_resize(struct device *dev, uint64_t size_bytes)
{
	int error;

	if (size_bytes == dev->size_bytes)
		return 0;
	if (dev->read_only)
		return -EROFS;
	error = dev->ops->resize ? dev->ops->resize(dev, size_bytes) : -EOPNOTSUPP;
	if (!error)
		dev->size_bytes = size_bytes;
	return error;
}

int dev_measure(struct device *dev)
{
	uint64_t size_bytes = 0;
	int error = dev->ops->measure ? dev->ops->measure(dev, &size_bytes) : 0;

	if (!error && size_bytes > dev->size_bytes)
		dev->size_bytes = size_bytes;
	return error;
}

int dev_discard(struct device *dev, uint64_t offset, uint64_t len)
{
	int error = transfer_error(dev, len, offset, true);

	check(!dev->base);
	if (error || len == 0)
		return error;
	if (!dev->ops->discard)
		return -EOPNOTSUPP;
	os_may_block();
	error = dev->ops->discard(dev, offset, len);
	if (!error && dev->stats) {
		stat_add(dev->stats, STAT_dev_discards, 1);
		stat_add(dev->stats, STAT_dev_discard_bytes, len);
	}
	return error;
}

void dev_close(struct device *dev)
{
	if (dev)
		dev->ops->close(dev);
}

/* --- lanes and mappings ---------------------------------------------------- */

int dev_open_lane(struct device **out, struct device *dev, unsigned flags, uint64_t offset,
		  uint64_t len)
{
	int error = transfer_error(dev, len, offset, true);

	check(!dev->base);
	if (!error && !dev->ops->open_lane)
		error = -EOPNOTSUPP;
	if (!error)
		error = dev->ops->open_lane(dev, flags, offset, len, out);
	if (error)
		return error;
	(*out)->base = dev;
	(*out)->stats = dev->stats;
	return 0;
}

int dev_write_beside_flush(struct device *lane, struct dev_request *requests, size_t count)
{
	struct device *base = lane->base;
	uint64_t written = atomic_load(&base->written);
	int error;

	if (atomic_load(&base->flushed) >= written)
		return dev_batch(lane, requests, count);
	if (valid_run(lane, requests, count) < count)
		return -EIO;
	for (size_t i = 0; i < count; i++)
		check(is_aligned(lane, requests[i].buf, requests[i].len, requests[i].offset));
	os_may_block();
	error = lane->ops->write_beside_flush(lane, requests, count);
	count_batch(lane, requests, count);
	if (!error)
		count_flush(base, written);
	return error;
}

int dev_map(struct device *dev, uint64_t offset, uint64_t len, struct dev_map *map)
{
	int error = transfer_error(dev, len, offset, true);

	*map = (struct dev_map){.offset = offset, .len = len};
	if (error)
		return error;
	check(len && (offset | len) % DEV_MAP_LINE == 0);
	return dev->ops->map ? dev->ops->map(dev, map) : -EOPNOTSUPP;
}

void dev_persist(struct device *dev, const struct dev_map *map, const void *at, size_t len)
{
	const uint8_t *from = at;
	const uint8_t *end = map->at + map->len;

	check(map->byte_addressable && from >= map->at && from <= end &&
	      len <= (size_t)(end - from));
	dev->ops->persist(dev, map, at, len);
}

void dev_unmap(struct device *dev, struct dev_map *map)
{
	if (map->at)
		dev->ops->unmap(dev, map);
	map->at = NULL;
}
