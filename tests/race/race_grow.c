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
#include "engine/backup.h"
#include "engine/base/message.h"
#include "engine/grow.h"
#include "engine/restore.h"
#include "engine/space.h"
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
	unsigned rounds;
	_Atomic unsigned at_work;
	char archive[SCRATCH_PATH_BYTES];
	int backup[CHAIN_MAX];
	unsigned backups;
	lsn_t since;
	uint64_t grows, resizes, trims, looks;
} world;

struct worker {
	struct os_thread thread;
	unsigned number;
};

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

static void say(unsigned thread, unsigned round, const char *format)
{
	char statement[96];

	snprintf(statement, sizeof(statement), format, thread, round, round);
	check(script_run(world.core, statement) == 0);
}

static void work(void *arg)
{
	const struct worker *worker = arg;
	unsigned t = worker->number;

	for (unsigned round = 0; round < world.rounds; round++) {
		say(t, round, "create d%u/f%u");
		say(t, round, "write d%u/f%u 0 30000 %u");
		if (round % 3 == 0)
			say(t, round, "fsync d%u/f%u");
		if (round % 4 != 0)
			say(t, round, "unlink d%u/f%u");
	}
	atomic_fetch_sub(&world.at_work, 1);
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
	while (atomic_load(&world.at_work) > 0) {
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
	while (atomic_load(&world.at_work) > 0) {
		struct space_trim job = {.end = UINT64_MAX, .shortest = 1};
		int rc = 1;

		while (rc > 0 && atomic_load(&world.at_work) > 0) {
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
	while (atomic_load(&world.at_work) > 0) {
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
	struct backup_params params = {.fd = scratch_file_unnamed(), .since = world.since};
	struct backup_progress result;

	check(backup_run(world.volume, &params, &result) == 0);
	world.backup[world.backups++] = params.fd;
	world.since = result.lsn;
}

static void back_up_while_they_work(void *arg)
{
	(void)arg;
	while (atomic_load(&world.at_work) > 0 && world.backups < CHAIN_MAX - 1)
		backup();
}

static void restore_and_compare(unsigned backups, bool with_log, const char *expected)
{
	struct volume_options options = {.cache_bytes = SCRATCH_CACHE, .no_background = true};
	struct device *dev;
	struct restore *restore;
	struct volume *volume;
	struct core *core;
	char *snapshot;
	lsn_t lsn;

	check(dev_open_memory(&dev, DEVICE_BYTES) == 0);
	check(restore_begin(&restore, dev) == 0);
	for (unsigned i = 0; i < backups; i++)
		check(restore_apply(restore, world.backup[i], "backup") == 0);
	check(!with_log || restore_log(restore, world.archive, UINT64_MAX) == 0);
	check(restore_finish(restore, &lsn) == 0);
	restore_end(restore);
	check(volume_open(&volume, dev, &options) == 0);
	check(core_open(&core, volume) == 0);
	check(volume->geo.block_count == world.volume->geo.block_count);
	check(script_run(core, "purge") == 0);
	check(scratch_problems(volume) == 0);
	snapshot = core_snapshot(core);
	check(snapshot != NULL && strcmp(snapshot, expected) == 0);
	free(snapshot);
	core_close(core);
	check(volume_close(volume) == 0);
}

/* ------------------------------------------------------------------ the whole */

static void start(struct worker *worker, unsigned number, void (*fn)(void *))
{
	worker->number = number;
	check(os_thread_start(&worker->thread, "race", fn, worker) == 0);
}

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
	struct worker worker[THREADS], trims, looks, backups;
	uint64_t random = seed;

	atomic_store(&world.at_work, THREADS);
	for (unsigned i = 0; i < THREADS; i++) {
		say(i, 0, "mkdir d%u");
		start(&worker[i], i, work);
	}
	start(&trims, 0, trim_while_they_work);
	start(&looks, 0, look_while_they_work);
	start(&backups, 0, back_up_while_they_work);
	grow_while_they_work(&random);
	for (unsigned i = 0; i < THREADS; i++)
		os_thread_join(&worker[i].thread);
	os_thread_join(&trims.thread);
	os_thread_join(&looks.thread);
	os_thread_join(&backups.thread);
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
	world.rounds = ROUNDS;
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
