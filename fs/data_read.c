/*
 * Reading contents: read, seek, and blocks of LOBs for the rest of the core.
 *
 * INV-LOB-1, readers: the inode's lock S and the range S are held from the
 * reading of the record until all mappings are copied, so a read sees each
 * write wholly or not at all.  The I/O itself runs under the epoch alone
 * (INV-LOB-4): blocks that are freed meanwhile are not reused before it ends.
 *
 * A checksum that does not match is believed only after the mapping was looked
 * up again; then the reader gets EIO, and the log says which block.
 */
#include "fs/core_internal.h"

#include "engine/lob.h"
#include "fs/path.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define CRC_TRIES 2u

static uint64_t blocks_up(uint64_t bytes)
{
	return bytes / BLOCK_SIZE + (bytes % BLOCK_SIZE != 0);
}

static int report_crc(struct core *core, uint64_t ino, uint64_t block)
{
	char path[PATH_TEXT_BYTES];

	stat_add(&core->volume->stats, STAT_core_bad_blocks, 1);
	path_text(core->volume, ino, path);
	message(LOG_ERR,
		"%s%sinode %" PRIu64 ", offset %" PRIu64 ": checksum mismatch; %u bytes cannot be "
		"read",
		path, *path ? ", " : "", ino, block * BLOCK_SIZE, BLOCK_SIZE);
	return -EIO;
}

static bool maps_nothing(const struct lob_map *map)
{
	for (unsigned i = 0; i < map->count; i++)
		if (map->run[i].start)
			return false;
	return true;
}

int contents_read(struct core *core, const struct lob_source *source, uint64_t first,
		  uint64_t count, void *buf, bool *hole)
{
	struct lob_map map;
	uint64_t bad = 0;
	int rc = -BE_CRC;

	lob_map_init(&map);
	for (unsigned tries = 0; tries < CRC_TRIES && rc == -BE_CRC; tries++) {
		rc = lob_map_read(core->volume, source->lob, first, count, source->dead_first,
				  source->dead_end, &map);
		if (rc)
			break;
		if (hole)
			*hole = maps_nothing(&map);
		rc = lob_read_blocks(core->volume, &map, buf, &bad);
	}
	lob_map_free(&map);
	return rc == -BE_CRC ? report_crc(core, source->ino, bad) : rc;
}

/* --- read ---------------------------------------------------------------- */

struct read_args {
	uint64_t ino, offset;
	uint8_t *buf;
	size_t len;      /* at most WRITE_BYTES_MAX */
	size_t done;
	uint64_t bad;    /* block whose checksum did not match */
};

static void read_inline(const struct record *record, struct read_args *args)
{
	size_t have = 0;

	if (args->offset < record->tail_len) {
		have = record->tail_len - args->offset;
		if (have > args->done)
			have = args->done;
		memcpy(args->buf, record->tail + args->offset, have);
	}
	memset(args->buf + have, 0, args->done - have);
}

/* What a read wants of the file, under the locks: *map is inside an epoch if the LOB is needed. */
static int map_locked(struct core *core, struct read_args *args, struct lob_map *map, bool *mapped)
{
	struct record_buffer buffer;
	struct record record;
	uint64_t first, end;
	int rc;

	rc = record_read(core->volume, args->ino, &record, &buffer);
	if (rc)
		return rc;
	if (!S_ISREG(record.mode))
		return S_ISDIR(record.mode) ? -EISDIR : -EINVAL;
	args->done = 0;
	if (args->offset >= record.size)
		return 0;
	args->done = args->len;
	if (args->done > record.size - args->offset)
		args->done = record.size - args->offset;
	if (!record.lob) {
		read_inline(&record, args);
		return 0;
	}
	first = args->offset / BLOCK_SIZE;
	end = blocks_up(args->offset + args->done);
	rc = lob_map_read(core->volume, record.lob, first, end - first, record.dead_first,
			  record.dead_end, map);
	*mapped = rc == 0;
	return rc;
}

/* Whole blocks straight into the caller's buffer where they fit, else through one of our own. */
static int read_mapped(struct core *core, struct read_args *args, const struct lob_map *map)
{
	size_t skip = args->offset % BLOCK_SIZE;
	size_t whole = blocks_up(skip + args->done) * BLOCK_SIZE;
	uint8_t *bounce;
	int rc;

	if (skip == 0 && whole <= args->len)
		return lob_read_blocks(core->volume, map, args->buf, &args->bad);
	bounce = malloc(whole);
	if (!bounce)
		return -ENOMEM;
	rc = lob_read_blocks(core->volume, map, bounce, &args->bad);
	if (rc == 0)
		memcpy(args->buf, bounce + skip, args->done);
	free(bounce);
	return rc;
}

static int read_once(struct core *core, struct read_args *args)
{
	uint64_t end = blocks_up(args->offset + args->len);
	struct range_lock range;
	struct inode *inode;
	struct lob_map map;
	bool mapped = false;
	int rc;

	rc = lock_inode(core, args->ino, false, &inode);
	if (rc)
		return rc;
	lob_map_init(&map);
	range_lock(&inode->ranges, &range, args->offset / BLOCK_SIZE, end, false);
	rc = map_locked(core, args, &map, &mapped);
	range_unlock(&range);
	unlock_inode(core, inode, false);
	os_point("core:read_mapped");
	if (mapped)
		rc = read_mapped(core, args, &map);
	lob_map_free(&map);
	return rc;
}

static int read_part(struct core *core, struct read_args *args)
{
	int rc = -BE_CRC;

	for (unsigned tries = 0; tries < CRC_TRIES && rc == -BE_CRC; tries++)
		rc = read_once(core, args);
	return rc == -BE_CRC ? report_crc(core, args->ino, args->bad) : rc;
}

int core_read(struct core *core, view_t view, uint64_t ino, uint64_t offset, void *buf, size_t len,
	      size_t *done)
{
	int rc = core_view(view);

	*done = 0;
	if (rc)
		return rc;
	stat_add(&core->volume->stats, STAT_core_reads, 1);
	while (rc == 0 && len > *done && offset < FILE_BYTES_MAX - *done) {
		size_t left = len - *done;
		struct read_args args = {
			.ino = ino,
			.offset = offset + *done,
			.buf = (uint8_t *)buf + *done,
			.len = left < WRITE_BYTES_MAX ? left : WRITE_BYTES_MAX,
		};

		rc = read_part(core, &args);
		if (rc == 0)
			*done += args.done;
		if (args.done < args.len)
			break;
	}
	return *done ? 0 : error_errno(rc);
}

/* --- seek ---------------------------------------------------------------- */

/* Inline: data up to the stored bytes, a hole up to the size. */
static uint64_t seek_inline(const struct record *record, uint64_t offset, bool hole)
{
	if (hole == (offset >= record->tail_len))
		return offset;
	return hole ? record->tail_len : record->size;
}

static int seek_locked(struct core *core, uint64_t ino, uint64_t offset, bool hole, uint64_t *out)
{
	struct record_buffer buffer;
	struct record record;
	uint64_t block;
	int rc;

	rc = record_read(core->volume, ino, &record, &buffer);
	if (rc)
		return rc;
	if (!S_ISREG(record.mode))
		return -EINVAL;
	if (offset >= record.size)
		return -ENXIO;
	if (!record.lob) {
		*out = seek_inline(&record, offset, hole);
	} else {
		rc = lob_seek(core->volume, record.lob, offset / BLOCK_SIZE, hole,
			      record.dead_first, record.dead_end, &block);
		if (rc)
			return rc;
		*out = block >= blocks_up(record.size) ? record.size : block * BLOCK_SIZE;
		if (*out < offset)
			*out = offset;
	}
	if (*out > record.size)
		*out = record.size;
	return *out == record.size && !hole ? -ENXIO : 0;
}

int core_seek(struct core *core, view_t view, uint64_t ino, uint64_t offset, int whence,
	      uint64_t *out)
{
	struct range_lock range;
	struct inode *inode;
	int rc = core_view(view);

	if (rc == 0 && whence != SEEK_DATA && whence != SEEK_HOLE)
		rc = -EINVAL;
	if (rc)
		return rc;
	rc = lock_inode(core, ino, false, &inode);
	if (rc)
		return error_errno(rc);
	range_lock(&inode->ranges, &range, offset / BLOCK_SIZE, RANGE_END, false);
	rc = seek_locked(core, ino, offset, whence == SEEK_HOLE, out);
	range_unlock(&range);
	unlock_inode(core, inode, false);
	return error_errno(rc);
}
