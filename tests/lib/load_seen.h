/*
 * What a directory under load looks like through the mount, held against the model.
 */
#ifndef BLINKFS_TESTS_LOAD_SEEN_H
#define BLINKFS_TESTS_LOAD_SEEN_H

#include "tests/lib/load_model.h"

#include <stdio.h>
#include <sys/types.h>

#define SEEN_XATTRS_MAX 8u

struct seen_xattr {
	char *name;
	size_t len;
	uint8_t *value;
};

struct seen_entry {
	char path[300];
	mode_t mode;
	ino_t ino;
	nlink_t nlink;
	size_t size;
	uint8_t *bytes;      /* contents; a symlink's target with a NUL */
	struct seen_xattr xattr[SEEN_XATTRS_MAX];
	unsigned xattrs;
};

struct seen {
	struct seen_entry *entry; /* by path */
	unsigned count, room;
};

/* Reads all of it.  0, or -1 after a message to stderr: something could not be read. */
int seen_read(struct seen *seen, const char *dir);
void seen_free(struct seen *seen);
const struct seen_entry *seen_find(const struct seen *seen, const char *path);

/*
 * The number of differences from the model; each is told to `out` unless that is
 * NULL, which ends the search at the first one.  `pending`: a step that may be
 * half done (load_is_partial), or NULL.  `apart`: a path that is not compared.
 */
unsigned seen_differs(const struct seen *seen, const struct load *load, const struct step *pending,
		      const char *apart, FILE *out);

/* Changes with anything that a user can see, times and inode numbers apart. */
uint64_t seen_digest(const struct seen *seen);

#endif
