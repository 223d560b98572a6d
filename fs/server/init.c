/*
 * What is agreed with the kernel when the mount begins.
 */
#include "fs/server/ops.h"

#define BACKGROUND_MAX 64 /* read-ahead and write-back requests at once */

static void want(struct fuse_conn_info *conn, unsigned capability)
{
	conn->want |= conn->capable & capability;
}

void op_init(void *userdata, struct fuse_conn_info *conn)
{
	const struct server_options *options = ((struct server *)userdata)->options;

	/*
	 * Not wanted among libfuse's defaults: ATOMIC_O_TRUNC (there is no OPEN
	 * that could truncate), AUTO_INVAL_DATA (one owner), and
	 * HANDLE_KILLPRIV, whose second version rawinit.c grants.
	 */
	conn->want = 0;
	want(conn, FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO);
	want(conn, FUSE_CAP_PARALLEL_DIROPS);
	want(conn, FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO);
	want(conn, FUSE_CAP_NO_OPEN_SUPPORT | FUSE_CAP_NO_OPENDIR_SUPPORT);
	want(conn, FUSE_CAP_CACHE_SYMLINKS);
	want(conn, FUSE_CAP_IOCTL_DIR); /* backup_ioctl.h */
	want(conn, FUSE_CAP_EXPORT_SUPPORT);
	/* ACLs are checked by the kernel, and a umask is the core's: it knows of a default ACL. */
	want(conn, FUSE_CAP_POSIX_ACL | FUSE_CAP_DONT_MASK);
	if (options->writeback)
		want(conn, FUSE_CAP_WRITEBACK_CACHE);

	conn->max_write = WRITE_BYTES_MAX;
	conn->max_readahead = WRITE_BYTES_MAX;
	conn->max_background = BACKGROUND_MAX;
	conn->congestion_threshold = BACKGROUND_MAX * 3 / 4;
	conn->time_gran = 1;
}
