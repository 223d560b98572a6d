/*
 * Free maps that are built when they are wanted (INV-SPACE-4, -5), and the count of free
 * blocks that is right before (INV-LOG-12).
 */
#include "engine/space_internal.h"

#include "engine/flush.h"
#include "tests/lib/lob_rig.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#define PAGE 4096u
#define GROUP (GROUP_BLOCKS(PAGE))
#define GROUPS 20u
#define LOG_BYTES (1u << 20)

static struct volume *make(void)
{
	return lob_rig_format((uint64_t)GROUPS * GROUP * BLOCK_SIZE, PAGE, LOG_BYTES);
}

/* Without a clean end: what was durable. */
static struct volume *again(struct volume *v)
{
	struct device *dev;

	cr_assert_eq(volume_sync(v), 0);
	dev = scratch_crash(v);
	v = lob_rig_open(dev);
	cr_assert(v);
	return v;
}

static uint64_t truly_free(struct volume *v)
{
	struct space_counts counts;

	space_count(v->space, &counts);
	cr_assert_eq(counts.reserved, 0);
	return counts.free + counts.deferred;
}

static uint64_t by_bitmaps(struct volume *v)
{
	return v->space->total - lob_rig_bits(v);
}

static uint32_t group_of(const struct volume *v, uint64_t block)
{
	return (uint32_t)((block - v->geo.groups_start) / v->geo.group_blocks);
}

static uint64_t in_group(const struct volume *v, uint32_t number)
{
	return v->geo.groups_start + (uint64_t)number * v->geo.group_blocks + 100;
}

/* One file with a piece in each of these groups. */
static void spread(struct volume *v, uint64_t lob, uint32_t first, uint32_t end)
{
	for (uint32_t g = first; g < end; g++)
		cr_assert_eq(lob_rig_write(v, lob, g * 10, 3, 1, in_group(v, g), NULL), 0);
}

/* -------------------------------------------------------------------- opening */

Test(space_load, a_mount_reads_few_bitmaps_and_knows_what_is_free)
{
	struct volume *v = make();
	uint64_t had;

	cr_assert_leq(atomic_load(&v->space->loaded), 3);
	cr_assert_eq(truly_free(v), by_bitmaps(v));
	spread(v, 7, 0, GROUPS);
	had = truly_free(v);
	cr_assert_eq(had, by_bitmaps(v));
	v = again(v);
	cr_assert_leq(atomic_load(&v->space->loaded), 3);
	cr_assert_eq(truly_free(v), had);
	cr_assert_eq(truly_free(v), by_bitmaps(v));
	/* All of them are met: the counts meet, too. */
	for (uint32_t g = 0; g < GROUPS; g++)
		cr_assert_eq(space_load(v->space, g), 0);
	cr_assert_eq(atomic_load(&v->space->unread), 0);
	cr_assert_eq(truly_free(v), had);
	cr_assert_eq(stat_read(&v->stats, STAT_corruptions), 0);
	cr_assert_eq(volume_close(v), 0);
}

/* Freeing goes to a group that nobody has loaded; what is freed may be had again. */
Test(space_load, freeing_loads_the_group)
{
	struct volume *v = make();
	uint64_t had;

	spread(v, 7, 0, GROUPS);
	v = again(v);
	had = truly_free(v);
	cr_assert_null(space_group(v->space, GROUPS - 2));
	cr_assert_eq(lob_rig_hole(v, 7, (GROUPS - 2) * 10, (GROUPS - 2) * 10 + 3, NULL), 0);
	cr_assert(space_group(v->space, GROUPS - 2));
	cr_assert_eq(truly_free(v), had + 3);
	cr_assert_eq(flush_everything(v->flusher), 0);
	space_advance(v->space);
	cr_assert_eq(truly_free(v), had + 3);
	cr_assert_eq(truly_free(v), by_bitmaps(v));
	cr_assert_eq(volume_close(v), 0);
}

/* Nobody hears -ENOSPC while a group that was not looked into has room. */
Test(space_load, a_reservation_goes_on_to_other_groups)
{
	struct volume *v = make();
	struct reservation r;
	uint64_t blocks = 0;
	unsigned count = 0;

	while (space_reserve(v->space, 256, in_group(v, 3), 0, &r) == 0) {
		blocks += r.blocks;
		cr_assert_leq(++count, GROUPS * GROUP / 256);
	}
	cr_assert_eq(atomic_load(&v->space->loaded), GROUPS);
	cr_assert_geq(blocks, v->space->total / 32 * 30);
	volume_abandon(v);
}

/* A whole volume of single free blocks, a few a group: as many as they are. */
Test(space_load, scattered_room_is_found_without_being_known)
{
	struct volume *v = make();
	struct reservation r;
	struct run run[RESERVE_EXTENTS_MAX];

	for (uint32_t g = 0; g < GROUPS; g++) {
		struct group *group;
		unsigned count;

		cr_assert_eq(space_load(v->space, g), 0);
		group = space_group(v->space, g);
		while ((count = group_take_longest(v->space, group, 20000, 1,
						   RESERVE_EXTENTS_MAX, run)) > 0)
			for (unsigned i = 0; i < count; i++)
				atomic_fetch_sub(&v->space->free, run[i].length);
		space_give(v->space, in_group(v, g), 1);
	}
	cr_assert_eq(space_reserve(v->space, 8, in_group(v, 1), SPACE_PRIVILEGED, &r), 0);
	cr_assert_eq(r.blocks, 8);
	volume_abandon(v);
}

/* The reserve wants its share of what is loaded, and withholds that of the rest. */
Test(space_load, what_is_kept_does_not_depend_on_what_is_loaded)
{
	struct volume *v = make();
	struct space_counts before, after;

	space_count(v->space, &before);
	for (uint32_t g = 0; g < GROUPS; g++)
		cr_assert_eq(space_load(v->space, g), 0);
	space_advance(v->space);
	space_count(v->space, &after);
	cr_assert_eq(before.free, after.free);
	cr_assert_eq(before.kept, after.kept);
	cr_assert_eq(atomic_load(&v->space->reserve.held), v->space->reserve.target);
	cr_assert_eq(volume_close(v), 0);
}

/* ------------------------------------------------------------------- the count */

/* A volume of an older version, or one whose bitmaps fsck has written: counted once. */
Test(space_load, a_count_that_is_not_there_is_made)
{
	struct volume *v = make();
	struct device *dev;
	uint64_t had, log_at = v->geo.log_start * BLOCK_SIZE;
	uint8_t uuid[16];

	memcpy(uuid, v->sb.log_uuid, sizeof(uuid));
	spread(v, 7, 0, GROUPS);
	had = truly_free(v);
	cr_assert_eq(flush_everything(v->flusher), 0);
	dev = scratch_crash(v);
	cr_assert_eq(log_write_tally(dev, log_at, uuid, 0), 0);
	v = lob_rig_open(dev);
	cr_assert(v);
	cr_assert_eq(truly_free(v), had);
	v = again(v);
	cr_assert_eq(truly_free(v), had);
	cr_assert_eq(volume_close(v), 0);
}

/* A wrong one is noticed when the last group is loaded, and put right. */
static void wrong_count(int64_t by)
{
	struct volume *v = make();
	struct device *dev;
	uint64_t had, tally, log_at = v->geo.log_start * BLOCK_SIZE;
	uint8_t uuid[16];

	memcpy(uuid, v->sb.log_uuid, sizeof(uuid));
	spread(v, 7, 0, GROUPS);
	had = truly_free(v);
	tally = log_tally(v->log);
	cr_assert_eq(flush_everything(v->flusher), 0);
	dev = scratch_crash(v);
	cr_assert_eq(log_write_tally(dev, log_at, uuid, tally + (uint64_t)by), 0);
	v = lob_rig_open(dev);
	cr_assert(v);
	cr_assert_eq(truly_free(v), had - (uint64_t)by);
	for (uint32_t g = 0; g < GROUPS; g++)
		cr_assert_eq(space_load(v->space, g), 0);
	cr_assert_eq(truly_free(v), had);
	cr_assert_eq(stat_read(&v->stats, STAT_corruptions), 1);
	volume_abandon(v);
}

Test(space_load, a_count_that_is_too_low_is_noticed)
{
	wrong_count(-11);
}

Test(space_load, a_count_that_is_too_high_is_noticed)
{
	wrong_count(11);
}

/* The sum is right wherever the log ends: checkpoints in between, many laps. */
Test(space_load, inv_log_12_over_laps_and_crashes)
{
	struct volume *v = make();
	uint64_t seed = 5;

	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = 0; i < 400; i++) {
			uint64_t at = random_next(&seed) % 4000;

			cr_assert_eq(lob_rig_write(v, 7, at, 1 + random_next(&seed) % 30, round,
						   in_group(v, random_next(&seed) % GROUPS),
						   NULL), 0);
			if (random_next(&seed) % 40 == 0)
				cr_assert_eq(flush_until(v->flusher, log_next_lsn(v->log) -
						random_next(&seed) % 5000), 0);
		}
		v = again(v);
		cr_assert_eq(v->space->total - GROUPS * v->geo.page_blocks - log_tally(v->log),
			     by_bitmaps(v));
		cr_assert_eq(truly_free(v), by_bitmaps(v));
	}
	cr_assert_eq(stat_read(&v->stats, STAT_corruptions), 0);
	cr_assert_eq(volume_close(v), 0);
}

/* --------------------------------------------------------------- what is broken */

static void fault_a_read(struct volume *v, unsigned count)
{
	dev_memory_fail(v->base_dev, FAULT_READ, 0, -EIO, count > 1);
}

/* The group is left alone, its blocks do not count; what was asked for comes from another. */
Test(space_load, an_unreadable_bitmap_is_passed_over)
{
	struct volume *v = make();
	struct reservation r;
	uint64_t had = truly_free(v);

	fault_a_read(v, 1);
	cr_assert_eq(space_reserve(v->space, 10, in_group(v, 9), 0, &r), 0);
	cr_assert_neq(group_of(v, r.piece[0].start), 9);
	cr_assert_eq(stat_read(&v->stats, STAT_corruptions), 0);
	cr_assert_eq(space_load(v->space, 9), -EIO);
	space_unreserve(v->space, &r);
	cr_assert_eq(truly_free(v), had, "the others are not known yet");
	for (uint32_t g = 0; g < GROUPS; g++)
		cr_assert_eq(space_load(v->space, g), g == 9 ? -EIO : 0);
	cr_assert_eq(truly_free(v), had - GROUP + v->geo.page_blocks);
	/* Who frees there has read it after all. */
	cr_assert_eq(stat_read(&v->stats, STAT_corruptions), 0);
	volume_abandon(v);
}

/* All groups loaded but number 9, whose bitmap could not be read once; *had: free before. */
static struct volume *make_with_a_bad_group(uint64_t *had)
{
	struct volume *v = make();

	spread(v, 7, 0, GROUPS);
	v = again(v);
	*had = truly_free(v);
	fault_a_read(v, 1);
	cr_assert_eq(space_load(v->space, 9), -EIO);
	for (uint32_t g = 0; g < GROUPS; g++)
		cr_assert_eq(space_load(v->space, g), g == 9 ? -EIO : 0);
	cr_assert_lt(truly_free(v), *had);
	return v;
}

Test(space_load, a_group_that_was_bad_comes_back_with_a_pinned_page)
{
	uint64_t had;
	struct volume *v = make_with_a_bad_group(&had);

	cr_assert_eq(lob_rig_hole(v, 7, 90, 93, NULL), 0);
	cr_assert_eq(truly_free(v), had + 3);
	cr_assert_eq(stat_read(&v->stats, STAT_corruptions), 0);
	volume_abandon(v);
}

/* Before anybody is told that nothing is left. */
Test(space_load, a_group_that_was_bad_comes_back_with_a_drain)
{
	uint64_t had;
	struct volume *v = make_with_a_bad_group(&had);

	cr_assert(space_is_unreadable(v->space));
	cr_assert_eq(space_drain(v->space), 0);
	cr_assert_not(space_is_unreadable(v->space));
	cr_assert_eq(truly_free(v), had);
	cr_assert_eq(space_drain(v->space), -ENOSPC);
	volume_abandon(v);
}

/* What was read is damaged: that is remembered, too. */
Test(space_load, a_damaged_bitmap_is_passed_over)
{
	struct volume *v = make();
	struct reservation r;

	cr_assert_eq(dev_write(v->base_dev, "damage", 6,
			       space_first_block(v->space, 9) * BLOCK_SIZE + 3000), 0);
	cr_assert_eq(space_reserve(v->space, 10, in_group(v, 9), 0, &r), 0);
	cr_assert_neq(group_of(v, r.piece[0].start), 9);
	cr_assert_eq(stat_read(&v->stats, STAT_corruptions), 1);
	volume_abandon(v);
}

/* Nothing can be read any more: an answer, not a hang. */
Test(space_load, no_bitmap_can_be_read)
{
	struct volume *v = make();
	struct reservation r;
	unsigned count = 0;
	int rc;

	fault_a_read(v, 2);
	while ((rc = space_reserve(v->space, 256, in_group(v, 9), 0, &r)) == 0)
		cr_assert_leq(++count, 3 * GROUP / 256);
	cr_assert_eq(rc, -ENOSPC);
	cr_assert_eq(atomic_load(&v->space->loaded) + atomic_load(&v->space->bad_count), GROUPS);
	volume_abandon(v);
}
