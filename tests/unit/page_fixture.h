/*
 * One page and the calls that change it, for the tests of pages.  Every change
 * goes through page_redo() with bodies that redo_*() built.
 */
#ifndef BLINKFS_TESTS_PAGE_FIXTURE_H
#define BLINKFS_TESTS_PAGE_FIXTURE_H

#include "engine/base/error.h"
#include "engine/page.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 4096u
#define PAGENO 40u
static const uint8_t TAG[8] = "volume 1";

static inline struct key key_of(const char *text)
{
	struct key key = {.len = (uint8_t)strlen(text)};

	memcpy(key.bytes, text, key.len);
	return key;
}

/* A page in a heap block of exactly its size, so that ASan sees the first byte outside. */
struct fixture {
	uint8_t *page;
	uint8_t *body;
};

static inline struct fixture setup(void)
{
	struct fixture f = {malloc(SIZE), malloc(BODY_BYTES_MAX(SIZE))};

	memset(f.page, 0xa5, SIZE);
	page_set_lsn(f.page, 7);
	return f;
}

static inline void teardown(struct fixture *f)
{
	free(f->page);
	free(f->body);
}

static inline int redo(struct fixture *f, uint8_t type, size_t len)
{
	uint8_t before[SIZE];
	uint8_t *body = malloc(len + 1); /* exactly as long as it says, for ASan */
	int rc;

	memcpy(body + 1, f->body, len);
	memcpy(before, f->page, SIZE);
	rc = page_redo(f->page, SIZE, PAGENO, TAG, type, body + 1, len);
	free(body);
	if (rc != 0) { /* INV-PAGE-7 */
		cr_assert_eq(rc, -BE_FORMAT);
		cr_assert_arr_eq(before, f->page, SIZE);
	}
	return rc;
}

static inline void init_tree(struct fixture *f, uint8_t level, const char *low, const char *high,
		      uint64_t right)
{
	struct key low_key = key_of(low), high_key = key_of(high);

	cr_assert_eq(redo(f, REC_PAGE_INIT, redo_page_init(f->body, PAGE_TREE, INDEX_LOB, level, 0,
							   &low_key, &high_key, right)),
		     0);
}

static inline int insert(struct fixture *f, unsigned slot, const char *key, const char *value)
{
	return redo(f, REC_INSERT, redo_insert(f->body, slot, (const uint8_t *)key, strlen(key),
					       value, strlen(value)));
}

static inline int insert_child(struct fixture *f, unsigned slot, const char *key, uint64_t child)
{
	le64 value = le64_make(child);

	return redo(f, REC_INSERT, redo_insert(f->body, slot, (const uint8_t *)key, strlen(key),
					       &value, sizeof(value)));
}

static inline int update(struct fixture *f, unsigned slot, const char *value)
{
	return redo(f, REC_UPDATE, redo_update(f->body, slot, value, strlen(value)));
}

static inline int patch(struct fixture *f, unsigned slot, unsigned offset, const char *bytes)
{
	return redo(f, REC_PATCH, redo_patch(f->body, slot, offset, bytes, strlen(bytes)));
}

static inline int delete(struct fixture *f, unsigned slot)
{
	return redo(f, REC_DELETE, redo_delete(f->body, slot));
}

static inline int split_left(struct fixture *f, unsigned keep, const char *high, uint64_t right)
{
	struct key key = key_of(high);

	return redo(f, REC_SPLIT_LEFT, redo_split_left(f->body, keep, &key, right));
}

static inline int fence(struct fixture *f, const char *high, uint64_t right)
{
	struct key key = key_of(high);

	return redo(f, REC_FENCE, redo_fence(f->body, &key, right));
}

static inline int flags(struct fixture *f, uint8_t value)
{
	return redo(f, REC_FLAGS, redo_flags(f->body, value));
}

static inline unsigned count(const struct fixture *f)
{
	return le16_get(tree_page(f->page)->slot_count);
}

static inline void expect(const struct fixture *f, unsigned slot, const char *key,
			  const char *value)
{
	struct page_entry entry;
	struct key found;
	bool exact;

	page_key(f->page, slot, &found);
	page_entry(f->page, slot, &entry);
	cr_assert_eq(key_compare(found.bytes, found.len, (const uint8_t *)key, strlen(key)), 0);
	cr_assert_eq(entry.value_len, strlen(value));
	cr_assert_arr_eq(entry.value, value, entry.value_len);
	cr_assert_eq(page_lower_bound(f->page, found.bytes, found.len, &exact), slot);
	cr_assert(exact);
}

static inline void expect_sound(const struct fixture *f)
{
	const char *why = "";

	cr_assert_eq(page_verify_structure(f->page, SIZE, &why), 0, "%s", why);
}

static inline void fill(struct fixture *f, const char *format, unsigned first, unsigned end)
{
	char key[KEY_BYTES_MAX + 1];

	for (unsigned i = first; i < end; i++) {
		snprintf(key, sizeof(key), format, i);
		cr_assert_eq(insert(f, i - first, key, "some value"), 0);
	}
}

#endif
