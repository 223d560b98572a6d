/*
 * The steps of purge on inodes: orphans, and pending dead ranges.
 *
 * An orphan, in bounded mtrs:
 *
 *	1. its xattrs, a few at a time; the LOB of a long value becomes a record of
 *	   its own
 *	2. the inode: its record in the queue turns into that of its LOB, or goes
 *
 *	crash after some of 1    the inode's count says what is left
 *	crash after 2            only a LOB without an owner is left
 *
 * A dead range [first, end) of an inode's LOB shrinks from its start: each mtr
 * frees a part, moves the inode's dead_first and lowers its block count; the last
 * one clears the range and deletes the record (INV-LOB-2, INV-LOB-3).  Until then
 * readers see a hole there, whatever a crash left of it.  The dead range of an
 * orphan that is still open has no record of its own: the orphan's covers it.
 *
 * A record whose inode is gone, or names another record, has been overtaken: a
 * truncation to zero or a linkat took it over.  It is just deleted.
 */
#include "engine/purge_internal.h"

#include "engine/base/error.h"
#include "engine/lob_internal.h"

#include <errno.h>
#include <string.h>

#define XATTR_STEP_MAX 8u

static struct key inode_key(uint64_t ino)
{
	struct key key = {.len = KEY_INODE_BYTES};

	be64_put(key.bytes, ino);
	return key;
}

static int judge_inode(struct volume *volume, size_t len)
{
	return len < sizeof(struct disk_inode) ? corrupt_at(volume, 0, "purge", "short inode") : 0;
}

static int read_inode(struct volume *volume, uint64_t ino, struct disk_inode *inode)
{
	struct key key = inode_key(ino);
	size_t len;
	int rc = tree_get(&volume->index[INDEX_INODES], key.bytes, key.len, inode, sizeof(*inode),
			  &len);

	return rc ? rc : judge_inode(volume, len);
}

/* value: the whole record, inline contents included. */
static int lookup_inode(struct mtr *m, uint64_t ino, const struct disk_inode **value, size_t *len)
{
	struct key key = inode_key(ino);
	const void *found;
	int rc = mtr_lookup(m, INDEX_INODES, key.bytes, key.len, &found, len);

	*value = found;
	return rc ? rc : judge_inode(mtr_volume(m), *len);
}

static void want_inode(struct mtr *m, uint64_t ino)
{
	struct key key = inode_key(ino);

	mtr_want_key(m, INDEX_INODES, key.bytes, key.len);
}

/* Puts the inode with changed fixed fields; what follows them stays. */
static void put_inode(struct mtr *m, uint64_t ino, const struct disk_inode *changed,
		      const void *present, size_t len)
{
	uint8_t value[RECORD_BYTES_MAX(PAGE_SIZE_MAX)];
	struct key key = inode_key(ino);

	memcpy(value, present, len);
	memcpy(value, changed, sizeof(*changed));
	mtr_put(m, INDEX_INODES, key.bytes, key.len, value, len);
}

/* ---------------------------------------------------------- overtaken records */

struct stale {
	uint64_t number, ino;
};

static void want_stale(struct mtr *m, void *arg)
{
	struct stale *stale = arg;

	purge_want(m, stale->number);
	want_inode(m, stale->ino);
}

static int stage_stale(struct mtr *m, void *arg)
{
	struct stale *stale = arg;
	const struct disk_inode *inode;
	struct purge_record record;
	size_t len;
	int rc = purge_record_lookup(m, stale->number, &record);

	if (rc || record.ino != stale->ino ||
	    (record.kind != PURGE_ORPHAN && record.kind != PURGE_DEAD))
		return rc == 0 || rc == -BE_NOTFOUND ? STEP_DONE : rc;
	rc = lookup_inode(m, stale->ino, &inode, &len);
	if (rc && rc != -BE_NOTFOUND)
		return rc;
	if (rc == 0 && le64_get(inode->purge_key) == stale->number)
		return STEP_DONE;
	purge_record_delete(m, stale->number);
	return 0;
}

static int drop_stale(struct volume *volume, uint64_t number, uint64_t ino)
{
	struct stale stale = {.number = number, .ino = ino};
	struct change change = {.want = want_stale, .stage = stage_stale, .arg = &stale};
	int rc = number ? purge_change(volume, &change) : 0;

	return rc ? rc : STEP_DONE;
}

/* ------------------------------------------------------------------ xattrs */

struct xattrs {
	uint64_t number, ino;
	struct key key[XATTR_STEP_MAX];
	uint64_t lob[XATTR_STEP_MAX];    /* of a long value; else 0 */
	uint64_t record[XATTR_STEP_MAX]; /* the purge record it gets */
	unsigned count;
};

static int find_xattrs(struct volume *volume, struct xattrs *x)
{
	struct key from = {.len = KEY_XATTR_BYTES};
	struct tree_cursor cursor;
	int rc;

	be64_put(from.bytes, x->ino);
	rc = tree_cursor_open(&cursor, &volume->index[INDEX_XATTRS], from.bytes, from.len);
	while (rc == 0 && x->count < XATTR_STEP_MAX && (rc = tree_cursor_next(&cursor)) == 0) {
		const struct disk_xattr *disk = (const void *)cursor.value;

		if (cursor.key.len != KEY_XATTR_BYTES || be64_get(cursor.key.bytes) != x->ino)
			break;
		if (cursor.value_len < sizeof(*disk)) {
			rc = corrupt_at(volume, 0, "purge", "short xattr");
			break;
		}
		x->key[x->count] = cursor.key;
		x->lob[x->count++] = disk->flags & XATTR_EXTERNAL ? le64_get(disk->lob) : 0;
	}
	tree_cursor_close(&cursor);
	return rc == -BE_END ? 0 : rc;
}

static void want_xattrs(struct mtr *m, void *arg)
{
	struct xattrs *x = arg;

	want_inode(m, x->ino);
	for (unsigned i = 0; i < x->count; i++) {
		mtr_want_key(m, INDEX_XATTRS, x->key[i].bytes, x->key[i].len);
		if (x->lob[i])
			purge_want(m, x->record[i]);
	}
}

static int stage_xattrs(struct mtr *m, void *arg)
{
	struct xattrs *x = arg;
	const struct disk_inode *inode;
	struct disk_inode changed;
	uint32_t count;
	size_t len, ignored;
	int rc = lookup_inode(m, x->ino, &inode, &len);

	if (rc)
		return rc;
	changed = *inode;
	count = le32_get(changed.xattr_count);
	changed.xattr_count = le32_make(x->count > 0 && count > x->count ? count - x->count : 0);
	for (unsigned i = 0; i < x->count; i++) {
		const void *value;

		rc = mtr_lookup(m, INDEX_XATTRS, x->key[i].bytes, x->key[i].len, &value, &ignored);
		if (rc)
			return rc;
		mtr_delete(m, INDEX_XATTRS, x->key[i].bytes, x->key[i].len);
		if (x->lob[i])
			purge_stage(m, x->record[i], PURGE_LOB, x->ino, x->lob[i], 0, UINT64_MAX);
	}
	put_inode(m, x->ino, &changed, inode, len);
	return 0;
}

static int xattr_step(struct volume *volume, uint64_t number, uint64_t ino)
{
	struct xattrs x = {.number = number, .ino = ino};
	struct change change = {.want = want_xattrs, .stage = stage_xattrs, .arg = &x};
	int rc = find_xattrs(volume, &x);

	for (unsigned i = 0; rc == 0 && i < x.count; i++)
		if (x.lob[i])
			rc = id_take(volume, COUNTER_PURGE, &x.record[i]);
	return rc ? rc : purge_change(volume, &change);
}

/* ------------------------------------------------------------------ orphans */

static bool is_orphan_of(const struct disk_inode *inode, uint64_t number)
{
	return le32_get(inode->nlink) == 0 && le64_get(inode->purge_key) == number;
}

static int stage_orphan(struct mtr *m, void *arg)
{
	struct stale *orphan = arg;
	struct key key = inode_key(orphan->ino);
	const struct disk_inode *inode;
	struct purge_record record;
	uint64_t lob;
	size_t len;
	int rc = purge_record_lookup(m, orphan->number, &record);

	if (rc == 0)
		rc = lookup_inode(m, orphan->ino, &inode, &len);
	if (rc)
		return rc;
	if (record.kind != PURGE_ORPHAN || !is_orphan_of(inode, orphan->number))
		return STEP_DONE;
	lob = le64_get(inode->lob);
	if (lob)
		purge_stage(m, orphan->number, PURGE_LOB, orphan->ino, lob, 0, UINT64_MAX);
	else
		purge_record_delete(m, orphan->number);
	mtr_delete(m, INDEX_INODES, key.bytes, key.len);
	return 0;
}

int purge_orphan_step(struct volume *volume, uint64_t number, uint64_t ino)
{
	struct stale orphan = {.number = number, .ino = ino};
	struct change change = {.want = want_stale, .stage = stage_orphan, .arg = &orphan};
	struct disk_inode inode;
	int rc = read_inode(volume, ino, &inode);

	if (rc == -BE_NOTFOUND || (rc == 0 && !is_orphan_of(&inode, number)))
		return drop_stale(volume, number, ino);
	if (rc)
		return rc;
	if (le32_get(inode.xattr_count) > 0)
		return xattr_step(volume, number, ino);
	rc = purge_change(volume, &change);
	return rc ? rc : STEP_GONE;
}

/* -------------------------------------------------------------- dead ranges */

struct dead_change {
	uint64_t number, ino;
	uint64_t lob, dead_first, dead_end; /* as read before */
	struct lob_part part;               /* what this mtr frees */
	int64_t delta;
	bool finished;
};

static void want_dead(struct mtr *m, void *arg)
{
	struct dead_change *c = arg;

	purge_want(m, c->number);
	want_inode(m, c->ino);
	lob_want_part(m, c->lob, &c->part);
}

static bool is_as_seen(const struct dead_change *c, const struct disk_inode *inode)
{
	return le64_get(inode->purge_key) == c->number && le64_get(inode->lob) == c->lob &&
	       le64_get(inode->dead_first) == c->dead_first &&
	       le64_get(inode->dead_end) == c->dead_end;
}

static int stage_dead(struct mtr *m, void *arg)
{
	struct dead_change *c = arg;
	const struct disk_inode *inode;
	struct disk_inode changed;
	struct purge_record record;
	uint64_t done = c->dead_end;
	uint64_t blocks;
	size_t len;
	int rc = lookup_inode(m, c->ino, &inode, &len);

	if (rc)
		return rc;
	/* Somebody else did a part: look again. */
	if (!is_as_seen(c, inode))
		return STEP_DONE;
	c->delta = 0;
	if (c->part.first < c->part.end)
		rc = lob_stage_replace(m, c->lob, c->part.first, c->part.end, NULL, &c->delta,
				       &done);
	if (rc)
		return rc;
	changed = *inode;
	blocks = le64_get(inode->blocks);
	if (blocks < (uint64_t)-c->delta)
		return corrupt_at(mtr_volume(m), 0, "purge", "inode counts too few blocks");
	changed.blocks = le64_make(blocks - (uint64_t)-c->delta);
	c->finished = done >= c->dead_end;
	changed.dead_first = le64_make(c->finished ? 0 : done);
	changed.dead_end = le64_make(c->finished ? 0 : c->dead_end);
	rc = purge_record_lookup(m, c->number, &record);
	if (rc && rc != -BE_NOTFOUND)
		return rc;
	/* An orphan's record stays: the dead range had none of its own. */
	if (c->finished && rc == 0 && record.kind == PURGE_DEAD)
		purge_record_delete(m, c->number);
	if (c->finished && (rc || record.kind == PURGE_DEAD))
		changed.purge_key = le64_make(0);
	put_inode(m, c->ino, &changed, inode, len);
	return 0;
}

int purge_dead_step(struct volume *volume, uint64_t number, uint64_t ino)
{
	struct dead_change c = {.number = number, .ino = ino};
	struct change change = {.want = want_dead, .stage = stage_dead, .arg = &c};
	struct disk_inode inode;
	int rc = read_inode(volume, ino, &inode);

	if (rc && rc != -BE_NOTFOUND)
		return rc;
	if (rc || (number && le64_get(inode.purge_key) != number))
		return drop_stale(volume, number, ino);
	c.number = le64_get(inode.purge_key);
	c.lob = le64_get(inode.lob);
	c.dead_first = le64_get(inode.dead_first);
	c.dead_end = le64_get(inode.dead_end);
	if (c.dead_first >= c.dead_end && number == 0)
		return STEP_DONE;
	rc = purge_lob_part(volume, c.lob, c.dead_first, c.dead_end, &c.part, &change);
	if (rc)
		return rc == STEP_DONE ? 0 : rc;
	stat_add(&volume->stats, STAT_purge_blocks, (uint64_t)-c.delta);
	if (c.part.first < c.part.end)
		lob_tidy(volume, c.lob, c.part.first, c.part.end);
	return c.finished ? STEP_DONE : 0;
}

int purge_dead_range(struct volume *volume, uint64_t ino)
{
	int rc;

	do
		rc = purge_dead_step(volume, 0, ino);
	while (rc == 0);
	return rc == STEP_DONE ? 0 : rc;
}
