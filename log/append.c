/*
 * Reservation, append, and the two watermarks that appends hold back.
 *
 *	log_reserve --> log_append: LSN under the latch --> copy --> log_listed
 *	                            slot: uncopied, unlisted  uncopied   unlisted
 *	                                  = start             = none     = none
 *
 * What comes between the LSN and the copy (log_append_place(), log_append_copy())
 * holds back the copied watermark, hence durable_lsn, hence whoever waits for a
 * flush: it is a few page latches let go, and never a wait.
 *
 * INV-LOG-1: what is reserved always fits.  Against the log:
 *	checkpoint + capacity - next >= reserved + overhead of the mtrs to come
 * and against the buffer, which holds at most the group in flight, the open one
 * and what is reserved:
 *	buffer - (next - durable) >= reserved + two groups' overhead
 * So log_append() never waits and never fails.  See log_internal.h for the
 * computation.
 *
 * INV-LOG-2: `unlisted` is set before the LSN is known to anybody, in the same
 * latch hold that moves next_lsn.
 * INV-LOG-3: `uncopied` likewise; all below the lowest one is in the buffer.
 *
 * In mapped mode the buffer is the log, and what is copied has survived the
 * process already, if a scan can walk up to it.  So the first append of a group
 * writes the group's mark, too; it says what was durable then, which may be
 * less than where it stands.
 *
 * Waiters for space are served in turn, so that small reservations cannot
 * starve a large one.  Whoever makes room hands it to them under the latch, to all
 * for whom there is enough: so a moment without room ends with the room, and does
 * not go on as a queue that everybody has to join and to be woken from.
 *
 * No wake-up is lost: a waiter takes its queue's ticket under the latch, after
 * finding that nothing was granted; grants are made under it, and the queues are
 * woken afterwards, that of the first waiter in any case.  A group that becomes durable
 * makes room in the buffer and wakes nobody: the first in turn does not sleep
 * while something can be flushed, and an append wakes it.
 */
#include "engine/base/crc32c.h"
#include "log/log_internal.h"

#include <errno.h>

/* ------------------------------------------------------------ reservation */

static uint64_t log_space_needed(const struct log_shape *shape, uint64_t reserved, uint64_t holders)
{
	uint64_t mtrs = holders + (reserved + LOG_MTR_SHARE_BYTES - 1) / LOG_MTR_SHARE_BYTES;

	return reserved + (mtrs + LOG_HEADROOM_GROUPS) * LOG_GROUP_OVERHEAD(shape->block);
}

/*
 * What one reservation may take of an otherwise empty log.  The checkpoint may
 * lie a few closing marks behind then, hence the headroom once more.
 */
uint64_t log_reserve_limit(const struct log_shape *shape, uint64_t buffer_bytes)
{
	const uint64_t overhead = LOG_GROUP_OVERHEAD(shape->block);
	uint64_t left = shape->capacity - (2 * LOG_HEADROOM_GROUPS + 2) * overhead;
	uint64_t by_log = left / (LOG_MTR_SHARE_BYTES + overhead) * LOG_MTR_SHARE_BYTES;
	uint64_t by_buffer = buffer_bytes - 2 * overhead;

	return by_log < by_buffer ? by_log : by_buffer;
}

uint64_t log_reserve_max(const struct log *log)
{
	check(log->started);
	return atomic_load(&((struct log *)log)->reserve_max);
}

/* Mapped: what fits the log fits the buffer. */
static bool buffer_has_room_locked(struct log *log, uint64_t bytes)
{
	uint64_t used;

	if (log->mapped)
		return true;
	used = atomic_load(&log->next_lsn) - atomic_load(&log->durable_lsn);

	return used + log->reserved + bytes + 2 * LOG_GROUP_OVERHEAD(log->shape.block) <=
	       log->buffer_bytes;
}

lsn_t log_promised_end_locked(const struct log *log, uint64_t bytes)
{
	return atomic_load(&log->next_lsn) +
	       log_space_needed(&log->shape, log->reserved + bytes, log->holders + (bytes > 0));
}

/* The checkpoint LSN that would give room for `bytes` more. */
static lsn_t checkpoint_wanted_locked(struct log *log, uint64_t bytes)
{
	lsn_t end = log_promised_end_locked(log, bytes);

	return end > log->shape.capacity ? end - log->shape.capacity : 0;
}

/*
 * Space that is being zeroed counts as not yet free (INV-LOG-9).  The limit is looked
 * at under the latch: since the caller, or a waiter, was judged the log may have become
 * smaller, and an empty one has room for more than can be promised again and again.
 */
static bool space_has_room_locked(struct log *log, uint64_t bytes)
{
	return !log->frozen && bytes <= log_reserve_max(log) &&
	       buffer_has_room_locked(log, bytes) &&
	       log_promised_end_locked(log, bytes) <= log->scrubbing &&
	       checkpoint_wanted_locked(log, bytes) <= atomic_load(&log->checkpoint_lsn);
}

static void grant_locked(struct log *log, uint64_t bytes)
{
	log->reserved += bytes;
	log->holders += bytes > 0;
}

/* Takes a waiter out of the list, wherever it is. */
static void waiter_leave_locked(struct log *log, struct log_waiter *waiter)
{
	struct log_waiter **at = &log->space_first;

	while (*at != waiter) {
		check(*at);
		at = &(*at)->next;
	}
	*at = waiter->next;
	if (log->space_last == waiter)
		log->space_last = NULL;
	for (struct log_waiter *w = log->space_first; w && !log->space_last; w = w->next)
		if (!w->next)
			log->space_last = w;
	log->space_waiting--;
}

/* The queues of those who were granted something. */
static uint64_t grant_waiters_locked(struct log *log)
{
	uint64_t wake = 0;

	if (atomic_load(&log->dead))
		return 0;
	for (struct log_waiter *w = log->space_first;
	     w && space_has_room_locked(log, w->bytes); w = log->space_first) {
		grant_locked(log, w->bytes);
		w->granted = true;
		wake |= 1ull << w->queue;
		log->space_first = w->next;
		if (!w->next)
			log->space_last = NULL;
		log->space_waiting--;
	}
	return wake;
}

uint64_t log_space_grant_locked(struct log *log)
{
	uint64_t wake = grant_waiters_locked(log);

	return log->space_first ? wake | 1ull << log->space_first->queue : wake;
}

void log_space_wake(struct log *log, uint64_t wake)
{
	for (unsigned i = 0; wake; i++, wake >>= 1)
		if (wake & 1)
			waitq_wake_all(&log->space_queue[i]);
}

/* What the first waiter does about its lack of space. */
struct space_want {
	lsn_t flush;      /* flush up to here, or 0 */
	lsn_t checkpoint; /* ask for a checkpoint at this LSN, or 0 */
	void (*ask)(void *arg, lsn_t lsn);
	void *ask_arg;
};

static void space_want_locked(struct log *log, uint64_t bytes, struct space_want *want)
{
	lsn_t next = atomic_load(&log->next_lsn);
	lsn_t wanted = checkpoint_wanted_locked(log, bytes);

	if (log->frozen)
		return;
	if (!buffer_has_room_locked(log, bytes) && next > atomic_load(&log->durable_lsn))
		want->flush = next;
	if (wanted > atomic_load(&log->checkpoint_lsn))
		want->checkpoint = wanted < next ? wanted : next;
	want->ask = log->want_space;
	want->ask_arg = log->want_space_arg;
}

/* Asks for what is wanted, then sleeps until something may have changed. */
static int space_wait(struct log *log, const struct space_want *want, struct waitq *queue,
		      uint32_t ticket)
{
	if (want->checkpoint && want->ask)
		want->ask(want->ask_arg, want->checkpoint);
	if (want->flush)
		return log_flush(log, want->flush);
	waitq_wait(queue, ticket, OS_FOREVER);
	return 0;
}

/* Granted by whoever made room; until then the first of the waiters sees to it that there is. */
static int reserve_in_turn(struct log *log, struct log_waiter *waiter)
{
	struct waitq *queue = &log->space_queue[waiter->queue];
	int err = 0;

	for (;;) {
		struct space_want want = {0};
		bool waits = false;
		uint64_t wake = 0;
		uint32_t ticket;

		latch_x(&log->latch);
		if (!waiter->granted)
			wake = grant_waiters_locked(log);
		/*
		 * The log may have become smaller meanwhile.  Nobody is granted more than the
		 * limit, so such a waiter stands in front until it is woken as the first one
		 * (log_thaw() wakes it): it leaves, and wakes who is first then.
		 */
		if (!waiter->granted && waiter->bytes > log_reserve_max(log))
			err = -EINVAL;
		if (!waiter->granted && (err || atomic_load(&log->dead)))
			waiter_leave_locked(log, waiter);
		else if (!waiter->granted)
			waits = true;
		if (!waits) {
			wake |= log_space_grant_locked(log); /* somebody else is the first now */
			unlatch_x(&log->latch);
			log_space_wake(log, wake);
			return waiter->granted ? 0 : err ? err : -BE_LOGDEAD;
		}
		if (waiter == log->space_first)
			space_want_locked(log, waiter->bytes, &want);
		ticket = waitq_ticket(queue);
		unlatch_x(&log->latch);
		log_space_wake(log, wake);
		err = space_wait(log, &want, queue, ticket);
	}
}

int log_reserve(struct log *log, uint64_t bytes)
{
	struct log_waiter waiter = {.bytes = bytes};
	bool waits = false;
	int err = 0;

	check(log->started);
	latch_check_may_wait();
	if (bytes > log_reserve_max(log))
		return -EINVAL;
	latch_x(&log->latch);
	if (atomic_load(&log->dead)) {
		err = -BE_LOGDEAD;
	} else if (!log->space_first && space_has_room_locked(log, bytes)) {
		grant_locked(log, bytes);
	} else {
		waits = true;
		waiter.queue = log->space_turns++ % LOG_SPACE_QUEUES;
		if (log->space_last)
			log->space_last->next = &waiter;
		else
			log->space_first = &waiter;
		log->space_last = &waiter;
		log->space_waiting++;
	}
	unlatch_x(&log->latch);
	if (!waits)
		return err;
	log_stat(log, STAT_log_space_waits, 1);
	return reserve_in_turn(log, &waiter);
}

/*
 * A reservation that is appended to its last byte is never given back: its
 * holder is forgotten when nothing at all is reserved.  Until then the count
 * is too high, which costs space for a moment and nothing else.
 */
static void reserved_drop_locked(struct log *log, uint64_t bytes, uint64_t holders)
{
	check(log->reserved >= bytes);
	log->reserved -= bytes;
	log->holders -= log->holders < holders ? log->holders : holders;
	if (log->reserved)
		return;
	log->holders = 0;
	if (log->frozen)
		waitq_wake_all(&log->frozen_queue);
}

void log_unreserve(struct log *log, uint64_t bytes)
{
	uint64_t wake;

	if (!bytes)
		return;
	latch_x(&log->latch);
	reserved_drop_locked(log, bytes, 1);
	wake = log_space_grant_locked(log);
	unlatch_x(&log->latch);
	log_space_wake(log, wake);
}

void log_set_space_callback(struct log *log, void (*want)(void *arg, lsn_t lsn), void *arg)
{
	latch_x(&log->latch);
	log->want_space = want;
	log->want_space_arg = arg;
	unlatch_x(&log->latch);
}

/* ------------------------------------------------------------------ slots */

unsigned log_slot_take(struct log *log)
{
	const unsigned first = stats_shard(); /* spreads threads over cache lines */

	/* Others may free slots behind this pass and take those before it: try again. */
	for (unsigned pass = 0; pass < 1024; pass++) {
		for (unsigned i = 0; i < LOG_SLOTS; i++) {
			unsigned n = (first + i) % LOG_SLOTS;
			_Atomic uint32_t *taken = &log->slots[n].taken;
			uint32_t used = atomic_load(&log->slots_used);

			if (atomic_load_explicit(taken, memory_order_relaxed) ||
			    atomic_exchange(taken, 1))
				continue;
			while (used <= n &&
			       !atomic_compare_exchange_weak(&log->slots_used, &used, n + 1))
				;
			return n;
		}
	}
	check(!"more than two unlisted appends a thread, or more than THREADS_MAX threads");
	return 0;
}

void log_slot_give(struct log *log, unsigned slot)
{
	atomic_store_explicit(&log->slots[slot].taken, 0, memory_order_release);
}

lsn_t log_copied_lsn(struct log *log, lsn_t next)
{
	uint32_t used = atomic_load(&log->slots_used);

	for (uint32_t i = 0; i < used; i++) {
		lsn_t start = atomic_load(&log->slots[i].uncopied);

		if (start < next)
			next = start;
	}
	return next;
}

lsn_t log_unlisted_lsn(struct log *log)
{
	lsn_t lowest;
	uint32_t used;

	latch_x(&log->latch);
	lowest = atomic_load(&log->next_lsn);
	used = atomic_load(&log->slots_used);
	unlatch_x(&log->latch);
	for (uint32_t i = 0; i < used; i++) {
		lsn_t start = atomic_load_explicit(&log->slots[i].unlisted, memory_order_acquire);

		if (start < lowest)
			lowest = start;
	}
	return lowest;
}

void log_listed(struct log *log, const struct log_ticket *ticket)
{
	struct log_slot *slot;

	check(ticket->slot < LOG_SLOTS);
	slot = &log->slots[ticket->slot];
	check(atomic_load_explicit(&slot->unlisted, memory_order_relaxed) == ticket->start);
	atomic_store_explicit(&slot->unlisted, LSN_NONE, memory_order_release);
	log_slot_give(log, ticket->slot);
}

/* ----------------------------------------------------------------- append */

void log_buffer_put(struct log *log, lsn_t lsn, const void *bytes, size_t len)
{
	uint64_t at = log_buffer_at(log, lsn);
	size_t first = len;

	if (first > log->buffer_bytes - at)
		first = log->buffer_bytes - at;
	memcpy(log->buffer + at, bytes, first);
	memcpy(log->buffer, (const uint8_t *)bytes + first, len - first);
}

void log_mark_put(struct log *log, lsn_t own, lsn_t durable)
{
	uint8_t mtr[MARK_MTR_BYTES];

	log_mark_make(&log->shape, log->epoch, own, durable, mtr);
	log_buffer_put(log, own, mtr, sizeof(mtr));
}

bool log_group_open_locked(struct log *log)
{
	lsn_t next = atomic_load(&log->next_lsn);

	if (next != log->group_start)
		return false;
	log->group_marks = atomic_load(&log->durable_lsn);
	atomic_store(&log->next_lsn, next + MARK_MTR_BYTES);
	return true;
}

static void append_locked(struct log *log, size_t size, struct log_ticket *ticket,
			  struct log_append *append)
{
	struct log_slot *slot = &log->slots[ticket->slot];
	bool opened = log_group_open_locked(log);

	reserved_drop_locked(log, size, 0);
	ticket->start = atomic_load(&log->next_lsn);
	ticket->end = ticket->start + size;
	append->mark = opened && log->mapped ? log->group_start : LSN_NONE;
	append->mark_says = log->group_marks;
	atomic_store(&slot->uncopied, opened ? log->group_start : ticket->start);
	atomic_store(&slot->unlisted, ticket->start);
	atomic_store(&log->next_lsn, ticket->end);
	if (append->tally)
		log_tally_note_locked(log, ticket->start, append->tally);
	/* INV-LOG-1, what it is for. */
	check(ticket->end - atomic_load(&log->checkpoint_lsn) <= log->shape.capacity);
	check(ticket->end - atomic_load(&log->durable_lsn) <= log->buffer_bytes);
	append->wake = log_space_grant_locked(log);
}

/*
 * The leader sets copies_wanted before it looks at the slots for the last time,
 * an appender clears its slot before it looks at copies_wanted, both in the single
 * order of seq_cst: one of the two sees the other.  Who belongs to a later group wakes
 * nobody: a leader may wait long for a thread that has lost its processor, and others
 * append meanwhile.
 */
void log_slot_copied(struct log *log, struct log_slot *slot)
{
	lsn_t start = atomic_load_explicit(&slot->uncopied, memory_order_relaxed);

	atomic_store(&slot->uncopied, LSN_NONE);
	os_point("log:copied");
	if (start < atomic_load(&log->copies_wanted))
		waitq_wake_all(&log->copied_queue);
}

/* What a scan could not walk again would be lost, and all behind it. */
static bool records_valid(const uint8_t *records, size_t bytes)
{
	struct log_cursor cursor = {records, bytes};
	struct log_rec record;
	int rc = 0;

	if (!bytes || records[0] == REC_MARK)
		return false;
	while ((rc = log_next_record(&cursor, &record)) > 0)
		;
	return rc == 0;
}

void log_append_sum(struct log *log, struct log_append *append, const uint8_t *records,
		    size_t bytes)
{
	check(append->summed <= bytes);
	if (append->summed == 0)
		append->crc = log_records_crc(log->epoch, records, bytes);
	else
		append->crc = crc32c(append->crc, records + append->summed,
				     bytes - append->summed);
	append->summed = bytes;
}

/* A dead log still hands out LSNs: what is reserved fits the buffer, and is never written. */
void log_append_place(struct log *log, struct log_append *append, struct log_ticket *ticket)
{
	const size_t size = append->summed + MTR_TRAILER_BYTES;

	check(log->started && append->summed > 0 && size <= log_reserve_max(log));
	ticket->slot = log_slot_take(log);
	latch_x(&log->latch);
	append_locked(log, size, ticket, append);
	unlatch_x(&log->latch);
	os_point("log:reserved");
}

void log_append_copy(struct log *log, const struct log_append *append, uint8_t *records,
		     const struct log_ticket *ticket)
{
	const size_t bytes = append->summed, size = bytes + MTR_TRAILER_BYTES;

	check(records_valid(records, bytes));
	if (append->mark != LSN_NONE)
		log_mark_put(log, append->mark, append->mark_says);
	log_seal(&log->shape, append->crc, ticket->start + bytes, records + bytes);
	log_buffer_put(log, ticket->start, records, size);
	log_slot_copied(log, &log->slots[ticket->slot]);
	log_space_wake(log, append->wake);
	log_stat(log, STAT_log_appends, 1);
	log_stat(log, STAT_log_append_bytes, size);
}

void log_append(struct log *log, uint8_t *records, size_t bytes, struct log_ticket *ticket)
{
	struct log_append append = {0};

	log_append_sum(log, &append, records, bytes);
	log_append_place(log, &append, ticket);
	log_append_copy(log, &append, records, ticket);
}

/* -------------------------------------------------------------- accessors */

lsn_t log_next_lsn(struct log *log)
{
	return atomic_load(&log->next_lsn);
}

lsn_t log_durable_lsn(struct log *log)
{
	return atomic_load(&log->durable_lsn);
}

lsn_t log_marked_lsn(struct log *log)
{
	return atomic_load(&log->marked_lsn);
}

lsn_t log_checkpoint_lsn(struct log *log)
{
	return atomic_load(&log->checkpoint_lsn);
}

uint64_t log_capacity(const struct log *log)
{
	return atomic_load(&((struct log *)log)->capacity_now);
}

enum log_mode log_mode(const struct log *log)
{
	check(log->started);
	return (enum log_mode)atomic_load(&((struct log *)log)->mode_now);
}

uint32_t log_block_bytes(const struct log *log)
{
	return atomic_load(&((struct log *)log)->block_now);
}

uint64_t log_buffer_bytes(const struct log *log)
{
	return atomic_load(&((struct log *)log)->buffer_now);
}

bool log_dead(struct log *log)
{
	return atomic_load(&log->dead);
}
