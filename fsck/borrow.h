/*
 * A device over another one that stays open when this one is closed: a volume
 * closes its device, but fsck keeps the lock between its steps.
 */
#ifndef BLINKFS_FSCK_BORROW_H
#define BLINKFS_FSCK_BORROW_H

#include "engine/dev/device.h"

int borrow_device(struct device **out, struct device *base) must_check;

struct volume;
struct volume_options;
/* Opens a volume on borrowed devices; options->log_dev may be NULL. */
int borrow_volume(struct volume **out, struct device *base,
		  const struct volume_options *options) must_check;

#endif
