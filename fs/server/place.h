/*
 * Where to mount: the directory, what is mounted there already, unmounting.
 */
#ifndef BLINKFS_SERVER_PLACE_H
#define BLINKFS_SERVER_PLACE_H

#include "engine/base/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Makes *dir absolute and judges it: a directory, reachable.  A dead mount of
 * ours in the way is cleared.  On failure the reason has been told.
 */
int place_prepare(char **dir) must_check;

/* Where a volume is mounted in this mount namespace: its directory (to be freed) or NULL. */
char *place_of_volume(const char *volume_path);

/* Of all mounts in this namespace: is the one with this device number a blinkfs? */
bool place_is_volume(dev_t device);

/*
 * Unmounts as root or through fusermount3, while the server goes on serving:
 * the kernel writes back what it holds.  -EBUSY: somebody has files open.
 * detach: then too; those files go on until they are closed.
 */
int place_unmount(const char *dir, bool detach) must_check;

#endif
