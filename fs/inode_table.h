/*
 * In-memory inodes: locks and look-up counts, no attributes but one: a newer time
 * of access than the record has.
 *
 * An entry exists while somebody uses it (a pin: for the length of a call) or
 * while it is looked up (the kernel's count):
 *
 *	inode_pin()  -> users > 0 -> inode_unpin()
 *	inode_looked_up() -> lookups > 0 -> inode_forget()
 *	both zero: the entry is freed; when it is an orphan, purge is told
 *
 *	INV-INODE-1  an entry is in the table exactly while users + lookups > 0
 *	INV-INODE-2  who holds the lock or a range of an entry has pinned it
 *	INV-INODE-3  purge reclaims an orphan only while it holds the lock X and the
 *	             look-up count is zero; a look-up raises the count first and reads
 *	             the inode's record after, so it sees an inode that purge cannot
 *	             take, or none
 *	INV-INODE-4  `orphan` is set, under the lock X, after the mini-transaction
 *	             that takes the last name has committed; the entry is pinned then,
 *	             so the last to let go of it sees the flag
 *
 *	INV-INODE-5  `links_changed` is set, under the lock X, before a mini-transaction
 *	             that changes a file's link count and leaves it above zero.  Linux
 *	             counts a cached inode's links by itself when it unlinks, so an answer
 *	             that crosses that of an unlink could be counted twice and leave a
 *	             file that has a name with no links; for LINKS_SETTLE_NS nobody is
 *	             told to cache them
 *	INV-INODE-6  `linkable` is set, under the lock X, for an orphan that never had a
 *	             name and may get one; it goes with the first name.  The entry
 *	             lives as long as the look-up that made it, so no record needs it
 *	INV-INODE-7  a kept access time is newer than the record's.  It is in the record
 *	             before the last look-up is forgotten and before the table goes; or
 *	             gone, when atime was set explicitly.  Only a crash loses it
 *	INV-INODE-9  `shortage` is raised by a write-back that found no room, and goes
 *	             when something has come free since (fs/shortage.c)
 *	INV-INODE-10 `attr_kept` is when, after the last change of links and settled from
 *	             it, somebody who must hear of a shortage was given attributes that
 *	             may be cached; until then a question for them need not be a write's
 *
 * Bound: pins are at most four a thread; look-ups are the kernel's, who limits them
 * by its memory.  A limit can be set: when there are more entries, somebody is told,
 * who may ask for some that were not used lately and have the kernel forget them:
 *
 *	INV-INODE-8  `over_limit` is called by the insertion that goes past `alarm`; so
 *	             it is not called for each one while the kernel cannot let go of
 *	             enough: the next alarm is a step above what is left (and who was
 *	             told looks again later)
 */
#ifndef BLINKFS_FS_INODE_TABLE_H
#define BLINKFS_FS_INODE_TABLE_H

#include "engine/base/latch.h"
#include "fs/range_lock.h"

#include <time.h>

#define INODE_SHARDS 64u
#define LINKS_SETTLE_NS 10000000000u /* requests that crossed have been answered by then */

struct inode {
	uint64_t ino;
	struct latch lock;            /* RANK_INODE, by ino: held over I/O and waits */
	struct range_lock_set ranges;
	_Atomic uint64_t near_block;  /* volume block behind the last write: only a hint */
	_Atomic bool orphan;          /* INV-INODE-4 */
	_Atomic uint64_t links_changed; /* os_mono_ns(), 0: never (INV-INODE-5) */
	_Atomic bool linkable;        /* INV-INODE-6 */
	_Atomic uint64_t shortage;    /* blocks available then, plus one; 0: none (INV-INODE-9) */
	_Atomic uint64_t attr_kept;   /* os_mono_ns(), 0: never (INV-INODE-10) */
	_Atomic bool used;            /* since the clock hand passed; a hint */
	_Atomic bool atime_kept;      /* [changed under lock: shard] */
	struct timespec atime;        /* INV-INODE-7, when atime_kept [lock: shard] */
	uint64_t lookups;             /* [lock: shard] */
	uint32_t users;               /* [lock: shard] */
	struct inode *next;           /* [lock: shard] */
};

struct inode_shard {
	_Alignas(64) struct latch latch; /* RANK_LEAF */
	struct inode **bucket;           /* [lock: latch] */
	uint32_t buckets;                /* power of two [lock: latch] */
	uint32_t count;                  /* [lock: latch] */
	uint64_t lookups;                /* of all entries [lock: latch] */
};

struct inode_table {
	struct inode_shard shard[INODE_SHARDS];
	/* Called, nothing held by the table, when an orphan has become idle. */
	void (*orphan_idle)(void *arg);
	void *arg;
	_Atomic uint64_t count;  /* of all shards */
	/* INV-INODE-8 */
	_Atomic uint64_t limit;  /* 0: none; set once */
	_Atomic uint64_t alarm;
	void (*over_limit)(void *arg);
	void *over_arg;
};

int inode_table_init(struct inode_table *table, void (*orphan_idle)(void *arg),
		     void *arg) must_check;
/* Drops all entries; nobody may have pinned any. */
void inode_table_destroy(struct inode_table *table);
uint64_t inode_table_count(struct inode_table *table);
/* Once.  over_limit may be called with inode locks held, until the table goes: it only notes. */
void inode_table_set_limit(struct inode_table *table, uint64_t limit, void (*over_limit)(void *arg),
			   void *arg);
/*
 * Up to `max` numbers of entries that are looked up and were not used since the hand
 * passed last (clock).  One caller at a time; once round the table at most.
 */
struct inode_hand {
	unsigned shard;
	uint32_t bucket;
};
unsigned inode_table_idle(struct inode_table *table, struct inode_hand *hand, uint64_t *inos,
			  unsigned max);
/* How many should go now; sets the next alarm. */
uint64_t inode_table_excess(struct inode_table *table);
/* All look-ups that have not been forgotten. */
uint64_t inode_table_lookups(struct inode_table *table);

/* Finds or makes the entry: -ENOMEM. */
int inode_pin(struct inode_table *table, uint64_t ino, struct inode **out) must_check;
void inode_unpin(struct inode_table *table, struct inode *inode);
/* Raises the look-up count of a pinned inode. */
void inode_looked_up(struct inode_table *table, struct inode *inode);
/* An unknown inode, or a count below zero, is the caller's mistake and does no harm. */
void inode_forget(struct inode_table *table, uint64_t ino, uint64_t count);
/* INV-INODE-5: its links have not changed lately, as far as the table knows. */
bool inode_links_settled(struct inode_table *table, uint64_t ino);

/* INV-INODE-7.  False: nobody has looked the inode up, so it could be forgotten at once. */
bool inode_keep_atime(struct inode_table *table, uint64_t ino, struct timespec atime);
bool inode_kept_atime(struct inode_table *table, uint64_t ino, struct timespec *atime);
/* The record has it (or a later one has come meanwhile, which stays). */
void inode_atime_written(struct inode_table *table, uint64_t ino, struct timespec atime);
/* An explicit one takes its place. */
void inode_drop_atime(struct inode_table *table, uint64_t ino);
/* Would this forget lose one? */
bool inode_forget_loses_atime(struct inode_table *table, uint64_t ino, uint64_t count,
			      struct timespec *atime);
/* Takes out all of them, one a call, when nobody else uses the table; false: no more. */
struct atime_cursor {
	unsigned shard;
	uint32_t bucket;
};
bool inode_take_atime(struct inode_table *table, struct atime_cursor *at, uint64_t *ino,
		      struct timespec *atime);

uint64_t inode_lookups(struct inode_table *table, struct inode *inode);

#endif
