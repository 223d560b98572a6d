/*
 * The doublewrite area: a durable copy of each page while it is being written
 * in place, so that a torn page can be restored.
 *
 * It is an array of dw_slots pages with no head of its own: each page names
 * itself, and a copy that is torn or of another volume does not verify.
 */
#ifndef BLINKFS_ENGINE_DOUBLEWRITE_H
#define BLINKFS_ENGINE_DOUBLEWRITE_H

#include "log/log.h"

#include <stdbool.h>

struct volume;

/*
 * Writes `count` (<= dw_slots) sealed pages into slots 0, 1, ...  The pages that
 * were in the slots must be durably in place.  Durable after dev_flush(), or
 * dev_flush_up_to() with the device's count of writes.
 */
int doublewrite_write(struct volume *volume, const void *pages, uint32_t count) must_check;

/*
 * INV-REC-1.  Restores torn pages: a page whose copy in a slot is valid, names a
 * page of this volume, has checkpoint_lsn <= page LSN <= cut, and for which
 * survives() is true (the log has records of it to apply), but which is invalid
 * in place, is replaced by its copy with the highest LSN.  Durable on return.
 */
int doublewrite_restore(struct volume *volume, lsn_t checkpoint_lsn, lsn_t cut,
			bool (*survives)(void *arg, uint64_t pageno), void *arg) must_check;

#endif
