/*
 * The superblock: where it is, when it is believed, how it changes.
 *
 * It stands in block 0; its copy stands in the last block of the volume.
 *
 * INV-SB-1: an update raises the generation and goes copy, flush, primary,
 * flush; the valid one with the higher generation wins.  Where only the copy holds the
 * update that counts, because a crash came between the two, the primary goes first: what
 * counts is never what is being written.
 *
 *	crash after           copy       primary   taken
 *	nothing               old        old       primary, old
 *	part of the copy      broken     old       primary, old
 *	the copy              new        old       copy, new
 *	part of the primary   new        broken    copy, new
 *	the primary           new        new       primary, new
 *
 * One that was taken from the copy and is updated, primary first:
 *
 *	crash after           copy       primary         taken
 *	nothing               new        old or broken   copy, new
 *	part of the primary   new        broken          copy, new
 *	the primary           new        newer           primary, newer
 *	part of the copy      broken     newer           primary, newer
 *
 * When block 0 is broken, the copy is looked for where the remains of block 0 say
 * that the volume ends, then in the last block of the device.  Either place must
 * hold a superblock that names just this place as its volume's last block.  In this
 * order: while a volume grows (grow.h) each place may have one, and a torn update
 * names either; but what a growth that was not made has left in the device's last
 * block nobody names.
 *
 * Everything here may come from a hostile image: nothing is believed before
 * geometry_decode() has accepted it.
 */
#include "engine/volume.h"

#include "engine/base/crc32c.h"
#include "engine/base/error.h"

#include <errno.h>
#include <stdlib.h>

/* All slots are read at once when a volume is opened. */
#define DW_SLOTS_LIMIT 4096u
/* A counter that is raised by one now and then never gets near this. */
#define GENERATION_MAX (1ull << 62)

static uint32_t superblock_crc(const struct disk_superblock *sb)
{
	static const uint8_t zero[sizeof(sb->crc)];
	const uint8_t *bytes = (const uint8_t *)sb;
	size_t at = offsetof(struct disk_superblock, crc);
	uint32_t crc = crc32c(0, bytes, at);

	crc = crc32c(crc, zero, sizeof(zero));
	return crc32c(crc, bytes + at + sizeof(zero), sizeof(*sb) - at - sizeof(zero));
}

/* --- geometry ------------------------------------------------------------ */

static bool page_size_valid(uint32_t page_size)
{
	return page_size >= PAGE_SIZE_MIN && page_size <= PAGE_SIZE_MAX &&
	       (page_size & (page_size - 1)) == 0;
}

static bool generation_valid(le64 generation)
{
	return le64_get(generation) >= 1 && le64_get(generation) <= GENERATION_MAX;
}

bool geometry_is_in_group(const struct geometry *geo, uint64_t start, uint64_t blocks)
{
	uint64_t all = geo->block_count - 1 - geo->groups_start, first, bit, fixed;

	if (start < geo->groups_start || start - geo->groups_start >= all || blocks == 0)
		return false;
	first = start - geo->groups_start;
	bit = first % geo->group_blocks;
	fixed = first < geo->group_blocks ? (2 + INDEX_COUNT) * (uint64_t)geo->page_blocks
					  : geo->page_blocks;
	return bit >= fixed && blocks <= geo->group_blocks - bit && blocks <= all - first;
}

/* Where mkfs puts it, or within one group; of another device it is the beginning. */
static bool log_valid(const struct geometry *geo)
{
	uint64_t blocks = geo->log_bytes / BLOCK_SIZE;

	if (geo->log_bytes < LOG_BYTES_MIN || geo->log_bytes % BLOCK_SIZE != 0 ||
	    geo->log_bytes > INT64_MAX / 2)
		return false;
	if (geo->log_external)
		return geo->log_start == 0;
	if (geo->log_start >= geo->groups_start)
		return geometry_is_in_group(geo, geo->log_start, blocks);
	return geo->log_start >= geo->home_start && geo->groups_start - geo->log_start >= blocks;
}

/* superblock, doublewrite area, log, groups, copy: in this order, none over another. */
static bool regions_valid(const struct geometry *geo)
{
	uint64_t copy = geo->block_count - 1;

	if (geo->dw_start < 1 || geo->dw_start > copy || geo->dw_slots < 1 ||
	    geo->dw_slots > DW_SLOTS_LIMIT)
		return false;
	return geo->groups_start <= copy && geo->groups_start >= geo->home_start &&
	       geo->groups_start % geo->page_blocks == 0;
}

/* Blocks that the log is taking or giving up: not those of the log itself. */
static bool log_other_valid(const struct geometry *geo)
{
	uint64_t log_blocks = geo->log_bytes / BLOCK_SIZE;
	uint64_t start = geo->other.start, blocks = geo->other.blocks;

	if (start == 0)
		return blocks == 0;
	return !geo->log_external && geometry_is_in_group(geo, start, blocks) &&
	       (start >= geo->log_start + log_blocks || start + blocks <= geo->log_start);
}

/* Each group has room for its bitmap page, the first for all fixed pages. */
static bool groups_valid(const struct geometry *geo)
{
	uint64_t blocks = geo->block_count - 1 - geo->groups_start;
	uint64_t before_last;

	if (geo->group_count < 1 || blocks < (2 + INDEX_COUNT) * (uint64_t)geo->page_blocks)
		return false;
	before_last = (uint64_t)(geo->group_count - 1) * geo->group_blocks;
	return before_last < blocks && blocks - before_last >= geo->page_blocks;
}

static bool fixed_pages_valid(const struct disk_superblock *sb, const struct geometry *geo)
{
	if (geo->system_page != geo->groups_start + geo->page_blocks)
		return false;
	for (unsigned i = 0; i < INDEX_COUNT; i++)
		if (le64_get(sb->root[i]) != geo->system_page + (1 + i) * geo->page_blocks)
			return false;
	return true;
}

int geometry_decode(const struct disk_superblock *sb, struct geometry *geo)
{
	*geo = (struct geometry){
		.page_size = le32_get(sb->page_size),
		.group_blocks = le32_get(sb->group_blocks),
		.group_count = le32_get(sb->group_count),
		.block_count = le64_get(sb->block_count),
		.groups_start = le64_get(sb->groups_start),
		.system_page = le64_get(sb->system_page),
		.dw_start = le64_get(sb->dw_start),
		.dw_slots = le32_get(sb->dw_slots),
		.log_start = le64_get(sb->log_start),
		.log_bytes = le64_get(sb->log_bytes),
		.log_external = le64_get(sb->incompat) & INCOMPAT_EXTERNAL_LOG,
		.other.start = le64_get(sb->log_other),
		.other.blocks = le64_get(sb->log_other_blocks),
	};
	if (!page_size_valid(geo->page_size))
		return -BE_FORMAT;
	geo->page_blocks = geo->page_size / BLOCK_SIZE;
	geo->home_start = geo->dw_start + (uint64_t)geo->dw_slots * geo->page_blocks;
	if (geo->group_blocks != GROUP_BLOCKS(geo->page_size))
		return -BE_FORMAT;
	if (geo->block_count < 2 || geo->block_count > BLOCK_COUNT_MAX)
		return -BE_FORMAT;
	if (!regions_valid(geo) || !groups_valid(geo) || !fixed_pages_valid(sb, geo) ||
	    !log_valid(geo) || !log_other_valid(geo))
		return -BE_FORMAT;
	if (!generation_valid(sb->update_gen) || !generation_valid(sb->mount_gen) ||
	    !generation_valid(sb->log_gen) || le64_get(sb->log_gen) > le64_get(sb->mount_gen))
		return -BE_FORMAT;
	if (le64_get(sb->root_ino) != INO_ROOT ||
	    (memcmp(sb->log_uuid, sb->uuid, 16) == 0) == geo->log_external ||
	    memchr(sb->log_path, 0, sizeof(sb->log_path)) == NULL)
		return -BE_FORMAT;
	return 0;
}

/* --- judging one block --------------------------------------------------- */

static bool has_magic(const struct disk_superblock *sb)
{
	return memcmp(sb->magic, SB_MAGIC, sizeof(sb->magic)) == 0;
}

/* A version is judged before the fields, which may mean something else in another version. */
int superblock_accept(const struct disk_superblock *sb, bool read_only, struct geometry *geo)
{
	if (!has_magic(sb))
		return -BE_NOVOLUME;
	if (le32_get(sb->version) != FORMAT_VERSION ||
	    (le64_get(sb->incompat) & ~INCOMPAT_KNOWN) != 0 ||
	    (!read_only && (le64_get(sb->ro_compat) & ~RO_COMPAT_KNOWN) != 0))
		return -BE_VERSION;
	return geometry_decode(sb, geo);
}

/* The same, of a block from the medium: -BE_CRC, too. */
static int superblock_judge(const struct disk_superblock *sb, bool read_only)
{
	struct geometry geo;

	if (has_magic(sb) && superblock_crc(sb) != le32_get(sb->crc))
		return -BE_CRC;
	return superblock_accept(sb, read_only, &geo);
}

/* The copy in `block`, which must call itself the last of its volume. */
static int copy_read(struct device *dev, uint64_t block, struct disk_superblock *out)
{
	int rc;

	if (block < 1 || block >= dev->size_bytes / BLOCK_SIZE)
		return -BE_NOVOLUME;
	rc = dev_read(dev, out, sizeof(*out), block * BLOCK_SIZE);
	if (!rc)
		rc = superblock_judge(out, dev->read_only);
	if (!rc && le64_get(out->block_count) != block + 1)
		rc = -BE_FORMAT;
	return rc;
}

/* --- reading ------------------------------------------------------------- */

/* Block 0 is good: does a crash between the two writes make the copy the newer one? */
static int choose_newer(struct device *dev, struct disk_superblock *primary, bool *used_copy)
{
	struct disk_superblock copy;
	uint64_t block_count = le64_get(primary->block_count);

	if (block_count > dev->size_bytes / BLOCK_SIZE)
		return -BE_TRUNCATED;
	if (copy_read(dev, block_count - 1, &copy) == 0 &&
	    memcmp(copy.uuid, primary->uuid, sizeof(copy.uuid)) == 0 &&
	    le64_get(copy.update_gen) > le64_get(primary->update_gen)) {
		*primary = copy;
		*used_copy = true;
	}
	return 0;
}

/* Block 0 is broken or unreadable; `verdict` is what to answer without a copy. */
static int rescue_from_copy(struct device *dev, struct disk_superblock *sb, int verdict,
			    bool *used_copy)
{
	uint64_t hint = has_magic(sb) ? le64_get(sb->block_count) : 0;
	uint64_t places[] = {hint, dev->size_bytes / BLOCK_SIZE};

	for (unsigned i = 0; i < array_count(places); i++) {
		struct disk_superblock copy;
		int rc = places[i] ? copy_read(dev, places[i] - 1, &copy) : -BE_NOVOLUME;

		if (rc == 0) {
			*sb = copy;
			*used_copy = true;
			return 0;
		}
		if (rc == -BE_VERSION && verdict != -BE_VERSION)
			verdict = rc;
	}
	return verdict;
}

int superblock_read(struct device *dev, struct disk_superblock *out, bool *used_copy)
{
	bool from_copy = false;
	int rc;

	if (dev->size_bytes < sizeof(*out))
		return -BE_NOVOLUME;
	memset(out, 0, sizeof(*out));
	rc = dev_read(dev, out, sizeof(*out), 0);
	if (!rc)
		rc = superblock_judge(out, dev->read_only);

	if (rc == 0)
		rc = choose_newer(dev, out, &from_copy);
	else if (rc == -BE_CRC || rc == -BE_FORMAT)
		rc = rescue_from_copy(dev, out, -BE_DAMAGE, &from_copy);
	else if (rc != -BE_VERSION)
		rc = rescue_from_copy(dev, out, rc, &from_copy);

	if (used_copy)
		*used_copy = from_copy;
	return rc;
}

/* --- scrubbing ----------------------------------------------------------- */

static int judge_written(struct device *way, const struct disk_superblock *sb, uint64_t block,
			 struct disk_superblock *buf)
{
	int rc = dev_read(way, buf, sizeof(*buf), block * BLOCK_SIZE);

	if (!rc)
		rc = superblock_judge(buf, false);
	if (!rc && memcmp(buf->uuid, sb->uuid, sizeof(sb->uuid)) != 0)
		rc = -BE_IDENTITY;
	return rc;
}

void superblock_judge_copies(struct device *way, const struct disk_superblock *sb,
			     const char *why[2])
{
	const uint64_t at[2] = {0, le64_get(sb->block_count) - 1};
	struct disk_superblock *buf = aligned_alloc(BLOCK_SIZE, sizeof(*buf));

	why[0] = why[1] = NULL;
	for (unsigned i = 0; buf && i < array_count(at); i++) {
		int rc = judge_written(way, sb, at[i], buf);

		if (rc)
			why[i] = error_text(rc);
		else if (le64_get(buf->update_gen) != le64_get(sb->update_gen))
			why[i] = "a superblock that was written is not there";
	}
	free(buf);
}

/* --- writing ------------------------------------------------------------- */

/* Is the update that `sb` is of, or was made of, in the copy and not in block 0? */
static bool only_copy_counts(struct device *dev, const struct disk_superblock *sb)
{
	const uint64_t at[2] = {0, le64_get(sb->block_count) - 1};
	bool counts[2];

	for (unsigned i = 0; i < array_count(at); i++) {
		struct disk_superblock there;

		counts[i] = judge_written(dev, sb, at[i], &there) == 0 &&
			    le64_get(there.update_gen) == le64_get(sb->update_gen);
	}
	return counts[1] && !counts[0];
}

int superblock_write(struct device *dev, struct disk_superblock *sb)
{
	uint64_t copy_offset = (le64_get(sb->block_count) - 1) * BLOCK_SIZE;
	bool primary_first = only_copy_counts(dev, sb);
	struct geometry geo;
	int rc;

	sb->update_gen = le64_make(le64_get(sb->update_gen) + 1);
	check(geometry_decode(sb, &geo) == 0);
	sb->crc = le32_make(superblock_crc(sb));

	rc = dev_write(dev, sb, sizeof(*sb), primary_first ? 0 : copy_offset);
	if (!rc)
		rc = dev_flush(dev);
	if (!rc)
		rc = dev_write(dev, sb, sizeof(*sb), primary_first ? copy_offset : 0);
	if (!rc)
		rc = dev_flush(dev);
	return rc;
}

int superblock_forget_larger(struct device *dev, const struct disk_superblock *sb)
{
	static const uint8_t zeros[BLOCK_SIZE];
	uint64_t last = dev->size_bytes / BLOCK_SIZE - 1;
	struct disk_superblock copy;

	if (last <= le64_get(sb->block_count) - 1 || copy_read(dev, last, &copy) != 0 ||
	    memcmp(copy.uuid, sb->uuid, sizeof(copy.uuid)) != 0)
		return 0;
	return dev_write(dev, zeros, sizeof(zeros), last * BLOCK_SIZE);
}
