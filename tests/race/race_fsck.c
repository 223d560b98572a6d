/*
 * The threads that read ahead of fsck's walk: the same report whatever their number,
 * walks that are cancelled in the middle, and damage in what they have read.
 */
#include "fsck/session.h"
#include "tests/lib/fsck_world.h"
#include "tests/lib/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct outcome {
	int code;
	unsigned asked, cancel_after; /* 0: not cancelled */
	uint64_t digest;              /* of all lines, in order */
};

static void print(void *arg, const char *line)
{
	struct outcome *outcome = arg;

	for (; *line; line++)
		outcome->digest = (outcome->digest ^ (unsigned char)*line) * 1099511628211u;
}

static bool cancelled(void *arg)
{
	struct outcome *outcome = arg;

	return outcome->cancel_after && ++outcome->asked >= outcome->cancel_after;
}

static struct outcome run(struct device *dev, unsigned threads, unsigned cancel_after)
{
	struct outcome outcome = {.cancel_after = cancel_after};
	const struct session_options options = {
		.mode = MODE_NO,
		.force = true,
		.data = true,
		.verbose = true,
		.print = print,
		.cancelled = cancelled,
		.arg = &outcome,
		.cache_bytes = WORLD_CACHE,
		.threads = threads,
	};

	outcome.code = session_run_on(dev, "volume", &options);
	return outcome;
}

static void same_for_all(struct device *dev, int code)
{
	struct outcome alone = run(dev, 1, 0);

	check(alone.code == code);
	for (unsigned threads = 2; threads <= 8; threads *= 2) {
		struct outcome several = run(dev, threads, 0);

		check(several.code == code && several.digest == alone.digest);
	}
}

/* Whatever is under way when the user has had enough. */
static void cancelled_anywhere(struct device *dev)
{
	struct outcome outcome = run(dev, 4, 1);

	check(outcome.code & EXIT_CANCELLED);
	for (unsigned after = 2; outcome.asked == after - 1; after++) {
		outcome = run(dev, 4, after);
		check((outcome.asked < after) == !(outcome.code & EXIT_CANCELLED));
	}
}

/* Each page of what the threads read, one after the other. */
static void damaged_anywhere(struct device *dev)
{
	uint64_t seed = 1, pages = dev->size_bytes / WORLD_PAGE;

	for (unsigned i = 0; i < 12 * test_scale(); i++) {
		uint64_t at = random_next(&seed) % pages * WORLD_PAGE;
		uint8_t byte, broken;

		at += random_next(&seed) % WORLD_PAGE;
		check(dev_read(dev, &byte, 1, at) == 0);
		broken = byte ^ 0x10;
		check(dev_write(dev, &broken, 1, at) == 0);
		same_for_all(dev, run(dev, 1, 0).code);
		check(dev_write(dev, &byte, 1, at) == 0);
	}
}

int main(void)
{
	struct world world;

	world_make(&world);
	same_for_all(world.dev, EXIT_CLEAN);
	cancelled_anywhere(world.dev);
	damaged_anywhere(world.dev);
	same_for_all(world.dev, EXIT_CLEAN);
	world_free(&world);
	printf("race_fsck: ok\n");
	return 0;
}
