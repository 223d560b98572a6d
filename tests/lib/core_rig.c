#include "tests/lib/core_rig.h"

#include "engine/base/error.h"
#include "engine/purge.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* Small, so that tests go round the log; both grow with the page. */
#define RIG_LOG_PAGES 256u
#define RIG_CACHE_PAGES 1024u

const struct core_cred rig_cred = {.uid = 1000, .gid = 1000};

static void demand(int rc, const char *what)
{
	if (rc == 0)
		return;
	fprintf(stderr, "core rig: %s: %s\n", what, error_text(rc));
	abort();
}

/* --- life cycle ----------------------------------------------------------------- */

static void open_volume(struct rig *rig, bool read_only)
{
	struct volume_options options = {
		.read_only = read_only,
		.cache_bytes = (uint64_t)rig->page_size * RIG_CACHE_PAGES,
		.log_buffer_bytes = 2u << 20,
		.no_background = !rig->background,
		.archive_dir = rig->archive_dir,
		.archive_data = rig->archive_dir != NULL,
	};

	demand(volume_open(&rig->volume, scratch_keep(rig->dev), &options), "open");
	demand(core_open(&rig->core, rig->volume), "core");
}

void rig_open(struct rig *rig, uint64_t size_bytes, uint32_t page_size, bool background)
{
	rig_open_archived(rig, size_bytes, page_size, background, NULL);
}

void rig_open_archived(struct rig *rig, uint64_t size_bytes, uint32_t page_size, bool background,
		       const char *dir)
{
	rig->archive_dir = dir;
	rig->dev = scratch_format(size_bytes, page_size, (uint64_t)page_size * RIG_LOG_PAGES);
	rig->page_size = page_size;
	rig->background = background;
	open_volume(rig, false);
}

static void shut(struct rig *rig, bool crash)
{
	core_close(rig->core);
	if (crash)
		volume_abandon(rig->volume);
	else
		demand(volume_close(rig->volume), "close");
}

void rig_reopen(struct rig *rig, bool crash)
{
	shut(rig, crash);
	open_volume(rig, false);
}

void rig_reopen_read_only(struct rig *rig)
{
	shut(rig, false);
	open_volume(rig, true);
}

void rig_purge(struct rig *rig)
{
	demand(purge_drain(rig->volume->purge, NULL), "purge");
}

uint64_t rig_problems(struct rig *rig)
{
	rig_purge(rig);
	return scratch_problems(rig->volume);
}

void rig_close(struct rig *rig)
{
	if (!rig->volume->options.read_only)
		demand(rig_problems(rig) ? -EUCLEAN : 0, "check");
	shut(rig, false);
	dev_close(rig->dev);
}

/* --- operations ------------------------------------------------------------------ */

static uint64_t create(struct rig *rig, uint64_t parent, const char *name, uint32_t mode, bool held)
{
	struct core_attr attr;
	int rc = core_create(rig->core, VIEW_BASE, &rig_cred, parent, name, strlen(name), mode, 0,
			     &attr);

	if (rc)
		return 0;
	if (!held)
		core_forget(rig->core, attr.ino, 1);
	return attr.ino;
}

uint64_t rig_file(struct rig *rig, uint64_t parent, const char *name)
{
	return create(rig, parent, name, S_IFREG | 0644, false);
}

uint64_t rig_dir(struct rig *rig, uint64_t parent, const char *name)
{
	return create(rig, parent, name, S_IFDIR | 0755, false);
}

uint64_t rig_held_file(struct rig *rig, uint64_t parent, const char *name)
{
	return create(rig, parent, name, S_IFREG | 0644, true);
}

int rig_lookup(struct rig *rig, uint64_t parent, const char *name, struct core_attr *attr)
{
	int rc = core_lookup(rig->core, VIEW_BASE, parent, name, strlen(name), attr);

	if (rc == 0)
		core_forget(rig->core, attr->ino, 1);
	return rc;
}

int rig_unlink(struct rig *rig, uint64_t parent, const char *name)
{
	return core_unlink(rig->core, VIEW_BASE, parent, name, strlen(name));
}

int rig_rmdir(struct rig *rig, uint64_t parent, const char *name)
{
	return core_rmdir(rig->core, VIEW_BASE, parent, name, strlen(name));
}

int rig_link(struct rig *rig, uint64_t ino, uint64_t parent, const char *name)
{
	struct core_attr attr;
	int rc = core_link(rig->core, VIEW_BASE, ino, parent, name, strlen(name), &attr);

	if (rc == 0)
		core_forget(rig->core, attr.ino, 1);
	return rc;
}

int rig_rename(struct rig *rig, uint64_t old_parent, const char *old_name, uint64_t new_parent,
	       const char *new_name)
{
	return core_rename(rig->core, VIEW_BASE, old_parent, old_name, strlen(old_name), new_parent,
			   new_name, strlen(new_name), 0);
}

int rig_write(struct rig *rig, uint64_t ino, uint64_t offset, const void *buf, size_t len)
{
	return core_write(rig->core, VIEW_BASE, ino, offset, buf, len, 0);
}

int rig_truncate(struct rig *rig, uint64_t ino, uint64_t size)
{
	struct core_attr attr = {.size = size};

	return core_setattr(rig->core, VIEW_BASE, ino, CORE_SET_SIZE, &attr);
}

struct core_attr rig_attr(struct rig *rig, uint64_t ino)
{
	struct core_attr attr = {0};

	demand(core_getattr(rig->core, VIEW_BASE, ino, &attr), "getattr");
	return attr;
}

void rig_tick(void)
{
	struct timespec first = os_realtime(), now;

	do {
		sched_yield();
		now = os_realtime();
	} while (now.tv_sec == first.tv_sec && now.tv_nsec == first.tv_nsec);
}

void rig_fill(uint8_t *buf, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i += 8) {
		uint64_t word = random_next(&seed);

		memcpy(buf + i, &word, len - i < 8 ? len - i : 8);
	}
}
