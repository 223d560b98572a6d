/*
 * Latches, and the checker of their order.
 *
 * The word of a latch (see latch.h):
 *
 *	X          held exclusively
 *	SLEEPERS   somebody may sleep on the word
 *	WRITER     a writer waits for the S holders to go: no new ones come in
 *	READERS    number of S holders
 *
 *	free --s--> READERS=n --writer waits--> READERS=n|WRITER --last leaves--> WRITER
 *	  \                                                                         |
 *	   `--x--> X (WRITER cleared) <----------------------------- the writer ----'
 *	           X --unlatch--> free
 *
 * INV-LATCH-1: WRITER is set only while some thread is inside lock_x_slow(), and
 * never together with X.  It is set only when there are S holders, and cleared
 * by whoever takes X; a writer that still waits then sets it again.  So a writer
 * waits for the S holders that it met and for other writers, never for later
 * readers; and since unlatch_x() leaves the word free, readers get their turn
 * after each writer.
 * INV-LATCH-2: while a thread sleeps on the word, SLEEPERS is set or another
 * thread that has been woken from it is awake inside a slow path.  A thread that
 * has slept sets SLEEPERS when it acquires, since it cannot know whether others
 * still sleep, and hands the duty on at its release (at once, if it is a reader:
 * its neighbours may come in beside it).  So one is woken at a time; all of them
 * only when the last reader leaves WRITER behind, where the one woken could be
 * a reader, who must not come in.
 * INV-LATCH-3: an acquisition that may block is of a later rank than everything
 * that the thread holds, or of the same rank and a later order (for RANK_PAGE:
 * no earlier order).  Then no cycle of waiting threads exists.
 * INV-LATCH-4: what a thread holds is in its `held` list, and nothing else is.
 */
#include "engine/base/latch.h"

#include "engine/base/message.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define X_HELD (1u << 31)
#define SLEEPERS (1u << 30)
#define WRITER (1u << 29)
#define READERS (WRITER - 1)

#define SPINS_MAX 64u  /* about a microsecond: a short critical section of another core */
#define HELD_MAX 128u  /* MTR_PAGES_MAX, and the locks around them */

static const struct {
	const char *name;
	bool may_wait;
} ranks[RANK_COUNT] = {
#define X(name, may_wait, order) [name] = {#name, may_wait},
#include "engine/base/rank.def"
#undef X
};

static struct {
	_Alignas(64) _Atomic uint64_t waits;
} counters[RANK_COUNT];

struct held {
	const struct latch *latch;
	uint64_t order;
	uint32_t rank;
	bool exclusive;
};

static _Thread_local struct {
	struct held held[HELD_MAX]; /* in the order of acquisition */
	uint32_t count;
	int epochs;
} self;

/* --- the checker --------------------------------------------------------- */

static noreturn void order_violated(const char *what)
{
	for (uint32_t i = 0; i < self.count; i++)
		message(LOG_CRIT, "holds %s order %" PRIu64 " %s", ranks[self.held[i].rank].name,
			self.held[i].order, self.held[i].exclusive ? "X" : "S");
	if (self.epochs)
		message(LOG_CRIT, "is inside %d epochs", self.epochs);
	check_failed(__FILE__, __LINE__, what);
}

static bool may_follow(const struct latch *latch, uint64_t order, const struct held *held)
{
	if (latch->rank != held->rank)
		return latch->rank > held->rank;
	if (latch->rank == RANK_PAGE)
		return order >= held->order && latch != held->latch;
	return order > held->order;
}

static void check_order(const struct latch *latch)
{
	uint64_t order = atomic_load_explicit(&latch->order, memory_order_relaxed);

	for (uint32_t i = 0; i < self.count; i++) {
		if (!may_follow(latch, order, &self.held[i])) {
			char what[128];

			snprintf(what, sizeof(what), "latch order: acquires %s order %" PRIu64,
				 ranks[latch->rank].name, order);
			order_violated(what);
		}
	}
}

static void held_add(const struct latch *latch, bool exclusive)
{
	check(self.count < HELD_MAX);
	self.held[self.count++] = (struct held){
		.latch = latch,
		.order = atomic_load_explicit(&latch->order, memory_order_relaxed),
		.rank = latch->rank,
		.exclusive = exclusive,
	};
}

static void held_remove(const struct latch *latch, bool exclusive)
{
	uint32_t i = self.count;

	while (i > 0 && !(self.held[i - 1].latch == latch &&
			  self.held[i - 1].exclusive == exclusive))
		i--;
	if (i == 0)
		order_violated("latch released by a thread that does not hold it");
	memmove(&self.held[i - 1], &self.held[i], (self.count - i) * sizeof(self.held[0]));
	self.count--;
}

/*
 * The new order of a latch that the thread holds X; false if it does not, or if
 * the order falls: those who wait for the latch were checked against the old one.
 */
static bool held_raise(const struct latch *latch, uint64_t order)
{
	for (uint32_t i = 0; i < self.count; i++) {
		struct held *held = &self.held[i];

		if (held->latch == latch && held->exclusive && held->order <= order) {
			held->order = order;
			return true;
		}
	}
	return false;
}

bool latch_held(const struct latch *latch)
{
	for (uint32_t i = 0; i < self.count; i++)
		if (self.held[i].latch == latch)
			return true;
	return false;
}

bool latch_held_x(const struct latch *latch)
{
	for (uint32_t i = 0; i < self.count; i++)
		if (self.held[i].latch == latch && self.held[i].exclusive)
			return true;
	return false;
}

void latch_check_none_from(enum rank rank)
{
	for (uint32_t i = 0; i < self.count; i++)
		if (self.held[i].rank >= rank)
			order_violated("latch order: holds a latch where none is allowed");
}

void latch_check_may_wait(void)
{
	if (self.epochs)
		order_violated("waits inside an epoch");
	for (uint32_t i = 0; i < self.count; i++)
		if (!ranks[self.held[i].rank].may_wait)
			order_violated("waits while it holds a latch that forbids it");
}

void latch_note_epoch(int delta)
{
	self.epochs += delta;
	check(self.epochs >= 0);
}

/* --- the word ------------------------------------------------------------ */

static void spin_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static bool swap_acquire(struct latch *latch, uint32_t from, uint32_t to)
{
	return atomic_compare_exchange_strong_explicit(&latch->word, &from, to,
						       memory_order_acquire,
						       memory_order_relaxed);
}

static uint32_t load(const struct latch *latch)
{
	return atomic_load_explicit(&latch->word, memory_order_relaxed);
}

static void wake(struct latch *latch, int count)
{
	const struct os *os = os_current();

	os->wake(os, &latch->word, count);
}

/* Sleeps until the word, which was `seen`, has changed and somebody wakes us. */
static void sleep_on(struct latch *latch, uint32_t seen, bool *slept)
{
	const struct os *os = os_current();

	if (!*slept)
		atomic_fetch_add_explicit(&counters[latch->rank].waits, 1, memory_order_relaxed);
	*slept = true;
	os_point("latch:sleep");
	os->wait(os, &latch->word, seen, OS_FOREVER);
}

static bool take_s(struct latch *latch, bool slept)
{
	uint32_t word = load(latch);

	while (!(word & (X_HELD | WRITER))) {
		check((word & READERS) < READERS);
		if (swap_acquire(latch, word, (word + 1) | (slept ? SLEEPERS : 0)))
			return true;
		word = load(latch);
	}
	return false;
}

static bool take_x(struct latch *latch, bool slept)
{
	uint32_t word = load(latch);

	while (!(word & (X_HELD | READERS))) {
		if (swap_acquire(latch, word, X_HELD | (word & SLEEPERS) | (slept ? SLEEPERS : 0)))
			return true;
		word = load(latch);
	}
	return false;
}

static void lock_s_slow(struct latch *latch)
{
	bool slept = false;

	for (uint32_t spins = 0; !take_s(latch, slept); spins++) {
		uint32_t word = load(latch);

		if (spins < SPINS_MAX) {
			spin_pause();
			continue;
		}
		if (!(word & (X_HELD | WRITER)))
			continue;
		if ((word & SLEEPERS) || swap_acquire(latch, word, word | SLEEPERS))
			sleep_on(latch, word | SLEEPERS, &slept);
	}
	if (slept)
		wake(latch, 1);
}

static void lock_x_slow(struct latch *latch)
{
	bool slept = false;

	for (uint32_t spins = 0; !take_x(latch, slept); spins++) {
		uint32_t word = load(latch);
		uint32_t marked = word | SLEEPERS | (word & X_HELD ? 0 : WRITER);

		if (spins < SPINS_MAX) {
			spin_pause();
			continue;
		}
		if (!(word & (X_HELD | READERS)))
			continue;
		if (word == marked || swap_acquire(latch, word, marked))
			sleep_on(latch, marked, &slept);
	}
}

/* --- the interface ------------------------------------------------------- */

void latch_init(struct latch *latch, enum rank rank, uint64_t order)
{
	check((unsigned)rank < RANK_COUNT);
	atomic_init(&latch->word, 0);
	latch->rank = rank;
	atomic_init(&latch->order, order);
}

void latch_set_order(struct latch *latch, uint64_t order)
{
	check(load(latch) == 0 || held_raise(latch, order));
	atomic_store_explicit(&latch->order, order, memory_order_relaxed);
}

void latch_s(struct latch *latch)
{
	check_order(latch);
	os_point("latch:acquire");
	if (!take_s(latch, false))
		lock_s_slow(latch);
	held_add(latch, false);
}

void latch_x(struct latch *latch)
{
	check_order(latch);
	os_point("latch:acquire");
	if (!take_x(latch, false))
		lock_x_slow(latch);
	held_add(latch, true);
}

bool latch_try_s(struct latch *latch)
{
	if (!take_s(latch, false))
		return false;
	held_add(latch, false);
	return true;
}

bool latch_try_x(struct latch *latch)
{
	if (!take_x(latch, false))
		return false;
	held_add(latch, true);
	return true;
}

void unlatch_s(struct latch *latch)
{
	uint32_t word = load(latch);
	uint32_t next;

	held_remove(latch, false);
	do {
		check((word & READERS) > 0 && !(word & X_HELD));
		next = word - 1;
		if (!(next & READERS))
			next &= ~SLEEPERS;
	} while (!atomic_compare_exchange_weak_explicit(&latch->word, &word, next,
							memory_order_release,
							memory_order_relaxed));
	/* From here on the latch may be gone. */
	if (!(next & READERS) && (word & SLEEPERS))
		wake(latch, word & WRITER ? INT32_MAX : 1);
}

void unlatch_x(struct latch *latch)
{
	uint32_t word;

	held_remove(latch, true);
	word = atomic_exchange_explicit(&latch->word, 0, memory_order_release);
	/* From here on the latch may be gone. */
	check(word & X_HELD);
	if (word & SLEEPERS)
		wake(latch, 1);
}

uint64_t latch_wait_count(enum rank rank)
{
	check((unsigned)rank < RANK_COUNT);
	return atomic_load_explicit(&counters[rank].waits, memory_order_relaxed);
}

const char *rank_name(enum rank rank)
{
	check((unsigned)rank < RANK_COUNT);
	return ranks[rank].name;
}
