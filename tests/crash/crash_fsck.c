/*
 * Power cuts while fsck repairs: whatever a cut leaves, the next fsck brings to
 * the same end, and the one after that finds nothing.
 *
 *	crash_fsck [seed]
 */
#include "engine/base/message.h"
#include "fsck/session.h"
#include "tests/lib/fsck_fault.h"
#include "tests/lib/scratch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SEEDS_A_MODE 3u

struct output {
	char text[16384];
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

/* Something for each way and round of repair. */
static void damage(struct world *w, struct image *i)
{
	struct key key;
	uint64_t start;

	for (unsigned n = 0; n < 20; n++)
		EDIT_INODE(w->many_file[n * 7], inode.nlink = le32_make(2 + n % 5));
	EDIT_INODE(w->small, inode.xattr_count = le32_make(0));
	EDIT_INODE(w->big, inode.blocks = le64_make(0));
	EDIT_INODE(w->dir, inode.entries = le64_make(9));
	image_set_counter(i, COUNTER_PURGE, 1);
	image_set_counter(i, COUNTER_INO, 20);
	image_set_bits(i, i->raw.groups_end - 50, 7, true);
	start = le64_get(fault_extent(i, fault_lob(i, w->big), 0, &key)->start);
	image_set_bits(i, start + 2, 3, false);
	key = image_name_key(i, INO_ROOT, "empty");
	image_delete(i, INDEX_DIRENTS, &key);
}

static void fail(const char *what, size_t event, unsigned mode, uint64_t seed,
		 const struct output *out)
{
	fprintf(stderr, "crash_fsck: event %zu, mode %u, seed %" PRIu64 ": %s\n%s", event, mode,
		seed, what, out->text);
	exit(1);
}

static void judge(struct device *dev, size_t event, unsigned mode, uint64_t seed,
		  struct output *out)
{
	int bits = run(dev, MODE_REPAIR, out);

	if (bits != EXIT_CLEAN && bits != EXIT_CORRECTED)
		fail("not repaired", event, mode, seed, out);
	if (run(dev, MODE_NO, out) != EXIT_CLEAN)
		fail("not clean", event, mode, seed, out);
}

static uint64_t judge_cut(struct device *dev, size_t event, uint64_t first_seed, struct output *out)
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
				judge(state, event, mode, first_seed + seed, out);
			states += varies;
			dev_close(state);
		}
	}
	return states;
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 0, states = 0;
	struct output *out = malloc(sizeof(*out));
	struct world world;
	struct image image;
	size_t events;

	check(out != NULL);
	message_quiet(LOG_CRIT);
	world_make(&world);
	image_open(&image, world.dev);
	damage(&world, &image);
	dev_record_start(world.dev);
	if (run(world.dev, MODE_REPAIR, out) != EXIT_CORRECTED)
		fail("not repaired", 0, 0, 0, out);
	events = dev_record_count(world.dev);
	for (size_t event = 0; event <= events; event++)
		states += judge_cut(world.dev, event, seed, out);
	printf("crash_fsck: %zu events, %" PRIu64 " states, seed %" PRIu64 "\n", events, states,
	       seed);
	world_free(&world);
	free(out);
	return 0;
}
