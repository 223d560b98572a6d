/*
 * Names in directories: keys of the dirents index.
 *
 *	key = be64 parent ino, be64 suffix
 *	suffix = hash << 7 | collision
 *	hash = low 56 bits of XXH3_64bits_withSeed(name, seed), 1 when they are 0
 *	seed = the first 8 bytes of the superblock's hash_seed, little-endian
 *
 * So suffixes are between 128 and 2^63 - 1, and serve as cookies.
 *
 *	INV-NAME-1  a name has one entry at most; names with one hash have different
 *	            collision numbers; a new one takes the lowest that is free
 *	INV-NAME-2  an entry keeps its key as long as it exists, whatever inode it
 *	            comes to name (rename over it changes the value in place), so a
 *	            concurrent search never misses it
 *
 * The names of xattrs are hashed in the same way.
 */
#ifndef BLINKFS_FS_NAME_H
#define BLINKFS_FS_NAME_H

#include "engine/mtr.h"
#include "engine/volume.h"

#define COLLISION_BITS 7u
#define COLLISION_MASK ((1u << COLLISION_BITS) - 1)
#define DOT_COOKIE 1u
#define DOT_DOT_COOKIE 2u
#define SUFFIX_FIRST (1u << COLLISION_BITS)

/* Suffix of collision number 0. */
uint64_t name_suffix(const struct volume *volume, const char *name, size_t len);

/* be64 ino, be64 suffix: also the key of an xattr. */
void name_key(uint8_t key[KEY_DIRENT_BYTES], uint64_t ino, uint64_t suffix);

/* 0, -ENOENT (empty), -ENAMETOOLONG, -EINVAL ('/' or NUL inside). */
int name_check(const char *name, size_t len) must_check;
bool name_is_dot(const char *name, size_t len);
bool name_is_dot_dot(const char *name, size_t len);

/* A dirent record, judged. */
struct dirent_view {
	uint64_t child;
	uint8_t type;       /* DT_* */
	const char *name;   /* into the record */
	size_t name_len;
};
int dirent_decode(struct volume *volume, const void *value, size_t len,
		  struct dirent_view *out) must_check;

struct name_entry {
	uint8_t key[KEY_DIRENT_BYTES]; /* of the entry, or where it would go */
	bool found;
	bool full;       /* not found, and all collision numbers are taken */
	uint64_t child;
	uint8_t type;
};
/* Searches `name`; no latch is held before or after. */
int name_find(struct volume *volume, uint64_t parent, const char *name, size_t len,
	      struct name_entry *entry) must_check;

/* Edits in a mini-transaction. */
void name_want(struct mtr *m, const struct name_entry *entry);
/*
 * Is the entry in the latched leaf still what name_find() saw?  -BE_AGAIN if not.
 * Holders of the directory's lock X know that it is; this makes sure.
 */
int name_recheck(struct volume *volume, struct mtr *m, const struct name_entry *entry) must_check;
void name_put(struct mtr *m, const struct name_entry *entry, uint64_t child, uint32_t mode,
	      const char *name, size_t len);
void name_delete(struct mtr *m, const struct name_entry *entry);

#endif
