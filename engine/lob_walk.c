/*
 * Walking over the extents of a LOB without copying leaves.
 *
 * The index keys extents by their *last* block, so that one forward seek from
 * (lob, b) finds the extent that covers b, or else the next one.
 *
 * INV-LOB-6: the extents of a LOB are disjoint and in order, each lies in one
 * group behind its bitmap page, and a written one has a CRC for each block.
 * What comes from the medium is judged here and nowhere else.
 *
 * INV-LOB-7, a block that is mapped throughout is seen as mapped, also when an
 * extent around it is split or joined meanwhile.  Such a change moves the
 * extent's key to the left, perhaps into a leaf that the walk has passed:
 *
 *	leaf A |  ... 99 |      leaf B | 299 ... |      extent [100, 300)
 *	walk: nothing >= 100 in A; then a write to [200, 300) puts key 199
 *	into A and key 299 into B; walk: B begins at 200, so [100, 200) is a hole?
 *
 * So a gap counts only when the leaves that have nothing, and the leaf that has
 * the next extent, are latched at the same time (`chain`).  Extents that one
 * leaf gives together need no more than its own latch: what they map is true of
 * the moment, and the caller's range lock makes it stay true.
 */
#include "engine/lob_internal.h"

#include "engine/base/error.h"
#include "engine/pool.h"

#include <errno.h>

static bool blocks_are_sound(const struct geometry *geo, uint64_t start, uint64_t length)
{
	uint64_t offset;

	if (start < geo->groups_start || start >= geo->block_count)
		return false;
	offset = (start - geo->groups_start) % geo->group_blocks;
	return (start - geo->groups_start) / geo->group_blocks < geo->group_count &&
	       offset >= geo->page_blocks && length <= geo->group_blocks - offset &&
	       length < geo->block_count - start;
}

static const char *judge(const struct geometry *geo, const struct key *key,
			 const struct disk_extent *disk, size_t len)
{
	uint64_t last = be64_get(key->bytes + 8);
	uint32_t length;

	if (len < sizeof(*disk))
		return "short extent";
	length = le32_get(disk->length);
	if (length == 0 || length - 1 > last || last == UINT64_MAX)
		return "extent of impossible length";
	if (disk->codec || le32_get(disk->stored) != length || disk->flags & ~EXTENT_UNWRITTEN)
		return "unknown kind of extent";
	if (len != sizeof(*disk) + (disk->flags & EXTENT_UNWRITTEN ? 0 : length * sizeof(le32)))
		return "extent without its checksums";
	if (!blocks_are_sound(geo, le64_get(disk->start), length))
		return "extent outside of its group";
	return NULL;
}

int extent_decode(struct volume *volume, uint64_t lob, const struct key *key, const void *value,
		  size_t len, struct extent *extent, bool *found)
{
	const struct disk_extent *disk = value;
	const char *why;

	*found = key->len == KEY_LOB_BYTES && be64_get(key->bytes) == lob;
	if (!*found)
		return 0;
	why = judge(&volume->geo, key, disk, len);
	if (why)
		return corrupt_at(volume, 0, "lob", why);
	extent->length = le32_get(disk->length);
	extent->first = be64_get(key->bytes + 8) + 1 - extent->length;
	extent->start = le64_get(disk->start);
	extent->unwritten = disk->flags & EXTENT_UNWRITTEN;
	extent->crc = extent->unwritten ? NULL : (const le32 *)(disk + 1);
	return 0;
}

/* --------------------------------------------------------------- the chain */

#define CHAIN_USUAL 2u  /* one leaf, or one and its neighbour */
#define CHAIN_MAX 32u   /* consecutive leaves without an extent >= the position */
#define SHRINK_ROUNDS 4u

/* Codes of steps besides 0 and errors. */
enum { WALK_ENDED = 1, WALK_LONGER = 2 };

/* Leaves from the position rightwards, pinned; all but the last had nothing for us. */
struct chain {
	struct volume *volume;
	uint64_t lob, position;
	struct frame *leaf[CHAIN_MAX];
	struct key key[CHAIN_MAX]; /* leaf[i] covers key[i] */
	unsigned count, max;
};

static void chain_unpin(struct chain *chain)
{
	while (chain->count > 0)
		pool_put(chain->leaf[--chain->count]);
}

static int chain_extend(struct chain *chain, const struct key *key)
{
	struct tree *tree = &chain->volume->index[INDEX_LOB];
	int rc;

	if (chain->count == chain->max)
		return WALK_LONGER;
	chain->key[chain->count] = *key;
	rc = tree_locate_leaf(tree, key, &chain->leaf[chain->count]);
	if (rc == 0)
		chain->count++;
	return rc;
}

static bool still_covers(const void *page, const struct key *key)
{
	return !(tree_page(page)->head.flags & PAGE_DEAD) && page_covers(page, key->bytes, key->len);
}

/* The extents of one leaf; *any: it had something. */
static int visit_slots(struct chain *chain, const void *page, const struct key *from,
		       struct lob_visitor *visitor, bool *any)
{
	unsigned count = le16_get(tree_page(page)->slot_count);
	uint64_t expected = 0;
	bool exact;

	for (unsigned slot = page_lower_bound(page, from->bytes, from->len, &exact); slot < count;
	     slot++) {
		struct page_entry entry;
		struct extent extent;
		struct key key;
		bool ours;
		int rc;

		*any = true;
		page_key(page, slot, &key);
		page_entry(page, slot, &entry);
		rc = extent_decode(chain->volume, chain->lob, &key, entry.value, entry.value_len,
				   &extent, &ours);
		if (rc)
			return rc;
		if (!ours)
			return WALK_ENDED;
		if (extent.first < expected)
			return corrupt_at(chain->volume, 0, "lob", "extents overlap");
		expected = extent_end(&extent);
		chain->position = expected;
		if (visitor->visit(visitor->arg, &extent))
			return WALK_ENDED;
	}
	return 0;
}

/* Does leaf i go on where the one before it ends?  (After a merge it may be the same one.) */
static bool follows(const struct chain *chain, unsigned i, const struct key *high)
{
	const struct key *key = &chain->key[i];

	for (unsigned j = 0; j < i; j++)
		if (chain->leaf[j] == chain->leaf[i])
			return false;
	return i == 0 || key_compare(key->bytes, key->len, high->bytes, high->len) == 0;
}

/*
 * With all leaves of the chain latched, visits the first that has something.
 * *next: the key behind the chain when none has (no length: look again from the
 * position, either because there was something or because the chain broke).
 */
static int visit_chain(struct chain *chain, struct lob_visitor *visitor, struct key *next)
{
	unsigned latched = 0;
	bool any = false;
	int rc = 0;

	next->len = 0;
	while (latched < chain->count) {
		const void *page = chain->leaf[latched]->data;
		const struct key *key = &chain->key[latched];

		if (!follows(chain, latched, next)) {
			next->len = 0;
			break;
		}
		latch_s(&chain->leaf[latched++]->latch);
		if (!still_covers(page, key)) {
			next->len = 0;
			break;
		}
		rc = visit_slots(chain, page, key, visitor, &any);
		page_high(page, next);
		if (rc == 0 && !any &&
		    (next->len == 0 ||
		     (next->len >= 8 && be64_get(next->bytes) > chain->lob)))
			rc = WALK_ENDED;
		if (rc || any) {
			next->len = 0;
			break;
		}
	}
	while (latched > 0)
		unlatch_s(&chain->leaf[--latched]->latch);
	return rc;
}

/* Epoch entered, chain->max tickets taken.  0 or WALK_LONGER or an error. */
static int walk_all(struct chain *chain, struct lob_visitor *visitor)
{
	int rc = 0;

	while (rc == 0) {
		struct key next = lob_key(chain->lob, chain->position);

		if (chain->position == UINT64_MAX)
			break;
		while (rc == 0 && next.len > 0) {
			rc = chain_extend(chain, &next);
			visitor->leaves++;
			if (rc == 0)
				rc = visit_chain(chain, visitor, &next);
			os_point("lob:walk");
		}
		/* The chain's keys serve those who make it shorter. */
		if (rc != WALK_LONGER)
			chain_unpin(chain);
	}
	return rc == WALK_ENDED ? 0 : rc;
}

static int walk_once(struct chain *chain, struct lob_visitor *visitor, bool keep_epoch)
{
	struct volume *volume = chain->volume;
	int rc = pool_take_tickets(volume->pool, chain->max);

	if (rc)
		return rc;
	epoch_enter(&volume->epochs);
	rc = walk_all(chain, visitor);
	for (unsigned i = 0; i < chain->count; i++)
		pool_put(chain->leaf[i]);
	if (rc || !keep_epoch)
		epoch_exit(&volume->epochs);
	pool_give_tickets(volume->pool, chain->max);
	return rc;
}

/* Too many leaves in a row with nothing in them: has them merged. */
static int shrink_chain(const struct chain *chain)
{
	for (unsigned i = 1; i < chain->count; i++) {
		int rc = tree_shrink(&chain->volume->index[INDEX_LOB], &chain->key[i], 0);

		if (rc)
			return rc;
	}
	return 0;
}

int lob_walk(struct volume *volume, uint64_t lob, uint64_t from, struct lob_visitor *visitor,
	     bool keep_epoch)
{
	unsigned max = CHAIN_USUAL;
	int rc = WALK_LONGER;

	if (lob == 0) {
		if (keep_epoch)
			epoch_enter(&volume->epochs);
		return 0;
	}
	for (unsigned round = 0; round < SHRINK_ROUNDS && rc == WALK_LONGER; round++) {
		struct chain chain = {
			.volume = volume,
			.lob = lob,
			.position = from,
			.max = max,
		};

		if (round > 0)
			visitor->restart(visitor->arg);
		rc = walk_once(&chain, visitor, keep_epoch);
		if (rc == WALK_LONGER && max == CHAIN_MAX && !volume->options.read_only) {
			int shrunk = shrink_chain(&chain);

			if (shrunk)
				return shrunk;
		}
		max = CHAIN_MAX;
	}
	return rc == WALK_LONGER ? -E2BIG : rc;
}

/* --------------------------------------------------------- for purge ----- */

#define PREFETCH_LEAVES 16u

struct part {
	uint64_t from, below, first, end;
	unsigned left, max;
};

static int visit_part(void *arg, const struct extent *extent)
{
	struct part *part = arg;

	if (extent->first >= part->below)
		return 1;
	if (part->first == part->end)
		part->first = extent->first > part->from ? extent->first : part->from;
	part->end = extent_end(extent) < part->below ? extent_end(extent) : part->below;
	return --part->left == 0;
}

static void restart_part(void *arg)
{
	struct part *part = arg;

	part->first = part->end = 0;
	part->left = part->max;
}

int lob_find_part(struct volume *volume, uint64_t lob, uint64_t from, uint64_t below, unsigned max,
		  uint64_t *first, uint64_t *end)
{
	struct part part = {.from = from, .below = below, .left = max, .max = max};
	struct lob_visitor visitor = {.visit = visit_part, .restart = restart_part, .arg = &part};
	int rc = lob_walk(volume, lob, from, &visitor, false);

	stat_add(&volume->stats, STAT_purge_index_pages, visitor.leaves);
	*first = part.end > part.first ? part.first : below;
	*end = part.end > part.first && part.left == 0 ? part.end : below;
	return rc;
}

void lob_prefetch(struct volume *volume, uint64_t lob, uint64_t from)
{
	uint64_t pageno[PREFETCH_LEAVES];
	struct key key = lob_key(lob, from);
	struct frame *parent;
	size_t count = 0;

	if (pool_take_tickets(volume->pool, 1))
		return;
	epoch_enter(&volume->epochs);
	if (tree_locate(&volume->index[INDEX_LOB], &key, 1, &parent) == 0) {
		const void *page = parent->data;

		latch_s(&parent->latch);
		if (tree_page(page)->head.level == 1 && still_covers(page, &key)) {
			unsigned slots = le16_get(tree_page(page)->slot_count);

			for (unsigned slot = page_child_slot(page, key.bytes, key.len);
			     slot < slots && count < PREFETCH_LEAVES; slot++)
				pageno[count++] = page_child(page, slot);
		}
		unlatch_s(&parent->latch);
		pool_put(parent);
		pool_prefetch(volume->pool, pageno, count, PAGE_TREE, INDEX_LOB);
	}
	epoch_exit(&volume->epochs);
	pool_give_tickets(volume->pool, 1);
}
