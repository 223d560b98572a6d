/*
 * The steps of purge on LOBs and block lists, and what all steps share.
 *
 * INV-LOB-3: each step is one mtr that clears bits and shrinks (or deletes) the
 * record, so after a crash at any point the record names exactly what is left:
 *
 *	crash before the step's mtr is durable    the step is done again
 *	crash after                               the next step is done
 *
 * Data blocks are never read: extents tell which bits to clear.
 */
#include "engine/purge_internal.h"

#include "engine/base/error.h"
#include "engine/lob_internal.h"

#include <errno.h>
#include <string.h>

#define LIST_STEP_MAX 64u /* elements of a block list freed by one mtr */

/* ------------------------------------------------------------------ records */

int purge_record_decode(struct volume *volume, const void *value, size_t len,
			struct purge_record *record)
{
	const struct disk_purge *disk = value;

	if (len < sizeof(*disk))
		return corrupt_at(volume, 0, "purge", "short record");
	*record = (struct purge_record){
		.kind = disk->kind,
		.count = le32_get(disk->count),
		.ino = le64_get(disk->ino),
		.lob = le64_get(disk->lob),
		.first = le64_get(disk->first),
		.end = le64_get(disk->end),
	};
	if (record->kind == PURGE_EXTENTS &&
	    (len - sizeof(*disk)) / sizeof(struct disk_purge_extent) < record->count)
		return corrupt_at(volume, 0, "purge", "list longer than its record");
	if (record->kind == PURGE_LOB && record->lob == 0)
		return corrupt_at(volume, 0, "purge", "record without its LOB");
	return 0;
}

int purge_record_read(struct volume *volume, uint64_t number, struct purge_record *record)
{
	struct key key = purge_key(number);
	struct disk_purge head;
	size_t len;
	int rc = tree_get(&volume->index[INDEX_PURGE], key.bytes, key.len, &head, sizeof(head),
			  &len);

	return rc ? rc : purge_record_decode(volume, &head, len, record);
}

int purge_record_lookup(struct mtr *m, uint64_t number, struct purge_record *record)
{
	struct key key = purge_key(number);
	const void *value;
	size_t len;
	int rc = mtr_lookup(m, INDEX_PURGE, key.bytes, key.len, &value, &len);

	return rc ? rc : purge_record_decode(mtr_volume(m), value, len, record);
}

void purge_record_delete(struct mtr *m, uint64_t number)
{
	struct key key = purge_key(number);

	mtr_delete(m, INDEX_PURGE, key.bytes, key.len);
}

void purge_want(struct mtr *m, uint64_t number)
{
	struct key key = purge_key(number);

	mtr_want_key(m, INDEX_PURGE, key.bytes, key.len);
}

void purge_stage(struct mtr *m, uint64_t number, enum purge_kind kind, uint64_t ino, uint64_t lob,
		 uint64_t first, uint64_t end)
{
	struct key key = purge_key(number);
	struct disk_purge disk = {
		.kind = (uint8_t)kind,
		.ino = le64_make(ino),
		.lob = le64_make(lob),
		.first = le64_make(first),
		.end = le64_make(end),
	};

	mtr_put(m, INDEX_PURGE, key.bytes, key.len, &disk, sizeof(disk));
}

int purge_take_back(struct mtr *m, uint64_t number, uint64_t ino)
{
	struct purge_record record;
	int rc = purge_record_lookup(m, number, &record);

	if (rc == -BE_NOTFOUND || (rc == 0 && (record.kind != PURGE_ORPHAN || record.ino != ino)))
		return corrupt_at(mtr_volume(m), 0, "inode without names", "has no purge record");
	if (rc == 0)
		purge_record_delete(m, number);
	return rc;
}

int purge_change(struct volume *volume, const struct change *change)
{
	struct mtr *m;
	int rc = mtr_begin(volume, MTR_PRIVILEGED, &m);

	if (rc)
		return rc;
	change->want(m, change->arg);
	do {
		rc = mtr_latch(m);
		if (rc == 0)
			rc = change->stage(m, change->arg);
		if (rc == 0)
			rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	return rc;
}

/* --------------------------------------------------------------------- LOBs */

int purge_lob_part(struct volume *volume, uint64_t lob, uint64_t from, uint64_t below,
		   struct lob_part *part, const struct change *change)
{
	unsigned extents = HOLE_EXTENTS_MAX;
	int rc = -E2BIG;

	if (tunable_is_on(&volume->tunables, TUNABLE_purge_prefetch)) {
		lob_prefetch(volume, lob, from, below);
	} else {
		/* What is missing is read when the index latch is held. */
		*part = (struct lob_part){.first = from, .end = below};
		rc = purge_change(volume, change);
	}
	for (; rc == -E2BIG && extents > 0; extents /= 2) {
		rc = lob_find_part(volume, lob, from, below, extents, part);
		stat_add(&volume->stats, STAT_purge_index_pages, part->leaves);
		if (rc == 0)
			rc = purge_change(volume, change);
	}
	/* One extent, and yet too much: its blocks are shared in too many ways. */
	while (rc == -E2BIG && part->end - part->first > 1) {
		part->end = part->first + (part->end - part->first) / 2;
		rc = purge_change(volume, change);
	}
	return rc;
}

struct lob_change {
	uint64_t number;
	struct purge_record seen;
	struct lob_part part; /* what this mtr frees; empty: only the record goes */
	int64_t delta;
	bool finished;
};

static void want_lob(struct mtr *m, void *arg)
{
	struct lob_change *c = arg;

	purge_want(m, c->number);
	lob_want_part(m, c->seen.lob, &c->part);
}

static int stage_lob(struct mtr *m, void *arg)
{
	struct lob_change *c = arg;
	struct purge_record record;
	uint64_t done = c->seen.end;
	int rc = purge_record_lookup(m, c->number, &record);

	if (rc)
		return rc == -BE_NOTFOUND ? STEP_DONE : rc;
	c->delta = 0;
	if (c->part.first < c->part.end)
		rc = lob_stage_replace(m, c->seen.lob, c->part.first, c->part.end, NULL, &c->delta,
				       &done);
	if (rc)
		return rc;
	c->finished = done == c->seen.end;
	if (c->finished)
		purge_record_delete(m, c->number);
	else
		purge_stage(m, c->number, PURGE_LOB, record.ino, record.lob, done, record.end);
	return 0;
}

int purge_lob_step(struct volume *volume, uint64_t number, const struct purge_record *seen)
{
	struct lob_change c = {.number = number, .seen = *seen};
	struct change change = {.want = want_lob, .stage = stage_lob, .arg = &c};
	int rc = purge_lob_part(volume, seen->lob, seen->first, seen->end, &c.part, &change);

	if (rc)
		return rc;
	stat_add(&volume->stats, STAT_purge_blocks, (uint64_t)-c.delta);
	if (c.part.first < c.part.end)
		lob_tidy(volume, seen->lob, c.part.first, c.part.end);
	return c.finished ? STEP_DONE : 0;
}

/* -------------------------------------------------------------- block lists */

struct list_change {
	uint64_t number, freed;
	uint32_t max, left;
};

static void want_list(struct mtr *m, void *arg)
{
	struct list_change *c = arg;

	purge_want(m, c->number);
}

static bool list_run_is_sound(const struct volume *volume, uint64_t start, uint32_t length)
{
	const struct geometry *geo = &volume->geo;
	uint64_t offset = start - geo->groups_start;

	return start >= geo->groups_start && offset / geo->group_blocks < geo->group_count &&
	       length > 0 && offset % geo->group_blocks + length <= geo->group_blocks;
}

/* Frees from the end of the list, so that what is left stays in place. */
static int stage_list(struct mtr *m, void *arg)
{
	struct list_change *c = arg;
	struct key key = purge_key(c->number);
	const struct disk_purge_extent *list;
	struct purge_record record;
	struct disk_purge *shrunk;
	uint8_t copy[RECORD_BYTES_MAX(PAGE_SIZE_MAX)];
	const void *value;
	uint32_t taken = 0;
	size_t len;
	int rc = purge_record_lookup(m, c->number, &record);

	if (rc || record.kind != PURGE_EXTENTS)
		return rc == 0 || rc == -BE_NOTFOUND ? STEP_DONE : rc;
	rc = mtr_lookup(m, INDEX_PURGE, key.bytes, key.len, &value, &len);
	if (rc)
		return rc;
	list = (const void *)((const struct disk_purge *)value + 1);
	c->freed = 0;
	while (taken < record.count && taken < c->max) {
		const struct disk_purge_extent *run = &list[record.count - 1 - taken];
		uint64_t start = le64_get(run->start);
		uint32_t length = le32_get(run->length);

		if (!list_run_is_sound(mtr_volume(m), start, length))
			return corrupt_at(mtr_volume(m), 0, "purge", "list names no blocks");
		if (!mtr_can_clear(m, start, length))
			break;
		mtr_clear_bits(m, start, length);
		c->freed += length;
		taken++;
	}
	c->left = record.count - taken;
	if (c->left == 0) {
		purge_record_delete(m, c->number);
		return 0;
	}
	if (taken == 0)
		return -E2BIG;
	len = sizeof(*shrunk) + c->left * sizeof(*list);
	memcpy(copy, value, len);
	shrunk = (struct disk_purge *)copy;
	shrunk->count = le32_make(c->left);
	mtr_put(m, INDEX_PURGE, key.bytes, key.len, copy, len);
	return 0;
}

int purge_extents_step(struct volume *volume, uint64_t number)
{
	struct list_change c = {.number = number, .max = LIST_STEP_MAX};
	struct change change = {.want = want_list, .stage = stage_list, .arg = &c};
	int rc;

	do {
		rc = purge_change(volume, &change);
		c.max /= 2;
	} while (rc == -E2BIG && c.max > 0);
	if (rc)
		return rc;
	stat_add(&volume->stats, STAT_purge_blocks, c.freed);
	return c.left == 0 ? STEP_DONE : 0;
}
