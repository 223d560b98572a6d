/*
 * Contents of files.
 */
#include "fs/server/control.h"
#include "fs/server/ops.h"
#include "fs/server/reply.h"
#include "fs/server/worker.h"

#include <errno.h>

/* "Not implemented": the kernel opens files and directories by itself from then on. */
void op_open(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
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
		rc = core_read(req_core(req), node_view(node), node_ino(node), (uint64_t)offset, buf,
			       len, &done);
	if (rc) {
		reply_status(req, rc);
		return;
	}
	note_access(req, node);
	fuse_reply_buf(req, buf, done);
}

void op_write(fuse_req_t req, fuse_ino_t node, const char *buf, size_t len, off_t offset,
	      struct fuse_file_info *fi)
{
	int rc;

	(void)fi;
	rc = core_write(req_core(req), node_view(node), node_ino(node), (uint64_t)offset, buf, len,
			worker_kill() ? CORE_WRITE_KILL_SUID : 0);
	if (rc)
		reply_status(req, rc);
	else
		fuse_reply_write(req, len);
}

/* Of directories as well. */
void op_fsync(fuse_req_t req, fuse_ino_t node, int data_only, struct fuse_file_info *fi)
{
	int rc = 0;

	(void)fi;
	if (node_view(node) != VIEW_CONTROL)
		rc = core_fsync(req_core(req), node_view(node), node_ino(node), data_only != 0);
	reply_status(req, rc);
}

void op_lseek(fuse_req_t req, fuse_ino_t node, off_t offset, int whence, struct fuse_file_info *fi)
{
	uint64_t found = 0;
	int rc;

	(void)fi;
	rc = core_seek(req_core(req), node_view(node), node_ino(node), (uint64_t)offset, whence,
		       &found);
	if (rc)
		reply_status(req, rc);
	else
		fuse_reply_lseek(req, (off_t)found);
}
