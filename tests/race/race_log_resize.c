/*
 * Threads at work on a volume while its log is resized, over and over: inside and
 * on a device of its own, with and without scrubbing, by its background threads.
 *
 * Each thread makes, writes, syncs and removes files of its own; in the end all that
 * it has left is there, the volume is whole, and so it is after the next mount.
 *
 * Once more with an archive behind the log and backups one after the other: nothing
 * is missing in the archive, and the last backup, the first one with the archive, and
 * the volume itself are the same.
 */
#include "engine/base/message.h"
#include "engine/flush.h"
#include "engine/log_resize.h"
#include "tests/lib/file_load.h"
#include "tests/lib/scratch.h"
#include "tests/lib/scratch_file.h"
#include "tests/lib/script.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS 4u
#define ROUNDS 300u
#define VOLUME_BYTES (24u << 20)
#define LOG_ROOM (4u << 20)

static struct world {
	struct device *dev, *log;
	struct volume *volume;
	struct core *core;
	struct file_load load;
	_Atomic uint64_t resizes;
	char *archive;           /* NULL: none, and no backups */
	int first_backup, last_backup;
	uint64_t backups;
} world;

static void open_world(bool scrub, bool background)
{
	const struct volume_options options = {
		.cache_bytes = SCRATCH_CACHE,
		.log_buffer_bytes = 1u << 20,
		.log_mode = LOG_MODE_PWRITE,
		.log_scrub = scrub,
		.no_background = !background,
		.archive_dir = world.archive,
		.archive_data = world.archive != NULL,
		.log_dev = world.log ? scratch_keep(world.log) : NULL,
	};

	check(volume_open(&world.volume, scratch_keep(world.dev), &options) == 0);
	check(core_open(&world.core, world.volume) == 0);
}

static void resize_while_they_work(uint64_t *random)
{
	while (file_load_works(&world.load)) {
		uint64_t kib = 512 + random_next(random) % (world.log ? 1500 : 1200);
		char why[LOG_RESIZE_TEXT_BYTES];
		int rc = log_resize(world.volume, kib * 1024, why);

		if (rc && rc != -EBUSY)
			fprintf(stderr, "race_log_resize: %s\n", why);
		check(rc == 0 || rc == -ENOSPC || (rc == -EBUSY && world.archive));
		atomic_fetch_add(&world.resizes, rc == 0);
	}
}

/* ------------------------------------------------------ archive and backups */

static int backup(void)
{
	lsn_t lsn;

	world.backups++;
	return backup_take(world.volume, 0, &lsn);
}

static void back_up_while_they_work(void *arg)
{
	(void)arg;
	while (file_load_works(&world.load))
		close(backup());
}

static void restore_and_compare(int fd, bool with_log, const char *expected)
{
	const struct backup_source source = {
		.fd = &fd, .count = 1, .archive = with_log ? world.archive : NULL};
	struct device *dev, *log = NULL;

	check(dev_open_memory(&dev, VOLUME_BYTES) == 0);
	check(!world.log || dev_open_memory(&log, LOG_ROOM) == 0);
	backup_compare(&source, dev, log, expected);
	close(fd);
}

static void archive_begin_world(void)
{
	static char dir[SCRATCH_PATH_BYTES];

	scratch_dir(dir);
	world.archive = dir;
}

static void archive_end_world(const char *expected)
{
	restore_and_compare(world.last_backup, false, expected);
	restore_and_compare(world.first_backup, true, expected);
	scratch_dir_remove(world.archive);
}

static void judge(void)
{
	char *snapshot = core_snapshot(world.core);
	unsigned lines = 0;

	check(snapshot != NULL);
	for (char *at = snapshot; (at = strchr(at, '\n')) != NULL; at++)
		lines++;
	/* Those of every fourth round, and the directories. */
	check(lines >= THREADS * ((world.load.rounds + 3) / 4));
	free(snapshot);
	check(flush_everything(world.volume->flusher) == 0);
}

static void run(bool external, bool scrub, bool archived, uint64_t seed)
{
	struct format_params params = {
		.size_bytes = VOLUME_BYTES,
		.page_size = SCRATCH_PAGE,
		.log_bytes = 1u << 20,
		.uuid = "scratch-volume!",
		.log_uuid = "scratch-its-log",
	};
	struct os_thread backups;
	uint64_t random = seed;
	char *end_state;

	/* Backups hold what is freed: all that is ever written has to fit. */
	world = (struct world){.load = {
		.threads = THREADS, .rounds = archived ? ROUNDS : ROUNDS * test_scale(),
		.bytes = 9000}};
	check(dev_open_memory(&world.dev, VOLUME_BYTES) == 0);
	if (external)
		check(dev_open_memory(&world.log, LOG_ROOM) == 0);
	params.log_dev = world.log;
	check(volume_format(world.dev, &params, NULL) == 0);
	if (archived)
		archive_begin_world();
	open_world(scrub, true);
	if (archived)
		world.first_backup = backup();
	world.load.core = world.core;
	file_load_start(&world.load);
	if (archived)
		check(os_thread_start(&backups, "backups", back_up_while_they_work, NULL) == 0);
	resize_while_they_work(&random);
	file_load_join(&world.load);
	if (archived) {
		char why[LOG_RESIZE_TEXT_BYTES];

		os_thread_join(&backups);
		/* Backups may have refused all the others. */
		world.resizes += log_resize(world.volume, 700 * 1024, why) == 0;
	}
	judge();
	if (archived) {
		world.last_backup = backup();
		check(stat_read(&world.volume->stats, STAT_archive_gaps) == 1); /* its beginning */
	}
	end_state = core_snapshot(world.core);
	check(end_state != NULL);
	core_close(world.core);
	check(volume_close(world.volume) == 0);
	if (archived)
		archive_end_world(end_state);
	free(end_state);
	world.archive = NULL;
	open_world(scrub, false);
	judge();
	check(script_run(world.core, "purge") == 0);
	check(scratch_problems(world.volume) == 0);
	core_close(world.core);
	check(volume_close(world.volume) == 0);
	dev_close(world.log);
	dev_close(world.dev);
	printf("race_log_resize: %s%s: %llu resizes, %llu backups\n",
	       external ? "external" : "inside", scrub ? ", scrubbed" : "",
	       (unsigned long long)world.resizes, (unsigned long long)world.backups);
	check(world.resizes > 0);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;

	message_quiet(LOG_ERR);
	for (int external = 0; external < 2; external++)
		for (int scrub = 0; scrub < 2; scrub++)
			for (int archived = 0; archived < 2; archived++)
				run(external, scrub, archived, seed);
	return 0;
}
