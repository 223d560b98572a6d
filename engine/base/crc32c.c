/*
 * CRC-32C by ISA-L, which takes an int length and leaves both inversions to
 * its caller.
 */
#include "engine/base/crc32c.h"

#include <isa-l/crc.h>

#define CHUNK_BYTES_MAX (1u << 30) /* below INT_MAX, and keeps alignment */

uint32_t crc32c(uint32_t seed, const void *data, size_t len)
{
	/* ISA-L's prototype lacks the const that it keeps to. */
	unsigned char *at = (unsigned char *)data;
	uint32_t crc = ~seed;

	while (len > 0) {
		size_t chunk = len < CHUNK_BYTES_MAX ? len : CHUNK_BYTES_MAX;

		crc = crc32_iscsi(at, (int)chunk, crc);
		at += chunk;
		len -= chunk;
	}
	return ~crc;
}
