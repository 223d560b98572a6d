/*
 * The tally: what the sum is at each LSN where a checkpoint may lie (log.h, INV-LOG-12).
 *
 *	cut        cut      cut                    newest cut
 *	 |----------|--------|----------------------|-------x---x--x-> next_lsn
 *	 lsn                                        lsn     first
 *	 value                                      value: from lsn up to first
 *
 * Mtrs get their LSNs in order, under the log's latch, and change the sum in the same
 * latch hold; so `value` at the moment when a cut is made is the sum of all mtrs that
 * begin below it.  It is the same up to `first`, where the first mtr behind the cut that
 * changes anything begins, and is not known exactly from there to the next cut.
 *
 * A cut is made every `step` bytes, and where log_tally_ceil() wants one.  Those below the
 * checkpoint are dropped, but for the one that covers it.  The ring has twice as many as
 * there are steps; where even these are used up (a hold keeps the checkpoint back for
 * hours) cuts lie farther apart, and checkpoints are as much lower.
 */
#include "log/log_internal.h"

#include <errno.h>
#include <stdlib.h>

#define TALLY_STEPS 2048u /* of a log */
#define TALLY_CUTS (2 * TALLY_STEPS)

static struct log_tally_cut *cut_at(const struct log_tally *tally, unsigned i)
{
	check(i < tally->count);
	return &tally->cut[(tally->begin + i) % TALLY_CUTS];
}

static bool is_kept(const struct log *log)
{
	return log->tally.known;
}

/* Full: the newest one covers what comes, less exactly. */
static void push(struct log_tally *tally, lsn_t lsn, lsn_t first)
{
	if (tally->count == TALLY_CUTS)
		return;
	tally->count++;
	*cut_at(tally, tally->count - 1) = (struct log_tally_cut){
		.lsn = lsn,
		.first = first,
		.value = tally->value,
	};
}

static void begin(struct log *log, lsn_t lsn)
{
	log->tally.begin = log->tally.count = 0;
	log->tally.step = log->shape.capacity / TALLY_STEPS;
	push(&log->tally, lsn, LSN_NONE);
}

int log_tally_start(struct log *log, lsn_t lsn, uint64_t value)
{
	struct log_tally *tally = &log->tally;

	if (value == 0)
		return 0;
	tally->cut = calloc(TALLY_CUTS, sizeof(*tally->cut));
	if (!tally->cut)
		return -ENOMEM;
	tally->known = true;
	tally->value = value;
	begin(log, lsn);
	return 0;
}

void log_tally_move_locked(struct log *log, lsn_t lsn)
{
	if (is_kept(log))
		begin(log, lsn);
}

void log_tally_note_locked(struct log *log, lsn_t start, int64_t change)
{
	struct log_tally *tally = &log->tally;
	struct log_tally_cut *last;

	if (!is_kept(log))
		return;
	last = cut_at(tally, tally->count - 1);
	if (last->first == LSN_NONE)
		last->first = start;
	else if (start - last->lsn >= tally->step)
		push(tally, start, start);
	tally->value += (uint64_t)change;
	/* What it began with came from the medium, and cannot have been right. */
	if (tally->value == 0 || tally->value > INT64_MAX)
		tally->known = false;
}

/* The last cut at or below; the first one covers the present checkpoint. */
static unsigned find(const struct log_tally *tally, lsn_t lsn)
{
	unsigned low = 0, high = tally->count;

	while (high - low > 1) {
		unsigned middle = low + (high - low) / 2;

		if (cut_at(tally, middle)->lsn <= lsn)
			low = middle;
		else
			high = middle;
	}
	return low;
}

lsn_t log_tally_floor(struct log *log, lsn_t lsn, uint64_t *value)
{
	*value = 0;
	latch_x(&log->latch);
	if (is_kept(log)) {
		const struct log_tally_cut *cut =
			cut_at(&log->tally, find(&log->tally, lsn));

		if (cut->first < lsn)
			lsn = cut->first;
		*value = cut->value;
	}
	unlatch_x(&log->latch);
	return lsn;
}

lsn_t log_tally_ceil(struct log *log, lsn_t lsn)
{
	struct log_tally *tally = &log->tally;
	lsn_t next;

	latch_x(&log->latch);
	next = atomic_load(&log->next_lsn);
	if (lsn > next)
		lsn = next;
	if (is_kept(log)) {
		unsigned i = find(tally, lsn);

		if (cut_at(tally, i)->first < lsn) {
			if (i + 1 < tally->count) {
				lsn = cut_at(tally, i + 1)->lsn;
			} else {
				push(tally, next, LSN_NONE);
				lsn = next;
			}
		}
	}
	unlatch_x(&log->latch);
	return lsn;
}

void log_tally_drop_locked(struct log *log, lsn_t checkpoint)
{
	struct log_tally *tally = &log->tally;

	if (!is_kept(log))
		return;
	while (tally->count > 1 && cut_at(tally, 1)->lsn <= checkpoint) {
		tally->begin = (tally->begin + 1) % TALLY_CUTS;
		tally->count--;
	}
}

uint64_t log_tally(struct log *log)
{
	uint64_t value;

	latch_x(&log->latch);
	value = is_kept(log) ? log->tally.value : 0;
	unlatch_x(&log->latch);
	return value;
}
