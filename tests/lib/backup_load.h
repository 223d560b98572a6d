/*
 * Threads that change a volume while it is backed up, and what a restored one must
 * look like: each thread's directory as after some prefix of its operations, and
 * the prefixes together as one moment of the whole.
 */
#ifndef BLINKFS_TESTS_BACKUP_LOAD_H
#define BLINKFS_TESTS_BACKUP_LOAD_H

#include "tests/lib/core_rig.h"

#define BACKUP_LOAD_THREADS 3u
#define BACKUP_LOAD_OPS_MAX 40000u

struct backup_load;

struct backup_load *backup_load_new(struct rig *rig, uint64_t seed);
/* All of them work until backup_load_stop(), or by hand: */
void backup_load_start(struct backup_load *load);
void backup_load_stop(struct backup_load *load);
/* `count` operations of each thread, by the calling one. */
void backup_load_step(struct backup_load *load, unsigned count);
/* Waits until the threads have done `count` more each. */
void backup_load_await(struct backup_load *load, unsigned count);
/* ENOSPC so far. */
uint64_t backup_load_full(const struct backup_load *load);

/* Where each thread is: what is over, and what has begun. */
struct backup_load_point {
	unsigned at[BACKUP_LOAD_THREADS];
};
struct backup_load_point backup_load_over(struct backup_load *load);
struct backup_load_point backup_load_begun(struct backup_load *load);
/*
 * Ends the program unless `core` shows a moment from `first` on, up to `last`.  The threads
 * have stopped.
 */
void backup_load_check(struct backup_load *load, struct core *core, struct backup_load_point first,
		       struct backup_load_point last);
void backup_load_free(struct backup_load *load);

#endif
