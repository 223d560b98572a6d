/*
 * blinkfs scrub [-q] [--rate MIB_S] DIR        until it is done; an interrupt cancels it
 * blinkfs scrub start|status|cancel ... DIR    a scrub that goes on by itself
 *
 * The server does it (scrub_ioctl.h); the command starts, asks and prints.
 */
#include "fs/server/scrub.h"

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/message.h"
#include "engine/base/units.h"
#include "fs/server/interrupt.h"
#include "fs/server/mounted.h"
#include "fs/server/scrub_ioctl.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXIT_FAILED 1
#define EXIT_USAGE 2
#define EXIT_DAMAGE 4
#define RATE_DEFAULT_MIB 100u
#define RATE_MIB_MAX (1u << 24)
#define POLL_NS 100000000

static const char usage[] =
	"usage: blinkfs scrub [-q] [--rate MIB_S] DIR\n"
	"       blinkfs scrub start [--rate MIB_S] DIR\n"
	"       blinkfs scrub status|cancel DIR\n"
	"Reads all metadata and all file contents of the volume mounted at DIR from its\n"
	"medium, while it is in use, and says what does not match its checksum.\n"
	"\n"
	"  (none)        until it is done; an interrupt cancels it\n"
	"  start         in the background\n"
	"  status        how far it is, or what the last one found\n"
	"  --rate MIB_S  read no more than that a second (default 100; 0: no limit)\n"
	"  -q            say nothing unless something is wrong\n";

enum verb { VERB_RUN, VERB_START, VERB_STATUS, VERB_CANCEL };

struct call {
	enum verb verb;
	const char *dir;
	bool quiet;
	uint64_t rate_mib;
	int fd;
	uint64_t told; /* findings that were printed */
};

/* ---------------------------------------------------------------- the call */

static int fail(const struct call *call, const char *why)
{
	message(LOG_ERR, "%s: %s", call->dir, why);
	return EXIT_FAILED;
}

static int fail_ioctl(const struct call *call)
{
	switch (errno) {
	case EBUSY: return fail(call, "is being scrubbed already; see 'blinkfs scrub status'");
	case EPERM: return fail(call, "only root, and who runs its server, may scrub a volume");
	case EROFS: return fail(call, "mounted read-only: fsck.blinkfs -n -f --data looks at it");
	case ENOTTY: return fail(call, "the server that runs there knows no scrubbing");
	default: return fail(call, strerror(errno));
	}
}

static int get_status(const struct call *call, struct blinkfs_scrub_status *status)
{
	return ioctl(call->fd, BLINKFS_IOC_SCRUB_STATUS, status) == 0 ? 0 : fail_ioctl(call);
}

static bool show_progress(const struct call *call)
{
	return !call->quiet && isatty(STDERR_FILENO);
}

static unsigned percent(const struct blinkfs_scrub_status *status)
{
	uint64_t used = status->bytes_used / 100;
	uint64_t done = used ? status->bytes_passed / used : 0;

	return done < 99 ? (unsigned)done : 99;
}

static void print_progress(FILE *to, const struct blinkfs_scrub_status *status)
{
	char read[SIZE_TEXT_BYTES];

	fprintf(to, "%u %%: %" PRIu64 " pages, %" PRIu64 " blocks, %s read in %" PRIu64
		" s, %" PRIu64 " damaged", percent(status), status->pages, status->blocks,
		size_text(status->bytes, read), status->seconds,
		status->bad_pages + status->bad_blocks);
}

static void print_findings(struct call *call, const struct blinkfs_scrub_status *status)
{
	struct blinkfs_scrub_finding finding;

	for (; call->told < status->findings; call->told++) {
		finding.n = call->told;
		if (ioctl(call->fd, BLINKFS_IOC_SCRUB_FINDING, &finding) != 0)
			return;
		finding.text[sizeof(finding.text) - 1] = '\0';
		if (show_progress(call))
			fputs("\r\033[K", stderr);
		printf("%s\n", finding.text);
		fflush(stdout);
	}
}

static int report(struct call *call, const struct blinkfs_scrub_status *status)
{
	uint64_t bad = status->bad_pages + status->bad_blocks;
	char read[SIZE_TEXT_BYTES];

	print_findings(call, status);
	if (status->findings < bad)
		printf("and %" PRIu64 " more\n", bad - status->findings);
	if (!call->quiet || bad)
		printf("%s: %" PRIu64 " pages, %" PRIu64 " blocks of contents; %s read in %" PRIu64
		       " s%s: %" PRIu64 " damaged\n",
		       call->dir, status->pages, status->blocks, size_text(status->bytes, read),
		       status->seconds, status->cached ? " (through the kernel's cache)" : "", bad);
	if (status->unreachable)
		printf("parts of indexes could not be looked at behind %" PRIu64
		       " damaged pages\n", status->unreachable);
	if (status->bad_pages)
		printf("metadata is damaged: unmount it and run fsck.blinkfs\n");
	if (status->error)
		return fail(call, status->error == -ECANCELED ? "the scrub was cancelled"
							      : error_text(status->error));
	return bad ? EXIT_DAMAGE : 0;
}

static int start(const struct call *call)
{
	const struct blinkfs_scrub_start start = {.bytes_per_second = call->rate_mib << 20};

	return ioctl(call->fd, BLINKFS_IOC_SCRUB_START, &start) == 0 ? 0 : fail_ioctl(call);
}

static int run(struct call *call)
{
	const struct timespec pause = {.tv_nsec = POLL_NS};
	struct blinkfs_scrub_status status;
	bool cancelled = false;
	uint64_t number;
	int exit_code = start(call);

	if (exit_code == 0)
		exit_code = get_status(call, &status);
	if (exit_code)
		return exit_code;
	number = status.number;
	while (status.number == number && status.state == SCRUB_RUNNING) {
		print_findings(call, &status);
		if (show_progress(call)) {
			fputc('\r', stderr);
			print_progress(stderr, &status);
		}
		if (interrupted() && !cancelled)
			cancelled = ioctl(call->fd, BLINKFS_IOC_SCRUB_CANCEL) == 0;
		nanosleep(&pause, NULL);
		exit_code = get_status(call, &status);
		if (exit_code)
			return exit_code;
	}
	if (show_progress(call))
		fputs("\r\033[K", stderr);
	if (status.number != number)
		return fail(call, "the scrub has ended, and another one has begun");
	return report(call, &status);
}

static int show_status(struct call *call)
{
	struct blinkfs_scrub_status status;
	int exit_code = get_status(call, &status);

	if (exit_code)
		return exit_code;
	switch (status.state) {
	case SCRUB_RUNNING:
		print_findings(call, &status);
		printf("%s: is being scrubbed: ", call->dir);
		print_progress(stdout, &status);
		putchar('\n');
		return status.bad_pages + status.bad_blocks ? EXIT_DAMAGE : 0;
	case SCRUB_ENDED:
		return report(call, &status);
	default:
		printf("%s: not scrubbed since it was mounted\n", call->dir);
		return 0;
	}
}

static int cancel(const struct call *call)
{
	return ioctl(call->fd, BLINKFS_IOC_SCRUB_CANCEL) == 0 ? 0 : fail_ioctl(call);
}

static int carry_out(struct call *call)
{
	int exit_code = EXIT_FAILED;

	call->fd = mounted_open(call->dir);
	if (call->fd < 0)
		return EXIT_FAILED;
	switch (call->verb) {
	case VERB_RUN: exit_code = run(call); break;
	case VERB_START: exit_code = start(call); break;
	case VERB_STATUS: exit_code = show_status(call); break;
	case VERB_CANCEL: exit_code = cancel(call); break;
	}
	close(call->fd);
	return exit_code;
}

/* --------------------------------------------------------- the command line */

static int parse_rate(const char *text, uint64_t *rate_mib)
{
	char *end;

	errno = 0;
	*rate_mib = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || *rate_mib > RATE_MIB_MAX) {
		message(LOG_ERR, "--rate: not a number of MiB a second: %s", text);
		return -EINVAL;
	}
	return 0;
}

static bool parse_verb(const char *word, enum verb *verb)
{
	static const char *const words[] = {[VERB_START] = "start", [VERB_STATUS] = "status",
					    [VERB_CANCEL] = "cancel"};

	for (unsigned i = VERB_START; i <= VERB_CANCEL; i++) {
		if (strcmp(words[i], word) == 0) {
			*verb = (enum verb)i;
			return true;
		}
	}
	return false;
}

/* 0; or EXIT_USAGE, and *show_usage unless what is wrong was said. */
static int parse(int argc, char **argv, struct call *call, bool *show_usage)
{
	static const struct option words[] = {{"rate", required_argument, NULL, 'r'}, {0}};
	bool rate_given = false;
	int option;

	*show_usage = true;
	while ((option = getopt_long(argc, argv, "qh", words, NULL)) != -1) {
		switch (option) {
		case 'q': call->quiet = true; break;
		case 'r':
			rate_given = true;
			if (parse_rate(optarg, &call->rate_mib) == 0)
				break;
			*show_usage = false;
			return EXIT_USAGE;
		case 'h':
			fputs(usage, stdout);
			exit(0);
		default:
			return EXIT_USAGE;
		}
	}
	if (argc - optind == 2 && parse_verb(argv[optind], &call->verb))
		optind++;
	if (argc - optind != 1 || (rate_given && call->verb > VERB_START))
		return EXIT_USAGE;
	call->dir = argv[optind];
	return 0;
}

int scrub_main(int argc, char **argv)
{
	struct call call = {.rate_mib = RATE_DEFAULT_MIB};
	bool show_usage;

	if (parse(argc, argv, &call, &show_usage)) {
		if (show_usage)
			fputs(usage, stderr);
		return EXIT_USAGE;
	}
	interrupt_catch();
	return carry_out(&call);
}
