/*
 * The modifying half of a mini-transaction (INV-MTR-1 g): applies changes to
 * pages that the caller has latched X, while it collects the redo records, and
 * commits them.  From redo_page() on nothing can fail.
 *
 *	redo_begin()        reserves log bytes; may wait, nothing latched
 *	... latch, verify, decide ...
 *	redo_page() ...     changes a page and records it
 *	redo_bits_late()    what is to be set or cleared in a bitmap page: at commit
 *	redo_commit()       log_append, page LSNs, flush list, log_listed
 *	... unlatch ...
 *	redo_end()          gives back what was not used; always
 */
#ifndef BLINKFS_ENGINE_REDO_H
#define BLINKFS_ENGINE_REDO_H

#include "engine/pool.h"

#define REDO_PAGES_MAX (MTR_PAGES_MAX + MTR_GROUPS_MAX + 2)

struct redo {
	struct volume *volume;
	uint64_t reserved;   /* log bytes, trailer included */
	uint8_t *records;    /* reserved bytes */
	size_t len;
	uint8_t *body;       /* BODY_BYTES_MAX: build the next record's body here */
	struct {
		struct frame *frame;
		bool initialised;
	} changed[REDO_PAGES_MAX];
	unsigned changed_count;
	struct {
		struct frame *bitmap; /* NULL: none */
		uint64_t first, count;
		bool value;
	} late;
	int64_t tally;       /* blocks that it takes less those that it gives back (INV-LOG-12) */
	lsn_t lsn;           /* end, after redo_commit() */
	/* Called with the LSN known and nobody yet told that it is listed; or NULL. */
	void (*appended)(void *arg);
	void *appended_arg;
};

int redo_begin(struct redo *redo, struct volume *volume, uint64_t log_bytes) must_check;
/* Applies redo->body[0..len) of `type` to the frame's page, latched X, and records it. */
void redo_page(struct redo *redo, struct frame *frame, uint8_t type, size_t len);
/* Records redo->body without a page (REC_DATA, REC_FREE_PAGE). */
void redo_note(struct redo *redo, uint8_t type, size_t len);
/*
 * REC_BITS on a pinned bitmap page that the caller has not latched: redo_commit()
 * latches it, last of all, for as long as it takes to flip the bits and to get an LSN.
 * Many want that page; the CRC of the records and their copying happen without it.
 * Once an mtr.
 */
void redo_bits_late(struct redo *redo, struct frame *bitmap, bool value, uint64_t first,
		    uint64_t count);
void redo_commit(struct redo *redo);
/* After a commit: another mini-transaction from the same reservation. */
void redo_again(struct redo *redo);
void redo_end(struct redo *redo);

/* Log bytes of a record with a body of len, at most. */
static inline size_t redo_record_bytes(size_t len)
{
	return 1 + 10 + 10 + len;
}

#endif
