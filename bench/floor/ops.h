/*
 * FUSE operations of the floor server.
 */
#ifndef BLINKFS_BENCH_FLOOR_OPS_H
#define BLINKFS_BENCH_FLOOR_OPS_H

#define FUSE_USE_VERSION 314

#include "bench/floor/tree.h"

#include <fuse_lowlevel.h>

extern const struct fuse_lowlevel_ops floor_ops;

#endif
