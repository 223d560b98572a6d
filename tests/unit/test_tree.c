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
		mtr_want_key(m, INDEX_SHARES, key, sizeof(key));
	}
	do {
		rc = mtr_latch(m);
		if (rc)
			break;
		for (unsigned i = 0; i < count; i++) {
			unsigned k = keys[i];

			make_key(key, k);
			if (o->exists[k] && o->version[k] % 3 == 2)
				mtr_delete(m, INDEX_SHARES, key, sizeof(key));
			else
				mtr_put(m, INDEX_SHARES, key, sizeof(key), value,
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

static void compare(struct volume *v, const struct oracle *o)
{
	struct tree_cursor c;
	uint8_t key[8], value[512], found[512];
	unsigned i = 0;
	size_t len;
	int rc;

	cr_assert_eq(tree_cursor_open(&c, &v->index[INDEX_SHARES], NULL, 0), 0);
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
	tree_cursor_close(&c);
	for (i = 0; i < KEYS; i += 7) {
		make_key(key, i);
		rc = tree_get(&v->index[INDEX_SHARES], key, 8, found, sizeof(found), &len);
		cr_assert_eq(rc, o->exists[i] ? 0 : -BE_NOTFOUND);
	}
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
