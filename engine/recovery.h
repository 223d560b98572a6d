/*
 * Recovery: from whatever a crash left to an open, appendable volume.
 *
 *	1. flush the device (a dead process may have left pages in the kernel's cache)
 *	2. one scan from the checkpoint: records grouped by page, without copying; what
 *	   they say about new data is kept where no mark covers it
 *	3. the cut: that data is verified, and the log ends before the first entry whose
 *	   data is missing (INV-LOG-5).  Below the cut, records of a page before its
 *	   FREE_PAGE or REC_PAGE_INIT are dropped (INV-REC-1)
 *	4. torn pages restored from the doublewrite area and flushed, before anything else
 *	5. redo, pages in parallel; pages whose first record initialises them are not
 *	   read.  Full batches are written back meanwhile, and where frames run out
 *	6. everything durably in place, then both checkpoint blocks with the new
 *	   epoch (INV-LOG-6); the superblock's log generation follows (INV-SB-3)
 *	7. the volume is open: incomplete splits completed, purge resumed
 *
 * A crash anywhere in it: run it again; steps 4 to 6 only repeat.
 *
 * Memory: the live part of the log, 16 bytes for each page record in it, some 300
 * for each page that it names, and the pool, which may be smaller than the pages.
 * Threads: two for each processor, at most RECOVERY_THREADS_MAX; none besides the
 * caller's where the options say no_background.  A recovery of more than two
 * seconds says how far it is.
 */
#ifndef BLINKFS_ENGINE_RECOVERY_H
#define BLINKFS_ENGINE_RECOVERY_H

#include "log/log.h"

struct volume;

/* Steps 1 to 6.  volume->log is open, pool and flusher exist.  *cut: where the log ended. */
int recovery_run(struct volume *volume, uint64_t new_generation, lsn_t *cut) must_check;

#endif
