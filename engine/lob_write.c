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

int lob_prepare(struct volume *volume, uint64_t first, uint32_t blocks, const void *data,
		uint64_t hint, unsigned space_flags, struct lob_new *out)
{
	int rc;

	*out = (struct lob_new){.first = first, .blocks = blocks};
	out->crcs = malloc(blocks * sizeof(*out->crcs));
	if (out->crcs == NULL)
		return -ENOMEM;
	rc = space_reserve(volume->space, blocks, hint, space_flags, &out->space);
	if (rc)
		goto fail;
	os_point("lob:reserved");
	compute_crcs(out->crcs, data, blocks);
	rc = write_pieces(volume, &out->space, data);
	if (rc)
		goto fail;
	stat_add(&volume->stats, STAT_lob_writes, 1);
	stat_add(&volume->stats, STAT_lob_write_blocks, blocks);
	os_point("lob:written");
	return 0;
fail:
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
