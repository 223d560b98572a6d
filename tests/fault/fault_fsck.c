/*
 * fsck when the n-th I/O, or the n-th allocation, fails: for every n until a run
 * has no failure left.  It ends with an exit code that says so, and a run
 * without failures afterwards finds nothing worse than before: what was
 * repaired stays repaired, the rest is repaired now.
 *
 *	fault_fsck [first [step [damage]]]
 */
#include "engine/base/error.h"
#include "engine/base/message.h"
#include "fsck/session.h"
#include "tests/lib/fsck_damage.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- allocations --------------------------------------------------------- */

static int64_t allocations_left = -1; /* < 0: no failure is due */
static unsigned allocations_failed;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OWN_MALLOC 0
#endif
#endif
#ifndef OWN_MALLOC
#define OWN_MALLOC 1
#endif

#if OWN_MALLOC
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static bool fails_now(void)
{
	if (allocations_left < 0 || allocations_left-- > 0)
		return false;
	allocations_failed++;
	errno = ENOMEM;
	return true;
}

void *malloc(size_t size)
{
	return fails_now() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	return fails_now() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *p, size_t size)
{
	return fails_now() ? NULL : __libc_realloc(p, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return fails_now() ? NULL : __libc_memalign(alignment, size);
}
#endif

/* --- what is run --------------------------------------------------------- */

static char last_output[8192];

static void collect(void *arg, const char *line)
{
	size_t len = strlen(last_output);

	(void)arg;
	snprintf(last_output + len, sizeof(last_output) - len, "%s\n", line);
}

static int run(struct device *dev, enum session_mode mode)
{
	struct session_options options = {
		.mode = mode,
		.force = true,
		.data = true,
		.print = collect,
		.cache_bytes = WORLD_CACHE,
	};

	last_output[0] = '\0';
	return session_run_on(dev, "volume", &options);
}

static void demand(bool good, const char *what, uint64_t n)
{
	if (good)
		return;
	fprintf(stderr, "fault_fsck: n = %" PRIu64 ": %s\n%s", n, what, last_output);
	exit(1);
}

/* A device with the same bytes. */
static struct device *copy(struct device *from)
{
	uint8_t *bytes = malloc(WORLD_BYTES);
	struct device *dev;

	check(bytes && dev_read(from, bytes, WORLD_BYTES, 0) == 0);
	check(dev_open_memory(&dev, WORLD_BYTES) == 0);
	check(dev_write(dev, bytes, WORLD_BYTES, 0) == 0);
	free(bytes);
	return dev;
}

/* Damage that the failure itself seemed to be is flagged, so 'corrected' is right as well. */
static void recover(struct device *dev, uint64_t n)
{
	int bits = run(dev, MODE_REPAIR);

	demand(bits == EXIT_CLEAN || bits == EXIT_CORRECTED, "not repaired afterwards", n);
	demand(run(dev, MODE_NO) == EXIT_CLEAN, "not clean afterwards", n);
}

static bool io_fails(struct device *damaged, unsigned mask, uint64_t n)
{
	struct device *dev = copy(damaged);
	bool failed;

	dev_memory_fail(dev, mask, n, -EIO, false);
	(void)!run(dev, MODE_REPAIR);
	failed = dev_memory_fault_count(dev) > 0;
	dev_memory_fail(dev, 0, 0, 0, false);
	recover(dev, n);
	dev_close(dev);
	return failed;
}

static bool allocation_fails(struct device *damaged, uint64_t n)
{
	struct device *dev = copy(damaged);
	unsigned before = allocations_failed;
	int bits;

	allocations_left = (int64_t)n;
	bits = run(dev, MODE_REPAIR);
	allocations_left = -1;
	demand(allocations_failed == before || (bits & EXIT_OPERATIONAL) ||
		       bits == EXIT_CORRECTED || (bits & EXIT_UNCORRECTED),
	       "claims that all is well", n);
	recover(dev, n);
	dev_close(dev);
	return allocations_failed > before;
}

static void fail_everything(const struct damage *damage, uint64_t first, uint64_t step)
{
	const unsigned masks[] = {FAULT_READ, FAULT_WRITE, FAULT_FLUSH};
	struct image *image = malloc(sizeof(*image));
	struct world world;
	uint64_t n;

	check(image != NULL);
	(damage->crashed ? world_make_crashed : world_make)(&world);
	image_open(image, world.dev);
	damage->make(&world, image);
	for (unsigned i = 0; i < array_count(masks); i++) {
		for (n = first; io_fails(world.dev, masks[i], n); n += step)
			;
		printf("fault_fsck: %s: kind %u, %" PRIu64 " failures\n", damage->name, masks[i],
		       n);
	}
	for (n = first; OWN_MALLOC && allocation_fails(world.dev, n); n += step)
		;
	printf("fault_fsck: %s: %" PRIu64 " allocations\n", damage->name, n);
	world_free(&world);
	free(image);
}

int main(int argc, char **argv)
{
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 0;
	uint64_t step = argc > 2 ? strtoull(argv[2], NULL, 0) : test_scale() > 1 ? 1 : 7;

	message_quiet(LOG_EMERG);
	for (const struct damage *damage = fsck_damages; damage->name; damage++)
		if (argc < 4 || strcmp(argv[3], damage->name) == 0)
			fail_everything(damage, first, step);
	return 0;
}
