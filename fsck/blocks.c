/*
 * Who uses which blocks.
 *
 * Pages and file blocks are claimed in maps of their own, so that an extent
 * with a wrong start cannot keep the walk from entering a page; what is in
 * both is reported when the maps are joined.
 */
#include "fsck/walk.h"

#include <errno.h>
#include <inttypes.h>

bool claim_page(struct walk *w, uint64_t pageno)
{
	uint64_t bit = (pageno - w->raw.geo.groups_start) / w->raw.geo.page_blocks;
	uint64_t mask = 1ull << (bit % 64);

	if (w->pages[bit / 64] & mask)
		return false;
	w->pages[bit / 64] |= mask;
	return true;
}

/* The part of [bit, end) that lies in one word, as a mask. */
static uint64_t word_mask(uint64_t bit, uint64_t end, uint64_t *next)
{
	uint64_t shift = bit % 64;
	uint64_t take = end - bit < 64 - shift ? end - bit : 64 - shift;

	*next = bit + take;
	return (take == 64 ? UINT64_MAX : (1ull << take) - 1) << shift;
}

void claim_blocks(struct walk *w, uint64_t start, uint64_t count, uint64_t *first_twice)
{
	uint64_t bit = start - w->raw.geo.groups_start, end = bit + count, next;

	*first_twice = UINT64_MAX;
	for (; bit < end; bit = next) {
		uint64_t mask = word_mask(bit, end, &next);
		uint64_t *word = &w->blocks[bit / 64];

		if ((*word & mask) && *first_twice == UINT64_MAX)
			*first_twice = w->raw.geo.groups_start + bit / 64 * 64 +
				       (uint64_t)__builtin_ctzll(*word & mask);
		*word |= mask;
	}
}

bool next_run(const uint64_t *bits, uint64_t *from, uint64_t end, uint64_t *start, uint64_t *count)
{
	uint64_t bit = *from;

	while (bit < end) {
		uint64_t word = bits[bit / 64] >> (bit % 64);

		if (word) {
			bit += (uint64_t)__builtin_ctzll(word);
			break;
		}
		bit = (bit / 64 + 1) * 64;
	}
	if (bit >= end)
		return false;
	*start = bit;
	while (bit < end) {
		uint64_t word = ~bits[bit / 64] >> (bit % 64);

		if (word) {
			bit += (uint64_t)__builtin_ctzll(word);
			break;
		}
		bit = (bit / 64 + 1) * 64;
	}
	*from = bit < end ? bit : end;
	*count = *from - *start;
	return true;
}

/* A page and a file, or what is to be purged, have the same blocks: the page stays. */
static bool touches_page(const struct walk *w, uint64_t start, uint64_t count)
{
	uint32_t page_blocks = w->raw.geo.page_blocks;
	uint64_t first = (start - w->raw.geo.groups_start) / page_blocks;
	uint64_t last = (start + count - 1 - w->raw.geo.groups_start) / page_blocks;

	for (uint64_t bit = first; bit <= last; bit++)
		if (w->pages[bit / 64] & (1ull << (bit % 64)))
			return true;
	return false;
}

static int list_extents_on_pages(struct walk *w)
{
	const struct raw_key least = {0};
	struct raw_cursor c;
	int rc = raw_cursor_open(&c, &w->raw, INDEX_LOB, &least);

	while (!rc && (rc = raw_cursor_next(&c)) == 0) {
		struct fsck_fix fix;
		struct extent e;
		const char *why;

		if (c.entry.key.len != KEY_LOB_BYTES || !raw_extent_decode(&c.entry, &e, &why) ||
		    !raw_blocks_valid(&w->raw, e.start, e.length) ||
		    !touches_page(w, e.start, e.length))
			continue;
		fix = fix_record(FIX_DELETE, INDEX_LOB, &c.entry.key);
		list_fix(w, &fix);
	}
	raw_cursor_close(&c);
	/* A broken tree was reported before, and is repaired before. */
	return rc == -ENOMEM ? rc : 0;
}

static void list_purges_on_pages(struct walk *w)
{
	for (size_t i = 0; i < w->purge_claims.count; i++) {
		const struct purge_claim *claim = &w->purge_claims.at[i];
		const struct fsck_fix fix = fix_single(FIX_DELETE, INDEX_PURGE, claim->key);

		if (touches_page(w, claim->start, claim->length))
			list_fix(w, &fix);
	}
}

int claim_pages_as_blocks(struct walk *w)
{
	const struct geometry *geo = &w->raw.geo;
	uint64_t pages = (w->raw.groups_end - geo->groups_start) / geo->page_blocks;
	uint64_t from = 0, start, count;
	bool any = false;

	while (next_run(w->pages, &from, pages, &start, &count)) {
		uint64_t block = geo->groups_start + start * geo->page_blocks, twice;

		claim_blocks(w, block, count * geo->page_blocks, &twice);
		if (twice == UINT64_MAX)
			continue;
		problem_edit(w, FSCK_BLOCK_TWICE, NULL,
			     "block %" PRIu64 ": by a page and by a file", twice);
		any = true;
	}
	if (!any)
		return 0;
	list_purges_on_pages(w);
	return list_extents_on_pages(w);
}
