/*
 * What is already on a file or device that is about to be formatted.
 */
#ifndef BLINKFS_MKFS_PROBE_H
#define BLINKFS_MKFS_PROBE_H

#include "engine/dev/device.h"

/*
 * 0: nothing that anybody recognises.  -EEXIST: `what` says which filesystem or
 * partition table is there.  Another negative errno: could not tell.
 */
#define PROBE_TEXT_BYTES 96
int probe_contents(struct device *dev, char what[PROBE_TEXT_BYTES]) must_check;

/*
 * Removes the signatures of what is there, wherever they lie, so that nothing
 * takes the volume for its predecessor.  blinkfs' own are left to
 * volume_format().
 */
int probe_wipe(struct device *dev) must_check;

#endif
