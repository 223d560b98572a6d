/*
 * What the files of the core share: the struct, the frame around each change,
 * locks on several inodes.
 *
 * An operation that changes something has this shape:
 *
 *	core_change(core, view, once, args)      retries of all kinds, nothing held
 *	  once: locks (rename, inodes by ino, one range)
 *	        reads what it has to know (record_read(), name_find(), cursors)
 *	        id_take(), lob_prepare()
 *	        mtr_begin(); wants
 *	        do { mtr_latch(); records again; edits; } while (mtr_commit() == -BE_AGAIN)
 *	        (or record_change(), which is this for one record)
 *	        releases in reverse
 *
 * Codes that `once` may return besides errors:
 *	-BE_AGAIN  what was read before the locks is different under them (INV-LOCK-1)
 *	-ENOSPC    core_change() drains, holding nothing (INV-LOCK-3), and starts again
 */
#ifndef BLINKFS_FS_CORE_INTERNAL_H
#define BLINKFS_FS_CORE_INTERNAL_H

#include "engine/base/error.h"
#include "engine/base/message.h"
#include "engine/purge.h"
#include "engine/space.h"
#include "fs/census.h"
#include "fs/core.h"
#include "fs/inode_table.h"
#include "fs/record.h"

#include <errno.h>

#define LOCKED_INODES_MAX 4u  /* rename: two parents, what moves, what it replaces */
#define RESTARTS_MAX 1000u    /* each means that another operation made progress meanwhile */
#define DRAIN_ROUNDS_MAX 64u  /* each freed something, which others may have taken */

struct core {
	struct volume *volume;
	struct inode_table table;
	struct latch rename_lock; /* RANK_RENAME: X while a directory changes its parent */
	struct census census;
	struct inode_hand hand; /* of core_idle_inodes() */
};

/* Is `view` one that exists? */
int core_view(view_t view) must_check;

/* What file data may still take, the freed but not yet reusable blocks included. */
uint64_t core_available(struct core *core);
/* INV-LOCK-3, nothing held: true when somebody who got -ENOSPC may try again. */
bool core_drained(struct core *core);

typedef int (*core_once)(struct core *core, void *args);
/* Runs `once` until it is done; returns the public form of its result. */
int core_change(struct core *core, view_t view, core_once once, void *args) must_check;

/* --- look-up counts ------------------------------------------------------ */

/*
 * (+1), then reads the record (INV-INODE-3): -ENOENT, and no count, when the
 * inode is missing or has no name left.
 */
int core_attach(struct core *core, uint64_t ino, struct record *record) must_check;

/* What a caller is told of an inode whose record this is. */
void core_attr_fill(struct core *core, const struct record *record, uint64_t ino,
		    struct core_attr *attr);

/* --- locks on inodes ----------------------------------------------------- */

struct lock_set {
	struct inode *inode[LOCKED_INODES_MAX]; /* by ino, each once */
	unsigned count;
};
/* Pins and locks X, in order of ino; the same ino may come twice, 0 is skipped. */
int lock_inodes(struct core *core, const uint64_t *inos, unsigned count,
		struct lock_set *set) must_check;
void unlock_inodes(struct core *core, struct lock_set *set);
/* One inode, S or X. */
int lock_inode(struct core *core, uint64_t ino, bool exclusive, struct inode **out) must_check;
void unlock_inode(struct core *core, struct inode *inode, bool exclusive);

/* Before the commit that changes its link count, the inode locked X (INV-INODE-5). */
void core_links_change(const struct lock_set *set, uint64_t ino);
/* After the commit that took the last name, the inode still locked X (INV-INODE-4). */
void core_orphaned(const struct lock_set *set, uint64_t ino);

/* --- reading contents of LOBs (data.c) ----------------------------------- */

struct lob_source {
	uint64_t ino;                   /* for messages */
	uint64_t lob;
	uint64_t dead_first, dead_end;  /* reads as a hole */
};
/*
 * Blocks [first, first + count) while a lock keeps the mapping as it is.
 * *hole (may be NULL): nothing is stored there.
 */
int contents_read(struct core *core, const struct lob_source *source, uint64_t first,
		  uint64_t count, void *buf, bool *hole) must_check;

/* --- new inodes, shared by create and rename (create.c) ------------------ */

/* A number for one. */
int ino_take(struct core *core, uint64_t *ino) must_check;
/* What the record of one begins as. */
void record_begin(const struct core_cred *cred, uint32_t mode, const struct record *parent,
		  struct timespec now, struct record *out);

/* --- removal, shared by unlink, rmdir and rename (remove.c) -------------- */

/* Takes a purge key for an inode that may lose its last name, unless its record has one. */
int orphan_key(struct core *core, const struct record *record, uint64_t *key) must_check;
/* Stages "no name left": nlink 0 and the purge record. */
void orphan_stage(struct mtr *m, uint64_t ino, struct record *record, uint64_t key);

/* 0 or -ENOTEMPTY; stands while the directory is locked. */
int directory_is_empty(struct core *core, uint64_t ino) must_check;

/* --- attributes (attr.c, truncate.c) ------------------------------------- */

struct acl_place;
struct setattr_args {
	struct core *core;
	uint64_t ino;
	unsigned set;
	struct core_attr *attr; /* in and out */
	struct acl_place *acl;  /* the access ACL, which follows the mode (INV-ACL-3) */
};
/* The inode being locked X: finds the ACL out. */
int setattr_prepare(struct core *core, const struct setattr_args *args) must_check;
/* In each mini-transaction that applies them: what it touches; the changes. */
void setattr_want(const struct setattr_args *args, struct mtr *m);
void setattr_apply(const struct setattr_args *args, struct mtr *m, struct record *record,
		   struct timespec now);
int truncate_once(struct core *core, void *setattr_args) must_check;

/* A change of the record takes the kept access time along (INV-INODE-7); once it has committed. */
void atime_fold(struct core *core, const struct inode *inode, struct record *record);
void atime_folded(struct core *core, const struct inode *inode, const struct record *record);
/* Writes an inode's; all.  Without success they are lost, which only a crash should. */
void atime_write_kept(struct core *core, uint64_t ino);
void atime_write_all(struct core *core);

#endif
