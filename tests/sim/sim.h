/*
 * The simulated surroundings: a struct os whose threads are fibers, whose clock
 * stands still until somebody waits, and whose every choice comes from one seed.
 *
 * INV-SIM-1: same seed, same run.  Nothing but the seed decides: no address, no
 * clock, no processor.  sim_digest() is a digest of every choice and of whatever
 * sim_trace() was told; two runs of a seed have the same one.
 * INV-SIM-2: one fiber runs at a time, and another gets its turn only in wait(),
 * point(), join, sim_sleep(), and at the end of a fiber.
 * INV-SIM-3: somebody always can run, else the clock jumps to the next deadline;
 * when there is none either, that is a deadlock, which ends the program with what
 * each one waits for.
 */
#ifndef BLINKFS_TESTS_SIM_H
#define BLINKFS_TESTS_SIM_H

#include "engine/base/os.h"

#include <stdnoreturn.h>

struct sim;

/* Points are of a class by their name. */
#define SIM_CLASSES 40u

/* How unruly the scheduler is. */
struct sim_temper {
	unsigned switch_every;   /* points between two switches, on average; 0: never at a point */
	unsigned stall_every;    /* switches at a point between two long sleeps there; 0: none */
	uint64_t stall_ns;       /* the longest of these */
	unsigned favourite;      /* class of points that are often slept at, from 1 on; 0: none */
	unsigned spurious_every; /* switches between two spurious wake-ups; 0: none */
	unsigned processors;     /* what the product is told */
};

/* The caller becomes the simulation's first thread, and os_current() the simulation's. */
struct sim *sim_begin(uint64_t seed);
/* All others have ended. */
void sim_end(struct sim *sim);
void sim_set_temper(struct sim *sim, const struct sim_temper *temper);

uint64_t sim_random(struct sim *sim);
/* 0 .. limit - 1 */
uint64_t sim_below(struct sim *sim, uint64_t limit);
/* true once in `every` times; never if that is 0. */
bool sim_once_in(struct sim *sim, uint64_t every);

void sim_sleep(struct sim *sim, uint64_t ns);
uint64_t sim_now_ns(const struct sim *sim);
uint64_t sim_switches(const struct sim *sim);

void sim_trace(struct sim *sim, uint64_t what);
uint64_t sim_digest(const struct sim *sim);
/* Something was achieved: a run that is not is one that goes in circles, and ends. */
void sim_progress(struct sim *sim);
/* Where everybody is, to stderr. */
void sim_print(const struct sim *sim);

#endif
