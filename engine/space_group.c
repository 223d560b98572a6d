/*
 * Searching the free map of one group, a word at a time.
 *
 * Every search is a walk over free runs (next_run); what differs is which run
 * it takes.  All work is done under the group's latch and is bounded by the
 * words of one map: a few microseconds when nothing is found.
 *
 * INV-SPACE-2: group->free is the number of zero bits, group->whole that of
 * page-shaped pieces that are wholly free, and no free run is longer than
 * group->longest, measured up to RUN_MEASURE_MAX.  Taking blocks only makes runs
 * shorter, so `longest` may stay; a search that failed knows better and lowers
 * it; giving blocks back measures the run that results.
 *
 * group->broken is the same for runs outside whole pieces, measured up to a
 * page.  Taking makes such runs as well, from what is left of a whole piece, so
 * every change measures what it leaves at both of its ends.  Thus a search for
 * broken pieces looks into no group in vain twice.
 */
#include "engine/space_internal.h"

#include <string.h>

#define WORD_BITS 64u

/* The bits of page-shaped pieces of `word` that are wholly free, as busy. */
static uint64_t whole_pieces(uint64_t word, uint32_t page_blocks)
{
	uint64_t piece = (1ull << page_blocks) - 1;
	uint64_t starts = UINT64_MAX / piece; /* the first bit of each piece */
	uint64_t free = ~word;

	for (uint32_t width = 1; width < page_blocks; width *= 2)
		free &= free >> width;
	return (free & starts) * piece;
}

/* What a search sees: the map, or the map without the pieces that a thrifty one spares. */
struct view {
	const uint64_t *busy;
	const uint64_t *only;       /* of the free blocks, those with a bit here; NULL = all */
	uint32_t spare_page_blocks; /* 0 = see everything */
	uint32_t enough;            /* a run is measured no further; 0 = to its end */
};

static uint64_t view_word(const struct view *view, uint32_t index)
{
	uint64_t word = view->busy[index];

	if (view->spare_page_blocks)
		word |= whole_pieces(word, view->spare_page_blocks);
	if (view->only)
		word |= ~view->only[index];
	return word;
}

/* Behind the words from `at` on in which the view has nothing, quickly. */
static uint32_t skip_words(const struct view *view, uint32_t at, uint32_t end)
{
	while (at % WORD_BITS == 0 && end - at >= WORD_BITS) {
		uint64_t word = view->busy[at / WORD_BITS];

		if (view->only && view->only[at / WORD_BITS] == 0)
			word = UINT64_MAX;
		if (word != UINT64_MAX && (word != 0 || !view->spare_page_blocks))
			break;
		at += WORD_BITS;
	}
	return at;
}

/* The first free run at or behind *pos, cut at `end`; *pos moves behind it. */
static bool next_run(const struct view *view, uint32_t *pos, uint32_t end, struct run *run)
{
	uint32_t enough = view->enough ? view->enough : end;
	uint32_t at = *pos;

	run->length = 0;
	while (at < end && run->length < enough) {
		uint32_t left, same;
		uint64_t word;

		if (run->length == 0) {
			at = skip_words(view, at, end);
			if (at >= end)
				break;
		}
		left = WORD_BITS - at % WORD_BITS;
		word = view_word(view, at / WORD_BITS) >> at % WORD_BITS;
		if (word & 1) {
			if (run->length)
				break;
			same = ~word ? (uint32_t)__builtin_ctzll(~word) : WORD_BITS;
		} else {
			if (run->length == 0)
				run->first = at;
			same = word ? (uint32_t)__builtin_ctzll(word) : WORD_BITS;
		}
		if (same > left)
			same = left;
		if (same > end - at)
			same = end - at;
		if ((word & 1) == 0)
			run->length += same;
		at += same;
	}
	*pos = at;
	return run->length > 0;
}

/* ------------------------------------------------------------ changing bits */

static uint32_t count_whole(uint64_t word, uint32_t page_blocks)
{
	return (uint32_t)__builtin_popcountll(whole_pieces(word, page_blocks)) / page_blocks;
}

/* Sets or clears bits that were clear or set; returns by how much `whole` has changed. */
static uint32_t set_bits(uint64_t *busy, uint32_t page_blocks, uint32_t first, uint32_t length,
			 bool value)
{
	uint32_t change = 0;

	while (length > 0) {
		uint32_t shift = first % WORD_BITS;
		uint32_t n = WORD_BITS - shift < length ? WORD_BITS - shift : length;
		uint64_t mask = (n == WORD_BITS ? UINT64_MAX : (1ull << n) - 1) << shift;
		uint64_t *word = &busy[first / WORD_BITS];

		check((*word & mask) == (value ? 0 : mask));
		change += count_whole(value ? *word : *word ^ mask, page_blocks) -
			  count_whole(value ? *word ^ mask : *word, page_blocks);
		*word ^= mask;
		first += n;
		length -= n;
	}
	return change;
}

/* The longest run outside whole pieces in the piece of bit `at` and its neighbours. */
static uint32_t broken_around(const struct space *space, const struct group *group, uint32_t at)
{
	uint32_t page_blocks = space->page_blocks;
	struct view view = {.busy = group->busy, .spare_page_blocks = page_blocks};
	uint32_t piece = at / page_blocks * page_blocks;
	uint32_t pos = piece > page_blocks ? piece - page_blocks : 0;
	uint32_t end = piece + 2 * page_blocks;
	uint32_t longest = 0;
	struct run run;

	if (end > space->group_blocks)
		end = space->group_blocks;
	while (next_run(&view, &pos, end, &run))
		if (run.length > longest)
			longest = run.length;
	return longest;
}

static void set_broken(const struct space *space, struct group *group, uint32_t longest)
{
	if (longest > space->page_blocks)
		longest = space->page_blocks;
	atomic_store_explicit(&group->broken, longest, memory_order_relaxed);
}

/* What a change of [first, end) has left outside whole pieces: only at its ends. */
static void measure_broken(const struct space *space, struct group *group, uint32_t first,
			   uint32_t end)
{
	uint32_t left, right;

	if (space->page_blocks == 1)
		return;
	left = broken_around(space, group, first);
	right = broken_around(space, group, end - 1);
	if (right > left)
		left = right;
	if (left > atomic_load_explicit(&group->broken, memory_order_relaxed))
		set_broken(space, group, left);
}

/* INV-TRIM-3: whether these blocks are stale. */
static void set_stale(struct group *group, uint32_t first, uint32_t length, bool value)
{
	uint32_t before = 0, after = 0;

	while (group->stale && length > 0) {
		uint32_t shift = first % WORD_BITS;
		uint32_t n = WORD_BITS - shift < length ? WORD_BITS - shift : length;
		uint64_t mask = (n == WORD_BITS ? UINT64_MAX : (1ull << n) - 1) << shift;
		uint64_t *word = &group->stale[first / WORD_BITS];

		before += (uint32_t)__builtin_popcountll(*word & mask);
		*word = value ? *word | mask : *word & ~mask;
		after += (uint32_t)__builtin_popcountll(*word & mask);
		first += n;
		length -= n;
	}
	if (after != before)
		atomic_fetch_add_explicit(&group->stale_count, after - before,
					  memory_order_relaxed);
}

static void take_locked(const struct space *space, struct group *group, uint32_t first,
			uint32_t length)
{
	uint32_t whole = set_bits(group->busy, space->page_blocks, first, length, true);

	set_stale(group, first, length, false);
	atomic_fetch_sub_explicit(&group->whole, whole, memory_order_relaxed);
	atomic_fetch_sub_explicit(&group->free, length, memory_order_relaxed);
	measure_broken(space, group, first, first + length);
}

static void set_longest(struct group *group, uint32_t longest)
{
	if (longest > RUN_MEASURE_MAX)
		longest = RUN_MEASURE_MAX;
	atomic_store_explicit(&group->longest, longest, memory_order_relaxed);
}

/* Length of the free run around [first, end), looked at up to RUN_MEASURE_MAX on each side. */
static uint32_t run_around(const struct space *space, const struct group *group, uint32_t first,
			   uint32_t end)
{
	struct view view = {.busy = group->busy};
	uint32_t low = first > RUN_MEASURE_MAX ? first - RUN_MEASURE_MAX : 0;
	uint32_t high = space->group_blocks - end > RUN_MEASURE_MAX ? end + RUN_MEASURE_MAX
								    : space->group_blocks;
	struct run run = {0};

	while (next_run(&view, &low, high, &run) && low < end)
		;
	return run.length;
}

/* ----------------------------------------------------------------- searches */

/* First fit in [from, end); *longest is raised to the longest run met. */
static bool find_fit(const struct view *view, uint32_t from, uint32_t end, uint32_t length,
		     uint32_t *first, uint32_t *longest)
{
	struct run run;

	while (next_run(view, &from, end, &run)) {
		if (run.length >= length) {
			*first = run.first;
			return true;
		}
		if (run.length > *longest)
			*longest = run.length;
	}
	return false;
}

bool group_take(struct space *space, struct group *group, uint32_t from, uint32_t length,
		bool thrifty, uint32_t *first)
{
	struct view view = {
		.busy = group->busy,
		.spare_page_blocks = thrifty ? space->page_blocks : 0,
		.enough = length,
	};
	uint32_t longest = 0, rest;
	bool found;

	latch_x(&group->latch);
	if (from >= space->group_blocks)
		from = group->scan;
	/* The second part meets runs that go on behind `from` once more, as far as they matter. */
	rest = length < space->group_blocks - from ? from + length : space->group_blocks;
	found = find_fit(&view, from, space->group_blocks, length, first, &longest) ||
		find_fit(&view, 0, rest, length, first, &longest);
	if (found) {
		take_locked(space, group, *first, length);
		group->scan = *first + length < space->group_blocks ? *first + length : 0;
	} else if (thrifty) {
		set_broken(space, group, longest);
	} else {
		set_longest(group, longest);
	}
	unlatch_x(&group->latch);
	return found;
}

bool group_take_at(struct space *space, struct group *group, uint32_t first, uint32_t length,
		   bool thrifty)
{
	struct view view = {
		.busy = group->busy,
		.spare_page_blocks = thrifty ? space->page_blocks : 0,
	};
	uint32_t pos = first;
	struct run run;
	bool found = false;

	if (first >= space->group_blocks || length > space->group_blocks - first)
		return false;
	latch_x(&group->latch);
	if (next_run(&view, &pos, first + length, &run) && run.length == length) {
		take_locked(space, group, first, length);
		found = true;
	}
	unlatch_x(&group->latch);
	return found;
}

/* Keeps the `max` longest of the runs seen so far in `best`, longest first. */
static unsigned keep_longest(struct run *best, unsigned count, unsigned max, struct run run)
{
	unsigned i;

	if (count == max) {
		if (run.length <= best[count - 1].length)
			return count;
		count--;
	}
	for (i = count; i > 0 && best[i - 1].length < run.length; i--)
		best[i] = best[i - 1];
	best[i] = run;
	return count + 1;
}

unsigned group_take_longest(struct space *space, struct group *group, uint64_t want,
			    uint32_t shortest, unsigned max, struct run *out)
{
	struct view view = {.busy = group->busy};
	struct run best[RESERVE_EXTENTS_MAX];
	struct run run;
	unsigned count = 0, taken = 0;
	uint32_t pos = 0;

	check(max > 0 && max <= RESERVE_EXTENTS_MAX);
	latch_x(&group->latch);
	while (next_run(&view, &pos, space->group_blocks, &run))
		if (run.length >= shortest)
			count = keep_longest(best, count, max, run);
	for (; taken < count && want > 0; taken++) {
		run = best[taken];
		if (run.length > want)
			run.length = (uint32_t)want;
		take_locked(space, group, run.first, run.length);
		out[taken] = run;
		want -= run.length;
	}
	unlatch_x(&group->latch);
	return taken;
}

/* The first whole piece at or behind word *index; *index moves to its word. */
static bool find_whole(const struct space *space, const struct group *group, uint32_t *index,
		       uint32_t *first)
{
	for (; *index < space->words; ++*index) {
		uint64_t whole = whole_pieces(group->busy[*index], space->page_blocks);

		if (whole) {
			*first = *index * WORD_BITS + (uint32_t)__builtin_ctzll(whole);
			return true;
		}
	}
	return false;
}

bool group_take_page(struct space *space, struct group *group, uint32_t *first)
{
	uint32_t index;
	bool found;

	if (atomic_load_explicit(&group->whole, memory_order_relaxed) == 0)
		return false;
	latch_x(&group->latch);
	index = group->whole_scan;
	found = find_whole(space, group, &index, first);
	group->whole_scan = index;
	check(found == (atomic_load_explicit(&group->whole, memory_order_relaxed) > 0));
	if (found)
		take_locked(space, group, *first, space->page_blocks);
	unlatch_x(&group->latch);
	return found;
}

/* ---------------------------------------------------------- the page reserve */

static void hold_locked(const struct space *space, struct group *group, uint32_t first)
{
	uint32_t piece = first / space->page_blocks;

	take_locked(space, group, first, space->page_blocks);
	group->held[piece / WORD_BITS] |= 1ull << piece % WORD_BITS;
	atomic_fetch_add_explicit(&group->held_count, 1, memory_order_relaxed);
}

uint32_t group_hold(struct space *space, struct group *group, uint32_t max)
{
	uint32_t count = 0, index = 0, first;

	latch_x(&group->latch);
	while (count < max && find_whole(space, group, &index, &first)) {
		hold_locked(space, group, first);
		count++;
	}
	unlatch_x(&group->latch);
	return count;
}

bool group_unhold(struct space *space, struct group *group, uint32_t *first)
{
	bool found = false;

	if (atomic_load_explicit(&group->held_count, memory_order_relaxed) == 0)
		return false;
	latch_x(&group->latch);
	for (uint32_t i = 0; i * WORD_BITS * space->page_blocks < space->group_blocks; i++) {
		if (group->held[i] == 0)
			continue;
		*first = (i * WORD_BITS + (uint32_t)__builtin_ctzll(group->held[i])) *
			 space->page_blocks;
		group->held[i] &= group->held[i] - 1;
		atomic_fetch_sub_explicit(&group->held_count, 1, memory_order_relaxed);
		found = true;
		break;
	}
	unlatch_x(&group->latch);
	return found;
}

/*
 * Pieces that have become whole by the giving of [first, end) go to the reserve as
 * long as it lacks some; returns how many of the given blocks went there.
 */
static uint32_t hold_given(struct space *space, struct group *group, uint32_t first, uint32_t end)
{
	uint32_t page_blocks = space->page_blocks, went = 0;

	for (uint32_t at = first / page_blocks * page_blocks; at < end; at += page_blocks) {
		uint32_t low = at > first ? at : first;
		uint32_t high = at + page_blocks < end ? at + page_blocks : end;
		uint64_t whole = whole_pieces(group->busy[at / WORD_BITS], page_blocks);

		if ((whole >> at % WORD_BITS & 1) == 0)
			continue;
		if (!pages_hold_begin(space, page_blocks - (high - low)))
			break;
		hold_locked(space, group, at);
		went += high - low;
	}
	return went;
}

bool group_take_next(struct space *space, struct group *group, uint32_t *pos, uint32_t end,
		     uint32_t shortest, uint32_t max, bool stale, struct run *out)
{
	struct view view = {.busy = group->busy, .only = stale ? group->stale : NULL};
	bool found;

	latch_x(&group->latch);
	do {
		found = next_run(&view, pos, end, out);
	} while (found && out->length < shortest);
	if (found) {
		if (out->length > max)
			out->length = max;
		take_locked(space, group, out->first, out->length);
		*pos = out->first + out->length;
	}
	unlatch_x(&group->latch);
	return found;
}

/* Gives back; stale: the device does not know yet. */
static uint32_t give(struct space *space, struct group *group, uint32_t first, uint32_t length,
		     bool stale)
{
	uint32_t around, whole, went;

	latch_x(&group->latch);
	whole = set_bits(group->busy, space->page_blocks, first, length, false);
	atomic_fetch_add_explicit(&group->whole, whole, memory_order_relaxed);
	atomic_fetch_add_explicit(&group->free, length, memory_order_relaxed);
	if (first / WORD_BITS < group->whole_scan)
		group->whole_scan = first / WORD_BITS;
	if (stale)
		set_stale(group, first, length, true);
	went = hold_given(space, group, first, first + length);
	around = run_around(space, group, first, first + length);
	if (around > atomic_load_explicit(&group->longest, memory_order_relaxed))
		set_longest(group, around);
	measure_broken(space, group, first, first + length);
	unlatch_x(&group->latch);
	return went;
}

uint32_t group_give(struct space *space, struct group *group, uint32_t first, uint32_t length)
{
	return give(space, group, first, length, true);
}

uint32_t group_give_discarded(struct space *space, struct group *group, uint32_t first,
			      uint32_t length)
{
	return give(space, group, first, length, false);
}

bool group_busy(struct group *group, uint32_t first, uint32_t length)
{
	struct view view = {.busy = group->busy};
	struct run run;
	bool free;

	latch_s(&group->latch);
	free = next_run(&view, &first, first + length, &run);
	unlatch_s(&group->latch);
	return !free;
}

/* ------------------------------------------------------------------ opening */

void group_init(struct space *space, struct group *group, uint32_t number, uint64_t *busy,
		uint64_t *held, uint64_t *stale)
{
	latch_init(&group->latch, RANK_SPACE, number + 1ull);
	group->number = number;
	group->busy = busy;
	group->held = held;
	group->stale = stale;
	memset(busy, 0xff, space->words * sizeof(*busy));
}

/* The longest free run of a view, and how many blocks are free in it. */
static uint32_t measure(const struct space *space, const struct view *view, uint32_t *free)
{
	struct run run;
	uint32_t pos = 0, longest = 0;

	*free = 0;
	while (next_run(view, &pos, space->group_blocks, &run)) {
		*free += run.length;
		if (run.length > longest)
			longest = run.length;
	}
	return longest;
}

void group_loaded(struct space *space, struct group *group)
{
	struct view all = {.busy = group->busy};
	struct view broken = {.busy = group->busy, .spare_page_blocks = space->page_blocks};
	uint32_t free, outside;

	latch_x(&group->latch);
	set_longest(group, measure(space, &all, &free));
	set_broken(space, group, measure(space, &broken, &outside));
	atomic_store_explicit(&group->free, free, memory_order_relaxed);
	atomic_store_explicit(&group->whole, (free - outside) / space->page_blocks,
			      memory_order_relaxed);
	unlatch_x(&group->latch);
}
