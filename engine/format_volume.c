/*
 * Making a volume.
 *
 *	superblock | doublewrite area | log | group 0 | group 1 ... | copy
 *
 * Both superblocks are zeroed first and written last, with flushes between: a
 * crash in the middle leaves no volume rather than half of one.
 *
 * Pages are built by page_redo() from redo records, as everywhere else.  Their
 * LSN is LSN_FIRST, where the log begins: every logged change is newer.
 */
#include "engine/volume.h"

#include "engine/base/error.h"
#include "engine/base/os.h"
#include "engine/grow.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#define DW_SLOTS_MAX 256u /* pages of one flush batch */
#define DW_SLOTS_MIN 8u
#define DW_SHARE 32u                   /* the area takes at most one block in so many */
#define LOG_SHARE 8u                   /* the same for a log of default size */
#define FIXED_PAGES (2u + INDEX_COUNT) /* bitmap, system, roots: the head of group 0 */
#define GROUP0_PAGES_MIN 64u           /* those and something to work with */
#define GROUP_PAGES_MIN 8u             /* a last group with less is left out */
#define ZERO_CHUNK_BYTES (1u << 20)
#define FORMAT_BATCH 64u /* pages in one dev_batch() */

/* --- geometry ------------------------------------------------------------ */

/* A larger page needs a larger log: one operation logs up to a number of whole pages. */
uint64_t volume_log_bytes_min(uint32_t page_size)
{
	return (uint64_t)LOG_BYTES_MIN * (page_size / PAGE_SIZE_MIN);
}

static int choose_log_bytes(const struct format_params *params, struct geometry *geo)
{
	uint64_t least = volume_log_bytes_min(geo->page_size);
	uint64_t bytes = params->log_bytes;

	geo->log_external = params->log_dev != NULL;
	if (!bytes && geo->log_external) {
		bytes = params->log_dev->size_bytes;
	} else if (!bytes) {
		bytes = geo->block_count / LOG_SHARE * BLOCK_SIZE;
		if (bytes > LOG_BYTES_DEFAULT)
			bytes = LOG_BYTES_DEFAULT;
		if (bytes < least)
			bytes = least;
	}
	bytes -= bytes % BLOCK_SIZE;
	if (geo->log_external) {
		if (bytes < least || bytes > params->log_dev->size_bytes)
			return -EINVAL;
	} else if (bytes < least || bytes / BLOCK_SIZE >= geo->block_count)
		return params->log_bytes ? -EINVAL : -BE_TOOSMALL;
	geo->log_bytes = bytes;
	return 0;
}

static void choose_dw_slots(struct geometry *geo)
{
	uint64_t slots = geo->block_count / DW_SHARE / geo->page_blocks;

	if (slots < DW_SLOTS_MIN)
		slots = DW_SLOTS_MIN;
	geo->dw_slots = slots < DW_SLOTS_MAX ? (uint32_t)slots : DW_SLOTS_MAX;
}

/* How many groups there are up to the copy of the superblock. */
static int count_groups(struct geometry *geo)
{
	uint64_t blocks = geo->block_count - 1 - geo->groups_start;
	uint64_t count = blocks / geo->group_blocks;

	if (blocks % geo->group_blocks >= GROUP_PAGES_MIN * (uint64_t)geo->page_blocks)
		count++;
	if (count > UINT32_MAX)
		return -EFBIG;
	geo->group_count = (uint32_t)count;
	return 0;
}

int geometry_set_size(struct geometry *geo, uint64_t block_count)
{
	uint32_t had = geo->group_count;
	int rc;

	if (block_count > BLOCK_COUNT_MAX)
		return -EFBIG;
	geo->block_count = block_count;
	rc = count_groups(geo);
	/* A last group that is there stays, however short. */
	if (rc == 0 && geo->group_count < had)
		geo->group_count = had;
	return rc;
}

static int choose_groups(struct geometry *geo)
{
	uint64_t end = geo->block_count - 1;
	uint64_t log_end = geo->home_start + (geo->log_external ? 0 : geo->log_bytes / BLOCK_SIZE);
	int rc;

	geo->groups_start = (log_end + geo->page_blocks - 1) / geo->page_blocks * geo->page_blocks;
	if (geo->groups_start + GROUP0_PAGES_MIN * (uint64_t)geo->page_blocks > end)
		return -BE_TOOSMALL;
	rc = count_groups(geo);
	if (rc)
		return rc;
	geo->system_page = geo->groups_start + geo->page_blocks;
	return 0;
}

static int choose_geometry(const struct format_params *params, struct geometry *geo)
{
	uint32_t page_size = params->page_size ? params->page_size : PAGE_SIZE_DEFAULT;
	int rc;

	if (page_size < PAGE_SIZE_MIN || page_size > PAGE_SIZE_MAX || (page_size & (page_size - 1)))
		return -EINVAL;
	*geo = (struct geometry){
		.page_size = page_size,
		.page_blocks = page_size / BLOCK_SIZE,
		.group_blocks = GROUP_BLOCKS(page_size),
		.block_count = params->size_bytes / BLOCK_SIZE,
		.dw_start = 1,
	};
	if (geo->block_count < 2)
		return -BE_TOOSMALL;
	choose_dw_slots(geo);
	rc = choose_log_bytes(params, geo);
	if (rc)
		return rc;
	geo->home_start = geo->dw_start + (uint64_t)geo->dw_slots * geo->page_blocks;
	geo->log_start = geo->log_external ? 0 : geo->home_start;
	return choose_groups(geo);
}

static void fill_superblock(const struct format_params *params, const struct geometry *geo,
			    struct disk_superblock *sb)
{
	memset(sb, 0, sizeof(*sb));
	memcpy(sb->magic, SB_MAGIC, sizeof(sb->magic));
	sb->version = le32_make(FORMAT_VERSION);
	memcpy(sb->uuid, params->uuid, sizeof(sb->uuid));
	memcpy(sb->log_uuid, geo->log_external ? params->log_uuid : params->uuid,
	       sizeof(sb->log_uuid));
	if (geo->log_external)
		sb->incompat = le64_make(INCOMPAT_EXTERNAL_LOG);
	if (geo->log_external && params->log_path &&
	    strlen(params->log_path) < sizeof(sb->log_path))
		memcpy(sb->log_path, params->log_path, strlen(params->log_path));
	memcpy(sb->label, params->label, sizeof(sb->label));
	memcpy(sb->hash_seed, params->hash_seed, sizeof(sb->hash_seed));
	sb->mount_gen = le64_make(1);
	sb->log_gen = le64_make(1);
	sb->state = le32_make(SB_CLEAN);
	sb->block_count = le64_make(geo->block_count);
	sb->page_size = le32_make(geo->page_size);
	sb->group_blocks = le32_make(geo->group_blocks);
	sb->group_count = le32_make(geo->group_count);
	sb->dw_start = le64_make(geo->dw_start);
	sb->dw_slots = le32_make(geo->dw_slots);
	sb->log_start = le64_make(geo->log_start);
	sb->log_bytes = le64_make(geo->log_bytes);
	sb->groups_start = le64_make(geo->groups_start);
	sb->system_page = le64_make(geo->system_page);
	for (unsigned i = 0; i < INDEX_COUNT; i++)
		sb->root[i] = le64_make(geo->system_page + (1 + i) * geo->page_blocks);
	sb->created_sec = le64_make((uint64_t)os_realtime().tv_sec);
	sb->root_ino = le64_make(INO_ROOT);
}

/* --- pages --------------------------------------------------------------- */

/* A volume in the making: pages are gathered and written in batches. */
struct format_job {
	struct device *dev;
	const struct format_params *params;
	const struct geometry *geo;
	uint8_t *pages; /* FORMAT_BATCH pages */
	uint8_t *body;  /* of the redo record at work */
	struct dev_request requests[FORMAT_BATCH];
	size_t count;
};

static void apply(struct format_job *job, void *page, uint64_t pageno, uint8_t type, size_t len)
{
	int rc = page_redo(page, job->geo->page_size, pageno, job->params->uuid, type, job->body,
			   len);

	check(rc == 0);
}

static int write_batch(struct format_job *job)
{
	size_t count = job->count;

	job->count = 0;
	return count ? dev_batch(job->dev, job->requests, count) : 0;
}

/* The next free page of the batch, initialised. */
static int new_page(struct format_job *job, uint64_t pageno, uint8_t type, uint8_t index,
		    uint64_t right, void **out)
{
	const struct key unbounded = {0};
	uint32_t page_size = job->geo->page_size;
	void *page;
	int rc = job->count == FORMAT_BATCH ? write_batch(job) : 0;

	if (rc)
		return rc;
	page = job->pages + job->count * page_size;
	job->requests[job->count++] = (struct dev_request){
		.buf = page,
		.len = page_size,
		.offset = pageno * BLOCK_SIZE,
		.is_write = true,
	};
	memset(page, 0, page_size);
	apply(job, page, pageno, REC_PAGE_INIT,
	      redo_page_init(job->body, type, index, 0, 0, &unbounded, &unbounded, right));
	*out = page;
	return 0;
}

static void finish_page(struct format_job *job, void *page)
{
	const char *why;

	page_set_lsn(page, LSN_FIRST);
	check(page_verify_structure(page, job->geo->page_size, &why) == 0);
	page_seal(page, job->geo->page_size);
}

static int write_bitmaps(struct format_job *job, uint32_t first)
{
	const struct geometry *geo = job->geo;

	for (uint32_t group = first; group < geo->group_count; group++) {
		uint64_t pageno = geo->groups_start + (uint64_t)group * geo->group_blocks;
		uint64_t used = (group ? 1u : FIXED_PAGES) * (uint64_t)geo->page_blocks;
		void *page;
		int rc = new_page(job, pageno, PAGE_BITMAP, 0, group, &page);

		if (rc)
			return rc;
		apply(job, page, pageno, REC_BITS, redo_bits(job->body, true, 0, used));
		finish_page(job, page);
	}
	return 0;
}

static int write_system_page(struct format_job *job)
{
	uint64_t pageno = job->geo->system_page;
	void *page;
	int rc = new_page(job, pageno, PAGE_SYSTEM, 0, 0, &page);

	if (rc)
		return rc;
	apply(job, page, pageno, REC_COUNTER, redo_counter(job->body, COUNTER_INO, INO_FIRST_FREE));
	for (unsigned counter = COUNTER_LOB; counter <= COUNTER_TXN; counter++)
		apply(job, page, pageno, REC_COUNTER, redo_counter(job->body, counter, 1));
	finish_page(job, page);
	return 0;
}

static void insert_root_directory(struct format_job *job, void *page, uint64_t pageno)
{
	const struct format_params *params = job->params;
	uint32_t mode = params->root_mode ? params->root_mode & 07777 : 0755;
	struct timespec now = os_realtime();
	struct disk_time time = {
		.sec = le64_make((uint64_t)now.tv_sec),
		.nsec = le32_make((uint32_t)now.tv_nsec),
	};
	struct disk_inode inode = {
		.mode = le32_make(S_IFDIR | mode),
		.nlink = le32_make(2),
		.uid = le32_make(params->root_uid),
		.gid = le32_make(params->root_gid),
		.parent = le64_make(INO_ROOT),
		.change = le64_make(1),
		.atime = time,
		.mtime = time,
		.ctime = time,
		.btime = time,
	};
	uint8_t key[KEY_INODE_BYTES];

	be64_put(key, INO_ROOT);
	apply(job, page, pageno, REC_INSERT,
	      redo_insert(job->body, 0, key, sizeof(key), &inode, sizeof(inode)));
}

static int write_roots(struct format_job *job)
{
	for (uint8_t index = 0; index < INDEX_COUNT; index++) {
		uint64_t pageno = job->geo->system_page + (1u + index) * job->geo->page_blocks;
		void *page;
		int rc = new_page(job, pageno, PAGE_TREE, index, 0, &page);

		if (rc)
			return rc;
		if (index == INDEX_INODES)
			insert_root_directory(job, page, pageno);
		finish_page(job, page);
	}
	return 0;
}

static int get_buffers(struct format_job *job)
{
	job->pages = aligned_alloc(BLOCK_SIZE, (size_t)FORMAT_BATCH * job->geo->page_size);
	job->body = malloc(BODY_BYTES_MAX(job->geo->page_size));
	return job->pages && job->body ? 0 : -ENOMEM;
}

int volume_format_groups(struct device *dev, const struct geometry *geo, const uint8_t uuid[16],
			 uint32_t first)
{
	struct format_params params = {0};
	struct format_job job = {.dev = dev, .params = &params, .geo = geo};
	int rc = get_buffers(&job);

	memcpy(params.uuid, uuid, sizeof(params.uuid));
	if (!rc)
		rc = write_bitmaps(&job, first);
	if (!rc)
		rc = write_batch(&job);
	free(job.body);
	free(job.pages);
	return rc;
}

static int write_pages(struct format_job *job)
{
	int rc = get_buffers(job);

	if (!rc)
		rc = write_bitmaps(job, 0);
	if (!rc)
		rc = write_system_page(job);
	if (!rc)
		rc = write_roots(job);
	if (!rc)
		rc = write_batch(job);
	free(job->body);
	free(job->pages);
	return rc;
}

/* --- the whole ----------------------------------------------------------- */

static int zero_range(struct device *dev, uint64_t offset, uint64_t bytes)
{
	uint8_t *zeros = calloc(1, ZERO_CHUNK_BYTES);
	int rc = zeros ? 0 : -ENOMEM;

	while (!rc && bytes > 0) {
		uint64_t piece = bytes < ZERO_CHUNK_BYTES ? bytes : ZERO_CHUNK_BYTES;

		rc = dev_write(dev, zeros, piece, offset);
		offset += piece;
		bytes -= piece;
	}
	free(zeros);
	return rc;
}

/*
 * A former, larger volume has its copy in the device's last block, where it
 * would be looked for if our block 0 broke.
 */
static int zero_stale_copy(struct device *dev, const struct geometry *geo)
{
	uint64_t last = dev->size_bytes / BLOCK_SIZE - 1;
	uint8_t magic[sizeof(SB_MAGIC) - 1];
	int rc;

	if (last == geo->block_count - 1)
		return 0;
	rc = dev_read(dev, magic, sizeof(magic), last * BLOCK_SIZE);
	if (rc || memcmp(magic, SB_MAGIC, sizeof(magic)) != 0)
		return rc;
	return zero_range(dev, last * BLOCK_SIZE, BLOCK_SIZE);
}

static int zero_superblocks(struct device *dev, const struct geometry *geo)
{
	int rc = zero_range(dev, 0, BLOCK_SIZE);

	if (!rc)
		rc = zero_range(dev, (geo->block_count - 1) * BLOCK_SIZE, BLOCK_SIZE);
	if (!rc)
		rc = zero_stale_copy(dev, geo);
	return rc ? rc : dev_flush(dev);
}

/* Old page copies could be taken for ours when the UUID is kept (mkfs -U). */
static int zero_doublewrite(struct device *dev, const struct geometry *geo)
{
	return zero_range(dev, geo->dw_start * BLOCK_SIZE,
			  (uint64_t)geo->dw_slots * geo->page_size);
}

/*
 * An external log is durable before the superblocks are: the volume never names a
 * log that is not there.  A crash in between leaves a log of no volume.
 */
static int format_log(struct device *dev, const struct format_params *params,
		      const struct geometry *geo)
{
	int rc;

	const uint64_t used = (FIXED_PAGES - 1) * (uint64_t)geo->page_blocks; /* INV-LOG-12 */

	if (!geo->log_external) {
		rc = log_format(dev, geo->log_start * BLOCK_SIZE, geo->log_bytes, params->uuid, 1);
		return rc ? rc : log_write_tally(dev, geo->log_start * BLOCK_SIZE, params->uuid,
						 used);
	}
	rc = log_format_external(params->log_dev, geo->log_bytes, params->log_uuid, params->uuid,
				 1);
	if (rc == 0)
		rc = log_write_tally(params->log_dev, 0, params->log_uuid, used);
	return rc ? rc : dev_flush(params->log_dev);
}

int volume_format(struct device *dev, const struct format_params *params, struct geometry *geometry)
{
	struct geometry geo;
	struct format_job job = {.dev = dev, .params = params, .geo = &geo};
	struct disk_superblock sb;
	int rc;

	if (params->size_bytes > dev->size_bytes)
		return -EINVAL;
	rc = choose_geometry(params, &geo);
	if (rc)
		return rc;
	if (geometry)
		*geometry = geo;
	if (params->dry_run)
		return 0;

	fill_superblock(params, &geo, &sb);
	rc = zero_superblocks(dev, &geo);
	if (!rc)
		rc = zero_doublewrite(dev, &geo);
	if (!rc)
		rc = format_log(dev, params, &geo);
	if (!rc)
		rc = write_pages(&job);
	if (!rc)
		rc = dev_flush(dev);
	if (!rc)
		rc = superblock_write(dev, &sb);
	return rc;
}
