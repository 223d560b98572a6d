/*
 * fsck.blinkfs: the command line.  See fsck.blinkfs.8.
 */
#include "fsck/ahead.h"
#include "fsck/json.h"
#include "fsck/session.h"

#include "engine/base/limits.h"
#include "engine/base/message.h"
#include "engine/base/units.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef BLINKFS_VERSION
#define BLINKFS_VERSION "unknown"
#endif

/* One that waits for the medium beside one that thinks, whatever the number of processors. */
#define THREADS_DEFAULT_MIN 2
#define THREADS_DEFAULT_MAX 8
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

/* One run, as the callbacks see it. */
struct program {
	struct session_options options;
	const char *volume;
	bool as_json, with_progress, yes_to_all, line_open;
	int progress_fd;
	struct json json;
};

/* Ends a line of progress on standard output. */
static void end_line(struct program *p)
{
	if (p->line_open)
		fputs("\r\033[K", stdout);
	p->line_open = false;
}

static void print_line(void *arg, const char *line)
{
	struct program *p = arg;

	if (p->as_json) {
		json_message(&p->json, line);
		return;
	}
	end_line(p);
	puts(line);
	fflush(stdout);
}

static void print_problem(void *arg, const struct fsck_problem *problem, bool left)
{
	json_problem(&((struct program *)arg)->json, problem, left);
}

static void print_result(void *arg, const struct fsck_result *result)
{
	struct program *p = arg;

	if (p->as_json)
		json_result(&p->json, result);
}

static void show_progress(void *arg, unsigned walk, const char *what, unsigned done, unsigned total)
{
	struct program *p = arg;

	if (p->progress_fd > 0) {
		dprintf(p->progress_fd, "%u %u %u %s\n", walk, done, total, p->volume);
		return;
	}
	printf("\r\033[Kwalk %u, %u of %u: %s", walk, done + 1, total, what);
	fflush(stdout);
	p->line_open = true;
}

static bool ask(void *arg, const char *question)
{
	struct program *p = arg;
	char answer[16];

	if (p->yes_to_all)
		return true;
	end_line(p);
	printf("%s [y/N, a = all] ", question);
	fflush(stdout);
	if (!fgets(answer, sizeof(answer), stdin))
		return false;
	p->yes_to_all = answer[0] == 'a' || answer[0] == 'A';
	return p->yes_to_all || answer[0] == 'y' || answer[0] == 'Y';
}

static void usage(FILE *to)
{
	fputs("Usage: fsck.blinkfs [-n | -p | -a | -y] [-f] [-v] [-j LOG] [-C FD] [--json]\n"
	      "                    [--data] [--threads N] [--memory SIZE] VOLUME\n"
	      "Checks a blinkfs volume, and repairs it.\n"
	      "\n"
	      "  -n           only look: nothing is written\n"
	      "  -p, -a       repair what is safe without a person\n"
	      "  -y           repair everything that can be repaired\n"
	      "               otherwise: ask for each kind of problem, on a terminal\n"
	      "  -f           check a volume that is marked as clean as well\n"
	      "  -v           say what is being done\n"
	      "      --memory SIZE  for what grows with the volume: the rest goes to a file\n"
	      "      --threads N  of the check (default: as many as processors, 2 to 8)\n"
	      "  -j LOG       where the external log is (default: where it was last)\n"
	      "  -C FD        progress: a line on standard output (0), or numbers to FD\n"
	      "      --json   the report as JSON\n"
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

static int set_mode(struct session_options *options, int c)
{
	enum session_mode mode = c == 'n' ? MODE_NO : c == 'y' ? MODE_REPAIR : MODE_PREEN;

	if (options->mode != MODE_ASK && options->mode != mode)
		return usage_error(options->mode == MODE_NO || mode == MODE_NO
					   ? "-n excludes -p, -a and -y"
					   : "-y excludes -p and -a");
	options->mode = mode;
	return -1;
}

static int set_progress(struct program *p, const char *text)
{
	char *end;
	long fd = strtol(text, &end, 10);

	if (end == text || *end || fd < 0 || fd > 1000000)
		return usage_error("-C wants the number of a file descriptor");
	p->with_progress = true;
	p->progress_fd = (int)fd;
	return -1;
}

static int set_threads(struct session_options *options, const char *text)
{
	char *end;
	long count = strtol(text, &end, 10);

	if (end == text || *end || count < 1 || count > (long)AHEAD_THREADS_MAX)
		return usage_error("--threads wants a number from 1 to 64");
	options->threads = (unsigned)count;
	return -1;
}

static unsigned default_threads(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	return cpus < THREADS_DEFAULT_MIN   ? THREADS_DEFAULT_MIN
	       : cpus > THREADS_DEFAULT_MAX ? THREADS_DEFAULT_MAX
					    : (unsigned)cpus;
}

/* -1: go on. */
static int parse(int argc, char **argv, struct program *p)
{
	enum { OPTION_DATA = 256, OPTION_JSON, OPTION_THREADS, OPTION_MEMORY };
	static const struct option longs[] = {
		{"data", no_argument, NULL, OPTION_DATA},
		{"json", no_argument, NULL, OPTION_JSON},
		{"threads", required_argument, NULL, OPTION_THREADS},
		{"memory", required_argument, NULL, OPTION_MEMORY},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{0},
	};
	int c, rc = -1;

	opterr = 0;
	while (rc < 0 && (c = getopt_long(argc, argv, "npayfvj:hVC:", longs, NULL)) != -1) {
		switch (c) {
		case 'n':
		case 'p':
		case 'a':
		case 'y':
			rc = set_mode(&p->options, c);
			break;
		case 'f':
			p->options.force = true;
			break;
		case 'v':
			p->options.verbose = true;
			break;
		case 'C':
			rc = set_progress(p, optarg);
			break;
		case 'j':
			p->options.log_path = optarg;
			break;
		case OPTION_DATA:
			p->options.data = true;
			break;
		case OPTION_MEMORY:
			if (size_parse(optarg, &p->options.memory_bytes) != 0 ||
			    p->options.memory_bytes == 0)
				return usage_error("--memory wants a size");
			break;
		case OPTION_THREADS:
			rc = set_threads(&p->options, optarg);
			break;
		case OPTION_JSON:
			p->as_json = true;
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
	if (rc >= 0)
		return rc;
	if (argc - optind != 1)
		return usage_error("one volume is needed");
	if (p->as_json && p->with_progress && p->progress_fd == 0)
		return usage_error("--json excludes -C 0: both want standard output");
	p->volume = argv[optind];
	return -1;
}

static int run(struct program *p)
{
	int bits;

	if (!p->as_json) {
		bits = session_run(p->volume, &p->options);
		end_line(p);
		return bits;
	}
	if (json_begin(&p->json, stdout, p->volume)) {
		fputs("fsck.blinkfs: no memory\n", stderr);
		return EXIT_OPERATIONAL;
	}
	p->options.found = print_problem;
	bits = session_run(p->volume, &p->options);
	json_end(&p->json, bits);
	return bits;
}

int main(int argc, char **argv)
{
	struct program p = {
		.options =
			{
				.mode = MODE_ASK,
				.threads = default_threads(),
				.cancelled = is_interrupted,
				.print = print_line,
				.done = print_result,
				.lock_wait_ns = LOCK_WAIT_NS,
			},
	};
	int done = parse(argc, argv, &p);

	if (done >= 0)
		return done;
	p.options.arg = &p;
	message_init("fsck.blinkfs", false);
	message_quiet(p.options.verbose ? LOG_INFO : LOG_ERR);
	catch_signals();
	if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !p.as_json)
		p.options.ask = ask;
	if (p.with_progress)
		p.options.progress = show_progress;
	if (p.options.mode == MODE_NO)
		p.options.lock_wait_ns = LOOK_WAIT_NS;
	return run(&p);
}
