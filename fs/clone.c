/*
 * Copying a range of a file to another, or to another place in it.
 *
 * Whole blocks are cloned: the destination gets extents of the same blocks, and
 * `shares` counts who refers to them.  Nothing is read or written, whatever the
 * size; later writes to either side go to new blocks, as all writes do.
 *
 * What cannot be cloned is read and written: parts of blocks, contents that are
 * inline.  The last block of a source may be cloned whole, past its size it is
 * zeros (INV-RECORD-3), when it becomes the destination's last one.
 *
 * A call goes piece by piece.  Each clone is one bounded mini-transaction over
 * the source's mapping, `shares`, and the destination with its inode (INV-LOB-3),
 * so a crash leaves a prefix of the pieces.
 *
 * Locks: both inodes X, which nobody who holds a range lock allows, and the
 * destination's whole range X (INV-LOB-1).  They are let go between pieces.
 */
#include "fs/core_internal.h"

#include "engine/lob.h"

#include <stdlib.h>

#define COPY_BYTES_MAX (1ull << 30) /* of one call, so that it ends within a reasonable time */
#define COPIED_BYTES_MAX (16ull << 20) /* of these, by reading and writing */

struct copy_args {
	uint64_t ino_in, offset_in, ino_out, offset_out;
	uint64_t len;
	unsigned extents; /* of a piece at most; lowered */
	uint64_t moved;   /* out: bytes; 0 = the source ends here */
	bool instead;     /* out: this piece has to be read and written */
};

/* One piece under its locks. */
struct cloning {
	struct core *core;
	struct copy_args *args;
	struct record in, out;
	uint64_t blocks;        /* of the piece, at most */
	uint64_t bytes;         /* that may be moved */
	struct lob_source_range source;
	uint64_t lob_out;
	bool same;              /* source and destination are one inode */
};

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static int read_regular(struct core *core, uint64_t ino, struct record *record)
{
	int rc = record_read(core->volume, ino, record, NULL);

	if (rc)
		return rc;
	if (!S_ISREG(record->mode))
		return S_ISDIR(record->mode) ? -EISDIR : -EINVAL;
	return 0;
}

/* INV-LOB-2: neither side has a pending dead range when it is mapped. */
static int read_records(struct cloning *c)
{
	const uint64_t inos[] = {c->args->ino_in, c->args->ino_out};
	struct record *records[] = {&c->in, &c->out};

	for (unsigned i = 0; i < 2; i++) {
		int rc = read_regular(c->core, inos[i], records[i]);

		if (rc == 0 && record_has_dead(records[i])) {
			rc = purge_dead_range(c->core->volume, inos[i]);
			if (rc == 0)
				rc = read_regular(c->core, inos[i], records[i]);
		}
		if (rc)
			return rc;
	}
	return 0;
}

/* Inline bytes have no blocks to share, and a LOB is made for them by a write. */
static bool is_inline(const struct record *record)
{
	return record->lob == 0 && (record->flags & INODE_INLINE);
}

/* What the piece can be; c->blocks is 0 when it cannot be cloned. */
static int choose_piece(struct cloning *c)
{
	const struct copy_args *args = c->args;
	uint64_t len;

	c->blocks = c->bytes = 0;
	/* The locks on the inodes are none on contents that both believe to be theirs. */
	if (!c->same && c->in.lob && c->in.lob == c->out.lob)
		return corrupt_at(c->core->volume, 0, "inode record",
				  "another inode has the same contents");
	if (record_is_immutable(&c->out) ||
	    (record_is_append(&c->out) && args->offset_out < c->out.size))
		return -EPERM;
	if (args->offset_in >= c->in.size)
		return 0;
	len = least(args->len, c->in.size - args->offset_in);
	if (args->offset_out > FILE_BYTES_MAX || len > FILE_BYTES_MAX - args->offset_out)
		return -EFBIG;
	if (c->same && args->offset_in < args->offset_out + len &&
	    args->offset_out < args->offset_in + len)
		return -EINVAL;
	c->bytes = len;
	if (args->offset_in % BLOCK_SIZE || args->offset_out % BLOCK_SIZE || !c->in.lob ||
	    is_inline(&c->out))
		return 0;
	c->blocks = len / BLOCK_SIZE;
	if (len % BLOCK_SIZE && args->offset_in + len == c->in.size &&
	    args->offset_out + len >= c->out.size)
		c->blocks++;
	return 0;
}

/* As many blocks as one mini-transaction takes. */
static int bound_blocks(struct cloning *c)
{
	uint64_t end = 0;
	int rc;

	c->source = (struct lob_source_range){
		.lob = c->in.lob,
		.first = c->args->offset_in / BLOCK_SIZE,
	};
	rc = lob_find_clone(c->core->volume, &c->source, c->args->extents,
			    c->source.first + c->blocks, &end);
	if (rc == 0)
		c->blocks = end - c->source.first;
	return rc;
}

static void want_clone(struct mtr *m, void *arg)
{
	const struct cloning *c = arg;
	uint64_t first = c->args->offset_out / BLOCK_SIZE;

	lob_want_clone(m, c->lob_out, first, first + c->blocks, &c->source);
}

static int stage_clone(struct mtr *m, struct record *record, void *arg)
{
	struct cloning *c = arg;
	struct copy_args *args = c->args;
	uint64_t first = args->offset_out / BLOCK_SIZE, done;
	int64_t delta;
	int rc = lob_stage_clone(m, c->lob_out, first, first + c->blocks, &c->source, &delta,
				 &done);

	if (rc)
		return rc;
	check(record->lob == c->out.lob); /* the locks see to that */
	record->lob = c->lob_out;
	record->blocks += (uint64_t)delta;
	args->moved = least(c->bytes, (done - first) * BLOCK_SIZE);
	if (args->offset_out + args->moved > record->size)
		record->size = args->offset_out + args->moved;
	record_kill_suid(record, false);
	record_modified(record, os_realtime());
	os_point("core:clone_commit");
	return 0;
}

static int clone_blocks(struct cloning *c)
{
	static const struct record_change change = {.want = want_clone, .stage = stage_clone};
	struct record record;

	return record_change(c->core->volume, c->args->ino_out, &change, c, &record);
}

/*
 * Too much for one mini-transaction.  Fewer extents from now on: what follows lies as
 * scattered.  Of a single extent fewer blocks, which the destination may have in many.
 */
static bool take_less(struct cloning *c)
{
	if (c->source.extents > 1)
		c->args->extents = c->source.extents / 2;
	else
		c->blocks /= 2;
	return c->blocks > 0;
}

static int clone_locked(struct cloning *c)
{
	int rc = read_records(c);

	if (rc == 0)
		rc = choose_piece(c);
	if (rc)
		return rc;
	if (c->blocks == 0) {
		c->args->instead = c->bytes > 0;
		return 0;
	}
	c->lob_out = c->out.lob;
	if (!c->lob_out)
		rc = id_take(c->core->volume, COUNTER_LOB, &c->lob_out);
	if (rc)
		return rc;
	do {
		rc = bound_blocks(c);
		if (rc == 0)
			rc = clone_blocks(c);
	} while (rc == -E2BIG && take_less(c));
	if (rc == 0)
		return 0;
	c->args->moved = 0;
	c->args->instead = rc == -E2BIG; /* not even one block: the index is too full of shares */
	return rc == -E2BIG ? 0 : rc;
}

static int clone_once(struct core *core, void *arg)
{
	struct copy_args *args = arg;
	const uint64_t inos[] = {args->ino_in, args->ino_out};
	struct cloning c = {.core = core, .args = args, .same = args->ino_in == args->ino_out};
	struct range_lock range;
	struct lock_set locks;
	struct inode *out;
	int rc;

	args->moved = 0;
	args->instead = false;
	rc = lock_inodes(core, inos, 2, &locks);
	if (rc)
		return rc;
	out = locks.inode[args->ino_out > args->ino_in];
	range_lock(&out->ranges, &range, 0, RANGE_END, true);
	rc = clone_locked(&c);
	range_unlock(&range);
	unlock_inodes(core, &locks);
	return rc;
}

/* Up to the next block's edge where that lets the rest be cloned. */
static int copy_bytes(struct core *core, view_t view, struct copy_args *args, uint8_t **buf)
{
	uint64_t into = args->offset_in % BLOCK_SIZE;
	uint64_t len = least(args->len, WRITE_BYTES_MAX);
	size_t done = 0;
	int rc;

	if (into == args->offset_out % BLOCK_SIZE && into)
		len = least(len, BLOCK_SIZE - into);
	if (!*buf)
		*buf = malloc(WRITE_BYTES_MAX);
	if (!*buf)
		return -ENOMEM;
	rc = core_read(core, view, args->ino_in, args->offset_in, *buf, (size_t)len, &done);
	if (rc == 0 && done > 0)
		rc = core_write(core, view, args->ino_out, args->offset_out, *buf, done,
				CORE_WRITE_KILL_SUID);
	args->moved = rc ? 0 : done;
	return rc;
}

int core_copy(struct core *core, view_t view, uint64_t ino_in, uint64_t offset_in,
	      uint64_t ino_out, uint64_t offset_out, uint64_t len, uint64_t *done)
{
	uint64_t left = least(len, COPY_BYTES_MAX), copied = 0;
	unsigned extents = CLONE_EXTENTS_MAX;
	struct core_attr attr;
	uint8_t *buf = NULL;
	int rc;

	*done = 0;
	if (offset_in > FILE_BYTES_MAX || offset_out > FILE_BYTES_MAX)
		return -EINVAL;
	rc = core_getattr(core, view, ino_in, &attr);
	if (rc)
		return rc;
	/* What the copy itself adds to its source is no part of it. */
	if (S_ISREG(attr.mode))
		left = least(left, attr.size > offset_in ? attr.size - offset_in : 0);
	do {
		struct copy_args args = {
			.ino_in = ino_in,
			.offset_in = offset_in + *done,
			.ino_out = ino_out,
			.offset_out = offset_out + *done,
			.len = left,
			.extents = extents,
		};

		rc = core_change(core, view, clone_once, &args);
		if (rc == 0 && args.instead) {
			rc = copy_bytes(core, view, &args, &buf);
			copied += args.moved;
		}
		if (rc || args.moved == 0)
			break;
		extents = args.extents;
		*done += args.moved;
		left -= args.moved;
	} while (left > 0 && copied < COPIED_BYTES_MAX);
	free(buf);
	return *done ? 0 : rc;
}
