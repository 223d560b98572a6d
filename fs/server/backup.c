/*
 * blinkfs backup [-fq] [--since LSN | --base FILE] [--rate SIZE] DIR FILE
 *
 * The command opens the file and the server fills it (backup_ioctl.h).  It is
 * called FILE.partial until it is complete; when the command ends before, for
 * whatever reason, the server lets go of everything.
 */
#include "fs/server/backup.h"

#include "engine/base/error.h"
#include "engine/base/fileio.h"
#include "engine/base/message.h"
#include "engine/base/units.h"
#include "engine/restore.h"
#include "fs/server/backup_ioctl.h"
#include "fs/server/interrupt.h"
#include "fs/server/mounted.h"

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
#define EXIT_BAD_BLOCKS 4
#define POLL_NS 100000000

static const char usage[] =
	"usage: blinkfs backup [-fq] [--since LSN | --base FILE] [--rate SIZE] DIR FILE\n"
	"Saves the volume mounted at DIR, as it is at one moment, while it is in use.\n"
	"\n"
	"  --base FILE   only what has changed since the backup in FILE was made\n"
	"  --since LSN   the same, when only the LSN of that backup is known\n"
	"  --rate SIZE   read no more file data than that a second\n"
	"  -f            replace FILE if it exists\n"
	"  -q            say nothing unless something is wrong\n";

struct call {
	const char *dir, *file, *base;
	bool replace, quiet;
	struct blinkfs_backup_start start;
	char *partial; /* owned */
	int dir_fd, fd;
};

/* ---------------------------------------------------------------- the call */

static int fail(const char *what, const char *why)
{
	message(LOG_ERR, "%s: %s", what, why);
	return EXIT_FAILED;
}

static int read_base(struct call *call)
{
	struct disk_backup_header *head = malloc(sizeof(*head));
	int fd = open(call->base, O_RDONLY | O_CLOEXEC);
	int rc = head == NULL ? -ENOMEM : fd < 0 ? -errno : 0;

	if (rc) {
		fail(call->base, error_text(rc));
		goto out;
	}
	rc = backup_header_read(fd, call->base, head);
	if (rc)
		goto out;
	call->start.since = le64_get(head->lsn);
	call->start.base_generation = le64_get(head->generation);
	memcpy(call->start.base_id, head->id, sizeof(head->id));
	memcpy(call->start.uuid, head->uuid, sizeof(head->uuid));
out:
	if (fd >= 0)
		close(fd);
	free(head);
	return rc;
}

/* The volume would have to take in what it is saved to. */
static bool is_inside(const struct call *call)
{
	struct stat volume, target;

	return fstat(call->dir_fd, &volume) == 0 && fstat(call->fd, &target) == 0 &&
	       volume.st_dev == target.st_dev;
}

static int open_target(struct call *call)
{
	if (strcmp(call->file, "-") == 0)
		return fail("-", "a backup is written to a file, parts of it more than once");
	if (!call->replace && access(call->file, F_OK) == 0)
		return fail(call->file, "exists; replace it with -f");
	if (asprintf(&call->partial, "%s.partial", call->file) < 0) {
		call->partial = NULL;
		return fail(call->file, "out of memory");
	}
	call->fd = open(call->partial, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (call->fd >= 0 && !is_inside(call))
		return 0;
	if (call->fd >= 0)
		return fail(call->file, "lies in the volume that is to be saved");
	if (errno == EEXIST)
		fail(call->partial, "exists: another backup is at work, or was interrupted; "
				    "remove it");
	else
		fail(call->partial, strerror(errno));
	free(call->partial); /* not ours */
	call->partial = NULL;
	return EXIT_FAILED;
}

static int start(struct call *call)
{
	const char *why;

	/* What the kernel still holds of file contents is part of now. */
	if (syncfs(call->dir_fd) != 0)
		return fail(call->dir, strerror(errno));
	call->start.fd = call->fd;
	if (ioctl(call->dir_fd, BLINKFS_IOC_BACKUP_START, &call->start) == 0)
		return 0;
	switch (errno) {
	case EBUSY: why = "another backup of this volume is running"; break;
	case EPERM: why = "only root, and who runs its server, may save a volume"; break;
	case EROFS: why = "mounted read-only: save the image itself"; break;
	case ESTALE:
		why = "the base is of another volume, or of before it was restored; "
		      "make a full backup";
		break;
	case ENOTTY: why = "the server that runs there knows no backup"; break;
	default: why = strerror(errno);
	}
	return fail(call->dir, why);
}

static void show(const struct call *call, const struct blinkfs_backup_status *status)
{
	char text[SIZE_TEXT_BYTES];

	if (!call->quiet && isatty(STDERR_FILENO))
		fprintf(stderr, "\r%s: %" PRIu64 " pages, %" PRIu64 " blocks, %s   ", call->file,
			status->pages, status->blocks, size_text(status->bytes, text));
}

static int await(struct call *call, struct blinkfs_backup_status *status)
{
	const struct timespec pause = {.tv_nsec = POLL_NS};

	for (;;) {
		if (ioctl(call->dir_fd, BLINKFS_IOC_BACKUP_STATUS, status) != 0)
			return fail(call->dir, strerror(errno));
		if (!status->is_mine || status->state != BACKUP_RUNNING)
			break;
		if (interrupted())
			return fail(call->file, "interrupted");
		show(call, status);
		nanosleep(&pause, NULL);
	}
	show(call, status);
	if (!call->quiet && isatty(STDERR_FILENO))
		fputc('\n', stderr);
	if (!status->is_mine)
		return fail(call->dir, "the backup was ended");
	if (status->error == -EINVAL)
		return fail(call->dir, "--since lies in the future of this volume");
	if (status->error == -EFBIG)
		return fail(call->dir, "changes faster than its metadata can be copied; "
				       "try again when it is quieter");
	return status->error ? fail(call->file, error_text(status->error)) : 0;
}

static int finish(struct call *call, const struct blinkfs_backup_status *status)
{
	char text[SIZE_TEXT_BYTES];

	if (rename(call->partial, call->file) != 0)
		return fail(call->file, strerror(errno));
	free(call->partial);
	call->partial = NULL;
	if (file_sync_parent(call->file) != 0)
		return fail(call->file, "may not survive a power failure: its directory could not "
					"be made durable");
	if (!call->quiet)
		printf("%s: %s, state at LSN %" PRIu64 "\n", call->file,
		       size_text(status->bytes, text), status->lsn);
	if (status->bad_blocks == 0)
		return 0;
	message(LOG_WARNING,
		"%s: %" PRIu64 " blocks of file data do not match their checksums; they are in the "
		"backup as they are.  fsck.blinkfs --data names the files", call->file,
		status->bad_blocks);
	return EXIT_BAD_BLOCKS;
}

static int make_backup(struct call *call)
{
	struct blinkfs_backup_status status;
	int exit_code;

	call->fd = -1;
	call->dir_fd = mounted_open(call->dir);
	if (call->dir_fd < 0)
		return EXIT_FAILED;
	exit_code = call->base && read_base(call) ? EXIT_FAILED : open_target(call);
	if (exit_code == 0)
		exit_code = start(call);
	if (exit_code == 0)
		exit_code = await(call, &status);
	if (exit_code == 0)
		exit_code = finish(call, &status);
	if (call->partial)
		unlink(call->partial);
	free(call->partial);
	if (call->fd >= 0)
		close(call->fd);
	close(call->dir_fd);
	return exit_code;
}

/* --------------------------------------------------------- the command line */

static int parse_lsn(const char *text, uint64_t *lsn)
{
	char *end;

	errno = 0;
	*lsn = strtoull(text, &end, 10);
	return errno || end == text || *end || *text == '-' || *lsn == 0 ? -EINVAL : 0;
}

static int parse(int argc, char **argv, struct call *call)
{
	static const struct option words[] = {
		{"since", required_argument, NULL, 's'},
		{"base", required_argument, NULL, 'b'},
		{"rate", required_argument, NULL, 'r'},
		{0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "fqh", words, NULL)) != -1) {
		switch (option) {
		case 'f': call->replace = true; break;
		case 'q': call->quiet = true; break;
		case 'b': call->base = optarg; break;
		case 's':
			if (parse_lsn(optarg, &call->start.since) != 0)
				return fail("--since", "not an LSN");
			break;
		case 'r':
			if (size_parse(optarg, &call->start.bytes_per_second) != 0 ||
			    call->start.bytes_per_second == 0)
				return fail("--rate", "not a size");
			break;
		case 'h':
			fputs(usage, stdout);
			exit(0);
		default:
			return EXIT_USAGE;
		}
	}
	if (call->base && call->start.since)
		return fail("--since, --base", "one of them says all");
	if (argc - optind != 2)
		return EXIT_USAGE;
	call->dir = argv[optind];
	call->file = argv[optind + 1];
	return 0;
}

int backup_main(int argc, char **argv)
{
	struct call call = {0};
	int wrong = parse(argc, argv, &call);

	if (wrong == EXIT_USAGE)
		fputs(usage, stderr);
	if (wrong)
		return EXIT_USAGE;
	interrupt_catch();
	return make_backup(&call);
}
