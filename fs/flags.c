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

static int stage_flags(struct mtr *m, struct record *record, void *arg)
{
	const struct flags_args *args = arg;

	(void)m;
	record->flags = (record->flags & ~(uint32_t)INODE_USER_FLAGS) | args->flags;
	record_changed(record, os_realtime());
	return 0;
}

static int set_once(struct core *core, void *arg)
{
	static const struct record_change change = {.stage = stage_flags};
	struct flags_args *args = arg;
	struct range_lock range;
	struct record record;
	struct inode *inode;
	int rc;

	rc = lock_inode(core, args->ino, true, &inode);
	if (rc)
		return rc;
	range_lock(&inode->ranges, &range, 0, RANGE_END, true);
	rc = record_change(core->volume, args->ino, &change, args, &record);
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
