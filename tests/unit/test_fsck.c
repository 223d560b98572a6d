/*
 * fsck as a whole: healthy volumes give no problem, a log is replayed in memory
 * or for good, exit codes, locks, interruption, unreadable blocks, damaged logs.
 * The single faults are in test_fsck_faults.c.
 */
#include "fsck/check.h"
#include "fsck/session.h"
#include "tests/lib/core_rig.h"
#include "tests/lib/fsck_world.h"
#include "tests/lib/scratch.h"

#include "engine/base/error.h"
#include "engine/base/message.h"
#include "engine/mtr.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- walking ----------------------------------------------------------------- */

struct numbers {
	unsigned count, seen[64];
	char detail[64][256];
};

static void note_number(void *arg, const struct fsck_problem *problem)
{
	struct numbers *n = arg;

	cr_assert_str_eq(problem->title, fsck_problem_kind(problem->number)->title);
	if (n->count < array_count(n->seen)) {
		snprintf(n->detail[n->count], sizeof(n->detail[0]), "%s", problem->detail);
		n->seen[n->count++] = problem->number;
	}
}

static bool has_number(const struct numbers *n, unsigned number)
{
	for (unsigned i = 0; i < n->count; i++)
		if (n->seen[i] == number)
			return true;
	return false;
}

static const struct fsck_options with_data = {.data = true, .collect_fixes = true};

static void expect_healthy(struct device *dev, struct fsck_result *result)
{
	struct numbers n = {0};

	cr_assert_eq(fsck_walk(dev, &with_data, note_number, &n, result), 0);
	cr_assert_eq(n.count, 0, "[%u] %s", n.seen[0], n.detail[0]);
	cr_assert_eq(result->problems, 0);
	cr_assert(result->whole);
	fsck_result_free(result);
}

Test(fsck, table_has_each_number_once)
{
	static const unsigned numbers[] = {
#define X(name, number, severity, repair, title) number,
#include "fsck/problem.def"
#undef X
	};

	for (size_t i = 0; i < array_count(numbers); i++) {
		cr_assert(i == 0 || numbers[i] > numbers[i - 1], "%u", numbers[i]);
		cr_assert_not_null(fsck_problem_kind(numbers[i]));
	}
	cr_assert_null(fsck_problem_kind(999));
}

Test(fsck, new_volume_of_each_page_size)
{
	for (uint32_t page_size = PAGE_SIZE_MIN; page_size <= PAGE_SIZE_MAX; page_size *= 2) {
		struct device *dev = scratch_format(64u << 20, page_size, 0);
		struct fsck_result result;

		expect_healthy(dev, &result);
		cr_assert_eq(result.directories, 1);
		cr_assert_eq(result.files, 0);
		cr_assert_eq(result.blocks_used, 10u * page_size / BLOCK_SIZE);
		dev_close(dev);
	}
}

Test(fsck, many_groups)
{
	struct device *dev = scratch_format(1ull << 40, 4096, 1 << 20);
	struct fsck_result result;

	expect_healthy(dev, &result);
	cr_assert_gt(result.blocks_total, 1ull << 27);
	dev_close(dev);
}

Test(fsck, volume_in_use_is_healthy)
{
	struct world world;
	struct fsck_result result;

	world_make(&world);
	expect_healthy(world.dev, &result);
	cr_assert_eq(result.directories, 4);
	cr_assert_eq(result.files, 5 + WORLD_MANY);
	cr_assert_eq(result.others, 1);
	world_free(&world);
}

/* Walks it while it is open: recovery in memory is what a power cut would give. */
Test(fsck, unreplayed_log_is_replayed_in_memory)
{
	struct numbers n = {0};
	struct world world;
	struct fsck_result result;
	uint8_t *before = malloc(WORLD_BYTES), *after = malloc(WORLD_BYTES);

	world_make_crashed(&world);
	cr_assert_eq(dev_read(world.dev, before, WORLD_BYTES, 0), 0);
	cr_assert_eq(fsck_recover_and_walk(world.dev, SCRATCH_CACHE, &with_data, note_number, &n,
					   &result),
		     0);
	cr_assert_eq(n.count, 0, "[%u] %s", n.seen[0], n.detail[0]);
	cr_assert_eq(result.files, 5 + WORLD_MANY);
	fsck_result_free(&result);
	cr_assert_eq(dev_read(world.dev, after, WORLD_BYTES, 0), 0);
	cr_assert_eq(memcmp(before, after, WORLD_BYTES), 0, "the device was written");
	world_free(&world);
	free(before);
	free(after);
}

Test(fsck, not_a_volume)
{
	struct fsck_result result;
	struct device *dev;

	cr_assert_eq(dev_open_memory(&dev, 1 << 20), 0);
	cr_assert_eq(fsck_walk(dev, &with_data, NULL, NULL, &result), -BE_NOVOLUME);
	fsck_result_free(&result);
	dev_close(dev);
}

/* --- bad media ------------------------------------------------------------------ */

/* Each read fails in turn: only the superblock has a second copy to make up for it. */
Test(fsck, each_read_fails_once)
{
	const struct fsck_options options = {.collect_fixes = true};
	struct world world;
	unsigned silent = 0;

	world_make(&world);
	for (uint64_t after = 0;; after++) {
		uint64_t failed = dev_memory_fault_count(world.dev);
		struct numbers n = {0};
		struct fsck_result result;
		int rc;

		dev_memory_fail(world.dev, FAULT_READ, after, -EIO, false);
		rc = fsck_walk(world.dev, &options, note_number, &n, &result);
		fsck_result_free(&result);
		if (dev_memory_fault_count(world.dev) == failed)
			break;
		silent += rc == 0 && result.problems == 0;
		if (has_number(&n, 101))
			cr_assert_not(result.whole);
	}
	cr_assert_leq(silent, 2);
	dev_memory_fail(world.dev, 0, 0, 0, false);
	world_free(&world);
}

/* From some read on all fail: in the last part of the walk only contents are read. */
Test(fsck, unreadable_contents)
{
	bool found = false;
	struct world world;

	world_make(&world);
	for (uint64_t after = 0; !found; after++) {
		struct numbers n = {0};
		struct fsck_result result;

		cr_assert_lt(after, 10000);
		dev_memory_fail(world.dev, FAULT_READ, after, -EIO, true);
		if (fsck_walk(world.dev, &with_data, note_number, &n, &result) == 0 &&
		    has_number(&n, 802) && !has_number(&n, 101)) {
			found = true;
			cr_assert(strstr(n.detail[0], "offset "), "%s", n.detail[0]);
			cr_assert(result.whole);
		}
		fsck_result_free(&result);
	}
	dev_memory_fail(world.dev, 0, 0, 0, false);
	world_free(&world);
}

/* --- cancelling ------------------------------------------------------------------ */

static bool cancel_after(void *arg)
{
	unsigned *left = arg;

	return (*left)-- == 0;
}

Test(fsck, cancelled_anywhere)
{
	struct world world;
	unsigned times = 0;

	world_make(&world);
	for (;; times++) {
		unsigned left = times;
		struct fsck_options options = {
			.data = true,
			.cancelled = cancel_after,
			.arg = &left,
		};
		struct fsck_result result;
		int rc = fsck_walk(world.dev, &options, NULL, NULL, &result);

		fsck_result_free(&result);
		if (rc == 0)
			break;
		cr_assert_eq(rc, -ECANCELED);
	}
	cr_assert_gt(times, 20);
	world_free(&world);
}

/* --- sessions ---------------------------------------------------------------------- */

struct output {
	char text[16384];
	bool answer, asked, cancel;
};

static void collect(void *arg, const char *line)
{
	struct output *out = arg;
	size_t len = strlen(out->text);

	snprintf(out->text + len, sizeof(out->text) - len, "%s\n", line);
}

static bool answer(void *arg, const char *question)
{
	struct output *out = arg;

	(void)question;
	out->asked = true;
	return out->answer;
}

static bool cancel(void *arg)
{
	return ((struct output *)arg)->cancel;
}

static int run(const char *path, enum session_mode mode, bool force, struct output *out)
{
	struct session_options options = {
		.mode = mode,
		.force = force,
		.print = collect,
		.ask = answer,
		.cancelled = cancel,
		.arg = out,
		.cache_bytes = WORLD_CACHE,
	};

	out->text[0] = '\0';
	out->asked = false;
	return session_run(path, &options);
}

static void expect_line(const struct output *out, const char *text)
{
	cr_assert(strstr(out->text, text), "'%s' is not in:\n%s", text, out->text);
}

/* A world in a file. */
struct file {
	struct world world;
	struct image image;
	struct output out;
	char path[SCRATCH_PATH_BYTES];
};

static struct file *file_make(bool crashed)
{
	struct file *f = calloc(1, sizeof(*f));

	cr_assert_not_null(f);
	(crashed ? world_make_crashed : world_make)(&f->world);
	image_open(&f->image, f->world.dev);
	return f;
}

static void file_free(struct file *f)
{
	unlink(f->path);
	world_free(&f->world);
	free(f);
}

Test(fsck_session, clean_is_believed_unless_forced)
{
	struct file *f = file_make(false);

	image_set_bits(&f->image, f->image.raw.groups_end - 1, 1, true);
	world_save(&f->world, f->path);
	cr_assert_eq(run(f->path, MODE_REPAIR, false, &f->out), EXIT_CLEAN);
	expect_line(&f->out, ": clean");
	cr_assert_eq(run(f->path, MODE_REPAIR, true, &f->out), EXIT_CORRECTED);
	expect_line(&f->out, "[702]");
	cr_assert_eq(run(f->path, MODE_REPAIR, true, &f->out), EXIT_CLEAN);
	expect_line(&f->out, ": 205 files, 4 directories, ");
	file_free(f);
}

Test(fsck_session, log_is_replayed_for_good)
{
	struct file *f = file_make(true);

	world_save(&f->world, f->path);
	cr_assert_eq(run(f->path, MODE_NO, false, &f->out), EXIT_CLEAN);
	expect_line(&f->out, ": 205 files, 4 directories, ");
	cr_assert_eq(run(f->path, MODE_REPAIR, false, &f->out), EXIT_CLEAN);
	expect_line(&f->out, ": 205 files, 4 directories, ");
	cr_assert_eq(run(f->path, MODE_REPAIR, false, &f->out), EXIT_CLEAN);
	expect_line(&f->out, ": clean");
	file_free(f);
}

/* Wrong contents that are only in the log, as a bug of the engine would leave them. */
static void commit_damage(struct volume *volume, const struct file *f, uint64_t start)
{
	struct key key = image_key_ino(f->world.big);
	struct disk_inode inode;
	const void *value;
	struct mtr *m;
	size_t len;
	int rc;

	cr_assert_eq(mtr_begin(volume, 0, &m), 0);
	mtr_want_key(m, INDEX_INODES, key.bytes, key.len);
	do {
		cr_assert_eq(mtr_latch(m), 0);
		cr_assert_eq(mtr_lookup(m, INDEX_INODES, key.bytes, key.len, &value, &len), 0);
		memcpy(&inode, value, sizeof(inode));
		inode.nlink = le32_make(9);
		mtr_put(m, INDEX_INODES, key.bytes, key.len, &inode, sizeof(inode));
		mtr_clear_bits(m, start + 1, 2);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	cr_assert_eq(rc, 0);
	mtr_end(m);
	cr_assert_eq(volume_sync(volume), 0);
}

Test(fsck_session, repairs_behind_a_replay)
{
	struct volume_options options = {.no_background = true, .cache_bytes = SCRATCH_CACHE};
	struct file *f = file_make(false);
	struct disk_inode inode;
	struct device *dev;
	struct volume *volume;
	struct key key;
	uint64_t start;

	image_get_inode(&f->image, f->world.big, &inode);
	key = image_key_pair(le64_get(inode.lob), 0);
	cr_assert(image_find(&f->image, INDEX_LOB, &key));
	start = le64_get(((struct disk_extent *)image_value(&f->image, NULL))->start);
	world_save(&f->world, f->path);
	cr_assert_eq(dev_open_file(&dev, f->path, 0, 0), 0);
	cr_assert_eq(volume_open(&volume, dev, &options), 0);
	commit_damage(volume, f, start);
	volume_abandon(volume);

	cr_assert_eq(run(f->path, MODE_NO, false, &f->out), EXIT_UNCORRECTED);
	expect_line(&f->out, "[410]");
	expect_line(&f->out, "[703]");
	cr_assert_eq(run(f->path, MODE_REPAIR, false, &f->out), EXIT_CORRECTED, "%s", f->out.text);
	cr_assert_eq(run(f->path, MODE_NO, true, &f->out), EXIT_CLEAN, "%s", f->out.text);
	file_free(f);
}

Test(fsck_session, asks_once)
{
	struct file *f = file_make(false);
	struct disk_inode inode;

	image_get_inode(&f->image, f->world.big, &inode);
	inode.nlink = le32_make(7);
	image_put_inode(&f->image, f->world.big, &inode);
	world_save(&f->world, f->path);
	cr_assert_eq(run(f->path, MODE_ASK, true, &f->out), EXIT_UNCORRECTED);
	cr_assert(f->out.asked);
	f->out.answer = true;
	cr_assert_eq(run(f->path, MODE_ASK, true, &f->out), EXIT_CORRECTED);
	cr_assert(f->out.asked);
	cr_assert_eq(run(f->path, MODE_ASK, true, &f->out), EXIT_CLEAN);
	cr_assert_not(f->out.asked);
	file_free(f);
}

Test(fsck_session, damage_that_stays_is_flagged)
{
	struct volume_options options = {.no_background = true};
	struct file *f = file_make(false);
	struct disk_superblock sb;
	struct device *dev;
	struct volume *volume;

	image_load(&f->image, le64_get(f->image.raw.sb.root[INDEX_DIRENTS]));
	f->image.page[200] ^= 1;
	image_store(&f->image, false);
	world_save(&f->world, f->path);
	cr_assert_eq(run(f->path, MODE_NO, true, &f->out), EXIT_UNCORRECTED);
	cr_assert_eq(run(f->path, MODE_PREEN, true, &f->out), EXIT_UNCORRECTED);
	expect_line(&f->out, "[102]");
	expect_line(&f->out, "without -p");
	cr_assert_eq(dev_open_file(&dev, f->path, 0, 0), 0);
	cr_assert_eq(superblock_read(dev, &sb, NULL), 0);
	cr_assert_eq(le32_get(sb.state), SB_DAMAGED);
	message_quiet(LOG_CRIT);
	cr_assert_eq(volume_open(&volume, dev, &options), -BE_DAMAGE);
	dev_close(dev);
	file_free(f);
}

/* INV-FSCK-1: what cannot be walked might own what seems to be free. */
Test(fsck_session, nothing_is_repaired_when_something_is_hidden)
{
	struct file *f = file_make(false);
	uint8_t *before = malloc(WORLD_BYTES), *after = malloc(WORLD_BYTES);
	FILE *file;

	image_load(&f->image, le64_get(f->image.raw.sb.root[INDEX_LOB]));
	f->image.page[200] ^= 1;
	image_store(&f->image, false);
	world_save(&f->world, f->path);
	file = fopen(f->path, "r");
	cr_assert_eq(fread(before, 1, WORLD_BYTES, file), WORLD_BYTES);
	cr_assert_eq(run(f->path, MODE_PREEN, true, &f->out), EXIT_UNCORRECTED);
	expect_line(&f->out, "[702]");
	rewind(file);
	cr_assert_eq(fread(after, 1, WORLD_BYTES, file), WORLD_BYTES);
	cr_assert_eq(memcmp(before + BLOCK_SIZE, after + BLOCK_SIZE, WORLD_BYTES - 2 * BLOCK_SIZE),
		     0, "something besides the superblocks was written");
	fclose(file);
	free(before);
	free(after);
	file_free(f);
}

Test(fsck_session, broken_log)
{
	struct file *f = file_make(true);

	/* the header of the log */
	cr_assert_eq(dev_write(f->world.dev, "???", 3, f->image.raw.geo.log_start * BLOCK_SIZE + 8),
		     0);
	world_save(&f->world, f->path);
	message_quiet(LOG_CRIT);
	cr_assert_eq(run(f->path, MODE_PREEN, false, &f->out), EXIT_UNCORRECTED);
	expect_line(&f->out, "[12]");
	cr_assert_eq(run(f->path, MODE_REPAIR, false, &f->out), EXIT_CORRECTED);
	expect_line(&f->out, "the log is gone");
	cr_assert_eq(run(f->path, MODE_NO, true, &f->out), EXIT_CLEAN);
	file_free(f);
}

/* INV-LOG-5: the log breaks off although a later mark says that it was durable. */
Test(fsck_session, log_broken_in_the_middle)
{
	struct file *f = file_make(true);
	uint64_t log = f->image.raw.geo.log_start * BLOCK_SIZE;
	char bytes[64];

	memset(bytes, '?', sizeof(bytes));
	for (uint64_t at = LOG_RECORDS_START + 1024; at < LOG_RECORDS_START + 2048; at += 64)
		cr_assert_eq(dev_write(f->world.dev, bytes, sizeof(bytes), log + at), 0);
	world_save(&f->world, f->path);
	message_quiet(LOG_CRIT);
	cr_assert_eq(run(f->path, MODE_NO, false, &f->out), EXIT_UNCORRECTED);
	expect_line(&f->out, "[11]");
	cr_assert_eq(run(f->path, MODE_PREEN, false, &f->out), EXIT_UNCORRECTED);
	expect_line(&f->out, "[11]");
	cr_assert_eq(run(f->path, MODE_REPAIR, false, &f->out), EXIT_CORRECTED);
	expect_line(&f->out, "and cut there");
	cr_assert_eq(run(f->path, MODE_NO, true, &f->out), EXIT_CLEAN);
	file_free(f);
}

Test(fsck_session, volume_in_use)
{
	struct file *f = file_make(false);
	struct device *dev;

	world_save(&f->world, f->path);
	cr_assert_eq(dev_open_file(&dev, f->path, 0, 0), 0);
	cr_assert_eq(run(f->path, MODE_REPAIR, true, &f->out), EXIT_OPERATIONAL);
	expect_line(&f->out, "in use");
	cr_assert_eq(run(f->path, MODE_ASK, true, &f->out), EXIT_OPERATIONAL);
	cr_assert_eq(run(f->path, MODE_NO, true, &f->out), EXIT_CLEAN);
	expect_line(&f->out, "may be wrong");
	dev_close(dev);
	cr_assert_eq(run(f->path, MODE_NO, true, &f->out), EXIT_CLEAN);
	file_free(f);
}

Test(fsck_session, interrupted)
{
	struct file *f = file_make(false);

	world_save(&f->world, f->path);
	f->out.cancel = true;
	cr_assert_eq(run(f->path, MODE_REPAIR, true, &f->out), EXIT_CANCELLED);
	file_free(f);
}

Test(fsck_session, operational_errors)
{
	struct file *f = file_make(false);
	char zeros[4096] = {0};
	FILE *file;

	cr_assert_eq(run("/nonexistent/volume", MODE_REPAIR, false, &f->out), EXIT_OPERATIONAL);
	world_save(&f->world, f->path);
	cr_assert_eq(truncate(f->path, WORLD_BYTES / 2), 0);
	cr_assert_eq(run(f->path, MODE_REPAIR, false, &f->out), EXIT_OPERATIONAL);
	file = fopen(f->path, "w");
	cr_assert_eq(fwrite(zeros, 1, sizeof(zeros), file), sizeof(zeros));
	fclose(file);
	cr_assert_eq(run(f->path, MODE_REPAIR, false, &f->out), EXIT_OPERATIONAL);
	file_free(f);
}

/* --data names the file and the place. */
Test(fsck_session, damaged_contents_are_named)
{
	struct file *f = file_make(false);
	struct fsck_result result;
	struct numbers n = {0};
	struct disk_inode inode;
	struct key key;

	image_get_inode(&f->image, f->world.big, &inode);
	key = image_key_pair(le64_get(inode.lob), 0);
	cr_assert(image_find(&f->image, INDEX_LOB, &key));
	uint64_t start = le64_get(((struct disk_extent *)image_value(&f->image, NULL))->start);
	cr_assert_eq(dev_write(f->world.dev, "damage", 6, (start + 4) * BLOCK_SIZE + 100), 0);
	cr_assert_eq(fsck_walk(f->world.dev, &with_data, note_number, &n, &result), 0);
	cr_assert_eq(n.count, 1);
	cr_assert_eq(n.seen[0], 801);
	cr_assert(strstr(n.detail[0], "offset 16384:"), "%s", n.detail[0]);
	cr_assert(strstr(n.detail[0], "/big,") || strstr(n.detail[0], "/dir/hard,"), "%s",
		  n.detail[0]);
	fsck_result_free(&result);
	f->path[0] = '\0';
	file_free(f);
}
