/* One file of the log archive, being written: see archive_internal.h. */
#include "engine/archive_internal.h"

#include "engine/base/crc32c.h"
#include "engine/base/fileio.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void close_out(struct archive_out *out)
{
	if (out->fd >= 0)
		close(out->fd);
	if (out->data_fd >= 0)
		close(out->data_fd);
	out->fd = out->data_fd = -1;
}

int archive_out_begin(struct archive *archive, lsn_t first)
{
	struct archive_out *out = &archive->out;
	int rc;

	check(out->fd < 0);
	*out = (struct archive_out){.fd = -1, .data_fd = -1, .first = first, .at = first};
	out->header = (struct disk_archive_header){
		.generation = le64_make(archive->generation),
		.first = le64_make(first),
		.after_generation = le64_make(archive->link.after_generation),
		.after_lsn = le64_make(archive->link.after_lsn),
		.flags = le32_make((archive->link.gap ? ARCHIVE_GAP : 0) |
				   (archive->data ? ARCHIVE_DATA : 0)),
		.log_start = le64_make(archive->place.log_start),
		.log_bytes = le64_make(archive->place.log_bytes),
		.log_other = le64_make(archive->place.other.start),
		.log_other_blocks = le64_make(archive->place.other.blocks),
		.block_count = le64_make(archive->place.block_count),
		.group_count = le32_make(archive->place.group_count),
	};
	memcpy(out->header.uuid, archive->volume->sb.uuid, sizeof(out->header.uuid));
	archive_name(out->name, out->header.uuid, archive->generation, first);
	out->fd = archive_open_file(archive->dir_fd, out->name, ".part",
				    O_RDWR | O_CREAT | O_TRUNC);
	rc = out->fd < 0 ? out->fd : 0;
	if (rc == 0 && archive->data) {
		out->data_fd = archive_open_file(archive->dir_fd, out->name, ".data",
						 O_RDWR | O_CREAT | O_TRUNC);
		rc = out->data_fd < 0 ? out->data_fd
				      : archive_header_write(out->data_fd, &out->header);
	}
	if (rc == 0)
		rc = archive_header_write(out->fd, &out->header);
	if (rc == 0)
		rc = fsync(archive->dir_fd) ? -errno : 0;
	if (rc)
		close_out(out);
	return rc;
}

/* ------------------------------------------------------------------ writing */

static int write_data(void *arg, uint64_t start, uint32_t count, const le32 *crcs)
{
	struct archive *archive = arg;
	struct archive_out *out = &archive->out;
	struct volume *volume = archive->volume;
	size_t bytes = (size_t)count * BLOCK_SIZE;
	int rc;

	(void)crcs; /* whoever reads it compares */
	if (start >= volume->geo.block_count || count > volume->geo.block_count - start)
		return -BE_DAMAGE;
	rc = dev_read(volume->dev, archive->blocks, bytes, start * BLOCK_SIZE);
	if (rc == 0)
		rc = file_write_at(out->data_fd, archive->blocks, bytes,
				    ARCHIVE_HEADER_BYTES + out->data_bytes);
	if (rc)
		return rc;
	out->data_bytes += bytes;
	stat_add(&volume->stats, STAT_archive_data_blocks, count);
	return 0;
}

static int write_data_of(struct archive *archive, lsn_t start, size_t len)
{
	struct log_mtr mtr;
	size_t at = 0;
	int rc = 0;

	while (at < len && rc == 0) {
		if (!log_parse(archive->generation, start + at, archive->bytes + at, len - at,
			       &mtr))
			return -BE_DAMAGE;
		rc = archive_data_records(&mtr, write_data, archive);
		at += mtr.end - mtr.start;
	}
	return rc;
}

int archive_out_write(struct archive *archive, lsn_t to)
{
	struct archive_out *out = &archive->out;
	struct log *log = archive->volume->log;

	while (out->at < to) {
		size_t len = to - out->at < LOG_MTR_BYTES_MAX ? to - out->at : LOG_MTR_BYTES_MAX;
		int rc = log_read(log, out->at, out->at + len, archive->bytes);

		if (rc)
			return rc;
		len = archive_whole(archive->generation, out->at, archive->bytes, len);
		if (len == 0)
			return -BE_DAMAGE;
		rc = file_write_at(out->fd, archive->bytes, len,
				    ARCHIVE_HEADER_BYTES + (out->at - out->first));
		if (rc == 0 && out->data_fd >= 0)
			rc = write_data_of(archive, out->at, len);
		if (rc)
			return rc;
		out->at += len;
		stat_add(&archive->volume->stats, STAT_archive_bytes, len);
		os_point("archive:written");
	}
	return 0;
}

int archive_out_sync(struct archive *archive)
{
	struct archive_out *out = &archive->out;

	if (out->data_fd >= 0 && fdatasync(out->data_fd) != 0)
		return -errno;
	return fdatasync(out->fd) == 0 ? 0 : -errno;
}

/* ------------------------------------------------------------------- ending */

static int rename_out(struct archive *archive)
{
	char part[ARCHIVE_NAME_BYTES + 8], final[ARCHIVE_NAME_BYTES + 8];

	snprintf(part, sizeof(part), "%s.part", archive->out.name);
	snprintf(final, sizeof(final), "%s.log", archive->out.name);
	if (renameat(archive->dir_fd, part, archive->dir_fd, final) != 0)
		return -errno;
	return fsync(archive->dir_fd) == 0 ? 0 : -errno;
}

void archive_out_remove(struct archive *archive, const char *name)
{
	char path[ARCHIVE_NAME_BYTES + 8];

	snprintf(path, sizeof(path), "%s.part", name);
	unlinkat(archive->dir_fd, path, 0);
	snprintf(path, sizeof(path), "%s.data", name);
	unlinkat(archive->dir_fd, path, 0);
}

/* Without it, even empty, the next generation's first file would follow nothing. */
static bool links_generations(const struct archive_out *out)
{
	return !(le32_get(out->header.flags) & ARCHIVE_GAP) &&
	       le64_get(out->header.after_generation) != le64_get(out->header.generation);
}

static int end_at(struct archive *archive, lsn_t end)
{
	struct archive_out *out = &archive->out;
	int rc = 0;

	if (ftruncate(out->fd, (off_t)(ARCHIVE_HEADER_BYTES + (end - out->first))) != 0)
		return -errno;
	out->header.end = le64_make(end);
	if (out->data_fd >= 0)
		rc = archive_header_write(out->data_fd, &out->header);
	if (rc == 0)
		rc = archive_header_write(out->fd, &out->header);
	if (rc == 0)
		rc = archive_out_sync(archive);
	os_point("archive:ended");
	if (rc == 0)
		rc = rename_out(archive);
	if (rc)
		return rc;
	archive->link.after_generation = archive->generation;
	archive->link.after_lsn = end;
	archive->link.gap = false;
	stat_add(&archive->volume->stats, STAT_archive_files, 1);
	return 0;
}

int archive_out_end(struct archive *archive)
{
	struct archive_out *out = &archive->out;
	int rc = 0;

	if (out->fd < 0)
		return 0;
	if (out->at == out->first && !links_generations(out))
		archive_out_remove(archive, out->name);
	else
		rc = end_at(archive, out->at);
	if (rc == 0)
		close_out(out);
	return rc;
}

void archive_out_drop(struct archive *archive, lsn_t synced)
{
	struct archive_out *out = &archive->out;

	if (out->fd < 0)
		return;
	if (synced <= out->first)
		archive_out_remove(archive, out->name);
	else
		(void)!end_at(archive, synced); /* else a .part, which says as much */
	close_out(out);
}

/* ----------------------------------------------------------------- resuming */

struct resumed {
	struct archive *archive;
	uint64_t data_bytes;
};

static int compare_data(void *arg, uint64_t start, uint32_t count, const le32 *crcs)
{
	struct resumed *resumed = arg;
	struct archive *archive = resumed->archive;
	int rc = file_read_at(archive->out.data_fd, archive->blocks, (size_t)count * BLOCK_SIZE,
			       ARCHIVE_HEADER_BYTES + resumed->data_bytes);

	(void)start;
	for (uint32_t i = 0; i < count && rc == 0; i++) {
		le32 crc;

		memcpy(&crc, (const uint8_t *)crcs + i * sizeof(crc), sizeof(crc));
		if (crc32c(0, archive->blocks + (size_t)i * BLOCK_SIZE, BLOCK_SIZE) !=
		    le32_get(crc))
			rc = -BE_CRC;
	}
	resumed->data_bytes += (uint64_t)count * BLOCK_SIZE;
	return rc;
}

/* How much of the batch can be kept: whole mtrs up to `limit`, with all of their data. */
static bool keep_batch(struct archive *archive, const struct archive_reader *reader, lsn_t limit)
{
	struct archive_out *out = &archive->out;
	struct log_mtr mtr;
	size_t at = 0;

	while (at < reader->bytes) {
		struct resumed resumed = {.archive = archive, .data_bytes = out->data_bytes};

		if (!log_parse(archive->generation, reader->start + at, reader->buffer + at,
			       reader->bytes - at, &mtr) || mtr.end > limit)
			return false;
		if (out->data_fd >= 0 && archive_data_records(&mtr, compare_data, &resumed) != 0)
			return false;
		out->data_bytes = resumed.data_bytes;
		out->at = mtr.end;
		at += mtr.end - mtr.start;
	}
	return true;
}

static int keep_whole(struct archive *archive, lsn_t limit)
{
	struct archive_out *out = &archive->out;
	struct archive_reader reader;
	int rc = archive_reader_open(&reader, out->fd, archive->generation, out->first,
				     UINT64_MAX / 2);

	while (rc == 0) {
		rc = archive_read(&reader);
		if (rc || reader.bytes == 0 || !keep_batch(archive, &reader, limit))
			break;
	}
	archive_reader_close(&reader);
	if (rc == 0 && ftruncate(out->fd, (off_t)(ARCHIVE_HEADER_BYTES + out->at - out->first)))
		rc = -errno;
	if (rc == 0 && out->data_fd >= 0 &&
	    ftruncate(out->data_fd, (off_t)(ARCHIVE_HEADER_BYTES + out->data_bytes)))
		rc = -errno;
	return rc;
}

int archive_out_resume(struct archive *archive, const struct archive_file *file, lsn_t limit)
{
	struct archive_out *out = &archive->out;
	bool data = file->flags & ARCHIVE_DATA;
	int rc;

	check(out->fd < 0);
	*out = (struct archive_out){
		.fd = -1, .data_fd = -1, .first = file->first, .at = file->first};
	memcpy(out->name, file->name, sizeof(out->name));
	out->fd = archive_open_file(archive->dir_fd, out->name, ".part", O_RDWR);
	rc = out->fd < 0 ? out->fd : archive_header_read(out->fd, &out->header);
	if (rc == 0 && data) {
		out->data_fd = archive_open_file(archive->dir_fd, out->name, ".data", O_RDWR);
		rc = out->data_fd < 0 ? out->data_fd : 0;
	}
	if (rc == 0)
		rc = keep_whole(archive, limit);
	if (rc)
		close_out(out);
	return rc;
}
