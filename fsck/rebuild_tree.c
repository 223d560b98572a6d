/* A new tree: see rebuild_tree.h. */
#include "fsck/rebuild_tree.h"

#include "engine/base/error.h"
#include "engine/page.h"

#include <errno.h>
#include <stdlib.h>

#define FILL_SHARE 8u /* one part in so many of a page stays free for what comes */

/* --------------------------------------------------------------------- pages */

static struct key key_of(const struct raw_key *raw)
{
	struct key key = {.len = raw->len};

	memcpy(key.bytes, raw->bytes, raw->len);
	return key;
}

static void apply(struct build *b, uint8_t *page, uint8_t type, size_t len)
{
	int rc = page_redo(page, b->space->raw->geo.page_size, le64_get(raw_head(page)->pageno),
			   b->space->raw->tag, type, b->body, len);

	check(rc == 0);
}

int build_write(const struct raw_volume *raw, uint8_t *page, uint64_t pageno, uint64_t lsn)
{
	const char *why;

	((struct disk_page *)page)->pageno = le64_make(pageno);
	page_set_lsn(page, lsn);
	check(page_verify_structure(page, raw->geo.page_size, &why) == 0);
	page_seal(page, raw->geo.page_size);
	return dev_write(raw->dev, page, raw->geo.page_size, pageno * BLOCK_SIZE);
}

static bool is_free(const struct build_space *space, uint64_t pageno)
{
	const struct geometry *geo = &space->raw->geo;
	uint64_t bit = pageno - geo->groups_start;

	if (!space->known[bit / geo->group_blocks] ||
	    raw_blocks_fixed(space->raw, pageno, geo->page_blocks))
		return false;
	for (uint64_t end = bit + geo->page_blocks; bit < end; bit++)
		if (space->used[bit / 64] >> (bit % 64) & 1)
			return false;
	return true;
}

static int take_page(struct build *b, uint64_t *pageno)
{
	struct build_space *space = b->space;
	const struct geometry *geo = &space->raw->geo;
	uint64_t at = space->next ? space->next : geo->groups_start;

	while (at + geo->page_blocks <= space->raw->groups_end && !is_free(space, at))
		at += geo->page_blocks;
	if (at + geo->page_blocks > space->raw->groups_end)
		return -ENOSPC;
	if (b->taken_count == b->taken_room) {
		size_t room = b->taken_room ? b->taken_room * 2 : 64;
		uint64_t *moved = reallocarray(b->taken, room, sizeof(*moved));

		if (!moved)
			return -ENOMEM;
		b->taken = moved;
		b->taken_room = room;
	}
	b->taken[b->taken_count++] = at;
	for (uint64_t i = 0; i < geo->page_blocks; i++) {
		uint64_t bit = at - geo->groups_start + i;

		space->used[bit / 64] |= 1ull << (bit % 64);
	}
	space->next = at + geo->page_blocks;
	*pageno = at;
	return 0;
}

/* -------------------------------------------------------------------- levels */

/* An empty page from `low` on; its end is set when the next one begins. */
static int open_page(struct build *b, unsigned level, const struct raw_key *low, uint64_t pageno)
{
	const struct geometry *geo = &b->space->raw->geo;
	struct build_level *at = &b->level[level];
	const struct key from = key_of(low), infinite = {0};
	size_t len;

	if (!at->page)
		at->page = aligned_alloc(BLOCK_SIZE, geo->page_size);
	if (!at->page)
		return -ENOMEM;
	memset(at->page, 0, geo->page_size);
	((struct disk_page *)at->page)->pageno = le64_make(pageno);
	at->pageno = pageno;
	at->low = *low;
	len = redo_page_init(b->body, PAGE_TREE, (uint8_t)b->index, (uint8_t)level, 0, &from,
			     &infinite, 0);
	apply(b, at->page, REC_PAGE_INIT, len);
	return 0;
}

static int put_entry(struct build *b, unsigned level, const struct raw_key *key,
		     const uint8_t *value, size_t len);

/* The level's page is full, or the last: written, and the level above told. */
static int close_page(struct build *b, unsigned level, const struct raw_key *high, uint64_t right)
{
	struct build_level *at = &b->level[level];
	le64 child;
	int rc = at->pageno ? 0 : take_page(b, &at->pageno);

	if (rc)
		return rc;
	((struct disk_page *)at->page)->pageno = le64_make(at->pageno);
	if (high) {
		const struct key end = key_of(high);

		apply(b, at->page, REC_FENCE, redo_fence(b->body, &end, right));
	}
	at->closed_any = true;
	child = le64_make(at->pageno);
	rc = build_write(b->space->raw, at->page, at->pageno, b->space->lsn);
	if (rc)
		return rc;
	if (level + 1 == TREE_LEVELS_MAX)
		return -BE_FORMAT;
	return put_entry(b, level + 1, &at->low, (const uint8_t *)&child, sizeof(child));
}

static int put_entry(struct build *b, unsigned level, const struct raw_key *key,
		     const uint8_t *value, size_t len)
{
	uint32_t page_size = b->space->raw->geo.page_size;
	struct build_level *at = &b->level[level];
	static const struct raw_key least;
	unsigned slots;
	int rc = at->page ? 0 : open_page(b, level, level ? key : &least, 0);

	if (rc)
		return rc;
	slots = raw_slots(at->page);
	if (slots >= 4 &&
	    page_room(at->page, page_size) <
		    page_cost(key->len, len) + page_capacity(page_size) / FILL_SHARE) {
		uint64_t next;

		rc = take_page(b, &next);
		if (!rc)
			rc = close_page(b, level, key, next);
		if (!rc)
			rc = open_page(b, level, key, next);
		if (rc)
			return rc;
		slots = 0;
	}
	apply(b, at->page, REC_INSERT,
	      redo_insert(b->body, slots, key->bytes, key->len, value, len));
	return 0;
}

/* ----------------------------------------------------------------- interface */

int build_begin(struct build *build, struct build_space *space, unsigned index)
{
	*build = (struct build){.space = space, .index = index};
	build->body = malloc(BODY_BYTES_MAX(space->raw->geo.page_size));
	return build->body ? 0 : -ENOMEM;
}

int build_add(struct build *build, const struct raw_entry *entry)
{
	return put_entry(build, 0, &entry->key, entry->value, entry->value_len);
}

/* A level of which no page was closed has only this one: it is the root. */
int build_finish(struct build *build)
{
	static const struct raw_key least;
	unsigned level = 0;
	int rc = build->level[0].page ? 0 : open_page(build, 0, &least, 0);

	while (!rc && build->level[level].closed_any)
		rc = close_page(build, level++, NULL, 0);
	build->root = rc ? NULL : build->level[level].page;
	return rc;
}

int build_mark_used(struct build *build)
{
	const struct raw_volume *raw = build->space->raw;
	const struct geometry *geo = &raw->geo;
	uint8_t *page = build->taken_count ? malloc(geo->page_size) : NULL;
	int rc = page || !build->taken_count ? 0 : -ENOMEM;

	for (size_t i = 0; i < build->taken_count && !rc;) {
		uint32_t group = (uint32_t)((build->taken[i] - geo->groups_start) /
					    geo->group_blocks);
		uint64_t pageno = raw_bitmap_page(raw, group);
		const char *why;

		rc = raw_read_page(raw, pageno, page, &why);
		for (; !rc && i < build->taken_count &&
		       (build->taken[i] - geo->groups_start) / geo->group_blocks == group;
		     i++) {
			uint64_t bit = (build->taken[i] - geo->groups_start) % geo->group_blocks;

			apply(build, page, REC_BITS,
			      redo_bits(build->body, true, bit, geo->page_blocks));
		}
		if (!rc)
			rc = build_write(raw, page, pageno, build->space->lsn);
	}
	free(page);
	return rc;
}

int build_switch(struct build *build)
{
	const struct raw_volume *raw = build->space->raw;

	return build_write(raw, build->root, le64_get(raw->sb.root[build->index]),
			   build->space->lsn);
}

void build_free(struct build *build)
{
	for (unsigned i = 0; i < TREE_LEVELS_MAX; i++)
		free(build->level[i].page);
	free(build->taken);
	free(build->body);
}
