/*
 * fallocate: blocks for a range, a hole in its place, zeros in its place.
 *
 * The inode is locked X and its whole range X, a pending dead range was drained.
 *
 *	allocate    every hole in the range becomes an unwritten extent, by bounded
 *	            mini-transactions; then one more for the size and the times.  A crash
 *	            in between leaves blocks that read as zeros like the holes before.
 *	            Inline contents move to a block first, unless all of it fits inline
 *	punch hole  one mini-transaction: blocks at the edges are rewritten with zeros,
 *	            what lies between goes.  When that is too much for one, the same
 *	            transaction declares it the pending dead range instead (INV-LOB-2);
 *	            punch_head_first() for the one case that is two
 *	zero range  as a hole, but with an unwritten extent in it, and the size is set;
 *	            when that is too much, a hole first, and then its blocks: what can
 *	            be seen changes in the first step
 *
 * INV-ALLOC-1: INODE_PREALLOCATED is set by the mini-transaction that makes the
 * first unwritten extent.  Writes look for unwritten extents only then, and
 * truncating a file to its present size then drops what lies behind it.
 */
#include "fs/core_internal.h"

#include "engine/lob.h"

#define DRAIN_BLOCKS_MAX 4096u /* more are left to purge, so that the call stays short */

struct allocating {
	struct core *core;
	struct inode *inode;
	uint64_t ino, offset, end;   /* bytes */
	unsigned mode;
	bool kills_suid, outsider;
	struct record record;        /* as read under the locks */
	struct record_buffer buffer; /* behind record.tail */
};

static uint64_t blocks_up(uint64_t bytes)
{
	return bytes / BLOCK_SIZE + (bytes % BLOCK_SIZE != 0);
}

static int read_record(struct allocating *a)
{
	int rc = record_read(a->core->volume, a->ino, &a->record, &a->buffer);

	if (rc)
		return rc;
	if (!S_ISREG(a->record.mode))
		return S_ISDIR(a->record.mode) ? -EISDIR : -EINVAL;
	return 0;
}

static uint64_t allocation_hint(const struct allocating *a)
{
	const struct geometry *geo = &a->core->volume->geo;
	uint64_t near = atomic_load_explicit(&a->inode->near_block, memory_order_relaxed);

	return near ? near
		    : geo->groups_start + a->ino % geo->group_count * geo->group_blocks;
}

/* flags: of mtr_begin(). */
static int change(struct allocating *a, unsigned flags, void (*want)(struct mtr *m, void *arg),
		  int (*stage)(struct mtr *m, struct record *record, void *arg), void *arg)
{
	const struct record_change change = {.flags = flags, .want = want, .stage = stage};
	struct record record;

	return record_change(a->core->volume, a->ino, &change, arg, &record);
}

/* --- allocate ------------------------------------------------------------ */

/* New blocks that one mini-transaction adds, and the LOB when the file had none. */
struct addition {
	struct lob_new new;
	uint64_t lob;
	bool moves_inline; /* new holds the inline contents */
};

static void want_addition(struct mtr *m, void *arg)
{
	struct addition *add = arg;

	if (add->new.blocks)
		lob_want_publish(m, add->lob, &add->new);
}

static int stage_addition(struct mtr *m, struct record *record, void *arg)
{
	struct addition *add = arg;
	int64_t delta = 0;
	uint64_t done;
	int rc = 0;

	if (add->new.blocks)
		rc = lob_stage_replace(m, add->lob, add->new.first,
				       add->new.first + add->new.blocks, &add->new, &delta, &done);
	if (rc)
		return rc;
	record->lob = add->lob;
	record->blocks += (uint64_t)delta;
	if (add->moves_inline)
		record->tail_len = 0;
	record->flags |= INODE_PREALLOCATED;
	record->change++;
	return 0;
}

static int publish(struct allocating *a, struct addition *add)
{
	const struct piece *last;
	int rc = change(a, 0, want_addition, stage_addition, add);

	if (rc) {
		lob_abandon(a->core->volume, &add->new);
		return rc;
	}
	if (add->new.blocks) {
		last = &add->new.space.piece[add->new.space.count - 1];
		atomic_store_explicit(&a->inode->near_block, last->start + last->length,
				      memory_order_relaxed);
	}
	lob_published(&add->new);
	return 0;
}

/* Gives a file its LOB, with what was inline. */
static int make_lob(struct allocating *a)
{
	uint8_t data[INLINE_BYTES_LIMIT] = {0};
	struct addition add = {.moves_inline = true};
	uint32_t blocks = (uint32_t)blocks_up(a->record.tail_len);
	int rc = id_take(a->core->volume, COUNTER_LOB, &add.lob);

	if (rc == 0 && blocks > 0) {
		memcpy(data, a->record.tail, a->record.tail_len);
		rc = lob_prepare(a->core->volume, 0, blocks, data, allocation_hint(a), 0,
				 &add.new);
	}
	if (rc == 0)
		rc = publish(a, &add);
	return rc ? rc : read_record(a);
}

static int fill_part(struct allocating *a, uint64_t first, uint64_t end)
{
	struct addition add = {.lob = a->record.lob};
	int rc = lob_prepare_unwritten(a->core->volume, first, (uint32_t)(end - first),
				       allocation_hint(a), &add.new);

	return rc ? rc : publish(a, &add);
}

/* Fewer blocks when the new ones are more pieces than one mini-transaction can take. */
static int fill_hole(struct allocating *a, uint64_t first, uint64_t *end)
{
	int rc = fill_part(a, first, *end);

	while (rc == -E2BIG && *end - first > 1) {
		*end = first + (*end - first) / 2;
		rc = fill_part(a, first, *end);
	}
	return rc;
}

/* A request that cannot be met should not fill the volume first. */
static int expect_room(struct allocating *a, uint64_t first, uint64_t end)
{
	struct space_counts counts;
	uint64_t wanted;
	int rc = lob_count_holes(a->core->volume, a->record.lob, first, end, &wanted);

	if (rc)
		return rc;
	space_count(a->core->volume->space, &counts);
	return counts.kept + wanted > space_returning(&counts) ? -ENOSPC : 0;
}

static int fill_holes(struct allocating *a)
{
	uint64_t at = a->offset / BLOCK_SIZE, end = blocks_up(a->end);
	int rc = expect_room(a, at, end);

	while (rc == 0 && at < end) {
		uint64_t first, stop;

		rc = lob_find_hole(a->core->volume, a->record.lob, at, end, WRITE_BLOCKS_MAX,
				   &first, &stop);
		if (rc || first == stop)
			break;
		rc = fill_hole(a, first, &stop);
		at = stop;
	}
	return rc;
}

static void put_size(const struct allocating *a, struct record *record)
{
	if (!(a->mode & CORE_KEEP_SIZE) && a->end > record->size)
		record->size = a->end;
	if (a->kills_suid)
		record_kill_suid(record, a->outsider);
	record_modified(record, os_realtime());
}

static int stage_size(struct mtr *m, struct record *record, void *allocating)
{
	(void)m;
	put_size(allocating, record);
	return 0;
}

static int allocate(struct allocating *a)
{
	int rc = a->record.lob ? fill_holes(a) : 0;

	if (rc || a->mode & CORE_ZERO_RANGE)
		return rc;
	return change(a, 0, NULL, stage_size, a);
}

/* --- punch hole ---------------------------------------------------------- */

/* File blocks [first, end), whose first and last may be kept with zeros in them. */
struct punch {
	struct allocating *a;
	uint64_t first, end;
	struct lob_new head, tail; /* no blocks: not needed */
	struct lob_new middle;     /* unwritten, of a small zero range */
	uint8_t head_data[BLOCK_SIZE], tail_data[BLOCK_SIZE];
	bool dead;                 /* what is between goes later */
	uint64_t key;              /* purge record of the dead range; 0: the orphan has one */
};

static uint64_t inner_first(const struct punch *punch)
{
	return punch->first + punch->head.blocks;
}

static uint64_t inner_end(const struct punch *punch)
{
	return punch->end - punch->tail.blocks;
}

/* A hole gives space back. */
static unsigned mtr_flags(const struct allocating *a)
{
	return a->mode & CORE_PUNCH_HOLE ? MTR_PRIVILEGED : 0;
}

/* Blocks that are only partly in the range: zeros there, in a block of their own. */
static int prepare_edge(struct allocating *a, uint64_t block, uint8_t data[BLOCK_SIZE],
			struct lob_new *out)
{
	struct lob_source source = {.ino = a->ino, .lob = a->record.lob};
	uint64_t start = block * BLOCK_SIZE;
	uint64_t from = a->offset > start ? a->offset - start : 0;
	uint64_t to = a->end - start < BLOCK_SIZE ? a->end - start : BLOCK_SIZE;
	bool hole;
	int rc = contents_read(a->core, &source, block, 1, data, &hole);

	if (rc || hole)
		return rc;
	memset(data + from, 0, to - from);
	return lob_prepare(a->core->volume, block, 1, data, allocation_hint(a),
			   a->mode & CORE_PUNCH_HOLE ? SPACE_PRIVILEGED : 0, out);
}

/* Edges that are holes, or unwritten, stay what they are; but a zero range includes them. */
static int prepare_punch(struct allocating *a, struct punch *punch)
{
	bool to_the_end = a->end >= a->record.size, zero = a->mode & CORE_ZERO_RANGE;
	uint64_t last = a->end / BLOCK_SIZE;
	int rc = 0;

	punch->first = a->offset / BLOCK_SIZE;
	punch->end = to_the_end ? blocks_up(a->end) : last;
	if (a->offset % BLOCK_SIZE) {
		rc = prepare_edge(a, punch->first, punch->head_data, &punch->head);
		if (punch->head.blocks == 0 && !zero)
			punch->first++;
	}
	if (rc == 0 && !to_the_end && a->end % BLOCK_SIZE && last >= inner_first(punch)) {
		rc = prepare_edge(a, last, punch->tail_data, &punch->tail);
		punch->end += zero ? 1 : punch->tail.blocks;
	}
	/* Both edges in one block. */
	if (punch->end < inner_first(punch))
		punch->end = inner_first(punch);
	return rc;
}

/* Whether a zero range is done in one step. */
static bool is_small(const struct punch *punch)
{
	return inner_first(punch) < inner_end(punch) &&
	       inner_end(punch) - inner_first(punch) <= WRITE_BLOCKS_MAX;
}

static int prepare_zeros(struct allocating *a, struct punch *punch)
{
	if (!(a->mode & CORE_ZERO_RANGE) || !is_small(punch))
		return 0;
	return lob_prepare_unwritten(a->core->volume, inner_first(punch),
				     (uint32_t)(inner_end(punch) - inner_first(punch)),
				     allocation_hint(a), &punch->middle);
}

static unsigned parts_of(struct punch *punch, struct lob_new *part[LOB_PARTS_MAX])
{
	struct lob_new *const all[] = {&punch->head, &punch->middle, &punch->tail};
	unsigned count = 0;

	for (unsigned i = 0; i < LOB_PARTS_MAX; i++)
		if (all[i]->blocks)
			part[count++] = all[i];
	return count;
}

static void want_punch(struct mtr *m, void *arg)
{
	struct lob_new *part[LOB_PARTS_MAX];
	struct punch *punch = arg;
	const struct allocating *a = punch->a;
	unsigned count = parts_of(punch, part);

	for (unsigned i = 0; i < count; i++)
		lob_want_publish(m, a->record.lob, part[i]);
	if (!punch->dead && punch->first < punch->end)
		lob_want_replace(m, a->record.lob, punch->first, punch->end);
	if (punch->key)
		purge_want(m, punch->key);
}

static int stage_edges(struct mtr *m, uint64_t lob, struct punch *punch, int64_t *delta)
{
	struct lob_new *const edges[] = {&punch->head, &punch->tail};
	struct lob_new *only = punch->head.blocks ? &punch->head : &punch->tail;
	uint64_t done;

	if (punch->head.blocks && punch->tail.blocks)
		return lob_stage_pair(m, lob, edges, delta);
	if (only->blocks == 0)
		return 0;
	return lob_stage_replace(m, lob, only->first, only->first + 1, only, delta, &done);
}

static int stage_dead(struct mtr *m, struct record *record, struct punch *punch, int64_t *delta)
{
	int rc = stage_edges(m, record->lob, punch, delta);

	if (rc)
		return rc;
	record->dead_first = inner_first(punch);
	record->dead_end = inner_end(punch);
	if (punch->key) {
		record->purge_key = punch->key;
		purge_stage(m, punch->key, PURGE_DEAD, punch->a->ino, record->lob,
			    record->dead_first, record->dead_end);
	}
	return 0;
}

static int stage_punch(struct mtr *m, struct record *record, void *arg)
{
	struct lob_new *part[LOB_PARTS_MAX];
	struct punch *punch = arg;
	int64_t delta = 0;
	int rc = 0;

	if (punch->dead)
		rc = stage_dead(m, record, punch, &delta);
	else if (punch->first < punch->end)
		rc = lob_stage_parts(m, record->lob, punch->first, punch->end, part,
				     parts_of(punch, part), &delta);
	if (rc)
		return rc;
	if (punch->middle.blocks)
		record->flags |= INODE_PREALLOCATED;
	record->blocks += (uint64_t)delta;
	put_size(punch->a, record);
	return 0;
}

static void want_head(struct mtr *m, void *arg)
{
	struct punch *punch = arg;

	lob_want_publish(m, punch->a->record.lob, &punch->head);
}

static int stage_head(struct mtr *m, struct record *record, void *arg)
{
	struct punch *punch = arg;
	int64_t delta = 0;
	uint64_t done;
	int rc = lob_stage_replace(m, record->lob, punch->head.first, punch->head.first + 1,
				   &punch->head, &delta, &done);

	record->blocks += (uint64_t)delta;
	record_modified(record, os_realtime());
	return rc;
}

/*
 * An extent that is shared in more parts than one mini-transaction can count, and
 * both edges in it: one after the other.  A crash in between shows zeros at the first
 * edge only; this is counted, as it is for writes.
 */
static int punch_head_first(struct allocating *a, struct punch *punch)
{
	int rc = change(a, mtr_flags(a), want_head, stage_head, punch);

	if (rc)
		return rc;
	stat_add(&a->core->volume->stats, STAT_lob_split_publishes, 1);
	punch->first += punch->head.blocks;
	lob_published(&punch->head);
	return change(a, mtr_flags(a), want_punch, stage_punch, punch);
}

static int punch_later(struct allocating *a, struct punch *punch)
{
	struct volume *volume = a->core->volume;
	int rc = 0;

	punch->dead = true;
	lob_abandon(volume, &punch->middle);
	if (a->record.nlink > 0)
		rc = id_take(volume, COUNTER_PURGE, &punch->key);
	if (rc == 0)
		rc = change(a, mtr_flags(a), want_punch, stage_punch, punch);
	if (rc == -E2BIG && punch->head.blocks && punch->tail.blocks)
		rc = punch_head_first(a, punch);
	if (rc)
		return rc;
	/* It reads as a hole by now: this only gives the space back. */
	if ((inner_end(punch) - inner_first(punch) > DRAIN_BLOCKS_MAX && a->record.nlink > 0) ||
	    purge_dead_range(volume, a->ino) != 0)
		purge_kick(volume->purge);
	return 0;
}

static int punch_blocks(struct allocating *a)
{
	struct punch punch = {.a = a};
	int rc = prepare_punch(a, &punch);

	if (rc == 0)
		rc = prepare_zeros(a, &punch);
	if (rc == 0)
		rc = change(a, mtr_flags(a), want_punch, stage_punch, &punch);
	if (rc == -E2BIG && inner_first(&punch) < inner_end(&punch))
		rc = punch_later(a, &punch);
	if (rc) {
		lob_abandon(a->core->volume, &punch.head);
		lob_abandon(a->core->volume, &punch.middle);
		lob_abandon(a->core->volume, &punch.tail);
		return rc;
	}
	lob_published(&punch.head);
	lob_published(&punch.middle);
	lob_published(&punch.tail);
	return 0;
}

struct inline_zeros {
	struct allocating *a;
	uint8_t tail[INLINE_BYTES_LIMIT];
};

static int stage_inline_zeros(struct mtr *m, struct record *record, void *arg)
{
	struct inline_zeros *zeros = arg;
	const struct allocating *a = zeros->a;
	uint8_t *tail = zeros->tail;

	(void)m;
	memcpy(tail, record->tail, record->tail_len);
	if (a->offset < record->tail_len)
		memset(tail + a->offset, 0,
		       (a->end < record->tail_len ? a->end : record->tail_len) - a->offset);
	record->tail = tail;
	put_size(a, record);
	return 0;
}

static int punch(struct allocating *a)
{
	struct inline_zeros zeros = {.a = a};

	if (a->record.lob)
		return punch_blocks(a);
	return change(a, mtr_flags(a), NULL, stage_inline_zeros, &zeros);
}

/* --- choosing ------------------------------------------------------------ */

static int allocate_locked(struct allocating *a)
{
	int rc = read_record(a);

	if (rc == 0 && (record_is_immutable(&a->record) ||
			(record_is_append(&a->record) && a->mode & ~(unsigned)CORE_KEEP_SIZE)))
		return -EPERM;
	if (rc == 0 && record_has_dead(&a->record)) {
		rc = purge_dead_range(a->core->volume, a->ino);
		if (rc == 0)
			rc = read_record(a);
	}
	if (rc == 0 && !(a->mode & CORE_PUNCH_HOLE) && !a->record.lob &&
	    a->end > INLINE_BYTES_MAX(a->core->volume->geo.page_size))
		rc = make_lob(a);
	if (rc == 0 && a->mode & (CORE_PUNCH_HOLE | CORE_ZERO_RANGE))
		rc = punch(a);
	if (rc || a->mode & CORE_PUNCH_HOLE)
		return rc;
	os_point("core:zeroed");
	return allocate(a);
}

static int allocate_once(struct core *core, void *arg)
{
	struct allocating *a = arg;
	struct range_lock range;
	int rc = lock_inode(core, a->ino, true, &a->inode);

	if (rc)
		return rc;
	a->core = core;
	range_lock(&a->inode->ranges, &range, 0, RANGE_END, true);
	rc = allocate_locked(a);
	range_unlock(&range);
	unlock_inode(core, a->inode, true);
	return rc;
}

int core_fallocate(struct core *core, view_t view, uint64_t ino, unsigned mode, uint64_t offset,
		   uint64_t len)
{
	struct allocating a = {.ino = ino, .offset = offset};

	a.kills_suid = mode & CORE_FALLOCATE_KILL_SUID;
	a.outsider = mode & CORE_FALLOCATE_OUTSIDER;
	mode &= ~(unsigned)(CORE_FALLOCATE_KILL_SUID | CORE_FALLOCATE_OUTSIDER);
	a.mode = mode;
	if (mode & ~(unsigned)(CORE_KEEP_SIZE | CORE_PUNCH_HOLE | CORE_ZERO_RANGE) ||
	    (mode & CORE_PUNCH_HOLE && mode != (CORE_PUNCH_HOLE | CORE_KEEP_SIZE)))
		return -EOPNOTSUPP;
	if (len == 0)
		return -EINVAL;
	if (offset > FILE_BYTES_MAX || len > FILE_BYTES_MAX - offset)
		return -EFBIG;
	a.end = offset + len;
	return core_change(core, view, allocate_once, &a);
}
