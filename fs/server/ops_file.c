/*
 * Contents of files.
 */
#include "engine/base/error.h"
#include "engine/base/message.h"
#include "engine/format.h"
#include "fs/server/control.h"
#include "fs/server/freeze.h"
#include "fs/server/ops.h"
#include "fs/server/reply.h"
#include "fs/server/setid.h"
#include "fs/server/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>

/* May an inode with such flags be opened so (open(2))? */
static int may_open(const struct core_attr *attr, int flags)
{
	bool writes = (flags & O_ACCMODE) != O_RDONLY;

	if (writes && attr->flags & CORE_FLAG_IMMUTABLE)
		return -EPERM;
	return writes && attr->flags & CORE_FLAG_APPEND && !(flags & O_APPEND) ? -EPERM : 0;
}

/*
 * "Not implemented": the kernel opens files by itself from then on, at a third of the
 * cost.  But it does not know of flags: on a volume that has any, each open is looked at.
 */
void op_open(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	struct core_attr attr;
	int rc = 0;

	if (!req_server(req)->answers_open) {
		reply_status(req, -ENOSYS);
		return;
	}
	if (node_view(node) != VIEW_CONTROL)
		rc = core_getattr(req_core(req), node_view(node), node_ino(node), &attr);
	if (!rc && node_view(node) != VIEW_CONTROL)
		rc = may_open(&attr, fi->flags);
	fi->keep_cache = 1;
	if (rc)
		reply_status(req, rc);
	else
		fuse_reply_open(req, fi);
}

void op_opendir(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	(void)node, (void)fi;
	reply_status(req, -ENOSYS);
}

void op_read(fuse_req_t req, fuse_ino_t node, size_t len, off_t offset, struct fuse_file_info *fi)
{
	void *buf;
	size_t done = 0;
	int rc;

	(void)fi;
	if (node_view(node) == VIEW_CONTROL) {
		control_read(req, node, len, (uint64_t)offset);
		return;
	}
	buf = worker_buffer(len);
	rc = buf ? 0 : -ENOMEM;
	if (!rc)
		rc = core_read(req_core(req), node_view(node), node_ino(node), (uint64_t)offset,
			       buf, len, &done);
	if (rc) {
		reply_status(req, rc);
		return;
	}
	note_access(req, node);
	fuse_reply_buf(req, buf, done);
}

/*
 * The kernel does not keep count of blocks for what it writes back, and would show none
 * for as long as the file is open: who believes that, as tar does, saves a hole.
 */
static bool has_no_blocks(fuse_req_t req, fuse_ino_t node)
{
	struct core_attr attr;

	return core_getattr(req_core(req), node_view(node), node_ino(node), &attr) == 0 &&
	       attr.blocks_512 == 0;
}

/*
 * The kernel demands that setuid goes, but keeps the mode that it knows, and
 * would still honour it in exec.  So it is told before the writer goes on.
 */
static void forget_mode(fuse_req_t req, fuse_ino_t node)
{
	int rc = reply_make_attr_stale(req_server(req), node);

	if (rc)
		message(LOG_WARNING, "inode %llu: the kernel may still see it setuid: %s",
			(unsigned long long)node_ino(node), error_text(rc));
}

/*
 * Write-back comes later than the write that it stands for, maybe later than a
 * utimes() that was to have the last word: then the times are the kernel's, which
 * sends them when it has to.
 */
static unsigned write_flags(fuse_req_t req, const struct fuse_file_info *fi)
{
	bool kernel_times = req_server(req)->options->writeback && fi->writepage;

	return (worker_kill() ? CORE_WRITE_KILL_SUID : 0) |
	       (kernel_times ? CORE_WRITE_KEEP_TIMES : 0);
}

/*
 * The kernel's cache has taken what does not fit, and would take more for ever: only
 * fsync() and close() would hear of it.  But it asks for attributes that are stale before
 * it takes a write, and passes on what op_getattr() answers.
 */
static void note_shortage(fuse_req_t req, fuse_ino_t node)
{
	int rc;

	core_shortage_note(req_core(req), node_view(node), node_ino(node));
	rc = reply_make_attr_stale(req_server(req), node);
	if (rc)
		message(LOG_DEBUG, "inode %llu: its writers hear of ENOSPC late: %s",
			(unsigned long long)node_ino(node), error_text(rc));
}

void op_write(fuse_req_t req, fuse_ino_t node, const char *buf, size_t len, off_t offset,
	      struct fuse_file_info *fi)
{
	unsigned flags = write_flags(req, fi);
	struct setid setid = {0};
	bool first_blocks;
	int rc;

	if (node_view(node) == VIEW_CONTROL) {
		control_write(req, node, buf, len, (uint64_t)offset);
		return;
	}
	if (flags & CORE_WRITE_KILL_SUID)
		setid = setid_of_node(req, node);
	if (setid.outsider)
		flags |= CORE_WRITE_OUTSIDER;
	first_blocks = fi->writepage && has_no_blocks(req, node);
	rc = core_write(req_core(req), node_view(node), node_ino(node), (uint64_t)offset, buf, len,
			flags);
	if (rc) {
		if (rc == -ENOSPC && fi->writepage && req_server(req)->asks_before_write)
			note_shortage(req, node);
		reply_status(req, rc);
		return;
	}
	if (setid.any)
		forget_mode(req, node);
	else if (first_blocks)
		(void)!reply_make_attr_stale(req_server(req), node);
	fuse_reply_write(req, len);
}

/* Of directories as well, the control directory among them: they all mean the whole volume. */
void op_fsync(fuse_req_t req, fuse_ino_t node, int data_only, struct fuse_file_info *fi)
{
	bool is_control = node_view(node) == VIEW_CONTROL;
	/* A frozen volume is durable, but for access times, which have to wait (INV-FREEZE-3). */
	bool whole = !data_only && freeze_enter(req_server(req)->freeze);
	int rc = core_fsync(req_core(req), is_control ? VIEW_BASE : node_view(node),
			    is_control ? INO_ROOT : node_ino(node), !whole);

	(void)fi;
	if (whole)
		freeze_leave(req_server(req)->freeze);
	reply_status(req, rc);
}

static int drop_setid(fuse_req_t req, fuse_ino_t node)
{
	struct core_attr attr = {0};

	return core_setattr(req_core(req), node_view(node), node_ino(node),
			    CORE_KILL_SUID | CORE_OUTSIDER, &attr);
}

void op_copy_file_range(fuse_req_t req, fuse_ino_t node_in, off_t offset_in,
			struct fuse_file_info *fi_in, fuse_ino_t node_out, off_t offset_out,
			struct fuse_file_info *fi_out, size_t len, int flags)
{
	struct setid setid = setid_of_node(req, node_out);
	uint64_t done = 0;
	int rc = flags ? -EINVAL : 0;

	(void)fi_in, (void)fi_out;
	/* The kernel then reads and writes by itself. */
	if (node_view(node_in) != node_view(node_out) || node_view(node_in) == VIEW_CONTROL)
		rc = -EOPNOTSUPP;
	/* As Linux does: before anything is copied.  The rest goes with the first piece. */
	if (!rc && setid.outsider && fuse_req_ctx(req)->uid != 0)
		rc = drop_setid(req, node_out);
	if (!rc)
		rc = core_copy(req_core(req), node_view(node_in), node_ino(node_in),
			       (uint64_t)offset_in, node_ino(node_out), (uint64_t)offset_out, len,
			       &done);
	if (rc) {
		reply_status(req, rc);
		return;
	}
	if (setid.any)
		forget_mode(req, node_out);
	fuse_reply_write(req, done);
}

/* FALLOC_FL_* that the core knows; -1: something else was asked for. */
static int falloc_mode(int mode)
{
	int known = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;

	if (mode & ~known)
		return -1;
	return (mode & FALLOC_FL_KEEP_SIZE ? CORE_KEEP_SIZE : 0) |
	       (mode & FALLOC_FL_PUNCH_HOLE ? CORE_PUNCH_HOLE : 0) |
	       (mode & FALLOC_FL_ZERO_RANGE ? CORE_ZERO_RANGE : 0);
}

void op_fallocate(fuse_req_t req, fuse_ino_t node, int mode, off_t offset, off_t len,
		  struct fuse_file_info *fi)
{
	struct setid setid = {0};
	int known = falloc_mode(mode), rc;

	(void)fi;
	if (known < 0) {
		reply_status(req, -EOPNOTSUPP);
		return;
	}
	/* The kernel leaves setuid to us, and does not say who may keep it. */
	if (fuse_req_ctx(req)->uid != 0)
		setid = setid_of_node(req, node);
	rc = core_fallocate(req_core(req), node_view(node), node_ino(node),
			    (unsigned)known | (setid.any ? CORE_FALLOCATE_KILL_SUID : 0) |
				    (setid.outsider ? CORE_FALLOCATE_OUTSIDER : 0),
			    (uint64_t)offset, (uint64_t)len);
	if (!rc && setid.any)
		forget_mode(req, node);
	reply_status(req, rc);
}
