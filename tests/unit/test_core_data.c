/* Contents: reads, writes, truncates and seeks, against a plain array. */
#include "engine/base/error.h"
#include "engine/lob.h"
#include "fs/record.h"
#include "tests/lib/core_rig.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define VOLUME_BYTES (48u << 20)
#define MIB (1u << 20)

static struct rig rig;

static void setup(void)
{
	rig_open(&rig, VOLUME_BYTES, 4096, false);
}

static void teardown(void)
{
	rig_close(&rig);
}

TestSuite(data, .init = setup, .fini = teardown);

static size_t read_at(uint64_t ino, uint64_t offset, void *buf, size_t len)
{
	size_t done = 0;
	int rc = core_read(rig.core, VIEW_BASE, ino, offset, buf, len, &done);

	cr_assert_eq(rc, 0, "read: %s", error_text(rc));
	return done;
}

static bool is_zero(const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i])
			return false;
	return true;
}

static struct record record_of(uint64_t ino)
{
	struct record record;

	cr_assert_eq(record_read(rig.volume, ino, &record, NULL), 0);
	return record;
}

/* --- inline and not ------------------------------------------------------ */

Test(data, small_contents_are_inline)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f");
	uint8_t in[2000], out[2000];

	rig_fill(in, sizeof(in), 1);
	cr_assert_eq(read_at(f, 0, out, 100), 0);
	cr_assert_eq(rig_write(&rig, f, 0, in, 300), 0);
	cr_assert_eq(rig_write(&rig, f, 400, in + 400, 112), 0);
	cr_assert_eq(record_of(f).tail_len, 512);
	cr_assert_eq(rig_attr(&rig, f).blocks_512, 1, "nobody may take it for a hole");
	cr_assert_eq(rig_attr(&rig, f).size, 512);
	cr_assert_eq(read_at(f, 0, out, 2000), 512);
	memset(in + 300, 0, 100);
	cr_assert_eq(memcmp(in, out, 512), 0);
	cr_assert_eq(read_at(f, 500, out, 2000), 12);
	cr_assert_eq(memcmp(in + 500, out, 12), 0);
	cr_assert_eq(read_at(f, 512, out, 1), 0);
	cr_assert_eq(read_at(f, INT64_MAX, out, 1), 0);
	/* one byte more makes a LOB of it */
	cr_assert_eq(rig_write(&rig, f, 512, in + 512, 1), 0);
	cr_assert_eq(record_of(f).tail_len, 0);
	cr_assert_neq(record_of(f).lob, 0);
	cr_assert_eq(rig_attr(&rig, f).blocks_512, 8);
	cr_assert_eq(read_at(f, 0, out, 2000), 513);
	cr_assert_eq(memcmp(in, out, 513), 0);
}

Test(data, a_far_write_takes_inline_bytes_into_the_lob)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f");
	uint8_t out[8192];

	cr_assert_eq(rig_write(&rig, f, 3, "inline", 6), 0);
	cr_assert_eq(rig_write(&rig, f, 100000, "far", 3), 0);
	cr_assert_eq(rig_attr(&rig, f).size, 100003);
	cr_assert_eq(rig_attr(&rig, f).blocks_512, 16);
	cr_assert_eq(read_at(f, 0, out, 8192), 8192);
	cr_assert_eq(memcmp(out, "\0\0\0inline", 9), 0);
	cr_assert(is_zero(out + 9, 8192 - 9));
	cr_assert_eq(read_at(f, 99999, out, 100), 4);
	cr_assert_eq(memcmp(out, "\0far", 4), 0);
}

Test(data, inline_on_large_pages_spans_blocks)
{
	static uint8_t in[8192], out[16384];
	struct rig big;
	uint64_t f;
	size_t done;

	rig_open(&big, 128u << 20, 65536, false);
	f = rig_file(&big, INO_ROOT, "f");
	rig_fill(in, sizeof(in), 3);
	cr_assert_eq(rig_write(&big, f, 0, in, 8192), 0);
	cr_assert_eq(rig_attr(&big, f).blocks_512, 16);
	cr_assert_eq(rig_write(&big, f, 6000, "x", 1), 0);
	cr_assert_eq(rig_write(&big, f, 8192, "yz", 2), 0); /* both inline blocks before it */
	cr_assert_eq(rig_attr(&big, f).blocks_512, 24);
	in[6000] = 'x';
	cr_assert_eq(core_read(big.core, VIEW_BASE, f, 0, out, sizeof(out), &done), 0);
	cr_assert_eq(done, 8194);
	cr_assert_eq(memcmp(in, out, 8192), 0);
	cr_assert_eq(memcmp(out + 8192, "yz", 2), 0);
	rig_close(&big);
}

/* --- edges --------------------------------------------------------------- */

/* CASES 20 */
Test(data, truncate_and_extend_reads_zeros)
{
	static const uint64_t cuts[] = {0, 4, 4096, 5000};

	for (unsigned i = 0; i < array_count(cuts); i++) {
		static uint8_t in[8192], out[65540];
		char name[8];
		uint64_t f;

		snprintf(name, sizeof(name), "f%u", i);
		f = rig_file(&rig, INO_ROOT, name);
		rig_fill(in, sizeof(in), i);
		cr_assert_eq(rig_write(&rig, f, 0, in, sizeof(in)), 0);
		cr_assert_eq(rig_truncate(&rig, f, cuts[i]), 0);
		cr_assert_eq(rig_attr(&rig, f).size, cuts[i]);
		cr_assert_eq(rig_write(&rig, f, 65536, "tail", 4), 0);
		cr_assert_eq(read_at(f, 0, out, sizeof(out)), 65540);
		cr_assert_eq(memcmp(in, out, cuts[i]), 0);
		cr_assert(is_zero(out + cuts[i], 65536 - cuts[i]));
		cr_assert_eq(memcmp(out + 65536, "tail", 4), 0);
	}
}

/* CASES 23 */
Test(data, offsets_up_to_the_limit)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f"), g = rig_file(&rig, INO_ROOT, "g");
	char c;

	cr_assert_eq(rig_write(&rig, f, (2ull << 30) + 1, "x", 1), 0);
	cr_assert_eq(rig_attr(&rig, f).size, (2ull << 30) + 2);
	cr_assert_eq(rig_attr(&rig, f).blocks_512, 8);
	cr_assert_eq(read_at(f, 1ull << 30, &c, 1), 1);
	cr_assert_eq(c, 0);
	cr_assert_eq(rig_truncate(&rig, f, INT64_MAX), 0);
	cr_assert_eq(rig_write(&rig, f, INT64_MAX, "x", 1), -EFBIG);
	cr_assert_eq(rig_write(&rig, f, INT64_MAX - 1, "xy", 2), -EFBIG);
	cr_assert_eq(rig_write(&rig, f, INT64_MAX - 1, "x", 1), 0);
	cr_assert_eq(read_at(f, INT64_MAX - 1, &c, 1), 1);
	cr_assert_eq(c, 'x');
	cr_assert_eq(core_write(rig.core, VIEW_BASE, f, 0, "x", 1, CORE_WRITE_APPEND), -EFBIG);
	cr_assert_eq(rig_truncate(&rig, f, (uint64_t)INT64_MAX + 1), -EFBIG);
	cr_assert_eq(rig_truncate(&rig, f, 3), 0);
	cr_assert_eq(rig_truncate(&rig, g, INT64_MAX), 0);
	cr_assert_eq(rig_write(&rig, g, 0, "small", 5), 0); /* inline, all else a hole */
	cr_assert_eq(rig_attr(&rig, g).blocks_512, 1);
	cr_assert_eq(rig_attr(&rig, g).size, INT64_MAX);
}

Test(data, odd_arguments)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f"), d = rig_dir(&rig, INO_ROOT, "d");
	static uint8_t big[MIB + 1];
	size_t done;

	cr_assert_eq(rig_write(&rig, f, 0, big, MIB + 1), -EINVAL);
	cr_assert_eq(rig_write(&rig, f, 7, big, 0), 0);
	cr_assert_eq(rig_attr(&rig, f).size, 0);
	cr_assert_eq(rig_write(&rig, d, 0, big, 1), -EISDIR);
	cr_assert_eq(rig_truncate(&rig, d, 0), -EISDIR);
	cr_assert_eq(core_read(rig.core, VIEW_BASE, d, 0, big, 1, &done), -EISDIR);
	cr_assert_eq(rig_write(&rig, 99999, 0, big, 1), -ENOENT);
	cr_assert_eq(core_write(rig.core, VIEW_BASE, f, 0, big, 1, 64), -EINVAL);
	cr_assert_eq(core_write(rig.core, 5, f, 0, big, 1, 0), -EOPNOTSUPP);
}

Test(data, large_reads_cross_requests)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f");
	static uint8_t in[3 * MIB], out[3 * MIB + 10];

	rig_fill(in, sizeof(in), 5);
	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(rig_write(&rig, f, i * MIB, in + i * MIB, MIB), 0);
	cr_assert_eq(read_at(f, 0, out, sizeof(out)), sizeof(in));
	cr_assert_eq(memcmp(in, out, sizeof(in)), 0);
	cr_assert_eq(read_at(f, 777, out, sizeof(out)), sizeof(in) - 777);
	cr_assert_eq(memcmp(in + 777, out, sizeof(in) - 777), 0);
	cr_assert_eq(rig_attr(&rig, f).blocks_512, 3 * MIB / 512);
}

/* --- random operations against an array ---------------------------------- */

#define ARRAY_BYTES 300000u

struct array {
	uint64_t size;
	uint8_t bytes[ARRAY_BYTES];
};

static void compare(uint64_t f, const struct array *a, unsigned step)
{
	static uint8_t out[ARRAY_BYTES + 1];

	cr_assert_eq(rig_attr(&rig, f).size, a->size, "step %u", step);
	cr_assert_eq(read_at(f, 0, out, sizeof(out)), a->size, "step %u", step);
	cr_assert_eq(memcmp(out, a->bytes, a->size), 0, "step %u", step);
}

static void random_step(uint64_t f, struct array *a, uint64_t *seed)
{
	static uint8_t buf[ARRAY_BYTES];
	uint64_t kind = random_next(seed) % 10;
	uint64_t limit = random_next(seed) % 3 ? ARRAY_BYTES : 2000;
	uint64_t offset = random_next(seed) % limit, len = random_next(seed) % (limit - offset) + 1;

	if (random_next(seed) % 3 == 0)
		offset &= ~4095ull;
	if (kind == 0) {
		uint64_t size = random_next(seed) % 4 ? offset : 0;

		cr_assert_eq(rig_truncate(&rig, f, size), 0);
		if (size < a->size)
			memset(a->bytes + size, 0, a->size - size);
		a->size = size;
		return;
	}
	rig_fill(buf, len, random_next(seed));
	if (kind == 1 && a->size + len <= ARRAY_BYTES) {
		offset = a->size;
		cr_assert_eq(core_write(rig.core, VIEW_BASE, f, 0, buf, len, CORE_WRITE_APPEND), 0);
	} else {
		cr_assert_eq(rig_write(&rig, f, offset, buf, len), 0);
	}
	memcpy(a->bytes + offset, buf, len);
	if (offset + len > a->size)
		a->size = offset + len;
}

Test(data, random_writes_and_truncates)
{
	static struct array a;
	uint64_t seed = 20240607, f = rig_file(&rig, INO_ROOT, "f");

	for (unsigned step = 0; step < 400 * test_scale(); step++) {
		random_step(f, &a, &seed);
		compare(f, &a, step);
		if (step % 64 == 63)
			rig_purge(&rig);
		if (step % 100 == 99) {
			rig_reopen(&rig, false);
			compare(f, &a, step);
		}
	}
	rig_purge(&rig);
	cr_assert_leq(rig_attr(&rig, f).blocks_512, (ARRAY_BYTES / 4096 + 1) * 8);
}

/* --- seek ---------------------------------------------------------------- */

static int64_t seek(uint64_t f, uint64_t offset, int whence)
{
	uint64_t out;
	int rc = core_seek(rig.core, VIEW_BASE, f, offset, whence, &out);

	return rc ? rc : (int64_t)out;
}

/* CASES 21 */
Test(data, seek_data_and_hole)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f"), g = rig_file(&rig, INO_ROOT, "g");
	static uint8_t block[8192];

	cr_assert_eq(seek(f, 0, SEEK_DATA), -ENXIO);
	cr_assert_eq(seek(f, 0, SEEK_HOLE), -ENXIO);
	cr_assert_eq(seek(f, 0, SEEK_SET), -EINVAL);
	cr_assert_eq(rig_write(&rig, f, 0, block, 8192), 0);
	cr_assert_eq(seek(f, 0, SEEK_HOLE), 8192);
	cr_assert_eq(seek(f, 5000, SEEK_HOLE), 8192);
	cr_assert_eq(seek(f, 5000, SEEK_DATA), 5000);
	cr_assert_eq(seek(f, 8192, SEEK_DATA), -ENXIO);
	cr_assert_eq(rig_write(&rig, f, 40960, block, 100), 0);
	cr_assert_eq(seek(f, 100, SEEK_HOLE), 8192);
	cr_assert_eq(seek(f, 9000, SEEK_HOLE), 9000);
	cr_assert_eq(seek(f, 9000, SEEK_DATA), 40960);
	cr_assert_eq(seek(f, 40970, SEEK_HOLE), 41060);
	cr_assert_eq(rig_truncate(&rig, f, 100000), 0);
	cr_assert_eq(seek(f, 40970, SEEK_HOLE), 45056);
	cr_assert_eq(seek(f, 50000, SEEK_DATA), -ENXIO);
	cr_assert_eq(seek(f, 50000, SEEK_HOLE), 50000);
	/* inline */
	cr_assert_eq(rig_write(&rig, g, 0, block, 10), 0);
	cr_assert_eq(seek(g, 3, SEEK_DATA), 3);
	cr_assert_eq(seek(g, 3, SEEK_HOLE), 10);
	cr_assert_eq(rig_truncate(&rig, g, 1000), 0);
	cr_assert_eq(seek(g, 3, SEEK_HOLE), 10);
	cr_assert_eq(seek(g, 30, SEEK_HOLE), 30);
	cr_assert_eq(seek(g, 30, SEEK_DATA), -ENXIO);
}

/* --- space --------------------------------------------------------------- */

static uint64_t free_blocks(void)
{
	struct statvfs s;

	cr_assert_eq(core_statfs(rig.core, VIEW_BASE, &s), 0);
	return s.f_bfree;
}

Test(data, truncate_gives_blocks_back)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f"), before;
	static uint8_t buf[MIB];

	cr_assert_eq(rig_write(&rig, f, 0, buf, 8192), 0);
	before = free_blocks();
	for (unsigned i = 0; i < 8; i++)
		cr_assert_eq(rig_write(&rig, f, (uint64_t)i * MIB, buf, MIB), 0);
	cr_assert_eq(rig_truncate(&rig, f, 5000), 0);
	cr_assert_eq(rig_attr(&rig, f).blocks_512, 16); /* drained by the call itself */
	rig_purge(&rig);
	cr_assert_geq(free_blocks() + 8, before);
	cr_assert_eq(rig_write(&rig, f, 0, buf, MIB), 0);
	cr_assert_eq(rig_truncate(&rig, f, 0), 0);
	cr_assert_eq(rig_attr(&rig, f).blocks_512, 0);
	rig_purge(&rig);
	cr_assert_geq(free_blocks() + 8, before);
}

/* CASES 13, 14 */
Test(data, a_full_volume_says_so_and_recovers)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f"), g = rig_file(&rig, INO_ROOT, "g");
	uint64_t before = free_blocks(), written = 0;
	static uint8_t buf[MIB], out[MIB];
	int rc;

	rig_fill(buf, sizeof(buf), 8);
	cr_assert_eq(rig_write(&rig, g, 0, buf, 5000), 0);
	while ((rc = rig_write(&rig, f, written, buf, MIB)) == 0)
		written += MIB;
	cr_assert_eq(rc, -ENOSPC);
	while ((rc = rig_write(&rig, f, written, buf, 4096)) == 0)
		written += 4096;
	cr_assert_eq(rc, -ENOSPC);
	cr_assert_eq(core_fsync(rig.core, VIEW_BASE, f, false), 0);
	cr_assert_eq(rig_attr(&rig, f).size, written);
	cr_assert_eq(rig_write(&rig, g, 0, buf, 4096), -ENOSPC); /* not even an overwrite */
	cr_assert_eq(rig_truncate(&rig, g, 100), 0);
	cr_assert_eq(read_at(g, 0, out, MIB), 100);
	cr_assert_eq(memcmp(out, buf, 100), 0);
	cr_assert_eq(rig_unlink(&rig, INO_ROOT, "f"), 0);
	cr_assert_eq(rig_write(&rig, g, 0, buf, MIB), 0); /* drains what unlink left */
	rig_purge(&rig);
	cr_assert_geq(free_blocks() + 256 + 16, before);
}

/* Overwriting again and again needs the deferred blocks back: ENOSPC drains. */
Test(data, overwriting_a_nearly_full_volume)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f"), blocks = free_blocks() / 2;
	static uint8_t buf[MIB];

	for (uint64_t b = 0; b + 256 < blocks; b += 256)
		cr_assert_eq(rig_write(&rig, f, b * 4096, buf, MIB), 0);
	for (unsigned round = 0; round < 60; round++) {
		int rc = rig_write(&rig, f, (uint64_t)(round % 8) * MIB, buf, MIB);

		cr_assert_eq(rc, 0, "round %u: %s", round, error_text(rc));
	}
}

/* No two free blocks side by side: still one publication, so one atomic write. */
Test(data, a_large_write_on_scattered_space)
{
	static uint8_t block[BLOCK_SIZE], buf[MIB], found[MIB];
	static uint64_t inos[VOLUME_BYTES / BLOCK_SIZE];
	const uint64_t splits = stat_read(&rig.volume->stats, STAT_lob_split_publishes);
	uint64_t large = rig_file(&rig, INO_ROOT, "large");
	unsigned files = 0;
	char name[16];

	rig_fill(block, sizeof(block), 1);
	rig_fill(buf, sizeof(buf), 2);
	for (;;) {
		snprintf(name, sizeof(name), "%u", files);
		inos[files] = rig_file(&rig, INO_ROOT, name);
		if (!inos[files] || rig_write(&rig, inos[files], 0, block, sizeof(block)) != 0)
			break;
		files++;
	}
	for (unsigned i = 0; i < files; i += 2)
		cr_assert_eq(rig_truncate(&rig, inos[i], 0), 0);
	cr_assert_eq(rig_write(&rig, large, 100, buf, sizeof(buf) - 100), 0);
	cr_assert_eq(stat_read(&rig.volume->stats, STAT_lob_split_publishes), splits);
	cr_assert_eq(read_at(large, 100, found, sizeof(found)), sizeof(buf) - 100);
	cr_assert_eq(memcmp(found, buf, sizeof(buf) - 100), 0);
}

/* --- damage -------------------------------------------------------------- */

/* INV-LOB-4: a mismatch is EIO for that block alone, and counted. */
Test(data, a_changed_data_block_is_an_error)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f"), start;
	uint8_t buf[16384], bad[16];
	struct record record;
	struct lob_map map;
	size_t done;

	rig_fill(buf, sizeof(buf), 1);
	cr_assert_eq(rig_write(&rig, f, 0, buf, sizeof(buf)), 0);
	record = record_of(f);
	lob_map_init(&map);
	cr_assert_eq(lob_map_read(rig.volume, record.lob, 2, 1, 0, 0, &map), 0);
	start = map.run[0].start;
	lob_map_free(&map);
	memset(bad, 0xaa, sizeof(bad));
	cr_assert_eq(dev_write(rig.dev, bad, sizeof(bad), start * BLOCK_SIZE + 100), 0);
	cr_assert_eq(core_read(rig.core, VIEW_BASE, f, 0, buf, sizeof(buf), &done), -EIO);
	cr_assert_eq(read_at(f, 0, buf, 8192), 8192);
	cr_assert_eq(read_at(f, 12288, buf, 4096), 4096);
	cr_assert_geq(stat_read(&rig.volume->stats, STAT_lob_crc_errors), 2);
	cr_assert_eq(rig_write(&rig, f, 8200, "x", 1), -EIO); /* would bless the damage */
	cr_assert_eq(rig_write(&rig, f, 8192, buf, 4096), 0);  /* replaces it */
	cr_assert_eq(read_at(f, 0, buf, 16384), 16384);
}

/* --- many threads -------------------------------------------------------- */

#define APPENDERS 4
#define APPENDS 150
#define APPEND_BYTES 96

static void *append(void *arg)
{
	uint8_t record[APPEND_BYTES];
	uint64_t f = *(uint64_t *)arg;

	for (unsigned i = 0; i < APPENDS; i++) {
		memset(record, (int)(i % 250 + 1), sizeof(record));
		if (core_write(rig.core, VIEW_BASE, f, 0, record, sizeof(record),
			       CORE_WRITE_APPEND))
			abort();
	}
	return NULL;
}

/* CASES 17 */
Test(data, appends_of_two_threads_stay_whole)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f");
	static uint8_t out[APPENDERS * APPENDS * APPEND_BYTES + 1];
	pthread_t thread[APPENDERS];

	for (unsigned i = 0; i < APPENDERS; i++)
		pthread_create(&thread[i], NULL, append, &f);
	for (unsigned i = 0; i < APPENDERS; i++)
		pthread_join(thread[i], NULL);
	cr_assert_eq(read_at(f, 0, out, sizeof(out)), sizeof(out) - 1);
	for (size_t at = 0; at < sizeof(out) - 1; at += APPEND_BYTES)
		for (unsigned i = 1; i < APPEND_BYTES; i++)
			cr_assert_eq(out[at + i], out[at]);
}

#define STRIPES 4
#define STRIPE_ROUNDS 60

struct stripe {
	uint64_t ino;
	unsigned number;
};

/* Each thread has every fourth block and a bit, so that writers meet in blocks. */
static void *write_stripe(void *arg)
{
	struct stripe *s = arg;
	uint8_t buf[1500];

	memset(buf, (int)s->number + 1, sizeof(buf));
	for (unsigned i = 0; i < STRIPE_ROUNDS; i++)
		if (rig_write(&rig, s->ino, (uint64_t)(i * STRIPES + s->number) * sizeof(buf), buf,
			      sizeof(buf)))
			abort();
	return NULL;
}

/* INV-LOB-1: writers of parts of one block, and of the size, do not lose each other's work. */
Test(data, writers_that_share_blocks)
{
	uint64_t f = rig_file(&rig, INO_ROOT, "f");
	static uint8_t out[STRIPES * STRIPE_ROUNDS * 1500];
	struct stripe stripe[STRIPES];
	pthread_t thread[STRIPES];

	for (unsigned i = 0; i < STRIPES; i++) {
		stripe[i] = (struct stripe){.ino = f, .number = i};
		pthread_create(&thread[i], NULL, write_stripe, &stripe[i]);
	}
	for (unsigned i = 0; i < STRIPES; i++)
		pthread_join(thread[i], NULL);
	cr_assert_eq(rig_attr(&rig, f).size, sizeof(out));
	cr_assert_eq(read_at(f, 0, out, sizeof(out)), sizeof(out));
	for (size_t i = 0; i < sizeof(out); i++)
		cr_assert_eq(out[i], i / 1500 % STRIPES + 1);
	cr_assert_eq(rig_attr(&rig, f).blocks_512, (sizeof(out) / 4096 + 1) * 8);
}
