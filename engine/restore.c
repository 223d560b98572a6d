/* From backups to a volume: see restore.h. */
#include "engine/restore_internal.h"

#include "engine/base/crc32c.h"
#include "engine/base/fileio.h"
#include "engine/base/message.h"
#include "engine/base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

/* Above these a file talks nonsense; those of the restored volume go on from here. */
#define LSN_LIMIT (UINT64_C(1) << 61)
#define HISTORY_LIMIT (UINT64_C(1) << 29)

static int refuse(const char *name, const char *why, int rc)
{
	message(LOG_ERR, "%s: %s", name, why);
	return rc;
}

/* ---------------------------------------------------------- reading a backup */

static bool is_zero(const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	while (len > 0 && *at == 0)
		at++, len--;
	return len == 0;
}

static int judge_header(const struct disk_backup_header *head, const char *name)
{
	struct disk_backup_header copy = *head;

	if (is_zero(head->magic, sizeof(head->magic)))
		return refuse(name, "the backup was not finished", -BE_TRUNCATED);
	if (memcmp(head->magic, BACKUP_MAGIC, sizeof(head->magic)) != 0)
		return refuse(name, "not a blinkfs backup", -BE_NOVOLUME);
	copy.crc = le32_make(0);
	if (crc32c(0, &copy, sizeof(copy)) != le32_get(head->crc))
		return refuse(name, "damaged: its header does not match its checksum", -BE_DAMAGE);
	if (le32_get(head->version) != BACKUP_VERSION)
		return refuse(name, "of a newer version of this program", -BE_VERSION);
	if (le64_get(head->lsn) < LSN_FIRST || le64_get(head->lsn) > LSN_LIMIT ||
	    le64_get(head->base_lsn) > le64_get(head->lsn) ||
	    generation_history(le64_get(head->generation)) > HISTORY_LIMIT)
		return refuse(name, "damaged: it says of its LSN or generation what cannot be",
			      -BE_DAMAGE);
	return 0;
}

int backup_header_read(int fd, const char *name, struct disk_backup_header *out)
{
	int rc = file_read_at(fd, out, sizeof(*out), 0);

	if (rc == -BE_TRUNCATED)
		return refuse(name, "not a blinkfs backup", -BE_NOVOLUME);
	if (rc)
		return refuse(name, error_text(rc), rc);
	return judge_header(out, name);
}

/* One chunk of a file that is read from front to end. */
struct reader {
	int fd;
	const char *name;
	struct disk_backup_header head;
	uint64_t at, chunks;
	uint32_t type, count;
	uint64_t start;
	uint8_t *blocks; /* BACKUP_CHUNK_BLOCKS_MAX */
	bool ended;
};

static int reader_open(struct reader *r, int fd, const char *name)
{
	int rc;

	*r = (struct reader){.fd = fd, .name = name, .at = BACKUP_HEADER_BYTES};
	rc = backup_header_read(fd, name, &r->head);
	if (rc)
		return rc;
	r->blocks = aligned_alloc(BLOCK_SIZE, (size_t)BACKUP_CHUNK_BLOCKS_MAX * BLOCK_SIZE);
	return r->blocks ? 0 : -ENOMEM;
}

static void reader_close(struct reader *r)
{
	free(r->blocks);
}

static int damaged(const struct reader *r, const char *what)
{
	message(LOG_ERR, "%s: damaged at byte %" PRIu64 ": %s", r->name, r->at, what);
	return -BE_DAMAGE;
}

static int judge_chunk(struct reader *r, const struct disk_backup_chunk *chunk)
{
	struct disk_backup_chunk copy = *chunk;

	copy.crc = le32_make(0);
	if (memcmp(chunk->magic, BACKUP_CHUNK_MAGIC, sizeof(chunk->magic)) != 0 ||
	    crc32c(0, &copy, sizeof(copy)) != le32_get(chunk->crc))
		return damaged(r, "no chunk begins here");
	if (memcmp(chunk->tag, r->head.id, sizeof(chunk->tag)) != 0 ||
	    le64_get(chunk->offset) != r->at)
		return damaged(r, "a chunk of another place or backup");
	if (le32_get(chunk->count) > BACKUP_CHUNK_BLOCKS_MAX)
		return damaged(r, "a chunk of impossible length");
	return 0;
}

/* Reads the next chunk; r->ended when there are no more. */
static int reader_next(struct reader *r)
{
	struct disk_backup_chunk chunk;
	size_t bytes;
	int rc = file_read_at(r->fd, &chunk, sizeof(chunk), r->at);

	if (rc == 0)
		rc = judge_chunk(r, &chunk);
	else if (rc == -BE_TRUNCATED)
		return damaged(r, "the file ends too early");
	if (rc)
		return rc;
	r->type = le32_get(chunk.type);
	r->count = le32_get(chunk.count);
	r->start = le64_get(chunk.start);
	if (r->type == BACKUP_END) {
		r->ended = true;
		if (r->start != r->chunks || r->chunks != le64_get(r->head.chunks) ||
		    r->at + sizeof(chunk) != le64_get(r->head.file_bytes))
			return damaged(r, "chunks are missing");
		return 0;
	}
	bytes = (size_t)r->count * BLOCK_SIZE;
	rc = file_read_at(r->fd, r->blocks, bytes, r->at + sizeof(chunk));
	if (rc == -BE_TRUNCATED)
		return damaged(r, "the file ends too early");
	if (rc)
		return rc;
	if (crc32c(0, r->blocks, bytes) != le32_get(chunk.payload_crc))
		return damaged(r, "contents do not match their checksum");
	r->at += sizeof(chunk) + bytes;
	r->chunks++;
	return 0;
}

int backup_verify(int fd, const char *name)
{
	struct reader r;
	int rc = reader_open(&r, fd, name);

	while (rc == 0 && !r.ended)
		rc = reader_next(&r);
	reader_close(&r);
	return rc;
}

/* ------------------------------------------------------------------ applying */

static int zero_superblocks(struct device *dev)
{
	static const uint8_t zeros[BLOCK_SIZE];
	int rc = dev_write(dev, zeros, BLOCK_SIZE, 0);

	if (rc == 0)
		rc = dev_write(dev, zeros, BLOCK_SIZE,
			       (dev->size_bytes / BLOCK_SIZE - 1) * BLOCK_SIZE);
	return rc ? rc : dev_flush(dev);
}

int restore_begin(struct restore **out, struct device *dev)
{
	struct restore *restore;
	int rc;

	if (dev->size_bytes < 2 * BLOCK_SIZE)
		return -BE_TOOSMALL;
	rc = zero_superblocks(dev);
	if (rc)
		return rc;
	restore = calloc(1, sizeof(*restore));
	if (restore == NULL)
		return -ENOMEM;
	restore->dev = dev;
	*out = restore;
	return 0;
}

void restore_end(struct restore *restore)
{
	free(restore);
}

/* INV-RST-1. */
static int judge_order(const struct restore *restore, const struct disk_backup_header *head,
		       const char *name)
{
	lsn_t base = le64_get(head->base_lsn);

	if (restore->lsn == 0)
		return base == 0 ? 0
				 : refuse(name, "an incremental backup; a full one has to come "
						"first", -BE_ORDER);
	if (base == 0)
		return refuse(name, "a full backup can only come first", -BE_ORDER);
	if (memcmp(head->uuid, restore->sb.uuid, sizeof(head->uuid)) != 0)
		return refuse(name, "a backup of another volume", -BE_ORDER);
	if (generation_history(le64_get(head->generation)) !=
	    generation_history(restore->generation))
		return refuse(name, "made before the volume was restored, or after", -BE_ORDER);
	if (base != restore->lsn ||
	    (!is_zero(head->base_id, sizeof(head->base_id)) &&
	     memcmp(head->base_id, restore->id, sizeof(head->base_id)) != 0)) {
		message(LOG_ERR,
			"%s: its base is a backup with LSN %" PRIu64
			", but what was restored before has LSN %" PRIu64
			"; give all backups of the chain, oldest first", name, base,
			restore->lsn);
		return -BE_ORDER;
	}
	return 0;
}

void restore_log_to(struct restore *restore, struct device *log_dev, const char *path)
{
	restore->log_dev = log_dev;
	restore->log_path = path;
}

/* INV-RST-3. */
static int judge_log_place(const struct restore *restore, const struct geometry *geo,
			   const char *name)
{
	if (geo->log_external && restore->log_dev == NULL)
		return refuse(name, "the volume's redo log is on a device of its own; say where "
				    "the new one shall be with -j LOG", -BE_NOLOG);
	if (!geo->log_external && restore->log_dev)
		return refuse(name, "the volume has its redo log inside; leave out -j", -EINVAL);
	return 0;
}

int restore_judge_superblock(struct restore *restore)
{
	return geometry_decode(&restore->sb, &restore->geo);
}

static int make_room(struct restore *restore, uint64_t block_count)
{
	struct device *dev = restore->dev;
	int rc = 0;

	if (block_count > dev->size_bytes / BLOCK_SIZE)
		rc = dev_resize(dev, block_count * BLOCK_SIZE);
	if (rc == 0)
		return 0;
	message(LOG_ERR, "%s: the target has %" PRIu64 " blocks, the volume needs %" PRIu64 ": %s",
		dev->path, dev->size_bytes / BLOCK_SIZE, block_count, error_text(rc));
	return rc == -EOPNOTSUPP ? -BE_TOOSMALL : rc;
}

int restore_grow(struct restore *restore, uint64_t block_count, uint64_t group_count,
		 const char *name)
{
	struct disk_superblock sb = restore->sb;
	uint32_t had = restore->geo.group_count;
	struct geometry geo;
	int rc;

	if (block_count <= restore->geo.block_count)
		return 0;
	sb.block_count = le64_make(block_count);
	sb.group_count = le32_make((uint32_t)group_count);
	/* What the log takes or gives up is judged at the end, when its place is known. */
	sb.log_other = sb.log_other_blocks = le64_make(0);
	if (group_count < had || group_count > UINT32_MAX || geometry_decode(&sb, &geo))
		return refuse(name, "says of the volume's size what cannot be", -BE_DAMAGE);
	rc = make_room(restore, block_count);
	if (rc == 0)
		rc = volume_format_groups(restore->dev, &geo, sb.uuid, had);
	if (rc == 0) {
		restore->sb.block_count = sb.block_count;
		restore->sb.group_count = sb.group_count;
		restore->geo.block_count = block_count;
		restore->geo.group_count = (uint32_t)group_count;
	}
	return rc;
}

static int take_superblock(struct restore *restore, const struct reader *r)
{
	const struct disk_superblock *sb = (const void *)r->blocks;
	struct geometry geo;
	int rc = r->count == 1 ? superblock_accept(sb, false, &geo) : -BE_FORMAT;

	if (rc == -BE_VERSION)
		return refuse(r->name, "of a volume of a newer version of this program", rc);
	if (rc || memcmp(sb->uuid, r->head.uuid, sizeof(sb->uuid)) != 0)
		return damaged(r, "no superblock of this volume");
	rc = make_room(restore, geo.block_count);
	if (rc)
		return rc;
	rc = judge_log_place(restore, &geo, r->name);
	if (rc)
		return rc;
	restore->sb = *sb;
	restore->geo = geo;
	return 0;
}

static int apply_chunk(struct restore *restore, const struct reader *r)
{
	const struct geometry *geo = &restore->geo;

	if (r->type == BACKUP_SUPER)
		return take_superblock(restore, r);
	if (r->type != BACKUP_PAGES && r->type != BACKUP_DATA)
		return damaged(r, "a chunk of unknown type");
	if (geo->block_count == 0)
		return damaged(r, "no superblock comes first");
	if (r->start < geo->groups_start || r->start >= geo->block_count - 1 ||
	    r->count > geo->block_count - 1 - r->start)
		return damaged(r, "blocks outside the volume");
	return dev_write(restore->dev, r->blocks, (size_t)r->count * BLOCK_SIZE,
			 r->start * BLOCK_SIZE);
}

int restore_apply(struct restore *restore, int fd, const char *name)
{
	struct reader r;
	int rc = reader_open(&r, fd, name);

	if (rc == 0)
		rc = judge_order(restore, &r.head, name);
	while (rc == 0) {
		rc = reader_next(&r);
		if (rc || r.ended)
			break;
		rc = apply_chunk(restore, &r);
	}
	if (rc == 0 && restore->geo.block_count == 0)
		rc = damaged(&r, "no superblock is in it");
	if (rc == 0) {
		restore->lsn = le64_get(r.head.lsn);
		restore->generation = le64_get(r.head.generation);
		restore->bad_blocks += le64_get(r.head.bad_blocks);
		memcpy(restore->id, r.head.id, sizeof(restore->id));
	}
	reader_close(&r);
	return rc;
}

/* ----------------------------------------------------------------- finishing */

/* INV-RST-2: above every generation of the history that was saved. */
static uint64_t new_generation(const struct restore *restore)
{
	uint16_t step;

	os_random_bytes(&step, sizeof(step));
	return (generation_history(restore->generation) + 1 + step) << 32 | 2;
}

/* INV-RST-3: as long as it was, on the device that was given for it. */
static int size_log_device(struct restore *restore)
{
	struct device *dev = restore->log_dev;
	char size[SIZE_TEXT_BYTES];
	int rc = dev_resize(dev, restore->geo.log_bytes);

	if (rc == -EOPNOTSUPP)
		rc = dev->size_bytes < restore->geo.log_bytes ? -BE_TOOSMALL : 0;
	if (rc)
		message(LOG_ERR, "%s: cannot hold the redo log of %s: %s", dev->path,
			size_text(restore->geo.log_bytes, size), error_text(rc));
	return rc;
}

/* As uuid_generate(3) makes them. */
static void random_uuid(uint8_t uuid[16])
{
	os_random_bytes(uuid, 16);
	uuid[6] = (uuid[6] & 0x0f) | 0x40;
	uuid[8] = (uuid[8] & 0x3f) | 0x80;
}

static int format_log(struct restore *restore, uint64_t generation)
{
	const struct geometry *geo = &restore->geo;
	struct disk_superblock *sb = &restore->sb;
	int rc;

	if (!restore->log_dev)
		return log_format(restore->dev, geo->log_start * BLOCK_SIZE, geo->log_bytes,
				  sb->log_uuid, generation);
	rc = size_log_device(restore);
	if (rc)
		return rc;
	random_uuid(sb->log_uuid);
	memset(sb->log_path, 0, sizeof(sb->log_path));
	if (restore->log_path && strlen(restore->log_path) < sizeof(sb->log_path))
		memcpy(sb->log_path, restore->log_path, strlen(restore->log_path));
	return log_format_external(restore->log_dev, geo->log_bytes, sb->log_uuid, sb->uuid,
				   generation);
}

static int write_log(struct restore *restore, uint64_t generation)
{
	const struct geometry *geo = &restore->geo;
	struct log_place place = {
		.dev = restore->log_dev ? restore->log_dev : restore->dev,
		.data = restore->log_dev ? restore->dev : NULL,
		.offset = geo->log_start * BLOCK_SIZE,
		.size_bytes = geo->log_bytes,
	};
	struct log_options options = {.mode = LOG_MODE_PWRITE};
	struct log *log = NULL;
	int rc = format_log(restore, generation - 1);

	memcpy(place.uuid, restore->sb.log_uuid, sizeof(place.uuid));
	if (rc == 0)
		rc = log_open(&log, &place, generation - 1, generation - 1);
	if (rc == 0)
		rc = log_start(log, restore->lsn, generation, &options);
	log_close(log);
	if (rc == 0 && restore->log_dev)
		rc = dev_flush(restore->log_dev);
	return rc;
}

/* Copies of pages, of another life of the same volume, are not for this one. */
static int zero_doublewrite(struct restore *restore)
{
	const struct geometry *geo = &restore->geo;
	uint8_t *zeros = calloc(1, geo->page_size);
	int rc = zeros ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < geo->dw_slots && rc == 0; i++)
		rc = dev_write(restore->dev, zeros, geo->page_size,
			       geo->dw_start * BLOCK_SIZE + (uint64_t)i * geo->page_size);
	free(zeros);
	return rc;
}

int restore_finish(struct restore *restore, lsn_t *lsn)
{
	uint64_t generation = new_generation(restore);
	struct disk_superblock *sb = &restore->sb;
	int rc;

	if (restore->lsn == 0)
		return -EINVAL;
	rc = zero_doublewrite(restore);
	if (rc == 0)
		rc = write_log(restore, generation);
	if (rc == 0)
		rc = dev_flush(restore->dev);
	if (rc)
		return rc;
	sb->mount_gen = le64_make(generation);
	sb->log_gen = le64_make(generation);
	sb->state = le32_make((le32_get(sb->state) & SB_DAMAGED) | SB_CLEAN);
	*lsn = restore->lsn;
	return superblock_write(restore->dev, sb);
}
