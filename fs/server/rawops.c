/*
 * A request is picked out before libfuse sees it, decoded, served by the core and
 * answered with one writev() to the session's descriptor.
 *
 *	TMPFILE  open() with O_TMPFILE: as CREATE, without a name
 *	STATX    asked instead of GETATTR by who wants the time of birth
 *	SETXATTR with the longer head of FUSE_SETXATTR_EXT (rawinit.c)
 *
 * Structures of the protocol that are newer than the headers of a supported
 * distribution (Linux 6.1) are spelled out here.
 */
#include "fs/server/rawops.h"

#include "fs/server/control.h"
#include "fs/server/ops.h"
#include "fs/server/reply.h"

#include <errno.h>
#include <linux/fuse.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

#define MASK_BASIC 0x7ffu /* STATX_BASIC_STATS */
#define MASK_BIRTH 0x800u /* STATX_BTIME */
#define KEEP_CACHE 2u     /* FOPEN_KEEP_CACHE */

struct raw_time {
	int64_t seconds;
	uint32_t nanoseconds;
	int32_t reserved;
};

struct raw_statx {
	uint32_t mask, blksize;
	uint64_t attributes;
	uint32_t nlink, uid, gid;
	uint16_t mode, spare;
	uint64_t ino, size, blocks, attributes_mask;
	struct raw_time atime, btime, ctime, mtime;
	uint32_t rdev_major, rdev_minor, dev_major, dev_minor;
	uint64_t spare_end[14];
};

struct raw_statx_out {
	uint64_t valid_seconds;
	uint32_t valid_nanoseconds, flags;
	uint64_t spare[2];
	struct raw_statx statx;
};

struct raw_tmpfile_out {
	struct fuse_entry_out entry;
	struct fuse_open_out open;
};

static_assert(sizeof(struct raw_statx) == 256, "as in the protocol");
static_assert(sizeof(struct raw_statx_out) == 288, "as in the protocol");

/* What is answered when rc is 0 lies at `body`. */
static void answer(struct server *server, const struct fuse_in_header *in, int rc, void *body,
		   size_t len)
{
	struct fuse_out_header out = {
		.len = (uint32_t)(sizeof(out) + (rc ? 0 : len)),
		.error = rc,
		.unique = in->unique,
	};
	struct iovec iov[] = {{&out, sizeof(out)}, {body, len}};

	check(rc <= 0);
	/* Fails only when nobody waits for it any more (see reply.h). */
	(void)!writev(fuse_session_fd(server->session), iov, rc ? 1 : 2);
}

/* --- statx --------------------------------------------------------------- */

static struct raw_time raw_time(struct timespec time)
{
	return (struct raw_time){.seconds = time.tv_sec, .nanoseconds = (uint32_t)time.tv_nsec};
}

static int node_attr(struct server *server, fuse_ino_t node, struct core_attr *attr)
{
	if (node_view(node) == VIEW_CONTROL)
		return control_attr(server->control, node, attr);
	return core_getattr(server->core, node_view(node), node_ino(node), attr);
}

static void serve_statx(struct server *server, const struct fuse_in_header *in)
{
	struct raw_statx_out out = {0};
	struct core_attr attr;
	int rc = node_attr(server, in->nodeid, &attr);

	if (!rc && node_view(in->nodeid) != VIEW_CONTROL)
		rc = guard_immutable(server, in->nodeid, &attr, false);
	if (!rc) {
		out.valid_seconds = (uint64_t)reply_attr_seconds(&attr);
		out.statx = (struct raw_statx){
			.mask = MASK_BASIC | MASK_BIRTH,
			.blksize = BLOCK_SIZE,
			.nlink = attr.nlink,
			.uid = attr.uid,
			.gid = attr.gid,
			.mode = (uint16_t)attr.mode,
			.ino = node_id(node_view(in->nodeid), attr.ino),
			.size = attr.size,
			.blocks = attr.blocks_512,
			.atime = raw_time(attr.atime),
			.btime = raw_time(attr.btime),
			.ctime = raw_time(attr.ctime),
			.mtime = raw_time(attr.mtime),
			.rdev_major = major(attr.rdev),
			.rdev_minor = minor(attr.rdev),
		};
	}
	answer(server, in, rc, &out, sizeof(out));
}

/* --- tmpfile ------------------------------------------------------------- */

static struct fuse_attr raw_attr(view_t view, const struct core_attr *attr)
{
	return (struct fuse_attr){
		.ino = node_id(view, attr->ino),
		.size = attr->size,
		.blocks = attr->blocks_512,
		.atime = (uint64_t)attr->atime.tv_sec,
		.mtime = (uint64_t)attr->mtime.tv_sec,
		.ctime = (uint64_t)attr->ctime.tv_sec,
		.atimensec = (uint32_t)attr->atime.tv_nsec,
		.mtimensec = (uint32_t)attr->mtime.tv_nsec,
		.ctimensec = (uint32_t)attr->ctime.tv_nsec,
		.mode = attr->mode,
		.nlink = attr->nlink,
		.uid = attr->uid,
		.gid = attr->gid,
		.blksize = BLOCK_SIZE,
	};
}

static int make_tmpfile(struct server *server, const struct fuse_in_header *in, const void *body,
			size_t len, struct core_attr *attr)
{
	struct core_cred cred = {.uid = in->uid, .gid = in->gid};
	struct fuse_create_in create;

	if (len < sizeof(create))
		return -EINVAL;
	if (node_view(in->nodeid) == VIEW_CONTROL)
		return -EPERM;
	memcpy(&create, body, sizeof(create));
	cred.umask = create.umask;
	return core_tmpfile(server->core, node_view(in->nodeid), &cred, node_ino(in->nodeid),
			    create.mode, attr);
}

static void serve_tmpfile(struct server *server, const struct fuse_in_header *in, const void *body,
			  size_t len)
{
	struct raw_tmpfile_out out = {.open.open_flags = KEEP_CACHE};
	view_t view = node_view(in->nodeid);
	struct core_attr attr;
	int rc = make_tmpfile(server, in, body, len, &attr);

	if (!rc)
		out.entry = (struct fuse_entry_out){
			.nodeid = node_id(view, attr.ino),
			.generation = NODE_GENERATION,
			.entry_valid = (uint64_t)CACHE_SECONDS,
			.attr_valid = (uint64_t)CACHE_SECONDS,
			.attr = raw_attr(view, &attr),
		};
	answer(server, in, rc, &out, sizeof(out));
}

/* --- setxattr ------------------------------------------------------------ */

static int set_xattr(struct server *server, const struct fuse_in_header *in, const void *body,
		     size_t len)
{
	const char *name = (const char *)body + sizeof(struct fuse_setxattr_in);
	struct fuse_setxattr_in set;
	size_t rest, name_len;
	unsigned flags;

	static_assert(CORE_XATTR_CREATE == 1 && CORE_XATTR_REPLACE == 2, "as in <sys/xattr.h>");
	if (len < sizeof(set))
		return -EINVAL;
	memcpy(&set, body, sizeof(set));
	rest = len - sizeof(set);
	name_len = strnlen(name, rest);
	if (name_len == rest || set.size > rest - name_len - 1)
		return -EINVAL;
	flags = set.flags;
	if (flags & ~(unsigned)(CORE_XATTR_CREATE | CORE_XATTR_REPLACE))
		return -EINVAL;
	if (set.setxattr_flags & FUSE_SETXATTR_ACL_KILL_SGID)
		flags |= CORE_XATTR_KILL_SGID;
	return core_setxattr(server->core, node_view(in->nodeid), node_ino(in->nodeid), name,
			     name + name_len + 1, set.size, flags);
}

void rawops_refuse(struct server *server, uint64_t unique, int error)
{
	const struct fuse_in_header in = {.unique = unique};

	answer(server, &in, error, NULL, 0);
}

/* --- all ----------------------------------------------------------------- */

bool rawops_serve(struct server *server, const void *request, size_t len)
{
	struct fuse_in_header in;

	if (len < sizeof(in))
		return false;
	memcpy(&in, request, sizeof(in));
	if (in.opcode == RAW_STATX)
		serve_statx(server, &in);
	else if (in.opcode == RAW_TMPFILE)
		serve_tmpfile(server, &in, (const uint8_t *)request + sizeof(in),
			      len - sizeof(in));
	else if (in.opcode == FUSE_SETXATTR && server->init.offered & FUSE_SETXATTR_EXT)
		answer(server, &in, set_xattr(server, &in, (const uint8_t *)request + sizeof(in),
					      len - sizeof(in)), NULL, 0);
	else
		return false;
	return true;
}
