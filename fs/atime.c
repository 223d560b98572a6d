/*
 * Access times.  A read only notes one, in memory (INV-INODE-7); it gets into the
 * record
 *
 *	with the next change of attributes or contents, as part of it
 *	by fsync of the inode (not fdatasync)
 *	when the kernel forgets the inode
 *	when the volume is closed
 *
 * so a crash may lose the access times that came after the last of these, and
 * nothing else.  Writing one takes no lock: it is only ever overwritten.
 */
#include "fs/core_internal.h"

#define RELATIME_SEC (24 * 60 * 60)

static bool is_after(struct timespec a, struct timespec b)
{
	return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

static bool is_due(const struct record *r, struct timespec now, enum core_atime policy)
{
	if (r->flags & INODE_NOATIME)
		return false;
	if (policy == CORE_ATIME_STRICT)
		return true;
	return !is_after(r->atime, r->mtime) || !is_after(r->atime, r->ctime) ||
	       now.tv_sec - r->atime.tv_sec >= RELATIME_SEC;
}

/* --- writing ------------------------------------------------------------- */

struct atime_args {
	struct core *core;
	uint64_t ino;
	struct timespec atime;
	bool kept; /* only as long as the table keeps it: an explicit one may have come */
};

static bool is_outdated(const struct atime_args *args)
{
	struct timespec kept;

	return args->kept && (!inode_kept_atime(&args->core->table, args->ino, &kept) ||
			      is_after(kept, args->atime) || is_after(args->atime, kept));
}

static int stage_atime(struct mtr *m, struct record *record, void *arg)
{
	const struct atime_args *args = arg;

	(void)m;
	if (record->nlink == 0 || is_outdated(args)) /* or nobody reads it */
		return RECORD_LEAVE;
	record->atime = args->atime;
	return 0;
}

static int write_once(struct core *core, void *arg)
{
	static const struct record_change change = {.stage = stage_atime};
	struct atime_args *args = arg;
	struct record record;

	os_point("core:atime_write");
	return record_change(core->volume, args->ino, &change, args, &record);
}

static int write_atime(struct core *core, uint64_t ino, struct timespec atime, bool kept)
{
	struct atime_args args = {.core = core, .ino = ino, .atime = atime, .kept = kept};
	int rc = core_change(core, VIEW_BASE, write_once, &args);

	if (rc && rc != -ENOENT)
		message(LOG_DEBUG, "access time of inode %llu: %s", (unsigned long long)ino,
			error_text(rc));
	return rc;
}

void atime_write_kept(struct core *core, uint64_t ino)
{
	struct timespec atime;

	if (inode_kept_atime(&core->table, ino, &atime) && write_atime(core, ino, atime, true) == 0)
		inode_atime_written(&core->table, ino, atime);
}

void atime_write_all(struct core *core)
{
	struct atime_cursor at = {0};
	struct timespec atime;
	uint64_t ino;

	while (inode_take_atime(&core->table, &at, &ino, &atime))
		(void)!write_atime(core, ino, atime, false);
}

void core_forget(struct core *core, uint64_t ino, uint64_t count)
{
	struct timespec atime;

	if (inode_forget_loses_atime(&core->table, ino, count, &atime))
		atime_write_kept(core, ino);
	inode_forget(&core->table, ino, count);
}

/* --- with other changes -------------------------------------------------- */

void atime_fold(struct core *core, const struct inode *inode, struct record *record)
{
	if (atomic_load_explicit(&inode->atime_kept, memory_order_relaxed))
		inode_kept_atime(&core->table, inode->ino, &record->atime);
}

void atime_folded(struct core *core, const struct inode *inode, const struct record *record)
{
	if (atomic_load_explicit(&inode->atime_kept, memory_order_relaxed))
		inode_atime_written(&core->table, inode->ino, record->atime);
}

/* --- noting -------------------------------------------------------------- */

int core_accessed(struct core *core, view_t view, uint64_t ino, enum core_atime policy)
{
	struct timespec now = os_realtime();
	struct record record;
	int rc = core_view(view);

	if (rc || core->volume->options.read_only)
		return rc;
	rc = record_read(core->volume, ino, &record, NULL);
	if (rc)
		return error_errno(rc);
	inode_kept_atime(&core->table, ino, &record.atime);
	if (!is_due(&record, now, policy) || inode_keep_atime(&core->table, ino, now))
		return 0;
	return write_atime(core, ino, now, false);
}
