/* Resizing the log of a volume: what is refused, undone, given to whom (INV-LOG-10). */
#include "engine/log_resize.h"
#include "engine/flush.h"
#include "engine/space.h"
#include "fsck/check.h"
#include "tests/lib/scratch.h"
#include "tests/lib/script.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>

#define KIB 1024u
#define MIB (1024u * KIB)

static struct device *dev, *log_dev;
static struct volume *volume;
static struct core *core;
static char why[LOG_RESIZE_TEXT_BYTES];

static void open_it(bool read_only)
{
	const struct volume_options options = {
		.cache_bytes = SCRATCH_CACHE,
		.log_buffer_bytes = MIB,
		.no_background = true,
		.read_only = read_only,
		.log_dev = log_dev ? scratch_keep(log_dev) : NULL,
	};

	cr_assert_eq(volume_open(&volume, scratch_keep(dev), &options), 0);
	cr_assert_eq(core_open(&core, volume), 0);
}

static void make(uint64_t bytes)
{
	dev = scratch_format(bytes, SCRATCH_PAGE, SCRATCH_LOG);
	open_it(false);
}

static void make_external(uint64_t room)
{
	struct format_params params = {
		.size_bytes = 4 * MIB,
		.page_size = SCRATCH_PAGE,
		.log_bytes = SCRATCH_LOG,
		.uuid = "scratch-volume!",
		.log_uuid = "scratch-its-log",
	};

	cr_assert_eq(dev_open_memory(&dev, 4 * MIB), 0);
	cr_assert_eq(dev_open_memory(&log_dev, room), 0);
	params.log_dev = log_dev;
	cr_assert_eq(volume_format(dev, &params, NULL), 0);
	open_it(false);
}

static void close_it(void)
{
	struct fsck_options options = {.data = true, .log_dev = log_dev};
	struct fsck_result result;

	core_close(core);
	cr_assert_eq(volume_close(volume), 0);
	cr_assert_eq(fsck_walk(dev, &options, NULL, NULL, &result), 0);
	cr_assert_eq(result.problems, 0);
	fsck_result_free(&result);
}

static void end(void)
{
	close_it();
	dev_close(log_dev);
	dev_close(dev);
}

static void run(const char *statement)
{
	cr_assert_eq(script_run(core, statement), 0, "%s", statement);
}

static uint64_t free_blocks(void)
{
	struct space_counts counts;

	cr_assert_eq(flush_everything(volume->flusher), 0);
	space_advance(volume->space);
	space_count(volume->space, &counts);
	return counts.free;
}

Test(log_resize, out_of_its_home_and_back)
{
	uint64_t before, home;

	make(12 * MIB);
	run("create a");
	run("write a 0 50000 1");
	before = free_blocks();
	home = volume->geo.log_start;
	cr_assert_eq(log_resize(volume, MIB, why), 0);
	cr_assert_geq(volume->geo.log_start, volume->geo.groups_start);
	cr_assert_eq(free_blocks(), before - MIB / BLOCK_SIZE);
	cr_assert_eq(log_resize(volume, MIB - 64 * KIB, why), 0);
	cr_assert_eq(free_blocks(), before - (MIB - 64 * KIB) / BLOCK_SIZE, "in place");
	cr_assert_eq(log_resize(volume, 2 * MIB, why), 0);
	cr_assert_eq(free_blocks(), before - 2 * MIB / BLOCK_SIZE);
	close_it();
	open_it(false);
	cr_assert_eq(free_blocks(), before - 2 * MIB / BLOCK_SIZE);
	cr_assert_eq(log_resize(volume, SCRATCH_LOG, why), 0);
	cr_assert_eq(volume->geo.log_start, home);
	cr_assert_eq(free_blocks(), before);
	cr_assert_eq(stat_read(&volume->stats, STAT_log_resizes), 1);
	end();
}

Test(log_resize, what_cannot_be_is_refused_in_words)
{
	make(4 * MIB);
	cr_assert_eq(log_resize(volume, SCRATCH_LOG, why), 0, "the same: nothing to do");
	cr_assert_eq(log_resize(volume, 100 * KIB, why), -EINVAL);
	cr_assert(strstr(why, "too small") && strstr(why, "512 KiB"), "%s", why);
	cr_assert_eq(log_resize(volume, 3800 * KIB, why), -ENOSPC);
	cr_assert(strstr(why, "in one piece"), "%s", why);
	cr_assert_eq(log_resize(volume, 200 * MIB, why), -EINVAL);
	cr_assert(strstr(why, "too large"), "%s", why);
	cr_assert_eq(log_resize(volume, UINT64_MAX, why), -EINVAL);
	cr_assert_eq(volume->geo.log_bytes, SCRATCH_LOG);
	close_it();
	open_it(true);
	cr_assert_eq(log_resize(volume, MIB, why), -EROFS);
	core_close(core);
	volume_abandon(volume);
	dev_close(dev);
}

Test(log_resize, an_external_log_stays_where_it_is)
{
	make_external(2 * MIB);
	run("create a");
	cr_assert_eq(log_resize(volume, 2 * MIB, why), 0);
	run("write a 0 9000 3");
	cr_assert_eq(log_resize(volume, 3 * MIB, why), -ENOSPC);
	cr_assert(strstr(why, "has only"), "%s", why);
	cr_assert_eq(log_resize(volume, MIB, why), 0);
	close_it();
	open_it(false);
	cr_assert_eq(volume->geo.log_bytes, MIB);
	end();
}

/* Whatever fails before the switch leaves all as it was, or a volume that has failed. */
static void fail_each(bool external, uint64_t to, unsigned kind)
{
	for (uint64_t after = 0;; after++) {
		bool failed;
		int rc;

		if (external)
			make_external(2 * MIB);
		else
			make(8 * MIB);
		run("create a");
		run("write a 0 9000 1");
		run("sync");
		dev_memory_fail(after % 2 && external ? log_dev : dev, kind,
				external ? after / 2 : after, -EIO, false);
		rc = log_resize(volume, to, why);
		failed = atomic_load(&volume->failed);
		dev_memory_fail(dev, 0, 0, 0, false);
		if (external)
			dev_memory_fail(log_dev, 0, 0, 0, false);
		if (rc == 0 && !failed && dev_memory_fault_count(dev) == 0 &&
		    (!external || dev_memory_fault_count(log_dev) == 0) && after > 4) {
			end();
			return;
		}
		cr_assert(rc == 0 || why[0] != '\0');
		/* INV-LOG-4: what is reported durable after it is so. */
		rc = script_run(core, "create b");
		if (rc == 0)
			rc = script_run(core, "sync");
		cr_assert(rc != 0 || !failed);
		core_close(core);
		volume_abandon(volume);
		open_it(false);
		cr_assert_eq(scratch_problems(volume), 0);
		run("unlink a");
		if (rc == 0)
			run("unlink b");
		end();
		log_dev = NULL;
	}
}

Test(log_resize, each_write_that_fails)
{
	fail_each(false, MIB, FAULT_WRITE);
	fail_each(true, MIB, FAULT_WRITE);
}

Test(log_resize, each_flush_that_fails)
{
	fail_each(false, MIB, FAULT_FLUSH);
	fail_each(true, MIB, FAULT_FLUSH);
}

/* INV-LOG-10: blocks whose bits are clear already, but which the superblock still names. */
static bool tried;

static void fill_up(const char *point)
{
	struct space_counts counts;
	struct reservation r;

	if (strcmp(point, "resize:forgetting"))
		return;
	tried = true;
	os_linux_set_point_handler(NULL);
	cr_assert_eq(log_mark(volume->log, log_next_lsn(volume->log)), 0);
	space_advance(volume->space);
	space_count(volume->space, &counts);
	while (space_reserve(volume->space, 1, 0, 0, &r) == 0)
		cr_assert(r.piece[0].start < volume->geo.other.start ||
			  r.piece[0].start >= volume->geo.other.start + volume->geo.other.blocks);
}

Test(log_resize, inv_log_10_nobody_gets_what_the_superblock_names)
{
	make(8 * MIB);
	cr_assert_eq(log_resize(volume, MIB, why), 0);
	os_linux_set_point_handler(fill_up);
	cr_assert_eq(log_resize(volume, SCRATCH_LOG, why), 0);
	cr_assert(tried);
	core_close(core);
	volume_abandon(volume);
	open_it(false);
	cr_assert_eq(scratch_problems(volume), 0);
	end();
}

/* What was freed a moment ago, and still waits, makes the room. */
Test(log_resize, room_that_purge_gives_back_counts)
{
	make(6 * MIB);
	run("create a");
	for (unsigned i = 0; i < 4; i++) {
		char statement[64];

		snprintf(statement, sizeof(statement), "write a %u 1000000 %u", i * 1000000, i);
		run(statement);
	}
	cr_assert_eq(log_resize(volume, 3 * MIB, why), -ENOSPC);
	run("unlink a");
	cr_assert_eq(log_resize(volume, 3 * MIB, why), 0, "%s", why);
	end();
}
