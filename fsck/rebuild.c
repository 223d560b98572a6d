/* Building indexes anew: see rebuild.h. */
#include "fsck/rebuild.h"

#include "fsck/raw.h"
#include "fsck/rebuild_tree.h"

#include "engine/base/error.h"
#include "engine/base/os.h"
#include "engine/page.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SCAN_BYTES (1u << 20)

/* A leaf that says it is of the index. */
struct leaf {
	uint64_t pageno, lsn;
	struct raw_key low, high;
};

struct rebuild {
	struct raw_volume raw;
	const struct repair_round *round;
	unsigned index;
	uint64_t *used; /* by the bitmaps, one bit a block; all of a group without a page */
	bool *known;    /* by group: its bitmap page is good */
	uint8_t *chunk; /* SCAN_BYTES */
	struct leaf *leaf;
	size_t leaves, room;
	struct build_space space;
	uint64_t entries, dropped, unreadable;
};

static bool bit_of(const uint64_t *bits, uint64_t bit)
{
	return bits[bit / 64] >> (bit % 64) & 1;
}

/* ------------------------------------------------------------------- bitmaps */

static int read_group(struct rebuild *r, uint32_t group)
{
	const struct geometry *geo = &r->raw.geo;
	const struct disk_bitmap_page *page = (const void *)r->chunk;
	uint64_t *words = r->used + (uint64_t)group * geo->group_blocks / 64;
	const char *why;
	int rc = raw_read_page(&r->raw, raw_bitmap_page(&r->raw, group), r->chunk, &why);

	r->known[group] = !rc && page->head.type == PAGE_BITMAP && le32_get(page->group) == group;
	if (r->known[group])
		memcpy(words, r->chunk + sizeof(*page), geo->group_blocks / 8);
	else
		memset(words, 0xff, geo->group_blocks / 8);
	return rc == -ENOMEM ? rc : 0;
}

static int read_bitmaps(struct rebuild *r)
{
	const struct geometry *geo = &r->raw.geo;
	int rc = 0;

	r->used = calloc((uint64_t)geo->group_count * geo->group_blocks / 64 + 1, sizeof(uint64_t));
	r->known = calloc(geo->group_count, sizeof(*r->known));
	if (!r->used || !r->known)
		return -ENOMEM;
	for (uint32_t group = 0; group < geo->group_count && !rc; group++)
		rc = read_group(r, group);
	return rc;
}

/* ---------------------------------------------------------------- candidates */

static bool may_be_page(const struct rebuild *r, uint64_t pageno)
{
	uint64_t bit = pageno - r->raw.geo.groups_start;

	return raw_pageno_valid(&r->raw, pageno) && bit_of(r->used, bit) &&
	       !bit_of(r->round->result->claimed_data, bit);
}

static int add_leaf(struct rebuild *r, uint64_t pageno, const void *page)
{
	struct leaf *leaf;

	if (r->leaves == r->room) {
		size_t room = r->room ? r->room * 2 : 256;
		struct leaf *moved = reallocarray(r->leaf, room, sizeof(*moved));

		if (!moved)
			return -ENOMEM;
		r->leaf = moved;
		r->room = room;
	}
	leaf = &r->leaf[r->leaves++];
	leaf->pageno = pageno;
	leaf->lsn = le64_get(raw_head(page)->lsn);
	raw_low(page, &leaf->low);
	raw_high(page, &leaf->high);
	return 0;
}

static int judge_candidate(struct rebuild *r, uint64_t pageno, const void *page)
{
	const struct disk_page *head = raw_head(page);
	const char *why;

	if (head->type != PAGE_TREE || head->index != r->index || head->level != 0 ||
	    head->flags & PAGE_DEAD || raw_judge_page(&r->raw, pageno, page, &why))
		return 0;
	return add_leaf(r, pageno, page);
}

/* Pages [first, first + count) in one read, or one by one where that fails. */
static int scan_run(struct rebuild *r, uint64_t first, unsigned count)
{
	const struct geometry *geo = &r->raw.geo;
	size_t bytes = (size_t)count * geo->page_size;
	bool good = dev_read(r->raw.dev, r->chunk, bytes, first * BLOCK_SIZE) == 0;
	int rc = 0;

	for (unsigned i = 0; i < count; i++) {
		uint64_t pageno = first + (uint64_t)i * geo->page_blocks;
		uint8_t *page = r->chunk + (size_t)i * geo->page_size;

		if (!good)
			rc = dev_read(r->raw.dev, page, geo->page_size, pageno * BLOCK_SIZE);
		if (rc == -ENOMEM)
			return rc;
		r->unreadable += rc != 0;
		rc = rc ? 0 : judge_candidate(r, pageno, page);
		if (rc)
			return rc;
	}
	return 0;
}

static int find_leaves(struct rebuild *r)
{
	const struct geometry *geo = &r->raw.geo;
	unsigned most = SCAN_BYTES / geo->page_size, count = 0;
	uint64_t first = 0;
	int rc = 0;

	for (uint64_t at = geo->groups_start; at + geo->page_blocks <= r->raw.groups_end && !rc;
	     at += geo->page_blocks) {
		if (may_be_page(r, at)) {
			first = count ? first : at;
			count++;
		}
		if (count && (count == most || first + (uint64_t)count * geo->page_blocks <= at)) {
			rc = scan_run(r, first, count);
			count = 0;
		}
	}
	return rc || !count ? rc : scan_run(r, first, count);
}

/* ------------------------------------------------------- who covers which keys */

static int compare_low(const void *a, const void *b)
{
	const struct leaf *x = a, *y = b;

	return raw_key_compare(&x->low, &y->low);
}

/* Does `key` lie below a high fence? */
static bool below(const struct raw_key *key, const struct raw_key *high)
{
	return high->len == 0 || raw_key_compare(key, high) < 0;
}

static bool newer(const struct leaf *a, const struct leaf *b)
{
	return a->lsn != b->lsn ? a->lsn > b->lsn : a->pageno > b->pageno;
}

/* A heap of leaves, the newest on top. */
struct heap {
	const struct leaf **at;
	size_t count;
};

static void heap_push(struct heap *heap, const struct leaf *leaf)
{
	size_t i = heap->count++;

	for (; i > 0 && newer(leaf, heap->at[(i - 1) / 2]); i = (i - 1) / 2)
		heap->at[i] = heap->at[(i - 1) / 2];
	heap->at[i] = leaf;
}

static void heap_pop(struct heap *heap)
{
	const struct leaf *leaf = heap->at[--heap->count];
	size_t i = 0;

	for (;;) {
		size_t child = 2 * i + 1;

		if (child >= heap->count)
			break;
		if (child + 1 < heap->count && newer(heap->at[child + 1], heap->at[child]))
			child++;
		if (!newer(heap->at[child], leaf))
			break;
		heap->at[i] = heap->at[child];
		i = child;
	}
	if (heap->count)
		heap->at[i] = leaf;
}

/* Entries of a leaf in [from, to) go into the new tree. */
static int take_piece(struct rebuild *r, struct build *build, const struct leaf *leaf,
		      const struct raw_key *from, const struct raw_key *to)
{
	const char *why;
	unsigned slots;
	int rc = raw_read_page(&r->raw, leaf->pageno, r->chunk, &why);

	if (rc)
		return rc;
	slots = raw_slots(r->chunk);
	for (unsigned slot = 0; slot < slots && !rc; slot++) {
		struct raw_entry entry;

		raw_entry(r->chunk, slot, &entry);
		if (raw_key_compare(&entry.key, from) < 0 || !below(&entry.key, to))
			continue;
		if (raw_key_bytes[r->index] && entry.key.len != raw_key_bytes[r->index]) {
			r->dropped++;
			continue;
		}
		rc = build_add(build, &entry);
		r->entries++;
	}
	return rc;
}

/*
 * From the lowest key up: the newest of the leaves that have begun rules until it
 * ends, or a newer one begins.
 */
static int merge_leaves(struct rebuild *r, struct build *build)
{
	struct heap heap = {.at = malloc((r->leaves + 1) * sizeof(*heap.at))};
	struct raw_key from = {0};
	size_t next = 0;
	int rc = heap.at ? 0 : -ENOMEM;

	if (r->leaves)
		qsort(r->leaf, r->leaves, sizeof(*r->leaf), compare_low);
	while (!rc && (next < r->leaves || heap.count)) {
		const struct leaf *ruler;
		struct raw_key to;

		while (heap.count && !below(&from, &heap.at[0]->high))
			heap_pop(&heap);
		if (!heap.count) {
			if (next == r->leaves)
				break;
			if (raw_key_compare(&r->leaf[next].low, &from) > 0)
				from = r->leaf[next].low;
		}
		while (next < r->leaves && raw_key_compare(&r->leaf[next].low, &from) <= 0)
			heap_push(&heap, &r->leaf[next++]);
		while (heap.count && !below(&from, &heap.at[0]->high))
			heap_pop(&heap);
		if (!heap.count)
			continue;
		ruler = heap.at[0];
		to = ruler->high;
		for (size_t i = next; i < r->leaves && below(&r->leaf[i].low, &ruler->high); i++)
			if (newer(&r->leaf[i], ruler)) {
				to = r->leaf[i].low;
				break;
			}
		/* those that begin below `to` are older: they wait in the heap */
		while (next < r->leaves && below(&r->leaf[next].low, &to))
			heap_push(&heap, &r->leaf[next++]);
		rc = take_piece(r, build, ruler, &from, &to);
		if (to.len == 0)
			break;
		from = to;
	}
	free(heap.at);
	return rc;
}

/* ----------------------------------------------------------------- the whole */

/* Where nothing is: neither a bitmap nor the walk, nor a candidate, knows of it. */
static void find_space(struct rebuild *r)
{
	const struct geometry *geo = &r->raw.geo;
	uint64_t words = (uint64_t)geo->group_count * geo->group_blocks / 64;

	for (uint64_t i = 0; i < words; i++)
		r->used[i] |= r->round->result->claimed[i];
	for (size_t i = 0; i < r->leaves; i++)
		for (uint32_t block = 0; block < geo->page_blocks; block++) {
			uint64_t bit = r->leaf[i].pageno - geo->groups_start + block;

			r->used[bit / 64] |= 1ull << (bit % 64);
		}
	r->space = (struct build_space){
		.raw = &r->raw, .used = r->used, .known = r->known, .lsn = r->round->lsn};
}

static int build_and_switch(struct rebuild *r)
{
	struct build build;
	int rc = build_begin(&build, &r->space, r->index);

	if (!rc)
		rc = merge_leaves(r, &build);
	if (!rc)
		rc = build_finish(&build);
	if (!rc)
		rc = dev_flush(r->raw.dev);
	os_point("fsck:built");
	if (!rc)
		rc = build_mark_used(&build);
	if (!rc)
		rc = dev_flush(r->raw.dev);
	os_point("fsck:marked");
	if (!rc)
		rc = build_switch(&build);
	if (!rc)
		rc = dev_flush(r->raw.dev);
	build_free(&build);
	return rc;
}

static void say(struct rebuild *r)
{
	char line[192];

	snprintf(line, sizeof(line),
		 "index %s: rebuilt, %" PRIu64 " entries of %zu leaves; %" PRIu64
		 " entries dropped, %" PRIu64 " pages unreadable",
		 raw_index_names[r->index], r->entries, r->leaves, r->dropped, r->unreadable);
	if (r->round->say)
		r->round->say(r->round->arg, line);
}

int rebuild_system(struct device *dev, const struct repair_round *round)
{
	uint8_t body[64], *page;
	const struct key unbounded = {0};
	struct raw_volume raw;
	uint64_t pageno;
	int rc = raw_open(&raw, dev);

	page = rc ? NULL : calloc(1, raw.geo.page_size);
	if (!page)
		return rc ? rc : -ENOMEM;
	pageno = raw.geo.system_page;
	rc = page_redo(page, raw.geo.page_size, pageno, raw.tag, REC_PAGE_INIT, body,
		       redo_page_init(body, PAGE_SYSTEM, 0, 0, 0, &unbounded, &unbounded, 0));
	for (size_t i = 0; i < round->result->fix_count && !rc; i++) {
		const struct fsck_fix *fix = &round->result->fixes[i];

		if (fix->kind == FIX_SYSTEM && fix->value)
			rc = page_redo(page, raw.geo.page_size, pageno, raw.tag, REC_COUNTER, body,
				       redo_counter(body, (unsigned)fix->id, fix->value));
	}
	if (!rc)
		rc = build_write(&raw, page, pageno, round->lsn);
	if (!rc)
		rc = dev_flush(dev);
	free(page);
	return rc;
}

int rebuild_index(struct device *dev, const struct repair_round *round, unsigned index)
{
	struct rebuild r = {.round = round, .index = index};
	int rc = raw_open(&r.raw, dev);

	check(round->result->claimed && round->result->claimed_data);
	if (rc)
		return rc;
	r.chunk = aligned_alloc(BLOCK_SIZE, SCAN_BYTES);
	rc = r.chunk ? 0 : -ENOMEM;
	if (!rc)
		rc = read_bitmaps(&r);
	if (!rc)
		rc = find_leaves(&r);
	if (!rc) {
		find_space(&r);
		rc = build_and_switch(&r);
	}
	if (!rc)
		say(&r);
	free(r.leaf);
	free(r.chunk);
	free(r.known);
	free(r.used);
	return rc;
}
