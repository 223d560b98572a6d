/*
 * blinkfs freeze DIR and blinkfs thaw DIR: the side of whoever commands; the server's is
 * in freeze.c.
 */
#include "fs/server/command.h"

#include "engine/base/message.h"
#include "fs/server/mounted.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXIT_FAILED 1
#define EXIT_USAGE 2

static const char usage[] =
	"usage: blinkfs freeze DIR\n"
	"       blinkfs thaw DIR\n"
	"Frozen, the volume mounted there stands still on its device, which can then be copied:\n"
	"whoever wants to change something waits until it is thawed, and reading goes on.\n"
	"DIR is any directory of it.\n";

/* -1: go on; else the exit code. */
static int look_at_words(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "-h") == 0) {
		fputs(usage, stdout);
		return 0;
	}
	if (argc != 2 || argv[1][0] == '-') {
		fputs(usage, stderr);
		return EXIT_USAGE;
	}
	return -1;
}

static int command(const char *dir, enum command_kind kind, uint64_t value, const char *failed)
{
	struct command command = {.kind = kind, .value = value};

	if (command_send(dir, &command) != 0)
		return EXIT_FAILED;
	if (command.result == 0)
		return 0;
	message(LOG_ERR, "%s: %s: %s", dir, failed,
		command.text[0] ? command.text : strerror(-command.result));
	return EXIT_FAILED;
}

/* What the kernel holds of file contents belongs to what was written before. */
static int write_back(const char *dir)
{
	int fd = mounted_open(dir), rc;

	if (fd < 0)
		return fd;
	rc = syncfs(fd) == 0 ? 0 : -errno;
	if (rc)
		message(LOG_ERR, "%s: not everything could be written: %s", dir, strerror(-rc));
	close(fd);
	return rc;
}

int freeze_main(int argc, char **argv)
{
	int exit_code = look_at_words(argc, argv);

	if (exit_code >= 0)
		return exit_code;
	/* Asked first: beside another freeze the writing would wait for its end. */
	exit_code = command(argv[1], COMMAND_FREEZE, 0, "cannot be frozen");
	if (exit_code == 0 && write_back(argv[1]) != 0)
		exit_code = EXIT_FAILED;
	if (exit_code == 0)
		exit_code = command(argv[1], COMMAND_FREEZE, 1, "cannot be frozen");
	return exit_code;
}

int thaw_main(int argc, char **argv)
{
	int exit_code = look_at_words(argc, argv);

	return exit_code >= 0 ? exit_code : command(argv[1], COMMAND_THAW, 0, "cannot be thawed");
}
