/* Directories of a mounted volume, for commands. */
#ifndef BLINKFS_SERVER_MOUNTED_H
#define BLINKFS_SERVER_MOUNTED_H

#include "engine/base/check.h"

/*
 * Opens a directory of a mounted blinkfs volume: the descriptor, or -1 and what is
 * wrong with it has been said.
 */
int mounted_open(const char *dir) must_check;

#endif
