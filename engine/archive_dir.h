/*
 * The files of a log archive: names, headers, order.  Used by who writes them and
 * by restore.
 */
#ifndef BLINKFS_ENGINE_ARCHIVE_DIR_H
#define BLINKFS_ENGINE_ARCHIVE_DIR_H

#include "engine/backup_format.h"
#include "log/log.h"

#define ARCHIVE_NAME_BYTES 80u

struct archive_file {
	char name[ARCHIVE_NAME_BYTES]; /* without ".log", ".part", ".data" */
	bool part;
	uint64_t generation, after_generation;
	lsn_t first, end, after_lsn;   /* end of a part: that of its last whole mtr */
	uint32_t flags;
};

struct archive_list {
	struct archive_file *file; /* by generation, then first */
	size_t count, cap;
};

void archive_name(char name[ARCHIVE_NAME_BYTES], const uint8_t uuid[16], uint64_t generation,
		  lsn_t first);
/* Those of one volume; what is damaged is said on message() and left out. */
int archive_list_read(struct archive_list *list, int dir_fd, const char *dir,
		      const uint8_t uuid[16]) must_check;
void archive_list_free(struct archive_list *list);

/* Header of a file that is open; -BE_NOVOLUME, -BE_VERSION, -BE_DAMAGE. */
int archive_header_read(int fd, struct disk_archive_header *out) must_check;
int archive_header_write(int fd, struct disk_archive_header *header) must_check;
/* Opens name + suffix; a negative errno. */
int archive_open_file(int dir_fd, const char *name, const char *suffix, int flags) must_check;

/*
 * Reads whole mtrs of an archive file one batch after the other.
 *
 *	while ((rc = archive_read(&reader)) == 0 && reader.bytes > 0) ...
 */
struct archive_reader {
	int fd;
	uint64_t generation;
	lsn_t first, at, limit; /* file's first; of the batch to come; nothing at or above */
	uint8_t *buffer;
	size_t cap, bytes;      /* of the batch: whole mtrs from `start` on */
	lsn_t start;
};
int archive_reader_open(struct archive_reader *reader, int fd, uint64_t generation, lsn_t first,
			lsn_t limit) must_check;
int archive_read(struct archive_reader *reader) must_check;
void archive_reader_close(struct archive_reader *reader);

/* Bytes from the front that are whole mtrs. */
size_t archive_whole(uint64_t generation, lsn_t start, const uint8_t *bytes, size_t len);

/* Calls visit for each REC_DATA of the mtr, in order.  -BE_DAMAGE: malformed. */
int archive_data_records(const struct log_mtr *mtr,
			 int (*visit)(void *arg, uint64_t start, uint32_t count, const le32 *crcs),
			 void *arg) must_check;

#endif
