/*
 * Reading LOBs: the mapping of a range, the blocks behind it, SEEK_DATA and
 * SEEK_HOLE.
 *
 * INV-LOB-4: the epoch is entered before the first leaf is read and left after
 * the last block was, so that no block in the map is reused meanwhile, however
 * often the file is overwritten.
 *
 * INV-LOB-2: the pending dead range reads as a hole, whatever the index still
 * has there.
 */
#include "engine/lob_internal.h"

#include "engine/base/crc32c.h"
#include "engine/base/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void lob_map_init(struct lob_map *map)
{
	*map = (struct lob_map){0};
}

static void leave_epoch(struct lob_map *map)
{
	if (map->epochs)
		epoch_exit(map->epochs);
	map->epochs = NULL;
}

void lob_map_free(struct lob_map *map)
{
	leave_epoch(map);
	free(map->run);
	free(map->crcs);
	lob_map_init(map);
}

/* Each block may be a run of its own; then nothing is allocated under a latch. */
static int make_room(struct lob_map *map, uint64_t count)
{
	check(count > 0 && count <= UINT32_MAX);
	map->count = 0;
	if (map->run_cap < count) {
		free(map->run);
		map->run = malloc(count * sizeof(*map->run));
		map->run_cap = map->run ? (unsigned)count : 0;
	}
	if (map->crc_cap < count) {
		free(map->crcs);
		map->crcs = malloc(count * sizeof(*map->crcs));
		map->crc_cap = map->crcs ? (unsigned)count : 0;
	}
	return map->run && map->crcs ? 0 : -ENOMEM;
}

struct map_build {
	struct lob_map *map;
	uint64_t first, end; /* what was asked for */
	uint64_t next;       /* mapped up to here */
	uint64_t dead_first, dead_end;
};

static void add_zeros(struct map_build *b, uint64_t end, bool unwritten)
{
	struct lob_map *map = b->map;
	struct mapping *last = map->count ? &map->run[map->count - 1] : NULL;

	if (end <= b->next)
		return;
	if (last && last->start == 0 && last->unwritten == unwritten)
		last->length += (uint32_t)(end - b->next);
	else
		map->run[map->count++] = (struct mapping){
			.file_block = b->next,
			.length = (uint32_t)(end - b->next),
			.unwritten = unwritten,
		};
	b->next = end;
}

static void add_blocks(struct map_build *b, const struct extent *extent, uint64_t end)
{
	struct lob_map *map = b->map;
	uint64_t skip = b->next - extent->first;
	le32 *crcs = map->crcs + (b->next - b->first);
	uint32_t length;

	if (end <= b->next)
		return;
	length = (uint32_t)(end - b->next);
	memcpy(crcs, extent->crc + skip, length * sizeof(*crcs));
	map->run[map->count++] = (struct mapping){
		.file_block = b->next,
		.start = extent->start + skip,
		.length = length,
		.crc = crcs,
	};
	b->next = end;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Maps [b->next, end), which the extent covers, around the dead range. */
static void add_extent(struct map_build *b, const struct extent *extent, uint64_t end)
{
	while (b->next < end) {
		uint64_t stop;

		if (b->next >= b->dead_first && b->next < b->dead_end) {
			add_zeros(b, least(end, b->dead_end), false);
			continue;
		}
		stop = b->next < b->dead_first ? least(end, b->dead_first) : end;
		if (extent->unwritten)
			add_zeros(b, stop, true);
		else
			add_blocks(b, extent, stop);
	}
}

static int visit_map(void *arg, const struct extent *extent)
{
	struct map_build *b = arg;

	if (extent->first >= b->end)
		return 1;
	add_zeros(b, extent->first, false);
	add_extent(b, extent, least(extent_end(extent), b->end));
	return b->next == b->end;
}

int lob_map_read(struct volume *volume, uint64_t lob, uint64_t first, uint64_t count,
		 uint64_t dead_first, uint64_t dead_end, struct lob_map *map)
{
	struct map_build build = {
		.map = map,
		.first = first,
		.end = first + count,
		.next = first,
		.dead_first = dead_first,
		.dead_end = dead_end,
	};
	struct lob_visitor visitor = {.visit = visit_map, .arg = &build};
	int rc;

	leave_epoch(map);
	rc = make_room(map, count);
	if (rc)
		return rc;
	rc = lob_walk(volume, lob, first, &visitor, true);
	if (rc)
		return rc;
	map->epochs = &volume->epochs;
	add_zeros(&build, build.end, false);
	os_point("lob:mapped");
	return 0;
}

/* ------------------------------------------------------------------ blocks */

static uint8_t *place_of(const struct lob_map *map, const struct mapping *run, void *buf)
{
	return (uint8_t *)buf + (run->file_block - map->run[0].file_block) * BLOCK_SIZE;
}

/* One request a piece of the volume; zeros are filled in at once. */
static size_t make_requests(struct volume *volume, const struct lob_map *map, void *buf,
			    struct dev_request *requests)
{
	bool direct = tunable_is_on(&volume->tunables, TUNABLE_data_direct);
	uint64_t goes_on_at = 0, blocks = 0;
	size_t count = 0;

	for (unsigned i = 0; i < map->count; i++) {
		const struct mapping *run = &map->run[i];
		size_t bytes = (size_t)run->length * BLOCK_SIZE;

		if (run->start == 0) {
			memset(place_of(map, run, buf), 0, bytes);
			goes_on_at = 0;
			continue;
		}
		if (run->start == goes_on_at)
			requests[count - 1].len += bytes;
		else
			requests[count++] = (struct dev_request){
				.buf = place_of(map, run, buf),
				.len = bytes,
				.offset = run->start * BLOCK_SIZE,
			};
		goes_on_at = run->start + run->length;
		blocks += run->length;
	}
	for (size_t i = 0; i < count; i++)
		requests[i].past_cache = direct && blocks >= DIRECT_READ_BLOCKS_MIN;
	return count;
}

static int verify_run(const struct mapping *run, const uint8_t *data, uint64_t *bad_block)
{
	for (uint32_t i = 0; i < run->length; i++) {
		if (crc32c(0, data + (size_t)i * BLOCK_SIZE, BLOCK_SIZE) != le32_get(run->crc[i])) {
			*bad_block = run->file_block + i;
			return -BE_CRC;
		}
	}
	return 0;
}

int lob_read_blocks(struct volume *volume, const struct lob_map *map, void *buf,
		    uint64_t *bad_block)
{
	struct dev_request *requests;
	uint64_t blocks = 0, from;
	size_t count;
	int rc = 0;

	check(map->epochs != NULL && map->count > 0);
	requests = malloc(map->count * sizeof(*requests));
	if (requests == NULL)
		return -ENOMEM;
	count = make_requests(volume, map, buf, requests);
	if (count > 0)
		rc = dev_batch(volume->dev, requests, count);
	from = os_mono_ns();
	for (unsigned i = 0; i < map->count && rc == 0; i++) {
		const struct mapping *run = &map->run[i];

		if (run->start == 0)
			continue;
		blocks += run->length;
		rc = verify_run(run, place_of(map, run, buf), bad_block);
	}
	stat_add(&volume->stats, STAT_lob_crc_ns, os_mono_ns() - from);
	if (rc == -BE_CRC)
		stat_add(&volume->stats, STAT_lob_crc_errors, 1);
	stat_add(&volume->stats, STAT_lob_reads, 1);
	stat_add(&volume->stats, STAT_lob_read_blocks, blocks);
	free(requests);
	return rc;
}

/* -------------------------------------------------------------------- seek */

struct seek {
	uint64_t at;         /* hole: data up to here; data: where it was found */
	uint64_t dead_first, dead_end;
	bool hole, found;
};

/* A run of data, in order.  1: the answer is known. */
static int seek_data_run(struct seek *seek, uint64_t first, uint64_t end)
{
	if (end <= seek->at || first >= end)
		return 0;
	if (seek->hole) {
		if (first > seek->at)
			return 1;
		seek->at = end;
		return 0;
	}
	seek->at = first > seek->at ? first : seek->at;
	seek->found = true;
	return 1;
}

static int visit_seek(void *arg, const struct extent *extent)
{
	struct seek *seek = arg;
	uint64_t end = extent_end(extent);

	if (extent->unwritten)
		return 0;
	if (seek->dead_first >= seek->dead_end)
		return seek_data_run(seek, extent->first, end);
	return seek_data_run(seek, extent->first, least(end, seek->dead_first)) ||
	       seek_data_run(seek, extent->first > seek->dead_end ? extent->first : seek->dead_end,
			     end);
}

int lob_seek(struct volume *volume, uint64_t lob, uint64_t from, bool hole, uint64_t dead_first,
	     uint64_t dead_end, uint64_t *out)
{
	struct seek seek = {
		.at = from,
		.dead_first = dead_first,
		.dead_end = dead_end,
		.hole = hole,
	};
	struct lob_visitor visitor = {.visit = visit_seek, .arg = &seek};
	int rc = lob_walk(volume, lob, from, &visitor, false);

	*out = hole || seek.found ? seek.at : UINT64_MAX;
	return rc;
}
