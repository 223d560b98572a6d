/*
 * Commands to the server of a mounted volume: an ioctl on .blinkfs/control.
 *
 * The file belongs to whoever mounted, and nobody else may open it.  The ioctl
 * itself succeeds whenever the command has reached the server; what came of it is
 * in the answer, in words.
 */
#ifndef BLINKFS_SERVER_COMMAND_H
#define BLINKFS_SERVER_COMMAND_H

#include "engine/log_resize.h"

#include <sys/ioctl.h>

enum command_kind {
	COMMAND_LOG_RESIZE = 1, /* value: bytes */
};

struct command {
	uint32_t kind;
	int32_t result; /* out: 0 or a negative errno */
	uint64_t value;
	char text[LOG_RESIZE_TEXT_BYTES]; /* out: why not */
};
#define COMMAND_IOCTL _IOWR('b', 0xb1, struct command)

/* blinkfs log-resize DIR SIZE; argv[0] is "log-resize".  Returns the exit code. */
int log_resize_main(int argc, char **argv);

#endif
