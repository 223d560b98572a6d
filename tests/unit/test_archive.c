/*
 * The log archive: files that follow each other over mounts and deaths, a full
 * directory, gaps.  Moments of the past beside threads are in race_backup.c.
 */
#include "engine/archive.h"
#include "engine/archive_dir.h"
#include "engine/backup.h"
#include "engine/base/message.h"
#include "engine/flush.h"
#include "engine/restore.h"
#include "tests/lib/backup_load.h"
#include "tests/lib/scratch.h"
#include "tests/lib/scratch_file.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define VOLUME_BYTES (16u << 20)

static char dir[SCRATCH_PATH_BYTES];
static struct rig rig;
static struct backup_load *load;
static struct rlimit file_limit;

static void setup(void)
{
	message_quiet(LOG_CRIT);
	signal(SIGXFSZ, SIG_IGN);
	cr_assert_eq(getrlimit(RLIMIT_FSIZE, &file_limit), 0);
	scratch_dir(dir);
	rig_open_archived(&rig, VOLUME_BYTES, 4096, false, dir);
	load = backup_load_new(&rig, 11);
}

static void teardown(void)
{
	backup_load_free(load);
	rig_close(&rig);
	scratch_dir_remove(dir);
}

TestSuite(archive, .init = setup, .fini = teardown);

/* No file may become longer than that. */
static void limit_files(uint64_t bytes)
{
	struct rlimit limit = {.rlim_cur = bytes, .rlim_max = file_limit.rlim_max};

	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void no_limit(void)
{
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &file_limit), 0);
}

static void reopen(bool crash)
{
	cr_assert_eq(volume_sync(rig.volume), 0);
	rig_reopen(&rig, crash);
}

static bool continues(const struct archive_file *before, const struct archive_file *file)
{
	if (file->flags & ARCHIVE_GAP)
		return false;
	if (file->generation == before->generation)
		return file->first == before->end;
	return file->after_generation == before->generation && file->after_lsn == before->end;
}

/* Reads the directory; *gaps: files after the first that do not continue the one before. */
static unsigned list(struct archive_list *files)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY);
	unsigned gaps = 0;

	cr_assert_eq(archive_list_read(files, fd, dir, rig.volume->sb.uuid), 0);
	close(fd);
	for (size_t i = 1; i < files->count; i++)
		gaps += !continues(&files->file[i - 1], &files->file[i]);
	return gaps;
}

/* Goes on until the log has come so far. */
static void until_lsn(lsn_t lsn)
{
	while (log_next_lsn(rig.volume->log) < lsn)
		backup_load_step(load, 50);
}

static struct archive_status status(void)
{
	struct archive_status status;

	archive_status(rig.volume->archive, &status);
	return status;
}

Test(archive, files_follow_each_other)
{
	struct archive_list files;

	for (unsigned i = 0; i < 6; i++) {
		until_lsn((i + 1) * log_capacity(rig.volume->log) / 2);
		reopen(i % 2);
	}
	cr_assert_eq(list(&files), 0);
	cr_assert_geq(files.count, 6);
	/* The log went round several times, and nothing of it is missing. */
	cr_assert_eq(files.file[0].first, LSN_FIRST);
	cr_assert_gt(log_next_lsn(rig.volume->log), 2 * log_capacity(rig.volume->log));
	archive_list_free(&files);
}

/* INV-ARCH-1: the checkpoint waits for the archive. */
Test(archive, log_is_held_until_it_is_archived)
{
	struct log *log = rig.volume->log;

	for (unsigned i = 0; i < 20; i++) {
		backup_load_step(load, 40);
		cr_assert_leq(log_checkpoint_lsn(log), status().archived_lsn);
		cr_assert_eq(flush_everything(rig.volume->flusher), 0);
		cr_assert_leq(log_checkpoint_lsn(log), status().archived_lsn);
	}
}

static int backup(void)
{
	struct backup_params params = {.fd = scratch_file_unnamed()};
	struct backup_progress result;

	cr_assert_eq(backup_run(rig.volume, &params, &result), 0);
	return params.fd;
}

/* Backup and archive, up to `until`: what restore_log() says; 0: the load is as it was then. */
static int restored(int fd, lsn_t until, struct backup_load_point then)
{
	struct volume_options options = {.cache_bytes = 4u << 20, .no_background = true};
	struct restore *restore;
	struct volume *volume;
	struct core *core;
	struct device *dev;
	lsn_t lsn;
	int rc;

	cr_assert_eq(dev_open_memory(&dev, VOLUME_BYTES), 0);
	cr_assert_eq(restore_begin(&restore, dev), 0);
	cr_assert_eq(restore_apply(restore, fd, "backup"), 0);
	rc = restore_log(restore, dir, until);
	if (rc == 0)
		cr_assert_eq(restore_finish(restore, &lsn), 0);
	restore_end(restore);
	if (rc) {
		dev_close(dev);
		return rc;
	}
	cr_assert_eq(volume_open(&volume, dev, &options), 0);
	cr_assert_eq(core_open(&core, volume), 0);
	backup_load_check(load, core, then, then);
	core_close(core);
	cr_assert_eq(volume_close(volume), 0);
	return 0;
}

/* A full directory: the volume goes on, what is missing is named, what is there is of use. */
Test(archive, full_directory_pauses_it_and_leaves_a_named_gap)
{
	struct backup_load_point then;
	struct archive_list files;
	lsn_t moment, gap_from;
	unsigned named = 0;
	int fd = backup();

	backup_load_step(load, 300);
	cr_assert_eq(volume_sync(rig.volume), 0);
	archive_round(rig.volume->archive, false);
	moment = log_durable_lsn(rig.volume->log);
	then = backup_load_over(load);
	backup_load_step(load, 5);
	limit_files(8192);
	until_lsn(log_next_lsn(rig.volume->log) + 2 * log_capacity(rig.volume->log));
	cr_assert(status().paused);
	gap_from = status().gap_from;
	cr_assert_eq(stat_read(&rig.volume->stats, STAT_archive_pauses), 1);
	cr_assert_geq(gap_from, moment);
	cr_assert_gt(log_next_lsn(rig.volume->log), gap_from + log_capacity(rig.volume->log));
	no_limit();
	archive_round(rig.volume->archive, true);
	cr_assert_not(status().paused);
	cr_assert_eq(stat_read(&rig.volume->stats, STAT_archive_gaps), 2); /* and the beginning */
	backup_load_step(load, 300);
	reopen(false);
	cr_assert_eq(list(&files), 1);
	for (size_t i = 1; i < files.count; i++) {
		if (!(files.file[i].flags & ARCHIVE_GAP))
			continue;
		named++;
		cr_assert_eq(files.file[i].after_lsn, gap_from);
		cr_assert_gt(files.file[i].first, gap_from);
	}
	cr_assert_eq(named, 1);
	archive_list_free(&files);
	cr_assert_eq(restored(fd, moment, then), 0);
	cr_assert_eq(restored(fd, log_durable_lsn(rig.volume->log), then), -BE_ORDER);
	close(fd);
}

/* What was freed is of use again once the archive has what was in it. */
Test(archive, freed_blocks_come_back)
{
	static uint8_t buf[1u << 20];

	rig.background = true; /* whoever is short of space waits for the thread */
	reopen(false);
	for (unsigned round = 0; round < 6; round++) {
		uint64_t ino = rig_file(&rig, INO_ROOT, "large");

		for (unsigned i = 0; i < 8; i++) {
			int rc = rig_write(&rig, ino, i * sizeof(buf), buf, sizeof(buf));

			cr_assert_eq(rc, 0, "round %u, MiB %u: %d", round, i, rc);
		}
		cr_assert_eq(rig_unlink(&rig, INO_ROOT, "large"), 0);
		rig_purge(&rig);
	}
}

static void newest_part(char path[512], const char *suffix)
{
	struct archive_list files;

	list(&files);
	cr_assert(files.count > 0 && files.file[files.count - 1].part);
	snprintf(path, 512, "%s/%s%s", dir, files.file[files.count - 1].name, suffix);
	archive_list_free(&files);
}

/* What a crash may leave behind what was synced: any bytes, or less of what was not. */
static void crash_with(const char *suffix, const void *garbage, size_t len, bool cut_all)
{
	char path[512];
	struct stat st;
	int fd;

	backup_load_step(load, 100);
	cr_assert_eq(volume_sync(rig.volume), 0);
	archive_round(rig.volume->archive, false);
	newest_part(path, suffix);
	fd = open(path, O_RDWR);
	cr_assert_geq(fd, 0);
	cr_assert_eq(fstat(fd, &st), 0);
	if (cut_all)
		cr_assert_eq(ftruncate(fd, ARCHIVE_HEADER_BYTES), 0);
	else
		cr_assert_eq(pwrite(fd, garbage, len, st.st_size), (ssize_t)len);
	close(fd);
	rig_reopen(&rig, true);
	backup_load_step(load, 50);
}

Test(archive, unfinished_file_is_continued)
{
	struct archive_list files;
	int fd = backup();
	uint8_t garbage[5000];

	for (unsigned i = 0; i < 3; i++) {
		rig_fill(garbage, sizeof(garbage), i);
		crash_with(i == 2 ? ".data" : ".part", garbage, sizeof(garbage), false);
	}
	cr_assert_eq(list(&files), 0);
	archive_list_free(&files);
	reopen(false);
	cr_assert_eq(restored(fd, UINT64_MAX, backup_load_over(load)), 0);
	close(fd);
}

/* More is gone than what was not synced: the archive has a gap, and says so. */
Test(archive, lost_file_is_a_gap_and_not_a_lie)
{
	struct backup_load_point then;
	struct archive_list files;
	int fd;

	backup_load_step(load, 600); /* so that the log has been round */
	reopen(false);
	fd = backup();
	then = backup_load_over(load);
	backup_load_step(load, 400);
	crash_with(".part", NULL, 0, true);
	cr_assert_eq(list(&files), 1);
	archive_list_free(&files);
	cr_assert_eq(restored(fd, log_durable_lsn(rig.volume->log), then), -BE_ORDER);
	close(fd);
}

/* Mounted without it meanwhile. */
Test(archive, mount_without_it_is_a_gap)
{
	struct archive_list files;

	backup_load_step(load, 100);
	reopen(false);
	rig.archive_dir = NULL;
	reopen(false);
	backup_load_step(load, 100);
	reopen(true);
	rig.archive_dir = dir;
	reopen(false);
	backup_load_step(load, 100);
	cr_assert_eq(list(&files), 1);
	archive_list_free(&files);
}

Test(archive, damaged_contents_end_the_replay)
{
	struct archive_list files;
	char path[512];
	int fd = backup(), file;
	uint8_t byte = 0;

	backup_load_step(load, 200);
	reopen(false);
	list(&files);
	snprintf(path, sizeof(path), "%s/%s.log", dir, files.file[0].name);
	archive_list_free(&files);
	file = open(path, O_RDWR);
	cr_assert_geq(file, 0);
	cr_assert_eq(pread(file, &byte, 1, ARCHIVE_HEADER_BYTES + 60000), 1);
	byte ^= 4;
	cr_assert_eq(pwrite(file, &byte, 1, ARCHIVE_HEADER_BYTES + 60000), 1);
	close(file);
	cr_assert_eq(restored(fd, UINT64_MAX, backup_load_over(load)), -BE_DAMAGE);
	close(fd);
}

Test(archive, directory_that_is_none_is_refused)
{
	struct volume_options options = {.no_background = true, .cache_bytes = 4u << 20,
					 .archive_dir = "/nonexistent/archive"};
	struct device *dev = scratch_format(VOLUME_BYTES, 4096, 1u << 20);
	struct volume *volume;

	cr_assert_eq(volume_open(&volume, dev, &options), -ENOENT);
	dev_close(dev);
}
