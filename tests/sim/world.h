/*
 * One run of the simulation: a volume on a simulated disk, clients that work on it,
 * and life after life of it, each of which ends in good order, by the death of the
 * process, by an error, or by a power cut.
 *
 * What must hold (fs/core.h, and what README.md promises):
 *
 * INV-WORLD-1: an operation's result is the oracle's; or -ENOSPC where the volume is
 * small and the operation frees nothing; or -EIO where an error was injected.  With
 * either nothing has changed.
 * INV-WORLD-2: after a crash each client's files are as after some prefix of its
 * operations.  The prefixes fit together: what had ended before an operation began
 * that is there is there, too; and so is what had ended before an fsync began that
 * succeeded, whoever called it.
 * INV-WORLD-3: an operation that was under way at the crash, or got -EIO by it, is
 * there wholly or not at all.
 * INV-WORLD-4: a volume that could not be written any more goes on reading, and its
 * changes fail, until it is opened anew.
 * INV-WORLD-5: a volume opens after any crash, once errors have stopped; whole, by
 * the engine's check and by fsck's.
 */
#ifndef BLINKFS_TESTS_WORLD_H
#define BLINKFS_TESTS_WORLD_H

#include "tests/model/play.h"
#include "tests/sim/medium.h"
#include "tests/sim/sim.h"

#include <stdnoreturn.h>

#define CLIENTS_MAX 8u
#define LOG_MAX 1500u /* operations of a client that may be lost */

/* An operation that succeeded; of kind OP_KINDS: the node was let go of. */
struct entry {
	struct oracle_op op;
	uint64_t began, ended; /* on the world's counter */
};

struct world;

struct client {
	struct play play; /* first */
	struct world *world;
	unsigned number;
	struct oracle *synced;     /* what no crash can take */
	struct entry log[LOG_MAX]; /* after it */
	unsigned logged;
	bool has_maybe;            /* the last one, INV-WORLD-3 */
	struct entry maybe;
	struct os_thread thread;
};

/* What the seed decides for a whole run. */
struct climate {
	uint64_t size_bytes;
	uint32_t page_size;
	uint64_t cache_pages, log_pages;
	unsigned clients;
	uint64_t file_bytes;
	bool background;
	bool may_fill;
	bool cuts, errors, flips; /* what may happen */
};

struct tally {
	uint64_t operations, lives, cuts, deaths, failures, full, errors, opens_failed;
};

struct world {
	uint64_t seed;
	struct sim *sim;
	struct medium *medium;
	struct climate climate;
	struct volume *volume;
	struct core *core;
	struct client *client[CLIENTS_MAX];
	uint64_t counter;       /* begins and ends of operations */
	uint64_t durable;       /* what ended before it cannot be lost */
	uint64_t left;          /* operations of this life */
	bool stop;
	bool faulty;            /* errors are injected: -EIO is an answer */
	struct tally tally;
};

noreturn void world_fail(const struct world *world, const char *what, int64_t got, int64_t want);

/* --- client.c --- */
struct client *client_new(struct world *world, unsigned number);
void client_free(struct client *client);
/* A life's work, for os_thread_start(). */
void client_work(void *client);
/* All that was done is durable; what has no name is gone, if the volume was closed. */
void client_all_durable(struct client *client, bool closed);
/* The tree is as the oracle says. */
void client_compare(struct client *client);

/* --- judge.c --- */
/* INV-WORLD-2, -3: finds what has survived, and goes on from there. */
void judge_survivors(struct world *world);

/* Runs it; the digest of all that happened. */
uint64_t world_run(uint64_t seed, uint64_t operations, struct tally *tally, bool verbose);

#endif
