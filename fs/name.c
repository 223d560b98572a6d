/* Names in directories: see name.h. */
#include "fs/name.h"

#include "engine/base/error.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <xxhash.h>

#define HASH_MASK ((1ull << 56) - 1)
#define DIRENT_BYTES_MAX (sizeof(struct disk_dirent) + NAME_BYTES_MAX)

static_assert(HASH_COLLISIONS_MAX == COLLISION_MASK + 1, "a collision number fits its bits");

uint64_t name_suffix(const struct volume *volume, const char *name, size_t len)
{
	le64 seed;
	uint64_t hash;

	memcpy(&seed, volume->sb.hash_seed, sizeof(seed));
	hash = XXH3_64bits_withSeed(name, len, le64_get(seed)) & HASH_MASK;
	return (hash ? hash : 1) << COLLISION_BITS;
}

void name_key(uint8_t key[KEY_DIRENT_BYTES], uint64_t ino, uint64_t suffix)
{
	be64_put(key, ino);
	be64_put(key + 8, suffix);
}

int name_check(const char *name, size_t len)
{
	if (len == 0)
		return -ENOENT;
	if (len > NAME_BYTES_MAX)
		return -ENAMETOOLONG;
	return memchr(name, '/', len) || memchr(name, '\0', len) ? -EINVAL : 0;
}

bool name_is_dot(const char *name, size_t len)
{
	return len == 1 && name[0] == '.';
}

bool name_is_dot_dot(const char *name, size_t len)
{
	return len == 2 && name[0] == '.' && name[1] == '.';
}

int dirent_decode(struct volume *volume, const void *value, size_t len, struct dirent_view *out)
{
	const struct disk_dirent *d = value;

	if (len <= sizeof(*d) || len > DIRENT_BYTES_MAX)
		return corrupt_at(volume, 0, "directory entry", "wrong length");
	*out = (struct dirent_view){
		.child = le64_get(d->child),
		.type = d->type,
		.name = (const char *)d->name,
		.name_len = len - sizeof(*d),
	};
	if (!out->child || name_check(out->name, out->name_len))
		return corrupt_at(volume, 0, "directory entry", "impossible name or inode");
	return 0;
}

static bool is_name(const struct dirent_view *d, const char *name, size_t len)
{
	return d->name_len == len && memcmp(d->name, name, len) == 0;
}

static void set_found(struct name_entry *entry, const struct dirent_view *d)
{
	entry->found = true;
	entry->child = d->child;
	entry->type = d->type;
}

/*
 * Nearly every hash belongs to one name, or to none: one search, no copy of the leaf.
 * *others: the first entry with this hash is of another name.
 */
static int find_first(struct volume *volume, uint64_t parent, uint64_t suffix, const char *name,
		      size_t len, struct name_entry *entry, bool *others)
{
	uint8_t last[KEY_DIRENT_BYTES], value[DIRENT_BYTES_MAX];
	struct dirent_view d;
	size_t value_len;
	struct key key;
	int rc;

	*others = false;
	name_key(last, parent, suffix | COLLISION_MASK);
	rc = tree_first(&volume->index[INDEX_DIRENTS], entry->key, last, sizeof(last), &key, value,
			sizeof(value), &value_len);
	if (rc)
		return rc == -BE_NOTFOUND ? 0 : rc;
	if (key.len != KEY_DIRENT_BYTES)
		return corrupt_at(volume, 0, "directory entry", "wrong key length");
	rc = dirent_decode(volume, value, value_len, &d);
	if (rc)
		return rc;
	*others = !is_name(&d, name, len);
	if (!*others) {
		set_found(entry, &d);
		memcpy(entry->key, key.bytes, sizeof(entry->key));
	}
	return 0;
}

/* All entries with this hash; leaves the lowest free key when the name isn't among them. */
static int find_all(struct volume *volume, uint64_t parent, uint64_t suffix, const char *name,
		    size_t len, struct name_entry *entry)
{
	struct tree_cursor cursor;
	unsigned lowest_free = 0;
	int rc;

	rc = tree_cursor_open(&cursor, &volume->index[INDEX_DIRENTS], entry->key,
			      sizeof(entry->key));
	while (rc == 0 && (rc = tree_cursor_next(&cursor)) == 0) {
		struct dirent_view d;
		uint64_t at;

		if (cursor.key.len != KEY_DIRENT_BYTES) {
			rc = corrupt_at(volume, 0, "directory entry", "wrong key length");
			break;
		}
		at = be64_get(cursor.key.bytes + 8);
		if (be64_get(cursor.key.bytes) != parent || at > (suffix | COLLISION_MASK))
			break;
		rc = dirent_decode(volume, cursor.value, cursor.value_len, &d);
		if (rc == 0 && is_name(&d, name, len)) {
			set_found(entry, &d);
			name_key(entry->key, parent, at);
			break;
		}
		if ((at & COLLISION_MASK) == lowest_free)
			lowest_free++;
	}
	tree_cursor_close(&cursor);
	if (rc && rc != -BE_END)
		return rc;
	if (!entry->found) {
		entry->full = lowest_free == HASH_COLLISIONS_MAX;
		name_key(entry->key, parent, suffix | (lowest_free & COLLISION_MASK));
	}
	return 0;
}

int name_find(struct volume *volume, uint64_t parent, const char *name, size_t len,
	      struct name_entry *entry)
{
	uint64_t suffix = name_suffix(volume, name, len);
	bool others;
	int rc;

	*entry = (struct name_entry){.found = false};
	name_key(entry->key, parent, suffix);
	rc = find_first(volume, parent, suffix, name, len, entry, &others);
	if (rc || !others)
		return rc;
	return find_all(volume, parent, suffix, name, len, entry);
}

void name_want(struct mtr *m, const struct name_entry *entry)
{
	mtr_want_key(m, INDEX_DIRENTS, entry->key, sizeof(entry->key));
}

int name_recheck(struct volume *volume, struct mtr *m, const struct name_entry *entry)
{
	struct dirent_view d;
	const void *value;
	size_t len;
	int rc;

	rc = mtr_lookup(m, INDEX_DIRENTS, entry->key, sizeof(entry->key), &value, &len);
	if (rc == -BE_NOTFOUND)
		return entry->found ? -BE_AGAIN : 0;
	if (rc)
		return rc;
	rc = dirent_decode(volume, value, len, &d);
	if (rc)
		return rc;
	return entry->found && d.child == entry->child ? 0 : -BE_AGAIN;
}

void name_put(struct mtr *m, const struct name_entry *entry, uint64_t child, uint32_t mode,
	      const char *name, size_t len)
{
	uint8_t value[DIRENT_BYTES_MAX];
	struct disk_dirent d = {
		.child = le64_make(child),
		.type = IFTODT(mode),
	};

	check(len >= 1 && len <= NAME_BYTES_MAX);
	memcpy(value, &d, sizeof(d));
	memcpy(value + sizeof(d), name, len);
	mtr_put(m, INDEX_DIRENTS, entry->key, sizeof(entry->key), value, sizeof(d) + len);
}

void name_delete(struct mtr *m, const struct name_entry *entry)
{
	mtr_delete(m, INDEX_DIRENTS, entry->key, sizeof(entry->key));
}
