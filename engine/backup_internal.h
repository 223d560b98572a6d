/*
 * What the files of backup share.
 *
 *	backup.c       the steps
 *	backup_log.c   the log from c on, gathered by a thread of its own
 *	backup_walk.c  every metadata page, once (step 3)
 *	backup_data.c  file contents (step 6)
 *	backup_file.c  the file being written, and which page lies where in it
 */
#ifndef BLINKFS_ENGINE_BACKUP_INTERNAL_H
#define BLINKFS_ENGINE_BACKUP_INTERNAL_H

#include "engine/backup.h"
#include "engine/backup_format.h"
#include "engine/base/error.h"

#define BACKUP_LOG_BYTES_MAX (1ull << 30) /* gathered while pages are copied */

/* A page that the backup knows of. */
struct backup_page {
	uint64_t pageno;
	uint64_t offset;  /* of its bytes in the file; 0: not changed since the base, left out */
	lsn_t lsn;        /* of the copy, or of the page that was left out */
	bool freed;
};

/* By number; open addressing. */
struct backup_index {
	struct backup_page *page;
	size_t count, cap;
	uint32_t *slot;   /* 1 + index into page[]; 0 = empty */
	size_t slots;
};

/* The log that is gathered; see backup_log.c. */
struct backup_log {
	struct volume *volume;
	struct os_thread thread;
	bool running;
	_Atomic bool stop;
	struct latch latch;       /* RANK_LEAF */
	lsn_t from;
	uint8_t *bytes;           /* [of the thread while it runs] */
	size_t cap;
	_Atomic uint64_t gathered; /* up to here */
	_Atomic int error;
	struct waitq moved;
};

struct backup {
	struct volume *volume;
	const struct backup_params *params;
	struct backup_progress progress;
	struct disk_superblock sb;
	uint8_t id[16];
	uint64_t generation;
	lsn_t start, end;         /* c and e */
	uint64_t file_at;         /* where the next chunk goes */
	uint64_t chunks;
	uint64_t written_out;     /* the kernel has been told to write up to here */
	struct backup_index index;
	struct backup_log log;
	uint8_t *page;            /* one page */
	uint8_t *blocks;          /* BACKUP_CHUNK_BLOCKS_MAX blocks behind a chunk's head */
};

/* -ECANCELED when the caller wants it. */
int backup_look(struct backup *b) must_check;

/* ------------------------------------------------------------ backup_file.c */

/* Writes head and blocks: `payload` has room for the head before it. */
int backup_chunk(struct backup *b, enum backup_chunk_type type, uint64_t start, uint32_t count,
		 uint8_t *payload) must_check;
/* Room for a chunk's head and count blocks; *payload is aligned to a block. */
uint8_t *backup_buffer(uint32_t count, uint8_t **payload);
struct backup_page *backup_find(const struct backup_index *index, uint64_t pageno);
/* The sealed page in b->page is this one's newest copy.  skip: remembers it, writes nothing. */
int backup_put_page(struct backup *b, uint64_t pageno, bool skip) must_check;
/* Reads a page that is in the file into `page`. */
int backup_get_page(struct backup *b, const struct backup_page *page, void *buf) must_check;
int backup_finish_file(struct backup *b) must_check;
void backup_index_free(struct backup_index *index);

/* ------------------------------------------------------------- backup_log.c */

/* Holds the log from b->start on; see backup.h. */
int backup_log_start(struct backup *b) must_check;
/* Returns when everything below lsn, which is durable, has been gathered. */
int backup_log_need(struct backup *b, lsn_t lsn) must_check;
/* Ends the thread and lets the log go; the bytes stay. */
void backup_log_stop(struct backup *b);
void backup_log_free(struct backup *b);

/* ------------------------------------------------------------ backup_walk.c */

int backup_walk(struct backup *b) must_check;
/* A page that was live at c, into b->page: as it is in place, if that can be had. */
int backup_fetch_in_place(struct backup *b, uint64_t pageno) must_check;

/* ------------------------------------------------------------ backup_data.c */

int backup_data(struct backup *b) must_check;

#endif
