/*
 * INV-REC-1, FREE_PAGE: pages that were changed, freed, and whose blocks became
 * something else, in every state that a power cut leaves, and in those where the
 * newest checkpoint is unreadable, so that recovery begins at the one before.
 *
 *	checkpoint A   changes of P, FREE_PAGE P   checkpoint B   P's blocks are reused
 *
 * From A on, the log tells of changes to a page that is not there any more: in its
 * place are the contents of a file, durable, or another page, or whatever a discard
 * has left.  Recovery must leave the first and the last alone and make the second from
 * its REC_PAGE_INIT.
 */
#include "engine/base/message.h"
#include "engine/space.h"
#include "tests/lib/scratch.h"
#include "tests/lib/script.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define FILES 120u
#define KEPT 6u            /* of them; the leaves of the others are merged away */
#define PIECE_BYTES 65536u
#define FREED_MAX 256u

struct world {
	struct device *dev;     /* owned by volume */
	struct volume *volume;
	struct core *core;
	uint64_t freed[FREED_MAX]; /* pages that the log says are free */
	unsigned freed_count;
};

static uint64_t states;

static noreturn void fail(const char *what)
{
	fprintf(stderr, "crash_reuse: %s\n", what);
	exit(1);
}

static void run(struct world *w, const char *statement)
{
	if (script_run(w->core, statement))
		fail(statement);
}

static void run_numbered(struct world *w, const char *format, unsigned number)
{
	char statement[64];

	snprintf(statement, sizeof(statement), format, number);
	run(w, statement);
}

static void open_world(struct world *w)
{
	w->volume = scratch_open(w->dev, false);
	check(core_open(&w->core, w->volume) == 0);
}

static void abandon(struct world *w)
{
	core_close(w->core);
	volume_abandon(w->volume);
}

/* ------------------------------------------------------- what the log says */

static int note_freed(void *arg, const struct log_mtr *mtr)
{
	struct log_cursor cursor = {mtr->records, mtr->records_bytes};
	struct world *w = arg;
	struct log_rec rec;

	while (log_next_record(&cursor, &rec) > 0) {
		if (rec.type != REC_FREE_PAGE)
			continue;
		check(w->freed_count < FREED_MAX);
		check(varint_get(rec.body, rec.len, &w->freed[w->freed_count++]) > 0);
	}
	return 0;
}

static struct log *open_log(const struct world *w)
{
	struct log_place place = {
		.dev = w->dev,
		.offset = w->volume->geo.log_start * BLOCK_SIZE,
		.size_bytes = w->volume->geo.log_bytes,
	};
	uint64_t generation = le64_get(w->volume->sb.mount_gen);
	struct log *log;

	memcpy(place.uuid, w->volume->sb.log_uuid, sizeof(place.uuid));
	check(log_open(&log, &place, generation, generation) == 0);
	return log;
}

static void find_freed(struct world *w)
{
	struct log_scan_result result;
	struct log *log = open_log(w);

	check(log_scan(log, note_freed, w, &result) == 0);
	log_close(log);
	if (w->freed_count < 4)
		fail("no pages were merged away");
}

/* Freed pages whose place now holds a page of another life, or none at all. */
static void count_reused(const struct world *w, lsn_t freed_below, unsigned *as_page,
			 unsigned *as_data)
{
	uint8_t page[SCRATCH_PAGE];

	*as_page = *as_data = 0;
	for (unsigned i = 0; i < w->freed_count; i++) {
		check(dev_read(w->dev, page, sizeof(page), w->freed[i] * BLOCK_SIZE) == 0);
		if (page_verify(page, sizeof(page), w->freed[i], w->volume->tag, NULL))
			++*as_data;
		else if (page_lsn(page) > freed_below)
			++*as_page;
	}
}

/* ------------------------------------------------------------ the workload */

/* Up to checkpoint A. */
static void prepare(struct world *w)
{
	w->dev = scratch_format(SCRATCH_BYTES, SCRATCH_PAGE, SCRATCH_LOG);
	dev_record_start(w->dev);
	open_world(w);
	run(w, "mkdir d");
	for (unsigned i = 0; i < FILES; i++)
		run_numbered(w, "create d/file-with-a-name-of-some-length-%03u", i);
	run(w, "flush");
}

/*
 * Changes of pages, which are then freed, up to checkpoint B; or up to a mark only:
 * then their blocks must not be used yet, since the pages are still to be written.
 */
static void free_pages(struct world *w, bool checkpoint)
{
	for (unsigned i = 0; i < FILES; i++)
		run_numbered(w, "chmod d/file-with-a-name-of-some-length-%03u 600", i);
	for (unsigned i = KEPT; i < FILES; i++)
		run_numbered(w, "unlink d/file-with-a-name-of-some-length-%03u", i);
	run(w, "purge");
	run(w, "sync");
	find_freed(w);
	if (checkpoint) {
		run(w, "flush");
	} else {
		check(log_mark(w->volume->log, log_next_lsn(w->volume->log)) == 0);
		space_advance(w->volume->space);
	}
}

/* Files over nearly all that is free. */
static void reuse_as_data(struct world *w)
{
	char statement[64];

	for (unsigned i = 0;; i++) {
		snprintf(statement, sizeof(statement), "create big-%u", i);
		run(w, statement);
		snprintf(statement, sizeof(statement), "write big-%u 0 %u %u", i, PIECE_BYTES, i);
		if (script_run(w->core, statement))
			break;
	}
	run(w, "sync");
}

/* Files enough to split the leaves again. */
static void reuse_as_pages(struct world *w)
{
	for (unsigned i = 0; i < 3 * FILES; i++)
		run_numbered(w, "create d/another-file-with-a-name-of-some-length-%03u", i);
	run(w, "sync");
}

/* All that is free, pages that were freed among it, is garbage afterwards. */
static void discard(struct world *w)
{
	run(w, "trim");
	run(w, "chmod d 700");
	run(w, "sync");
}

/* ---------------------------------------------------------------- judging */

static void lose_newest_checkpoint(const struct world *w, struct device *dev)
{
	static const uint64_t at[2] = {LOG_CHECKPOINT_0, LOG_CHECKPOINT_1};
	uint64_t start = w->volume->geo.log_start * BLOCK_SIZE;
	struct disk_checkpoint block[2], none = {0};
	unsigned newest;

	for (unsigned i = 0; i < 2; i++)
		check(dev_read(dev, &block[i], sizeof(block[i]), start + at[i]) == 0);
	newest = le64_get(block[1].sequence) > le64_get(block[0].sequence);
	check(dev_write(dev, &none, sizeof(none), start + at[newest]) == 0);
}

static void judge(struct device *dev, const char *expected)
{
	struct world w = {.dev = dev};
	char *found;

	states++;
	open_world(&w);
	if (stat_read(&w.volume->stats, STAT_corruptions) > 0)
		fail("recovery finds corruption");
	found = core_snapshot(w.core);
	if (found == NULL || strcmp(found, expected) != 0)
		fail("not what was made durable");
	free(found);
	if (scratch_problems(w.volume) > 0)
		fail("volume_check finds problems");
	abandon(&w);
}

/* The log still reaches back to the checkpoint before the newest. */
static void judge_both(struct world *w, const char *expected)
{
	for (unsigned lost = 0; lost < 2; lost++) {
		struct device *after;

		check(dev_record_cut(w->dev, dev_record_count(w->dev), &after) == 0);
		if (lost)
			lose_newest_checkpoint(w, after);
		judge(after, expected);
	}
}

/* The cuts while blocks are reused; everything before is durable, what comes may be there. */
static void judge_cuts(struct world *w, size_t from)
{
	size_t events = dev_record_count(w->dev), step = 1 + (events - from) / (40 * test_scale());

	for (size_t event = from; event <= events; event += step) {
		for (enum dev_cut_mode mode = CUT_PREFIX; mode <= CUT_TORN; mode++) {
			struct device *state;
			struct volume *volume;
			bool varies;

			check(dev_record_state(w->dev, event, mode, event, &state, &varies) == 0);
			if (!varies && mode != CUT_PREFIX) {
				dev_close(state);
				continue;
			}
			states++;
			volume = scratch_open(state, false);
			if (stat_read(&volume->stats, STAT_corruptions) > 0 ||
			    scratch_problems(volume) > 0)
				fail("a cut while blocks are reused");
			volume_abandon(volume);
		}
	}
}

enum reuse { AS_DATA, AS_PAGES, DISCARDED };

static void try_reuse(enum reuse reuse, bool checkpoint)
{
	struct world w = {0};
	unsigned pages, data;
	lsn_t freed_below;
	char *expected;
	size_t from;

	prepare(&w);
	free_pages(&w, checkpoint);
	freed_below = log_next_lsn(w.volume->log);
	from = dev_record_count(w.dev);
	if (reuse == AS_DATA)
		reuse_as_data(&w);
	else if (reuse == AS_PAGES)
		reuse_as_pages(&w);
	else
		discard(&w);
	expected = core_snapshot(w.core);
	check(expected != NULL);
	judge_both(&w, expected);
	judge_cuts(&w, from);
	run(&w, "flush");
	judge_both(&w, expected);
	count_reused(&w, freed_below, &pages, &data);
	if (checkpoint && (reuse == AS_PAGES ? pages : data) == 0)
		fail("no freed page was reused: nothing was tried");
	free(expected);
	abandon(&w);
}

int main(void)
{
	message_quiet(LOG_CRIT);
	for (enum reuse reuse = AS_DATA; reuse <= DISCARDED; reuse++) {
		try_reuse(reuse, true);
		try_reuse(reuse, false);
	}
	printf("crash_reuse: ok, %" PRIu64 " states\n", states);
	return 0;
}
