/* Shared by the files of purge: its thread, its steps on LOBs and on inodes. */
#ifndef BLINKFS_ENGINE_PURGE_INTERNAL_H
#define BLINKFS_ENGINE_PURGE_INTERNAL_H

#include "engine/lob_internal.h"
#include "engine/purge.h"

#include "engine/volume.h"

/* A record of the purge index, decoded. */
struct purge_record {
	enum purge_kind kind;
	uint32_t count;
	uint64_t ino, lob, first, end;
};

/* 0, or -EIO after corrupt_at(). */
int purge_record_decode(struct volume *volume, const void *value, size_t len,
			struct purge_record *record) must_check;
/* 0, -BE_NOTFOUND, or -EIO after corrupt_at(). */
int purge_record_read(struct volume *volume, uint64_t number,
		      struct purge_record *record) must_check;
/* The same within an mtr that wants the record. */
int purge_record_lookup(struct mtr *m, uint64_t number, struct purge_record *record) must_check;
void purge_record_delete(struct mtr *m, uint64_t number);

static inline struct key purge_key(uint64_t number)
{
	struct key key = {.len = KEY_PURGE_BYTES};

	be64_put(key.bytes, number);
	return key;
}

/* What a step came to, besides 0 (go on with the record) and errors. */
enum {
	STEP_DONE = 1, /* the record is dealt with */
	STEP_BUSY = 2, /* not now */
	STEP_GONE = 3, /* the inode is deleted; read the record again */
};

/* One mtr: `stage` returns 0 to commit, STEP_DONE to leave it, or an error. */
struct change {
	void (*want)(struct mtr *m, void *arg);
	int (*stage)(struct mtr *m, void *arg);
	void *arg;
};
/* 0: committed.  -E2BIG: less at a time, please. */
int purge_change(struct volume *volume, const struct change *change) must_check;

/*
 * Runs `change` for the first part of [from, below) that one mtr can take out of
 * the LOB: *part, which it wants with lob_want_part().
 */
int purge_lob_part(struct volume *volume, uint64_t lob, uint64_t from, uint64_t below,
		   struct lob_part *part, const struct change *change) must_check;

/* Records next to each other in the queue, of LOBs that are freed together. */
#define PURGE_BATCH_LOBS 8u
struct purge_batch {
	struct {
		uint64_t number;
		struct purge_record seen;
		struct lob_part part;
	} lob[PURGE_BATCH_LOBS];
	unsigned count;
	uint64_t freed;
};
/* False: the record cannot be one of a batch, or this one is full. */
bool purge_batch_add(struct purge_batch *batch, uint64_t number, const struct purge_record *record);
/* 0: all are dealt with; -E2BIG: they have to be dealt with one by one. */
int purge_batch_step(struct volume *volume, struct purge_batch *batch) must_check;

/* One bounded mtr's worth of a record's work, each: 0, STEP_DONE, or an error. */
int purge_lob_step(struct volume *volume, uint64_t number,
		   const struct purge_record *seen) must_check;
int purge_extents_step(struct volume *volume, uint64_t number) must_check;
int purge_orphan_step(struct volume *volume, uint64_t number, uint64_t ino) must_check;
/* number 0: whatever record the inode names. */
int purge_dead_step(struct volume *volume, uint64_t number, uint64_t ino) must_check;

#endif
