/* The free map: searches against a naive one, reservations, reuse, ENOSPC. */
#include "engine/space_internal.h"

#include "engine/epoch.h"
#include "engine/flush.h"
#include "engine/mtr.h"
#include "engine/purge.h"
#include "tests/lib/hoard.h"
#include "tests/lib/lob_rig.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>

#define VOLUME_BYTES (16u << 20)
#define LOG_BYTES (1u << 20)

/* ------------------------------------------------------------------- groups */

#define BITS 1024u

/* A group alone, with a byte a block beside it. */
struct lone {
	struct space space;
	struct group group;
	uint64_t words[BITS / 64], held[BITS / 64];
	bool busy[BITS];
};

static void lone_init(struct lone *l, uint32_t page_blocks, unsigned percent, uint64_t *seed)
{
	memset(l, 0, sizeof(*l));
	l->space.group_blocks = BITS;
	l->space.words = BITS / 64;
	l->space.page_blocks = page_blocks;
	group_init(&l->space, &l->group, 0, l->words, l->held, NULL);
	for (unsigned b = 0; b < BITS; b++) {
		l->busy[b] = random_next(seed) % 100 < percent;
		if (!l->busy[b])
			l->words[b / 64] &= ~(1ull << b % 64);
	}
	group_loaded(&l->space, &l->group);
}

static unsigned lone_longest(const struct lone *l, bool spare_pages)
{
	unsigned longest = 0, run = 0;

	for (unsigned b = 0; b < BITS; b++) {
		unsigned first = b / l->space.page_blocks * l->space.page_blocks;
		bool whole = spare_pages;

		for (unsigned i = first; whole && i < first + l->space.page_blocks; i++)
			whole = !l->busy[i];
		run = l->busy[b] || whole ? 0 : run + 1;
		longest = run > longest ? run : longest;
	}
	return longest;
}

static unsigned lone_free(const struct lone *l)
{
	unsigned count = 0;

	for (unsigned b = 0; b < BITS; b++)
		count += !l->busy[b];
	return count;
}

static void lone_mark(struct lone *l, unsigned first, unsigned length, bool busy)
{
	for (unsigned b = first; b < first + length; b++) {
		cr_assert_eq(l->busy[b], !busy);
		l->busy[b] = busy;
	}
}

static bool lone_is_whole(const struct lone *l, unsigned piece)
{
	for (unsigned i = 0; i < l->space.page_blocks; i++)
		if (l->busy[piece * l->space.page_blocks + i])
			return false;
	return true;
}

/* INV-SPACE-2 and equality of the maps. */
static void lone_compare(const struct lone *l)
{
	unsigned page_blocks = l->space.page_blocks, whole = 0, held = 0;
	unsigned broken = lone_longest(l, true);

	for (unsigned p = 0; p < BITS / page_blocks; p++) {
		bool is_held = l->held[p / 64] >> p % 64 & 1;

		whole += lone_is_whole(l, p);
		held += is_held;
		cr_assert(!is_held || l->busy[p * page_blocks]);
	}
	cr_assert_eq(l->group.whole, whole);
	cr_assert_eq(l->group.held_count, held);
	cr_assert_geq(l->group.broken, broken < page_blocks ? broken : page_blocks);
	for (unsigned b = 0; b < BITS; b++)
		cr_assert_eq(l->words[b / 64] >> b % 64 & 1, l->busy[b]);
	cr_assert_eq(l->group.free, lone_free(l));
	if (lone_longest(l, false) < RUN_MEASURE_MAX)
		cr_assert_geq(l->group.longest, lone_longest(l, false));
	else
		cr_assert_eq(l->group.longest, RUN_MEASURE_MAX);
}

static void lone_step(struct lone *l, uint64_t *seed)
{
	unsigned length = 1 + random_next(seed) % 40, from = random_next(seed) % (BITS + 10);
	bool thrifty = random_next(seed) % 2;
	struct run run[RESERVE_EXTENTS_MAX];
	uint32_t first;

	switch (random_next(seed) % 7) {
	case 0:
		cr_assert_eq(group_take(&l->space, &l->group, from, length, thrifty, &first),
			     lone_longest(l, thrifty) >= length);
		if (lone_longest(l, thrifty) >= length)
			lone_mark(l, first, length, true);
		break;
	case 1:
		if (group_take_at(&l->space, &l->group, from, length, thrifty)) {
			for (unsigned b = from; thrifty && b < from + length; b++)
				cr_assert_not(lone_is_whole(l, b / l->space.page_blocks));
			lone_mark(l, from, length, true);
		} else {
			for (unsigned b = from; b < BITS && b < from + length; b++)
				if (l->busy[b] || from + length > BITS ||
				    (thrifty && lone_is_whole(l, b / l->space.page_blocks)))
					return;
			cr_assert_geq(from, BITS);
		}
		break;
	case 2: {
		unsigned longest = lone_longest(l, false);
		unsigned count = group_take_longest(&l->space, &l->group, length * 3, 2, 5, run);

		cr_assert_eq(count > 0, longest >= 2);
		for (unsigned i = 0; i < count; i++) {
			cr_assert(i == 0 || run[i].length <= run[i - 1].length);
			lone_mark(l, run[i].first, run[i].length, true);
		}
		if (count > 0)
			cr_assert_eq(run[0].length, longest < length * 3 ? longest : length * 3);
		break;
	}
	case 3:
		if (group_take_page(&l->space, &l->group, &first)) {
			cr_assert_eq(first % l->space.page_blocks, 0);
			lone_mark(l, first, l->space.page_blocks, true);
		} else {
			cr_assert_eq(l->group.whole, 0);
		}
		break;
	case 4:
		for (unsigned b = from, n = 0; b < BITS && n < length; b++, n++) {
			if (!l->busy[b])
				break;
			if (l->held[b / l->space.page_blocks / 64] >>
				    b / l->space.page_blocks % 64 & 1)
				break;
			lone_mark(l, b, 1, false);
			cr_assert_eq(group_give(&l->space, &l->group, b, 1), 0);
		}
		break;
	case 5: {
		unsigned max = 1 + length % 4, whole = l->group.whole;
		uint64_t before[BITS / 64];

		memcpy(before, l->held, sizeof(before));
		cr_assert_eq(group_hold(&l->space, &l->group, max), whole < max ? whole : max);
		for (unsigned p = 0; p < BITS / l->space.page_blocks; p++)
			if ((before[p / 64] ^ l->held[p / 64]) >> p % 64 & 1)
				lone_mark(l, p * l->space.page_blocks, l->space.page_blocks, true);
		break;
	}
	case 6:
		if (l->group.held_count == 0) {
			cr_assert_not(group_unhold(&l->space, &l->group, &first));
			break;
		}
		cr_assert(group_unhold(&l->space, &l->group, &first));
		cr_assert_eq(first % l->space.page_blocks, 0);
		lone_mark(l, first, l->space.page_blocks, false);
		cr_assert_eq(group_give(&l->space, &l->group, first, l->space.page_blocks), 0);
		break;
	}
}

Test(space, group_searches)
{
	struct lone *l = malloc(sizeof(*l));

	for (uint64_t seed = 1; seed <= 60 * test_scale(); seed++) {
		uint64_t state = seed;

		lone_init(l, 1u << seed % 5, seed % 3 * 45, &state);
		lone_compare(l);
		for (unsigned i = 0; i < 100; i++) {
			lone_step(l, &state);
			lone_compare(l);
		}
	}
	free(l);
}

/* ------------------------------------------------------------- reservations */

static void reserve_ok(struct volume *v, uint64_t blocks, uint64_t hint, struct reservation *r)
{
	cr_assert_eq(space_reserve(v->space, blocks, hint, 0, r), 0);
	cr_assert_eq(r->blocks, blocks);
}

Test(space, counts_agree_with_the_bitmaps)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	struct space_counts c = hoard_counts(v);

	cr_assert_eq(c.free + lob_rig_bits(v), c.total);
	cr_assert_eq(c.deferred, 0);
	cr_assert_eq(c.reserved, 0);
	cr_assert_gt(c.kept, 0);
	cr_assert_eq(volume_close(v), 0);
}

Test(space, one_piece_and_go_on)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	struct reservation a, b, c;

	reserve_ok(v, 257, 0, &a);
	cr_assert_eq(a.count, 1);
	reserve_ok(v, 100, 0, &b);
	cr_assert_eq(b.count, 1);
	cr_assert_eq(b.piece[0].start, a.piece[0].start + 257);
	reserve_ok(v, 5, b.piece[0].start + 100, &c);
	cr_assert_eq(c.piece[0].start, b.piece[0].start + 100);
	cr_assert_eq(hoard_counts(v).reserved, 362);
	space_unreserve(v->space, &a);
	space_unreserve(v->space, &b);
	space_unreserve(v->space, &c);
	cr_assert_eq(hoard_counts(v).reserved, 0);
	cr_assert_eq(volume_close(v), 0);
}

/* Random reservations never overlap; the counts are exact; in the end all is back. */
Test(space, random_reservations)
{
	enum { HELD = 64 };
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	struct space_counts before = hoard_counts(v);
	struct reservation held[HELD] = {0};
	bool *taken = calloc(before.total + v->geo.groups_start, 1);
	uint64_t seed = 5, sum = 0;

	for (unsigned i = 0; i < 4000; i++) {
		struct reservation *r = &held[random_next(&seed) % HELD];
		bool give = r->count > 0;

		if (give) {
			space_unreserve(v->space, r);
			sum -= r->blocks;
		} else if (space_reserve(v->space, 1 + random_next(&seed) % 257,
					 random_next(&seed) % v->geo.block_count, 0, r) == 0) {
			sum += r->blocks;
		} else {
			cr_assert_lt(hoard_counts(v).free, 257 + before.kept);
			continue;
		}
		for (unsigned p = 0; p < r->count; p++)
			for (uint64_t b = 0; b < r->piece[p].length; b++) {
				cr_assert_eq(taken[r->piece[p].start + b], give);
				taken[r->piece[p].start + b] = !give;
			}
		if (give)
			r->count = 0;
		cr_assert_eq(hoard_counts(v).free, before.free - sum);
		cr_assert_eq(hoard_counts(v).reserved, sum);
	}
	for (unsigned i = 0; i < HELD; i++)
		if (held[i].count > 0)
			space_unreserve(v->space, &held[i]);
	cr_assert_eq(hoard_counts(v).free, before.free);
	free(taken);
	cr_assert_eq(volume_close(v), 0);
}

Test(space, scattered_blocks_serve_a_whole_write)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	struct hoard h = hoard_take(v, 0);
	struct reservation r;

	/* Every second block of a long stretch, so that no two are neighbours. */
	for (unsigned i = 0; i < 2 * RESERVE_EXTENTS_MAX; i++) {
		struct reservation *one = &h.r[i];

		if (one->piece[0].start % 2)
			continue;
		hoard_give_one(v, &h, i);
	}
	reserve_ok(v, 40, 0, &r);
	cr_assert_eq(r.count, 40);
	space_unreserve(v->space, &r);
	reserve_ok(v, RESERVE_EXTENTS_MAX, 0, &r);
	cr_assert_eq(r.count, RESERVE_EXTENTS_MAX);
	space_unreserve(v->space, &r);
	hoard_give(v, &h);
	cr_assert_eq(volume_close(v), 0);
}

/* Leaves `singles` free blocks in each group, none of them neighbours. */
static void scatter_groups(struct volume *v, unsigned singles)
{
	struct space *space = v->space;
	struct run run[RESERVE_EXTENTS_MAX];

	for (uint32_t g = 0; g < space->group_count; g++) {
		struct group *group;
		unsigned count;

		cr_assert_eq(space_load(space, g), 0);
		group = space_group(space, g);
		while ((count = group_take_longest(space, group, UINT64_MAX, 1,
						   RESERVE_EXTENTS_MAX, run)) > 0)
			for (unsigned i = 0; i < count; i++)
				atomic_fetch_sub(&space->free, run[i].length);
		for (unsigned i = 0; i < singles; i++)
			space_give(space, space_first_block(space, g) + 600 + 2 * i, 1);
	}
}

/* Few pieces of few groups: an mtr has to set their bits. */
Test(space, scattered_pieces_come_from_few_groups)
{
	struct volume *v = lob_rig_format((uint64_t)12 * GROUP_BLOCKS(4096) * BLOCK_SIZE, 4096,
					  LOG_BYTES);
	struct reservation r;

	scatter_groups(v, 4);
	reserve_ok(v, 32, 0, &r);
	cr_assert_eq(r.count, 32);
	for (unsigned i = 0, groups = 0; i < r.count; i++) {
		bool again = false;

		for (unsigned j = 0; j < i; j++)
			again |= space_bitmap_page(v, r.piece[i].start) ==
				 space_bitmap_page(v, r.piece[j].start);
		groups += !again;
		cr_assert_leq(groups, MTR_GROUPS_MAX / 2);
	}
	space_unreserve(v->space, &r);
	cr_assert_eq(space_reserve(v->space, 33, 0, 0, &r), -ENOSPC);
	volume_abandon(v);
}

/* -------------------------------------------------------------------- reuse */

/* INV-LOG-7: first the mark, then the readers. */
Test(space, freed_blocks_wait_for_mark_and_epochs)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	uint64_t free_before = hoard_counts(v).free;
	struct reservation r, later;

	reserve_ok(v, 10, 0, &r);
	reserve_ok(v, 20, 0, &later);
	hoard_bits(v, &r, true);
	hoard_bits(v, &later, true);
	cr_assert_eq(hoard_counts(v).reserved, 0);
	hoard_bits(v, &r, false);
	space_advance(v->space);
	cr_assert_eq(hoard_counts(v).deferred, 10);
	cr_assert(space_has_deferred(v->space));
	hoard_bits(v, &later, false);
	cr_assert_eq(log_mark(v->log, log_next_lsn(v->log)), 0);
	cr_assert_not(space_has_deferred(v->space));
	/* Sealed before: no reader is in the way.  The later ones are sealed now. */
	epoch_enter(&v->epochs);
	space_advance(v->space);
	cr_assert_eq(hoard_counts(v).deferred, 20);
	space_advance(v->space);
	cr_assert_eq(hoard_counts(v).deferred, 20);
	epoch_exit(&v->epochs);
	space_advance(v->space);
	cr_assert_eq(hoard_counts(v).deferred, 0);
	cr_assert_eq(hoard_counts(v).free, free_before);
	cr_assert_eq(volume_close(v), 0);
}

/* INV-REC-1: a page's blocks wait for the checkpoint as well. */
Test(space, freed_pages_wait_for_the_checkpoint)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	uint64_t pageno;

	cr_assert_eq(space_take_page(v->space, 0, 0, &pageno), 0);
	space_used(v->space, pageno, v->geo.page_blocks);
	cr_assert_eq(lob_rig_write(v, 5, 0, 3, 1, 0, NULL), 0);
	space_freed(v->space, pageno, v->geo.page_blocks, log_next_lsn(v->log), true);
	cr_assert_eq(lob_rig_write(v, 5, 8, 3, 1, 0, NULL), 0);
	cr_assert_eq(log_mark(v->log, log_next_lsn(v->log)), 0);
	space_advance(v->space);
	cr_assert_eq(hoard_counts(v).deferred, v->geo.page_blocks);
	cr_assert(space_has_deferred(v->space));
	cr_assert_eq(flush_everything(v->flusher), 0);
	space_advance(v->space);
	cr_assert_eq(hoard_counts(v).deferred, 0);
	cr_assert_eq(volume_close(v), 0);
}

/* More runs than a chunk holds, each of which could be reused at another time. */
Test(space, many_deferred_runs)
{
	enum { RUNS = 3 * DEFER_CHUNK_RUNS };
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	uint64_t free_before = hoard_counts(v).free;
	struct reservation *r = calloc(RUNS, sizeof(*r));

	for (unsigned i = 0; i < RUNS; i++) {
		reserve_ok(v, 1, 0, &r[i]);
		hoard_bits(v, &r[i], true);
	}
	for (unsigned i = 0; i < RUNS; i += 2)
		hoard_bits(v, &r[i], false);
	cr_assert_eq(hoard_counts(v).deferred, RUNS / 2);
	for (unsigned i = 1; i < RUNS; i += 2) {
		hoard_bits(v, &r[i], false);
		if (i % 100 == 1)
			cr_assert_eq(log_mark(v->log, log_next_lsn(v->log)), 0);
		space_advance(v->space);
	}
	cr_assert_lt(hoard_counts(v).deferred, 200);
	cr_assert_eq(space_settle(v->space), 0);
	cr_assert_eq(hoard_counts(v).deferred, 0);
	cr_assert_eq(hoard_counts(v).free, free_before);
	free(r);
	cr_assert_eq(volume_close(v), 0);
}

/* -------------------------------------------------------------------- drain */

Test(space, drain_says_whether_to_try_again)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	struct reservation r, other;
	struct hoard all;

	cr_assert_eq(space_drain(v->space), -ENOSPC);
	reserve_ok(v, 50, 0, &r);
	hoard_bits(v, &r, true);
	all = hoard_take(v, 0);
	hoard_bits(v, &r, false);
	cr_assert_eq(space_reserve(v->space, 20, 0, 0, &other), -ENOSPC);
	cr_assert_eq(space_drain(v->space), 0);
	reserve_ok(v, 20, 0, &other);
	cr_assert_eq(space_reserve(v->space, 40, 0, 0, &r), -ENOSPC);
	cr_assert_eq(space_drain(v->space), -ENOSPC);
	space_unreserve(v->space, &other);
	hoard_give(v, &all);
	cr_assert_eq(volume_close(v), 0);
}

/* What others free between the failure and the drain counts as well. */
Test(space, drain_remembers_the_failure)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	struct reservation r, other;
	struct hoard all;

	reserve_ok(v, 50, 0, &r);
	hoard_bits(v, &r, true);
	all = hoard_take(v, 0);
	cr_assert_eq(space_reserve(v->space, 20, 0, 0, &other), -ENOSPC);
	hoard_bits(v, &r, false);
	cr_assert_eq(space_settle(v->space), 0); /* another thread's drain */
	cr_assert_eq(space_drain(v->space), 0);
	reserve_ok(v, 20, 0, &other);
	space_unreserve(v->space, &other);
	cr_assert_eq(space_drain(v->space), -ENOSPC);
	hoard_give(v, &all);
	cr_assert_eq(volume_close(v), 0);
}

Test(space, drain_waits_for_purge)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	struct reservation r;
	struct mtr *m;
	uint64_t number;
	struct hoard all;
	int rc;

	cr_assert_eq(lob_rig_write(v, 9, 0, 200, 1, 0, NULL), 0);
	cr_assert_eq(id_take(v, COUNTER_PURGE, &number), 0);
	cr_assert_eq(mtr_begin(v, 0, &m), 0);
	purge_want(m, number);
	do {
		cr_assert_eq(mtr_latch(m), 0);
		purge_stage(m, number, PURGE_LOB, 0, 9, 0, UINT64_MAX);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	cr_assert_eq(rc, 0);
	mtr_end(m);
	all = hoard_take(v, 0);
	cr_assert_eq(space_reserve(v->space, 150, 0, 0, &r), -ENOSPC);
	cr_assert_eq(space_drain(v->space), 0);
	reserve_ok(v, 150, 0, &r);
	space_unreserve(v->space, &r);
	hoard_give(v, &all);
	cr_assert_eq(scratch_problems(v), 0);
	cr_assert_eq(volume_close(v), 0);
}

/* INV-LOCK-3 */
Test(space, drain_with_a_lock_held_is_a_bug, .signal = SIGABRT)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	struct latch lock;

	latch_init(&lock, RANK_INODE, 1);
	latch_x(&lock);
	cr_assert_neq(space_drain(v->space), 0);
}

/* What was reserved or deferred at a crash is free, or used, as the log says. */
Test(space, crash_forgets_reservations)
{
	struct volume *v = lob_rig_format(VOLUME_BYTES, 4096, LOG_BYTES);
	struct space_counts before = hoard_counts(v);
	struct reservation a, b, c;

	reserve_ok(v, 30, 0, &a);
	reserve_ok(v, 40, 0, &b);
	hoard_bits(v, &b, true);
	reserve_ok(v, 50, 0, &c);
	hoard_bits(v, &c, true);
	hoard_bits(v, &c, false);
	cr_assert_eq(volume_sync(v), 0);
	cr_assert_eq(hoard_counts(v).deferred, 50);
	v = lob_rig_open(scratch_crash(v));
	cr_assert_eq(hoard_counts(v).free, before.free - 40);
	cr_assert_eq(hoard_counts(v).deferred, 0);
	volume_abandon(v);
}
