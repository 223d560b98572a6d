/*
 * A file of 10 GiB: what unlink, truncate and a copy of it cost, in mini-transactions
 * and blocks rather than in time.  Its blocks are clones of a few, so the volume in
 * memory stays small; its extents are as many as they would be.
 */
#include "engine/base/error.h"
#include "engine/lob.h"
#include "engine/purge.h"
#include "engine/space.h"
#include "tests/lib/core_rig.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define MIB ((uint64_t)1 << 20)
#define LARGE_BYTES (10240 * MIB)
#define SEED_BYTES (16 * MIB)
#define VOLUME_BYTES (768 * MIB)
#define MTRS_FEW 4u /* the call's own, and numbers in batches */

static struct rig rig;
static uint64_t large;

static uint64_t stat_of(enum stat_id stat)
{
	return stat_read(&rig.volume->stats, stat);
}

/* All of it, in pieces as the core has them; how many pieces. */
static unsigned copy_all(uint64_t from, uint64_t to, uint64_t at, uint64_t len)
{
	unsigned pieces = 0;

	for (uint64_t done = 0, n; done < len; done += n, pieces++) {
		int rc = core_copy(rig.core, VIEW_BASE, from, done, to, at + done, len - done, &n);

		cr_assert_eq(rc, 0, "copy: %s", error_text(rc));
		cr_assert_gt(n, 0);
	}
	return pieces;
}

static void setup(void)
{
	uint8_t *data = malloc(MIB);

	rig_open(&rig, VOLUME_BYTES, 0, false);
	large = rig_held_file(&rig, INO_ROOT, "large");
	for (uint64_t at = 0; at < SEED_BYTES; at += MIB) {
		rig_fill(data, MIB, at);
		cr_assert_eq(rig_write(&rig, large, at, data, MIB), 0);
	}
	for (uint64_t have = SEED_BYTES; have < LARGE_BYTES; have *= 2)
		copy_all(large, large, have, have < LARGE_BYTES - have ? have : LARGE_BYTES - have);
	cr_assert_eq(rig_attr(&rig, large).size, LARGE_BYTES);
	free(data);
}

static void teardown(void)
{
	rig_purge(&rig);
	cr_assert_eq(purge_lag(rig.volume), 0);
	rig_close(&rig);
}

TestSuite(large, .init = setup, .fini = teardown);

Test(large, a_copy_takes_no_space_and_bounded_pieces)
{
	uint64_t to = rig_held_file(&rig, INO_ROOT, "copy");
	uint64_t written = stat_of(STAT_lob_write_blocks), read = stat_of(STAT_lob_read_blocks);
	uint64_t clones = stat_of(STAT_lob_clones);
	struct space_counts before, after;
	unsigned pieces;

	space_count(rig.volume->space, &before);
	pieces = copy_all(large, to, 0, LARGE_BYTES);
	space_count(rig.volume->space, &after);
	cr_assert_eq(stat_of(STAT_lob_write_blocks), written);
	cr_assert_eq(stat_of(STAT_lob_read_blocks), read);
	cr_assert_eq(rig_attr(&rig, to).size, LARGE_BYTES);
	cr_assert_gt(pieces, 1); /* requests */
	cr_assert_geq(stat_of(STAT_lob_clones) - clones,
		      LARGE_BYTES / BLOCK_SIZE * sizeof(le32) / PAGE_SIZE_DEFAULT);
	/* Checksums, 4 bytes for 4 KiB, in pages that may be half full. */
	cr_assert_lt(before.free - after.free, LARGE_BYTES / BLOCK_SIZE / 400);
	core_forget(rig.core, to, 1);
	core_forget(rig.core, large, 1);
}

Test(large, unlink_returns_at_once)
{
	uint64_t mtrs = stat_of(STAT_mtr_commits);

	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "large"), 0);
	core_forget(rig.core, large, 1);
	cr_assert_leq(stat_of(STAT_mtr_commits) - mtrs, MTRS_FEW);
	cr_assert_eq(purge_lag(rig.volume), 1);
	rig_reopen(&rig, true);
}

Test(large, truncate_returns_at_once)
{
	uint64_t mtrs = stat_of(STAT_mtr_commits);

	cr_assert_eq(rig_truncate(&rig, large, LARGE_BYTES / 2 + 1), 0);
	cr_assert_leq(stat_of(STAT_mtr_commits) - mtrs, MTRS_FEW);
	cr_assert_eq(purge_lag(rig.volume), 1);
	cr_assert_eq(rig_truncate(&rig, large, 0), 0);
	cr_assert_leq(stat_of(STAT_mtr_commits) - mtrs, 2 * MTRS_FEW);
	cr_assert_leq(purge_lag(rig.volume), 2);
	core_forget(rig.core, large, 1);
}
