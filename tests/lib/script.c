#include "tests/lib/script.h"

#include "engine/base/crc32c.h"
#include "engine/flush_internal.h"
#include "engine/grow.h"
#include "engine/log_resize.h"
#include "engine/purge.h"
#include "engine/space.h"
#include "log/log_internal.h"
#include "tests/lib/acl_example.h"
#include "tests/lib/core_rig.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct core_cred cred = {.uid = 0, .gid = 0, .umask = 022};

void script_parse(struct script *script, const char *text)
{
	char *save = NULL;

	*script = (struct script){.text = strdup(text)};
	check(script->text != NULL);
	for (char *s = strtok_r(script->text, ";", &save); s; s = strtok_r(NULL, ";", &save)) {
		s += strspn(s, " \n\t");
		if (*s == '\0')
			continue;
		check(script->count < SCRIPT_STATEMENTS_MAX);
		script->statement[script->count++] = s;
	}
}

void script_free(struct script *script)
{
	free(script->text);
}

bool script_is_sync(const char *statement)
{
	return strncmp(statement, "fsync", 5) == 0 || strncmp(statement, "fdatasync", 9) == 0 ||
	       strncmp(statement, "sync", 4) == 0 ||
	       strncmp(statement, "flush", 5) == 0 || strncmp(statement, "scrub", 5) == 0 ||
	       strncmp(statement, "resize", 6) == 0;
}

/* ------------------------------------------------------------------ paths */

/* Looks a path up; the count stays raised. */
static int find(struct core *core, const char *path, struct core_attr *attr)
{
	uint64_t at = INO_ROOT;
	int rc = core_getattr(core, VIEW_BASE, at, attr);

	while (rc == 0 && *path != '\0') {
		size_t len = strcspn(path, "/");

		rc = core_lookup(core, VIEW_BASE, at, path, len, attr);
		if (at != INO_ROOT)
			core_forget(core, at, 1);
		at = attr->ino;
		path += len + (path[len] == '/');
	}
	return rc;
}

static void forget(struct core *core, const struct core_attr *attr)
{
	if (attr->ino != INO_ROOT)
		core_forget(core, attr->ino, 1);
}

/* The directory and the last name of a path. */
static int find_parent(struct core *core, const char *path, struct core_attr *parent,
		       const char **name)
{
	const char *slash = strrchr(path, '/');
	char dir[64] = "";

	*name = slash ? slash + 1 : path;
	if (slash)
		snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
	return find(core, dir, parent);
}

/* ------------------------------------------------------------- statements */

struct words {
	char verb[16], p[64], q[64];
	uint64_t a, b, c;
};

static int make_nameless(struct core *core, const struct words *w, uint64_t parent,
			 const char *name)
{
	struct core_attr attr, linked;
	uint8_t *buf = malloc(w->a + 1);
	int rc;

	check(buf != NULL);
	rig_fill(buf, w->a, w->b);
	rc = core_tmpfile(core, VIEW_BASE, &cred, parent, 0644, &attr);
	if (rc == 0) {
		rc = core_write(core, VIEW_BASE, attr.ino, 0, buf, w->a, 0);
		if (rc == 0)
			rc = core_link(core, VIEW_BASE, attr.ino, parent, name, strlen(name),
				       &linked);
		if (rc == 0)
			forget(core, &linked);
		forget(core, &attr);
	}
	free(buf);
	return rc;
}

static int move_name(struct core *core, const struct words *w, uint64_t parent, const char *name)
{
	struct core_attr other;
	const char *other_name;
	int rc = find_parent(core, w->q, &other, &other_name);

	if (rc)
		return rc;
	if (strcmp(w->verb, "whiteout") == 0)
		rc = core_rename_whiteout(core, VIEW_BASE, &cred, parent, name, strlen(name),
					  other.ino, other_name, strlen(other_name), 0);
	else
		rc = core_rename(core, VIEW_BASE, parent, name, strlen(name), other.ino,
				 other_name, strlen(other_name),
				 w->verb[0] == 'e' ? CORE_RENAME_EXCHANGE : 0);
	forget(core, &other);
	return rc;
}

static int on_parent(struct core *core, const struct words *w)
{
	struct core_attr parent, attr;
	const char *name;
	int rc = find_parent(core, w->p, &parent, &name);
	size_t len;

	if (rc)
		return rc;
	len = strlen(name);
	if (strcmp(w->verb, "create") == 0 || strcmp(w->verb, "mkdir") == 0) {
		uint32_t mode = w->verb[0] == 'c' ? S_IFREG | 0644 : S_IFDIR | 0755;

		rc = core_create(core, VIEW_BASE, &cred, parent.ino, name, len, mode, 0, &attr);
		if (rc == 0)
			forget(core, &attr);
	} else if (strcmp(w->verb, "symlink") == 0) {
		rc = core_symlink(core, VIEW_BASE, &cred, parent.ino, name, len, w->q, strlen(w->q),
				  &attr);
		if (rc == 0)
			forget(core, &attr);
	} else if (strcmp(w->verb, "tmplink") == 0) {
		rc = make_nameless(core, w, parent.ino, name);
	} else if (strcmp(w->verb, "unlink") == 0) {
		rc = core_unlink(core, VIEW_BASE, parent.ino, name, len);
	} else if (strcmp(w->verb, "rmdir") == 0) {
		rc = core_rmdir(core, VIEW_BASE, parent.ino, name, len);
	} else {
		rc = move_name(core, w, parent.ino, name);
	}
	forget(core, &parent);
	return rc;
}

static int link_name(struct core *core, const struct words *w, const struct core_attr *target)
{
	struct core_attr parent, attr;
	const char *name;
	int rc = find_parent(core, w->q, &parent, &name);

	if (rc)
		return rc;
	rc = core_link(core, VIEW_BASE, target->ino, parent.ino, name, strlen(name), &attr);
	if (rc == 0)
		forget(core, &attr);
	forget(core, &parent);
	return rc;
}

static int copy_to(struct core *core, const struct words *w, const struct core_attr *from)
{
	struct core_attr to;
	uint64_t done = 0;
	int rc = find(core, w->q, &to);

	if (rc)
		return rc;
	rc = core_copy(core, VIEW_BASE, from->ino, 0, to.ino, 0, from->size, &done);
	forget(core, &to);
	return rc;
}

static int put_bytes(struct core *core, const struct words *w, const struct core_attr *attr)
{
	bool append = w->verb[0] == 'a';
	uint64_t len = append ? w->a : w->b;
	uint8_t *buf = malloc(len + 1);
	int rc;

	check(buf != NULL);
	rig_fill(buf, len, append ? w->b : w->c);
	if (strcmp(w->verb, "setx") == 0)
		rc = core_setxattr(core, VIEW_BASE, attr->ino, w->q, buf, w->a, 0);
	else
		rc = core_write(core, VIEW_BASE, attr->ino, append ? 0 : w->a, buf, len,
				append ? CORE_WRITE_APPEND : 0);
	free(buf);
	return rc;
}

/* An ACL with user 1000, whose mask is `a`: the default one of a directory, or access. */
static int set_acl(struct core *core, const struct words *w, const struct core_attr *attr)
{
	const uint8_t list[] = ACL_EXAMPLE((uint8_t)w->a);
	const char *name = w->verb[0] == 'd' ? ACL_DEFAULT_NAME : ACL_ACCESS_NAME;

	return core_setxattr(core, VIEW_BASE, attr->ino, name, list, sizeof(list), 0);
}

static int on_inode(struct core *core, const struct words *w)
{
	struct core_attr attr, set;
	int rc = find(core, w->p, &attr);

	if (rc)
		return rc;
	set = attr;
	if (strcmp(w->verb, "write") == 0 || strcmp(w->verb, "append") == 0) {
		rc = put_bytes(core, w, &attr);
	} else if (strcmp(w->verb, "setx") == 0) {
		struct words x = *w;

		x.b = w->a; /* length of the buffer to fill; c is the seed */
		x.c = w->b;
		rc = put_bytes(core, &x, &attr);
	} else if (strcmp(w->verb, "rmx") == 0) {
		rc = core_removexattr(core, VIEW_BASE, attr.ino, w->q);
	} else if (strcmp(w->verb, "falloc") == 0) {
		rc = core_fallocate(core, VIEW_BASE, attr.ino, 0, w->a, w->b);
	} else if (strcmp(w->verb, "fallock") == 0) {
		rc = core_fallocate(core, VIEW_BASE, attr.ino, CORE_KEEP_SIZE, w->a, w->b);
	} else if (strcmp(w->verb, "punch") == 0) {
		rc = core_fallocate(core, VIEW_BASE, attr.ino, CORE_PUNCH_HOLE | CORE_KEEP_SIZE,
				    w->a, w->b);
	} else if (strcmp(w->verb, "zero") == 0) {
		rc = core_fallocate(core, VIEW_BASE, attr.ino, CORE_ZERO_RANGE, w->a, w->b);
	} else if (strcmp(w->verb, "trunc") == 0) {
		set.size = w->a;
		rc = core_setattr(core, VIEW_BASE, attr.ino, CORE_SET_SIZE, &set);
	} else if (strcmp(w->verb, "acl") == 0 || strcmp(w->verb, "dacl") == 0) {
		rc = set_acl(core, w, &attr);
	} else if (strcmp(w->verb, "chmod") == 0) {
		set.mode = (attr.mode & S_IFMT) | (uint32_t)w->a;
		rc = core_setattr(core, VIEW_BASE, attr.ino, CORE_SET_MODE, &set);
	} else if (strcmp(w->verb, "link") == 0) {
		rc = link_name(core, w, &attr);
	} else if (strcmp(w->verb, "copy") == 0) {
		rc = copy_to(core, w, &attr);
	} else if (strcmp(w->verb, "fsync") == 0) {
		rc = core_fsync(core, VIEW_BASE, attr.ino, false);
	} else if (strcmp(w->verb, "fdatasync") == 0) {
		rc = core_fsync(core, VIEW_BASE, attr.ino, true);
	} else if (strcmp(w->verb, "hold") == 0) {
		return 0;
	} else {
		check(strcmp(w->verb, "drop") == 0);
		forget(core, &attr);
	}
	forget(core, &attr);
	return rc;
}

static int scrub(struct volume *volume)
{
	int rc = flush_everything(volume->flusher);

	return rc ? rc : flusher_scrub_all(volume->flusher);
}

static int resize(struct volume *volume, const char *kib)
{
	char why[LOG_RESIZE_TEXT_BYTES];

	return log_resize(volume, strtoull(kib, NULL, 10) * 1024, why);
}

static int settle(struct volume *volume)
{
	int rc = log_mark(volume->log, log_next_lsn(volume->log));

	if (rc == 0)
		rc = flush_everything(volume->flusher);
	space_advance(volume->space);
	return rc;
}

static int grow(struct volume *volume, const char *kib)
{
	char text[GROW_TEXT_BYTES];

	return volume_grow(volume, strtoull(kib, NULL, 10) * 1024, text);
}

static int trim(struct volume *volume)
{
	struct space_trim job = {.end = UINT64_MAX, .shortest = 1};
	int rc;

	space_advance(volume->space); /* what may be had, as background threads would */
	do {
		rc = space_trim_step(volume->space, &job);
	} while (rc > 0);
	return rc;
}

/* Changes that change nothing, until so many bytes are left of the log's lap, or less. */
static int go_on_in_lap(struct core *core, const char *bytes)
{
	struct volume *volume = core_volume(core);
	uint64_t left = strtoull(bytes, NULL, 10), written = 0;
	struct core_attr attr;
	int rc = 0;

	while (rc == 0 && log_lap_left(&volume->log->shape, log_next_lsn(volume->log)) > left) {
		rc = core_getattr(core, VIEW_BASE, INO_ROOT, &attr);
		if (rc == 0)
			rc = core_setattr(core, VIEW_BASE, INO_ROOT, CORE_SET_MODE, &attr);
		if (rc == 0 && written++ % 256 == 0)
			rc = flush_everything(volume->flusher);
	}
	return rc;
}

int script_run(struct core *core, const char *statement)
{
	struct volume *volume = core_volume(core);
	struct words w = {0};
	static const char *const of_parent[] = {"create", "mkdir", "symlink", "unlink", "rmdir",
						"rename", "exchange", "whiteout", "tmplink"};
	static const char *const with_q[] = {"symlink", "link", "rename", "exchange", "whiteout",
					     "setx", "rmx", "copy"};
	struct batch_result written;
	const char *rest;
	int at = 0;

	check(sscanf(statement, "%15s %n", w.verb, &at) == 1);
	rest = statement + at;
	if (strcmp(w.verb, "sync") == 0)
		return volume_sync(volume);
	if (strcmp(w.verb, "flush") == 0)
		return flush_everything(volume->flusher);
	if (strcmp(w.verb, "purge") == 0)
		return purge_drain(volume->purge, NULL);
	if (strcmp(w.verb, "advance") == 0)
		return space_advance(volume->space), 0;
	if (strcmp(w.verb, "writeback") == 0)
		return flush_batch(volume->flusher, LSN_MAX, true, &written);
	if (strcmp(w.verb, "checkpoint") == 0)
		return flush_checkpoint(volume->flusher, 0);
	if (strcmp(w.verb, "scrub") == 0)
		return scrub(volume);
	if (strcmp(w.verb, "resize") == 0)
		return resize(volume, rest);
	if (strcmp(w.verb, "grow") == 0)
		return grow(volume, rest);
	if (strcmp(w.verb, "trim") == 0)
		return trim(volume);
	if (strcmp(w.verb, "settle") == 0)
		return settle(volume);
	if (strcmp(w.verb, "lap") == 0)
		return go_on_in_lap(core, rest);
	check(sscanf(rest, "%63s %n", w.p, &at) == 1);
	rest += at;
	for (size_t i = 0; i < array_count(with_q); i++) {
		if (strcmp(w.verb, with_q[i]) == 0) {
			check(sscanf(rest, "%63s %n", w.q, &at) == 1);
			rest += at;
		}
	}
	if (strcmp(w.verb, "chmod") == 0)
		sscanf(rest, "%" SCNo64, &w.a);
	else
		sscanf(rest, "%" SCNu64 " %" SCNu64 " %" SCNu64, &w.a, &w.b, &w.c);
	for (size_t i = 0; i < array_count(of_parent); i++)
		if (strcmp(w.verb, of_parent[i]) == 0)
			return on_parent(core, &w);
	return on_inode(core, &w);
}

/* --------------------------------------------------------------- snapshot */

struct lines {
	char **line;
	size_t count, cap;
	bool failed;
};

static void add_line(struct lines *lines, char *line)
{
	if (lines->count == lines->cap) {
		lines->cap = lines->cap ? lines->cap * 2 : 32;
		lines->line = realloc(lines->line, lines->cap * sizeof(*lines->line));
		check(lines->line != NULL);
	}
	lines->line[lines->count++] = line;
}

static bool read_crc(struct core *core, const struct core_attr *attr, uint32_t *crc)
{
	static _Thread_local uint8_t buf[256 * 1024];
	uint64_t offset = 0;
	size_t done;

	*crc = 0;
	do {
		if (core_read(core, VIEW_BASE, attr->ino, offset, buf, sizeof(buf), &done))
			return false;
		*crc = crc32c(*crc, buf, done);
		offset += done;
	} while (done > 0 && offset < attr->size);
	return offset == attr->size;
}

static bool describe_xattrs(struct core *core, uint64_t ino, uint32_t *crc)
{
	static _Thread_local uint8_t value[XATTR_VALUE_MAX];
	char list[4096];
	size_t len, value_len;

	*crc = 0;
	if (core_listxattr(core, VIEW_BASE, ino, list, sizeof(list), &len))
		return false;
	/* Sums of CRCs: their order is that of hashes, which does not matter. */
	for (size_t at = 0; at < len; at += strlen(list + at) + 1) {
		if (core_getxattr(core, VIEW_BASE, ino, list + at, value, sizeof(value),
				  &value_len))
			return false;
		*crc += crc32c(crc32c(0, list + at, strlen(list + at)), value, value_len);
	}
	return true;
}

static void describe(struct core *core, const char *path, const struct core_attr *attr,
		     struct lines *lines)
{
	uint32_t contents = 0, xattrs = 0;
	char target[SYMLINK_BYTES_MAX + 1] = "";
	char *line;
	bool ok = describe_xattrs(core, attr->ino, &xattrs);

	if (ok && S_ISREG(attr->mode))
		ok = read_crc(core, attr, &contents);
	if (ok && S_ISLNK(attr->mode))
		ok = core_readlink(core, VIEW_BASE, attr->ino, target) == 0;
	if (!ok) {
		fprintf(stderr, "snapshot: %s cannot be read\n", path);
		lines->failed = true;
	}
	check(asprintf(&line, "%s %o nlink %u size %" PRIu64 " xattrs %08x crc %08x %s\n",
		       path, attr->mode, attr->nlink, attr->size, xattrs, contents, target) > 0);
	add_line(lines, line);
}

struct dir_names {
	char **name;
	unsigned count;
};

static int collect(void *arg, const struct core_dirent *entry)
{
	struct dir_names *names = arg;

	if (entry->cookie <= 2)
		return 0;
	names->name = realloc(names->name, (names->count + 1) * sizeof(*names->name));
	check(names->name != NULL);
	names->name[names->count] = strndup(entry->name, entry->name_len);
	check(names->name[names->count++] != NULL);
	return 0;
}

static void walk(struct core *core, uint64_t ino, const char *path, struct lines *lines)
{
	struct dir_names names = {0};

	if (core_readdir(core, VIEW_BASE, ino, 0, false, collect, &names)) {
		fprintf(stderr, "snapshot: directory %s cannot be read\n", path);
		lines->failed = true;
	}
	for (unsigned i = 0; i < names.count; i++) {
		struct core_attr attr;
		char *child;

		check(asprintf(&child, "%s/%s", path, names.name[i]) > 0);
		if (core_lookup(core, VIEW_BASE, ino, names.name[i], strlen(names.name[i]),
				&attr)) {
			fprintf(stderr, "snapshot: %s is listed but not found\n", child);
			lines->failed = true;
		} else {
			describe(core, child, &attr, lines);
			if (S_ISDIR(attr.mode))
				walk(core, attr.ino, child, lines);
			core_forget(core, attr.ino, 1);
		}
		free(child);
		free(names.name[i]);
	}
	free(names.name);
}

static int line_order(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

char *core_snapshot(struct core *core)
{
	struct lines lines = {0};
	struct core_attr root;
	size_t len = 1;
	char *text;

	if (core_getattr(core, VIEW_BASE, INO_ROOT, &root))
		return NULL;
	describe(core, ".", &root, &lines);
	walk(core, INO_ROOT, ".", &lines);
	qsort(lines.line, lines.count, sizeof(*lines.line), line_order);
	for (size_t i = 0; i < lines.count; i++)
		len += strlen(lines.line[i]);
	text = calloc(1, len);
	check(text != NULL);
	for (size_t i = 0; i < lines.count; i++) {
		strcat(text, lines.line[i]);
		free(lines.line[i]);
	}
	free(lines.line);
	if (lines.failed) {
		free(text);
		return NULL;
	}
	return text;
}
