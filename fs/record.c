/* Inode records: see record.h. */
#include "fs/record.h"

#include "engine/base/error.h"
#include "engine/volume.h"

#include <errno.h>

#define NSEC_PER_SEC 1000000000
#define BLOCK_SECTORS (BLOCK_SIZE / 512)
/* What a name adds to the size of its directory: the least bytes of its record. */
#define DIR_ENTRY_BYTES 32u

static struct timespec time_get(const struct disk_time *t)
{
	return (struct timespec){.tv_sec = (int64_t)le64_get(t->sec), .tv_nsec = le32_get(t->nsec)};
}

static struct disk_time time_make(struct timespec t)
{
	return (struct disk_time){
		.sec = le64_make((uint64_t)t.tv_sec),
		.nsec = le32_make((uint32_t)t.tv_nsec),
	};
}

static const char *judge(const struct record *r)
{
	switch (r->mode & S_IFMT) {
	case S_IFREG: case S_IFDIR: case S_IFLNK: case S_IFCHR:
	case S_IFBLK: case S_IFIFO: case S_IFSOCK:
		break;
	default:
		return "unknown file type";
	}
	if (r->size > FILE_BYTES_MAX)
		return "size past the largest offset";
	if (r->tail_len > INLINE_BYTES_LIMIT || r->tail_len > r->size)
		return "more inline contents than its size";
	if (!!(r->flags & INODE_INLINE) != (r->tail_len > 0)) /* INV-RECORD-1 */
		return "inline flag and record length disagree";
	if (r->tail_len && r->lob)
		return "both inline contents and a LOB";
	if (r->dead_first > r->dead_end)
		return "dead range ends before it begins";
	if (record_has_dead(r) && (!r->lob || !r->purge_key)) /* INV-RECORD-2 */
		return "dead range without LOB or purge record";
	if (S_ISDIR(r->mode) && !r->parent)
		return "directory without parent";
	if (r->entries > FILE_BYTES_MAX / DIR_ENTRY_BYTES) /* its size is told by them */
		return "more names than there can be";
	if (r->atime.tv_nsec >= NSEC_PER_SEC || r->mtime.tv_nsec >= NSEC_PER_SEC ||
	    r->ctime.tv_nsec >= NSEC_PER_SEC || r->btime.tv_nsec >= NSEC_PER_SEC)
		return "nanoseconds of a second or more";
	return NULL;
}

/*
 * `have` of the value's `len` bytes are at `value`; r->tail points behind the struct
 * in it.  -BE_FORMAT with a text in *why.
 */
static int decode(const void *value, size_t have, size_t len, struct record *r, const char **why)
{
	const struct disk_inode *d = value;

	if (len < sizeof(*d) || have < sizeof(*d)) {
		*why = "record too short";
		return -BE_FORMAT;
	}
	*r = (struct record){
		.mode = le32_get(d->mode),
		.nlink = le32_get(d->nlink),
		.uid = le32_get(d->uid),
		.gid = le32_get(d->gid),
		.rdev = le32_get(d->rdev),
		.flags = le32_get(d->flags),
		.projid = le32_get(d->projid),
		.xattr_count = le32_get(d->xattr_count),
		.size = le64_get(d->size),
		.blocks = le64_get(d->blocks),
		.lob = le64_get(d->lob),
		.parent = le64_get(d->parent),
		.change = le64_get(d->change),
		.dead_first = le64_get(d->dead_first),
		.dead_end = le64_get(d->dead_end),
		.purge_key = le64_get(d->purge_key),
		.entries = le64_get(d->entries),
		.atime = time_get(&d->atime),
		.mtime = time_get(&d->mtime),
		.ctime = time_get(&d->ctime),
		.btime = time_get(&d->btime),
		.tail_len = (uint32_t)(len - sizeof(*d)),
		.tail = have >= len ? (const uint8_t *)(d + 1) : NULL,
	};
	*why = judge(r);
	return *why ? -BE_FORMAT : 0;
}

/* Returns the number of bytes. */
static size_t encode(const struct record *r, struct record_buffer *out)
{
	struct disk_inode d = {
		.mode = le32_make(r->mode),
		.nlink = le32_make(r->nlink),
		.uid = le32_make(r->uid),
		.gid = le32_make(r->gid),
		.rdev = le32_make(r->rdev),
		.flags = le32_make((r->flags & ~(uint32_t)INODE_INLINE) |
				   (r->tail_len ? INODE_INLINE : 0)),
		.projid = le32_make(r->projid),
		.xattr_count = le32_make(r->xattr_count),
		.size = le64_make(r->size),
		.blocks = le64_make(r->blocks),
		.lob = le64_make(r->lob),
		.parent = le64_make(r->parent),
		.change = le64_make(r->change),
		.dead_first = le64_make(r->dead_first),
		.dead_end = le64_make(r->dead_end),
		.purge_key = le64_make(r->purge_key),
		.entries = le64_make(r->entries),
		.atime = time_make(r->atime),
		.mtime = time_make(r->mtime),
		.ctime = time_make(r->ctime),
		.btime = time_make(r->btime),
	};

	check(r->tail_len <= INLINE_BYTES_LIMIT && r->tail_len <= r->size);
	check(!(r->tail_len && r->lob)); /* INV-RECORD-1 */
	check(r->tail_len == 0 || r->tail);
	memcpy(out->bytes, &d, sizeof(d));
	if (r->tail_len)
		memcpy(out->bytes + sizeof(d), r->tail, r->tail_len);
	return sizeof(d) + r->tail_len;
}

int record_read(struct volume *volume, uint64_t ino, struct record *r, struct record_buffer *buffer)
{
	uint8_t head[sizeof(struct disk_inode)];
	void *to = buffer ? buffer->bytes : head;
	size_t cap = buffer ? sizeof(buffer->bytes) : sizeof(head);
	uint8_t key[KEY_INODE_BYTES];
	const char *why;
	size_t len;
	int rc;

	be64_put(key, ino);
	rc = tree_get(&volume->index[INDEX_INODES], key, sizeof(key), to, cap, &len);
	if (rc == -BE_NOTFOUND)
		return -ENOENT;
	if (rc)
		return rc;
	rc = decode(to, cap < len ? cap : len, len, r, &why);
	if (rc)
		return corrupt_at(volume, 0, "inode record", why);
	if (!buffer)
		r->tail = NULL;
	return 0;
}

void record_want(struct mtr *m, uint64_t ino)
{
	uint8_t key[KEY_INODE_BYTES];

	be64_put(key, ino);
	mtr_want_key(m, INDEX_INODES, key, sizeof(key));
}

int record_get(struct volume *volume, struct mtr *m, uint64_t ino, struct record *r)
{
	uint8_t key[KEY_INODE_BYTES];
	const void *value;
	const char *why;
	size_t len;
	int rc;

	be64_put(key, ino);
	rc = mtr_lookup(m, INDEX_INODES, key, sizeof(key), &value, &len);
	if (rc == -BE_NOTFOUND)
		return -ENOENT;
	if (rc)
		return rc;
	rc = decode(value, len, len, r, &why);
	if (rc)
		return corrupt_at(volume, 0, "inode record", why);
	return 0;
}

void record_put(struct mtr *m, uint64_t ino, const struct record *r)
{
	struct record_buffer buffer;
	uint8_t key[KEY_INODE_BYTES];
	size_t len = encode(r, &buffer);

	be64_put(key, ino);
	mtr_put(m, INDEX_INODES, key, sizeof(key), buffer.bytes, len);
}

static int change_once(struct volume *volume, struct mtr *m, uint64_t ino,
		       const struct record_change *change, void *arg, struct record *r)
{
	int rc = mtr_latch(m);

	if (rc == 0)
		rc = record_get(volume, m, ino, r);
	if (rc == 0)
		rc = change->stage(m, r, arg);
	if (rc)
		return rc == RECORD_LEAVE ? 0 : rc;
	record_put(m, ino, r);
	return mtr_commit(m);
}

int record_change(struct volume *volume, uint64_t ino, const struct record_change *change,
		  void *arg, struct record *r)
{
	struct mtr *m;
	int rc = mtr_begin(volume, change->flags, &m);

	if (rc)
		return rc;
	record_want(m, ino);
	if (change->want)
		change->want(m, arg);
	do
		rc = change_once(volume, m, ino, change, arg, r);
	while (rc == -BE_AGAIN);
	mtr_end(m);
	return rc;
}

void record_changed(struct record *r, struct timespec now)
{
	r->ctime = now;
	r->change++;
}

void record_modified(struct record *r, struct timespec now)
{
	r->mtime = now;
	record_changed(r, now);
}

void record_gains_name(struct record *parent, bool directory, struct timespec now)
{
	parent->entries++;
	parent->nlink += directory;
	record_modified(parent, now);
}

void record_loses_name(struct record *parent, bool directory, struct timespec now)
{
	/* The counts come from the medium: wrong ones are fsck's, and must not wrap here. */
	parent->entries -= parent->entries > 0;
	parent->nlink -= directory && parent->nlink > 2;
	record_modified(parent, now);
}

void record_kill_suid(struct record *r, bool outsider)
{
	if (S_ISDIR(r->mode))
		return;
	r->mode &= ~(uint32_t)S_ISUID;
	if (outsider || r->mode & S_IXGRP)
		r->mode &= ~(uint32_t)S_ISGID;
}

static unsigned flags_of(const struct record *r)
{
	return (r->flags & INODE_IMMUTABLE ? CORE_FLAG_IMMUTABLE : 0) |
	       (r->flags & INODE_APPEND ? CORE_FLAG_APPEND : 0) |
	       (r->flags & INODE_NODUMP ? CORE_FLAG_NODUMP : 0) |
	       (r->flags & INODE_NOATIME ? CORE_FLAG_NOATIME : 0);
}

/*
 * Contents that lie in the record take no block; but tar, for one, takes a file of no
 * blocks for one hole without looking, so they count as what they would fill.
 */
static uint64_t blocks_512_of(const struct record *r)
{
	bool has_inline = S_ISREG(r->mode) && r->flags & INODE_INLINE;

	return r->blocks * BLOCK_SECTORS + (has_inline ? (r->tail_len + 511) / 512 : 0);
}

void record_attr(const struct record *r, uint64_t ino, struct core_attr *attr)
{
	*attr = (struct core_attr){
		.ino = ino,
		.mode = r->mode,
		.nlink = r->nlink,
		.uid = r->uid,
		.gid = r->gid,
		.rdev = r->rdev,
		.flags = flags_of(r),
		.size = S_ISDIR(r->mode) ? r->entries * DIR_ENTRY_BYTES : r->size,
		.blocks_512 = blocks_512_of(r),
		.change = r->change,
		.atime = r->atime,
		.mtime = r->mtime,
		.ctime = r->ctime,
		.btime = r->btime,
	};
}
