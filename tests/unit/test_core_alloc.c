/* fallocate by the core's calls: allocate, keep size, punch hole, zero range. */
#include "tests/lib/core_rig.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define BYTES_MAX (4u << 20)
#define PUNCH (CORE_PUNCH_HOLE | CORE_KEEP_SIZE)

static uint8_t wanted[BYTES_MAX], found[BYTES_MAX];

static void open_rig(struct rig *rig)
{
	rig_open(rig, 24u << 20, 16384, false);
	memset(wanted, 0, sizeof(wanted));
}

static int allocate(struct rig *rig, uint64_t ino, unsigned mode, uint64_t offset, uint64_t len)
{
	return core_fallocate(rig->core, VIEW_BASE, ino, mode, offset, len);
}

static void write_ok(struct rig *rig, uint64_t ino, uint64_t offset, size_t len)
{
	rig_fill(wanted + offset, len, offset + len);
	cr_assert_eq(rig_write(rig, ino, offset, wanted + offset, len), 0);
}

static void expect_contents(struct rig *rig, uint64_t ino, uint64_t size)
{
	size_t done;

	cr_assert_eq(rig_attr(rig, ino).size, size);
	cr_assert_eq(core_read(rig->core, VIEW_BASE, ino, 0, found, BYTES_MAX, &done), 0);
	cr_assert_eq(done, size < BYTES_MAX ? size : BYTES_MAX);
	for (size_t i = 0; i < done; i++)
		cr_assert_eq(found[i], wanted[i], "byte %zu", i);
}

static uint64_t blocks_of(struct rig *rig, uint64_t ino)
{
	return rig_attr(rig, ino).blocks_512 / 8;
}

static uint64_t seek(struct rig *rig, uint64_t ino, uint64_t from, int whence)
{
	uint64_t at = 0;
	int rc = core_seek(rig->core, VIEW_BASE, ino, from, whence, &at);

	return rc == -ENXIO ? UINT64_MAX : at;
}

/* What is durable is there after a crash. */
static void crash(struct rig *rig)
{
	cr_assert_eq(volume_sync(rig->volume), 0);
	rig_reopen(rig, true);
}

/* Takes all space there is for data. */
static void fill_up(struct rig *rig)
{
	uint64_t ino = rig_file(rig, INO_ROOT, "filler");
	uint64_t at = 0;
	int rc;

	for (size_t len = 1u << 20; len >= BLOCK_SIZE; len /= 2)
		while ((rc = rig_write(rig, ino, at, found, len)) == 0)
			at += len;
	cr_assert_eq(rc, -ENOSPC);
}

/* As many extents as blocks: each goes behind the last one that was written. */
static void write_backwards(struct rig *rig, uint64_t ino, unsigned blocks)
{
	while (blocks-- > 0)
		write_ok(rig, ino, (uint64_t)blocks * BLOCK_SIZE, BLOCK_SIZE);
}

Test(core_alloc, blocks_that_read_as_zeros)
{
	struct rig rig;
	uint64_t ino;

	open_rig(&rig);
	ino = rig_file(&rig, INO_ROOT, "f");
	write_ok(&rig, ino, 0, 100);
	cr_assert_eq(allocate(&rig, ino, CORE_KEEP_SIZE, 0, 1000), 0);
	cr_assert_eq(blocks_of(&rig, ino), 0); /* inline, and will be */
	cr_assert_eq(allocate(&rig, ino, 0, 50, 1000), 0);
	expect_contents(&rig, ino, 1050);
	cr_assert_eq(allocate(&rig, ino, CORE_KEEP_SIZE, 0, 100000), 0);
	cr_assert_eq(blocks_of(&rig, ino), 25);
	expect_contents(&rig, ino, 1050);
	cr_assert_eq(allocate(&rig, ino, 0, 99999, 2), 0);
	cr_assert_eq(blocks_of(&rig, ino), 25);
	expect_contents(&rig, ino, 100001);
	cr_assert_eq(seek(&rig, ino, 0, SEEK_HOLE), BLOCK_SIZE);
	cr_assert_eq(seek(&rig, ino, BLOCK_SIZE, SEEK_DATA), UINT64_MAX);
	crash(&rig);
	expect_contents(&rig, ino, 100001);
	cr_assert_eq(blocks_of(&rig, ino), 25);
	rig_close(&rig);
}

/* What was allocated can be written when nothing else is left. */
Test(core_alloc, a_full_volume_takes_what_was_promised)
{
	struct rig rig;
	uint64_t ino, blocks;

	open_rig(&rig);
	ino = rig_file(&rig, INO_ROOT, "f");
	cr_assert_eq(allocate(&rig, ino, 0, 0, 3u << 20), 0);
	blocks = blocks_of(&rig, ino);
	cr_assert_eq(blocks, 768);
	fill_up(&rig);
	for (uint64_t at = 0; at < 3u << 20; at += 64 * BLOCK_SIZE)
		write_ok(&rig, ino, at, 64 * BLOCK_SIZE);
	expect_contents(&rig, ino, 3u << 20);
	cr_assert_eq(blocks_of(&rig, ino), blocks);
	cr_assert_eq(stat_read(&rig.volume->stats, STAT_lob_write_blocks_in_place), 768);
	cr_assert_eq(rig_write(&rig, ino, 3u << 20, wanted, 100000), -ENOSPC);
	crash(&rig);
	expect_contents(&rig, ino, 3u << 20);
	rig_close(&rig);
}

/* Holes, unwritten and written blocks side by side in one write; only some need space. */
Test(core_alloc, writes_over_all_kinds)
{
	struct rig rig;
	uint64_t ino, seed = 3;

	open_rig(&rig);
	ino = rig_file(&rig, INO_ROOT, "f");
	write_ok(&rig, ino, 200 * BLOCK_SIZE - 1, 1);
	for (unsigned i = 0; i < 300; i++) {
		uint64_t at = random_next(&seed) % (190 * BLOCK_SIZE);
		uint64_t len = 1 + random_next(&seed) % (10 * BLOCK_SIZE);

		switch (random_next(&seed) % 4) {
		case 0:
			cr_assert_eq(allocate(&rig, ino, 0, at, len), 0);
			break;
		case 1:
			cr_assert_eq(allocate(&rig, ino, PUNCH, at, len), 0);
			memset(wanted + at, 0, len);
			break;
		case 2:
			cr_assert_eq(allocate(&rig, ino, CORE_ZERO_RANGE, at, len), 0);
			memset(wanted + at, 0, len);
			break;
		default:
			write_ok(&rig, ino, at, len);
		}
		if (i % 20 == 0)
			expect_contents(&rig, ino, 200 * BLOCK_SIZE);
		if (i % 100 == 99)
			crash(&rig);
	}
	expect_contents(&rig, ino, 200 * BLOCK_SIZE);
	cr_assert_eq(rig_problems(&rig), 0);
	cr_assert_eq(rig_truncate(&rig, ino, 0), 0);
	cr_assert_eq(blocks_of(&rig, ino), 0);
	rig_close(&rig);
}

Test(core_alloc, holes_with_edges)
{
	struct rig rig;
	uint64_t ino;

	open_rig(&rig);
	ino = rig_file(&rig, INO_ROOT, "f");
	write_ok(&rig, ino, 0, 10 * BLOCK_SIZE + 100);
	cr_assert_eq(allocate(&rig, ino, PUNCH, 100, 50), 0); /* in one block */
	memset(wanted + 100, 0, 50);
	cr_assert_eq(blocks_of(&rig, ino), 11);
	cr_assert_eq(allocate(&rig, ino, PUNCH, BLOCK_SIZE + 1, 3 * BLOCK_SIZE), 0);
	memset(wanted + BLOCK_SIZE + 1, 0, 3 * BLOCK_SIZE);
	cr_assert_eq(blocks_of(&rig, ino), 9);
	expect_contents(&rig, ino, 10 * BLOCK_SIZE + 100);
	/* Again: the edges hold zeros, nothing else changes. */
	cr_assert_eq(allocate(&rig, ino, PUNCH, BLOCK_SIZE + 1, 3 * BLOCK_SIZE), 0);
	cr_assert_eq(blocks_of(&rig, ino), 9);
	cr_assert_eq(seek(&rig, ino, BLOCK_SIZE, SEEK_HOLE), 2 * BLOCK_SIZE);
	/* To the end and beyond: no edge there. */
	cr_assert_eq(allocate(&rig, ino, PUNCH, 9 * BLOCK_SIZE, 100 * BLOCK_SIZE), 0);
	memset(wanted + 9 * BLOCK_SIZE, 0, BLOCK_SIZE + 100);
	cr_assert_eq(blocks_of(&rig, ino), 7);
	expect_contents(&rig, ino, 10 * BLOCK_SIZE + 100);
	cr_assert_eq(allocate(&rig, ino, PUNCH, 0, INT64_MAX), 0);
	cr_assert_eq(blocks_of(&rig, ino), 0);
	memset(wanted, 0, 9 * BLOCK_SIZE);
	expect_contents(&rig, ino, 10 * BLOCK_SIZE + 100);
	rig_close(&rig);
}

Test(core_alloc, inline_contents)
{
	struct rig rig;
	uint64_t ino;

	open_rig(&rig);
	ino = rig_file(&rig, INO_ROOT, "f");
	write_ok(&rig, ino, 0, 1000);
	cr_assert_eq(allocate(&rig, ino, PUNCH, 900, 5000), 0);
	memset(wanted + 900, 0, 100);
	expect_contents(&rig, ino, 1000);
	cr_assert_eq(allocate(&rig, ino, CORE_ZERO_RANGE, 10, 1500), 0);
	memset(wanted + 10, 0, 990);
	expect_contents(&rig, ino, 1510);
	cr_assert_eq(blocks_of(&rig, ino), 0);
	cr_assert_eq(allocate(&rig, ino, CORE_ZERO_RANGE, 8, 20000), 0);
	wanted[8] = wanted[9] = 0;
	expect_contents(&rig, ino, 20008);
	cr_assert_eq(blocks_of(&rig, ino), 5);
	rig_close(&rig);
}

/* INV-LOB-2: more extents than an mtr can take are dead at once, and go later. */
static void many_extents(unsigned mode, bool orphan)
{
	const unsigned blocks = 700;
	struct rig rig;
	uint64_t ino;

	open_rig(&rig);
	ino = rig_held_file(&rig, INO_ROOT, "f");
	write_backwards(&rig, ino, blocks);
	if (orphan)
		cr_assert_eq(rig_unlink(&rig, INO_ROOT, "f"), 0);
	cr_assert_eq(allocate(&rig, ino, mode, 5000, 600 * BLOCK_SIZE), 0);
	memset(wanted + 5000, 0, 600 * BLOCK_SIZE);
	expect_contents(&rig, ino, blocks * BLOCK_SIZE);
	rig_purge(&rig);
	cr_assert_eq(blocks_of(&rig, ino), mode == PUNCH ? blocks - 599 : blocks);
	write_ok(&rig, ino, 90000, 30000);
	if (!orphan)
		crash(&rig);
	expect_contents(&rig, ino, blocks * BLOCK_SIZE);
	if (orphan)
		core_forget(rig.core, ino, 1);
	rig_close(&rig);
}

Test(core_alloc, ranges_of_many_extents)
{
	many_extents(PUNCH, false);
	many_extents(PUNCH, true);
	many_extents(CORE_ZERO_RANGE, false);
}

/* A long one is left to purge: its record survives a crash, and its blocks come back once. */
Test(core_alloc, a_long_hole_is_left_to_purge)
{
	struct rig rig;
	uint64_t ino;

	open_rig(&rig);
	ino = rig_file(&rig, INO_ROOT, "f");
	write_backwards(&rig, ino, 400);
	cr_assert_eq(allocate(&rig, ino, PUNCH, 5000, 20u << 20), 0);
	memset(wanted + 5000, 0, sizeof(wanted) - 5000);
	expect_contents(&rig, ino, 400 * BLOCK_SIZE);
	cr_assert_gt(blocks_of(&rig, ino), 2);
	crash(&rig);
	expect_contents(&rig, ino, 400 * BLOCK_SIZE);
	rig_purge(&rig);
	cr_assert_eq(blocks_of(&rig, ino), 2);
	write_ok(&rig, ino, 90000, 30000);
	expect_contents(&rig, ino, 400 * BLOCK_SIZE);
	rig_close(&rig);
}

/* Blocks behind the size belong to the file until somebody sets its size, or removes it. */
Test(core_alloc, what_lies_behind_the_size)
{
	struct rig rig;
	uint64_t ino, free_before;
	struct statvfs st;

	open_rig(&rig);
	ino = rig_file(&rig, INO_ROOT, "f");
	write_ok(&rig, ino, 0, 20000);
	cr_assert_eq(core_statfs(rig.core, VIEW_BASE, &st), 0);
	free_before = st.f_bfree;
	cr_assert_eq(allocate(&rig, ino, CORE_KEEP_SIZE, 0, 2u << 20), 0);
	cr_assert_eq(blocks_of(&rig, ino), 512);
	cr_assert_eq(core_statfs(rig.core, VIEW_BASE, &st), 0);
	cr_assert_leq(st.f_bfree, free_before - 507);
	cr_assert_eq(rig_truncate(&rig, ino, 20000), 0);
	cr_assert_eq(blocks_of(&rig, ino), 5);
	cr_assert_eq(allocate(&rig, ino, CORE_KEEP_SIZE, 0, 2u << 20), 0);
	cr_assert_eq(rig_truncate(&rig, ino, 100000), 0);
	cr_assert_eq(blocks_of(&rig, ino), 512);
	expect_contents(&rig, ino, 100000);
	cr_assert_eq(rig_truncate(&rig, ino, 50000), 0);
	cr_assert_eq(blocks_of(&rig, ino), 13);
	cr_assert_eq(allocate(&rig, ino, CORE_KEEP_SIZE, 0, 2u << 20), 0);
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "f"), 0);
	rig_purge(&rig);
	cr_assert_eq(core_statfs(rig.core, VIEW_BASE, &st), 0);
	cr_assert_geq(st.f_bfree, free_before);
	rig_close(&rig);
}

Test(core_alloc, refusals)
{
	struct rig rig;
	uint64_t ino, dir;

	open_rig(&rig);
	ino = rig_file(&rig, INO_ROOT, "f");
	dir = rig_dir(&rig, INO_ROOT, "d");
	write_ok(&rig, ino, 0, 20000);
	cr_assert_eq(allocate(&rig, ino, 0, 0, 0), -EINVAL);
	cr_assert_eq(allocate(&rig, ino, CORE_PUNCH_HOLE, 0, 1), -EOPNOTSUPP);
	cr_assert_eq(allocate(&rig, ino, PUNCH | CORE_ZERO_RANGE, 0, 1), -EOPNOTSUPP);
	cr_assert_eq(allocate(&rig, ino, 64, 0, 1), -EOPNOTSUPP);
	cr_assert_eq(allocate(&rig, ino, 0, INT64_MAX, 1), -EFBIG);
	cr_assert_eq(allocate(&rig, ino, 0, 1, UINT64_MAX), -EFBIG);
	cr_assert_eq(allocate(&rig, dir, 0, 0, 1), -EISDIR);
	cr_assert_eq(allocate(&rig, 12345, 0, 0, 1), -ENOENT);
	/* More than there is: nothing is taken for it. */
	cr_assert_eq(allocate(&rig, ino, 0, 0, 1ull << 40), -ENOSPC);
	cr_assert_eq(blocks_of(&rig, ino), 5);
	expect_contents(&rig, ino, 20000);
	/* Zeros want blocks of their own before the old ones go. */
	fill_up(&rig);
	cr_assert_eq(allocate(&rig, ino, CORE_ZERO_RANGE, 0, 20000), -ENOSPC);
	expect_contents(&rig, ino, 20000);
	cr_assert_eq(allocate(&rig, ino, PUNCH, 100, 19000), 0);
	memset(wanted + 100, 0, 19000);
	expect_contents(&rig, ino, 20000);
	rig_close(&rig);
}
