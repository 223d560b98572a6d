#include "fs/path.h"

#include "engine/base/error.h"
#include "fs/name.h"
#include "fs/record.h"

#include <ctype.h>
#include <string.h>

#define SCAN_ENTRIES_MAX 1000000u /* about a second: a damaged block deserves it, once a read */
#define DEPTH_MAX 64u

/* Puts a name, and a slash, before what is there: text[*at] is its first byte. */
static bool prepend(char text[PATH_TEXT_BYTES], size_t *at, const char *name, size_t len)
{
	if (len + 1 > *at)
		return false;
	*at -= len;
	for (size_t i = 0; i < len; i++)
		text[*at + i] = isprint((unsigned char)name[i]) ? name[i] : '?';
	text[--*at] = '/';
	return true;
}

/*
 * The first entry that leads to `ino`, in directory `parent` or, when that is 0,
 * in any.  *found_in: the directory; 0: none.
 */
static bool find_entry(struct volume *volume, uint64_t ino, uint64_t parent,
		       char text[PATH_TEXT_BYTES], size_t *at, uint64_t *found_in)
{
	uint8_t from[KEY_DIRENT_BYTES];
	struct tree_cursor cursor;
	bool added = false;
	int rc;

	*found_in = 0;
	name_key(from, parent, 0);
	rc = tree_cursor_open(&cursor, &volume->index[INDEX_DIRENTS], from, sizeof(from));
	for (unsigned i = 0; rc == 0 && *found_in == 0 && i < SCAN_ENTRIES_MAX; i++) {
		struct dirent_view entry;

		rc = tree_cursor_next(&cursor);
		if (rc == 0 && parent && be64_get(cursor.key.bytes) != parent)
			break;
		if (rc == 0)
			rc = dirent_decode(volume, cursor.value, cursor.value_len, &entry);
		if (rc || entry.child != ino)
			continue;
		*found_in = be64_get(cursor.key.bytes);
		added = prepend(text, at, entry.name, entry.name_len);
	}
	tree_cursor_close(&cursor);
	return added;
}

void path_text(struct volume *volume, uint64_t ino, char text[PATH_TEXT_BYTES])
{
	size_t at = PATH_TEXT_BYTES - 1;
	uint64_t parent = 0, found_in;

	text[at] = '\0';
	for (unsigned depth = 0; ino != INO_ROOT; depth++) {
		struct record record;

		if (depth == DEPTH_MAX || !find_entry(volume, ino, parent, text, &at, &found_in) ||
		    record_read(volume, found_in, &record, NULL) != 0) {
			text[0] = '\0';
			return;
		}
		ino = found_in;
		parent = record.parent;
	}
	memmove(text, text + at, PATH_TEXT_BYTES - at);
}
