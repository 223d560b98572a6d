/*
 * The files that leave the volume: backups and the log archive.
 *
 * A backup is a volume's state at one LSN, or the difference to such a state:
 *
 *	header (4 KiB) | chunk | chunk | ... | end chunk
 *	chunk = head (64 bytes) | count blocks of 4 KiB
 *
 *	type   what                                              start
 *	SUPER  the superblock                                    0
 *	PAGES  metadata pages as of the backup's LSN, sealed     first block
 *	DATA   blocks of file contents                           first block
 *	END    nothing (count 0)                                 number of chunks before it
 *
 * Blocks may come more than once; the last one counts, though all are the same
 * but for pages.  A page whose blocks are free in the bitmaps of the backup may be
 * there, and means nothing.  The header is written last: a file without it was not
 * finished.  Each chunk says where in the file it stands, of which backup it is,
 * and has a CRC for its head and one for its blocks, so neither damage nor pieces
 * of other backups are taken for it.
 *
 * Chains.  A backup has a random id; an incremental one names its base by id
 * and LSN, or by LSN alone (--since).  It holds every page whose LSN is above the
 * base's, and every block of data that a leaf of the lob index with such an LSN
 * refers to (engine/README.md, "Backup", has the argument).  Generations are
 * those of the volume's mounts; their upper half is the volume's *history*: a
 * restored volume begins a new one, so LSNs of two lives are never mixed.
 *
 * A file of the log archive, named <uuid>-<generation>-<first LSN>.log:
 *
 *	header (4 KiB) | bytes of the log, LSN first and on
 *
 * Its contents are those of the log, so each mtr in them has its own CRC, seeded
 * with the generation.  end 0: unfinished (named .part), then it reaches as far
 * as its mtrs are whole.  Beside it lies, when file data is archived too, a
 * .data file: the same header, then for each REC_DATA record in the log's
 * bytes, in order, the blocks that it names (whose CRCs it has).
 *
 * Which file follows which (INV-ARCH-2): the file that begins where one of the
 * same generation ends; or the first of a later generation that names the end as
 * what it continues.  An empty one may stand in such a chain: a mount in which nothing
 * was logged, or a log that moved twice.  A file that says ARCHIVE_GAP follows nothing: before it
 * log was lost to the archive, from `after_lsn` of `after_generation` on.
 *
 * Where the volume's own log lies is not logged with pages, and blocks that it gives up
 * become something else.  So each file says where the log was when its generation
 * began (a log that moves begins one), and REC_LOG_OTHER what it was taking or giving
 * up from then on: a restored volume gets its log where it was at that LSN.  The same
 * goes for the volume's size, with REC_VOLUME_SIZE.
 */
#ifndef BLINKFS_ENGINE_BACKUP_FORMAT_H
#define BLINKFS_ENGINE_BACKUP_FORMAT_H

#include "engine/format.h"

#define BACKUP_MAGIC "blinkbak"
#define BACKUP_CHUNK_MAGIC "bchk"
#define BACKUP_VERSION 1u
#define BACKUP_HEADER_BYTES 4096u
#define BACKUP_CHUNK_BLOCKS_MAX 256u

enum backup_chunk_type {
	BACKUP_SUPER = 1,
	BACKUP_PAGES = 2,
	BACKUP_DATA = 3,
	BACKUP_END = 4,
};

struct disk_backup_header {
	uint8_t magic[8];
	le32 crc;            /* of the block with this field zero */
	le32 version;
	uint8_t uuid[16];    /* of the volume */
	uint8_t id[16];      /* of this backup; never all zero */
	uint8_t base_id[16]; /* all zero: full, or only base_lsn is known */
	le64 base_lsn;       /* 0: full */
	le64 lsn;            /* the state that it is, or leads to */
	le64 generation;     /* of the mount that it was made in */
	le64 block_count;    /* of the volume */
	le32 page_size;
	le32 reserved0;
	le64 chunks;         /* the end chunk not counted */
	le64 file_bytes;     /* header and all chunks */
	le64 bad_blocks;     /* of data: did not match their checksums, copied as they were */
	le64 created_sec;
	uint8_t label[64];
	uint8_t reserved[BACKUP_HEADER_BYTES - 200];
};
static_assert(sizeof(struct disk_backup_header) == BACKUP_HEADER_BYTES, "backup header");

struct disk_backup_chunk {
	uint8_t magic[4];
	le32 crc;            /* of the head with this field zero */
	uint8_t tag[8];      /* first bytes of the backup's id */
	le64 offset;         /* of this head in the file */
	le64 start;
	le32 type;           /* enum backup_chunk_type */
	le32 count;          /* blocks that follow */
	le32 payload_crc;
	uint8_t reserved[20];
};
static_assert(sizeof(struct disk_backup_chunk) == 64, "backup chunk");

#define ARCHIVE_MAGIC "blinkarc"
#define ARCHIVE_VERSION 1u
#define ARCHIVE_HEADER_BYTES 4096u

enum archive_flags {
	ARCHIVE_GAP = 1,  /* follows nothing */
	ARCHIVE_DATA = 2, /* there is a .data file beside it; or, in one: this is it */
};

struct disk_archive_header {
	uint8_t magic[8];
	le32 crc;              /* of the block with this field zero */
	le32 version;
	uint8_t uuid[16];
	le64 generation;
	le64 first;
	le64 end;              /* 0: unfinished */
	le64 after_generation; /* what it continues; with a gap, what came last; 0: nothing */
	le64 after_lsn;
	le32 flags;            /* enum archive_flags */
	le32 reserved0;
	/* As the superblock says when the generation begins; log_bytes 0: not known. */
	le64 log_start, log_bytes;
	le64 log_other, log_other_blocks;
	le64 block_count;      /* of the volume then; 0: not known */
	le32 group_count;
	le32 reserved1;
	uint8_t reserved[ARCHIVE_HEADER_BYTES - 128];
};
static_assert(sizeof(struct disk_archive_header) == ARCHIVE_HEADER_BYTES, "archive header");

/* The upper half of a generation; the lower one counts mounts. */
static inline uint64_t generation_history(uint64_t generation)
{
	return generation >> 32;
}

#endif
