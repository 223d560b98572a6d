/* Pages kept apart from data (INV-SPACE-3), and small data in broken pieces first. */
#include "engine/space_internal.h"

#include "engine/base/error.h"
#include "tests/lib/hoard.h"
#include "tests/lib/lob_rig.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>

#define VOLUME_BYTES (16u << 20)
#define LOG_BYTES (1u << 20)
#define PAGES_MAX 512u
#define PIECES_A_MTR 8u

static struct volume *fresh(uint32_t page_size)
{
	uint32_t pages = page_size / PAGE_SIZE_MIN;

	return lob_rig_format(page_size > 16384 ? 4 * VOLUME_BYTES : VOLUME_BYTES, page_size,
			      (pages > 4 ? pages : 4) * LOG_BYTES / 2);
}

static uint64_t held(struct volume *v)
{
	return atomic_load(&v->space->reserve.held);
}

/* The place of a block among those of its page-shaped piece, and the piece's number. */
static uint32_t place(const struct volume *v, uint64_t block)
{
	return (uint32_t)((block - v->geo.groups_start) % v->geo.page_blocks);
}

static uint64_t piece_of(const struct volume *v, uint64_t block)
{
	return (block - v->geo.groups_start) / v->geo.page_blocks;
}

/* Pages until there are none for a caller with these flags. */
static unsigned take_pages(struct volume *v, unsigned flags, uint64_t pageno[PAGES_MAX])
{
	unsigned count = 0;
	int rc;

	for (;;) {
		rc = space_take_page(v->space, flags, 0, &pageno[count]);
		if (rc == 0) {
			cr_assert_eq(pageno[count] % v->geo.page_blocks, 0);
			cr_assert_lt(++count, PAGES_MAX);
			continue;
		}
		cr_assert_eq(rc, -BE_AGAIN);
		rc = space_refill_pages(v->space, flags);
		if (rc) {
			cr_assert_eq(rc, -ENOSPC);
			return count;
		}
	}
}

static void give_pages(struct volume *v, uint64_t *pageno, unsigned count)
{
	while (count > 0)
		space_untake_page(v->space, pageno[--count]);
}

/* Data leaves the reserve to pages, and those leave the kept part to the privileged. */
static void everyone_takes_all(uint32_t page_size)
{
	struct volume *v = fresh(page_size);
	struct space_counts before = hoard_counts(v);
	uint64_t target = v->space->reserve.target;
	uint64_t *pageno = calloc(2 * PAGES_MAX, sizeof(*pageno));
	struct reservation *large = calloc(64, sizeof(*large));
	unsigned larges = 0, pages, privileged;
	struct hoard all;

	cr_assert_eq(held(v), target);
	cr_assert_gt(before.kept, before.total / 40);
	cr_assert_lt(before.kept, before.total / 30);
	while (space_reserve(v->space, 257, 0, 0, &large[larges]) == 0)
		cr_assert_lt(++larges, 64);
	all = hoard_take(v, 0);
	cr_assert_eq(hoard_counts(v).free, before.kept);
	cr_assert_eq(hoard_counts(v).kept, before.kept);
	cr_assert_eq(held(v), target);
	pages = take_pages(v, 0, pageno);
	cr_assert_eq(pages, target);
	cr_assert_eq(v->space->pages.count, v->space->pages.kept);
	privileged = take_pages(v, SPACE_PRIVILEGED, pageno + pages);
	cr_assert_eq(privileged, v->space->pages.kept);
	cr_assert_eq(hoard_counts(v).free, 0);
	give_pages(v, pageno, pages + privileged);
	while (larges > 0)
		space_unreserve(v->space, &large[--larges]);
	hoard_give(v, &all);
	space_advance(v->space);
	cr_assert_eq(held(v), target);
	cr_assert_eq(hoard_counts(v).free, before.free);
	cr_assert_eq(hoard_counts(v).reserved, 0);
	free(large);
	free(pageno);
	cr_assert_eq(volume_close(v), 0);
}

Test(space_pages, data_leaves_the_reserve_and_pages_the_kept_part)
{
	for (uint32_t page_size = PAGE_SIZE_MIN; page_size <= PAGE_SIZE_MAX; page_size *= 4)
		everyone_takes_all(page_size);
}

/* A block for the tail of a truncated file: a page is broken up, the reserve's first. */
Test(space_pages, the_privileged_break_pages)
{
	struct volume *v = fresh(16384);
	struct space_counts before = hoard_counts(v);
	struct hoard all = hoard_take(v, 0), rest;
	struct reservation r;

	cr_assert_eq(space_reserve(v->space, 9, 0, SPACE_PRIVILEGED, &r), 0);
	cr_assert_eq(r.count, 3);
	cr_assert_eq(held(v), v->space->reserve.target - 3);
	cr_assert_eq(v->space->pages.count, v->space->pages.kept);
	space_unreserve(v->space, &r);
	cr_assert_eq(held(v), v->space->reserve.target);
	rest = hoard_take(v, SPACE_PRIVILEGED);
	cr_assert_eq(rest.count, before.kept);
	cr_assert_eq(hoard_counts(v).free, 0);
	hoard_give(v, &rest);
	space_advance(v->space);
	cr_assert_eq(v->space->pages.count, v->space->pages.kept);
	cr_assert_eq(held(v), v->space->reserve.target);
	hoard_give(v, &all);
	cr_assert_eq(hoard_counts(v).free, before.free);
	cr_assert_eq(volume_close(v), 0);
}

Test(space_pages, kept_blocks_are_denied_while_pages_are_missing)
{
	struct volume *v = fresh(4096);
	struct hoard all = hoard_take(v, 0), rest = hoard_take(v, SPACE_PRIVILEGED);
	struct reservation r;

	hoard_give_one(v, &rest, rest.count - 1);
	cr_assert_eq(space_reserve(v->space, 1, 0, 0, &r), -ENOSPC);
	cr_assert_eq(space_reserve(v->space, 1, 0, SPACE_PRIVILEGED, &r), 0);
	space_unreserve(v->space, &r);
	hoard_give(v, &rest);
	hoard_give(v, &all);
	cr_assert_eq(volume_close(v), 0);
}

/* What comes back whole is the reserve's at once; rests that no page could use are data's. */
Test(space_pages, the_reserve_is_refilled_before_data)
{
	struct volume *v = fresh(16384);
	struct hoard all = hoard_take(v, 0);
	uint64_t pageno[PAGES_MAX], first = UINT64_MAX, second = UINT64_MAX;
	unsigned pages = take_pages(v, 0, pageno);
	struct reservation r;

	cr_assert_eq(held(v), 0);
	for (unsigned i = all.count / 2; second == UINT64_MAX; i++) {
		uint64_t piece = piece_of(v, all.r[i].piece[0].start);

		if (first == UINT64_MAX && place(v, all.r[i].piece[0].start) == 0)
			first = piece;
		else if (first != UINT64_MAX && piece != first)
			second = piece;
	}
	for (unsigned i = 0; i < all.count; i++) {
		uint64_t block = all.r[i].piece[0].start;

		if (piece_of(v, block) == first ||
		    (piece_of(v, block) == second && place(v, block) >= 2))
			hoard_give_one(v, &all, i);
	}
	cr_assert_eq(held(v), 1);
	cr_assert_eq(space_reserve(v->space, 3, 0, 0, &r), -ENOSPC);
	cr_assert_eq(space_reserve(v->space, 2, 0, 0, &r), 0);
	cr_assert_eq(piece_of(v, r.piece[0].start), second);
	space_unreserve(v->space, &r);
	give_pages(v, pageno, pages);
	hoard_give(v, &all);
	cr_assert_eq(hoard_counts(v).reserved, 0);
	cr_assert_eq(volume_close(v), 0);
}

/* Pairs all over the volume: no piece for a page but the reserve's. */
Test(space_pages, pages_are_found_between_scattered_blocks)
{
	struct volume *v = fresh(16384);
	struct hoard all = hoard_take(v, 0);
	uint64_t pageno[PAGES_MAX];
	unsigned pages;

	for (unsigned i = 0; i < all.count; i++)
		if (place(v, all.r[i].piece[0].start) < 2)
			hoard_give_one(v, &all, i);
	cr_assert_gt(hoard_counts(v).free, hoard_counts(v).total / 3);
	pages = take_pages(v, 0, pageno);
	cr_assert_eq(pages, v->space->reserve.target);
	give_pages(v, pageno, pages);
	hoard_give(v, &all);
	cr_assert_eq(volume_close(v), 0);
}

/* Used but for one block in each piece: such a volume may come from before the reserve. */
static struct volume *shattered(struct hoard *all)
{
	struct volume *v = fresh(16384);
	struct reservation batch = {0};

	*all = hoard_take(v, SPACE_PRIVILEGED);
	for (unsigned i = 0; i < all->count; i++) {
		if (place(v, all->r[i].piece[0].start) < 3)
			batch.piece[batch.count++] = all->r[i].piece[0];
		if (batch.count < PIECES_A_MTR && i + 1 < all->count)
			continue;
		hoard_bits(v, &batch, true);
		batch.count = 0;
	}
	cr_assert_eq(volume_sync(v), 0);
	return lob_rig_open(scratch_crash(v));
}

Test(space_pages, a_shattered_volume_is_filled_up_again)
{
	struct hoard all, rest;
	struct volume *v = shattered(&all);
	struct space_counts c = hoard_counts(v);
	struct reservation r;
	uint64_t all_kept;

	cr_assert_eq(held(v), 0);
	cr_assert_eq(v->space->pages.count, 0);
	cr_assert_eq(c.kept, v->space->pages.kept * v->geo.page_blocks);
	cr_assert_eq(space_refill_pages(v->space, SPACE_PRIVILEGED), -ENOSPC);
	rest = hoard_take(v, 0);
	cr_assert_eq(rest.count, c.free - c.kept);
	cr_assert_eq(space_reserve(v->space, 1, 0, SPACE_PRIVILEGED, &r), 0);
	space_unreserve(v->space, &r);
	hoard_give(v, &rest);
	/* Half of the pieces become whole: kept pages and the reserve come first. */
	for (unsigned i = 0; i < all.count; i++)
		if (piece_of(v, all.r[i].piece[0].start) % 2 &&
		    place(v, all.r[i].piece[0].start) < 3)
			hoard_bits(v, &all.r[i], false);
	/* df does not offer what is on its way to the reserve. */
	all_kept = (v->space->pages.kept + v->space->reserve.target) * v->geo.page_blocks;
	cr_assert_gt(hoard_counts(v).deferred, all_kept);
	cr_assert_eq(hoard_counts(v).kept, all_kept);
	cr_assert_eq(space_settle(v->space), 0);
	cr_assert_eq(hoard_counts(v).kept, all_kept);
	cr_assert_geq(v->space->pages.count, v->space->pages.kept);
	cr_assert_eq(held(v), v->space->reserve.target);
	free(all.r);
	volume_abandon(v);
}

/* ------------------------------------------------------------- broken pieces */

/*
 * Everything taken, then given back: of the first pieces every second one whole,
 * of the others half; of the rest of the volume everything if `plenty`.
 */
static struct hoard half_and_whole(struct volume *v, unsigned pieces, bool plenty)
{
	struct hoard all = hoard_take(v, 0);

	for (unsigned i = 0; i < all.count; i++) {
		uint64_t block = all.r[i].piece[0].start;
		uint64_t piece = piece_of(v, block);

		if (piece >= 2 * pieces ? plenty : piece % 2 || place(v, block) >= 2)
			hoard_give_one(v, &all, i);
	}
	return all;
}

static uint64_t whole_pieces(const struct volume *v)
{
	uint64_t whole = 0;

	for (unsigned g = 0; g < v->space->group_count; g++)
		whole += space_group(v->space, g)->whole;
	return whole;
}

static uint64_t broken_blocks(const struct volume *v)
{
	uint64_t broken = 0;

	for (unsigned g = 0; g < v->space->group_count; g++)
		broken += space_group(v->space, g)->free;
	return broken - whole_pieces(v) * v->geo.page_blocks;
}

static void small_data_finds_rests(bool plenty, uint64_t hint)
{
	enum { RESTS = 100 };
	struct volume *v = fresh(16384);
	struct hoard all = half_and_whole(v, RESTS + 20, plenty);
	struct reservation r[3 * RESTS];
	uint64_t whole = whole_pieces(v);
	unsigned count = 0;

	for (; count < RESTS; count++) {
		cr_assert_eq(space_reserve(v->space, 2, hint, 0, &r[count]), 0);
		cr_assert_eq(whole_pieces(v), whole);
	}
	for (; broken_blocks(v) > 0; count++) {
		cr_assert_lt(count, 2 * RESTS);
		cr_assert_eq(space_reserve(v->space, 1, hint, 0, &r[count]), 0);
		cr_assert_eq(whole_pieces(v), whole);
	}
	/* There are no rests any more: a whole piece, and then what is left of it. */
	cr_assert_eq(space_reserve(v->space, 1, hint, 0, &r[count++]), 0);
	cr_assert_eq(whole_pieces(v), whole - 1);
	cr_assert_eq(space_reserve(v->space, 3, hint, 0, &r[count++]), 0);
	cr_assert_eq(whole_pieces(v), whole - 1);
	cr_assert_eq(broken_blocks(v), 0);
	while (count > 0)
		space_unreserve(v->space, &r[--count]);
	hoard_give(v, &all);
	cr_assert_eq(volume_close(v), 0);
}

Test(space_pages, small_data_takes_broken_pieces_first)
{
	struct volume *v = fresh(16384);
	uint64_t groups_start = v->geo.groups_start;

	cr_assert_eq(volume_close(v), 0);
	small_data_finds_rests(false, 0);
	small_data_finds_rests(true, 0);
	small_data_finds_rests(true, groups_start);
	/* Nobody goes on at a whole piece, not even a file that grows, when blocks are scarce. */
	small_data_finds_rests(false, groups_start + 4 * 201);
}

/* A file that grows in small steps stays in one piece while there is plenty. */
Test(space_pages, growth_goes_on_while_there_is_plenty)
{
	struct volume *v = fresh(16384);
	struct hoard all = half_and_whole(v, 20, true);
	struct reservation r[16];
	uint64_t next = v->geo.groups_start + 4 * 300;

	for (unsigned i = 0; i < 16; i++) {
		cr_assert_eq(space_reserve(v->space, 1, next, 0, &r[i]), 0);
		cr_assert_eq(r[i].piece[0].start, next);
		next++;
	}
	for (unsigned i = 0; i < 16; i++)
		space_unreserve(v->space, &r[i]);
	hoard_give(v, &all);
	cr_assert_eq(volume_close(v), 0);
}
