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

/* Makes the file when there is none.  *created: whoever fails later has to remove it. */
static int create_missing(const struct mkfs_options *options, bool *created)
{
	struct stat st;
	int rc = 0, fd;

	if (stat(options->path, &st) == 0)
		return 0;
	if (errno != ENOENT)
		return -errno;
	if (!options->size_bytes)
		return refuse(options->path, "does not exist; give its size with -s to create it");
	if (options->dry_run)
		return 0;
	fd = open(options->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return -errno;
	*created = true;
	if (ftruncate(fd, (off_t)options->size_bytes) != 0)
		rc = -errno;
	close(fd);
	return rc;
}

static int open_volume(const struct mkfs_options *options, struct device **dev)
{
	unsigned flags = options->dry_run ? DEV_READ_ONLY | DEV_SHARED_LOCK : 0;
	int rc;

	if (options->dry_run && access(options->path, F_OK) != 0)
		return dev_open_memory(dev, options->size_bytes);
	rc = dev_open_file(dev, options->path, flags, 0);
	if (rc == -BE_BUSY) {
		/* A server may still be closing it after umount. */
		message(LOG_NOTICE, "%s: in use; waiting up to %llu s for it", options->path,
			LOCK_WAIT_NS / 1000000000ull);
		rc = dev_open_file(dev, options->path, flags, LOCK_WAIT_NS);
	}
	if (rc == -BE_BUSY)
		return refuse(options->path, "in use (mounted, or being checked)");
	if (rc == -EINVAL)
		return refuse(options->path, "neither a regular file nor a block device");
	return rc;
}

/* A file grows to the size that -s asks for; the lock is let go for a moment. */
static int grow_file(const struct mkfs_options *options, struct device **dev)
{
	struct stat st;

	if (!options->size_bytes || options->size_bytes <= (*dev)->size_bytes || options->dry_run)
		return 0;
	if (stat(options->path, &st) != 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return refuse(options->path, "the device is smaller than the size given with -s");
	dev_close(*dev);
	*dev = NULL;
	if (truncate(options->path, (off_t)options->size_bytes) != 0)
		return -errno;
	return open_volume(options, dev);
}

static int refuse_to_overwrite(const struct mkfs_options *options, struct device *dev)
{
	char what[PROBE_TEXT_BYTES];
	int rc;

	if (options->force || access(options->path, F_OK) != 0)
		return 0;
	rc = probe_contents(dev, what);
	if (rc == -EEXIST) {
		message(LOG_ERR, "%s: holds %s; use -f to overwrite it", options->path, what);
		return -ECANCELED;
	}
	if (rc)
		return refuse(options->path, "cannot tell what is on it; use -f to overwrite it");
	return 0;
}

/* --- the volume ---------------------------------------------------------- */

static void summarize(const struct mkfs_options *options, const struct geometry *geo)
{
	char size[SIZE_TEXT_BYTES], page[SIZE_TEXT_BYTES], log[SIZE_TEXT_BYTES], uuid[37];

	uuid_unparse(options->format.uuid, uuid);
	printf("%s: %s%s, page size %s, log %s, %u group%s\n", options->path,
	       options->dry_run ? "would be a volume of " : "",
	       size_text(geo->block_count * BLOCK_SIZE, size), size_text(geo->page_size, page),
	       size_text(geo->log_bytes, log), geo->group_count, geo->group_count == 1 ? "" : "s");
	printf("UUID %s%s%s\n", uuid, options->format.label[0] ? ", label " : "",
	       options->format.label);
}

static int explain_format(const struct mkfs_options *options, uint64_t size_bytes, int rc)
{
	char size[SIZE_TEXT_BYTES], page[SIZE_TEXT_BYTES];

	if (rc == -BE_TOOSMALL)
		message(LOG_ERR, "%s: %s is too small for a volume with pages of %s%s",
			options->path, size_text(size_bytes, size),
			size_text(options->format.page_size, page),
			options->format.log_bytes ? " and a log of this size" : "");
	else if (rc == -EINVAL)
		message(LOG_ERR,
			"%s: a log of this size does not fit a volume of %s with pages of %s",
			options->path, size_text(size_bytes, size),
			size_text(options->format.page_size, page));
	else
		return explain(options->path, rc);
	return -ECANCELED;
}

static int format(const struct mkfs_options *options, struct device *dev)
{
	struct format_params params = options->format;
	struct geometry geo;
	int rc;

	params.size_bytes = options->size_bytes ? options->size_bytes : dev->size_bytes;
	if (params.size_bytes > dev->size_bytes)
		params.size_bytes = dev->size_bytes; /* -n: it would be grown */
	/* First without writing: a wrong size must not cost what is there. */
	params.dry_run = true;
	rc = volume_format(dev, &params, &geo);
	if (!rc && !options->dry_run) {
		params.dry_run = false;
		rc = probe_wipe(dev);
		if (!rc)
			rc = volume_format(dev, &params, &geo);
	}
	if (rc)
		return explain_format(options, params.size_bytes, rc);
	if (!options->quiet)
		summarize(options, &geo);
	return 0;
}

static int make_volume(const struct mkfs_options *options)
{
	struct device *dev = NULL;
	bool created = false;
	int rc = create_missing(options, &created);

	if (!rc)
		rc = open_volume(options, &dev);
	if (!rc)
		rc = refuse_to_overwrite(options, dev);
	if (!rc)
		rc = grow_file(options, &dev);
	if (!rc)
		rc = format(options, dev);
	dev_close(dev);
	if (rc && created)
		unlink(options->path);
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
