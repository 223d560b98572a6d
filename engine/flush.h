/*
 * Writing dirty pages back, torn-page protection, checkpoints.
 *
 * One batch, in order:
 *	1. collect dirty frames, oldest first; copy each under its S latch (try;
 *	   a busy page is skipped), seal the CRC
 *	2. doublewrite: write the copies to slots; not those of pages that recovery
 *	   would build from their REC_PAGE_INIT on (INV-DW-2)
 *	3. INV-WAL-1: log_mark(highest page LSN): a durable mark covers them.  Its
 *	   flush makes the slots durable, too; else they get one of their own
 *	4. write in place, flush
 *	5. INV-POOL-1: frames leave the list unless changed since the copy, in
 *	   which case their oldest_lsn becomes that of the first such change
 *	6. checkpoint LSN = min(oldest on the list, log_unlisted_lsn()) (INV-LOG-2);
 *	   doublewrite slots are reused only after step 4's flush
 *
 * crash after 1, 2: in place old; a copy past the end of the log is not used,
 * and those that were in the slots before are not needed (INV-DW-1).
 * After 3: in place old, or torn by 4:
 * recovery restores the slot's copy, or does not read the page, and redoes.  After
 * 4: pages in place, redo skips by page LSN.
 *
 * One batch at a time ([lock: flusher]); callers other than the background
 * thread (unmount, ENOSPC drain, waiters for log space or frames) share it.
 */
#ifndef BLINKFS_ENGINE_FLUSH_H
#define BLINKFS_ENGINE_FLUSH_H

#include "log/log.h"

struct volume;
struct flusher;

/* Reads and writes the doublewrite area given by the volume's geometry. */
int flusher_open(struct flusher **out, struct volume *volume) must_check;
/*
 * Starts the background threads: one keeps frames clean and log space free, the
 * other one makes the log durable as it grows, and every commit_interval.
 */
int flusher_start(struct flusher *flusher) must_check;
void flusher_stop(struct flusher *flusher);
void flusher_close(struct flusher *flusher);

/*
 * Ask the background thread for work and do not wait.  Where no thread runs,
 * flusher_want_space() (log_set_space_callback()'s function) does the work
 * itself.
 */
void flusher_want_space(void *flusher, lsn_t below);
void flusher_want_frames(struct flusher *flusher);
/* After a commit: the log has grown to `lsn`.  Cheap; any latch may be held. */
void flusher_hear(struct flusher *flusher, lsn_t lsn);
/*
 * For pool_take_tickets(): as flusher_want_frames(), but where no thread runs,
 * writes one batch here.  *waits: the thread has been asked, wait for it.
 */
int flusher_clean_frames(struct flusher *flusher, bool *waits) must_check;

/* Writes every change below `below` in place, then a checkpoint.  May wait. */
int flush_until(struct flusher *flusher, lsn_t below) must_check;
/* Everything that is dirty now, and a checkpoint past it. */
int flush_everything(struct flusher *flusher) must_check;

/*
 * No batch and no checkpoint is under way between the two.  The caller waits for
 * nothing but the device meanwhile.
 */
void flusher_pause(struct flusher *flusher);
void flusher_resume(struct flusher *flusher);
/* log_scrub() once.  1: there is more; 0; or an error. */
int flusher_scrub(struct flusher *flusher) must_check;
/* Both checkpoint blocks follow, and all that they have passed is zeroed. */
int flusher_scrub_all(struct flusher *flusher) must_check;

/*
 * Recovery only (no log is open for appending): writes the dirty pages durably
 * in place through doublewrite.
 */
int flush_recovered(struct flusher *flusher) must_check;
/* Beside those who redo: one batch, if there is a full one.  1: it was written; 0; or an error. */
int flush_recovered_batch(struct flusher *flusher) must_check;

#endif
