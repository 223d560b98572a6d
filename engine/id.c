/*
 * Identifiers that are never reused (INV-ID-1): taken from a batch below a
 * high-water mark, which is raised by a logged mtr before the first number of
 * the batch is handed out.  Log order is the order of durability, so no use of
 * a number can outlive a crash that its mark does not.
 */
#include "engine/volume.h"

#include "engine/mtr.h"

#define ID_BATCH 1024u

static int raise_mark(struct volume *volume, enum counter counter, uint64_t limit)
{
	struct mtr *m;
	int rc = mtr_begin(volume, MTR_PRIVILEGED, &m);

	if (rc)
		return rc;
	do {
		rc = mtr_latch(m);
		if (rc)
			break;
		mtr_counter(m, counter, limit);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	return rc;
}

int id_take(struct volume *volume, enum counter counter, uint64_t *out)
{
	struct counter_cache *cache = &volume->ids[counter];
	int rc = 0;

	check(counter < COUNTER_COUNT);
	latch_x(&cache->latch);
	if (cache->next == cache->limit) {
		rc = raise_mark(volume, counter, cache->limit + ID_BATCH);
		if (rc == 0)
			cache->limit += ID_BATCH;
	}
	if (rc == 0)
		*out = cache->next++;
	unlatch_x(&cache->latch);
	return rc;
}
