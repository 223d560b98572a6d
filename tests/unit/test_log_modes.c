/*
 * The ways to the medium: which is taken, what each costs, what it promises
 * beside the rest.  Power cuts in all of them are in tests/crash.
 */
#include "tests/lib/log_rig.h"
#include "tests/lib/scratch_file.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

static struct logrig_seen seen;

#define FILE_BYTES (LOGRIG_OFFSET + LOG_RECORDS_START + (2u << 20))

/* ------------------------------------------------------------------ files */

static char file_path[SCRATCH_PATH_BYTES];

/* NULL: that folder is not there, or not of that kind. */
static struct device *open_file(const char *folder)
{
	struct device *dev;
	int fd = scratch_file_in(folder, file_path);

	if (fd < 0)
		return NULL;
	cr_assert_eq(ftruncate(fd, FILE_BYTES), 0);
	close(fd);
	cr_assert_eq(dev_open_file(&dev, file_path, 0, 0), 0);
	cr_assert_eq(log_format(dev, LOGRIG_OFFSET, FILE_BYTES - LOGRIG_OFFSET, logrig_uuid, 1), 0);
	return dev;
}

static struct device *open_memory_file(void)
{
	struct statfs fs;

	if (statfs("/dev/shm", &fs) != 0 || fs.f_type != TMPFS_MAGIC)
		cr_skip_test("no tmpfs at /dev/shm");
	return open_file("/dev/shm");
}

static void close_file(struct device *dev)
{
	dev_close(dev);
	unlink(file_path);
}

/* ----------------------------------------------------------------- choice */

Test(log_modes, names)
{
	for (unsigned mode = 0; mode < LOG_MODE_COUNT; mode++) {
		enum log_mode parsed = LOG_MODE_COUNT;

		cr_assert(log_mode_parse(log_mode_name((enum log_mode)mode), &parsed));
		cr_assert_eq(parsed, mode);
	}
	cr_assert(!log_mode_parse("", &(enum log_mode){0}));
	cr_assert(!log_mode_parse("pwrit", &(enum log_mode){0}));
}

static enum log_mode chosen(struct device *dev)
{
	struct log *log = logrig_start(dev, 0, 1, 2);
	enum log_mode mode = log_mode(log);

	log_close(log);
	return mode;
}

Test(log_modes, auto_follows_the_medium)
{
	struct device *disk = logrig_format(512, LOGRIG_CAPACITY);
	struct device *pmem = logrig_format_pmem(LOGRIG_CAPACITY);
	struct device *file = open_file(scratch_folder());

	cr_assert_eq(chosen(disk), LOG_MODE_PWRITE);
	cr_assert_eq(chosen(pmem), LOG_MODE_MAPPED);
	cr_assert_eq(chosen(file), file->byte_addressable ? LOG_MODE_MAPPED : LOG_MODE_PWRITE);
	close_file(file);
	dev_close(pmem);
	dev_close(disk);
}

/* A medium that says that it can be mapped, and then cannot. */
Test(log_modes, auto_falls_back)
{
	struct device *dev = logrig_format(64, LOGRIG_CAPACITY);
	struct device *overlay;

	cr_assert_eq(dev_open_overlay(&overlay, dev), 0);
	overlay->byte_addressable = true;
	cr_assert_eq(chosen(overlay), LOG_MODE_PWRITE);
	dev_close(overlay);
}

Test(log_modes, what_cannot_be_done_is_refused)
{
	const enum log_mode modes[] = {LOG_MODE_DIRECT, LOG_MODE_DSYNC, LOG_MODE_MAPPED};
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct device *overlay;

	cr_assert_eq(dev_open_overlay(&overlay, dev), 0);
	for (size_t i = 0; i < array_count(modes); i++) {
		const struct log_options options = {.mode = modes[i]};
		struct log *log = logrig_open(overlay, 1, 1);

		cr_assert_eq(log_start(log, LSN_FIRST, 2, &options), -EOPNOTSUPP);
		cr_assert_eq(log_start(log, LSN_FIRST, 2, NULL), 0, "another way still works");
		log_close(log);
		dev_close(overlay);
		dev = logrig_format(512, LOGRIG_CAPACITY);
		cr_assert_eq(dev_open_overlay(&overlay, dev), 0);
	}
	dev_close(overlay);
}

/* A log of small blocks that was copied to a medium of larger ones. */
Test(log_modes, groups_are_padded_to_the_larger_block)
{
	const uint32_t mediums[] = {64, 512, 1024};

	for (size_t i = 0; i < array_count(mediums); i++) {
		struct device *dev = logrig_format(64, 256 << 10);
		uint32_t block = mediums[i];
		struct log *log;

		dev->block_bytes = block;
		log = logrig_start(dev, LSN_FIRST + 1, 1, 2);
		cr_assert_eq(log_block_bytes(log), block);
		for (uint64_t id = 0; id < 20; id++) {
			cr_assert_eq(log_durable_lsn(log) % block, 0);
			cr_assert_eq(log_flush(log, logrig_append(log, id, 20 + id).end), 0);
		}
		log_close(log);
		cr_assert(!logrig_scan(dev, 2, &seen).damaged);
		cr_assert_eq(seen.count, 20);
		dev_close(dev);
	}
}

Test(log_modes, the_block_follows_the_medium)
{
	struct device *dev = open_file(scratch_folder());
	struct log *log = logrig_open(dev, 1, 1);

	cr_assert_eq(log_block_bytes(log), dev->byte_addressable ? 64 : 512);
	log_close(log);
	close_file(dev);
	dev = open_memory_file();
	log = logrig_open(dev, 1, 1);
	cr_assert_eq(log_block_bytes(log), 64);
	log_close(log);
	close_file(dev);
}

/* ---------------------------------------------------------- they all work */

/* Several laps; what is durable is found by a scan, also by another device on the same file. */
static void run_laps(struct device *dev, enum log_mode mode, uint64_t generation)
{
	struct log *log = logrig_start_mode(dev, mode, generation - 1, generation);
	lsn_t end = log_next_lsn(log) + 3 * log_capacity(log);

	for (uint64_t id = 0; log_next_lsn(log) < end; id++) {
		lsn_t at;

		if (log_next_lsn(log) - log_checkpoint_lsn(log) > log_capacity(log) / 3)
			cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
		at = logrig_append(log, id, 11 + logrig_random(8000)).end;
		if (logrig_random(4))
			continue;
		cr_assert_eq(logrig_random(4) ? log_flush(log, at) : log_mark(log, at), 0);
		if (logrig_random(16))
			continue;
		cr_assert(!logrig_scan(dev, generation, &seen).damaged);
		cr_assert_geq(seen.expected, at);
		cr_assert_eq(seen.id[seen.count - 1], id);
	}
	cr_assert_eq(log_mark(log, log_next_lsn(log)), 0);
	log_close(log);
}

static void run_all_modes(struct device *dev)
{
	uint64_t generation = 1;

	for (unsigned mode = LOG_MODE_PWRITE; mode < LOG_MODE_COUNT; mode++)
		run_laps(dev, (enum log_mode)mode, ++generation);
}

Test(log_modes, laps_in_memory)
{
	struct device *disk = logrig_format(512, LOGRIG_CAPACITY * 2);
	struct device *pmem = logrig_format_pmem(LOGRIG_CAPACITY * 2);

	run_all_modes(disk);
	run_all_modes(pmem);
	dev_close(pmem);
	dev_close(disk);
}

Test(log_modes, laps_on_a_file)
{
	struct device *dev = open_file(scratch_folder());

	run_all_modes(dev);
	close_file(dev);
}

Test(log_modes, laps_on_tmpfs)
{
	struct device *dev = open_memory_file();

	run_all_modes(dev);
	close_file(dev);
}

/* ------------------------------------------------------------ what it costs */

static struct stats stats;

static struct log *start_counted(struct device *dev, enum log_mode mode)
{
	struct log *log = logrig_start_mode(dev, mode, 1, 2);

	dev->stats = &stats;
	if (log->medium.lane)
		log->medium.lane->stats = &stats;
	memset(&stats, 0, sizeof(stats));
	return log;
}

/* A lone committer pays what a program pays that writes and syncs by itself. */
Test(log_modes, what_a_commit_costs)
{
	const struct {
		enum log_mode mode;
		bool pmem;
		unsigned writes, flushes;
	} costs[] = {
		{LOG_MODE_PWRITE, false, 1, 1}, {LOG_MODE_DIRECT, false, 1, 1},
		{LOG_MODE_DSYNC, false, 1, 0},  {LOG_MODE_MAPPED, false, 0, 1},
		{LOG_MODE_MAPPED, true, 0, 0},
	};

	for (size_t i = 0; i < array_count(costs); i++) {
		struct device *dev = costs[i].pmem ? logrig_format_pmem(LOGRIG_CAPACITY)
						   : logrig_format(512, LOGRIG_CAPACITY);
		struct log *log = start_counted(dev, costs[i].mode);

		for (uint64_t id = 0; id < 10; id++)
			cr_assert_eq(log_flush(log, logrig_append(log, id, 200).end), 0);
		cr_assert_eq(stat_read(&stats, STAT_dev_writes), 10 * costs[i].writes);
		cr_assert_eq(stat_read(&stats, STAT_dev_flushes), 10 * costs[i].flushes);
		log_close(log);
		dev_close(dev);
	}
}

/* INV-LOG-4: data gets one flush, when there is any that was not flushed yet. */
Test(log_modes, inv_log_4_data_is_flushed_when_there_is_some)
{
	const enum log_mode modes[] = {LOG_MODE_DSYNC, LOG_MODE_MAPPED};
	uint8_t byte = 1;

	for (size_t i = 0; i < array_count(modes); i++) {
		struct device *dev = modes[i] == LOG_MODE_MAPPED
					     ? logrig_format_pmem(LOGRIG_CAPACITY)
					     : logrig_format(512, LOGRIG_CAPACITY);
		struct log *log = start_counted(dev, modes[i]);

		for (uint64_t id = 0; id < 12; id++) {
			if (id % 3 == 0)
				cr_assert_eq(dev_write(dev, &byte, 1, id), 0);
			if (id % 6 == 0)
				cr_assert_eq(dev_flush(dev), 0);
			cr_assert_eq(log_flush(log, logrig_append(log, id, 200).end), 0);
		}
		cr_assert_eq(stat_read(&stats, STAT_dev_flushes), 2 + 2);
		log_close(log);
		dev_close(dev);
	}
}

/* ----------------------------------------------------------------- errors */

/* Whatever a commit needs fails: the log is dead, durable_lsn stays. */
Test(log_modes, errors_are_final_in_every_mode)
{
	const struct {
		enum log_mode mode;
		unsigned faults;
	} cases[] = {
		{LOG_MODE_DIRECT, FAULT_WRITE}, {LOG_MODE_DIRECT, FAULT_FLUSH},
		{LOG_MODE_DSYNC, FAULT_WRITE},  {LOG_MODE_DSYNC, FAULT_FLUSH},
		{LOG_MODE_MAPPED, FAULT_FLUSH},
	};

	for (size_t i = 0; i < 2 * array_count(cases); i++) {
		const unsigned n = (unsigned)(i / 2);
		struct device *dev = i % 2 ? logrig_format_pmem(LOGRIG_CAPACITY)
					   : logrig_format(512, LOGRIG_CAPACITY);
		struct log *log = logrig_start_mode(dev, cases[n].mode, 1, 2);
		uint8_t byte = 1;
		lsn_t durable;

		cr_assert_eq(log_flush(log, logrig_append(log, 1, 100).end), 0);
		durable = log_durable_lsn(log);
		cr_assert_eq(dev_write(dev, &byte, 1, 0), 0);
		dev_memory_fail(dev, cases[n].faults, 0, -EIO, false);
		cr_assert_eq(log_flush(log, logrig_append(log, 2, 100).end), -BE_LOGDEAD);
		cr_assert_eq(dev_memory_fault_count(dev), 1);
		cr_assert_eq(log_durable_lsn(log), durable);
		cr_assert_eq(log_flush(log, log_next_lsn(log)), -BE_LOGDEAD);
		log_close(log);
		logrig_scan(dev, 2, &seen);
		cr_assert(seen.count >= 1 && seen.id[0] == 1);
		dev_close(dev);
	}
}

/* A log that cannot be started leaves nothing behind. */
Test(log_modes, error_while_starting)
{
	for (unsigned mode = LOG_MODE_PWRITE; mode < LOG_MODE_COUNT; mode++) {
		const struct log_options options = {.mode = (enum log_mode)mode};
		struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
		struct log *log = logrig_open(dev, 1, 1);

		dev_memory_fail(dev, FAULT_FLUSH, 0, -EIO, false);
		cr_assert_eq(log_start(log, LSN_FIRST, 2, &options), -EIO);
		log_close(log);
		log = logrig_open(dev, 1, 2);
		cr_assert_eq(log_start(log, LSN_FIRST, 3, &options), 0);
		log_close(log);
		dev_close(dev);
	}
}

/* ----------------------------------------------------------------- mapped */

/* A process appends and is killed; nothing was flushed, everything is there. */
static void survive_kill(struct device *dev, bool mapped)
{
	enum log_mode mode = mapped ? LOG_MODE_MAPPED : LOG_MODE_PWRITE;
	pid_t child;
	int status;

	child = fork();
	cr_assert_geq(child, 0);
	if (child == 0) {
		struct log *log = logrig_start_mode(dev, mode, 1, 2);

		for (uint64_t id = 0; id < 100; id++)
			logrig_append(log, id, 11 + logrig_random(500));
		kill(getpid(), SIGKILL);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	logrig_scan(dev, 2, &seen);
	cr_assert_eq(seen.count, mapped ? 100 : 0);
	close_file(dev);
}

Test(log_modes, what_is_appended_survives_the_process_on_tmpfs)
{
	survive_kill(open_memory_file(), true);
}

Test(log_modes, what_is_appended_survives_the_process_on_a_disk)
{
	survive_kill(open_file(scratch_folder()), true);
	survive_kill(open_file(scratch_folder()), false);
}

/* INV-LOG-3: what the leader of a group fills in is copied when it is filled in, not before. */
static struct log *watched;
static lsn_t watched_next;

static void watch_fill(const char *point)
{
	if (strcmp(point, "log:closed") == 0)
		cr_assert_lt(log_copied_lsn(watched, watched_next), watched_next);
	if (strcmp(point, "log:written") == 0)
		cr_assert_eq(log_copied_lsn(watched, watched_next), watched_next);
}

Test(log_modes, inv_log_3_padding_counts_as_uncopied)
{
	struct device *dev = logrig_format_pmem(LOGRIG_CAPACITY);

	watched = logrig_start(dev, 0, 1, 2);
	for (uint64_t id = 0; id < 40; id++) {
		lsn_t end = logrig_append(watched, id, 20 + id).end;

		watched_next = end + log_pad_bytes(&watched->shape, end);
		if (watched_next == end)
			watched_next = LSN_FIRST; /* no padding: nothing to watch */
		os_linux_set_point_handler(watched_next > LSN_FIRST ? watch_fill : NULL);
		cr_assert_eq(log_flush(watched, end), 0);
		os_linux_set_point_handler(NULL);
	}
	log_close(watched);
	dev_close(dev);
}

/* The mark of a group that is opened while the one before is in flight says less than its place. */
static struct log_ticket late;

static void append_late(const char *point)
{
	if (strcmp(point, "log:written"))
		return;
	os_linux_set_point_handler(NULL);
	late = logrig_append(watched, 2, 100);
}

Test(log_modes, inv_log_5_a_mark_says_what_was_durable_when_its_group_was_opened)
{
	struct device *dev = logrig_format_pmem(LOGRIG_CAPACITY);
	lsn_t first;

	watched = logrig_start(dev, 0, 1, 2);
	os_linux_set_point_handler(append_late);
	cr_assert_eq(log_flush(watched, logrig_append(watched, 1, 100).end), 0);
	first = log_durable_lsn(watched);
	cr_assert_eq(late.start, first + MARK_MTR_BYTES);
	cr_assert_eq(log_flush(watched, late.end), 0);
	cr_assert_eq(log_marked_lsn(watched), LSN_FIRST);
	cr_assert_eq(logrig_scan(dev, 2, &seen).marked_lsn, LSN_FIRST);
	/* Asked for, it comes: one closing group, and no more. */
	cr_assert_eq(log_mark(watched, log_durable_lsn(watched)), 0);
	cr_assert_geq(log_marked_lsn(watched), late.end);
	cr_assert_geq(logrig_scan(dev, 2, &seen).marked_lsn, late.end);
	first = log_next_lsn(watched);
	cr_assert_eq(log_mark(watched, first), 0);
	cr_assert_eq(log_next_lsn(watched), first);
	log_close(watched);
	dev_close(dev);
}

/* A group has no greatest length: the mark behind one of 40 MiB is found all the same. */
Test(log_modes, inv_log_5_damage_is_seen_from_far_away)
{
	struct device *dev = logrig_format_pmem(64 << 20);
	struct log *log = logrig_start(dev, 0, 1, 2);
	struct log_scan_result result;
	lsn_t end, marked;

	logrig_append(log, 1, 100);
	while (log_next_lsn(log) < LSN_FIRST + (40 << 20))
		logrig_append(log, 2, 8000);
	end = log_next_lsn(log);
	cr_assert_eq(log_mark(log, end), 0);
	marked = log_marked_lsn(log);
	log_close(log);
	logrig_flip(dev, logrig_offset(LSN_FIRST + 300, 64 << 20));
	result = logrig_scan(dev, 2, &seen);
	cr_assert(result.damaged);
	cr_assert(result.end < LSN_FIRST + 300 && result.damage_mark >= end);
	cr_assert_leq(result.damage_mark, marked);
	dev_close(dev);
}

/* Appends do not wait for a buffer: half of the log, and nothing has been flushed. */
Test(log_modes, mapped_appends_wait_for_no_buffer)
{
	struct device *dev = logrig_format_pmem(4 << 20);
	struct log *log = logrig_start(dev, 0, 1, 2);

	while (log_next_lsn(log) < LSN_FIRST + (2 << 20))
		logrig_append(log, 1, 8000);
	cr_assert_eq(log_durable_lsn(log), LSN_FIRST);
	cr_assert_eq(log_flush(log, log_next_lsn(log)), 0);
	log_close(log);
	dev_close(dev);
}
