/*
 * File contents (step 6): the blocks that the leaves of the lob index name, as of e.
 *
 * Which blocks an incremental needs.  Let x be an extent at e whose blocks were
 * written after the base's LSN s.  The mtr that published them put x, or an extent
 * of which x is a part, into a leaf, and gave the leaf its own LSN, which is above
 * s.  Whatever moved x since (a split, a merge, a cut, a join, a clone) put it into a
 * leaf by an mtr that came later still, and every page's LSN is that of its last
 * change.  So the leaf where x is at e has an LSN above s.  Conversely a leaf with an
 * LSN of at most s names only blocks that were in use, with these contents, at s;
 * they have been in use ever since (a block that is freed leaves its leaf) and so
 * have not been written: the base has them.
 *
 * An unwritten extent has no contents to copy; writing into it, in place, makes it a
 * written one in its leaf, so the same holds for blocks that were in use before s but
 * written after it.  Neither a leaf nor written.h tells more than what was published.
 *
 * Most blocks that such a leaf names are old, where files are large.  When the base is
 * the last backup of this mount, written.h knows those that are new.
 *
 * Blocks are read when no log is held any more; they are what they were at e, since
 * what was freed later has not been given out again (INV-LOG-7).  Each is compared
 * with its checksum.  One that does not match is copied as it is and counted:
 * restored, it is as unreadable as it is here, and the rest of the file is saved.
 */
#include "engine/backup_internal.h"

#include "engine/base/crc32c.h"
#include "engine/base/message.h"
#include "engine/lob_internal.h"
#include "engine/page.h"
#include "engine/tree_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

struct data_copy {
	struct backup *b;
	uint8_t *payload;    /* BACKUP_CHUNK_BLOCKS_MAX blocks */
	uint64_t *copied;    /* a bit for each block of the volume: clones share extents */
	uint64_t began_ns;
	bool by_map;         /* the last backup is the base: written.h knows what is new */
};

/* True: the backup has it, or its base does. */
static bool set_copied(struct data_copy *d, uint64_t block)
{
	uint64_t bit = 1ull << block % 64, *word = &d->copied[block / 64];
	bool was = *word & bit;

	*word |= bit;
	return was || (d->by_map && !written_has(&d->b->volume->written, block));
}

/* So many bytes a second and no more. */
static int keep_pace(struct data_copy *d)
{
	uint64_t rate = d->b->params->bytes_per_second;
	uint64_t due_ns = rate ? (uint64_t)((double)d->b->progress.blocks * BLOCK_SIZE /
					    (double)rate * 1e9) : 0;
	struct waitq nobody = {0};
	int rc = backup_look(d->b);

	while (rc == 0 && rate && os_mono_ns() - d->began_ns < due_ns) {
		uint64_t left = due_ns - (os_mono_ns() - d->began_ns);

		waitq_wait(&nobody, waitq_ticket(&nobody), left < 50000000 ? left : 50000000);
		rc = backup_look(d->b);
	}
	return rc;
}

static void verify_run(struct data_copy *d, const struct extent *extent, uint64_t start,
		       uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		uint64_t at = start - extent->start + i;

		if (crc32c(0, d->payload + (size_t)i * BLOCK_SIZE, BLOCK_SIZE) ==
		    le32_get(extent->crc[at]))
			continue;
		d->b->progress.bad_blocks++;
		stat_add(&d->b->volume->stats, STAT_lob_crc_errors, 1);
		message(LOG_ERR, "%s: backup: block %" PRIu64 " does not match its checksum",
			d->b->volume->dev->path, start + i);
	}
}

static int copy_run(struct data_copy *d, const struct extent *extent, uint64_t start,
		    uint32_t count)
{
	struct backup *b = d->b;
	int rc = dev_read(b->volume->dev, d->payload, (size_t)count * BLOCK_SIZE,
			  start * BLOCK_SIZE);

	if (rc)
		return rc;
	verify_run(d, extent, start, count);
	b->progress.blocks += count;
	stat_add(&b->volume->stats, STAT_backup_blocks, count);
	rc = backup_chunk(b, BACKUP_DATA, start, count, d->payload);
	os_point("backup:data");
	return rc ? rc : keep_pace(d);
}

/* The parts of it that no other extent has brought. */
static int copy_extent(struct data_copy *d, const struct extent *extent)
{
	uint64_t at = extent->start, end = extent->start + extent->length;
	int rc = 0;

	while (at < end && rc == 0) {
		uint32_t count = 0;
		uint64_t start;

		while (at < end && set_copied(d, at))
			at++;
		start = at;
		while (at < end && count < BACKUP_CHUNK_BLOCKS_MAX &&
		       (count == 0 || !set_copied(d, at))) {
			count++;
			at++;
		}
		if (count > 0)
			rc = copy_run(d, extent, start, count);
	}
	return rc;
}

static int copy_leaf(struct data_copy *d)
{
	struct backup *b = d->b;
	unsigned slots = page_slots(b->page);
	int rc = 0;

	for (unsigned i = 0; i < slots && rc == 0; i++) {
		struct page_entry entry;
		struct extent extent;
		struct key key;
		bool found;

		page_key(b->page, i, &key);
		page_entry(b->page, i, &entry);
		if (key.len != KEY_LOB_BYTES)
			return corrupt_at(b->volume, 0, "backup", "key of another index");
		rc = extent_decode(b->volume, be64_get(key.bytes), &key, entry.value,
				   entry.value_len, &extent, &found);
		if (rc == 0 && !extent.unwritten)
			rc = copy_extent(d, &extent);
	}
	return rc;
}

static bool is_lob_leaf(const void *page)
{
	const struct disk_page *head = page;

	return head->type == PAGE_TREE && head->index == INDEX_LOB && head->level == 0;
}

int backup_data(struct backup *b)
{
	struct data_copy d = {.b = b, .began_ns = os_mono_ns()};
	uint8_t *buffer = backup_buffer(BACKUP_CHUNK_BLOCKS_MAX, &d.payload);
	int rc = 0;

	d.by_map = written_knows(&b->volume->written, b->params->since);
	d.copied = calloc(b->volume->geo.block_count / 64 + 1, sizeof(*d.copied));
	if (buffer == NULL || d.copied == NULL)
		rc = -ENOMEM;
	for (size_t i = 0; i < b->index.count && rc == 0; i++) {
		const struct backup_page *page = &b->index.page[i];

		if (page->offset == 0 || page->freed || page->lsn <= b->params->since)
			continue;
		rc = backup_get_page(b, page, b->page);
		if (rc == 0 && is_lob_leaf(b->page))
			rc = copy_leaf(&d);
	}
	free(d.copied);
	free(buffer);
	return rc;
}
