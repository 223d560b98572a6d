/*
 * The commit of a mini-transaction: INV-MTR-1 e and g.
 *
 *	1. sort the edits; give each leaf its part
 *	2. every bitmap page that bits touch is pinned, else once more from the start
 *	3. everything fits, log bytes included; else the full leaf is split
 *	4. bits are as they should be: what a damaged volume claims is an error here
 *	--- from here on nothing can fail ---
 *	5. apply and record: per leaf deletes, shrinking and then growing puts
 *	6. log, page LSNs, flush list; then the free map hears of it
 */
#include "engine/mtr_internal.h"

#include "engine/space.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

static uint32_t page_size_of(const struct mtr *m)
{
	return m->volume->geo.page_size;
}

/* -------------------------------------------------------------- 1. sorting */

static int edit_order(const void *a, const void *b)
{
	const struct edit *x = a, *y = b;

	if (x->index != y->index)
		return x->index < y->index ? -1 : 1;
	return key_compare(x->key.bytes, x->key.len, y->key.bytes, y->key.len);
}

static void assign_edits(struct mtr *m)
{
	unsigned at = 0;

	if (m->edit_count > 0)
		qsort(m->edit, m->edit_count, sizeof(m->edit[0]), edit_order);
	for (unsigned i = 0; i < m->leaf_count; i++) {
		struct leaf *leaf = &m->leaf[i];

		leaf->first_edit = at;
		while (at < m->edit_count && m->edit[at].index == leaf->index &&
		       page_covers(leaf->frame->data, m->edit[at].key.bytes, m->edit[at].key.len)) {
			check(at == leaf->first_edit ||
			      !key_equal(&m->edit[at].key, &m->edit[at - 1].key));
			at++;
		}
		leaf->edit_count = at - leaf->first_edit;
	}
	check(at == m->edit_count);
}

/* --------------------------------------------------------------- 2. bitmaps */

static int run_order(const void *a, const void *b)
{
	const struct bit_run *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/* *missing: a bitmap page has to be pinned first. */
static int find_bitmaps(struct mtr *m, bool *missing)
{
	bool want_system = false;

	*missing = false;
	for (unsigned i = 0; i < m->bits_count; i++) {
		bool added;
		int rc = mtr_add_bitmap(m, m->bits[i].start, &added);

		if (rc)
			return rc;
		*missing |= added;
	}
	for (unsigned i = 0; i < COUNTER_COUNT; i++)
		want_system |= m->counter[i] != 0;
	*missing |= want_system && m->system == NULL;
	m->want_system |= want_system;
	return 0;
}

static uint64_t bit_of(const struct mtr *m, uint64_t block)
{
	return (block - m->volume->geo.groups_start) % m->volume->geo.group_blocks;
}

/* 4. Each run lies in one group, none overlap, and each bit is what it must be before. */
static int verify_bits(struct mtr *m)
{
	const struct geometry *geo = &m->volume->geo;
	uint64_t end = 0;

	for (unsigned i = 0; i < m->bits_count; i++) {
		const struct bit_run *run = &m->bits[i];
		const struct bitmap *bitmap = mtr_bitmap(m, run->start);

		if (run->start < end)
			return corrupt_at(m->volume, run->start, "mtr_commit",
					  "blocks freed or allocated twice");
		if (bit_of(m, run->start) + run->count > geo->group_blocks)
			return corrupt_at(m->volume, run->start, "mtr_commit",
					  "run of blocks crosses a group");
		if (!page_bits_are(bitmap->frame->data, bit_of(m, run->start), run->count,
				   !run->set))
			return corrupt_at(m->volume, run->start, "mtr_commit",
					  run->set ? "block to allocate is in use"
						   : "block to free is free already");
		end = run->start + run->count;
	}
	return 0;
}

static void latch_bitmaps(struct mtr *m)
{
	for (unsigned i = 0; i < m->bitmap_count; i++)
		if (m->bitmap[i].frame)
			latch_x(&m->bitmap[i].frame->latch);
	if (m->system)
		latch_x(&m->system->latch);
}

static void unlatch_bitmaps(struct mtr *m)
{
	if (m->system)
		unlatch_x(&m->system->latch);
	for (unsigned i = m->bitmap_count; i-- > 0;)
		if (m->bitmap[i].frame)
			unlatch_x(&m->bitmap[i].frame->latch);
}

/* --------------------------------------------------------------- 3. fitting */

/* What an edit does to its page: found slot and sizes. */
struct effect {
	bool exists;
	unsigned slot;
	uint16_t old_len;
};

static struct effect effect_of(const struct leaf *leaf, const struct edit *edit)
{
	struct effect effect;
	struct page_entry entry;

	effect.slot = page_lower_bound(leaf->frame->data, edit->key.bytes, edit->key.len,
				       &effect.exists);
	effect.old_len = 0;
	if (effect.exists) {
		page_entry(leaf->frame->data, effect.slot, &entry);
		effect.old_len = entry.value_len;
	}
	check(!edit->is_delete || effect.exists);
	return effect;
}

static bool grows(const struct effect *effect, const struct edit *edit)
{
	return !effect->exists || edit->value_len > effect->old_len;
}

/*
 * Conservative: a record that grows needs its whole new size while its old
 * bytes are still there.  Which ones grow is remembered for apply_leaf(): no other edit
 * changes that, as there is one a key.
 */
static bool leaf_fits(const struct mtr *m, const struct leaf *leaf)
{
	const void *page = leaf->frame->data;
	uint64_t room = page_room(page, page_size_of(m)), need = 0;

	for (unsigned i = 0; i < leaf->edit_count; i++) {
		struct edit *edit = &m->edit[leaf->first_edit + i];
		struct effect effect = effect_of(leaf, edit);

		edit->grows = !edit->is_delete && grows(&effect, edit);
		if (edit->is_delete)
			room += page_slot_bytes(page, effect.slot);
		else if (edit->grows)
			need += page_cost(edit->key.len, edit->value_len);
	}
	return need <= room;
}

/* Log bytes of everything staged, from above. */
static bool log_fits(const struct mtr *m)
{
	uint64_t bytes = MTR_TRAILER_BYTES;

	for (unsigned i = 0; i < m->edit_count; i++)
		bytes += redo_record_bytes(m->edit[i].key.len + m->edit[i].value_len + 24);
	for (unsigned i = 0; i < m->data_count; i++)
		bytes += redo_record_bytes(20 + m->data[i].count * sizeof(le32));
	bytes += (m->bits_count + COUNTER_COUNT + m->log_other) * redo_record_bytes(21);
	return bytes <= m->redo.reserved;
}

/*
 * The leaf's entries as they will be, in key order, without the deleted.  The place of
 * the next edit among the slots is sought once; no other keys are compared.
 */
struct merged {
	const struct leaf *leaf;
	const struct edit *edit, *edit_end;
	unsigned slot;
	unsigned edit_slot;         /* of the next edit: it comes before this slot, or */
	bool edit_exact;            /* takes its place */
	/* the present entry */
	const struct edit *of_edit; /* NULL: it is of_slot's */
	unsigned of_slot;
	uint32_t bytes;
	bool added;
};

static void merged_seek(struct merged *it)
{
	it->edit_slot = UINT_MAX;
	if (it->edit < it->edit_end)
		it->edit_slot = page_lower_bound(it->leaf->frame->data, it->edit->key.bytes,
						 it->edit->key.len, &it->edit_exact);
}

static bool merged_next(struct merged *it)
{
	const void *page = it->leaf->frame->data;

	for (;;) {
		const struct edit *edit = it->edit;

		if (it->slot < it->edit_slot) {
			if (it->slot == page_slots(page))
				return false;
			it->of_edit = NULL;
			it->of_slot = it->slot;
			it->bytes = page_slot_bytes(page, it->slot++);
			it->added = false;
			return true;
		}
		it->slot += it->edit_exact;
		it->of_edit = edit;
		it->bytes = page_cost(edit->key.len, edit->value_len);
		it->added = !it->edit_exact;
		it->edit++;
		merged_seek(it);
		if (!edit->is_delete)
			return true;
	}
}

static struct merged merged_begin(const struct mtr *m, const struct leaf *leaf)
{
	struct merged it = {
		.leaf = leaf,
		.edit = m->edit + leaf->first_edit,
		.edit_end = m->edit + leaf->first_edit + leaf->edit_count,
	};

	merged_seek(&it);
	return it;
}

static struct key merged_key(const struct merged *it)
{
	struct key key;

	if (it->of_edit)
		return it->of_edit->key;
	page_key(it->leaf->frame->data, it->of_slot, &key);
	return key;
}

static struct key separator_of(const struct merged *left, const struct merged *right)
{
	struct key left_key = merged_key(left), right_key = merged_key(right);

	return key_separator(&left_key, &right_key);
}

/* What lies before, among and behind the new entries. */
struct shape {
	uint64_t total, before, behind; /* bytes; among: neither before nor behind */
	unsigned count;
	bool scattered;                 /* old entries among the new ones */
};

static struct shape shape_of(const struct mtr *m, const struct leaf *leaf)
{
	struct merged it = merged_begin(m, leaf);
	struct shape shape = {0};
	bool met_new = false;

	for (; merged_next(&it); shape.count++) {
		shape.total += it.bytes;
		if (it.added) {
			shape.scattered |= shape.behind > 0;
			met_new = true;
		} else if (met_new) {
			shape.behind += it.bytes;
		} else {
			shape.before += it.bytes;
		}
	}
	if (!met_new)
		shape.scattered = true; /* values have grown */
	return shape;
}

/*
 * Where to split the leaf (tree_boundary.c); there is an entry on either side.  Entries
 * behind scattered new ones count as behind all of them.
 */
static struct key leaf_boundary(const struct mtr *m, const struct leaf *leaf)
{
	struct shape shape = shape_of(m, leaf);
	enum boundary_kind kind = shape.scattered
					  ? BOUNDARY_BALANCED
					  : tree_boundary_kind(leaf->frame, shape.before,
							       shape.behind);
	struct balance balance = {.total = shape.total, .cost = UINT64_MAX};
	struct merged it = merged_begin(m, leaf), previous, left = {0}, right = {0};
	uint64_t before;

	check(shape.count >= 2 && merged_next(&it));
	previous = it;
	before = it.bytes;
	while (merged_next(&it)) {
		bool better;

		if (kind == BOUNDARY_BALANCED)
			better = balance_offer(&balance, before,
					       balance_is_near(&balance, before)
						       ? separator_of(&previous, &it).len : 0);
		else if (kind == BOUNDARY_BEFORE_NEW)
			better = !previous.added && it.added;
		else
			better = previous.added && !it.added;
		if (better) {
			left = previous;
			right = it;
		}
		previous = it;
		before += it.bytes;
	}
	check(right.leaf != NULL);
	return separator_of(&left, &right);
}

/* Splits the first leaf that is too full; 0 when all fit. */
static int split_full_leaf(struct mtr *m, bool *split)
{
	*split = false;
	for (unsigned i = 0; i < m->leaf_count; i++) {
		struct leaf *leaf = &m->leaf[i];
		struct tree *tree = &m->volume->index[leaf->index];
		struct key at;

		if (leaf_fits(m, leaf))
			continue;
		if (leaf->index == INDEX_LOB)
			stat_add(&m->volume->stats, STAT_lob_publish_splits, 1);
		at = leaf_boundary(m, leaf);
		mtr_release(m);
		mtr_unreserve(m);
		*split = true;
		os_point("mtr:split");
		return tree_split(tree, &at, 0, m->flags);
	}
	return 0;
}

/* -------------------------------------------------------------- 5. applying */

/* A put over a value of the same length: only the span that differs is logged. */
static void apply_patch(struct mtr *m, struct leaf *leaf, const struct edit *edit, unsigned slot)
{
	struct redo *redo = &m->redo;
	const uint8_t *new = m->values + edit->value;
	struct page_entry entry;
	size_t first = 0, end = edit->value_len;

	page_entry(leaf->frame->data, slot, &entry);
	while (first < end && entry.value[first] == new[first])
		first++;
	while (end > first && entry.value[end - 1] == new[end - 1])
		end--;
	if (first < end)
		redo_page(redo, leaf->frame, REC_PATCH,
			  redo_patch(redo->body, slot, (unsigned)first, new + first, end - first));
}

static void apply_put(struct mtr *m, struct leaf *leaf, const struct edit *edit)
{
	struct redo *redo = &m->redo;
	struct effect effect = effect_of(leaf, edit);
	const uint8_t *value = m->values + edit->value;

	if (!effect.exists) {
		redo_page(redo, leaf->frame, REC_INSERT,
			  redo_insert(redo->body, effect.slot, edit->key.bytes, edit->key.len,
				      value, edit->value_len));
		tree_note_insert(leaf->frame, effect.slot);
		if (leaf->index == INDEX_PURGE) /* INV-PURGE-2 */
			atomic_fetch_add_explicit(&m->volume->purge_waiting, 1,
						  memory_order_relaxed);
	} else if (effect.old_len == edit->value_len) {
		apply_patch(m, leaf, edit, effect.slot);
	} else {
		redo_page(redo, leaf->frame, REC_UPDATE,
			  redo_update(redo->body, effect.slot, value, edit->value_len));
	}
}

static bool leaf_is_sparse(const struct mtr *m, const struct leaf *leaf)
{
	uint32_t capacity = page_capacity(page_size_of(m));

	return page_slots(leaf->frame->data) == 0 ||
	       capacity - page_room(leaf->frame->data, page_size_of(m)) < capacity / 4;
}

static void apply_leaf(struct mtr *m, struct leaf *leaf)
{
	const struct edit *edit = m->edit + leaf->first_edit;
	bool was_sparse = leaf_is_sparse(m, leaf);
	bool deleted = false;

	for (unsigned i = 0; i < leaf->edit_count; i++) {
		if (edit[i].is_delete) {
			struct effect effect = effect_of(leaf, &edit[i]);

			redo_page(&m->redo, leaf->frame, REC_DELETE,
				  redo_delete(m->redo.body, effect.slot));
			deleted = true;
			if (leaf->index == INDEX_PURGE) /* INV-PURGE-2 */
				atomic_fetch_sub_explicit(&m->volume->purge_waiting, 1,
							  memory_order_relaxed);
		}
	}
	for (int growing = 0; growing < 2; growing++)
		for (unsigned i = 0; i < leaf->edit_count; i++)
			if (!edit[i].is_delete && edit[i].grows == growing)
				apply_put(m, leaf, &edit[i]);
	if (deleted && leaf_is_sparse(m, leaf) &&
	    (!was_sparse || page_slots(leaf->frame->data) == 0))
		mtr_note(m, leaf->index, &leaf->low, false);
}

static void apply_bits(struct mtr *m)
{
	for (unsigned i = 0; i < m->bits_count; i++) {
		const struct bit_run *run = &m->bits[i];

		redo_page(&m->redo, mtr_bitmap(m, run->start)->frame, REC_BITS,
			  redo_bits(m->redo.body, run->set, bit_of(m, run->start), run->count));
	}
}

static void apply_counters(struct mtr *m)
{
	for (unsigned i = 0; i < COUNTER_COUNT; i++)
		if (m->counter[i] != 0)
			redo_page(&m->redo, m->system, REC_COUNTER,
				  redo_counter(m->redo.body, i, m->counter[i]));
}

static void note_data(struct mtr *m)
{
	for (unsigned i = 0; i < m->data_count; i++) {
		const struct data_run *run = &m->data[i];
		uint8_t *body = m->redo.body;
		size_t len = varint_put(body, run->start);

		len += varint_put(body + len, run->count);
		check(len + run->count * sizeof(le32) <= BODY_BYTES_MAX(page_size_of(m)));
		memcpy(body + len, m->values + run->crcs, run->count * sizeof(le32));
		redo_note(&m->redo, REC_DATA, len + run->count * sizeof(le32));
	}
}

static void note_log_other(struct mtr *m)
{
	uint8_t *body = m->redo.body;
	size_t len = varint_put(body, m->log_other_start);

	len += varint_put(body + len, m->log_other_count);
	redo_note(&m->redo, REC_LOG_OTHER, len);
}

/* 6. */
static void tell_space(struct mtr *m)
{
	for (unsigned i = 0; i < m->bits_count; i++) {
		const struct bit_run *run = &m->bits[i];

		if (run->set)
			space_used(m->volume->space, run->start, run->count);
		else
			space_freed(m->volume->space, run->start, run->count, m->lsn, false);
	}
}

/* For the next incremental backup (INV-WRITTEN-2). */
static void note_written(void *arg)
{
	struct mtr *m = arg;

	for (unsigned i = 0; i < m->data_count; i++)
		written_note(&m->volume->written, m->data[i].start, m->data[i].count);
}

static void apply(struct mtr *m)
{
	note_data(m);
	if (m->data_count > 0) {
		m->redo.appended = note_written;
		m->redo.appended_arg = m;
	}
	for (unsigned i = 0; i < m->leaf_count; i++)
		apply_leaf(m, &m->leaf[i]);
	apply_bits(m);
	apply_counters(m);
	if (m->log_other)
		note_log_other(m);
	if (m->redo.len > 0) {
		os_point("mtr:applied");
		redo_commit(&m->redo);
	}
	m->lsn = m->redo.lsn;
	tell_space(m);
}

int mtr_commit(struct mtr *m)
{
	bool missing = false, split = false;
	int rc = m->error;

	check(m->latched);
	if (rc)
		return rc;
	assign_edits(m);
	if (m->bits_count > 0)
		qsort(m->bits, m->bits_count, sizeof(m->bits[0]), run_order);
	rc = find_bitmaps(m, &missing);
	if (rc)
		return rc;
	if (missing) {
		mtr_release(m);
		return -BE_AGAIN;
	}
	rc = split_full_leaf(m, &split);
	if (rc || split)
		return rc ? rc : -BE_AGAIN;
	if (!log_fits(m))
		return -E2BIG;

	latch_bitmaps(m);
	rc = verify_bits(m);
	if (rc == 0)
		apply(m);
	unlatch_bitmaps(m);
	if (rc)
		return rc;
	mtr_release(m);
	mtr_unreserve(m);
	return 0;
}
