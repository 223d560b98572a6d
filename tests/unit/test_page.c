/*
 * Pages: search, each record type, and what page_redo() refuses.  The verifier
 * is in test_page_verify.c, random operations in test_page_random.c.
 */
#include "tests/unit/page_fixture.h"

#include <signal.h>

/* ------------------------------------------------------------------- keys */

/* Against memcmp(), for every length up to the longest and a difference in every byte. */
Test(page_key, order_is_that_of_memcmp)
{
	struct key a = {0}, b;

	for (a.len = 0; a.len <= KEY_BYTES_MAX; a.len++)
		for (unsigned at = 0; at < KEY_BYTES_MAX; at++)
			for (unsigned len = 0; len <= KEY_BYTES_MAX; len++) {
				size_t shorter = len < a.len ? len : a.len;
				int order, expected;

				b = a;
				b.len = (uint8_t)len;
				b.bytes[at] = 0x80;
				order = key_compare(a.bytes, a.len, b.bytes, b.len);
				expected = memcmp(a.bytes, b.bytes, shorter);
				if (expected == 0)
					expected = (int)a.len - (int)len;
				cr_assert_eq((order > 0) - (order < 0),
					     (expected > 0) - (expected < 0));
			}
}

Test(page_key, order)
{
	static const char *ascending[] = {"", "a", "aa", "aaaaaaa", "aaaaaaaa", "aaaaaaaab",
					  "aaaaaaab", "b", "\x7f", "\x80", "\xff", "\xff\xff"};

	for (unsigned i = 0; i < array_count(ascending); i++)
		for (unsigned j = 0; j < array_count(ascending); j++) {
			struct key a = key_of(ascending[i]), b = key_of(ascending[j]);
			int order = key_compare(a.bytes, a.len, b.bytes, b.len);

			cr_assert_eq((order > 0) - (order < 0), (i > j) - (i < j));
		}
}

/* ---------------------------------------------------------- record by record */

Test(page_redo, init_sets_all_but_lsn)
{
	struct fixture f = setup();
	struct key low, high;

	init_tree(&f, 0, "abc1", "abc9", 48);
	expect_sound(&f);
	cr_assert_eq(page_lsn(f.page), 7);
	cr_assert_eq(le64_get(tree_page(f.page)->head.pageno), PAGENO);
	cr_assert_arr_eq(tree_page(f.page)->head.tag, TAG, sizeof(TAG));
	cr_assert_eq(tree_page(f.page)->prefix_len, 3);
	cr_assert_eq(le64_get(tree_page(f.page)->right), 48);
	cr_assert_eq(page_room(f.page, SIZE), page_capacity(SIZE));
	page_low(f.page, &low);
	page_high(f.page, &high);
	cr_assert_eq(key_compare(low.bytes, low.len, (const uint8_t *)"abc1", 4), 0);
	cr_assert_eq(key_compare(high.bytes, high.len, (const uint8_t *)"abc9", 4), 0);
	teardown(&f);
}

Test(page_redo, init_refuses)
{
	struct fixture f = setup();
	struct key none = key_of(""), a = key_of("a");
	static const struct {
		uint8_t type, index, level, flags;
		char low;
		bool has_high;
		uint64_t right;
	} bad[] = {
		{.type = PAGE_NONE},
		{.type = PAGE_SYSTEM + 1},
		{.type = PAGE_TREE, .index = INDEX_COUNT},
		{.type = PAGE_TREE, .level = TREE_LEVELS_MAX},
		{.type = PAGE_TREE, .flags = 4},
		{.type = PAGE_TREE, .flags = PAGE_INCOMPLETE}, /* INV-PAGE-5 */
		{.type = PAGE_TREE, .right = 48},
		{.type = PAGE_TREE, .has_high = true},
		{.type = PAGE_TREE, .has_high = true, .right = PAGENO},
		{.type = PAGE_TREE, .has_high = true, .low = 'a', .right = 48},
		{.type = PAGE_TREE, .has_high = true, .low = 'b', .right = 48},
		{.type = PAGE_BITMAP, .level = 1},
		{.type = PAGE_BITMAP, .has_high = true},
		{.type = PAGE_BITMAP, .right = 1ull << 32},
		{.type = PAGE_SYSTEM, .right = 1},
		{.type = PAGE_SYSTEM, .index = 1},
	};

	for (unsigned i = 0; i < array_count(bad); i++) {
		struct key low = {.len = bad[i].low != 0, .bytes = {(uint8_t)bad[i].low}};
		size_t len = redo_page_init(f.body, bad[i].type, bad[i].index, bad[i].level,
					    bad[i].flags, &low, bad[i].has_high ? &a : &none,
					    bad[i].right);

		cr_assert_eq(redo(&f, REC_PAGE_INIT, len), -BE_FORMAT, "case %u", i);
	}
	teardown(&f);
}

Test(page_redo, insert_update_patch_delete)
{
	struct fixture f = setup();
	uint32_t room;

	init_tree(&f, 0, "k1", "k9", 48);
	room = page_room(f.page, SIZE);
	cr_assert_eq(insert(&f, 0, "k5", "five"), 0);
	cr_assert_eq(insert(&f, 0, "k2", "two"), 0);
	cr_assert_eq(insert(&f, 2, "k7", ""), 0);
	cr_assert_eq(page_room(f.page, SIZE), room - 3 * (4 + 2 + 1) - 4 - 3);
	expect(&f, 0, "k2", "two");
	expect(&f, 1, "k5", "five");
	expect(&f, 2, "k7", "");

	cr_assert_eq(update(&f, 1, "5"), 0); /* in place */
	expect(&f, 1, "k5", "5");
	cr_assert_eq(le32_get(tree_page(f.page)->garbage), 3);
	cr_assert_eq(update(&f, 1, "five and a half"), 0); /* anew */
	expect(&f, 1, "k5", "five and a half");
	cr_assert_eq(le32_get(tree_page(f.page)->garbage), 3 + 4 + 1 + 1);
	cr_assert_eq(patch(&f, 1, 5, "AND"), 0);
	expect(&f, 1, "k5", "five AND a half");
	cr_assert_eq(patch(&f, 1, 15, ""), 0);

	room = page_room(f.page, SIZE);
	cr_assert_eq(page_slot_bytes(f.page, 0), 2 + 4 + 1 + 3);
	cr_assert_eq(delete(&f, 0), 0);
	cr_assert_eq(page_room(f.page, SIZE), room + 2 + 4 + 1 + 3);
	expect(&f, 0, "k5", "five AND a half");
	expect_sound(&f);
	cr_assert_eq(delete(&f, 0), 0);
	cr_assert_eq(delete(&f, 0), 0);
	cr_assert_eq(page_room(f.page, SIZE), page_capacity(SIZE));
	cr_assert_eq(le32_get(tree_page(f.page)->garbage), 0);
	expect_sound(&f);
	teardown(&f);
}

Test(page_redo, insert_refuses)
{
	struct fixture f = setup();
	char *big = calloc(1, SIZE);

	init_tree(&f, 0, "k1", "k9", 48);
	cr_assert_eq(insert(&f, 0, "k3", "x"), 0);
	cr_assert_eq(insert(&f, 1, "k5", "x"), 0);
	cr_assert_eq(insert(&f, 0, "k3", "x"), -BE_FORMAT);  /* INV-PAGE-1 */
	cr_assert_eq(insert(&f, 1, "k3", "x"), -BE_FORMAT);
	cr_assert_eq(insert(&f, 1, "k5", "x"), -BE_FORMAT);
	cr_assert_eq(insert(&f, 0, "k4", "x"), -BE_FORMAT);
	cr_assert_eq(insert(&f, 2, "k4", "x"), -BE_FORMAT);
	cr_assert_eq(insert(&f, 3, "k6", "x"), -BE_FORMAT);
	cr_assert_eq(insert(&f, 0, "k0", "x"), -BE_FORMAT);
	cr_assert_eq(insert(&f, 0, "k", "x"), -BE_FORMAT);
	cr_assert_eq(insert(&f, 2, "k9", "x"), -BE_FORMAT);
	cr_assert_eq(insert(&f, 2, "m", "x"), -BE_FORMAT);
	memset(big, 'v', RECORD_BYTES_MAX(SIZE) - 1);
	cr_assert_eq(insert(&f, 1, "k4", big), -BE_FORMAT);
	cr_assert_eq(update(&f, 0, big), -BE_FORMAT);
	big[RECORD_BYTES_MAX(SIZE) - 2] = 0;
	cr_assert_eq(insert(&f, 1, "k4", big), 0);
	cr_assert_eq(update(&f, 0, big), 0);

	cr_assert_eq(update(&f, 3, "x"), -BE_FORMAT);
	cr_assert_eq(patch(&f, 3, 0, "x"), -BE_FORMAT);
	cr_assert_eq(patch(&f, 2, 1, "x"), -BE_FORMAT);
	cr_assert_eq(patch(&f, 2, 2, ""), -BE_FORMAT);
	cr_assert_eq(delete(&f, 3), -BE_FORMAT);
	for (size_t len = 0; len < 4; len++) { /* slot, length and 2 bytes of key, cut short */
		memcpy(f.body, "\0\2k2", 4);
		cr_assert_eq(redo(&f, REC_INSERT, len), -BE_FORMAT);
	}
	cr_assert_eq(redo(&f, REC_INSERT, 4), 0);
	expect(&f, 0, "k2", "");
	expect_sound(&f);
	free(big);
	teardown(&f);
}

Test(page_redo, internal_page)
{
	struct fixture f = setup();

	init_tree(&f, 1, "c", "", 0);
	cr_assert_eq(page_verify_structure(f.page, SIZE, NULL), -BE_FORMAT); /* INV-PAGE-3 */
	cr_assert_eq(insert_child(&f, 0, "d", 8), -BE_FORMAT);
	cr_assert_eq(insert(&f, 0, "c", "short"), -BE_FORMAT);
	cr_assert_eq(insert_child(&f, 0, "c", 8), 0);
	cr_assert_eq(insert_child(&f, 1, "g", 16), 0);
	cr_assert_eq(insert_child(&f, 1, "e", 24), 0);
	expect_sound(&f);
	cr_assert_eq(page_child(f.page, page_child_slot(f.page, (const uint8_t *)"c", 1)), 8);
	cr_assert_eq(page_child(f.page, page_child_slot(f.page, (const uint8_t *)"dzz", 3)), 8);
	cr_assert_eq(page_child(f.page, page_child_slot(f.page, (const uint8_t *)"e", 1)), 24);
	cr_assert_eq(page_child(f.page, page_child_slot(f.page, (const uint8_t *)"f", 1)), 24);
	cr_assert_eq(page_child(f.page, page_child_slot(f.page, (const uint8_t *)"z", 1)), 16);
	cr_assert_eq(update(&f, 1, "7 bytes"), -BE_FORMAT);
	cr_assert_eq(delete(&f, 0), -BE_FORMAT);
	cr_assert_eq(split_left(&f, 0, "c1", 80), -BE_FORMAT);
	cr_assert_eq(delete(&f, 1), 0);
	cr_assert_eq(count(&f), 2);
	expect_sound(&f);
	teardown(&f);
}

Test(page_redo, leftmost_internal_page_has_an_empty_key)
{
	struct fixture f = setup();

	init_tree(&f, 1, "", "", 0);
	cr_assert_eq(insert_child(&f, 0, "", 8), 0);
	cr_assert_eq(insert_child(&f, 1, "m", 16), 0);
	expect_sound(&f);
	cr_assert_eq(page_child(f.page, page_child_slot(f.page, (const uint8_t *)"a", 1)), 8);
	teardown(&f);
}

Test(page_redo, split_left)
{
	struct fixture f = setup();

	init_tree(&f, 0, "a", "z", 48);
	fill(&f, "key%02u", 0, 60);
	cr_assert_eq(split_left(&f, 61, "key30", 56), -BE_FORMAT);
	cr_assert_eq(split_left(&f, 30, "key29", 56), -BE_FORMAT); /* a kept key is not below */
	cr_assert_eq(split_left(&f, 30, "key31", 56), -BE_FORMAT); /* a dropped key is not above */
	cr_assert_eq(split_left(&f, 30, "key30", 0), -BE_FORMAT);
	cr_assert_eq(split_left(&f, 30, "key30", PAGENO), -BE_FORMAT);
	cr_assert_eq(split_left(&f, 60, "z", 56), -BE_FORMAT);
	cr_assert_eq(split_left(&f, 60, "zz", 56), -BE_FORMAT);
	cr_assert_eq(split_left(&f, 0, "a", 56), -BE_FORMAT);
	cr_assert_eq(split_left(&f, 60, "", 56), -BE_FORMAT);
	cr_assert_eq(split_left(&f, 30, "key2999", 56), 0);
	expect_sound(&f);
	cr_assert_eq(count(&f), 30);
	cr_assert_eq(tree_page(f.page)->head.flags, PAGE_INCOMPLETE);
	cr_assert_eq(le64_get(tree_page(f.page)->right), 56);
	cr_assert_eq(le32_get(tree_page(f.page)->garbage), 0);
	cr_assert(page_covers(f.page, (const uint8_t *)"key2998", 7));
	cr_assert(page_is_left_of(f.page, (const uint8_t *)"key2999", 7));
	expect(&f, 29, "key29", "some value");
	cr_assert_eq(split_left(&f, 0, "key", 64), 0); /* nothing stays */
	expect_sound(&f);
	cr_assert_eq(page_room(f.page, SIZE), page_capacity(SIZE));
	teardown(&f);
}

Test(page_redo, ascending_split_moves_nothing)
{
	struct fixture f = setup();
	uint8_t heap[SIZE];

	init_tree(&f, 0, "a", "", 0);
	fill(&f, "key%02u", 0, 60);
	memcpy(heap, f.page, SIZE);
	cr_assert_eq(split_left(&f, 60, "key60", 56), 0);
	expect_sound(&f);
	cr_assert_arr_eq(heap + sizeof(struct disk_tree_page),
			 f.page + sizeof(struct disk_tree_page),
			 SIZE - sizeof(struct disk_tree_page));
	teardown(&f);
}

Test(page_redo, fence)
{
	struct fixture f = setup();

	init_tree(&f, 0, "abcd1", "abcd5", 48);
	cr_assert_eq(insert(&f, 0, "abcd1", "one"), 0);
	cr_assert_eq(insert(&f, 1, "abcd3", "three"), 0);
	cr_assert_eq(fence(&f, "abcd3", 48), -BE_FORMAT);
	cr_assert_eq(fence(&f, "abcd", 48), -BE_FORMAT);
	cr_assert_eq(fence(&f, "", 48), -BE_FORMAT);
	cr_assert_eq(fence(&f, "abcd4", 0), -BE_FORMAT);
	cr_assert_eq(fence(&f, "abcd4", PAGENO), -BE_FORMAT);
	cr_assert_eq(fence(&f, "abz", 56), 0);
	cr_assert_eq(tree_page(f.page)->prefix_len, 2);
	expect_sound(&f);
	expect(&f, 0, "abcd1", "one");
	expect(&f, 1, "abcd3", "three");
	cr_assert_eq(flags(&f, PAGE_INCOMPLETE), 0);
	cr_assert_eq(fence(&f, "", 0), -BE_FORMAT); /* INV-PAGE-5 */
	cr_assert_eq(flags(&f, 0), 0);
	cr_assert_eq(fence(&f, "", 0), 0);
	cr_assert_eq(tree_page(f.page)->prefix_len, 0);
	expect_sound(&f);
	expect(&f, 1, "abcd3", "three");
	teardown(&f);
}

/* The prefix that gets shorter must find room for every key: exactly. */
Test(page_redo, fence_without_room_changes_nothing)
{
	struct fixture f = setup();
	unsigned n = 0;
	char key[KEY_BYTES_MAX + 1], value[400] = "";

	init_tree(&f, 0, "a common prefix 0", "a common prefix 9", 48);
	for (; page_room(f.page, SIZE) >= 30; n++) {
		snprintf(key, sizeof(key), "a common prefix 1%04u", n);
		cr_assert_eq(insert(&f, n, key, ""), 0);
	}
	cr_assert_eq(fence(&f, "b", 48), -BE_FORMAT);
	cr_assert_gt(page_load_bytes(f.page), page_capacity(SIZE));
	while (page_load_bytes(f.page) > page_capacity(SIZE))
		cr_assert_eq(delete(&f, --n), 0);
	memset(value, 'v', page_capacity(SIZE) - page_load_bytes(f.page));
	cr_assert_eq(update(&f, 0, value), 0);
	cr_assert_eq(page_load_bytes(f.page), page_capacity(SIZE));
	strcat(value, "v");
	cr_assert_eq(update(&f, 0, value), 0);
	cr_assert_eq(fence(&f, "b", 48), -BE_FORMAT); /* one byte too many */
	value[strlen(value) - 1] = 0;
	cr_assert_eq(update(&f, 0, value), 0);
	cr_assert_eq(fence(&f, "b", 48), 0);
	cr_assert_eq(page_room(f.page, SIZE), 0);
	expect_sound(&f);
	teardown(&f);
}

Test(page_redo, bytes_after_a_fence_are_zero)
{
	struct fixture f = setup();

	init_tree(&f, 0, "a", "cccc", 48);
	cr_assert_eq(fence(&f, "d", 48), 0);
	for (unsigned i = 1; i < KEY_BYTES_MAX; i++)
		cr_assert_eq(tree_page(f.page)->high[i], 0);
	teardown(&f);
}

Test(page_redo, flags)
{
	struct fixture f = setup();

	init_tree(&f, 0, "a", "b", 48);
	cr_assert_eq(flags(&f, PAGE_INCOMPLETE | PAGE_DEAD), 0);
	cr_assert_eq(tree_page(f.page)->head.flags, PAGE_INCOMPLETE | PAGE_DEAD);
	cr_assert_eq(flags(&f, PAGE_DEAD), 0);
	cr_assert_eq(flags(&f, 4), -BE_FORMAT);
	cr_assert_eq(redo(&f, REC_FLAGS, 2), -BE_FORMAT);
	init_tree(&f, 0, "a", "", 0);
	cr_assert_eq(flags(&f, PAGE_INCOMPLETE), -BE_FORMAT); /* INV-PAGE-5 */
	teardown(&f);
}

Test(page_redo, load)
{
	struct fixture from = setup(), to = setup();
	size_t len;

	init_tree(&from, 0, "key0", "key5", 48);
	fill(&from, "key%02u", 0, 50);
	init_tree(&to, 0, "key1", "key5", 48);
	len = redo_load(to.body, from.page, 10, 40);
	cr_assert_eq(redo(&to, REC_LOAD, len), 0);
	expect_sound(&to);
	cr_assert_eq(count(&to), 40);
	expect(&to, 0, "key10", "some value");
	expect(&to, 39, "key49", "some value");
	cr_assert_eq(redo(&to, REC_LOAD, len), -BE_FORMAT); /* INV-PAGE-1: not behind the last */
	cr_assert_eq(redo(&to, REC_LOAD, redo_load(to.body, from.page, 9, 1)), -BE_FORMAT);
	cr_assert_eq(redo(&to, REC_LOAD, redo_load(to.body, from.page, 0, 0)), 0);
	cr_assert_eq(redo(&to, REC_LOAD, 0), -BE_FORMAT);

	init_tree(&to, 0, "key1", "key5", 48);
	for (size_t cut = 0; cut < len; cut++) { /* never reads past the end */
		redo_load(to.body, from.page, 10, 40);
		if (redo(&to, REC_LOAD, cut) == 0)
			init_tree(&to, 0, "key1", "key5", 48);
	}
	init_tree(&to, 1, "key1", "key5", 48);
	cr_assert_eq(redo(&to, REC_LOAD, redo_load(to.body, from.page, 10, 40)), -BE_FORMAT);
	teardown(&from);
	teardown(&to);
}

Test(page_redo, load_refuses_disorder)
{
	struct fixture f = setup();
	static const char ascending[] = "\1a" "\1a\0" "\1b\0", descending[] = "\1a" "\1b\0" "\1a\0",
			  equal[] = "\1a" "\1a\0" "\1a\0";
	static const char *disorder[] = {descending, equal};
	le64 child = le64_make(8);

	init_tree(&f, 0, "a", "", 0);
	for (unsigned i = 0; i < array_count(disorder); i++) {
		memcpy(f.body, disorder[i], sizeof(equal) - 1);
		cr_assert_eq(redo(&f, REC_LOAD, sizeof(equal) - 1), -BE_FORMAT);
	}
	memcpy(f.body, ascending, sizeof(ascending) - 1);
	cr_assert_eq(redo(&f, REC_LOAD, sizeof(ascending) - 1), 0);
	expect(&f, 0, "aa", "");
	expect(&f, 1, "ab", "");

	init_tree(&f, 1, "a", "", 0);
	memcpy(f.body, "\0\1b\10", 4); /* INV-PAGE-3: the first key is to be "a" */
	memcpy(f.body + 4, &child, sizeof(child));
	cr_assert_eq(redo(&f, REC_LOAD, 4 + sizeof(child)), -BE_FORMAT);
	f.body[2] = 'a';
	cr_assert_eq(redo(&f, REC_LOAD, 4 + sizeof(child)), 0);
	expect_sound(&f);
	teardown(&f);
}

/* An empty page whose prefix lags behind its fences gets the best one before a load. */
Test(page_redo, load_into_empty_chooses_prefix)
{
	struct fixture from = setup(), to = setup();

	init_tree(&from, 0, "abcd10", "abcd20", 48);
	cr_assert_eq(insert(&from, 0, "abcd12", "x"), 0);
	init_tree(&to, 0, "abcd10", "", 0);
	cr_assert_eq(fence(&to, "abcd19", 48), 0);
	cr_assert_eq(redo(&to, REC_LOAD, redo_load(to.body, from.page, 0, 1)), 0);
	cr_assert_eq(tree_page(to.page)->prefix_len, 5);
	expect(&to, 0, "abcd12", "x");
	expect_sound(&to);
	teardown(&from);
	teardown(&to);
}

/* The shortest records under the longest prefix: the body repeats no prefix. */
Test(page_redo, load_body_is_bounded)
{
	struct fixture f = setup();
	struct key low = {.len = KEY_BYTES_MAX - 1}, high;
	unsigned n = 0;
	size_t len;

	memset(low.bytes, 'p', KEY_BYTES_MAX);
	high = low;
	low.bytes[KEY_BYTES_MAX - 3] = 0;
	high.bytes[KEY_BYTES_MAX - 3] = 0xff;
	cr_assert_eq(redo(&f, REC_PAGE_INIT, redo_page_init(f.body, PAGE_TREE, 0, 0, 0, &low, &high,
							    48)),
		     0);
	for (struct key key = low;; n++) {
		key.bytes[KEY_BYTES_MAX - 3] = (uint8_t)(1 + n / 256);
		key.bytes[KEY_BYTES_MAX - 2] = (uint8_t)n;
		if (redo(&f, REC_INSERT, redo_insert(f.body, n, key.bytes, key.len, "", 0)) != 0)
			break;
	}
	cr_assert_lt(page_room(f.page, SIZE), 8);
	len = redo_load(f.body, f.page, 0, n);
	cr_assert_leq(len, BODY_BYTES_MAX(SIZE));
	init_tree(&f, 0, "", "", 0);
	cr_assert_eq(redo(&f, REC_LOAD, len), -BE_FORMAT); /* whole keys do not fit */
	teardown(&f);
}

Test(page_redo, update_that_needs_compaction)
{
	struct fixture f = setup();
	char value[600] = "";
	unsigned n = 0;
	char key[8];

	init_tree(&f, 0, "", "", 0);
	memset(value, 'v', 500);
	for (; page_room(f.page, SIZE) >= page_cost(3, 500); n++) {
		snprintf(key, sizeof(key), "k%02u", n);
		cr_assert_eq(insert(&f, n, key, value), 0);
	}
	for (unsigned slot = 0; slot < n; slot++)
		cr_assert_eq(update(&f, slot, ""), 0);
	memset(value, 'w', 500);
	for (unsigned slot = 0; slot < n; slot++)
		cr_assert_eq(update(&f, slot, value), 0, "slot %u", slot);
	expect_sound(&f);
	expect(&f, 0, "k00", value);
	cr_assert_lt(page_room(f.page, SIZE), 507);
	memset(value, 'x', 580);
	cr_assert_eq(update(&f, 1, value), page_room(f.page, SIZE) < 80 ? -BE_FORMAT : 0);
	expect_sound(&f);
	teardown(&f);
}

/* After a split the fences allow a longer prefix than the records have been stored with. */
Test(page_redo, compaction_gains_by_a_longer_prefix)
{
	struct fixture f = setup();
	char value[400] = "", key[KEY_BYTES_MAX + 1];
	unsigned n = 0;

	init_tree(&f, 0, "a common prefix 0", "", 0);
	for (; page_room(f.page, SIZE) >= 100; n++) {
		snprintf(key, sizeof(key), "a common prefix 0%04u", n);
		cr_assert_eq(insert(&f, n, key, ""), 0);
	}
	cr_assert_eq(split_left(&f, n, "a common prefix 1", 48), 0);
	cr_assert_eq(tree_page(f.page)->prefix_len, 0);
	memset(value, 'v', 300);
	cr_assert_eq(update(&f, 3, value), 0);
	cr_assert_eq(tree_page(f.page)->prefix_len, 16);
	expect(&f, 3, "a common prefix 00003", value);
	expect_sound(&f);
	teardown(&f);
}

Test(page_redo, compaction_zeroes_what_is_free)
{
	struct fixture f = setup();
	const struct disk_tree_page *tree = tree_page(f.page);

	init_tree(&f, 0, "", "", 0);
	fill(&f, "key%03u", 0, 150);
	cr_assert_eq(split_left(&f, 70, "key070", 48), 0);
	for (uint32_t at = sizeof(*tree) + 70 * 2; at < le32_get(tree->heap_start); at++)
		cr_assert_eq(f.page[at], 0);
	teardown(&f);
}

Test(page_redo, wrong_page)
{
	struct fixture f = setup();
	struct key none = key_of("");

	init_tree(&f, 0, "", "", 0);
	cr_assert_eq(redo(&f, REC_BITS, redo_bits(f.body, true, 0, 1)), -BE_FORMAT);
	cr_assert_eq(redo(&f, REC_COUNTER, redo_counter(f.body, 0, 1)), -BE_FORMAT);
	cr_assert_eq(redo(&f, REC_DATA, 1), -BE_FORMAT);
	cr_assert_eq(redo(&f, REC_LIMIT, 1), -BE_FORMAT);
	cr_assert_eq(redo(&f, 255, 1), -BE_FORMAT);
	redo_flags(f.body, 0);
	cr_assert_eq(page_redo(f.page, SIZE, PAGENO + 8, TAG, REC_FLAGS, f.body, 1), -BE_FORMAT);
	cr_assert_eq(redo(&f, REC_PAGE_INIT,
			  redo_page_init(f.body, PAGE_BITMAP, 0, 0, 0, &none, &none, 3)),
		     0);
	cr_assert_eq(insert(&f, 0, "a", "b"), -BE_FORMAT);
	teardown(&f);
}

Test(page_redo, bits)
{
	struct fixture f = setup();
	struct key none = key_of("");
	const struct disk_bitmap_page *bitmap = (const void *)f.page;
	uint64_t limit = GROUP_BLOCKS(SIZE);

	cr_assert_eq(redo(&f, REC_PAGE_INIT,
			  redo_page_init(f.body, PAGE_BITMAP, 0, 0, 0, &none, &none, 3)),
		     0);
	expect_sound(&f);
	cr_assert_eq(le32_get(bitmap->group), 3);
	cr_assert(page_bits_are(f.page, 0, limit, false));
	cr_assert_eq(redo(&f, REC_BITS, redo_bits(f.body, true, 5, 30)), 0);
	cr_assert(page_bits_are(f.page, 5, 30, true));
	cr_assert_not(page_bits_are(f.page, 4, 30, true));
	cr_assert_not(page_bits_are(f.page, 5, 31, true));
	cr_assert(page_bits_are(f.page, 35, limit - 35, false));
	cr_assert_not(page_bit(f.page, 4));
	cr_assert(page_bit(f.page, 5));
	cr_assert_eq(redo(&f, REC_BITS, redo_bits(f.body, true, 34, 2)), -BE_FORMAT);
	cr_assert_eq(redo(&f, REC_BITS, redo_bits(f.body, false, 34, 2)), -BE_FORMAT);
	cr_assert_eq(redo(&f, REC_BITS, redo_bits(f.body, false, 6, 28)), 0);
	cr_assert(page_bit(f.page, 5));
	cr_assert(page_bit(f.page, 34));
	cr_assert(page_bits_are(f.page, 6, 28, false));
	cr_assert_eq(redo(&f, REC_BITS, redo_bits(f.body, true, limit - 1, 1)), 0);
	cr_assert_eq(redo(&f, REC_BITS, redo_bits(f.body, true, limit, 1)), -BE_FORMAT);
	cr_assert_eq(redo(&f, REC_BITS, redo_bits(f.body, true, limit - 2, 3)), -BE_FORMAT);
	cr_assert_eq(redo(&f, REC_BITS, redo_bits(f.body, true, 1, UINT64_MAX)), -BE_FORMAT);
	cr_assert_eq(redo(&f, REC_BITS, redo_bits(f.body, true, UINT64_MAX, 2)), -BE_FORMAT);
	teardown(&f);
}

Test(page_redo, counter)
{
	struct fixture f = setup();
	struct key none = key_of("");
	const struct disk_system_page *system = (const void *)f.page;

	cr_assert_eq(redo(&f, REC_PAGE_INIT,
			  redo_page_init(f.body, PAGE_SYSTEM, 0, 0, 0, &none, &none, 0)),
		     0);
	expect_sound(&f);
	cr_assert_eq(redo(&f, REC_COUNTER, redo_counter(f.body, COUNTER_LOB, 1000)), 0);
	cr_assert_eq(le64_get(system->counter[COUNTER_LOB]), 1000);
	cr_assert_eq(redo(&f, REC_COUNTER, redo_counter(f.body, COUNTER_LOB, 999)), -BE_FORMAT);
	cr_assert_eq(redo(&f, REC_COUNTER, redo_counter(f.body, COUNTER_COUNT, 1)), -BE_FORMAT);
	cr_assert_eq(redo(&f, REC_COUNTER, 9), -BE_FORMAT);
	teardown(&f);
}

Test(page, lower_bound_wants_a_covered_key, .signal = SIGABRT)
{
	struct fixture f = setup();
	bool exact;

	init_tree(&f, 0, "abc1", "abc9", 48);
	(void)page_lower_bound(f.page, (const uint8_t *)"abd", 3, &exact);
}
