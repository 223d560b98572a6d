/*
 * Repairs of inode records: counts, links, and fields that do not fit each
 * other.  See repair_internal.h.
 */
#include "fsck/repair_internal.h"

#include "fsck/raw.h"

#include "engine/base/error.h"
#include "engine/base/os.h"
#include "engine/purge.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

/* ------------------------------------------------------------------ records */

void want_inode(struct mtr *m, uint64_t ino)
{
	uint8_t key[KEY_INODE_BYTES];

	be64_put(key, ino);
	mtr_want_key(m, INDEX_INODES, key, sizeof(key));
}

int get_inode(struct mtr *m, uint64_t ino, struct inode_edit *edit)
{
	const void *value;
	int rc;

	be64_put(edit->key, ino);
	rc = mtr_lookup(m, INDEX_INODES, edit->key, sizeof(edit->key), &value, &edit->len);
	if (rc)
		return rc;
	if (edit->len < sizeof(edit->head) || edit->len > sizeof(edit->bytes))
		return -BE_FORMAT;
	memcpy(edit->bytes, value, edit->len);
	memcpy(&edit->head, value, sizeof(edit->head));
	return 0;
}

void put_inode(struct mtr *m, struct inode_edit *edit)
{
	edit->head.change = le64_make(le64_get(edit->head.change) + 1);
	memcpy(edit->bytes, &edit->head, sizeof(edit->head));
	mtr_put(m, INDEX_INODES, edit->key, sizeof(edit->key), edit->bytes, edit->len);
}

int read_inode(struct volume *volume, uint64_t ino, struct disk_inode *inode)
{
	uint8_t key[KEY_INODE_BYTES];
	size_t len;
	int rc;

	be64_put(key, ino);
	rc = tree_get(&volume->index[INDEX_INODES], key, sizeof(key), inode, sizeof(*inode), &len);
	return !rc && len < sizeof(*inode) ? -BE_FORMAT : rc;
}

void new_inode(struct inode_edit *edit, uint64_t ino, uint32_t mode, uint32_t nlink,
	       uint64_t parent)
{
	struct timespec now = os_realtime();
	struct disk_time time = {
		.sec = le64_make((uint64_t)now.tv_sec),
		.nsec = le32_make((uint32_t)now.tv_nsec),
	};

	be64_put(edit->key, ino);
	edit->len = sizeof(edit->head);
	edit->head = (struct disk_inode){
		.mode = le32_make(mode),
		.nlink = le32_make(nlink),
		.parent = le64_make(parent),
		.atime = time,
		.mtime = time,
		.ctime = time,
		.btime = time,
	};
}

int repair_mtr(struct volume *volume, const struct repair_mtr *work)
{
	struct mtr *m;
	int rc = mtr_begin(volume, MTR_PRIVILEGED, &m);

	if (rc)
		return rc;
	work->want(m, work->arg);
	do {
		rc = mtr_latch(m);
		if (!rc)
			rc = work->stage(m, work->arg);
		if (!rc)
			rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	return rc == REPAIR_NOTHING || rc == -BE_NOTFOUND ? 0 : rc;
}

int unorphan(struct mtr *m, uint64_t ino, struct disk_inode *inode)
{
	uint64_t purge_key = le64_get(inode->purge_key);
	uint8_t key[KEY_PURGE_BYTES];
	const void *value;
	size_t len;
	int rc;

	if (!purge_key)
		return 0;
	if (le64_get(inode->dead_end)) {
		purge_stage(m, purge_key, PURGE_DEAD, ino, le64_get(inode->lob),
			    le64_get(inode->dead_first), le64_get(inode->dead_end));
		return 0;
	}
	inode->purge_key = le64_make(0);
	be64_put(key, purge_key);
	rc = mtr_lookup(m, INDEX_PURGE, key, sizeof(key), &value, &len);
	if (rc == 0)
		mtr_delete(m, INDEX_PURGE, key, sizeof(key));
	return rc == -BE_NOTFOUND ? 0 : rc;
}

int measure_lob(struct volume *volume, uint64_t lob, uint64_t *blocks, uint64_t *end)
{
	uint8_t from[KEY_LOB_BYTES];
	struct tree_cursor cursor;
	struct disk_extent extent;
	int rc;

	*blocks = *end = 0;
	be64_put(from, lob);
	be64_put(from + 8, 0);
	rc = tree_cursor_open(&cursor, &volume->index[INDEX_LOB], from, sizeof(from));
	while (rc == 0 && (rc = tree_cursor_next(&cursor)) == 0) {
		if (cursor.key.len != KEY_LOB_BYTES || be64_get(cursor.key.bytes) != lob)
			break;
		if (cursor.value_len < sizeof(extent))
			continue;
		memcpy(&extent, cursor.value, sizeof(extent));
		*blocks += le32_get(extent.length);
		*end = be64_get(cursor.key.bytes + 8) + 1;
	}
	tree_cursor_close(&cursor);
	return rc == -BE_END ? 0 : rc;
}

/* ---------------------------------------------- fields that fit each other */

struct shape {
	uint32_t page_size;
	uint64_t end_bytes; /* of the contents in blocks */
};

/* Contents are inline, or a LOB, or none; what is given up here is found without an owner. */
static void shape_contents(struct inode_edit *edit, const struct shape *shape)
{
	struct disk_inode *inode = &edit->head;
	uint32_t type = le32_get(inode->mode) & S_IFMT;
	bool holds = type == S_IFREG || type == S_IFLNK;
	bool marked = le32_get(inode->flags) & INODE_INLINE;
	uint32_t flags = le32_get(inode->flags) & INODE_USER_FLAGS;
	size_t tail = edit->len - sizeof(*inode), most = INLINE_BYTES_MAX(shape->page_size);

	if (type == S_IFLNK && most > SYMLINK_BYTES_MAX)
		most = SYMLINK_BYTES_MAX;
	if (!holds || (!marked && (le64_get(inode->lob) || tail > le64_get(inode->size))))
		tail = 0;
	if (tail > most)
		tail = most;
	if (!holds || tail) {
		inode->lob = le64_make(0);
		inode->blocks = le64_make(0);
	}
	if (tail)
		flags |= INODE_INLINE;
	else if (le64_get(inode->lob))
		flags |= le32_get(inode->flags) & INODE_PREALLOCATED;
	inode->flags = le32_make(flags);
	edit->len = sizeof(*inode) + tail;
}

static void shape_size(struct inode_edit *edit, const struct shape *shape)
{
	struct disk_inode *inode = &edit->head;
	uint32_t mode = le32_get(inode->mode);
	uint64_t size = le64_get(inode->size), tail = edit->len - sizeof(*inode);

	if (S_ISLNK(mode) && !tail && !le64_get(inode->lob)) {
		mode = S_IFREG | (mode & 07777); /* without a target */
		inode->mode = le32_make(mode);
		size = 0;
	}
	if (S_ISLNK(mode)) {
		if (tail)
			size = tail;
		else if (size == 0 || size > SYMLINK_BYTES_MAX)
			size = shape->end_bytes < SYMLINK_BYTES_MAX ? shape->end_bytes
								    : SYMLINK_BYTES_MAX;
	} else if (S_ISREG(mode) && (size > (uint64_t)FILE_BYTES_MAX || tail > size)) {
		size = tail ? tail : shape->end_bytes;
	} else if (size > (uint64_t)FILE_BYTES_MAX) {
		size = 0;
	}
	inode->size = le64_make(size);
}

static void drop_dead_range(struct disk_inode *inode)
{
	inode->dead_first = inode->dead_end = le64_make(0);
	if (le32_get(inode->nlink))
		inode->purge_key = le64_make(0);
}

static void shape_rest(struct disk_inode *inode)
{
	struct disk_time *times[] = {&inode->atime, &inode->mtime, &inode->ctime, &inode->btime};
	uint64_t first = le64_get(inode->dead_first), end = le64_get(inode->dead_end);

	if ((first || end) &&
	    (first >= end || !le64_get(inode->lob) || !le64_get(inode->purge_key)))
		drop_dead_range(inode);
	for (unsigned i = 0; i < array_count(times); i++)
		if (le32_get(times[i]->nsec) >= 1000000000u)
			times[i]->nsec = le32_make(0);
	if (!S_ISDIR(le32_get(inode->mode)))
		inode->parent = inode->entries = le64_make(0);
	else if (!le64_get(inode->parent))
		inode->parent = le64_make(INO_ROOT); /* until its name is found */
}

/* ------------------------------------------------------------- one inode fix */

struct inode_job {
	const struct fsck_fix *fix;
	struct shape shape;
	uint64_t purge_key; /* new, or the one that the inode names; 0 = none */
	struct inode_edit edit;
};

static void want_fix(struct mtr *m, void *arg)
{
	const struct inode_job *job = arg;

	want_inode(m, job->fix->id);
	if (job->purge_key)
		purge_want(m, job->purge_key);
}

static int stage_fix(struct mtr *m, void *arg)
{
	struct inode_job *job = arg;
	const struct fsck_fix *fix = job->fix;
	struct disk_inode *inode = &job->edit.head;
	int rc = get_inode(m, fix->id, &job->edit);

	if (rc)
		return rc;
	switch (fix->kind) {
	case FIX_NLINK:
		inode->nlink = le32_make((uint32_t)fix->value);
		break;
	case FIX_ENTRIES:
		inode->entries = le64_make(fix->value);
		break;
	case FIX_XATTRS:
		inode->xattr_count = le32_make((uint32_t)fix->value);
		break;
	case FIX_BLOCKS:
		inode->blocks = le64_make(fix->value);
		break;
	case FIX_MODE:
		inode->mode = le32_make((le32_get(inode->mode) & ~ACCESSPERMS) |
					(uint32_t)fix->value);
		break;
	case FIX_PARENT:
		inode->parent = le64_make(fix->value);
		break;
	case FIX_ORPHAN:
		inode->nlink = le32_make(0);
		inode->purge_key = le64_make(job->purge_key);
		purge_stage(m, job->purge_key, PURGE_ORPHAN, fix->id, le64_get(inode->lob), 0,
			    UINT64_MAX);
		break;
	case FIX_UNORPHAN:
		rc = unorphan(m, fix->id, inode);
		inode->nlink = le32_make((uint32_t)fix->value);
		break;
	case FIX_NO_LOB:
		inode->lob = inode->blocks = le64_make(0);
		drop_dead_range(inode);
		break;
	case FIX_NO_PURGE:
		inode->purge_key = le64_make(0);
		drop_dead_range(inode);
		break;
	case FIX_INODE:
		inode->mode = le32_make(raw_likely_mode(inode));
		shape_contents(&job->edit, &job->shape);
		shape_size(&job->edit, &job->shape);
		shape_rest(inode);
		break;
	default:
		check(false);
	}
	if (!rc)
		put_inode(m, &job->edit);
	return rc;
}

/* What has to be known before the mini-transaction. */
static int prepare(struct volume *volume, struct inode_job *job)
{
	struct disk_inode inode;
	uint64_t blocks;
	int rc;

	if (job->fix->kind == FIX_ORPHAN)
		return id_take(volume, COUNTER_PURGE, &job->purge_key);
	if (job->fix->kind != FIX_UNORPHAN && job->fix->kind != FIX_INODE)
		return 0;
	rc = read_inode(volume, job->fix->id, &inode);
	if (rc)
		return rc;
	if (job->fix->kind == FIX_UNORPHAN) {
		job->purge_key = le64_get(inode.purge_key);
		return 0;
	}
	job->shape.page_size = volume->geo.page_size;
	if (le64_get(inode.lob))
		rc = measure_lob(volume, le64_get(inode.lob), &blocks, &job->shape.end_bytes);
	if (job->shape.end_bytes > (uint64_t)FILE_BYTES_MAX / BLOCK_SIZE)
		job->shape.end_bytes = (uint64_t)FILE_BYTES_MAX / BLOCK_SIZE;
	job->shape.end_bytes *= BLOCK_SIZE;
	return rc;
}

int repair_inode_fields(struct volume *volume, const struct fsck_fix *fix)
{
	struct inode_job *job = calloc(1, sizeof(*job));
	struct repair_mtr work = {want_fix, stage_fix, job};
	int rc = job ? 0 : -ENOMEM;

	if (!rc) {
		job->fix = fix;
		rc = prepare(volume, job);
	}
	if (!rc)
		rc = repair_mtr(volume, &work);
	free(job);
	return rc == -BE_NOTFOUND ? 0 : rc;
}
