/* Copies that share blocks: what is shared, what is copied, who sees what. */
#include "engine/base/error.h"
#include "engine/lob.h"
#include "fs/record.h"
#include "tests/lib/core_rig.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

#define VOLUME_BYTES (64u << 20)
#define MIB (1u << 20)
#define BYTES (3u * MIB + 1234u)

static struct rig rig;
static uint8_t *data, *found;

static void setup(void)
{
	rig_open(&rig, VOLUME_BYTES, 4096, false);
	data = malloc(2 * BYTES);
	found = malloc(2 * BYTES);
	rig_fill(data, 2 * BYTES, 1);
}

static void teardown(void)
{
	rig_close(&rig);
	free(data);
	free(found);
}

TestSuite(clone, .init = setup, .fini = teardown);

static uint64_t stat_of(enum stat_id stat)
{
	return stat_read(&rig.volume->stats, stat);
}

static uint64_t copy(uint64_t from, uint64_t offset_in, uint64_t to, uint64_t offset_out,
		     uint64_t len)
{
	uint64_t done = 0;
	int rc = core_copy(rig.core, VIEW_BASE, from, offset_in, to, offset_out, len, &done);

	cr_assert_eq(rc, 0, "copy: %s", error_text(rc));
	return done;
}

static int copy_fails(uint64_t from, uint64_t offset_in, uint64_t to, uint64_t offset_out,
		      uint64_t len)
{
	uint64_t done;
	int rc = core_copy(rig.core, VIEW_BASE, from, offset_in, to, offset_out, len, &done);

	cr_assert_eq(done, 0);
	return rc;
}

static void expect(uint64_t ino, const uint8_t *bytes, size_t len)
{
	size_t done = 0;

	cr_assert_eq(core_read(rig.core, VIEW_BASE, ino, 0, found, 2 * BYTES, &done), 0);
	cr_assert_eq(done, len);
	for (size_t i = 0; i < len; i++)
		cr_assert_eq(found[i], bytes[i], "byte %zu", i);
	cr_assert_eq(rig_attr(&rig, ino).size, len);
}

static uint64_t file_with(const char *name, const uint8_t *bytes, size_t len)
{
	uint64_t ino = rig_file(&rig, INO_ROOT, name);

	for (size_t at = 0; at < len; at += MIB)
		cr_assert_eq(rig_write(&rig, ino, at, bytes + at, len - at < MIB ? len - at : MIB),
			     0);
	return ino;
}

/* Entries of `shares`, and the blocks and references in them. */
static unsigned shares(uint64_t *blocks, uint64_t *references)
{
	struct tree_cursor c;
	unsigned count = 0;
	int rc = tree_cursor_open(&c, &rig.volume->index[INDEX_SHARES], NULL, 0);

	*blocks = *references = 0;
	while (rc == 0 && (rc = tree_cursor_next(&c)) == 0) {
		struct disk_share share;

		memcpy(&share, c.value, sizeof(share));
		*blocks += le32_get(share.length);
		*references += (uint64_t)le32_get(share.length) * le32_get(share.references);
		count++;
	}
	tree_cursor_close(&c);
	cr_assert_eq(rc, -BE_END);
	return count;
}

Test(clone, whole_file)
{
	uint64_t a = file_with("a", data, BYTES), b = rig_file(&rig, INO_ROOT, "b");
	uint64_t writes, blocks, references, n = BYTES / BLOCK_SIZE + 1;

	writes = stat_of(STAT_lob_write_blocks);
	cr_assert_eq(copy(a, 0, b, 0, 2 * BYTES), BYTES);
	cr_assert_eq(stat_of(STAT_lob_write_blocks), writes, "nothing is written");
	expect(b, data, BYTES);
	cr_assert_eq(rig_attr(&rig, b).blocks_512, rig_attr(&rig, a).blocks_512);
	cr_assert_leq(shares(&blocks, &references), 4, "neighbours are one entry");
	cr_assert_eq(blocks, n);
	cr_assert_eq(references, 2 * n);
	/* A third reference, and all of them go again. */
	cr_assert_eq(copy(b, 0, rig_file(&rig, INO_ROOT, "c"), 0, BYTES), BYTES);
	shares(&blocks, &references);
	cr_assert_eq(references, 3 * n);
	cr_assert_eq(rig_problems(&rig), 0);
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "a"), 0);
	cr_assert_eq(rig_problems(&rig), 0);
	shares(&blocks, &references);
	cr_assert_eq(references, 2 * n);
	cr_assert_eq(core_fsync(rig.core, VIEW_BASE, INO_ROOT, false), 0);
	rig_reopen(&rig, true);
	cr_assert_eq(rig_truncate(&rig, b, 0), 0);
	cr_assert_eq(rig_problems(&rig), 0);
	cr_assert_eq(shares(&blocks, &references), 0);
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "c"), 0);
	cr_assert_eq(rig_problems(&rig), 0);
}

Test(clone, either_side_is_overwritten)
{
	uint64_t a = file_with("a", data, BYTES), b = rig_file(&rig, INO_ROOT, "b");
	uint8_t *mine = malloc(BYTES), *theirs = malloc(BYTES);
	uint64_t seed = 5;

	memcpy(mine, data, BYTES);
	memcpy(theirs, data, BYTES);
	cr_assert_eq(copy(a, 0, b, 0, BYTES), BYTES);
	for (unsigned i = 0; i < 60; i++) {
		size_t at = random_next(&seed) % (BYTES - 20000);
		size_t len = 1 + random_next(&seed) % 20000;
		bool other = random_next(&seed) % 2;

		rig_fill((other ? theirs : mine) + at, len, seed);
		cr_assert_eq(rig_write(&rig, other ? b : a, at, (other ? theirs : mine) + at, len),
			     0);
	}
	expect(a, mine, BYTES);
	expect(b, theirs, BYTES);
	cr_assert_eq(rig_problems(&rig), 0);
	cr_assert_eq(core_fsync(rig.core, VIEW_BASE, INO_ROOT, false), 0);
	rig_reopen(&rig, true);
	cr_assert_eq(rig_truncate(&rig, a, 1000001), 0);
	expect(b, theirs, BYTES);
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "b"), 0);
	rig_purge(&rig);
	expect(a, mine, 1000001);
	free(mine);
	free(theirs);
}

/* At any offsets: what can be shared is, the rest is copied. */
Test(clone, any_range)
{
	uint64_t a = file_with("a", data, BYTES), seed = 9;

	for (unsigned i = 0; i < 40; i++) {
		uint64_t b = file_with("b", data + 7, MIB);
		uint64_t in = random_next(&seed) % BYTES, out = random_next(&seed) % (2 * MIB);
		uint64_t len = 1 + random_next(&seed) % (MIB / 2), want, done;
		uint8_t *bytes = calloc(1, 3 * MIB);

		if (i % 3 == 0)
			out = out / BLOCK_SIZE * BLOCK_SIZE + in % BLOCK_SIZE;
		if (i % 5 == 0)
			in = in / BLOCK_SIZE * BLOCK_SIZE, out = out / BLOCK_SIZE * BLOCK_SIZE;
		want = len < BYTES - in ? len : BYTES - in;
		memcpy(bytes, data + 7, MIB);
		memcpy(bytes + out, data + in, want);
		for (done = 0; done < want;)
			done += copy(a, in + done, b, out + done, len - done);
		cr_assert_eq(done, want);
		expect(b, bytes, out + want > MIB ? out + want : MIB);
		cr_assert_eq(rig_unlink(&rig, INO_ROOT, "b"), 0);
		free(bytes);
	}
	cr_assert_gt(stat_of(STAT_lob_clones), 10);
	expect(a, data, BYTES);
}

/* In one file, to a place that overlaps in volume blocks but not in the file. */
Test(clone, within_one_file)
{
	uint64_t a = file_with("a", data, 8 * BLOCK_SIZE), blocks, references;
	uint8_t bytes[12 * BLOCK_SIZE];

	memcpy(bytes, data, 8 * BLOCK_SIZE);
	cr_assert_eq(copy_fails(a, 0, a, 4 * BLOCK_SIZE, 5 * BLOCK_SIZE), -EINVAL);
	cr_assert_eq(copy(a, 0, a, 8 * BLOCK_SIZE, 4 * BLOCK_SIZE), 4 * BLOCK_SIZE);
	cr_assert_eq(copy(a, 0, a, 8 * BLOCK_SIZE, 4 * BLOCK_SIZE), 4 * BLOCK_SIZE);
	memcpy(bytes + 8 * BLOCK_SIZE, bytes, 4 * BLOCK_SIZE);
	expect(a, bytes, sizeof(bytes));
	shares(&blocks, &references);
	cr_assert_eq(blocks, 4);
	cr_assert_eq(references, 8);
	/* Both references fall in one mini-transaction. */
	cr_assert_eq(rig_truncate(&rig, a, 0), 0);
	cr_assert_eq(rig_problems(&rig), 0);
	cr_assert_eq(shares(&blocks, &references), 0);
}

/* Holes come along, and take the place of what was there. */
Test(clone, holes)
{
	uint64_t a = rig_file(&rig, INO_ROOT, "a"), b = file_with("b", data, 64 * BLOCK_SIZE);
	uint8_t *bytes = calloc(64, BLOCK_SIZE);

	cr_assert_eq(rig_write(&rig, a, 20 * BLOCK_SIZE, data, 2 * BLOCK_SIZE), 0);
	cr_assert_eq(rig_truncate(&rig, a, 64 * BLOCK_SIZE), 0);
	cr_assert_eq(copy(a, 0, b, 0, 64 * BLOCK_SIZE), 64 * BLOCK_SIZE);
	memcpy(bytes + 20 * BLOCK_SIZE, data, 2 * BLOCK_SIZE);
	expect(b, bytes, 64 * BLOCK_SIZE);
	cr_assert_eq(rig_attr(&rig, b).blocks_512, 2 * BLOCK_SIZE / 512);
	free(bytes);
}

/* The tail of a source is shared only where it becomes the destination's end. */
Test(clone, tails)
{
	uint64_t a = file_with("a", data, 3 * BLOCK_SIZE + 10);
	uint64_t b = file_with("b", data + 5, 5 * BLOCK_SIZE), c = rig_file(&rig, INO_ROOT, "c");
	uint8_t bytes[5 * BLOCK_SIZE];

	memcpy(bytes, data + 5, sizeof(bytes));
	memcpy(bytes, data, 3 * BLOCK_SIZE + 10);
	cr_assert_eq(copy(a, 0, b, 0, MIB), 3 * BLOCK_SIZE + 10);
	expect(b, bytes, sizeof(bytes));
	cr_assert_eq(copy(a, 0, c, 0, MIB), 3 * BLOCK_SIZE + 10);
	cr_assert_eq(rig_truncate(&rig, c, 4 * BLOCK_SIZE), 0);
	memset(bytes + 3 * BLOCK_SIZE + 10, 0, BLOCK_SIZE - 10);
	expect(c, bytes, 4 * BLOCK_SIZE);
}

Test(clone, inline_contents)
{
	uint64_t a = file_with("a", data, 300), b = file_with("b", data + 1000, 200);
	uint64_t c = file_with("c", data, 4 * BLOCK_SIZE);
	uint8_t bytes[5 * BLOCK_SIZE] = {0};

	cr_assert_eq(copy(a, 0, b, 0, 1000), 300);
	expect(b, data, 300);
	cr_assert_eq(copy(c, 0, b, BLOCK_SIZE, MIB), 4 * BLOCK_SIZE);
	memcpy(bytes, data, 300);
	memcpy(bytes + BLOCK_SIZE, data, 4 * BLOCK_SIZE);
	expect(b, bytes, sizeof(bytes));
}

Test(clone, refusals)
{
	uint64_t a = file_with("a", data, BLOCK_SIZE), dir = rig_dir(&rig, INO_ROOT, "dir");

	cr_assert_eq(copy_fails(dir, 0, a, 0, 1), -EISDIR);
	cr_assert_eq(copy_fails(a, 0, dir, 0, 1), -EISDIR);
	cr_assert_eq(copy_fails(a, 0, a, 100, 200), -EINVAL);
	cr_assert_eq(copy_fails(a, 0, a, INT64_MAX / BLOCK_SIZE * BLOCK_SIZE, BLOCK_SIZE), -EFBIG);
	cr_assert_eq(copy_fails(99999, 0, a, 0, 1), -ENOENT);
	cr_assert_eq(copy_fails(a, 5000, a, 0, 10), 0);
}

/* A long file is cloned piece by piece, also out of many small extents. */
Test(clone, many_extents)
{
	uint64_t a = rig_file(&rig, INO_ROOT, "a"), b = rig_file(&rig, INO_ROOT, "b");
	unsigned n = 300;

	/* Backwards, so that nothing can be joined. */
	for (unsigned i = n; i-- > 0;)
		cr_assert_eq(rig_write(&rig, a, (uint64_t)i * BLOCK_SIZE,
				       data + (size_t)i * BLOCK_SIZE, BLOCK_SIZE), 0);
	cr_assert_eq(copy(a, 0, b, 0, (uint64_t)n * BLOCK_SIZE), (uint64_t)n * BLOCK_SIZE);
	expect(b, data, (size_t)n * BLOCK_SIZE);
	cr_assert_geq(stat_of(STAT_lob_clones), n / CLONE_EXTENTS_MAX);
	cr_assert_eq(copy(a, 0, b, 0, (uint64_t)n * BLOCK_SIZE), (uint64_t)n * BLOCK_SIZE);
	cr_assert_eq(rig_problems(&rig), 0);
	/* One write over all of it drops a reference to each. */
	cr_assert_eq(rig_write(&rig, b, 0, data, MIB), 0);
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "a"), 0);
	cr_assert_eq(rig_problems(&rig), 0);
}

/* Every second block shared by another number of files: one write, one mini-transaction. */
Test(clone, write_over_many_shares)
{
	uint64_t a = file_with("a", data, MIB), b = rig_file(&rig, INO_ROOT, "b");
	uint64_t c = rig_file(&rig, INO_ROOT, "c"), splits, blocks, references;

	cr_assert_eq(copy(a, 0, b, 0, MIB), MIB);
	for (unsigned i = 0; i < MIB / BLOCK_SIZE; i += 2)
		cr_assert_eq(copy(a, (uint64_t)i * BLOCK_SIZE, c, (uint64_t)i * BLOCK_SIZE,
				  BLOCK_SIZE), BLOCK_SIZE);
	cr_assert_eq(shares(&blocks, &references), MIB / BLOCK_SIZE);
	splits = stat_of(STAT_lob_split_publishes);
	cr_assert_eq(rig_write(&rig, a, 0, data + MIB, MIB), 0);
	cr_assert_eq(stat_of(STAT_lob_split_publishes), splits, "the write stays whole");
	expect(b, data, MIB);
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "b"), 0);
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "c"), 0);
	cr_assert_eq(rig_problems(&rig), 0);
	cr_assert_eq(shares(&blocks, &references), 0);
}
