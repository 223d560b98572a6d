/*
 * Attributes, symlink targets, extended attributes, the volume's figures.
 */
#include "engine/base/error.h"
#include "engine/base/message.h"
#include "fs/server/control.h"
#include "fs/server/freeze.h"
#include "fs/server/ops.h"
#include "fs/server/reply.h"
#include "fs/server/setid.h"
#include "fs/server/worker.h"

#include <errno.h>

/* ------------------------------------------------------------- attributes */

int guard_immutable(struct server *server, fuse_ino_t node, const struct core_attr *attr,
		    bool by_descriptor)
{
	int rc;

	if (!server->asks_before_write || !S_ISREG(attr->mode) ||
	    !(attr->flags & CORE_FLAG_IMMUTABLE))
		return 0;
	if (by_descriptor)
		return -EPERM;
	rc = reply_make_attr_stale(server, node);
	if (rc)
		message(LOG_DEBUG, "inode %llu: its writers hear late that it is immutable: %s",
			(unsigned long long)node_ino(node), error_text(rc));
	return 0;
}

void op_getattr(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	struct server *server = req_server(req);
	struct core_attr attr;
	bool ask_again;
	int rc = 0;

	if (node_view(node) == VIEW_CONTROL) {
		control_getattr(req, node);
		return;
	}
	/* With a descriptor: a write() waits for this, and can still be told (note_shortage()). */
	if (fi && server->asks_before_write && freeze_enter(server->freeze)) {
		rc = core_shortage(server->core, node_view(node), node_ino(node));
		freeze_leave(server->freeze);
	}
	ask_again = rc == 1;
	if (rc >= 0)
		rc = core_getattr(server->core, node_view(node), node_ino(node), &attr);
	if (!rc)
		rc = guard_immutable(server, node, &attr, fi != NULL);
	reply_attr(req, rc, node_view(node), &attr);
	if (!rc && ask_again && attr.links_settled)
		(void)!reply_make_attr_stale(server, node);
}

void note_access(fuse_req_t req, fuse_ino_t node)
{
	const struct server_options *options = req_server(req)->options;
	enum core_atime policy = options->atime == ATIME_STRICT ? CORE_ATIME_STRICT
								: CORE_ATIME_RELATIVE;
	int rc;

	if (options->atime == ATIME_NONE || options->read_only ||
	    !freeze_enter(req_server(req)->freeze))
		return;
	rc = core_accessed(req_core(req), node_view(node), node_ino(node), policy);
	freeze_leave(req_server(req)->freeze);
	if (rc && rc != -ENOSPC) /* reading works all the same */
		message(LOG_DEBUG, "access time of inode %llu: %s",
			(unsigned long long)node_ino(node), error_text(rc));
}

static unsigned core_set_of(int to_set)
{
	static const struct {
		int fuse;
		unsigned core;
	} pairs[] = {
		{FUSE_SET_ATTR_MODE, CORE_SET_MODE},
		{FUSE_SET_ATTR_UID, CORE_SET_UID},
		{FUSE_SET_ATTR_GID, CORE_SET_GID},
		{FUSE_SET_ATTR_SIZE, CORE_SET_SIZE},
		{FUSE_SET_ATTR_ATIME, CORE_SET_ATIME},
		{FUSE_SET_ATTR_MTIME, CORE_SET_MTIME},
		{FUSE_SET_ATTR_CTIME, CORE_SET_CTIME},
		{FUSE_SET_ATTR_ATIME_NOW, CORE_SET_ATIME_NOW},
		{FUSE_SET_ATTR_MTIME_NOW, CORE_SET_MTIME_NOW},
	};
	unsigned set = 0;

	for (unsigned i = 0; i < array_count(pairs); i++)
		if (to_set & pairs[i].fuse)
			set |= pairs[i].core;
	return set;
}

/* A change of the owner takes them, whoever asks: the kernel leaves it to us. */
static unsigned set_id_bits_lost(fuse_req_t req, fuse_ino_t node, int to_set)
{
	bool unprivileged = worker_kill() || fuse_req_ctx(req)->uid != 0;

	if (!worker_kill() && !(to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)))
		return 0;
	return CORE_KILL_SUID |
	       (unprivileged && setid_of_node(req, node).outsider ? CORE_OUTSIDER : 0);
}

void op_setattr(fuse_req_t req, fuse_ino_t node, struct stat *st, int to_set,
		struct fuse_file_info *fi)
{
	unsigned set = core_set_of(to_set);
	struct core_attr attr = {
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.size = (uint64_t)st->st_size,
		.atime = st->st_atim,
		.mtime = st->st_mtim,
		.ctime = st->st_ctim,
	};
	int rc;

	if (node_view(node) == VIEW_CONTROL) {
		control_setattr(req, node, set, &attr);
		return;
	}
	/* With a descriptor come only ftruncate() and times that the kernel kept for writes. */
	if (fi)
		set |= CORE_SET_KEPT_TIMES;
	set |= set_id_bits_lost(req, node, to_set);
	rc = core_setattr(req_core(req), node_view(node), node_ino(node), set, &attr);
	reply_attr(req, rc, node_view(node), &attr);
}

void op_readlink(fuse_req_t req, fuse_ino_t node)
{
	char target[SYMLINK_BYTES_MAX + 1];
	int rc = core_readlink(req_core(req), node_view(node), node_ino(node), target);

	if (rc) {
		reply_status(req, rc);
		return;
	}
	note_access(req, node);
	fuse_reply_readlink(req, target);
}

void op_statfs(fuse_req_t req, fuse_ino_t node)
{
	struct statvfs figures;
	int rc;

	(void)node;
	rc = core_statfs(req_core(req), VIEW_BASE, &figures);
	if (rc)
		reply_status(req, rc);
	else
		fuse_reply_statfs(req, &figures);
}

/* ----------------------------------------------------------------- xattrs */

void op_setxattr(fuse_req_t req, fuse_ino_t node, const char *name, const char *value, size_t len,
		 int flags)
{
	static_assert(CORE_XATTR_CREATE == 1 && CORE_XATTR_REPLACE == 2, "as in <sys/xattr.h>");
	reply_status(req, core_setxattr(req_core(req), node_view(node), node_ino(node), name, value,
					len, (unsigned)flags));
}

/* The answer to a request for `cap` bytes: the length alone when that is 0. */
static void reply_bytes(fuse_req_t req, int rc, const void *buf, size_t cap, size_t len)
{
	if (rc)
		reply_status(req, rc);
	else if (cap == 0)
		fuse_reply_xattr(req, len);
	else
		fuse_reply_buf(req, buf, len);
}

void op_getxattr(fuse_req_t req, fuse_ino_t node, const char *name, size_t cap)
{
	void *value = cap ? worker_buffer(cap) : NULL;
	size_t len = 0;
	int rc = cap && !value ? -ENOMEM : 0;

	if (!rc && node_view(node) == VIEW_CONTROL)
		rc = -ENODATA; /* the kernel asks for ACLs to check permissions */
	if (!rc)
		rc = core_getxattr(req_core(req), node_view(node), node_ino(node), name, value, cap,
				   &len);
	reply_bytes(req, rc, value, cap, len);
}

void op_listxattr(fuse_req_t req, fuse_ino_t node, size_t cap)
{
	char *list = cap ? worker_buffer(cap) : NULL;
	size_t len = 0;
	int rc = cap && !list ? -ENOMEM : 0;

	if (!rc && node_view(node) != VIEW_CONTROL)
		rc = core_listxattr(req_core(req), node_view(node), node_ino(node), list, cap,
				    &len);
	reply_bytes(req, rc, list, cap, len);
}

void op_removexattr(fuse_req_t req, fuse_ino_t node, const char *name)
{
	reply_status(req,
		     core_removexattr(req_core(req), node_view(node), node_ino(node), name));
}
