/*
 * Flags of inodes, which the kernel asks for when chattr(1) and lsattr(1) ask it.  It
 * has checked who may set them.
 */
#include "engine/base/error.h"
#include "engine/base/message.h"
#include "fs/server/freeze.h"
#include "fs/server/notify.h"
#include "fs/server/ops.h"
#include "fs/server/reply.h"

#include <errno.h>
#include <linux/fs.h>
#include <stdlib.h>

static const struct {
	uint32_t core, fs, extended;
} flag_bits[] = {
	{CORE_FLAG_IMMUTABLE, FS_IMMUTABLE_FL, FS_XFLAG_IMMUTABLE},
	{CORE_FLAG_APPEND, FS_APPEND_FL, FS_XFLAG_APPEND},
	{CORE_FLAG_NODUMP, FS_NODUMP_FL, FS_XFLAG_NODUMP},
	{CORE_FLAG_NOATIME, FS_NOATIME_FL, FS_XFLAG_NOATIME},
};

/* What the kernel shows of an inode without being told. */
#define XFLAGS_OF_KERNEL ((uint32_t)FS_XFLAG_HASATTR)

static int flags_to_core(uint32_t given, bool extended, unsigned *flags)
{
	*flags = 0;
	for (unsigned i = 0; i < array_count(flag_bits); i++) {
		uint32_t bit = extended ? flag_bits[i].extended : flag_bits[i].fs;

		if (given & bit)
			*flags |= flag_bits[i].core;
		given &= ~bit;
	}
	return given ? -EOPNOTSUPP : 0;
}

static uint32_t flags_of_core(unsigned flags, bool extended)
{
	uint32_t out = 0;

	for (unsigned i = 0; i < array_count(flag_bits); i++)
		if (flags & flag_bits[i].core)
			out |= extended ? flag_bits[i].extended : flag_bits[i].fs;
	return out;
}

static void get_flags(fuse_req_t req, fuse_ino_t node, bool extended, size_t room)
{
	struct fsxattr xattr = {0};
	struct core_attr attr;
	uint32_t flags;
	int rc;

	if (room < (extended ? sizeof(xattr) : sizeof(flags))) {
		reply_status(req, -EINVAL);
		return;
	}
	rc = core_getattr(req_core(req), node_view(node), node_ino(node), &attr);
	if (rc) {
		reply_status(req, rc);
		return;
	}
	flags = flags_of_core(attr.flags, extended);
	xattr.fsx_xflags = flags;
	if (extended)
		fuse_reply_ioctl(req, 0, &xattr, sizeof(xattr));
	else
		fuse_reply_ioctl(req, 0, &flags, sizeof(flags));
}

/* Project ids and extent sizes stay 0. */
static int flags_given(bool extended, const void *in, size_t len, unsigned *flags)
{
	struct fsxattr xattr;
	uint32_t plain;

	if (len < (extended ? sizeof(xattr) : sizeof(plain)))
		return -EINVAL;
	if (!extended) {
		memcpy(&plain, in, sizeof(plain));
		return flags_to_core(plain, false, flags);
	}
	memcpy(&xattr, in, sizeof(xattr));
	if (xattr.fsx_extsize || xattr.fsx_projid || xattr.fsx_cowextsize)
		return -EOPNOTSUPP;
	return flags_to_core(xattr.fsx_xflags & ~XFLAGS_OF_KERNEL, true, flags);
}

/* By the notifier, since what the kernel holds has to be written first. */
struct flags_job {
	struct notifier_job job; /* first */
	fuse_req_t req;
	fuse_ino_t node;
	unsigned flags;
};

static int set_flags_now(struct server *server, const struct flags_job *job, bool may_send)
{
	view_t view = node_view(job->node);
	struct core_attr attr;
	int rc = core_getattr(server->core, view, node_ino(job->node), &attr);
	unsigned held = CORE_FLAG_IMMUTABLE | CORE_FLAG_APPEND;

	if (rc)
		return rc;
	if (may_send && S_ISREG(attr.mode) && job->flags & ~attr.flags & held) {
		rc = notify_write_back(server, job->node, 0, 0);
		if (rc)
			message(LOG_WARNING, "inode %llu: earlier writes may be refused: %s",
				(unsigned long long)node_ino(job->node), error_text(rc));
	}
	if (job->flags & held && !server->answers_open && !core_flags_used(server->core))
		message(LOG_NOTICE, "the first immutable or append-only file of this volume: "
			"from the next mount on they are minded by open(), now by write() "
			"(-o check_open)");
	freeze_wait_enter(server->freeze);
	rc = core_set_flags(server->core, view, node_ino(job->node), job->flags);
	freeze_leave(server->freeze);
	if (!rc && may_send)
		(void)!reply_make_attr_stale(server, job->node); /* see guard_immutable() */
	return rc;
}

static void run_flags_job(struct server *server, struct notifier_job *base, bool may_send)
{
	struct flags_job *job = (struct flags_job *)base;
	int rc = set_flags_now(server, job, may_send);

	if (rc)
		reply_status(job->req, rc);
	else
		fuse_reply_ioctl(job->req, 0, NULL, 0);
	free(job);
}

static void set_flags(fuse_req_t req, fuse_ino_t node, bool extended, const void *in, size_t len)
{
	struct flags_job *job;
	unsigned flags;
	int rc = flags_given(extended, in, len, &flags);

	job = rc ? NULL : malloc(sizeof(*job));
	if (!job) {
		reply_status(req, rc ? rc : -ENOMEM);
		return;
	}
	*job = (struct flags_job){{.run = run_flags_job}, req, node, flags};
	notifier_hand_over(req_server(req)->notifier, &job->job);
}

bool flags_ioctl(fuse_req_t req, fuse_ino_t node, unsigned cmd, const void *in, size_t in_len,
		 size_t out_room)
{
	switch (cmd) {
	case FS_IOC_GETFLAGS:
	case FS_IOC_FSGETXATTR:
		get_flags(req, node, cmd == FS_IOC_FSGETXATTR, out_room);
		return true;
	case FS_IOC_SETFLAGS:
	case FS_IOC_FSSETXATTR:
		set_flags(req, node, cmd == FS_IOC_FSSETXATTR, in, in_len);
		return true;
	default:
		return false;
	}
}
