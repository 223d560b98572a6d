/*
 * CRC-32C (Castagnoli), by the CPU's instruction through ISA-L.
 * crc32c(0, ...) starts; crc32c(previous, ...) goes on.  The conventional
 * pre- and post-inversion is included: crc32c(0, "123456789", 9) == 0xe3069283.
 */
#ifndef BLINKFS_BASE_CRC32C_H
#define BLINKFS_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(uint32_t seed, const void *data, size_t len);

#endif
