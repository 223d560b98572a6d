/*
 * A volume that stands still while it is mounted, for whoever copies its device.
 *
 *	volume_freeze()   threads that change things by themselves are stopped;
 *	                  the log grants nothing more; what was granted is finished;
 *	                  all of it is put in place and checkpointed
 *	frozen            reading works; whoever wants to change something waits for the
 *	                  log, with the locks it has: the caller keeps such callers out
 *	volume_thaw()     the reverse
 *
 * INV-FREEZE-1: between the two nothing is written to the device of the volume nor to
 * that of its log, and what is there needs no recovery but for the mark "clean".
 * INV-FREEZE-2: a volume is thawed before it is closed.
 *
 * Excludes growing and resizing the log, and a backup's reading of the log.
 */
#ifndef BLINKFS_ENGINE_FREEZE_H
#define BLINKFS_ENGINE_FREEZE_H

#include "engine/log_resize.h"

#define FREEZE_TEXT_BYTES LOG_RESIZE_TEXT_BYTES

/*
 * May take as long as all that is dirty takes to be written; nothing held.  On failure
 * nothing is frozen, and `why` says what stands against it.
 *	-EBUSY    frozen already, the log is being resized, or a backup reads it
 *	-EROFS, -EIO
 */
int volume_freeze(struct volume *volume, char why[FREEZE_TEXT_BYTES]) must_check;
/* Reports a thread that could not be started again: its work waits for the next mount. */
void volume_thaw(struct volume *volume);

#endif
