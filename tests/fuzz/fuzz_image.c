/*
 * Fuzzes images: bytes of a volume's pages and superblocks are changed, and the
 * checksums put right again, so that nothing but the meaning of the fields is
 * wrong.  Then, each on a copy of its own:
 *
 *	walk     fsck_walk() with contents: ends, leaks nothing
 *	repair   fsck -y ends with all repaired, and finds nothing the next time
 *	mount    opens, looks at everything that can be reached, changes things, closes
 *
 * The input is a list of edits of 6 bytes: u16 page (of those in use), u16 offset,
 * u8 how, u8 value.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address -DBLINKFS_LIBFUZZER.
 * Else main() runs seeded inputs: fuzz_image [first seed [count [walk|repair|mount]]].
 */
#include "engine/base/crc32c.h"
#include "engine/base/message.h"
#include "fs/core.h"
#include "fsck/borrow.h"
#include "fsck/check.h"
#include "fsck/session.h"
#include "tests/lib/core_rig.h"
#include "tests/lib/fsck_world.h"
#include "tests/lib/scratch.h"

#include <stdio.h>
#include <stdlib.h>

#define EDIT_BYTES 6u
#define EDITS_MAX 64u
#define DEPTH_MAX 6u
#define ENTRIES_MAX 400u

/* The healthy volume, made once. */
struct base {
	struct world world;
	uint8_t *bytes;       /* WORLD_BYTES */
	uint64_t pages[2048]; /* in use, the two superblocks last */
	unsigned page_count;
};

static void note_pages(struct base *base)
{
	struct image image;

	image_open(&image, base->world.dev);
	for (uint64_t pageno = image.raw.geo.groups_start; pageno < image.raw.groups_end;
	     pageno++) {
		image_load(&image, pageno);
		if (page_verify(image.page, WORLD_PAGE, pageno, image.raw.tag, NULL) == 0)
			base->pages[base->page_count++] = pageno;
	}
	base->pages[base->page_count++] = 0;
	base->pages[base->page_count++] = image.raw.geo.block_count - 1;
}

static struct base *base_make(void)
{
	struct base *base = calloc(1, sizeof(*base));

	world_make(&base->world);
	base->bytes = malloc(WORLD_BYTES);
	check(dev_read(base->world.dev, base->bytes, WORLD_BYTES, 0) == 0);
	note_pages(base);
	return base;
}

static void base_free(struct base *base)
{
	world_free(&base->world);
	free(base->bytes);
	free(base);
}

/* ---------------------------------------------------------------------- edits */

static void seal_superblock(struct disk_superblock *sb)
{
	sb->crc = le32_make(0);
	sb->crc = le32_make(crc32c(0, sb, sizeof(*sb)));
}

static void edit(uint8_t *bytes, const struct base *base, const uint8_t *in)
{
	uint64_t pageno = base->pages[(in[0] | in[1] << 8) % base->page_count];
	uint8_t *page = bytes + pageno * WORLD_PAGE;
	unsigned offset = (unsigned)(in[2] | in[3] << 8) % WORLD_PAGE;

	switch (in[4] % 4) {
	case 0:
		page[offset] = in[5];
		break;
	case 1:
		page[offset] ^= (uint8_t)(1u << (in[5] % 8));
		break;
	case 2:
		page[offset]++;
		break;
	case 3:
		page[offset]--;
		break;
	}
	if (memcmp(page, SB_MAGIC, 8) == 0)
		seal_superblock((struct disk_superblock *)page);
	else
		page_seal(page, WORLD_PAGE);
}

/* A device with the edited bytes. */
static struct device *edited(const struct base *base, const uint8_t *in, size_t len)
{
	uint8_t *bytes = malloc(WORLD_BYTES);
	struct device *dev;

	memcpy(bytes, base->bytes, WORLD_BYTES);
	for (unsigned i = 0; i < EDITS_MAX && len >= EDIT_BYTES; i++) {
		edit(bytes, base, in);
		in += EDIT_BYTES;
		len -= EDIT_BYTES;
	}
	check(dev_open_memory(&dev, WORLD_BYTES) == 0);
	check(dev_write(dev, bytes, WORLD_BYTES, 0) == 0);
	free(bytes);
	return dev;
}

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
	if (bits == EXIT_OPERATIONAL)
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

/* ------------------------------------------------------------------------ input */

static void on_copy(const struct base *base, const uint8_t *data, size_t size,
		    void (*use)(struct device *dev))
{
	struct device *dev = edited(base, data, size);

	use(dev);
	dev_close(dev);
}

static const struct {
	const char *name;
	void (*use)(struct device *dev);
} uses[] = {
	{"walk", walk},
	{"repair", repair},
	{"mount", mount_and_use},
};

/* only: one of the names; NULL: all. */
static void run_input(const struct base *base, const uint8_t *data, size_t size, const char *only)
{
	for (size_t i = 0; i < array_count(uses); i++)
		if (!only || strcmp(only, uses[i].name) == 0)
			on_copy(base, data, size, uses[i].use);
}

#ifdef BLINKFS_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct base *base;

	if (!base) {
		message_quiet(LOG_CRIT);
		base = base_make();
	}
	run_input(base, data, size, NULL);
	return 0;
}

#else

/* Few edits, mostly in heads, slots and records; pages evenly. */
static size_t make_input(uint8_t *out, uint64_t seed)
{
	uint64_t state = seed;
	size_t edits = 1 + random_next(&state) % 4;

	for (size_t i = 0; i < edits * EDIT_BYTES; i++)
		out[i] = (uint8_t)random_next(&state);
	for (size_t i = 0; i < edits; i++) {
		unsigned offset = (unsigned)random_next(&state) % WORLD_PAGE;

		if (random_next(&state) % 3 == 0)
			offset = 4 + offset % 150;
		else if (random_next(&state) % 2 == 0)
			offset = WORLD_PAGE - 1 - offset % 1000;
		out[i * EDIT_BYTES + 2] = (uint8_t)offset;
		out[i * EDIT_BYTES + 3] = (uint8_t)(offset >> 8);
	}
	return edits * EDIT_BYTES;
}

int main(int argc, char **argv)
{
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 0) : 150ull * test_scale();
	const char *only = argc > 3 ? argv[3] : NULL;
	uint8_t input[EDITS_MAX * EDIT_BYTES];
	struct base *base;

	message_quiet(getenv("FUZZ_VERBOSE") ? LOG_INFO : LOG_CRIT);
	base = base_make();
	for (uint64_t seed = first; seed < first + count; seed++) {
		if (count == 1 || (seed - first) % 100 == 0) {
			printf("fuzz_image: seed %lu\n", (unsigned long)seed);
			fflush(stdout);
		}
		run_input(base, input, make_input(input, seed), only);
	}
	base_free(base);
	printf("fuzz_image: %lu inputs from seed %lu\n", (unsigned long)count,
	       (unsigned long)first);
	return 0;
}

#endif
