/*
 * Names: look up, make, remove, move.
 */
#include "engine/base/os.h"
#include "fs/server/control.h"
#include "fs/server/ops.h"
#include "fs/server/reply.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>

static struct core_cred req_cred(fuse_req_t req)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	return (struct core_cred){.uid = ctx->uid, .gid = ctx->gid, .umask = ctx->umask};
}

/* May `name` be made in, or taken from, this directory?  Answers the request if not. */
static bool name_is_ours(fuse_req_t req, fuse_ino_t parent, const char *name, int error)
{
	if (!control_has_name(parent, name) && node_view(parent) != VIEW_CONTROL)
		return true;
	reply_status(req, node_view(parent) == VIEW_CONTROL ? -EPERM : error);
	return false;
}

/* ---------------------------------------------------------------- look-up */

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct core_attr attr;
	int rc;

	if (control_has_name(parent, name) || node_view(parent) == VIEW_CONTROL) {
		control_lookup(req, parent, name);
		return;
	}
	rc = core_lookup(req_core(req), node_view(parent), node_ino(parent), name, strlen(name),
			 &attr);
	if (rc == -ENOENT)
		reply_negative(req);
	else
		reply_entry(req, rc, node_view(parent), &attr);
}

static void forget(struct server *server, fuse_ino_t node, uint64_t count)
{
	if (node_view(node) == VIEW_CONTROL)
		control_forget(server->control, node, count);
	else
		core_forget(server->core, node_ino(node), count);
}

void op_forget(fuse_req_t req, fuse_ino_t node, uint64_t count)
{
	forget(req_server(req), node, count);
	fuse_reply_none(req);
}

/*
 * What was freed lies between what is in use, and malloc() keeps it.  So when most of
 * what was known is forgotten, as when the kernel drops its caches, it is given back.
 */
#define MANY_INODES 65536u

static void give_back_memory(struct server *server)
{
	uint64_t inodes, lookups, most = atomic_load(&server->most_inodes);

	core_inode_counts(server->core, &inodes, &lookups);
	if (inodes > most) {
		atomic_store(&server->most_inodes, inodes);
	} else if (most >= MANY_INODES && inodes < most / 4 &&
		   atomic_compare_exchange_strong(&server->most_inodes, &most, inodes)) {
		os_may_block();
		malloc_trim(0);
	}
}

void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		forget(req_server(req), forgets[i].ino, forgets[i].nlookup);
	give_back_memory(req_server(req));
	fuse_reply_none(req);
}

/* ------------------------------------------------------------------- make */

static int create(fuse_req_t req, fuse_ino_t parent, const char *name, uint32_t mode, dev_t rdev,
		  struct core_attr *attr)
{
	struct core_cred cred = req_cred(req);

	return core_create(req_core(req), node_view(parent), &cred, node_ino(parent), name,
			   strlen(name), mode, (uint32_t)rdev, attr);
}

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct core_attr attr;
	int rc;

	if (!name_is_ours(req, parent, name, -EEXIST))
		return;
	rc = create(req, parent, name, mode, rdev, &attr);
	reply_entry(req, rc, node_view(parent), &attr);
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct core_attr attr;
	int rc;

	if (!name_is_ours(req, parent, name, -EEXIST))
		return;
	rc = create(req, parent, name, S_IFDIR | (mode & ~(mode_t)S_IFMT), 0, &attr);
	reply_entry(req, rc, node_view(parent), &attr);
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi)
{
	struct fuse_entry_param entry;
	struct core_attr attr;
	int rc;

	if (!name_is_ours(req, parent, name, -EEXIST))
		return;
	rc = create(req, parent, name, S_IFREG | (mode & ~(mode_t)S_IFMT), 0, &attr);
	/* The kernel, which has not seen it, looks again, and then checks who may open it. */
	if (rc == -EEXIST && !(fi->flags & O_EXCL))
		rc = -ESTALE;
	if (rc) {
		reply_status(req, rc);
		return;
	}
	fi->keep_cache = 1;
	reply_entry_fill(node_view(parent), &attr, &entry);
	fuse_reply_create(req, &entry, fi);
}

void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct core_cred cred = req_cred(req);
	struct core_attr attr;
	int rc;

	if (!name_is_ours(req, parent, name, -EEXIST))
		return;
	rc = core_symlink(req_core(req), node_view(parent), &cred, node_ino(parent), name,
			  strlen(name), target, strlen(target), &attr);
	reply_entry(req, rc, node_view(parent), &attr);
}

void op_link(fuse_req_t req, fuse_ino_t node, fuse_ino_t parent, const char *name)
{
	struct core_attr attr;
	int rc;

	if (!name_is_ours(req, parent, name, -EEXIST))
		return;
	if (node_view(node) != node_view(parent))
		rc = -EXDEV;
	else
		rc = core_link(req_core(req), node_view(parent), node_ino(node), node_ino(parent),
			       name, strlen(name), &attr);
	reply_entry(req, rc, node_view(parent), &attr);
}

/* --------------------------------------------------------- remove and move */

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (name_is_ours(req, parent, name, -EPERM))
		reply_status(req, core_unlink(req_core(req), node_view(parent), node_ino(parent),
					      name, strlen(name)));
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (name_is_ours(req, parent, name, -EPERM))
		reply_status(req, core_rmdir(req_core(req), node_view(parent), node_ino(parent),
					     name, strlen(name)));
}

void op_rename(fuse_req_t req, fuse_ino_t old_parent, const char *old_name, fuse_ino_t new_parent,
	       const char *new_name, unsigned flags)
{
	struct core_cred cred = req_cred(req);
	int rc;

	if (!name_is_ours(req, old_parent, old_name, -EPERM) ||
	    !name_is_ours(req, new_parent, new_name, -EPERM))
		return;
	if (node_view(old_parent) != node_view(new_parent))
		rc = -EXDEV;
	else if (flags & RENAME_WHITEOUT)
		rc = core_rename_whiteout(req_core(req), node_view(old_parent), &cred,
					  node_ino(old_parent), old_name, strlen(old_name),
					  node_ino(new_parent), new_name, strlen(new_name),
					  flags & ~(unsigned)RENAME_WHITEOUT);
	else
		rc = core_rename(req_core(req), node_view(old_parent), node_ino(old_parent),
				 old_name, strlen(old_name), node_ino(new_parent), new_name,
				 strlen(new_name), flags);
	reply_status(req, rc);
}
