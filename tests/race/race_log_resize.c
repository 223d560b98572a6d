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
#include "engine/backup.h"
#include "engine/base/message.h"
#include "engine/flush.h"
#include "engine/log_resize.h"
#include "engine/restore.h"
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
	unsigned rounds;
	_Atomic unsigned at_work;
	_Atomic uint64_t resizes;
	char *archive;           /* NULL: none, and no backups */
	int first_backup, last_backup;
	uint64_t backups;
} world;

struct worker {
	struct os_thread thread;
	unsigned number;
};

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
		say(t, round, "write d%u/f%u 0 9000 %u");
		if (round % 3 == 0)
			say(t, round, "fsync d%u/f%u");
		if (round % 4 != 0)
			say(t, round, "unlink d%u/f%u");
	}
	atomic_fetch_sub(&world.at_work, 1);
}

static void resize_while_they_work(uint64_t *random)
{
	while (atomic_load(&world.at_work) > 0) {
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
	struct backup_params params = {.fd = scratch_file_unnamed()};
	struct backup_progress result;

	check(backup_run(world.volume, &params, &result) == 0);
	world.backups++;
	return params.fd;
}

static void back_up_while_they_work(void *arg)
{
	(void)arg;
	while (atomic_load(&world.at_work) > 0)
		close(backup());
}

static void restore_and_compare(int fd, bool with_log, const char *expected)
{
	struct volume_options options = {.cache_bytes = SCRATCH_CACHE, .no_background = true};
	struct device *dev, *log = NULL;
	struct restore *restore;
	struct volume *volume;
	struct core *core;
	char *snapshot;
	lsn_t lsn;

	check(dev_open_memory(&dev, VOLUME_BYTES) == 0);
	check(restore_begin(&restore, dev) == 0);
	if (world.log) {
		check(dev_open_memory(&log, LOG_ROOM) == 0);
		restore_log_to(restore, log, NULL);
	}
	check(restore_apply(restore, fd, "backup") == 0);
	check(!with_log || restore_log(restore, world.archive, UINT64_MAX) == 0);
	check(restore_finish(restore, &lsn) == 0);
	restore_end(restore);
	options.log_dev = log;
	check(volume_open(&volume, dev, &options) == 0);
	check(core_open(&core, volume) == 0);
	check(script_run(core, "purge") == 0);
	check(scratch_problems(volume) == 0);
	snapshot = core_snapshot(core);
	check(snapshot != NULL && strcmp(snapshot, expected) == 0);
	free(snapshot);
	core_close(core);
	check(volume_close(volume) == 0);
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
	check(lines >= THREADS * ((world.rounds + 3) / 4));
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
	struct worker worker[THREADS];
	struct os_thread backups;
	uint64_t random = seed;
	char *end_state;

	/* Backups hold what is freed: all that is ever written has to fit. */
	world = (struct world){.rounds = archived ? ROUNDS : ROUNDS * test_scale()};
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
	atomic_store(&world.at_work, THREADS);
	for (unsigned i = 0; i < THREADS; i++) {
		worker[i].number = i;
		say(i, 0, "mkdir d%u");
		check(os_thread_start(&worker[i].thread, "work", work, &worker[i]) == 0);
	}
	if (archived)
		check(os_thread_start(&backups, "backups", back_up_while_they_work, NULL) == 0);
	resize_while_they_work(&random);
	for (unsigned i = 0; i < THREADS; i++)
		os_thread_join(&worker[i].thread);
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
