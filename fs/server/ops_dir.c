/*
 * Listing directories, with and without attributes.  A cookie is the core's.
 */
#include "fs/server/control.h"
#include "fs/server/ops.h"
#include "fs/server/reply.h"
#include "fs/server/worker.h"

#include <errno.h>

struct listing {
	fuse_req_t req;
	view_t view;
	char *buf;
	size_t cap, used;
};

static size_t add_plain(struct listing *listing, const struct core_dirent *entry, const char *name)
{
	struct stat st = {
		.st_ino = node_id(listing->view, entry->ino),
		.st_mode = entry->type,
	};

	return fuse_add_direntry(listing->req, listing->buf + listing->used,
				 listing->cap - listing->used, name, &st, (off_t)entry->cookie);
}

/* Without a node id: what was not looked up, "." and ".." among it. */
static size_t add_plus(struct listing *listing, const struct core_dirent *entry, const char *name)
{
	struct fuse_entry_param param = {
		.attr.st_ino = node_id(listing->view, entry->ino),
		.attr.st_mode = entry->type,
	};

	if (entry->attr && strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
		reply_entry_fill(listing->view, entry->attr, &param);
	return fuse_add_direntry_plus(listing->req, listing->buf + listing->used,
				      listing->cap - listing->used, name, &param,
				      (off_t)entry->cookie);
}

static int add(struct listing *listing, const struct core_dirent *entry,
	       size_t (*add_entry)(struct listing *, const struct core_dirent *, const char *))
{
	char name[NAME_BYTES_MAX + 1];
	size_t len;

	check(entry->name_len <= NAME_BYTES_MAX);
	memcpy(name, entry->name, entry->name_len);
	name[entry->name_len] = '\0';
	len = add_entry(listing, entry, name);
	if (len > listing->cap - listing->used)
		return 1;
	listing->used += len;
	return 0;
}

static int emit_plain(void *arg, const struct core_dirent *entry)
{
	return add(arg, entry, add_plain);
}

static int emit_plus(void *arg, const struct core_dirent *entry)
{
	return add(arg, entry, add_plus);
}

static void list(fuse_req_t req, fuse_ino_t node, size_t cap, off_t cookie, bool plus)
{
	struct listing listing = {
		.req = req,
		.view = node_view(node),
		.buf = worker_buffer(cap),
		.cap = cap,
	};
	core_emit emit = plus ? emit_plus : emit_plain;
	int rc = listing.buf ? 0 : -ENOMEM;

	if (!rc && listing.view == VIEW_CONTROL)
		rc = control_readdir(node, (uint64_t)cookie, emit, &listing);
	else if (!rc)
		rc = core_readdir(req_core(req), listing.view, node_ino(node), (uint64_t)cookie,
				  plus, emit, &listing);
	if (rc) {
		reply_status(req, rc);
		return;
	}
	if (listing.view != VIEW_CONTROL && cookie == 0 &&
	    !req_server(req)->options->no_dir_atime)
		note_access(req, node);
	fuse_reply_buf(req, listing.buf, listing.used);
}

void op_readdir(fuse_req_t req, fuse_ino_t node, size_t cap, off_t cookie,
		struct fuse_file_info *fi)
{
	(void)fi;
	list(req, node, cap, cookie, false);
}

void op_readdirplus(fuse_req_t req, fuse_ino_t node, size_t cap, off_t cookie,
		    struct fuse_file_info *fi)
{
	(void)fi;
	list(req, node, cap, cookie, true);
}
