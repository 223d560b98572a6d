/*
 * What the archive of the log adds to backups: replay from the newest backup's
 * LSN on (replay.h), with the file data that lies beside the log.
 *
 * INV-ARCH-2, read from the other side: files are taken one after the other, each
 * because it holds the LSN that is due in the generation that is due, or because
 * it says that it continues the end of the one before.  A gap, a missing file, or
 * a file without data for data that is needed ends the replay: with an error when
 * somebody asked for an LSN that lies behind, else with a word about it.
 */
#include "engine/restore_internal.h"

#include "engine/archive_dir.h"
#include "engine/base/crc32c.h"
#include "engine/base/fileio.h"
#include "engine/base/message.h"
#include "engine/page.h"
#include "engine/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

struct log_replay {
	struct restore *restore;
	const char *dir;
	int dir_fd;
	struct archive_list list;
	struct replay_target target;
	struct replay replay;
	lsn_t from;              /* what ends at or below is in the backup */
	/* the file at work */
	const struct archive_file *file;
	int data_fd;
	uint64_t data_at;
	uint8_t *blocks;         /* WRITE_BLOCKS_MAX */
};

/* ------------------------------------------------------------------- target */

static int target_read(void *arg, uint64_t pageno, void *page)
{
	struct log_replay *l = arg;
	int rc = dev_read(l->restore->dev, page, l->target.page_size, pageno * BLOCK_SIZE);

	if (rc)
		return rc;
	return page_verify(page, l->target.page_size, pageno, l->target.tag, NULL) == 0;
}

static int target_write(void *arg, uint64_t pageno, const void *page)
{
	struct log_replay *l = arg;

	return dev_write(l->restore->dev, page, l->target.page_size, pageno * BLOCK_SIZE);
}

static int no_data(const struct log_replay *l)
{
	message(LOG_ERR,
		"%s: %s holds no file data, which is needed from LSN %" PRIu64
		" on; archive with -o log_archive_data", l->dir, l->file->name, l->replay.next);
	return -BE_ORDER;
}

static int target_data(void *arg, lsn_t end, uint64_t start, uint32_t count, const le32 *crcs)
{
	struct log_replay *l = arg;
	size_t bytes = (size_t)count * BLOCK_SIZE;
	uint64_t at = l->data_at;
	int rc;

	l->data_at += bytes;
	if (end <= l->from)
		return 0;
	if (l->data_fd < 0)
		return no_data(l);
	rc = file_read_at(l->data_fd, l->blocks, bytes, ARCHIVE_HEADER_BYTES + at);
	for (uint32_t i = 0; i < count && rc == 0; i++) {
		le32 crc;

		memcpy(&crc, (const uint8_t *)crcs + i * sizeof(crc), sizeof(crc));
		if (crc32c(0, l->blocks + (size_t)i * BLOCK_SIZE, BLOCK_SIZE) != le32_get(crc))
			rc = -BE_CRC;
	}
	if (rc) {
		message(LOG_ERR, "%s: %s.data: data of LSN %" PRIu64 ": %s", l->dir, l->file->name,
			end, error_text(rc));
		return -BE_DAMAGE;
	}
	return dev_write(l->restore->dev, l->blocks, bytes, start * BLOCK_SIZE);
}

static void target_log_other(void *arg, uint64_t start, uint64_t blocks)
{
	struct disk_superblock *sb = &((struct log_replay *)arg)->restore->sb;

	sb->log_other = le64_make(start);
	sb->log_other_blocks = le64_make(blocks);
}

static int grow(struct log_replay *l, uint64_t block_count, uint64_t group_count)
{
	int rc = restore_grow(l->restore, block_count, group_count, l->file->name);

	l->target.end_block = l->restore->geo.block_count - 1;
	return rc;
}

static int target_volume_size(void *arg, uint64_t block_count, uint64_t group_count)
{
	return grow(arg, block_count, group_count);
}

/*
 * A generation begins: the log may be elsewhere, the volume larger (backup_format.h).
 * Within one, what the file says of `other` is of its beginning, and the records know better.
 */
static int take_log_place(struct log_replay *l, int fd)
{
	struct disk_superblock *sb = &l->restore->sb;
	struct disk_archive_header *header = malloc(sizeof(*header));
	int rc = header ? archive_header_read(fd, header) : -ENOMEM;

	if (rc == 0)
		rc = grow(l, le64_get(header->block_count), le32_get(header->group_count));
	if (rc == 0 && le64_get(header->log_bytes) > 0) {
		sb->log_start = header->log_start;
		sb->log_bytes = header->log_bytes;
		sb->log_other = header->log_other;
		sb->log_other_blocks = header->log_other_blocks;
	}
	free(header);
	return rc;
}

/* -------------------------------------------------------------------- files */

/* The file where the replay goes on, or NULL; *from: where in it. */
static const struct archive_file *next_file(const struct log_replay *l, uint64_t *from)
{
	uint64_t generation = l->restore->generation;
	lsn_t lsn = l->restore->lsn;

	for (size_t i = 0; i < l->list.count; i++) {
		const struct archive_file *file = &l->list.file[i];

		if (file->generation == generation && file->first <= lsn && lsn < file->end) {
			*from = lsn;
			return file;
		}
	}
	for (size_t i = 0; i < l->list.count; i++) {
		const struct archive_file *file = &l->list.file[i];

		if (file->generation > generation && !(file->flags & ARCHIVE_GAP) &&
		    file->after_generation == generation && file->after_lsn == lsn &&
		    generation_history(file->generation) == generation_history(generation)) {
			*from = file->first;
			return file;
		}
	}
	return NULL;
}

/* The bytes from the file's start, since its data lies in the order of its records. */
static int replay_file(struct log_replay *l, int fd, lsn_t until)
{
	struct archive_reader reader;
	struct replay *replay = &l->replay;
	size_t used;
	int rc = replay_begin(replay, &l->target, l->file->generation, l->file->first, until);

	if (rc)
		return rc;
	replay->after = l->from;
	rc = archive_reader_open(&reader, fd, l->file->generation, l->file->first, l->file->end);
	while (rc == 0 && !replay->stopped) {
		rc = archive_read(&reader);
		if (rc || reader.bytes == 0)
			break;
		rc = replay_bytes(replay, reader.buffer, reader.bytes, &used);
		if (rc == 0 && used != reader.bytes && !replay->stopped)
			rc = -BE_DAMAGE;
	}
	if (rc == 0 && !replay->stopped && replay->next != l->file->end)
		rc = -BE_DAMAGE;
	archive_reader_close(&reader);
	return rc;
}

static int apply_file(struct log_replay *l, lsn_t until)
{
	const char *suffix = l->file->part ? ".part" : ".log";
	int fd = archive_open_file(l->dir_fd, l->file->name, suffix, O_RDONLY);
	uint64_t pageno = 0;
	int rc = fd < 0 ? fd : 0;

	l->data_fd = -1;
	l->data_at = 0;
	if (rc == 0 && (l->file->flags & ARCHIVE_DATA))
		l->data_fd = archive_open_file(l->dir_fd, l->file->name, ".data", O_RDONLY);
	if (rc == 0 && l->file->generation != l->restore->generation)
		rc = take_log_place(l, fd);
	if (rc == 0)
		rc = replay_file(l, fd, until);
	/* Pages that lie in a file have all been there before: nothing can be owed. */
	if (rc == 0 && replay_owes(&l->replay, &pageno))
		rc = -BE_DAMAGE;
	if (rc == 0) {
		l->restore->generation = l->file->generation;
		if (l->replay.next > l->restore->lsn)
			l->restore->lsn = l->replay.next;
	} else if (rc != -BE_ORDER) {
		message(LOG_ERR, "%s/%s%s: cannot be replayed: %s", l->dir, l->file->name, suffix,
			error_text(rc));
	}
	replay_end(&l->replay);
	if (l->data_fd >= 0)
		close(l->data_fd);
	if (fd >= 0)
		close(fd);
	return rc;
}

static int apply_files(struct log_replay *l, lsn_t until)
{
	bool stopped = false;
	lsn_t from;

	while (!stopped && (l->file = next_file(l, &from)) != NULL) {
		int rc;

		l->from = from;
		rc = apply_file(l, until);
		if (rc)
			return rc;
		stopped = l->replay.stopped;
		/* The end of the file was reached, or everything in it lies behind. */
		if (!stopped && l->restore->lsn < l->file->end)
			return -BE_DAMAGE;
	}
	if (stopped || until == UINT64_MAX || l->restore->lsn >= until)
		return 0;
	message(LOG_ERR,
		"%s: the archive ends, or has a gap, at LSN %" PRIu64
		", before the wanted %" PRIu64, l->dir, l->restore->lsn, until);
	return -BE_ORDER;
}

int restore_log(struct restore *restore, const char *dir, lsn_t until)
{
	struct log_replay l = {.restore = restore, .dir = dir};
	int rc;

	if (restore->lsn == 0)
		return -EINVAL;
	if (until < restore->lsn) {
		message(LOG_ERR, "LSN %" PRIu64 " lies before the newest backup's, %" PRIu64
			": leave that backup out", until, restore->lsn);
		return -BE_ORDER;
	}
	l.target = (struct replay_target){
		.page_size = restore->geo.page_size,
		.first_block = restore->geo.groups_start,
		.end_block = restore->geo.block_count - 1,
		.read = target_read,
		.write = target_write,
		.data = target_data,
		.log_other = target_log_other,
		.volume_size = target_volume_size,
		.arg = &l,
	};
	memcpy(l.target.tag, restore->sb.uuid, sizeof(l.target.tag));
	l.blocks = malloc((size_t)WRITE_BLOCKS_MAX * BLOCK_SIZE);
	l.dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rc = l.blocks == NULL ? -ENOMEM : l.dir_fd < 0 ? -errno : 0;
	if (rc == 0)
		rc = archive_list_read(&l.list, l.dir_fd, dir, restore->sb.uuid);
	if (rc)
		message(LOG_ERR, "%s: %s", dir, error_text(rc));
	if (rc == 0)
		rc = apply_files(&l, until);
	if (rc == 0 && restore_judge_superblock(restore) != 0) {
		message(LOG_ERR, "%s: says of the redo log's place what cannot be", dir);
		rc = -BE_DAMAGE;
	}
	archive_list_free(&l.list);
	if (l.dir_fd >= 0)
		close(l.dir_fd);
	free(l.blocks);
	return rc;
}
