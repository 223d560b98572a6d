/* Tables of fsck beyond their limit: the same contents, in a file (INV-FSCK-5). */
#include "fsck/table.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

#define COUNT 20000u

struct element {
	uint64_t key, number;
};

struct tables {
	struct table_limit limit;
	TABLE(struct element) table, other;
};

static int compare(const void *a, const void *b)
{
	const struct element *left = a, *right = b;

	return left->key < right->key ? -1 : left->key > right->key;
}

static void fill(struct tables *t, uint64_t keys)
{
	uint64_t state = 1;

	for (unsigned i = 0; i < COUNT; i++) {
		cr_assert_eq(table_room(&t->limit, t->table), 0);
		t->table.at[t->table.count++] = (struct element){random_next(&state) % keys, i};
	}
}

static void check_order(const struct tables *t)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < COUNT; i++) {
		sum += t->table.at[i].number;
		if (i)
			cr_assert_leq(t->table.at[i - 1].key, t->table.at[i].key);
	}
	cr_assert_eq(sum, (uint64_t)COUNT * (COUNT - 1) / 2);
}

Test(fsck_spill, in_memory_below_the_limit)
{
	struct tables t = {.limit.max = 1u << 20};

	fill(&t, UINT64_MAX);
	cr_assert_eq(t.table.place.mapped, 0);
	cr_assert_geq(t.limit.used, COUNT * sizeof(struct element));
	table_sort(&t.table.place, t.table.at, COUNT, sizeof(struct element), compare);
	check_order(&t);
	table_free(t.table);
}

Test(fsck_spill, in_a_file_beyond_it)
{
	struct tables t = {.limit.max = 50000};

	/* Small ones stay, whatever the limit. */
	cr_assert_eq(table_room(&t.limit, t.other), 0);
	fill(&t, 1000);
	cr_assert_gt(t.table.place.mapped, 0);
	cr_assert_eq(t.other.place.mapped, 0);
	cr_assert_leq(t.limit.used, t.limit.max);
	table_sort(&t.table.place, t.table.at, COUNT, sizeof(struct element), compare);
	check_order(&t);
	table_sort(&t.table.place, t.table.at, COUNT, sizeof(struct element), compare);
	check_order(&t);
	table_free(t.table);
	table_free(t.other);
}

Test(fsck_spill, nowhere_to_go)
{
	struct tables t = {.limit.max = 1};
	int rc = 0;

	cr_assert_eq(setenv("TMPDIR", "/nonexistent", 1), 0);
	while (rc == 0 && t.table.count < COUNT) {
		rc = table_room(&t.limit, t.table);
		if (rc == 0)
			t.table.at[t.table.count++] = (struct element){0};
	}
	cr_assert_eq(rc, -ENOENT);
	cr_assert_lt(t.table.count, COUNT);
	table_free(t.table);
}
