/*
 * Phases 1 and 2 of a write: space and data.
 *
 * Nothing is logged and no page is latched.  The blocks are the writer's own:
 * busy in the free map, used by no reader, unknown to the log.  A crash, or
 * lob_abandon(), leaves them as free as they were.
 */
#include "engine/lob_internal.h"

#include "engine/base/crc32c.h"

#include <errno.h>
#include <stdlib.h>

static void compute_crcs(le32 *crcs, const uint8_t *data, uint32_t blocks)
{
	for (uint32_t i = 0; i < blocks; i++)
		crcs[i] = le32_make(crc32c(0, data + (size_t)i * BLOCK_SIZE, BLOCK_SIZE));
}

static int write_pieces(struct volume *volume, const struct reservation *space, const void *data)
{
	struct dev_request requests[RESERVE_EXTENTS_MAX];
	uint8_t *from = (uint8_t *)data; /* a write only reads it */

	for (unsigned i = 0; i < space->count; i++) {
		const struct piece *piece = &space->piece[i];

		requests[i] = (struct dev_request){
			.buf = from,
			.len = (size_t)piece->length * BLOCK_SIZE,
			.offset = piece->start * BLOCK_SIZE,
			.is_write = true,
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

int lob_place(struct volume *volume, struct lob_new *new, const void *data)
{
	int rc;

	if (tunable_is_on(&volume->tunables, TUNABLE_lob_batch))
		rc = place_at_once(volume, new, data);
	else
		rc = lob_classic_place(volume, new, data);
	if (rc)
		return rc;
	stat_add(&volume->stats, STAT_lob_writes, 1);
	stat_add(&volume->stats, STAT_lob_write_blocks, new->blocks);
	os_point("lob:written");
	return 0;
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
	compute_crcs(out->crcs, data, blocks);
	if (!tunable_is_on(&volume->tunables, TUNABLE_lob_two_phase)) {
		out->data = data;
		return 0;
	}
	rc = lob_place(volume, out, data);
	if (rc)
		lob_abandon(volume, out);
	return rc;
}

void lob_abandon(struct volume *volume, struct lob_new *new)
{
	if (new->space.count > 0)
		space_unreserve(volume->space, &new->space);
	lob_published(new);
}

void lob_published(struct lob_new *new)
{
	free(new->crcs);
	*new = (struct lob_new){0};
}
