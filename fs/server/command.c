/*
 * blinkfs log-resize DIR SIZE: the side of whoever commands; the server's is in
 * ops_ioctl.c.
 */
#include "fs/server/command.h"

#include "engine/base/message.h"
#include "engine/base/units.h"
#include "fs/server/mounted.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXIT_FAILED 1
#define EXIT_USAGE 2
#define DEPTH_MAX 4096u /* PATH_MAX is not longer */

static const char usage[] =
	"usage: blinkfs log-resize DIR SIZE\n"
	"Gives the redo log of the volume mounted there another size, in use as it is;\n"
	"DIR is any directory of it, SIZE in bytes or with K, M, G (powers of 1024).\n";

/* The root of the mount that `fd` (which is closed) is in: a descriptor or a negative errno. */
static int open_root(int fd)
{
	struct stat here, above;

	for (unsigned i = 0; i < DEPTH_MAX; i++) {
		int up = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (up < 0 || fstat(fd, &here) != 0 || fstat(up, &above) != 0 ||
		    above.st_dev != here.st_dev || above.st_ino == here.st_ino) {
			if (up >= 0)
				close(up);
			return fd;
		}
		close(fd);
		fd = up;
	}
	close(fd);
	return -ELOOP;
}

int command_open(const char *dir)
{
	int fd = mounted_open(dir), control = -1;

	if (fd < 0)
		return fd;
	fd = open_root(fd);
	if (fd >= 0)
		control = openat(fd, ".blinkfs/control", O_RDONLY | O_CLOEXEC);
	if (control < 0 && errno == EACCES)
		message(LOG_ERR, "%s: only root or who mounted it may do that", dir);
	else if (control < 0)
		message(LOG_ERR, "%s: its server cannot be asked: %s", dir, strerror(errno));
	if (fd >= 0)
		close(fd);
	return control;
}

int command_send(const char *dir, struct command *command)
{
	int control = command_open(dir);
	int rc = control < 0 ? -ECANCELED : 0;

	if (control >= 0 && ioctl(control, COMMAND_IOCTL, command) != 0) {
		message(LOG_ERR, "%s: its server cannot be asked: %s", dir, strerror(errno));
		rc = -ECANCELED;
	}
	if (control >= 0)
		close(control);
	command->text[sizeof(command->text) - 1] = '\0';
	return rc;
}

int log_resize_main(int argc, char **argv)
{
	struct command command = {.kind = COMMAND_LOG_RESIZE};

	if (argc == 2 && strcmp(argv[1], "-h") == 0) {
		fputs(usage, stdout);
		return 0;
	}
	if (argc != 3 || argv[1][0] == '-') {
		fputs(usage, stderr);
		return EXIT_USAGE;
	}
	if (size_parse(argv[2], &command.value) != 0 || command.value == 0) {
		message(LOG_ERR, "not a size: %s", argv[2]);
		return EXIT_USAGE;
	}
	if (command_send(argv[1], &command) != 0)
		return EXIT_FAILED;
	if (command.result == 0)
		return 0;
	message(LOG_ERR, "%s: the redo log keeps its size: %s", argv[1],
		command.text[0] ? command.text : strerror(-command.result));
	return EXIT_FAILED;
}
