/*
 * Volumes with much that is wrong at once, for tests that interrupt repairs: each
 * set makes fsck go through other kinds of them.
 */
#ifndef BLINKFS_TESTS_FSCK_DAMAGE_H
#define BLINKFS_TESTS_FSCK_DAMAGE_H

#include "tests/lib/fsck_world.h"

struct damage {
	const char *name;
	void (*make)(struct world *w, struct image *i);
	bool crashed; /* of a world that died with an unreplayed log */
};

extern const struct damage fsck_damages[]; /* the last has no name */

#endif
