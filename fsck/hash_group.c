/* Names that share a hash: see hash_group.h. */
#include "fsck/hash_group.h"

#include "engine/base/check.h"

#include <string.h>

void hash_group_init(struct hash_group *group)
{
	group->parent = 0;
	group->hash = UINT64_MAX; /* hashes have 56 bits */
	group->count = 0;
}

bool hash_group_add(struct hash_group *group, uint64_t parent, uint64_t hash, const uint8_t *name,
		    size_t len)
{
	size_t at = 0;

	check(len <= NAME_BYTES_MAX);
	if (parent != group->parent || hash != group->hash) {
		group->parent = parent;
		group->hash = hash;
		group->count = 0;
	}
	for (unsigned i = 0; i < group->count; i++) {
		if (group->names[at] == len && memcmp(&group->names[at + 1], name, len) == 0)
			return false;
		at += group->names[at] + 1u;
	}
	check(group->count < HASH_COLLISIONS_MAX); /* keys ascend: 7 bits give no more */
	group->names[at] = (uint8_t)len;
	memcpy(&group->names[at + 1], name, len);
	group->count++;
	return true;
}

const char *hash_group_text(struct hash_group *group, const uint8_t *name, size_t len)
{
	text_name(group->text, name, len);
	return group->text;
}
