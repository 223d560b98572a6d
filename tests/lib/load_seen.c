/*
 * Reading a directory back, and comparing it with the model.
 */
#include "tests/lib/load_seen.h"

#include "tests/lib/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define BLOCK 4096u

/* --- reading ---------------------------------------------------------------- */

static int failed(const char *what, const char *path)
{
	fprintf(stderr, "%s %s: %s\n", what, path, strerror(errno));
	return -1;
}

static int read_contents(const char *path, struct seen_entry *entry)
{
	int fd = open(path, O_RDONLY);
	size_t done = 0;
	ssize_t n;

	if (fd < 0)
		return failed("open", path);
	while (done < entry->size &&
	       (n = read(fd, entry->bytes + done, entry->size - done)) > 0)
		done += (size_t)n;
	if (done < entry->size) {
		failed("short read of", path);
		close(fd);
		return -1;
	}
	return close(fd);
}

static int read_bytes(const char *path, struct seen_entry *entry)
{
	ssize_t n;

	entry->bytes = malloc(entry->size + 1);
	if (!entry->bytes)
		return failed("memory for", path);
	entry->bytes[entry->size] = 0;
	if (S_ISREG(entry->mode))
		return read_contents(path, entry);
	n = readlink(path, (char *)entry->bytes, entry->size + 1);
	if (n != (ssize_t)entry->size)
		return failed("readlink", path);
	return 0;
}

static int read_xattrs(const char *path, struct seen_entry *entry)
{
	char list[2048];
	ssize_t len = llistxattr(path, list, sizeof(list)), n;

	if (len < 0)
		return failed("listxattr", path);
	for (char *name = list; name < list + len; name += strlen(name) + 1) {
		struct seen_xattr *xattr = &entry->xattr[entry->xattrs];

		if (entry->xattrs == SEEN_XATTRS_MAX) {
			errno = E2BIG;
			return failed("too many xattrs of", path);
		}
		n = lgetxattr(path, name, NULL, 0);
		if (n < 0)
			return failed("getxattr", path);
		entry->xattrs++;
		xattr->len = (size_t)n;
		xattr->value = malloc(xattr->len + 1);
		xattr->name = strdup(name);
		if (!xattr->name || !xattr->value ||
		    lgetxattr(path, name, xattr->value, xattr->len) != n)
			return failed("getxattr", path);
	}
	return 0;
}

static struct seen_entry *new_entry(struct seen *seen)
{
	if (seen->count == seen->room) {
		unsigned room = seen->room ? seen->room * 2 : 64;
		void *longer = realloc(seen->entry, room * sizeof(*seen->entry));

		if (!longer)
			return NULL;
		seen->entry = longer;
		seen->room = room;
	}
	seen->entry[seen->count] = (struct seen_entry){.size = 0};
	return &seen->entry[seen->count++];
}

static int read_dir(struct seen *seen, const char *dir, const char *prefix);

static int read_one(struct seen *seen, const char *dir, const char *prefix, const char *name)
{
	struct seen_entry *entry = new_entry(seen);
	char path[4096], inner[300];
	struct stat st;
	int rc = 0;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (!entry || lstat(path, &st) != 0)
		return failed("stat", path);
	snprintf(inner, sizeof(inner), "%s%s", prefix, name);
	snprintf(entry->path, sizeof(entry->path), "%s", inner);
	entry->mode = st.st_mode;
	entry->ino = st.st_ino;
	entry->nlink = st.st_nlink;
	if (S_ISDIR(st.st_mode)) {
		strcat(inner, "/");
		return read_dir(seen, path, inner); /* may move the entries */
	}
	entry->size = (size_t)st.st_size;
	rc = read_bytes(path, entry);
	return rc ? rc : read_xattrs(path, entry);
}

static int read_dir(struct seen *seen, const char *dir, const char *prefix)
{
	DIR *stream = opendir(dir);
	struct dirent *found;
	int rc = 0;

	if (!stream)
		return failed("opendir", dir);
	while (rc == 0 && (errno = 0, found = readdir(stream)) != NULL)
		if (strcmp(found->d_name, ".") != 0 && strcmp(found->d_name, "..") != 0)
			rc = read_one(seen, dir, prefix, found->d_name);
	if (rc == 0 && errno)
		rc = failed("readdir", dir);
	closedir(stream);
	return rc;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct seen_entry *)a)->path, ((const struct seen_entry *)b)->path);
}

int seen_read(struct seen *seen, const char *dir)
{
	int rc;

	*seen = (struct seen){.count = 0};
	rc = read_dir(seen, dir, "");
	if (rc)
		seen_free(seen);
	else if (seen->count)
		qsort(seen->entry, seen->count, sizeof(*seen->entry), by_path);
	return rc;
}

void seen_free(struct seen *seen)
{
	for (unsigned i = 0; i < seen->count; i++) {
		for (unsigned k = 0; k < seen->entry[i].xattrs; k++)
			free(seen->entry[i].xattr[k].name), free(seen->entry[i].xattr[k].value);
		free(seen->entry[i].bytes);
	}
	free(seen->entry);
	*seen = (struct seen){.count = 0};
}

const struct seen_entry *seen_find(const struct seen *seen, const char *path)
{
	for (unsigned i = 0; i < seen->count; i++)
		if (strcmp(seen->entry[i].path, path) == 0)
			return &seen->entry[i];
	return NULL;
}

/* --- comparing ---------------------------------------------------------------- */

struct comparison {
	const struct seen *seen;
	const struct load *load;
	const struct step *pending;
	FILE *out;
	unsigned differences;
};

__attribute__((format(printf, 3, 4)))
static void differs(struct comparison *c, const char *path, const char *format, ...)
{
	va_list args;

	c->differences++;
	if (!c->out)
		return;
	fprintf(c->out, "    %s: ", path);
	va_start(args, format);
	vfprintf(c->out, format, args);
	va_end(args);
	fputc('\n', c->out);
}

/* Do bytes [at, at + len) of the file look like this, with zeros behind its end? */
static bool same_bytes(const uint8_t *found, const uint8_t *bytes, size_t size, size_t at,
		       size_t len)
{
	size_t inside = at >= size ? 0 : size - at < len ? size - at : len;

	if (memcmp(found + at, bytes + at, inside) != 0)
		return false;
	for (size_t i = at + inside; i < at + len; i++)
		if (found[i] != 0)
			return false;
	return true;
}

/* The block as the pending write leaves it. */
static void written_block(const struct load_file *file, const struct step *step, size_t at,
			  uint8_t block[BLOCK])
{
	size_t first = step->offset > at ? (size_t)step->offset : at;
	size_t end = (size_t)step->offset + step->len;

	memset(block, 0, BLOCK);
	if (at < file->size)
		memcpy(block, file->bytes + at, file->size - at < BLOCK ? file->size - at : BLOCK);
	if (end > at + BLOCK)
		end = at + BLOCK;
	if (first < end)
		memcpy(block + (first - at), step->data + (first - step->offset), end - first);
}

static void compare_half_written(struct comparison *c, const struct load_file *file,
				 const struct seen_entry *found)
{
	size_t end = (size_t)c->pending->offset + c->pending->len;

	if (found->size != file->size &&
	    (found->size < file->size || found->size > end ||
	     (found->size != end && found->size % BLOCK != 0))) {
		differs(c, found->path, "size %zu, between %zu and %zu", found->size, file->size,
			end);
		return;
	}
	for (size_t at = 0; at < found->size; at += BLOCK) {
		size_t len = found->size - at < BLOCK ? found->size - at : BLOCK;
		uint8_t block[BLOCK];

		if (same_bytes(found->bytes, file->bytes, file->size, at, len))
			continue;
		written_block(file, c->pending, at, block);
		if (memcmp(found->bytes + at, block, len) != 0) {
			differs(c, found->path, "block at %zu is neither old nor new", at);
			return;
		}
	}
}

static void compare_contents(struct comparison *c, const struct load_file *file,
			     const struct seen_entry *found)
{
	size_t at = 0;

	if (c->pending && c->load->entry[c->pending->a].file == file) {
		compare_half_written(c, file, found);
		return;
	}
	if (found->size != file->size) {
		differs(c, found->path, "size %zu instead of %zu", found->size, file->size);
		return;
	}
	if (memcmp(found->bytes, file->bytes, file->size) == 0)
		return;
	while (found->bytes[at] == file->bytes[at])
		at++;
	differs(c, found->path, "%zu bytes, other contents from byte %zu on (%02x, not %02x)",
		file->size, at, found->bytes[at], file->bytes[at]);
}

static const struct seen_xattr *find_xattr(const struct seen_entry *found, const char *name)
{
	for (unsigned i = 0; i < found->xattrs; i++)
		if (strcmp(found->xattr[i].name, name) == 0)
			return &found->xattr[i];
	return NULL;
}

static void compare_xattrs(struct comparison *c, const struct load_file *file,
			   const struct seen_entry *found)
{
	unsigned set = 0;

	for (unsigned i = 0; i < LOAD_XATTRS; i++) {
		const struct load_xattr *wanted = &file->xattr[i];
		const struct seen_xattr *xattr;
		char name[16];

		snprintf(name, sizeof(name), "user.k%u", i);
		xattr = find_xattr(found, name);
		set += wanted->set;
		if (wanted->set != (xattr != NULL))
			differs(c, found->path, "%s %s", name, xattr ? "too much" : "missing");
		else if (xattr && (xattr->len != wanted->len ||
				   memcmp(xattr->value, wanted->value, wanted->len) != 0))
			differs(c, found->path, "%s: %zu bytes, another value than the one of %zu",
				name, xattr->len, wanted->len);
	}
	if (found->xattrs > set)
		differs(c, found->path, "%u xattrs instead of %u", found->xattrs, set);
}

/* Names of one file, and only those, have one inode number. */
static void compare_identity(struct comparison *c, unsigned entry, const struct seen_entry *found)
{
	for (unsigned other = 0; other < entry; other++) {
		const struct load_entry *e = &c->load->entry[other];
		const struct seen_entry *f;
		char path[LOAD_PATH_MAX];

		if (e->kind != LOAD_FILE)
			continue;
		load_path(other, path);
		f = seen_find(c->seen, path);
		if (f && (f->ino == found->ino) != (e->file == c->load->entry[entry].file))
			differs(c, found->path, "inode %ju, %s has %ju", (uintmax_t)found->ino,
				path, (uintmax_t)f->ino);
	}
}

static void compare_file(struct comparison *c, unsigned entry, const struct seen_entry *found)
{
	const struct load_file *file = c->load->entry[entry].file;

	if (!S_ISREG(found->mode)) {
		differs(c, found->path, "not a file");
		return;
	}
	if (found->nlink != file->refs)
		differs(c, found->path, "nlink %ju instead of %u", (uintmax_t)found->nlink,
			file->refs);
	compare_contents(c, file, found);
	compare_xattrs(c, file, found);
	compare_identity(c, entry, found);
}

static void compare_symlink(struct comparison *c, unsigned entry, const struct seen_entry *found)
{
	char target[LOAD_TARGET_MAX];

	load_target(c->load->entry[entry].target, target);
	if (!S_ISLNK(found->mode) || strcmp((char *)found->bytes, target) != 0)
		differs(c, found->path, "not a symlink to %s", target);
}

static void compare_entry(struct comparison *c, unsigned entry)
{
	enum load_kind kind = c->load->entry[entry].kind;
	const struct seen_entry *found;
	char path[LOAD_PATH_MAX];

	load_path(entry, path);
	found = seen_find(c->seen, path);
	if (!found || kind == LOAD_NOTHING) {
		if (found)
			differs(c, path, "should not exist (%zu bytes)", found->size);
		else if (kind != LOAD_NOTHING)
			differs(c, path, "is missing");
		return;
	}
	if (kind == LOAD_FILE)
		compare_file(c, entry, found);
	else if (kind == LOAD_SYMLINK)
		compare_symlink(c, entry, found);
	else if (!S_ISDIR(found->mode) || found->nlink != 2)
		differs(c, path, "not a directory with two links");
}

static unsigned names_in(const struct load *load)
{
	unsigned names = 0;

	for (unsigned i = 0; i < LOAD_ENTRIES; i++)
		names += load->entry[i].kind != LOAD_NOTHING;
	return names;
}

unsigned seen_differs(const struct seen *seen, const struct load *load, const struct step *pending,
		      const char *apart, FILE *out)
{
	struct comparison c = {.seen = seen, .load = load, .pending = pending, .out = out};
	unsigned names = names_in(load) + (seen_find(seen, apart) != NULL);

	if (seen->count != names)
		differs(&c, ".", "%u names instead of %u", seen->count, names);
	for (unsigned i = 0; i < LOAD_ENTRIES && (out || c.differences == 0); i++)
		compare_entry(&c, i);
	return c.differences;
}

/* --- digest -------------------------------------------------------------------- */

static uint64_t mix(uint64_t digest, const void *bytes, size_t len)
{
	const uint8_t *b = bytes;

	for (size_t i = 0; i < len; i++)
		digest = (digest ^ b[i]) * 0x100000001b3ull;
	return (digest ^ len) * 0x100000001b3ull;
}

uint64_t seen_digest(const struct seen *seen)
{
	uint64_t digest = 0xcbf29ce484222325ull;

	for (unsigned i = 0; i < seen->count; i++) {
		const struct seen_entry *entry = &seen->entry[i];
		uint64_t figures[] = {entry->mode, entry->nlink};

		digest = mix(digest, entry->path, strlen(entry->path));
		digest = mix(digest, figures, sizeof(figures));
		digest = mix(digest, entry->bytes, entry->size);
		for (unsigned k = 0; k < entry->xattrs; k++) {
			digest = mix(digest, entry->xattr[k].name, strlen(entry->xattr[k].name));
			digest = mix(digest, entry->xattr[k].value, entry->xattr[k].len);
		}
	}
	return digest;
}
