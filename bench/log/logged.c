/* Committing through the log. */
#include "bench/log/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/error.h"
#include "engine/format.h"

struct logged {
	struct device *dev;
	struct log *log;
	_Atomic bool checkpointing;
};

static void demand(int err, const char *what)
{
	if (!err)
		return;
	errno = -error_errno(err);
	die(what);
}

static struct device *make_device(const char *path, uint64_t flush_delay_ns)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	struct device *dev;

	if (fd < 0 || ftruncate(fd, FILE_BYTES) != 0)
		die(path);
	close(fd);
	demand(dev_open_file(&dev, path, 0, 0), path);
	return flush_delay_ns ? slow_device(dev, flush_delay_ns) : dev;
}

static void *log_committer_open(const char *path, uint64_t flush_delay_ns, enum log_mode mode)
{
	struct logged *logged = calloc(1, sizeof(*logged));
	const struct log_options options = {.mode = mode};
	struct log_place place = {.size_bytes = FILE_BYTES, .uuid = "log_bench"};

	if (!logged)
		die("memory");
	place.dev = logged->dev = make_device(path, flush_delay_ns);
	demand(log_format(place.dev, 0, FILE_BYTES, place.uuid, 1), "log_format");
	demand(dev_flush(place.dev), "flush");
	demand(log_open(&logged->log, &place, 1, 1), "log_open");
	demand(log_start(logged->log, LSN_FIRST, 2, &options), log_mode_name(mode));
	return logged;
}

static void *open_pwrite(const char *path, uint64_t flush_delay_ns)
{
	return log_committer_open(path, flush_delay_ns, LOG_MODE_PWRITE);
}

static void *open_direct(const char *path, uint64_t flush_delay_ns)
{
	return log_committer_open(path, flush_delay_ns, LOG_MODE_DIRECT);
}

static void *open_dsync(const char *path, uint64_t flush_delay_ns)
{
	return log_committer_open(path, flush_delay_ns, LOG_MODE_DSYNC);
}

static void *open_mapped(const char *path, uint64_t flush_delay_ns)
{
	return log_committer_open(path, flush_delay_ns, LOG_MODE_MAPPED);
}

static void logged_close(void *self)
{
	struct logged *logged = self;

	log_close(logged->log);
	dev_close(logged->dev);
	free(logged);
}

/* No pages here: all that is durable is in place.  Rare: a checkpoint frees half of the log. */
static void make_space(struct logged *logged)
{
	struct log *log = logged->log;

	if (log_next_lsn(log) - log_checkpoint_lsn(log) < log_capacity(log) / 2 ||
	    atomic_exchange(&logged->checkpointing, true))
		return;
	demand(log_checkpoint(log, log_durable_lsn(log)), "checkpoint");
	atomic_store(&logged->checkpointing, false);
}

static void logged_commit(void *self, unsigned worker)
{
	struct logged *logged = self;
	uint8_t records[RECORD_BYTES] = {REC_PATCH, 0x80 | ((RECORD_BYTES - 8) & 0x7f),
					 (RECORD_BYTES - 8) >> 7};
	struct log_ticket ticket;

	memset(records + 3, (int)worker, RECORD_BYTES - 8);
	make_space(logged);
	demand(log_reserve(logged->log, RECORD_BYTES), "log_reserve");
	log_append(logged->log, records, RECORD_BYTES - MTR_TRAILER_BYTES, &ticket);
	log_listed(logged->log, &ticket);
	demand(log_flush(logged->log, ticket.end), "log_flush");
}

const struct committer logged_pwrite = {open_pwrite, logged_commit, logged_close};
const struct committer logged_direct = {open_direct, logged_commit, logged_close};
const struct committer logged_dsync = {open_dsync, logged_commit, logged_close};
const struct committer logged_mapped = {open_mapped, logged_commit, logged_close};
