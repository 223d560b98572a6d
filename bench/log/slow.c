/* A device over another whose flushes take longer, as a disk's do. */
#include "bench/log/bench.h"

#include <stdio.h>
#include <stdlib.h>

struct slow {
	struct device dev;
	struct device *below;
	uint64_t delay_ns;
};

static struct slow *of(struct device *dev)
{
	return container_of(dev, struct slow, dev);
}

static int slow_read(struct device *dev, void *buf, size_t len, uint64_t offset)
{
	return dev_read(of(dev)->below, buf, len, offset);
}

static int slow_write(struct device *dev, const void *buf, size_t len, uint64_t offset)
{
	return dev_write(of(dev)->below, buf, len, offset);
}

static int slow_batch(struct device *dev, struct dev_request *requests, size_t count)
{
	return dev_batch(of(dev)->below, requests, count);
}

static int slow_flush(struct device *dev)
{
	sleep_ns(of(dev)->delay_ns);
	return dev_flush(of(dev)->below);
}

static void slow_close(struct device *dev)
{
	dev_close(of(dev)->below);
	free(of(dev));
}

static const struct device_ops slow_ops = {
	.read = slow_read,
	.write = slow_write,
	.batch = slow_batch,
	.flush = slow_flush,
	.close = slow_close,
};

struct device *slow_device(struct device *dev, uint64_t delay_ns)
{
	struct slow *slow = calloc(1, sizeof(*slow));

	if (!slow)
		die("memory");
	slow->dev.ops = &slow_ops;
	slow->dev.size_bytes = dev->size_bytes;
	slow->dev.block_bytes = dev->block_bytes;
	snprintf(slow->dev.path, sizeof(slow->dev.path), "%s", dev->path);
	slow->below = dev;
	slow->delay_ns = delay_ns;
	return &slow->dev;
}
