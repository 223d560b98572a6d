/*
 * Backup and restore, one rule at a time; beside threads they are in race_backup.c.
 */
#include "engine/backup.h"
#include "engine/base/crc32c.h"
#include "engine/base/message.h"
#include "engine/flush.h"
#include "engine/restore.h"
#include "engine/space.h"
#include "fsck/session.h"
#include "tests/lib/backup_load.h"
#include "tests/lib/scratch.h"
#include "tests/lib/scratch_file.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define VOLUME_BYTES (16u << 20)

static struct rig rig;
static struct backup_load *load;

static void setup(void)
{
	message_quiet(LOG_CRIT);
	rig_open(&rig, VOLUME_BYTES, 4096, false);
	load = backup_load_new(&rig, 7);
}

static void teardown(void)
{
	backup_load_free(load);
	rig_close(&rig);
}

static struct disk_backup_header header_of(int fd)
{
	struct disk_backup_header head;

	cr_assert_eq(backup_header_read(fd, "backup", &head), 0);
	return head;
}

static int take(int base_fd, struct backup_progress *result)
{
	struct backup_params params = {.fd = scratch_file_unnamed()};

	if (base_fd >= 0) {
		struct disk_backup_header base = header_of(base_fd);

		params.since = le64_get(base.lsn);
		memcpy(params.base_id, base.id, sizeof(base.id));
	}
	cr_assert_eq(backup_run(rig.volume, &params, result), 0);
	cr_assert_eq(backup_verify(params.fd, "backup"), 0);
	return params.fd;
}

static void say_nothing(void *arg, const char *line)
{
	(void)arg, (void)line;
}

/* Bytes that a restored volume must have. */
struct expected_file {
	const char *name;
	size_t offset, len;
	const uint8_t *bytes;
};

static void expect_file(struct core *core, const struct expected_file *file)
{
	uint8_t *found = malloc(file->len);
	struct core_attr attr;
	size_t done;

	cr_assert_eq(core_lookup(core, VIEW_BASE, INO_ROOT, file->name, strlen(file->name), &attr),
		     0);
	cr_assert_eq(core_read(core, VIEW_BASE, attr.ino, file->offset, found, file->len, &done),
		     0);
	cr_assert_eq(done, file->len);
	cr_assert_eq(memcmp(found, file->bytes, file->len), 0);
	core_forget(core, attr.ino, 1);
	free(found);
}

/* 0, and the load is as it is now, and the file; or what restoring has answered. */
static int restored_with(const int *fds, unsigned count, const struct expected_file *file)
{
	struct session_options fsck = {
		.mode = MODE_NO, .force = true, .data = true, .print = say_nothing};
	struct volume_options options = {.cache_bytes = 4u << 20, .no_background = true};
	struct backup_load_point now = backup_load_over(load);
	struct restore *restore;
	struct volume *volume;
	struct core *core;
	struct device *dev;
	lsn_t lsn;
	int rc = 0;

	cr_assert_eq(dev_open_memory(&dev, VOLUME_BYTES), 0);
	cr_assert_eq(restore_begin(&restore, dev), 0);
	for (unsigned i = 0; i < count && rc == 0; i++)
		rc = restore_apply(restore, fds[i], "backup");
	if (rc == 0)
		rc = restore_finish(restore, &lsn);
	restore_end(restore);
	if (rc) {
		dev_close(dev);
		return rc;
	}
	cr_assert_eq(session_run_on(dev, "restored", &fsck), EXIT_CLEAN);
	cr_assert_eq(volume_open(&volume, dev, &options), 0);
	cr_assert_eq(core_open(&core, volume), 0);
	backup_load_check(load, core, now, now);
	if (file)
		expect_file(core, file);
	core_close(core);
	cr_assert_eq(volume_close(volume), 0);
	return 0;
}

static int restored(const int *fds, unsigned count)
{
	return restored_with(fds, count, NULL);
}

static int restored_file(const int *fds, unsigned count, const char *name, size_t offset,
			 const uint8_t *bytes, size_t len)
{
	struct expected_file file = {
		.name = name, .offset = offset, .len = len, .bytes = bytes};

	return restored_with(fds, count, &file);
}

TestSuite(backup, .init = setup, .fini = teardown);

Test(backup, of_a_quiet_volume_is_that_volume)
{
	struct backup_progress result;
	int fd;

	backup_load_step(load, 800);
	fd = take(-1, &result);
	cr_assert_eq(restored(&fd, 1), 0);
}

Test(backup, incremental_by_leaves_after_a_mount)
{
	struct backup_progress result;
	int fds[3];

	backup_load_step(load, 800);
	fds[0] = take(-1, &result);
	backup_load_step(load, 300);
	cr_assert_eq(volume_sync(rig.volume), 0);
	rig_reopen(&rig, true); /* the map of what was written is gone */
	backup_load_step(load, 300);
	fds[1] = take(fds[0], &result);
	cr_assert_eq(restored(fds, 2), 0);
	rig_reopen(&rig, false);
	backup_load_step(load, 300);
	fds[2] = take(fds[1], &result);
	cr_assert_eq(restored(fds, 3), 0);
}

Test(backup, incremental_to_a_base_that_is_not_the_last)
{
	struct backup_progress result;
	int fds[3];

	backup_load_step(load, 800);
	fds[0] = take(-1, &result);
	backup_load_step(load, 200);
	fds[1] = take(fds[0], &result);
	backup_load_step(load, 200);
	fds[2] = take(fds[0], &result);
	cr_assert_eq(restored((int[]){fds[0], fds[2]}, 2), 0);
	cr_assert_eq(restored(fds, 3), -BE_ORDER, "its base is the first one");
}

Test(backup, incremental_is_small_when_little_has_changed)
{
	struct backup_progress full, little;
	uint64_t ino = rig_file(&rig, INO_ROOT, "large");
	static uint8_t buf[1u << 20];
	int fds[2];

	rig_fill(buf, sizeof(buf), 1);
	for (unsigned i = 0; i < 4; i++)
		cr_assert_eq(rig_write(&rig, ino, i * sizeof(buf), buf, sizeof(buf)), 0);
	fds[0] = take(-1, &full);
	cr_assert_eq(rig_write(&rig, ino, 5 * 4096, buf + 1, 4096), 0);
	fds[1] = take(fds[0], &little);
	cr_assert_eq(little.blocks, 1);
	cr_assert_geq(full.blocks, 1024);
	cr_assert_eq(restored(fds, 2), 0);
}

/*
 * Blocks that the base has as unwritten are in use there and written, in place, after
 * it: told by the map, by the leaves for an older base, and by the leaves after a mount.
 */
Test(backup, what_is_written_into_allocated_blocks)
{
	struct backup_progress base, result;
	uint64_t ino = rig_file(&rig, INO_ROOT, "large"), in_place;
	static uint8_t buf[64 * 4096];
	int fds[4];

	rig_fill(buf, sizeof(buf), 1);
	cr_assert_eq(core_fallocate(rig.core, VIEW_BASE, ino, 0, 0, 4u << 20), 0);
	fds[0] = take(-1, &base);
	in_place = stat_read(&rig.volume->stats, STAT_lob_write_blocks_in_place);
	cr_assert_eq(rig_write(&rig, ino, 40960, buf, sizeof(buf)), 0);
	in_place = stat_read(&rig.volume->stats, STAT_lob_write_blocks_in_place) - in_place;
	cr_assert_eq(in_place, 64);
	fds[1] = take(fds[0], &result);
	cr_assert_eq(result.blocks, 64, "by the map");
	cr_assert_eq(restored_file(fds, 2, "large", 40960, buf, sizeof(buf)), 0);
	cr_assert_eq(rig_write(&rig, ino, 2u << 20, buf + 1, 4096), 0);
	fds[2] = take(fds[0], &result);
	cr_assert_geq(result.blocks, 65, "by the leaves");
	cr_assert_eq(restored_file((int[]){fds[0], fds[2]}, 2, "large", 40960, buf, sizeof(buf)),
		     0);
	cr_assert_eq(volume_sync(rig.volume), 0);
	rig_reopen(&rig, true);
	cr_assert_eq(rig_write(&rig, ino, 3u << 20, buf, sizeof(buf)), 0);
	fds[3] = take(fds[2], &result);
	cr_assert_eq(restored_file((int[]){fds[0], fds[2], fds[3]}, 3, "large", 3u << 20, buf,
				   sizeof(buf)),
		     0);
}

Test(backup, wrong_order_is_refused)
{
	struct backup_progress result;
	int fds[3];

	backup_load_step(load, 200);
	fds[0] = take(-1, &result);
	fds[1] = take(fds[0], &result);
	fds[2] = take(fds[1], &result);
	cr_assert_eq(restored(fds + 1, 1), -BE_ORDER);
	cr_assert_eq(restored((int[]){fds[0], fds[2]}, 2), -BE_ORDER);
	cr_assert_eq(restored((int[]){fds[0], fds[0]}, 2), -BE_ORDER);
	cr_assert_eq(restored(fds, 3), 0);
}

/* No byte can be wrong without its being noticed. */
Test(backup, damage_is_noticed)
{
	struct backup_progress result;
	uint64_t seed = 1;
	int fd;

	backup_load_step(load, 200);
	fd = take(-1, &result);
	for (unsigned i = 0; i < 400; i++) {
		off_t at = (off_t)(random_next(&seed) % (i % 2 ? result.bytes : 9000));
		uint8_t byte, bad;

		cr_assert_eq(pread(fd, &byte, 1, at), 1);
		bad = byte ^ (uint8_t)(1u << i % 8);
		cr_assert_eq(pwrite(fd, &bad, 1, at), 1);
		cr_assert_lt(backup_verify(fd, "backup"), 0, "byte %ld", (long)at);
		cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
	}
	cr_assert_eq(backup_verify(fd, "backup"), 0);
	cr_assert_eq(ftruncate(fd, (off_t)result.bytes - 1), 0);
	cr_assert_lt(backup_verify(fd, "backup"), 0);
}

/* A header whose checksum is right, whatever it says. */
static void put_header(int fd, struct disk_backup_header head)
{
	head.crc = le32_make(0);
	head.crc = le32_make(crc32c(0, &head, sizeof(head)));
	cr_assert_eq(pwrite(fd, &head, sizeof(head), 0), sizeof(head));
}

/* Somebody else's file: what its fields say is not believed because a checksum is right. */
Test(backup, impossible_headers_are_refused)
{
	struct backup_progress result;
	struct disk_backup_header good, bad;
	int fd;

	backup_load_step(load, 50);
	fd = take(-1, &result);
	good = header_of(fd);
	for (unsigned i = 0; i < 5; i++) {
		bad = good;
		if (i == 0)
			bad.lsn = le64_make(1);
		else if (i == 1)
			bad.lsn = le64_make(UINT64_MAX);
		else if (i == 2)
			bad.generation = le64_make(UINT64_MAX);
		else if (i == 3)
			bad.base_lsn = le64_make(le64_get(good.lsn) + 1);
		else
			bad.version = le32_make(BACKUP_VERSION + 1);
		put_header(fd, bad);
		cr_assert_eq(restored(&fd, 1), i == 4 ? -BE_VERSION : -BE_DAMAGE, "%u", i);
	}
	put_header(fd, good);
	cr_assert_eq(restored(&fd, 1), 0);
}

static void put_chunk(int fd, struct disk_backup_chunk chunk)
{
	chunk.crc = le32_make(0);
	chunk.crc = le32_make(crc32c(0, &chunk, sizeof(chunk)));
	cr_assert_eq(pwrite(fd, &chunk, sizeof(chunk), (off_t)le64_get(chunk.offset)),
		     sizeof(chunk));
}

/* The superblock is what the rest is judged by. */
Test(backup, superblocks_that_cannot_be_used_are_refused)
{
	struct disk_superblock sb, bad;
	struct disk_backup_header head;
	struct disk_backup_chunk chunk;
	struct backup_progress result;
	const off_t at = BACKUP_HEADER_BYTES;
	int fd;

	backup_load_step(load, 50);
	fd = take(-1, &result);
	cr_assert_eq(pread(fd, &chunk, sizeof(chunk), at), sizeof(chunk));
	cr_assert_eq(le32_get(chunk.type), BACKUP_SUPER);
	cr_assert_eq(pread(fd, &sb, sizeof(sb), at + (off_t)sizeof(chunk)), sizeof(sb));
	for (unsigned i = 0; i < 3; i++) {
		bad = sb;
		if (i == 0)
			bad.magic[0] ^= 1;
		else if (i == 1)
			bad.incompat = le64_make(UINT64_C(1) << 50);
		else
			bad.page_size = le32_make(7);
		cr_assert_eq(pwrite(fd, &bad, sizeof(bad), at + (off_t)sizeof(chunk)), sizeof(bad));
		chunk.payload_crc = le32_make(crc32c(0, &bad, sizeof(bad)));
		put_chunk(fd, chunk);
		cr_assert_eq(restored(&fd, 1), i == 1 ? -BE_VERSION : -BE_DAMAGE, "%u", i);
	}
	/* And none at all. */
	head = header_of(fd);
	head.chunks = le64_make(0);
	head.file_bytes = le64_make(BACKUP_HEADER_BYTES + sizeof(chunk));
	put_header(fd, head);
	chunk.type = le32_make(BACKUP_END);
	chunk.start = le64_make(0);
	chunk.offset = le64_make(BACKUP_HEADER_BYTES);
	chunk.count = le32_make(0);
	put_chunk(fd, chunk);
	cr_assert_eq(backup_verify(fd, "backup"), 0);
	cr_assert_eq(restored(&fd, 1), -BE_DAMAGE);
}

/* INV-BAK-1: everything that a backup held is let go, as far as anybody can see. */
static void check_nothing_held(void)
{
	static uint8_t buf[65536];
	struct space_counts counts;

	cr_assert_eq(rig_write(&rig, rig_file(&rig, INO_ROOT, "brief"), 0, buf, sizeof(buf)), 0);
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "brief"), 0);
	rig_purge(&rig);
	cr_assert_eq(flush_everything(rig.volume->flusher), 0);
	space_advance(rig.volume->space);
	space_count(rig.volume->space, &counts);
	cr_assert_eq(counts.deferred, 0);
	cr_assert_geq(log_checkpoint_lsn(rig.volume->log) + 2048, log_next_lsn(rig.volume->log));
	cr_assert_not(atomic_load(&rig.volume->backing_up));
}

static unsigned looks_left;

static bool cancel_at(void *arg)
{
	(void)arg;
	return looks_left-- == 0;
}

Test(backup, given_up_anywhere_holds_nothing)
{
	struct backup_progress result;

	backup_load_step(load, 400);
	for (unsigned looks = 0;; looks += 7) {
		struct backup_params params = {
			.fd = scratch_file_unnamed(), .cancelled = cancel_at};
		int rc;

		looks_left = looks;
		rc = backup_run(rig.volume, &params, &result);
		if (rc)
			cr_assert_lt(backup_verify(params.fd, "unfinished"), 0);
		close(params.fd);
		backup_load_step(load, 2);
		check_nothing_held();
		if (rc == 0)
			break;
		cr_assert_eq(rc, -ECANCELED);
	}
}

/* A file that takes only so much, in every size. */
Test(backup, full_target_is_an_error_and_holds_nothing)
{
	struct backup_progress result;
	struct rlimit limit;

	signal(SIGXFSZ, SIG_IGN);
	backup_load_step(load, 400);
	cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
	for (rlim_t room = 4096;; room = room * 3 / 2) {
		struct backup_params params = {.fd = scratch_file_unnamed()};
		int rc;

		limit.rlim_cur = room;
		cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
		rc = backup_run(rig.volume, &params, &result);
		limit.rlim_cur = limit.rlim_max;
		cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
		close(params.fd);
		check_nothing_held();
		if (rc == 0)
			break;
		cr_assert_eq(rc, -EFBIG);
	}
}

/* ---------------------------------------------------- while it is being made */

static int nested_rc;
static uint64_t doomed;

/* INV-LOG-7: the blocks of what is removed now may still be needed. */
static void fill_while_pinned(const char *point)
{
	struct space_counts counts;
	static uint8_t buf[1u << 20];
	uint64_t ino;

	if (strcmp(point, "backup:redone") != 0)
		return;
	os_linux_set_point_handler(NULL);
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "doomed"), 0);
	rig_purge(&rig);
	space_count(rig.volume->space, &counts);
	cr_assert_geq(counts.deferred, 1024);
	cr_assert_geq(counts.pinned, 1024, "statfs does not count on it");
	cr_assert_leq(counts.pinned, counts.deferred);
	ino = rig_file(&rig, INO_ROOT, "new");
	cr_assert_neq(ino, 0);
	for (unsigned i = 0; (nested_rc = rig_write(&rig, ino, i * sizeof(buf), buf,
						    sizeof(buf))) == 0; i++)
		cr_assert_lt(i, 16);
}

Test(backup, full_volume_says_so_while_blocks_are_held)
{
	struct backup_progress result;
	static uint8_t buf[1u << 20];
	int fd;

	doomed = rig_file(&rig, INO_ROOT, "doomed");
	for (unsigned i = 0; i < 4; i++) {
		rig_fill(buf, sizeof(buf), i);
		cr_assert_eq(rig_write(&rig, doomed, i * sizeof(buf), buf, sizeof(buf)), 0);
	}
	os_linux_set_point_handler(fill_while_pinned);
	fd = take(-1, &result);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(nested_rc, -ENOSPC, "got %d", nested_rc);
	cr_assert_eq(result.bad_blocks, 0, "a held block was given out");
	cr_assert_geq(result.blocks, 1024);
	/* Let go, the space is there again. */
	cr_assert_eq(rig_write(&rig, rig_file(&rig, INO_ROOT, "after"), 0, buf, sizeof(buf)), 0);
	cr_assert_eq(restored(&fd, 1), 0);
}

static const char *step_at;
static unsigned step_count;

static void step_once(const char *point)
{
	if (step_at == NULL || strcmp(point, step_at) != 0)
		return;
	step_at = NULL;
	backup_load_step(load, step_count);
}

static int take_beside(int base_fd, const char *point, unsigned steps)
{
	struct backup_progress result;
	int fd;

	step_at = point;
	step_count = steps;
	os_linux_set_point_handler(step_once);
	fd = take(base_fd, &result);
	os_linux_set_point_handler(NULL);
	cr_assert_null(step_at, "%s was not reached", point);
	return fd;
}

/*
 * What the base has by its log alone lies in no place yet.  When the incremental leaves
 * the page out and has to fetch it after all, it must be there (step 2).
 */
Test(backup, pages_that_were_left_out_are_as_the_base_has_them)
{
	int fds[2];

	backup_load_step(load, 600);
	fds[0] = take_beside(-1, "backup:begun", 60);
	fds[1] = take_beside(fds[0], "backup:walked", 60);
	cr_assert_eq(restored(fds, 2), 0);
}

/* Roots are raised, and all else happens, at each step. */
Test(backup, changes_at_any_step)
{
	static const char *const points[] = {"backup:begun", "backup:root", "backup:page",
					     "backup:walked"};

	for (unsigned i = 0; i < array_count(points); i++) {
		int fd = take_beside(-1, points[i], 250);

		cr_assert_eq(restored(&fd, 1), 0);
		close(fd);
	}
}

static int second_rc;

static void second_backup(const char *point)
{
	struct backup_params params = {.fd = -1};
	struct backup_progress result;

	if (strcmp(point, "backup:walked") == 0)
		second_rc = backup_run(rig.volume, &params, &result);
}

Test(backup, one_at_a_time)
{
	struct backup_progress result;

	os_linux_set_point_handler(second_backup);
	(void)take(-1, &result);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(second_rc, -EBUSY);
}

Test(backup, bad_data_is_copied_and_counted)
{
	uint64_t ino = rig_file(&rig, INO_ROOT, "victim");
	struct backup_progress before, after;
	static uint8_t buf[65536];
	size_t hit = 0;

	rig_fill(buf, sizeof(buf), 99);
	cr_assert_eq(rig_write(&rig, ino, 0, buf, sizeof(buf)), 0);
	(void)take(-1, &before);
	cr_assert_eq(before.bad_blocks, 0);
	for (uint64_t at = 0; at < VOLUME_BYTES && !hit; at += 4096) {
		uint8_t block[4096];

		cr_assert_eq(dev_read(rig.dev, block, sizeof(block), at), 0);
		if (memcmp(block, buf, sizeof(block)) != 0)
			continue;
		block[7] ^= 1;
		cr_assert_eq(dev_write(rig.dev, block, sizeof(block), at), 0);
		hit = 1;
	}
	cr_assert_eq(hit, 1);
	(void)take(-1, &after);
	cr_assert_eq(after.bad_blocks, 1);
	cr_assert_eq(after.blocks, before.blocks);
}

Test(backup, what_cannot_be_is_refused)
{
	struct backup_params params = {.fd = -1, .since = UINT64_MAX / 2};
	struct backup_progress result;

	cr_assert_eq(backup_run(rig.volume, &params, &result), -EINVAL);
	rig_reopen_read_only(&rig);
	params.since = 0;
	cr_assert_eq(backup_run(rig.volume, &params, &result), -EROFS);
	rig_reopen(&rig, false);
}
