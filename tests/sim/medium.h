/*
 * A simulated disk: it takes its time, fails when it is told to, and forgets what
 * was not flushed when its power is cut.
 *
 * What reads see is `seen`; what a power cut leaves is `durable` and any choice of
 * what was written since.
 *
 * INV-MEDIUM-1: a write is durable once a flush that began after the write had
 * returned has succeeded; until then a cut keeps any of its 512-byte sectors.
 * INV-MEDIUM-2: what a failed flush should have made durable stays undecided for
 * ever, unless it is written again.
 * INV-MEDIUM-3: after a cut nothing reaches the medium until it is opened anew.
 */
#ifndef BLINKFS_TESTS_MEDIUM_H
#define BLINKFS_TESTS_MEDIUM_H

#include "engine/dev/device.h"
#include "tests/sim/sim.h"

#include <stdbool.h>

struct medium;

/* Once in so many requests; 0: never. */
struct medium_faults {
	uint64_t read_error, write_error, flush_error;
	uint64_t flip;        /* one bit of what is read; what is stored is whole */
	uint64_t cut;         /* requests until the power is cut; 0: it is not */
	bool lies;            /* a flush does nothing: what must be noticed */
};

struct medium *medium_new(struct sim *sim, uint64_t size_bytes);
void medium_free(struct medium *medium);
/* They lose their power together; what is set or asked of one below concerns both. */
void medium_join(struct medium *medium, struct medium *other);
/* The power is on again; the volume's to close. */
struct device *medium_open(struct medium *medium);
/* As if it took no time and never failed, from here on, or no longer. */
void medium_be_ideal(struct medium *medium, bool ideal);
void medium_set_faults(struct medium *medium, const struct medium_faults *faults);
void medium_cut(struct medium *medium);
bool medium_is_cut(const struct medium *medium);
/* Since it was opened. */
struct medium_seen {
	uint64_t requests;
	uint64_t read_errors, write_errors, flush_errors, flips;
};
struct medium_seen medium_seen(const struct medium *medium);

#endif
