#include "tests/lib/scratch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static void demand(int rc, const char *what)
{
	if (rc == 0)
		return;
	fprintf(stderr, "scratch volume: %s: %s\n", what, error_text(rc));
	abort();
}

struct device *scratch_format(uint64_t size_bytes, uint32_t page_size, uint64_t log_bytes)
{
	struct format_params params = {
		.size_bytes = size_bytes,
		.page_size = page_size,
		.log_bytes = log_bytes,
		.uuid = "scratch-volume!",
		.hash_seed = "scratch-hashseed",
	};
	struct device *dev;

	demand(dev_open_memory(&dev, size_bytes), "device");
	demand(volume_format(dev, &params, NULL), "format");
	return dev;
}

struct volume *scratch_open(struct device *dev, bool background)
{
	struct volume_options options = {
		.cache_bytes = SCRATCH_CACHE,
		.log_buffer_bytes = 1u << 20,
		.no_background = !background,
	};
	struct volume *volume;

	demand(volume_open(&volume, dev, &options), "open");
	return volume;
}

struct volume *scratch_volume(void)
{
	return scratch_open(scratch_format(SCRATCH_BYTES, SCRATCH_PAGE, SCRATCH_LOG), false);
}

/* A device that passes everything on, and leaves the inner one alone when it is closed. */

struct kept {
	struct device dev;
	struct device *inner;
	void (*on_discard)(void *arg, uint64_t offset, uint64_t len); /* or NULL */
	void *arg;
};

static int kept_read(struct device *dev, void *buf, size_t len, uint64_t offset)
{
	return dev_read(((struct kept *)dev)->inner, buf, len, offset);
}

static int kept_write(struct device *dev, const void *buf, size_t len, uint64_t offset)
{
	return dev_write(((struct kept *)dev)->inner, buf, len, offset);
}

static int kept_flush(struct device *dev)
{
	return dev_flush(((struct kept *)dev)->inner);
}

static int kept_discard(struct device *dev, uint64_t offset, uint64_t len)
{
	struct kept *kept = (struct kept *)dev;

	if (kept->on_discard)
		kept->on_discard(kept->arg, offset, len);
	return dev_discard(kept->inner, offset, len);
}

void scratch_watch_discards(struct device *dev,
			    void (*fn)(void *arg, uint64_t offset, uint64_t len), void *arg)
{
	struct kept *kept = (struct kept *)dev;

	kept->on_discard = fn;
	kept->arg = arg;
}

static void kept_close(struct device *dev)
{
	free(dev);
}

static const struct device_ops kept_ops = {
	.read = kept_read,
	.write = kept_write,
	.flush = kept_flush,
	.discard = kept_discard,
	.close = kept_close,
};

struct device *scratch_keep(struct device *inner)
{
	struct kept *kept = calloc(1, sizeof(*kept));

	demand(kept ? 0 : -ENOMEM, "device");
	kept->dev.ops = &kept_ops;
	kept->dev.size_bytes = inner->size_bytes;
	kept->inner = inner;
	snprintf(kept->dev.path, sizeof(kept->dev.path), "memory");
	return &kept->dev;
}

static int kept_resize(struct device *dev, uint64_t size_bytes)
{
	return size_bytes <= ((struct kept *)dev)->inner->size_bytes ? 0 : -EFBIG;
}

struct device *scratch_keep_file(struct device *inner, uint64_t size_bytes)
{
	static struct device_ops ops;
	struct device *dev = scratch_keep(inner);

	ops = kept_ops;
	ops.resize = kept_resize;
	dev->ops = &ops;
	dev->size_bytes = size_bytes;
	return dev;
}

static void print_problem(void *arg, const char *text)
{
	(void)arg;
	fprintf(stderr, "volume_check: %s\n", text);
}

uint64_t scratch_problems(struct volume *volume)
{
	struct check_report report = {.problem = print_problem};

	demand(volume_check(volume, &report), "check");
	return report.problems;
}

struct device *scratch_crash(struct volume *volume)
{
	struct device *after;

	/* Whatever was written has arrived; nothing more will. */
	demand(dev_record_cut(volume->dev, dev_record_count(volume->dev), &after), "cut");
	volume_abandon(volume);
	return after;
}

unsigned test_scale(void)
{
	const char *text = getenv("TEST_SCALE");
	long scale = text ? strtol(text, NULL, 10) : 1;

	return scale > 0 ? (unsigned)scale : 1;
}
