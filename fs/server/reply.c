/*
 * Attributes, entries, errors.
 */
#include "fs/server/reply.h"

#include <errno.h>

static void stat_fill(view_t view, const struct core_attr *attr, struct stat *st)
{
	*st = (struct stat){
		.st_ino = node_id(view, attr->ino),
		.st_mode = attr->mode,
		.st_nlink = attr->nlink,
		.st_uid = attr->uid,
		.st_gid = attr->gid,
		.st_rdev = attr->rdev,
		.st_size = (off_t)attr->size,
		.st_blocks = (blkcnt_t)attr->blocks_512,
		.st_blksize = BLOCK_SIZE,
		.st_atim = attr->atime,
		.st_mtim = attr->mtime,
		.st_ctim = attr->ctime,
	};
}

double reply_attr_seconds(const struct core_attr *attr)
{
	return attr->links_settled ? CACHE_SECONDS : 0;
}

void reply_entry_fill(view_t view, const struct core_attr *attr, struct fuse_entry_param *entry)
{
	*entry = (struct fuse_entry_param){
		.ino = node_id(view, attr->ino),
		.generation = NODE_GENERATION,
		.attr_timeout = reply_attr_seconds(attr),
		.entry_timeout = CACHE_SECONDS,
	};
	stat_fill(view, attr, &entry->attr);
}

void reply_status(fuse_req_t req, int rc)
{
	check(rc <= 0);
	fuse_reply_err(req, -rc);
}

void reply_entry(fuse_req_t req, int rc, view_t view, const struct core_attr *attr)
{
	struct fuse_entry_param entry;

	if (rc) {
		reply_status(req, rc);
		return;
	}
	reply_entry_fill(view, attr, &entry);
	fuse_reply_entry(req, &entry);
}

void reply_attr(fuse_req_t req, int rc, view_t view, const struct core_attr *attr)
{
	struct stat st;

	if (rc) {
		reply_status(req, rc);
		return;
	}
	stat_fill(view, attr, &st);
	fuse_reply_attr(req, &st, reply_attr_seconds(attr));
}

void reply_negative(fuse_req_t req)
{
	struct fuse_entry_param entry = {.entry_timeout = CACHE_SECONDS};

	fuse_reply_entry(req, &entry);
}

int reply_make_attr_stale(struct server *server, fuse_ino_t node)
{
	int rc = fuse_lowlevel_notify_inval_inode(server->session, node, -1, 0);

	return rc == -ENOENT ? 0 : rc;
}
