/*
 * Building anew what cannot be read: an index from its leaves, the system page
 * from the greatest numbers in use.
 *
 * An index:
 *
 *	1. All pages that are marked as used and belong to no file are read; those
 *	   that call themselves leaves of the index are its candidates, whoever
 *	   refers to them, or nobody.
 *	2. Each key belongs to the newest candidate whose fences cover it: so a left
 *	   half that missed its split, or a copy from an earlier attempt of this
 *	   repair, gives way to what replaced it.
 *	3. New leaves and the levels above them are written where nothing is; flush.
 *	4. Their bits are set; flush.
 *	5. The root, whose place is fixed, is replaced; flush.
 *
 * INV-FSCK-3: until step 5 the old tree is untouched, and the new leaves say
 * the same as the old ones.
 *
 *	crash after        the next run finds
 *	3                  the old tree; the new pages are in no bitmap
 *	4, or a part       the old tree, and leaks; as candidates they change nothing
 *	5, torn            a root that is broken: candidates are old and new leaves
 *	5                  the new tree; the old pages are leaks
 *
 * The space of the old pages comes back as leaks, in a later round.
 */
#ifndef BLINKFS_FSCK_REBUILD_H
#define BLINKFS_FSCK_REBUILD_H

#include "fsck/repair.h"

/* -ENOSPC: there is no room beside the old pages; nothing was changed. */
int rebuild_index(struct device *dev, const struct repair_round *round, unsigned index) must_check;
int rebuild_system(struct device *dev, const struct repair_round *round) must_check;

#endif
