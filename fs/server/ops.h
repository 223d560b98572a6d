/*
 * One function per FUSE operation; ops.c has the table.
 */
#ifndef BLINKFS_SERVER_OPS_H
#define BLINKFS_SERVER_OPS_H

#include "fs/server/server.h"

/* ops_name.c */
void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_forget(fuse_req_t req, fuse_ino_t node, uint64_t count);
void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi);
void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void op_link(fuse_req_t req, fuse_ino_t node, fuse_ino_t parent, const char *name);
void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rename(fuse_req_t req, fuse_ino_t old_parent, const char *old_name, fuse_ino_t new_parent,
	       const char *new_name, unsigned flags);

/* ops_attr.c */
void op_getattr(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi);
void op_setattr(fuse_req_t req, fuse_ino_t node, struct stat *st, int to_set,
		struct fuse_file_info *fi);
void op_readlink(fuse_req_t req, fuse_ino_t node);
void op_statfs(fuse_req_t req, fuse_ino_t node);
void op_setxattr(fuse_req_t req, fuse_ino_t node, const char *name, const char *value, size_t len,
		 int flags);
void op_getxattr(fuse_req_t req, fuse_ino_t node, const char *name, size_t cap);
void op_listxattr(fuse_req_t req, fuse_ino_t node, size_t cap);
void op_removexattr(fuse_req_t req, fuse_ino_t node, const char *name);

/* ops_file.c */
void op_open(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi);
void op_opendir(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi);
/*
 * In the mount in which the volume's first flag is set, no open is looked at.  But the
 * kernel asks for stale attributes, by descriptor, before it takes a write into its
 * cache: those of an immutable file always are, and then -EPERM is the answer.
 */
int guard_immutable(struct server *server, fuse_ino_t node, const struct core_attr *attr,
		    bool by_descriptor);
void op_read(fuse_req_t req, fuse_ino_t node, size_t len, off_t offset, struct fuse_file_info *fi);
void op_write(fuse_req_t req, fuse_ino_t node, const char *buf, size_t len, off_t offset,
	      struct fuse_file_info *fi);
void op_fsync(fuse_req_t req, fuse_ino_t node, int data_only, struct fuse_file_info *fi);
void op_fallocate(fuse_req_t req, fuse_ino_t node, int mode, off_t offset, off_t len,
		  struct fuse_file_info *fi);
void op_lseek(fuse_req_t req, fuse_ino_t node, off_t offset, int whence, struct fuse_file_info *fi);
void op_copy_file_range(fuse_req_t req, fuse_ino_t node_in, off_t offset_in,
			struct fuse_file_info *fi_in, fuse_ino_t node_out, off_t offset_out,
			struct fuse_file_info *fi_out, size_t len, int flags);

/* ops_ioctl.c */
void op_ioctl(fuse_req_t req, fuse_ino_t node, unsigned cmd, void *arg, struct fuse_file_info *fi,
	      unsigned flags, const void *in, size_t in_len, size_t out_room);

/* ops_flags.c: true when it was one of these, and has been or will be answered. */
bool flags_ioctl(fuse_req_t req, fuse_ino_t node, unsigned cmd, const void *in, size_t in_len,
		 size_t out_room);

/* ops_dir.c */
void op_readdir(fuse_req_t req, fuse_ino_t node, size_t cap, off_t cookie,
		struct fuse_file_info *fi);
void op_readdirplus(fuse_req_t req, fuse_ino_t node, size_t cap, off_t cookie,
		    struct fuse_file_info *fi);

/* init.c */
void op_init(void *userdata, struct fuse_conn_info *conn);

/* ops_attr.c: contents were read; moves the access time as the mount's option says. */
void note_access(fuse_req_t req, fuse_ino_t node);

#endif
