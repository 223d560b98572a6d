/*
 * Names that share a parent and a hash, to find one that occurs twice.  Entries
 * come in key order, so one group at a time is remembered.
 */
#ifndef BLINKFS_FSCK_HASH_GROUP_H
#define BLINKFS_FSCK_HASH_GROUP_H

#include "engine/base/limits.h"
#include "fsck/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hash_group {
	uint64_t parent, hash;
	unsigned count;
	uint8_t names[HASH_COLLISIONS_MAX * (NAME_BYTES_MAX + 1u)]; /* each after its length */
	char text[TEXT_NAME_BYTES];                                 /* for messages */
};

void hash_group_init(struct hash_group *group);
/* False when the name is there already. */
bool hash_group_add(struct hash_group *group, uint64_t parent, uint64_t hash, const uint8_t *name,
		    size_t len);
/* The name for a message, valid until the next call. */
const char *hash_group_text(struct hash_group *group, const uint8_t *name, size_t len);

#endif
