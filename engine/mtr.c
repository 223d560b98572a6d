/*
 * Mini-transactions: life, wants, reading and staging.  Latching is in
 * mtr_latch.c, the commit in mtr_commit.c.
 */
#include "engine/mtr_internal.h"

#include "engine/space.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int mtr_begin(struct volume *volume, unsigned flags, struct mtr **out)
{
	struct mtr *m;

	if (atomic_load_explicit(&volume->failed, memory_order_relaxed))
		return -BE_LOGDEAD;
	m = malloc(sizeof(*m));
	if (m == NULL)
		return -ENOMEM;
	memset(m, 0, offsetof(struct mtr, redo));
	m->volume = volume;
	m->flags = flags;
	*out = m;
	return 0;
}

struct volume *mtr_volume(const struct mtr *m)
{
	return m->volume;
}

static void drop_staged(struct mtr *m)
{
	m->error = 0;
	m->edit_count = 0;
	m->values_len = 0;
	m->bits_count = 0;
	m->data_count = 0;
	m->log_other = false;
	memset(m->counter, 0, sizeof(m->counter));
}

static void unlatch_indexes(struct mtr *m)
{
	for (unsigned i = INDEX_COUNT; i-- > 0;) {
		if (!(m->index_mask & 1u << i))
			continue;
		if (m->exclusive_mask & 1u << i)
			unlatch_x(&m->volume->index[i].index_latch);
		else
			unlatch_s(&m->volume->index[i].index_latch);
	}
	m->index_mask = 0;
	m->exclusive_mask = 0;
}

void mtr_release(struct mtr *m)
{
	for (unsigned i = m->leaf_count; i-- > 0;) {
		if (m->leaf[i].latched)
			unlatch_x(&m->leaf[i].frame->latch);
		pool_put(m->leaf[i].frame);
	}
	m->leaf_count = 0;
	for (unsigned i = 0; i < m->bitmap_count; i++) {
		if (m->bitmap[i].frame)
			pool_put(m->bitmap[i].frame);
		m->bitmap[i].frame = NULL;
	}
	if (m->system)
		pool_put(m->system);
	m->system = NULL;
	unlatch_indexes(m);
	m->latched = false;
	drop_staged(m);
}

void mtr_unreserve(struct mtr *m)
{
	check(!m->latched);
	if (m->reserved)
		redo_end(&m->redo);
	m->reserved = false;
	if (m->tickets > 0)
		pool_give_tickets(m->volume->pool, m->tickets);
	m->tickets = 0;
}

/* Pages that this operation met in a state to be tidied up; best effort. */
static void tidy_up(struct mtr *m)
{
	for (unsigned i = 0; i < m->note_count; i++) {
		struct note *note = &m->note[i];
		int rc = note->incomplete
				 ? tree_complete_split(note->tree, &note->key, 0, m->flags)
				 : tree_shrink(note->tree, &note->key, 0);

		if (rc == 0 && note->incomplete)
			stat_add(&m->volume->stats, STAT_tree_incomplete_completions, 1);
	}
}

void mtr_end(struct mtr *m)
{
	if (m == NULL)
		return;
	mtr_release(m);
	mtr_unreserve(m);
	tidy_up(m);
	free(m->edit);
	free(m->values);
	free(m->bits);
	free(m->data);
	free(m);
}

void mtr_note(struct mtr *m, unsigned index, const struct key *key, bool incomplete)
{
	if (m->note_count == NOTES_MAX)
		return;
	m->note[m->note_count++] = (struct note){
		.tree = &m->volume->index[index], .key = *key, .incomplete = incomplete};
}

/* ------------------------------------------------------------------- wants */

static void want(struct mtr *m, unsigned index, const void *low, const void *high, size_t key_len)
{
	struct want *w = &m->want[m->want_count++];

	check(m->want_count <= MTR_KEYS_MAX && index < INDEX_COUNT && !m->latched);
	w->index = index;
	w->range = high != NULL;
	w->low = key_make(low, key_len);
	w->high = high ? key_make(high, key_len) : w->low;
	m->range_count += w->range;
}

void mtr_want_key(struct mtr *m, unsigned index, const void *key, size_t key_len)
{
	want(m, index, key, NULL, key_len);
}

void mtr_want_range(struct mtr *m, unsigned index, const void *low, const void *high,
		    size_t key_len)
{
	want(m, index, low, high, key_len);
}

void mtr_want_leaves(struct mtr *m, unsigned index, const void *low, const void *high,
		     size_t key_len)
{
	want(m, index, low, high, key_len);
	m->unlogged_count++;
}

bool mtr_want_range_if_room(struct mtr *m, unsigned index, const void *low, const void *high,
			    size_t key_len)
{
	if (m->want_count == MTR_KEYS_MAX)
		return false;
	want(m, index, low, high, key_len);
	return true;
}

bool mtr_wants(const struct mtr *m, unsigned index, const void *low, const void *high,
	       size_t key_len)
{
	for (unsigned i = 0; i < m->want_count; i++) {
		const struct want *w = &m->want[i];

		if (w->index == index && w->range &&
		    key_compare(w->low.bytes, w->low.len, low, key_len) <= 0 &&
		    key_compare(w->high.bytes, w->high.len, high, key_len) >= 0)
			return true;
	}
	return false;
}

void mtr_restart(struct mtr *m)
{
	mtr_release(m);
	mtr_unreserve(m);
}

void mtr_want_log(struct mtr *m, uint64_t bytes)
{
	check(!m->latched && !m->reserved);
	m->want_log += bytes;
}

void mtr_want_exclusive(struct mtr *m, unsigned index)
{
	check(!m->latched && index < INDEX_COUNT);
	m->want_exclusive |= 1u << index;
}

int mtr_add_bitmap(struct mtr *m, uint64_t block, bool *added)
{
	uint64_t pageno = space_bitmap_page(m->volume, block);
	unsigned at = 0;

	while (at < m->bitmap_count && m->bitmap[at].pageno < pageno)
		at++;
	*added = at == m->bitmap_count || m->bitmap[at].pageno != pageno;
	if (!*added)
		return 0;
	if (m->bitmap_count == MTR_GROUPS_MAX)
		return -E2BIG;
	memmove(&m->bitmap[at + 1], &m->bitmap[at], (m->bitmap_count - at) * sizeof(m->bitmap[0]));
	m->bitmap[at] = (struct bitmap){.pageno = pageno};
	m->bitmap_count++;
	return 0;
}

const struct bitmap *mtr_bitmap(const struct mtr *m, uint64_t block)
{
	uint64_t pageno = space_bitmap_page(m->volume, block);

	for (unsigned i = 0; i < m->bitmap_count; i++)
		if (m->bitmap[i].pageno == pageno)
			return &m->bitmap[i];
	return NULL;
}

void mtr_want_bits(struct mtr *m, uint64_t start, uint64_t count)
{
	bool added;

	check(!m->latched && count > 0);
	/* When this makes too many, the commit says so. */
	if (mtr_add_bitmap(m, start, &added))
		return;
}

/* ----------------------------------------------------------------- reading */

/* The latched leaf that covers key, or NULL. */
static struct leaf *leaf_of(struct mtr *m, unsigned index, const uint8_t *key, size_t key_len)
{
	check(m->latched);
	for (unsigned i = 0; i < m->leaf_count; i++)
		if (m->leaf[i].index == index && page_covers(m->leaf[i].frame->data, key, key_len))
			return &m->leaf[i];
	return NULL;
}

bool mtr_covered(struct mtr *m, unsigned index, const void *key, size_t key_len)
{
	return leaf_of(m, index, key, key_len) != NULL;
}

uint64_t mtr_room(struct mtr *m, unsigned index, const void *key, size_t key_len)
{
	const struct leaf *leaf = leaf_of(m, index, key, key_len);

	return leaf ? page_room(leaf->frame->data, m->volume->geo.page_size) : 0;
}

int mtr_lookup(struct mtr *m, unsigned index, const void *key, size_t key_len, const void **value,
	       size_t *len)
{
	struct leaf *leaf = leaf_of(m, index, key, key_len);
	struct page_entry entry;
	unsigned slot;
	bool exact;

	check(leaf != NULL);
	slot = page_lower_bound(leaf->frame->data, key, key_len, &exact);
	if (!exact)
		return -BE_NOTFOUND;
	page_entry(leaf->frame->data, slot, &entry);
	*value = entry.value;
	*len = entry.value_len;
	return 0;
}

int mtr_next(struct mtr *m, unsigned index, const void *key, size_t key_len, struct key *found,
	     const void **value, size_t *len)
{
	struct leaf *leaf = leaf_of(m, index, key, key_len);
	unsigned slot;
	bool exact;

	if (leaf == NULL)
		return -BE_NOTFOUND;
	slot = page_lower_bound(leaf->frame->data, key, key_len, &exact);
	while (slot == page_slots(leaf->frame->data)) {
		struct leaf *next = leaf + 1;

		if (leaf->high.len == 0)
			return -BE_END;
		if (next == m->leaf + m->leaf_count || next->index != index ||
		    !key_equal(&next->low, &leaf->high))
			return -BE_NOTFOUND;
		leaf = next;
		slot = 0;
	}
	struct page_entry entry;

	page_key(leaf->frame->data, slot, found);
	page_entry(leaf->frame->data, slot, &entry);
	*value = entry.value;
	*len = entry.value_len;
	return 0;
}

/* ----------------------------------------------------------------- staging */

/* Grows *array to hold one more element; remembers a failure for the commit. */
static bool room_for(struct mtr *m, void **array, unsigned count, unsigned *cap, size_t size)
{
	unsigned grown_cap = *cap ? *cap * 2 : 8;
	void *grown;

	if (count < *cap)
		return true;
	grown = realloc(*array, grown_cap * size);
	if (grown == NULL) {
		m->error = -ENOMEM;
		return false;
	}
	*array = grown;
	*cap = grown_cap;
	return true;
}

static size_t keep_bytes(struct mtr *m, const void *bytes, size_t len)
{
	size_t at = m->values_len;

	if (at + len > m->values_cap) {
		size_t cap = (m->values_cap + len) * 2;
		void *grown = realloc(m->values, cap);

		if (grown == NULL) {
			m->error = -ENOMEM;
			return 0;
		}
		m->values = grown;
		m->values_cap = cap;
	}
	if (len > 0)
		memcpy(m->values + at, bytes, len);
	m->values_len += len;
	return at;
}

static void stage(struct mtr *m, unsigned index, const void *key, size_t key_len, const void *value,
		  size_t len, bool is_delete)
{
	check(m->latched && m->edit_count < MTR_EDITS_MAX);
	check(leaf_of(m, index, key, key_len) != NULL);
	if (!room_for(m, (void **)&m->edit, m->edit_count, &m->edit_cap, sizeof(*m->edit)))
		return;
	m->edit[m->edit_count++] = (struct edit){
		.index = index,
		.is_delete = is_delete,
		.key = key_make(key, key_len),
		.value = is_delete ? 0 : keep_bytes(m, value, len),
		.value_len = len,
	};
}

void mtr_put(struct mtr *m, unsigned index, const void *key, size_t key_len, const void *value,
	     size_t len)
{
	check(key_len + len <= RECORD_BYTES_MAX(m->volume->geo.page_size));
	stage(m, index, key, key_len, value, len, false);
}

void mtr_delete(struct mtr *m, unsigned index, const void *key, size_t key_len)
{
	stage(m, index, key, key_len, NULL, 0, true);
}

static void stage_bits(struct mtr *m, uint64_t start, uint64_t count, bool set)
{
	check(m->latched && count > 0);
	if (!room_for(m, (void **)&m->bits, m->bits_count, &m->bits_cap, sizeof(*m->bits)))
		return;
	m->bits[m->bits_count++] = (struct bit_run){.start = start, .count = count, .set = set};
}

void mtr_log_other(struct mtr *m, uint64_t start, uint64_t count)
{
	m->log_other = true;
	m->log_other_start = start;
	m->log_other_count = count;
}

void mtr_set_bits(struct mtr *m, uint64_t start, uint64_t count)
{
	stage_bits(m, start, count, true);
}

void mtr_clear_bits(struct mtr *m, uint64_t start, uint64_t count)
{
	stage_bits(m, start, count, false);
}

bool mtr_can_clear(struct mtr *m, uint64_t start, uint64_t count)
{
	uint64_t pageno[MTR_GROUPS_MAX + 1];
	unsigned pages = 0;

	/* Distinct groups: those wanted so far, those staged, this one. */
	for (unsigned i = 0; i < m->bitmap_count; i++)
		pageno[pages++] = m->bitmap[i].pageno;
	for (unsigned i = 0; i <= m->bits_count; i++) {
		uint64_t page = space_bitmap_page(m->volume, i < m->bits_count ? m->bits[i].start
									       : start);
		unsigned at = 0;

		while (at < pages && pageno[at] != page)
			at++;
		if (at < pages)
			continue;
		if (pages == MTR_GROUPS_MAX)
			return false;
		pageno[pages++] = page;
	}
	return count > 0;
}

bool mtr_bits_pinned(const struct mtr *m)
{
	for (unsigned i = 0; i < m->bits_count; i++) {
		const struct bitmap *bitmap = mtr_bitmap(m, m->bits[i].start);

		if (bitmap == NULL || bitmap->frame == NULL)
			return false;
	}
	return true;
}

void mtr_data(struct mtr *m, uint64_t start, uint32_t count, const le32 *crcs)
{
	check(m->latched && count > 0);
	if (!room_for(m, (void **)&m->data, m->data_count, &m->data_cap, sizeof(*m->data)))
		return;
	m->data[m->data_count++] = (struct data_run){
		.start = start,
		.count = count,
		.crcs = keep_bytes(m, crcs, count * sizeof(*crcs)),
	};
}

void mtr_counter(struct mtr *m, enum counter counter, uint64_t value)
{
	check(m->latched && counter < COUNTER_COUNT && value > 0);
	m->counter[counter] = value;
}

lsn_t mtr_lsn(const struct mtr *m)
{
	return m->lsn;
}
