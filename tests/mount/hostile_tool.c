/*
 * Changes one record of a quiet image, and puts the checksum right: what no checksum
 * shows, and only somebody who means it can make.
 *
 *	hostile_tool IMAGE name DIR OLD NEW         another name (\ooo: any byte), its key stays
 *	hostile_tool IMAGE entry DIR NAME INO TYPE  one more name, DT_* of <dirent.h>
 *	hostile_tool IMAGE type DIR NAME TYPE       another type beside the name
 *	hostile_tool IMAGE inode INO FIELD VALUE    a field of its record
 *	hostile_tool IMAGE extent INO FIELD VALUE   of the first extent of its contents
 *	hostile_tool IMAGE xattr INO NAME FIELD VALUE
 *
 * DIR and INO are inode numbers, as stat(1) prints them.
 */
#include "tests/lib/image_edit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] = "usage: hostile_tool IMAGE name|entry|type|inode|extent|xattr ...\n";

static uint64_t number(const char *text)
{
	char *end;
	uint64_t value;

	errno = 0;
	value = strtoull(text, &end, 0);
	if (*end || end == text || errno) {
		fprintf(stderr, "not a number: %s\n", text);
		exit(2);
	}
	return value;
}

static size_t unescape(const char *text, uint8_t *out, size_t cap)
{
	size_t len = 0;

	for (; *text && len < cap; len++) {
		char octal[4] = {0};

		if (*text == '\\' && strlen(text) >= 4) {
			memcpy(octal, text + 1, 3);
			out[len] = (uint8_t)strtoul(octal, NULL, 8);
			text += 4;
		} else {
			out[len] = (uint8_t)*text++;
		}
	}
	return len;
}

static int find(struct image *i, unsigned index, const struct key *key, const char *what)
{
	struct key found;

	if (image_find(i, index, key)) {
		image_slot_key(i, &found);
		if (found.len == key->len && memcmp(found.bytes, key->bytes, key->len) == 0)
			return 0;
	}
	fprintf(stderr, "there is no such %s\n", what);
	return 1;
}

/* ------------------------------------------------------------------- names */

static int edit_name(struct image *i, char **arg)
{
	struct key key = image_name_key(i, number(arg[0]), arg[1]);
	uint8_t value[sizeof(struct disk_dirent) + 1000];
	size_t len = sizeof(struct disk_dirent);

	if (find(i, INDEX_DIRENTS, &key, "name"))
		return 1;
	memcpy(value, image_value(i, NULL), len);
	len += unescape(arg[2], value + len, sizeof(value) - len);
	image_update(i, INDEX_DIRENTS, &key, value, len);
	return 0;
}

static int add_entry(struct image *i, char **arg)
{
	struct disk_dirent dirent = {
		.child = le64_make(number(arg[2])),
		.type = (uint8_t)number(arg[3]),
	};
	struct key key = image_name_key(i, number(arg[0]), arg[1]);
	uint8_t value[sizeof(dirent) + NAME_BYTES_MAX];
	size_t len = strnlen(arg[1], NAME_BYTES_MAX);

	memcpy(value, &dirent, sizeof(dirent));
	memcpy(value + sizeof(dirent), arg[1], len);
	image_insert(i, INDEX_DIRENTS, &key, value, sizeof(dirent) + len);
	return 0;
}

static int edit_type(struct image *i, char **arg)
{
	struct key key = image_name_key(i, number(arg[0]), arg[1]);

	if (find(i, INDEX_DIRENTS, &key, "name"))
		return 1;
	((struct disk_dirent *)image_value(i, NULL))->type = (uint8_t)number(arg[2]);
	image_store(i, true);
	return 0;
}

/* ------------------------------------------------------------------ fields */

struct field {
	const char *name;
	size_t offset, bytes;
};
#define FIELD(type, name) {#name, offsetof(struct type, name), sizeof(((struct type *)0)->name)}

static int set_field(const struct field *fields, unsigned count, void *record, const char *name,
		     const char *text)
{
	uint64_t value = number(text);

	for (unsigned f = 0; f < count; f++) {
		if (strcmp(fields[f].name, name) != 0)
			continue;
		for (size_t b = 0; b < fields[f].bytes; b++)
			((uint8_t *)record)[fields[f].offset + b] = (uint8_t)(value >> (8 * b));
		return 0;
	}
	fprintf(stderr, "there is no such field: %s\n", name);
	return 2;
}

static int edit_inode(struct image *i, char **arg)
{
	static const struct field fields[] = {
		FIELD(disk_inode, mode), FIELD(disk_inode, nlink), FIELD(disk_inode, size),
		FIELD(disk_inode, blocks), FIELD(disk_inode, lob), FIELD(disk_inode, flags),
		FIELD(disk_inode, parent), FIELD(disk_inode, dead_first),
		FIELD(disk_inode, dead_end), FIELD(disk_inode, purge_key),
		FIELD(disk_inode, xattr_count), FIELD(disk_inode, entries),
		{"mtime", offsetof(struct disk_inode, mtime), 8},
		{"mtime_nsec", offsetof(struct disk_inode, mtime) + 8, 4},
	};
	struct disk_inode inode;
	int rc;

	image_get_inode(i, number(arg[0]), &inode);
	rc = set_field(fields, array_count(fields), &inode, arg[1], arg[2]);
	if (rc == 0)
		image_put_inode(i, number(arg[0]), &inode);
	return rc;
}

static int edit_extent(struct image *i, char **arg)
{
	static const struct field fields[] = {
		FIELD(disk_extent, start), FIELD(disk_extent, length),
		FIELD(disk_extent, stored), FIELD(disk_extent, flags),
		FIELD(disk_extent, codec),
	};
	struct disk_inode inode;
	struct key key, found;
	int rc;

	image_get_inode(i, number(arg[0]), &inode);
	key = image_key_pair(le64_get(inode.lob), 0);
	if (!image_find(i, INDEX_LOB, &key)) {
		fputs("it has no extents\n", stderr);
		return 1;
	}
	image_slot_key(i, &found);
	if (memcmp(found.bytes, key.bytes, 8) != 0) {
		fputs("it has no extents\n", stderr);
		return 1;
	}
	rc = set_field(fields, array_count(fields), image_value(i, NULL), arg[1], arg[2]);
	if (rc == 0)
		image_store(i, true);
	return rc;
}

static int edit_xattr(struct image *i, char **arg)
{
	static const struct field fields[] = {
		FIELD(disk_xattr, lob), FIELD(disk_xattr, value_len),
		FIELD(disk_xattr, flags), FIELD(disk_xattr, name_len),
	};
	struct key key = image_name_key(i, number(arg[0]), arg[1]);
	int rc = find(i, INDEX_XATTRS, &key, "attribute");

	if (rc == 0)
		rc = set_field(fields, array_count(fields), image_value(i, NULL), arg[2], arg[3]);
	if (rc == 0)
		image_store(i, true);
	return rc;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*edit)(struct image *i, char **arg);
		int args;
	} verbs[] = {
		{"name", edit_name, 3},     {"entry", add_entry, 4},
		{"type", edit_type, 3},     {"inode", edit_inode, 3},
		{"extent", edit_extent, 3}, {"xattr", edit_xattr, 4},
	};
	struct image image;
	struct device *dev;
	int rc = 2;

	for (unsigned v = 0; v < array_count(verbs); v++) {
		if (argc < 3 || strcmp(argv[2], verbs[v].name) != 0 || argc != 3 + verbs[v].args)
			continue;
		if (dev_open_file(&dev, argv[1], 0, 0) != 0) {
			fprintf(stderr, "%s: cannot be opened\n", argv[1]);
			return 1;
		}
		image_open(&image, dev);
		rc = verbs[v].edit(&image, argv + 3);
		dev_close(dev);
		return rc;
	}
	fputs(usage, stderr);
	return rc;
}
