/* Whole transfers from and to ordinary files: archives, backups.  Volumes are devices. */
#ifndef BLINKFS_BASE_FILEIO_H
#define BLINKFS_BASE_FILEIO_H

#include "engine/base/check.h"

#include <stddef.h>
#include <stdint.h>

/* 0, a negative errno, or -BE_TRUNCATED when the file ends before. */
int file_read_at(int fd, void *buf, size_t len, uint64_t offset) must_check;
int file_write_at(int fd, const void *buf, size_t len, uint64_t offset) must_check;

/* Makes the name durable, or that it has gone. */
int file_sync_parent(const char *path) must_check;

#endif
