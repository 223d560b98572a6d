/*
 * Recovery by many threads: the same pages in place, byte for byte, as by one,
 * whether they all fit the pool or hardly any of them do.
 *
 * The log is long enough for everything that short ones do without: a thread
 * reads ahead of the scan, one writes back while others redo, and the frames run
 * out.
 */
#include "engine/base/message.h"
#include "engine/pool_internal.h"
#include "tests/lib/core_load.h"
#include "tests/lib/scratch.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define VOLUME_BYTES (48u << 20)
#define LOG_BYTES (6u << 20)
#define PAGE_BYTES 4096u

static struct device *crashed; /* never changed */

static struct {
	struct device *dev;
	uint8_t *pages; /* the groups, when everything is in place */
	uint64_t start, bytes;
} image;

static bool log_is_full(void *arg)
{
	struct log *log = ((struct volume *)arg)->log;

	return log_next_lsn(log) - log_checkpoint_lsn(log) > log_capacity(log) / 10 * 9;
}

static void make_crashed(void)
{
	struct volume_options options = {
		.cache_bytes = 64u << 20,
		.no_background = true,
		.commit_interval_ns = OS_FOREVER,
	};
	struct core_load *load = aligned_alloc(64, sizeof(*load));
	struct volume *volume;
	struct core *core;

	crashed = scratch_format(VOLUME_BYTES, PAGE_BYTES, LOG_BYTES);
	check(load && volume_open(&volume, scratch_keep(crashed), &options) == 0);
	check(core_open(&core, volume) == 0);
	*load = (struct core_load){
		.core = core, .threads = 3, .enough = log_is_full, .arg = volume};
	core_load_start(load);
	core_load_join(load);
	check(volume_sync(volume) == 0);
	check(stat_read(&volume->stats, STAT_flush_batches) == 0);
	image.start = volume->geo.groups_start * BLOCK_SIZE;
	image.bytes = (volume->geo.block_count - 1) * BLOCK_SIZE - image.start;
	printf("race_recovery: %lu files\n", core_load_files(load));
	core_close(core);
	volume_abandon(volume);
	free(load);
}

static void watch(const char *name)
{
	static _Atomic unsigned calls;

	if (strcmp(name, "recovery:in_place") == 0)
		check(dev_read(image.dev, image.pages, image.bytes, image.start) == 0);
	else if (strcmp(name, "recovery:redo") == 0 && atomic_fetch_add(&calls, 1) % 8 == 0)
		sched_yield();
}

/* Recovers an overlay of the crashed device; what is then in place. */
static uint8_t *recover(bool one_thread, uint64_t cache_bytes)
{
	struct volume_options options = {
		.cache_bytes = cache_bytes,
		.no_background = one_thread,
		.commit_interval_ns = OS_FOREVER,
	};
	struct volume *volume;

	image.pages = malloc(image.bytes);
	check(image.pages && dev_open_overlay(&image.dev, scratch_keep(crashed)) == 0);
	os_linux_set_point_handler(watch);
	check(volume_open(&volume, image.dev, &options) == 0);
	os_linux_set_point_handler(NULL);
	check(stat_read(&volume->stats, STAT_corruptions) == 0);
	check(stat_read(&volume->stats, STAT_recovery_pages) > 2 * POOL_FRAMES_MIN);
	check(scratch_problems(volume) == 0);
	volume_abandon(volume);
	return image.pages;
}

int main(void)
{
	uint8_t *expected;

	message_quiet(LOG_CRIT);
	make_crashed();
	expected = recover(true, 64u << 20);
	for (unsigned round = 0; round < 3 * test_scale(); round++) {
		uint64_t cache = round % 3 == 2 ? 64u << 20 : POOL_FRAMES_MIN * PAGE_BYTES;
		uint8_t *found = recover(round % 3 == 1, cache);

		check(memcmp(found, expected, image.bytes) == 0);
		free(found);
	}
	free(expected);
	dev_close(crashed);
	printf("race_recovery: ok\n");
	return 0;
}
