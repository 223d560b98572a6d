/*
 * Pass 7: the allocation bitmaps against all that was claimed.
 *
 * A set bit that nothing claims is a leak: harmless, and repaired.  A claimed
 * block whose bit is clear would be given to the next file: repaired by setting
 * the bit, which is right in any case.  The former only when the whole volume
 * could be walked (INV-FSCK-1).
 */
#include "fsck/walk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* A group's words, with the difference of one kind, are looked through by next_run(). */
struct group {
	uint32_t number;
	uint64_t first;         /* block of bit 0 */
	uint64_t bits;          /* of blocks that exist */
	const uint8_t *on_disk; /* may be unaligned */
	const uint64_t *claimed;
	uint64_t *scratch;
};

static uint64_t disk_word(const struct group *g, uint64_t i)
{
	uint64_t word;

	memcpy(&word, g->on_disk + i * sizeof(word), sizeof(word));
	return word;
}

static enum new_bitmap how_new(const struct walk *w)
{
	return w->result->whole ? BITMAP_FREE : w->extents_hidden ? BITMAP_USED : BITMAP_PAGES;
}

/* What a bitmap page built anew has to hold. */
static void list_claimed(struct walk *w, const struct group *g)
{
	uint64_t from = 0, start, count;

	while (next_run(g->claimed, &from, g->bits, &start, &count))
		list_fix(w, &(struct fsck_fix){
				    .kind = FIX_SET_BITS, .id = g->first + start, .value = count});
}

/*
 * Of a page that can be read, so what is in use is known: while something is hidden it is
 * left as it is, since a new one would call all free blocks used, and a tree could not be
 * built anew for lack of room.
 */
static void report_end(struct walk *w, const struct group *g, uint64_t start)
{
	const struct fsck_fix fix = {
		.kind = FIX_NEW_BITMAP,
		.id = g->number,
		.value = BITMAP_FREE,
	};
	bool whole = w->result->whole;

	problem_edit(w, FSCK_BITMAP_END, whole ? &fix : NULL, "group %" PRIu32 ", bit %" PRIu64,
		     g->number, start);
	if (whole)
		list_claimed(w, g);
}

static void report_leaks(struct walk *w, const struct group *g)
{
	uint64_t words = w->raw.geo.group_blocks / 64, from = 0, start, count;

	for (uint64_t i = 0; i < words; i++)
		g->scratch[i] = disk_word(g, i) & ~g->claimed[i];
	while (next_run(g->scratch, &from, g->bits, &start, &count))
		problem_fix(w, FSCK_BLOCK_LEAKED, FIX_CLEAR_BITS, g->first + start, count,
			    "block %" PRIu64 ", %" PRIu64 " blocks", g->first + start, count);
	from = g->bits;
	if (next_run(g->scratch, &from, w->raw.geo.group_blocks, &start, &count))
		report_end(w, g, start);
}

static void report_free(struct walk *w, const struct group *g)
{
	uint64_t words = w->raw.geo.group_blocks / 64, from = 0, start, count;

	for (uint64_t i = 0; i < words; i++)
		g->scratch[i] = g->claimed[i] & ~disk_word(g, i);
	while (next_run(g->scratch, &from, g->bits, &start, &count))
		problem_fix(w, FSCK_BLOCK_FREE, FIX_SET_BITS, g->first + start, count,
			    "block %" PRIu64 ", %" PRIu64 " blocks", g->first + start, count);
}

/* Of the first `bits`. */
static uint64_t count_bits(const struct group *g, uint64_t bits)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i * 64 < bits; i++) {
		uint64_t word = disk_word(g, i);

		if (bits - i * 64 < 64)
			word &= (1ull << (bits - i * 64)) - 1;
		sum += (uint64_t)__builtin_popcountll(word);
	}
	return sum;
}

/* What a mount takes for the number of free blocks, against what the bitmaps say. */
static void compare_tally(struct walk *w, uint64_t used)
{
	uint64_t tally = w->options->tally;

	if (tally != 0 && tally != used)
		problem_fix(w, FSCK_SPACE_COUNT, FIX_TALLY, 0, used,
			    "%" PRIu64 " blocks, %" PRIu64 " are marked as used", tally, used);
}

static void compare_group(struct walk *w, const struct group *g)
{
	uint64_t words = w->raw.geo.group_blocks / 64;

	w->result->blocks_used += count_bits(g, words * 64);
	if (memcmp(g->on_disk, g->claimed, words * 8) == 0)
		return;
	report_leaks(w, g);
	report_free(w, g);
}

static bool read_bitmap(struct walk *w, const struct group *g)
{
	const struct disk_bitmap_page *page = (const void *)w->page_buf;
	uint64_t pageno = raw_bitmap_page(&w->raw, g->number);
	const char *why = "it is of another type or group";
	int rc = raw_read_page(&w->raw, pageno, w->page_buf, &why);

	if (!rc && page->head.type == PAGE_BITMAP && le32_get(page->group) == g->number) {
		note_lsn(w, "bitmap", pageno, page);
		return true;
	}
	problem_fix(w, FSCK_BITMAP_PAGE, FIX_NEW_BITMAP, g->number, how_new(w),
		    "group %" PRIu32 ", page %" PRIu64 ": %s", g->number, pageno, why);
	list_claimed(w, g);
	return false;
}

int pass7_bitmaps(struct walk *w)
{
	const struct geometry *geo = &w->raw.geo;
	static_assert(GROUP_BLOCKS(PAGE_SIZE_MIN) % 64 == 0, "groups are whole words");
	uint64_t *scratch = malloc(geo->group_blocks / 8);
	uint64_t used = 0; /* the bitmap pages left out */
	bool all = true;
	int rc = scratch ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < geo->group_count && !rc; i++) {
		uint64_t first = (uint64_t)i * geo->group_blocks;
		uint64_t left = w->raw.groups_end - geo->groups_start - first;
		struct group g = {
			.number = i,
			.first = geo->groups_start + first,
			.bits = left < geo->group_blocks ? left : geo->group_blocks,
			.on_disk = w->page_buf + sizeof(struct disk_bitmap_page),
			.claimed = w->blocks + first / 64,
			.scratch = scratch,
		};

		if (walk_cancelled(w)) {
			rc = -ECANCELED;
		} else if (read_bitmap(w, &g)) {
			used += count_bits(&g, g.bits) - geo->page_blocks;
			compare_group(w, &g);
		} else {
			all = false;
		}
	}
	if (!rc && all)
		compare_tally(w, used);
	free(scratch);
	return rc;
}
