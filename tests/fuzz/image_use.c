/* What is done with a changed image: see image_use.h. */
#include "tests/fuzz/image_use.h"

#include "engine/base/crc32c.h"
#include "fs/core.h"
#include "fsck/borrow.h"
#include "fsck/check.h"
#include "fsck/session.h"
#include "tests/lib/core_rig.h"
#include "tests/lib/fsck_world.h"
#include "tests/lib/scratch.h"

#include <stdio.h>
#include <stdlib.h>

#define DEPTH_MAX 6u
#define ENTRIES_MAX 400u

/* ----------------------------------------------------------------------- fsck */

static void digest(void *arg, const struct fsck_problem *problem)
{
	uint32_t *crc = arg;

	*crc = crc32c(*crc, &problem->number, sizeof(problem->number));
	*crc = crc32c(*crc, problem->detail, strlen(problem->detail));
}

/* Whatever the bytes are, it ends, and says the same whatever the number of threads. */
static void walk(struct device *dev)
{
	struct fsck_options options = {.data = true, .collect_fixes = true, .threads = 1};
	struct fsck_result result;
	uint32_t crc[2] = {0};
	uint64_t problems[2];

	for (unsigned i = 0; i < 2; i++) {
		int rc = fsck_walk(dev, &options, digest, &crc[i], &result);

		check(rc <= 0);
		problems[i] = result.problems;
		fsck_result_free(&result);
		options.threads = 3;
	}
	check(crc[0] == crc[1] && problems[0] == problems[1]);
}

static void print_nothing(void *arg, const char *line)
{
	(void)arg;
	if (getenv("FUZZ_VERBOSE"))
		puts(line);
}

/* Then it may be another filesystem's by now: fsck wants a person's word for overwriting it. */
static bool block_0_is_anything(struct device *dev)
{
	struct disk_superblock sb;

	check(dev_read(dev, &sb, sizeof(sb), 0) == 0);
	return memcmp(sb.magic, SB_MAGIC, sizeof(sb.magic)) != 0;
}

static void repair(struct device *dev)
{
	struct session_options options = {
		.mode = MODE_REPAIR,
		.force = true,
		.print = print_nothing,
		.cache_bytes = WORLD_CACHE,
	};
	int bits = session_run_on(dev, "image", &options);

	/* There is a superblock as long as not both were changed into another volume's. */
	if (bits == EXIT_OPERATIONAL || (bits == EXIT_UNCORRECTED && block_0_is_anything(dev)))
		return;
	check(bits == EXIT_CLEAN || bits == EXIT_CORRECTED);
	options.mode = MODE_NO;
	check(session_run_on(dev, "image", &options) == EXIT_CLEAN);
}

/* ---------------------------------------------------------------------- mount */

struct visit {
	struct core *core;
	unsigned depth, entries;
};

static void use_file(struct core *core, const struct core_attr *attr)
{
	static uint8_t buf[64 << 10];
	char target[SYMLINK_BYTES_MAX + 1], list[4096];
	struct core_attr changed = *attr;
	size_t len;
	int rc;

	if (S_ISLNK(attr->mode))
		rc = core_readlink(core, VIEW_BASE, attr->ino, target);
	else
		rc = core_read(core, VIEW_BASE, attr->ino, 0, buf, sizeof(buf), &len);
	rc |= core_listxattr(core, VIEW_BASE, attr->ino, list, sizeof(list), &len);
	rc |= core_getxattr(core, VIEW_BASE, attr->ino, "user.long", buf, sizeof(buf), &len);
	rc |= core_write(core, VIEW_BASE, attr->ino, attr->ino % 9000, "written", 7, 0);
	changed.size = 3000;
	rc |= core_setattr(core, VIEW_BASE, attr->ino, CORE_SET_SIZE, &changed);
	(void)rc;
}

static int visit_entry(void *arg, const struct core_dirent *entry);

static void use_directory(struct visit *visit, uint64_t ino)
{
	struct core_attr attr;
	int rc;

	if (visit->depth == DEPTH_MAX)
		return;
	visit->depth++;
	rc = core_readdir(visit->core, VIEW_BASE, ino, 0, false, visit_entry, visit);
	rc |= core_create(visit->core, VIEW_BASE, &rig_cred, ino, "new", 3, S_IFREG | 0600, 0,
			  &attr);
	rc |= core_rename(visit->core, VIEW_BASE, ino, "new", 3, INO_ROOT, "moved", 5, 0);
	(void)rc;
	visit->depth--;
}

static int visit_entry(void *arg, const struct core_dirent *entry)
{
	struct visit *visit = arg;
	struct core_attr attr;

	if (entry->cookie <= 2 || visit->entries++ > ENTRIES_MAX)
		return 0;
	if (core_getattr(visit->core, VIEW_BASE, entry->ino, &attr) != 0)
		return 0;
	if (S_ISDIR(attr.mode))
		use_directory(visit, attr.ino);
	else
		use_file(visit->core, &attr);
	return 0;
}

static void mount_and_use(struct device *dev)
{
	const struct volume_options options = {
		.no_background = true,
		.cache_bytes = 2 * SCRATCH_CACHE,
	};
	struct visit visit = {0};
	struct volume *volume;
	struct device *borrowed;

	check(borrow_device(&borrowed, dev) == 0);
	if (volume_open(&volume, borrowed, &options) != 0) {
		dev_close(borrowed);
		return;
	}
	if (core_open(&visit.core, volume) == 0) {
		int rc;

		use_directory(&visit, INO_ROOT);
		rc = core_unlink(visit.core, VIEW_BASE, INO_ROOT, "small", 5);
		rc |= core_unlink(visit.core, VIEW_BASE, INO_ROOT, "big", 3);
		rc |= core_rmdir(visit.core, VIEW_BASE, INO_ROOT, "dir", 3);
		(void)rc;
		core_close(visit.core);
	}
	(void)!volume_close(volume);
}

/* ------------------------------------------------------------------------- uses */

const struct image_use image_uses[] = {
	{"walk", walk},
	{"repair", repair},
	{"mount", mount_and_use},
	{0},
};

const char *image_use_chosen(const uint8_t *data, size_t size)
{
#ifdef BLINKFS_LIBFUZZER
	return image_uses[crc32c(0, data, size) % (array_count(image_uses) - 1)].name;
#else
	(void)data, (void)size;
	return getenv("FUZZ_ONLY");
#endif
}

void image_use_all(struct device *(*copy)(void *arg), void *arg, const char *only)
{
	for (const struct image_use *use = image_uses; use->name; use++) {
		struct device *dev;

		if (only && strcmp(only, use->name) != 0)
			continue;
		dev = copy(arg);
		use->use(dev);
		dev_close(dev);
	}
}
