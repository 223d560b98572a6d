/* What page_verify() finds; and that nothing it accepts leads outside the page. */
#include "tests/unit/page_fixture.h"

static void sample_page(struct fixture *f)
{
	init_tree(f, 0, "key1", "key5", 48);
	cr_assert_eq(insert(f, 0, "key2", "two, and room for a long suffix"), 0);
	cr_assert_eq(insert(f, 1, "key3", "three"), 0);
	cr_assert_eq(insert(f, 2, "key4", "four"), 0);
	cr_assert_eq(delete(f, 1), 0);
	page_seal(f->page, SIZE);
}

Test(page_verify, identity)
{
	struct fixture f = setup();
	const char *why;

	sample_page(&f);
	cr_assert_eq(page_verify(f.page, SIZE, PAGENO, TAG, &why), 0);
	cr_assert_eq(page_verify(f.page, SIZE, PAGENO + 4, TAG, &why), -BE_IDENTITY);
	cr_assert_eq(page_verify(f.page, SIZE, PAGENO, (const uint8_t *)"volume 2", NULL),
		     -BE_IDENTITY);
	for (unsigned bit = 0; bit < SIZE * 8; bit++) {
		f.page[bit / 8] ^= (uint8_t)(1u << bit % 8);
		cr_assert_eq(page_verify(f.page, SIZE, PAGENO, TAG, NULL), -BE_CRC);
		f.page[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	memset(f.page, 0, SIZE);
	cr_assert_neq(page_verify(f.page, SIZE, 0, (const uint8_t *)"\0\0\0\0\0\0\0", NULL), 0);
	teardown(&f);
}

static le16 *slot_at(struct disk_tree_page *tree, unsigned slot)
{
	return (le16 *)(tree + 1) + slot;
}

static struct disk_record *record_at(struct disk_tree_page *tree, unsigned slot)
{
	return (void *)((uint8_t *)tree + le16_get(*slot_at(tree, slot)));
}

static void swap_slots(struct disk_tree_page *t)
{
	le16 first = *slot_at(t, 0);

	*slot_at(t, 0) = *slot_at(t, 1);
	*slot_at(t, 1) = first;
}

static void bad_type(struct disk_tree_page *t) { t->head.type = PAGE_NONE; }
static void bad_index(struct disk_tree_page *t) { t->head.index = INDEX_COUNT; }
static void bad_level(struct disk_tree_page *t) { t->head.level = TREE_LEVELS_MAX; }
static void bad_flags(struct disk_tree_page *t) { t->head.flags = 8; }
static void no_right(struct disk_tree_page *t) { t->right = le64_make(0); }
static void self_right(struct disk_tree_page *t) { t->right = t->head.pageno; }
static void no_high(struct disk_tree_page *t) { t->high_len = 0; }
static void long_low(struct disk_tree_page *t) { t->low_len = KEY_BYTES_MAX + 1; }
static void long_high(struct disk_tree_page *t) { t->high_len = 255; }
static void low_above_high(struct disk_tree_page *t) { t->low[3] = '5'; }
static void incomplete_rightmost(struct disk_tree_page *t)
{
	t->right = le64_make(0);
	t->high_len = t->prefix_len = 0;
	t->head.flags = PAGE_INCOMPLETE;
}
static void long_prefix(struct disk_tree_page *t) { t->prefix_len = 4; }
static void longer_prefix(struct disk_tree_page *t) { t->prefix_len = 200; }
static void heap_past_end(struct disk_tree_page *t) { t->heap_start = le32_make(SIZE + 1); }
static void heap_huge(struct disk_tree_page *t) { t->heap_start = le32_make(UINT32_MAX); }
static void heap_over_slots(struct disk_tree_page *t) { t->heap_start = le32_make(131); }
static void many_slots(struct disk_tree_page *t) { t->slot_count = le16_make(65535); }
static void much_garbage(struct disk_tree_page *t) { t->garbage = le32_make(UINT32_MAX); }
static void wrong_garbage(struct disk_tree_page *t)
{
	t->garbage = le32_make(le32_get(t->garbage) - 1);
}
static void slot_in_head(struct disk_tree_page *t) { *slot_at(t, 0) = le16_make(4); }
static void slot_at_end(struct disk_tree_page *t) { *slot_at(t, 1) = le16_make(SIZE - 1); }
static void slot_far(struct disk_tree_page *t) { *slot_at(t, 1) = le16_make(65535); }
static void slot_twice(struct disk_tree_page *t)
{
	*slot_at(t, 1) = *slot_at(t, 0);
}
static void long_value(struct disk_tree_page *t) { record_at(t, 0)->value_len = le16_make(800); }
static void long_suffix(struct disk_tree_page *t)
{
	record_at(t, 1)->key_len = 30;
	record_at(t, 1)->value_len = le16_make(0);
}
/* The lowest record swallows its neighbour, the garbage between them, and some: the sums agree. */
static void overlap(struct disk_tree_page *t)
{
	struct disk_record *lower = record_at(t, 1), *inner;

	lower->value_len = le16_make(le16_get(lower->value_len) + 1);
	t->garbage = le32_make(le32_get(t->garbage) - 1);
	*slot_at(t, 0) = le16_make(le16_get(*slot_at(t, 1)) + sizeof(*lower) + 1 + 2);
	inner = record_at(t, 0);
	*inner = (struct disk_record){.value_len = le16_make(31), .key_len = 1};
	((uint8_t *)(inner + 1))[0] = '2';
}
static void below_low(struct disk_tree_page *t) { ((uint8_t *)(record_at(t, 0) + 1))[0] = '0'; }
static void above_high(struct disk_tree_page *t) { ((uint8_t *)(record_at(t, 1) + 1))[0] = '5'; }
static void equal_keys(struct disk_tree_page *t) { ((uint8_t *)(record_at(t, 1) + 1))[0] = '2'; }
static void internal_values(struct disk_tree_page *t) { t->head.level = 1; }
static void record_too_long(struct disk_tree_page *t)
{
	struct disk_record *record;

	t->heap_start = le32_make(200);
	*slot_at(t, 0) = le16_make(200);
	record = record_at(t, 0);
	record->key_len = 1;
	record->value_len = le16_make((uint16_t)(RECORD_BYTES_MAX(SIZE) - 3));
	((uint8_t *)(record + 1))[0] = '2';
}

Test(page_verify, finds)
{
	static const struct {
		void (*damage)(struct disk_tree_page *tree);
		const char *why;
	} cases[] = {
		{bad_type, "unknown page type"},
		{bad_index, "unknown index"},
		{bad_level, "level too high"},
		{bad_flags, "unknown flags"},
		{no_right, "high fence without right link, or the reverse"},
		{no_high, "high fence without right link, or the reverse"},
		{self_right, "right link to itself"},
		{long_low, "fence too long"},
		{long_high, "fence too long"},
		{low_above_high, "fences out of order"},
		{incomplete_rightmost, "incomplete split without right link"},
		{long_prefix, "prefix longer than the fences share"},
		{longer_prefix, "prefix longer than the fences share"},
		{heap_past_end, "heap outside the page or over the slots"},
		{heap_huge, "heap outside the page or over the slots"},
		{heap_over_slots, "heap outside the page or over the slots"},
		{many_slots, "heap outside the page or over the slots"},
		{much_garbage, "more garbage than heap"},
		{wrong_garbage, "heap bytes unaccounted for"},
		{slot_in_head, "slot outside the heap"},
		{slot_at_end, "slot outside the heap"},
		{slot_far, "slot outside the heap"},
		{slot_twice, "keys out of order"},
		{swap_slots, "keys out of order"},
		{long_value, "record past the end of the page"},
		{long_suffix, "key too long"},
		{record_too_long, "record too long"},
		{overlap, "records overlap"},
		{below_low, "key below the low fence"},
		{above_high, "key not below the high fence"},
		{equal_keys, "keys out of order"},
		{internal_values, "child pointer of a wrong size"},
	};

	for (unsigned i = 0; i < array_count(cases); i++) {
		struct fixture f = setup();
		const char *why = "";

		sample_page(&f);
		cases[i].damage((struct disk_tree_page *)f.page);
		page_seal(f.page, SIZE);
		cr_assert_eq(page_verify(f.page, SIZE, PAGENO, TAG, &why), -BE_FORMAT, "case %u",
			     i);
		cr_assert_str_eq(why, cases[i].why, "case %u: %s", i, why);
		teardown(&f);
	}
}

Test(page_verify, finds_in_internal_page)
{
	struct fixture f = setup();
	const char *why;

	init_tree(&f, 2, "c", "", 0);
	cr_assert_eq(insert_child(&f, 0, "c", 8), 0);
	expect_sound(&f);
	((uint8_t *)(record_at((struct disk_tree_page *)f.page, 0) + 1))[0] = 'd';
	cr_assert_eq(page_verify_structure(f.page, SIZE, &why), -BE_FORMAT);
	cr_assert_str_eq(why, "first key of an internal page is not its low fence");
	teardown(&f);
}

Test(page_verify, finds_in_other_pages)
{
	struct fixture f = setup();
	struct key none = key_of("");
	struct disk_page *head = (void *)f.page;

	for (uint8_t type = PAGE_BITMAP; type <= PAGE_SYSTEM; type++) {
		cr_assert_eq(redo(&f, REC_PAGE_INIT,
				  redo_page_init(f.body, type, 0, 0, 0, &none, &none, 0)),
			     0);
		expect_sound(&f);
		head->level = 1;
		cr_assert_eq(page_verify_structure(f.page, SIZE, NULL), -BE_FORMAT);
	}
	teardown(&f);
}

/* Whatever is accepted can be read and changed without leaving the page (ASan watches). */
static void use(struct fixture *f)
{
	struct key key;
	bool exact;

	if (tree_page(f->page)->head.type != PAGE_TREE)
		return;
	for (unsigned slot = 0; slot < count(f); slot++) {
		page_key(f->page, slot, &key);
		cr_assert(page_covers(f->page, key.bytes, key.len));
		cr_assert_eq(page_lower_bound(f->page, key.bytes, key.len, &exact), slot);
	}
	(void)page_load_bytes(f->page);
	if (redo(f, REC_FENCE, redo_fence(f->body, &(struct key){0}, 0)) == 0 && count(f) > 0)
		(void)insert(f, count(f), "\xff\xff", "a new value");
	if (count(f) > 1)
		(void)delete(f, 1);
}

static void flip_every_byte(struct fixture *f)
{
	static const uint8_t masks[] = {1, 0x80, 0xff};
	uint8_t sound[SIZE];

	page_seal(f->page, SIZE);
	memcpy(sound, f->page, SIZE);
	for (unsigned at = 4; at < SIZE; at++)
		for (unsigned i = 0; i < array_count(masks); i++) {
			memcpy(f->page, sound, SIZE);
			f->page[at] ^= masks[i];
			page_seal(f->page, SIZE);
			if (page_verify(f->page, SIZE, PAGENO, TAG, NULL) == 0)
				use(f);
		}
}

Test(page_verify, every_byte_flipped_of_a_leaf)
{
	struct fixture f = setup();

	init_tree(&f, 0, "key0", "key9", 48);
	fill(&f, "key%03u", 0, 150);
	for (unsigned slot = 0; slot < count(&f); slot += 3)
		cr_assert_eq(delete(&f, slot), 0);
	flip_every_byte(&f);
	teardown(&f);
}

Test(page_verify, every_byte_flipped_of_an_internal_page)
{
	struct fixture f = setup();
	char key[8];

	init_tree(&f, 3, "k000", "k9", 48);
	for (unsigned i = 0; i < 200; i++) {
		snprintf(key, sizeof(key), "k%03u", i);
		cr_assert_eq(insert_child(&f, i, key, 4 * i), 0);
	}
	flip_every_byte(&f);
	teardown(&f);
}
