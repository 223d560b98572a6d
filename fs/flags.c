/*
 * Flags of inodes, as chattr(1) sets them.  What they forbid is judged by each
 * operation (INV-FLAG-1 in record.h).
 *
 *	INV-FLAG-3  before an inode becomes immutable or append-only, the superblock
 *	            says that there are such (RO_COMPAT_FLAGS), durably: so a server
 *	            knows before the first open whether it has to look at them, and a
 *	            program that does not know flags does not write to the volume
 */
#include "fs/core_internal.h"

struct flags_args {
	uint64_t ino;
	uint32_t flags; /* of INODE_USER_FLAGS */
};

static uint32_t to_disk(unsigned flags)
{
	return (flags & CORE_FLAG_IMMUTABLE ? INODE_IMMUTABLE : 0u) |
	       (flags & CORE_FLAG_APPEND ? INODE_APPEND : 0u) |
	       (flags & CORE_FLAG_NODUMP ? INODE_NODUMP : 0u) |
	       (flags & CORE_FLAG_NOATIME ? INODE_NOATIME : 0u);
}

static int set_locked(struct core *core, const struct flags_args *args)
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
		record.flags = (record.flags & ~(uint32_t)INODE_USER_FLAGS) | args->flags;
		record_changed(&record, now);
		record_put(m, args->ino, &record);
		rc = mtr_commit(m);
	} while (rc == -BE_AGAIN);
	mtr_end(m);
	return rc;
}

static int set_once(struct core *core, void *arg)
{
	const struct flags_args *args = arg;
	struct range_lock range;
	struct inode *inode;
	int rc;

	rc = lock_inode(core, args->ino, true, &inode);
	if (rc)
		return rc;
	range_lock(&inode->ranges, &range, 0, RANGE_END, true);
	rc = set_locked(core, args);
	range_unlock(&range);
	unlock_inode(core, inode, true);
	return rc;
}

static void set_used(struct disk_superblock *sb, void *arg)
{
	(void)arg;
	sb->ro_compat = le64_make(le64_get(sb->ro_compat) | RO_COMPAT_FLAGS);
}

bool core_flags_used(struct core *core)
{
	struct volume *volume = core->volume;
	bool used;

	latch_s(&volume->sb_latch);
	used = le64_get(volume->sb.ro_compat) & RO_COMPAT_FLAGS;
	unlatch_s(&volume->sb_latch);
	return used;
}

int core_set_flags(struct core *core, view_t view, uint64_t ino, unsigned flags)
{
	struct flags_args args = {.ino = ino, .flags = to_disk(flags)};
	struct record record;
	int rc = core_view(view);

	if (rc)
		return rc;
	if (core->volume->options.read_only)
		return -EROFS;
	rc = record_read(core->volume, ino, &record, NULL);
	if (rc == 0 && args.flags & (INODE_IMMUTABLE | INODE_APPEND) && !core_flags_used(core))
		rc = volume_change_superblock(core->volume, set_used, NULL); /* INV-FLAG-3 */
	if (rc)
		return error_errno(rc);
	return core_change(core, view, set_once, &args);
}
