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
 * INV-WORLD-4: names that several clients change at once change in some one order
 * that explains all results (contest.c); a file that several write at once is always
 * one of its versions (register.c); of writes to two places of a file nobody sees the
 * second without the first (ends.c).
 * INV-WORLD-5: a volume that could not be written any more goes on reading, and its
 * changes fail, until it is opened anew.
 * INV-WORLD-6: -EIO, to anybody, has a cause on the medium.
 * INV-WORLD-7: nothing on a volume looks damaged but by a flipped bit: no checksum
 * fails, no structure is wrong, not even to somebody who then tries again.
 * INV-WORLD-8: a volume opens after any crash, once errors have stopped; whole, by
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

/* An operation that succeeded, or what else has to be done again in its order. */
struct entry {
	enum entry_kind {
		ENTRY_OP,   /* of the oracle */
		ENTRY_DROP, /* nobody looks at op.node any more */
		ENTRY_FLIP, /* names op.name, op.name2 of the crowd: there, or not */
	} kind;
	struct oracle_op op;
	uint64_t began, ended; /* on the world's counter */
};

/*
 * Many files in one directory of all clients, so that the indexes have some height
 * and do not fit the cache: which of a client's names are there.
 */
#define CROWD_MAX 4096u
struct crowd {
	uint8_t there[CROWD_MAX / 8];
};

struct world;

struct client {
	struct play play; /* first */
	struct world *world;
	unsigned number;
	struct oracle *synced;     /* what no crash can take */
	struct crowd crowd, crowd_synced;
	uint64_t crowd_ino[CROWD_MAX];
	bool crowd_grows;
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
	bool log_apart;      /* on a disk of its own */
	bool scrub;          /* zeros over what the log no longer needs */
	unsigned clients;
	uint64_t file_bytes;
	uint32_t crowd;      /* names of a client's */
	unsigned register_words;
	int crowd_digits;    /* of a name */
	bool crowd_full;     /* half of them from the beginning */
	bool background;
	bool may_fill;
	bool cuts, errors, flips; /* what may happen */
};

struct tally {
	uint64_t operations, lives, cuts, deaths, failures, full, errors, opens_failed;
	uint64_t contests;      /* names judged under contention */
	uint64_t stat[STAT_COUNT]; /* of the volumes */
};

struct world {
	uint64_t seed;
	struct sim *sim;
	struct medium *medium;
	struct medium *log_medium; /* or NULL; joined with it */
	struct climate climate;
	struct volume *volume;
	struct core *core;
	uint64_t crowd_dir, contest_dir; /* ino */
	struct contest *contest;
	struct reg *reg;
	struct ends *ends;      /* or NULL, on small volumes */
	struct client *client[CLIENTS_MAX];
	uint64_t counter;       /* begins and ends of operations */
	uint64_t durable;       /* what ended before it cannot be lost */
	uint64_t left;          /* operations of this life */
	bool stop;
	bool lying_disk;        /* to see that it is noticed */
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
/* -EIO: has the life ended, or was it an error that passes?  Else it ends the program. */
void client_got_error(struct client *client);
void client_note(struct client *client, enum entry_kind kind, const struct oracle_op *op,
		 uint64_t began);
void entry_apply(const struct entry *entry, struct oracle *oracle, struct crowd *crowd);

/* --- crowd.c --- */
void crowd_fill(struct client *client);
void crowd_step(struct client *client);
void crowd_flip(struct crowd *crowd, const struct oracle_op *op);
uint64_t crowd_digest(const struct crowd *crowd);
/* Which names are there now; ino[] is updated. */
struct crowd crowd_list(struct client *client);

/* --- contest.c: see there --- */
struct contest *contest_new(struct world *world);
void contest_free(struct contest *contest);
void contest_step(struct contest *contest, struct client *client);
/* What ended before world->durable cannot be lost. */
void contest_durable(struct contest *contest);
/* The volume was closed, or has crashed, and is open again. */
void contest_reopened(struct contest *contest, bool crashed);

/* --- judge.c --- */
/* INV-WORLD-2, -3: finds what has survived, and goes on from there. */
void judge_survivors(struct world *world);

/* --- register.c: see there --- */
struct reg *register_new(struct world *world, uint64_t ino);
void register_step(struct reg *reg, struct client *client);
void register_reopened(struct reg *reg, bool crashed);

/* --- ends.c: see there --- */
struct ends *ends_new(struct world *world, uint64_t ino);
void ends_step(struct ends *ends, struct client *client);
void ends_reopened(struct ends *ends, bool crashed);

/* Runs it; the digest of all that happened. */
uint64_t world_run(uint64_t seed, uint64_t operations, bool lying_disk, bool verbose,
		   struct tally *tally);

#endif
