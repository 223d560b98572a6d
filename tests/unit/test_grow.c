/* Growing a volume: what is refused, undone, and what it leaves (grow.h). */
#include "engine/grow.h"
#include "engine/backup.h"
#include "engine/flush.h"
#include "engine/space.h"
#include "fsck/check.h"
#include "fsck/lost_superblock.h"
#include "tests/lib/hoard.h"
#include "tests/lib/scratch.h"
#include "tests/lib/scratch_file.h"
#include "tests/lib/script.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1u << 20)
#define GROUP_BYTES (GROUP_BLOCKS(SCRATCH_PAGE) * (uint64_t)BLOCK_SIZE)

static struct device *dev;
static uint64_t file_bytes; /* not 0: the volume sees a file of this size */
static struct volume *volume;
static struct core *core;
static char text[GROW_TEXT_BYTES];

static void open_it(bool read_only)
{
	const struct volume_options options = {
		.cache_bytes = SCRATCH_CACHE,
		.log_buffer_bytes = MIB,
		.no_background = true,
		.read_only = read_only,
	};

	struct device *kept = file_bytes ? scratch_keep_file(dev, file_bytes) : scratch_keep(dev);

	cr_assert_eq(volume_open(&volume, kept, &options), 0);
	cr_assert_eq(core_open(&core, volume), 0);
}

/* A volume that fills only a part of its device. */
static void make(uint64_t bytes, uint64_t device_bytes)
{
	const struct format_params params = {
		.size_bytes = bytes,
		.page_size = SCRATCH_PAGE,
		.log_bytes = SCRATCH_LOG,
		.uuid = "scratch-volume!",
		.hash_seed = "scratch-hashseed",
	};

	cr_assert_eq(dev_open_memory(&dev, device_bytes), 0);
	cr_assert_eq(volume_format(dev, &params, NULL), 0);
	open_it(false);
}

static void run(const char *statement)
{
	cr_assert_eq(script_run(core, statement), 0, "%s", statement);
}

static void close_it(void)
{
	struct fsck_options options = {.data = true};
	struct fsck_result result;

	core_close(core);
	cr_assert_eq(volume_close(volume), 0);
	cr_assert_eq(fsck_walk(dev, &options, NULL, NULL, &result), 0);
	cr_assert_eq(result.problems, 0);
	fsck_result_free(&result);
}

static void end(void)
{
	os_linux_set_point_handler(NULL);
	close_it();
	dev_close(dev);
}

static int grow(uint64_t bytes)
{
	return volume_grow(volume, bytes, text);
}

static void refused(uint64_t bytes, int rc, const char *why)
{
	uint64_t had = volume->geo.block_count;

	cr_assert_eq(grow(bytes), rc);
	cr_assert(strstr(text, why) != NULL, "%s", text);
	cr_assert_eq(volume->geo.block_count, had);
}

static void is_as_large_as(uint64_t bytes)
{
	struct space_counts counts = hoard_counts(volume);

	cr_assert_eq(volume->geo.block_count, bytes / BLOCK_SIZE);
	cr_assert_eq(le64_get(volume->sb.block_count), bytes / BLOCK_SIZE);
	cr_assert_eq(counts.total, bytes / BLOCK_SIZE - 1 - volume->geo.groups_start);
}

/* ---------------------------------------------------------------- the rules */

Test(grow, what_is_refused)
{
	make(8 * MIB, 16 * MIB);
	refused(4 * MIB, -EINVAL, "cannot become smaller; it has 8 MiB");
	refused(1, -EINVAL, "cannot become smaller");
	refused(32 * MIB, -ENOSPC, "its device has only 16 MiB");
	refused(UINT64_MAX, -EFBIG, "too large");
	refused((uint64_t)GROUP_BYTES << 32, -EFBIG, "too large");
	cr_assert_eq(grow(8 * MIB), 0);
	cr_assert(strstr(text, "nothing to do: the volume has 8 MiB") != NULL, "%s", text);
	cr_assert(log_resize_forbid(volume));
	refused(0, -EBUSY, "a backup is reading the log");
	log_resize_allow(volume);
	cr_assert_eq(stat_read(&volume->stats, STAT_volume_grows), 0);
	cr_assert_eq(grow(0), 0);
	cr_assert_str_empty(text);
	is_as_large_as(16 * MIB);
	cr_assert_eq(grow(0), 0);
	cr_assert_str_eq(text, "nothing to do: the volume has 16 MiB, as its device");
	close_it();
	open_it(true);
	refused(0, -EROFS, "mounted read-only");
	end();
}

/* A few blocks, a part of a group, a group, several. */
Test(grow, by_any_number_of_blocks)
{
	uint64_t sizes[] = {8 * MIB + BLOCK_SIZE, 8 * MIB + 3 * BLOCK_SIZE, 9 * MIB,
			    GROUP_BYTES - 5 * BLOCK_SIZE, GROUP_BYTES, GROUP_BYTES + 9 * MIB,
			    2 * GROUP_BYTES + 7 * MIB, 2 * GROUP_BYTES + 8 * MIB,
			    7 * GROUP_BYTES + 40 * MIB};
	struct space_counts before, after;

	make(8 * MIB, 8 * GROUP_BYTES);
	for (size_t i = 0; i < array_count(sizes); i++) {
		before = hoard_counts(volume);
		cr_assert_eq(grow(sizes[i] + i), 0);
		after = hoard_counts(volume);
		cr_assert_eq(volume->geo.block_count, sizes[i] / BLOCK_SIZE);
		/* A new group has a bitmap page. */
		cr_assert_geq(after.free, before.free);
		cr_assert_geq(after.free + 2 + (sizes[i] / GROUP_BYTES) * 2,
			      before.free + after.total - before.total);
		cr_assert_eq(scratch_problems(volume), 0);
		if (i % 3 == 0) {
			close_it();
			open_it(false);
			cr_assert_eq(hoard_counts(volume).free, after.free);
			cr_assert_eq(hoard_counts(volume).kept, after.kept);
		}
	}
	is_as_large_as(7 * GROUP_BYTES + 40 * MIB);
	end();
}

/* INV-GROW-3, and sizes around it. */
Test(grow, a_copy_in_the_way_of_a_bitmap_page)
{
	for (int more = -1; more <= 9; more++) {
		uint64_t start;

		make(8 * MIB, 2 * GROUP_BYTES);
		start = volume->geo.groups_start;
		cr_assert_eq(grow((start + GROUP_BLOCKS(SCRATCH_PAGE) + 1) * BLOCK_SIZE +
				  (int64_t)more * BLOCK_SIZE), 0);
		cr_assert_eq(volume->geo.group_count, more >= 8 ? 2 : 1);
		run("create a");
		run("write a 0 900000 1");
		cr_assert_eq(grow(0), 0);
		is_as_large_as(2 * GROUP_BYTES);
		cr_assert_eq(volume->geo.group_count, 2);
		cr_assert_eq(stat_read(&volume->stats, STAT_volume_grows), more == 0 ? 3 : 2);
		run("write a 900000 900000 2");
		run("flush");
		end();
	}
}

/* A full volume goes on, its files on what it has gained; the reserve for pages grows, too. */
Test(grow, of_a_full_volume)
{
	struct space_counts before, after;
	struct hoard hoard;

	make(8 * MIB, 64 * MIB);
	run("create a");
	hoard = hoard_take(volume, 0);
	cr_assert_eq(script_run(core, "write a 0 900000 1"), -ENOSPC);
	before = hoard_counts(volume);
	cr_assert_eq(grow(0), 0);
	after = hoard_counts(volume);
	cr_assert_eq(after.total - before.total, 56 * MIB / BLOCK_SIZE);
	cr_assert_geq(after.kept, 64 * MIB / BLOCK_SIZE / 33);
	run("write a 0 900000 1");
	hoard_give(volume, &hoard);
	end();
}

/* ------------------------------------------------------- a file, and failures */

Test(grow, a_file_is_extended_and_measured)
{
	char path[SCRATCH_PATH_BYTES];
	int fd = scratch_file(path);
	const struct volume_options options = {.cache_bytes = SCRATCH_CACHE, .no_background = true};
	const struct format_params params = {
		.size_bytes = 8 * MIB, .page_size = SCRATCH_PAGE, .log_bytes = SCRATCH_LOG};
	struct stat st;

	cr_assert_eq(ftruncate(fd, 8 * MIB), 0);
	cr_assert_eq(dev_open_file(&dev, path, 0, 0), 0);
	cr_assert_eq(volume_format(dev, &params, NULL), 0);
	cr_assert_eq(volume_open(&volume, dev, &options), 0);
	cr_assert_eq(grow(0), 0);
	cr_assert(strstr(text, "nothing to do") != NULL);
	cr_assert_eq(grow(24 * MIB), 0);
	cr_assert_eq(fstat(fd, &st), 0);
	cr_assert_eq(st.st_size, 24 * MIB);
	/* By somebody else. */
	cr_assert_eq(ftruncate(fd, 200 * MIB), 0);
	cr_assert_eq(grow(0), 0);
	is_as_large_as(200 * MIB);
	/* A size that the file system cannot have is undone, or was never there. */
	cr_assert_neq(grow(1ull << 60), 0);
	cr_assert_eq(volume->geo.block_count, 200 * MIB / BLOCK_SIZE);
	cr_assert_eq(fstat(fd, &st), 0);
	cr_assert_eq(st.st_size, 200 * MIB);
	cr_assert_eq(scratch_problems(volume), 0);
	cr_assert_eq(volume_close(volume), 0);
	close(fd);
	unlink(path);
}

/*
 * Each write and each flush fails, once: nothing has happened, a file has its former size,
 * or the volume has failed.
 */
static void each_failure(enum dev_fault_kind kind, bool is_file)
{
	uint64_t undone = 0;
	bool failed = true;

	for (unsigned n = 0; failed; n++) {
		int rc;

		file_bytes = is_file ? 8 * MIB : 0;
		make(8 * MIB, 2 * GROUP_BYTES);
		run("create a");
		run("sync");
		dev_memory_fail(dev, kind, n, -EIO, false);
		rc = grow(2 * GROUP_BYTES);
		failed = dev_memory_fault_count(dev) > 0;
		dev_memory_fail(dev, 0, 0, 0, false);
		cr_assert(rc == 0 || failed);
		cr_assert(rc == 0 || text[0] != '\0');
		if (rc && is_file && !atomic_load(&volume->failed)) {
			cr_assert_eq(volume->dev->size_bytes, 8 * MIB);
			undone++;
		}
		file_bytes = is_file ? 2 * GROUP_BYTES : 0;
		if (atomic_load(&volume->failed)) {
			core_close(core);
			volume_abandon(volume);
			open_it(false);
		}
		cr_assert(volume->geo.block_count == 8 * MIB / BLOCK_SIZE ||
			  volume->geo.block_count == 2 * GROUP_BYTES / BLOCK_SIZE);
		run("create b");
		run("unlink a");
		cr_assert_eq(grow(2 * GROUP_BYTES), 0);
		is_as_large_as(2 * GROUP_BYTES);
		end();
	}
	cr_assert_eq(undone > 0, is_file && kind == FAULT_WRITE);
	file_bytes = 0;
}

Test(grow, each_write_that_fails)
{
	each_failure(FAULT_WRITE, false);
	each_failure(FAULT_WRITE, true);
}

Test(grow, each_flush_that_fails)
{
	each_failure(FAULT_FLUSH, false);
	each_failure(FAULT_FLUSH, true);
}

/* ------------------------------------------------------------- superblocks */

static void die_before_block_0(const char *name)
{
	if (strcmp(name, "grow:before_switch") == 0)
		/* The copy is written and flushed; block 0 fails. */
		dev_memory_fail(dev, FAULT_WRITE, 1, -EIO, true);
}

/*
 * A crash between the two writes leaves a superblock of a larger volume in the device's
 * last block.  The next mount does away with it.
 */
Test(grow, a_copy_that_was_left_is_forgotten)
{
	struct disk_superblock sb;

	make(8 * MIB, 16 * MIB);
	os_linux_set_point_handler(die_before_block_0);
	cr_assert_eq(grow(0), -EIO);
	os_linux_set_point_handler(NULL);
	dev_memory_fail(dev, 0, 0, 0, false);
	core_close(core);
	volume_abandon(volume);
	cr_assert_eq(dev_read(dev, &sb, sizeof(sb), 16 * MIB - BLOCK_SIZE), 0);
	cr_assert_eq(le64_get(sb.block_count), 16 * MIB / BLOCK_SIZE);
	/* A read-only mount looks, and leaves it alone. */
	open_it(true);
	cr_assert_eq(volume->geo.block_count, 8 * MIB / BLOCK_SIZE);
	close_it();
	cr_assert_eq(dev_read(dev, &sb, sizeof(sb), 16 * MIB - BLOCK_SIZE), 0);
	cr_assert_eq(le64_get(sb.block_count), 16 * MIB / BLOCK_SIZE);
	open_it(false);
	cr_assert_eq(volume->geo.block_count, 8 * MIB / BLOCK_SIZE);
	run("create a");
	close_it();
	cr_assert_eq(dev_read(dev, &sb, sizeof(sb), 16 * MIB - BLOCK_SIZE), 0);
	cr_assert_eq(le64_get(sb.block_count), 0);
	open_it(false);
	end();
}

/* Of several that a search meets, the newest counts; the one that was left is zeroed. */
Test(grow, a_lost_block_0_is_found_again)
{
	static const uint8_t nothing[BLOCK_SIZE];
	struct superblock_found found = {0};
	struct disk_superblock old, sb;

	make(8 * MIB, 16 * MIB);
	cr_assert_eq(dev_read(dev, &old, sizeof(old), 8 * MIB - BLOCK_SIZE), 0);
	cr_assert_eq(grow(12 * MIB), 0);
	cr_assert_eq(dev_read(dev, &sb, sizeof(sb), 8 * MIB - BLOCK_SIZE), 0);
	cr_assert_eq(memcmp(&sb, nothing, sizeof(sb)), 0);
	run("create a");
	close_it();
	cr_assert_eq(dev_write(dev, &old, sizeof(old), 8 * MIB - BLOCK_SIZE), 0);
	cr_assert_eq(dev_write(dev, nothing, sizeof(nothing), 0), 0);
	cr_assert_eq(superblock_find(dev, &found), 0);
	cr_assert(found.from_copy);
	cr_assert_eq(le64_get(found.sb.block_count), 12 * MIB / BLOCK_SIZE);
	cr_assert_eq(superblock_write(dev, &found.sb), 0);
	open_it(false);
	end();
}

/* The remains of a torn block 0 say where to look, whatever is in the last block. */
Test(grow, a_torn_block_0_names_its_copy)
{
	struct disk_superblock sb;
	bool from_copy;

	make(8 * MIB, 16 * MIB);
	cr_assert_eq(grow(12 * MIB), 0);
	close_it();
	cr_assert_eq(superblock_read(dev, &sb, NULL), 0);
	sb.block_count = le64_make(16 * MIB / BLOCK_SIZE);
	cr_assert_eq(superblock_write(dev, &sb), 0); /* a valid one at the end */
	sb.block_count = le64_make(12 * MIB / BLOCK_SIZE);
	cr_assert_eq(superblock_write(dev, &sb), 0);
	sb.reserved[0] = 1;
	cr_assert_eq(dev_write(dev, &sb, sizeof(sb), 0), 0);
	cr_assert_eq(superblock_read(dev, &sb, &from_copy), 0);
	cr_assert(from_copy);
	cr_assert_eq(le64_get(sb.block_count), 12 * MIB / BLOCK_SIZE);
	open_it(false);
	is_as_large_as(12 * MIB);
	end();
}

/* ------------------------------------------------------- nothing before its time */

static uint64_t total_seen;

static void look(const char *name)
{
	if (strcmp(name, "grow:switched") == 0 || strcmp(name, "grow:logged") == 0)
		total_seen = hoard_counts(volume).total;
}

/* INV-GROW-1. */
Test(grow, nobody_gets_a_new_block_before_the_switch)
{
	make(8 * MIB, 16 * MIB);
	os_linux_set_point_handler(look);
	cr_assert_eq(grow(0), 0);
	cr_assert_eq(total_seen, 8 * MIB / BLOCK_SIZE - 1 - volume->geo.groups_start);
	is_as_large_as(16 * MIB);
	end();
}
