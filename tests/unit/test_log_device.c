/* An external log: is it the right one, who has it, and what its failures mean. */
#include "engine/log_device.h"
#include "engine/base/message.h"
#include "engine/flush.h"
#include "engine/log_resize.h"
#include "engine/volume.h"
#include "tests/lib/scratch.h"
#include "tests/lib/scratch_file.h"
#include "tests/lib/script.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB (1u << 20)

#define PATH_BYTES (SCRATCH_PATH_BYTES + 16)
static char dir[SCRATCH_PATH_BYTES];
static char volume_path[PATH_BYTES], log_path[PATH_BYTES], other_path[PATH_BYTES];

static void remove_all(void)
{
	scratch_dir_remove(dir);
}

static void make_file(const char *path, off_t size)
{
	int fd = open(path, O_RDWR | O_CREAT, 0600);

	cr_assert(fd >= 0 && ftruncate(fd, size) == 0);
	close(fd);
}

static struct device *open_file(const char *path, unsigned flags)
{
	struct device *dev;

	cr_assert_eq(dev_open_file(&dev, path, flags, 0), 0);
	return dev;
}

static void format(const char *volume, const char *log, const char *uuid, const char *log_uuid)
{
	struct format_params params = {.size_bytes = 4 * MIB, .page_size = 4096, .log_path = log};
	struct device *dev = open_file(volume, 0);

	params.log_dev = open_file(log, 0);
	memcpy(params.uuid, uuid, 16);
	memcpy(params.log_uuid, log_uuid, 16);
	cr_assert_eq(volume_format(dev, &params, NULL), 0);
	dev_close(params.log_dev);
	dev_close(dev);
}

static void set_up(void)
{
	message_quiet(LOG_EMERG);
	scratch_dir(dir);
	snprintf(volume_path, sizeof(volume_path), "%s/volume", dir);
	snprintf(log_path, sizeof(log_path), "%s/log", dir);
	snprintf(other_path, sizeof(other_path), "%s/other", dir);
	make_file(volume_path, 4 * MIB);
	make_file(log_path, MIB);
	make_file(other_path, MIB);
	format(volume_path, log_path, "0123456789abcdef", "its-log-12345678");
}

TestSuite(log_device, .init = set_up, .fini = remove_all);

/* As a mount would: the result of finding the log. */
static int find(const char *path, unsigned flags)
{
	const struct log_device_request request = {.path = path, .how = "-j", .flags = flags};
	struct device *dev = open_file(volume_path, DEV_READ_ONLY | DEV_SHARED_LOCK), *log = NULL;
	int rc = log_device_open(&log, dev, &request);

	cr_assert((rc == 0) == (log != NULL));
	dev_close(log);
	dev_close(dev);
	return rc;
}

Test(log_device, is_found_where_it_was_or_where_one_says)
{
	cr_assert_eq(find(NULL, 0), 0);
	cr_assert_eq(find(log_path, 0), 0);
	cr_assert_eq(rename(log_path, other_path), 0);
	cr_assert_eq(find(NULL, 0), -BE_NOLOG);
	cr_assert_eq(find(other_path, 0), 0);
}

Test(log_device, another_log_is_refused)
{
	struct device *dev;

	cr_assert_eq(find(other_path, 0), -BE_NOLOG, "no log at all");
	cr_assert_eq(find(dir, 0), -BE_NOLOG, "a directory");
	make_file(other_path, 4 * MIB);
	format(other_path, log_path, "another-volume..", "anothers-log....");
	cr_assert_eq(find(NULL, 0), -BE_NOLOG, "another volume's by now");
	format(volume_path, log_path, "0123456789abcdef", "made-anew.......");
	cr_assert_eq(find(NULL, 0), 0);
	cr_assert_eq(truncate(log_path, MIB / 2), 0);
	cr_assert_eq(find(NULL, 0), -BE_NOLOG, "cut short");
	/* Inside a volume there is nothing to find. */
	dev = open_file(volume_path, 0);
	cr_assert_eq(volume_format(dev, &(struct format_params){.size_bytes = 4 * MIB,
								.page_size = 4096}, NULL), 0);
	dev_close(dev);
	cr_assert_eq(find(log_path, 0), -EINVAL);
}

/* INV-REC-2 */
Test(log_device, inv_rec_2_the_log_is_locked_as_well)
{
	struct device *held = open_file(log_path, 0);

	cr_assert_eq(find(NULL, 0), -BE_BUSY);
	cr_assert_eq(find(NULL, DEV_READ_ONLY | DEV_SHARED_LOCK), -BE_BUSY);
	cr_assert_eq(find(NULL, DEV_READ_ONLY | DEV_NO_LOCK), 0);
	dev_close(held);
	cr_assert_eq(find(NULL, 0), 0);
}

/* ----------------------------------------------- volumes in memory */

struct pair {
	struct device *dev, *log;
};

static struct pair pair_format(void)
{
	struct format_params params = {
		.size_bytes = 4 * MIB, .page_size = 4096, .uuid = "scratch-volume!",
		.log_uuid = "scratch-its-log"};
	struct pair pair;

	cr_assert_eq(dev_open_memory(&pair.dev, 4 * MIB), 0);
	cr_assert_eq(dev_open_memory(&pair.log, MIB), 0);
	params.log_dev = pair.log;
	cr_assert_eq(volume_format(pair.dev, &params, NULL), 0);
	return pair;
}

static struct device *copy_of(struct device *dev)
{
	struct device *copy;

	dev_record_start(dev);
	cr_assert_eq(dev_record_cut(dev, 0, &copy), 0);
	return copy;
}

static int open_pair(struct pair pair, bool read_only, struct volume **volume)
{
	struct volume_options options = {
		.cache_bytes = SCRATCH_CACHE, .log_buffer_bytes = MIB, .no_background = true,
		.read_only = read_only, .log_dev = pair.log ? scratch_keep(pair.log) : NULL};
	struct device *dev = scratch_keep(pair.dev);
	int rc = volume_open(volume, dev, &options);

	if (rc) {
		dev_close(options.log_dev);
		dev_close(dev);
	}
	return rc;
}

static void live(struct pair pair, const char *text)
{
	struct volume *volume;
	struct script script;
	struct core *core;

	cr_assert_eq(open_pair(pair, false, &volume), 0);
	cr_assert_eq(core_open(&core, volume), 0);
	script_parse(&script, text);
	for (unsigned i = 0; i < script.count; i++)
		cr_assert_eq(script_run(core, script.statement[i]), 0);
	script_free(&script);
	core_close(core);
	cr_assert_eq(volume_close(volume), 0);
}

static void pair_close(struct pair pair)
{
	dev_close(pair.log);
	dev_close(pair.dev);
}

/* INV-SB-3: either of them restored from an older copy. */
Test(log_device, inv_sb_3_an_older_copy_is_refused)
{
	struct pair pair = pair_format(), mixed;
	struct device *old_log, *old_dev, *same_mount;
	struct volume *volume;

	live(pair, "create a; write a 0 9000 1");
	old_log = copy_of(pair.log);
	old_dev = copy_of(pair.dev);
	live(pair, "create b; write b 0 9000 2");
	live(pair, "create c");

	mixed = (struct pair){pair.dev, old_log};
	cr_assert_eq(open_pair(mixed, false, &volume), -BE_OLDLOG, "log of an earlier mount");
	cr_assert_eq(open_pair(mixed, true, &volume), -BE_OLDLOG);
	mixed = (struct pair){old_dev, pair.log};
	cr_assert_eq(open_pair(mixed, false, &volume), -BE_OLDLOG, "volume of an earlier mount");
	mixed = (struct pair){pair.dev, NULL};
	cr_assert_eq(open_pair(mixed, false, &volume), -BE_NOLOG);

	/* Of the same mount: the generations agree, and only how far it goes tells. */
	cr_assert_eq(open_pair(pair, false, &volume), 0);
	cr_assert_eq(volume_sync(volume), 0);
	same_mount = copy_of(pair.log);
	{
		struct core *core;

		cr_assert_eq(core_open(&core, volume), 0);
		cr_assert_eq(script_run(core, "create late"), 0);
		core_close(core);
	}
	cr_assert_eq(volume_close(volume), 0);
	mixed = (struct pair){pair.dev, same_mount};
	cr_assert_eq(open_pair(mixed, false, &volume), -BE_OLDLOG, "log of earlier in the mount");
	live(pair, "unlink late");
	dev_close(same_mount);
	dev_close(old_log);
	dev_close(old_dev);
	pair_close(pair);
}

/* A read-only mount writes to neither. */
Test(log_device, read_only_writes_to_neither)
{
	struct pair pair = pair_format();
	struct volume *volume;
	struct core *core;

	cr_assert_eq(open_pair(pair, false, &volume), 0);
	cr_assert_eq(core_open(&core, volume), 0);
	cr_assert_eq(script_run(core, "create a"), 0);
	cr_assert_eq(script_run(core, "sync"), 0);
	core_close(core);
	volume_abandon(volume);
	dev_record_start(pair.dev);
	dev_record_start(pair.log);
	cr_assert_eq(open_pair(pair, true, &volume), 0);
	cr_assert_eq(core_open(&core, volume), 0);
	cr_assert_eq(script_run(core, "hold a"), 0);
	core_close(core);
	(void)!volume_close(volume);
	for (size_t i = 0; i < dev_record_count(pair.dev); i++)
		cr_assert(dev_record_is_flush(pair.dev, i));
	for (size_t i = 0; i < dev_record_count(pair.log); i++)
		cr_assert(dev_record_is_flush(pair.log, i));
	pair_close(pair);
}

/*
 * A failure of either device is final: nobody is told that something is durable, the
 * volume is read-only, and what was durable before is there at the next mount.
 */
static void fail_one(bool of_log, unsigned kind, bool short_write)
{
	struct pair pair = pair_format();
	struct volume *volume;
	struct core *core;
	lsn_t durable;

	cr_assert_eq(open_pair(pair, false, &volume), 0);
	cr_assert_eq(core_open(&core, volume), 0);
	cr_assert_eq(script_run(core, "create a"), 0);
	cr_assert_eq(script_run(core, "write a 0 9000 1"), 0);
	cr_assert_eq(script_run(core, "sync"), 0);
	durable = log_durable_lsn(volume->log);
	/* Data first, so that a commit has something to flush on both. */
	cr_assert_eq(script_run(core, "write a 0 9000 2"), 0);
	dev_memory_fail(of_log ? pair.log : pair.dev, kind, 0, short_write ? -EIO : -ENOSPC, false);
	cr_assert_neq(script_run(core, "sync"), 0);
	cr_assert_eq(log_durable_lsn(volume->log), durable);
	cr_assert(atomic_load(&volume->failed) && log_dead(volume->log));
	/* The device works again, the volume does not. */
	cr_assert_neq(script_run(core, "sync"), 0);
	cr_assert_neq(script_run(core, "create b"), 0);
	cr_assert_neq(flush_everything(volume->flusher), 0);
	core_close(core);
	cr_assert_neq(volume_close(volume), 0);
	live(pair, "create b; unlink a");
	pair_close(pair);
}

Test(log_device, a_failed_write_or_flush_of_either_is_final)
{
	fail_one(true, FAULT_WRITE, false);
	fail_one(true, FAULT_WRITE, true);
	fail_one(true, FAULT_FLUSH, false);
	fail_one(false, FAULT_FLUSH, false);
}

/* INV-LOG-4: a commit without new data leaves the other device alone. */
Test(log_device, inv_log_4_data_is_flushed_when_there_is_any)
{
	struct pair pair = pair_format();
	struct volume *volume;
	struct core *core;

	cr_assert_eq(open_pair(pair, false, &volume), 0);
	cr_assert_eq(core_open(&core, volume), 0);
	cr_assert_eq(script_run(core, "create a"), 0);
	cr_assert_eq(script_run(core, "write a 0 9000 1"), 0);
	cr_assert_eq(script_run(core, "sync"), 0);
	cr_assert_geq(atomic_load(&volume->dev->flushed), atomic_load(&volume->dev->written));
	dev_record_start(pair.dev);
	cr_assert_eq(script_run(core, "create b"), 0);
	cr_assert_eq(script_run(core, "sync"), 0);
	cr_assert_eq(dev_record_count(pair.dev), 0);
	cr_assert_eq(script_run(core, "write b 0 9000 1"), 0);
	cr_assert_eq(script_run(core, "sync"), 0);
	cr_assert_gt(dev_record_count(pair.dev), 1);
	core_close(core);
	cr_assert_eq(volume_close(volume), 0);
	pair_close(pair);
}
