#include "tests/lib/fsck_world.h"

#include "fs/core.h"
#include "tests/lib/core_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void demand(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "fsck world: %s\n", what);
	abort();
}

static void write_blocks(struct rig *rig, uint64_t ino, uint64_t block, unsigned count)
{
	uint8_t *buf = malloc((size_t)count * BLOCK_SIZE);

	demand(buf != NULL, "memory");
	rig_fill(buf, (size_t)count * BLOCK_SIZE, ino + block);
	demand(rig_write(rig, ino, block * BLOCK_SIZE, buf, (size_t)count * BLOCK_SIZE) == 0,
	       "write");
	free(buf);
}

static void set_xattr(struct rig *rig, uint64_t ino, const char *name, size_t len)
{
	uint8_t *buf = malloc(len);

	demand(buf != NULL, "memory");
	rig_fill(buf, len, len);
	demand(core_setxattr(rig->core, VIEW_BASE, ino, name, buf, len, 0) == 0, "setxattr");
	free(buf);
}

static void make_files(struct rig *rig, struct world *w)
{
	struct core_attr attr;

	w->small = rig_file(rig, INO_ROOT, "small");
	w->big = rig_file(rig, INO_ROOT, "big");
	w->sparse = rig_file(rig, INO_ROOT, "sparse");
	w->empty = rig_file(rig, INO_ROOT, "empty");
	w->dir = rig_dir(rig, INO_ROOT, "dir");
	w->sub = rig_dir(rig, w->dir, "sub");
	w->deep = rig_file(rig, w->sub, "deep");
	w->many = rig_dir(rig, INO_ROOT, "many");
	demand(w->small && w->big && w->sparse && w->empty && w->dir && w->sub && w->deep &&
		       w->many,
	       "create");
	demand(core_symlink(rig->core, VIEW_BASE, &rig_cred, INO_ROOT, "link", 4, "dir/sub", 7,
			    &attr) == 0,
	       "symlink");
	w->link = attr.ino;
	core_forget(rig->core, attr.ino, 1);
	demand(rig_link(rig, w->big, w->dir, "hard") == 0, "link");
	demand(rig_write(rig, w->small, 0, "hello", 5) == 0, "write");
	demand(rig_write(rig, w->deep, 0, "deep", 4) == 0, "write");
	write_blocks(rig, w->big, 0, 9);
	demand(rig_write(rig, w->big, 9 * BLOCK_SIZE, "tail", 4) == 0, "write");
	for (uint64_t i = 0; i < 3; i++)
		write_blocks(rig, w->sparse, i * 1000, 2);
	set_xattr(rig, w->small, "user.short", 20);
	set_xattr(rig, w->small, "user.long", 10000);
}

/* groups: the log is made durable now and then, so that it has many of them. */
static void make_more(struct rig *rig, struct world *w, bool groups)
{
	char name[32];

	for (unsigned i = 0; i < WORLD_MANY; i++) {
		snprintf(name, sizeof(name), "a file with number %u", i);
		w->many_file[i] = rig_file(rig, w->many, name);
		demand(w->many_file[i] != 0, "create");
		if (groups && i % 20 == 0)
			demand(volume_sync(rig->volume) == 0, "sync");
	}
	set_xattr(rig, w->big, "user.changed", 20000);
	set_xattr(rig, w->big, "user.changed", 12000);
	w->orphan = rig_file(rig, INO_ROOT, "orphan");
	write_blocks(rig, w->orphan, 0, 3);
	demand(rig_unlink(rig, INO_ROOT, "orphan") == 0, "unlink");
}

static void make(struct world *w, bool crash)
{
	struct rig rig;

	memset(w, 0, sizeof(*w));
	rig_open(&rig, WORLD_BYTES, WORLD_PAGE, false);
	make_files(&rig, w);
	if (crash)
		demand(volume_sync(rig.volume) == 0, "sync");
	make_more(&rig, w, crash);
	if (crash)
		demand(volume_sync(rig.volume) == 0, "sync");
	core_close(rig.core);
	if (crash)
		volume_abandon(rig.volume);
	else
		demand(volume_close(rig.volume) == 0, "close");
	w->dev = rig.dev;
}

void world_make(struct world *world)
{
	make(world, false);
}

void world_make_crashed(struct world *world)
{
	make(world, true);
}

void world_free(struct world *world)
{
	dev_close(world->dev);
}

void world_save(const struct world *world, char path[SCRATCH_PATH_BYTES])
{
	uint8_t *buf = malloc(WORLD_BYTES);
	int fd = scratch_file(path);

	demand(buf != NULL, "file");
	demand(dev_read(world->dev, buf, WORLD_BYTES, 0) == 0, "read");
	demand(write(fd, buf, WORLD_BYTES) == WORLD_BYTES, "write");
	close(fd);
	free(buf);
}
