/*
 * Clones: file blocks get the extents of others, checksums included, and `shares`
 * counts the references; data is neither read nor written.
 *
 * INV-LOB-3: counts, destination and the source's mapping, read under the same
 * latches, belong to one mtr of bounded size.
 * INV-CLONE-1: a batch has at most CLONE_EXTENTS_MAX extents, whose records fit into
 * one empty leaf; an extent that fits is cut by the request's edges only.
 * INV-CLONE-2: a batch that goes where nothing was fills the leaf and ends there, so
 * that a leaf costs one split and one commit more, whatever was in it.
 * INV-CLONE-3: at most CLONE_PLACES_MAX places of `shares` are latched for a batch, those
 * near each other as one; what lies scattered on the volume goes by as many extents.
 * INV-SHARE-1: whoever clones says so before it latches the leaf that it shares.
 * INV-SHARE-2: unwritten extents are left out.
 */
#include "engine/lob_stage.h"

#include "engine/base/error.h"
#include "engine/redo.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Places as near to each other are asked for as one: about what a leaf of `shares` covers. */
#define PLACE_GAP 1024u /* blocks */

/* ------------------------------------------------------------------ batches */

/* INV-CLONE-1 */
struct batch {
	unsigned extents; /* the unwritten ones as well: they are looked at */
	uint64_t bytes;   /* of the others' records */
};

static uint64_t record_bytes(const struct extent *extent)
{
	return page_cost(KEY_LOB_BYTES, sizeof(struct disk_extent) +
						extent->length * sizeof(le32));
}

/* Adds one more, of which a part at least is to be cloned; false: there is no room for it. */
static bool batch_takes(struct batch *batch, const struct volume *volume,
			const struct extent *extent)
{
	uint64_t bytes = extent->unwritten ? 0 : record_bytes(extent);

	if (batch->extents == CLONE_EXTENTS_MAX ||
	    batch->bytes + bytes > page_capacity(volume->geo.page_size))
		return false;
	batch->extents++;
	batch->bytes += bytes;
	return true;
}

/* The part of an extent that lies within [first, end). */
static struct extent part_of(const struct extent *extent, uint64_t first, uint64_t end)
{
	uint64_t from = extent->first > first ? extent->first : first;
	uint64_t to = extent_end(extent) < end ? extent_end(extent) : end;

	return lob_cut(extent, from, to);
}

static uint64_t gap_behind(const struct lob_source_range *source, unsigned i)
{
	return source->place[i + 1].low - source->place[i].high;
}

/* INV-CLONE-3 */
static void join_places(struct lob_source_range *source)
{
	while (source->places > 1) {
		unsigned least = 0;

		for (unsigned i = 1; i + 1 < source->places; i++)
			if (gap_behind(source, i) < gap_behind(source, least))
				least = i;
		if (source->places <= CLONE_PLACES_MAX && gap_behind(source, least) > PLACE_GAP)
			return;
		source->place[least].high = source->place[least + 1].high;
		source->places--;
		memmove(&source->place[least + 1], &source->place[least + 2],
			(source->places - least - 1) * sizeof(source->place[0]));
	}
}

static void add_place(struct lob_source_range *source, const struct extent *extent)
{
	unsigned i = source->places++;

	for (; i > 0 && source->place[i - 1].low > extent->start; i--)
		source->place[i] = source->place[i - 1];
	source->place[i].low = extent->start;
	source->place[i].high = extent->start + extent->length;
	join_places(source);
}

struct search {
	struct volume *volume;
	struct lob_source_range *source;
	struct batch batch;
	unsigned extents;
	uint64_t end;
};

static int visit_source(void *arg, const struct extent *extent)
{
	struct search *search = arg;
	struct lob_source_range *source = search->source;
	struct extent part;

	if (extent->first >= search->end)
		return 1;
	part = part_of(extent, source->first, search->end);
	if (search->batch.extents == search->extents ||
	    !batch_takes(&search->batch, search->volume, &part)) {
		search->end = part.first;
		return 1;
	}
	if (!part.unwritten)
		add_place(source, &part);
	return 0;
}

int lob_find_clone(struct volume *volume, struct lob_source_range *source, unsigned extents,
		   uint64_t below, uint64_t *end)
{
	struct search search = {
		.volume = volume,
		.source = source,
		.extents = extents,
		.end = below,
	};
	struct lob_visitor visitor = {.visit = visit_source, .arg = &search};
	int rc;

	check(extents > 0);
	source->places = 0;
	rc = lob_walk(volume, source->lob, source->first, &visitor, false);
	source->extents = search.batch.extents;
	*end = search.end;
	check(rc || *end > source->first);
	return rc;
}

void lob_want_clone(struct mtr *m, uint64_t lob, uint64_t first, uint64_t end,
		    const struct lob_source_range *source)
{
	struct volume *volume = mtr_volume(m);
	struct key low = lob_key(source->lob, source->first);
	struct key high = lob_key(source->lob, source->first + (end - first));

	atomic_store(&volume->shares_used, true); /* INV-SHARE-1 */
	lob_want_replace(m, lob, first, end);
	mtr_want_leaves(m, INDEX_LOB, low.bytes, high.bytes, KEY_LOB_BYTES);
	mtr_want_log(m, page_capacity(volume->geo.page_size) +
				CLONE_EXTENTS_MAX * redo_record_bytes(0));
	lob_want_shares(m, source);
}

/* The source's extents, as they are under the latches, at the place that they get. */
static int collect_source(struct stage *s, const struct lob_source_range *source)
{
	uint64_t at = source->first, end = source->first + (s->end - s->first);
	struct batch batch = {0};

	while (at < end) {
		struct extent extent, *shared;
		int rc = lob_next_present(s, source->lob, at, &extent);

		if (rc == -BE_END || (rc == 0 && extent.first >= end))
			return 0;
		if (rc)
			return rc == -BE_NOTFOUND ? -E2BIG : rc;
		extent = part_of(&extent, at, end);
		at = extent_end(&extent);
		if (!batch_takes(&batch, s->volume, &extent))
			return -E2BIG;
		if (extent.unwritten) /* reads as a hole does */
			continue;
		shared = &s->shared[s->shared_count++];
		*shared = extent;
		shared->first = extent.first - source->first + s->first;
	}
	return 0;
}

static bool replaces_extents(const struct stage *s)
{
	for (unsigned i = 0; i < s->old_count; i++)
		if (lob_stage_overlaps(s, &s->old[i]))
			return true;
	return false;
}

/*
 * INV-CLONE-2: ends the batch where the leaf ends that its first record goes to.  Where
 * that would be short, it has one record more than fits: the commit then splits the leaf,
 * and the batch is staged anew, all of it.  A batch that takes the room of old extents
 * stays whole.
 */
static void end_at_leaf(struct stage *s)
{
	struct key key;
	uint64_t room, bytes = 0;
	unsigned count = 0;

	if (s->shared_count == 0 || replaces_extents(s))
		return;
	key = lob_key(s->lob, extent_end(&s->shared[0]) - 1);
	room = mtr_room(s->m, INDEX_LOB, key.bytes, key.len);
	while (count < s->shared_count && bytes + record_bytes(&s->shared[count]) <= room)
		bytes += record_bytes(&s->shared[count++]);
	if (count < s->shared_count / 2)
		count++;
	if (count == 0 || count == s->shared_count)
		return;
	s->end = s->shared[count].first;
	s->shared_count = count;
}

static uint64_t share_extents(struct stage *s)
{
	uint64_t blocks = 0;

	for (unsigned i = 0; i < s->shared_count; i++) {
		lob_change_shares(s, s->shared[i].start, s->shared[i].length, 1);
		blocks += s->shared[i].length;
	}
	return blocks;
}

static int stage_clone(struct stage *s, const struct lob_source_range *source, int64_t *delta)
{
	uint64_t reached, freed, cloned;
	int rc = lob_collect(s);

	if (rc == 0 && !s->complete)
		rc = -E2BIG;
	if (rc == 0)
		rc = collect_source(s, source);
	if (rc)
		return rc;
	end_at_leaf(s);
	cloned = share_extents(s);
	rc = lob_release_old(s, &freed, &reached);
	if (rc)
		return rc;
	lob_lay_out(s);
	lob_stage_entries(s);
	*delta = (int64_t)cloned - (int64_t)freed;
	return 0;
}

int lob_stage_clone(struct mtr *m, uint64_t lob, uint64_t first, uint64_t end,
		    const struct lob_source_range *source, int64_t *delta, uint64_t *done)
{
	struct volume *volume = mtr_volume(m);
	struct stage *s = lob_stage_alloc(volume);
	int rc;

	check(lob != 0 && source->lob != 0 && first < end);
	check(lob != source->lob || first >= source->first + (end - first) || source->first >= end);
	if (s == NULL)
		return -ENOMEM;
	lob_begin_stage(s, m, lob, first, end);
	rc = stage_clone(s, source, delta);
	*done = s->end;
	if (rc == 0) {
		stat_add(&volume->stats, STAT_lob_clones, 1);
		os_point("lob:cloned");
	}
	free(s);
	return rc;
}
