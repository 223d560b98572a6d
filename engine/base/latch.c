/*
 * Latches: the checker of their order.  What holds threads apart is in
 * latch_atomic.h, or latch_pthread.h.
 *
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
#ifdef LATCH_TIMED
	uint64_t since;
#endif
};

static _Thread_local struct {
	struct held held[HELD_MAX]; /* in the order of acquisition */
	uint32_t count;
	int epochs;
} self;

#ifdef LATCH_TIMED
#include "engine/base/latch_timed.h"
#else
static void time_begin(struct held *held)
{
	(void)held;
}

static void time_end(const struct held *held)
{
	(void)held;
}
#endif

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
	time_begin(&self.held[self.count - 1]);
}

static void held_remove(const struct latch *latch, bool exclusive)
{
	uint32_t i = self.count;

	while (i > 0 && !(self.held[i - 1].latch == latch &&
			  self.held[i - 1].exclusive == exclusive))
		i--;
	if (i == 0)
		order_violated("latch released by a thread that does not hold it");
	time_end(&self.held[i - 1]);
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

bool latch_holds_rank(enum rank rank)
{
	for (uint32_t i = 0; i < self.count; i++)
		if (self.held[i].rank == rank)
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

/* --- what holds threads apart -------------------------------------------- */

static void count_wait(const struct latch *latch)
{
	atomic_fetch_add_explicit(&counters[latch->rank].waits, 1, memory_order_relaxed);
}

#ifdef LATCH_PTHREAD
#include "engine/base/latch_pthread.h"
#define LATCH_KIND "pthread"
#else
#include "engine/base/latch_atomic.h"
#ifdef LATCH_TIMED
#define LATCH_KIND "timed"
#else
#define LATCH_KIND "atomic"
#endif
#endif

/* --- the interface ------------------------------------------------------- */

void latch_init(struct latch *latch, enum rank rank, uint64_t order)
{
	check((unsigned)rank < RANK_COUNT);
	word_init(latch);
	latch->rank = rank;
	atomic_init(&latch->order, order);
}

void latch_set_order(struct latch *latch, uint64_t order)
{
	check(word_is_free(latch) || held_raise(latch, order));
	atomic_store_explicit(&latch->order, order, memory_order_relaxed);
}

void latch_lower_order(struct latch *latch, uint64_t order)
{
	uint32_t i = 0;

	while (i < self.count && !(self.held[i].latch == latch && self.held[i].exclusive))
		i++;
	check(i < self.count && order <= self.held[i].order);
	self.held[i].order = order;
	atomic_store_explicit(&latch->order, order, memory_order_relaxed);
}

bool latch_s(struct latch *latch)
{
	bool slept;

	check_order(latch);
	os_point("latch:acquire");
	slept = word_lock_s(latch);
	held_add(latch, false);
	return slept;
}

bool latch_x(struct latch *latch)
{
	bool slept;

	check_order(latch);
	os_point("latch:acquire");
	slept = word_lock_x(latch);
	held_add(latch, true);
	return slept;
}

bool latch_try_s(struct latch *latch)
{
	if (!word_try_s(latch))
		return false;
	held_add(latch, false);
	return true;
}

bool latch_try_x(struct latch *latch)
{
	if (!word_try_x(latch))
		return false;
	held_add(latch, true);
	return true;
}

void unlatch_s(struct latch *latch)
{
	held_remove(latch, false);
	word_unlock_s(latch);
}

void unlatch_x(struct latch *latch)
{
	held_remove(latch, true);
	word_unlock_x(latch);
}

const char *latch_kind(void)
{
	return LATCH_KIND;
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
