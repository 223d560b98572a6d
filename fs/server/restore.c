/*
 * blinkfs restore [-fq] [-j LOG] [--log DIR [--until LSN]] BACKUP... VOLUME
 * blinkfs restore --check BACKUP...
 *
 * A volume in a file is made under the name VOLUME.partial and renamed when it
 * is complete; one on a block device cannot be mounted before it is (restore.h).  A
 * redo log of its own is made in place: until the volume that knows it is complete,
 * it is nobody's.
 */
#include "fs/server/backup.h"

#include "engine/base/error.h"
#include "engine/base/fileio.h"
#include "engine/base/limits.h"
#include "engine/base/message.h"
#include "engine/restore.h"
#include "fs/server/place.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define EXIT_FAILED 1
#define EXIT_USAGE 2

static const char usage[] =
	"usage: blinkfs restore [-fq] [-j LOG] [--log DIR [--until LSN]] BACKUP... VOLUME\n"
	"       blinkfs restore --check BACKUP...\n"
	"Makes a volume of a full backup and the incremental ones that follow it.\n"
	"\n"
	"  -j LOG       the file or device for the redo log, where the volume had one\n"
	"  --log DIR    then replays the log archive in DIR (with file data)\n"
	"  --until LSN  no further than that\n"
	"  --check      only reads the backups and compares every checksum\n"
	"  -f           replace VOLUME, and LOG, if they exist; write to a block device\n"
	"  -q           say nothing unless something is wrong\n";

struct call {
	bool replace, quiet, check;
	const char *log_dir;
	lsn_t until;
	char **backup;
	int count;
	const char *volume;
	char *partial;       /* owned; NULL: a block device */
	struct device *lock; /* of the volume that is replaced */
	struct device *dev;
	const char *log_path;  /* -j */
	char *log_absolute;    /* owned */
	bool log_created;
	struct device *log_dev;
};

static int fail(const char *what, const char *why)
{
	message(LOG_ERR, "%s: %s", what, why);
	return EXIT_FAILED;
}

/* ------------------------------------------------------------------ backups */

static int open_backup(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		fail(path, strerror(errno));
	return fd;
}

static int read_header(const char *path, struct disk_backup_header *head)
{
	int fd = open_backup(path);
	int rc = fd < 0 ? -EIO : backup_header_read(fd, path, head);

	if (fd >= 0)
		close(fd);
	return rc ? EXIT_FAILED : 0;
}

static void describe(const char *path, const struct disk_backup_header *head)
{
	time_t created = (time_t)le64_get(head->created_sec);
	char when[32] = "?";
	struct tm tm;

	if (localtime_r(&created, &tm))
		strftime(when, sizeof(when), "%F %T", &tm);
	if (le64_get(head->base_lsn))
		printf("%s: incremental, LSN %" PRIu64 " to %" PRIu64 ", %s\n", path,
		       le64_get(head->base_lsn), le64_get(head->lsn), when);
	else
		printf("%s: full, LSN %" PRIu64 ", %s\n", path, le64_get(head->lsn), when);
}

static int check_backup(const char *path, bool quiet)
{
	struct disk_backup_header *head = malloc(sizeof(*head));
	int fd = open_backup(path);
	int rc = head == NULL ? -ENOMEM : fd < 0 ? -EIO : backup_header_read(fd, path, head);

	if (rc == 0)
		rc = backup_verify(fd, path);
	if (rc == 0 && !quiet)
		describe(path, head);
	if (fd >= 0)
		close(fd);
	free(head);
	return rc ? EXIT_FAILED : 0;
}

static int check_backups(const struct call *call)
{
	int exit_code = 0;

	for (int i = 0; i < call->count; i++)
		if (check_backup(call->backup[i], call->quiet))
			exit_code = EXIT_FAILED;
	return exit_code;
}

/* ------------------------------------------------------------------- target */

static int open_device(const char *path, struct device **dev)
{
	int rc = dev_open_file(dev, path, 0, 0);
	char *dir;

	if (rc == 0)
		return 0;
	dir = rc == -BE_BUSY ? place_of_volume(path) : NULL;
	if (dir)
		message(LOG_ERR, "%s: mounted on %s", path, dir);
	else
		fail(path, error_text(rc));
	free(dir);
	return EXIT_FAILED;
}

/* Of a restore that was interrupted it is used again; another one that is at work has it locked. */
static int open_partial(struct call *call)
{
	int fd = open(call->partial, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return fail(call->partial, strerror(errno));
	close(fd);
	return open_device(call->partial, &call->dev);
}

static int create(struct call *call, uint64_t bytes)
{
	int rc;

	if (asprintf(&call->partial, "%s.partial", call->volume) < 0) {
		call->partial = NULL;
		return fail(call->volume, "out of memory");
	}
	if (open_partial(call) != 0) {
		free(call->partial); /* not ours */
		call->partial = NULL;
		return EXIT_FAILED;
	}
	rc = dev_resize(call->dev, 0);
	if (rc == 0)
		rc = dev_resize(call->dev, bytes);
	return rc ? fail(call->partial, error_text(rc)) : 0;
}

static int open_target(struct call *call, uint64_t bytes)
{
	struct stat st;

	if (stat(call->volume, &st) != 0)
		return errno == ENOENT ? create(call, bytes) : fail(call->volume, strerror(errno));
	if (!call->replace)
		return fail(call->volume, S_ISBLK(st.st_mode)
						  ? "a block device; overwrite it with -f"
						  : "exists; replace it with -f");
	if (S_ISBLK(st.st_mode))
		return open_device(call->volume, &call->dev);
	/* Nobody may have it mounted while it is replaced. */
	if (open_device(call->volume, &call->lock))
		return EXIT_FAILED;
	return create(call, bytes);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return S_ISBLK(a->st_mode) ? S_ISBLK(b->st_mode) && a->st_rdev == b->st_rdev
				   : a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* The log's file gets its size when the backup has told it. */
static int open_log(struct call *call)
{
	struct stat st, volume;
	int fd;

	if (call->log_path == NULL)
		return 0;
	if (stat(call->log_path, &st) == 0) {
		if (stat(call->volume, &volume) == 0 && same_file(&st, &volume))
			return fail(call->log_path, "is the volume itself");
		if (!call->replace)
			return fail(call->log_path, "exists; replace it with -f");
	} else {
		fd = open(call->log_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0 || ftruncate(fd, BLOCK_SIZE) != 0) {
			int rc = fail(call->log_path, strerror(errno));

			if (fd >= 0)
				close(fd);
			return rc;
		}
		call->log_created = true;
		close(fd);
	}
	call->log_absolute = realpath(call->log_path, NULL);
	if (call->log_absolute == NULL)
		return fail(call->log_path, strerror(errno));
	if (strlen(call->log_absolute) >= LOG_PATH_BYTES)
		message(LOG_WARNING, "%s: a path of this length is not remembered; mount with "
				     "-o log=PATH", call->log_path);
	return open_device(call->log_path, &call->log_dev);
}

static void close_log(struct call *call, int exit_code)
{
	if (call->log_dev)
		dev_close(call->log_dev);
	if (exit_code && call->log_created)
		unlink(call->log_path);
	free(call->log_absolute);
}

static int close_target(struct call *call, int exit_code)
{
	if (call->dev)
		dev_close(call->dev);
	if (exit_code == 0 && call->partial && rename(call->partial, call->volume) != 0)
		exit_code = fail(call->volume, strerror(errno));
	else if (exit_code == 0 && call->partial && file_sync_parent(call->volume) != 0)
		exit_code = fail(call->volume, "may not survive a power failure: its directory "
					       "could not be made durable");
	if (exit_code && call->partial)
		unlink(call->partial);
	if (call->lock)
		dev_close(call->lock);
	free(call->partial);
	return exit_code;
}

/* ------------------------------------------------------------------ restore */

static int apply_backup(struct restore *restore, const char *path)
{
	int fd = open_backup(path);
	int rc = fd < 0 ? -EIO : restore_apply(restore, fd, path);

	if (fd >= 0)
		close(fd);
	/* Of the rest it has been said what is wrong. */
	if (rc && rc != -BE_ORDER && rc != -BE_DAMAGE && rc != -BE_NOVOLUME && rc != -BE_NOLOG &&
	    rc != -EINVAL && fd >= 0)
		fail(path, error_text(rc));
	return rc;
}

static int restore_all(struct call *call, lsn_t *lsn)
{
	struct restore *restore = NULL;
	int rc = restore_begin(&restore, call->dev);

	if (rc == 0 && call->log_dev)
		restore_log_to(restore, call->log_dev, call->log_absolute);
	for (int i = 0; i < call->count && rc == 0; i++)
		rc = apply_backup(restore, call->backup[i]);
	if (rc == 0 && call->log_dir)
		rc = restore_log(restore, call->log_dir, call->until);
	if (rc == 0) {
		rc = restore_finish(restore, lsn);
		if (rc)
			fail(call->volume, error_text(rc));
	}
	restore_end(restore);
	return rc ? EXIT_FAILED : 0;
}

static int make_volume(struct call *call)
{
	struct disk_backup_header *head = malloc(sizeof(*head));
	lsn_t lsn = 0;
	int exit_code;

	if (head == NULL)
		return fail(call->volume, "out of memory");
	exit_code = read_header(call->backup[call->count - 1], head);
	if (exit_code == 0) {
		exit_code = open_target(call, le64_get(head->block_count) * BLOCK_SIZE);
		if (exit_code == 0)
			exit_code = open_log(call);
		if (exit_code == 0)
			exit_code = restore_all(call, &lsn);
		exit_code = close_target(call, exit_code);
		close_log(call, exit_code);
	}
	free(head);
	if (exit_code == 0 && !call->quiet)
		printf("%s: restored, state at LSN %" PRIu64 "%s%s\n", call->volume, lsn,
		       call->log_path ? "; its redo log is " : "",
		       call->log_path ? call->log_path : "");
	return exit_code;
}

/* --------------------------------------------------------- the command line */

static int parse(int argc, char **argv, struct call *call)
{
	static const struct option words[] = {
		{"log", required_argument, NULL, 'l'},
		{"until", required_argument, NULL, 'u'},
		{"check", no_argument, NULL, 'c'},
		{0},
	};
	int option;
	char *end;

	call->until = UINT64_MAX;
	while ((option = getopt_long(argc, argv, "fqhj:", words, NULL)) != -1) {
		switch (option) {
		case 'f': call->replace = true; break;
		case 'q': call->quiet = true; break;
		case 'c': call->check = true; break;
		case 'j': call->log_path = optarg; break;
		case 'l': call->log_dir = optarg; break;
		case 'u':
			errno = 0;
			call->until = strtoull(optarg, &end, 10);
			if (errno || end == optarg || *end || *optarg == '-')
				return fail("--until", "not an LSN");
			break;
		case 'h':
			fputs(usage, stdout);
			exit(0);
		default:
			return EXIT_USAGE;
		}
	}
	if (call->until != UINT64_MAX && !call->log_dir)
		return fail("--until", "needs --log: a backup alone is the state at its own LSN");
	call->backup = argv + optind;
	call->count = argc - optind - !call->check;
	if (call->count < 1)
		return EXIT_USAGE;
	call->volume = call->check ? NULL : argv[argc - 1];
	return 0;
}

int restore_main(int argc, char **argv)
{
	struct call call = {0};
	int wrong = parse(argc, argv, &call);

	if (wrong == EXIT_USAGE)
		fputs(usage, stderr);
	if (wrong)
		return EXIT_USAGE;
	return call.check ? check_backups(&call) : make_volume(&call);
}
