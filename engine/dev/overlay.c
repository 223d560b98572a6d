/*
 * A device whose writes stay in memory: reads fall through to the device below
 * where nothing was written.  A read-only mount recovers on it, and fsck -n
 * looks at it; the device below is never written.
 *
 * The unit of copying is a 4 KiB block; `present` says which blocks of the
 * sparse store hold the truth.
 */
#include "engine/dev/device.h"
#include "engine/dev/sparse.h"

#include "engine/base/latch.h"
#include "engine/base/limits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct overlay {
	struct device dev;
	struct device *base;
	struct latch latch;     /* protects the two below */
	struct sparse contents;
	struct sparse present;  /* one byte a block: 1 = in contents */
};

static struct overlay *of(struct device *dev)
{
	return (struct overlay *)dev;
}

static bool is_present(struct overlay *overlay, uint64_t block)
{
	uint8_t byte;

	sparse_read(&overlay->present, &byte, 1, block);
	return byte != 0;
}

/* One piece within one block, latch held. */
static int read_piece(struct overlay *overlay, uint8_t *buf, size_t len, uint64_t offset)
{
	if (!is_present(overlay, offset / BLOCK_SIZE))
		return dev_read(overlay->base, buf, len, offset);
	sparse_read(&overlay->contents, buf, len, offset);
	return 0;
}

static int write_piece(struct overlay *overlay, const uint8_t *buf, size_t len, uint64_t offset)
{
	uint64_t block = offset / BLOCK_SIZE;
	uint8_t one = 1;
	int rc;

	if (!is_present(overlay, block) && len < BLOCK_SIZE) {
		uint8_t whole[BLOCK_SIZE];
		uint64_t left = overlay->dev.size_bytes - block * BLOCK_SIZE;

		memset(whole, 0, sizeof(whole));
		rc = dev_read(overlay->base, whole, left < BLOCK_SIZE ? left : BLOCK_SIZE,
			      block * BLOCK_SIZE);
		if (rc == 0)
			rc = sparse_write(&overlay->contents, whole,
					  left < BLOCK_SIZE ? left : BLOCK_SIZE,
					  block * BLOCK_SIZE);
		if (rc)
			return rc;
	}
	rc = sparse_write(&overlay->contents, buf, len, offset);
	return rc ? rc : sparse_write(&overlay->present, &one, 1, block);
}

static size_t piece_len(uint64_t offset, size_t len)
{
	size_t left = BLOCK_SIZE - offset % BLOCK_SIZE;

	return len < left ? len : left;
}

static int overlay_read(struct device *dev, void *buf, size_t len, uint64_t offset)
{
	struct overlay *overlay = of(dev);
	uint8_t *to = buf;
	int rc = 0;

	latch_s(&overlay->latch);
	while (len > 0 && rc == 0) {
		size_t n = piece_len(offset, len);

		rc = read_piece(overlay, to, n, offset);
		to += n;
		offset += n;
		len -= n;
	}
	unlatch_s(&overlay->latch);
	return rc;
}

static int overlay_write(struct device *dev, const void *buf, size_t len, uint64_t offset)
{
	struct overlay *overlay = of(dev);
	const uint8_t *from = buf;
	int rc = 0;

	latch_x(&overlay->latch);
	while (len > 0 && rc == 0) {
		size_t n = piece_len(offset, len);

		rc = write_piece(overlay, from, n, offset);
		from += n;
		offset += n;
		len -= n;
	}
	unlatch_x(&overlay->latch);
	return rc;
}

static int overlay_flush(struct device *dev)
{
	(void)dev; /* nothing here outlives the process */
	return 0;
}

void dev_overlay_release(struct device *dev)
{
	struct overlay *overlay = of(dev);

	sparse_free(&overlay->contents);
	sparse_free(&overlay->present);
	free(overlay);
}

static void overlay_close(struct device *dev)
{
	struct device *base = of(dev)->base;

	dev_overlay_release(dev);
	dev_close(base);
}

static const struct device_ops overlay_ops = {
	.read = overlay_read,
	.write = overlay_write,
	.flush = overlay_flush,
	.close = overlay_close,
};

int dev_open_overlay(struct device **out, struct device *base)
{
	struct overlay *overlay = calloc(1, sizeof(*overlay));

	if (overlay == NULL)
		return -ENOMEM;
	overlay->dev.ops = &overlay_ops;
	overlay->dev.size_bytes = base->size_bytes;
	memcpy(overlay->dev.path, base->path, sizeof(base->path));
	overlay->base = base;
	latch_init(&overlay->latch, RANK_DEVICE, 0);
	sparse_init(&overlay->contents, base->size_bytes);
	sparse_init(&overlay->present, base->size_bytes / BLOCK_SIZE + 1);
	*out = &overlay->dev;
	return 0;
}
