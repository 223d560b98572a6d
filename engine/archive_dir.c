/* The files of a log archive: see archive_dir.h. */
#include "engine/archive_dir.h"

#include "engine/base/crc32c.h"
#include "engine/base/error.h"
#include "engine/base/fileio.h"
#include "engine/base/message.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES (4u << 20)
#define LSN_LIMIT (UINT64_C(1) << 61) /* above it a file talks nonsense */

int archive_open_file(int dir_fd, const char *name, const char *suffix, int flags)
{
	char path[ARCHIVE_NAME_BYTES + 8];
	int fd;

	snprintf(path, sizeof(path), "%s%s", name, suffix);
	fd = openat(dir_fd, path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? -errno : fd;
}

/* ----------------------------------------------------------------- headers */

static uint32_t header_crc(const struct disk_archive_header *header)
{
	struct disk_archive_header copy = *header;

	copy.crc = le32_make(0);
	return crc32c(0, &copy, sizeof(copy));
}

int archive_header_read(int fd, struct disk_archive_header *out)
{
	int rc = file_read_at(fd, out, sizeof(*out), 0);

	if (rc)
		return rc == -BE_TRUNCATED ? -BE_DAMAGE : rc;
	if (memcmp(out->magic, ARCHIVE_MAGIC, sizeof(out->magic)) != 0)
		return -BE_NOVOLUME;
	if (header_crc(out) != le32_get(out->crc))
		return -BE_DAMAGE;
	return le32_get(out->version) == ARCHIVE_VERSION ? 0 : -BE_VERSION;
}

int archive_header_write(int fd, struct disk_archive_header *header)
{
	memcpy(header->magic, ARCHIVE_MAGIC, sizeof(header->magic));
	header->version = le32_make(ARCHIVE_VERSION);
	header->crc = le32_make(header_crc(header));
	return file_write_at(fd, header, sizeof(*header), 0);
}

/* ----------------------------------------------------------------- contents */

size_t archive_whole(uint64_t generation, lsn_t start, const uint8_t *bytes, size_t len)
{
	struct log_mtr mtr;
	size_t at = 0;

	while (log_parse(generation, start + at, bytes + at, len - at, &mtr))
		at += mtr.end - mtr.start;
	return at;
}

int archive_reader_open(struct archive_reader *reader, int fd, uint64_t generation, lsn_t first,
			lsn_t limit)
{
	*reader = (struct archive_reader){
		.fd = fd,
		.generation = generation,
		.first = first,
		.at = first,
		.limit = limit,
		.cap = READ_BYTES,
	};
	reader->buffer = malloc(reader->cap);
	return reader->buffer ? 0 : -ENOMEM;
}

void archive_reader_close(struct archive_reader *reader)
{
	free(reader->buffer);
	reader->buffer = NULL;
}

static int fill(struct archive_reader *reader, size_t *got)
{
	uint64_t left = reader->limit - reader->at;
	size_t want = left < reader->cap ? left : reader->cap;
	uint64_t offset = ARCHIVE_HEADER_BYTES + (reader->at - reader->first);

	*got = 0;
	while (*got < want) {
		ssize_t n = pread(reader->fd, reader->buffer + *got, want - *got,
				  (off_t)(offset + *got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		*got += (size_t)n;
	}
	return 0;
}

/* A batch with no whole mtr in it is the end, unless a larger one could have one. */
int archive_read(struct archive_reader *reader)
{
	reader->start = reader->at;
	for (;;) {
		uint8_t *grown;
		size_t got;
		int rc = fill(reader, &got);

		if (rc)
			return rc;
		reader->bytes = archive_whole(reader->generation, reader->at, reader->buffer, got);
		reader->at += reader->bytes;
		if (reader->bytes > 0 || got < reader->cap || reader->cap >= LOG_MTR_BYTES_MAX)
			return 0;
		grown = realloc(reader->buffer, LOG_MTR_BYTES_MAX);
		if (grown == NULL)
			return -ENOMEM;
		reader->buffer = grown;
		reader->cap = LOG_MTR_BYTES_MAX;
	}
}

static int data_record(const struct log_rec *rec,
		       int (*visit)(void *arg, uint64_t start, uint32_t count, const le32 *crcs),
		       void *arg)
{
	uint64_t start, count;
	size_t at = varint_get(rec->body, rec->len, &start);
	size_t n = at ? varint_get(rec->body + at, rec->len - at, &count) : 0;

	if (n == 0 || count == 0 || count > WRITE_BLOCKS_MAX ||
	    rec->len != at + n + count * sizeof(le32))
		return -BE_DAMAGE;
	return visit(arg, start, (uint32_t)count, (const void *)(rec->body + at + n));
}

int archive_data_records(const struct log_mtr *mtr,
			 int (*visit)(void *arg, uint64_t start, uint32_t count, const le32 *crcs),
			 void *arg)
{
	struct log_cursor cursor = {mtr->records, mtr->records_bytes};
	struct log_rec rec;
	int rc;

	while ((rc = log_next_record(&cursor, &rec)) > 0) {
		if (rec.type != REC_DATA)
			continue;
		rc = data_record(&rec, visit, arg);
		if (rc)
			return rc;
	}
	return rc ? -BE_DAMAGE : 0;
}

/* -------------------------------------------------------------------- names */

void archive_name(char name[ARCHIVE_NAME_BYTES], const uint8_t uuid[16], uint64_t generation,
		  lsn_t first)
{
	for (unsigned i = 0; i < 16; i++)
		snprintf(name + 2 * i, 3, "%02x", uuid[i]);
	snprintf(name + 32, ARCHIVE_NAME_BYTES - 32, "-%016" PRIx64 "-%016" PRIx64, generation,
		 first);
}

/* Where a file without an end in its header ends. */
static int find_end(int fd, struct archive_file *file)
{
	struct archive_reader reader;
	int rc = archive_reader_open(&reader, fd, file->generation, file->first, UINT64_MAX / 2);

	while (rc == 0) {
		rc = archive_read(&reader);
		if (rc || reader.bytes == 0)
			break;
	}
	file->end = reader.at;
	archive_reader_close(&reader);
	return rc;
}

static int describe(int dir_fd, struct archive_file *file, const uint8_t uuid[16])
{
	struct disk_archive_header *header = malloc(sizeof(*header));
	int fd = archive_open_file(dir_fd, file->name, file->part ? ".part" : ".log", O_RDONLY);
	int rc = fd < 0 ? fd : 0;

	if (header == NULL)
		rc = -ENOMEM;
	if (rc == 0)
		rc = archive_header_read(fd, header);
	if (rc)
		goto out;
	file->generation = le64_get(header->generation);
	file->first = le64_get(header->first);
	file->end = le64_get(header->end);
	file->after_generation = le64_get(header->after_generation);
	file->after_lsn = le64_get(header->after_lsn);
	file->flags = le32_get(header->flags);
	if (memcmp(header->uuid, uuid, sizeof(header->uuid)) != 0)
		rc = -BE_IDENTITY;
	else if (file->first < LSN_FIRST || file->first > LSN_LIMIT || file->end > LSN_LIMIT)
		rc = -BE_DAMAGE;
	else if (file->part)
		rc = find_end(fd, file);
	else if (file->end < file->first)
		rc = -BE_DAMAGE;
out:
	if (fd >= 0)
		close(fd);
	free(header);
	return rc;
}

static int add_file(struct archive_list *list, const struct archive_file *file)
{
	if (list->count == list->cap) {
		size_t cap = list->cap ? list->cap * 2 : 64;
		void *grown = realloc(list->file, cap * sizeof(list->file[0]));

		if (grown == NULL)
			return -ENOMEM;
		list->file = grown;
		list->cap = cap;
	}
	list->file[list->count++] = *file;
	return 0;
}

static int compare_files(const void *a, const void *b)
{
	const struct archive_file *left = a, *right = b;

	if (left->generation != right->generation)
		return left->generation < right->generation ? -1 : 1;
	if (left->first != right->first)
		return left->first < right->first ? -1 : 1;
	return left->part - right->part; /* an empty one that ended, and the next */
}

/* Is this the name of one of the volume's files? */
static bool parse_name(const char *entry, const char *prefix, struct archive_file *file)
{
	const char *dot = strchr(entry, '.');
	size_t len = dot ? (size_t)(dot - entry) : 0;

	if (dot == NULL || len >= sizeof(file->name) || strncmp(entry, prefix, 32) != 0 ||
	    (strcmp(dot, ".log") != 0 && strcmp(dot, ".part") != 0))
		return false;
	*file = (struct archive_file){.part = strcmp(dot, ".part") == 0};
	memcpy(file->name, entry, len);
	return true;
}

int archive_list_read(struct archive_list *list, int dir_fd, const char *dir,
		      const uint8_t uuid[16])
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	char prefix[ARCHIVE_NAME_BYTES];
	struct dirent *entry;
	int rc = 0;

	*list = (struct archive_list){0};
	if (stream == NULL) {
		rc = -errno;
		if (fd >= 0)
			close(fd);
		return rc;
	}
	archive_name(prefix, uuid, 0, 0);
	while (rc == 0 && (entry = readdir(stream)) != NULL) {
		struct archive_file file;

		if (!parse_name(entry->d_name, prefix, &file))
			continue;
		rc = describe(dir_fd, &file, uuid);
		if (rc == 0)
			rc = add_file(list, &file);
		else if (rc != -ENOMEM) {
			message(LOG_WARNING, "%s/%s: not usable: %s", dir, entry->d_name,
				error_text(rc));
			rc = 0;
		}
	}
	closedir(stream);
	if (rc == 0 && list->count > 0)
		qsort(list->file, list->count, sizeof(list->file[0]), compare_files);
	return rc;
}

void archive_list_free(struct archive_list *list)
{
	free(list->file);
	*list = (struct archive_list){0};
}
