/*
 * Names that go: unlink, rmdir.
 *
 * INV-LOCK-1: the name is looked up, directory and inode are locked in order of
 * their numbers, and it is looked up again.
 *
 * One mini-transaction takes the entry out, updates both records and, with the
 * last name, inserts the purge record whose key the inode stores (INV-LOB-2).
 * The contents are purge's work, once nobody looks the inode up any more.
 *
 *	crash before the commit: nothing happened
 *	crash after it: the name is gone; recovery takes look-up counts as zero, so
 *	purge reclaims the inode
 */
#include "fs/core_internal.h"
#include "fs/name.h"

struct remove_args {
	uint64_t parent;
	const char *name;
	size_t name_len;
	bool directory;
};

int orphan_key(struct core *core, const struct record *record, uint64_t *key)
{
	*key = record->purge_key;
	return *key ? 0 : id_take(core->volume, COUNTER_PURGE, key);
}

void orphan_stage(struct mtr *m, uint64_t ino, struct record *record, uint64_t key)
{
	/* A pending dead range goes with the whole LOB: its record becomes the orphan's. */
	record->nlink = 0;
	record->purge_key = key;
	purge_stage(m, key, PURGE_ORPHAN, ino, record->lob, 0, UINT64_MAX);
}

int directory_is_empty(struct core *core, uint64_t ino)
{
	struct tree_cursor cursor;
	uint8_t from[KEY_DIRENT_BYTES];
	bool empty = true;
	int rc;

	name_key(from, ino, SUFFIX_FIRST);
	rc = tree_cursor_open(&cursor, &core->volume->index[INDEX_DIRENTS], from, sizeof(from));
	if (rc == 0)
		rc = tree_cursor_next(&cursor);
	if (rc == 0)
		empty = be64_get(cursor.key.bytes) != ino;
	tree_cursor_close(&cursor);
	if (rc && rc != -BE_END)
		return rc;
	return empty ? 0 : -ENOTEMPTY;
}

static int judge_parent(struct core *core, uint64_t ino)
{
	struct record parent;
	int rc = record_read(core->volume, ino, &parent, NULL);

	return rc == 0 && record_is_frozen(&parent) ? -EPERM : rc;
}

static int judge_child(struct core *core, uint64_t ino, const struct record *child, bool directory)
{
	if (record_is_frozen(child))
		return -EPERM;
	if (!directory)
		return S_ISDIR(child->mode) ? -EISDIR : 0;
	if (!S_ISDIR(child->mode))
		return -ENOTDIR;
	return directory_is_empty(core, ino);
}

static int commit_remove(struct core *core, const struct remove_args *args,
			 const struct name_entry *entry, uint64_t key, bool *last)
{
	struct timespec now = os_realtime();
	struct record parent, child;
	struct mtr *m;
	int rc;

	rc = mtr_begin(core->volume, MTR_PRIVILEGED, &m);
	if (rc)
		return rc;
	name_want(m, entry);
	record_want(m, args->parent);
	record_want(m, entry->child);
	if (key)
		purge_want(m, key);
	do {
		rc = mtr_latch(m);
		if (rc == 0)
			rc = name_recheck(core->volume, m, entry);
		if (rc == 0)
			rc = record_get(core->volume, m, args->parent, &parent);
		if (rc == 0)
			rc = record_get(core->volume, m, entry->child, &child);
		if (rc)
			break;
		name_delete(m, entry);
		record_loses_name(&parent, args->directory, now);
		record_changed(&child, now);
		*last = key != 0;
		if (*last)
			orphan_stage(m, entry->child, &child, key);
		else
			child.nlink--;
		record_put(m, args->parent, &parent);
		record_put(m, entry->child, &child);
		os_point("core:remove_commit");
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	return rc;
}

static int remove_locked(struct core *core, const struct remove_args *args, uint64_t locked_child,
			 const struct lock_set *locks)
{
	struct name_entry entry;
	struct record child;
	uint64_t key = 0;
	bool last = false;
	int rc;

	rc = name_find(core->volume, args->parent, args->name, args->name_len, &entry);
	if (rc == 0 && !entry.found)
		rc = -ENOENT;
	if (rc == 0)
		rc = judge_parent(core, args->parent);
	if (rc == 0 && entry.child != locked_child)
		rc = -BE_AGAIN;
	if (rc == 0 && entry.child == args->parent)
		rc = corrupt_at(core->volume, 0, "directory entry", "names its own directory");
	if (rc == 0)
		rc = record_read(core->volume, entry.child, &child, NULL);
	if (rc == 0)
		rc = judge_child(core, entry.child, &child, args->directory);
	if (rc == 0 && (args->directory || child.nlink <= 1))
		rc = orphan_key(core, &child, &key);
	if (rc)
		return rc;
	core_links_change(locks, entry.child);
	rc = commit_remove(core, args, &entry, key, &last);
	if (rc == 0 && last)
		core_orphaned(locks, entry.child);
	return rc;
}

static int remove_once(struct core *core, void *arg)
{
	const struct remove_args *args = arg;
	struct name_entry entry;
	struct lock_set locks;
	struct record parent;
	uint64_t inos[2];
	int rc;

	rc = record_read(core->volume, args->parent, &parent, NULL);
	if (rc == 0 && !S_ISDIR(parent.mode))
		rc = -ENOTDIR;
	if (rc == 0)
		rc = name_find(core->volume, args->parent, args->name, args->name_len, &entry);
	if (rc == 0 && !entry.found)
		rc = -ENOENT;
	if (rc)
		return rc;
	os_point("core:found_name");
	inos[0] = args->parent;
	inos[1] = entry.child;
	rc = lock_inodes(core, inos, array_count(inos), &locks);
	if (rc)
		return rc;
	rc = remove_locked(core, args, entry.child, &locks);
	unlock_inodes(core, &locks);
	return rc;
}

int core_unlink(struct core *core, view_t view, uint64_t parent, const char *name, size_t name_len)
{
	struct remove_args args = {.parent = parent, .name = name, .name_len = name_len};
	int rc = name_check(name, name_len);

	if (rc)
		return rc;
	if (name_is_dot(name, name_len) || name_is_dot_dot(name, name_len))
		return -EISDIR;
	stat_add(&core->volume->stats, STAT_core_unlinks, 1);
	purge_pace(core->volume);
	return core_change(core, view, remove_once, &args);
}

int core_rmdir(struct core *core, view_t view, uint64_t parent, const char *name, size_t name_len)
{
	struct remove_args args = {
		.parent = parent,
		.name = name,
		.name_len = name_len,
		.directory = true,
	};
	int rc = name_check(name, name_len);

	if (rc)
		return rc;
	if (name_is_dot(name, name_len))
		return -EINVAL;
	if (name_is_dot_dot(name, name_len))
		return -ENOTEMPTY;
	stat_add(&core->volume->stats, STAT_core_unlinks, 1);
	purge_pace(core->volume);
	return core_change(core, view, remove_once, &args);
}
