/*
 * Leaves, read ahead of the walk and judged by themselves, by several threads.
 *
 * The walk names the children of a page and gets them back in that order, a batch at a
 * time.  A batch is read in one go, and each page of it verified (checksum, identity,
 * structure), by whoever comes first: a thread of the reader's, or the walk itself when
 * it gets there before them.  With one thread the walk does it all.
 *
 * INV-FSCK-4: what the threads do depends on the bytes alone.  They claim nothing, report
 * nothing, and look at no other page; so the walk finds the same, in the same order,
 * whatever their number and that of the pages in a batch.  A page that the walk then
 * refuses to enter was read in vain.
 */
#ifndef BLINKFS_FSCK_AHEAD_H
#define BLINKFS_FSCK_AHEAD_H

#include "fsck/raw.h"

#define AHEAD_BYTES (512u << 10) /* of a batch */
#define AHEAD_PAGES (AHEAD_BYTES / PAGE_SIZE_MIN)
#define AHEAD_THREADS_MAX 64u

struct ahead;

struct ahead_batch {
	unsigned count;  /* of pages */
	uint8_t *pages;
	int error;       /* -ENOMEM: nothing was read */
	struct {
		int rc;          /* as raw_read_page() */
		const char *why; /* constant */
	} page[AHEAD_PAGES];
};

/* threads: the walk's own included.  They are started when there is work for them. */
int ahead_open(struct ahead **out, const struct raw_volume *raw, unsigned threads) must_check;
void ahead_close(struct ahead *ahead); /* NULL is allowed; ends what is under way */

/* The pages that come; `pageno` stays until the last batch was taken.  Others are forgotten. */
void ahead_begin(struct ahead *ahead, const uint64_t *pageno, size_t count);
/* The next batch, valid until ahead_done(); there is one more. */
const struct ahead_batch *ahead_next(struct ahead *ahead);
void ahead_done(struct ahead *ahead);

#endif
