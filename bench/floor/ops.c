/*
 * FUSE operations over the tree.  A node id is the node's address.
 *
 * What the kernel is promised is what blinkfs promises it (fs/server/init.c),
 * so that the two differ by what they do and not by what they are asked:
 * writeback cache, no OPEN, no FLUSH, no xattrs, requests of 1 MiB, names and
 * attributes cached for good.
 */
#include "bench/floor/ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define CACHE_SECONDS (365.0 * 86400)
#define REQUEST_BYTES (1u << 20)
#define BACKGROUND_MAX 64

static struct tree *tree_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static struct node *node_of(fuse_req_t req, fuse_ino_t id)
{
	return id == FUSE_ROOT_ID ? tree_of(req)->root : (struct node *)(uintptr_t)id;
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	conn->want = conn->capable &
		     (FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO | FUSE_CAP_PARALLEL_DIROPS |
		      FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_NO_OPEN_SUPPORT |
		      FUSE_CAP_NO_OPENDIR_SUPPORT | FUSE_CAP_CACHE_SYMLINKS |
		      FUSE_CAP_WRITEBACK_CACHE);
	conn->max_write = REQUEST_BYTES;
	conn->max_readahead = REQUEST_BYTES;
	conn->max_background = BACKGROUND_MAX;
	conn->congestion_threshold = BACKGROUND_MAX * 3 / 4;
	conn->time_gran = 1;
}

/* ------------------------------------------------------------------- names */

static struct fuse_entry_param entry_of(struct node *node, const struct stat *st)
{
	return (struct fuse_entry_param){
		.ino = (uintptr_t)node,
		.generation = 1,
		.attr = *st,
		.attr_timeout = CACHE_SECONDS,
		.entry_timeout = CACHE_SECONDS,
	};
}

static void reply_entry(fuse_req_t req, int rc, struct node *node, const struct stat *st)
{
	struct fuse_entry_param entry;

	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	entry = entry_of(node, st);
	fuse_reply_entry(req, &entry);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct node *node = NULL;
	struct stat st = {0};
	int rc = tree_lookup(tree_of(req), node_of(req, parent), name, &node, &st);

	/* An absent name may be cached as well: node id 0. */
	reply_entry(req, rc == -ENOENT ? 0 : rc, node, &st);
}

static void op_forget(fuse_req_t req, fuse_ino_t id, uint64_t count)
{
	tree_forget(tree_of(req), node_of(req, id), count);
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		tree_forget(tree_of(req), node_of(req, forgets[i].ino), forgets[i].nlookup);
	fuse_reply_none(req);
}

static int make(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev,
		struct node **node, struct stat *st)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct stat like = {
		.st_mode = mode,
		.st_uid = ctx->uid,
		.st_gid = ctx->gid,
		.st_rdev = rdev,
	};

	return tree_make(tree_of(req), node_of(req, parent), name, &like, node, st);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct node *node = NULL;
	struct stat st;
	int rc = make(req, parent, name, mode, rdev, &node, &st);

	reply_entry(req, rc, node, &st);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	op_mknod(req, parent, name, S_IFDIR | (mode & 07777), 0);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	struct fuse_entry_param entry;
	struct node *node = NULL;
	struct stat st;
	int rc = make(req, parent, name, S_IFREG | (mode & 07777), 0, &node, &st);

	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	fi->keep_cache = 1;
	entry = entry_of(node, &st);
	fuse_reply_create(req, &entry, fi);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct node *node = NULL;
	struct stat st;
	int rc = make(req, parent, name, S_IFLNK | 0777, 0, &node, &st);

	if (!rc)
		rc = contents_write(&node->contents, target, strlen(target) + 1, 0);
	reply_entry(req, rc, node, &st);
}

static void op_link(fuse_req_t req, fuse_ino_t id, fuse_ino_t parent, const char *name)
{
	struct node *node = node_of(req, id);
	struct stat st;
	int rc = tree_link(tree_of(req), node, node_of(req, parent), name, &st);

	reply_entry(req, rc, node, &st);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	fuse_reply_err(req, -tree_remove(tree_of(req), node_of(req, parent), name, false));
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	fuse_reply_err(req, -tree_remove(tree_of(req), node_of(req, parent), name, true));
}

static void op_rename(fuse_req_t req, fuse_ino_t from, const char *from_name, fuse_ino_t to,
		      const char *to_name, unsigned flags)
{
	int rc = -EINVAL;

	if ((flags & ~1u) == 0) /* RENAME_NOREPLACE */
		rc = tree_rename(tree_of(req), node_of(req, from), from_name, node_of(req, to),
				 to_name, flags == 0);
	fuse_reply_err(req, -rc);
}

/* -------------------------------------------------------------- attributes */

static void op_getattr(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	tree_getattr(tree_of(req), node_of(req, id), &st);
	fuse_reply_attr(req, &st, CACHE_SECONDS);
}

static void set_times(struct stat *to, const struct stat *from, int set)
{
	struct timespec time;

	clock_gettime(CLOCK_REALTIME, &time);
	if (set & FUSE_SET_ATTR_ATIME)
		to->st_atim = set & FUSE_SET_ATTR_ATIME_NOW ? time : from->st_atim;
	if (set & FUSE_SET_ATTR_MTIME)
		to->st_mtim = set & FUSE_SET_ATTR_MTIME_NOW ? time : from->st_mtim;
	to->st_ctim = set & FUSE_SET_ATTR_CTIME ? from->st_ctim : time;
}

static void op_setattr(fuse_req_t req, fuse_ino_t id, struct stat *from, int set,
		       struct fuse_file_info *fi)
{
	struct tree *tree = tree_of(req);
	struct node *node = node_of(req, id);
	struct stat st;

	(void)fi;
	if (set & FUSE_SET_ATTR_SIZE)
		contents_truncate(&node->contents, (size_t)from->st_size);
	pthread_mutex_lock(&tree->lock);
	if (set & FUSE_SET_ATTR_MODE)
		node->st.st_mode = from->st_mode;
	if (set & FUSE_SET_ATTR_UID)
		node->st.st_uid = from->st_uid;
	if (set & FUSE_SET_ATTR_GID)
		node->st.st_gid = from->st_gid;
	if (set & FUSE_SET_ATTR_SIZE)
		node->st.st_size = from->st_size;
	set_times(&node->st, from, set);
	st = node->st;
	pthread_mutex_unlock(&tree->lock);
	fuse_reply_attr(req, &st, CACHE_SECONDS);
}

static void op_readlink(fuse_req_t req, fuse_ino_t id)
{
	fuse_reply_readlink(req, (const char *)node_of(req, id)->contents.bytes);
}

static void op_statfs(fuse_req_t req, fuse_ino_t id)
{
	const struct statvfs st = {
		.f_bsize = 4096,
		.f_frsize = 4096,
		.f_blocks = 1u << 24,
		.f_bfree = 1u << 23,
		.f_bavail = 1u << 23,
		.f_namemax = 255,
	};

	(void)id;
	fuse_reply_statfs(req, &st);
}

/* ---------------------------------------------------------------- contents */

static void op_open(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *fi)
{
	(void)id, (void)fi;
	fuse_reply_err(req, ENOSYS);
}

/* What lies past the bytes in memory, but inside the file, is zeros. */
static void reply_with_zeros(fuse_req_t req, const struct contents *contents, size_t offset,
			     size_t len)
{
	uint8_t *buf = calloc(1, len);

	if (!buf) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	if (offset < contents->used)
		memcpy(buf, contents->bytes + offset, contents->used - offset);
	fuse_reply_buf(req, (const char *)buf, len);
	free(buf);
}

static void op_read(fuse_req_t req, fuse_ino_t id, size_t len, off_t offset,
		    struct fuse_file_info *fi)
{
	struct node *node = node_of(req, id);
	struct contents *contents = &node->contents;
	struct stat st;

	(void)fi;
	tree_getattr(tree_of(req), node, &st);
	if (offset >= st.st_size)
		len = 0;
	else if ((off_t)len > st.st_size - offset)
		len = (size_t)(st.st_size - offset);

	pthread_rwlock_rdlock(&contents->lock);
	if ((size_t)offset + len <= contents->used || len == 0)
		fuse_reply_buf(req, len ? (const char *)contents->bytes + offset : NULL, len);
	else
		reply_with_zeros(req, contents, (size_t)offset, len);
	pthread_rwlock_unlock(&contents->lock);
}

static void op_write(fuse_req_t req, fuse_ino_t id, const char *buf, size_t len, off_t offset,
		     struct fuse_file_info *fi)
{
	struct node *node = node_of(req, id);
	int rc = contents_write(&node->contents, buf, len, (size_t)offset);

	(void)fi;
	if (rc) {
		fuse_reply_err(req, -rc);
		return;
	}
	tree_wrote(tree_of(req), node, offset + (off_t)len);
	fuse_reply_write(req, len);
}

static void op_fsync(fuse_req_t req, fuse_ino_t id, int data_only, struct fuse_file_info *fi)
{
	(void)id, (void)data_only, (void)fi;
	fuse_reply_err(req, 0);
}

/* ------------------------------------------------------------- directories */

struct listing {
	fuse_req_t req;
	bool plus;
	size_t used, cap;
	char *buf;
};

static bool add(struct listing *list, const char *name, struct node *node, const struct stat *st,
		uint64_t cookie)
{
	struct fuse_entry_param entry = entry_of(node, st);
	size_t room = list->cap - list->used;
	char *at = list->buf + list->used;
	size_t need;

	if (list->plus)
		need = fuse_add_direntry_plus(list->req, at, room, name, &entry, (off_t)cookie);
	else
		need = fuse_add_direntry(list->req, at, room, name, st, (off_t)cookie);
	if (need > room)
		return false;
	list->used += need;
	return true;
}

static bool emit(void *arg, const char *name, struct node *node, uint64_t cookie)
{
	struct listing *list = arg;

	if (!add(list, name, node, &node->st, cookie))
		return false;
	if (list->plus)
		node->lookups++; /* the tree's lock is held (tree_list) */
	return true;
}

static void list_dir(fuse_req_t req, fuse_ino_t id, size_t cap, off_t cookie, bool plus)
{
	struct listing list = {.req = req, .plus = plus, .cap = cap, .buf = malloc(cap)};
	struct node *dir = node_of(req, id);
	const struct stat dots = {.st_ino = dir->st.st_ino, .st_mode = S_IFDIR};
	bool room = list.buf != NULL;

	if (!room) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	if (cookie < 1)
		room = add(&list, ".", NULL, &dots, 1);
	if (room && cookie < 2)
		room = add(&list, "..", NULL, &dots, 2);
	if (room)
		tree_list(tree_of(req), dir, (uint64_t)cookie, emit, &list);
	fuse_reply_buf(req, list.buf, list.used);
	free(list.buf);
}

static void op_readdir(fuse_req_t req, fuse_ino_t id, size_t cap, off_t cookie,
		       struct fuse_file_info *fi)
{
	(void)fi;
	list_dir(req, id, cap, cookie, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t id, size_t cap, off_t cookie,
			   struct fuse_file_info *fi)
{
	(void)fi;
	list_dir(req, id, cap, cookie, true);
}

const struct fuse_lowlevel_ops floor_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.create = op_create,
	.symlink = op_symlink,
	.link = op_link,
	.unlink = op_unlink,
	.rmdir = op_rmdir,
	.rename = op_rename,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.statfs = op_statfs,
	.open = op_open,
	.opendir = op_open,
	.read = op_read,
	.write = op_write,
	.fsync = op_fsync,
	.fsyncdir = op_fsync,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
};
