/*
 * The doublewrite area (doublewrite.h).
 *
 * INV-DW-1: a slot is overwritten only when the page that it held is durably in
 * place (INV-LOG-2).  The flusher runs one batch at a time, each batch starts at
 * slot 0, and a batch ends with the flush that makes its pages durable in place;
 * recovery restores and flushes before it writes a batch.
 *
 *	crash                       in place          recovery does
 *	while slots are written     old, whole        nothing: torn slots do not verify, others
 *	                                              may be ahead of the log
 *	after their flush           old, whole        nothing
 *	while written in place      old, new or torn  restores torn ones from the slot
 *	after the flush in place    new, whole        nothing: the slot is not needed
 *	while restoring             restored or torn  restores again
 *
 * INV-DW-2: not every page needs a slot; flush.c says which do not, and why.
 *
 * INV-REC-1: a copy is used only if the page in place is invalid.  So an old
 * copy, left in a slot by an earlier batch, never replaces a newer page; and
 * survives() keeps it from replacing file data in blocks that a freed page left:
 * those are no valid page either.
 */
#include "engine/doublewrite.h"

#include "engine/pool_internal.h"

#include <errno.h>
#include <stdlib.h>

int doublewrite_write(struct volume *volume, const void *pages, uint32_t count)
{
	size_t bytes = (size_t)count * volume->geo.page_size;

	check(count <= volume->geo.dw_slots);
	return dev_write(volume->dev, pages, bytes, volume->geo.dw_start * BLOCK_SIZE);
}

struct restore {
	struct volume *volume;
	lsn_t checkpoint_lsn, cut;
	bool (*survives)(void *arg, uint64_t pageno);
	void *arg;
	uint8_t *copies;   /* all slots */
	uint8_t *in_place; /* one page */
	bool *useful;      /* of each slot */
	bool wrote;
};

static const uint8_t *copy_at(const struct restore *restore, uint32_t slot)
{
	return restore->copies + (size_t)slot * restore->volume->geo.page_size;
}

static uint64_t copy_pageno(const struct restore *restore, uint32_t slot)
{
	return le64_get(((const struct disk_page *)copy_at(restore, slot))->pageno);
}

/* Everything about the copy itself. */
static bool copy_is_useful(const struct restore *restore, uint32_t slot)
{
	const struct volume *volume = restore->volume;
	const uint8_t *copy = copy_at(restore, slot);
	uint64_t pageno = copy_pageno(restore, slot);
	lsn_t lsn = page_lsn(copy);

	return page_verify(copy, volume->geo.page_size, pageno, volume->tag, NULL) == 0 &&
	       pool_page_number_valid(volume, pageno, ((const struct disk_page *)copy)->type) &&
	       restore->checkpoint_lsn <= lsn && lsn <= restore->cut &&
	       restore->survives(restore->arg, pageno);
}

/* Is there a slot with a newer copy of the same page (or an equal one, earlier)? */
static bool copy_is_outdone(const struct restore *restore, uint32_t slot)
{
	for (uint32_t i = 0; i < restore->volume->geo.dw_slots; i++) {
		if (i == slot || !restore->useful[i] ||
		    copy_pageno(restore, i) != copy_pageno(restore, slot))
			continue;
		if (page_lsn(copy_at(restore, i)) > page_lsn(copy_at(restore, slot)) ||
		    (page_lsn(copy_at(restore, i)) == page_lsn(copy_at(restore, slot)) && i < slot))
			return true;
	}
	return false;
}

static int restore_slot(struct restore *restore, uint32_t slot)
{
	struct volume *volume = restore->volume;
	uint32_t page_size = volume->geo.page_size;
	uint64_t pageno = copy_pageno(restore, slot);
	int rc = dev_read(volume->dev, restore->in_place, page_size, pageno * BLOCK_SIZE);

	if (rc)
		return rc;
	if (page_verify(restore->in_place, page_size, pageno, volume->tag, NULL) == 0)
		return 0;
	rc = dev_write(volume->dev, copy_at(restore, slot), page_size, pageno * BLOCK_SIZE);
	if (rc)
		return rc;
	restore->wrote = true;
	stat_add(&volume->stats, STAT_recovery_torn_repaired, 1);
	os_point("doublewrite:restored");
	return 0;
}

static int restore_all(struct restore *restore)
{
	struct volume *volume = restore->volume;
	uint32_t slots = volume->geo.dw_slots;
	int rc = dev_read(volume->dev, restore->copies, (size_t)slots * volume->geo.page_size,
			  volume->geo.dw_start * BLOCK_SIZE);

	for (uint32_t slot = 0; rc == 0 && slot < slots; slot++)
		restore->useful[slot] = copy_is_useful(restore, slot);
	for (uint32_t slot = 0; rc == 0 && slot < slots; slot++) {
		if (restore->useful[slot] && !copy_is_outdone(restore, slot))
			rc = restore_slot(restore, slot);
	}
	if (rc == 0 && restore->wrote)
		rc = dev_flush(volume->dev);
	return rc;
}

int doublewrite_restore(struct volume *volume, lsn_t checkpoint_lsn, lsn_t cut,
			bool (*survives)(void *arg, uint64_t pageno), void *arg)
{
	uint32_t page_size = volume->geo.page_size;
	struct restore restore = {
		.volume = volume,
		.checkpoint_lsn = checkpoint_lsn,
		.cut = cut,
		.survives = survives,
		.arg = arg,
	};
	int rc = -ENOMEM;

	restore.copies = aligned_alloc(PAGE_SIZE_MIN, (size_t)volume->geo.dw_slots * page_size);
	restore.in_place = aligned_alloc(PAGE_SIZE_MIN, page_size);
	restore.useful = calloc(volume->geo.dw_slots, sizeof(restore.useful[0]));
	if (restore.copies && restore.in_place && restore.useful)
		rc = restore_all(&restore);
	free(restore.useful);
	free(restore.in_place);
	free(restore.copies);
	return rc;
}
