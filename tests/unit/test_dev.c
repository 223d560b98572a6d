/*
 * The file device against the rules of device.h.
 */
#include "engine/base/error.h"
#include "engine/base/os.h"
#include "engine/dev/device.h"
#include "tests/lib/scratch_file.h"
#include "tests/unit/dev_random.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK 4096u

/* --- the file device -------------------------------------------------------- */

#define FILE_BYTES (2u << 20)

static char file_path[SCRATCH_PATH_BYTES];

static void make_file(void)
{
	int fd = scratch_file(file_path);

	cr_assert_eq(ftruncate(fd, FILE_BYTES), 0);
	close(fd);
}

static void remove_file(void)
{
	unlink(file_path);
}

static struct device *open_file(unsigned flags)
{
	struct device *dev;

	cr_assert_eq(dev_open_file(&dev, file_path, flags, 0), 0);
	return dev;
}

static int try_open(unsigned flags, uint64_t wait_ns)
{
	struct device *dev;
	int error = dev_open_file(&dev, file_path, flags, wait_ns);

	if (!error)
		dev_close(dev);
	return error;
}

TestSuite(file, .init = make_file, .fini = remove_file);

Test(file, single_transfers)
{
	struct stats stats = {0};
	struct device *dev = open_file(0);
	char buf[10000], back[10000];

	dev->stats = &stats;
	cr_assert_eq(dev->size_bytes, FILE_BYTES);
	cr_assert_str_eq(dev->path, file_path);
	fill_random(buf, sizeof(buf));
	cr_assert_eq(dev_write(dev, buf, sizeof(buf), 12345), 0);
	cr_assert_eq(dev_flush(dev), 0);
	cr_assert_eq(dev_read(dev, back, sizeof(back), 12345), 0);
	cr_assert_eq(memcmp(buf, back, sizeof(buf)), 0);
	cr_assert_eq(dev_read(dev, back, 0, FILE_BYTES), 0);
	cr_assert_eq(stat_read(&stats, STAT_dev_writes), 1);
	cr_assert_eq(stat_read(&stats, STAT_dev_write_bytes), sizeof(buf));
	cr_assert_eq(stat_read(&stats, STAT_dev_reads), 1);
	cr_assert_eq(stat_read(&stats, STAT_dev_read_bytes), sizeof(buf));
	cr_assert_eq(stat_read(&stats, STAT_dev_flushes), 1);
	dev_close(dev);
}

Test(file, bounds)
{
	struct device *dev = open_file(0);
	char buf[16] = {0};

	cr_assert_eq(dev_write(dev, buf, 16, FILE_BYTES - 16), 0);
	cr_assert_eq(dev_write(dev, buf, 16, FILE_BYTES - 15), -EIO);
	cr_assert_eq(dev_read(dev, buf, 1, FILE_BYTES), -EIO);
	cr_assert_eq(dev_read(dev, buf, 16, UINT64_MAX - 3), -EIO);
	cr_assert_eq(dev_read(dev, buf, SIZE_MAX, 16), -EIO);
	dev_close(dev);
}

Test(file, read_only)
{
	struct device *dev = open_file(DEV_READ_ONLY);
	char buf[16] = {0};
	struct dev_request batch[] = {
		{.buf = buf, .len = 16, .offset = 0},
		{.buf = buf, .len = 16, .offset = 16, .is_write = true},
		{.buf = buf, .len = 16, .offset = 32},
	};

	cr_assert_eq(dev_read(dev, buf, 16, 0), 0);
	cr_assert_eq(dev_write(dev, buf, 16, 0), -EROFS);
	cr_assert_eq(dev_batch(dev, batch, 3), -EROFS);
	cr_assert_eq(batch[0].result, 0);
	cr_assert_eq(batch[1].result, -EROFS);
	cr_assert_eq(batch[2].result, 0);
	dev_close(dev);
}

Test(file, truncated_below)
{
	struct device *dev = open_file(0);
	char buf[2 * BLOCK];
	struct dev_request batch[] = {
		{.buf = buf, .len = BLOCK, .offset = 0},
		{.buf = buf + BLOCK, .len = BLOCK, .offset = 3 * BLOCK / 2},
	};

	cr_assert_eq(truncate(file_path, 2 * BLOCK), 0);
	cr_assert_eq(dev_read(dev, buf, BLOCK, 3 * BLOCK / 2), -EIO);
	cr_assert_eq(dev_batch(dev, batch, 2), -EIO);
	cr_assert_eq(batch[0].result, 0);
	cr_assert_eq(batch[1].result, -EIO);
	dev_close(dev);
}

/* More requests than a ring has room for, of all sizes, and one out of bounds. */
static void exercise_batches(struct device *dev)
{
	enum { COUNT = 300 };
	static unsigned char out[COUNT][BLOCK], in[COUNT][BLOCK];
	struct dev_request batch[COUNT];

	fill_random(out, sizeof(out));
	for (size_t i = 0; i < COUNT; i++)
		batch[i] = (struct dev_request){
			.buf = out[i],
			.len = i % 7 == 0 ? 0 : 1 + i * 13,
			.offset = i * BLOCK + i,
			.is_write = true,
		};
	cr_assert_eq(dev_batch(dev, batch, COUNT), 0);
	for (size_t i = 0; i < COUNT; i++) {
		batch[i].buf = in[i];
		batch[i].is_write = false;
		batch[i].result = 1;
	}
	batch[150].offset = FILE_BYTES;
	cr_assert_eq(dev_batch(dev, batch, COUNT), -EIO);
	for (size_t i = 0; i < COUNT; i++) {
		cr_assert_eq(batch[i].result, i == 150 ? -EIO : 0);
		if (i != 150)
			cr_assert_eq(memcmp(in[i], out[i], batch[i].len), 0);
	}
	cr_assert_eq(dev_batch(dev, batch, 0), 0);
}

/* What is discarded leaves the file; what lies beside it stays. */
Test(file, discards)
{
	unsigned char *buf = malloc(FILE_BYTES), *back = malloc(FILE_BYTES);
	struct device *dev = open_file(0);
	struct stats stats = {0};
	struct stat before, after;
	int error;

	fill_random(buf, FILE_BYTES);
	cr_assert_eq(dev_write(dev, buf, FILE_BYTES, 0), 0);
	cr_assert_eq(dev_flush(dev), 0);
	cr_assert_eq(stat(file_path, &before), 0);
	dev->stats = &stats;
	error = dev_discard(dev, 16 * BLOCK, FILE_BYTES / 2);
	cr_assert(error == 0 || error == -EOPNOTSUPP);
	if (error == 0) {
		cr_assert_eq(stat(file_path, &after), 0);
		cr_assert_eq(after.st_size, FILE_BYTES);
		cr_assert_leq(after.st_blocks, before.st_blocks - FILE_BYTES / 2 / 512);
		cr_assert_eq(stat_read(&stats, STAT_dev_discards), 1);
		cr_assert_eq(stat_read(&stats, STAT_dev_discard_bytes), FILE_BYTES / 2);
	}
	cr_assert_eq(dev_read(dev, back, FILE_BYTES, 0), 0);
	cr_assert_eq(memcmp(back, buf, 16 * BLOCK), 0);
	cr_assert_eq(memcmp(back + 16 * BLOCK + FILE_BYTES / 2, buf + 16 * BLOCK + FILE_BYTES / 2,
			    FILE_BYTES / 2 - 16 * BLOCK), 0);
	cr_assert_eq(dev_discard(dev, FILE_BYTES - BLOCK, 2 * BLOCK), -EIO);
	cr_assert_eq(dev_discard(dev, UINT64_MAX, 1), -EIO);
	cr_assert_eq(dev_discard(dev, 0, 0), 0);
	dev_close(dev);
	dev = open_file(DEV_READ_ONLY);
	cr_assert_eq(dev_discard(dev, 0, BLOCK), -EROFS);
	dev_close(dev);
	free(back);
	free(buf);
}

Test(file, is_measured_again)
{
	struct device *dev = open_file(0);
	char byte = 1;

	cr_assert_eq(truncate(file_path, FILE_BYTES + 5 * BLOCK), 0);
	cr_assert_eq(dev->size_bytes, FILE_BYTES);
	cr_assert_eq(dev_write(dev, &byte, 1, FILE_BYTES), -EIO);
	cr_assert_eq(dev_measure(dev), 0);
	cr_assert_eq(dev->size_bytes, FILE_BYTES + 5 * BLOCK);
	cr_assert_eq(dev_write(dev, &byte, 1, FILE_BYTES), 0);
	/* It never becomes smaller. */
	cr_assert_eq(truncate(file_path, FILE_BYTES), 0);
	cr_assert_eq(dev_measure(dev), 0);
	cr_assert_eq(dev->size_bytes, FILE_BYTES + 5 * BLOCK);
	cr_assert_eq(dev_read(dev, &byte, 1, FILE_BYTES), -EIO);
	dev_close(dev);
}

Test(file, batches)
{
	struct stats stats = {0};
	struct device *dev = open_file(0);

	dev->stats = &stats;
	exercise_batches(dev);
	cr_assert_eq(stat_read(&stats, STAT_dev_writes), 300 - 43);
	exercise_batches(dev);
	dev_close(dev);
}

/* With no descriptor left for a ring the batch goes one by one. */
Test(file, batches_without_ring)
{
	struct device *dev = open_file(0);
	int last = dup(STDERR_FILENO);
	struct rlimit limit = {.rlim_cur = (rlim_t)last, .rlim_max = (rlim_t)last};

	close(last);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	exercise_batches(dev);
	dev_close(dev);
}

static void batches_in_thread(void *arg)
{
	struct device *dev = arg;
	unsigned char out[8][512], in[8][512];
	uint64_t base = (uint64_t)stats_shard() * 32 * BLOCK;
	struct dev_request batch[8];

	for (unsigned round = 0; round < 50; round++) {
		for (unsigned i = 0; i < 8; i++) {
			memset(out[i], (int)(round + i), sizeof(out[i]));
			batch[i] = (struct dev_request){.buf = out[i], .len = 512,
							.offset = base + i * BLOCK,
							.is_write = true};
		}
		check(dev_batch(dev, batch, 8) == 0);
		for (unsigned i = 0; i < 8; i++) {
			batch[i].buf = in[i];
			batch[i].is_write = false;
		}
		check(dev_batch(dev, batch, 8) == 0);
		check(memcmp(in, out, sizeof(in)) == 0);
	}
}

Test(file, batches_of_many_threads)
{
	struct device *dev = open_file(0);
	struct os_thread thread[8];

	for (size_t i = 0; i < array_count(thread); i++)
		cr_assert_eq(os_thread_start(&thread[i], "batch", batches_in_thread, dev), 0);
	for (size_t i = 0; i < array_count(thread); i++)
		os_thread_join(&thread[i]);
	dev_close(dev);
}

Test(file, locks)
{
	struct device *writer = open_file(0);
	struct device *reader;
	uint64_t start = os_mono_ns();

	cr_assert_eq(try_open(0, 0), -BE_BUSY);
	cr_assert_eq(try_open(DEV_READ_ONLY, 30000000), -BE_BUSY);
	cr_assert_geq(os_mono_ns() - start, 30000000);
	cr_assert_eq(try_open(DEV_READ_ONLY | DEV_NO_LOCK, 0), 0);
	dev_close(writer);

	reader = open_file(DEV_READ_ONLY | DEV_SHARED_LOCK);
	cr_assert_eq(try_open(DEV_READ_ONLY | DEV_SHARED_LOCK, 0), 0);
	cr_assert_eq(try_open(0, 0), -BE_BUSY);
	dev_close(reader);
	cr_assert_eq(try_open(0, 0), 0);
}

/* A child holds the lock, until it has written and dies. */
Test(file, waits_for_predecessor)
{
	struct device *dev;
	int ready[2];
	char byte;
	pid_t child;

	cr_assert_eq(pipe(ready), 0);
	child = fork();
	if (child == 0) {
		dev = open_file(0);
		check(write(ready[1], "r", 1) == 1);
		usleep(50000);
		check(dev_write(dev, "last", 4, 0) == 0);
		_exit(0);
	}
	cr_assert_eq(read(ready[0], &byte, 1), 1);
	cr_assert_eq(dev_open_file(&dev, file_path, 0, 10000000000ull), 0);
	cr_assert_eq(dev_read(dev, &byte, 1, 0), 0);
	cr_assert_eq(byte, 'l');
	dev_close(dev);
	waitpid(child, NULL, 0);
}

Test(file, what_cannot_be_opened)
{
	struct device *dev;
	char fifo[SCRATCH_PATH_BYTES + 8];

	cr_assert_eq(dev_open_file(&dev, "/nonexistent", 0, 0), -ENOENT);
	cr_assert_eq(dev_open_file(&dev, scratch_folder(), 0, 0), -EISDIR);
	cr_assert_eq(dev_open_file(&dev, "/dev/null", 0, 0), -EINVAL);
	snprintf(fifo, sizeof(fifo), "%s.fifo", file_path);
	cr_assert_eq(mkfifo(fifo, 0600), 0);
	cr_assert_eq(dev_open_file(&dev, fifo, 0, 0), -EINVAL);
	unlink(fifo);
	dev_close(NULL);
}
