/*
 * Another size for the redo log of a volume that is in use.
 *
 *	                              superblock: log   other         bitmap
 *	take room                     old               -             -
 *	1. intent                     old               what is taken -
 *	2. its bits are set           old               what is taken set
 *	3. pre-written with zeros     old               what is taken set
 *	4. frozen: nothing changes; everything is put in place and checkpointed
 *	5. mount generation raised    old               what is taken set
 *	6. header, checkpoint blocks  old               what is taken set
 *	7. the switch                 new               what is left  set
 *	8. thawed
 *	9. its bits are cleared       new               what is left  clear
 *	10. done                      new               -             clear
 *
 * INV-LOG-10: blocks that the log is taking or giving up are named by the
 * superblock (`other`) from before their bits change until after; nobody else gets
 * them meanwhile.  Whatever a crash leaves, the blocks of `other` belong to nobody:
 * the next mount clears their bits, if they are set, and then forgets them.
 *
 * With an archive (archive.h, INV-ARCH-3): it catches up before 4, so that little is left
 * to do while nobody can write, and once more in 4; between 5 and 6 its file ends and
 * that of the new generation begins; it goes on before 8.
 *
 * The switch is one update of the superblock (INV-SB-1), which also raises the log
 * generation (INV-SB-3).  Before it the old log is the one to replay, empty or not;
 * after it the new one, which is empty (INV-LOG-8).  The pause is 4 to 7: what it
 * takes to write back the dirty pages, and some flushes.
 *
 * Where the new log goes: a log outside the groups stays there while it fits what
 * mkfs kept for it (home); else it takes one run of free blocks within a group, and
 * grows and shrinks there in place where it can; it comes home when it fits again.
 * An external log stays where it is: its file becomes longer or shorter, a block
 * device must be large enough.
 */
#ifndef BLINKFS_ENGINE_LOG_RESIZE_H
#define BLINKFS_ENGINE_LOG_RESIZE_H

#include "engine/base/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct volume;

#define LOG_RESIZE_TEXT_BYTES 192u

/*
 * `bytes` is rounded down to blocks.  May take long; nothing held.  On failure
 * `why` says what and what to do.
 *	-EINVAL   too small for this page size, or too large for any group
 *	-ENOSPC   no room in one piece
 *	-EBUSY    another resize is under way, a backup reads the log, or the archive
 *	          does not come to an end with what it has
 *	-EROFS, -EIO, -ENOMEM
 */
int log_resize(struct volume *volume, uint64_t bytes, char why[LOG_RESIZE_TEXT_BYTES]) must_check;

/*
 * A backup takes the superblock, the log from c to e, and the bitmaps as of e: between
 * forbid and allow no resize changes any of them.  False: one is under way; it wakes
 * volume->hold_queue when it has ended.
 */
bool log_resize_forbid(struct volume *volume) must_check;
void log_resize_allow(struct volume *volume);
/* The same for a volume that grows (grow.h); -EBUSY: `why` says who is at it. */
int log_resize_exclude(struct volume *volume, char why[LOG_RESIZE_TEXT_BYTES]) must_check;

/* While a volume is being opened, with its free map but before anybody uses it. */
int log_resize_settle(struct volume *volume) must_check;

#endif
