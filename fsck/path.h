/*
 * Paths of a few inodes, for messages: found by reading all names at most twice.
 */
#ifndef BLINKFS_FSCK_PATH_H
#define BLINKFS_FSCK_PATH_H

#include "fsck/walk.h"

#define PATH_TEXT_BYTES 1024u

struct path_name {
	uint64_t ino, parent; /* parent 0: no name found */
	char *name;           /* escaped; owned */
};

struct paths {
	TABLE(struct path_name) names; /* sorted by ino */
};

/* Any number of inodes, each may come often. */
int paths_want(struct paths *paths, uint64_t ino) must_check;
/* Looks all of them up, and the directories above them. */
int paths_find(struct paths *paths, const struct walk *w) must_check;
/* "/dir/name"; of a path that is too long its end; "(no name)". */
void paths_text(const struct paths *paths, uint64_t ino, char out[PATH_TEXT_BYTES]);
void paths_free(struct paths *paths);

#endif
