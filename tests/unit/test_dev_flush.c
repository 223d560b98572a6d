/*
 * INV-DEV-6: what a device counts as flushed is durable.
 */
#include "engine/dev/device.h"
#include "tests/lib/scratch_file.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* A device that only counts; its flush can be told to do more. */
static struct {
	unsigned flushes;
	bool writes_meanwhile, fails;
} happened;

static int take(struct device *dev, const void *buf, size_t len, uint64_t offset)
{
	(void)dev, (void)buf, (void)len, (void)offset;
	return 0;
}

static int flush(struct device *dev)
{
	char byte = 0;

	happened.flushes++;
	if (happened.writes_meanwhile)
		cr_assert_eq(dev_write(dev, &byte, 1, 0), 0);
	return happened.fails ? -EIO : 0;
}

static const struct device_ops ops = {.write = take, .flush = flush};

static struct device dev = {.ops = &ops, .size_bytes = 100};

static uint64_t write_once(void)
{
	char byte = 0;

	cr_assert_eq(dev_write(&dev, &byte, 1, 0), 0);
	return atomic_load(&dev.written);
}

static unsigned flushes_for(uint64_t written)
{
	happened.flushes = 0;
	cr_assert_eq(dev_flush_up_to(&dev, written), 0);
	return happened.flushes;
}

Test(dev_flush, serves_everything_before_it)
{
	uint64_t first = write_once(), second = write_once(), third;

	cr_assert_eq(flushes_for(0), 0, "nothing was written");
	cr_assert_eq(flushes_for(second), 1);
	cr_assert_eq(flushes_for(first), 0);
	cr_assert_eq(flushes_for(second), 0);
	third = write_once();
	cr_assert_eq(flushes_for(second), 0);
	cr_assert_eq(flushes_for(third), 1);
}

Test(dev_flush, batches_count_as_well)
{
	char bytes[2] = {0};
	struct dev_request requests[2] = {
		{.buf = bytes, .len = 1, .offset = 0, .is_write = true},
		{.buf = bytes + 1, .len = 1, .offset = 9, .is_write = true},
	};

	cr_assert_eq(dev_flush(&dev), 0);
	cr_assert_eq(dev_batch(&dev, requests, 2), 0);
	cr_assert_eq(flushes_for(atomic_load(&dev.written)), 1);
}

Test(dev_flush, does_not_serve_what_is_written_meanwhile)
{
	uint64_t written = write_once();

	happened.writes_meanwhile = true;
	cr_assert_eq(flushes_for(written), 1);
	happened.writes_meanwhile = false;
	cr_assert_eq(flushes_for(written), 0);
	cr_assert_eq(flushes_for(atomic_load(&dev.written)), 1);
}

Test(dev_flush, a_failed_one_serves_nobody)
{
	uint64_t written = write_once();

	happened.fails = true;
	cr_assert_eq(dev_flush_up_to(&dev, written), -EIO);
	happened.fails = false;
	cr_assert_eq(flushes_for(written), 1);
}

/* ------------------------------------------------ flushes that begin and end */

Test(dev_flush, begins_when_there_is_something_and_covers_what_was_before)
{
	struct dev_flush under_way;
	uint64_t first = write_once(), second;

	happened.flushes = 0;
	dev_flush_begin(&dev, &under_way);
	second = write_once();
	cr_assert_eq(dev_flush_end(&under_way), 0);
	cr_assert_eq(happened.flushes, 1);
	cr_assert_eq(flushes_for(first), 0);
	cr_assert_eq(flushes_for(second), 1, "it may have come too late");
	happened.flushes = 0;
	dev_flush_begin(&dev, &under_way);
	cr_assert_eq(dev_flush_end(&under_way), 0);
	cr_assert_eq(happened.flushes, 0);
	write_once();
	happened.fails = true;
	dev_flush_begin(&dev, &under_way);
	cr_assert_eq(dev_flush_end(&under_way), -EIO);
	happened.fails = false;
	cr_assert_eq(flushes_for(atomic_load(&dev.written)), 1, "not flushed yet");
}

Test(dev_flush, of_a_file_beside_writes_to_another)
{
	char path[SCRATCH_PATH_BYTES], byte = 'x';
	int fd = scratch_file(path);
	struct dev_flush under_way;
	struct device *file;

	cr_assert_eq(ftruncate(fd, 8192), 0);
	close(fd);
	cr_assert_eq(dev_open_file(&file, path, 0, 0), 0);
	for (unsigned i = 0; i < 40; i++) {
		cr_assert_eq(dev_write(file, &byte, 1, i), 0);
		dev_flush_begin(file, &under_way);
		cr_assert(under_way.needed);
		/* Others flush meanwhile. */
		if (i % 2)
			cr_assert_eq(dev_flush(file), 0);
		cr_assert_eq(dev_flush_end(&under_way), 0);
		cr_assert_eq(atomic_load(&file->flushed), atomic_load(&file->written));
	}
	dev_close(file);
	unlink(path);
}

Test(dev_flush, the_size_of_a_file_changes)
{
	char path[SCRATCH_PATH_BYTES], byte = 'x';
	int fd = scratch_file(path);
	struct device *file;

	cr_assert_eq(ftruncate(fd, 8192), 0);
	close(fd);
	cr_assert_eq(dev_open_file(&file, path, 0, 0), 0);
	cr_assert_eq(dev_write(file, &byte, 1, 9000), -EIO);
	cr_assert_eq(dev_resize(file, 16384), 0);
	cr_assert_eq(dev_write(file, &byte, 1, 9000), 0);
	cr_assert_eq(dev_resize(file, 4096), 0);
	cr_assert_eq(dev_read(file, &byte, 1, 9000), -EIO);
	dev_close(file);
	cr_assert_eq(dev_open_file(&file, path, DEV_READ_ONLY, 0), 0);
	cr_assert_eq(file->size_bytes, 4096);
	cr_assert_eq(dev_resize(file, 8192), -EROFS);
	cr_assert_eq(dev_resize(file, 4096), 0);
	dev_close(file);
	/* A device that has no such operation. */
	cr_assert_eq(dev_resize(&dev, 50), -EOPNOTSUPP);
	cr_assert_eq(dev_resize(&dev, 100), 0);
	unlink(path);
}
