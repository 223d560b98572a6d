/*
 * Clones: file blocks get the extents of others, checksums included, and `shares`
 * counts the references; data is neither read nor written.
 *
 * INV-LOB-3: counts, destination and the source's mapping, read under the same
 * latches, belong to one mtr of bounded size.
 * INV-SHARE-1: whoever clones says so before it latches the leaf that it shares.
 * INV-SHARE-2: unwritten extents are left out.
 */
#include "engine/lob_stage.h"

#include "engine/base/error.h"

#include <errno.h>
#include <stdlib.h>

void lob_want_clone(struct mtr *m, uint64_t lob, uint64_t first, uint64_t end,
		    const struct lob_source_range *source)
{
	struct key low = lob_key(source->lob, source->first);
	struct key high = lob_key(source->lob, source->first + (end - first));

	check(end - first <= CLONE_BLOCKS_MAX);
	atomic_store(&mtr_volume(m)->shares_used, true); /* INV-SHARE-1 */
	lob_want_replace(m, lob, first, end);
	mtr_want_range(m, INDEX_LOB, low.bytes, high.bytes, KEY_LOB_BYTES);
	mtr_want_log(m, (end - first) * 2 * sizeof(le32) + CLONE_EXTENTS_MAX * 128u);
}

/* The source's extents, as they are under the latches, at the place that they get. */
static int collect_source(struct stage *s, const struct lob_source_range *source)
{
	uint64_t at = source->first, end = source->first + (s->end - s->first);

	while (at < end) {
		struct extent extent, *shared;
		uint64_t first, stop;
		int rc = lob_next_present(s, source->lob, at, &extent);

		if (rc == -BE_END || (rc == 0 && extent.first >= end))
			return 0;
		if (rc)
			return rc == -BE_NOTFOUND ? -E2BIG : rc;
		first = extent.first > at ? extent.first : at;
		stop = extent_end(&extent) < end ? extent_end(&extent) : end;
		at = stop;
		if (extent.unwritten) /* reads as a hole does */
			continue;
		if (s->shared_count == CLONE_EXTENTS_MAX)
			return -E2BIG;
		shared = &s->shared[s->shared_count++];
		*shared = lob_cut(&extent, first, stop);
		shared->first = first - source->first + s->first;
		lob_change_shares(s, shared->start, shared->length, 1);
	}
	return 0;
}

static int stage_clone(struct stage *s, const struct lob_source_range *source, int64_t *delta)
{
	uint64_t reached, freed, cloned = 0;
	int rc = lob_collect(s);

	if (rc == 0 && !s->complete)
		rc = -E2BIG;
	if (rc == 0)
		rc = collect_source(s, source);
	if (rc == 0)
		rc = lob_release_old(s, &freed, &reached);
	if (rc)
		return rc;
	for (unsigned i = 0; i < s->shared_count; i++)
		cloned += s->shared[i].length;
	lob_lay_out(s);
	lob_stage_entries(s);
	*delta = (int64_t)cloned - (int64_t)freed;
	return 0;
}

int lob_stage_clone(struct mtr *m, uint64_t lob, uint64_t first, uint64_t end,
		    const struct lob_source_range *source, int64_t *delta)
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
	if (rc == 0) {
		stat_add(&volume->stats, STAT_lob_clones, 1);
		os_point("lob:cloned");
	}
	free(s);
	return rc;
}
