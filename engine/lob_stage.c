/*
 * Phase 3 of a write, and holes: the extents of a LOB change inside an mtr.
 *
 *	present   |--a--||-----b-----||--c--|      |--d--|
 *	replace           [first ............ end)
 *	final     |--a--||b'||--new--||-new-|      |--d--|
 *
 * An mtr takes at most one edit per key, and extents are keyed by their last
 * block, so the final entries of the interval are computed first and compared
 * with the present ones: keys that vanish are deleted, keys that are new or
 * changed are put, the rest is left alone.  The left rest of a split extent gets
 * a new key (first - 1); the right rest keeps its key and starts later.
 *
 * INV-LOB-1: the range lock keeps [first, end) as it is; neighbours may still
 * split extents at their boundaries.  So what is present is read here, under
 * the latches, and not remembered from before.
 *
 * Joining: an extent that continues its neighbour, in the file and on the
 * volume, is one extent with it.  That rewrites the neighbour's record with all
 * its CRCs, so a small write joins only small neighbours: a file that grows by
 * single blocks gets extents of JOIN_BLOCKS_MIN, and each CRC is logged a bounded
 * number of times.
 */
#include "engine/lob_stage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define JOIN_BLOCKS_MIN 64u
#define JOIN_FACTOR 4u     /* a join may rewrite so many times what is written anyway */
/* Log of one block at worst: an extent, its bit and CRC; a deleted extent and its bit. */
#define LOG_BYTES_BLOCK 320u

/* ------------------------------------------------------------------- wants */

void lob_want_replace(struct mtr *m, uint64_t lob, uint64_t first, uint64_t end)
{
	struct key low = lob_key(lob, first > 0 ? first - 1 : 0);
	struct key high = lob_key(lob, end);

	uint64_t blocks = end - first < WRITE_BLOCKS_MAX ? end - first : WRITE_BLOCKS_MAX;

	check(lob != 0 && first < end);
	mtr_want_range(m, INDEX_LOB, low.bytes, high.bytes, KEY_LOB_BYTES);
	if (!tunable_is_on(&mtr_volume(m)->tunables, TUNABLE_lob_shared_index))
		mtr_want_exclusive(m, INDEX_LOB);
	mtr_want_log(m, blocks * LOG_BYTES_BLOCK);
}

static bool is_block_of_groups(const struct geometry *geo, uint64_t block)
{
	return block >= geo->groups_start && block < geo->block_count - 1;
}

void lob_want_publish(struct mtr *m, uint64_t lob, const struct lob_new *new)
{
	lob_want_replace(m, lob, new->first, new->first + new->blocks);
	for (unsigned i = 0; i < new->space.count; i++)
		if (!new->in_place[i])
			mtr_want_bits(m, new->space.piece[i].start, new->space.piece[i].length);
	if (new->data && is_block_of_groups(&mtr_volume(m)->geo, new->hint))
		mtr_want_bits(m, new->hint, 1);
}

/* ------------------------------------------------------- what is present now */

int lob_next_present(struct stage *s, uint64_t lob, uint64_t at, struct extent *extent)
{
	struct key key = lob_key(lob, at), found;
	const void *value;
	size_t len;
	bool ours;
	int rc = mtr_next(s->m, INDEX_LOB, key.bytes, key.len, &found, &value, &len);

	if (rc)
		return rc;
	rc = extent_decode(s->volume, lob, &found, value, len, extent, &ours);
	if (rc)
		return rc;
	return ours ? 0 : -BE_END;
}

int lob_collect(struct stage *s)
{
	uint64_t at = s->first > 0 ? s->first - 1 : 0;

	while (at <= s->end && !s->complete) {
		struct extent extent;
		int rc;

		if (s->old_count == PRESENT_MAX)
			return 0;
		rc = lob_next_present(s, s->lob, at, &extent);
		if (rc == -BE_NOTFOUND) {
			s->complete = at == s->end;
			return 0;
		}
		if (rc && rc != -BE_END)
			return rc;
		s->complete = rc == -BE_END || extent.first > s->end;
		if (s->complete)
			break;
		if (s->old_count > 0 && extent.first < at)
			return corrupt_at(s->volume, 0, "lob", "extents overlap");
		s->old[s->old_count++] = extent;
		at = extent_end(&extent);
	}
	s->complete = true;
	return 0;
}

/* ------------------------------------------------------------ the final parts */

struct extent lob_cut(const struct extent *extent, uint64_t first, uint64_t end)
{
	uint64_t skip = first - extent->first;

	return (struct extent){
		.first = first,
		.start = extent->start + skip,
		.length = (uint32_t)(end - first),
		.unwritten = extent->unwritten,
		.crc = extent->crc ? extent->crc + skip : NULL,
	};
}

static void add_part(struct stage *s, const struct extent *extent, bool present)
{
	check(s->part_count < PARTS_MAX);
	s->part[s->part_count++] = (struct part){.extent = *extent, .present = present};
}

static void add_new(struct stage *s, const struct lob_new *new)
{
	struct extent rest = {
		.first = new->first,
		.unwritten = new->crcs == NULL,
		.crc = new->crcs,
	};
	uint32_t longest = rest.unwritten ? UINT32_MAX : s->extent_max;

	for (unsigned i = 0; i < new->space.count; i++) {
		const struct piece *piece = &new->space.piece[i];
		uint32_t left = piece->length;

		rest.start = piece->start;
		while (left > 0) {
			rest.length = left < longest ? left : longest;
			add_part(s, &rest, false);
			rest.first += rest.length;
			rest.start += rest.length;
			if (rest.crc)
				rest.crc += rest.length;
			left -= rest.length;
		}
	}
	check(rest.first == new->first + new->blocks);
}

void lob_lay_out(struct stage *s)
{
	for (unsigned i = 0; i < s->old_count; i++) {
		const struct extent *old = &s->old[i];
		struct extent rest;

		if (old->first >= s->first)
			break;
		if (lob_stage_overlaps(s, old)) {
			rest = lob_cut(old, old->first, s->first);
			add_part(s, &rest, false);
		} else {
			add_part(s, old, true);
		}
	}
	for (unsigned i = 0; i < s->new_count; i++)
		add_new(s, s->new[i]);
	for (unsigned i = 0; i < s->shared_count; i++)
		add_part(s, &s->shared[i], false);
	for (unsigned i = 0; i < s->old_count; i++) {
		const struct extent *old = &s->old[i];
		struct extent rest;

		if (extent_end(old) <= s->end)
			continue;
		if (lob_stage_overlaps(s, old)) {
			rest = lob_cut(old, s->end, extent_end(old));
			add_part(s, &rest, false);
		} else {
			add_part(s, old, true);
		}
	}
}

static bool may_join(const struct stage *s, const struct part *a, const struct part *b,
		     uint64_t joined)
{
	if (a->extent.unwritten != b->extent.unwritten)
		return false;
	if (extent_end(&a->extent) != b->extent.first ||
	    a->extent.start + a->extent.length != b->extent.start)
		return false;
	if (a->extent.unwritten)
		return joined + b->extent.length <= UINT32_MAX; /* no CRCs to rewrite */
	if (joined + b->extent.length > s->extent_max)
		return false;
	return (!a->present || a->extent.length <= s->join_max) &&
	       (!b->present || b->extent.length <= s->join_max);
}

/* ----------------------------------------------------------------- the edits */

/* Stages parts [from, to) as one extent. */
static void put_extent(struct stage *s, unsigned from, unsigned to)
{
	struct disk_extent *disk = (struct disk_extent *)s->value;
	const struct extent *head = &s->part[from].extent;
	le32 *crc = (le32 *)(disk + 1);
	uint32_t length = 0;
	struct key key;

	for (unsigned i = from; i < to; i++) {
		const struct extent *extent = &s->part[i].extent;

		if (!extent->unwritten) {
			memcpy(crc, extent->crc, extent->length * sizeof(*crc));
			crc += extent->length;
		}
		length += extent->length;
	}
	*disk = (struct disk_extent){
		.start = le64_make(head->start),
		.length = le32_make(length),
		.stored = le32_make(length),
		.flags = head->unwritten ? EXTENT_UNWRITTEN : 0,
	};
	key = lob_key(s->lob, head->first + length - 1);
	mtr_put(s->m, INDEX_LOB, key.bytes, key.len, s->value,
		(size_t)((uint8_t *)crc - s->value));
}

/* Is one of the final extents keyed like this? */
static bool is_final(const uint64_t *final_end, unsigned count, uint64_t end)
{
	for (unsigned i = 0; i < count; i++)
		if (final_end[i] == end)
			return true;
	return false;
}

void lob_stage_entries(struct stage *s)
{
	uint64_t final_end[PARTS_MAX];
	unsigned count = 0, from = 0;

	while (from < s->part_count) {
		unsigned to = from + 1;
		uint64_t joined = s->part[from].extent.length;

		while (to < s->part_count &&
		       may_join(s, &s->part[to - 1], &s->part[to], joined))
			joined += s->part[to++].extent.length;
		final_end[count++] = extent_end(&s->part[to - 1].extent);
		if (to - from > 1 || !s->part[from].present)
			put_extent(s, from, to);
		from = to;
	}
	for (unsigned i = 0; i < s->old_count; i++) {
		const struct extent *old = &s->old[i];
		struct key key = lob_key(s->lob, extent_end(old) - 1);

		if (!is_final(final_end, count, extent_end(old)))
			mtr_delete(s->m, INDEX_LOB, key.bytes, key.len);
	}
}

/* ------------------------------------------------------------------ the whole */

static uint64_t blocks_in_place(const struct lob_new *new)
{
	uint64_t blocks = 0;

	for (unsigned i = 0; i < new->space.count; i++)
		blocks += new->in_place[i] ? new->space.piece[i].length : 0;
	return blocks;
}

/* lob_two_phase off: the data is still to be written. */
static int write_now(struct stage *s)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < s->new_count; i++)
		if (s->new[i]->data)
			rc = lob_classic_write(s->volume, s->new[i]);
	return rc;
}

static void count_retries(struct stage *s)
{
	for (unsigned i = 0; i < s->new_count; i++) {
		if (s->new[i]->staged)
			stat_add(&s->volume->stats, STAT_lob_publish_retries, 1);
		s->new[i]->staged = true;
	}
}

/* Ranges without an extent in common, side by side. */
static int stage_new(struct stage *const *stage, unsigned count, int64_t *delta)
{
	uint64_t freed, blocks = 0;
	int rc;

	for (unsigned i = 0; i < count; i++) {
		struct stage *s = stage[i];

		if (!s->complete)
			return -E2BIG;
		for (unsigned k = 0; k < s->new_count; k++) {
			lob_stage_new_blocks(s, s->new[k]);
			blocks += s->new[k]->blocks;
			s->in_place += blocks_in_place(s->new[k]);
		}
	}
	rc = lob_release_all(stage, count, &freed);
	if (rc)
		return rc;
	for (unsigned i = 0; i < count; i++) {
		check(stage[i]->in_place == 0); /* INV-LOB-8: the range lock sees to it */
		lob_lay_out(stage[i]);
		lob_stage_entries(stage[i]);
	}
	*delta = (int64_t)blocks - (int64_t)freed;
	return 0;
}

/* purge_no_load off; not for a try that will have to be made again. */
static int load_old_blocks(struct stage *s)
{
	int rc = 0;

	if (!mtr_bits_pinned(s->m))
		return 0;
	for (unsigned i = 0; rc == 0 && i < s->old_count; i++) {
		struct piece piece;

		if (!lob_stage_overlaps(s, &s->old[i]) || s->old[i].unwritten)
			continue;
		piece = lob_freed_piece(s, &s->old[i]);
		rc = lob_classic_load(s->volume, piece.start, piece.length);
	}
	return rc;
}

/* Narrows [first, end) to the extents that this mtr deals with. */
static void bound_hole(struct stage *s)
{
	unsigned count = 0, kept = 0;

	for (unsigned i = 0; i < s->old_count; i++) {
		if (!lob_stage_overlaps(s, &s->old[i]))
			continue;
		if (count++ == HOLE_EXTENTS_MAX) {
			s->complete = false;
			break;
		}
		s->old[kept++] = s->old[i];
	}
	s->old_count = kept;
	if (!s->complete) {
		uint64_t end = kept > 0 ? extent_end(&s->old[kept - 1]) : s->first;

		if (end < s->end)
			s->end = end;
	}
}

static int stage_hole(struct stage *s, int64_t *delta, uint64_t *done)
{
	uint64_t reached, freed;
	int rc;

	bound_hole(s);
	*delta = 0;
	*done = s->end;
	if (s->old_count == 0)
		return s->complete ? 0 : -E2BIG;
	rc = lob_release_old(s, &freed, &reached);
	if (rc)
		return rc;
	if (reached == s->first)
		return -E2BIG;
	s->end = reached;
	if (!tunable_is_on(&s->volume->tunables, TUNABLE_purge_no_load)) {
		rc = load_old_blocks(s);
		if (rc)
			return rc;
	}
	while (s->old_count > 0 && !lob_stage_overlaps(s, &s->old[s->old_count - 1]))
		s->old_count--;
	lob_lay_out(s);
	lob_stage_entries(s);
	*delta = -(int64_t)freed;
	*done = s->end;
	return 0;
}

struct stage *lob_stage_alloc(const struct volume *volume)
{
	return malloc(sizeof(struct stage) + RECORD_BYTES_MAX(volume->geo.page_size));
}

/* Field by field: the arrays are large, and latches are held. */
void lob_begin_stage(struct stage *s, struct mtr *m, uint64_t lob, uint64_t first, uint64_t end)
{
	s->m = m;
	s->volume = mtr_volume(m);
	s->lob = lob;
	s->first = first;
	s->end = end;
	s->join_max = JOIN_BLOCKS_MIN;
	s->extent_max = EXTENT_BLOCKS_MAX(s->volume->geo.page_size);
	s->new_count = 0;
	s->old_count = 0;
	s->in_place = 0;
	s->complete = false;
	s->part_count = 0;
	s->shared_count = 0;
	s->change_count = 0;
}

int lob_stage_replace(struct mtr *m, uint64_t lob, uint64_t first, uint64_t end,
		      struct lob_new *new, int64_t *delta, uint64_t *done)
{
	struct volume *volume = mtr_volume(m);
	struct stage *s = lob_stage_alloc(volume);
	int rc;

	check(lob != 0 && first < end);
	check(!new || (new->first == first && new->first + new->blocks == end));
	if (s == NULL)
		return -ENOMEM;
	lob_begin_stage(s, m, lob, first, end);
	if (new && (uint64_t)new->blocks * JOIN_FACTOR > JOIN_BLOCKS_MIN)
		s->join_max = (uint64_t)new->blocks * JOIN_FACTOR;
	if (new)
		s->new[s->new_count++] = new;
	rc = write_now(s);
	if (rc)
		goto out;
	count_retries(s);
	rc = lob_collect(s);
	if (rc)
		goto out;
	*done = end;
	rc = new ? stage_new(&s, 1, delta) : stage_hole(s, delta, done);
	if (rc == 0)
		os_point("lob:staged");
out:
	free(s);
	return rc;
}

int lob_stage_parts(struct mtr *m, uint64_t lob, uint64_t first, uint64_t end,
		    struct lob_new *const *part, unsigned count, int64_t *delta)
{
	struct volume *volume = mtr_volume(m);
	struct stage *s = lob_stage_alloc(volume);
	uint64_t at = first;
	int rc;

	check(lob != 0 && first < end && count <= LOB_PARTS_MAX);
	if (s == NULL)
		return -ENOMEM;
	lob_begin_stage(s, m, lob, first, end);
	for (; s->new_count < count; s->new_count++) {
		s->new[s->new_count] = part[s->new_count];
		check(part[s->new_count]->first >= at);
		at = part[s->new_count]->first + part[s->new_count]->blocks;
	}
	check(at <= end);
	rc = write_now(s);
	if (rc)
		goto out;
	count_retries(s);
	rc = lob_collect(s);
	if (rc == 0)
		rc = stage_new(&s, 1, delta);
	if (rc == 0)
		os_point("lob:staged");
out:
	free(s);
	return rc;
}

static bool have_extent_in_common(const struct stage *left, const struct stage *right)
{
	return left->old_count > 0 && right->old_count > 0 &&
	       left->old[left->old_count - 1].first >= right->old[0].first;
}

int lob_stage_pair(struct mtr *m, uint64_t lob, struct lob_new *const new[2], int64_t *delta)
{
	struct stage *s[2] = {lob_stage_alloc(mtr_volume(m)), lob_stage_alloc(mtr_volume(m))};
	int rc = s[0] && s[1] ? 0 : -ENOMEM;

	for (unsigned i = 0; rc == 0 && i < 2; i++) {
		lob_begin_stage(s[i], m, lob, new[i]->first, new[i]->first + new[i]->blocks);
		s[i]->new[s[i]->new_count++] = new[i];
		rc = write_now(s[i]);
		if (rc)
			break;
		count_retries(s[i]);
		rc = lob_collect(s[i]);
	}
	if (rc == 0)
		rc = have_extent_in_common(s[0], s[1]) ? -E2BIG : stage_new(s, 2, delta);
	free(s[0]);
	free(s[1]);
	return rc;
}
