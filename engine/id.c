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

/*
 * Inode numbers ascend, so that neighbours in a directory are neighbours in the
 * index.  LOBs and purge records have no neighbours to lie beside; theirs come
 * from a batch for each shard of threads, which are then busy in leaves of their
 * own, not all in the last one.
 */
static struct id_batch *batch_of(struct volume *volume, enum counter counter)
{
	unsigned shard = counter == COUNTER_INO ? 0 : stats_thread() % ID_SHARDS;

	return &volume->ids[counter].batch[shard];
}

void id_init(struct volume *volume, enum counter counter, uint64_t mark)
{
	struct counter_cache *cache = &volume->ids[counter];
	uint64_t order = (uint64_t)counter * (ID_SHARDS + 1);

	for (unsigned i = 0; i < ID_SHARDS; i++) {
		latch_init(&cache->batch[i].latch, RANK_ID, order + i);
		cache->batch[i].next = cache->batch[i].limit = mark;
	}
	latch_init(&cache->latch, RANK_ID, order + ID_SHARDS);
	cache->limit = mark;
}

/* A new batch above the mark, which is raised before anybody sees a number of it. */
static int refill(struct volume *volume, enum counter counter, struct id_batch *batch)
{
	struct counter_cache *cache = &volume->ids[counter];
	int rc;

	latch_x(&cache->latch);
	rc = raise_mark(volume, counter, cache->limit + ID_BATCH);
	if (rc == 0) {
		batch->next = cache->limit;
		batch->limit = cache->limit += ID_BATCH;
	}
	unlatch_x(&cache->latch);
	return rc;
}

int id_take(struct volume *volume, enum counter counter, uint64_t *out)
{
	struct id_batch *batch;
	int rc = 0;

	check(counter < COUNTER_COUNT);
	batch = batch_of(volume, counter);
	latch_x(&batch->latch);
	if (batch->next == batch->limit)
		rc = refill(volume, counter, batch);
	if (rc == 0)
		*out = batch->next++;
	unlatch_x(&batch->latch);
	return rc;
}
