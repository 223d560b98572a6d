/*
 * floor: a filesystem that does nothing, in memory, over libfuse.
 *
 *	floor [-f] [-t THREADS] DIR
 *
 * Its rates are the most that any filesystem behind /dev/fuse can reach with
 * the same kernel options: what is missing to them is the cost of being a
 * filesystem.
 *
 * Threads are fixed, one a CPU unless told otherwise, and each reads, serves
 * and answers.  The kernel wakes idle readers in turn, so more of them only
 * cost; libfuse's own loop, which starts and ends threads, costs too.
 */
#include "bench/floor/ops.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS_MAX 64

static void *serve(void *arg)
{
	struct fuse_session *session = arg;
	struct fuse_buf request = {0};

	while (!fuse_session_exited(session)) {
		int n = fuse_session_receive_buf(session, &request);

		if (n == -EINTR)
			continue;
		if (n <= 0)
			break;
		fuse_session_process_buf(session, &request);
	}
	fuse_session_exit(session);
	free(request.mem);
	return NULL;
}

/* Until the mount is gone: SIGTERM and SIGINT end the program as any other. */
static int serve_all(struct fuse_session *session, unsigned threads)
{
	pthread_t thread[THREADS_MAX];
	unsigned started = 0;

	while (started < threads && pthread_create(&thread[started], NULL, serve, session) == 0)
		started++;
	for (unsigned i = 0; i < started; i++)
		pthread_join(thread[i], NULL);
	return started > 0 ? 0 : -EAGAIN;
}

static int run(const char *dir, bool foreground, unsigned threads)
{
	char *words[] = {"floor", "-o", "fsname=floor,subtype=floor,default_permissions", NULL};
	struct fuse_args args = FUSE_ARGS_INIT(3, words);
	struct fuse_session *session = NULL;
	struct tree *tree;
	int rc = tree_create(&tree);

	if (rc)
		goto out;
	session = fuse_session_new(&args, &floor_ops, sizeof(floor_ops), tree);
	rc = session ? fuse_session_mount(session, dir) : -EINVAL;
	if (rc)
		goto out;
	if (fuse_daemonize(foreground) == 0)
		rc = serve_all(session, threads);
	fuse_session_unmount(session);
out:
	if (session)
		fuse_session_destroy(session);
	fuse_opt_free_args(&args);
	return rc; /* the tree goes with the process */
}

int main(int argc, char **argv)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned threads = cpus < 1 ? 1 : cpus > THREADS_MAX ? THREADS_MAX : (unsigned)cpus;
	bool foreground = false;
	int option;

	while ((option = getopt(argc, argv, "ft:")) != -1) {
		if (option == 'f')
			foreground = true;
		else if (option == 't')
			threads = (unsigned)atoi(optarg);
		else
			optind = argc; /* falls into the usage below */
	}
	if (optind != argc - 1 || threads < 1 || threads > THREADS_MAX) {
		fputs("usage: floor [-f] [-t THREADS] DIR\n", stderr);
		return 2;
	}
	return run(argv[optind], foreground, threads) ? 1 : 0;
}
