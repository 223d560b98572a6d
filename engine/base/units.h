/*
 * Sizes as people write them: 4096, 16K, 256M, 4G, 1.5T (powers of 1024).
 */
#ifndef BLINKFS_BASE_UNITS_H
#define BLINKFS_BASE_UNITS_H

#include "engine/base/check.h"

#include <stdint.h>

/*
 * 0, or -EINVAL (not a size) or -ERANGE (does not fit).  Suffixes in either
 * case; "iB" or "B" may follow.
 */
int size_parse(const char *text, uint64_t *bytes) must_check;

/* "16 KiB", "1.5 GiB": rounded down to one decimal. */
#define SIZE_TEXT_BYTES 24
const char *size_text(uint64_t bytes, char text[SIZE_TEXT_BYTES]);

#endif
