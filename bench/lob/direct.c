/*
 * A device over a file whose data goes past the kernel's cache: a write of it
 * lasts as long as the disk takes, a read finds nothing cached.  Log and
 * superblocks are written as usual.
 */
#include "bench/lob/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct direct {
	struct device dev;
	struct device *base, *lane;
	uint64_t from; /* data lies from here on */
};

static struct direct *of(struct device *dev)
{
	return container_of(dev, struct direct, dev);
}

static struct device *way_of(struct device *dev, const void *buf, size_t len, uint64_t offset)
{
	const struct direct *direct = of(dev);

	if (offset < direct->from || (((uintptr_t)buf | len | offset) & (direct->lane->align - 1)))
		return direct->base;
	return direct->lane;
}

static int direct_read(struct device *dev, void *buf, size_t len, uint64_t offset)
{
	return dev_read(way_of(dev, buf, len, offset), buf, len, offset);
}

static int direct_write(struct device *dev, const void *buf, size_t len, uint64_t offset)
{
	return dev_write(way_of(dev, buf, len, offset), buf, len, offset);
}

static int direct_batch(struct device *dev, struct dev_request *requests, size_t count)
{
	struct device *way = of(dev)->lane;

	for (size_t i = 0; i < count; i++)
		if (way_of(dev, requests[i].buf, requests[i].len, requests[i].offset) != way)
			way = of(dev)->base;
	return dev_batch(way, requests, count);
}

static int direct_flush(struct device *dev)
{
	return dev_flush(of(dev)->base);
}

static void direct_close(struct device *dev)
{
	dev_close(of(dev)->lane);
	dev_close(of(dev)->base);
	free(of(dev));
}

static const struct device_ops direct_ops = {
	.read = direct_read,
	.write = direct_write,
	.batch = direct_batch,
	.flush = direct_flush,
	.close = direct_close,
};

struct device *direct_device(struct device *base)
{
	struct direct *direct = calloc(1, sizeof(*direct));
	int rc;

	if (!direct)
		die("memory", -ENOMEM);
	rc = dev_open_lane(&direct->lane, base, LANE_DIRECT, 0, base->size_bytes);
	if (rc)
		die("direct I/O on this disk (MODE=cached does without)", rc);
	direct->dev.ops = &direct_ops;
	direct->dev.size_bytes = base->size_bytes;
	direct->dev.block_bytes = base->block_bytes;
	snprintf(direct->dev.path, sizeof(direct->dev.path), "%s", base->path);
	direct->base = base;
	direct->from = UINT64_MAX;
	return &direct->dev;
}

void direct_from(struct device *dev, uint64_t offset)
{
	of(dev)->from = offset;
}
