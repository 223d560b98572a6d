/*
 * A group's free map is built beside others who want the group (INV-SPACE-4): forced
 * interleavings at os_point(), then threads without order.
 */
#include "engine/space_internal.h"

#include "engine/base/os.h"
#include "engine/flush.h"
#include "tests/lib/lob_rig.h"
#include "tests/lib/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096u
#define GROUP (GROUP_BLOCKS(PAGE))
#define GROUPS 40u
#define TARGET 17u
#define THREADS 6u

static struct volume *volume;
static const char *at_point;
static bool break_reads;

static uint64_t in_group(uint32_t number)
{
	return volume->geo.groups_start + (uint64_t)number * volume->geo.group_blocks + 100;
}

static uint64_t now_free(void)
{
	struct space_counts counts;

	space_count(volume->space, &counts);
	return counts.free + counts.deferred + counts.reserved;
}

static void make(void)
{
	volume = lob_rig_format((uint64_t)GROUPS * GROUP * BLOCK_SIZE, PAGE, 1u << 20);
	for (uint32_t g = 0; g < GROUPS; g++)
		check(lob_rig_write(volume, 7, g * 10, 3, 1, in_group(g), NULL) == 0);
	check(volume_sync(volume) == 0);
	volume = lob_rig_open(scratch_crash(volume));
	check(volume && space_group(volume->space, TARGET) == NULL);
}

static void check_all(void)
{
	for (uint32_t g = 0; g < GROUPS; g++)
		check(space_load(volume->space, g) == 0);
	check(atomic_load(&volume->space->unread) == 0);
	check(stat_read(&volume->stats, STAT_corruptions) == 0);
	check(now_free() == volume->space->total - lob_rig_bits(volume));
	check(scratch_problems(volume) == 0);
	check(volume_close(volume) == 0);
}

/* --------------------------------------------------------------------- forced */

/*
 * Somebody frees and takes blocks of the group, and the page is written back, while
 * another has read the old bitmap, or is about to.
 */
static void change_beside(const char *name)
{
	if (strcmp(name, at_point) != 0)
		return;
	os_linux_set_point_handler(NULL);
	check(lob_rig_hole(volume, 7, TARGET * 10, TARGET * 10 + 2, NULL) == 0);
	check(space_group(volume->space, TARGET));
	check(flush_everything(volume->flusher) == 0);
	space_advance(volume->space);
	check(lob_rig_write(volume, 7, 5000, 20, 2, in_group(TARGET), NULL) == 0);
	check(flush_everything(volume->flusher) == 0);
	if (break_reads)
		dev_memory_fail(volume->base_dev, FAULT_READ, 0, -5, false);
}

static void forced(const char *point, bool broken)
{
	make();
	at_point = point;
	break_reads = broken;
	os_linux_set_point_handler(change_beside);
	check(space_load(volume->space, TARGET) == 0);
	os_linux_set_point_handler(NULL);
	check_all();
}

/* While one is reading the last group that is left, the other does not answer -ENOSPC. */
static void take_beside(const char *name)
{
	struct reservation r;
	uint64_t free = (uint64_t)atomic_load(&volume->space->free);

	if (strcmp(name, "space:read") != 0 || atomic_load(&volume->space->loaded) < GROUPS - 1)
		return;
	os_linux_set_point_handler(NULL);
	check(free > 4000);
	check(space_reserve(volume->space, 200, 0, SPACE_PRIVILEGED, &r) == 0);
	space_unreserve(volume->space, &r);
}

static void last_group(void)
{
	struct run run[64];

	make();
	for (uint32_t g = 0; g < GROUPS; g++) {
		unsigned count;

		if (g == TARGET)
			continue;
		check(space_load(volume->space, g) == 0);
		while ((count = group_take_longest(volume->space, space_group(volume->space, g),
						   20000, 1, 64, run)) > 0)
			for (unsigned i = 0; i < count; i++)
				atomic_fetch_sub(&volume->space->free, run[i].length);
	}
	os_linux_set_point_handler(take_beside);
	check(space_load_more(volume->space) == space_group(volume->space, TARGET));
	os_linux_set_point_handler(NULL);
	volume_abandon(volume);
}

/* ----------------------------------------------------------------- many threads */

static void anybody(void *arg)
{
	uint64_t me = (uint64_t)(uintptr_t)arg, seed = 100 + me;

	for (unsigned i = 0; i < 60 * test_scale(); i++) {
		uint32_t g = (uint32_t)(random_next(&seed) % GROUPS);
		struct reservation r;

		switch (random_next(&seed) % 4) {
		case 0:
			check(space_load(volume->space, g) == 0);
			break;
		case 1:
			if (space_reserve(volume->space, 1 + random_next(&seed) % 100, in_group(g),
					  0, &r) == 0)
				space_unreserve(volume->space, &r);
			break;
		case 2:
			check(lob_rig_write(volume, 20 + me, random_next(&seed) % 500, 4, 1,
					    in_group(g), NULL) == 0);
			break;
		case 3:
			check(lob_rig_hole(volume, 20 + me, random_next(&seed) % 500, 600, NULL) ==
			      0);
			break;
		}
	}
}

static void together(void)
{
	struct os_thread thread[THREADS];

	make();
	for (unsigned i = 0; i < THREADS; i++)
		check(os_thread_start(&thread[i], "load", anybody, (void *)(uintptr_t)i) == 0);
	for (unsigned i = 0; i < THREADS; i++)
		os_thread_join(&thread[i]);
	check(flush_everything(volume->flusher) == 0);
	check_all();
}

int main(void)
{
	forced("space:loading", false);
	forced("space:read", false);
	forced("space:loading", true);
	last_group();
	for (unsigned i = 0; i < 3; i++)
		together();
	puts("race_space_load: ok");
	return 0;
}
