/*
 * New names: for new inodes (create, mkdir, mknod, symlink) and for old ones
 * (link); and new inodes that have none yet (tmpfile).
 *
 * The directory is locked X, so which names it has stands still while the free
 * key is searched.  A new inode needs no lock: nobody knows its number before
 * the commit.  Its look-up count is raised before the commit, because from then
 * on somebody else may remove it.
 *
 * One mini-transaction: entry, directory's record, inode's record (and a long
 * symlink's LOB; and the access control lists that its directory hands on).  A
 * crash leaves all of it or nothing.
 *
 * INV-LOB-2: a file without a name is made as an orphan, by the mini-transaction
 * that inserts its purge record; the one that gives it a name takes the record
 * back, or leaves it to the pending dead range that has none of its own.
 */
#include "fs/acl_store.h"
#include "fs/core_internal.h"
#include "fs/name.h"

#include "engine/lob.h"

struct create_args {
	const struct core_cred *cred;
	uint64_t parent;
	const char *name;
	size_t name_len;
	uint32_t mode, rdev;
	const char *target; /* of a symlink */
	size_t target_len;
	struct core_attr *attr;
};

/* What is made: found out under the directory's lock. */
struct creation {
	uint64_t ino;
	uint32_t mode;             /* with umask or default ACL applied */
	struct acl_inherited acls;
	uint64_t lob;              /* of a long symlink's target, else 0 */
	struct lob_new target;
};

/* May a name be made in the directory? */
static int judge_parent(const struct record *parent, bool new_directory)
{
	if (!S_ISDIR(parent->mode))
		return -ENOTDIR;
	if (parent->nlink == 0)
		return -ENOENT; /* removed, but still open somewhere */
	if (record_is_immutable(parent))
		return -EPERM;
	return new_directory && parent->nlink >= LINKS_MAX ? -EMLINK : 0;
}

static int judge_new_name(const char *name, size_t len)
{
	if (name_is_dot(name, len) || name_is_dot_dot(name, len))
		return -EEXIST;
	return name_check(name, len);
}

/* Where the new name goes, the directory being locked. */
static int find_free(struct core *core, uint64_t parent, const char *name, size_t len,
		     bool new_directory, struct record *head, struct name_entry *entry)
{
	int rc = record_read(core->volume, parent, head, NULL);

	if (rc == 0)
		rc = judge_parent(head, new_directory);
	if (rc == 0)
		rc = name_find(core->volume, parent, name, len, entry);
	if (rc)
		return rc;
	if (entry->found)
		return -EEXIST;
	return entry->full ? -BE_NAMES : 0;
}

/* --- new inodes ---------------------------------------------------------- */

int ino_take(struct core *core, uint64_t *ino)
{
	int rc = id_take(core->volume, COUNTER_INO, ino);

	return rc == 0 && *ino >> INO_BITS ? -BE_NAMES : rc;
}

/* The inode's number, and what its directory hands on. */
static int plan_inode(struct core *core, const struct create_args *args,
		      const struct record *parent, struct creation *made)
{
	int rc;

	made->mode = args->mode;
	made->lob = 0;
	rc = acl_inherit_from(core, args->parent, parent, args->cred->umask, &made->mode,
			      &made->acls);
	if (rc == 0)
		rc = ino_take(core, &made->ino);
	if (rc == 0)
		acl_inherited_place(core, &made->acls, made->ino);
	return rc;
}

void record_begin(const struct core_cred *cred, uint32_t mode, const struct record *parent,
		  struct timespec now, struct record *out)
{
	bool directory = S_ISDIR(mode);

	*out = (struct record){
		.mode = mode,
		.nlink = directory ? 2 : 1,
		.uid = cred->uid,
		.gid = cred->gid,
		.change = 1,
		.atime = now, .mtime = now, .ctime = now, .btime = now,
	};
	out->flags = parent->flags & (INODE_NODUMP | INODE_NOATIME);
	if (parent->mode & S_ISGID) {
		out->gid = parent->gid;
		out->mode |= directory ? S_ISGID : 0;
	}
}

static void new_record(const struct create_args *args, const struct creation *made,
		       const struct record *parent, struct timespec now, struct record *out)
{
	bool device = S_ISCHR(made->mode) || S_ISBLK(made->mode);

	record_begin(args->cred, made->mode, parent, now, out);
	out->rdev = device ? args->rdev : 0;
	out->parent = S_ISDIR(made->mode) ? args->parent : 0;
	out->size = args->target_len;
}

/* A symlink's target: inline where it fits, else one block of a LOB. */
static int prepare_target(struct core *core, const struct create_args *args,
			  uint8_t block[BLOCK_SIZE], struct creation *made)
{
	int rc;

	if (args->target_len <= INLINE_BYTES_MAX(core->volume->geo.page_size))
		return 0;
	rc = id_take(core->volume, COUNTER_LOB, &made->lob);
	if (rc)
		return rc;
	memset(block, 0, BLOCK_SIZE);
	memcpy(block, args->target, args->target_len);
	rc = lob_prepare(core->volume, 0, 1, block, 0, 0, &made->target);
	if (rc)
		made->lob = 0;
	return rc;
}

static int stage_target(struct mtr *m, const struct create_args *args, struct creation *made,
			struct record *record)
{
	int64_t delta;
	uint64_t done;
	int rc;

	if (!made->lob) {
		record->tail = (const uint8_t *)args->target;
		record->tail_len = (uint32_t)args->target_len;
		return 0;
	}
	rc = lob_stage_replace(m, made->lob, 0, 1, &made->target, &delta, &done);
	record->lob = made->lob;
	record->blocks = (uint64_t)delta;
	return rc;
}

static int commit_create(struct core *core, const struct create_args *args,
			 const struct name_entry *entry, struct creation *made)
{
	struct timespec now = os_realtime();
	struct record parent, record;
	struct mtr *m;
	int rc;

	rc = mtr_begin(core->volume, 0, &m);
	if (rc)
		return rc;
	name_want(m, entry);
	record_want(m, args->parent);
	record_want(m, made->ino);
	acl_inherited_want(m, &made->acls);
	if (made->lob)
		lob_want_replace(m, made->lob, 0, 1);
	do {
		rc = mtr_latch(m);
		if (rc == 0)
			rc = name_recheck(core->volume, m, entry);
		if (rc == 0)
			rc = record_get(core->volume, m, args->parent, &parent);
		if (rc)
			break;
		new_record(args, made, &parent, now, &record);
		rc = stage_target(m, args, made, &record);
		if (rc)
			break;
		record_gains_name(&parent, S_ISDIR(made->mode), now);
		acl_inherited_put(m, &made->acls, &record);
		record_put(m, args->parent, &parent);
		record_put(m, made->ino, &record);
		name_put(m, entry, made->ino, made->mode, args->name, args->name_len);
		os_point("core:create_commit");
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	if (rc == 0)
		core_attr_fill(core, &record, made->ino, args->attr);
	return rc;
}

/* (+1) of an inode that does not exist yet. */
static int attach_new(struct core *core, uint64_t ino)
{
	struct inode *inode;
	int rc = inode_pin(&core->table, ino, &inode);

	if (rc)
		return rc;
	inode_looked_up(&core->table, inode);
	inode_unpin(&core->table, inode);
	return 0;
}

static int create_locked(struct core *core, const struct create_args *args)
{
	struct name_entry entry;
	struct record parent;
	struct creation made;
	uint8_t block[BLOCK_SIZE]; /* of made.target */
	int rc;

	rc = find_free(core, args->parent, args->name, args->name_len, S_ISDIR(args->mode), &parent,
		       &entry);
	if (rc == 0)
		rc = plan_inode(core, args, &parent, &made);
	if (rc == 0)
		rc = attach_new(core, made.ino);
	if (rc)
		return rc;
	rc = prepare_target(core, args, block, &made);
	if (rc)
		goto out;
	rc = commit_create(core, args, &entry, &made);
	if (made.lob && rc)
		lob_abandon(core->volume, &made.target);
	else if (made.lob)
		lob_published(&made.target);
out:
	if (rc)
		inode_forget(&core->table, made.ino, 1);
	return rc;
}

static int create_once(struct core *core, void *arg)
{
	const struct create_args *args = arg;
	struct inode *parent;
	int rc = judge_new_name(args->name, args->name_len);

	if (rc)
		return rc;
	rc = lock_inode(core, args->parent, true, &parent);
	if (rc)
		return rc;
	rc = create_locked(core, args);
	unlock_inode(core, parent, true);
	if (rc == 0)
		census_created(&core->census);
	return rc;
}

int core_create(struct core *core, view_t view, const struct core_cred *cred, uint64_t parent,
		const char *name, size_t name_len, uint32_t mode, uint32_t rdev,
		struct core_attr *attr)
{
	struct create_args args = {
		.cred = cred,
		.parent = parent,
		.name = name,
		.name_len = name_len,
		.mode = mode & (S_IFMT | 07777),
		.rdev = rdev,
		.attr = attr,
	};

	switch (mode & S_IFMT) {
	case S_IFREG: case S_IFDIR: case S_IFCHR: case S_IFBLK: case S_IFIFO: case S_IFSOCK:
		break;
	default:
		return -EINVAL;
	}
	stat_add(&core->volume->stats, STAT_core_creates, 1);
	return core_change(core, view, create_once, &args);
}

int core_symlink(struct core *core, view_t view, const struct core_cred *cred, uint64_t parent,
		 const char *name, size_t name_len, const char *target, size_t target_len,
		 struct core_attr *attr)
{
	struct create_args args = {
		.cred = cred,
		.parent = parent,
		.name = name,
		.name_len = name_len,
		.mode = S_IFLNK | 0777,
		.target = target,
		.target_len = target_len,
		.attr = attr,
	};

	if (target_len == 0)
		return -ENOENT;
	if (target_len > SYMLINK_BYTES_MAX)
		return -ENAMETOOLONG;
	if (memchr(target, '\0', target_len))
		return -EINVAL;
	stat_add(&core->volume->stats, STAT_core_creates, 1);
	return core_change(core, view, create_once, &args);
}

/* --- no name yet --------------------------------------------------------- */

static int commit_tmpfile(struct core *core, const struct create_args *args,
			  const struct creation *made, const struct record *parent, uint64_t key)
{
	struct timespec now = os_realtime();
	struct record record;
	struct mtr *m;
	int rc;

	rc = mtr_begin(core->volume, 0, &m);
	if (rc)
		return rc;
	record_want(m, made->ino);
	acl_inherited_want(m, &made->acls);
	purge_want(m, key);
	do {
		rc = mtr_latch(m);
		if (rc)
			break;
		new_record(args, made, parent, now, &record);
		acl_inherited_put(m, &made->acls, &record);
		orphan_stage(m, made->ino, &record, key);
		record_put(m, made->ino, &record);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	if (rc == 0)
		record_attr(&record, made->ino, args->attr);
	return rc;
}

/* INV-INODE-4, INV-INODE-6: the inode's lock is held before purge can see it. */
static int tmpfile_locked(struct core *core, const struct create_args *args,
			  const struct creation *made, const struct record *parent,
			  struct inode *inode)
{
	uint64_t key;
	int rc = id_take(core->volume, COUNTER_PURGE, &key);

	if (rc)
		return rc;
	inode_looked_up(&core->table, inode);
	rc = commit_tmpfile(core, args, made, parent, key);
	if (rc) {
		inode_forget(&core->table, inode->ino, 1);
		return rc;
	}
	atomic_store(&inode->orphan, true);
	atomic_store(&inode->linkable, true);
	return 0;
}

static int tmpfile_once(struct core *core, void *arg)
{
	const struct create_args *args = arg;
	struct inode *inode;
	struct record parent;
	struct creation made;
	int rc;

	rc = record_read(core->volume, args->parent, &parent, NULL);
	if (rc == 0)
		rc = judge_parent(&parent, false);
	if (rc == 0)
		rc = plan_inode(core, args, &parent, &made);
	if (rc == 0)
		rc = lock_inode(core, made.ino, true, &inode);
	if (rc)
		return rc;
	rc = tmpfile_locked(core, args, &made, &parent, inode);
	unlock_inode(core, inode, true);
	if (rc == 0)
		census_created(&core->census);
	return rc;
}

int core_tmpfile(struct core *core, view_t view, const struct core_cred *cred, uint64_t parent,
		 uint32_t mode, struct core_attr *attr)
{
	struct create_args args = {
		.cred = cred,
		.parent = parent,
		.mode = S_IFREG | (mode & 07777),
		.attr = attr,
	};

	stat_add(&core->volume->stats, STAT_core_creates, 1);
	return core_change(core, view, tmpfile_once, &args);
}

/* --- another name -------------------------------------------------------- */

struct link_args {
	uint64_t ino, parent;
	const char *name;
	size_t name_len;
	struct core_attr *attr;
};

static struct inode *locked_inode(const struct lock_set *locks, uint64_t ino)
{
	unsigned i = 0;

	while (i < locks->count && locks->inode[i]->ino != ino)
		i++;
	check(i < locks->count && latch_held_x(&locks->inode[i]->lock));
	return locks->inode[i];
}

static int judge_link(const struct record *record, const struct inode *inode)
{
	if (S_ISDIR(record->mode) || record_is_frozen(record))
		return -EPERM;
	if (record->nlink == 0 && !atomic_load(&inode->linkable))
		return -ENOENT; /* what has lost its last name gets no new one */
	return record->nlink >= LINKS_MAX ? -EMLINK : 0;
}

/* INV-LOB-2, of an inode without names. */
static int stage_first_name(struct mtr *m, uint64_t ino, struct record *record)
{
	int rc = purge_take_back(m, record->purge_key, ino);

	if (rc)
		return rc;
	if (record_has_dead(record))
		purge_stage(m, record->purge_key, PURGE_DEAD, ino, record->lob, record->dead_first,
			    record->dead_end);
	else
		record->purge_key = 0;
	return 0;
}

/* `orphan_key`: of an inode without names; 0: it has one. */
static int commit_link(struct core *core, const struct link_args *args,
		       const struct name_entry *entry, uint64_t orphan_key)
{
	struct timespec now = os_realtime();
	struct record parent, record;
	struct mtr *m;
	int rc;

	rc = mtr_begin(core->volume, 0, &m);
	if (rc)
		return rc;
	name_want(m, entry);
	record_want(m, args->parent);
	record_want(m, args->ino);
	if (orphan_key)
		purge_want(m, orphan_key);
	do {
		rc = mtr_latch(m);
		if (rc == 0)
			rc = name_recheck(core->volume, m, entry);
		if (rc == 0)
			rc = record_get(core->volume, m, args->parent, &parent);
		if (rc == 0)
			rc = record_get(core->volume, m, args->ino, &record);
		if (rc == 0 && orphan_key)
			rc = stage_first_name(m, args->ino, &record);
		if (rc)
			break;
		record_gains_name(&parent, false, now);
		record.nlink++;
		record_changed(&record, now);
		record_put(m, args->parent, &parent);
		record_put(m, args->ino, &record);
		name_put(m, entry, args->ino, record.mode, args->name, args->name_len);
		os_point("core:link_commit");
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	if (rc == 0)
		core_attr_fill(core, &record, args->ino, args->attr);
	return rc;
}

static int link_once(struct core *core, void *arg)
{
	const struct link_args *args = arg;
	uint64_t inos[] = {args->parent, args->ino};
	struct name_entry entry;
	struct record parent, record;
	struct lock_set locks;
	struct inode *inode;
	int rc = judge_new_name(args->name, args->name_len);

	if (rc)
		return rc;
	rc = lock_inodes(core, inos, array_count(inos), &locks);
	if (rc)
		return rc;
	inode = locked_inode(&locks, args->ino);
	rc = record_read(core->volume, args->ino, &record, NULL);
	if (rc == 0)
		rc = judge_link(&record, inode);
	if (rc == 0)
		rc = find_free(core, args->parent, args->name, args->name_len, false, &parent,
			       &entry);
	if (rc == 0)
		rc = attach_new(core, args->ino);
	if (rc)
		goto out;
	core_links_change(&locks, args->ino);
	rc = commit_link(core, args, &entry, record.nlink == 0 ? record.purge_key : 0);
	if (rc) {
		inode_forget(&core->table, args->ino, 1);
		goto out;
	}
	atomic_store(&inode->orphan, false);
	atomic_store(&inode->linkable, false);
out:
	unlock_inodes(core, &locks);
	return rc;
}

int core_link(struct core *core, view_t view, uint64_t ino, uint64_t parent, const char *name,
	      size_t name_len, struct core_attr *attr)
{
	struct link_args args = {
		.ino = ino,
		.parent = parent,
		.name = name,
		.name_len = name_len,
		.attr = attr,
	};

	return core_change(core, view, link_once, &args);
}
