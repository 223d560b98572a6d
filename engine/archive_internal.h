/*
 * What the files of the archive share.
 *
 *	archive.c       on and paused; rounds; who waits
 *	archive_write.c one file: begun, written, ended
 *	archive_dir.c   the files of a directory (also for restore)
 */
#ifndef BLINKFS_ENGINE_ARCHIVE_INTERNAL_H
#define BLINKFS_ENGINE_ARCHIVE_INTERNAL_H

#include "engine/archive.h"
#include "engine/archive_dir.h"
#include "engine/base/error.h"

/* A file that is being written. */
struct archive_out {
	int fd, data_fd;       /* -1: none */
	char name[ARCHIVE_NAME_BYTES];
	struct disk_archive_header header;
	lsn_t first, at;       /* written up to here */
	uint64_t data_bytes;   /* in the .data file */
};

/* What the next file continues. */
struct archive_link {
	uint64_t after_generation;
	lsn_t after_lsn;
	bool gap;              /* nothing */
};

struct archive {
	struct volume *volume;
	char *dir;             /* owned */
	int dir_fd;
	bool data;

	struct os_thread thread;
	_Atomic bool running, stop, begun;
	_Atomic bool urgent;   /* somebody waits: do not wait for more */

	/* One round at a time; held over I/O, so no latch.  The rest belongs to who has it. */
	_Atomic bool busy;
	struct archive_out out;
	uint8_t *bytes;        /* of one step: LOG_MTR_BYTES_MAX */
	uint8_t *blocks;       /* WRITE_BLOCKS_MAX */
	uint64_t generation;   /* of what is archived now */
	struct geometry place; /* where the log was when that generation began */
	struct archive_link link;
	struct archive_link back; /* what it was, if the move is not made */
	uint64_t retry_at_ns;
	_Atomic uint64_t sync_at_ns; /* read without a turn, to see whether one is due */

	_Atomic bool paused;
	_Atomic uint64_t archived; /* durable in the archive */
	struct waitq moved;    /* archived, paused, busy */
};

/* Its files, whichever there are. */
void archive_out_remove(struct archive *archive, const char *name);
/* Creates the file for LSNs from `first` on. */
int archive_out_begin(struct archive *archive, lsn_t first) must_check;
/* Goes on with an unfinished one: what is whole in it, at most up to `limit`. */
int archive_out_resume(struct archive *archive, const struct archive_file *file,
		       lsn_t limit) must_check;
/* Appends [out.at, to), read from the log, with the data that it names.  Whole mtrs. */
int archive_out_write(struct archive *archive, lsn_t to) must_check;
int archive_out_sync(struct archive *archive) must_check;
/* Ends it where it has been written to; an empty one vanishes, unless it links generations. */
int archive_out_end(struct archive *archive) must_check;
/* After an error: ends it where it was last synced, as well as that is possible. */
void archive_out_drop(struct archive *archive, lsn_t synced);

#endif
