/*
 * Threads at work on a volume that grows, step by step, over several groups, while its
 * free space is given back to the device by command and in the background.
 *
 * Each thread makes, writes, syncs and removes files of its own; somebody asks for the
 * size all the time.  Beside them backups are made, each an increment of the one before,
 * the log is resized, and archived.  In the end all that the threads have left is there,
 * the volume is whole, also after the next mount, and the same comes out of the chain of
 * backups, and of the first one with the archive.
 */
#include "engine/base/message.h"
#include "engine/grow.h"
#include "engine/space.h"
#include "tests/lib/file_load.h"
#include "tests/lib/scratch.h"
#include "tests/lib/scratch_file.h"
#include "tests/lib/script.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define THREADS 3u
#define ROUNDS 150u
#define VOLUME_BYTES (24u << 20)
#define DEVICE_BYTES (3 * GROUP_BLOCKS(SCRATCH_PAGE) * (uint64_t)BLOCK_SIZE)
#define CHAIN_MAX 12u

static struct world {
	struct device *dev;
	struct volume *volume;
	struct core *core;
	struct file_load load;
	char archive[SCRATCH_PATH_BYTES];
	int backup[CHAIN_MAX];
	unsigned backups;
	lsn_t since;
	uint64_t grows, resizes, trims, looks;
} world;

static void open_world(bool background)
{
	const struct volume_options options = {
		.cache_bytes = SCRATCH_CACHE,
		.log_buffer_bytes = 1u << 20,
		.no_background = !background,
		.archive_dir = background ? world.archive : NULL,
		.archive_data = background,
		.commit_interval_ns = 20000000,
		.discard = true,
	};

	check(volume_open(&world.volume, scratch_keep(world.dev), &options) == 0);
	check(core_open(&world.core, world.volume) == 0);
}

static bool grow_by(uint64_t bytes)
{
	uint64_t had = world.volume->geo.block_count * BLOCK_SIZE;
	char text[GROW_TEXT_BYTES];
	int rc;

	bytes += had;
	rc = volume_grow(world.volume, bytes < DEVICE_BYTES ? bytes : 0, text);
	if (rc && rc != -EBUSY)
		fprintf(stderr, "race_grow: %s\n", text);
	check(rc == 0 || rc == -EBUSY);
	return rc == 0 && world.volume->geo.block_count * BLOCK_SIZE > had;
}

static void grow_while_they_work(uint64_t *random)
{
	while (file_load_works(&world.load)) {
		char why[LOG_RESIZE_TEXT_BYTES];

		world.grows += grow_by(random_next(random) % (12u << 20));
		if (random_next(random) % 4 == 0) {
			uint64_t kib = 700 + random_next(random) % 900;

			world.resizes += log_resize(world.volume, kib * 1024, why) == 0;
		}
	}
	/* Backups may have refused all the others. */
	world.grows += grow_by(70u << 20);
}

static void trim_while_they_work(void *arg)
{
	(void)arg;
	while (file_load_works(&world.load)) {
		struct space_trim job = {.end = UINT64_MAX, .shortest = 1};
		int rc = 1;

		while (rc > 0 && file_load_works(&world.load)) {
			rc = space_trim_step(world.volume->space, &job);
			check(rc >= 0);
			world.trims += rc;
		}
	}
}

static void look_while_they_work(void *arg)
{
	uint64_t blocks = 0;

	(void)arg;
	while (file_load_works(&world.load)) {
		struct statvfs figures;

		check(core_statfs(world.core, VIEW_BASE, &figures) == 0);
		check(figures.f_blocks >= blocks && figures.f_bavail <= figures.f_bfree);
		blocks = figures.f_blocks;
		world.looks++;
	}
}

/* ------------------------------------------------------ archive and backups */

static void backup(void)
{
	world.backup[world.backups++] = backup_take(world.volume, world.since, &world.since);
}

static void back_up_while_they_work(void *arg)
{
	(void)arg;
	while (file_load_works(&world.load) && world.backups < CHAIN_MAX - 1)
		backup();
}

static void restore_and_compare(unsigned backups, bool with_log, const char *expected)
{
	const struct backup_source source = {
		.fd = world.backup, .count = backups, .archive = with_log ? world.archive : NULL};
	struct device *dev;

	check(dev_open_memory(&dev, DEVICE_BYTES) == 0);
	check(backup_compare(&source, dev, NULL, expected) == world.volume->geo.block_count);
}

/* ------------------------------------------------------------------ the whole */

/* So that what the threads write lies in what the volume has gained since the first backup. */
static void fill_and_grow(void)
{
	check(script_run(world.core, "create ballast") == 0);
	for (unsigned i = 0; i < VOLUME_BYTES / 1000000 - 4; i++)
		check(script_run(world.core, "append ballast 1000000 7") == 0);
	check(grow_by(40u << 20));
}

static void all_at_once(uint64_t seed)
{
	void (*const beside[])(void *) = {
		trim_while_they_work, look_while_they_work, back_up_while_they_work};
	struct os_thread thread[3];
	uint64_t random = seed;

	world.load.core = world.core;
	file_load_start(&world.load);
	for (unsigned i = 0; i < 3; i++)
		check(os_thread_start(&thread[i], "race", beside[i], NULL) == 0);
	grow_while_they_work(&random);
	file_load_join(&world.load);
	for (unsigned i = 0; i < 3; i++)
		os_thread_join(&thread[i]);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	const struct format_params params = {
		.size_bytes = VOLUME_BYTES,
		.page_size = SCRATCH_PAGE,
		.log_bytes = 1u << 20,
		.uuid = "scratch-volume!",
	};
	char *expected, *found;

	message_quiet(LOG_ERR);
	world.load.threads = THREADS;
	world.load.rounds = ROUNDS;
	world.load.bytes = 30000;
	scratch_dir(world.archive);
	check(dev_open_memory(&world.dev, DEVICE_BYTES) == 0);
	check(volume_format(world.dev, &params, NULL) == 0);
	open_world(true);
	backup();
	fill_and_grow();
	all_at_once(seed);
	backup();
	expected = core_snapshot(world.core);
	check(expected != NULL);
	core_close(world.core);
	check(volume_close(world.volume) == 0);
	open_world(false);
	found = core_snapshot(world.core);
	check(found != NULL && strcmp(found, expected) == 0);
	free(found);
	restore_and_compare(world.backups, false, expected);
	restore_and_compare(1, true, expected);
	check(script_run(world.core, "purge") == 0);
	check(scratch_problems(world.volume) == 0);
	core_close(world.core);
	check(volume_close(world.volume) == 0);
	while (world.backups > 0)
		close(world.backup[--world.backups]);
	scratch_dir_remove(world.archive);
	dev_close(world.dev);
	free(expected);
	printf("race_grow: %llu growths, %llu resizes, %llu discards, %llu looks\n",
	       (unsigned long long)world.grows, (unsigned long long)world.resizes,
	       (unsigned long long)world.trims, (unsigned long long)world.looks);
	check(world.grows > 0 && world.trims > 0);
	return 0;
}
