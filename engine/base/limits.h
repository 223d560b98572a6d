/*
 * Every bound of the product, with its reason.  Units last.
 */
#ifndef BLINKFS_BASE_LIMITS_H
#define BLINKFS_BASE_LIMITS_H

#define BLOCK_SIZE 4096u        /* unit of space and of data checksums */
#define PAGE_SIZE_MIN 4096u
#define PAGE_SIZE_MAX 65536u
#define PAGE_SIZE_DEFAULT 16384u
#define KEY_BYTES_MAX 32u       /* longest key of any index, and a fence in a page header */
#define TREE_LEVELS_MAX 16u     /* 2^64 keys in quarter-page records need fewer */
#define NAME_BYTES_MAX 255u
#define SYMLINK_BYTES_MAX 4095u
#define XATTR_VALUE_MAX 65536u
#define LINKS_MAX 65000u
#define HASH_COLLISIONS_MAX 128u /* names of one directory with one 56-bit hash */
#define FILE_BYTES_MAX INT64_MAX /* loff_t */
#define WRITE_BYTES_MAX (1u << 20) /* one WRITE request, atomic */
#define WRITE_BLOCKS_MAX (WRITE_BYTES_MAX / BLOCK_SIZE + 1) /* unaligned: one more */

#define MTR_PAGES_MAX 64u       /* pages that one mtr latches */
#define MTR_KEYS_MAX 32u        /* keys and ranges that one mtr locates */
#define MTR_GROUPS_MAX 16u      /* bitmap pages that one mtr changes */
#define MTR_EDITS_MAX 1024u     /* staged inserts, updates and deletes: two per block of a WRITE */
#define MTR_LATCH_TRIES 32u     /* optimistic tries before the index latches are taken X */
#define RESERVE_EXTENTS_MAX WRITE_BLOCKS_MAX /* pieces of one reservation: any free block */

#define THREADS_MAX 1024u       /* threads inside one volume at once */
#define CACHE_BYTES_DEFAULT (256u << 20)
#define LOG_BYTES_DEFAULT (256u << 20)
#define LOG_BYTES_MIN (512u << 10)
#define COMMIT_INTERVAL_NS 5000000000ull
#define LOCK_WAIT_NS 10000000000ull /* for a volume whose last user is still closing it */
#define LOCK_WAIT_SILENT_NS 2000000000ull /* of those: nothing is said about it */

#endif
