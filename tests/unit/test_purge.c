/* Purge: each kind of record, with a crash after each step, claims, the queue. */
#include "engine/purge_internal.h"

#include "engine/lob_internal.h"
#include "engine/space.h"
#include "tests/lib/lob_rig.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>

#define VOLUME_BYTES (24u << 20)
#define LOG_BYTES (1u << 20)
#define INO 500u
#define LOB 70u

static struct volume *fresh(void)
{
	return lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
}

static struct volume *crash(struct volume *v)
{
	cr_assert_eq(volume_sync(v), 0);
	return lob_rig_open(scratch_crash(v));
}

/* --------------------------------------------------------- making of records */

struct put {
	unsigned index;
	const void *key;
	size_t key_len;
	const void *value;
	size_t len;
};

static void put_all(struct volume *v, const struct put *put, unsigned count)
{
	struct mtr *m;
	int rc;

	cr_assert_eq(mtr_begin(v, 0, &m), 0);
	for (unsigned i = 0; i < count; i++)
		mtr_want_key(m, put[i].index, put[i].key, put[i].key_len);
	do {
		cr_assert_eq(mtr_latch(m), 0);
		for (unsigned i = 0; i < count; i++)
			mtr_put(m, put[i].index, put[i].key, put[i].key_len, put[i].value,
				put[i].len);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	cr_assert_eq(rc, 0);
	mtr_end(m);
}

static uint64_t enqueue(struct volume *v, enum purge_kind kind, uint64_t ino, uint64_t lob,
			uint64_t first, uint64_t end)
{
	struct mtr *m;
	uint64_t number;
	int rc;

	cr_assert_eq(id_take(v, COUNTER_PURGE, &number), 0);
	cr_assert_eq(mtr_begin(v, 0, &m), 0);
	purge_want(m, number);
	do {
		cr_assert_eq(mtr_latch(m), 0);
		purge_stage(m, number, kind, ino, lob, first, end);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	cr_assert_eq(rc, 0);
	mtr_end(m);
	return number;
}

static void put_inode(struct volume *v, uint64_t ino, const struct disk_inode *inode)
{
	uint8_t key[KEY_INODE_BYTES];

	be64_put(key, ino);
	put_all(v, &(struct put){INDEX_INODES, key, sizeof(key), inode, sizeof(*inode)}, 1);
}

static int get_inode(struct volume *v, uint64_t ino, struct disk_inode *inode)
{
	uint8_t key[KEY_INODE_BYTES];
	size_t len;

	be64_put(key, ino);
	return tree_get(&v->index[INDEX_INODES], key, sizeof(key), inode, sizeof(*inode), &len);
}

static void put_xattr(struct volume *v, uint64_t ino, uint64_t hash, uint64_t lob)
{
	struct {
		struct disk_xattr head;
		uint8_t name[4], value[30];
	} x = {
		.head = {
			.lob = le64_make(lob),
			.value_len = le32_make(lob ? BLOCK_SIZE : 30),
			.flags = lob ? XATTR_EXTERNAL : 0,
			.name_len = 4,
		},
	};
	uint8_t key[KEY_XATTR_BYTES];

	be64_put(key, ino);
	be64_put(key + 8, hash);
	put_all(v,
		&(struct put){INDEX_XATTRS, key, sizeof(key), &x,
			      lob ? sizeof(x.head) + sizeof(x.name) : sizeof(x)},
		1);
}

static unsigned entries(struct volume *v, unsigned index)
{
	struct tree_cursor c;
	unsigned count = 0;
	int rc = tree_cursor_open(&c, &v->index[index], NULL, 0);

	while (rc == 0 && (rc = tree_cursor_next(&c)) == 0)
		count++;
	tree_cursor_close(&c);
	cr_assert_eq(rc, -BE_END);
	return count;
}

static void write_blocks(struct volume *v, uint64_t lob, uint64_t first, uint32_t blocks,
			 uint32_t version)
{
	cr_assert_eq(lob_rig_write(v, lob, first, blocks, version, 0, NULL), 0);
}

/* Every second block: one extent each. */
static void write_scattered(struct volume *v, uint64_t lob, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		write_blocks(v, lob, 2 * i, 1, 1);
}

static uint64_t blocks_of(struct volume *v, uint64_t lob)
{
	uint64_t blocks;

	lob_rig_extents(v, lob, &blocks);
	return blocks;
}

/* ----------------------------------------------------------------- each kind */

/* INV-LOB-3: after a crash behind any step exactly the rest is left to do. */
Test(purge, lob_in_bounded_steps_with_crashes)
{
	struct volume *v = fresh();
	struct purge_record record;
	uint64_t number, bits, left, before, first = 0;
	unsigned steps = 0;
	int rc;

	write_scattered(v, LOB, 300);
	bits = lob_rig_bits(v) - 300;
	write_blocks(v, LOB + 1, 0, 100, 3);
	number = enqueue(v, PURGE_LOB, 0, LOB, 0, UINT64_MAX);
	do {
		before = blocks_of(v, LOB);
		cr_assert_eq(purge_record_read(v, number, &record), 0);
		cr_assert(steps == 0 || record.first > first);
		first = record.first;
		rc = purge_lob_step(v, number, &record);
		cr_assert_geq(rc, 0);
		v = crash(v);
		left = blocks_of(v, LOB);
		cr_assert_leq(before - left, HOLE_EXTENTS_MAX);
		cr_assert(left < before || rc == STEP_DONE);
		cr_assert_eq(scratch_problems(v), 0);
		cr_assert_lt(++steps, 20);
	} while (rc == 0);
	cr_assert_gt(steps, 3);
	cr_assert_eq(left, 0);
	cr_assert_eq(entries(v, INDEX_PURGE), 0);
	cr_assert_eq(blocks_of(v, LOB + 1), 100);
	cr_assert_leq(lob_rig_bits(v), bits + 100 + 8); /* and a page or two of the index */
	cr_assert_eq(volume_close(v), 0);
}

static uint64_t pages_of(struct volume *v)
{
	struct check_report report = {.problems = 0};

	cr_assert_eq(volume_check(v, &report), 0);
	cr_assert_eq(report.problems, 0);
	return report.pages;
}

/* The index shrinks with the LOB, also when one mtr empties many leaves. */
Test(purge, emptied_leaves_are_merged)
{
	enum { LEAVES = 100 };
	struct volume *v = fresh();
	uint64_t pages = pages_of(v);

	for (unsigned i = 0; i < LEAVES; i++)
		write_blocks(v, LOB, 10 * i, 1, 1);
	for (unsigned i = 1; i < LEAVES; i++) {
		struct key at = lob_key(LOB, 10 * i);

		cr_assert_eq(tree_split(&v->index[INDEX_LOB], &at, 0, 0), 0);
	}
	cr_assert_geq(pages_of(v), pages + LEAVES - 1);
	enqueue(v, PURGE_LOB, 0, LOB, 0, UINT64_MAX);
	cr_assert_eq(purge_drain(v->purge, NULL), 0);
	cr_assert_leq(pages_of(v), pages + 5);
	cr_assert_eq(volume_close(v), 0);
}

Test(purge, lob_without_extents)
{
	struct volume *v = fresh();
	bool worked;

	enqueue(v, PURGE_LOB, 0, LOB, 0, UINT64_MAX);
	cr_assert_eq(purge_drain(v->purge, &worked), 0);
	cr_assert(worked);
	cr_assert_eq(entries(v, INDEX_PURGE), 0);
	cr_assert_eq(purge_drain(v->purge, &worked), 0);
	cr_assert_not(worked);
	cr_assert_eq(volume_close(v), 0);
}

Test(purge, part_of_a_lob)
{
	struct volume *v = fresh();
	uint32_t found[100];

	write_blocks(v, LOB, 0, 100, 7);
	enqueue(v, PURGE_LOB, 0, LOB, 20, 60);
	cr_assert_eq(purge_drain(v->purge, NULL), 0);
	cr_assert_eq(lob_rig_read(v, LOB, 0, 100, found), 0);
	for (unsigned b = 0; b < 100; b++)
		cr_assert_eq(found[b], b >= 20 && b < 60 ? 0 : 7);
	cr_assert_eq(scratch_problems(v), 0);
	cr_assert_eq(volume_close(v), 0);
}

static uint64_t make_orphan(struct volume *v, unsigned xattrs)
{
	uint64_t number = enqueue(v, PURGE_ORPHAN, INO, LOB, 0, UINT64_MAX);
	struct disk_inode inode = {
		.mode = le32_make(0100600),
		.lob = le64_make(LOB),
		.blocks = le64_make(100),
		.xattr_count = le32_make(xattrs),
		.purge_key = le64_make(number),
	};

	put_inode(v, INO, &inode);
	for (unsigned i = 0; i < xattrs; i++) {
		uint64_t lob = i % 3 == 0 ? 1000 + i : 0;

		put_xattr(v, INO, i << 7, lob);
		if (lob)
			write_blocks(v, lob, 0, 16, 1);
	}
	put_xattr(v, INO + 1, 5 << 7, 0); /* a neighbour's */
	return number;
}

Test(purge, orphan_with_xattrs_with_crashes)
{
	struct volume *v = fresh();
	struct disk_inode inode;
	uint64_t number;
	unsigned steps = 0;
	int rc;

	write_blocks(v, LOB, 0, 100, 1);
	number = make_orphan(v, 20);
	do {
		rc = purge_orphan_step(v, number, INO);
		cr_assert_geq(rc, 0);
		v = crash(v);
		cr_assert_eq(scratch_problems(v), 0);
		cr_assert_eq(get_inode(v, INO, &inode), rc == STEP_GONE ? -BE_NOTFOUND : 0);
		if (rc != STEP_GONE)
			cr_assert_eq(entries(v, INDEX_XATTRS) - 1, le32_get(inode.xattr_count));
		cr_assert_lt(++steps, 10);
	} while (rc == 0);
	cr_assert_eq(rc, STEP_GONE);
	cr_assert_gt(steps, 2);
	cr_assert_eq(purge_drain(v->purge, NULL), 0);
	cr_assert_eq(entries(v, INDEX_PURGE), 0);
	cr_assert_eq(entries(v, INDEX_XATTRS), 1);
	cr_assert_eq(entries(v, INDEX_LOB), 0);
	cr_assert_eq(scratch_problems(v), 0);
	cr_assert_eq(volume_close(v), 0);
}

Test(purge, orphan_that_got_a_name_back_is_left_alone)
{
	struct volume *v = fresh();
	uint64_t number;
	struct disk_inode inode;

	write_blocks(v, LOB, 0, 100, 1);
	number = make_orphan(v, 2);
	cr_assert_eq(get_inode(v, INO, &inode), 0);
	inode.nlink = le32_make(1);
	inode.purge_key = le64_make(0);
	put_inode(v, INO, &inode);
	cr_assert_eq(purge_orphan_step(v, number, INO), STEP_DONE);
	cr_assert_eq(purge_drain(v->purge, NULL), 0);
	cr_assert_eq(get_inode(v, INO, &inode), 0);
	cr_assert_eq(entries(v, INDEX_PURGE), 0);
	cr_assert_eq(blocks_of(v, LOB), 100);
	cr_assert_eq(entries(v, INDEX_XATTRS), 3);
	cr_assert_eq(volume_close(v), 0);
}

static uint64_t make_dead(struct volume *v, uint32_t nlink, uint64_t first, uint64_t end,
			  uint64_t blocks)
{
	uint64_t number = enqueue(v, nlink ? PURGE_DEAD : PURGE_ORPHAN, INO, LOB, first, end);
	struct disk_inode inode = {
		.mode = le32_make(0100600),
		.nlink = le32_make(nlink),
		.lob = le64_make(LOB),
		.blocks = le64_make(blocks),
		.dead_first = le64_make(first),
		.dead_end = le64_make(end),
		.purge_key = le64_make(number),
	};

	put_inode(v, INO, &inode);
	return number;
}

static void check_dead(struct volume *v, uint64_t *dead_first)
{
	struct disk_inode inode;

	cr_assert_eq(get_inode(v, INO, &inode), 0);
	cr_assert_eq(le64_get(inode.blocks), blocks_of(v, LOB));
	*dead_first = le64_get(inode.dead_first);
	cr_assert_eq(scratch_problems(v), 0);
}

Test(purge, dead_range_with_crashes)
{
	struct volume *v = fresh();
	uint64_t number, dead_first, last = 0;
	unsigned steps = 0;
	uint32_t found[420];
	struct disk_inode inode;
	int rc;

	write_scattered(v, LOB, 200);
	write_blocks(v, LOB, 400, 20, 2);
	number = make_dead(v, 1, 11, 410, 220);
	do {
		rc = purge_dead_step(v, number, INO);
		cr_assert_geq(rc, 0);
		v = crash(v);
		check_dead(v, &dead_first);
		cr_assert(rc == STEP_DONE || dead_first > last);
		last = dead_first;
		cr_assert_lt(++steps, 20);
	} while (rc == 0);
	cr_assert_gt(steps, 2);
	cr_assert_eq(get_inode(v, INO, &inode), 0);
	cr_assert_eq(le64_get(inode.dead_end), 0);
	cr_assert_eq(le64_get(inode.purge_key), 0);
	cr_assert_eq(entries(v, INDEX_PURGE), 0);
	cr_assert_eq(lob_rig_read(v, LOB, 0, 420, found), 0);
	for (unsigned b = 0; b < 420; b++)
		cr_assert_eq(found[b], b < 11 ? b % 2 == 0 : b < 410 ? 0 : 2);
	cr_assert_eq(volume_close(v), 0);
}

Test(purge, writer_drains_a_dead_range)
{
	struct volume *v = fresh();
	struct disk_inode inode;

	write_scattered(v, LOB, 150);
	make_dead(v, 1, 100, UINT64_MAX, 150);
	cr_assert_eq(purge_dead_range(v, INO), 0);
	cr_assert_eq(blocks_of(v, LOB), 50);
	cr_assert_eq(get_inode(v, INO, &inode), 0);
	cr_assert_eq(le64_get(inode.blocks), 50);
	cr_assert_eq(entries(v, INDEX_PURGE), 0);
	cr_assert_eq(purge_dead_range(v, INO), 0);
	cr_assert_eq(purge_dead_range(v, INO + 1), 0);
	cr_assert_eq(volume_close(v), 0);
}

/* The dead range of an orphan has no record of its own: the orphan's must stay. */
Test(purge, dead_range_of_an_orphan)
{
	struct volume *v = fresh();
	struct disk_inode inode;
	uint64_t number;

	write_scattered(v, LOB, 100);
	number = make_dead(v, 0, 100, UINT64_MAX, 100);
	cr_assert_eq(purge_dead_range(v, INO), 0);
	cr_assert_eq(get_inode(v, INO, &inode), 0);
	cr_assert_eq(le64_get(inode.purge_key), number);
	cr_assert_eq(le64_get(inode.dead_end), 0);
	cr_assert_eq(entries(v, INDEX_PURGE), 1);
	cr_assert_eq(purge_drain(v->purge, NULL), 0);
	cr_assert_eq(get_inode(v, INO, &inode), -BE_NOTFOUND);
	cr_assert_eq(entries(v, INDEX_LOB), 0);
	cr_assert_eq(scratch_problems(v), 0);
	cr_assert_eq(volume_close(v), 0);
}

/* A record whose inode names another one has been taken over. */
Test(purge, overtaken_records_are_dropped)
{
	struct volume *v = fresh();
	struct disk_inode inode;
	uint64_t number;

	write_blocks(v, LOB, 0, 50, 1);
	number = make_dead(v, 1, 10, 40, 50);
	enqueue(v, PURGE_DEAD, INO, LOB, 0, 50);
	enqueue(v, PURGE_DEAD, INO + 7, LOB, 0, 50);
	enqueue(v, PURGE_ORPHAN, INO + 8, 0, 0, 0);
	cr_assert_eq(purge_drain(v->purge, NULL), 0);
	cr_assert_eq(entries(v, INDEX_PURGE), 0);
	cr_assert_eq(blocks_of(v, LOB), 20);
	cr_assert_eq(get_inode(v, INO, &inode), 0);
	cr_assert_neq(number, 0);
	cr_assert_eq(volume_close(v), 0);
}

Test(purge, block_list)
{
	enum { RUNS = 70 };
	struct volume *v = fresh();
	struct {
		struct disk_purge head;
		struct disk_purge_extent run[RUNS];
	} record = {.head = {.kind = PURGE_EXTENTS, .count = le32_make(RUNS)}};
	uint64_t bits = lob_rig_bits(v), number;
	uint8_t key[KEY_PURGE_BYTES];
	struct reservation r;
	unsigned steps = 0;
	struct mtr *m;
	int rc;

	cr_assert_eq(space_reserve(v->space, RUNS * 3, 0, 0, &r), 0);
	for (unsigned i = 0; i < RUNS; i++)
		record.run[i] = (struct disk_purge_extent){
			.start = le64_make(r.piece[0].start + 3 * i),
			.length = le32_make(3),
		};
	cr_assert_eq(id_take(v, COUNTER_PURGE, &number), 0);
	be64_put(key, number);
	cr_assert_eq(mtr_begin(v, 0, &m), 0);
	mtr_want_key(m, INDEX_PURGE, key, sizeof(key));
	do {
		cr_assert_eq(mtr_latch(m), 0);
		mtr_set_bits(m, r.piece[0].start, r.piece[0].length);
		mtr_put(m, INDEX_PURGE, key, sizeof(key), &record, sizeof(record));
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	cr_assert_eq(rc, 0);
	mtr_end(m);
	do {
		rc = purge_extents_step(v, number);
		cr_assert_geq(rc, 0);
		v = crash(v);
		cr_assert_eq(scratch_problems(v), 0);
		cr_assert_lt(++steps, 5);
	} while (rc == 0);
	cr_assert_gt(steps, 1);
	cr_assert_eq(lob_rig_bits(v), bits);
	cr_assert_eq(entries(v, INDEX_PURGE), 0);
	cr_assert_eq(volume_close(v), 0);
}

/* What one record is damaged by does not keep the others. */
Test(purge, damaged_records_are_left_behind)
{
	struct volume *v = fresh();

	write_blocks(v, LOB, 0, 30, 1);
	enqueue(v, (enum purge_kind)99, 0, LOB, 0, 30);
	enqueue(v, PURGE_LOB, 0, 0, 0, 30);
	enqueue(v, PURGE_LOB, 0, LOB, 0, UINT64_MAX);
	cr_assert_eq(purge_drain(v->purge, NULL), -EIO);
	cr_assert_eq(blocks_of(v, LOB), 0);
	cr_assert_eq(entries(v, INDEX_PURGE), 2);
	volume_abandon(v);
}

/* ------------------------------------------------------------------- claims */

struct claims {
	uint64_t refused;
	unsigned claims, releases, gone;
};

static bool claim(void *arg, uint64_t ino)
{
	struct claims *c = arg;

	if (ino == c->refused)
		return false;
	c->claims++;
	return true;
}

static void release(void *arg, uint64_t ino, bool gone)
{
	struct claims *c = arg;

	cr_assert_neq(ino, c->refused);
	c->releases++;
	c->gone += gone;
}

/* INV-LOCK-3: what is in use stays, the rest of the queue goes on. */
Test(purge, busy_inodes_are_skipped)
{
	struct volume *v = fresh();
	struct claims c = {.refused = INO};
	struct disk_inode inode;
	bool worked;

	write_blocks(v, LOB, 0, 100, 1);
	write_blocks(v, LOB + 1, 0, 10, 1);
	make_orphan(v, 0);
	enqueue(v, PURGE_LOB, 0, LOB + 1, 0, UINT64_MAX);
	purge_set_hooks(v->purge, &(struct purge_hooks){claim, release, &c});
	cr_assert_eq(purge_drain(v->purge, &worked), 0);
	cr_assert(worked);
	cr_assert_eq(purge_drain(v->purge, &worked), 0);
	cr_assert_not(worked);
	cr_assert_eq(get_inode(v, INO, &inode), 0);
	cr_assert_eq(entries(v, INDEX_PURGE), 1);
	cr_assert_gt(stat_read(&v->stats, STAT_purge_busy_skips), 0);
	c.refused = 0;
	cr_assert_eq(purge_drain(v->purge, &worked), 0);
	cr_assert_eq(get_inode(v, INO, &inode), -BE_NOTFOUND);
	cr_assert_eq(c.claims, c.releases);
	cr_assert_eq(c.gone, 1);
	cr_assert_eq(entries(v, INDEX_LOB), 0);
	purge_set_hooks(v->purge, NULL);
	cr_assert_eq(volume_close(v), 0);
}

/* A stale record's inode was not deleted by purge. */
Test(purge, stale_orphan_is_not_reported_gone)
{
	struct volume *v = fresh();
	struct claims c = {0};

	enqueue(v, PURGE_ORPHAN, INO, 0, 0, 0);
	purge_set_hooks(v->purge, &(struct purge_hooks){claim, release, &c});
	cr_assert_eq(purge_drain(v->purge, NULL), 0);
	cr_assert_eq(c.releases, 1);
	cr_assert_eq(c.gone, 0);
	purge_set_hooks(v->purge, NULL);
	cr_assert_eq(volume_close(v), 0);
}

/* ------------------------------------------------------------------- thread */

static void wait_empty(struct volume *v)
{
	for (unsigned i = 0; i < 500 && entries(v, INDEX_PURGE) > 0; i++) {
		struct waitq pause = {0};

		waitq_wait(&pause, waitq_ticket(&pause), 10000000);
	}
	cr_assert_eq(entries(v, INDEX_PURGE), 0);
}

Test(purge, thread_resumes_after_a_crash_and_serves_kicks)
{
	struct volume *v = fresh();

	write_scattered(v, LOB, 200);
	enqueue(v, PURGE_LOB, 0, LOB, 0, UINT64_MAX);
	v = crash(v);
	cr_assert_eq(purge_start(v->purge), 0);
	wait_empty(v);
	write_scattered(v, LOB + 1, 100);
	enqueue(v, PURGE_LOB, 0, LOB + 1, 0, UINT64_MAX);
	purge_kick(v->purge);
	wait_empty(v);
	purge_set_hooks(v->purge, NULL);
	purge_stop(v->purge);
	cr_assert_eq(entries(v, INDEX_LOB), 0);
	cr_assert_eq(scratch_problems(v), 0);
	cr_assert_eq(volume_close(v), 0);
}

/* A full volume: purge's own mtrs find room. */
Test(purge, works_on_a_full_volume)
{
	struct volume *v = fresh();
	struct space_counts counts;
	uint64_t blocks = 0;
	int rc;

	write_scattered(v, LOB, 600);
	while ((rc = lob_rig_write(v, LOB + 1, blocks, 1, 1, 0, NULL)) == 0)
		blocks++;
	cr_assert_eq(rc, -ENOSPC);
	cr_assert_eq(lob_rig_hole(v, LOB + 1, 0, 1, NULL), 0);
	cr_assert_eq(space_drain(v->space), 0);
	enqueue(v, PURGE_LOB, 0, LOB, 301, 900);
	enqueue(v, PURGE_LOB, 0, LOB + 1, 0, UINT64_MAX);
	cr_assert_eq(purge_drain(v->purge, NULL), 0);
	cr_assert_eq(entries(v, INDEX_PURGE), 0);
	space_count(v->space, &counts);
	cr_assert_gt(counts.free + counts.deferred, blocks);
	cr_assert_eq(scratch_problems(v), 0);
	cr_assert_eq(volume_close(v), 0);
}
