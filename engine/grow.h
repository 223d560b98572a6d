/*
 * A larger volume, while it is in use.
 *
 *	                                      superblock   in memory
 *	0. the device is large enough         old          old
 *	1. bitmap pages of the new groups     old          old
 *	2. the switch                         new          old
 *	3. the old copy is zeros              new          old
 *	4. REC_VOLUME_SIZE in the log         new          new size
 *	5. the new blocks are free            new          new
 *
 * INV-GROW-1: nobody gets a block beyond the old end before 5, so until then nothing
 * refers there; what is there is unspecified but for 1, which becomes durable with the
 * new copy, before block 0 is touched.  Bits of a last group that was shorter are clear
 * behind its end, on the medium.
 * INV-GROW-2: the switch is one update of the superblock (INV-SB-1), whose copy has its
 * place at the new end.  The old copy is not touched before it is durable, so one of
 *
 *	crash after              block 0   old copy   new copy   taken
 *	1                        old       old        -          block 0, old
 *	part of the new copy     old       old        broken     block 0, old
 *	the new copy             old       old        new        block 0, old
 *	part of block 0          broken    old        new        that which its remains name
 *	block 0                  new       old        new        block 0, new
 *
 * is always there.  A new copy that was left behind by a crash, which no block 0 names,
 * could be taken for the volume if block 0 were lost as a whole later on; the next mount
 * zeroes it before it changes the superblock (superblock_forget_larger()).
 * INV-GROW-3: where the old copy lies in the first new bitmap page, the volume grows in
 * two steps, the first of which only moves the copy behind that page.
 * INV-GROW-4: in the log of a generation REC_VOLUME_SIZE comes before the first record
 * that names a new block; a generation that begins later has the size in the header of
 * its archive file.  So a restore knows the size before it needs it.
 *
 * Growing and resizing the log exclude each other, and either excludes the part of a
 * backup that reads the log (INV-BAK-4).
 */
#ifndef BLINKFS_ENGINE_GROW_H
#define BLINKFS_ENGINE_GROW_H

#include "engine/log_resize.h"

struct device;
struct geometry;

#define GROW_TEXT_BYTES LOG_RESIZE_TEXT_BYTES

/*
 * To `bytes`, rounded down to blocks; 0: all of the device.  A file is extended where it
 * is shorter.  May take long; nothing held.  0: done, and text is empty, or it says that
 * there was nothing to do.  On failure it says why and what to do.
 *	-EINVAL   smaller than it is
 *	-EFBIG    larger than any volume
 *	-ENOSPC   the device is not that large
 *	-EBUSY    the log is being resized, or a backup reads it
 *	-EROFS, -EIO, -ENOMEM, or what extending the file gave
 */
int volume_grow(struct volume *volume, uint64_t bytes, char text[GROW_TEXT_BYTES]) must_check;

/* The groups that a volume of so many blocks has; the rest of the geometry is given. */
int geometry_set_size(struct geometry *geo, uint64_t block_count) must_check;

#endif
