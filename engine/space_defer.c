/*
 * Blocks that are freed but not yet reusable, and the drain behind ENOSPC.
 *
 * Freed runs gather in chunks, in two queues: data, and metadata pages.
 *
 *	space_freed -> open chunk --seal--> sealed chunk --conditions--> free map
 *	                            epoch := epoch_retire()
 *
 * INV-LOG-7 (with INV-REC-1): the runs of a chunk become free when
 *	a. a durable mark covers the chunk's highest LSN; for pages the durable
 *	   checkpoint as well
 *	b. every epoch that was entered before the chunk was sealed has been left
 * Sealing may come at any time after the unlinking is visible: space_freed() is
 * called by a commit that has changed its pages and still has them latched, so
 * who enters an epoch after the seal sees the new contents.
 *
 * A chunk is sealed when it is full, and by space_advance() when its own LSN is
 * covered or the limit has moved since the last seal: so a slow trickle of
 * frees cannot keep a chunk open for ever, and chunks stay well filled.
 *
 * space_freed() cannot fail.  Chunks are kept in stock; when there is none and
 * no memory for one, the run is `lost`: busy until the next mount finds it free
 * in the bitmap.  That is counted and said once.
 */
#include "engine/space_internal.h"

#include "engine/archive.h"
#include "engine/base/message.h"
#include "engine/flush.h"
#include "engine/purge.h"

#include <errno.h>
#include <stdlib.h>

#define EPOCH_WAIT_NS 1000000u /* readers inside an epoch do one batch of I/O at most */
#define EPOCH_WAITS_MAX 500u

/*
 * What the calling thread last failed for: blocks freed by others between that
 * failure and space_drain() count, too, else two threads that fail at the same
 * time would make one of them answer ENOSPC while space is free.
 */
static _Thread_local struct {
	const struct space *space;
	uint64_t released;
	struct space_look look;
} failed_at;

struct space_look space_look(struct space *space)
{
	return (struct space_look){
		.trims = trim_sequence(space),
		.loaded = atomic_load(&space->loaded),
	};
}

void defer_note_enospc(struct space *space, struct space_look before)
{
	failed_at.space = space;
	failed_at.released = atomic_load(&space->defer.released);
	failed_at.look = before;
	atomic_fetch_add(&space->defer.failures, 1);
}

/* ------------------------------------------------------------------- chunks */

static struct defer_chunk *chunk_get(struct defer *defer)
{
	struct defer_chunk *chunk = defer->spare;

	if (chunk) {
		defer->spare = chunk->next;
		defer->spares--;
	} else {
		chunk = malloc(sizeof(*chunk));
		if (chunk == NULL)
			return NULL;
	}
	chunk->next = NULL;
	chunk->lsn = 0;
	chunk->epoch = 0;
	chunk->blocks = 0;
	chunk->count = 0;
	return chunk;
}

/* Back to the stock; a chunk that is too many is returned to be freed without the latch. */
static struct defer_chunk *chunk_put(struct defer *defer, struct defer_chunk *chunk)
{
	if (defer->spares >= DEFER_SPARES)
		return chunk;
	chunk->next = defer->spare;
	defer->spare = chunk;
	defer->spares++;
	return NULL;
}

static void chunks_free(struct defer_chunk *chunk)
{
	while (chunk) {
		struct defer_chunk *next = chunk->next;

		free(chunk);
		chunk = next;
	}
}

int defer_init(struct space *space)
{
	struct defer *defer = &space->defer;

	latch_init(&defer->latch, RANK_LEAF, 0);
	for (unsigned i = 0; i < SPACE_HOLDERS; i++)
		atomic_init(&defer->hold[i], SPACE_UNHELD);
	while (defer->spares < DEFER_SPARES) {
		struct defer_chunk *chunk = malloc(sizeof(*chunk));

		if (chunk == NULL)
			return -ENOMEM;
		check(chunk_put(defer, chunk) == NULL);
	}
	return 0;
}

void defer_destroy(struct space *space)
{
	for (unsigned kind = 0; kind < DEFER_KINDS; kind++)
		chunks_free(space->defer.queue[kind].first);
	chunks_free(space->defer.spare);
}

/* ------------------------------------------------------------------ queueing */

static void seal(struct space *space, struct defer_queue *queue, lsn_t limit)
{
	queue->last->epoch = epoch_retire(&space->volume->epochs);
	queue->sealed_at = limit;
}

/* The open chunk with room for a run, or NULL. */
static struct defer_chunk *open_chunk(struct space *space, struct defer_queue *queue)
{
	struct defer_chunk *chunk = queue->last;

	if (chunk && chunk->epoch == 0) {
		if (chunk->count < DEFER_CHUNK_RUNS)
			return chunk;
		seal(space, queue, queue->sealed_at);
	}
	chunk = chunk_get(&space->defer);
	if (chunk == NULL)
		return NULL;
	if (queue->last)
		queue->last->next = chunk;
	else
		queue->first = chunk;
	queue->last = chunk;
	return chunk;
}

static bool queue_run(struct space *space, enum defer_kind kind, uint64_t start, uint32_t length,
		      lsn_t lsn)
{
	struct defer_queue *queue = &space->defer.queue[kind];
	struct defer_chunk *chunk;
	struct defer_run *last;

	latch_x(&space->defer.latch);
	chunk = open_chunk(space, queue);
	if (chunk) {
		last = chunk->count ? &chunk->run[chunk->count - 1] : NULL;
		if (last && last->start + last->length == start &&
		    space_bitmap_page(space->volume, last->start) ==
			    space_bitmap_page(space->volume, start))
			last->length += length;
		else
			chunk->run[chunk->count++] =
				(struct defer_run){.start = start, .length = length};
		chunk->blocks += length;
		if (lsn > chunk->lsn)
			chunk->lsn = lsn;
		if (lsn > queue->newest)
			queue->newest = lsn;
	}
	unlatch_x(&space->defer.latch);
	return chunk != NULL;
}

void space_freed(struct space *space, uint64_t start, uint64_t count, lsn_t lsn, bool is_page)
{
	struct stats *stats = &space->volume->stats;
	uint32_t bit;
	struct group *group = space_group_of(space, start, count, &bit);

	check(group_busy(group, bit, (uint32_t)count));
	stat_add(stats, STAT_space_blocks_freed, count);
	if (start == atomic_load(&space->held_start))
		return;
	stat_add(stats, STAT_space_deferred, 1);
	atomic_fetch_add(&space->defer.blocks, count);
	if (queue_run(space, is_page ? DEFER_PAGE : DEFER_DATA, start, (uint32_t)count, lsn))
		return;
	if (atomic_fetch_add(&space->defer.lost, count) == 0)
		message(LOG_WARNING, "out of memory: some freed blocks are usable again only "
				     "after the next mount");
}

/* ----------------------------------------------------------------- releasing */

/* As far as the log allows. */
static lsn_t log_limit(struct space *space, enum defer_kind kind)
{
	struct log *log = space->volume->log;
	lsn_t limit = log_marked_lsn(log);

	if (kind == DEFER_PAGE) {
		lsn_t checkpoint = log_checkpoint_lsn(log);

		if (checkpoint < limit)
			limit = checkpoint;
	}
	return limit;
}

/*
 * And as far as archive and backup allow.  Whoever sets a hold looks for what it is to
 * keep afterwards: what was released by a limit that was read before, had been freed
 * below a mark of then.
 */
static lsn_t limit_of(struct space *space, enum defer_kind kind)
{
	lsn_t limit = log_limit(space, kind);

	for (unsigned i = 0; i < SPACE_HOLDERS; i++) {
		lsn_t hold = atomic_load(&space->defer.hold[i]);

		if (hold < limit)
			limit = hold;
	}
	return limit;
}

void space_hold(struct space *space, enum space_holder who, lsn_t lsn)
{
	check(who < SPACE_HOLDERS);
	atomic_store(&space->defer.hold[who], lsn);
}

/* What a drain does not bring back, since it does not wait for a backup. */
uint64_t defer_pinned(struct space *space)
{
	lsn_t hold = atomic_load(&space->defer.hold[SPACE_HOLD_BACKUP]);
	uint64_t blocks = 0;

	if (hold == SPACE_UNHELD)
		return 0;
	latch_s(&space->defer.latch);
	for (unsigned kind = 0; kind < DEFER_KINDS; kind++)
		for (const struct defer_chunk *chunk = space->defer.queue[kind].first; chunk;
		     chunk = chunk->next)
			blocks += chunk->lsn > hold ? chunk->blocks : 0;
	unlatch_s(&space->defer.latch);
	return blocks;
}

/* The first chunk if the log allows to free it; seals the last one when that helps. */
static struct defer_chunk *first_covered(struct space *space, struct defer_queue *queue,
					 lsn_t limit, uint64_t *epoch)
{
	struct defer_chunk *chunk, *last;

	latch_x(&space->defer.latch);
	last = queue->last;
	if (last && last->epoch == 0 && last->count > 0 &&
	    (last->lsn <= limit || queue->sealed_at != limit))
		seal(space, queue, limit);
	chunk = queue->first;
	if (chunk && (chunk->epoch == 0 || chunk->lsn > limit))
		chunk = NULL;
	if (chunk)
		*epoch = chunk->epoch;
	unlatch_x(&space->defer.latch);
	return chunk;
}

/* Another thread may have taken it meanwhile, and even have put it to new use. */
static bool unlink_first(struct space *space, struct defer_queue *queue, struct defer_chunk *chunk,
			 uint64_t epoch)
{
	bool mine;

	latch_x(&space->defer.latch);
	mine = queue->first == chunk && chunk->epoch == epoch;
	if (mine) {
		queue->first = chunk->next;
		if (queue->first == NULL)
			queue->last = NULL;
	}
	unlatch_x(&space->defer.latch);
	return mine;
}

static void release_chunk(struct space *space, struct defer_chunk *chunk)
{
	struct defer *defer = &space->defer;
	uint64_t blocks = 0;

	for (uint32_t i = 0; i < chunk->count; i++) {
		space_give(space, chunk->run[i].start, chunk->run[i].length);
		blocks += chunk->run[i].length;
	}
	trim_hear(space);
	atomic_fetch_sub(&defer->blocks, blocks);
	atomic_fetch_add(&defer->released, blocks);
	latch_x(&defer->latch);
	chunk = chunk_put(defer, chunk);
	unlatch_x(&defer->latch);
	free(chunk);
}

/* Frees what may be freed; tells whether readers' epochs hold back more. */
static bool advance(struct space *space)
{
	bool epoch_holds = false;

	for (unsigned kind = 0; kind < DEFER_KINDS; kind++) {
		struct defer_queue *queue = &space->defer.queue[kind];
		lsn_t limit = limit_of(space, kind);
		struct defer_chunk *chunk;
		uint64_t epoch;

		while ((chunk = first_covered(space, queue, limit, &epoch)) != NULL) {
			if (!epoch_passed(&space->volume->epochs, epoch)) {
				epoch_holds = true;
				break;
			}
			if (unlink_first(space, queue, chunk, epoch))
				release_chunk(space, chunk);
		}
	}
	return epoch_holds;
}

void space_advance(struct space *space)
{
	advance(space);
	pages_refill(space);
	os_point("space:advanced");
}

static bool waits_for_log(struct space *space, enum defer_kind kind)
{
	struct defer_queue *queue = &space->defer.queue[kind];
	lsn_t limit = log_limit(space, kind);
	bool waits;

	latch_x(&space->defer.latch);
	waits = queue->first != NULL && queue->newest > limit;
	unlatch_x(&space->defer.latch);
	return waits;
}

bool space_has_deferred(struct space *space)
{
	return waits_for_log(space, DEFER_DATA) || waits_for_log(space, DEFER_PAGE);
}

/* ---------------------------------------------------------------- the drain */

int space_settle(struct space *space)
{
	struct volume *volume = space->volume;
	struct waitq pause = {0}; /* leaving an epoch wakes nobody */
	int rc = log_mark(volume->log, log_next_lsn(volume->log));

	if (rc)
		return rc;
	if (waits_for_log(space, DEFER_PAGE)) {
		rc = flush_everything(volume->flusher);
		if (rc)
			return rc;
	}
	if (volume->archive)
		archive_catch_up(volume->archive);
	for (unsigned i = 0; i < EPOCH_WAITS_MAX && advance(space); i++)
		waitq_wait(&pause, waitq_ticket(&pause), EPOCH_WAIT_NS);
	space_advance(space);
	return 0;
}

/* One at a time; whoever comes meanwhile looks at the result first. */
static bool drain_enter(struct space *space, uint64_t before)
{
	struct defer *defer = &space->defer;

	for (;;) {
		uint32_t ticket = waitq_ticket(&defer->drained);

		if (atomic_load(&defer->released) > before)
			return false;
		if (!atomic_exchange(&defer->draining, true))
			return true;
		waitq_wait(&defer->drained, ticket, OS_FOREVER);
	}
}

static void drain_leave(struct space *space)
{
	atomic_store(&space->defer.draining, false);
	waitq_wake_all(&space->defer.drained);
}

/* INV-TRIM-4: what the caller did not find may have been on its way to the device and back. */
static bool was_trimming(struct space *space, struct space_look before)
{
	trim_wait(space);
	return before.trims % 2 != 0 || trim_sequence(space) != before.trims;
}

/* It may have been in a group that could not be read, and now can, by whomever. */
static bool was_loaded(struct space *space, struct space_look before)
{
	return space_load_bad(space) || atomic_load(&space->loaded) != before.loaded;
}

int space_drain(struct space *space)
{
	struct defer *defer = &space->defer;
	uint64_t before = atomic_load(&defer->released);
	struct space_look look = failed_at.space == space ? failed_at.look : space_look(space);
	int purged, rc;

	latch_check_none_from(RANK_RENAME);
	latch_check_may_wait();
	if (failed_at.space == space && failed_at.released < before)
		before = failed_at.released;
	if (was_trimming(space, look)) {
		failed_at.space = NULL;
		return 0;
	}
	failed_at.space = NULL;
	if (!drain_enter(space, before))
		return 0;
	os_point("space:drain");
	/* What purge could not do it has reported; what it did may be enough. */
	purged = purge_drain(space->volume->purge, NULL);
	rc = space_settle(space);
	drain_leave(space);
	if (rc)
		return rc;
	if (atomic_load(&defer->released) > before || was_loaded(space, look))
		return 0;
	return purged ? purged : -ENOSPC;
}
