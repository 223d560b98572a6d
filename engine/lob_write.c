/*
 * Phases 1 and 2 of a write: space and data.
 *
 * Nothing is logged and no page is latched.  The blocks are the writer's own:
 * busy in the free map, used by no reader, unknown to the log.  A crash, or
 * lob_abandon(), leaves them as free as they were.
 *
 * Unwritten extents are the exception: their blocks are the LOB's already, and are
 * written where they are.  A reader finds zeros there until the commit that makes
 * the extent a written one, and so does a mount after a crash before it: what lies
 * in the blocks is nobody's.  INV-LOB-8: only the holder of the range writes into
 * an unwritten extent, and only to publish it.
 */
#include "engine/lob_internal.h"

#include "engine/base/crc32c.h"

#include <errno.h>
#include <stdlib.h>

static void compute_crcs(struct volume *volume, le32 *crcs, const uint8_t *data, uint32_t blocks)
{
	uint64_t from = os_mono_ns();

	for (uint32_t i = 0; i < blocks; i++)
		crcs[i] = le32_make(crc32c(0, data + (size_t)i * BLOCK_SIZE, BLOCK_SIZE));
	stat_add(&volume->stats, STAT_lob_crc_ns, os_mono_ns() - from);
}

static int write_pieces(struct volume *volume, const struct reservation *space, const void *data)
{
	struct dev_request requests[RESERVE_EXTENTS_MAX];
	uint8_t *from = (uint8_t *)data; /* a write only reads it */
	bool past_cache = space->blocks >= DIRECT_WRITE_BLOCKS_MIN &&
			  tunable_is_on(&volume->tunables, TUNABLE_data_direct);

	for (unsigned i = 0; i < space->count; i++) {
		const struct piece *piece = &space->piece[i];

		requests[i] = (struct dev_request){
			.buf = from,
			.len = (size_t)piece->length * BLOCK_SIZE,
			.offset = piece->start * BLOCK_SIZE,
			.is_write = true,
			.past_cache = past_cache,
		};
		from += requests[i].len;
	}
	return dev_batch(volume->dev, requests, space->count);
}

static int place_at_once(struct volume *volume, struct lob_new *new, const void *data)
{
	int rc = space_reserve(volume->space, new->blocks, new->hint, new->space_flags,
			       &new->space);

	if (rc)
		return rc;
	os_point("lob:reserved");
	return write_pieces(volume, &new->space, data);
}

static uint32_t blocks_in_place(const struct lob_new *new)
{
	uint32_t blocks = 0;

	for (unsigned i = 0; i < new->space.count; i++)
		blocks += new->in_place[i] ? new->space.piece[i].length : 0;
	return blocks;
}

static void count_write(struct volume *volume, const struct lob_new *new)
{
	stat_add(&volume->stats, STAT_lob_writes, 1);
	stat_add(&volume->stats, STAT_lob_write_blocks, new->blocks);
	stat_add(&volume->stats, STAT_lob_write_blocks_in_place, blocks_in_place(new));
	os_point("lob:written");
}

int lob_write_pieces(struct volume *volume, const struct lob_new *new, const void *data)
{
	int rc = write_pieces(volume, &new->space, data);

	if (rc == 0)
		count_write(volume, new);
	return rc;
}

int lob_place(struct volume *volume, struct lob_new *new, const void *data)
{
	int rc;

	if (tunable_is_on(&volume->tunables, TUNABLE_lob_batch))
		rc = place_at_once(volume, new, data);
	else
		rc = lob_classic_place(volume, new, data);
	if (rc == 0)
		count_write(volume, new);
	return rc;
}

int lob_prepare(struct volume *volume, uint64_t first, uint32_t blocks, const void *data,
		uint64_t hint, unsigned space_flags, struct lob_new *out)
{
	int rc;

	*out = (struct lob_new){
		.first = first,
		.blocks = blocks,
		.hint = hint,
		.space_flags = space_flags,
	};
	out->crcs = malloc(blocks * sizeof(*out->crcs));
	if (out->crcs == NULL)
		return -ENOMEM;
	compute_crcs(volume, out->crcs, data, blocks);
	if (!tunable_is_on(&volume->tunables, TUNABLE_lob_two_phase)) {
		out->data = data;
		return 0;
	}
	rc = lob_place(volume, out, data);
	if (rc)
		lob_abandon(volume, out);
	return rc;
}

/* What was reserved, without the pieces that belong to the LOB. */
static void give_back(struct volume *volume, const struct lob_new *new)
{
	struct reservation reserved = {.count = 0};

	for (unsigned i = 0; i < new->space.count; i++) {
		if (new->in_place[i])
			continue;
		reserved.piece[reserved.count++] = new->space.piece[i];
		reserved.blocks += new->space.piece[i].length;
	}
	if (reserved.count > 0)
		space_unreserve(volume->space, &reserved);
}

void lob_abandon(struct volume *volume, struct lob_new *new)
{
	give_back(volume, new);
	lob_published(new);
}

void lob_published(struct lob_new *new)
{
	free(new->crcs);
	*new = (struct lob_new){0};
}

/* --------------------------------------------------------- unwritten extents */

int lob_prepare_unwritten(struct volume *volume, uint64_t first, uint32_t blocks, uint64_t hint,
			  struct lob_new *out)
{
	*out = (struct lob_new){.first = first, .blocks = blocks};
	return space_reserve(volume->space, blocks, hint, 0, &out->space);
}

/* The unwritten extents in a range, as far as they lie in it. */
struct unwritten {
	uint64_t first, end;
	uint64_t at[RESERVE_EXTENTS_MAX];       /* file blocks */
	struct piece piece[RESERVE_EXTENTS_MAX];
	unsigned count;
	uint32_t blocks;
};

static int visit_unwritten(void *arg, const struct extent *extent)
{
	struct unwritten *u = arg;
	uint64_t at = extent->first > u->first ? extent->first : u->first;
	uint64_t end = extent_end(extent) < u->end ? extent_end(extent) : u->end;

	if (extent->first >= u->end)
		return 1;
	if (!extent->unwritten)
		return 0;
	u->at[u->count] = at;
	u->piece[u->count++] = (struct piece){
		.start = extent->start + (at - extent->first),
		.length = (uint32_t)(end - at),
	};
	u->blocks += (uint32_t)(end - at);
	return 0;
}

static void add_piece(struct lob_new *new, struct piece piece, bool in_place)
{
	check(new->space.count < RESERVE_EXTENTS_MAX);
	new->in_place[new->space.count] = in_place;
	new->space.piece[new->space.count++] = piece;
	new->space.blocks += piece.length;
}

/* Reserved pieces, in order, between the unwritten ones: each block has its place. */
static void merge_pieces(struct lob_new *new, const struct unwritten *u,
			 const struct reservation *reserved)
{
	uint64_t at = new->first;
	unsigned next = 0;
	uint32_t used = 0;

	for (unsigned i = 0; i <= u->count; i++) {
		uint64_t stop = i < u->count ? u->at[i] : new->first + new->blocks;

		while (at < stop) {
			struct piece piece = reserved->piece[next];

			piece.start += used;
			piece.length -= used;
			used = 0;
			if (piece.length > stop - at) {
				used = (uint32_t)(stop - at) + reserved->piece[next].length -
				       piece.length;
				piece.length = (uint32_t)(stop - at);
			} else {
				next++;
			}
			add_piece(new, piece, false);
			at += piece.length;
		}
		if (i < u->count) {
			add_piece(new, u->piece[i], true);
			at += u->piece[i].length;
		}
	}
	check(new->space.blocks == new->blocks);
}

static int place_over(struct volume *volume, uint64_t hint, const struct unwritten *u,
		      struct lob_new *new)
{
	struct reservation reserved = {.count = 0};
	int rc = 0;

	if (u->blocks < new->blocks)
		rc = space_reserve(volume->space, new->blocks - u->blocks, hint, 0, &reserved);
	if (rc == 0)
		merge_pieces(new, u, &reserved);
	return rc;
}

int lob_prepare_over(struct volume *volume, uint64_t lob, uint64_t first, uint32_t blocks,
		     const void *data, uint64_t hint, struct lob_new *out)
{
	struct unwritten u = {.first = first, .end = first + blocks};
	struct lob_visitor visitor = {.visit = visit_unwritten, .arg = &u};
	int rc = lob_walk(volume, lob, first, &visitor, false);

	if (rc || u.count == 0) {
		*out = (struct lob_new){.blocks = 0};
		return rc ? rc : lob_prepare(volume, first, blocks, data, hint, 0, out);
	}
	*out = (struct lob_new){.first = first, .blocks = blocks, .hint = hint};
	out->crcs = malloc(blocks * sizeof(*out->crcs));
	if (out->crcs == NULL)
		return -ENOMEM;
	compute_crcs(volume, out->crcs, data, blocks);
	if (!tunable_is_on(&volume->tunables, TUNABLE_lob_batch))
		stat_add(&volume->stats, STAT_lob_batch_skips, 1);
	rc = place_over(volume, hint, &u, out);
	os_point("lob:reserved");
	if (rc == 0 && !tunable_is_on(&volume->tunables, TUNABLE_lob_two_phase))
		out->data = data;
	else if (rc == 0)
		rc = lob_write_pieces(volume, out, data);
	if (rc)
		lob_abandon(volume, out);
	return rc;
}

/* ------------------------------------------------------------------- holes */

struct gaps {
	uint64_t at, below, max;
	uint64_t first, end;   /* the first one, when it is looked for */
	uint64_t blocks;       /* all of them */
};

static void add_gap(struct gaps *gaps, uint64_t stop)
{
	if (stop > gaps->below)
		stop = gaps->below;
	if (stop <= gaps->at)
		return;
	if (gaps->first == gaps->end) {
		gaps->first = gaps->at;
		gaps->end = stop - gaps->at > gaps->max ? gaps->at + gaps->max : stop;
	}
	gaps->blocks += stop - gaps->at;
}

static int visit_gap(void *arg, const struct extent *extent)
{
	struct gaps *gaps = arg;

	add_gap(gaps, extent->first);
	if (extent_end(extent) > gaps->at)
		gaps->at = extent_end(extent);
	return gaps->at >= gaps->below || (gaps->max > 0 && gaps->end > gaps->first);
}

static int find_gaps(struct volume *volume, uint64_t lob, struct gaps *gaps)
{
	struct lob_visitor visitor = {.visit = visit_gap, .arg = gaps};
	int rc = lob_walk(volume, lob, gaps->at, &visitor, false);

	if (rc == 0 && (gaps->max == 0 || gaps->first == gaps->end))
		add_gap(gaps, gaps->below);
	return rc;
}

int lob_find_hole(struct volume *volume, uint64_t lob, uint64_t from, uint64_t below, uint64_t max,
		  uint64_t *first, uint64_t *end)
{
	struct gaps gaps = {.at = from, .below = below, .max = max};
	int rc = find_gaps(volume, lob, &gaps);

	*first = gaps.first;
	*end = gaps.end;
	return rc;
}

int lob_count_holes(struct volume *volume, uint64_t lob, uint64_t from, uint64_t below,
		    uint64_t *blocks)
{
	struct gaps gaps = {.at = from, .below = below};
	int rc = find_gaps(volume, lob, &gaps);

	*blocks = gaps.blocks;
	return rc;
}
