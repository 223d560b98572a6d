/*
 * ioctl(2): what the commands of the blinkfs program ask of the server.
 *
 *	command.h        on .blinkfs/control, which belongs to whoever mounted
 *	backup_ioctl.h   on any directory, from root or whoever mounted (backup_serve.c)
 *	scrub_ioctl.h    the same (scrub_serve.c)
 *	ops_flags.c      on any inode: its flags
 *	FITRIM           on any inode, from root or whoever mounted: fstrim(8)
 */
#include "engine/base/error.h"
#include "engine/base/message.h"
#include "engine/base/units.h"
#include "engine/space.h"
#include "fs/server/backup_serve.h"
#include "fs/server/command.h"
#include "fs/server/control.h"
#include "fs/server/freeze.h"
#include "fs/server/ops.h"
#include "fs/server/reply.h"
#include "fs/server/scrub_serve.h"

#include <errno.h>
#include <stdio.h>

/* FITRIM and its struct: the header that has them would put its own BLOCK_SIZE for ours. */
struct trim_range {
	uint64_t start, len, minimum;
};
#define TRIM_RANGE_IOCTL _IOWR('X', 121, struct trim_range)

#define TRIM_CALL_NS 100000000u /* a command that is interrupted ends so soon */

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

static int grow(struct volume *volume, struct command *command)
{
	char size[SIZE_TEXT_BYTES];
	int rc = volume_grow(volume, command->value, command->text);

	command->value = volume->geo.block_count * BLOCK_SIZE;
	if (rc == 0 && command->text[0] == '\0')
		message(LOG_NOTICE, "%s: the volume has now %s", volume->dev->path,
			size_text(command->value, size));
	return error_errno(rc);
}

static int freeze(struct server *server, struct command *command)
{
	bool only_ask = command->value == 0;
	int rc = freeze_on(server->freeze, only_ask, command->text);

	if (rc == 0 && !only_ask)
		message(LOG_NOTICE, "%s: frozen", server->volume->dev->path);
	return rc;
}

static int thaw(struct server *server, struct command *command)
{
	int rc = freeze_off(server->freeze);

	if (rc == 0)
		message(LOG_NOTICE, "%s: thawed", server->volume->dev->path);
	else
		snprintf(command->text, sizeof(command->text), "it is not frozen");
	return rc;
}

/* For TRIM_CALL_NS, or until nobody waits for it any more. */
static int trim(fuse_req_t req, struct volume *volume, struct trim_command *command)
{
	uint64_t began = os_mono_ns(), minimum = command->minimum / BLOCK_SIZE;
	struct space_trim job = {
		.at = command->at / BLOCK_SIZE + (command->at % BLOCK_SIZE != 0),
		.end = command->end / BLOCK_SIZE,
		.shortest = minimum < UINT32_MAX ? (uint32_t)minimum : UINT32_MAX,
	};
	int rc = volume->options.read_only ? -EROFS : 1;

	if (job.shortest == 0)
		job.shortest = 1;
	while (rc > 0 && os_mono_ns() - began < TRIM_CALL_NS && !fuse_req_interrupted(req))
		rc = space_trim_step(volume->space, &job);
	command->trimmed = job.trimmed * BLOCK_SIZE;
	command->at = rc > 0 ? job.at * BLOCK_SIZE : UINT64_MAX;
	return rc < 0 ? error_errno(rc) : 0;
}

static void run_trim(fuse_req_t req, const void *in, size_t in_len, size_t out_room)
{
	struct trim_command command;

	if (in_len < sizeof(command) || out_room < sizeof(command)) {
		reply_status(req, -EINVAL);
		return;
	}
	memcpy(&command, in, sizeof(command));
	command.result = trim(req, core_volume(req_core(req)), &command);
	fuse_reply_ioctl(req, 0, &command, sizeof(command));
}

/* Nobody waits for an answer any more, or may. */
static bool is_over(fuse_req_t req)
{
	return fuse_req_interrupted(req) || fuse_session_exited(req_server(req)->session);
}

/* The whole range in one call, as fstrim(8) wants it: range->len becomes what was trimmed. */
static int trim_range(fuse_req_t req, struct trim_range *range)
{
	struct volume *volume = core_volume(req_core(req));
	uint64_t size = volume->geo.block_count * BLOCK_SIZE;
	struct trim_command command = {.at = range->start, .minimum = range->minimum};
	int rc = 0;

	if (!req_is_owner(req))
		return -EPERM;
	/* As the filesystems of Linux have it. */
	if (range->start >= size || range->len < BLOCK_SIZE || range->minimum > size)
		return -EINVAL;
	command.end = range->len < size - range->start ? range->start + range->len : size;
	range->len = 0;
	while (rc == 0 && command.at < command.end) {
		rc = is_over(req) ? -EINTR : trim(req, volume, &command);
		range->len += rc ? 0 : command.trimmed;
	}
	return rc;
}

static void run_trim_range(fuse_req_t req, const void *in, size_t in_len, size_t out_room)
{
	struct trim_range range;
	int rc = in_len < sizeof(range) || out_room < sizeof(range) ? -EINVAL : 0;

	if (rc == 0) {
		memcpy(&range, in, sizeof(range));
		os_may_block();
		rc = trim_range(req, &range);
	}
	if (rc)
		reply_status(req, rc);
	else
		fuse_reply_ioctl(req, 0, &range, sizeof(range));
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
	case COMMAND_FREEZE:
		command.result = freeze(req_server(req), &command);
		break;
	case COMMAND_THAW:
		command.result = thaw(req_server(req), &command);
		break;
	case COMMAND_GROW:
		command.result = grow(core_volume(req_core(req)), &command);
		break;
	default:
		command.result = -EOPNOTSUPP;
	}
	fuse_reply_ioctl(req, 0, &command, sizeof(command));
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
	else if (cmd == TRIM_IOCTL && control_takes_commands(node))
		run_trim(req, in, in_len, out_room);
	else if (cmd == TRIM_RANGE_IOCTL && node_view(node) != VIEW_CONTROL)
		run_trim_range(req, in, in_len, out_room);
	else if (!flags_ioctl(req, node, cmd, in, in_len, out_room) &&
		 !backup_service_ioctl(req, cmd, in, in_len, out_room) &&
		 !scrub_service_ioctl(req, cmd, in, in_len, out_room))
		reply_status(req, -ENOTTY);
}
