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
 * What one leaf gives is true of the moment of its latch, and the caller's range
 * lock makes it stay true.  A gap over several leaves counts only after a double
 * collect: the leaves from the position to the one with the next extent are
 * passed twice, and each was the same, by number and LSN, both times.  Then all
 * of them were like that at once, between the two passes.
 */
#include "engine/lob_internal.h"

#include "engine/base/error.h"
#include "engine/pool.h"
#include "engine/space.h"

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

/* ---------------------------------------------------------------- the walk */

enum { WALK_ENDED = 1 };

struct walk {
	struct volume *volume;
	uint64_t lob, position;
	struct lob_visitor *visitor;
};

/* A page that was found may have died, been split, or, as the root, been raised. */
static bool still_covers(const void *page, const struct key *key, unsigned level)
{
	return !(tree_page(page)->head.flags & PAGE_DEAD) && tree_page(page)->head.level == level &&
	       page_covers(page, key->bytes, key->len);
}

/* The leaf that covers key: pinned and latched. */
static int get_leaf(struct walk *w, const struct key *key, struct frame **out)
{
	w->visitor->leaves++;
	for (;;) {
		int rc = tree_locate_leaf(&w->volume->index[INDEX_LOB], key, out);

		if (rc)
			return rc;
		os_point("lob:leaf_located");
		latch_s(&(*out)->latch);
		if (still_covers((*out)->data, key, 0))
			return 0;
		unlatch_s(&(*out)->latch);
		pool_put(*out);
	}
}

static void put_leaf(struct frame *leaf)
{
	unlatch_s(&leaf->latch);
	pool_put(leaf);
}

static unsigned slots_of(const void *page)
{
	return le16_get(tree_page(page)->slot_count);
}

/* Visits the extents of one leaf from `slot` on. */
static int visit_slots(struct walk *w, const void *page, unsigned slot)
{
	uint64_t expected = 0;

	for (; slot < slots_of(page); slot++) {
		struct page_entry entry;
		struct extent extent;
		struct key key;
		bool ours;
		int rc;

		page_key(page, slot, &key);
		page_entry(page, slot, &entry);
		rc = extent_decode(w->volume, w->lob, &key, entry.value, entry.value_len, &extent,
				   &ours);
		if (rc)
			return rc;
		if (!ours)
			return WALK_ENDED;
		if (extent.first < expected)
			return corrupt_at(w->volume, 0, "lob", "extents overlap");
		expected = extent_end(&extent);
		w->position = expected;
		if (w->visitor->visit(w->visitor->arg, &extent))
			return WALK_ENDED;
	}
	return 0;
}

static uint64_t mix(uint64_t sum, uint64_t value)
{
	sum = (sum ^ value) * 0x9e3779b97f4a7c15ull;
	return sum ^ sum >> 29;
}

/* One pass from the position over leaves that have nothing, to one that has, or to the end. */
struct pass {
	uint64_t sum;   /* of the numbers and LSNs of its leaves */
	bool counts;    /* the last leaf was visited, or the end is certain */
};

static int pass_over(struct walk *w, const struct pass *before, struct pass *pass)
{
	struct key key = lob_key(w->lob, w->position);
	int rc = 0;

	*pass = (struct pass){.sum = 0};
	for (bool alone = true;; alone = false) {
		struct key high;
		struct frame *leaf;
		bool any, exact;
		unsigned slot;

		rc = get_leaf(w, &key, &leaf);
		if (rc)
			return rc;
		pass->sum = mix(pass->sum, atomic_load(&leaf->pageno));
		pass->sum = mix(pass->sum, page_lsn(leaf->data));
		slot = page_lower_bound(leaf->data, key.bytes, key.len, &exact);
		any = slot < slots_of(leaf->data);
		page_high(leaf->data, &high);
		if (any || high.len == 0 || (high.len >= 8 && be64_get(high.bytes) > w->lob)) {
			pass->counts = alone || (before && before->sum == pass->sum);
			if (pass->counts)
				rc = any ? visit_slots(w, leaf->data, slot) : WALK_ENDED;
			put_leaf(leaf);
			return rc;
		}
		put_leaf(leaf);
		os_point("lob:walk");
		key = high;
	}
}

/* INV-LOB-7 */
static int walk_on(struct walk *w)
{
	struct pass pass, before;
	int rc = pass_over(w, NULL, &pass);

	while (rc == 0 && !pass.counts) {
		before = pass;
		rc = pass_over(w, &before, &pass);
	}
	return rc;
}

int lob_walk(struct volume *volume, uint64_t lob, uint64_t from, struct lob_visitor *visitor,
	     bool keep_epoch)
{
	struct walk w = {.volume = volume, .lob = lob, .position = from, .visitor = visitor};
	int rc = pool_take_tickets(volume->pool, TREE_READ_TICKETS);

	if (rc)
		return rc;
	epoch_enter(&volume->epochs);
	while (rc == 0 && lob != 0 && w.position != UINT64_MAX)
		rc = walk_on(&w);
	if (rc == WALK_ENDED)
		rc = 0;
	if (rc || !keep_epoch)
		epoch_exit(&volume->epochs);
	pool_give_tickets(volume->pool, TREE_READ_TICKETS);
	return rc;
}

/* --------------------------------------------------------- for purge ----- */

#define PREFETCH_LEAVES 24u /* what a hole's mtr latches */
#define TIDY_LEAVES_MAX 32u /* more than one mtr empties */

struct part_search {
	struct volume *volume;
	struct lob_part *part;
	uint64_t from, below;
	unsigned left;
};

static void note_group(struct part_search *search, uint64_t start)
{
	struct lob_part *part = search->part;
	uint64_t page = space_bitmap_page(search->volume, start);

	for (unsigned i = 0; i < part->groups; i++)
		if (part->block[i] == page)
			return;
	if (part->groups < MTR_GROUPS_MAX)
		part->block[part->groups++] = page;
}

static int visit_part(void *arg, const struct extent *extent)
{
	struct part_search *search = arg;
	struct lob_part *part = search->part;

	if (extent->first >= search->below)
		return 1;
	if (part->first == part->end)
		part->first = extent->first > search->from ? extent->first : search->from;
	part->end = extent_end(extent) < search->below ? extent_end(extent) : search->below;
	note_group(search, extent->start);
	return --search->left == 0;
}

int lob_find_part(struct volume *volume, uint64_t lob, uint64_t from, uint64_t below, unsigned max,
		  struct lob_part *part)
{
	struct part_search search = {
		.volume = volume,
		.part = part,
		.from = from,
		.below = below,
		.left = max,
	};
	struct lob_visitor visitor = {.visit = visit_part, .arg = &search};
	bool empty;
	int rc;

	part->first = part->end = part->groups = 0;
	rc = lob_walk(volume, lob, from, &visitor, false);
	part->leaves = visitor.leaves;
	empty = part->first == part->end;
	if (empty)
		part->first = below;
	if (empty || search.left > 0)
		part->end = below;
	return rc;
}

void lob_want_part(struct mtr *m, uint64_t lob, const struct lob_part *part)
{
	if (part->first >= part->end)
		return;
	lob_want_replace(m, lob, part->first, part->end);
	for (unsigned i = 0; i < part->groups; i++)
		mtr_want_bits(m, part->block[i], 1);
}

/* Children of a page on level 1 that have keys of [key, last]. */
static size_t list_leaves(const void *page, const struct key *key, const struct key *last,
			  uint64_t *pageno)
{
	unsigned slots = slots_of(page);
	size_t count = 0;

	for (unsigned slot = page_child_slot(page, key->bytes, key->len);
	     slot < slots && count < PREFETCH_LEAVES; slot++) {
		struct key low;

		page_key(page, slot, &low);
		if (count > 0 &&
		    key_compare(low.bytes, low.len, last->bytes, last->len) > 0)
			break;
		pageno[count++] = page_child(page, slot);
	}
	return count;
}

void lob_prefetch(struct volume *volume, uint64_t lob, uint64_t from, uint64_t below)
{
	uint64_t pageno[PREFETCH_LEAVES];
	struct key key = lob_key(lob, from), last = lob_key(lob, below);
	struct frame *parent;
	size_t count = 0;

	if (pool_take_tickets(volume->pool, TREE_READ_TICKETS))
		return;
	epoch_enter(&volume->epochs);
	if (tree_locate(&volume->index[INDEX_LOB], &key, 1, &parent) == 0) {
		latch_s(&parent->latch);
		if (still_covers(parent->data, &key, 1))
			count = list_leaves(parent->data, &key, &last, pageno);
		unlatch_s(&parent->latch);
		pool_put(parent);
		stat_add(&volume->stats, STAT_purge_prefetches, 1);
		if (!pool_prefetch(volume->pool, pageno, count, PAGE_TREE, INDEX_LOB))
			stat_add(&volume->stats, STAT_purge_prefetch_skips, 1);
	}
	epoch_exit(&volume->epochs);
	pool_give_tickets(volume->pool, TREE_READ_TICKETS);
}

void lob_tidy(struct volume *volume, uint64_t lob, uint64_t first, uint64_t end)
{
	struct lob_visitor nobody = {0};
	struct walk w = {.volume = volume, .lob = lob, .visitor = &nobody};
	struct key key = lob_key(lob, first), last = lob_key(lob, end);

	for (unsigned i = 0; i < TIDY_LEAVES_MAX && key.len > 0; i++) {
		struct key high = {0};
		struct frame *leaf;
		bool empty = false;

		if (pool_take_tickets(volume->pool, TREE_READ_TICKETS))
			return;
		epoch_enter(&volume->epochs);
		if (get_leaf(&w, &key, &leaf) == 0) {
			page_high(leaf->data, &high);
			empty = slots_of(leaf->data) == 0;
			put_leaf(leaf);
		}
		epoch_exit(&volume->epochs);
		pool_give_tickets(volume->pool, TREE_READ_TICKETS);
		if (empty && tree_shrink(&volume->index[INDEX_LOB], &key, 0))
			return;
		if (key_compare(high.bytes, high.len, last.bytes, last.len) > 0)
			return;
		key = high;
	}
}
