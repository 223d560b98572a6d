/*
 * On-disk integers: little-endian, wrapped in one-member structs so that the
 * compiler rejects arithmetic on an unconverted value.  No alignment needed.
 * Keys of the indexes are big-endian byte strings, so that memcmp() orders
 * them: be64_put() and be64_get().
 */
#ifndef BLINKFS_BASE_ENDIAN_H
#define BLINKFS_BASE_ENDIAN_H

#include <stdint.h>
#include <string.h>

typedef struct { uint8_t b[2]; } le16;
typedef struct { uint8_t b[4]; } le32;
typedef struct { uint8_t b[8]; } le64;

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "only little-endian hosts are supported"
#endif

#define DEFINE_LE(bits)                                                        \
	static inline uint##bits##_t le##bits##_get(le##bits v)                \
	{                                                                      \
		uint##bits##_t x;                                              \
		memcpy(&x, v.b, sizeof(x));                                    \
		return x;                                                      \
	}                                                                      \
	static inline le##bits le##bits##_make(uint##bits##_t x)               \
	{                                                                      \
		le##bits v;                                                    \
		memcpy(v.b, &x, sizeof(x));                                    \
		return v;                                                      \
	}
DEFINE_LE(16)
DEFINE_LE(32)
DEFINE_LE(64)
#undef DEFINE_LE

static inline uint64_t be64_get(const void *p)
{
	uint64_t x;
	memcpy(&x, p, sizeof(x));
	return __builtin_bswap64(x);
}

static inline void be64_put(void *p, uint64_t x)
{
	x = __builtin_bswap64(x);
	memcpy(p, &x, sizeof(x));
}

#endif
