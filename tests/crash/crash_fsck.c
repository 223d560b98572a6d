/*
 * Power cuts while fsck repairs: whatever a cut leaves, the next fsck brings to
 * the same end, as many files and directories as without a cut, and the one
 * after that finds nothing.
 *
 *	crash_fsck [seed [damage]]
 */
#include "engine/base/message.h"
#include "fsck/session.h"
#include "tests/lib/fsck_damage.h"
#include "tests/lib/scratch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SEEDS_A_MODE 2u

struct output {
	char text[65536];
	size_t len;
};

static void collect(void *arg, const char *line)
{
	struct output *out = arg;
	int n = snprintf(out->text + out->len, sizeof(out->text) - out->len, "%s\n", line);

	if (n > 0 && out->len + (size_t)n < sizeof(out->text))
		out->len += (size_t)n;
}

static int run(struct device *dev, enum session_mode mode, struct output *out)
{
	struct session_options options = {
		.mode = mode,
		.force = true,
		.data = true,
		.print = collect,
		.arg = out,
		.cache_bytes = WORLD_CACHE,
	};

	out->len = 0;
	out->text[0] = '\0';
	return session_run_on(dev, "volume", &options);
}

static void fail(const char *what, size_t event, unsigned mode, uint64_t seed,
		 const struct output *out)
{
	fprintf(stderr, "crash_fsck: event %zu, mode %u, seed %" PRIu64 ": %s\n%s", event, mode,
		seed, what, out->text);
	exit(1);
}

/* What the last line counts. */
struct summary {
	uint64_t files, directories, blocks;
};

#define BLOCKS_SLACK 8u /* pages of a tree that was rebuilt twice are filled differently */

static struct summary take_summary(const struct output *out)
{
	struct summary summary = {0};
	const char *line = strstr(out->text, " files, ");

	while (line && strstr(line + 1, " files, "))
		line = strstr(line + 1, " files, ");
	check(line != NULL);
	while (line > out->text && line[-1] != ' ')
		line--;
	check(sscanf(line, "%" SCNu64 " files, %" SCNu64 " directories, %" SCNu64, &summary.files,
		     &summary.directories, &summary.blocks) == 3);
	return summary;
}

static bool same_end(const struct summary *a, const struct summary *b)
{
	return a->files == b->files && a->directories == b->directories &&
	       a->blocks <= b->blocks + BLOCKS_SLACK && b->blocks <= a->blocks + BLOCKS_SLACK;
}

static void judge(struct device *dev, size_t event, unsigned mode, uint64_t seed,
		  const struct summary *wanted, struct output *out)
{
	int bits = run(dev, MODE_REPAIR, out);
	struct summary summary;

	if (bits != EXIT_CLEAN && bits != EXIT_CORRECTED)
		fail("not repaired", event, mode, seed, out);
	summary = take_summary(out);
	if (!same_end(&summary, wanted))
		fail("not the same end", event, mode, seed, out);
	if (run(dev, MODE_NO, out) != EXIT_CLEAN)
		fail("not clean", event, mode, seed, out);
}

static uint64_t judge_cut(struct device *dev, size_t event, uint64_t first_seed,
			  const struct summary *wanted, struct output *out)
{
	uint64_t states = 0;

	for (unsigned mode = CUT_PREFIX; mode <= CUT_TORN; mode++) {
		bool random = mode == CUT_SUBSET || mode == CUT_TORN;
		uint64_t seeds = random ? SEEDS_A_MODE * test_scale()
				 : mode == CUT_DROP_ONE || mode == CUT_KEEP_ONE
					 ? dev_record_undecided(dev, event)
					 : 1;

		for (uint64_t seed = 0; seed < seeds; seed++) {
			struct device *state;
			bool varies;

			check(dev_record_state(dev, event, (enum dev_cut_mode)mode,
					       first_seed + seed, &state, &varies) == 0);
			if (varies)
				judge(state, event, mode, first_seed + seed, wanted, out);
			states += varies;
			dev_close(state);
		}
	}
	return states;
}

static void cut_repair(const struct damage *damage, uint64_t seed, struct output *out)
{
	struct image *image = malloc(sizeof(*image));
	struct world world;
	struct summary wanted;
	uint64_t states = 0;
	size_t events;

	check(image != NULL);
	(damage->crashed ? world_make_crashed : world_make)(&world);
	image_open(image, world.dev);
	damage->make(&world, image);
	dev_record_start(world.dev);
	if (run(world.dev, MODE_REPAIR, out) != EXIT_CORRECTED)
		fail("not repaired", 0, 0, 0, out);
	wanted = take_summary(out);
	events = dev_record_count(world.dev);
	for (size_t event = 0; event <= events; event++)
		states += judge_cut(world.dev, event, seed, &wanted, out);
	printf("crash_fsck: %s: %zu events, %" PRIu64 " states, seed %" PRIu64 "\n", damage->name,
	       events, states, seed);
	world_free(&world);
	free(image);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 0;
	struct output *out = malloc(sizeof(*out));

	check(out != NULL);
	message_quiet(LOG_CRIT);
	for (const struct damage *damage = fsck_damages; damage->name; damage++)
		if (argc < 3 || strcmp(argv[2], damage->name) == 0)
			cut_repair(damage, seed, out);
	free(out);
	return 0;
}
