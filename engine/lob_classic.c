/*
 * Large objects the classic way: what the five measures replace.  Nothing here
 * runs while they are on (tunables.def); it stays for comparison and as the
 * smallest description of what each measure saves.
 *
 *	lob_batch off         lob_classic_place(): block by block, each looked for,
 *	                      written and logged by itself
 *	lob_two_phase off     lob_classic_write(): data is placed while the index
 *	                      latch and the leaves are held; over unwritten extents
 *	                      the places are chosen before, the data waits
 *	lob_shared_index off  lob_want_replace() wants the index latch exclusive
 *	purge_prefetch off    purge meets missing leaves while it holds the index latch
 *	purge_no_load off     lob_classic_load(): what is freed is read first, block
 *	                      by block, the leaves being held
 *
 * The promises are the same: nothing is published that is not written, and a
 * crash leaves no trace of what is not published.
 */
#include "engine/lob_internal.h"

#include <errno.h>
#include <stdlib.h>

int lob_classic_place(struct volume *volume, struct lob_new *new, const void *data)
{
	const uint8_t *from = data;
	uint64_t hint = new->hint;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < new->blocks; i++) {
		struct reservation one;

		rc = space_reserve(volume->space, 1, hint, new->space_flags, &one);
		if (rc)
			break;
		new->space.piece[new->space.count++] = one.piece[0];
		new->space.blocks++;
		hint = one.piece[0].start + 1;
		rc = dev_write(volume->dev, from + (size_t)i * BLOCK_SIZE, BLOCK_SIZE,
			       one.piece[0].start * BLOCK_SIZE);
	}
	return rc;
}

int lob_classic_write(struct volume *volume, struct lob_new *new)
{
	const void *data = new->data;

	stat_add(&volume->stats, STAT_lob_classic_writes, 1);
	new->data = NULL;
	if (new->space.count > 0)
		return lob_write_pieces(volume, new, data);
	return lob_place(volume, new, data);
}

int lob_classic_load(struct volume *volume, uint64_t start, uint64_t count)
{
	uint8_t *block = malloc(BLOCK_SIZE);
	int rc = block ? 0 : -ENOMEM;

	for (uint64_t i = 0; rc == 0 && i < count; i++)
		rc = dev_read(volume->dev, block, BLOCK_SIZE, (start + i) * BLOCK_SIZE);
	if (rc == 0)
		stat_add(&volume->stats, STAT_purge_data_blocks_read, count);
	free(block);
	return rc;
}
