/* A root that is lowered, and raised again, while a backup walks its index (INV-BAK-3). */
#include "engine/backup.h"
#include "engine/flush.h"
#include "engine/mtr.h"
#include "engine/restore.h"
#include "engine/tree.h"
#include "tests/lib/scratch.h"
#include "tests/lib/scratch_file.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

#define BYTES (8u << 20)
#define INDEX INDEX_OVERLAY
#define KEYS_MAX 400u
#define LEFT 5u /* keys that stay */

static struct volume *volume;
static unsigned keys;            /* there at first: enough for three levels */
static const char *wanted_point;
static unsigned wanted_pass;     /* let the point pass so often */
static bool raised_again, done;

static void change(unsigned n, bool delete)
{
	uint8_t key[KEY_BYTES_MAX] = {0}, value[900];
	struct mtr *m;
	int rc;

	memset(value, (int)n, sizeof(value));
	be64_put(key + sizeof(key) - 8, n);
	cr_assert_eq(mtr_begin(volume, 0, &m), 0);
	mtr_want_key(m, INDEX, key, sizeof(key));
	do {
		rc = mtr_latch(m);
		if (rc)
			break;
		if (delete)
			mtr_delete(m, INDEX, key, sizeof(key));
		else
			mtr_put(m, INDEX, key, sizeof(key), value, sizeof(value));
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	cr_assert_eq(rc, 0);
}

static void fill(unsigned first)
{
	for (unsigned n = first; n < keys; n++)
		change(n, false);
}

static void make(void)
{
	volume = scratch_open(scratch_format(BYTES, SCRATCH_PAGE, 1u << 20), false);
	for (keys = 0; stat_read(&volume->stats, STAT_tree_splits_internal) == 0; keys++) {
		cr_assert_lt(keys, KEYS_MAX);
		change(keys, false);
	}
	cr_assert_eq(flush_everything(volume->flusher), 0);
}

static void lower(const char *point)
{
	uint64_t before = stat_read(&volume->stats, STAT_tree_root_lowerings);

	if (done || strcmp(point, wanted_point) != 0 || wanted_pass-- > 0)
		return;
	done = true;
	for (unsigned n = LEFT; n < keys; n++)
		change(n, true);
	cr_assert_gt(stat_read(&volume->stats, STAT_tree_root_lowerings), before);
	if (raised_again)
		fill(LEFT);
}

static int backup(void)
{
	struct backup_params params = {.fd = scratch_file_unnamed()};
	struct backup_progress result;

	os_linux_set_point_handler(lower);
	cr_assert_eq(backup_run(volume, &params, &result), 0, "%s, %u", wanted_point, wanted_pass);
	os_linux_set_point_handler(NULL);
	return params.fd;
}

static void restore_and_compare(int fd, unsigned count)
{
	struct tree_cursor cursor;
	struct restore *restore;
	struct volume *other;
	struct device *dev;
	unsigned n = 0;
	lsn_t lsn;
	int rc;

	cr_assert_eq(dev_open_memory(&dev, BYTES), 0);
	cr_assert_eq(restore_begin(&restore, dev), 0);
	cr_assert_eq(restore_apply(restore, fd, "backup"), 0);
	cr_assert_eq(restore_finish(restore, &lsn), 0);
	restore_end(restore);
	close(fd);
	other = scratch_open(dev, false);
	rc = tree_cursor_open(&cursor, &other->index[INDEX], NULL, 0);
	while (rc == 0 && (rc = tree_cursor_next(&cursor)) == 0) {
		cr_assert_eq(be64_get(cursor.key.bytes + cursor.key.len - 8), n);
		cr_assert_eq(cursor.value[0], (uint8_t)n);
		n++;
	}
	tree_cursor_close(&cursor);
	cr_assert_eq(rc, -BE_END);
	cr_assert_eq(n, count, "%u of %u at %s", n, count, wanted_point);
	cr_assert_eq(scratch_problems(other), 0);
	cr_assert_eq(volume_close(other), 0);
}

/* At each page of each level of every index; the last pass comes after all of them. */
static void at_each(const char *point)
{
	unsigned pass = 0;

	do {
		int fd;

		wanted_point = point;
		wanted_pass = pass++;
		done = false;
		make();
		fd = backup();
		restore_and_compare(fd, done && !raised_again ? LEFT : keys);
		cr_assert_eq(volume_close(volume), 0);
	} while (done);
}

Test(backup_root, lowered_at_any_step)
{
	at_each("backup:root");
	at_each("backup:page");
}

Test(backup_root, lowered_and_raised_at_any_step)
{
	raised_again = true;
	at_each("backup:root");
	at_each("backup:page");
}
