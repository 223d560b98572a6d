/*
 * Pass 8 (--data): every written block of every file is read, and its CRC-32C
 * compared with the one in its extent.  Bytes past the end of a file in its
 * last block must be zero, or an extension would show them.
 *
 * The extents are read once more, in key order; blocks are read in batches.
 * Bad blocks are gathered first and then named: path and offset.
 */
#include "fsck/path.h"

#include "engine/base/crc32c.h"
#include "engine/base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define BATCH_BLOCKS 256u
#define BAD_BLOCKS_MAX 10000u /* are named; more are only counted */

struct bad_block {
	enum fsck_problem_id id;
	const struct lob_owner *owner;
	uint64_t file_block, block;
};

struct data_walk {
	struct walk *w;
	uint8_t *buf; /* BATCH_BLOCKS blocks */
	struct dev_request requests[BATCH_BLOCKS];
	struct {
		const struct lob_owner *owner;
		uint64_t file_block, block;
		uint32_t crc;
		unsigned request; /* whose part it is */
	} block[BATCH_BLOCKS];
	unsigned blocks, request_count;
	size_t next_owner; /* first owner with a LOB >= that of the extent */
	TABLE(struct bad_block) bad;
	uint64_t bad_unnamed;
};

static int note_bad(struct data_walk *d, unsigned i, enum fsck_problem_id id)
{
	int rc;

	if (d->bad.count == BAD_BLOCKS_MAX) {
		d->bad_unnamed++;
		return 0;
	}
	rc = table_room(NULL, d->bad);
	if (!rc)
		d->bad.at[d->bad.count++] = (struct bad_block){
			id, d->block[i].owner, d->block[i].file_block, d->block[i].block};
	return rc;
}

static bool tail_is_zero(const struct data_walk *d, unsigned i, const uint8_t *data)
{
	const struct lob_owner *owner = d->block[i].owner;
	const struct inode_note *note = owner->kind == OWNER_INODE ? note_find(d->w, owner->id)
								   : NULL;
	unsigned used = note ? note->size % BLOCK_SIZE : 0;

	if (!used || d->block[i].file_block != note->size / BLOCK_SIZE || (note->flags & NOTE_DEAD))
		return true;
	for (unsigned at = used; at < BLOCK_SIZE; at++)
		if (data[at])
			return false;
	return true;
}

static int judge_block(struct data_walk *d, unsigned i, int result)
{
	const uint8_t *data = d->buf + (size_t)i * BLOCK_SIZE;

	if (result)
		return note_bad(d, i, FSCK_DATA_UNREADABLE);
	if (crc32c(0, data, BLOCK_SIZE) != d->block[i].crc)
		return note_bad(d, i, FSCK_DATA_CRC);
	return tail_is_zero(d, i, data) ? 0 : note_bad(d, i, FSCK_DATA_TAIL);
}

/* Where a request of many blocks failed, they are tried one by one. */
static int read_batch(struct data_walk *d)
{
	int rc = d->request_count ? dev_batch(d->w->raw.dev, d->requests, d->request_count) : 0;

	if (rc == -ENOMEM)
		return rc;
	rc = 0;
	for (unsigned i = 0; i < d->blocks && !rc; i++) {
		int result = d->requests[d->block[i].request].result;

		if (result)
			result = dev_read(d->w->raw.dev, d->buf + (size_t)i * BLOCK_SIZE,
					  BLOCK_SIZE, d->block[i].block * BLOCK_SIZE);
		rc = judge_block(d, i, result);
	}
	d->blocks = 0;
	d->request_count = 0;
	return rc;
}

/* Adds what fits of an extent's blocks from `from` on, as one request; how many. */
static unsigned add_blocks(struct data_walk *d, const struct extent *e, uint32_t from,
			   const struct lob_owner *owner)
{
	unsigned room = BATCH_BLOCKS - d->blocks, left = e->length - from;
	unsigned take = left < room ? left : room;

	d->requests[d->request_count] = (struct dev_request){
		.buf = d->buf + (size_t)d->blocks * BLOCK_SIZE,
		.len = (size_t)take * BLOCK_SIZE,
		.offset = (e->start + from) * BLOCK_SIZE,
	};
	for (unsigned i = 0; i < take; i++) {
		le32 crc;

		memcpy(&crc, e->crcs + (from + i) * sizeof(crc), sizeof(crc));
		d->block[d->blocks].owner = owner;
		d->block[d->blocks].file_block = e->first + from + i;
		d->block[d->blocks].block = e->start + from + i;
		d->block[d->blocks].crc = le32_get(crc);
		d->block[d->blocks].request = d->request_count;
		d->blocks++;
	}
	d->request_count++;
	return take;
}

/* The extent's owner, when it is somebody who may read it. */
static const struct lob_owner *find_owner(struct data_walk *d, uint64_t lob)
{
	const struct walk *w = d->w;
	const struct lob_owner *owner;

	while (d->next_owner < w->owners.count && w->owners.at[d->next_owner].lob < lob)
		d->next_owner++;
	if (d->next_owner == w->owners.count)
		return NULL;
	owner = &w->owners.at[d->next_owner];
	return owner->lob == lob && owner->kind != OWNER_PURGE ? owner : NULL;
}

static int add_extent(struct data_walk *d, const struct raw_entry *entry)
{
	const struct lob_owner *owner;
	struct extent e;
	const char *why;
	int rc = 0;

	if (entry->key.len != KEY_LOB_BYTES || !raw_extent_decode(entry, &e, &why) || e.unwritten ||
	    !raw_blocks_valid(&d->w->raw, e.start, e.length))
		return 0;
	owner = find_owner(d, e.lob);
	if (!owner)
		return 0;
	for (uint32_t from = 0; from < e.length && !rc;) {
		from += add_blocks(d, &e, from, owner);
		if (d->blocks == BATCH_BLOCKS)
			rc = read_batch(d);
	}
	return rc;
}

static int read_extents(struct data_walk *d)
{
	struct raw_key from = {.len = KEY_LOB_BYTES};
	struct raw_cursor c;
	int rc = raw_cursor_open(&c, &d->w->raw, INDEX_LOB, &from);

	while (!rc && !(rc = raw_cursor_next(&c))) {
		rc = walk_cancelled(d->w) ? -ECANCELED : add_extent(d, &c.entry);
	}
	raw_cursor_close(&c);
	if (rc == -ENOMEM || rc == -ECANCELED)
		return rc;
	return read_batch(d); /* a tree that breaks off was reported by pass 1 */
}

static int report_bad(struct data_walk *d)
{
	struct paths paths = {0};
	char path[PATH_TEXT_BYTES];
	int rc = 0;

	for (size_t i = 0; i < d->bad.count && !rc; i++)
		rc = paths_want(&paths, d->bad.at[i].owner->id);
	if (!rc && d->bad.count)
		rc = paths_find(&paths, d->w);
	for (size_t i = 0; i < d->bad.count && !rc; i++) {
		const struct bad_block *bad = &d->bad.at[i];

		paths_text(&paths, bad->owner->id, path);
		problem(d->w, bad->id,
			"%s%s, inode %" PRIu64 ", offset %" PRIu64 ": block %" PRIu64,
			bad->owner->kind == OWNER_XATTR ? "attribute of " : "", path,
			bad->owner->id, bad->file_block * BLOCK_SIZE, bad->block);
	}
	if (!rc && d->bad_unnamed)
		problem(d->w, FSCK_DATA_CRC, "%" PRIu64 " more blocks, or unreadable",
			d->bad_unnamed);
	paths_free(&paths);
	return rc;
}

int pass8_data(struct walk *w)
{
	struct data_walk *d = calloc(1, sizeof(*d));
	int rc = -ENOMEM;

	if (!d)
		return rc;
	d->w = w;
	d->buf = aligned_alloc(BLOCK_SIZE, (size_t)BATCH_BLOCKS * BLOCK_SIZE);
	if (d->buf)
		rc = read_extents(d);
	if (!rc)
		rc = report_bad(d);
	table_free(d->bad);
	free(d->buf);
	free(d);
	return rc;
}
