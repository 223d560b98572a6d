/*
 * A log that gets another size or place while it is archived or backed up: the archive
 * goes on without a gap (INV-ARCH-3), moments on either side come back, with the log where
 * it was then (INV-RST-3), and a backup and a resize keep out of each other's way
 * (INV-BAK-4).
 */
#include "engine/archive.h"
#include "engine/archive_dir.h"
#include "engine/backup.h"
#include "engine/base/message.h"
#include "engine/flush.h"
#include "engine/log_resize.h"
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
#include <unistd.h>

#define VOLUME_BYTES (16u << 20)
#define KIB 1024u
#define HOME (1024u * KIB) /* the rig's */

static char base[SCRATCH_PATH_BYTES], dir[SCRATCH_PATH_BYTES + 16];
static struct rig rig;
static struct backup_load *load;
static char why[LOG_RESIZE_TEXT_BYTES];

static void shell(const char *command)
{
	char line[512];

	snprintf(line, sizeof(line), "cd %s && %s", base, command);
	cr_assert_eq(system(line), 0, "%s", line);
}

static void setup(void)
{
	message_quiet(LOG_CRIT);
	scratch_dir(base);
	snprintf(dir, sizeof(dir), "%s/archive", base);
	shell("mkdir archive");
	rig_open_archived(&rig, VOLUME_BYTES, 4096, false, dir);
	load = backup_load_new(&rig, 5);
}

static void teardown(void)
{
	backup_load_free(load);
	rig_close(&rig);
	scratch_dir_remove(base);
}

TestSuite(archive_resize, .init = setup, .fini = teardown);

static void resize(uint64_t kib)
{
	cr_assert_eq(log_resize(rig.volume, kib * KIB, why), 0, "%s", why);
	cr_assert_eq(rig.volume->geo.log_bytes, kib * KIB);
}

static void reopen(bool crash)
{
	cr_assert_eq(volume_sync(rig.volume), 0);
	rig_reopen(&rig, crash);
}

static unsigned gaps(void)
{
	struct archive_list files;
	int fd = open(dir, O_RDONLY | O_DIRECTORY);
	unsigned count = 0;

	cr_assert_eq(archive_list_read(&files, fd, dir, rig.volume->sb.uuid), 0);
	close(fd);
	cr_assert_gt(files.count, 0);
	for (size_t i = 1; i < files.count; i++) {
		const struct archive_file *last = &files.file[i - 1], *file = &files.file[i];

		if (file->generation == last->generation)
			count += file->first != last->end;
		else
			count += (file->flags & ARCHIVE_GAP) ||
				 file->after_generation != last->generation ||
				 file->after_lsn != last->end;
	}
	archive_list_free(&files);
	return count;
}

static int backup(void)
{
	struct backup_params params = {.fd = scratch_file_unnamed()};
	struct backup_progress result;

	cr_assert_eq(backup_run(rig.volume, &params, &result), 0);
	return params.fd;
}

/* So far, durably: what a restore up to that LSN must show. */
struct moment {
	lsn_t lsn;
	struct backup_load_point point;
};

static struct moment moment(void)
{
	struct moment now;

	cr_assert_eq(volume_sync(rig.volume), 0);
	archive_round(rig.volume->archive, false);
	now.lsn = log_durable_lsn(rig.volume->log);
	now.point = backup_load_over(load);
	return now;
}


#define FILE_BYTES (64u << 10)
static unsigned files; /* f0 and so on, beside the load */

static void compare_files(struct core *core)
{
	static uint8_t buf[FILE_BYTES], got[FILE_BYTES];

	for (unsigned i = 0; i < files; i++) {
		struct core_attr attr;
		char name[16];
		size_t len;

		snprintf(name, sizeof(name), "f%u", i);
		cr_assert_eq(core_lookup(core, VIEW_BASE, INO_ROOT, name, strlen(name), &attr), 0);
		rig_fill(buf, sizeof(buf), i);
		cr_assert_eq(core_read(core, VIEW_BASE, attr.ino, 0, got, sizeof(got), &len), 0,
			     "%s", name);
		cr_assert(len == sizeof(buf) && memcmp(buf, got, len) == 0, "%s", name);
		core_forget(core, attr.ino, 1);
	}
}

static int restored(int fd, bool with_log, struct moment then)
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
	rc = with_log ? restore_log(restore, dir, then.lsn) : 0;
	if (rc == 0)
		cr_assert_eq(restore_finish(restore, &lsn), 0);
	restore_end(restore);
	if (rc) {
		dev_close(dev);
		return rc;
	}
	cr_assert_eq(volume_open(&volume, dev, &options), 0);
	cr_assert_eq(core_open(&core, volume), 0);
	cr_assert_eq(scratch_problems(volume), 0, "leaks, or blocks with two owners");
	backup_load_check(load, core, then.point, then.point);
	compare_files(core);
	core_close(core);
	cr_assert_eq(volume_close(volume), 0);
	return 0;
}

/* Grows out of its home, within a group, to another place there, and comes home. */
Test(archive_resize, moments_on_either_side_of_it_come_back)
{
	static const unsigned kib[] = {768, 1024, 2048, 1536, 3072, 1024, 512, 2560, 1024};
	struct moment then[2 * array_count(kib)];
	int first = backup(), fd;

	for (unsigned i = 0; i < array_count(kib); i++) {
		backup_load_step(load, 120);
		then[2 * i] = moment();
		resize(kib[i]);
		cr_assert_not(atomic_load(&rig.volume->failed));
		backup_load_step(load, 120);
		then[2 * i + 1] = moment();
	}
	cr_assert_eq(gaps(), 0);
	fd = backup();
	reopen(false);
	reopen(true);
	cr_assert_eq(gaps(), 0);
	for (unsigned i = 0; i < array_count(then); i++)
		cr_assert_eq(restored(first, true, then[i]), 0, "moment %u", i);
	cr_assert_eq(restored(fd, false, then[array_count(then) - 1]), 0);
	close(first);
	close(fd);
}

/*
 * What the log gave up is somebody's file: the restored volume's log must not be where
 * the backup's was.
 */
Test(archive_resize, blocks_that_the_log_gave_up_are_not_taken_back)
{
	static uint8_t buf[FILE_BYTES];
	struct moment then;
	char name[16];
	int fd;

	resize(4096);
	fd = backup();
	resize(1024);
	for (files = 0; files < 200; files++) {
		uint64_t ino;

		snprintf(name, sizeof(name), "f%u", files);
		ino = rig_file(&rig, INO_ROOT, name);
		rig_fill(buf, sizeof(buf), files);
		if (ino == 0 || rig_write(&rig, ino, 0, buf, sizeof(buf)) != 0)
			break;
	}
	cr_assert_gt(files, 100, "the log's former blocks are in use");
	then = moment();
	cr_assert_eq(restored(fd, true, then), 0);
	close(fd);
}

/* ------------------------------------------------------- deaths on the way */

static const char *die_at;
static unsigned die_pass;

/* The medium takes nothing any more, and the directory is remembered as it is. */
static void die(const char *point)
{
	if (die_at == NULL || strcmp(point, die_at) != 0 || die_pass-- > 0)
		return;
	die_at = NULL;
	shell("rm -rf copy && cp -a archive copy");
	dev_memory_fail(rig.dev, FAULT_WRITE | FAULT_FLUSH, 0, -EIO, true);
}

static void resize_and_die(const char *point, unsigned pass, uint64_t kib)
{
	backup_load_step(load, 60);
	(void)moment();
	die_at = point;
	die_pass = pass;
	os_linux_set_point_handler(die);
	(void)!log_resize(rig.volume, kib * KIB, why);
	os_linux_set_point_handler(NULL);
	cr_assert_null(die_at, "%s, %u", point, pass);
	shell("rm -rf dead && mv archive dead && mv copy archive");
	dev_memory_fail(rig.dev, 0, 0, 0, false);
	rig_reopen(&rig, true);
	backup_load_step(load, 60);
}

Test(archive_resize, inv_arch_3_death_at_any_step)
{
	static const struct {
		const char *point;
		unsigned pass;
	} step[] = {
		{"resize:bits_set", 0},
		{"resize:frozen", 0},
		{"archive:ended", 0},
		{"resize:generation", 0},
		{"archive:move_next", 0},
		{"log:move_header", 0},
		{"log:move_checkpoint", 0},
		{"log:move_checkpoint", 1},
		{"resize:prepared", 0},
		{"resize:switched", 0},
		{"resize:forgetting", 0},
		{"resize:bits_cleared", 0},
	};
	int fd = backup();

	for (unsigned i = 0; i < array_count(step); i++) {
		bool clears = strcmp(step[i].point, "resize:bits_cleared") == 0 ||
			      strcmp(step[i].point, "resize:forgetting") == 0;
		unsigned to = clears ? 1024 : i % 2 ? 2048 : 1536;

		if (rig.volume->geo.log_bytes == to * KIB)
			resize(2560);
		if (clears && rig.volume->geo.log_bytes == HOME)
			resize(2048);
		resize_and_die(step[i].point, step[i].pass, to);
		cr_assert_eq(gaps(), 0, "%s", step[i].point);
		cr_assert_eq(restored(fd, true, moment()), 0, "%s", step[i].point);
	}
	close(fd);
}

/* What is refused half way leaves the archive in its old generation. */
Test(archive_resize, one_that_fails_is_no_gap)
{
	struct moment then;
	int fd = backup();

	backup_load_step(load, 50);
	for (unsigned i = 0; i < 2; i++) {
		/* At once again: nothing lies between. */
		for (unsigned k = 0; k <= i; k++)
			cr_assert_eq(log_resize(rig.volume, 100 * KIB, why), -EINVAL);
		resize(i ? 1024 : 1536);
		resize(i ? 2048 : 1280);
		cr_assert_eq(gaps(), 0);
		backup_load_step(load, 50);
	}
	then = moment();
	cr_assert_eq(gaps(), 0);
	cr_assert_eq(restored(fd, true, then), 0);
	close(fd);
}

/* Mounts in which nothing is logged are links of the chain, too. */
Test(archive_resize, empty_generations_are_no_gap)
{
	struct moment then;
	int fd = backup();

	backup_load_step(load, 50);
	for (unsigned i = 0; i < 4; i++)
		reopen(i == 2);
	backup_load_step(load, 50);
	then = moment();
	cr_assert_eq(gaps(), 0);
	cr_assert_eq(restored(fd, true, then), 0);
	close(fd);
}

/* A paused archive does not hinder it, and goes on in the new generation. */
Test(archive_resize, paused_archive_does_not_hinder)
{
	struct rlimit limit, small;
	struct archive_status status;

	signal(SIGXFSZ, SIG_IGN);
	cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small = (struct rlimit){.rlim_cur = 8192, .rlim_max = limit.rlim_max};
	backup_load_step(load, 50);
	(void)moment();
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
	backup_load_step(load, 50);
	resize(2048);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	archive_status(rig.volume->archive, &status);
	cr_assert(status.paused);
	backup_load_step(load, 50);
	archive_round(rig.volume->archive, true);
	archive_status(rig.volume->archive, &status);
	cr_assert_not(status.paused);
	backup_load_step(load, 50);
	reopen(true);
	cr_assert_eq(gaps(), 1, "%u", gaps());
}

/* ---------------------------------------------------------------- backups */

static int refused_rc, allowed_rc;

static void resize_beside(const char *point)
{
	if (strcmp(point, "backup:walked") == 0)
		refused_rc = log_resize(rig.volume, 2048 * KIB, why);
	else if (strcmp(point, "backup:log_let_go") == 0)
		allowed_rc = log_resize(rig.volume, 1536 * KIB, why);
}

/* INV-BAK-4: while the log is read; afterwards nothing hinders it. */
Test(archive_resize, inv_bak_4_refused_while_a_backup_reads_the_log)
{
	struct moment then;
	int fd;

	backup_load_step(load, 200);
	then = moment();
	refused_rc = allowed_rc = 1;
	os_linux_set_point_handler(resize_beside);
	fd = backup();
	os_linux_set_point_handler(NULL);
	cr_assert_eq(refused_rc, -EBUSY);
	cr_assert_eq(allowed_rc, 0, "%s", why);
	cr_assert_eq(restored(fd, false, then), 0);
	backup_load_step(load, 100);
	then = moment();
	cr_assert_eq(restored(fd, true, then), 0);
	close(fd);
}

static struct os_thread beside;
static _Atomic bool backup_waits, started;
static int beside_fd;

static void backup_beside(void *arg)
{
	(void)arg;
	beside_fd = backup();
}

static void start_backup(const char *point)
{
	_Atomic uint32_t nobody = 0;

	if (strcmp(point, "backup:resize_under_way") == 0)
		atomic_store(&backup_waits, true);
	if (strcmp(point, "resize:frozen") != 0 || atomic_exchange(&started, true))
		return;
	cr_assert_eq(os_thread_start(&beside, "backup", backup_beside, NULL), 0);
	while (!atomic_load(&backup_waits))
		os_wait(&nobody, 0, 1000000);
}

Test(archive_resize, inv_bak_4_a_backup_waits_for_a_resize)
{
	struct moment then;

	backup_load_step(load, 200);
	then = moment();
	os_linux_set_point_handler(start_backup);
	resize(2048);
	os_thread_join(&beside);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(restored(beside_fd, false, then), 0);
	close(beside_fd);
}
