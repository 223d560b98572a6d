/*
 * Attributes.  Reading takes no lock: a record is one value of a tree.  A change
 * holds the inode's lock X, but for access times (atime.c).
 * Times are kept as given: 64 bits of seconds and nanoseconds.
 */
#include "fs/acl_store.h"
#include "fs/core_internal.h"

#define NSEC_PER_SEC 1000000000

int core_getattr(struct core *core, view_t view, uint64_t ino, struct core_attr *attr)
{
	struct record record;
	int rc = core_view(view);

	if (rc)
		return rc;
	stat_add(&core->volume->stats, STAT_core_getattrs, 1);
	rc = record_read(core->volume, ino, &record, NULL);
	if (rc == 0)
		core_attr_fill(core, &record, ino, attr);
	return error_errno(rc);
}

/*
 * INV-FLAG-1.  An append-only inode may be touched: atime is "now" then, mtime maybe
 * the kernel's own idea of it.  What the kernel kept is of writes that were allowed.
 */
static int judge_flags(const struct setattr_args *args, const struct record *record)
{
	const unsigned times = CORE_SET_ATIME | CORE_SET_MTIME | CORE_SET_CTIME |
			       CORE_SET_ATIME_NOW | CORE_SET_MTIME_NOW;
	unsigned set = args->set & ~(unsigned)CORE_SET_KEPT_TIMES;
	bool only_times = !(set & ~times);

	if (!record_is_frozen(record) || (only_times && args->set & CORE_SET_KEPT_TIMES))
		return 0;
	if (record_is_immutable(record) || !only_times)
		return -EPERM;
	return set & (CORE_SET_ATIME_NOW | CORE_SET_MTIME_NOW) || set == CORE_SET_CTIME ? 0
											 : -EPERM;
}

int setattr_prepare(struct core *core, const struct setattr_args *args)
{
	struct record record;
	int rc;

	args->acl->acl.len = 0;
	rc = record_read(core->volume, args->ino, &record, NULL);
	if (rc == 0)
		rc = judge_flags(args, &record);
	if (rc || !(args->set & CORE_SET_MODE))
		return rc;
	return acl_find(core, args->ino, &record, ACL_ACCESS, args->acl);
}

void setattr_want(const struct setattr_args *args, struct mtr *m)
{
	acl_want(m, args->acl);
}

void setattr_apply(const struct setattr_args *args, struct mtr *m, struct record *record,
		   struct timespec now)
{
	const struct core_attr *attr = args->attr;
	unsigned set = args->set;

	record_changed(record, now);
	if (set & CORE_SET_UID)
		record->uid = attr->uid;
	if (set & CORE_SET_GID)
		record->gid = attr->gid;
	if (set & CORE_SET_MODE)
		record->mode = (record->mode & S_IFMT) | (attr->mode & 07777);
	if (args->acl->acl.len) {
		acl_chmod(&args->acl->acl, record->mode);
		acl_put(m, args->acl);
	}
	if (set & CORE_KILL_SUID)
		record_kill_suid(record, set & CORE_OUTSIDER);
	if (set & CORE_SET_SIZE)
		record->mtime = now;
	if (set & CORE_SET_ATIME) {
		inode_drop_atime(&args->core->table, args->ino);
		record->atime = set & CORE_SET_ATIME_NOW ? now : attr->atime;
	} else {
		inode_kept_atime(&args->core->table, args->ino, &record->atime);
	}
	if (set & CORE_SET_MTIME)
		record->mtime = set & CORE_SET_MTIME_NOW ? now : attr->mtime;
	if (set & CORE_SET_CTIME)
		record->ctime = attr->ctime;
}

static void want_acl(struct mtr *m, void *args)
{
	setattr_want(args, m);
}

static int stage_attr(struct mtr *m, struct record *record, void *args)
{
	setattr_apply(args, m, record, os_realtime());
	return 0;
}

static int setattr_locked(struct core *core, struct setattr_args *args)
{
	static const struct record_change change = {.want = want_acl, .stage = stage_attr};
	struct record record;
	int rc = record_change(core->volume, args->ino, &change, args, &record);

	if (rc == 0) {
		inode_atime_written(&core->table, args->ino, record.atime);
		core_attr_fill(core, &record, args->ino, args->attr);
	}
	return rc;
}

static int setattr_once(struct core *core, void *arg)
{
	struct setattr_args *args = arg;
	struct inode *inode;
	int rc;

	rc = lock_inode(core, args->ino, true, &inode);
	if (rc)
		return rc;
	rc = setattr_prepare(core, args);
	if (rc == 0)
		rc = setattr_locked(core, args);
	unlock_inode(core, inode, true);
	return rc;
}

static bool time_is_valid(unsigned set, unsigned flag, struct timespec t)
{
	return !(set & flag) || (t.tv_nsec >= 0 && t.tv_nsec < NSEC_PER_SEC);
}

/*
 * After an unlink the kernel sends the change time that it gave the inode.  With
 * the last name gone it is no news: the unlink has set ctime, and nobody reads it
 * from the record any more, or link() will set it anew.  So nothing is logged.
 */
static bool is_for_nobody(struct core *core, const struct setattr_args *args)
{
	struct record record;

	if ((args->set & ~(unsigned)CORE_SET_KEPT_TIMES) != CORE_SET_CTIME ||
	    record_read(core->volume, args->ino, &record, NULL) != 0 || record.nlink > 0)
		return false;
	record.ctime = args->attr->ctime;
	record_attr(&record, args->ino, args->attr);
	return true;
}

int core_setattr(struct core *core, view_t view, uint64_t ino, unsigned set, struct core_attr *attr)
{
	struct acl_place acl;
	struct setattr_args args = {
		.core = core,
		.ino = ino,
		.set = set,
		.attr = attr,
		.acl = &acl,
	};

	/* A _NOW flag stands for its own time, whether or not the plain one is there. */
	if (set & CORE_SET_ATIME_NOW)
		args.set |= CORE_SET_ATIME;
	if (set & CORE_SET_MTIME_NOW)
		args.set |= CORE_SET_MTIME;
	if (!time_is_valid(set, CORE_SET_ATIME, attr->atime) ||
	    !time_is_valid(set, CORE_SET_MTIME, attr->mtime) ||
	    !time_is_valid(set, CORE_SET_CTIME, attr->ctime))
		return -EINVAL;
	if ((set & ~(unsigned)CORE_SET_KEPT_TIMES) == 0)
		return core_getattr(core, view, ino, attr);
	stat_add(&core->volume->stats, STAT_core_setattrs, 1);
	if (set & CORE_SET_SIZE)
		purge_pace(core->volume);
	if (core_view(view) == 0 && is_for_nobody(core, &args))
		return core->volume->options.read_only ? -EROFS : 0;
	return core_change(core, view, set & CORE_SET_SIZE ? truncate_once : setattr_once, &args);
}
