/*
 * Choosing and opening a way to the medium (medium.h).
 *
 * Without being told: a medium whose bytes are addressable is mapped, since
 * there an append is its own write.  Everything else gets pwrite and fdatasync;
 * whether O_DIRECT or O_DSYNC are faster differs from drive to drive, and is
 * for `make bench-log` to say.
 */
#include "log/medium.h"

#include <errno.h>
#include <string.h>

#include "engine/base/error.h"
#include "log/log_internal.h"

static const char *const mode_names[LOG_MODE_COUNT] = {
	[LOG_MODE_AUTO] = "auto",   [LOG_MODE_PWRITE] = "pwrite", [LOG_MODE_DIRECT] = "direct",
	[LOG_MODE_DSYNC] = "dsync", [LOG_MODE_MAPPED] = "mapped",
};

const char *log_mode_name(enum log_mode mode)
{
	check(mode < LOG_MODE_COUNT);
	return mode_names[mode];
}

bool log_mode_parse(const char *name, enum log_mode *mode)
{
	for (unsigned i = 0; i < LOG_MODE_COUNT; i++) {
		if (strcmp(name, mode_names[i]) == 0) {
			*mode = (enum log_mode)i;
			return true;
		}
	}
	return false;
}

static int open_lane(struct log_medium *medium, unsigned flags, uint64_t offset, uint64_t bytes)
{
	return dev_open_lane(&medium->lane, medium->dev, flags, offset, bytes);
}

static int open_as(struct log_medium *medium, enum log_mode mode, uint64_t offset, uint64_t bytes)
{
	medium->mode = mode;
	switch (mode) {
	case LOG_MODE_PWRITE:
		medium->ops = &log_medium_flushed;
		return 0;
	case LOG_MODE_DIRECT:
		medium->ops = &log_medium_flushed;
		return open_lane(medium, LANE_DIRECT, offset, bytes);
	case LOG_MODE_DSYNC:
		medium->ops = &log_medium_dsync;
		return open_lane(medium, LANE_DIRECT | LANE_DSYNC, offset, bytes);
	case LOG_MODE_MAPPED:
		medium->ops = &log_medium_mapped;
		return dev_map(medium->dev, offset, bytes, &medium->map);
	case LOG_MODE_AUTO:
	case LOG_MODE_COUNT:
		break;
	}
	return -EINVAL;
}

/* All sizes are powers of two, so the largest is a multiple of the others. */
static int choose_block(struct log_medium *medium, uint64_t bytes, uint32_t block)
{
	if (block < medium->dev->block_bytes)
		block = medium->dev->block_bytes;
	if (medium->lane && block < medium->lane->align)
		block = medium->lane->align;
	medium->block = block;
	return block > LOG_BLOCK_MAX || bytes % block || bytes < LOG_CAPACITY_MIN(block)
		       ? -EOPNOTSUPP
		       : 0;
}

int log_medium_open(struct log_medium *medium, struct device *dev, struct device *data,
		    const struct log_shape *shape, enum log_mode wanted)
{
	const uint64_t offset = shape->offset + LOG_RECORDS_START, bytes = shape->capacity;
	enum log_mode mode = wanted;
	int err;

	*medium = (struct log_medium){.dev = dev, .data = data};
	if (wanted == LOG_MODE_AUTO)
		mode = dev->byte_addressable ? LOG_MODE_MAPPED : LOG_MODE_PWRITE;
	err = open_as(medium, mode, offset, bytes);
	if (err && wanted == LOG_MODE_AUTO)
		err = open_as(medium, LOG_MODE_PWRITE, offset, bytes);
	if (!err)
		err = choose_block(medium, bytes, shape->block);
	if (err)
		log_medium_close(medium);
	return err;
}

/* INV-LOG-4: both are waited for, whatever becomes of one of them. */
int log_medium_commit(struct log_medium *medium, struct dev_request *pieces, size_t count)
{
	struct dev_flush flush;
	int err, data_err;

	if (!medium->data)
		return medium->ops->commit(medium, pieces, count);
	dev_flush_begin(medium->data, &flush);
	err = medium->ops->commit(medium, pieces, count);
	os_point("log:committed");
	data_err = dev_flush_end(&flush);
	return err ? err : data_err;
}

void log_medium_close(struct log_medium *medium)
{
	dev_close(medium->lane);
	medium->lane = NULL;
	dev_unmap(medium->dev, &medium->map);
}
