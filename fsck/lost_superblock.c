/* Finding a volume again: see lost_superblock.h. */
#include "fsck/lost_superblock.h"

#include "fsck/raw.h"

#include "engine/base/crc32c.h"
#include "engine/base/error.h"
#include "engine/base/os.h"
#include "engine/page.h"

#include <errno.h>
#include <stdlib.h>

#define GENERATION_MAX (1ull << 61)
/* The doublewrite area, which comes before the log, has at most 4096 slots. */
#define LOG_START_MAX (4096u * (PAGE_SIZE_MAX / BLOCK_SIZE) + 1u)

struct search {
	struct device *dev;
	uint64_t blocks; /* of the device */
	uint8_t uuid[16];
	uint64_t log_start, log_bytes, groups_start;
	uint32_t page_size, page_blocks, group_blocks, group_count;
	uint8_t page[PAGE_SIZE_MAX];
};

static bool read_block(struct search *s, uint64_t block, void *buf, size_t len)
{
	return block + (len + BLOCK_SIZE - 1) / BLOCK_SIZE <= s->blocks &&
	       dev_read(s->dev, buf, len, block * BLOCK_SIZE) == 0;
}

/* -------------------------------------------------------------------- the log */

static bool is_log_header(struct search *s, uint64_t block)
{
	struct disk_log_header header;
	le32 crc;

	if (!read_block(s, block, s->page, BLOCK_SIZE))
		return false;
	memcpy(&header, s->page, sizeof(header));
	if (memcmp(header.magic, LOG_MAGIC, sizeof(header.magic)) != 0 ||
	    le32_get(header.version) != FORMAT_VERSION)
		return false;
	crc = header.crc;
	header.crc = le32_make(0);
	if (crc32c(0, &header, sizeof(header)) != le32_get(crc))
		return false;
	memcpy(s->uuid, header.uuid, sizeof(s->uuid));
	s->log_start = block;
	s->log_bytes = le64_get(header.size_bytes);
	return s->log_bytes % BLOCK_SIZE == 0 && s->log_bytes / BLOCK_SIZE < s->blocks;
}

static bool find_log(struct search *s)
{
	for (uint64_t block = 1; block < s->blocks && block <= LOG_START_MAX; block++)
		if (is_log_header(s, block))
			return true;
	return false;
}

/* The newest generation that a checkpoint names. */
static uint64_t log_generation(struct search *s)
{
	static const uint32_t at[] = {LOG_CHECKPOINT_0, LOG_CHECKPOINT_1};
	uint64_t best = 1;

	for (unsigned i = 0; i < array_count(at); i++) {
		struct disk_checkpoint checkpoint;
		le32 crc;

		if (!read_block(s, s->log_start + at[i] / BLOCK_SIZE, s->page, BLOCK_SIZE))
			continue;
		memcpy(&checkpoint, s->page, sizeof(checkpoint));
		crc = checkpoint.crc;
		checkpoint.crc = le32_make(0);
		if (memcmp(checkpoint.magic, CHECKPOINT_MAGIC, sizeof(checkpoint.magic)) == 0 &&
		    memcmp(checkpoint.tag, s->uuid, sizeof(checkpoint.tag)) == 0 &&
		    crc32c(0, &checkpoint, sizeof(checkpoint)) == le32_get(crc) &&
		    le64_get(checkpoint.generation) > best &&
		    le64_get(checkpoint.generation) < GENERATION_MAX)
			best = le64_get(checkpoint.generation);
	}
	return best;
}

/* ------------------------------------------------------------------ the groups */

static bool is_page(struct search *s, uint64_t pageno, enum page_type type, uint32_t group)
{
	const struct disk_bitmap_page *page = (const void *)s->page;

	return read_block(s, pageno, s->page, s->page_size) &&
	       page_verify(s->page, s->page_size, pageno, s->uuid, NULL) == 0 &&
	       page->head.type == type && (type != PAGE_BITMAP || le32_get(page->group) == group);
}

/* The first group begins behind the log, aligned to a page. */
static bool find_groups(struct search *s)
{
	uint64_t log_end = s->log_start + s->log_bytes / BLOCK_SIZE;

	for (s->page_size = PAGE_SIZE_MIN; s->page_size <= PAGE_SIZE_MAX; s->page_size *= 2) {
		s->page_blocks = s->page_size / BLOCK_SIZE;
		s->group_blocks = GROUP_BLOCKS(s->page_size);
		s->groups_start = (log_end + s->page_blocks - 1) / s->page_blocks * s->page_blocks;
		if (is_page(s, s->groups_start, PAGE_BITMAP, 0) ||
		    is_page(s, s->groups_start + s->page_blocks, PAGE_SYSTEM, 0))
			return true;
	}
	return false;
}

/* The last group that has its bitmap page; others between may have lost theirs. */
static void count_groups(struct search *s)
{
	s->group_count = 1;
	for (uint32_t i = 1; s->groups_start + (uint64_t)i * s->group_blocks < s->blocks; i++)
		if (is_page(s, s->groups_start + (uint64_t)i * s->group_blocks, PAGE_BITMAP, i))
			s->group_count = i + 1;
}

/* --------------------------------------------------------------- the superblock */

static bool is_copy(struct search *s, uint64_t block, struct disk_superblock *out)
{
	if (!read_block(s, block, s->page, BLOCK_SIZE))
		return false;
	memcpy(out, s->page, sizeof(*out));
	return raw_superblock_valid(out) && le32_get(out->version) == FORMAT_VERSION &&
	       (le64_get(out->incompat) & ~INCOMPAT_KNOWN) == 0 &&
	       le64_get(out->block_count) == block + 1 &&
	       memcmp(out->uuid, s->uuid, sizeof(out->uuid)) == 0;
}

/* Where the last group ends, or a last one that was left out because it was small. */
static bool find_copy(struct search *s, struct disk_superblock *out)
{
	uint64_t from = s->groups_start + (uint64_t)(s->group_count - 1) * s->group_blocks;
	uint64_t end = from + 2 * (uint64_t)s->group_blocks;
	bool found = false;

	/* A volume that has grown, or was about to, may have two: the newer one counts. */
	for (uint64_t block = from; block < end && block < s->blocks; block++) {
		struct disk_superblock copy;

		if (!is_copy(s, block, &copy))
			continue;
		if (!found || le64_get(copy.update_gen) > le64_get(out->update_gen))
			*out = copy;
		found = true;
	}
	return found;
}

static void put_together(struct search *s, struct disk_superblock *sb)
{
	uint64_t generation = log_generation(s), system_page = s->groups_start + s->page_blocks;

	memset(sb, 0, sizeof(*sb));
	memcpy(sb->magic, SB_MAGIC, sizeof(sb->magic));
	sb->version = le32_make(FORMAT_VERSION);
	memcpy(sb->uuid, s->uuid, sizeof(sb->uuid));
	memcpy(sb->log_uuid, s->uuid, sizeof(sb->log_uuid));
	os_random_bytes(sb->hash_seed, sizeof(sb->hash_seed));
	sb->update_gen = le64_make(1);
	sb->mount_gen = le64_make(generation);
	sb->log_gen = le64_make(generation);
	sb->block_count = le64_make(s->blocks);
	sb->page_size = le32_make(s->page_size);
	sb->group_blocks = le32_make(s->group_blocks);
	sb->group_count = le32_make(s->group_count);
	sb->state = le32_make(SB_DAMAGED);
	sb->dw_start = le64_make(1);
	sb->dw_slots = le32_make((uint32_t)((s->log_start - 1) / s->page_blocks));
	sb->log_start = le64_make(s->log_start);
	sb->log_bytes = le64_make(s->log_bytes);
	sb->groups_start = le64_make(s->groups_start);
	sb->system_page = le64_make(system_page);
	for (unsigned i = 0; i < INDEX_COUNT; i++)
		sb->root[i] = le64_make(system_page + (1 + i) * (uint64_t)s->page_blocks);
	sb->created_sec = le64_make((uint64_t)os_realtime().tv_sec);
	sb->root_ino = le64_make(INO_ROOT);
}

static bool holds_something_else(struct search *s)
{
	if (!read_block(s, 0, s->page, BLOCK_SIZE) ||
	    memcmp(s->page, SB_MAGIC, sizeof(SB_MAGIC) - 1) == 0)
		return false;
	for (unsigned i = 0; i < BLOCK_SIZE; i++)
		if (s->page[i])
			return true;
	return false;
}

int superblock_find(struct device *dev, struct superblock_found *out)
{
	struct search *s = calloc(1, sizeof(*s));
	struct geometry geo;
	int rc = -BE_NOVOLUME;

	if (!s)
		return -ENOMEM;
	s->dev = dev;
	s->blocks = dev->size_bytes / BLOCK_SIZE;
	if (!find_log(s) || !find_groups(s))
		goto out;
	count_groups(s);
	out->from_copy = find_copy(s, &out->sb);
	if (!out->from_copy)
		put_together(s, &out->sb);
	out->foreign = holds_something_else(s);
	rc = geometry_decode(&out->sb, &geo) ? -BE_NOVOLUME : 0;
out:
	free(s);
	return rc;
}
