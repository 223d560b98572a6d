/* fallocate beside copies that share blocks: in place only what nobody else has. */
#include "engine/base/error.h"
#include "engine/volume.h"
#include "tests/lib/core_rig.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define BYTES_MAX (6u << 20)
#define PUNCH (CORE_PUNCH_HOLE | CORE_KEEP_SIZE)

static struct rig rig;
static uint8_t found[BYTES_MAX];

/* A file and what is in it. */
struct file {
	uint64_t ino, size;
	uint8_t bytes[BYTES_MAX];
};
static struct file a, b;

static void open_rig(uint32_t page_size)
{
	rig_open(&rig, 48u << 20, page_size, false);
	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	a.ino = rig_file(&rig, INO_ROOT, "a");
	b.ino = rig_file(&rig, INO_ROOT, "b");
}

static void grow(struct file *f, uint64_t end)
{
	if (f->size < end)
		f->size = end;
}

static void allocate(struct file *f, unsigned mode, uint64_t offset, uint64_t len)
{
	cr_assert_eq(core_fallocate(rig.core, VIEW_BASE, f->ino, mode, offset, len), 0);
	if (mode & (CORE_PUNCH_HOLE | CORE_ZERO_RANGE))
		memset(f->bytes + offset, 0, len);
	if (!(mode & CORE_KEEP_SIZE))
		grow(f, offset + len);
}

static void write_to(struct file *f, uint64_t offset, size_t len)
{
	static uint64_t seed;

	rig_fill(f->bytes + offset, len, ++seed);
	cr_assert_eq(rig_write(&rig, f->ino, offset, f->bytes + offset, len), 0);
	grow(f, offset + len);
}

static void copy(struct file *from, uint64_t in, struct file *to, uint64_t out, uint64_t len)
{
	uint64_t done = 0;

	cr_assert_eq(core_copy(rig.core, VIEW_BASE, from->ino, in, to->ino, out, len, &done), 0);
	cr_assert_eq(done, len);
	memmove(to->bytes + out, from->bytes + in, len);
	grow(to, out + len);
}

static void expect(const struct file *f)
{
	size_t done;

	cr_assert_eq(rig_attr(&rig, f->ino).size, f->size);
	cr_assert_eq(core_read(rig.core, VIEW_BASE, f->ino, 0, found, BYTES_MAX, &done), 0);
	cr_assert_eq(done, f->size);
	for (size_t i = 0; i < done; i++)
		cr_assert_eq(found[i], f->bytes[i], "byte %zu", i);
}

static void expect_both(void)
{
	expect(&a);
	expect(&b);
	cr_assert_eq(rig_problems(&rig), 0);
}

static uint64_t blocks_of(const struct file *f)
{
	return rig_attr(&rig, f->ino).blocks_512 / 8;
}

static uint64_t stat_of(enum stat_id stat)
{
	return stat_read(&rig.volume->stats, stat);
}

static void crash(void)
{
	cr_assert_eq(volume_sync(rig.volume), 0);
	rig_reopen(&rig, true);
}

static unsigned purge_records(void)
{
	struct tree_cursor c;
	unsigned count = 0;
	int rc = tree_cursor_open(&c, &rig.volume->index[INDEX_PURGE], NULL, 0);

	while (rc == 0 && (rc = tree_cursor_next(&c)) == 0)
		count++;
	tree_cursor_close(&c);
	cr_assert_eq(rc, -BE_END);
	return count;
}

/* INV-SHARE-2: what is unwritten is a hole in the copy, and stays the source's own. */
Test(alloc_clone, unwritten_blocks_are_not_shared)
{
	uint64_t in_place;

	open_rig(4096);
	allocate(&a, 0, 0, 64 * BLOCK_SIZE);
	write_to(&a, 10 * BLOCK_SIZE, 10 * BLOCK_SIZE);
	copy(&a, 0, &b, 0, 64 * BLOCK_SIZE);
	cr_assert_eq(blocks_of(&a), 64);
	cr_assert_eq(blocks_of(&b), 10);
	expect_both();
	in_place = stat_of(STAT_lob_write_blocks_in_place);
	write_to(&a, 30 * BLOCK_SIZE, BLOCK_SIZE);
	cr_assert_eq(stat_of(STAT_lob_write_blocks_in_place), in_place + 1);
	write_to(&b, 31 * BLOCK_SIZE, BLOCK_SIZE);
	cr_assert_eq(stat_of(STAT_lob_write_blocks_in_place), in_place + 1);
	expect_both();
	/* Again, over what is unwritten in the destination: those go. */
	allocate(&b, CORE_ZERO_RANGE, 0, 64 * BLOCK_SIZE);
	cr_assert_eq(blocks_of(&b), 64);
	copy(&a, 0, &b, 0, 64 * BLOCK_SIZE);
	cr_assert_eq(blocks_of(&b), 11);
	expect_both();
	crash();
	expect_both();
	rig_close(&rig);
}

/* One write over shared, unwritten, own and no blocks: in place only the second. */
Test(alloc_clone, a_write_over_all_kinds)
{
	for (unsigned measures = 0; measures < 4; measures++) {
		uint64_t in_place;

		open_rig(4096);
		tunable_set(&rig.volume->tunables, TUNABLE_lob_two_phase, measures & 1);
		tunable_set(&rig.volume->tunables, TUNABLE_lob_batch, measures & 2);
		write_to(&a, 0, 20 * BLOCK_SIZE);
		copy(&a, 0, &b, 0, 20 * BLOCK_SIZE);
		allocate(&a, 0, 20 * BLOCK_SIZE, 20 * BLOCK_SIZE);
		write_to(&a, 50 * BLOCK_SIZE, 10 * BLOCK_SIZE);
		in_place = stat_of(STAT_lob_write_blocks_in_place);
		write_to(&a, 5 * BLOCK_SIZE + 7, 50 * BLOCK_SIZE);
		cr_assert_eq(stat_of(STAT_lob_write_blocks_in_place), in_place + 20);
		cr_assert_eq(blocks_of(&a), 60);
		expect_both();
		allocate(&a, CORE_ZERO_RANGE, 3 * BLOCK_SIZE + 1, 5 * BLOCK_SIZE);
		allocate(&a, PUNCH, 100, 3 * BLOCK_SIZE);
		expect_both();
		crash();
		expect_both();
		cr_assert_eq(rig_truncate(&rig, a.ino, 0), 0);
		expect(&b);
		rig_close(&rig);
	}
}

/* Cutting to the same size what was cut before, and has blocks behind its size. */
Test(alloc_clone, a_dead_range_and_blocks_behind_it)
{
	open_rig(4096);
	for (unsigned i = 700; i-- > 0;)
		write_to(&a, (uint64_t)i * BLOCK_SIZE, BLOCK_SIZE);
	copy(&a, 0, &b, 0, 700 * BLOCK_SIZE);
	allocate(&a, CORE_KEEP_SIZE, 700 * BLOCK_SIZE, 5000 * BLOCK_SIZE);
	for (unsigned i = 0; i < 3; i++) {
		cr_assert_eq(rig_truncate(&rig, a.ino, 10000), 0);
		memset(a.bytes + 10000, 0, BYTES_MAX - 10000);
		a.size = 10000;
		expect(&a);
		cr_assert_eq(purge_records(), i == 0, "never two for one inode");
	}
	expect_both();
	cr_assert_eq(blocks_of(&a), 3);
	rig_close(&rig);
}

/* Edges in one share, far apart: each of them lowers its count, in one mini-transaction. */
Test(alloc_clone, a_long_hole_in_one_share)
{
	uint64_t splits;

	open_rig(4096);
	for (unsigned i = 700; i-- > 0;)
		write_to(&a, (uint64_t)i * BLOCK_SIZE, BLOCK_SIZE);
	copy(&a, 0, &b, 0, 700 * BLOCK_SIZE);
	splits = stat_of(STAT_lob_split_publishes);
	allocate(&a, PUNCH, 5000, 600 * BLOCK_SIZE);
	cr_assert_eq(stat_of(STAT_lob_split_publishes), splits);
	expect_both();
	cr_assert_eq(blocks_of(&a), 101);
	allocate(&b, CORE_ZERO_RANGE, 300, 690 * BLOCK_SIZE);
	expect_both();
	crash();
	expect_both();
	rig_close(&rig);
}

/* Both edges in one extent that is shared in too many parts: the first edge goes first. */
Test(alloc_clone, a_hole_in_an_extent_of_many_shares)
{
	static struct file c;
	uint64_t splits, blocks = 1200;

	open_rig(65536);
	c = (struct file){.ino = rig_file(&rig, INO_ROOT, "c")};
	for (uint64_t at = 0; at < blocks; at += 240)
		write_to(&a, at * BLOCK_SIZE, 240 * BLOCK_SIZE);
	copy(&a, 0, &b, 0, blocks * BLOCK_SIZE);
	for (uint64_t at = 0; at < blocks; at += 2)
		copy(&a, at * BLOCK_SIZE, &c, at * BLOCK_SIZE, BLOCK_SIZE);
	splits = stat_of(STAT_lob_split_publishes);
	allocate(&a, PUNCH, 5000, 1000 * BLOCK_SIZE);
	cr_assert_eq(stat_of(STAT_lob_split_publishes), splits + 1);
	expect_both();
	expect(&c);
	crash();
	rig_purge(&rig);
	expect_both();
	cr_assert_eq(blocks_of(&a), blocks - 999);
	rig_close(&rig);
}
