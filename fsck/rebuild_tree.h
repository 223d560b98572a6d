/*
 * A new tree from entries in key order, written beside the old one; see rebuild.h.
 *
 *	build_begin()
 *	build_add() ...        ascending keys; leaves are written as they fill
 *	build_finish()         the levels above; the root stays in memory
 *	flush
 *	build_mark_used()      bits of the new pages
 *	flush
 *	build_switch()         the root, in its fixed place
 *	build_free()           always
 */
#ifndef BLINKFS_FSCK_REBUILD_TREE_H
#define BLINKFS_FSCK_REBUILD_TREE_H

#include "fsck/raw.h"

#include <stdbool.h>

struct build_space {
	const struct raw_volume *raw;
	uint64_t *used;    /* one bit a block from groups_start; taken pages are added */
	const bool *known; /* by group: its bitmap page can be changed */
	uint64_t lsn;      /* of new pages */
	uint64_t next;     /* page number to try next; 0 = the first */
};

/* The page of a level that is being filled. */
struct build_level {
	uint8_t *page;   /* NULL: the level has not begun */
	uint64_t pageno; /* 0: none yet; the first page of a level may become the root */
	bool closed_any;
	struct raw_key low;
};

struct build {
	struct build_space *space;
	unsigned index;
	uint8_t *body; /* of a redo record */
	struct build_level level[TREE_LEVELS_MAX];
	uint64_t *taken; /* page numbers */
	size_t taken_count, taken_room;
	uint8_t *root; /* after build_finish(): one of the levels' pages */
};

int build_begin(struct build *build, struct build_space *space, unsigned index) must_check;
int build_add(struct build *build, const struct raw_entry *entry) must_check;
int build_finish(struct build *build) must_check;
int build_mark_used(struct build *build) must_check;
int build_switch(struct build *build) must_check;
void build_free(struct build *build);

/* A page of raw bytes is sealed and written. */
int build_write(const struct raw_volume *raw, uint8_t *page, uint64_t pageno,
		uint64_t lsn) must_check;

#endif
