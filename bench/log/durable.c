/* How many device flushes a durable create costs, through the file system core. */
#include "bench/log/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/volume.h"
#include "fs/core.h"

#define VOLUME_BYTES (128u << 20)
#define CREATES 500u

static void demand(int rc, const char *what)
{
	if (!rc)
		return;
	errno = -error_errno(rc);
	die(what);
}

static void make_volume(const char *path)
{
	struct format_params params = {
		.size_bytes = VOLUME_BYTES,
		.uuid = "log_bench",
		.hash_seed = "log_bench",
	};
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	struct device *dev;

	if (fd < 0 || ftruncate(fd, VOLUME_BYTES) != 0)
		die(path);
	close(fd);
	demand(dev_open_file(&dev, path, 0, 0), path);
	demand(volume_format(dev, &params, NULL), "format");
	dev_close(dev);
}

static void create_one(struct core *core, unsigned number)
{
	const struct core_cred cred = {0};
	char name[16], contents[4096];
	struct core_attr attr;

	snprintf(name, sizeof(name), "f%u", number);
	memset(contents, (int)number, sizeof(contents));
	demand(core_create(core, VIEW_BASE, &cred, INO_ROOT, name, strlen(name), S_IFREG | 0644, 0,
			   &attr),
	       "create");
	demand(core_write(core, VIEW_BASE, attr.ino, 0, contents, sizeof(contents), 0), "write");
	demand(core_fsync(core, VIEW_BASE, attr.ino, false), "fsync");
	core_forget(core, attr.ino, 1);
}

/* In the background nothing happens, so that all flushes are those of the creates. */
double flushes_per_durable_create(const char *folder)
{
	struct volume_options options = {.no_background = true, .log_mode = LOG_MODE_PWRITE};
	struct volume *volume;
	struct device *dev;
	struct core *core;
	uint64_t before, flushes;
	char path[4096];

	snprintf(path, sizeof(path), "%s/log_bench.volume", folder);
	make_volume(path);
	demand(dev_open_file(&dev, path, 0, 0), path);
	demand(volume_open(&volume, dev, &options), "open");
	demand(core_open(&core, volume), "core");
	create_one(core, CREATES); /* what happens once in a while has happened */
	before = stat_read(&volume->stats, STAT_dev_flushes);
	for (unsigned i = 0; i < CREATES; i++)
		create_one(core, i);
	flushes = stat_read(&volume->stats, STAT_dev_flushes) - before;
	core_close(core);
	demand(volume_close(volume), "close");
	unlink(path);
	return (double)flushes / CREATES;
}
