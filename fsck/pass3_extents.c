/*
 * Pass 3: extents and shares, two maps of disjoint intervals keyed by their
 * last block.
 *
 * An extent has as many CRCs as blocks, lies in the data area, after its
 * predecessor, and over no fixed page.  Each LOB has one owner: an inode, an
 * attribute with a long value, or a purge record.  A block is used once, or,
 * inside a share, as often as the share's reference count says.  Unwritten extents
 * are in none: they are written in place.
 */
#include "fsck/walk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ------------------------------------------------------------------- shares */

int pass3_share(struct walk *w, const struct raw_entry *entry)
{
	uint64_t last = be64_get(entry->key.bytes), length;
	struct disk_share share;
	struct share_note *before = w->shares.count ? &w->shares.at[w->shares.count - 1] : NULL;
	struct fsck_fix fix = fix_record(FIX_DELETE, INDEX_SHARES, &entry->key);
	int rc;

	if (entry->value_len != sizeof(share)) {
		problem_edit(w, FSCK_SHARE_VALUE, &fix, "share up to block %" PRIu64 ": %u bytes",
			     last, entry->value_len);
		return 0;
	}
	memcpy(&share, entry->value, sizeof(share));
	length = le32_get(share.length);
	if (length == 0 || length > last || le32_get(share.references) < 2 ||
	    !raw_blocks_valid(&w->raw, last + 1 - length, length)) {
		problem_edit(w, FSCK_SHARE_VALUE, &fix,
			     "share up to block %" PRIu64 ": %" PRIu64 " blocks, %" PRIu32
			     " references",
			     last, length, le32_get(share.references));
		return 0;
	}
	if (before && before->start + before->length > last + 1 - length) {
		problem_edit(w, FSCK_SHARE_OVERLAP, &fix, "share up to block %" PRIu64, last);
		return 0;
	}
	rc = table_room(&w->limit, w->shares);
	if (!rc)
		w->shares.at[w->shares.count++] = (struct share_note){last + 1 - length, length,
								      le32_get(share.references)};
	return rc;
}

/* Index of the first share that ends behind `block`. */
static size_t share_behind(const struct walk *w, uint64_t block)
{
	size_t low = 0, high = w->shares.count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct share_note *share = &w->shares.at[middle];

		if (share->start + share->length <= block)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int compare_claims(const void *a, const void *b)
{
	const struct share_claim *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/*
 * A share's blocks are each claimed `references` times: since every claim lies
 * within the share, that is so when, with the starts and the ends of the claims
 * sorted, the first r starts are the share's start, the last r ends its end,
 * and each other start meets an end.
 */
static bool share_counts(const struct share_note *share, const uint64_t *starts,
			 const uint64_t *ends, size_t count)
{
	size_t r = share->references;

	if (count < r)
		return false;
	for (size_t i = 0; i < r; i++)
		if (starts[i] != share->start ||
		    ends[count - 1 - i] != share->start + share->length)
			return false;
	for (size_t i = r; i < count; i++)
		if (starts[i] != ends[i - r])
			return false;
	return true;
}

/* What the claims say instead: records of all runs that are claimed more than once. */
static void report_count(struct walk *w, const struct share_note *share, const uint64_t *starts,
			 const uint64_t *ends, size_t count)
{
	uint64_t last = share->start + share->length - 1, from = 0;
	struct fsck_fix fix = fix_single(FIX_DELETE, INDEX_SHARES, last);
	uint32_t depth = 0;

	problem_edit(w, FSCK_SHARE_COUNT, &fix,
		     "share of block %" PRIu64 ", %" PRIu64 " blocks: %" PRIu32 " references",
		     share->start, share->length, share->references);
	for (size_t i = 0, j = 0; j < count;) {
		uint64_t at = i < count && starts[i] < ends[j] ? starts[i] : ends[j];
		uint32_t before = depth;

		for (; i < count && starts[i] == at; i++)
			depth++;
		for (; j < count && ends[j] == at; j++)
			depth--;
		if (depth == before)
			continue;
		if (before >= 2) {
			struct disk_share better = {le32_make((uint32_t)(at - from)),
						    le32_make(before)};

			fix = fix_single(FIX_PUT, INDEX_SHARES, at - 1);
			fix.value_len = sizeof(better);
			memcpy(fix.bytes, &better, sizeof(better));
			list_fix(w, &fix);
		}
		from = at;
	}
}

static int compare_shares(struct walk *w)
{
	size_t claims = w->share_claims.count, next = 0;
	uint64_t *starts = calloc(claims + 1, sizeof(*starts));
	uint64_t *ends = calloc(claims + 1, sizeof(*ends));
	int rc = starts && ends ? 0 : -ENOMEM;

	if (!rc) {
		if (claims)
			table_sort(&w->share_claims.place, w->share_claims.at, claims,
				   sizeof(*w->share_claims.at), compare_claims);
		for (size_t i = 0; i < w->shares.count; i++) {
			const struct share_note *share = &w->shares.at[i];
			size_t count = 0;

			for (; next < claims &&
			       w->share_claims.at[next].start < share->start + share->length;
			     next++, count++) {
				starts[count] = w->share_claims.at[next].start;
				ends[count] = starts[count] + w->share_claims.at[next].length;
			}
			qsort(ends, count, sizeof(*ends), compare_u64);
			if (!share_counts(share, starts, ends, count))
				report_count(w, share, starts, ends, count);
		}
	}
	free(starts);
	free(ends);
	return rc;
}

/* ------------------------------------------------------------------ extents */

bool raw_extent_decode(const struct raw_entry *entry, struct extent *out, const char **why)
{
	uint64_t last = be64_get(entry->key.bytes + 8);
	struct disk_extent extent;
	uint64_t crc_bytes;

	*why = NULL;
	if (entry->value_len < sizeof(extent)) {
		*why = "too short";
		return false;
	}
	memcpy(&extent, entry->value, sizeof(extent));
	*out = (struct extent){
		.lob = be64_get(entry->key.bytes),
		.first = last + 1 - le32_get(extent.length),
		.start = le64_get(extent.start),
		.length = le32_get(extent.length),
		.unwritten = extent.flags & EXTENT_UNWRITTEN,
		.crcs = entry->value + sizeof(extent),
	};
	crc_bytes = out->unwritten ? 0 : (uint64_t)out->length * sizeof(le32);
	if (extent.flags & ~EXTENT_UNWRITTEN || extent.codec)
		*why = "unknown flags or codec";
	else if (out->length == 0 || le32_get(extent.stored) != out->length)
		*why = "impossible length";
	else if (last + 1 < out->length || last >= (uint64_t)FILE_BYTES_MAX / BLOCK_SIZE + 1)
		*why = "outside any file";
	else if (entry->value_len - sizeof(extent) != crc_bytes)
		*why = "checksums do not match the length";
	return *why == NULL;
}

static int compare_owners(const void *a, const void *b)
{
	const struct lob_owner *x = a, *y = b;

	if (x->lob != y->lob)
		return x->lob < y->lob ? -1 : 1;
	if (x->kind != y->kind)
		return (int)x->kind - (int)y->kind;
	return x->id < y->id ? -1 : x->id > y->id;
}

/* Of several owners the first keeps the contents: inodes come before attributes and purge. */
static struct fsck_fix disown(const struct lob_owner *owner)
{
	switch (owner->kind) {
	case OWNER_XATTR:
		return fix_pair(FIX_DELETE, INDEX_XATTRS, owner->id, owner->suffix);
	case OWNER_PURGE:
		return fix_single(FIX_DELETE, INDEX_PURGE, owner->id);
	default:
		return (struct fsck_fix){.kind = FIX_NO_LOB, .id = owner->id};
	}
}

static void owner_text(const struct lob_owner *owner, char *text, size_t size)
{
	static const char *const kinds[] = {"inode", "an attribute of inode", "purge record"};

	snprintf(text, size, "%s %" PRIu64, kinds[owner->kind], owner->id);
}

int pass3_begin(struct walk *w)
{
	struct lob_owner *at = w->owners.at;
	char one[64], other[64];
	struct fsck_fix fix;

	if (w->owners.count)
		table_sort(&w->owners.place, at, w->owners.count, sizeof(*at), compare_owners);
	for (size_t i = 0; i < w->owners.count; i++) {
		if (i && at[i].lob == at[i - 1].lob) {
			owner_text(&at[i - 1], one, sizeof(one));
			owner_text(&at[i], other, sizeof(other));
			fix = disown(&at[i]);
			problem_edit(w, FSCK_LOB_OWNERS, &fix, "content %" PRIu64 ": %s and %s",
				     at[i].lob, one, other);
		} else if (w->counters_known && at[i].lob >= w->counter[COUNTER_LOB]) {
			problem_fix(w, FSCK_LOB_MARK, FIX_COUNTER, COUNTER_LOB, at[i].lob + 1,
				    "content %" PRIu64 ": high-water mark is %" PRIu64, at[i].lob,
				    w->counter[COUNTER_LOB]);
		}
	}
	return 0;
}

static struct fsck_fix drop_xattr(const struct lob_owner *owner)
{
	struct fsck_fix fix = fix_pair(FIX_DROP_XATTR, INDEX_XATTRS, owner->id, owner->suffix);

	fix.id = owner->lob;
	return fix;
}

static void lob_end(struct walk *w)
{
	struct lob_owner *owner;
	struct inode_note *note;
	struct fsck_fix fix;

	if (w->lob.any && w->lob.unowned)
		problem_fix(w, FSCK_LOB_UNOWNED, FIX_ADOPT, w->lob.lob, w->lob.next_block,
			    "content %" PRIu64 ": %" PRIu64 " blocks", w->lob.lob, w->lob.blocks);
	if (!w->lob.any || w->lob.owner == w->owners.count)
		return;
	owner = &w->owners.at[w->lob.owner];
	if (owner->lob != w->lob.lob)
		return;
	owner->has_extents = true;
	if (owner->kind == OWNER_INODE) {
		note = note_find(w, owner->id);
		check(note != NULL);
		note->blocks_found = w->lob.blocks;
	} else if (owner->kind == OWNER_XATTR &&
		   (w->lob.blocks != owner->expected || w->lob.next_block != owner->expected)) {
		fix = drop_xattr(owner);
		problem_edit(w, FSCK_XATTR_LENGTH, &fix,
			     "inode %" PRIu64 ", content %" PRIu64 ": %" PRIu64
			     " blocks instead of %" PRIu64,
			     owner->id, owner->lob, w->lob.blocks, owner->expected);
	}
}

static void lob_begin(struct walk *w, uint64_t lob)
{
	size_t owner = w->lob.owner;

	lob_end(w);
	while (owner < w->owners.count && w->owners.at[owner].lob < lob)
		owner++;
	w->lob = (struct lob_state){.any = true, .lob = lob, .owner = owner};
	w->lob.unowned = owner == w->owners.count || w->owners.at[owner].lob != lob;
}

/* Purge goes on from its record's first block: what lies before it is forgotten. */
static void check_purged(struct walk *w, const struct extent *e)
{
	const struct lob_owner *owner = w->owners.at + w->lob.owner;

	if (w->lob.owner < w->owners.count && owner->lob == e->lob && owner->kind == OWNER_PURGE &&
	    e->first < owner->expected)
		problem_fix(w, FSCK_LOB_UNOWNED, FIX_PURGE_ALL, owner->id, 0,
			    "content %" PRIu64 ", file block %" PRIu64
			    ": before what is to be purged",
			    e->lob, e->first);
}

static struct fsck_fix extent_fix(enum fix_kind kind, const struct extent *e)
{
	return fix_pair(kind, INDEX_LOB, e->lob, e->first + e->length - 1);
}

static void report_twice(struct walk *w, const struct extent *e, uint64_t block)
{
	const struct fsck_fix fix = extent_fix(FIX_COPY, e);

	problem_edit(w, FSCK_BLOCK_TWICE, &fix,
		     "block %" PRIu64 ": content %" PRIu64 ", file block %" PRIu64, block, e->lob,
		     e->first + (block - e->start));
}

/* The parts that lie in shares are counted later, the others at once. */
static int claim_extent(struct walk *w, const struct extent *e)
{
	uint64_t at = e->start, end = e->start + e->length, twice;
	size_t next = share_behind(w, at);

	while (at < end) {
		const struct share_note *share = next < w->shares.count ? &w->shares.at[next]
									: NULL;
		uint64_t stop = end;

		if (share && share->start <= at) {
			int rc = table_room(&w->limit, w->share_claims);

			if (rc)
				return rc;
			if (e->unwritten)
				problem(w, FSCK_SHARE_UNWRITTEN,
					"block %" PRIu64 ": content %" PRIu64
					", file block %" PRIu64,
					at, e->lob, e->first + (at - e->start));
			if (share->start + share->length < stop)
				stop = share->start + share->length;
			w->share_claims.at[w->share_claims.count++] = (struct share_claim){
				at, stop - at};
			claim_blocks(w, at, stop - at, &twice);
			next++;
		} else {
			if (share && share->start < stop)
				stop = share->start;
			claim_blocks(w, at, stop - at, &twice);
			if (twice != UINT64_MAX)
				report_twice(w, e, twice);
		}
		at = stop;
	}
	return 0;
}

int pass3_extent(struct walk *w, const struct raw_entry *entry)
{
	struct extent e;
	const char *why;
	uint64_t lob = be64_get(entry->key.bytes);
	const struct fsck_fix drop = fix_record(FIX_DELETE, INDEX_LOB, &entry->key);

	if (!w->lob.any || lob != w->lob.lob)
		lob_begin(w, lob);
	if (!raw_extent_decode(entry, &e, &why)) {
		problem_edit(w, FSCK_EXTENT_VALUE, &drop,
			     "content %" PRIu64 ", file block %" PRIu64 ": %s", lob,
			     be64_get(entry->key.bytes + 8), why);
		return 0;
	}
	if (e.first < w->lob.next_block)
		problem_edit(w, FSCK_EXTENT_OVERLAP, &drop,
			     "content %" PRIu64 ", file block %" PRIu64, lob, e.first);
	check_purged(w, &e);
	w->lob.next_block = e.first + e.length;
	w->lob.blocks += e.length;
	if (!raw_blocks_valid(&w->raw, e.start, e.length) ||
	    raw_blocks_fixed(&w->raw, e.start, e.length)) {
		problem_edit(w, FSCK_EXTENT_PLACE, &drop,
			     "content %" PRIu64 ", file block %" PRIu64 ": block %" PRIu64
			     ", %" PRIu32 " blocks",
			     lob, e.first, e.start, e.length);
		return 0;
	}
	return claim_extent(w, &e);
}

int pass3_finish(struct walk *w)
{
	struct fsck_fix fix;

	lob_end(w);
	for (size_t i = 0; i < w->owners.count; i++) {
		const struct lob_owner *owner = &w->owners.at[i];

		if (owner->kind != OWNER_XATTR || owner->has_extents)
			continue;
		fix = drop_xattr(owner);
		fix.id = 0;
		problem_edit(w, FSCK_XATTR_LENGTH, &fix,
			     "inode %" PRIu64 ", content %" PRIu64 ": no blocks", owner->id,
			     owner->lob);
	}
	return w->shares.count ? compare_shares(w) : 0;
}
