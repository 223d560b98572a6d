/*
 * What the files of recovery share.  Other parts include recovery.h only.
 *
 *	recovery.c        the steps; threads; progress
 *	recovery_scan.c   steps 2 and 3: one pass over the log, then the cut
 *	recovery_table.c  page numbers and their records
 *	recovery_apply.c  steps 5 and 6: redo and write-back, in parallel
 */
#ifndef BLINKFS_ENGINE_RECOVERY_INTERNAL_H
#define BLINKFS_ENGINE_RECOVERY_INTERNAL_H

#include "engine/base/latch.h"
#include "engine/recovery.h"
#include "engine/volume.h"

#define RECOVERY_THREADS_MAX 16u
#define CHANGES_PER_CHUNK 15u
#define WRITER_LOOK_NS 2000000ull /* the time in which some pages are redone */

/* One page record, where the scan left it. */
struct change {
	lsn_t end : 63;        /* of its mtr */
	lsn_t voids : 1;       /* REC_PAGE_INIT or REC_FREE_PAGE: what came before is void */
	const uint8_t *record; /* its type byte */
};

struct change_chunk {
	struct change_chunk *next;
	struct change change[CHANGES_PER_CHUNK]; /* all in use, but in the last chunk */
};

struct page_changes {
	uint64_t pageno;
	struct page_changes *next; /* hash chain */
	struct change_chunk *first, *last;
	uint32_t last_count;       /* changes in the last chunk */
	/* Once the cut is fixed: what survives begins here; first == NULL when nothing does. */
	uint32_t begin;            /* in the first chunk */
	uint32_t count;
};

/* Pages by number, in memory taken in large pieces. */
struct change_table {
	struct page_changes **bucket;
	size_t bucket_count, page_count;
	struct table_piece *pieces;
	size_t piece_left;
	uint64_t changes;
};

/* An mtr whose data no mark covers yet. */
struct suspect {
	lsn_t start, end;
	uint64_t mtrs;       /* before it */
	uint64_t tally;
	const uint8_t *body; /* of its REC_DATA */
	size_t len;
};

struct recovery {
	struct volume *volume;
	struct change_table table;
	lsn_t cut;
	uint64_t mtrs;
	uint64_t tally;          /* as of the cut, or as far as scanned; 0: not known */

	/* scan */
	struct suspect *suspect; /* in LSN order */
	size_t suspect_count, suspect_cap;
	lsn_t malformed;         /* start of the first mtr that holds nonsense; UINT64_MAX: none */

	/* apply: what survives, by page number */
	struct page_changes **page;
	size_t page_count;
	struct latch latch;      /* volume->incomplete */
	_Atomic bool redone;
	struct waitq writer_queue;

	uint64_t started_ns, said_ns; /* progress; the caller's thread only */
};

/* --------------------------------------------------------------- recovery.c */

/*
 * Calls work(arg, i) for each i below count, from several threads where that is
 * of use, in about ascending order, until one does not return 0.  The result is
 * that of the lowest such i, in *failed; all below it have returned 0.  `what`:
 * for the line about progress, "42 of 100 <what>".
 */
int recovery_parallel(struct recovery *r, const char *what, size_t count,
		      int (*work)(void *arg, size_t i), void *arg, size_t *failed) must_check;
/* Is it time for a line about progress?  Asked by the thread that recovers only. */
bool recovery_speaks(struct recovery *r);

/* ---------------------------------------------------------- recovery_scan.c */

/* Fixes the cut; fills the table. */
int recovery_scan(struct recovery *r) must_check;

/* --------------------------------------------------------- recovery_table.c */

struct page_changes *table_find(const struct change_table *table, uint64_t pageno);
int table_add(struct change_table *table, uint64_t pageno, const struct change *change) must_check;
/*
 * INV-REC-1: drops the changes above the cut, and of the rest those that a later
 * FREE_PAGE or REC_PAGE_INIT makes void, and the FREE_PAGE itself.
 */
void table_settle(struct change_table *table, lsn_t cut);
void table_free(struct change_table *table);

/* --------------------------------------------------------- recovery_apply.c */

/* Redoes what the table holds and puts it durably in place. */
int recovery_apply(struct recovery *r) must_check;

#endif
