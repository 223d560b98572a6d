/*
 * ioctl(2): what the commands of the blinkfs program ask of the server.
 *
 *	command.h        on .blinkfs/control, which belongs to whoever mounted
 *	backup_ioctl.h   on any directory, from root or whoever mounted
 *	scrub_ioctl.h    the same (scrub_serve.c)
 */
#include "engine/base/error.h"
#include "engine/base/message.h"
#include "engine/base/units.h"
#include "fs/server/backup_serve.h"
#include "fs/server/command.h"
#include "fs/server/control.h"
#include "fs/server/ops.h"
#include "fs/server/reply.h"
#include "fs/server/scrub_serve.h"

#include <errno.h>
#include <unistd.h>

/* ---------------------------------------------------------------- commands */

static int resize_log(struct volume *volume, struct command *command)
{
	char size[SIZE_TEXT_BYTES];
	int rc = log_resize(volume, command->value, command->text);

	if (rc == 0)
		message(LOG_NOTICE, "%s: the redo log has now %s", volume->dev->path,
			size_text(volume->geo.log_bytes, size));
	return error_errno(rc);
}

static void run_command(fuse_req_t req, const void *in, size_t in_len, size_t out_room)
{
	struct command command;

	if (in_len < sizeof(command) || out_room < sizeof(command)) {
		reply_status(req, -EINVAL);
		return;
	}
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

/* ----------------------------------------------------------------- backups */

/* They could read the image itself, and stop the server. */
static bool is_owner(fuse_req_t req)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	return ctx->uid == 0 || ctx->uid == geteuid();
}

static void backup_start(fuse_req_t req, const void *in, size_t len)
{
	struct blinkfs_backup_start start;
	int rc = -EINVAL;

	if (len == sizeof(start)) {
		memcpy(&start, in, sizeof(start));
		rc = backup_service_start(req_server(req)->backup, fuse_req_ctx(req)->pid, &start);
	}
	/* The command tells this one apart. */
	if (rc == -BE_ORDER)
		rc = -ESTALE;
	if (rc)
		reply_status(req, error_errno(rc));
	else
		fuse_reply_ioctl(req, 0, NULL, 0);
}

static void backup_status(fuse_req_t req, size_t room)
{
	struct blinkfs_backup_status status;

	if (room != sizeof(status)) {
		reply_status(req, -EINVAL);
		return;
	}
	backup_service_status(req_server(req)->backup, &status);
	status.is_mine = status.pid == (int32_t)fuse_req_ctx(req)->pid;
	fuse_reply_ioctl(req, 0, &status, sizeof(status));
}

/* ------------------------------------------------------------------ ioctl */

void op_ioctl(fuse_req_t req, fuse_ino_t node, unsigned cmd, void *arg, struct fuse_file_info *fi,
	      unsigned flags, const void *in, size_t in_len, size_t out_room)
{
	(void)arg, (void)fi;
	if (flags & FUSE_IOCTL_COMPAT)
		reply_status(req, -ENOTTY);
	else if (cmd == COMMAND_IOCTL && control_takes_commands(node))
		run_command(req, in, in_len, out_room);
	else if (scrub_service_ioctl(req, cmd, in, in_len, out_room))
		return;
	else if (cmd != BLINKFS_IOC_BACKUP_START && cmd != BLINKFS_IOC_BACKUP_STATUS)
		reply_status(req, -ENOTTY);
	else if (!is_owner(req))
		reply_status(req, -EPERM);
	else if (cmd == BLINKFS_IOC_BACKUP_START)
		backup_start(req, in, in_len);
	else
		backup_status(req, out_room);
}
