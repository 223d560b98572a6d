/* Repairs: see repair.h. */
#include "fsck/repair.h"

#include "fsck/borrow.h"
#include "fsck/raw.h"

#include "engine/base/error.h"
#include "engine/flush.h"
#include "engine/mtr.h"
#include "engine/purge.h"
#include "engine/volume.h"

#include <errno.h>
#include <stdlib.h>

#define FIXES_PER_FLUSH 64u /* without a background thread log space is freed here */

static bool is_bitmap(const struct fsck_fix *fix)
{
	return fix->kind == FIX_NEW_BITMAP || fix->kind == FIX_SET_BITS;
}

bool repair_has_bitmaps(const struct fsck_result *result)
{
	for (size_t i = 0; i < result->fix_count; i++)
		if (is_bitmap(&result->fixes[i]))
			return true;
	return false;
}

bool repair_has_engine(const struct fsck_result *result)
{
	for (size_t i = 0; i < result->fix_count; i++)
		if (!is_bitmap(&result->fixes[i]))
			return true;
	return false;
}

/* ------------------------------------------------------------------ bitmaps */

struct bitmap_job {
	struct raw_volume raw;
	uint64_t lsn;
	uint8_t *page; /* of `group` */
	uint32_t group;
	bool loaded;
};

static int store_group(struct bitmap_job *job)
{
	uint64_t offset = raw_bitmap_page(&job->raw, job->group) * BLOCK_SIZE;

	if (!job->loaded)
		return 0;
	job->loaded = false;
	page_seal(job->page, job->raw.geo.page_size);
	return dev_write(job->raw.dev, job->page, job->raw.geo.page_size, offset);
}

static void new_bitmap(struct bitmap_job *job)
{
	uint8_t body[BODY_BYTES_MAX(64)];
	const struct key unbounded = {0};
	uint64_t pageno = raw_bitmap_page(&job->raw, job->group);
	size_t len = redo_page_init(body, PAGE_BITMAP, 0, 0, 0, &unbounded, &unbounded, job->group);
	int rc;

	memset(job->page, 0, job->raw.geo.page_size);
	rc = page_redo(job->page, job->raw.geo.page_size, pageno, job->raw.tag, REC_PAGE_INIT, body,
		       len);
	check(rc == 0);
	page_set_lsn(job->page, job->lsn);
}

static int load_group(struct bitmap_job *job, uint32_t group, bool fresh)
{
	const char *why;
	int rc;

	if (job->loaded && job->group == group && !fresh)
		return 0;
	rc = store_group(job);
	if (rc)
		return rc;
	job->group = group;
	if (fresh)
		new_bitmap(job);
	else
		rc = raw_read_page(&job->raw, raw_bitmap_page(&job->raw, group), job->page, &why);
	job->loaded = !rc;
	return rc;
}

static int set_bits(struct bitmap_job *job, uint64_t start, uint64_t count)
{
	uint64_t bit = (start - job->raw.geo.groups_start) % job->raw.geo.group_blocks;
	uint8_t *bits = job->page + sizeof(struct disk_bitmap_page);

	check(bit + count <= job->raw.geo.group_blocks);
	for (; count > 0; bit++, count--)
		bits[bit / 8] |= (uint8_t)(1u << (bit % 8));
	return 0;
}

static int apply_bitmap_fix(struct bitmap_job *job, const struct fsck_fix *fix)
{
	const struct geometry *geo = &job->raw.geo;
	int rc;

	if (fix->kind == FIX_NEW_BITMAP)
		return load_group(job, (uint32_t)fix->id, true);
	rc = load_group(job, (uint32_t)((fix->id - geo->groups_start) / geo->group_blocks), false);
	return rc ? rc : set_bits(job, fix->id, fix->value);
}

int repair_bitmaps(struct device *dev, const struct fsck_result *result, uint64_t lsn)
{
	struct bitmap_job job = {.lsn = lsn};
	int rc = raw_open(&job.raw, dev);

	if (rc)
		return rc;
	job.page = malloc(job.raw.geo.page_size);
	if (!job.page)
		return -ENOMEM;
	for (size_t i = 0; i < result->fix_count && !rc; i++)
		if (is_bitmap(&result->fixes[i]))
			rc = apply_bitmap_fix(&job, &result->fixes[i]);
	if (!rc)
		rc = store_group(&job);
	if (!rc)
		rc = dev_flush(dev);
	free(job.page);
	return rc;
}

/* ------------------------------------------------------------------- engine */

/* An inode record in an mtr: the struct and the inline bytes behind it. */
struct inode_edit {
	uint8_t key[KEY_INODE_BYTES];
	struct disk_inode head;
	uint8_t bytes[sizeof(struct disk_inode) + INLINE_BYTES_MAX(PAGE_SIZE_MAX)];
	size_t len;
};

static void want_inode(struct mtr *m, uint64_t ino)
{
	uint8_t key[KEY_INODE_BYTES];

	be64_put(key, ino);
	mtr_want_key(m, INDEX_INODES, key, sizeof(key));
}

static int get_inode(struct mtr *m, uint64_t ino, struct inode_edit *edit)
{
	const void *value;
	int rc;

	be64_put(edit->key, ino);
	rc = mtr_lookup(m, INDEX_INODES, edit->key, sizeof(edit->key), &value, &edit->len);
	if (rc)
		return rc;
	if (edit->len < sizeof(edit->head) || edit->len > sizeof(edit->bytes))
		return -BE_FORMAT;
	memcpy(edit->bytes, value, edit->len);
	memcpy(&edit->head, value, sizeof(edit->head));
	return 0;
}

static void put_inode(struct mtr *m, struct inode_edit *edit)
{
	edit->head.change = le64_make(le64_get(edit->head.change) + 1);
	memcpy(edit->bytes, &edit->head, sizeof(edit->head));
	mtr_put(m, INDEX_INODES, edit->key, sizeof(edit->key), edit->bytes, edit->len);
}

/* The purge record of an inode that has names: gone, or that of its dead range again. */
static int unorphan(struct mtr *m, uint64_t ino, struct disk_inode *inode)
{
	uint64_t purge_key = le64_get(inode->purge_key);
	uint8_t key[KEY_PURGE_BYTES];
	const void *value;
	size_t len;
	int rc;

	if (!purge_key)
		return 0;
	if (le64_get(inode->dead_end)) {
		purge_stage(m, purge_key, PURGE_DEAD, ino, le64_get(inode->lob),
			    le64_get(inode->dead_first), le64_get(inode->dead_end));
		return 0;
	}
	inode->purge_key = le64_make(0);
	be64_put(key, purge_key);
	rc = mtr_lookup(m, INDEX_PURGE, key, sizeof(key), &value, &len);
	if (rc == 0)
		mtr_delete(m, INDEX_PURGE, key, sizeof(key));
	return rc == -BE_NOTFOUND ? 0 : rc;
}

/* Stages the edit of one fix in a latched mtr. */
static int stage_inode_fix(struct mtr *m, const struct fsck_fix *fix, uint64_t purge_key,
			   struct inode_edit *edit)
{
	int rc = get_inode(m, fix->id, edit);

	if (rc)
		return rc;
	switch (fix->kind) {
	case FIX_NLINK:
		edit->head.nlink = le32_make((uint32_t)fix->value);
		break;
	case FIX_ENTRIES:
		edit->head.entries = le64_make(fix->value);
		break;
	case FIX_XATTRS:
		edit->head.xattr_count = le32_make((uint32_t)fix->value);
		break;
	case FIX_BLOCKS:
		edit->head.blocks = le64_make(fix->value);
		break;
	case FIX_PARENT:
		edit->head.parent = le64_make(fix->value);
		break;
	case FIX_ORPHAN:
		edit->head.nlink = le32_make(0);
		edit->head.purge_key = le64_make(purge_key);
		purge_stage(m, purge_key, PURGE_ORPHAN, fix->id, le64_get(edit->head.lob), 0,
			    UINT64_MAX);
		break;
	case FIX_UNORPHAN:
		rc = unorphan(m, fix->id, &edit->head);
		edit->head.nlink = le32_make((uint32_t)fix->value);
		break;
	default:
		check(false);
	}
	if (!rc)
		put_inode(m, edit);
	return rc;
}

/* The purge record that an inode names; 0 = none.  Read before the mtr wants it. */
static int read_purge_key(struct volume *volume, uint64_t ino, uint64_t *purge_key)
{
	uint8_t key[KEY_INODE_BYTES];
	struct disk_inode inode;
	size_t len;
	int rc;

	be64_put(key, ino);
	rc = tree_get(&volume->index[INDEX_INODES], key, sizeof(key), &inode, sizeof(inode), &len);
	if (!rc && len < sizeof(inode))
		rc = -BE_FORMAT;
	*purge_key = rc ? 0 : le64_get(inode.purge_key);
	return rc;
}

static int stage_fix(struct mtr *m, const struct fsck_fix *fix, uint64_t purge_key,
		     struct inode_edit *edit)
{
	switch (fix->kind) {
	case FIX_CLEAR_BITS:
		mtr_clear_bits(m, fix->id, fix->value);
		return 0;
	case FIX_COUNTER:
		mtr_counter(m, (enum counter)fix->id, fix->value);
		return 0;
	default:
		return stage_inode_fix(m, fix, purge_key, edit);
	}
}

static int apply_fix(struct volume *volume, const struct fsck_fix *fix, struct inode_edit *edit)
{
	bool of_inode = fix->kind != FIX_CLEAR_BITS && fix->kind != FIX_COUNTER;
	uint64_t purge_key = 0;
	struct mtr *m;
	int rc = 0;

	if (fix->kind == FIX_ORPHAN)
		rc = id_take(volume, COUNTER_PURGE, &purge_key);
	else if (fix->kind == FIX_UNORPHAN)
		rc = read_purge_key(volume, fix->id, &purge_key);
	if (!rc)
		rc = mtr_begin(volume, MTR_PRIVILEGED, &m);
	if (rc)
		return rc;
	if (of_inode)
		want_inode(m, fix->id);
	if (purge_key)
		purge_want(m, purge_key);
	do {
		rc = mtr_latch(m);
		if (!rc)
			rc = stage_fix(m, fix, purge_key, edit);
		if (!rc)
			rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	return rc;
}

static int apply_fixes(struct volume *volume, const struct fsck_result *result, bool counters)
{
	struct inode_edit *edit = malloc(sizeof(*edit));
	unsigned done = 0;
	int rc = edit ? 0 : -ENOMEM;

	for (size_t i = 0; i < result->fix_count && !rc; i++) {
		const struct fsck_fix *fix = &result->fixes[i];

		if (is_bitmap(fix) || (fix->kind == FIX_COUNTER) != counters)
			continue;
		rc = apply_fix(volume, fix, edit);
		if (!rc && ++done % FIXES_PER_FLUSH == 0)
			rc = flush_everything(volume->flusher);
	}
	free(edit);
	return rc;
}

static bool has_counters(const struct fsck_result *result)
{
	for (size_t i = 0; i < result->fix_count; i++)
		if (result->fixes[i].kind == FIX_COUNTER)
			return true;
	return false;
}

int repair_engine(struct device *dev, struct device *log_dev, uint64_t cache_bytes,
		  const struct fsck_result *result)
{
	const struct volume_options options = {
		.no_background = true,
		.ignore_damage = true,
		.cache_bytes = cache_bytes,
		.log_dev = log_dev,
	};
	struct volume *volume;
	int rc = borrow_volume(&volume, dev, &options), closed;

	if (rc)
		return rc;
	rc = apply_fixes(volume, result, has_counters(result));
	closed = volume_close(volume);
	return rc ? rc : closed;
}
