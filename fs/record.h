/*
 * Inode records: struct disk_inode and what follows it, decoded.
 *
 * A record comes from the medium, so decoding judges every field that
 * the core relies on.
 *
 *	INV-RECORD-1  INODE_INLINE is set exactly when bytes follow the struct; then
 *	              lob is 0 and the bytes are no more than the size
 *	INV-RECORD-2  a pending dead range lies in a LOB and has a purge record
 *	INV-RECORD-3  bytes of the last block past the size are zero
 */
#ifndef BLINKFS_FS_RECORD_H
#define BLINKFS_FS_RECORD_H

#include "engine/format.h"
#include "engine/mtr.h"
#include "fs/core.h"

struct record {
	uint32_t mode, nlink, uid, gid, rdev, flags, projid, xattr_count;
	uint64_t size, blocks, lob, parent, change;
	uint64_t dead_first, dead_end, purge_key, entries;
	struct timespec atime, mtime, ctime, btime;
	uint32_t tail_len;    /* inline contents or symlink target */
	const uint8_t *tail;  /* NULL when only the head was read */
};

#define INLINE_BYTES_LIMIT INLINE_BYTES_MAX(PAGE_SIZE_MAX)

/* Storage of a whole record: record_read() leaves record->tail pointing into it. */
struct record_buffer {
	uint8_t bytes[sizeof(struct disk_inode) + INLINE_BYTES_LIMIT];
};

/*
 * Reads inode `ino` as it is now: -ENOENT when there is none.  Without a buffer
 * only the head is read.
 */
int record_read(struct volume *volume, uint64_t ino, struct record *record,
		struct record_buffer *buffer) must_check;

void record_want(struct mtr *m, uint64_t ino);
/* In the latched leaf; record->tail points into the page. */
int record_get(struct volume *volume, struct mtr *m, uint64_t ino,
	       struct record *record) must_check;
void record_put(struct mtr *m, uint64_t ino, const struct record *record);

/*
 * One mini-transaction that changes one record, and what goes with it; the caller
 * holds the lock that keeps others from it.
 */
struct record_change {
	unsigned flags; /* of mtr_begin() */
	/* What will be touched besides the record; NULL: nothing. */
	void (*want)(struct mtr *m, void *arg);
	/*
	 * Stages the rest and changes *record, which is as the leaf has it, to be put.
	 * Called for each try.  RECORD_LEAVE: there is nothing to do, which is a success.
	 */
	int (*stage)(struct mtr *m, struct record *record, void *arg);
};
#define RECORD_LEAVE 1
/* On success *record is what has been committed, or found. */
int record_change(struct volume *volume, uint64_t ino, const struct record_change *change,
		  void *arg, struct record *record) must_check;

static inline bool record_has_dead(const struct record *record)
{
	return record->dead_first < record->dead_end;
}

/*
 * INV-FLAG-1: what flags forbid is -EPERM in each operation of the core, judged
 * under the lock that the operation holds (and core_set_flags() holds X).
 */
static inline bool record_is_immutable(const struct record *record)
{
	return record->flags & INODE_IMMUTABLE;
}

static inline bool record_is_append(const struct record *record)
{
	return record->flags & INODE_APPEND;
}

/* Neither it nor its attributes change, and its names stay. */
static inline bool record_is_frozen(const struct record *record)
{
	return record->flags & (INODE_IMMUTABLE | INODE_APPEND);
}

/* Something about the inode changed: ctime.  Its contents: mtime as well. */
void record_changed(struct record *record, struct timespec now);
void record_modified(struct record *record, struct timespec now);
/* A directory's record gets or loses a name: of a directory or of something else. */
void record_gains_name(struct record *parent, bool directory, struct timespec now);
void record_loses_name(struct record *parent, bool directory, struct timespec now);
/* Clears setuid, and setgid where group-executable, or when an outsider changes it. */
void record_kill_suid(struct record *record, bool outsider);

void record_attr(const struct record *record, uint64_t ino, struct core_attr *attr);

#endif
