/*
 * blinkfs sync DIR
 *
 * Linux sends no SYNCFS to an ordinary FUSE server; what it does send is enough:
 *
 *	syncfs(2)     the kernel hands over all file contents that it still holds
 *	fsync(2)      of the directory: an FSYNCDIR, which the server answers when
 *	              everything that it had received is durable
 *
 * So it needs neither privilege nor a channel of its own.
 */
#include "fs/server/sync.h"

#include "engine/base/message.h"
#include "fs/server/mounted.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXIT_FAILED 1
#define EXIT_USAGE 2

static const char usage[] = "usage: blinkfs sync DIR\n"
			    "Makes everything durable that was done in the volume mounted there;\n"
			    "DIR is any directory of it.\n";

int sync_directory(const char *dir)
{
	int fd = mounted_open(dir);
	int exit_code = EXIT_FAILED;

	if (fd < 0)
		return EXIT_FAILED;
	if (syncfs(fd) != 0 || fsync(fd) != 0) {
		message(LOG_ERR, "%s: not everything could be made durable: %s", dir,
			strerror(errno));
		goto out;
	}
	exit_code = 0;
out:
	close(fd);
	return exit_code;
}

int sync_main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "-h") == 0) {
		fputs(usage, stdout);
		return 0;
	}
	if (argc != 2 || argv[1][0] == '-') {
		fputs(usage, stderr);
		return EXIT_USAGE;
	}
	return sync_directory(argv[1]);
}
