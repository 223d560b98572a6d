/*
 * Scrubbing and the redo log: on a device of its own, and with records that are not in
 * place yet, before the scrub and beside it.
 */
#include "engine/flush.h"
#include "engine/scrub.h"
#include "tests/lib/scratch.h"
#include "tests/lib/script.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#define LOG_BYTES (2u << 20)

static struct device *dev, *log_dev; /* outlive the volume */
static struct volume *volume;
static struct core *core;
static struct scrub_progress result;
static struct scrub_damage last;
static unsigned damages;

static void open_volume_on(bool external)
{
	const struct volume_options options = {
		.no_background = true,
		.cache_bytes = SCRATCH_CACHE,
		.log_dev = external ? scratch_keep(log_dev) : NULL,
	};

	cr_assert_eq(volume_open(&volume, scratch_keep(dev), &options), 0);
	cr_assert_eq(core_open(&core, volume), 0);
}

static void make(bool external)
{
	struct format_params params = {
		.size_bytes = SCRATCH_BYTES,
		.page_size = SCRATCH_PAGE,
		.log_bytes = external ? LOG_BYTES : SCRATCH_LOG,
		.uuid = "scrubbed-volume",
		.log_uuid = "scrubbed-its-log",
	};

	cr_assert_eq(dev_open_memory(&dev, SCRATCH_BYTES), 0);
	cr_assert_eq(dev_open_memory(&log_dev, LOG_BYTES), 0);
	params.log_dev = external ? log_dev : NULL;
	cr_assert_eq(volume_format(dev, &params, NULL), 0);
	open_volume_on(external);
}

static void die(void)
{
	os_linux_set_point_handler(NULL);
	core_close(core);
	volume_abandon(volume);
}

static void done(void)
{
	dev_close(dev);
	dev_close(log_dev);
}

static void run(const char *statement)
{
	cr_assert_eq(script_run(core, statement), 0, "%s", statement);
}

static void found(void *arg, const struct scrub_damage *damage)
{
	(void)arg;
	last = *damage;
	damages++;
}

static void scrub(void)
{
	const struct scrub_params params = {.found = found};

	damages = 0;
	cr_assert_eq(scrub_run(volume, &params, &result), 0);
}

static void flip(struct device *which, uint64_t at)
{
	uint8_t byte;

	cr_assert_eq(dev_read(which, &byte, 1, at), 0);
	byte ^= 0x20;
	cr_assert_eq(dev_write(which, &byte, 1, at), 0);
}

static void work(void)
{
	run("mkdir d");
	run("create d/a");
	run("write d/a 0 50000 1");
	run("sync");
}

/* --- on a device of its own ---------------------------------------------------- */

Test(scrub_log, external_and_whole)
{
	make(true);
	work();
	scrub();
	cr_assert_eq(damages, 0);
	cr_assert_eq(result.skipped, 0);
	cr_assert_gt(result.blocks, 10);
	die();
	done();
}

/* Named by its block on the log's device; the same block of the volume is another thing. */
Test(scrub_log, external_and_damaged)
{
	static const uint64_t places[] = {0, LOG_CHECKPOINT_0, LOG_CHECKPOINT_1};

	make(true);
	work();
	for (unsigned i = 0; i < array_count(places); i++) {
		flip(log_dev, places[i] + 30);
		scrub();
		cr_assert_eq(damages, 1, "%u", i);
		cr_assert_eq(last.place, SCRUB_LOG);
		cr_assert_eq(last.block, places[i] / BLOCK_SIZE);
		flip(log_dev, places[i] + 30);
	}
	flip(dev, 30);
	scrub();
	cr_assert_eq(damages, 1);
	cr_assert_eq(last.place, SCRUB_SUPERBLOCK);
	flip(dev, 30);
	/* On the volume's device there is no log. */
	flip(dev, volume->geo.groups_start * BLOCK_SIZE - BLOCK_SIZE + 30);
	scrub();
	cr_assert_eq(damages, 0);
	die();
	done();
}

/* --- live records ------------------------------------------------------------------ */

static const char *at_point;
static unsigned moments;

/* Somebody makes the log live, and its checkpoints move, while it is looked at. */
static void beside(const char *point)
{
	char statement[64];

	if (strncmp(point, at_point, strlen(at_point)) != 0 || moments >= 6)
		return;
	moments++;
	snprintf(statement, sizeof(statement), "create d/beside-%u", moments);
	run(statement);
	run("sync");
	if (moments % 2)
		cr_assert_eq(flush_everything(volume->flusher), 0);
	run("chmod d 711");
	run("sync");
}

static void scrub_beside(bool external, const char *point)
{
	lsn_t checkpoint;

	make(external);
	work();
	at_point = point;
	moments = 0;
	checkpoint = log_checkpoint_lsn(volume->log);
	os_linux_set_point_handler(beside);
	scrub();
	os_linux_set_point_handler(NULL);
	cr_assert_gt(moments, 0);
	cr_assert_eq(damages, 0);
	cr_assert_gt(log_checkpoint_lsn(volume->log), checkpoint);
	/* Records behind the checkpoint are none of its business, and stay. */
	cr_assert_lt(log_checkpoint_lsn(volume->log), log_durable_lsn(volume->log));
	die();
	open_volume_on(external);
	run("unlink d/beside-1");
	cr_assert_eq(scratch_problems(volume), 0);
	die();
	done();
}

Test(scrub_log, live_records_within)
{
	scrub_beside(false, "scrub:");
}

Test(scrub_log, live_records_on_a_device_of_its_own)
{
	scrub_beside(true, "scrub:");
}

static uint64_t damaged_at;

/* With records behind it that the next mount will need. */
static void damage_while_live(const char *point)
{
	if (strcmp(point, "scrub:begun") != 0 || moments++ > 0)
		return;
	run("create d/live");
	run("sync");
	flip(log_dev, damaged_at);
}

Test(scrub_log, damage_under_live_records_is_found)
{
	for (unsigned i = 0; i < 2; i++) {
		make(true);
		work();
		damaged_at = (i ? LOG_CHECKPOINT_1 : LOG_CHECKPOINT_0) + 20;
		moments = 0;
		os_linux_set_point_handler(damage_while_live);
		scrub();
		os_linux_set_point_handler(NULL);
		cr_assert_eq(moments, 1);
		cr_assert_eq(damages, 1);
		cr_assert_eq(last.place, SCRUB_LOG);
		cr_assert_eq(last.block, damaged_at / BLOCK_SIZE);
		die();
		done();
	}
}
