/* Paths for messages: see path.h. */
#include "fsck/path.h"

#include "fsck/text.h"

#include "engine/base/error.h"

#include <errno.h>
#include <stdlib.h>

#define DEPTH_MAX 4096u /* of directories that are followed */

int paths_want(struct paths *paths, uint64_t ino)
{
	int rc;

	if (paths->names.count && paths->names.at[paths->names.count - 1].ino == ino)
		return 0;
	rc = table_room(NULL, paths->names);
	if (!rc)
		paths->names.at[paths->names.count++] = (struct path_name){.ino = ino};
	return rc;
}

static int compare_names(const void *a, const void *b)
{
	const struct path_name *x = a, *y = b;

	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

/* Sorts, keeps one of each: the one that has its name. */
static void tidy(struct paths *paths)
{
	struct path_name *at = paths->names.at;
	size_t kept = 0;

	if (paths->names.count)
		qsort(at, paths->names.count, sizeof(*at), compare_names);
	for (size_t i = 0; i < paths->names.count; i++) {
		if (kept && at[kept - 1].ino == at[i].ino) {
			if (at[i].name) {
				check(!at[kept - 1].name);
				at[kept - 1] = at[i];
			}
			continue;
		}
		at[kept++] = at[i];
	}
	paths->names.count = kept;
}

static struct path_name *lookup(const struct paths *paths, uint64_t ino)
{
	struct path_name key = {.ino = ino};

	if (!paths->names.count)
		return NULL;
	return bsearch(&key, paths->names.at, paths->names.count, sizeof(key), compare_names);
}

static int take_name(struct path_name *to, uint64_t parent, const uint8_t *name, size_t len)
{
	char text[TEXT_NAME_BYTES];

	text_name(text, name, len);
	to->name = strdup(text);
	to->parent = parent;
	return to->name ? 0 : -ENOMEM;
}

static int read_names(struct paths *paths, const struct raw_volume *raw)
{
	struct raw_key from = {.len = KEY_DIRENT_BYTES};
	struct raw_cursor c;
	int rc = raw_cursor_open(&c, raw, INDEX_DIRENTS, &from);

	while (!rc && !(rc = raw_cursor_next(&c))) {
		const struct raw_entry *e = &c.entry;
		size_t len = e->value_len - sizeof(struct disk_dirent);
		struct disk_dirent dirent;
		struct path_name *to;

		if (e->key.len != KEY_DIRENT_BYTES || e->value_len <= sizeof(dirent) ||
		    len > NAME_BYTES_MAX)
			continue;
		memcpy(&dirent, e->value, sizeof(dirent));
		to = lookup(paths, le64_get(dirent.child));
		if (to && !to->name)
			rc = take_name(to, be64_get(e->key.bytes), e->value + sizeof(dirent), len);
	}
	raw_cursor_close(&c);
	return rc == -ENOMEM ? rc : 0; /* a tree that breaks off was reported by pass 1 */
}

/* All directories above what has a name by now. */
static int want_above(struct paths *paths, const struct walk *w)
{
	size_t count = paths->names.count;
	int rc = 0;

	for (size_t i = 0; i < count && !rc; i++) {
		uint64_t ino = paths->names.at[i].parent;

		for (unsigned depth = 0; ino > INO_ROOT && depth < DEPTH_MAX && !rc; depth++) {
			const struct inode_note *note = note_find(w, ino);

			rc = paths_want(paths, ino);
			ino = note ? note->parent : 0;
		}
	}
	return rc;
}

int paths_find(struct paths *paths, const struct walk *w)
{
	int rc;

	tidy(paths);
	rc = read_names(paths, &w->raw);
	if (!rc)
		rc = want_above(paths, w);
	if (rc)
		return rc;
	tidy(paths);
	return read_names(paths, &w->raw);
}

/* Builds from the end; the names are quoted, the path is not. */
void paths_text(const struct paths *paths, uint64_t ino, char out[PATH_TEXT_BYTES])
{
	char text[PATH_TEXT_BYTES];
	size_t at = sizeof(text) - 1;
	unsigned depth = 0;

	text[at] = '\0';
	for (; ino != INO_ROOT && depth < DEPTH_MAX; depth++) {
		const struct path_name *step = lookup(paths, ino);
		size_t len = step && step->name ? strlen(step->name) - 2 : 0;
		bool fits = len + 1 + 3 < at;

		if (!len) {
			strcpy(out, "(no name)");
			return;
		}
		if (!fits) {
			memcpy(text + (at -= 3), "...", 3);
			break;
		}
		memcpy(text + (at -= len), step->name + 1, len);
		text[--at] = '/';
		ino = step->parent;
	}
	strcpy(out, text + at);
	if (depth == 0)
		strcpy(out, "/");
}

void paths_free(struct paths *paths)
{
	for (size_t i = 0; i < paths->names.count; i++)
		free(paths->names.at[i].name);
	table_free(paths->names);
}
