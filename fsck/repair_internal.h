/*
 * What the repairs by mini-transactions share.  Each fix is one of them, or a
 * sequence of which each leaves the volume no worse; a fix that finds the
 * record gone, or as it should be, does nothing: another one of its round was
 * faster.
 */
#ifndef BLINKFS_FSCK_REPAIR_INTERNAL_H
#define BLINKFS_FSCK_REPAIR_INTERNAL_H

#include "fsck/check.h"

#include "engine/format.h"
#include "engine/mtr.h"
#include "engine/volume.h"

#include <stdbool.h>

/* An inode record in an mtr: the struct and the inline bytes behind it. */
struct inode_edit {
	uint8_t key[KEY_INODE_BYTES];
	struct disk_inode head;
	uint8_t bytes[sizeof(struct disk_inode) + INLINE_BYTES_MAX(PAGE_SIZE_MAX)];
	size_t len;
};

void want_inode(struct mtr *m, uint64_t ino);
/* -BE_NOTFOUND: there is none. */
int get_inode(struct mtr *m, uint64_t ino, struct inode_edit *edit) must_check;
void put_inode(struct mtr *m, struct inode_edit *edit);
/* The head of inode `ino` as it is now; nothing latched. */
int read_inode(struct volume *volume, uint64_t ino, struct disk_inode *inode) must_check;
/* A new record, all times being now. */
void new_inode(struct inode_edit *edit, uint64_t ino, uint32_t mode, uint32_t nlink,
	       uint64_t parent);

/*
 * One mini-transaction: `want` declares, `stage` stages.  stage returns 0, an
 * error, or REPAIR_NOTHING when there is nothing to do, which is a success.
 */
#define REPAIR_NOTHING 1
struct repair_mtr {
	void (*want)(struct mtr *m, void *arg);
	int (*stage)(struct mtr *m, void *arg);
	void *arg;
};
int repair_mtr(struct volume *volume, const struct repair_mtr *work) must_check;

/* The purge record of an inode that has names: gone, or that of its dead range again. */
int unorphan(struct mtr *m, uint64_t ino, struct disk_inode *inode) must_check;

/* Blocks of a LOB, and the file block behind its last. */
int measure_lob(struct volume *volume, uint64_t lob, uint64_t *blocks, uint64_t *end) must_check;

/* The makers of single fixes. */
int repair_inode_fields(struct volume *volume, const struct fsck_fix *fix) must_check;
int repair_record(struct volume *volume, const struct fsck_fix *fix) must_check;
int repair_rename(struct volume *volume, const struct fsck_fix *fix) must_check;
int repair_make_dir(struct volume *volume, uint64_t ino) must_check;
int repair_reconnect(struct volume *volume, const struct fsck_fix *fix) must_check;
int repair_adopt(struct volume *volume, const struct fsck_fix *fix) must_check;
int repair_drop_xattr(struct volume *volume, const struct fsck_fix *fix) must_check;
int repair_copy(struct volume *volume, const struct fsck_fix *fix) must_check;

#endif
