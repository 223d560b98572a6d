/*
 * One scrub at a time, by a thread of its own: see scrub_serve.h.
 *
 * What it finds is put into words at once, while the path can still be found, and kept
 * until the next scrub begins; the first SCRUB_FINDINGS_MAX of them.
 */
#include "fs/server/scrub_serve.h"

#include "engine/base/error.h"
#include "engine/base/latch.h"
#include "engine/base/message.h"
#include "engine/scrub.h"
#include "fs/owner.h"
#include "fs/server/reply.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define SCRUB_NICE 15

struct scrub_service {
	struct volume *volume;
	_Atomic bool cancel;
	struct latch latch;                 /* RANK_LEAF */
	struct blinkfs_scrub_status status; /* [lock: latch] */
	char **finding;                     /* SCRUB_FINDINGS_MAX; the strings [lock: latch] */
	uint64_t began_ns;                  /* [lock: latch] */
	/* of who has set the state to RUNNING */
	struct os_thread thread;
	bool joinable;
	struct scrub_params params;
	/* of the thread */
	uint64_t owner_lob;                 /* whose owner is known; 0: nobody's */
	char owner[OWNER_TEXT_BYTES];
};

int scrub_service_open(struct scrub_service **out, struct volume *volume)
{
	struct scrub_service *service = calloc(1, sizeof(*service));
	char **finding = calloc(SCRUB_FINDINGS_MAX, sizeof(*finding));

	if (service == NULL || finding == NULL) {
		free(finding);
		free(service);
		return -ENOMEM;
	}
	service->volume = volume;
	service->finding = finding;
	latch_init(&service->latch, RANK_LEAF, 0);
	*out = service;
	return 0;
}

static void join(struct scrub_service *service)
{
	if (service->joinable)
		os_thread_join(&service->thread);
	service->joinable = false;
}

static void forget_findings_locked(struct scrub_service *service)
{
	for (uint64_t i = 0; i < service->status.findings; i++) {
		free(service->finding[i]);
		service->finding[i] = NULL;
	}
	service->status.findings = 0;
}

void scrub_service_close(struct scrub_service *service)
{
	if (service == NULL)
		return;
	atomic_store(&service->cancel, true);
	join(service);
	forget_findings_locked(service);
	free(service->finding);
	free(service);
}

/* --------------------------------------------------------------- the thread */

static bool is_cancelled(void *arg)
{
	struct scrub_service *service = arg;

	return atomic_load(&service->cancel);
}

static void show_locked(struct scrub_service *service, const struct scrub_progress *progress)
{
	struct blinkfs_scrub_status *status = &service->status;

	status->pages = progress->pages;
	status->blocks = progress->blocks;
	status->bytes = progress->bytes;
	status->bytes_passed = progress->bytes_passed;
	status->bytes_used = progress->bytes_used;
	status->skipped = progress->skipped;
	status->unreachable = progress->unreachable;
	status->bad_pages = progress->bad_pages;
	status->bad_blocks = progress->bad_blocks;
	status->cached = progress->cached;
	status->seconds = (os_mono_ns() - service->began_ns) / 1000000000ull;
}

static void show(void *arg, const struct scrub_progress *progress)
{
	struct scrub_service *service = arg;

	latch_x(&service->latch);
	show_locked(service, progress);
	unlatch_x(&service->latch);
}

static const char *owner(struct scrub_service *service, uint64_t lob)
{
	if (service->owner_lob != lob)
		owner_text(service->volume, lob, service->owner);
	service->owner_lob = lob;
	return service->owner;
}

static char *describe(struct scrub_service *service, const struct scrub_damage *damage)
{
	static const char *const index_names[INDEX_COUNT] = {
		"dirents", "inodes", "xattrs", "lob", "shares", "purge", "txn", "overlay",
	};
	char *text = NULL;
	int len = -1;

	switch (damage->place) {
	case SCRUB_SUPERBLOCK:
		len = asprintf(&text, "superblock at block %" PRIu64 ": %s", damage->block,
			       damage->why);
		break;
	case SCRUB_LOG:
		len = asprintf(&text, "redo log, block %" PRIu64 ": %s", damage->block,
			       damage->why);
		break;
	case SCRUB_FIXED_PAGE:
		len = asprintf(&text, "page %" PRIu64 " (%s): %s", damage->block,
			       damage->block == service->volume->geo.system_page ? "system page"
										 : "bitmap",
			       damage->why);
		break;
	case SCRUB_TREE_PAGE:
		len = asprintf(&text, "index %s, page %" PRIu64 " (level %u): %s",
			       index_names[damage->index], damage->block, damage->level,
			       damage->why);
		break;
	case SCRUB_DATA:
		len = asprintf(&text, "%s, offset %" PRIu64 ": block %" PRIu64 ": %s",
			       owner(service, damage->lob), damage->file_block * BLOCK_SIZE,
			       damage->block, damage->why);
		break;
	}
	return len < 0 ? NULL : text;
}

static void found(void *arg, const struct scrub_damage *damage)
{
	struct scrub_service *service = arg;
	struct blinkfs_scrub_status *status = &service->status;
	char *text = describe(service, damage);

	if (text == NULL)
		return;
	message(LOG_ERR, "%s: scrub: %s", service->volume->dev->path, text);
	latch_x(&service->latch);
	if (status->findings < SCRUB_FINDINGS_MAX) {
		service->finding[status->findings++] = text;
		text = NULL;
	}
	unlatch_x(&service->latch);
	free(text);
}

static void say_result(const struct scrub_service *service, int rc,
		       const struct scrub_progress *result)
{
	const char *path = service->volume->dev->path;
	uint64_t bad = result->bad_pages + result->bad_blocks;

	if (rc)
		message(LOG_NOTICE, "%s: scrub ended early: %s", path, error_text(rc));
	else
		message(bad ? LOG_ERR : LOG_INFO,
			"%s: scrub: %" PRIu64 " pages, %" PRIu64 " blocks: %" PRIu64 " damaged",
			path, result->pages, result->blocks, bad);
}

static void scrub_main(void *arg)
{
	struct scrub_service *service = arg;
	struct scrub_progress result = {0};
	int rc;

	/* Of this thread alone: others go first. */
	setpriority(PRIO_PROCESS, 0, SCRUB_NICE);
	rc = scrub_run(service->volume, &service->params, &result);
	say_result(service, rc, &result);
	latch_x(&service->latch);
	show_locked(service, &result);
	service->status.error = rc;
	service->status.ended_time = (uint64_t)os_realtime().tv_sec;
	service->status.state = SCRUB_ENDED;
	unlatch_x(&service->latch);
}

/* ------------------------------------------------------------------- calls */

/* -EBUSY: one is running; -EROFS. */
static int start_scrub(struct scrub_service *service, const struct blinkfs_scrub_start *start)
{
	uint64_t number;
	bool running;
	int rc;

	if (service->volume->options.read_only)
		return -EROFS;
	latch_x(&service->latch);
	running = service->status.state == SCRUB_RUNNING;
	if (!running) {
		forget_findings_locked(service);
		number = service->status.number + 1;
		service->status = (struct blinkfs_scrub_status){.state = SCRUB_RUNNING,
								.number = number};
		service->began_ns = os_mono_ns();
		/* Whoever cancels from here on means this one. */
		atomic_store(&service->cancel, false);
	}
	unlatch_x(&service->latch);
	if (running)
		return -EBUSY;
	join(service);
	service->owner_lob = 0;
	service->params = (struct scrub_params){
		.bytes_per_second = start->bytes_per_second,
		.cancelled = is_cancelled,
		.progress = show,
		.found = found,
		.arg = service,
	};
	rc = os_thread_start(&service->thread, "scrub", scrub_main, service);
	service->joinable = rc == 0;
	if (rc == 0)
		return 0;
	latch_x(&service->latch);
	service->status.state = SCRUB_IDLE;
	unlatch_x(&service->latch);
	return rc;
}

void scrub_service_status(struct scrub_service *service, struct blinkfs_scrub_status *status)
{
	latch_s(&service->latch);
	*status = service->status;
	unlatch_s(&service->latch);
}

/* -ENOENT: there are not so many. */
static int get_finding(struct scrub_service *service, struct blinkfs_scrub_finding *finding)
{
	int rc = -ENOENT;

	latch_s(&service->latch);
	if (finding->n < service->status.findings) {
		snprintf(finding->text, sizeof(finding->text), "%s", service->finding[finding->n]);
		rc = 0;
	}
	unlatch_s(&service->latch);
	return rc;
}

/* ------------------------------------------------------------------ ioctls */

static void start(fuse_req_t req, const void *in, size_t len)
{
	struct blinkfs_scrub_start start;
	int rc = -EINVAL;

	if (len == sizeof(start)) {
		memcpy(&start, in, sizeof(start));
		rc = start_scrub(req_server(req)->scrub, &start);
	}
	if (rc)
		reply_status(req, error_errno(rc));
	else
		fuse_reply_ioctl(req, 0, NULL, 0);
}

static void status(fuse_req_t req, size_t room)
{
	struct blinkfs_scrub_status status;

	if (room != sizeof(status)) {
		reply_status(req, -EINVAL);
		return;
	}
	scrub_service_status(req_server(req)->scrub, &status);
	fuse_reply_ioctl(req, 0, &status, sizeof(status));
}

static void finding(fuse_req_t req, const void *in, size_t len, size_t room)
{
	struct blinkfs_scrub_finding finding = {0};
	int rc = -EINVAL;

	if (len == sizeof(finding) && room == sizeof(finding)) {
		memcpy(&finding.n, in, sizeof(finding.n));
		rc = get_finding(req_server(req)->scrub, &finding);
	}
	if (rc)
		reply_status(req, rc);
	else
		fuse_reply_ioctl(req, 0, &finding, sizeof(finding));
}

bool scrub_service_ioctl(fuse_req_t req, unsigned cmd, const void *in, size_t in_len,
			 size_t out_room)
{
	if (cmd != BLINKFS_IOC_SCRUB_START && cmd != BLINKFS_IOC_SCRUB_STATUS &&
	    cmd != BLINKFS_IOC_SCRUB_CANCEL && cmd != BLINKFS_IOC_SCRUB_FINDING)
		return false;
	if (!req_is_owner(req)) {
		reply_status(req, -EPERM);
	} else if (cmd == BLINKFS_IOC_SCRUB_START) {
		start(req, in, in_len);
	} else if (cmd == BLINKFS_IOC_SCRUB_STATUS) {
		status(req, out_room);
	} else if (cmd == BLINKFS_IOC_SCRUB_FINDING) {
		finding(req, in, in_len, out_room);
	} else {
		atomic_store(&req_server(req)->scrub->cancel, true);
		fuse_reply_ioctl(req, 0, NULL, 0);
	}
	return true;
}
