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

struct truncating {
	struct core *core;
	const struct setattr_args *args;
	uint64_t size;                /* the new one */
	struct record record;         /* as read under the locks */
	struct record_buffer buffer;
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

/* --- forms that change records only -------------------------------------- */

/* What else the mini-transaction does to the record in the latched leaf. */
typedef void (*truncate_stage)(const struct truncating *t, struct mtr *m, struct record *record,
			       uint64_t key);

static int commit_record(const struct truncating *t, truncate_stage stage, uint64_t key)
{
	struct volume *volume = t->core->volume;
	struct timespec now = os_realtime();
	struct record record;
	struct mtr *m;
	int rc;

	rc = mtr_begin(volume, MTR_PRIVILEGED, &m);
	if (rc)
		return rc;
	record_want(m, t->args->ino);
	setattr_want(t->args, m);
	if (key)
		purge_want(m, key);
	do {
		rc = mtr_latch(m);
		if (rc == 0)
			rc = record_get(volume, m, t->args->ino, &record);
		if (rc)
			break;
		setattr_apply(t->args, m, &record, now);
		stage(t, m, &record, key);
		record.size = t->size;
		record_put(m, t->args->ino, &record);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	if (rc == 0)
		core_attr_fill(t->core, &record, t->args->ino, t->args->attr);
	return rc;
}

static void stage_size(const struct truncating *t, struct mtr *m, struct record *record,
		       uint64_t key)
{
	(void)m;
	(void)key;
	if (record->tail_len > t->size)
		record->tail_len = (uint32_t)t->size;
}

static void stage_drop(const struct truncating *t, struct mtr *m, struct record *record,
		       uint64_t key)
{
	purge_stage(m, key, PURGE_LOB, t->args->ino, record->lob, 0, UINT64_MAX);
	if (record->purge_key == key)
		record->purge_key = 0; /* was the dead range's, which goes with the LOB */
	record->lob = 0;
	record->flags &= ~(uint32_t)INODE_PREALLOCATED;
	record->blocks = 0;
	record->dead_first = 0;
	record->dead_end = 0;
}

static int drop_contents(struct truncating *t)
{
	struct record *record = &t->record;
	uint64_t key = record->purge_key;
	int rc = 0;

	/* An orphan's purge record stays: it is for the inode. */
	if (key == 0 || record->nlink == 0)
		rc = id_take(t->core->volume, COUNTER_PURGE, &key);
	if (rc == 0)
		rc = commit_record(t, stage_drop, key);
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

/* How a cut is made. */
struct cut {
	uint64_t first;     /* blocks from here on go */
	struct lob_new tail;
	bool at_once;       /* by removing extents; else by a dead range, if anything is there */
	bool dead;
	uint64_t key;       /* purge record of the dead range; 0: the orphan has one */
};

static int stage_cut(struct truncating *t, struct mtr *m, struct cut *cut,
		     struct timespec now)
{
	struct volume *volume = t->core->volume;
	struct record record;
	int64_t delta = 0;
	uint64_t done = FILE_BLOCKS_END;
	int rc;

	rc = mtr_latch(m);
	if (rc == 0)
		rc = record_get(volume, m, t->args->ino, &record);
	if (rc)
		return rc;
	if (cut->at_once)
		rc = lob_stage_replace(m, record.lob, cut->first, FILE_BLOCKS_END, NULL, &delta,
				       &done);
	else if (cut->tail.blocks)
		rc = lob_stage_replace(m, record.lob, cut->tail.first, cut->tail.first + 1,
				       &cut->tail, &delta, &done);
	if (rc)
		return rc;
	if (cut->at_once && done != FILE_BLOCKS_END)
		return -E2BIG;
	setattr_apply(t->args, m, &record, now);
	record.size = t->size;
	record.blocks += (uint64_t)delta;
	if (cut->dead) {
		record.dead_first = cut->first;
		record.dead_end = FILE_BLOCKS_END;
		if (cut->key) {
			record.purge_key = cut->key;
			purge_stage(m, cut->key, PURGE_DEAD, t->args->ino, record.lob, cut->first,
				    FILE_BLOCKS_END);
		}
	}
	record_put(m, t->args->ino, &record);
	core_attr_fill(t->core, &record, t->args->ino, t->args->attr);
	os_point("core:truncate_commit");
	return mtr_commit(m);
}

static int commit_cut(struct truncating *t, struct cut *cut)
{
	struct timespec now = os_realtime();
	struct core_attr given = *t->args->attr;
	uint64_t lob = t->record.lob;
	struct mtr *m;
	int rc;

	rc = mtr_begin(t->core->volume, MTR_PRIVILEGED, &m);
	if (rc)
		return rc;
	record_want(m, t->args->ino);
	setattr_want(t->args, m);
	if (cut->at_once)
		lob_want_replace(m, lob, cut->first, FILE_BLOCKS_END);
	else if (cut->tail.blocks)
		lob_want_publish(m, lob, &cut->tail);
	if (cut->key)
		purge_want(m, cut->key);
	do {
		*t->args->attr = given; /* a try that failed may have put its result there */
		rc = stage_cut(t, m, cut, now);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	if (rc)
		*t->args->attr = given;
	return rc;
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

static int cut_with_dead_range(struct truncating *t, struct cut *cut)
{
	int rc = has_blocks_from(t, cut->first, &cut->dead);

	if (rc)
		return rc;
	cut->at_once = false;
	if (cut->dead && t->record.nlink > 0)
		rc = id_take(t->core->volume, COUNTER_PURGE, &cut->key);
	if (rc == 0)
		rc = commit_cut(t, cut);
	if (rc == 0 && cut->dead)
		drain_soon(t);
	return rc;
}

static int cut_contents(struct truncating *t)
{
	struct cut cut = {
		.first = t->size / BLOCK_SIZE + (t->size % BLOCK_SIZE != 0),
		.at_once = t->size % BLOCK_SIZE == 0 && t->record.blocks <= DRAIN_BLOCKS_MAX,
	};
	uint8_t block[BLOCK_SIZE]; /* of cut.tail */
	int rc = prepare_tail(t, &cut.tail, block);

	if (rc == 0 && cut.at_once)
		rc = commit_cut(t, &cut);
	if (rc == -E2BIG || (rc == 0 && !cut.at_once))
		rc = cut_with_dead_range(t, &cut);
	if (rc)
		lob_abandon(t->core->volume, &cut.tail);
	else
		lob_published(&cut.tail);
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
		return commit_record(t, stage_size, 0);
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
	return cuts ? cut_contents(t) : commit_record(t, stage_size, 0);
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
