/* Applying, collecting and committing redo records: see redo.h. */
#include "engine/redo.h"

#include "engine/flush.h"
#include "engine/volume.h"

#include <errno.h>
#include <stdlib.h>

int redo_begin(struct redo *redo, struct volume *volume, uint64_t log_bytes)
{
	int rc;

	*redo = (struct redo){.volume = volume};
	redo->records = malloc(log_bytes);
	redo->body = malloc(BODY_BYTES_MAX(volume->geo.page_size));
	if (redo->records == NULL || redo->body == NULL) {
		redo_end(redo);
		return -ENOMEM;
	}
	rc = log_reserve(volume->log, log_bytes);
	if (rc) {
		redo_end(redo);
		return rc;
	}
	redo->reserved = log_bytes;
	return 0;
}

static void put_record(struct redo *redo, uint8_t type, const uint8_t *prefix, size_t prefix_len,
		       size_t len)
{
	check(redo->len + redo_record_bytes(len) + MTR_TRAILER_BYTES <= redo->reserved);
	redo->records[redo->len++] = type;
	redo->len += varint_put(redo->records + redo->len, prefix_len + len);
	memcpy(redo->records + redo->len, prefix, prefix_len);
	redo->len += prefix_len;
	memcpy(redo->records + redo->len, redo->body, len);
	redo->len += len;
}

static void note_changed(struct redo *redo, struct frame *frame, bool initialised)
{
	unsigned i = 0;

	while (i < redo->changed_count && redo->changed[i].frame != frame)
		i++;
	if (i == redo->changed_count) {
		check(redo->changed_count < REDO_PAGES_MAX);
		redo->changed_count++;
		redo->changed[i].frame = frame;
		redo->changed[i].initialised = false;
	}
	redo->changed[i].initialised |= initialised;
}

void redo_page(struct redo *redo, struct frame *frame, uint8_t type, size_t len)
{
	struct volume *volume = redo->volume;
	uint64_t pageno = atomic_load_explicit(&frame->pageno, memory_order_relaxed);
	uint8_t prefix[10];
	size_t prefix_len = varint_put(prefix, pageno);
	int rc;

	check(latch_held_x(&frame->latch));
	put_record(redo, type, prefix, prefix_len, len);
	rc = page_redo(frame->data, volume->geo.page_size, pageno, volume->tag, type, redo->body,
		       len);
	check(rc == 0);
	if (type == REC_BITS)
		redo->tally += redo_bits_change(redo->body, len);
	note_changed(redo, frame, type == REC_PAGE_INIT);
}

void redo_note(struct redo *redo, uint8_t type, size_t len)
{
	check(type < REC_PAGE_INIT);
	put_record(redo, type, redo->body, 0, len);
}

void redo_bits_late(struct redo *redo, struct frame *bitmap, bool value, uint64_t first,
		    uint64_t count)
{
	check(!redo->late.bitmap);
	redo->late.bitmap = bitmap;
	redo->late.value = value;
	redo->late.first = first;
	redo->late.count = count;
}

static void changed(struct redo *redo, unsigned i, const struct log_ticket *ticket)
{
	if (redo->changed[i].initialised)
		pool_initialised(redo->changed[i].frame, ticket->start);
	pool_changed(redo->changed[i].frame, ticket->start, ticket->end);
}

/*
 * LSNs for everything.  With late bits, their page is let go at once; the page that was
 * changed last is that one, since it was not latched before.
 */
static void place(struct redo *redo, struct log_append *append, struct log_ticket *ticket)
{
	struct log *log = redo->volume->log;
	struct frame *bitmap = redo->late.bitmap;

	log_append_sum(log, append, redo->records, redo->len);
	append->tally = redo->tally;
	if (!bitmap) {
		log_append_place(log, append, ticket);
		return;
	}
	redo->late.bitmap = NULL;
	latch_x(&bitmap->latch);
	redo_page(redo, bitmap, REC_BITS,
		  redo_bits(redo->body, redo->late.value, redo->late.first, redo->late.count));
	log_append_sum(log, append, redo->records, redo->len);
	append->tally = redo->tally;
	log_append_place(log, append, ticket);
	redo->changed_count--;
	check(redo->changed[redo->changed_count].frame == bitmap);
	changed(redo, redo->changed_count, ticket);
	unlatch_x(&bitmap->latch);
	os_point("redo:bitmap_let_go");
}

/*
 * When `appended` is called, and what a backup relies on, bits late or not:
 *
 *	LSN | (late bits' page let go) | copied | appended | pages stamped, listed | log_listed
 *
 * INV-WRITTEN-1 wants the LSN first: it is there.  INV-WRITTEN-2 wants it before
 * log_listed(): a backup reads the map when everything below e is listed.  Nobody learns
 * from a page that this mtr is over and misses its bits in the map: for the map, being
 * listed alone counts.
 *
 * A bitmap page that was let go may be copied by a backup (or by the flusher) while the
 * log has no record of its newest change yet.  It has its LSN, under the latch that it is
 * copied under; e is chosen when all pages are copied, and the flush up to there waits
 * for the copies of all records below (INV-LOG-3).  So no copy is newer than e, and the
 * log that is gathered has all that the other pages of the mtr need; those are latched
 * until they have their LSN, too.
 */
void redo_commit(struct redo *redo)
{
	struct log *log = redo->volume->log;
	struct log_append append = {0};
	struct log_ticket ticket;

	check(redo->len > 0);
	place(redo, &append, &ticket);
	log_append_copy(log, &append, redo->records, &ticket);
	redo->reserved -= redo->len + MTR_TRAILER_BYTES;
	os_point("redo:appended");
	if (redo->appended)
		redo->appended(redo->appended_arg);
	for (unsigned i = 0; i < redo->changed_count; i++)
		changed(redo, i, &ticket);
	log_listed(log, &ticket);
	if (redo->volume->flusher)
		flusher_hear(redo->volume->flusher, ticket.end);
	redo->lsn = ticket.end;
	stat_add(&redo->volume->stats, STAT_mtr_commits, 1);
}

void redo_again(struct redo *redo)
{
	redo->len = 0;
	redo->changed_count = 0;
	redo->tally = 0;
}

void redo_end(struct redo *redo)
{
	if (redo->reserved > 0)
		log_unreserve(redo->volume->log, redo->reserved);
	free(redo->records);
	free(redo->body);
	redo->reserved = 0;
	redo->records = redo->body = NULL;
}
