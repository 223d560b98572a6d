/* Shared by the files of the mini-transaction. */
#ifndef BLINKFS_ENGINE_MTR_INTERNAL_H
#define BLINKFS_ENGINE_MTR_INTERNAL_H

#include "engine/mtr.h"
#include "engine/redo.h"
#include "engine/tree_internal.h"

#define RANGE_PAGES_MAX 24u  /* leaves that one wanted range latches */
#define NOTES_MAX 4u         /* pages to tidy up after the commit */

struct want {
	unsigned index;
	bool range;
	struct key low, high;    /* a single key: low */
};

/* A leaf as it was located; latched only if its fences are still these. */
struct leaf {
	struct frame *frame;
	unsigned index;
	struct key low, high;
	bool latched;
	bool closes_range;       /* has the first entry >= a wanted range's high key */
	struct key range_high;
	unsigned first_edit, edit_count; /* commit: its part of the sorted edits */
};

struct edit {
	unsigned index;
	bool is_delete;
	bool grows;              /* commit: takes more of its leaf than is there now */
	struct key key;
	size_t value;            /* offset in mtr.values */
	size_t value_len;
};

struct bit_run {
	uint64_t start, count;   /* volume blocks, within one group */
	bool set;
};

struct data_run {
	uint64_t start;
	uint32_t count;
	size_t crcs;             /* offset in mtr.values */
};

struct bitmap {
	uint64_t pageno;
	struct frame *frame;     /* pinned by mtr_latch(), latched by mtr_commit() */
};

struct note {
	struct tree *tree;
	struct key key;
	bool incomplete;         /* else: sparse */
};

struct mtr {
	struct volume *volume;
	unsigned flags;

	/* Kept over retries. */
	unsigned want_count, range_count;
	unsigned unlogged_count; /* ranges that want_log speaks for */
	uint64_t want_log;       /* log bytes beyond what wanted keys and ranges bring */
	unsigned bitmap_count;
	bool want_system;
	unsigned want_exclusive; /* bits of indexes */
	unsigned tries;
	unsigned tickets;
	bool reserved;           /* redo has log bytes */
	unsigned note_count;
	lsn_t lsn;

	/* Since the last mtr_latch(). */
	bool latched;
	unsigned index_mask;     /* index latches held */
	unsigned exclusive_mask; /* of these, X */
	unsigned leaf_count;
	struct frame *system;

	/* Staged. */
	int error;               /* -ENOMEM while staging */
	struct edit *edit;
	unsigned edit_count, edit_cap;
	uint8_t *values;
	size_t values_len, values_cap;
	struct bit_run *bits;
	unsigned bits_count, bits_cap;
	struct data_run *data;
	unsigned data_count, data_cap;
	uint64_t counter[COUNTER_COUNT]; /* 0 = not staged */
	bool log_other;
	uint64_t log_other_start, log_other_count;

	/* From here on mtr_begin() zeroes nothing: counts and flags say what is there. */
	struct redo redo;
	struct want want[MTR_KEYS_MAX];
	struct bitmap bitmap[MTR_GROUPS_MAX]; /* ascending page numbers */
	struct note note[NOTES_MAX];
	struct leaf leaf[MTR_PAGES_MAX]; /* by index, then left to right */
};

/* Gives back tickets and log bytes (nothing latched). */
void mtr_unreserve(struct mtr *m);
/* Wants the bitmap page of a block; *added: it was not wanted yet.  -E2BIG: too many. */
int mtr_add_bitmap(struct mtr *m, uint64_t block, bool *added) must_check;
const struct bitmap *mtr_bitmap(const struct mtr *m, uint64_t block);
void mtr_note(struct mtr *m, unsigned index, const struct key *key, bool incomplete);

#endif
