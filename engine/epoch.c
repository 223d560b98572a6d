/*
 * Epochs: a counter, and for each thread inside the value that it found.
 *
 * The argument.  R enters: it reads `now` as e and stores e in a slot, then
 * looks at shared structure.  U unlinks something, then retires it as r, the
 * value of `now` before it raises it.  Then U, or anybody later, scans the
 * slots and finds r passed when no slot holds a value <= r.
 *
 * a. If the scan sees R's slot, R counts as inside unless e > r.  Then R read
 *    `now` after U had raised it, so what R looks at no longer has the link.
 * b. If the scan does not see R's slot, then R stored it after the scan read
 *    it, in the one order of all seq_cst operations; so R's look at the
 *    structure (under a latch that U has held and released before it retired)
 *    comes after the unlinking.  That e may be old by then only delays others.
 *
 * INV-EPOCH-1: nobody waits for events while inside.  waitq_wait() checks it,
 * through latch_note_epoch().  So every epoch ends, and whatever waits for it
 * is served in the end.
 * INV-EPOCH-2: `passed` is at most the lowest value that any thread inside has
 * in its slot, except for threads of case b; so it may answer without a scan.
 */
#include "engine/epoch.h"

#include "engine/base/latch.h"

#define EPOCHS_NESTED_MAX 4u /* volumes that one thread is inside at once */

/* What a thread knows of itself. */
static _Thread_local struct {
	struct {
		struct epochs *epochs; /* NULL = unused */
		uint32_t slot;
		uint32_t depth;
	} inside[EPOCHS_NESTED_MAX];
	uint32_t slot_hint;
} self;

void epochs_init(struct epochs *epochs)
{
	atomic_init(&epochs->now, 1);
	atomic_init(&epochs->passed, 0);
	atomic_init(&epochs->slots_used, 0);
	for (uint32_t i = 0; i < THREADS_MAX; i++)
		atomic_init(&epochs->slot[i].entered, 0);
}

static void atomic_raise_32(_Atomic uint32_t *value, uint32_t to)
{
	uint32_t old = atomic_load(value);

	while (old < to && !atomic_compare_exchange_weak(value, &old, to))
		;
}

static void atomic_raise_64(_Atomic uint64_t *value, uint64_t to)
{
	uint64_t old = atomic_load(value);

	while (old < to && !atomic_compare_exchange_weak(value, &old, to))
		;
}

/*
 * Takes a free slot, from the thread's last one on.  slots_used is raised
 * first: a scan that misses it has come before the slot was taken.
 */
static uint32_t slot_take(struct epochs *epochs)
{
	uint64_t now = atomic_load(&epochs->now);

	for (uint32_t i = 0; i < THREADS_MAX; i++) {
		uint32_t slot = (self.slot_hint + i) % THREADS_MAX;
		uint64_t outside = 0;

		if (atomic_load_explicit(&epochs->slot[slot].entered, memory_order_relaxed) != 0)
			continue;
		atomic_raise_32(&epochs->slots_used, slot + 1);
		if (atomic_compare_exchange_strong(&epochs->slot[slot].entered, &outside, now)) {
			self.slot_hint = slot;
			return slot;
		}
	}
	check_failed(__FILE__, __LINE__, "more than THREADS_MAX threads inside epochs");
}

void epoch_enter(struct epochs *epochs)
{
	uint32_t unused = EPOCHS_NESTED_MAX;

	latch_note_epoch(1);
	for (uint32_t i = 0; i < EPOCHS_NESTED_MAX; i++) {
		if (self.inside[i].epochs == epochs) {
			self.inside[i].depth++;
			return;
		}
		if (!self.inside[i].epochs)
			unused = i;
	}
	check(unused < EPOCHS_NESTED_MAX);
	self.inside[unused].epochs = epochs;
	self.inside[unused].depth = 1;
	self.inside[unused].slot = slot_take(epochs);
	os_point("epoch:entered");
}

void epoch_exit(struct epochs *epochs)
{
	uint32_t i = 0;

	while (i < EPOCHS_NESTED_MAX && self.inside[i].epochs != epochs)
		i++;
	check(i < EPOCHS_NESTED_MAX);
	latch_note_epoch(-1);
	if (--self.inside[i].depth > 0)
		return;
	atomic_store_explicit(&epochs->slot[self.inside[i].slot].entered, 0, memory_order_release);
	self.inside[i].epochs = NULL;
}

uint64_t epoch_retire(struct epochs *epochs)
{
	return atomic_fetch_add(&epochs->now, 1);
}

/* Everything retired below the result has passed. */
static uint64_t lowest_inside(struct epochs *epochs)
{
	uint64_t lowest = atomic_load(&epochs->now);
	uint32_t slots = atomic_load(&epochs->slots_used);

	for (uint32_t i = 0; i < slots; i++) {
		uint64_t entered = atomic_load(&epochs->slot[i].entered);

		if (entered && entered < lowest)
			lowest = entered;
	}
	return lowest;
}

bool epoch_passed(struct epochs *epochs, uint64_t retired)
{
	check(retired < atomic_load(&epochs->now));
	if (retired >= atomic_load(&epochs->passed))
		atomic_raise_64(&epochs->passed, lowest_inside(epochs));
	return retired < atomic_load(&epochs->passed);
}
