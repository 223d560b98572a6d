/*
 * Commands to the server of a mounted volume: an ioctl on .blinkfs/control.
 *
 * The file belongs to whoever mounted, and nobody else may open it.  The ioctl
 * itself succeeds whenever the command has reached the server; what came of it is
 * in the answer, in words.
 */
#ifndef BLINKFS_SERVER_COMMAND_H
#define BLINKFS_SERVER_COMMAND_H

#include "engine/grow.h"
#include "engine/log_resize.h"

#include <sys/ioctl.h>

enum command_kind {
	COMMAND_LOG_RESIZE = 1, /* value: bytes */
	COMMAND_GROW = 2,       /* value: bytes, 0 = all that the device has; out: bytes */
	COMMAND_FREEZE = 3,     /* value: 0 = only say whether it is frozen (-EBUSY), 1 = do it */
	COMMAND_THAW = 4,
};

struct command {
	uint32_t kind;
	int32_t result; /* out: 0 or a negative errno */
	uint64_t value;
	char text[LOG_RESIZE_TEXT_BYTES]; /* out: why not */
};
#define COMMAND_IOCTL _IOWR('b', 0xb1, struct command)

/*
 * Discards free space from byte `at` of the volume on, for a moment; the caller goes on
 * at where that has ended, as long as it likes.
 */
struct trim_command {
	uint64_t at;      /* in, out: UINT64_MAX when the end was reached */
	uint64_t end;
	uint64_t minimum; /* shorter runs are left alone */
	uint64_t trimmed; /* out: bytes of this call */
	int32_t result;   /* out: 0 or a negative errno */
	uint32_t reserved;
};
#define TRIM_IOCTL _IOWR('b', 0xb2, struct trim_command)

/*
 * A descriptor that takes the ioctls above, of the volume that DIR is in; negative: why
 * not has been said.
 */
int command_open(const char *dir);
/* 0: the server has answered. */
int command_send(const char *dir, struct command *command) must_check;

/* blinkfs log-resize DIR SIZE; argv[0] is "log-resize".  Returns the exit code. */
int log_resize_main(int argc, char **argv);
/* blinkfs trim [OPTION...] DIR and blinkfs grow DIR [SIZE] (command_space.c), likewise. */
int trim_main(int argc, char **argv);
int grow_main(int argc, char **argv);
/* blinkfs freeze DIR and blinkfs thaw DIR (command_freeze.c), likewise. */
int freeze_main(int argc, char **argv);
int thaw_main(int argc, char **argv);

#endif
