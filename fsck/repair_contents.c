/*
 * Repairs of single records, of contents without an owner, and of blocks that
 * two extents use.  See repair_internal.h.
 */
#include "fsck/repair_internal.h"

#include "fsck/walk.h"

#include "engine/base/crc32c.h"
#include "engine/base/error.h"
#include "engine/purge.h"
#include "engine/space.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

/* ------------------------------------------------------------ single records */

static void want_record(struct mtr *m, void *arg)
{
	const struct fsck_fix *fix = arg;

	mtr_want_key(m, fix->index, fix->key, fix->key_len);
}

static int put_changed(struct mtr *m, const struct fsck_fix *fix, const void *value, size_t len,
		       size_t offset, const void *bytes, size_t count)
{
	uint8_t *copy = offset + count <= len ? malloc(len) : NULL;

	if (!copy)
		return offset + count <= len ? -ENOMEM : -BE_FORMAT;
	memcpy(copy, value, len);
	memcpy(copy + offset, bytes, count);
	mtr_put(m, fix->index, fix->key, fix->key_len, copy, len);
	free(copy);
	return 0;
}

static int stage_record(struct mtr *m, void *arg)
{
	const struct fsck_fix *fix = arg;
	const le64 zero = le64_make(0);
	const uint8_t type = (uint8_t)fix->value;
	const void *value;
	size_t len;
	int rc;

	if (fix->kind == FIX_PUT) {
		mtr_put(m, fix->index, fix->key, fix->key_len, fix->bytes, fix->value_len);
		return 0;
	}
	rc = mtr_lookup(m, fix->index, fix->key, fix->key_len, &value, &len);
	if (rc)
		return rc;
	switch (fix->kind) {
	case FIX_TYPE:
		return put_changed(m, fix, value, len, offsetof(struct disk_dirent, type), &type,
				   sizeof(type));
	case FIX_PURGE_ALL:
		return put_changed(m, fix, value, len, offsetof(struct disk_purge, first), &zero,
				   sizeof(zero));
	default:
		check(fix->kind == FIX_DELETE);
		mtr_delete(m, fix->index, fix->key, fix->key_len);
		return 0;
	}
}

int repair_record(struct volume *volume, const struct fsck_fix *fix)
{
	struct repair_mtr work = {want_record, stage_record, (void *)(uintptr_t)fix};
	struct fsck_fix purge;

	if (fix->kind == FIX_PURGE_ALL) {
		purge = fix_single(FIX_PURGE_ALL, INDEX_PURGE, fix->id);
		work.arg = &purge;
	}
	return repair_mtr(volume, &work);
}

/* ------------------------------------------------------ contents without owner */

struct adopt_job {
	uint64_t ino, lob, blocks, end;
	struct inode_edit edit;
};

static void want_adopt(struct mtr *m, void *arg)
{
	want_inode(m, ((struct adopt_job *)arg)->ino);
}

static int stage_adopt(struct mtr *m, void *arg)
{
	struct adopt_job *job = arg;
	uint64_t most = (uint64_t)FILE_BYTES_MAX / BLOCK_SIZE;

	new_inode(&job->edit, job->ino, S_IFREG | 0600, 1, 0);
	job->edit.head.lob = le64_make(job->lob);
	job->edit.head.blocks = le64_make(job->blocks);
	job->edit.head.size = le64_make((job->end < most ? job->end : most) * BLOCK_SIZE);
	put_inode(m, &job->edit);
	return 0;
}

/* The file has no name yet: the next walk finds that, and it gets one. */
int repair_adopt(struct volume *volume, const struct fsck_fix *fix)
{
	struct adopt_job *job = calloc(1, sizeof(*job));
	struct repair_mtr work = {want_adopt, stage_adopt, job};
	int rc = -ENOMEM;

	if (job) {
		job->lob = fix->id;
		rc = measure_lob(volume, job->lob, &job->blocks, &job->end);
	}
	if (!rc && job->end) {
		rc = id_take(volume, COUNTER_INO, &job->ino);
		if (!rc)
			rc = repair_mtr(volume, &work);
	}
	free(job);
	return rc;
}

/* ----------------------------------------------------------------- attributes */

struct drop_job {
	const struct fsck_fix *fix;
	uint64_t purge_key; /* 0: nothing to purge */
};

static void want_drop(struct mtr *m, void *arg)
{
	const struct drop_job *job = arg;

	mtr_want_key(m, job->fix->index, job->fix->key, job->fix->key_len);
	if (job->purge_key)
		purge_want(m, job->purge_key);
}

static int stage_drop(struct mtr *m, void *arg)
{
	const struct drop_job *job = arg;
	const struct fsck_fix *fix = job->fix;
	const void *value;
	size_t len;
	int rc = mtr_lookup(m, fix->index, fix->key, fix->key_len, &value, &len);

	if (rc)
		return rc;
	mtr_delete(m, fix->index, fix->key, fix->key_len);
	if (job->purge_key)
		purge_stage(m, job->purge_key, PURGE_LOB, 0, fix->id, 0, UINT64_MAX);
	return 0;
}

int repair_drop_xattr(struct volume *volume, const struct fsck_fix *fix)
{
	struct drop_job job = {.fix = fix};
	struct repair_mtr work = {want_drop, stage_drop, &job};
	int rc = fix->id ? id_take(volume, COUNTER_PURGE, &job.purge_key) : 0;

	return rc ? rc : repair_mtr(volume, &work);
}

/* ------------------------------------------------------------- blocks used twice */

/*
 * An extent whose blocks another owner keeps.  From its start on, run by run:
 * blocks that have the checksums of this extent are copied, the others are not
 * its own and become a hole.  After each run the old record covers the rest.
 */
struct copy_job {
	struct volume *volume;
	struct fsck_fix fix;
	uint8_t *value; /* of the old record, as it is now */
	size_t len;
	struct extent extent;
	struct reservation space; /* of the run; no piece: it becomes a hole */
	uint32_t run;
	uint8_t *data;
};

static int load_extent(struct copy_job *job)
{
	size_t cap = RECORD_BYTES_MAX(job->volume->geo.page_size);
	struct raw_entry entry = {.key = {.len = KEY_LOB_BYTES}, .value = job->value};
	const char *why;
	int rc = tree_get(&job->volume->index[INDEX_LOB], job->fix.key, KEY_LOB_BYTES, job->value,
			  cap, &job->len);

	if (rc)
		return rc;
	if (job->len > cap)
		return -BE_FORMAT;
	memcpy(entry.key.bytes, job->fix.key, KEY_LOB_BYTES);
	entry.value_len = (uint16_t)job->len;
	return raw_extent_decode(&entry, &job->extent, &why) ? 0 : -BE_FORMAT;
}

static bool block_is_own(const struct copy_job *job, uint32_t i)
{
	le32 crc;

	if (dev_read(job->volume->dev, job->data + (size_t)i * BLOCK_SIZE, BLOCK_SIZE,
		     (job->extent.start + i) * BLOCK_SIZE))
		return false;
	memcpy(&crc, job->extent.crcs + i * sizeof(crc), sizeof(crc));
	return crc32c(0, job->data + (size_t)i * BLOCK_SIZE, BLOCK_SIZE) == le32_get(crc);
}

/* The first run of blocks that are all this extent's own, or all not. */
static bool measure_run(struct copy_job *job)
{
	bool own = !job->extent.unwritten && block_is_own(job, 0);
	uint32_t most = job->extent.length < WRITE_BLOCKS_MAX ? job->extent.length
							      : WRITE_BLOCKS_MAX;

	job->run = 1;
	while (job->run < most && (job->extent.unwritten || block_is_own(job, job->run) == own))
		job->run++;
	return own;
}

static int write_run(struct copy_job *job)
{
	const uint8_t *from = job->data;
	int rc = space_reserve(job->volume->space, job->run, 0, SPACE_PRIVILEGED, &job->space);

	for (unsigned i = 0; i < job->space.count && !rc; i++) {
		const struct piece *piece = &job->space.piece[i];

		rc = dev_write(job->volume->dev, from, (size_t)piece->length * BLOCK_SIZE,
			       piece->start * BLOCK_SIZE);
		from += (size_t)piece->length * BLOCK_SIZE;
	}
	return rc;
}

static void key_of(const struct copy_job *job, uint64_t last, uint8_t key[KEY_LOB_BYTES])
{
	be64_put(key, job->extent.lob);
	be64_put(key + 8, last);
}

static void want_copy(struct mtr *m, void *arg)
{
	struct copy_job *job = arg;
	uint8_t first[KEY_LOB_BYTES], last[KEY_LOB_BYTES];

	key_of(job, job->extent.first, first);
	key_of(job, job->extent.first + job->extent.length - 1, last);
	mtr_want_range(m, INDEX_LOB, first, last, KEY_LOB_BYTES);
	mtr_want_log(m, 2 * job->len + (uint64_t)job->space.count * 128 + job->run * 16);
	for (unsigned i = 0; i < job->space.count; i++)
		mtr_want_bits(m, job->space.piece[i].start, job->space.piece[i].length);
}

static int put_extent(struct mtr *m, const struct copy_job *job, uint32_t from, uint64_t start,
		      uint32_t length)
{
	size_t len = sizeof(struct disk_extent) +
		     (job->extent.unwritten ? 0 : (size_t)length * sizeof(le32));
	uint8_t key[KEY_LOB_BYTES], *value = malloc(len);
	struct disk_extent head;

	if (!value)
		return -ENOMEM;
	memcpy(&head, job->value, sizeof(head));
	head.start = le64_make(start);
	head.length = head.stored = le32_make(length);
	memcpy(value, &head, sizeof(head));
	memcpy(value + sizeof(head), job->extent.crcs + (size_t)from * sizeof(le32),
	       len - sizeof(head));
	key_of(job, job->extent.first + from + length - 1, key);
	mtr_put(m, INDEX_LOB, key, sizeof(key), value, len);
	free(value);
	return 0;
}

static int stage_copy(struct mtr *m, void *arg)
{
	struct copy_job *job = arg;
	uint32_t at = 0, left = job->extent.length - job->run;
	int rc = 0;

	for (unsigned i = 0; i < job->space.count && !rc; i++) {
		const struct piece *piece = &job->space.piece[i];

		mtr_set_bits(m, piece->start, piece->length);
		mtr_data(m, piece->start, piece->length,
			 (const le32 *)(job->extent.crcs + (size_t)at * sizeof(le32)));
		rc = put_extent(m, job, at, piece->start, piece->length);
		at += piece->length;
	}
	if (!rc && left)
		rc = put_extent(m, job, job->run, job->extent.start + job->run, left);
	else if (!rc && !job->space.count)
		mtr_delete(m, INDEX_LOB, job->fix.key, KEY_LOB_BYTES);
	return rc;
}

static int copy_run(struct copy_job *job)
{
	struct repair_mtr work = {want_copy, stage_copy, job};
	bool own = measure_run(job);
	int rc;

	job->space = (struct reservation){0};
	rc = own ? write_run(job) : 0;
	if (!rc)
		rc = repair_mtr(job->volume, &work);
	if (rc && job->space.count)
		space_unreserve(job->volume->space, &job->space);
	return rc;
}

int repair_copy(struct volume *volume, const struct fsck_fix *fix)
{
	struct copy_job *job = calloc(1, sizeof(*job));
	int rc = -ENOMEM;

	if (!job)
		return rc;
	job->volume = volume;
	job->fix = *fix;
	job->value = malloc(RECORD_BYTES_MAX(volume->geo.page_size));
	job->data = aligned_alloc(BLOCK_SIZE, (size_t)WRITE_BLOCKS_MAX * BLOCK_SIZE);
	if (job->value && job->data)
		rc = load_extent(job);
	while (!rc) {
		bool last;

		rc = copy_run(job);
		last = !rc && job->run == job->extent.length;
		if (rc || last)
			break;
		rc = load_extent(job);
	}
	free(job->data);
	free(job->value);
	free(job);
	return rc == -BE_NOTFOUND ? 0 : rc;
}
