/*
 * The table of operations.
 *
 * Left out, so that the kernel is told ENOSYS once and does by itself what it
 * takes: flush (nothing is kept per open file), access (default_permissions),
 * locks (the kernel's own), bmap, poll.  release and releasedir are answered by
 * libfuse; they come for files that were opened before the kernel has learnt that
 * OPEN is not implemented (or where it is), and for those that CREATE has opened.
 * (Without CREATE the kernel makes a file by MKNOD and no RELEASE follows; that
 * request costs its client nothing, though, and keeps the server's CPU awake until
 * the next one.)
 */
#include "fs/server/ops.h"

const struct fuse_lowlevel_ops server_ops = {
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
	.setxattr = op_setxattr,
	.getxattr = op_getxattr,
	.listxattr = op_listxattr,
	.removexattr = op_removexattr,

	.open = op_open,
	.opendir = op_opendir,
	.read = op_read,
	.write = op_write,
	.fsync = op_fsync,
	.fsyncdir = op_fsync,
	.lseek = op_lseek,
	.ioctl = op_ioctl,
	.copy_file_range = op_copy_file_range,
	.fallocate = op_fallocate,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
};
