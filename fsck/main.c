/*
 * fsck.blinkfs: the command line.  See fsck.blinkfs.8.
 */
#include "fsck/session.h"

#include "engine/base/limits.h"
#include "engine/base/message.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef BLINKFS_VERSION
#define BLINKFS_VERSION "unknown"
#endif

#define LOOK_WAIT_NS 1000000000ull /* -n: for a volume that is in use; it looks anyway */

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	(void)number;
	interrupted = 1;
}

static bool is_interrupted(void *arg)
{
	(void)arg;
	return interrupted;
}

static void catch_signals(void)
{
	/* no SA_RESTART: a wait for an answer ends as well */
	const struct sigaction action = {.sa_handler = on_signal};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
}

static void print_line(void *arg, const char *line)
{
	(void)arg;
	puts(line);
	fflush(stdout);
}

static bool ask(void *arg, const char *question)
{
	char answer[16];

	(void)arg;
	printf("%s [y/N] ", question);
	fflush(stdout);
	return fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static void usage(FILE *to)
{
	fputs("Usage: fsck.blinkfs [-n | -p | -a | -y] [-f] [-v] [-j LOG] [--data] VOLUME\n"
	      "Checks a blinkfs volume, and repairs it.\n"
	      "\n"
	      "  -n           only look: nothing is written\n"
	      "  -p, -a, -y   repair what can be repaired without asking\n"
	      "  -f           check a volume that is marked as clean as well\n"
	      "  -v           say what is being done\n"
	      "  -j LOG       where the external log is (default: where it was last)\n"
	      "      --data   read all file contents and verify their checksums\n"
	      "  -h, --help   this help\n"
	      "  -V, --version\n"
	      "\n"
	      "Exit code, a sum: 0 no errors, 1 errors corrected, 4 errors left,\n"
	      "8 operational error, 16 usage, 32 interrupted.\n",
	      to);
}

static int usage_error(const char *why)
{
	fprintf(stderr, "fsck.blinkfs: %s\n", why);
	usage(stderr);
	return EXIT_USAGE;
}

/* -1: go on. */
static int parse(int argc, char **argv, struct session_options *options)
{
	enum { OPTION_DATA = 256 };
	static const struct option longs[] = {
		{"data", no_argument, NULL, OPTION_DATA},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{0},
	};
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, "npayfvj:hV", longs, NULL)) != -1) {
		enum session_mode mode = c == 'n' ? MODE_NO : MODE_REPAIR;

		switch (c) {
		case 'n':
		case 'p':
		case 'a':
		case 'y':
			if (options->mode != MODE_ASK && options->mode != mode)
				return usage_error("-n excludes -p, -a and -y");
			options->mode = mode;
			break;
		case 'f':
			options->force = true;
			break;
		case 'v':
			options->verbose = true;
			break;
		case 'j':
			options->log_path = optarg;
			break;
		case OPTION_DATA:
			options->data = true;
			break;
		case 'h':
			usage(stdout);
			return EXIT_CLEAN;
		case 'V':
			puts("fsck.blinkfs " BLINKFS_VERSION);
			return EXIT_CLEAN;
		default:
			return usage_error("unknown option");
		}
	}
	return argc - optind == 1 ? -1 : usage_error("one volume is needed");
}

int main(int argc, char **argv)
{
	struct session_options options = {
		.mode = MODE_ASK,
		.cancelled = is_interrupted,
		.print = print_line,
		.lock_wait_ns = LOCK_WAIT_NS,
	};
	int done = parse(argc, argv, &options);

	if (done >= 0)
		return done;
	message_init("fsck.blinkfs", false);
	message_quiet(options.verbose ? LOG_INFO : LOG_ERR);
	catch_signals();
	if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
		options.ask = ask;
	if (options.mode == MODE_NO)
		options.lock_wait_ns = LOOK_WAIT_NS;
	return session_run(argv[optind], &options);
}
