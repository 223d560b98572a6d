/*
 * Group commit.
 *
 *	        open group           group in flight                 durable
 *	 --> [mark|mtr|mtr|...) --close--> [mark|mtr|...|pad) --write, flush--> marked
 *	     appends gather here     one at a time
 *
 * One thread leads a group: it closes the open group under the latch, fills in
 * mark and padding, waits until every mtr in it is copied, and commits it: has
 * it written and made durable, in one of several ways (medium.h).
 * Who appended before the close is served by it.  Of those who come too late
 * one is chosen to lead the next group and sleeps alone; the others sleep on
 * the queue of that group and are woken once, when it is durable.
 *
 * INV-LOG-3: nothing is written before the copied watermark has passed it.  What
 * the leader fills in counts as uncopied until it is there.  (Mapped: all of it
 * is where it belongs already; nothing is *called* durable before.)
 * INV-LOG-4: the group's end, which becomes durable_lsn, is fixed before the
 * commit begins; data that an mtr refers to was written before its append, so
 * the flush of the commit covers it too.
 * INV-LOG-5, *single flight*: group k+1 is not committed before group k is
 * durable.  So its mark, written at the close, can say "all below me is durable",
 * and when group k+1 is durable so is a mark that covers group k.  Mapped: the
 * first append of a group has written the mark, and what it says is what was
 * durable then; marked_lsn follows what marks say.  A group that holds its mark
 * only has nothing to be covered: its end counts as marked, and no further mark
 * is ever wanted.
 *
 * A written block is not written again in the same lap: a group ends on a block
 * boundary, and the next one begins there.
 *
 *	crash after        recovery does
 *	close, copy        nothing of the group is on the medium
 *	write              takes the mtrs up to the first that is torn
 *	flush              takes all of them
 */
#include "log/log_internal.h"

/* ------------------------------------------------------------------ death */

static void wake_everybody(struct log *log)
{
	for (unsigned i = 0; i < LOG_SPACE_QUEUES; i++)
		waitq_wake_all(&log->space_queue[i]);
	waitq_wake_all(&log->done_queue[0]);
	waitq_wake_all(&log->done_queue[1]);
	waitq_wake_all(&log->leader_queue);
	waitq_wake_all(&log->frozen_queue);
}

void log_fail(struct log *log, int error)
{
	bool first;

	latch_x(&log->latch);
	first = !atomic_load(&log->dead);
	atomic_store(&log->dead, true);
	unlatch_x(&log->latch);
	wake_everybody(log);
	if (first && log->on_dead)
		log->on_dead(log->on_dead_arg, error);
}

/* -------------------------------------------------------------- one group */

/* slot: for what group_fill() will put in the buffer. */
static void group_close_locked(struct log *log, struct log_group *group, unsigned slot)
{
	check(!log->in_flight);
	/* INV-LOG-5, single flight. */
	check(log->group_start == atomic_load(&log->durable_lsn));
	group->closing = log_group_open_locked(log);
	group->start = log->group_start;
	group->content_end = atomic_load(&log->next_lsn);
	group->end = group->content_end + log_pad_bytes(&log->shape, group->content_end);
	group->number = log->group_number++;
	group->callers = log_gather_closed_locked(log);
	/* Mapped: the mark of a group that holds more has been written when it was opened. */
	group->marks = log->mapped ? log->group_marks : group->start;
	atomic_store(&log->slots[slot].uncopied,
		     log->mapped && !group->closing ? group->content_end : group->start);
	/* INV-LOG-1: headroom was kept for this. */
	check(group->end - atomic_load(&log->checkpoint_lsn) <= log->shape.capacity);
	check(group->end - group->start <= log->buffer_bytes);
	log->group_start = group->end;
	atomic_store(&log->next_lsn, group->end);
	log->flight_end = group->end;
	log->flight_marks = group->marks;
	log->in_flight = true;
	log->leader_waits = false;
}

static void group_fill(struct log *log, const struct log_group *group, unsigned slot)
{
	uint8_t mtr[LOG_BLOCK_MAX + MTR_PAD_BYTES_MIN];
	size_t pad = group->end - group->content_end;

	if (!log->mapped || group->closing)
		log_mark_put(log, group->start, group->marks);
	if (pad) {
		log_pad_make(&log->shape, log->epoch, group->content_end, mtr, pad);
		log_buffer_put(log, group->content_end, mtr, pad);
	}
	log_slot_copied(log, &log->slots[slot]);
	log_slot_give(log, slot);
	log_stat(log, STAT_log_pad_bytes, pad);
}

/*
 * INV-LOG-3.  Every mtr of the group got its LSN before the close, so its slot
 * is visible; appends to the next group lie above the end and do not matter.
 */
static void group_await_copies(struct log *log, const struct log_group *group)
{
	for (unsigned i = 0; i < LOG_COPY_SPINS; i++)
		if (log_copied_lsn(log, group->end) == group->end)
			return;
	atomic_store(&log->copies_wanted, group->end);
	for (;;) {
		uint32_t ticket = waitq_ticket(&log->copied_queue);

		if (log_copied_lsn(log, group->end) == group->end)
			break;
		os_point("log:copies_missing");
		waitq_wait(&log->copied_queue, ticket, OS_FOREVER);
	}
	atomic_store(&log->copies_wanted, 0);
}

/* One piece; two or three where the buffer or the log goes round inside the group. */
static int group_commit(struct log *log, const struct log_group *group)
{
	struct dev_request requests[3];
	size_t count = 0;
	lsn_t at = group->start;

	while (at < group->end) {
		uint64_t len = group->end - at;
		uint64_t in_buffer = log->buffer_bytes - log_buffer_at(log, at);
		uint64_t in_lap = log_lap_left(&log->shape, at);

		len = len < in_buffer ? len : in_buffer;
		len = len < in_lap ? len : in_lap;
		check(count < array_count(requests));
		requests[count++] = (struct dev_request){
			.buf = log->buffer + log_buffer_at(log, at),
			.len = len,
			.offset = log_offset(&log->shape, at),
			.is_write = true,
		};
		at += len;
	}
	return log_medium_commit(&log->medium, requests, count);
}

static void group_durable(struct log *log, const struct log_group *group, uint64_t flight_ns)
{
	lsn_t marked;

	latch_x(&log->latch);
	check(log->in_flight && atomic_load(&log->durable_lsn) == group->start);
	if (atomic_load(&log->dead)) {
		/* Another flush of this device failed: which writes it lost is unknown. */
		unlatch_x(&log->latch);
		return;
	}
	atomic_store(&log->durable_lsn, group->end);
	marked = group->closing ? group->end : group->marks;
	if (marked > atomic_load(&log->marked_lsn))
		atomic_store(&log->marked_lsn, marked);
	log->in_flight = false;
	log_gather_landed_locked(log, group->callers, flight_ns);
	unlatch_x(&log->latch);
	waitq_wake_all(&log->done_queue[group->number & 1]);
	waitq_wake_all(&log->leader_queue);
}

/* Closes the open group and makes it durable.  Latch held on entry, not on return. */
static void group_lead_unlock(struct log *log)
{
	unsigned slot = log_slot_take(log);
	struct log_group group;
	uint64_t start_ns;
	int err;

	group_close_locked(log, &group, slot);
	unlatch_x(&log->latch);
	os_point("log:closed");
	group_fill(log, &group, slot);
	group_await_copies(log, &group);
	start_ns = os_mono_ns();
	err = group_commit(log, &group);
	if (err) {
		log_fail(log, err);
		return;
	}
	os_point("log:flushed");
	group_durable(log, &group, os_mono_ns() - start_ns);
	log_stat(log, STAT_log_groups, 1);
	log_stat(log, STAT_log_marks, group.closing);
}

/* ---------------------------------------------------------------- waiting */

enum goal { GOAL_DURABLE, GOAL_MARKED };

static bool reached(struct log *log, enum goal goal, lsn_t lsn)
{
	return atomic_load(goal == GOAL_MARKED ? &log->marked_lsn : &log->durable_lsn) >= lsn;
}

/* Does the group in flight bring it? */
static bool flight_serves_locked(const struct log *log, enum goal goal, lsn_t lsn)
{
	return log->in_flight &&
	       (goal == GOAL_MARKED ? log->flight_marks : log->flight_end) >= lsn;
}

/* One call of log_flush() or log_mark(), while it waits. */
struct wait {
	enum goal goal;
	lsn_t lsn;
	bool counted;     /* among the open group's callers */
	bool chosen;      /* to lead the next group: then nobody else does */
	bool gathered;    /* it has waited for others to join */
	bool wake_leader; /* who waits for this one to join */
	struct waitq *queue;
	uint32_t ticket;
	uint64_t timeout_ns;
};

static void count_caller_locked(struct log *log, struct wait *wait)
{
	if (wait->counted || wait->goal != GOAL_DURABLE || wait->lsn <= log->group_start)
		return;
	wait->counted = true;
	wait->wake_leader = log_gather_arrived_locked(log);
}

/* True: lead the open group now.  Else where to sleep, and how long. */
static bool choose_part_locked(struct log *log, struct wait *wait)
{
	wait->timeout_ns = OS_FOREVER;
	if (!log->in_flight && (wait->chosen || !log->leader_waits)) {
		wait->timeout_ns = wait->gathered ? 0 : log_gather_pause_locked(log);
		wait->gathered = true;
		if (!wait->timeout_ns)
			return true;
		wait->chosen = log->leader_waits = true;
		wait->queue = &log->leader_queue;
	} else if (flight_serves_locked(log, wait->goal, wait->lsn)) {
		wait->queue = &log->done_queue[(log->group_number - 1) & 1];
	} else if (wait->chosen || !log->leader_waits) {
		wait->chosen = log->leader_waits = true;
		wait->queue = &log->leader_queue;
	} else {
		wait->queue = &log->done_queue[log->group_number & 1];
	}
	wait->ticket = waitq_ticket(wait->queue);
	return false;
}

static int wait_for(struct log *log, enum goal goal, lsn_t lsn)
{
	struct wait wait = {.goal = goal, .lsn = lsn};
	bool waited = false;

	for (;;) {
		latch_x(&log->latch);
		if (reached(log, goal, lsn) || atomic_load(&log->dead)) {
			unlatch_x(&log->latch);
			check(!wait.chosen || atomic_load(&log->dead));
			return reached(log, goal, lsn) ? 0 : -BE_LOGDEAD;
		}
		check(lsn <= atomic_load(&log->next_lsn));
		count_caller_locked(log, &wait);
		if (choose_part_locked(log, &wait)) {
			group_lead_unlock(log);
			wait.chosen = wait.gathered = false;
			continue;
		}
		unlatch_x(&log->latch);
		if (wait.wake_leader)
			waitq_wake_all(&log->leader_queue);
		wait.wake_leader = false;
		if (!waited)
			log_stat(log, STAT_log_flush_waits, 1);
		waited = true;
		waitq_wait(wait.queue, wait.ticket, wait.timeout_ns);
	}
}

int log_flush(struct log *log, lsn_t lsn)
{
	check(log->started);
	latch_check_may_wait();
	log_stat(log, STAT_log_flush_calls, 1);
	if (atomic_load(&log->dead))
		return -BE_LOGDEAD;
	return wait_for(log, GOAL_DURABLE, lsn);
}

int log_mark(struct log *log, lsn_t lsn)
{
	int err = log_flush(log, lsn);

	return err ? err : wait_for(log, GOAL_MARKED, lsn);
}
