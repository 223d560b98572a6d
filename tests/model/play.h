/*
 * Random operations on a core, and the same on the oracle: what model_core and the
 * simulation have in common.  A play owns a directory of the volume, or in a shared
 * one all names with its prefix, and everything below; nobody else changes that, so
 * the oracle knows each result.
 */
#ifndef BLINKFS_TESTS_PLAY_H
#define BLINKFS_TESTS_PLAY_H

#include "fs/core.h"
#include "tests/model/oracle.h"

#define PLAY_HELD_MAX 6u

struct play {
	struct core *core;
	struct oracle *now;      /* after all operations so far */
	uint64_t random;
	uint64_t bytes_max;      /* of a file; at most ORACLE_FILE_BYTES_MAX */
	char prefix[16];         /* of the names in node 0; "": it is not shared */
	bool whiteouts;          /* some renames leave one */
	uint64_t ino[ORACLE_NODES_MAX];
	uint32_t held[PLAY_HELD_MAX]; /* nodes that are looked up; 0: none */
	uint8_t buf[ORACLE_FILE_BYTES_MAX]; /* of the operation under way */
	/* Does not return. */
	void (*fail)(const struct play *play, const char *what, int64_t got, int64_t want);
};

/* An empty directory, root, is node 0. */
void play_init(struct play *play, struct core *core, uint64_t root, uint64_t seed);
void play_free(struct play *play);

uint64_t play_below(struct play *play, uint64_t limit);

struct oracle_op play_choose(struct play *play);
/* On the core alone.  *made: the inode, of what makes one. */
int play_do(struct play *play, const struct oracle_op *op, uint64_t *made);
/* For messages. */
void play_print(const struct oracle_op *op);
/* Does the operation give space back, so that ENOSPC is no answer? */
bool play_frees_space(const struct oracle_op *op);

/* Is it among those that are looked up? */
bool play_is_held(const struct play *play, uint32_t node);
/*
 * Looks up a name and keeps it, or lets go of one that it has kept, which *let_go
 * tells (0: none).  Any answer that the oracle would not give ends the program, but
 * -EIO, which is returned.
 */
int play_hold(struct play *play, uint32_t *let_go) must_check;
/* Reads the rest of some file from anywhere: the same. */
int play_compare_file(struct play *play) must_check;

/* The digest that oracle_digest() gives; what cannot be read ends the program. */
uint64_t play_digest(struct play *play);
/* The same walk, beside the oracle: ino[] is what the volume has now. */
void play_rebind(struct play *play);

#endif
