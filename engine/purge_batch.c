/*
 * Small LOBs, several in one mini-transaction: their records in the queue, their
 * extents, their bits.  What a removal leaves is most often a LOB of an extent or
 * two, and their mini-transactions would latch the same few leaves again and again.
 *
 * INV-LOB-3 as ever: bits are cleared and records deleted together.  A LOB that
 * turns out to be larger, or a volume with clones, whose counts several LOBs may
 * want to change at once, is dealt with one by one (purge_work.c).
 */
#include "engine/purge_internal.h"

#include "engine/base/error.h"

#include <errno.h>

#define BATCH_EXTENTS_MAX 4u /* of a LOB that may share a mini-transaction */
#define EXTENT_LOG_BYTES 128u /* an entry deleted, a run of bits */

bool purge_batch_add(struct purge_batch *batch, uint64_t number, const struct purge_record *record)
{
	if (record->kind != PURGE_LOB || batch->count == PURGE_BATCH_LOBS)
		return false;
	/* Two parts of one LOB may lie in one extent, which takes one edit. */
	for (unsigned i = 0; i < batch->count; i++)
		if (batch->lob[i].seen.lob == record->lob)
			return false;
	batch->lob[batch->count].number = number;
	batch->lob[batch->count++].seen = *record;
	return true;
}

/* Reads the leaves; -E2BIG: one is not small. */
static int find_extents(struct volume *volume, struct purge_batch *batch)
{
	for (unsigned i = 0; i < batch->count; i++) {
		const struct purge_record *seen = &batch->lob[i].seen;
		struct lob_part *part = &batch->lob[i].part;
		int rc = lob_find_part(volume, seen->lob, seen->first, seen->end,
				       BATCH_EXTENTS_MAX, part);

		stat_add(&volume->stats, STAT_purge_index_pages, part->leaves);
		if (rc == 0 && part->end != seen->end)
			rc = -E2BIG;
		if (rc)
			return rc;
	}
	return 0;
}

static void want_extents(struct mtr *m, const struct purge_batch *batch)
{
	for (unsigned i = 0, to; i < batch->count; i = to) {
		struct key low = lob_key(batch->lob[i].seen.lob, 0), high;

		/* LOBs that were made one after the other are one range. */
		for (to = i + 1; to < batch->count; to++)
			if (batch->lob[to].seen.lob != batch->lob[to - 1].seen.lob + 1)
				break;
		high = lob_key(batch->lob[to - 1].seen.lob, UINT64_MAX);
		mtr_want_range(m, INDEX_LOB, low.bytes, high.bytes, high.len);
	}
	for (unsigned i = 0; i < batch->count; i++)
		for (unsigned k = 0; k < batch->lob[i].part.groups; k++)
			mtr_want_bits(m, batch->lob[i].part.block[k], 1);
	mtr_want_log(m, batch->count * BATCH_EXTENTS_MAX * EXTENT_LOG_BYTES);
	if (!tunable_is_on(&mtr_volume(m)->tunables, TUNABLE_lob_shared_index))
		mtr_want_exclusive(m, INDEX_LOB);
}

static void want_batch(struct mtr *m, void *arg)
{
	struct purge_batch *batch = arg;
	struct key low = purge_key(batch->lob[0].number);
	struct key high = purge_key(batch->lob[batch->count - 1].number);

	mtr_want_range(m, INDEX_PURGE, low.bytes, high.bytes, high.len);
	want_extents(m, batch);
}

static bool is_as_seen(const struct purge_record *a, const struct purge_record *b)
{
	return a->kind == b->kind && a->lob == b->lob && a->first == b->first && a->end == b->end;
}

static int stage_one(struct mtr *m, struct purge_batch *batch, unsigned i)
{
	const struct lob_part *part = &batch->lob[i].part;
	struct key key = purge_key(batch->lob[i].number);
	struct purge_record record;
	uint64_t done = part->end;
	int64_t delta = 0;
	int rc = 0;

	if (!mtr_covered(m, INDEX_PURGE, key.bytes, key.len))
		return -E2BIG;
	rc = purge_record_lookup(m, batch->lob[i].number, &record);
	if (rc || !is_as_seen(&record, &batch->lob[i].seen))
		return rc == 0 || rc == -BE_NOTFOUND ? -E2BIG : rc;
	if (part->first < part->end)
		rc = lob_stage_replace(m, record.lob, part->first, part->end, NULL, &delta, &done);
	if (rc == 0 && done != part->end)
		rc = -E2BIG;
	if (rc)
		return rc;
	purge_record_delete(m, batch->lob[i].number);
	batch->freed += (uint64_t)-delta;
	return 0;
}

static int stage_batch(struct mtr *m, void *arg)
{
	struct purge_batch *batch = arg;
	int rc = 0;

	/* Asked under the latches (INV-SHARE-1): two LOBs may change one count. */
	if (atomic_load(&mtr_volume(m)->shares_used))
		return -E2BIG;
	batch->freed = 0;
	for (unsigned i = 0; i < batch->count && rc == 0; i++)
		rc = stage_one(m, batch, i);
	return rc;
}

int purge_batch_step(struct volume *volume, struct purge_batch *batch)
{
	struct change change = {.want = want_batch, .stage = stage_batch, .arg = batch};
	int rc;

	if (batch->count < 2 || atomic_load(&volume->shares_used) ||
	    !tunable_is_on(&volume->tunables, TUNABLE_purge_prefetch))
		return -E2BIG;
	for (unsigned i = 0; i < batch->count; i++)
		lob_prefetch(volume, batch->lob[i].seen.lob, batch->lob[i].seen.first,
			     batch->lob[i].seen.end);
	rc = find_extents(volume, batch);
	if (rc == 0)
		rc = purge_change(volume, &change);
	if (rc)
		return rc;
	stat_add(&volume->stats, STAT_purge_blocks, batch->freed);
	stat_add(&volume->stats, STAT_purge_records, batch->count);
	stat_add(&volume->stats, STAT_purge_batches, 1);
	for (unsigned i = 0; i < batch->count; i++)
		if (batch->lob[i].part.first < batch->lob[i].part.end)
			lob_tidy(volume, batch->lob[i].seen.lob, batch->lob[i].part.first,
				 batch->lob[i].part.end);
	return 0;
}
