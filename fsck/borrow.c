/* A device whose closing leaves the one below open: see borrow.h. */
#include "fsck/borrow.h"

#include "engine/volume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct borrowed {
	struct device dev;
	struct device *base;
};

static struct device *base_of(struct device *dev)
{
	return ((struct borrowed *)dev)->base;
}

static int borrowed_read(struct device *dev, void *buf, size_t len, uint64_t offset)
{
	return dev_read(base_of(dev), buf, len, offset);
}

static int borrowed_write(struct device *dev, const void *buf, size_t len, uint64_t offset)
{
	return dev_write(base_of(dev), buf, len, offset);
}

static int borrowed_batch(struct device *dev, struct dev_request *requests, size_t count)
{
	return dev_batch(base_of(dev), requests, count);
}

static int borrowed_flush(struct device *dev)
{
	return dev_flush(base_of(dev));
}

static void borrowed_close(struct device *dev)
{
	free(dev);
}

static const struct device_ops borrowed_ops = {
	.read = borrowed_read,
	.write = borrowed_write,
	.batch = borrowed_batch,
	.flush = borrowed_flush,
	.close = borrowed_close,
};

int borrow_device(struct device **out, struct device *base)
{
	struct borrowed *borrowed = calloc(1, sizeof(*borrowed));

	if (!borrowed)
		return -ENOMEM;
	borrowed->dev.ops = &borrowed_ops;
	borrowed->dev.size_bytes = base->size_bytes;
	borrowed->dev.read_only = base->read_only;
	borrowed->dev.block_bytes = base->block_bytes;
	memcpy(borrowed->dev.path, base->path, sizeof(borrowed->dev.path));
	borrowed->base = base;
	*out = &borrowed->dev;
	return 0;
}

int borrow_volume(struct volume **out, struct device *base, const struct volume_options *options)
{
	struct volume_options borrowed = *options;
	struct device *dev = NULL;
	int rc = borrow_device(&dev, base);

	borrowed.log_dev = NULL;
	if (!rc && options->log_dev)
		rc = borrow_device(&borrowed.log_dev, options->log_dev);
	if (!rc)
		rc = volume_open(out, dev, &borrowed);
	if (rc) {
		dev_close(borrowed.log_dev);
		dev_close(dev);
	}
	return rc;
}
