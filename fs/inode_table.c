/* In-memory inodes: see inode_table.h. */
#include "fs/inode_table.h"

#include <errno.h>
#include <stdlib.h>

#define BUCKETS_FIRST 16u

static uint64_t mix(uint64_t ino)
{
	return ino * 0x9e3779b97f4a7c15ull; /* Fibonacci hashing: the high bits are the good ones */
}

static struct inode_shard *shard_of(struct inode_table *table, uint64_t ino)
{
	return &table->shard[mix(ino) >> 58];
}
static_assert(INODE_SHARDS == 1u << (64 - 58), "shard_of() takes the top bits");

static struct inode **bucket_of(struct inode_shard *shard, uint64_t ino)
{
	return &shard->bucket[(mix(ino) >> 26) & (shard->buckets - 1)];
}

static struct inode *find(struct inode_shard *shard, uint64_t ino)
{
	struct inode *inode = *bucket_of(shard, ino);

	while (inode && inode->ino != ino)
		inode = inode->next;
	return inode;
}

static void insert(struct inode_shard *shard, struct inode *inode)
{
	struct inode **bucket = bucket_of(shard, inode->ino);

	inode->next = *bucket;
	*bucket = inode;
	shard->count++;
}

/* Doubles the buckets; without memory the chains just get longer. */
static void grow(struct inode_shard *shard)
{
	struct inode **old = shard->bucket;
	uint32_t old_count = shard->buckets;
	struct inode **bucket;

	if (shard->count < old_count || old_count > UINT32_MAX / 2)
		return;
	bucket = calloc((size_t)old_count * 2, sizeof(*bucket));
	if (!bucket)
		return;
	shard->bucket = bucket;
	shard->buckets = old_count * 2;
	shard->count = 0;
	for (uint32_t i = 0; i < old_count; i++) {
		while (old[i]) {
			struct inode *inode = old[i];

			old[i] = inode->next;
			insert(shard, inode);
		}
	}
	free(old);
}

/* INV-INODE-1: frees the entry when nothing keeps it; true when an orphan became idle. */
static bool drop_if_idle(struct inode_table *table, struct inode_shard *shard,
			 struct inode *inode)
{
	struct inode **link = bucket_of(shard, inode->ino);
	bool orphan = atomic_load(&inode->orphan);
	uint64_t limit;

	if (inode->users > 0 || inode->lookups > 0)
		return false;
	while (*link != inode)
		link = &(*link)->next;
	*link = inode->next;
	shard->count--;
	limit = atomic_load_explicit(&table->limit, memory_order_relaxed);
	if (atomic_fetch_sub(&table->count, 1) <= limit)
		atomic_store(&table->alarm, limit);
	check(range_set_is_empty(&inode->ranges)); /* INV-INODE-2 */
	free(inode);
	return orphan;
}

int inode_table_init(struct inode_table *table, void (*orphan_idle)(void *arg), void *arg)
{
	for (unsigned i = 0; i < INODE_SHARDS; i++) {
		struct inode_shard *shard = &table->shard[i];

		latch_init(&shard->latch, RANK_LEAF, 0);
		shard->bucket = calloc(BUCKETS_FIRST, sizeof(*shard->bucket));
		shard->buckets = BUCKETS_FIRST;
		shard->count = 0;
		shard->lookups = 0;
		if (!shard->bucket) {
			while (i-- > 0)
				free(table->shard[i].bucket);
			return -ENOMEM;
		}
	}
	table->orphan_idle = orphan_idle;
	table->arg = arg;
	atomic_init(&table->limit, 0);
	atomic_init(&table->count, 0);
	atomic_init(&table->alarm, UINT64_MAX);
	return 0;
}

void inode_table_set_limit(struct inode_table *table, uint64_t limit, void (*over_limit)(void *arg),
			   void *arg)
{
	table->over_limit = over_limit;
	table->over_arg = arg;
	atomic_store(&table->limit, limit);
	if (limit)
		atomic_store(&table->alarm, limit);
}

void inode_table_destroy(struct inode_table *table)
{
	for (unsigned i = 0; i < INODE_SHARDS; i++) {
		struct inode_shard *shard = &table->shard[i];

		for (uint32_t b = 0; b < shard->buckets; b++) {
			while (shard->bucket[b]) {
				struct inode *inode = shard->bucket[b];

				check(inode->users == 0);
				shard->bucket[b] = inode->next;
				free(inode);
			}
		}
		free(shard->bucket);
	}
}

uint64_t inode_table_count(struct inode_table *table)
{
	return atomic_load(&table->count);
}

uint64_t inode_table_lookups(struct inode_table *table)
{
	uint64_t lookups = 0;

	for (unsigned i = 0; i < INODE_SHARDS; i++) {
		latch_s(&table->shard[i].latch);
		lookups += table->shard[i].lookups;
		unlatch_s(&table->shard[i].latch);
	}
	return lookups;
}

static struct inode *inode_new(uint64_t ino)
{
	struct inode *inode = calloc(1, sizeof(*inode));

	if (!inode)
		return NULL;
	inode->ino = ino;
	latch_init(&inode->lock, RANK_INODE, ino);
	range_set_init(&inode->ranges, ino);
	return inode;
}

/* INV-INODE-8 */
static void sound_alarm(struct inode_table *table)
{
	uint64_t alarm = atomic_load_explicit(&table->alarm, memory_order_relaxed);

	if (alarm == UINT64_MAX || atomic_load(&table->count) <= alarm)
		return;
	if (atomic_compare_exchange_strong(&table->alarm, &alarm, UINT64_MAX))
		table->over_limit(table->over_arg);
}

int inode_pin(struct inode_table *table, uint64_t ino, struct inode **out)
{
	struct inode_shard *shard = shard_of(table, ino);
	bool is_new = false;
	struct inode *inode;
	int rc = 0;

	latch_x(&shard->latch);
	inode = find(shard, ino);
	if (inode) {
		if (!atomic_load_explicit(&inode->used, memory_order_relaxed))
			atomic_store_explicit(&inode->used, true, memory_order_relaxed);
	} else {
		inode = inode_new(ino);
		if (!inode) {
			rc = -ENOMEM;
			goto out;
		}
		grow(shard);
		insert(shard, inode);
		atomic_fetch_add(&table->count, 1);
		is_new = true;
	}
	inode->users++;
	*out = inode;
out:
	unlatch_x(&shard->latch);
	if (is_new)
		sound_alarm(table);
	return rc;
}

void inode_unpin(struct inode_table *table, struct inode *inode)
{
	struct inode_shard *shard = shard_of(table, inode->ino);
	bool idle;

	latch_x(&shard->latch);
	check(inode->users > 0);
	inode->users--;
	idle = drop_if_idle(table, shard, inode);
	unlatch_x(&shard->latch);
	if (idle)
		table->orphan_idle(table->arg);
}

void inode_looked_up(struct inode_table *table, struct inode *inode)
{
	struct inode_shard *shard = shard_of(table, inode->ino);

	latch_x(&shard->latch);
	check(inode->users > 0);
	inode->lookups++;
	shard->lookups++;
	unlatch_x(&shard->latch);
}

void inode_forget(struct inode_table *table, uint64_t ino, uint64_t count)
{
	struct inode_shard *shard = shard_of(table, ino);
	struct inode *inode;
	bool idle = false;

	latch_x(&shard->latch);
	inode = find(shard, ino);
	if (inode) {
		count = count < inode->lookups ? count : inode->lookups;
		inode->lookups -= count;
		shard->lookups -= count;
		idle = drop_if_idle(table, shard, inode);
	}
	unlatch_x(&shard->latch);
	if (idle)
		table->orphan_idle(table->arg);
}

bool inode_links_settled(struct inode_table *table, uint64_t ino)
{
	struct inode_shard *shard = shard_of(table, ino);
	uint64_t changed = 0;
	struct inode *inode;

	latch_s(&shard->latch);
	inode = find(shard, ino);
	if (inode)
		changed = atomic_load(&inode->links_changed);
	unlatch_s(&shard->latch);
	return changed == 0 || os_mono_ns() - changed >= LINKS_SETTLE_NS;
}

/* --- too many ------------------------------------------------------------ */

/* A sixteenth below the limit, so that it is not reached again at once. */
uint64_t inode_table_excess(struct inode_table *table)
{
	uint64_t count = inode_table_count(table), room = table->limit / 16;

	if (count > table->limit)
		atomic_store(&table->alarm, count + room / 4 + 64);
	else
		atomic_store(&table->alarm, table->limit);
	return count > table->limit ? count - (table->limit - room) : 0;
}

static unsigned idle_in(struct inode *chain, uint64_t *inos, unsigned max)
{
	unsigned count = 0;

	for (struct inode *inode = chain; inode && count < max; inode = inode->next) {
		if (inode->users > 0 || inode->lookups == 0)
			continue;
		if (atomic_exchange_explicit(&inode->used, false, memory_order_relaxed))
			continue;
		inos[count++] = inode->ino;
	}
	return count;
}

unsigned inode_table_idle(struct inode_table *table, struct inode_hand *hand, uint64_t *inos,
			  unsigned max)
{
	unsigned count = 0, rounds = INODE_SHARDS + (hand->bucket > 0);

	for (unsigned i = 0; i < rounds && count < max; i++) {
		struct inode_shard *shard = &table->shard[hand->shard];

		latch_x(&shard->latch);
		while (hand->bucket < shard->buckets && count < max)
			count += idle_in(shard->bucket[hand->bucket++], inos + count, max - count);
		if (hand->bucket >= shard->buckets)
			*hand = (struct inode_hand){.shard = (hand->shard + 1) % INODE_SHARDS};
		unlatch_x(&shard->latch);
	}
	return count;
}

/* --- kept access times (INV-INODE-7) ------------------------------------- */

bool inode_keep_atime(struct inode_table *table, uint64_t ino, struct timespec atime)
{
	struct inode_shard *shard = shard_of(table, ino);
	struct inode *inode;
	bool kept;

	latch_x(&shard->latch);
	inode = find(shard, ino);
	kept = inode && inode->lookups > 0;
	if (kept) {
		inode->atime = atime;
		atomic_store(&inode->atime_kept, true);
	}
	unlatch_x(&shard->latch);
	return kept;
}

bool inode_kept_atime(struct inode_table *table, uint64_t ino, struct timespec *atime)
{
	struct inode_shard *shard = shard_of(table, ino);
	struct inode *inode;
	bool kept;

	latch_s(&shard->latch);
	inode = find(shard, ino);
	kept = inode && atomic_load(&inode->atime_kept);
	if (kept)
		*atime = inode->atime;
	unlatch_s(&shard->latch);
	return kept;
}

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

void inode_atime_written(struct inode_table *table, uint64_t ino, struct timespec atime)
{
	struct inode_shard *shard = shard_of(table, ino);
	struct inode *inode;

	latch_x(&shard->latch);
	inode = find(shard, ino);
	if (inode && atomic_load(&inode->atime_kept) && same_time(inode->atime, atime))
		atomic_store(&inode->atime_kept, false);
	unlatch_x(&shard->latch);
}

void inode_drop_atime(struct inode_table *table, uint64_t ino)
{
	struct timespec atime;

	if (inode_kept_atime(table, ino, &atime))
		inode_atime_written(table, ino, atime);
}

bool inode_forget_loses_atime(struct inode_table *table, uint64_t ino, uint64_t count,
			      struct timespec *atime)
{
	struct inode_shard *shard = shard_of(table, ino);
	struct inode *inode;
	bool loses;

	latch_s(&shard->latch);
	inode = find(shard, ino);
	loses = inode && inode->lookups <= count && atomic_load(&inode->atime_kept);
	if (loses)
		*atime = inode->atime;
	unlatch_s(&shard->latch);
	return loses;
}

static struct inode *kept_in(struct inode *chain)
{
	while (chain && !atomic_load(&chain->atime_kept))
		chain = chain->next;
	return chain;
}

bool inode_take_atime(struct inode_table *table, struct atime_cursor *at, uint64_t *ino,
		      struct timespec *atime)
{
	for (; at->shard < INODE_SHARDS; at->shard++, at->bucket = 0) {
		struct inode_shard *shard = &table->shard[at->shard];
		struct inode *inode = NULL;

		latch_x(&shard->latch);
		while (at->bucket < shard->buckets &&
		       !(inode = kept_in(shard->bucket[at->bucket])))
			at->bucket++;
		if (inode) {
			atomic_store(&inode->atime_kept, false);
			*ino = inode->ino;
			*atime = inode->atime;
		}
		unlatch_x(&shard->latch);
		if (inode)
			return true;
	}
	return false;
}

uint64_t inode_lookups(struct inode_table *table, struct inode *inode)
{
	struct inode_shard *shard = shard_of(table, inode->ino);
	uint64_t lookups;

	latch_s(&shard->latch);
	lookups = inode->lookups;
	unlatch_s(&shard->latch);
	return lookups;
}
