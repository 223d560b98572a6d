/*
 * One backup at a time, by a thread of its own: see backup_serve.h.
 *
 * The thread looks now and then whether the process that wants the backup is still
 * there, through a pidfd, which cannot be taken for another process.
 */
#include "fs/server/backup_serve.h"

#include "engine/backup.h"
#include "engine/backup_format.h"
#include "engine/base/error.h"
#include "engine/base/latch.h"
#include "engine/base/message.h"
#include "fs/server/reply.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BACKUP_NICE 10

struct backup_service {
	struct volume *volume;
	_Atomic bool cancel;
	struct latch latch;                  /* RANK_LEAF */
	struct blinkfs_backup_status status; /* [lock: latch] */
	/* of who has set the state to RUNNING */
	struct os_thread thread;
	bool joinable;
	int fd, pid_fd;
	struct backup_params params;
};

int backup_service_open(struct backup_service **out, struct volume *volume)
{
	struct backup_service *service = calloc(1, sizeof(*service));

	if (service == NULL)
		return -ENOMEM;
	service->volume = volume;
	service->fd = service->pid_fd = -1;
	latch_init(&service->latch, RANK_LEAF, 0);
	*out = service;
	return 0;
}

static void join(struct backup_service *service)
{
	if (service->joinable)
		os_thread_join(&service->thread);
	service->joinable = false;
}

void backup_service_close(struct backup_service *service)
{
	if (service == NULL)
		return;
	atomic_store(&service->cancel, true);
	join(service);
	free(service);
}

/* --------------------------------------------------------------- the thread */

static bool is_cancelled(void *arg)
{
	struct backup_service *service = arg;
	struct pollfd gone = {.fd = service->pid_fd, .events = POLLIN};

	return atomic_load(&service->cancel) || poll(&gone, 1, 0) != 0;
}

static void show_locked(struct backup_service *service, const struct backup_progress *progress)
{
	struct blinkfs_backup_status *status = &service->status;

	status->pages = progress->pages;
	status->blocks = progress->blocks;
	status->bytes = progress->bytes;
	status->lsn = progress->lsn;
	status->bad_blocks = progress->bad_blocks;
}

static void show(void *arg, const struct backup_progress *progress)
{
	struct backup_service *service = arg;

	latch_x(&service->latch);
	show_locked(service, progress);
	unlatch_x(&service->latch);
}

static void say_result(const struct backup_service *service, int rc,
		       const struct backup_progress *result)
{
	const char *path = service->volume->dev->path;

	if (rc)
		message(LOG_WARNING, "%s: backup: %s; nothing is kept for it any more", path,
			error_text(rc));
	else
		message(LOG_INFO, "%s: backup of LSN %" PRIu64 ": %" PRIu64 " pages, %" PRIu64
			" blocks", path, result->lsn, result->pages, result->blocks);
}

static void backup_main(void *arg)
{
	struct backup_service *service = arg;
	struct backup_progress result = {0};
	int rc;

	/* Of this thread alone, and of the one that it starts: others go first. */
	setpriority(PRIO_PROCESS, 0, BACKUP_NICE);
	rc = backup_run(service->volume, &service->params, &result);
	say_result(service, rc, &result);
	close(service->fd);
	close(service->pid_fd);
	latch_x(&service->latch);
	show_locked(service, &result);
	service->status.error = rc;
	service->status.state = BACKUP_ENDED;
	unlatch_x(&service->latch);
}

/* ------------------------------------------------------------------- START */

static bool is_zero(const uint8_t *bytes, size_t len)
{
	while (len > 0 && *bytes == 0)
		bytes++, len--;
	return len == 0;
}

/* Is the base of this volume, and of its life since it was last restored? */
static int judge_base(const struct volume *volume, const struct blinkfs_backup_start *start)
{
	uint64_t generation = log_epoch(volume->log);

	if (!is_zero(start->uuid, 16) && memcmp(start->uuid, volume->sb.uuid, 16) != 0)
		return -BE_ORDER;
	if (start->base_generation &&
	    (generation_history(start->base_generation) != generation_history(generation) ||
	     start->base_generation > generation))
		return -BE_ORDER;
	return 0;
}

static int open_target(struct backup_service *service, pid_t pid, int fd)
{
	char path[64];
	struct stat st;

	service->pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (service->pid_fd < 0)
		return -errno;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
	service->fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (service->fd < 0)
		return -errno;
	if (fstat(service->fd, &st) != 0)
		return -errno;
	return S_ISREG(st.st_mode) && st.st_size == 0 ? 0 : -EINVAL;
}

static int begin(struct backup_service *service, pid_t pid,
		 const struct blinkfs_backup_start *start)
{
	int rc;

	join(service);
	service->fd = service->pid_fd = -1;
	rc = open_target(service, pid, start->fd);
	if (rc)
		goto out;
	atomic_store(&service->cancel, false);
	service->params = (struct backup_params){
		.fd = service->fd,
		.since = start->since,
		.bytes_per_second = start->bytes_per_second,
		.cancelled = is_cancelled,
		.progress = show,
		.arg = service,
	};
	memcpy(service->params.base_id, start->base_id, sizeof(service->params.base_id));
	rc = os_thread_start(&service->thread, "backup", backup_main, service);
	service->joinable = rc == 0;
out:
	if (rc && service->fd >= 0)
		close(service->fd);
	if (rc && service->pid_fd >= 0)
		close(service->pid_fd);
	return rc;
}

/* pid: the process whose descriptor it is. */
static int start_backup(struct backup_service *service, pid_t pid,
			const struct blinkfs_backup_start *start)
{
	bool running;
	int rc;

	if (service->volume->options.read_only)
		return -EROFS;
	rc = judge_base(service->volume, start);
	if (rc)
		return rc;
	latch_x(&service->latch);
	running = service->status.state == BACKUP_RUNNING;
	if (!running)
		service->status = (struct blinkfs_backup_status){
			.state = BACKUP_RUNNING, .pid = (int32_t)pid};
	unlatch_x(&service->latch);
	if (running)
		return -EBUSY;
	rc = begin(service, pid, start);
	if (rc == 0)
		return 0;
	latch_x(&service->latch);
	service->status.state = BACKUP_IDLE;
	unlatch_x(&service->latch);
	return rc;
}

void backup_service_status(struct backup_service *service, struct blinkfs_backup_status *status)
{
	latch_s(&service->latch);
	*status = service->status;
	unlatch_s(&service->latch);
}

/* ------------------------------------------------------------------ ioctls */

static void start(fuse_req_t req, const void *in, size_t len)
{
	struct blinkfs_backup_start start;
	int rc = -EINVAL;

	if (len == sizeof(start)) {
		memcpy(&start, in, sizeof(start));
		rc = start_backup(req_server(req)->backup, fuse_req_ctx(req)->pid, &start);
	}
	/* The command tells this one apart. */
	if (rc == -BE_ORDER)
		rc = -ESTALE;
	if (rc)
		reply_status(req, error_errno(rc));
	else
		fuse_reply_ioctl(req, 0, NULL, 0);
}

static void status(fuse_req_t req, size_t room)
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

bool backup_service_ioctl(fuse_req_t req, unsigned cmd, const void *in, size_t in_len,
			  size_t out_room)
{
	if (cmd != BLINKFS_IOC_BACKUP_START && cmd != BLINKFS_IOC_BACKUP_STATUS)
		return false;
	if (!req_is_owner(req))
		reply_status(req, -EPERM);
	else if (cmd == BLINKFS_IOC_BACKUP_START)
		start(req, in, in_len);
	else
		status(req, out_room);
	return true;
}
