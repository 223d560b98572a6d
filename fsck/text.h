/*
 * Names and bytes as text for a terminal: what is not printable is escaped.
 */
#ifndef BLINKFS_FSCK_TEXT_H
#define BLINKFS_FSCK_TEXT_H

#include "engine/base/limits.h"

#include <stddef.h>
#include <stdint.h>

#define TEXT_NAME_BYTES (NAME_BYTES_MAX * 4u + 3u) /* quotes and NUL included */

/* "name" in double quotes, bytes below 32, 127, quote and backslash as \ooo; UTF-8 stays. */
void text_name(char out[TEXT_NAME_BYTES], const uint8_t *name, size_t len);
/* Hexadecimal; out has room for 2 * len + 1. */
void text_hex(char *out, const uint8_t *bytes, size_t len);

#endif
