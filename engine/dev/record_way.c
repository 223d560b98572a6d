/*
 * Lanes and maps of a memory device, recorded like all else.
 *
 * A map is plain memory.  What the CPU has stored becomes history when the
 * device looks at it: each line that has changed since the last look is a
 * write, undecided like any other.  So a power cut may leave any subset of
 * the lines, each as it was at some look; what happened between two looks a
 * test can have by looking more often (dev_record_look()).
 *
 * INV-REC-DEV-4: a line is durable when the last look was before the start of
 * what makes it durable: dev_persist() of a byte-addressable map, or dev_flush()
 * of another.
 */
#include "engine/dev/record_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ lanes */

struct memory_lane {
	struct device dev;
	bool settles;
};

static int lane_write(struct device *dev, const void *buf, size_t len, uint64_t offset)
{
	struct memory_lane *lane = container_of(dev, struct memory_lane, dev);

	return memory_write_way(memory_device(dev->base), buf, len, offset, lane->settles);
}

static int lane_read(struct device *dev, void *buf, size_t len, uint64_t offset)
{
	return memory_read(dev->base, buf, len, offset);
}

static int lane_write_all(struct device *dev, struct dev_request *requests, size_t count)
{
	int first = 0;

	for (size_t i = 0; i < count; i++) {
		struct dev_request *r = &requests[i];

		r->result = lane_write(dev, r->buf, r->len, r->offset);
		first = first ? first : r->result;
	}
	return first;
}

/* In turn one first, then the other, so that cuts between them are seen both ways. */
static int lane_write_beside_flush(struct device *dev, struct dev_request *requests, size_t count)
{
	struct memory_device *mem = memory_device(dev->base);
	int error, flush_error;
	bool flush_first;

	latch_x(&mem->latch);
	flush_first = mem->beside_calls++ % 2;
	unlatch_x(&mem->latch);
	flush_error = flush_first ? memory_flush(dev->base) : 0;
	error = lane_write_all(dev, requests, count);
	if (!flush_first)
		flush_error = memory_flush(dev->base);
	return error ? error : flush_error;
}

static void lane_close(struct device *dev)
{
	free(container_of(dev, struct memory_lane, dev));
}

static const struct device_ops lane_ops = {
	.read = lane_read,
	.write = lane_write,
	.close = lane_close,
	.write_beside_flush = lane_write_beside_flush,
};

int memory_open_lane(struct device *dev, unsigned flags, uint64_t offset, uint64_t len,
		     struct device **out)
{
	struct memory_lane *lane;

	if (!(flags & LANE_DIRECT) || (offset | len) % dev->block_bytes)
		return -EOPNOTSUPP;
	lane = calloc(1, sizeof(*lane));
	if (!lane)
		return -ENOMEM;
	lane->dev.ops = &lane_ops;
	lane->dev.size_bytes = dev->size_bytes;
	lane->dev.block_bytes = dev->block_bytes;
	lane->dev.align = dev->block_bytes;
	lane->dev.read_only = flags & LANE_READ;
	lane->settles = flags & LANE_DSYNC;
	snprintf(lane->dev.path, sizeof(lane->dev.path), "%s", dev->path);
	*out = &lane->dev;
	return 0;
}

/* ------------------------------------------------------------------- maps */

static int look_at_line_locked(struct memory_device *mem, uint64_t at)
{
	const uint8_t *now = mem->map->at + at;
	uint64_t offset = mem->map->offset + at;
	int error;

	memcpy(mem->lines_seen + at, now, DEV_MAP_LINE);
	if (!mem->recording)
		return sparse_write(&mem->contents, mem->lines_seen + at, DEV_MAP_LINE, offset);
	error = record_write_locked(mem, mem->lines_seen + at, DEV_MAP_LINE, offset);
	if (!error)
		mem->events[mem->event_count - 1].is_line = true;
	return error;
}

int map_look_locked(struct memory_device *mem)
{
	int error = 0;

	for (uint64_t at = 0; mem->map && at < mem->map->len && !error; at += DEV_MAP_LINE)
		if (memcmp(mem->map->at + at, mem->lines_seen + at, DEV_MAP_LINE) != 0)
			error = look_at_line_locked(mem, at);
	return error;
}

/* Of a byte-addressable map only after it has gone: a flush is not what persists it. */
void map_release_locked(struct memory_device *mem)
{
	size_t first = mem->event_count ? mem->events[mem->event_count - 1].settled : 0;

	if (!mem->recording || (mem->map && mem->map->byte_addressable))
		return;
	for (size_t i = first; i < mem->event_count; i++)
		if (mem->events[i].is_line && mem->events[i].ended == NEVER)
			mem->events[i].ended = ++mem->clock;
}

int memory_map(struct device *dev, struct dev_map *map)
{
	struct memory_device *mem = memory_device(dev);
	uint8_t *live = aligned_alloc(DEV_MAP_LINE, map->len);
	uint8_t *seen = malloc(map->len);
	int error = live && seen ? memory_read(dev, live, map->len, map->offset) : -ENOMEM;

	if (error) {
		free(live);
		free(seen);
		return error;
	}
	memcpy(seen, live, map->len);
	map->at = live;
	map->byte_addressable = dev->byte_addressable;
	latch_x(&mem->latch);
	check(!mem->map);
	mem->map = map;
	mem->lines_seen = seen;
	unlatch_x(&mem->latch);
	return 0;
}

void dev_record_look(struct device *dev)
{
	struct memory_device *mem = memory_device(dev);

	latch_x(&mem->latch);
	check(map_look_locked(mem) == 0);
	unlatch_x(&mem->latch);
}

/* Events before, to be cut between what has arrived by itself; one event when all is durable. */
void memory_persist(struct device *dev, const struct dev_map *map, const void *at, size_t len)
{
	struct memory_device *mem = memory_device(dev);
	uint64_t start = (uint64_t)((const uint8_t *)at - map->at) / DEV_MAP_LINE * DEV_MAP_LINE;
	uint64_t end = (uint64_t)((const uint8_t *)at - map->at) + len;

	latch_x(&mem->latch);
	check(mem->map == map);
	check(map_look_locked(mem) == 0);
	if (mem->recording)
		check(record_settle_lines_locked(mem, map->offset + start, end - start) == 0);
	unlatch_x(&mem->latch);
}

void memory_unmap(struct device *dev, struct dev_map *map)
{
	struct memory_device *mem = memory_device(dev);

	latch_x(&mem->latch);
	check(mem->map == map);
	check(map_look_locked(mem) == 0);
	mem->map = NULL;
	free(mem->lines_seen);
	mem->lines_seen = NULL;
	unlatch_x(&mem->latch);
	free(map->at);
}

void dev_memory_be_pmem(struct device *dev)
{
	struct memory_device *mem = memory_device(dev);

	check(!mem->map);
	dev->byte_addressable = true;
	dev->block_bytes = DEV_MAP_LINE;
}
