/*
 * Reference counts of blocks that more than one extent names: the `shares`
 * index, disjoint intervals keyed by their last block, each with a count of two
 * or more.  A used block that no interval covers has one reference.
 *
 * INV-LOB-3: whoever adds or drops a reference to an extent's blocks does it in
 * the mtr that adds or drops the extent; the bits of a block are cleared in the
 * mtr that drops the last reference.
 *
 * INV-SHARE-1: whoever frees blocks asks volume->shares_used after it has latched
 * the leaf that names them; whoever clones sets it before it latches that leaf.
 * So a volume without clones pays for nothing, and no reference is missed.
 *
 * INV-SHARE-2: the blocks of an unwritten extent have one reference, so that writing
 * them in place changes nobody else's contents: a clone leaves them out, and what was
 * written never becomes unwritten again.
 *
 * An mtr takes one edit a key, and several changes may fall into one interval, or
 * onto the same blocks.  So they are added up first:
 *
 *	changes    |--- -1 ---|        |- +1 -|
 *	               |- +1 -|                          by position, summed:
 *	segments   |-1 |  0   |        |  +1  |
 *	present      |======= 3 =========|   |== 2 ==|   those that overlap or touch
 *	final      0 | 1 |3==============|4 |2 |== 2 ==| coalesced, compared, staged
 */
#include "engine/lob_internal.h"

#include "engine/base/error.h"

#include <errno.h>
#include <stdlib.h>

#define SHARE_ENTRIES_MAX 400u /* met by one mtr; edits of it as well */
#define SHARE_LOG_BYTES (SHARE_ENTRIES_MAX * 48u)

/* A run with its references; a segment with their change. */
struct span {
	uint64_t start, end;
	int64_t refs;
};

struct spans {
	struct span *at;
	unsigned count, cap;
};

struct sharing {
	struct mtr *m;
	struct volume *volume;
	struct spans segments, present, final;
};

static struct key share_key(uint64_t last)
{
	struct key key = {.len = KEY_SHARE_BYTES};

	be64_put(key.bytes, last);
	return key;
}

static int spans_add(struct spans *spans, uint64_t start, uint64_t end, int64_t refs)
{
	if (spans->count == spans->cap) {
		unsigned cap = spans->cap ? spans->cap * 2 : 64;
		struct span *grown = realloc(spans->at, cap * sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		spans->at = grown;
		spans->cap = cap;
	}
	spans->at[spans->count++] = (struct span){.start = start, .end = end, .refs = refs};
	return 0;
}

/* ------------------------------------------------------------ adding up */

/* Where a change begins or ends. */
struct edge {
	uint64_t at;
	int delta, cover;
};

static int edge_order(const void *a, const void *b)
{
	const struct edge *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

static int sum_up(struct sharing *s, const struct share_change *changes, unsigned count)
{
	struct edge *edge = malloc(2 * count * sizeof(*edge));
	int64_t delta = 0;
	int cover = 0, rc = 0;

	if (edge == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < count; i++) {
		const struct share_change *c = &changes[i];

		edge[2 * i] = (struct edge){c->start, c->delta, 1};
		edge[2 * i + 1] = (struct edge){c->start + c->length, -c->delta, -1};
	}
	qsort(edge, 2 * count, sizeof(*edge), edge_order);
	for (unsigned i = 0; i < 2 * count && rc == 0; i++) {
		struct span *last = s->segments.count ? &s->segments.at[s->segments.count - 1]
						      : NULL;

		if (i > 0 && edge[i].at > edge[i - 1].at && cover > 0 && delta != 0) {
			if (last && last->end == edge[i - 1].at && last->refs == delta)
				last->end = edge[i].at;
			else
				rc = spans_add(&s->segments, edge[i - 1].at, edge[i].at, delta);
		}
		delta += edge[i].delta;
		cover += edge[i].cover;
	}
	free(edge);
	return rc;
}

/* ------------------------------------------------- what is present now */

static int judge(const struct sharing *s, const struct key *key, const void *value, size_t len,
		 struct span *out)
{
	const struct disk_share *disk = value;
	uint64_t last = be64_get(key->bytes);

	if (key->len != KEY_SHARE_BYTES || len != sizeof(*disk) || le32_get(disk->length) == 0 ||
	    le32_get(disk->length) > last || le32_get(disk->references) < 2)
		return corrupt_at(s->volume, last, "shares", "malformed entry");
	*out = (struct span){
		.start = last + 1 - le32_get(disk->length),
		.end = last + 1,
		.refs = le32_get(disk->references),
	};
	return 0;
}

/* The first entry whose last block is not before `block`; -BE_END, -BE_NOTFOUND as mtr_next(). */
static int next_share(const struct sharing *s, uint64_t block, struct span *out)
{
	struct key key = share_key(block), found;
	const void *value;
	size_t len;
	int rc = mtr_next(s->m, INDEX_SHARES, key.bytes, key.len, &found, &value, &len);

	return rc ? rc : judge(s, &found, value, len, out);
}

/* Entries that overlap a segment or touch it, each once. */
static int find_present(struct sharing *s)
{
	for (unsigned i = 0; i < s->segments.count; i++) {
		const struct span *segment = &s->segments.at[i];
		uint64_t from = segment->start - 1;
		struct span entry = {0};

		if (s->present.count > 0 && s->present.at[s->present.count - 1].end > from)
			from = s->present.at[s->present.count - 1].end;
		while (from <= segment->end) {
			int rc = next_share(s, from, &entry);

			if (rc == -BE_END || (rc == 0 && entry.start > segment->end))
				break;
			if (rc)
				return rc;
			if (entry.start < from && s->present.count > 0 &&
			    entry.start < s->present.at[s->present.count - 1].end)
				return corrupt_at(s->volume, entry.start, "shares",
						  "entries overlap");
			if (s->present.count == SHARE_ENTRIES_MAX)
				return -E2BIG;
			rc = spans_add(&s->present, entry.start, entry.end, entry.refs);
			if (rc)
				return rc;
			from = entry.end;
		}
	}
	return 0;
}

/* ------------------------------------------------------ what will be there */

static int add_final(struct sharing *s, uint64_t start, uint64_t end, int64_t refs)
{
	struct span *last = s->final.count ? &s->final.at[s->final.count - 1] : NULL;

	if (refs < 2)
		return 0;
	if (last && last->end == start && last->refs == refs) {
		last->end = end;
		return 0;
	}
	return spans_add(&s->final, start, end, refs);
}

static int drop_blocks(struct sharing *s, uint64_t start, uint64_t end)
{
	if (!mtr_can_clear(s->m, start, end - start))
		return -E2BIG;
	mtr_clear_bits(s->m, start, end - start);
	return 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Is `at` inside the next span?  *stop is moved to where that changes. */
static bool inside(const struct spans *spans, unsigned i, uint64_t at, uint64_t *stop)
{
	if (i == spans->count)
		return false;
	if (spans->at[i].start > at) {
		*stop = least(*stop, spans->at[i].start);
		return false;
	}
	*stop = least(*stop, spans->at[i].end);
	return true;
}

static int make_final(struct sharing *s)
{
	unsigned i = 0, k = 0;
	uint64_t at = 0;
	int rc = 0;

	while (rc == 0 && (i < s->present.count || k < s->segments.count)) {
		uint64_t stop = UINT64_MAX;
		bool shared = inside(&s->present, i, at, &stop);
		bool changes = inside(&s->segments, k, at, &stop);
		int64_t refs = shared ? s->present.at[i].refs : 1;

		if (changes)
			refs += s->segments.at[k].refs;
		if (refs < 0)
			return corrupt_at(s->volume, at, "shares",
					  "more references dropped than there were");
		if (changes && refs == 0)
			rc = drop_blocks(s, at, stop);
		else if (shared || changes)
			rc = add_final(s, at, stop, refs);
		at = stop;
		i += shared && s->present.at[i].end == at;
		k += changes && s->segments.at[k].end == at;
	}
	return rc;
}

/* ----------------------------------------------------------------- edits */

static void put_share(struct sharing *s, const struct span *span)
{
	struct key key = share_key(span->end - 1);
	struct disk_share disk = {
		.length = le32_make((uint32_t)(span->end - span->start)),
		.references = le32_make((uint32_t)span->refs),
	};

	mtr_put(s->m, INDEX_SHARES, key.bytes, key.len, &disk, sizeof(disk));
}

/* Keys are the ends, in order in both lists. */
static void stage_edits(struct sharing *s)
{
	unsigned i = 0, k = 0;

	while (i < s->present.count || k < s->final.count) {
		const struct span *old = &s->present.at[i], *new = &s->final.at[k];

		if (k == s->final.count || (i < s->present.count && old->end < new->end)) {
			struct key key = share_key(old->end - 1);

			mtr_delete(s->m, INDEX_SHARES, key.bytes, key.len);
			i++;
		} else if (i == s->present.count || new->end < old->end) {
			put_share(s, new);
			k++;
		} else {
			if (new->start != old->start || new->refs != old->refs)
				put_share(s, new);
			i++;
			k++;
		}
	}
}

/* ------------------------------------------------------------- the whole */

void lob_want_shares(struct mtr *m, const struct lob_source_range *source)
{
	for (unsigned i = 0; i < source->places; i++) {
		struct key low = share_key(source->place[i].low - 1);
		struct key high = share_key(source->place[i].high);

		mtr_want_leaves(m, INDEX_SHARES, low.bytes, high.bytes, KEY_SHARE_BYTES);
	}
	if (source->places > 0)
		mtr_want_log(m, SHARE_LOG_BYTES);
}

/* All leaves that the segments need are latched, or wanted for the next try. */
static int look_again(struct sharing *s)
{
	struct key low = share_key(s->segments.at[0].start - 1);
	struct key high = share_key(s->segments.at[s->segments.count - 1].end);

	if (mtr_wants(s->m, INDEX_SHARES, low.bytes, high.bytes, KEY_SHARE_BYTES))
		return -E2BIG;
	mtr_restart(s->m);
	if (!mtr_want_range_if_room(s->m, INDEX_SHARES, low.bytes, high.bytes, KEY_SHARE_BYTES))
		return -E2BIG;
	mtr_want_log(s->m, SHARE_LOG_BYTES);
	return -BE_AGAIN;
}

static int stage_sharing(struct sharing *s, const struct share_change *changes, unsigned count)
{
	int rc = sum_up(s, changes, count);

	if (rc || s->segments.count == 0)
		return rc;
	rc = find_present(s);
	if (rc == -BE_NOTFOUND)
		return look_again(s);
	if (rc == 0)
		rc = make_final(s);
	if (rc == 0 && s->present.count + s->final.count > SHARE_ENTRIES_MAX)
		rc = -E2BIG;
	if (rc == 0)
		stage_edits(s);
	return rc;
}

int lob_stage_shares(struct mtr *m, const struct share_change *changes, unsigned count)
{
	struct sharing s = {.m = m, .volume = mtr_volume(m)};
	int rc = count ? stage_sharing(&s, changes, count) : 0;

	free(s.segments.at);
	free(s.present.at);
	free(s.final.at);
	return rc;
}

int lob_shares_open(struct volume *volume)
{
	struct tree_cursor cursor;
	int rc = tree_cursor_open(&cursor, &volume->index[INDEX_SHARES], NULL, 0);

	if (rc == 0)
		rc = tree_cursor_next(&cursor);
	atomic_store(&volume->shares_used, rc == 0);
	tree_cursor_close(&cursor);
	return rc == -BE_END ? 0 : rc;
}
