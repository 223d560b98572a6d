/*
 * Epochs: when may a freed block be reused?
 *
 * A reader that follows a page number or an extent without a latch enters an
 * epoch first.  Who unlinks something notes epoch_retire(); what was unlinked
 * may be reused once epoch_passed() says that every reader inside at that time
 * has left.  INV-EPOCH-1: nobody waits for events while inside (checked by
 * waitq_wait()); device I/O is allowed.  Enter nests.
 */
#ifndef BLINKFS_ENGINE_EPOCH_H
#define BLINKFS_ENGINE_EPOCH_H

#include "engine/base/limits.h"
#include "engine/base/os.h"

struct epochs {
	_Atomic uint64_t now;         /* starts at 1; raised by each epoch_retire() */
	_Atomic uint64_t passed;      /* everything retired below has passed; only grows */
	_Atomic uint32_t slots_used;  /* slots from here on were never used; only grows */
	struct {
		_Alignas(64) _Atomic uint64_t entered; /* 0 = outside */
	} slot[THREADS_MAX];
};

void epochs_init(struct epochs *epochs);
void epoch_enter(struct epochs *epochs);
void epoch_exit(struct epochs *epochs);
/* A number to ask about later; call after the unlinking is visible. */
uint64_t epoch_retire(struct epochs *epochs);
bool epoch_passed(struct epochs *epochs, uint64_t retired);

#endif
