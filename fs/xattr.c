/*
 * Extended attributes.
 *
 * Key: the inode and the name's hash, as for directory entries (name.h).  A
 * value that fits is in the record; a longer one in a LOB of its own that never
 * changes: a new value gets a new LOB, and the old one goes to purge in the same
 * mini-transaction.
 *
 *	INV-XATTR-1  the inode's xattr_count is the number of its xattrs; so an inode
 *	             without any (nearly all, and the kernel asks before each write)
 *	             needs no search
 *
 * Locks: the inode's, S to read, X to change.
 */
#include "fs/acl_store.h"
#include "fs/core_internal.h"
#include "fs/name.h"
#include "fs/xattr_record.h"

#include "engine/lob.h"

#include <stdlib.h>

static int name_length(const char *name, size_t *len)
{
	*len = strnlen(name, NAME_BYTES_MAX + 1);
	return *len == 0 || *len > NAME_BYTES_MAX ? -ERANGE : 0;
}

static uint32_t value_blocks(size_t len)
{
	return (uint32_t)((len + BLOCK_SIZE - 1) / BLOCK_SIZE);
}

/* --- reading ------------------------------------------------------------- */

static int read_external(struct core *core, uint64_t ino, const struct xattr_entry *entry,
			 void *value)
{
	struct lob_source source = {.ino = ino, .lob = entry->lob};
	uint32_t blocks = value_blocks(entry->value_len);
	uint8_t *buf;
	int rc;

	if (blocks == 0)
		return corrupt_at(core->volume, 0, "xattr", "empty value in a LOB");
	buf = malloc((size_t)blocks * BLOCK_SIZE);
	if (!buf)
		return -ENOMEM;
	rc = contents_read(core, &source, 0, blocks, buf, NULL);
	if (rc == 0)
		memcpy(value, buf, entry->value_len);
	free(buf);
	return rc;
}

static int getxattr_locked(struct core *core, uint64_t ino, const char *name, size_t name_len,
			   void *value, size_t cap, size_t *len)
{
	struct xattr_entry entry;
	int rc;

	rc = xattr_find(core->volume, ino, name, name_len, value, cap, &entry);
	if (rc)
		return rc;
	if (!entry.found)
		return -ENODATA;
	*len = entry.value_len;
	if (cap == 0)
		return 0;
	if (cap < entry.value_len)
		return -ERANGE;
	return entry.lob ? read_external(core, ino, &entry, value) : 0;
}

/* INV-XATTR-1 */
static int has_xattrs(struct core *core, uint64_t ino, bool *has)
{
	struct record record;
	int rc = record_read(core->volume, ino, &record, NULL);

	*has = rc == 0 && record.xattr_count > 0;
	return rc;
}

int core_getxattr(struct core *core, view_t view, uint64_t ino, const char *name, void *value,
		  size_t cap, size_t *len)
{
	struct inode *inode;
	size_t name_len;
	bool has;
	int rc = core_view(view);

	*len = 0;
	if (rc == 0)
		rc = name_length(name, &name_len);
	if (rc == 0)
		rc = has_xattrs(core, ino, &has);
	if (rc == 0 && !has)
		rc = -ENODATA;
	if (rc == 0)
		rc = lock_inode(core, ino, false, &inode);
	if (rc)
		return error_errno(rc);
	rc = getxattr_locked(core, ino, name, name_len, value, cap, len);
	unlock_inode(core, inode, false);
	return error_errno(rc);
}

static int list_locked(struct core *core, uint64_t ino, char *list, size_t cap, size_t *len)
{
	struct volume *volume = core->volume;
	struct tree_cursor cursor;
	uint8_t from[KEY_XATTR_BYTES];
	int rc;

	name_key(from, ino, 0);
	rc = tree_cursor_open(&cursor, &volume->index[INDEX_XATTRS], from, sizeof(from));
	while (rc == 0 && (rc = tree_cursor_next(&cursor)) == 0) {
		struct xattr_view view;

		if (be64_get(cursor.key.bytes) != ino)
			break;
		rc = xattr_decode(volume, cursor.value, cursor.value_len, &view);
		if (rc)
			break;
		if (*len + view.name_len + 1 <= cap) {
			memcpy(list + *len, view.name, view.name_len);
			list[*len + view.name_len] = '\0';
		}
		*len += view.name_len + 1u;
	}
	tree_cursor_close(&cursor);
	if (rc && rc != -BE_END)
		return rc;
	return cap > 0 && *len > cap ? -ERANGE : 0;
}

int core_listxattr(struct core *core, view_t view, uint64_t ino, char *list, size_t cap,
		   size_t *len)
{
	struct inode *inode;
	bool has;
	int rc = core_view(view);

	*len = 0;
	if (rc == 0)
		rc = has_xattrs(core, ino, &has);
	if (rc || !has)
		return error_errno(rc);
	rc = lock_inode(core, ino, false, &inode);
	if (rc)
		return error_errno(rc);
	rc = list_locked(core, ino, list, cap, len);
	unlock_inode(core, inode, false);
	return error_errno(rc);
}

/* --- changing ------------------------------------------------------------ */

struct xattr_args {
	uint64_t ino;
	const char *name;
	size_t name_len;
	const void *value;
	size_t len;
	unsigned flags;
	bool remove;
	bool is_acl;
	enum acl_kind kind;
	struct acl *acl; /* to set; NULL: no ACL, or removed */
};

/* What one change does. */
struct xattr_change {
	const struct xattr_args *args;
	struct xattr_entry entry;
	uint64_t lob;         /* of the new value; 0: in the record */
	struct lob_new new;
	uint8_t *data;        /* its blocks, owned */
	uint64_t purge_key;   /* for the old value's LOB; 0: it had none */
	bool keeps;           /* there is an xattr afterwards */
};

/* INV-ACL-3 */
static void stage_mode(const struct xattr_args *args, struct record *record)
{
	if (!args->acl || args->kind != ACL_ACCESS)
		return;
	record->mode = acl_mode(args->acl, record->mode);
	if (args->flags & CORE_XATTR_KILL_SGID)
		record->mode &= ~(uint32_t)S_ISGID;
}

static int prepare_external(struct core *core, struct xattr_change *change)
{
	const struct xattr_args *args = change->args;
	uint32_t blocks = value_blocks(args->len);
	int rc;

	change->data = calloc(blocks, BLOCK_SIZE);
	if (!change->data)
		return -ENOMEM;
	memcpy(change->data, args->value, args->len);
	rc = id_take(core->volume, COUNTER_LOB, &change->lob);
	if (rc == 0)
		rc = lob_prepare(core->volume, 0, blocks, change->data, 0, 0, &change->new);
	return rc;
}

static void want_change(struct mtr *m, void *arg)
{
	const struct xattr_change *change = arg;

	mtr_want_key(m, INDEX_XATTRS, change->entry.key, sizeof(change->entry.key));
	if (change->lob)
		lob_want_publish(m, change->lob, &change->new);
	if (change->purge_key)
		purge_want(m, change->purge_key);
}

static int stage_change(struct mtr *m, struct record *record, void *arg)
{
	struct xattr_change *change = arg;
	const struct xattr_args *args = change->args;
	const struct xattr_entry *entry = &change->entry;
	int64_t delta;
	uint64_t done;
	int rc = 0;

	if (change->lob)
		rc = lob_stage_replace(m, change->lob, 0, change->new.blocks, &change->new, &delta,
				       &done);
	if (rc)
		return rc;
	if (change->keeps) {
		xattr_put(m, entry, args->name, args->name_len, args->value, args->len,
			  change->lob);
		record->xattr_count += !entry->found;
	} else if (entry->found) {
		mtr_delete(m, INDEX_XATTRS, entry->key, sizeof(entry->key));
		record->xattr_count -= record->xattr_count > 0;
	}
	stage_mode(args, record);
	if (entry->lob)
		purge_stage(m, change->purge_key, PURGE_LOB, args->ino, entry->lob, 0, UINT64_MAX);
	record_changed(record, os_realtime());
	os_point("core:xattr_commit");
	return 0;
}

static int commit_change(struct core *core, struct xattr_change *change)
{
	const struct record_change how = {
		.flags = change->keeps ? 0 : MTR_PRIVILEGED,
		.want = want_change,
		.stage = stage_change,
	};
	struct record record;

	return record_change(core->volume, change->args->ino, &how, change, &record);
}

static int judge(const struct xattr_args *args, const struct xattr_entry *entry)
{
	if (!entry->found && (args->remove || (args->flags & CORE_XATTR_REPLACE)))
		return -ENODATA;
	if (entry->found && (args->flags & CORE_XATTR_CREATE))
		return -EEXIST;
	return entry->full ? -BE_NAMES : 0;
}

static int judge_acl(const struct volume *volume, const struct xattr_args *args,
		     const struct record *record)
{
	if (S_ISLNK(record->mode))
		return -EOPNOTSUPP;
	if (args->acl && args->kind == ACL_DEFAULT && !S_ISDIR(record->mode))
		return -EACCES;
	/* INV-ACL-4 */
	return args->acl && !xattr_fits_record(volume, args->name_len, args->len) ? -E2BIG : 0;
}

static int change_locked(struct core *core, const struct xattr_args *args)
{
	struct volume *volume = core->volume;
	struct xattr_change change = {.args = args, .keeps = !args->remove};
	struct record record;
	int rc;

	if (args->acl && args->kind == ACL_ACCESS && acl_is_minimal(args->acl))
		change.keeps = false; /* INV-ACL-2 */
	rc = record_read(volume, args->ino, &record, NULL);
	if (rc == 0 && record_is_frozen(&record))
		rc = -EPERM;
	if (rc == 0 && args->is_acl)
		rc = judge_acl(volume, args, &record);
	if (rc == 0)
		rc = xattr_find(volume, args->ino, args->name, args->name_len, NULL, 0,
				&change.entry);
	if (rc == 0)
		rc = judge(args, &change.entry);
	if (rc == 0 && change.entry.lob)
		rc = id_take(volume, COUNTER_PURGE, &change.purge_key);
	if (rc == 0 && change.keeps && !xattr_fits_record(volume, args->name_len, args->len))
		rc = prepare_external(core, &change);
	if (rc == 0)
		rc = commit_change(core, &change);
	if (rc)
		lob_abandon(volume, &change.new);
	else
		lob_published(&change.new);
	free(change.data);
	return rc;
}

static int change_once(struct core *core, void *arg)
{
	const struct xattr_args *args = arg;
	struct inode *inode;
	int rc;

	rc = lock_inode(core, args->ino, true, &inode);
	if (rc)
		return rc;
	rc = change_locked(core, args);
	unlock_inode(core, inode, true);
	if (rc == 0)
		purge_kick(core->volume->purge); /* perhaps for an old value */
	return rc;
}

/* -ENODATA of a list that is set to nothing is success: it says no more than the mode. */
static int set_acl(struct core *core, view_t view, struct xattr_args *args)
{
	struct acl acl;
	int rc = acl_parse(args->value, args->len, &acl);

	if (rc)
		return rc;
	args->acl = &acl;
	if (acl.len == 0) {
		args->acl = NULL;
		args->remove = true;
	}
	rc = core_change(core, view, change_once, args);
	return args->remove && rc == -ENODATA ? 0 : rc;
}

int core_setxattr(struct core *core, view_t view, uint64_t ino, const char *name, const void *value,
		  size_t len, unsigned flags)
{
	const unsigned known = CORE_XATTR_CREATE | CORE_XATTR_REPLACE | CORE_XATTR_KILL_SGID;
	struct xattr_args args = {
		.ino = ino,
		.name = name,
		.value = value,
		.len = len,
		.flags = flags,
	};
	int rc = name_length(name, &args.name_len);

	if (rc)
		return rc;
	if (flags & ~known)
		return -EINVAL;
	if (len > XATTR_VALUE_MAX)
		return -E2BIG;
	args.is_acl = acl_kind_of(name, args.name_len, &args.kind);
	return args.is_acl ? set_acl(core, view, &args)
			   : core_change(core, view, change_once, &args);
}

int core_removexattr(struct core *core, view_t view, uint64_t ino, const char *name)
{
	struct xattr_args args = {.ino = ino, .name = name, .remove = true};
	int rc = name_length(name, &args.name_len);

	if (rc)
		return rc;
	args.is_acl = acl_kind_of(name, args.name_len, &args.kind);
	return core_change(core, view, change_once, &args);
}
