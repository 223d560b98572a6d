/*
 * Truncate: changes of a file's size.
 *
 * The inode is locked X and its whole range X.  INV-LOB-2, old bytes never
 * return, in four forms:
 *
 *	to zero           the LOB is dropped: one record changes, a purge record
 *	                  takes the LOB over, whatever its size
 *	shorter, inline   the bytes go
 *	shorter, a LOB    the block that the cut goes through is rewritten with a
 *	                  zeroed tail; what lies behind goes at once when the cut is
 *	                  at a block's edge and there are few extents, else it
 *	                  becomes the pending dead range, which reads as a hole
 *	longer            only the size; a pending dead range is drained before
 *	the same          as shorter, for blocks that were allocated behind the size
 *
 * Each is one mini-transaction with the attributes that the same call sets.  A
 * dead range of moderate size is drained by the call that made it, in
 * mini-transactions of their own; purge does the rest, also after a crash.
 */
#include "fs/core_internal.h"

#include "engine/lob.h"

/* Past every block that a file can have. */
#define FILE_BLOCKS_END (FILE_BYTES_MAX / BLOCK_SIZE + 1)
/* A file of more blocks than this is left to purge, so that the call stays short. */
#define DRAIN_BLOCKS_MAX 4096u

/* How a LOB is cut. */
struct cut {
	uint64_t first;     /* blocks from here on go */
	struct lob_new tail;
	bool at_once;       /* by removing extents; else by a dead range, if anything is there */
	bool dead;
};

struct truncating {
	struct core *core;
	const struct setattr_args *args;
	uint64_t size;                /* the new one */
	struct record record;         /* as read under the locks */
	struct record_buffer buffer;
	uint64_t key;                 /* purge record of it; 0: none, or the orphan has one */
	struct cut cut;
};

static int read_record(struct truncating *t)
{
	int rc = record_read(t->core->volume, t->args->ino, &t->record, &t->buffer);

	if (rc)
		return rc;
	if (!S_ISREG(t->record.mode))
		return S_ISDIR(t->record.mode) ? -EISDIR : -EINVAL;
	return 0;
}

static int commit(struct truncating *t, const struct record_change *change)
{
	struct record record;
	int rc = record_change(t->core->volume, t->args->ino, change, t, &record);

	if (rc == 0)
		core_attr_fill(t->core, &record, t->args->ino, t->args->attr);
	return rc;
}

/* What each form does to the record. */
static void stage_size(const struct truncating *t, struct mtr *m, struct record *record)
{
	setattr_apply(t->args, m, record, os_realtime());
	record->size = t->size;
}

/* --- forms that change records only -------------------------------------- */

static void want_attributes(struct mtr *m, void *arg)
{
	const struct truncating *t = arg;

	setattr_want(t->args, m);
	if (t->key)
		purge_want(m, t->key);
}

static int stage_inline(struct mtr *m, struct record *record, void *arg)
{
	const struct truncating *t = arg;

	stage_size(t, m, record);
	if (record->tail_len > t->size)
		record->tail_len = (uint32_t)t->size;
	return 0;
}

static int change_size(struct truncating *t)
{
	static const struct record_change change = {
		.flags = MTR_PRIVILEGED, .want = want_attributes, .stage = stage_inline};

	return commit(t, &change);
}

static int stage_drop(struct mtr *m, struct record *record, void *arg)
{
	const struct truncating *t = arg;
	uint64_t key = t->key;

	stage_size(t, m, record);
	purge_stage(m, key, PURGE_LOB, t->args->ino, record->lob, 0, UINT64_MAX);
	if (record->purge_key == key)
		record->purge_key = 0; /* was the dead range's, which goes with the LOB */
	record->lob = 0;
	record->flags &= ~(uint32_t)INODE_PREALLOCATED;
	record->blocks = 0;
	record->dead_first = 0;
	record->dead_end = 0;
	return 0;
}

static int drop_contents(struct truncating *t)
{
	static const struct record_change change = {
		.flags = MTR_PRIVILEGED, .want = want_attributes, .stage = stage_drop};
	struct record *record = &t->record;
	int rc = 0;

	t->key = record->purge_key;
	/* An orphan's purge record stays: it is for the inode. */
	if (t->key == 0 || record->nlink == 0)
		rc = id_take(t->core->volume, COUNTER_PURGE, &t->key);
	if (rc == 0)
		rc = commit(t, &change);
	if (rc == 0)
		purge_kick(t->core->volume->purge);
	return rc;
}

/* --- cutting a LOB ------------------------------------------------------- */

/* Is anything stored at or behind a block? */
static int has_blocks_from(struct truncating *t, uint64_t block, bool *has)
{
	struct tree_cursor cursor;
	uint8_t from[KEY_LOB_BYTES];
	int rc;

	*has = false;
	be64_put(from, t->record.lob);
	be64_put(from + 8, block);
	rc = tree_cursor_open(&cursor, &t->core->volume->index[INDEX_LOB], from, sizeof(from));
	if (rc == 0)
		rc = tree_cursor_next(&cursor);
	if (rc == 0)
		*has = be64_get(cursor.key.bytes) == t->record.lob;
	tree_cursor_close(&cursor);
	return rc == -BE_END ? 0 : rc;
}

/* Writes the block that the cut goes through anew, with zeros behind the cut. */
static int prepare_tail(struct truncating *t, struct lob_new *tail, uint8_t block[BLOCK_SIZE])
{
	struct lob_source source = {.ino = t->args->ino, .lob = t->record.lob};
	size_t keep = t->size % BLOCK_SIZE;
	bool hole;
	int rc;

	*tail = (struct lob_new){.blocks = 0};
	if (keep == 0)
		return 0;
	rc = contents_read(t->core, &source, t->size / BLOCK_SIZE, 1, block, &hole);
	if (rc || hole)
		return rc;
	memset(block + keep, 0, BLOCK_SIZE - keep);
	return lob_prepare(t->core->volume, t->size / BLOCK_SIZE, 1, block, 0, SPACE_PRIVILEGED,
			   tail);
}

static void want_cut(struct mtr *m, void *arg)
{
	const struct truncating *t = arg;
	const struct cut *cut = &t->cut;

	want_attributes(m, arg);
	if (cut->at_once)
		lob_want_replace(m, t->record.lob, cut->first, FILE_BLOCKS_END);
	else if (cut->tail.blocks)
		lob_want_publish(m, t->record.lob, &cut->tail);
}

static int stage_extents(struct mtr *m, uint64_t lob, struct cut *cut, int64_t *delta)
{
	uint64_t done = FILE_BLOCKS_END;
	int rc = 0;

	if (cut->at_once)
		rc = lob_stage_replace(m, lob, cut->first, FILE_BLOCKS_END, NULL, delta, &done);
	else if (cut->tail.blocks)
		rc = lob_stage_replace(m, lob, cut->tail.first, cut->tail.first + 1, &cut->tail,
				       delta, &done);
	return rc == 0 && cut->at_once && done != FILE_BLOCKS_END ? -E2BIG : rc;
}

static int stage_cut(struct mtr *m, struct record *record, void *arg)
{
	struct truncating *t = arg;
	struct cut *cut = &t->cut;
	int64_t delta = 0;
	int rc = stage_extents(m, record->lob, cut, &delta);

	if (rc)
		return rc;
	stage_size(t, m, record);
	record->blocks += (uint64_t)delta;
	if (cut->dead) {
		record->dead_first = cut->first;
		record->dead_end = FILE_BLOCKS_END;
	}
	if (t->key) {
		record->purge_key = t->key;
		purge_stage(m, t->key, PURGE_DEAD, t->args->ino, record->lob, cut->first,
			    FILE_BLOCKS_END);
	}
	os_point("core:truncate_commit");
	return 0;
}

static int commit_cut(struct truncating *t)
{
	static const struct record_change change = {
		.flags = MTR_PRIVILEGED, .want = want_cut, .stage = stage_cut};

	return commit(t, &change);
}

/* The dead range is on record: what happens now only gives the space back. */
static void drain_soon(struct truncating *t)
{
	struct volume *volume = t->core->volume;
	bool small = t->record.blocks <= DRAIN_BLOCKS_MAX;
	struct record record;

	if ((small || t->record.nlink == 0) && purge_dead_range(volume, t->args->ino) == 0 &&
	    record_read(volume, t->args->ino, &record, NULL) == 0)
		core_attr_fill(t->core, &record, t->args->ino, t->args->attr);
	else
		purge_kick(volume->purge);
}

static int cut_with_dead_range(struct truncating *t)
{
	int rc = has_blocks_from(t, t->cut.first, &t->cut.dead);

	if (rc)
		return rc;
	t->cut.at_once = false;
	if (t->cut.dead && t->record.nlink > 0)
		rc = id_take(t->core->volume, COUNTER_PURGE, &t->key);
	if (rc == 0)
		rc = commit_cut(t);
	if (rc == 0 && t->cut.dead)
		drain_soon(t);
	return rc;
}

static int cut_contents(struct truncating *t)
{
	struct cut *cut = &t->cut;
	uint8_t block[BLOCK_SIZE]; /* of cut->tail */
	int rc;

	cut->first = t->size / BLOCK_SIZE + (t->size % BLOCK_SIZE != 0);
	cut->at_once = t->size % BLOCK_SIZE == 0 && t->record.blocks <= DRAIN_BLOCKS_MAX;
	rc = prepare_tail(t, &cut->tail, block);
	if (rc == 0 && cut->at_once)
		rc = commit_cut(t);
	if (rc == -E2BIG || (rc == 0 && !cut->at_once))
		rc = cut_with_dead_range(t);
	if (rc)
		lob_abandon(t->core->volume, &cut->tail);
	else
		lob_published(&cut->tail);
	return rc;
}

/* --- choosing ------------------------------------------------------------ */

static int drain_dead_range(struct truncating *t)
{
	int rc = purge_dead_range(t->core->volume, t->args->ino);

	return rc ? rc : read_record(t);
}

static int truncate_locked(struct truncating *t)
{
	int rc = read_record(t);
	bool cuts;

	if (rc)
		return rc;
	if (!t->record.lob)
		return change_size(t);
	if (t->size == 0)
		return drop_contents(t);
	/* To the same size: what was allocated behind it goes. */
	cuts = t->size < t->record.size ||
	       (t->size == t->record.size && t->record.flags & INODE_PREALLOCATED);
	if (record_has_dead(&t->record) && (cuts || t->size > t->record.size)) {
		rc = drain_dead_range(t);
		if (rc)
			return rc;
	}
	return cuts ? cut_contents(t) : change_size(t);
}

int truncate_once(struct core *core, void *arg)
{
	const struct setattr_args *args = arg;
	struct truncating t = {.core = core, .args = args, .size = args->attr->size};
	struct range_lock range;
	struct inode *inode;
	int rc;

	if (t.size > FILE_BYTES_MAX)
		return -EFBIG;
	rc = lock_inode(core, args->ino, true, &inode);
	if (rc)
		return rc;
	range_lock(&inode->ranges, &range, 0, RANGE_END, true);
	rc = setattr_prepare(core, args);
	if (rc == 0)
		rc = truncate_locked(&t);
	range_unlock(&range);
	unlock_inode(core, inode, true);
	return rc;
}
