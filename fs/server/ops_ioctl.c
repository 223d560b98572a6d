/*
 * ioctl: commands to the server (command.h).
 */
#include "engine/base/error.h"
#include "engine/base/message.h"
#include "engine/base/units.h"
#include "fs/server/command.h"
#include "fs/server/control.h"
#include "fs/server/ops.h"
#include "fs/server/reply.h"

#include <errno.h>

static int resize_log(struct volume *volume, struct command *command)
{
	char size[SIZE_TEXT_BYTES];
	int rc = log_resize(volume, command->value, command->text);

	if (rc == 0)
		message(LOG_NOTICE, "%s: the redo log has now %s", volume->dev->path,
			size_text(volume->geo.log_bytes, size));
	return error_errno(rc);
}

static void run_command(fuse_req_t req, const void *in)
{
	struct command command;

	memcpy(&command, in, sizeof(command));
	command.text[0] = '\0';
	switch (command.kind) {
	case COMMAND_LOG_RESIZE:
		command.result = resize_log(core_volume(req_core(req)), &command);
		break;
	default:
		command.result = -EOPNOTSUPP;
	}
	fuse_reply_ioctl(req, 0, &command, sizeof(command));
}

void op_ioctl(fuse_req_t req, fuse_ino_t node, unsigned cmd, void *arg, struct fuse_file_info *fi,
	      unsigned flags, const void *in, size_t in_size, size_t out_size)
{
	(void)arg, (void)fi;
	if (!control_takes_commands(node) || cmd != COMMAND_IOCTL || (flags & FUSE_IOCTL_COMPAT))
		reply_status(req, -ENOTTY);
	else if (in_size < sizeof(struct command) || out_size < sizeof(struct command))
		reply_status(req, -EINVAL);
	else
		run_command(req, in);
}
