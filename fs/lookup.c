/*
 * Looking names up and listing directories.  Neither takes a lock.
 *
 * A look-up reads the entry, raises the inode's count, reads the inode.  When
 * the inode has lost its last name meanwhile, the entry must be gone or name
 * another inode by then, because one mini-transaction did both: it is read
 * again.  An entry that keeps naming an inode without names is corruption.
 */
#include "fs/core_internal.h"
#include "fs/name.h"

#include <dirent.h>

static int directory_head(struct core *core, uint64_t ino, struct record *record)
{
	int rc = record_read(core->volume, ino, record, NULL);

	if (rc == 0 && !S_ISDIR(record->mode))
		return -ENOTDIR;
	return rc;
}

/* (+1) The inode that `name` refers to. */
static int attach_name(struct core *core, uint64_t parent, const char *name, size_t len,
		       uint64_t *child, struct record *record)
{
	uint64_t nameless = 0;
	int rc;

	for (unsigned tries = 0; tries < RESTARTS_MAX; tries++) {
		struct name_entry entry;

		rc = name_find(core->volume, parent, name, len, &entry);
		if (rc)
			return rc;
		if (!entry.found)
			return -ENOENT;
		if (entry.child == nameless)
			return corrupt_at(core->volume, 0, "directory entry",
					  "names an inode that has no names");
		os_point("core:found_name");
		rc = core_attach(core, entry.child, record);
		*child = entry.child;
		if (rc != -ENOENT)
			return rc;
		nameless = entry.child;
	}
	return -BE_AGAIN;
}

static int look_up(struct core *core, uint64_t parent, const char *name, size_t len, uint64_t *ino,
		   struct record *record)
{
	int rc = directory_head(core, parent, record);

	if (rc)
		return rc;
	if (name_is_dot_dot(name, len)) {
		*ino = record->parent;
		return core_attach(core, *ino, record);
	}
	rc = name_check(name, len);
	if (rc)
		return rc;
	return attach_name(core, parent, name, len, ino, record);
}

int core_lookup(struct core *core, view_t view, uint64_t parent, const char *name, size_t name_len,
		struct core_attr *attr)
{
	struct record record;
	uint64_t ino = parent;
	int rc = core_view(view);

	if (rc)
		return rc;
	stat_add(&core->volume->stats, STAT_core_lookups, 1);
	if (name_is_dot(name, name_len)) /* of any inode: an exported handle is found so */
		rc = core_attach(core, ino, &record);
	else
		rc = look_up(core, parent, name, name_len, &ino, &record);
	if (rc == 0)
		core_attr_fill(core, &record, ino, attr);
	return error_errno(rc);
}

int core_readlink(struct core *core, view_t view, uint64_t ino, char *target)
{
	struct record_buffer buffer;
	struct record record;
	struct lob_source source;
	uint8_t block[BLOCK_SIZE];
	int rc = core_view(view);

	if (rc == 0)
		rc = record_read(core->volume, ino, &record, &buffer);
	if (rc)
		goto out;
	if (!S_ISLNK(record.mode)) {
		rc = -EINVAL;
		goto out;
	}
	if (record.size > SYMLINK_BYTES_MAX || (record.tail_len < record.size && !record.lob)) {
		rc = corrupt_at(core->volume, 0, "symlink", "impossible length");
		goto out;
	}
	if (record.lob) { /* never changes, so no lock: an open count keeps it */
		source = (struct lob_source){.ino = ino, .lob = record.lob};
		rc = contents_read(core, &source, 0, 1, block, NULL);
		if (rc)
			goto out;
	}
	memcpy(target, record.lob ? block : record.tail, record.size);
	target[record.size] = '\0';
out:
	return error_errno(rc);
}

/* --- readdir ------------------------------------------------------------- */

struct listing {
	struct core *core;
	uint64_t dir;
	bool with_attr;
	core_emit emit;
	void *arg;
};

/* 1: the reader is full. */
static int emit_dot(struct listing *l, const char *name, uint64_t ino, uint64_t cookie)
{
	struct record record;
	struct core_attr attr;
	struct core_dirent entry = {
		.name = name,
		.name_len = cookie,
		.ino = ino,
		.cookie = cookie,
		.type = S_IFDIR,
	};
	int rc;

	static_assert(DOT_COOKIE == 1 && DOT_DOT_COOKIE == 2, "each is the length of its name");
	if (l->with_attr) {
		rc = record_read(l->core->volume, ino, &record, NULL);
		if (rc)
			return rc;
		core_attr_fill(l->core, &record, ino, &attr);
		entry.attr = &attr;
	}
	return l->emit(l->arg, &entry);
}

static int emit_attached(struct listing *l, struct core_dirent *entry)
{
	struct record record;
	struct core_attr attr;
	int rc;

	/* By name: the leaf's copy may be older than a rename over the entry. */
	rc = attach_name(l->core, l->dir, entry->name, entry->name_len, &entry->ino, &record);
	if (rc)
		return rc == -ENOENT ? 0 : rc; /* removed meanwhile */
	core_attr_fill(l->core, &record, entry->ino, &attr);
	entry->attr = &attr;
	entry->type = record.mode & S_IFMT;
	rc = l->emit(l->arg, entry);
	if (rc)
		inode_forget(&l->core->table, entry->ino, 1);
	return rc;
}

static int emit_entry(struct listing *l, const struct dirent_view *d, uint64_t cookie)
{
	struct core_dirent entry = {
		.name = d->name,
		.name_len = d->name_len,
		.ino = d->child,
		.cookie = cookie,
		.type = DTTOIF(d->type),
	};

	return l->with_attr ? emit_attached(l, &entry) : l->emit(l->arg, &entry);
}

static int emit_entries(struct listing *l, uint64_t cookie)
{
	struct volume *volume = l->core->volume;
	struct tree_cursor cursor;
	uint8_t from[KEY_DIRENT_BYTES];
	int rc;

	if (cookie >= INT64_MAX)
		return 0;
	name_key(from, l->dir, cookie < SUFFIX_FIRST ? SUFFIX_FIRST : cookie + 1);
	rc = tree_cursor_open(&cursor, &volume->index[INDEX_DIRENTS], from, sizeof(from));
	while (rc == 0 && (rc = tree_cursor_next(&cursor)) == 0) {
		struct dirent_view d;

		if (cursor.key.len != KEY_DIRENT_BYTES) {
			rc = corrupt_at(volume, 0, "directory entry", "wrong key length");
			break;
		}
		if (be64_get(cursor.key.bytes) != l->dir)
			break;
		rc = dirent_decode(volume, cursor.value, cursor.value_len, &d);
		if (rc == 0)
			rc = emit_entry(l, &d, be64_get(cursor.key.bytes + 8));
	}
	tree_cursor_close(&cursor);
	return rc == -BE_END ? 0 : rc;
}

int core_readdir(struct core *core, view_t view, uint64_t ino, uint64_t cookie, bool with_attr,
		 core_emit emit, void *arg)
{
	struct listing l = {
		.core = core,
		.dir = ino,
		.with_attr = with_attr,
		.emit = emit,
		.arg = arg,
	};
	struct record record;
	int rc = core_view(view);

	if (rc)
		return rc;
	stat_add(&core->volume->stats, STAT_core_readdirs, 1);
	rc = directory_head(core, ino, &record);
	if (rc || record.nlink == 0) /* removed but still open: nothing, not even dots */
		goto out;
	if (cookie < DOT_COOKIE)
		rc = emit_dot(&l, ".", ino, DOT_COOKIE);
	if (rc == 0 && cookie < DOT_DOT_COOKIE)
		rc = emit_dot(&l, "..", record.parent, DOT_DOT_COOKIE);
	if (rc == 0)
		rc = emit_entries(&l, cookie);
out:
	return rc == 1 ? 0 : error_errno(rc);
}
