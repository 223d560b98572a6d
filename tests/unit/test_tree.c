/* The B-link index and the mini-transaction, against a sorted array. */
#include "engine/mtr.h"
#include "engine/pool.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>

#define KEYS 3000u

/* Which of KEYS numbered keys exist, and the seed of the value of each. */
struct oracle {
	bool exists[KEYS];
	uint32_t version[KEYS];
};

static void make_key(uint8_t key[8], unsigned i)
{
	be64_put(key, (uint64_t)i * 0x10001);
}

static size_t make_value(uint8_t *value, unsigned i, uint32_t version)
{
	uint64_t state = (uint64_t)i << 32 | version;
	size_t len = random_next(&state) % 300;

	for (size_t b = 0; b < len; b++)
		value[b] = (uint8_t)random_next(&state);
	return len;
}

static int put_or_delete(struct volume *v, const unsigned *keys, unsigned count, struct oracle *o)
{
	struct mtr *m;
	uint8_t key[8], value[512];
	int rc = mtr_begin(v, 0, &m);

	for (unsigned i = 0; rc == 0 && i < count; i++) {
		make_key(key, keys[i]);
		mtr_want_key(m, INDEX_OVERLAY, key, sizeof(key));
	}
	do {
		rc = mtr_latch(m);
		if (rc)
			break;
		for (unsigned i = 0; i < count; i++) {
			unsigned k = keys[i];

			make_key(key, k);
			if (o->exists[k] && o->version[k] % 3 == 2)
				mtr_delete(m, INDEX_OVERLAY, key, sizeof(key));
			else
				mtr_put(m, INDEX_OVERLAY, key, sizeof(key), value,
					make_value(value, k, o->version[k] + 1));
		}
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	for (unsigned i = 0; rc == 0 && i < count; i++) {
		unsigned k = keys[i];

		o->exists[k] = !(o->exists[k] && o->version[k] % 3 == 2);
		o->version[k]++;
	}
	return rc;
}

/* A cursor in front of any key, there or not: what is before it, what is behind. */
static void compare_before(struct volume *v, const struct oracle *o, unsigned k)
{
	struct tree *tree = &v->index[INDEX_OVERLAY];
	struct tree_cursor c;
	uint8_t key[8], wanted[8];
	unsigned before = k, behind = k;

	while (before > 0 && !o->exists[before - 1])
		before--;
	while (behind < KEYS && !o->exists[behind])
		behind++;
	make_key(key, k);
	cr_assert_eq(tree_cursor_open_before(&c, tree, k < KEYS ? key : NULL, k < KEYS ? 8 : 0), 0);
	for (unsigned lap = 0; lap < 2; lap++) {
		if (before > 0) {
			cr_assert_eq(tree_cursor_prev(&c), 0);
			make_key(wanted, before - 1);
			cr_assert_arr_eq(c.key.bytes, wanted, 8);
			cr_assert_eq(tree_cursor_next(&c), 0);
			cr_assert_arr_eq(c.key.bytes, wanted, 8);
		} else {
			cr_assert_eq(tree_cursor_prev(&c), -BE_END);
		}
	}
	if (behind < KEYS) {
		cr_assert_eq(tree_cursor_next(&c), 0);
		make_key(wanted, behind);
		cr_assert_arr_eq(c.key.bytes, wanted, 8);
	} else {
		cr_assert_eq(tree_cursor_next(&c), -BE_END);
	}
	tree_cursor_close(&c);
}

/* The first entry of some ranges, from one key to one that lies leaves away. */
static void compare_first(struct volume *v, const struct oracle *o, unsigned from)
{
	static const unsigned lengths[] = {1, 2, 40, KEYS};

	for (unsigned i = 0; i < array_count(lengths); i++) {
		unsigned end = from + lengths[i] < KEYS ? from + lengths[i] : KEYS, k = from;
		uint8_t low[8], high[8], wanted[8], value[512], found[512];
		struct key key;
		size_t len;
		int rc;

		while (k < end && !o->exists[k])
			k++;
		make_key(low, from);
		make_key(high, end - 1);
		rc = tree_first(&v->index[INDEX_OVERLAY], low, high, 8, &key, found, sizeof(found),
				&len);
		cr_assert_eq(rc, k < end ? 0 : -BE_NOTFOUND);
		if (rc)
			continue;
		make_key(wanted, k);
		cr_assert_eq(key.len, 8);
		cr_assert_arr_eq(key.bytes, wanted, 8);
		cr_assert_eq(len, make_value(value, k, o->version[k]));
		cr_assert_arr_eq(found, value, len);
	}
}

static void compare(struct volume *v, const struct oracle *o)
{
	struct tree_cursor c;
	uint8_t key[8], value[512], found[512];
	unsigned i = 0;
	size_t len;
	int rc;

	cr_assert_eq(tree_cursor_open(&c, &v->index[INDEX_OVERLAY], NULL, 0), 0);
	while ((rc = tree_cursor_next(&c)) == 0) {
		while (i < KEYS && !o->exists[i])
			i++;
		cr_assert_lt(i, KEYS);
		make_key(key, i);
		cr_assert_eq(c.key.len, 8);
		cr_assert_arr_eq(c.key.bytes, key, 8);
		cr_assert_eq(c.value_len, make_value(value, i, o->version[i]));
		cr_assert_arr_eq(c.value, value, c.value_len);
		i++;
	}
	cr_assert_eq(rc, -BE_END);
	while (i < KEYS && !o->exists[i])
		i++;
	cr_assert_eq(i, KEYS);
	/* The same way back. */
	i = KEYS;
	while ((rc = tree_cursor_prev(&c)) == 0) {
		while (i > 0 && !o->exists[i - 1])
			i--;
		cr_assert_gt(i, 0);
		make_key(key, --i);
		cr_assert_arr_eq(c.key.bytes, key, 8);
		cr_assert_eq(c.value_len, make_value(value, i, o->version[i]));
		cr_assert_arr_eq(c.value, value, c.value_len);
	}
	cr_assert_eq(rc, -BE_END);
	while (i > 0 && !o->exists[i - 1])
		i--;
	cr_assert_eq(i, 0);
	tree_cursor_close(&c);
	for (i = 0; i < KEYS; i += 7) {
		make_key(key, i);
		rc = tree_get(&v->index[INDEX_OVERLAY], key, 8, found, sizeof(found), &len);
		cr_assert_eq(rc, o->exists[i] ? 0 : -BE_NOTFOUND);
	}
	for (i = 0; i <= KEYS; i += 5)
		compare_before(v, o, i);
	for (i = 0; i < KEYS; i += 3)
		compare_first(v, o, i);
}

#define SWITCHING SMO_MODE_COUNT /* the other mode every hundred rounds */

/* What only one of the protocols does, or leaves. */
static void check_counters(struct volume *v, enum smo_mode mode)
{
	uint64_t splits = stat_read(&v->stats, STAT_tree_splits_leaf) +
			  stat_read(&v->stats, STAT_tree_splits_internal);

	cr_assert_eq(stat_read(&v->stats, STAT_tree_parent_installs), splits);
	cr_assert_eq(stat_read(&v->stats, STAT_tree_index_latch_x), 0);
	cr_assert_gt(stat_read(&v->stats, STAT_tree_split_redo_bytes), splits * 64);
	cr_assert_eq(stat_read(&v->stats, STAT_tree_incomplete_completions), 0);
	if (mode == SMO_BLINK)
		cr_assert_eq(stat_read(&v->stats, STAT_tree_index_latch_sx), 0);
	if (mode == SMO_INDEX_LATCH) {
		cr_assert_geq(stat_read(&v->stats, STAT_tree_index_latch_sx), splits);
		cr_assert_eq(stat_read(&v->stats, STAT_tree_right_moves), 0);
	}
}

static void run(uint64_t seed, unsigned rounds, bool ascending, enum smo_mode mode)
{
	static struct oracle o;
	struct device *dev = scratch_format(64u << 20, SCRATCH_PAGE, 1u << 20);
	struct volume *v = scratch_open(dev, false);
	uint64_t state = seed;

	o = (struct oracle){0};
	if (mode != SWITCHING)
		volume_set_smo(v, mode);
	for (unsigned r = 0; r < rounds; r++) {
		unsigned keys[6], count = 1 + random_next(&state) % 6, used = 0;

		if (mode == SWITCHING && r % 100 == 0)
			volume_set_smo(v, (enum smo_mode)(r / 100 % SMO_MODE_COUNT));
		while (used < count) {
			unsigned k = ascending ? (r + used) % KEYS : random_next(&state) % KEYS;
			bool twice = false;

			for (unsigned i = 0; i < used; i++)
				twice |= keys[i] == k;
			if (!twice)
				keys[used++] = k;
		}
		cr_assert_eq(put_or_delete(v, keys, count, &o), 0, "seed %lu round %u", seed, r);
	}
	compare(v, &o);
	check_counters(v, mode);
	cr_assert_eq(scratch_problems(v), 0, "seed %lu", seed);
	cr_assert_eq(volume_close(v), 0);
}

Test(tree, random_against_oracle)
{
	for (uint64_t seed = 1; seed <= 3 * test_scale(); seed++)
		run(seed, 6000, false, (enum smo_mode)(seed % (SMO_MODE_COUNT + 1)));
}

Test(tree, ascending_against_oracle)
{
	run(7, 9000, true, SMO_BLINK);
	run(8, 9000, true, SMO_INDEX_LATCH);
}

static void all_pages_come_back(enum smo_mode mode)
{
	static struct oracle o;
	struct device *dev = scratch_format(64u << 20, SCRATCH_PAGE, 1u << 20);
	struct volume *v = scratch_open(dev, false);
	uint64_t merges;

	o = (struct oracle){0};
	volume_set_smo(v, mode);
	for (unsigned k = 0; k < KEYS; k++)
		cr_assert_eq(put_or_delete(v, &k, 1, &o), 0);
	cr_assert_gt(stat_read(&v->stats, STAT_tree_splits_leaf), 50);
	for (unsigned version = 1; version < 3; version++)
		for (unsigned k = 0; k < KEYS; k++)
			cr_assert_eq(put_or_delete(v, &k, 1, &o), 0);
	compare(v, &o);
	merges = stat_read(&v->stats, STAT_tree_merges);
	cr_assert_gt(merges, stat_read(&v->stats, STAT_tree_splits_leaf) - 6);
	check_counters(v, mode);
	cr_assert_eq(scratch_problems(v), 0);
	cr_assert_eq(volume_close(v), 0);
}

Test(tree, all_pages_come_back)
{
	all_pages_come_back(SMO_BLINK);
	all_pages_come_back(SMO_INDEX_LATCH);
}

/* Close and reopen, and a death without closing: what was durable is there. */
Test(tree, survives_reopen_and_crash)
{
	static struct oracle o, durable;
	struct device *dev = scratch_format(64u << 20, SCRATCH_PAGE, 1u << 20);
	struct volume *v;
	uint64_t state = 42;

	o = (struct oracle){0};
	dev_record_start(dev);
	for (int life = 0; life < 6; life++) {
		v = scratch_open(dev, false);
		for (unsigned r = 0; r < 1500; r++) {
			unsigned k = random_next(&state) % KEYS;

			cr_assert_eq(put_or_delete(v, &k, 1, &o), 0);
		}
		cr_assert_eq(volume_sync(v), 0);
		durable = o;
		dev = scratch_crash(v);
		dev_record_start(dev);
		v = scratch_open(dev, false);
		compare(v, &durable);
		cr_assert_eq(scratch_problems(v), 0);
		dev = scratch_crash(v);
		dev_record_start(dev);
	}
	dev_close(dev);
}

/* ------------------------------------------------------ where pages split */

#define RUN_KEYS 4000u
#define RUN_VALUE 92u /* with its key: 38 of them in a page */

enum pattern { ASCENDING, DESCENDING, TWO_RUNS, TWO_FALLING, RANDOM };

/* A permutation of the keys, each inserted by a mini-transaction of its own. */
static uint64_t pattern_key(enum pattern pattern, unsigned i)
{
	switch (pattern) {
	case ASCENDING:
		return i;
	case DESCENDING:
		return RUN_KEYS - i;
	case TWO_RUNS:
		return i % 2 * 1000000 + i / 2;
	case TWO_FALLING:
		return i % 2 * 1000000 + RUN_KEYS - i / 2;
	default:
		return (uint64_t)i * 2654435761u % 0xffffffffu;
	}
}

/* How full leaves are, in percent, and the redo of splits for each key. */
static unsigned fill_of(enum pattern pattern, enum smo_mode mode, uint64_t *redo)
{
	struct device *dev = scratch_format(64u << 20, SCRATCH_PAGE, 1u << 20);
	struct volume *v = scratch_open(dev, false);
	uint8_t value[RUN_VALUE] = {0};
	uint64_t leaves, bytes;

	volume_set_smo(v, mode);
	for (unsigned i = 0; i < RUN_KEYS; i++) {
		uint8_t key[8];
		struct mtr *m;
		int rc;

		be64_put(key, pattern_key(pattern, i));
		cr_assert_eq(mtr_begin(v, 0, &m), 0);
		mtr_want_key(m, INDEX_OVERLAY, key, 8);
		do {
			cr_assert_eq(mtr_latch(m), 0);
			mtr_put(m, INDEX_OVERLAY, key, 8, value, sizeof(value));
			rc = mtr_commit(m);
		} while (rc == -BE_AGAIN);
		cr_assert_eq(rc, 0);
		mtr_end(m);
	}
	leaves = stat_read(&v->stats, STAT_tree_splits_leaf) + 1;
	bytes = (uint64_t)RUN_KEYS * page_cost(8, RUN_VALUE);
	*redo = stat_read(&v->stats, STAT_tree_split_redo_bytes) / RUN_KEYS;
	cr_assert_eq(scratch_problems(v), 0);
	cr_assert_eq(volume_close(v), 0);
	return (unsigned)(100 * bytes / (leaves * page_capacity(SCRATCH_PAGE)));
}

/* Runs leave full pages behind, alone or beside others, and ascending ones move nothing. */
Test(tree, runs_leave_full_pages)
{
	for (unsigned mode = 0; mode < SMO_MODE_COUNT; mode++) {
		uint64_t redo;

		cr_expect_geq(fill_of(ASCENDING, (enum smo_mode)mode, &redo), 95);
		cr_expect_leq(redo, 10);
		cr_expect_geq(fill_of(DESCENDING, (enum smo_mode)mode, &redo), 95);
		cr_expect_geq(fill_of(TWO_RUNS, (enum smo_mode)mode, &redo), 90);
		cr_expect_leq(redo, 10);
		cr_expect_geq(fill_of(TWO_FALLING, (enum smo_mode)mode, &redo), 90);
		cr_expect_geq(fill_of(RANDOM, (enum smo_mode)mode, &redo), 60);
	}
}

/* Leaves of many keys under one long prefix: short separators, records without the prefix. */
Test(tree, separators_are_short_and_prefixes_are_kept_once)
{
	struct device *dev = scratch_format(64u << 20, SCRATCH_PAGE, 1u << 20);
	struct volume *v = scratch_open(dev, false);
	struct tree *tree = &v->index[INDEX_OVERLAY];
	struct frame *leaf, *root;
	uint64_t state = 3;
	unsigned longest = 0, seen = 0;
	struct key at = {0};

	for (unsigned i = 0; i < 3000; i++) {
		uint8_t key[32] = {0}, value[40] = {0};
		struct mtr *m;
		int rc;

		/* Three groups; within each 16 common bytes, then random ones. */
		memset(key, 'a' + (int)(i % 3), 16);
		be64_put(key + 16, random_next(&state));
		be64_put(key + 24, random_next(&state));
		cr_assert_eq(mtr_begin(v, 0, &m), 0);
		mtr_want_key(m, INDEX_OVERLAY, key, 32);
		do {
			cr_assert_eq(mtr_latch(m), 0);
			mtr_put(m, INDEX_OVERLAY, key, 32, value, sizeof(value));
			rc = mtr_commit(m);
		} while (rc == -BE_AGAIN);
		cr_assert_eq(rc, 0);
		mtr_end(m);
	}
	cr_assert_eq(pool_take_tickets(v->pool, 4), 0);
	epoch_enter(&v->epochs);
	cr_assert_eq(tree_locate(tree, &at, 1, &root), 0);
	pool_put(root);
	do {
		unsigned shared = 0;
		struct key low, high;

		cr_assert_eq(tree_locate_leaf(tree, &at, &leaf), 0);
		page_low(leaf->data, &low);
		page_high(leaf->data, &high);
		while (shared < low.len && shared < high.len &&
		       low.bytes[shared] == high.bytes[shared])
			shared++;
		/* Compaction at the split has set it. */
		cr_expect_eq(tree_page(leaf->data)->prefix_len, shared);
		longest = high.len > longest ? high.len : longest;
		seen++;
		at = high;
		pool_put(leaf);
	} while (at.len > 0);
	epoch_exit(&v->epochs);
	pool_give_tickets(v->pool, 4);
	cr_assert_gt(seen, 40);
	cr_expect_leq(longest, 16 + 2, "longest separator: %u", longest);
	cr_assert_eq(volume_close(v), 0);
}

/* ---------------------------------------------------------------- shrinking */

static void change_prefixed(struct volume *v, char group, unsigned i, bool delete, size_t len)
{
	uint8_t key[28] = {0}, value[900] = {0};
	struct mtr *m;
	int rc;

	memset(key, group, 20);
	be64_put(key + 20, i);
	cr_assert_eq(mtr_begin(v, 0, &m), 0);
	mtr_want_key(m, INDEX_OVERLAY, key, sizeof(key));
	do {
		cr_assert_eq(mtr_latch(m), 0);
		if (delete)
			mtr_delete(m, INDEX_OVERLAY, key, sizeof(key));
		else
			mtr_put(m, INDEX_OVERLAY, key, sizeof(key), value, len);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	cr_assert_eq(rc, 0);
	mtr_end(m);
}

static uint64_t pages_of(struct volume *v)
{
	struct check_report report = {0};

	cr_assert_eq(tree_check(&v->index[INDEX_OVERLAY], &report), 0);
	cr_assert_eq(report.problems, 0);
	return report.pages;
}

/* Pages of four records each; every other page becomes empty, beside full ones. */
Test(tree, empty_pages_go_beside_full_ones)
{
	enum { PAGES = 60, RECORDS = 4 };
	struct device *dev = scratch_format(64u << 20, SCRATCH_PAGE, 1u << 20);
	struct volume *v = scratch_open(dev, false);

	for (unsigned i = 0; i < PAGES * RECORDS; i++)
		change_prefixed(v, 'a', i, false, 900);
	cr_assert_eq(stat_read(&v->stats, STAT_tree_splits_leaf), PAGES - 1);
	for (unsigned i = 0; i < PAGES * RECORDS; i++)
		if (i / RECORDS % 2)
			change_prefixed(v, 'a', i, true, 0);
	cr_expect_leq(pages_of(v), PAGES / 2 + 2, "%lu pages", pages_of(v));
	cr_assert_eq(scratch_problems(v), 0);
	cr_assert_eq(volume_close(v), 0);
}

/*
 * Groups of dense pages, whose records lie there without their long prefix: a merge
 * across groups would spell it out.  What would not fit is not tried.
 */
Test(tree, merges_count_the_prefix_that_is_left)
{
	enum { GROUPS = 16, ENTRIES = 500 };
	struct device *dev = scratch_format(64u << 20, SCRATCH_PAGE, 1u << 20);
	struct volume *v = scratch_open(dev, false);
	uint64_t full, half;

	for (int g = 0; g < GROUPS; g++)
		for (unsigned i = 0; i < ENTRIES; i++)
			change_prefixed(v, (char)('a' + g), i, false, 20);
	full = pages_of(v);
	for (int g = 0; g < GROUPS; g += 2)
		for (unsigned i = 0; i < ENTRIES; i++)
			change_prefixed(v, (char)('a' + g), i * 7 % ENTRIES, true, 0);
	half = pages_of(v);
	cr_expect_leq(half, full / 2 + GROUPS, "%lu of %lu pages", half, full);
	for (int g = 1; g < GROUPS; g += 2)
		for (unsigned i = 0; i < ENTRIES; i++)
			change_prefixed(v, (char)('a' + g), ENTRIES - 1 - i, true, 0);
	cr_expect_leq(pages_of(v), 4, "%lu pages", pages_of(v));
	cr_assert_eq(scratch_problems(v), 0);
	cr_assert_eq(volume_close(v), 0);
}
