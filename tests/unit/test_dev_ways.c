/*
 * Lanes and maps: of the file device against the rules of device.h, of the
 * memory device against what a power cut may leave.
 */
#include "engine/base/error.h"
#include "engine/base/os.h"
#include "engine/dev/device.h"
#include "tests/lib/scratch_file.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK 4096u
#define BYTES (1u << 20)
#define REGION (256u << 10) /* where lanes and maps begin */
#define REGION_BYTES (128u << 10)

static char file_path[SCRATCH_PATH_BYTES];
static _Alignas(BLOCK) uint8_t block[2 * BLOCK], back[2 * BLOCK];

static struct device *open_file(const char *folder)
{
	struct device *dev;
	int fd = scratch_file_in(folder, file_path);

	if (fd < 0)
		cr_skip_test("%s cannot be used", folder);
	cr_assert_eq(ftruncate(fd, BYTES), 0);
	close(fd);
	cr_assert_eq(dev_open_file(&dev, file_path, 0, 0), 0);
	return dev;
}

static void close_file(struct device *dev)
{
	dev_close(dev);
	unlink(file_path);
}

static struct device *open_lane(struct device *dev, unsigned flags)
{
	struct device *lane;

	cr_assert_eq(dev_open_lane(&lane, dev, flags, REGION, REGION_BYTES), 0);
	cr_assert(lane->align > 0 && lane->align <= BLOCK);
	return lane;
}

/* ------------------------------------------------------- past the cache: files */

static void transfer_one(struct device *dev, void *buf, size_t len, uint64_t offset, bool is_write,
			 bool past_cache)
{
	struct dev_request request = {
		.buf = buf,
		.len = len,
		.offset = offset,
		.is_write = is_write,
		.past_cache = past_cache,
	};

	cr_assert_eq(dev_batch(dev, &request, 1), 0);
}

/* INV-DEV-8: each way sees what the other wrote last, in single transfers and in batches. */
Test(past_cache, both_ways_see_the_same_bytes)
{
	struct device *dev = open_file(".");
	struct stats stats = {0};

	dev->stats = &stats;
	for (unsigned i = 0; i < 8; i++) {
		bool past = i % 2;
		struct dev_request batch[2];

		memset(block, (int)i + 1, sizeof(block));
		transfer_one(dev, block, sizeof(block), REGION, true, past);
		transfer_one(dev, back, sizeof(back), REGION, false, !past);
		cr_assert_eq(memcmp(block, back, sizeof(block)), 0);
		memset(back, 0, sizeof(back));
		for (unsigned n = 0; n < 2; n++)
			batch[n] = (struct dev_request){
				.buf = back + n * BLOCK,
				.len = BLOCK,
				.offset = REGION + n * BLOCK,
				.past_cache = n == 0,
			};
		cr_assert_eq(dev_batch(dev, batch, 2), 0);
		cr_assert_eq(memcmp(block, back, sizeof(block)), 0);
	}
	cr_assert_eq(stat_read(&stats, STAT_dev_direct_bytes), 4 * 4 * BLOCK + 8 * BLOCK);
	close_file(dev);
}

/* What O_DIRECT refuses is no error. */
Test(past_cache, unaligned_goes_the_other_way)
{
	struct device *dev = open_file(".");
	struct stats stats = {0};

	dev->stats = &stats;
	memset(block, 7, sizeof(block));
	transfer_one(dev, block + 1, BLOCK, REGION, true, true);
	transfer_one(dev, block, BLOCK - 1, REGION + BLOCK, true, true);
	transfer_one(dev, back, BLOCK, REGION + 3, false, true);
	cr_assert_eq(back[0], 7);
	cr_assert_eq(stat_read(&stats, STAT_dev_direct_bytes), 0);
	close_file(dev);
}

static bool is_locked(int fd, int64_t offset, int64_t len)
{
	struct flock lock = {
		.l_type = F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = offset,
		.l_len = len,
	};

	cr_assert_eq(fcntl(fd, F_OFD_GETLK, &lock), 0);
	return lock.l_type != F_UNLCK;
}

/* INV-REC-2: in flight past the cache, a write has a lock of its own to hold successors off. */
Test(past_cache, its_description_has_a_lock)
{
	struct device *dev = open_file(".");
	int64_t last = INT64_MAX - 1;
	struct stat wanted, st;
	unsigned found = 0;

	cr_assert_eq(stat(file_path, &wanted), 0);
	for (int fd = 0; fd < 64; fd++) {
		int flags = fcntl(fd, F_GETFL);

		if (flags < 0 || !(flags & O_DIRECT) || fstat(fd, &st) != 0 ||
		    st.st_ino != wanted.st_ino || st.st_dev != wanted.st_dev)
			continue;
		found++;
		cr_assert(is_locked(fd, 0, 1));     /* by another one */
		cr_assert_not(is_locked(fd, last, 1)); /* its own is none to itself */
	}
	cr_assert_eq(found, 1);
	close_file(dev);
}

/* ------------------------------------------------------------ lanes: files */

Test(lane, writes_arrive_where_the_device_reads_them)
{
	const unsigned ways[] = {LANE_DIRECT, LANE_DIRECT | LANE_DSYNC};

	for (size_t i = 0; i < array_count(ways); i++) {
		struct device *dev = open_file(scratch_folder());
		struct device *lane = open_lane(dev, ways[i]);
		struct dev_request batch[2];

		cr_assert_eq(dev_read(dev, back, BLOCK, REGION), 0, "now it is in the cache");
		memset(block, 'a' + (int)i, sizeof(block));
		cr_assert_eq(dev_write(lane, block, BLOCK, REGION), 0);
		cr_assert_eq(dev_flush(lane), 0);
		cr_assert_eq(dev_read(dev, back, BLOCK, REGION), 0);
		cr_assert_eq(memcmp(back, block, BLOCK), 0);
		for (int n = 0; n < 2; n++)
			batch[n] = (struct dev_request){
				.buf = block,
				.len = BLOCK,
				.is_write = true,
				.offset = REGION + BLOCK + n * 3 * BLOCK,
			};
		cr_assert_eq(dev_batch(lane, batch, 2), 0);
		cr_assert_eq(dev_read(dev, back, BLOCK, REGION + 4 * BLOCK), 0);
		cr_assert_eq(memcmp(back, block, BLOCK), 0);
		dev_close(lane);
		close_file(dev);
	}
}

Test(lane, must_be_direct_and_aligned)
{
	struct device *dev = open_file(scratch_folder());
	struct device *lane;

	cr_assert_eq(dev_open_lane(&lane, dev, 0, REGION, REGION_BYTES), -EOPNOTSUPP);
	cr_assert_eq(dev_open_lane(&lane, dev, LANE_DSYNC, REGION, REGION_BYTES), -EOPNOTSUPP);
	cr_assert_eq(dev_open_lane(&lane, dev, LANE_DIRECT, REGION + 1, REGION_BYTES), -EOPNOTSUPP);
	cr_assert_eq(dev_open_lane(&lane, dev, LANE_DIRECT, BYTES, REGION_BYTES), -EIO);
	close_file(dev);
	cr_assert_eq(dev_open_memory(&dev, BYTES), 0);
	cr_assert_eq(dev_open_lane(&lane, dev, 0, REGION, REGION_BYTES), -EOPNOTSUPP);
	dev_close(dev);
}

static int try_open(void)
{
	struct device *dev;
	int error = dev_open_file(&dev, file_path, 0, 0);

	if (!error)
		dev_close(dev);
	return error;
}

/* What is in flight through a lane keeps its description, and that keeps the volume locked. */
Test(lane, inv_rec_2_the_lock_moves_along)
{
	struct device *dev = open_file(scratch_folder());
	struct device *lane = open_lane(dev, LANE_DIRECT);
	struct device *again;

	cr_assert_eq(try_open(), -BE_BUSY);
	dev_close(lane);
	cr_assert_eq(try_open(), -BE_BUSY, "the rest is still locked");
	lane = open_lane(dev, LANE_DIRECT | LANE_DSYNC);
	dev_close(dev); /* as when a process dies with a request of the lane's in flight */
	cr_assert_eq(try_open(), -BE_BUSY, "the lane's description is");
	dev_close(lane);
	cr_assert_eq(dev_open_file(&again, file_path, 0, 0), 0);
	close_file(again);
}

/* What other descriptions have written, past the cache; the lock stays where it is. */
Test(lane, reads_only)
{
	struct device *dev = open_file(scratch_folder());
	struct device *lane;

	cr_assert_eq(dev_open_lane(&lane, dev, LANE_DIRECT | LANE_READ, 0, 0), 0);
	memset(block, 'r', sizeof(block));
	cr_assert_eq(dev_write(dev, block, BLOCK, BYTES - BLOCK), 0);
	cr_assert_eq(dev_read(lane, back, BLOCK, BYTES - BLOCK), 0);
	cr_assert_eq(memcmp(back, block, BLOCK), 0);
	cr_assert_lt(dev_write(lane, block, BLOCK, 0), 0);
	dev_close(lane);
	cr_assert_eq(try_open(), -BE_BUSY);
	lane = open_lane(dev, LANE_DIRECT | LANE_READ);
	dev_close(dev);
	cr_assert_eq(try_open(), 0, "nothing is locked by it");
	dev_close(lane);
	cr_assert_eq(unlink(file_path), 0);
}

static void write_beside_flush(struct device *dev)
{
	struct device *lane = open_lane(dev, LANE_DIRECT | LANE_DSYNC);
	struct stats stats = {0};
	struct dev_request batch[3];

	dev->stats = &stats;
	for (unsigned round = 0; round < 8; round++) {
		size_t count = 1 + round % 3;

		memset(block, (int)round + 1, sizeof(block));
		for (size_t i = 0; i < count; i++)
			batch[i] = (struct dev_request){
				.buf = block,
				.len = BLOCK,
				.is_write = true,
				.offset = REGION + (round * 3 + i) * BLOCK,
			};
		if (round % 2)
			cr_assert_eq(dev_write(dev, block, 10, 0), 0);
		cr_assert_eq(dev_write_beside_flush(lane, batch, count), 0);
		cr_assert_eq(stat_read(&stats, STAT_dev_flushes), (round + 1) / 2);
		for (size_t i = 0; i < count; i++) {
			cr_assert_eq(dev_read(dev, back, BLOCK, batch[i].offset), 0);
			cr_assert_eq(memcmp(back, block, BLOCK), 0);
		}
	}
	batch[0].offset = BYTES;
	cr_assert_eq(dev_write(dev, block, 10, 0), 0);
	cr_assert_eq(dev_write_beside_flush(lane, batch, 1), -EIO);
	dev_close(lane);
	dev->stats = NULL;
}

Test(lane, beside_a_flush)
{
	struct device *dev = open_file(scratch_folder());

	write_beside_flush(dev);
	close_file(dev);
	cr_assert_eq(dev_open_memory(&dev, BYTES), 0);
	write_beside_flush(dev);
	dev_close(dev);
}

Test(lane, beside_a_flush_without_ring)
{
	struct device *dev = open_file(scratch_folder());
	int last = dup(STDERR_FILENO);
	struct rlimit limit = {.rlim_cur = (rlim_t)last + 1, .rlim_max = (rlim_t)last + 1};

	close(last); /* one for the lane, none for a ring */
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	write_beside_flush(dev);
	close_file(dev);
}

/* --------------------------------------------------------- flush_written() */

Test(written, inv_dev_6_a_flush_only_when_something_was_written)
{
	struct stats stats = {0};
	struct device *dev;

	cr_assert_eq(dev_open_memory(&dev, BYTES), 0);
	dev->stats = &stats;
	cr_assert_eq(dev_flush_written(dev), 0);
	cr_assert_eq(stat_read(&stats, STAT_dev_flushes), 0);
	for (unsigned i = 1; i <= 3; i++) {
		cr_assert_eq(dev_write(dev, block, 1, 0), 0);
		cr_assert_eq(dev_flush_written(dev), 0);
		cr_assert_eq(dev_flush_written(dev), 0);
		cr_assert_eq(stat_read(&stats, STAT_dev_flushes), i);
	}
	/* A failed write may have arrived in part; a failed flush covers nothing. */
	dev_memory_fail(dev, FAULT_WRITE, 0, -EIO, false);
	cr_assert_eq(dev_write(dev, block, 1, 0), -EIO);
	dev_memory_fail(dev, FAULT_FLUSH, 0, -EIO, false);
	cr_assert_eq(dev_flush_written(dev), -EIO);
	cr_assert_eq(dev_flush_written(dev), 0);
	cr_assert_eq(stat_read(&stats, STAT_dev_flushes), 4);
	dev_close(dev);
}

static struct device *late_dev;

static void write_late(const char *point)
{
	if (strcmp(point, "memory:flush-begun") != 0)
		return;
	os_linux_set_point_handler(NULL);
	check(dev_write(late_dev, block, 1, 0) == 0);
}

Test(written, inv_dev_6_what_comes_during_a_flush_is_not_covered)
{
	struct stats stats = {0};

	cr_assert_eq(dev_open_memory(&late_dev, BYTES), 0);
	late_dev->stats = &stats;
	cr_assert_eq(dev_write(late_dev, block, 1, 0), 0);
	os_linux_set_point_handler(write_late);
	cr_assert_eq(dev_flush(late_dev), 0);
	cr_assert_eq(dev_flush_written(late_dev), 0);
	cr_assert_eq(stat_read(&stats, STAT_dev_flushes), 2);
	dev_close(late_dev);
}

/* -------------------------------------------------------------- maps: files */

static void use_map(struct device *dev)
{
	struct dev_map map;

	memset(block, 'x', sizeof(block));
	cr_assert_eq(dev_write(dev, block, BLOCK, REGION + 100), 0);
	cr_assert_eq(dev_map(dev, REGION + 64, REGION_BYTES, &map), 0);
	cr_assert_eq(memcmp(map.at + 36, block, BLOCK), 0);
	cr_assert_eq(map.byte_addressable, dev->byte_addressable);
	memset(map.at, 'y', REGION_BYTES);
	if (map.byte_addressable)
		dev_persist(dev, &map, map.at + 3, 1000);
	cr_assert_eq(dev_flush(dev), 0);
	dev_unmap(dev, &map);
	dev_unmap(dev, &map);
	memset(block, 'y', sizeof(block));
	cr_assert_eq(dev_read(dev, back, BLOCK, REGION + 64 + REGION_BYTES - BLOCK), 0);
	cr_assert_eq(memcmp(back, block, BLOCK), 0);
	cr_assert_eq(dev_read(dev, back, 1, REGION + 64 + REGION_BYTES), 0);
	cr_assert_eq(back[0], 0);
}

Test(map, of_a_file)
{
	struct device *dev = open_file(scratch_folder());

	use_map(dev);
	close_file(dev);
}

Test(map, of_a_file_in_memory)
{
	struct device *dev = open_file("/dev/shm");

	if (dev->byte_addressable)
		cr_assert_eq(dev->block_bytes, DEV_MAP_LINE);
	use_map(dev);
	close_file(dev);
}

Test(map, of_a_memory_device)
{
	struct device *dev;

	cr_assert_eq(dev_open_memory(&dev, BYTES), 0);
	use_map(dev);
	dev_close(dev);
	cr_assert_eq(dev_open_memory(&dev, BYTES), 0);
	dev_memory_be_pmem(dev);
	use_map(dev);
	dev_close(dev);
}

Test(map, what_cannot_be_mapped)
{
	struct device *dev, *overlay;
	struct dev_map map;

	cr_assert_eq(dev_open_memory(&dev, BYTES), 0);
	cr_assert_eq(dev_map(dev, BYTES, 64, &map), -EIO);
	cr_assert_eq(dev_open_overlay(&overlay, dev), 0);
	cr_assert_eq(dev_map(overlay, 0, 64, &map), -EOPNOTSUPP);
	dev_unmap(overlay, &map);
	dev_close(overlay);
}

/* ------------------------------------------------------- recorded: lanes */

static bool survives(struct device *dev, uint64_t offset, uint8_t value)
{
	struct device *state;
	bool varies;
	uint8_t byte;

	cr_assert_eq(dev_record_state(dev, dev_record_count(dev), CUT_DROP_ALL, 0, &state, &varies),
		     0);
	cr_assert_eq(dev_read(state, &byte, 1, offset), 0);
	dev_close(state);
	return byte == value;
}

Test(record, a_write_to_a_dsync_lane_is_durable_and_nothing_else)
{
	struct device *dev, *direct, *dsync;

	cr_assert_eq(dev_open_memory(&dev, BYTES), 0);
	dev_record_start(dev);
	direct = open_lane(dev, LANE_DIRECT);
	dsync = open_lane(dev, LANE_DIRECT | LANE_DSYNC);
	memset(block, 1, sizeof(block));
	cr_assert_eq(dev_write(dev, block, 1, 0), 0);
	cr_assert_eq(dev_write(direct, block, 512, REGION), 0);
	cr_assert_eq(dev_write(dsync, block, 512, REGION + 512), 0);
	cr_assert(!survives(dev, 0, 1) && !survives(dev, REGION, 1));
	cr_assert(survives(dev, REGION + 512, 1));
	cr_assert_eq(dev_record_undecided(dev, dev_record_count(dev)), 2);
	cr_assert_eq(dev_record_undecided(dev, dev_record_count(dev) - 1), 3, "until it returns");
	cr_assert_eq(dev_flush(dev), 0);
	cr_assert(survives(dev, 0, 1) && survives(dev, REGION, 1));
	dev_close(direct);
	dev_close(dsync);
	dev_close(dev);
}

/* Both orders of the write and the flush beside it are recorded. */
Test(record, beside_a_flush_in_both_orders)
{
	struct device *dev, *lane;
	unsigned flush_first = 0, flush_last = 0;

	cr_assert_eq(dev_open_memory(&dev, BYTES), 0);
	lane = open_lane(dev, LANE_DIRECT | LANE_DSYNC);
	for (unsigned i = 0; i < 4; i++) {
		struct dev_request write = {
			.buf = block,
			.len = 512,
			.offset = REGION,
			.is_write = true,
		};
		size_t first;

		dev_record_start(dev);
		cr_assert_eq(dev_write(dev, block, 1, 0), 0);
		first = dev_record_count(dev);
		cr_assert_eq(dev_write_beside_flush(lane, &write, 1), 0);
		flush_first += dev_record_is_flush(dev, first);
		flush_last += dev_record_is_flush(dev, dev_record_count(dev) - 1);
		cr_assert_eq(dev_record_undecided(dev, dev_record_count(dev)), 0);
	}
	cr_assert_eq(flush_first, 2);
	cr_assert_eq(flush_last, 2);
	dev_close(lane);
	dev_close(dev);
}

/* --------------------------------------------------------- recorded: maps */

#define LINES 8u

static struct dev_map map;

static struct device *open_map(bool pmem)
{
	struct device *dev;

	cr_assert_eq(dev_open_memory(&dev, BYTES), 0);
	if (pmem)
		dev_memory_be_pmem(dev);
	cr_assert_eq(dev_map(dev, REGION, LINES * DEV_MAP_LINE, &map), 0);
	dev_record_start(dev);
	return dev;
}

static void store(unsigned line, uint8_t value)
{
	memset(map.at + line * DEV_MAP_LINE, value, DEV_MAP_LINE);
}

static bool line_survives(struct device *dev, unsigned line, uint8_t value)
{
	return survives(dev, REGION + line * DEV_MAP_LINE, value);
}

Test(record, inv_rec_dev_4_a_persist_covers_its_lines_and_no_flush_does)
{
	struct device *dev = open_map(true);

	for (unsigned line = 0; line < LINES; line++)
		store(line, 1);
	dev_persist(dev, &map, map.at + 2 * DEV_MAP_LINE, 2 * DEV_MAP_LINE);
	dev_persist(dev, &map, map.at + 5 * DEV_MAP_LINE + 10, 1);
	for (unsigned line = 0; line < LINES; line++)
		cr_assert_eq(line_survives(dev, line, 1), line == 2 || line == 3 || line == 5);
	cr_assert_eq(dev_flush(dev), 0);
	cr_assert(!line_survives(dev, 0, 1));
	/* Changed again: what is durable is the line as it was. */
	store(2, 2);
	dev_record_look(dev);
	cr_assert(line_survives(dev, 2, 1));
	/* The process is gone: now they are like other writes. */
	dev_unmap(dev, &map);
	cr_assert(!line_survives(dev, 0, 1));
	cr_assert_eq(dev_flush(dev), 0);
	cr_assert(line_survives(dev, 0, 1) && line_survives(dev, 2, 2));
	dev_close(dev);
}

Test(record, inv_rec_dev_4_a_flush_covers_a_map_of_pages)
{
	struct device *dev = open_map(false);

	store(1, 1);
	cr_assert_eq(dev_flush(dev), 0);
	store(2, 1);
	dev_record_look(dev);
	cr_assert(line_survives(dev, 1, 1) && !line_survives(dev, 2, 1));
	dev_unmap(dev, &map);
	dev_close(dev);
}

/* A line may have arrived as it was at any look since it was last durable. */
Test(record, any_version_of_a_line_any_subset_of_lines)
{
	struct device *dev = open_map(true);
	bool met[4][4] = {{false}};
	unsigned combinations = 0;

	for (uint8_t version = 1; version <= 3; version++) {
		store(0, version);
		store(1, version);
		dev_record_look(dev);
	}
	for (uint64_t seed = 0; seed < 400; seed++) {
		struct device *state;
		uint8_t lines[2 * DEV_MAP_LINE];
		bool varies;

		cr_assert_eq(dev_record_state(dev, dev_record_count(dev), CUT_SUBSET, seed, &state,
					      &varies),
			     0);
		cr_assert_eq(dev_read(state, lines, sizeof(lines), REGION), 0);
		for (unsigned i = 1; i < DEV_MAP_LINE; i++)
			cr_assert(lines[i] == lines[0]);
		cr_assert(lines[0] < 4 && lines[DEV_MAP_LINE] < 4);
		combinations += !met[lines[0]][lines[DEV_MAP_LINE]];
		met[lines[0]][lines[DEV_MAP_LINE]] = true;
		dev_close(state);
	}
	cr_assert_eq(combinations, 16);
	dev_unmap(dev, &map);
	dev_close(dev);
}
