/*
 * Writing contents.
 *
 * A write holds the inode's lock S and the range X over its blocks from the
 * reading of old contents through the commit (INV-LOB-1), so writers of
 * disjoint ranges go on side by side.  It holds the range of the whole file
 * when it appends, when contents are inline or no LOB exists yet (somebody has
 * to make it), and when it has to drain a pending dead range.
 *
 *	(1) what the write becomes: inline bytes, or whole blocks, the edges filled
 *	    up with old contents (whose checksums were verified)
 *	(2) new blocks are reserved and written, the old ones stay as they are
 *	(3) one mini-transaction: extents, bits, the inode's size, times, blocks
 *
 *	crash before (3): old contents.  After it: the new ones.
 *
 * INV-WRITE-1  inline contents and the LOB are never both there: the
 *	        mini-transaction that adds the LOB takes the inline bytes away
 * INV-WRITE-2  the record is changed as read under the leaf's latch, never as read
 *	        before: other writers of the file change it as well
 * INV-WRITE-3  bytes past the size in the last block are written as zeros
 * INV-FLAG-2   bytes of an append-only file below its size never change: a write
 *	        that covers some, as write-back of a page that grew does, has to
 *	        bring them as they are
 */
#include "fs/core_internal.h"

#include "engine/lob.h"

#include <stdlib.h>

struct write_args {
	uint64_t ino, offset;
	const uint8_t *buf;
	size_t len;
	unsigned flags;
};

/* One write under its locks. */
struct writing {
	struct core *core;
	struct inode *inode;
	const struct write_args *args;
	uint64_t offset;              /* where it goes, an append's too */
	struct record record;         /* as read under the range lock */
	struct record_buffer buffer;  /* behind record.tail */
};

static uint64_t first_block(uint64_t offset)
{
	return offset / BLOCK_SIZE;
}

static uint64_t end_block(uint64_t end)
{
	return end / BLOCK_SIZE + (end % BLOCK_SIZE != 0);
}

static int read_record(struct writing *w)
{
	int rc = record_read(w->core->volume, w->args->ino, &w->record, &w->buffer);

	if (rc)
		return rc;
	if (!S_ISREG(w->record.mode))
		return S_ISDIR(w->record.mode) ? -EISDIR : -EINVAL;
	return record_is_immutable(&w->record) ? -EPERM : 0;
}

static bool meets_dead_range(const struct record *record, uint64_t end)
{
	return record_has_dead(record) && end_block(end) > record->dead_first;
}

static bool wants_whole_file(const struct writing *w)
{
	const struct write_args *args = w->args;

	return (args->flags & CORE_WRITE_APPEND) || !w->record.lob ||
	       meets_dead_range(&w->record, args->offset + args->len);
}

/* The changes that every write makes to the record, as it stands under the latch. */
static void update_record(const struct writing *w, struct record *record, uint64_t end)
{
	atime_fold(w->core, w->inode, record);
	if (end > record->size)
		record->size = end;
	if (w->args->flags & CORE_WRITE_KILL_SUID)
		record_kill_suid(record, w->args->flags & CORE_WRITE_OUTSIDER);
	if (w->args->flags & CORE_WRITE_KEEP_TIMES)
		record->change++;
	else
		record_modified(record, os_realtime());
}

static int commit(struct writing *w, const struct record_change *change, void *arg)
{
	struct record record;
	int rc = record_change(w->core->volume, w->args->ino, change, arg, &record);

	if (rc == 0)
		atime_folded(w->core, w->inode, &record);
	return rc;
}

/* --- inline -------------------------------------------------------------- */

static bool fits_inline(const struct writing *w, uint64_t end)
{
	return !w->record.lob && end <= INLINE_BYTES_MAX(w->core->volume->geo.page_size);
}

struct inline_contents {
	struct writing *w;
	uint64_t end; /* of the bytes written */
	uint32_t len;
	uint8_t bytes[INLINE_BYTES_LIMIT];
};

static int stage_inline(struct mtr *m, struct record *record, void *arg)
{
	const struct inline_contents *contents = arg;

	(void)m;
	update_record(contents->w, record, contents->end);
	record->tail = contents->bytes;
	record->tail_len = contents->len;
	return 0;
}

static int write_inline(struct writing *w, uint64_t offset, const uint8_t *buf, size_t len)
{
	static const struct record_change change = {.stage = stage_inline};
	struct inline_contents contents = {.w = w, .end = offset + len};
	int rc;

	if (w->record.tail_len)
		memcpy(contents.bytes, w->record.tail, w->record.tail_len);
	memcpy(contents.bytes + offset, buf, len);
	contents.len = (uint32_t)contents.end;
	if (contents.len < w->record.tail_len)
		contents.len = w->record.tail_len;
	rc = commit(w, &change, &contents);
	if (rc == 0)
		stat_add(&w->core->volume->stats, STAT_lob_inline_writes, 1);
	return rc;
}

/* --- blocks -------------------------------------------------------------- */

/* The old contents of one block, zeros where there are none. */
static int old_block(struct writing *w, uint64_t block, uint8_t *out)
{
	struct lob_source source = {
		.ino = w->args->ino,
		.lob = w->record.lob,
		.dead_first = w->record.dead_first,
		.dead_end = w->record.dead_end,
	};
	uint64_t start = block * BLOCK_SIZE;
	uint64_t have;

	if (source.lob && start < w->record.size)
		return contents_read(w->core, &source, block, 1, out, NULL);
	memset(out, 0, BLOCK_SIZE);
	if (start < w->record.tail_len) {
		have = w->record.tail_len - start;
		memcpy(out, w->record.tail + start, have < BLOCK_SIZE ? have : BLOCK_SIZE);
	}
	return 0;
}

/* INV-FLAG-2 */
static int judge_append(struct writing *w)
{
	uint64_t at = w->offset, end = w->offset + w->args->len;
	uint8_t block[BLOCK_SIZE];

	if (end > w->record.size)
		end = w->record.size;
	while (at < end) {
		size_t from = at % BLOCK_SIZE;
		size_t len = BLOCK_SIZE - from < end - at ? BLOCK_SIZE - from : end - at;
		int rc = old_block(w, at / BLOCK_SIZE, block);

		if (rc)
			return rc;
		if (memcmp(block + from, w->args->buf + (at - w->offset), len) != 0)
			return -EPERM;
		at += len;
	}
	return 0;
}

/* Blocks to write: the caller's bytes themselves, or a copy with filled-up edges in *owned. */
static int fill_blocks(struct writing *w, uint64_t offset, const uint8_t *buf, size_t len,
		       const uint8_t **data, uint8_t **owned)
{
	uint64_t first = first_block(offset), end = end_block(offset + len);
	size_t bytes = (size_t)(end - first) * BLOCK_SIZE;
	size_t head = offset % BLOCK_SIZE;
	uint8_t *last, *copy;
	int rc = 0;

	*owned = NULL;
	*data = buf;
	if (bytes == len)
		return 0;
	copy = malloc(bytes);
	if (!copy)
		return -ENOMEM;
	*owned = copy;
	*data = copy;
	last = copy + bytes - BLOCK_SIZE;
	if (head)
		rc = old_block(w, first, copy);
	if (rc == 0 && (last != copy || !head)) {
		if (offset + len < w->record.size)
			rc = old_block(w, end - 1, last);
		else
			memset(last, 0, BLOCK_SIZE); /* INV-WRITE-3 */
	}
	if (rc)
		return rc;
	memcpy(copy + head, buf, len);
	return 0;
}

/* Where new blocks should lie: behind this file's last ones, else in a group of its own. */
static uint64_t allocation_hint(const struct writing *w)
{
	const struct geometry *geo = &w->core->volume->geo;
	uint64_t near = atomic_load_explicit(&w->inode->near_block, memory_order_relaxed);

	if (near)
		return near;
	return geo->groups_start + w->args->ino % geo->group_count * geo->group_blocks;
}

static void remember_place(const struct writing *w, const struct lob_new *new)
{
	const struct piece *last = &new->space.piece[new->space.count - 1];

	atomic_store_explicit(&w->inode->near_block, last->start + last->length,
			      memory_order_relaxed);
}

/* What a write publishes: its own blocks and, when it makes the LOB, inline ones before them. */
struct publication {
	struct writing *w;
	uint64_t lob;
	uint64_t end;              /* of the bytes written */
	struct lob_new old_inline; /* no blocks: not needed */
	struct lob_new new;
	uint8_t inline_data[INLINE_BYTES_LIMIT];
};

static void want_publication(struct mtr *m, void *arg)
{
	const struct publication *p = arg;

	if (p->old_inline.blocks)
		lob_want_publish(m, p->lob, &p->old_inline);
	lob_want_publish(m, p->lob, &p->new);
}

static int stage_publication(struct mtr *m, struct record *record, void *arg)
{
	struct publication *p = arg;
	int64_t delta = 0, delta_inline = 0;
	uint64_t done;
	int rc = 0;

	check(record->lob == p->w->record.lob); /* the locks see to that */
	if (p->old_inline.blocks)
		rc = lob_stage_replace(m, p->lob, 0, p->old_inline.blocks, &p->old_inline,
				       &delta_inline, &done);
	if (rc == 0)
		rc = lob_stage_replace(m, p->lob, p->new.first, p->new.first + p->new.blocks,
				       &p->new, &delta, &done);
	if (rc)
		return rc;
	update_record(p->w, record, p->end);
	record->lob = p->lob;
	record->blocks += (uint64_t)(delta + delta_inline);
	record->tail_len = 0; /* INV-WRITE-1 */
	os_point("core:write_commit");
	return 0;
}

static int publish(struct writing *w, struct publication *p)
{
	static const struct record_change change = {
		.want = want_publication, .stage = stage_publication};

	return commit(w, &change, p);
}

/* Inline bytes in blocks before the ones that the write covers. */
static int prepare_inline(struct writing *w, uint64_t before, struct publication *p)
{
	uint64_t count = end_block(w->record.tail_len);

	static_assert(INLINE_BYTES_LIMIT % BLOCK_SIZE == 0, "whole blocks");
	if (count > before)
		count = before;
	if (count == 0)
		return 0;
	memset(p->inline_data, 0, sizeof(p->inline_data));
	memcpy(p->inline_data, w->record.tail, w->record.tail_len);
	return lob_prepare(w->core->volume, 0, (uint32_t)count, p->inline_data, allocation_hint(w),
			   0, &p->old_inline);
}

static int write_blocks(struct writing *w, uint64_t offset, const uint8_t *buf, size_t len)
{
	struct volume *volume = w->core->volume;
	struct publication p;
	uint64_t first = first_block(offset), end = end_block(offset + len);
	const uint8_t *data;
	uint8_t *owned;
	int rc;

	p.w = w;
	p.lob = w->record.lob;
	p.end = offset + len;
	p.new = p.old_inline = (struct lob_new){.blocks = 0};
	rc = fill_blocks(w, offset, buf, len, &data, &owned);
	if (rc == 0 && !p.lob)
		rc = id_take(volume, COUNTER_LOB, &p.lob);
	if (rc == 0)
		rc = prepare_inline(w, first, &p);
	if (rc == 0 && w->record.flags & INODE_PREALLOCATED)
		rc = lob_prepare_over(volume, p.lob, first, (uint32_t)(end - first), data,
				      allocation_hint(w), &p.new);
	else if (rc == 0)
		rc = lob_prepare(volume, first, (uint32_t)(end - first), data, allocation_hint(w),
				 0, &p.new);
	if (rc)
		goto out;
	rc = publish(w, &p);
	if (rc)
		goto out;
	remember_place(w, &p.new);
	lob_published(&p.old_inline);
	lob_published(&p.new);
out:
	if (rc) {
		lob_abandon(volume, &p.new);
		lob_abandon(volume, &p.old_inline);
	}
	free(owned);
	return rc;
}

/*
 * The replaced blocks are scattered over more places than one mini-transaction
 * can touch: half by half, still under the same locks.  A crash between the
 * halves shows the first one only; this is counted, and badly fragmented files
 * alone get here.
 */
static int write_halves(struct writing *w, uint64_t offset, const uint8_t *buf, size_t len)
{
	uint64_t middle = (first_block(offset) + end_block(offset + len)) / 2 * BLOCK_SIZE;
	size_t left = (size_t)(middle - offset);
	int rc;

	stat_add(&w->core->volume->stats, STAT_lob_split_publishes, 1);
	rc = write_blocks(w, offset, buf, left);
	if (rc == -E2BIG && end_block(middle) - first_block(offset) > 1)
		rc = write_halves(w, offset, buf, left);
	if (rc == 0)
		rc = read_record(w);
	if (rc)
		return rc;
	rc = write_blocks(w, middle, buf + left, len - left);
	if (rc == -E2BIG && end_block(offset + len) - first_block(middle) > 1)
		rc = write_halves(w, middle, buf + left, len - left);
	return rc;
}

/* --- locks --------------------------------------------------------------- */

/* INV-LOB-2: what is to be overwritten or extended over is not dead any more. */
static int drain_dead_range(struct writing *w)
{
	int rc = purge_dead_range(w->core->volume, w->args->ino);

	return rc ? rc : read_record(w);
}

static int write_locked(struct writing *w)
{
	const struct write_args *args = w->args;
	int rc = 0;

	w->offset = args->flags & CORE_WRITE_APPEND ? w->record.size : args->offset;
	if (args->len > FILE_BYTES_MAX - w->offset)
		return -EFBIG;
	if (meets_dead_range(&w->record, w->offset + args->len))
		rc = drain_dead_range(w);
	if (rc == 0 && record_is_append(&w->record))
		rc = judge_append(w);
	if (rc)
		return rc;
	if (fits_inline(w, w->offset + args->len))
		return write_inline(w, w->offset, args->buf, args->len);
	rc = write_blocks(w, w->offset, args->buf, args->len);
	if (rc == -E2BIG && end_block(w->offset + args->len) - first_block(w->offset) > 1)
		rc = write_halves(w, w->offset, args->buf, args->len);
	return rc;
}

/* Takes the range that the record asks for; the record may change until it is held. */
static int lock_and_write(struct writing *w)
{
	const struct write_args *args = w->args;
	struct range_lock range;
	bool whole;
	int rc = read_record(w);

	if (rc)
		return rc;
	whole = wants_whole_file(w);
	for (;;) {
		range_lock(&w->inode->ranges, &range, whole ? 0 : first_block(args->offset),
			   whole ? RANGE_END : end_block(args->offset + args->len), true);
		rc = read_record(w);
		if (rc || whole || !wants_whole_file(w))
			break;
		range_unlock(&range);
		whole = true; /* which can't be too little: no third round */
	}
	os_point("core:write_locked");
	if (rc == 0)
		rc = write_locked(w);
	range_unlock(&range);
	return rc;
}

static int write_once(struct core *core, void *arg)
{
	struct writing w = {.core = core, .args = arg};
	int rc;

	rc = lock_inode(core, w.args->ino, false, &w.inode);
	if (rc)
		return rc;
	rc = lock_and_write(&w);
	unlock_inode(core, w.inode, false);
	return rc;
}

int core_write(struct core *core, view_t view, uint64_t ino, uint64_t offset, const void *buf,
	       size_t len, unsigned flags)
{
	struct write_args args = {
		.ino = ino,
		.offset = flags & CORE_WRITE_APPEND ? 0 : offset, /* chosen under the lock */
		.buf = buf,
		.len = len,
		.flags = flags,
	};
	const unsigned known = CORE_WRITE_KILL_SUID | CORE_WRITE_APPEND | CORE_WRITE_KEEP_TIMES |
			       CORE_WRITE_OUTSIDER;

	if (len > WRITE_BYTES_MAX || (flags & ~known))
		return -EINVAL;
	if (args.offset > FILE_BYTES_MAX || len > FILE_BYTES_MAX - args.offset)
		return -EFBIG;
	stat_add(&core->volume->stats, STAT_core_writes, 1);
	return len ? core_change(core, view, write_once, &args) : 0;
}
