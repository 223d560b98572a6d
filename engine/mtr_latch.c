/*
 * INV-MTR-1 a to d and f: reserve, locate and pin, latch in order, verify.
 *
 * Order of what is taken: pool tickets, log bytes | index latches by id | epoch,
 * pins | leaf latches by index, left to right | bitmap pages by group, the system
 * page (at commit).  Reservations may be waited for; nothing behind the first
 * bar is held then.  No latch of a page is held while a page is read.
 */
#include "engine/mtr_internal.h"

#include "engine/space.h"

#include <stdlib.h>

/* ------------------------------------------------------ a. reservations */

static unsigned tickets_needed(const struct mtr *m)
{
	/* One page more is pinned for a moment while a tree is descended, and the system page. */
	unsigned leaves = m->want_count + m->range_count * (RANGE_PAGES_MAX - 1);

	return (leaves < MTR_PAGES_MAX ? leaves : MTR_PAGES_MAX) + m->bitmap_count + 2;
}

/* Log bytes: each wanted key may get a record of the largest size, a range a few of them. */
static uint64_t log_bytes_needed(const struct mtr *m)
{
	uint32_t page_size = m->volume->geo.page_size;
	uint64_t record = RECORD_BYTES_MAX(page_size) + 64;

	return 1024 + (m->want_count - m->unlogged_count) * record +
	       (m->range_count - m->unlogged_count) * 4 * record + m->want_log;
}

static int reserve(struct mtr *m)
{
	unsigned tickets = tickets_needed(m);
	int rc;

	if (m->tickets < tickets)
		mtr_unreserve(m);
	if (m->tickets == 0) {
		rc = pool_take_tickets(m->volume->pool, tickets);
		if (rc)
			return rc;
		m->tickets = tickets;
	}
	if (!m->reserved) {
		rc = redo_begin(&m->redo, m->volume, log_bytes_needed(m));
		if (rc)
			return rc;
		m->reserved = true;
	}
	return 0;
}

/* ---------------------------------------------------- b. locate and pin */

static void latch_indexes(struct mtr *m, bool all_exclusive)
{
	unsigned mask = 0, exclusive;

	for (unsigned i = 0; i < m->want_count; i++)
		mask |= 1u << m->want[i].index;
	exclusive = all_exclusive ? mask : mask & m->want_exclusive;
	for (unsigned i = 0; i < INDEX_COUNT; i++) {
		if (!(mask & 1u << i))
			continue;
		if (exclusive & 1u << i) {
			latch_x(&m->volume->index[i].index_latch);
			stat_add(&m->volume->stats, STAT_tree_index_latch_x, 1);
		} else {
			tree_latch_index_s(&m->volume->index[i]);
		}
	}
	m->index_mask = mask;
	m->exclusive_mask = exclusive;
}

/* Pins the leaf that covers key; *leaf is the new one or the same met before. */
static int locate_leaf(struct mtr *m, unsigned index, const struct key *key, struct leaf **out,
		       struct key *last)
{
	struct frame *frame;
	struct leaf *leaf;
	unsigned slots;
	int rc = tree_descend(&m->volume->index[index], key, 0, LATCH_S, &frame);

	if (rc)
		return rc;
	slots = page_slots(frame->data);
	last->len = 0;
	if (slots > 0)
		page_key(frame->data, slots - 1, last);
	for (unsigned i = 0; i < m->leaf_count; i++) {
		if (m->leaf[i].frame != frame)
			continue;
		/* Fences are as of the first visit: a change since then fails verification. */
		tree_unlatch(frame, LATCH_S);
		pool_put(frame);
		*out = &m->leaf[i];
		return 0;
	}
	check(m->leaf_count < MTR_PAGES_MAX);
	leaf = &m->leaf[m->leaf_count++];
	*leaf = (struct leaf){.frame = frame, .index = index};
	page_low(frame->data, &leaf->low);
	page_high(frame->data, &leaf->high);
	if (page_is_incomplete(frame->data))
		mtr_note(m, index, &leaf->low, true);
	tree_unlatch(frame, LATCH_S);
	*out = leaf;
	return 0;
}

/* The leaf has to have an entry >= high still when it is latched. */
static void close_range(struct leaf *leaf, const struct key *high)
{
	if (!leaf->closes_range || key_compare(high->bytes, high->len, leaf->range_high.bytes,
					       leaf->range_high.len) > 0)
		leaf->range_high = *high;
	leaf->closes_range = true;
}

/*
 * Leaves from the one that covers low to the one with the first entry >= high,
 * or as many as RANGE_PAGES_MAX and MTR_PAGES_MAX allow.
 */
static int locate_range(struct mtr *m, const struct want *want)
{
	struct key at = want->low;

	for (unsigned pages = 0; pages < RANGE_PAGES_MAX && m->leaf_count < MTR_PAGES_MAX;
	     pages++) {
		struct leaf *leaf;
		struct key last;
		int rc = locate_leaf(m, want->index, &at, &leaf, &last);

		if (rc)
			return rc;
		if (leaf->high.len == 0)
			break;
		if (last.len > 0 && key_compare(last.bytes, last.len, want->high.bytes,
						want->high.len) >= 0) {
			close_range(leaf, &want->high);
			break;
		}
		at = leaf->high;
	}
	return 0;
}

static int locate_all(struct mtr *m)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < m->want_count; i++) {
		const struct want *want = &m->want[i];
		struct leaf *leaf;
		struct key last;

		if (want->range)
			rc = locate_range(m, want);
		else
			rc = locate_leaf(m, want->index, &want->low, &leaf, &last);
	}
	for (unsigned i = 0; rc == 0 && i < m->bitmap_count; i++)
		rc = space_pin_bitmap(m->volume, m->bitmap[i].pageno, &m->bitmap[i].frame);
	if (rc == 0 && m->want_system)
		rc = pool_get(m->volume->pool, m->volume->geo.system_page, PAGE_SYSTEM, 0,
			      &m->system);
	return rc;
}

/* ------------------------------------------------- c. latch, d. verify */

static int leaf_order(const void *a, const void *b)
{
	const struct leaf *x = a, *y = b;

	if (x->index != y->index)
		return x->index < y->index ? -1 : 1;
	return key_compare(x->low.bytes, x->low.len, y->low.bytes, y->low.len);
}

static bool is_unchanged(const struct leaf *leaf)
{
	const void *page = leaf->frame->data;
	struct key low, high, last;

	if (page_is_dead(page) || tree_page(page)->head.level != 0)
		return false;
	page_low(page, &low);
	page_high(page, &high);
	if (!key_equal(&low, &leaf->low) || !key_equal(&high, &leaf->high))
		return false;
	if (!leaf->closes_range)
		return true;
	/* The entry that closed the range may have moved on to the next leaf. */
	if (page_slots(page) == 0)
		return false;
	page_key(page, page_slots(page) - 1, &last);
	return key_compare(last.bytes, last.len, leaf->range_high.bytes, leaf->range_high.len) >= 0;
}

static bool latch_and_verify(struct mtr *m)
{
	qsort(m->leaf, m->leaf_count, sizeof(m->leaf[0]), leaf_order);
	for (unsigned i = 0; i < m->leaf_count; i++) {
		tree_latch(&m->volume->index[m->leaf[i].index], m->leaf[i].frame, LATCH_X);
		m->leaf[i].latched = true;
		if (!is_unchanged(&m->leaf[i]))
			return false;
	}
	return true;
}

int mtr_latch(struct mtr *m)
{
	struct epochs *epochs = &m->volume->epochs;

	check(!m->latched);
	for (;;) {
		int rc = reserve(m);
		bool ok = false;

		if (rc)
			return rc;
		/* INV-MTR-1 f */
		if (m->tries == MTR_LATCH_TRIES)
			stat_add(&m->volume->stats, STAT_mtr_fallbacks, 1);
		latch_indexes(m, m->tries >= MTR_LATCH_TRIES);
		epoch_enter(epochs);
		rc = locate_all(m);
		os_point("mtr:located");
		if (rc == 0)
			ok = latch_and_verify(m);
		epoch_exit(epochs);
		if (ok) {
			m->latched = true;
			os_point("mtr:latched");
			return 0;
		}
		mtr_release(m);
		if (rc)
			return rc;
		m->tries++;
		stat_add(&m->volume->stats, STAT_mtr_retries, 1);
		if (m->note_count > 0 && m->tries > 1)
			m->note_count = 0; /* noted anew with the leaves */
	}
}
