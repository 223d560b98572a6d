/*
 * Every byte that blinkfs puts on a medium.
 *
 * A volume is an array of 4 KiB blocks:
 *
 *	block 0        superblock
 *	dw_start       doublewrite area: dw_slots pages
 *	log_start      redo log (unless external): header, checkpoints, records;
 *	               after a resize perhaps within a group, its blocks in use there
 *	groups_start   groups of group_blocks blocks; each begins with its bitmap page
 *	last block     copy of the superblock
 *
 * Group 0 holds, after its bitmap page, the system page and then the root page
 * of each index.  A metadata page is page_size bytes (page_blocks blocks) and
 * is named by the number of its first block, a multiple of page_blocks.
 *
 * Integers are little-endian (le16, le32, le64) and unaligned-safe.  Keys are
 * byte strings in memcmp() order, built from big-endian integers.
 * Every struct's size is asserted here; format_check.c asserts offsets.
 * This header depends on engine/base only; all parts may include it.
 */
#ifndef BLINKFS_ENGINE_FORMAT_H
#define BLINKFS_ENGINE_FORMAT_H

#include "engine/base/check.h"
#include "engine/base/endian.h"
#include "engine/base/limits.h"

/* ------------------------------------------------------------ superblock */

#define SB_MAGIC "blinkfs\n"
#define FORMAT_VERSION 1u

/* Unknown feature bits: compat are ignored, ro-compat forbid writing, incompat mounting. */
#define COMPAT_KNOWN 0ull
#define RO_COMPAT_FLAGS 1ull /* an inode is, or was, immutable or append-only */
#define RO_COMPAT_KNOWN RO_COMPAT_FLAGS
#define INCOMPAT_EXTERNAL_LOG 1ull /* the log is on another device */
#define INCOMPAT_KNOWN INCOMPAT_EXTERNAL_LOG

enum sb_state {
	SB_CLEAN = 1, /* advice only (INV-SB-2): the log is always scanned */
	SB_DAMAGED = 2, /* corruption was met: fsck before the next read-write mount */
};

enum index_id {
	INDEX_DIRENTS,
	INDEX_INODES,
	INDEX_XATTRS,
	INDEX_LOB,
	INDEX_SHARES,
	INDEX_PURGE,
	INDEX_TXN,
	INDEX_OVERLAY,
	INDEX_COUNT
};

#define LOG_PATH_BYTES 256u

struct disk_superblock {
	uint8_t magic[8];
	le32 crc;             /* CRC-32C of the block with this field zero */
	le32 version;
	le64 compat;
	le64 ro_compat;
	le64 incompat;
	uint8_t uuid[16];
	uint8_t label[64];    /* NUL-padded */
	le64 update_gen;      /* INV-SB-1: raised by each update; the higher valid one wins */
	le64 mount_gen;       /* INV-SB-3 */
	le64 log_gen;         /* INV-SB-3: the generation of the log to replay */
	le64 block_count;     /* whole volume, both superblocks included */
	le32 page_size;
	le32 group_blocks;
	le32 group_count;
	le32 state;           /* enum sb_state bits */
	le64 dw_start;
	le32 dw_slots;
	le32 reserved0;
	le64 log_start;       /* block; of the other device when external, then 0 */
	le64 log_bytes;
	uint8_t log_uuid[16]; /* external log: its own, made with it; else equal to uuid */
	le64 groups_start;
	le64 system_page;
	le64 root[INDEX_COUNT];
	uint8_t hash_seed[16]; /* keys name hashes */
	le64 created_sec;
	le64 root_ino;
	uint8_t reserved1[1024 - 328];
	le64 log_reached;     /* the log was durable up to here: one that ends before is too old */
	le64 log_other;       /* blocks that the log is taking or giving up: first, 0 = none; */
	le64 log_other_blocks; /* within one group; their bits are all set or all clear */
	uint8_t log_path[LOG_PATH_BYTES]; /* external: where it was last, NUL-padded; a hint */
	uint8_t reserved[4096 - 1304];
};
static_assert(sizeof(struct disk_superblock) == BLOCK_SIZE, "superblock is one block");

/* ------------------------------------------------------------------ pages */

enum page_type {
	PAGE_NONE = 0,
	PAGE_TREE = 1,
	PAGE_BITMAP = 2,
	PAGE_SYSTEM = 3,
};

enum page_flags {
	PAGE_INCOMPLETE = 1, /* the right sibling has no entry in the parent yet */
	PAGE_DEAD = 2,       /* unlinked: whoever gets here restarts from the root */
};

/* Head of every metadata page. */
struct disk_page {
	le32 crc;         /* CRC-32C of bytes [4, page_size) */
	uint8_t type;     /* enum page_type */
	uint8_t index;    /* enum index_id of a tree page, else 0 */
	uint8_t level;    /* 0 = leaf */
	uint8_t flags;    /* enum page_flags */
	le64 pageno;
	le64 lsn;         /* end LSN of the last mtr that changed it */
	uint8_t tag[8];   /* first bytes of the volume's UUID */
};
static_assert(sizeof(struct disk_page) == 32, "page head");

/*
 * A page of a B-link tree covers keys in [low, high): high is exclusive, an
 * empty high is plus infinity, an empty low minus infinity.
 *
 *	| head 128 B | slot 0, 1, ... (le16 each) -> | free | <- records |
 *
 * Slots are in key order and hold offsets of records.  A record is
 * struct disk_record, the key without the page's prefix, the value.  prefix
 * bytes are the first prefix_len bytes of low, which all keys in
 * [low, high) share.  Freed record space is garbage until the page is
 * compacted, which also recomputes the prefix.  In internal pages the value
 * is the le64 page number of the child whose low fence is the key; the first
 * key equals the page's own low fence.
 */
struct disk_tree_page {
	struct disk_page head;
	le64 right;           /* page number; 0 = none (rightmost on its level) */
	le32 heap_start;      /* offset of the lowest record byte; page_size when empty */
	le32 garbage;         /* bytes in [heap_start, page_size) that no slot uses */
	le16 slot_count;
	uint8_t prefix_len;
	uint8_t low_len;
	uint8_t high_len;
	uint8_t reserved0[3];
	uint8_t low[KEY_BYTES_MAX];
	uint8_t high[KEY_BYTES_MAX];
	uint8_t reserved1[8];
};
static_assert(sizeof(struct disk_tree_page) == 128, "tree page head");

struct disk_record {
	le16 value_len;
	uint8_t key_len; /* of the stored suffix */
	uint8_t reserved;
};
static_assert(sizeof(struct disk_record) == 4, "record head");

/* Most bytes of key + value, so that any page holds at least four records. */
#define RECORD_BYTES_MAX(page_size)                                                    \
	(((page_size) - (uint32_t)sizeof(struct disk_tree_page)) / 4 -                 \
	 (uint32_t)sizeof(struct disk_record) - (uint32_t)sizeof(le16))

/* Bit b of group g: block groups_start + g * group_blocks + b is in use. */
struct disk_bitmap_page {
	struct disk_page head;
	le32 group;
	uint8_t reserved[28];
	/* uint8_t bits[page_size - 64], least significant bit first */
};
static_assert(sizeof(struct disk_bitmap_page) == 64, "bitmap page head");
#define GROUP_BLOCKS(page_size) (((page_size) - 64u) * 8u)

/* High-water marks (INV-ID-1): every value at or above was never handed out. */
enum counter {
	COUNTER_INO,
	COUNTER_LOB,
	COUNTER_PURGE,
	COUNTER_TXN,
	COUNTER_COUNT = 16
};
struct disk_system_page {
	struct disk_page head;
	le64 counter[COUNTER_COUNT];
};

/* ------------------------------------------------------------------- keys */

#define KEY_DIRENT_BYTES 16u /* be64 parent ino, be64 hash56 << 7 | collision */
#define KEY_INODE_BYTES 8u   /* be64 ino */
#define KEY_XATTR_BYTES 16u  /* be64 ino, be64 hash56 << 7 | collision */
#define KEY_LOB_BYTES 16u    /* be64 lob id, be64 last file block of the extent */
#define KEY_SHARE_BYTES 8u   /* be64 last block */
#define KEY_PURGE_BYTES 8u   /* be64 counter */

#define INO_ROOT 1u
#define INO_FIRST_FREE 16u /* 2..15 are kept for the product */
#define INO_BITS 48u       /* a FUSE node id has the view above these */

/* ----------------------------------------------------------------- values */

struct disk_dirent {
	le64 child;
	uint8_t type;     /* DT_* of readdir(3) */
	uint8_t reserved;
	uint8_t name[];   /* the rest of the value, 1 to 255 bytes, no NUL */
};
static_assert(sizeof(struct disk_dirent) == 10, "dirent");

struct disk_time {
	le64 sec;  /* signed */
	le32 nsec;
};
static_assert(sizeof(struct disk_time) == 12, "time");

enum inode_flags {
	INODE_INLINE = 1, /* contents (or symlink target) follow the record; lob is 0 */
	INODE_PREALLOCATED = 2, /* the LOB may have unwritten extents, or blocks past the size */
	/* Set by users: chattr(1) */
	INODE_IMMUTABLE = 4,
	INODE_APPEND = 8,
	INODE_NODUMP = 16,
	INODE_NOATIME = 32,
};
#define INODE_USER_FLAGS (INODE_IMMUTABLE | INODE_APPEND | INODE_NODUMP | INODE_NOATIME)

/*
 * File contents are inline (bytes after the struct; zeros from there to size)
 * or the extents of LOB `lob` (0 = no block at all).
 */
struct disk_inode {
	le32 mode;        /* S_IF* and permission bits */
	le32 nlink;
	le32 uid;
	le32 gid;
	le64 size;
	le64 blocks;      /* 4 KiB blocks of written and unwritten extents */
	le64 lob;
	le32 rdev;        /* as makedev(3) within 32 bits */
	le32 flags;       /* enum inode_flags */
	le64 parent;      /* of a directory; else 0 */
	le64 change;      /* raised by each change */
	struct disk_time atime, mtime, ctime, btime;
	le64 dead_first;  /* pending dead range of file blocks [first, end): reads as a hole */
	le64 dead_end;
	le64 purge_key;   /* purge record of the dead range or of the orphan; 0 = none */
	le32 projid;
	le32 xattr_count;
	le64 entries;     /* directory: number of names */
	uint8_t reserved[8];
};
static_assert(sizeof(struct disk_inode) == 160, "inode");

/* Inline contents allowed for a page size. */
#define INLINE_BYTES_MAX(page_size) ((page_size) / 8)

enum xattr_flags {
	XATTR_EXTERNAL = 1, /* value in LOB `lob` */
};
struct disk_xattr {
	le64 lob;
	le32 value_len;
	uint8_t flags;
	uint8_t name_len;
	uint8_t reserved[2];
	/* uint8_t name[name_len], then the value unless external */
};
static_assert(sizeof(struct disk_xattr) == 16, "xattr");

enum extent_flags {
	EXTENT_UNWRITTEN = 1, /* allocated, reads as zeros, no CRCs */
};

/* Key: last file block.  Covers file blocks (last - length, last]. */
struct disk_extent {
	le64 start;         /* first block on the volume */
	le32 length;        /* blocks of the file */
	le32 stored;        /* blocks on the volume; equals length unless compressed */
	uint8_t flags;      /* enum extent_flags */
	uint8_t codec;      /* 0 = plain */
	uint8_t reserved[2];
	/* le32 crc[length] unless unwritten: CRC-32C of each 4 KiB block */
};
static_assert(sizeof(struct disk_extent) == 20, "extent");
#define EXTENT_BLOCKS_MAX(page_size)                                                   \
	((RECORD_BYTES_MAX(page_size) - KEY_LOB_BYTES - (uint32_t)sizeof(struct disk_extent)) / 4)

struct disk_share {
	le32 length;
	le32 references; /* 2 and above */
};

enum purge_kind {
	PURGE_ORPHAN = 1, /* inode without a name: free contents, xattrs, then the inode */
	PURGE_LOB = 2,    /* file blocks [first, end) of a LOB that nothing refers to */
	PURGE_DEAD = 3,   /* the dead range of inode ino, in its LOB */
	PURGE_EXTENTS = 4 /* blocks of the volume, listed after the struct */
};
struct disk_purge {
	uint8_t kind;
	uint8_t reserved[3];
	le32 count;  /* PURGE_EXTENTS: elements that follow */
	le64 ino;
	le64 lob;
	le64 first;
	le64 end;    /* UINT64_MAX = to the end */
};
static_assert(sizeof(struct disk_purge) == 40, "purge");
struct disk_purge_extent {
	le64 start;
	le32 length;
};
static_assert(sizeof(struct disk_purge_extent) == 12, "purge extent");

/* -------------------------------------------------------------------- log */

#define LOG_MAGIC "blinklog"
#define CHECKPOINT_MAGIC "blinkckp"
#define LOG_HEADER_BYTES 512u
#define LOG_HEADER_1 2048u /* the other place of a header: that of the superblock's size counts */
#define LOG_CHECKPOINT_0 4096u
#define LOG_CHECKPOINT_1 8192u
#define LOG_RECORDS_START 12288u
#define LOG_BLOCK_DEFAULT 512u
#define LSN_FIRST LOG_RECORDS_START

struct disk_log_header {
	uint8_t magic[8];
	le32 crc;         /* of the 512 bytes with this field zero */
	le32 version;
	uint8_t uuid[16];
	le64 size_bytes;  /* header and checkpoints included */
	le64 first_lsn;   /* LSN of the byte at offset LOG_RECORDS_START in lap 0 */
	le32 block_size;  /* of writes: 64 to 4096 */
	uint8_t volume[16]; /* UUID of the volume that it belongs to */
	uint8_t reserved[512 - 68];
};
static_assert(sizeof(struct disk_log_header) == LOG_HEADER_BYTES, "log header");

enum checkpoint_flags {
	CHECKPOINT_MAPPED = 1, /* the log is written by stores: groups of any length */
};

struct disk_checkpoint {
	uint8_t magic[8];
	le32 crc;         /* of the 64 bytes with this field zero */
	le32 flags;       /* enum checkpoint_flags; unknown ones are ignored */
	uint8_t tag[8];   /* first bytes of the UUID */
	le64 lsn;         /* everything below is in place */
	le64 marked_lsn;  /* newest durable mark: all below it was durable, data included */
	le64 generation;  /* mount generation; also the epoch that seeds the CRCs */
	le64 sequence;    /* raised by each checkpoint; the higher valid one of a generation wins */
	le64 tally;       /* blocks in use as of lsn, bitmap pages left out; 0: not known */
};
static_assert(sizeof(struct disk_checkpoint) == 64, "checkpoint");

/*
 * LSNs count bytes.  The byte with LSN l is at offset LOG_RECORDS_START +
 * (l - first_lsn) % capacity, capacity = size_bytes - LOG_RECORDS_START.
 *
 * A mini-transaction in the log:
 *
 *	record ... record | sequence byte | le32 CRC-32C of the records
 *
 * The sequence byte is 1 or 0: 1 ^ (lap & 1), lap = (its LSN - first_lsn) /
 * capacity.  The CRC is seeded with crc32c(0, epoch as le64, 8).
 *
 *	record = type (>= 2) | varint body length | body
 *
 * varint: LEB128, least significant group first, at most 10 bytes.  Page
 * records (type >= REC_PAGE_INIT) begin their body with varint page number.
 */
enum log_record {
	REC_MARK = 2,       /* le64 own LSN (start of the mtr), le64 epoch, le64 durable LSN */
	REC_PAD = 3,        /* any bytes */
	REC_DATA = 4,       /* varint start block, varint count, le32 crc[count]: written now */
	REC_FREE_PAGE = 5,  /* varint page number: earlier records of it are void */
	REC_REQUEST = 6,    /* reserved: request id and result */
	REC_NONCE = 7,      /* reserved: 8 bytes */
	REC_LOG_OTHER = 8,  /* varint start, varint blocks (0: none): with the bits of what the
			       log takes or gives up; what log_other is from here on, if it
			       has bits that are set.  For restore; recovery has the superblock */

	REC_VOLUME_SIZE = 9, /* varint block count, varint group count: the volume has them
				from here on.  For restore; recovery has the superblock */

	REC_PAGE_INIT = 16, /* u8 type, index, level, flags, low_len, low, high_len, high,
	                     * varint right (bitmap: group) */
	REC_LOAD = 17,      /* u8 shared_len, shared, then appended in order:
	                     * (u8 rest_len, rest, varint value_len, value) ...;
	                     * a key is shared + rest */
	REC_INSERT = 18,    /* varint slot, u8 key_len, key (whole), value */
	REC_UPDATE = 19,    /* varint slot, value */
	REC_PATCH = 20,     /* varint slot, varint offset in the value, bytes */
	REC_DELETE = 21,    /* varint slot */
	REC_SPLIT_LEFT = 22,/* varint slots kept, u8 high_len, high, varint right:
	                     * sets PAGE_INCOMPLETE */
	REC_FLAGS = 23,     /* u8 flags */
	REC_FENCE = 24,     /* u8 high_len, high, varint right: new high key and right link */
	REC_BITS = 25,      /* u8 value (0/1), varint first bit, varint count: must change each */
	REC_COUNTER = 26,   /* varint enum counter, le64 value */
	REC_LIMIT
};

#define MTR_TRAILER_BYTES 5u    /* sequence byte and CRC */
#define MTR_PAD_BYTES_MIN (2u + MTR_TRAILER_BYTES)
#define MARK_MTR_BYTES (2u + 24u + MTR_TRAILER_BYTES)

#endif
