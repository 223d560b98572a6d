/*
 * Giving free blocks back to the device: blinkfs trim, and the thread of -o discard.
 *
 *	            a step                              a step
 *	free -------------> taken, the device is told -------------> free
 *	  ^                 (busy in the map, nobody's)               not stale any more
 *	  | space_advance(): stale
 *	deferred
 *
 * INV-TRIM-1: what the device is told of is taken from the map for as long as that
 * takes.  So it is only what a writer could have been given instead, and INV-LOG-7 holds
 * for it as for any reuse: no recovery, reader, backup or archive needs it.  And nobody
 * is given it before the call has returned, which could else destroy what he wrote.
 * INV-TRIM-2: one step at a time, of at most TRIM_STEP_BLOCKS and half of what is free.
 * INV-TRIM-3: `stale` are free blocks that were in use since the device was last told.
 * INV-TRIM-4: nobody is told -ENOSPC for want of what a step has taken: whoever finds
 * nothing while one is under way, or after one has ended since he began to look, tries
 * again (space_drain()), and the next step waits meanwhile.
 *
 * A crash knows nothing of all that: the blocks are free before, meanwhile and after,
 * and a discard that is lost or torn changes what nobody reads.
 *
 * Pieces that are kept for pages (space_pages.c) are not in the map, so they are left
 * alone: at most 3 % of the volume.
 */
#include "engine/space_internal.h"

#include "engine/base/error.h"
#include "engine/base/message.h"

#include <errno.h>

/*
 * A file system below makes the hole with all writers of the image kept out.  2 MiB took
 * ext4 0.6 ms, 8 MiB 4 ms.
 */
#define TRIM_STEP_BLOCKS 512u
#define TRIM_YIELD_NS 50000000u /* after somebody was short of space */
#define GATHER_NS 1000000000u   /* what is freed in that time is told in one go */
#define PACE 3u                 /* in the background: so many times what a step took is a pause */
#define PACE_NS_MAX 500000000u

/* ------------------------------------------------------------------- turns */

uint64_t trim_sequence(struct space *space)
{
	return atomic_load(&space->trim.sequence);
}

void trim_exclude(struct space *space)
{
	struct trim *trim = &space->trim;

	for (;;) {
		uint32_t ticket = waitq_ticket(&trim->turn);
		uint64_t sequence = atomic_load(&trim->sequence);

		if (sequence % 2 == 0 &&
		    atomic_compare_exchange_strong(&trim->sequence, &sequence, sequence + 1))
			return;
		waitq_wait(&trim->turn, ticket, OS_FOREVER);
	}
}

void trim_allow(struct space *space)
{
	atomic_fetch_add(&space->trim.sequence, 1);
	waitq_wake_all(&space->trim.turn);
}

void trim_wait(struct space *space)
{
	struct trim *trim = &space->trim;
	uint64_t sequence = atomic_load(&trim->sequence);

	while (sequence % 2 != 0 && atomic_load(&trim->sequence) == sequence) {
		uint32_t ticket = waitq_ticket(&trim->turn);

		if (atomic_load(&trim->sequence) == sequence)
			waitq_wait(&trim->turn, ticket, OS_FOREVER);
	}
}

static void pause_for(struct trim *trim, uint64_t ns)
{
	uint32_t ticket = waitq_ticket(&trim->pause);

	if (!atomic_load(&trim->stop))
		waitq_wait(&trim->pause, ticket, ns);
}

/* -------------------------------------------------------------------- steps */

static bool has_any(const struct group *group, bool stale)
{
	return group && atomic_load_explicit(stale ? &group->stale_count : &group->free,
				    memory_order_relaxed) > 0;
}

/* The next run, claimed before; job->at moves on. */
static struct group *find(struct space *space, struct space_trim *job, uint32_t max,
			  struct run *run)
{
	uint64_t start = space->volume->geo.groups_start;
	uint32_t group_blocks = space->group_blocks;

	if (job->at < start)
		job->at = start;
	for (;;) {
		uint64_t number = (job->at - start) / group_blocks;
		uint64_t first = start + number * group_blocks;
		uint32_t pos = (uint32_t)(job->at - first), end = group_blocks;
		struct group *group;

		if (job->at >= job->end || number >= space->group_count)
			return NULL;
		if (job->end - first < end)
			end = (uint32_t)(job->end - first);
		/* What was never loaded is not stale; what cannot be is left alone. */
		if (!job->stale)
			(void)!space_load(space, (uint32_t)number);
		group = space_group(space, (uint32_t)number);
		if (has_any(group, job->stale) &&
		    group_take_next(space, group, &pos, end, job->shortest, max, job->stale, run)) {
			job->at = first + pos;
			return group;
		}
		job->at = first + end;
	}
}

/* Half of what is free, so that a writer finds the other half. */
static uint32_t step_blocks(struct space *space)
{
	int64_t free = atomic_load(&space->free) / 2;

	if (free <= 0)
		return 0;
	return free < TRIM_STEP_BLOCKS ? (uint32_t)free : TRIM_STEP_BLOCKS;
}

static int tell(struct space *space, struct group *group, struct run run)
{
	uint64_t start = space_first_block(space, group->number) + run.first;
	int rc;

	atomic_store(&space->trim.in_flight, run.length);
	os_point("trim:taken");
	check(group_busy(group, run.first, run.length));
	rc = dev_discard(space->volume->dev, start * BLOCK_SIZE, (uint64_t)run.length * BLOCK_SIZE);
	os_point("trim:told");
	atomic_store(&space->trim.in_flight, 0);
	return rc;
}

/* In one's turn. */
static int step(struct space *space, struct space_trim *job)
{
	uint32_t max = step_blocks(space);
	struct group *group;
	struct run run;
	uint32_t went;
	int rc;

	if (atomic_load(&space->trim.forbidden))
		return -EBUSY;
	if (max == 0 || !space_claim(space, max, 0))
		return 0;
	group = find(space, job, max, &run);
	if (group == NULL) {
		atomic_fetch_add(&space->free, max);
		return 0;
	}
	atomic_fetch_add(&space->free, max - run.length);
	rc = tell(space, group, run);
	went = group_give_discarded(space, group, run.first, run.length);
	atomic_fetch_add(&space->free, run.length - went);
	if (rc)
		return rc;
	job->trimmed += run.length;
	return 1;
}

void space_trim_forbid(struct space *space, bool forbidden)
{
	trim_exclude(space);
	atomic_store(&space->trim.forbidden, forbidden);
	trim_allow(space);
}

int space_trim_step(struct space *space, struct space_trim *job)
{
	struct trim *trim = &space->trim;
	uint64_t failures;
	int rc;

	latch_check_may_wait();
	if (atomic_load(&space->volume->failed))
		return -EIO;
	trim_exclude(space);
	failures = atomic_load(&space->defer.failures);
	rc = step(space, job);
	trim_allow(space);
	os_point("trim:stepped");
	if (atomic_load(&space->defer.failures) != failures)
		pause_for(trim, TRIM_YIELD_NS);
	return rc;
}

void space_trim_count(struct space *space, struct space_trim_counts *counts)
{
	*counts = (struct space_trim_counts){
		.background = space->trim.running && !atomic_load(&space->trim.unsupported),
		.in_flight = atomic_load(&space->trim.in_flight),
	};
	for (uint32_t number = 0; number < space->group_count; number++) {
		struct group *group = space_group(space, number);

		counts->stale += group ? atomic_load(&group->stale_count) : 0;
	}
}

/* ------------------------------------------------------------ in the background */

void trim_hear(struct space *space)
{
	struct trim *trim = &space->trim;

	if (trim->running && !atomic_exchange(&trim->wanted, true))
		waitq_wake_all(&trim->wake);
}

static void note_failure(struct space *space, int rc)
{
	const char *path = space->volume->dev->path;

	if (rc == -EOPNOTSUPP) {
		atomic_store(&space->trim.unsupported, true);
		message(LOG_WARNING, "%s: the device cannot discard; freed space stays with it",
			path);
	} else if (!atomic_load(&space->volume->failed)) {
		message(LOG_WARNING, "%s: freed space cannot be given back to the device: %s", path,
			error_text(rc));
	}
}

/* Everything that is stale, at a fraction of the device's time. */
static void discard_round(struct space *space)
{
	struct trim *trim = &space->trim;
	struct space_trim job = {.end = UINT64_MAX, .shortest = 1, .stale = true};
	int rc;

	do {
		uint64_t began = os_mono_ns(), pause;

		rc = space_trim_step(space, &job);
		pause = PACE * (os_mono_ns() - began);
		if (rc > 0)
			pause_for(trim, pause < PACE_NS_MAX ? pause : PACE_NS_MAX);
	} while (rc > 0 && !atomic_load(&trim->stop));
	if (rc < 0)
		note_failure(space, rc);
	os_point("trim:round");
}

static void run(void *arg)
{
	struct space *space = arg;
	struct trim *trim = &space->trim;

	while (!atomic_load(&trim->stop)) {
		uint32_t ticket = waitq_ticket(&trim->wake);

		if (atomic_load(&trim->unsupported) || !atomic_load(&trim->wanted)) {
			if (!atomic_load(&trim->stop))
				waitq_wait(&trim->wake, ticket, OS_FOREVER);
			continue;
		}
		pause_for(trim, GATHER_NS);
		atomic_store(&trim->wanted, false);
		if (!atomic_load(&trim->stop))
			discard_round(space);
	}
}

int trim_start(struct space *space)
{
	struct trim *trim = &space->trim;
	int rc;

	if (!space->volume->options.discard || space->volume->options.read_only)
		return 0;
	rc = os_thread_start(&trim->thread, "blinkfs-discard", run, space);
	trim->running = rc == 0;
	return rc;
}

void trim_stop(struct space *space)
{
	struct trim *trim = &space->trim;

	atomic_store(&trim->stop, true);
	waitq_wake_all(&trim->pause);
	waitq_wake_all(&trim->wake);
	if (trim->running)
		os_thread_join(&trim->thread);
	trim->running = false;
	atomic_store(&trim->stop, false);
}
