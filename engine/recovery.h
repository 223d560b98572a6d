/*
 * Recovery: from whatever a crash left to an open, appendable volume.
 *
 *	1. flush the device (a dead process may have left pages in the kernel's cache)
 *	2. checkpoint; first scan: the newest mark; data written past it is verified,
 *	   the log is cut before the first entry whose data is missing (INV-LOG-5)
 *	3. second scan, below the cut: records grouped by page, without copying;
 *	   records of a page before its FREE_PAGE or REC_PAGE_INIT are dropped (INV-REC-1)
 *	4. torn pages restored from the doublewrite area and flushed, before anything else
 *	5. redo, page by page; pages whose first record initialises them are not read
 *	6. everything durably in place, then both checkpoint blocks with the new
 *	   epoch (INV-LOG-6); the superblock's log generation follows (INV-SB-3)
 *	7. the volume is open: incomplete splits completed, purge resumed
 *
 * A crash anywhere in it: run it again; steps 4 and 5 only repeat.
 */
#ifndef BLINKFS_ENGINE_RECOVERY_H
#define BLINKFS_ENGINE_RECOVERY_H

#include "log/log.h"

struct volume;

/* Steps 1 to 6.  volume->log is open, pool and flusher exist.  *cut: where the log ended. */
int recovery_run(struct volume *volume, uint64_t new_generation, lsn_t *cut) must_check;

#endif
