/*
 * Which blocks of file data were written since the last backup of this mount.
 *
 * A leaf of the lob index that has changed names many blocks, of which most may be
 * old (backup_data.c).  When the base of an incremental backup is the one that
 * was made last, and in this mount, these bits tell the new ones apart.  They
 * are memory only: after a mount, or for an older base, the leaves alone decide.
 *
 * Two maps: one since the last backup, one since the present one has begun, which
 * takes its place when that is complete.
 *
 * INV-WRITTEN-1: a map that counts for LSN e has the bits of all blocks that an
 * mtr with an LSN above e published.  It was switched on before e was chosen, and
 * mtrs look for it after they have got their LSN: with one above e, they see it.
 * Blocks that the volume has gained since the maps were made count as written.
 * INV-WRITTEN-2: they set the bits before log_listed(): who waits until everything
 * up to an LSN is listed sees all of their bits.
 */
#ifndef BLINKFS_ENGINE_WRITTEN_H
#define BLINKFS_ENGINE_WRITTEN_H

#include "engine/base/check.h"
#include "log/log.h"

#include <stdatomic.h>
#include <stdbool.h>

struct written {
	_Atomic uint64_t *map[2];     /* allocated once, by the first backup; then constant */
	size_t words;
	_Atomic unsigned on;          /* bit i: map i is on */
	/* [of who holds volume->backing_up] */
	lsn_t lsn;                    /* map `current` has everything above it; 0 = none */
	unsigned current;
};

/* A backup begins, of a volume with so many blocks.  Without memory it goes on without. */
void written_begin(struct written *written, uint64_t block_count);
/* It is complete, as of lsn; or it is not (lsn 0), and the map of the last one stays. */
void written_end(struct written *written, lsn_t lsn);
/* Is there a map for a base of that LSN? */
bool written_knows(const struct written *written, lsn_t lsn);
/* Only after written_knows(), before written_end(). */
bool written_has(const struct written *written, uint64_t block);
/* By an mtr, between its LSN and log_listed(). */
void written_note(struct written *written, uint64_t start, uint32_t count);
void written_free(struct written *written);

#endif
