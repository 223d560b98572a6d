/*
 * Attributes.  Reading takes no lock: a record is one value of a tree.  A change
 * holds the inode's lock X, but for atime, which is only ever overwritten.
 * Times are kept as given: 64 bits of seconds and nanoseconds.
 */
#include "fs/core_internal.h"

#define NSEC_PER_SEC 1000000000
#define RELATIME_SEC (24 * 60 * 60)

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

void setattr_apply(const struct setattr_args *args, struct record *record, struct timespec now)
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
	if (set & CORE_KILL_SUID)
		record_kill_suid(record);
	if (set & CORE_SET_SIZE)
		record->mtime = now;
	if (set & CORE_SET_ATIME)
		record->atime = set & CORE_SET_ATIME_NOW ? now : attr->atime;
	if (set & CORE_SET_MTIME)
		record->mtime = set & CORE_SET_MTIME_NOW ? now : attr->mtime;
	if (set & CORE_SET_CTIME)
		record->ctime = attr->ctime;
}

static int setattr_locked(struct core *core, const struct setattr_args *args)
{
	struct timespec now = os_realtime();
	struct record record;
	struct mtr *m;
	int rc;

	rc = mtr_begin(core->volume, 0, &m);
	if (rc)
		return rc;
	record_want(m, args->ino);
	do {
		rc = mtr_latch(m);
		if (rc == 0)
			rc = record_get(core->volume, m, args->ino, &record);
		if (rc)
			break;
		setattr_apply(args, &record, now);
		record_put(m, args->ino, &record);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	if (rc == 0)
		core_attr_fill(core, &record, args->ino, args->attr);
	return rc;
}

static int setattr_once(struct core *core, void *arg)
{
	const struct setattr_args *args = arg;
	struct inode *inode;
	int rc;

	rc = lock_inode(core, args->ino, true, &inode);
	if (rc)
		return rc;
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

	if (args->set != CORE_SET_CTIME ||
	    record_read(core->volume, args->ino, &record, NULL) != 0 || record.nlink > 0)
		return false;
	record.ctime = args->attr->ctime;
	record_attr(&record, args->ino, args->attr);
	return true;
}

int core_setattr(struct core *core, view_t view, uint64_t ino, unsigned set, struct core_attr *attr)
{
	struct setattr_args args = {.ino = ino, .set = set, .attr = attr};

	/* A _NOW flag stands for its own time, whether or not the plain one is there. */
	if (set & CORE_SET_ATIME_NOW)
		args.set |= CORE_SET_ATIME;
	if (set & CORE_SET_MTIME_NOW)
		args.set |= CORE_SET_MTIME;
	if (!time_is_valid(set, CORE_SET_ATIME, attr->atime) ||
	    !time_is_valid(set, CORE_SET_MTIME, attr->mtime) ||
	    !time_is_valid(set, CORE_SET_CTIME, attr->ctime))
		return -EINVAL;
	if (set == 0)
		return core_getattr(core, view, ino, attr);
	stat_add(&core->volume->stats, STAT_core_setattrs, 1);
	if (set & CORE_SET_SIZE)
		purge_pace(core->volume);
	if (core_view(view) == 0 && is_for_nobody(core, &args))
		return core->volume->options.read_only ? -EROFS : 0;
	return core_change(core, view, set & CORE_SET_SIZE ? truncate_once : setattr_once, &args);
}

/* --- atime --------------------------------------------------------------- */

static bool is_after(struct timespec a, struct timespec b)
{
	return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

static bool atime_is_due(const struct record *r, struct timespec now, enum core_atime policy)
{
	if (policy == CORE_ATIME_STRICT)
		return true;
	return !is_after(r->atime, r->mtime) || !is_after(r->atime, r->ctime) ||
	       now.tv_sec - r->atime.tv_sec >= RELATIME_SEC;
}

struct accessed_args {
	uint64_t ino;
	struct timespec now;
};

static int accessed_once(struct core *core, void *arg)
{
	const struct accessed_args *args = arg;
	struct record record;
	struct mtr *m;
	int rc;

	rc = mtr_begin(core->volume, 0, &m);
	if (rc)
		return rc;
	record_want(m, args->ino);
	do {
		rc = mtr_latch(m);
		if (rc == 0)
			rc = record_get(core->volume, m, args->ino, &record);
		if (rc)
			break;
		record.atime = args->now;
		record_put(m, args->ino, &record);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	return rc;
}

int core_accessed(struct core *core, view_t view, uint64_t ino, enum core_atime policy)
{
	struct accessed_args args = {.ino = ino, .now = os_realtime()};
	struct record record;
	int rc = core_view(view);

	if (rc || core->volume->options.read_only)
		return rc;
	rc = record_read(core->volume, ino, &record, NULL);
	if (rc || !atime_is_due(&record, args.now, policy))
		return error_errno(rc);
	return core_change(core, view, accessed_once, &args);
}
