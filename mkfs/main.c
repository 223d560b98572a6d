/*
 * mkfs.blinkfs: makes a volume in a file or on a block device.
 *
 *	create the file when missing -> open and lock -> look what is there
 *	-> grow the file when asked -> wipe foreign signatures -> format
 *
 * Exit code 0: done (or -n: could be done).  1: not done, with one line that
 * says why; a file that this run created is gone again.
 */
#include "engine/base/error.h"
#include "engine/base/message.h"
#include "engine/base/units.h"
#include "mkfs/options.h"
#include "mkfs/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uuid.h>

static int refuse(const char *path, const char *why)
{
	message(LOG_ERR, "%s: %s", path, why);
	return -ECANCELED; /* already explained */
}

static int explain(const char *path, int rc)
{
	return rc && rc != -ECANCELED ? refuse(path, error_text(rc)) : rc;
}

/* --- the file ------------------------------------------------------------ */

/* One of the two files or devices: the volume itself, or its log. */
struct target {
	const char *path;
	uint64_t size_bytes; /* wanted; 0: as it is */
	const char *option;  /* that gives the size */
	struct device *dev;
	bool created;        /* whoever fails later has to remove it */
};

/* Makes the file when there is none. */
static int create_missing(struct target *target, bool dry_run)
{
	struct stat st;
	int rc = 0, fd;

	if (stat(target->path, &st) == 0)
		return 0;
	if (errno != ENOENT)
		return -errno;
	if (!target->size_bytes) {
		message(LOG_ERR, "%s: does not exist; give its size with %s to create it",
			target->path, target->option);
		return -ECANCELED;
	}
	if (dry_run)
		return 0;
	fd = open(target->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return -errno;
	target->created = true;
	if (ftruncate(fd, (off_t)target->size_bytes) != 0)
		rc = -errno;
	close(fd);
	return rc;
}

static int open_target(struct target *target, bool dry_run)
{
	unsigned flags = dry_run ? DEV_READ_ONLY | DEV_SHARED_LOCK : 0;
	int rc;

	if (dry_run && access(target->path, F_OK) != 0)
		return dev_open_memory(&target->dev, target->size_bytes);
	/* A server may still be closing it after umount. */
	rc = dev_open_file(&target->dev, target->path, flags, LOCK_WAIT_SILENT_NS);
	if (rc == -BE_BUSY) {
		message(LOG_NOTICE, "%s: in use; waiting up to %llu s for it", target->path,
			LOCK_WAIT_NS / 1000000000ull);
		rc = dev_open_file(&target->dev, target->path, flags,
				   LOCK_WAIT_NS - LOCK_WAIT_SILENT_NS);
	}
	if (rc == -BE_BUSY)
		return refuse(target->path, "in use (mounted, or being checked)");
	if (rc == -EINVAL)
		return refuse(target->path, "neither a regular file nor a block device");
	return rc;
}

/* A file grows to the size that is asked for; the lock is let go for a moment. */
static int grow_file(struct target *target, bool dry_run)
{
	struct stat st;

	if (!target->dev || target->size_bytes <= target->dev->size_bytes || dry_run)
		return 0;
	if (stat(target->path, &st) != 0)
		return -errno;
	if (!S_ISREG(st.st_mode)) {
		message(LOG_ERR, "%s: the device is smaller than the size given with %s",
			target->path, target->option);
		return -ECANCELED;
	}
	dev_close(target->dev);
	target->dev = NULL;
	if (truncate(target->path, (off_t)target->size_bytes) != 0)
		return -errno;
	return open_target(target, dry_run);
}

static int refuse_to_overwrite(const struct mkfs_options *options, const char *path,
			       struct device *dev)
{
	char what[PROBE_TEXT_BYTES];
	int rc;

	if (options->force || !dev || access(path, F_OK) != 0)
		return 0;
	rc = probe_contents(dev, what);
	if (rc == -EEXIST) {
		message(LOG_ERR, "%s: holds %s; use -f to overwrite it", path, what);
		return -ECANCELED;
	}
	if (rc)
		return refuse(path, "cannot tell what is on it; use -f to overwrite it");
	return 0;
}

/* --- the volume ---------------------------------------------------------- */

static void summarize(const struct mkfs_options *options, const struct geometry *geo)
{
	char size[SIZE_TEXT_BYTES], page[SIZE_TEXT_BYTES], log[SIZE_TEXT_BYTES], uuid[37];

	uuid_unparse(options->format.uuid, uuid);
	printf("%s: %s%s, page size %s, log %s%s%s, %u group%s\n", options->path,
	       options->dry_run ? "would be a volume of " : "",
	       size_text(geo->block_count * BLOCK_SIZE, size), size_text(geo->page_size, page),
	       size_text(geo->log_bytes, log), options->log_path ? " on " : "",
	       options->log_path ? options->log_path : "", geo->group_count,
	       geo->group_count == 1 ? "" : "s");
	printf("UUID %s%s%s\n", uuid, options->format.label[0] ? ", label " : "",
	       options->format.label);
}

static int explain_format(const struct mkfs_options *options, uint64_t size_bytes, int rc)
{
	char size[SIZE_TEXT_BYTES], page[SIZE_TEXT_BYTES], least[SIZE_TEXT_BYTES];

	if (rc == -BE_TOOSMALL)
		message(LOG_ERR, "%s: %s is too small for a volume with pages of %s%s",
			options->path, size_text(size_bytes, size),
			size_text(options->format.page_size, page),
			options->format.log_bytes && !options->log_path ? " and a log of this size"
									: "");
	else if (rc == -EINVAL && options->log_path)
		message(LOG_ERR, "%s: a log for pages of %s has %s or more, and fits its device",
			options->log_path, size_text(options->format.page_size, page),
			size_text(volume_log_bytes_min(options->format.page_size), least));
	else if (rc == -EINVAL)
		message(LOG_ERR,
			"%s: a log of this size does not fit a volume of %s with pages of %s",
			options->path, size_text(size_bytes, size),
			size_text(options->format.page_size, page));
	else
		return explain(options->path, rc);
	return -ECANCELED;
}

/* The hint for those who mount: wherever they stand, it names the same file. */
static int find_log(const struct mkfs_options *options, struct format_params *params,
		    char **absolute)
{
	*absolute = realpath(options->log_path, NULL);
	if (*absolute && strlen(*absolute) < LOG_PATH_BYTES)
		params->log_path = *absolute;
	else if (*absolute && !options->dry_run)
		message(LOG_WARNING, "%s: a path of this length is not remembered; mount with "
				     "-o log=PATH", options->log_path);
	return *absolute || options->dry_run ? 0 : -errno;
}

static int format(const struct mkfs_options *options, struct device *dev, struct device *log_dev)
{
	struct format_params params = options->format;
	struct geometry geo;
	char *log_path = NULL;
	int rc = options->log_path ? find_log(options, &params, &log_path) : 0;

	params.log_dev = log_dev;
	params.size_bytes = options->size_bytes ? options->size_bytes : dev->size_bytes;
	if (params.size_bytes > dev->size_bytes)
		params.size_bytes = dev->size_bytes; /* -n: it would be grown */
	/* First without writing: a wrong size must not cost what is there. */
	params.dry_run = true;
	if (!rc)
		rc = volume_format(dev, &params, &geo);
	if (!rc && !options->dry_run) {
		params.dry_run = false;
		rc = probe_wipe(dev);
		if (!rc && log_dev)
			rc = probe_wipe(log_dev);
		if (!rc)
			rc = volume_format(dev, &params, &geo);
	}
	free(log_path);
	if (rc)
		return explain_format(options, params.size_bytes, rc);
	if (!options->quiet)
		summarize(options, &geo);
	return 0;
}

static bool same_file(const char *a, const char *b)
{
	struct stat x, y;

	if (stat(a, &x) != 0 || stat(b, &y) != 0)
		return strcmp(a, b) == 0;
	return S_ISBLK(x.st_mode) ? S_ISBLK(y.st_mode) && x.st_rdev == y.st_rdev
				  : x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* A file for the log that is not there gets the usual size. */
static int prepare_log(const struct mkfs_options *options, struct target *log)
{
	struct stat st;

	if (!options->log_path)
		return 0;
	if (same_file(options->path, options->log_path))
		return refuse(options->log_path, "is the volume itself; leave out -j");
	log->path = options->log_path;
	log->option = "-l";
	log->size_bytes = options->format.log_bytes;
	if (!log->size_bytes && stat(log->path, &st) != 0)
		log->size_bytes = LOG_BYTES_DEFAULT;
	return create_missing(log, options->dry_run);
}

static void close_target(struct target *target, int rc)
{
	dev_close(target->dev);
	if (rc && target->created)
		unlink(target->path);
}

static int make_volume(const struct mkfs_options *options)
{
	struct target volume = {
		.path = options->path, .size_bytes = options->size_bytes, .option = "-s"};
	struct target log = {0};
	int rc = create_missing(&volume, options->dry_run);

	if (!rc)
		rc = prepare_log(options, &log);
	if (!rc)
		rc = open_target(&volume, options->dry_run);
	if (!rc && log.path)
		rc = open_target(&log, options->dry_run);
	if (!rc)
		rc = refuse_to_overwrite(options, volume.path, volume.dev);
	if (!rc)
		rc = refuse_to_overwrite(options, log.path, log.dev);
	if (!rc)
		rc = grow_file(&volume, options->dry_run);
	if (!rc)
		rc = grow_file(&log, options->dry_run);
	if (!rc)
		rc = format(options, volume.dev, log.dev);
	close_target(&log, rc);
	close_target(&volume, rc);
	return explain(options->path, rc);
}

int main(int argc, char **argv)
{
	struct mkfs_options options;

	message_init("mkfs.blinkfs", false);
	switch (options_parse(argc, argv, &options)) {
	case OPTIONS_DONE:
		return 0;
	case OPTIONS_WRONG:
		return 1;
	case OPTIONS_RUN:
		break;
	}
	return make_volume(&options) == 0 ? 0 : 1;
}
