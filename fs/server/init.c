/*
 * What is agreed with the kernel when the mount begins.
 */
#include "fs/server/ops.h"

/*
 * FUSE 7.35 (Linux 5.16) and later asks for the attributes of an open file only when it
 * is about to write into its cache; before, also when it reads at the end.
 */
#define MINOR_ASKS_BEFORE_WRITE 35

#define BACKGROUND_MAX 64 /* read-ahead and write-back requests at once */

static void want(struct fuse_conn_info *conn, unsigned capability)
{
	conn->want |= conn->capable & capability;
}

void op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct server *server = userdata;
	const struct server_options *options = server->options;

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
	server->asks_before_write =
		options->writeback && conn->proto_minor >= MINOR_ASKS_BEFORE_WRITE;

	conn->max_write = WRITE_BYTES_MAX;
	conn->max_readahead = WRITE_BYTES_MAX;
	conn->max_background = BACKGROUND_MAX;
	conn->congestion_threshold = BACKGROUND_MAX * 3 / 4;
	conn->time_gran = 1;
}
