/*
 * Redo of log bytes on pages that lie anywhere: in a backup file, in an image.
 *
 * What recovery does for a volume that is being opened, from the bytes of a log
 * that is elsewhere, in pieces of any size, and without a pool.  Used by backup
 * (pages copied while they changed are brought to one LSN) and by restore (an
 * archive is replayed).
 *
 * INV-REPLAY-1: a change is applied to a page exactly if its LSN is above the
 * page's; so pages may be copies of different moments, and a replay may be begun
 * again from its start.
 * INV-REPLAY-2: a page that is changed and not there must be freed or initialised
 * by the same log, later; whoever ends the replay asks replay_owes().
 */
#ifndef BLINKFS_ENGINE_REPLAY_H
#define BLINKFS_ENGINE_REPLAY_H

#include "engine/volume.h"

struct replay_target {
	uint32_t page_size;
	uint8_t tag[8];
	uint64_t first_block, end_block; /* where pages and data may be */
	/* 1: the page, verified; 0: not there, or no valid page. */
	int (*read)(void *arg, uint64_t pageno, void *page);
	int (*write)(void *arg, uint64_t pageno, const void *page); /* sealed */
	int (*freed)(void *arg, uint64_t pageno);                   /* may be NULL */
	/*
	 * The mtr that ends at `end` wrote these blocks.  Called in LSN order, and before
	 * write() of pages that were made of such blocks later.  May be NULL.
	 */
	int (*data)(void *arg, lsn_t end, uint64_t start, uint32_t count, const le32 *crcs);
	/* REC_LOG_OTHER.  In LSN order.  May be NULL. */
	void (*log_other)(void *arg, uint64_t start, uint64_t blocks);
	/* REC_VOLUME_SIZE: before any record that names what was gained.  May be NULL. */
	int (*volume_size)(void *arg, uint64_t block_count, uint64_t group_count);
	void *arg;
};

struct replay {
	const struct replay_target *target;
	uint64_t epoch;   /* of the bytes to come */
	lsn_t next;       /* their LSN */
	lsn_t after;      /* what ends at or below it is read for its data only */
	lsn_t until;      /* nothing that ends above it is applied */
	bool stopped;     /* at `until` */
	uint64_t mtrs, pages;
	uint64_t *owed;   /* INV-REPLAY-2 */
	size_t owed_count, owed_cap;
	uint8_t *page;    /* page_size */
};

int replay_begin(struct replay *replay, const struct replay_target *target, uint64_t epoch,
		 lsn_t from, lsn_t until) must_check;
/* Takes whole mtrs from the front of `bytes`; *used: so many bytes.  -BE_DAMAGE: nonsense. */
int replay_bytes(struct replay *replay, const uint8_t *bytes, size_t len, size_t *used) must_check;
bool replay_owes(const struct replay *replay, uint64_t *pageno);
void replay_end(struct replay *replay);

/* Calls visit for each page record of whole mtrs in `bytes`; as replay_bytes() else. */
int replay_list_pages(uint64_t epoch, lsn_t from, const uint8_t *bytes, size_t len,
		      int (*visit)(void *arg, uint64_t pageno, bool initialised), void *arg,
		      size_t *used) must_check;

#endif
