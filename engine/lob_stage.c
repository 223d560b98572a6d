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
 * INV-LOB-3: bits are cleared in the mtr that drops the last reference to them.
 *
 * Joining: an extent that continues its neighbour, in the file and on the
 * volume, is one extent with it.  That rewrites the neighbour's record with all
 * its CRCs, so a small write joins only small neighbours: a file that grows by
 * single blocks gets extents of JOIN_BLOCKS_MIN, and each CRC is logged a bounded
 * number of times.
 */
#include "engine/lob_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define JOIN_BLOCKS_MIN 64u
#define JOIN_FACTOR 4u     /* a join may rewrite so many times what is written anyway */
/* Log of one block at worst: an extent, its bit and CRC; a deleted extent and its bit. */
#define LOG_BYTES_BLOCK 320u
#define PRESENT_MAX (WRITE_BLOCKS_MAX + 2u) /* one a block, and the neighbours */
/* Pieces, cut at the longest extent of the smallest page; two rests, two neighbours. */
#define PARTS_MAX (RESERVE_EXTENTS_MAX + 4u + \
		   WRITE_BLOCKS_MAX / EXTENT_BLOCKS_MAX(PAGE_SIZE_MIN) + 1u)

/* A part of a final extent. */
struct part {
	struct extent extent;
	bool present;      /* exactly an entry that is there now */
};

struct stage {
	struct mtr *m;
	struct volume *volume;
	uint64_t lob, first, end;
	const struct lob_new *new[LOB_PARTS_MAX]; /* ascending; holes beside them */
	unsigned new_count;
	uint64_t join_max;         /* present extents up to this length may be joined */
	uint32_t extent_max;
	struct extent old[PRESENT_MAX]; /* ascending; neighbours that touch included */
	unsigned old_count;
	uint64_t in_place;         /* old blocks that stay */
	bool complete;             /* no other entry overlaps [first, end) */
	struct part part[PARTS_MAX]; /* what the interval consists of in the end */
	unsigned part_count;
	uint8_t value[];           /* RECORD_BYTES_MAX */
};

/* ------------------------------------------------------------------- wants */

void lob_want_replace(struct mtr *m, uint64_t lob, uint64_t first, uint64_t end)
{
	struct key low = lob_key(lob, first > 0 ? first - 1 : 0);
	struct key high = lob_key(lob, end);

	uint64_t blocks = end - first < WRITE_BLOCKS_MAX ? end - first : WRITE_BLOCKS_MAX;

	check(lob != 0 && first < end);
	mtr_want_range(m, INDEX_LOB, low.bytes, high.bytes, KEY_LOB_BYTES);
	mtr_want_log(m, blocks * LOG_BYTES_BLOCK);
}

void lob_want_publish(struct mtr *m, uint64_t lob, const struct lob_new *new)
{
	lob_want_replace(m, lob, new->first, new->first + new->blocks);
	for (unsigned i = 0; i < new->space.count; i++)
		if (!new->in_place[i])
			mtr_want_bits(m, new->space.piece[i].start, new->space.piece[i].length);
}

/* ------------------------------------------------------- what is present now */

/* The next entry at or behind file block `at`; -BE_END when there is certainly none. */
static int next_present(struct stage *s, uint64_t at, struct extent *extent)
{
	static const uint8_t rightmost[KEY_LOB_BYTES] = {
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	};
	struct key key = lob_key(s->lob, at), found;
	const void *value;
	size_t len;
	bool ours;
	int rc = mtr_next(s->m, INDEX_LOB, key.bytes, key.len, &found, &value, &len);

	/*
	 * The wanted range ends with a leaf that has an entry; when it has none,
	 * then that is the last leaf of the index, or the range was cut short.
	 */
	if (rc == -BE_NOTFOUND)
		return mtr_covered(s->m, INDEX_LOB, rightmost, sizeof(rightmost)) ? -BE_END : rc;
	if (rc)
		return rc;
	rc = extent_decode(s->volume, s->lob, &found, value, len, extent, &ours);
	if (rc)
		return rc;
	return ours ? 0 : -BE_END;
}

/* Reads the entries that overlap [first, end) or touch it. */
static int collect(struct stage *s)
{
	uint64_t at = s->first > 0 ? s->first - 1 : 0;

	while (at <= s->end && !s->complete) {
		struct extent extent;
		int rc;

		if (s->old_count == PRESENT_MAX)
			return 0;
		rc = next_present(s, at, &extent);
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

static bool overlaps(const struct stage *s, const struct extent *extent)
{
	return extent->first < s->end && extent_end(extent) > s->first;
}

/* ------------------------------------------------------------ the final parts */

static struct extent cut(const struct extent *extent, uint64_t first, uint64_t end)
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

/* What lies left of the interval, the new contents, what lies right of it. */
static void lay_out(struct stage *s)
{
	for (unsigned i = 0; i < s->old_count; i++) {
		const struct extent *old = &s->old[i];
		struct extent rest;

		if (old->first >= s->first)
			break;
		if (overlaps(s, old)) {
			rest = cut(old, old->first, s->first);
			add_part(s, &rest, false);
		} else {
			add_part(s, old, true);
		}
	}
	for (unsigned i = 0; i < s->new_count; i++)
		add_new(s, s->new[i]);
	for (unsigned i = 0; i < s->old_count; i++) {
		const struct extent *old = &s->old[i];
		struct extent rest;

		if (extent_end(old) <= s->end)
			continue;
		if (overlaps(s, old)) {
			rest = cut(old, s->end, extent_end(old));
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

static void stage_entries(struct stage *s)
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

/* ------------------------------------------------------------------ the bits */

static void stage_new_blocks(struct stage *s, const struct lob_new *new)
{
	const le32 *crcs = new->crcs;

	for (unsigned i = 0; i < new->space.count; i++) {
		const struct piece *piece = &new->space.piece[i];

		if (!new->in_place[i])
			mtr_set_bits(s->m, piece->start, piece->length);
		if (crcs == NULL)
			continue;
		mtr_data(s->m, piece->start, piece->length, crcs);
		crcs += piece->length;
	}
}

/* Does this unwritten extent become a written one where it is? */
static bool stays_in_place(const struct stage *s, const struct extent *old)
{
	for (unsigned n = 0; n < s->new_count && old->unwritten; n++) {
		uint64_t at = s->new[n]->first;

		for (unsigned i = 0; i < s->new[n]->space.count; i++) {
			const struct piece *piece = &s->new[n]->space.piece[i];

			if (s->new[n]->in_place[i] && at < extent_end(old) &&
			    at + piece->length > old->first &&
			    piece->start + (old->first - at) == old->start)
				return true;
			at += piece->length;
		}
	}
	return false;
}

/* The blocks of an old extent within [first, end). */
static struct piece freed_piece(const struct stage *s, const struct extent *old)
{
	uint64_t first = old->first > s->first ? old->first : s->first;
	uint64_t end = extent_end(old) < s->end ? extent_end(old) : s->end;

	return (struct piece){
		.start = old->start + (first - old->first),
		.length = (uint32_t)(end - first),
	};
}

/*
 * Frees the old blocks in order, neighbours on the volume as one run; *reached:
 * first file block whose bits could not be cleared.
 */
static uint64_t stage_old_blocks(struct stage *s, uint64_t *reached)
{
	struct piece run = {0};
	uint64_t freed = 0;

	*reached = s->end;
	for (unsigned i = 0; i < s->old_count; i++) {
		const struct extent *old = &s->old[i];
		struct piece piece;

		if (!overlaps(s, old))
			continue;
		piece = freed_piece(s, old);
		if (stays_in_place(s, old)) {
			freed += piece.length;
			s->in_place += piece.length;
			continue;
		}
		if (run.length > 0 && run.start + run.length == piece.start) {
			run.length += piece.length;
		} else {
			if (run.length > 0)
				mtr_clear_bits(s->m, run.start, run.length);
			run.length = 0;
			if (!mtr_can_clear(s->m, piece.start, piece.length)) {
				*reached = old->first > s->first ? old->first : s->first;
				break;
			}
			run = piece;
		}
		freed += piece.length;
	}
	if (run.length > 0)
		mtr_clear_bits(s->m, run.start, run.length);
	return freed;
}

/* ------------------------------------------------------------------ the whole */

static uint64_t blocks_in_place(const struct lob_new *new)
{
	uint64_t blocks = 0;

	for (unsigned i = 0; i < new->space.count; i++)
		blocks += new->in_place[i] ? new->space.piece[i].length : 0;
	return blocks;
}

static int stage_new(struct stage *s, int64_t *delta)
{
	uint64_t reached, freed, blocks = 0, in_place = 0;

	if (!s->complete)
		return -E2BIG;
	for (unsigned i = 0; i < s->new_count; i++) {
		stage_new_blocks(s, s->new[i]);
		blocks += s->new[i]->blocks;
		in_place += blocks_in_place(s->new[i]);
	}
	freed = stage_old_blocks(s, &reached);
	if (reached != s->end)
		return -E2BIG;
	check(s->in_place == in_place); /* INV-LOB-8: the range lock sees to it */
	lay_out(s);
	stage_entries(s);
	*delta = (int64_t)blocks - (int64_t)freed;
	return 0;
}

/* Narrows [first, end) to the extents that this mtr deals with. */
static void bound_hole(struct stage *s)
{
	unsigned count = 0, kept = 0;

	for (unsigned i = 0; i < s->old_count; i++) {
		if (!overlaps(s, &s->old[i]))
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

	bound_hole(s);
	*delta = 0;
	*done = s->end;
	if (s->old_count == 0)
		return s->complete ? 0 : -E2BIG;
	freed = stage_old_blocks(s, &reached);
	if (reached == s->first)
		return -E2BIG;
	s->end = reached;
	while (s->old_count > 0 && !overlaps(s, &s->old[s->old_count - 1]))
		s->old_count--;
	lay_out(s);
	stage_entries(s);
	*delta = -(int64_t)freed;
	*done = s->end;
	return 0;
}

int lob_stage_replace(struct mtr *m, uint64_t lob, uint64_t first, uint64_t end,
		      const struct lob_new *new, int64_t *delta, uint64_t *done)
{
	struct volume *volume = mtr_volume(m);
	uint32_t page_size = volume->geo.page_size;
	struct stage *s = malloc(sizeof(*s) + RECORD_BYTES_MAX(page_size));
	int rc;

	check(lob != 0 && first < end);
	check(!new || (new->first == first && new->first + new->blocks == end));
	if (s == NULL)
		return -ENOMEM;
	*s = (struct stage){
		.m = m,
		.volume = volume,
		.lob = lob,
		.first = first,
		.end = end,
		.join_max = new ? (uint64_t)new->blocks * JOIN_FACTOR : 0,
		.extent_max = EXTENT_BLOCKS_MAX(page_size),
	};
	if (s->join_max < JOIN_BLOCKS_MIN)
		s->join_max = JOIN_BLOCKS_MIN;
	if (new)
		s->new[s->new_count++] = new;
	rc = collect(s);
	if (rc)
		goto out;
	*done = end;
	rc = new ? stage_new(s, delta) : stage_hole(s, delta, done);
	if (rc == 0)
		os_point("lob:staged");
out:
	free(s);
	return rc;
}

int lob_stage_parts(struct mtr *m, uint64_t lob, uint64_t first, uint64_t end,
		    const struct lob_new *const *part, unsigned count, int64_t *delta)
{
	struct volume *volume = mtr_volume(m);
	uint32_t page_size = volume->geo.page_size;
	struct stage *s = calloc(1, sizeof(*s) + RECORD_BYTES_MAX(page_size));
	uint64_t at = first;
	int rc;

	check(lob != 0 && first < end && count <= LOB_PARTS_MAX);
	if (s == NULL)
		return -ENOMEM;
	s->m = m;
	s->volume = volume;
	s->lob = lob;
	s->first = first;
	s->end = end;
	s->join_max = JOIN_BLOCKS_MIN;
	s->extent_max = EXTENT_BLOCKS_MAX(page_size);
	for (; s->new_count < count; s->new_count++) {
		s->new[s->new_count] = part[s->new_count];
		check(part[s->new_count]->first >= at);
		at = part[s->new_count]->first + part[s->new_count]->blocks;
	}
	check(at <= end);
	rc = collect(s);
	if (rc == 0)
		rc = stage_new(s, delta);
	if (rc == 0)
		os_point("lob:staged");
	free(s);
	return rc;
}
