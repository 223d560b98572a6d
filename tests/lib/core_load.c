#include "tests/lib/core_load.h"

#include "engine/base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILL_BYTES (1u << 20)

static const struct core_cred cred = {.uid = 0, .gid = 0};

static void demand(int rc, const char *what)
{
	if (rc == 0)
		return;
	fprintf(stderr, "core load: %s: %s\n", what, error_text(rc));
	exit(1);
}

/* ------------------------------------------------------------- the volume */

static void make_file(const char *path, uint64_t size_bytes)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
	char *zeros = calloc(1, FILL_BYTES);

	demand(fd < 0 ? -errno : 0, path);
	demand(zeros ? 0 : -ENOMEM, "memory");
	for (uint64_t at = 0; at < size_bytes; at += FILL_BYTES)
		if (pwrite(fd, zeros, FILL_BYTES, (off_t)at) != FILL_BYTES)
			demand(-errno, path);
	demand(fsync(fd) ? -errno : 0, path);
	close(fd);
	free(zeros);
}

static struct device *open_device(const char *path)
{
	struct device *dev;

	demand(dev_open_file(&dev, path, 0, LOCK_WAIT_NS), path);
	return dev;
}

void core_load_format(const char *path, uint64_t size_bytes, uint32_t page_size, uint64_t log_bytes)
{
	struct format_params params = {
		.size_bytes = size_bytes,
		.page_size = page_size,
		.log_bytes = log_bytes,
		.uuid = "core-load-volume",
		.hash_seed = "core-load-seed-0",
	};
	struct device *dev;

	make_file(path, size_bytes);
	dev = open_device(path);
	demand(volume_format(dev, &params, NULL), "format");
	dev_close(dev);
}

struct core *core_load_open(const char *path, const struct volume_options *options)
{
	struct volume *volume;
	struct core *core;

	demand(volume_open(&volume, open_device(path), options), "open");
	demand(core_open(&core, volume), "core");
	return core;
}

void core_load_close(struct core *core)
{
	struct volume *volume = core_volume(core);

	core_close(core);
	demand(volume_close(volume), "close");
}

void core_load_abandon(struct core *core)
{
	struct volume *volume = core_volume(core);

	core_close(core);
	volume_abandon(volume);
}

/* --------------------------------------------------------------- the load */

static uint64_t create(struct core *core, uint64_t parent, const char *name, uint32_t mode)
{
	struct core_attr attr;

	demand(core_create(core, VIEW_BASE, &cred, parent, name, strlen(name), mode, 0, &attr),
	       "create");
	core_forget(core, attr.ino, 1);
	return attr.ino;
}

struct worker {
	struct core_load *load;
	unsigned number;
};

static void work(void *arg)
{
	struct worker *worker = arg;
	struct core_load *load = worker->load;
	unsigned number = worker->number;

	free(worker);
	while (!load->enough(load->arg)) {
		char name[32];

		snprintf(name, sizeof(name), "file-%llu",
			 (unsigned long long)atomic_load(&load->done[number].files));
		create(load->core, load->dirs[number], name, S_IFREG | 0644);
		atomic_fetch_add_explicit(&load->done[number].files, 1, memory_order_relaxed);
	}
}

void core_load_start(struct core_load *load)
{
	check(load->threads > 0 && load->threads <= CORE_LOAD_THREADS_MAX);
	for (unsigned i = 0; i < load->threads; i++) {
		char name[32];

		snprintf(name, sizeof(name), "dir-%u", i);
		load->dirs[i] = create(load->core, INO_ROOT, name, S_IFDIR | 0755);
		atomic_store(&load->done[i].files, 0);
	}
	for (unsigned i = 0; i < load->threads; i++) {
		struct worker *worker = malloc(sizeof(*worker));

		demand(worker ? 0 : -ENOMEM, "memory");
		*worker = (struct worker){.load = load, .number = i};
		demand(os_thread_start(&load->thread[i], "load", work, worker), "thread");
	}
}

uint64_t core_load_files(struct core_load *load)
{
	uint64_t files = 0;

	for (unsigned i = 0; i < load->threads; i++)
		files += atomic_load_explicit(&load->done[i].files, memory_order_relaxed);
	return files;
}

void core_load_join(struct core_load *load)
{
	for (unsigned i = 0; i < load->threads; i++)
		os_thread_join(&load->thread[i]);
}
