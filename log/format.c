/*
 * The bytes of the log: header, checkpoint blocks, the trailer of an mtr,
 * marks, padding, varints.  No state; engine/format.h has the layout.
 *
 * What tells a byte of this lap and mount from any other:
 *	sequence byte  the lap, computed from the sequence byte's own LSN, so an
 *	               mtr that straddles the end carries the one of the lap it ends in
 *	CRC seed       the epoch (the generation of the mount that wrote it)
 *	mark           its own LSN and the epoch once more
 */
#include "log/log_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "engine/base/crc32c.h"

#define ZERO_CHUNK_BYTES (1u << 20)
#define MARK_BODY_BYTES 24u

/* ----------------------------------------------------------------- varint */

size_t varint_put(uint8_t *p, uint64_t value)
{
	size_t n = 0;

	for (; value >= 0x80; value >>= 7)
		p[n++] = (uint8_t)value | 0x80;
	p[n++] = (uint8_t)value;
	return n;
}

/* Longer forms of a small value are accepted: a length may be filled in later. */
size_t varint_get_long(const uint8_t *p, size_t left, uint64_t *value)
{
	uint64_t v = 0;

	for (size_t n = 0; n < 10 && n < left; n++) {
		uint64_t group = p[n] & 0x7f;

		if (n == 9 && group > 1)
			return 0;
		v |= group << (7 * n);
		if (!(p[n] & 0x80)) {
			*value = v;
			return n + 1;
		}
	}
	return 0;
}

int log_next_record(struct log_cursor *cursor, struct log_rec *record)
{
	uint64_t len;
	size_t head;

	if (!cursor->left)
		return 0;
	record->type = cursor->next[0];
	if (record->type < REC_MARK)
		return -BE_FORMAT;
	head = varint_get(cursor->next + 1, cursor->left - 1, &len);
	if (!head || len > cursor->left - 1 - head)
		return -BE_FORMAT;
	record->body = cursor->next + 1 + head;
	record->len = len;
	cursor->next = record->body + len;
	cursor->left -= 1 + head + len;
	return 1;
}

/* --------------------------------------------------------------- position */

uint64_t log_offset(const struct log_shape *shape, lsn_t lsn)
{
	return shape->offset + LOG_RECORDS_START + (lsn - shape->first_lsn) % shape->capacity;
}

uint64_t log_lap_left(const struct log_shape *shape, lsn_t lsn)
{
	return shape->capacity - (lsn - shape->first_lsn) % shape->capacity;
}

uint8_t log_sequence_byte(const struct log_shape *shape, lsn_t lsn)
{
	return 1 ^ ((lsn - shape->first_lsn) / shape->capacity & 1);
}

/* -------------------------------------------------------------------- mtr */

uint32_t log_records_crc(uint64_t epoch, const void *records, size_t bytes)
{
	le64 seed = le64_make(epoch);

	return crc32c(crc32c(0, &seed, sizeof(seed)), records, bytes);
}

void log_seal(const struct log_shape *shape, uint32_t crc, lsn_t sequence, uint8_t *trailer)
{
	le32 disk = le32_make(crc);

	trailer[0] = log_sequence_byte(shape, sequence);
	memcpy(trailer + 1, &disk, sizeof(disk));
}

static void put64(uint8_t *p, uint64_t value)
{
	le64 disk = le64_make(value);

	memcpy(p, &disk, sizeof(disk));
}

static uint64_t get64(const uint8_t *p)
{
	le64 disk;

	memcpy(&disk, p, sizeof(disk));
	return le64_get(disk);
}

void log_mark_make(const struct log_shape *shape, uint64_t epoch, lsn_t own, lsn_t durable,
		   uint8_t *mtr)
{
	const size_t bytes = 2 + MARK_BODY_BYTES;

	mtr[0] = REC_MARK;
	mtr[1] = MARK_BODY_BYTES;
	put64(mtr + 2, own);
	put64(mtr + 10, epoch);
	put64(mtr + 18, durable);
	log_seal(shape, log_records_crc(epoch, mtr, bytes), own + bytes, mtr + bytes);
}

int log_mark_parse(const struct log_shape *shape, uint64_t epoch, lsn_t own, const uint8_t *records,
		   size_t bytes, lsn_t *durable)
{
	if (!bytes || records[0] != REC_MARK)
		return 0;
	if (bytes != 2 + MARK_BODY_BYTES || records[1] != MARK_BODY_BYTES)
		return -BE_FORMAT;
	*durable = get64(records + 18);
	if (own % shape->block || get64(records + 2) != own || get64(records + 10) != epoch ||
	    *durable > own)
		return -BE_FORMAT;
	return 1;
}

size_t log_pad_bytes(const struct log_shape *shape, lsn_t end)
{
	size_t gap = lsn_round_up(end, shape->block) - end;

	return gap && gap < MTR_PAD_BYTES_MIN ? gap + shape->block : gap;
}

/* One record of zeros.  Its length takes one byte or two: 127 takes two, or the sizes had a gap. */
void log_pad_make(const struct log_shape *shape, uint64_t epoch, lsn_t start, uint8_t *mtr,
		  size_t bytes)
{
	size_t records = bytes - MTR_TRAILER_BYTES;

	check(bytes >= MTR_PAD_BYTES_MIN && bytes < LOG_BLOCK_MAX + MTR_PAD_BYTES_MIN);
	memset(mtr, 0, bytes);
	mtr[0] = REC_PAD;
	if (records - 2 < 0x80) {
		mtr[1] = (uint8_t)(records - 2);
	} else {
		mtr[1] = (uint8_t)((records - 3) | 0x80);
		mtr[2] = (uint8_t)((records - 3) >> 7);
	}
	log_seal(shape, log_records_crc(epoch, mtr, records), start + records, mtr + records);
}

/* ----------------------------------------------------------------- header */

static bool log_shape_valid(const struct log_shape *shape)
{
	uint32_t block = shape->block;

	return block >= LOG_BLOCK_MIN && block <= LOG_BLOCK_MAX && !(block & (block - 1)) &&
	       shape->capacity % block == 0 && shape->capacity >= LOG_CAPACITY_MIN(block) &&
	       shape->capacity < LSN_MAX && shape->first_lsn % LOG_BLOCK_MAX == 0 &&
	       shape->first_lsn < LSN_MAX;
}

static uint32_t header_crc(const struct disk_log_header *disk)
{
	struct disk_log_header copy = *disk;

	copy.crc = le32_make(0);
	return crc32c(0, &copy, sizeof(copy));
}

int log_header_parse(const struct disk_log_header *disk, const uint8_t uuid[16],
		     uint64_t size_bytes, struct log_shape *shape)
{
	if (memcmp(disk->magic, LOG_MAGIC, sizeof(disk->magic)))
		return -BE_NOVOLUME;
	if (le32_get(disk->crc) != header_crc(disk))
		return -BE_DAMAGE;
	if (le32_get(disk->version) != FORMAT_VERSION)
		return -BE_VERSION;
	if (memcmp(disk->uuid, uuid, sizeof(disk->uuid)))
		return -BE_NOVOLUME;
	if (le64_get(disk->size_bytes) != size_bytes || size_bytes < LOG_RECORDS_START)
		return -BE_DAMAGE;
	shape->capacity = size_bytes - LOG_RECORDS_START;
	memcpy(shape->volume, disk->volume, sizeof(shape->volume));
	shape->first_lsn = le64_get(disk->first_lsn);
	shape->block = shape->header_block = le32_get(disk->block_size);
	return log_shape_valid(shape) ? 0 : -BE_DAMAGE;
}

int log_header_write(struct device *dev, const struct log_shape *shape, const uint8_t uuid[16])
{
	struct disk_log_header disk = {0};

	memcpy(disk.magic, LOG_MAGIC, sizeof(disk.magic));
	disk.version = le32_make(FORMAT_VERSION);
	memcpy(disk.uuid, uuid, sizeof(disk.uuid));
	memcpy(disk.volume, shape->volume, sizeof(disk.volume));
	disk.size_bytes = le64_make(shape->capacity + LOG_RECORDS_START);
	disk.first_lsn = le64_make(shape->first_lsn);
	disk.block_size = le32_make(shape->header_block);
	disk.crc = le32_make(header_crc(&disk));
	return dev_write(dev, &disk, sizeof(disk),
			 shape->offset + (shape->header_slot ? LOG_HEADER_1 : 0));
}

int log_header_read(struct device *dev, const uint8_t uuid[16], uint64_t size_bytes,
		    struct log_shape *shape)
{
	int first = 0;

	for (unsigned slot = 0; slot < 2; slot++) {
		struct disk_log_header disk;
		int err = dev_read(dev, &disk, sizeof(disk),
				   shape->offset + (slot ? LOG_HEADER_1 : 0));

		if (err)
			return err;
		shape->header_slot = slot;
		err = log_header_parse(&disk, uuid, size_bytes, shape);
		if (!err)
			return 0;
		first = slot ? first : err;
	}
	return first;
}

/* As far as a header can be judged without knowing what is expected. */
static int header_judge(const struct disk_log_header *disk)
{
	if (memcmp(disk->magic, LOG_MAGIC, sizeof(disk->magic)))
		return -BE_NOVOLUME;
	if (le32_get(disk->crc) != header_crc(disk))
		return -BE_DAMAGE;
	return le32_get(disk->version) == FORMAT_VERSION ? 0 : -BE_VERSION;
}

int log_identify(struct device *dev, uint64_t offset, struct log_identity *out)
{
	const uint64_t at[2] = {offset, offset + LOG_HEADER_1};
	int first = 0;

	for (unsigned slot = 0; slot < 2; slot++) {
		struct disk_log_header disk;
		int err = -BE_NOVOLUME;

		if (at[slot] + sizeof(disk) <= dev->size_bytes)
			err = dev_read(dev, &disk, sizeof(disk), at[slot]);
		if (!err)
			err = header_judge(&disk);
		if (!err) {
			memcpy(out->uuid, disk.uuid, sizeof(out->uuid));
			memcpy(out->volume, disk.volume, sizeof(out->volume));
			out->size_bytes = le64_get(disk.size_bytes);
			return 0;
		}
		first = slot ? first : err;
	}
	return first;
}

/* ------------------------------------------------------------- checkpoint */

static uint32_t checkpoint_crc(const struct disk_checkpoint *disk)
{
	struct disk_checkpoint copy = *disk;

	copy.crc = le32_make(0);
	return crc32c(0, &copy, sizeof(copy));
}

void log_checkpoint_make(struct disk_checkpoint *disk, const uint8_t uuid[16],
			 const struct checkpoint *checkpoint)
{
	*disk = (struct disk_checkpoint){
		.lsn = le64_make(checkpoint->lsn),
		.marked_lsn = le64_make(checkpoint->marked_lsn),
		.generation = le64_make(checkpoint->generation),
		.sequence = le64_make(checkpoint->sequence),
		.tally = le64_make(checkpoint->tally),
		.flags = le32_make(checkpoint->mapped ? CHECKPOINT_MAPPED : 0),
	};
	memcpy(disk->magic, CHECKPOINT_MAGIC, sizeof(disk->magic));
	memcpy(disk->tag, uuid, sizeof(disk->tag));
	disk->crc = le32_make(checkpoint_crc(disk));
}

bool log_checkpoint_parse(const struct disk_checkpoint *disk, const uint8_t uuid[16],
			  const struct log_shape *shape, struct checkpoint *checkpoint)
{
	if (memcmp(disk->magic, CHECKPOINT_MAGIC, sizeof(disk->magic)) ||
	    memcmp(disk->tag, uuid, sizeof(disk->tag)) ||
	    le32_get(disk->crc) != checkpoint_crc(disk))
		return false;
	checkpoint->lsn = le64_get(disk->lsn);
	checkpoint->marked_lsn = le64_get(disk->marked_lsn);
	checkpoint->generation = le64_get(disk->generation);
	checkpoint->sequence = le64_get(disk->sequence);
	checkpoint->tally = le64_get(disk->tally);
	checkpoint->mapped = le32_get(disk->flags) & CHECKPOINT_MAPPED;
	return checkpoint->lsn >= shape->first_lsn && checkpoint->lsn < LSN_MAX &&
	       checkpoint->marked_lsn < LSN_MAX && checkpoint->sequence < LSN_MAX;
}

int log_write_tally(struct device *dev, uint64_t offset, const uint8_t uuid[16], uint64_t tally)
{
	const uint64_t at[2] = {offset + LOG_CHECKPOINT_0, offset + LOG_CHECKPOINT_1};
	int err = 0;

	for (unsigned i = 0; i < 2 && !err; i++) {
		struct disk_checkpoint disk;

		err = dev_read(dev, &disk, sizeof(disk), at[i]);
		if (err)
			return err;
		if (memcmp(disk.magic, CHECKPOINT_MAGIC, sizeof(disk.magic)) ||
		    memcmp(disk.tag, uuid, sizeof(disk.tag)) ||
		    le32_get(disk.crc) != checkpoint_crc(&disk))
			continue;
		disk.tally = le64_make(tally);
		disk.crc = le32_make(checkpoint_crc(&disk));
		err = dev_write(dev, &disk, sizeof(disk), at[i]);
		if (!err)
			err = dev_flush(dev);
	}
	return err;
}

/* ------------------------------------------------------------------- mkfs */

int log_prewrite(struct device *dev, uint64_t offset, uint64_t bytes)
{
	uint8_t *zeros = calloc(1, ZERO_CHUNK_BYTES);
	int err = 0;

	if (!zeros)
		return -ENOMEM;
	while (bytes && !err) {
		size_t len = bytes < ZERO_CHUNK_BYTES ? bytes : ZERO_CHUNK_BYTES;

		err = dev_write(dev, zeros, len, offset);
		offset += len;
		bytes -= len;
	}
	free(zeros);
	return err;
}

static int format_log(struct device *dev, struct log_shape *shape, uint64_t size_bytes,
		      const uint8_t uuid[16], uint64_t generation)
{
	struct checkpoint checkpoint = {
		.lsn = LSN_FIRST, .marked_lsn = LSN_FIRST, .generation = generation,
	};
	const uint64_t at[2] = {shape->offset + LOG_CHECKPOINT_0, shape->offset + LOG_CHECKPOINT_1};
	struct disk_checkpoint disk;
	int err;

	check(shape->block >= LOG_BLOCK_MIN && shape->block <= LOG_BLOCK_MAX &&
	      !(shape->block & (shape->block - 1)));
	if (size_bytes < LOG_RECORDS_START + LOG_CAPACITY_MIN(shape->block))
		return -BE_TOOSMALL;
	shape->header_block = shape->block;
	shape->first_lsn = LSN_FIRST;
	shape->capacity = size_bytes - LOG_RECORDS_START;
	if (!log_shape_valid(shape))
		return -EINVAL;
	err = log_prewrite(dev, shape->offset, size_bytes);
	if (!err)
		err = log_header_write(dev, shape, uuid);
	for (unsigned i = 0; i < 2 && !err; i++) {
		checkpoint.sequence = i + 1;
		log_checkpoint_make(&disk, uuid, &checkpoint);
		err = dev_write(dev, &disk, sizeof(disk), at[i]);
	}
	return err;
}

/* -EINVAL: its blocks are larger than any log's. */
static int block_of(const struct device *dev, uint32_t *block)
{
	*block = dev->block_bytes ? dev->block_bytes : LOG_BLOCK_DEFAULT;
	if (*block < LOG_BLOCK_MIN)
		*block = LOG_BLOCK_MIN;
	return *block > LOG_BLOCK_MAX ? -EINVAL : 0;
}

int log_format_blocks(struct device *dev, uint64_t offset, uint64_t size_bytes,
		      const uint8_t uuid[16], uint64_t generation, uint32_t block)
{
	struct log_shape shape = {.offset = offset, .block = block};

	memcpy(shape.volume, uuid, sizeof(shape.volume));
	return format_log(dev, &shape, size_bytes, uuid, generation);
}

int log_format(struct device *dev, uint64_t offset, uint64_t size_bytes, const uint8_t uuid[16],
	       uint64_t generation)
{
	uint32_t block;
	int err = block_of(dev, &block);

	return err ? err : log_format_blocks(dev, offset, size_bytes, uuid, generation, block);
}

int log_format_external(struct device *dev, uint64_t size_bytes, const uint8_t uuid[16],
			const uint8_t volume[16], uint64_t generation)
{
	struct log_shape shape = {0};
	int err = block_of(dev, &shape.block);

	memcpy(shape.volume, volume, sizeof(shape.volume));
	return err ? err : format_log(dev, &shape, size_bytes, uuid, generation);
}
