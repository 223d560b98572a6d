/*
 * blinkfs trim [OPTION...] DIR and blinkfs grow DIR [SIZE]: the side of whoever commands.
 *
 * A trim is many short calls, so that it can be interrupted between any two, shows how
 * far it is, and keeps none of the server's threads.
 */
#include "fs/server/command.h"

#include "engine/base/message.h"
#include "engine/base/units.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXIT_FAILED 1
#define EXIT_USAGE 2

/* -------------------------------------------------------------------- trim */

static const char trim_usage[] =
	"usage: blinkfs trim [-v] [-o OFFSET] [-l LENGTH] [-m MINIMUM] DIR\n"
	"Gives the free space of the volume mounted there back to its device: holes in an\n"
	"image file, discards of a block device.  DIR is any directory of it.\n"
	"  -o, --offset OFFSET    begin at this byte of the volume (default 0)\n"
	"  -l, --length LENGTH    so many bytes of it (default: to its end)\n"
	"  -m, --minimum MINIMUM  leave shorter runs of free space alone\n"
	"  -v, --verbose          say how much it was\n"
	"Sizes in bytes or with K, M, G, T (powers of 1024).\n";

struct trim_call {
	uint64_t offset, length, minimum;
	bool verbose;
	const char *dir;
};

static int parse_size(const char *what, const char *text, uint64_t *out)
{
	if (size_parse(text, out) == 0)
		return 0;
	message(LOG_ERR, "not a size for %s: %s", what, text);
	return EXIT_USAGE;
}

static int parse_trim(int argc, char **argv, struct trim_call *call)
{
	static const struct option words[] = {
		{"offset", required_argument, NULL, 'o'},
		{"length", required_argument, NULL, 'l'},
		{"minimum", required_argument, NULL, 'm'},
		{"verbose", no_argument, NULL, 'v'},
		{0},
	};
	int option, wrong = 0;

	call->length = UINT64_MAX;
	while (!wrong && (option = getopt_long(argc, argv, "o:l:m:v", words, NULL)) != -1) {
		switch (option) {
		case 'o': wrong = parse_size("--offset", optarg, &call->offset); break;
		case 'l': wrong = parse_size("--length", optarg, &call->length); break;
		case 'm': wrong = parse_size("--minimum", optarg, &call->minimum); break;
		case 'v': call->verbose = true; break;
		default: return EXIT_USAGE;
		}
	}
	if (wrong)
		return wrong;
	if (optind != argc - 1) {
		fputs(trim_usage, stderr);
		return EXIT_USAGE;
	}
	call->dir = argv[optind];
	return 0;
}

static int trim_failed(const struct trim_call *call, int error)
{
	if (error == EBUSY)
		message(LOG_ERR, "%s: is frozen; 'blinkfs thaw' first", call->dir);
	else if (error == EOPNOTSUPP)
		message(LOG_ERR, "%s: the device of this volume cannot discard", call->dir);
	else
		message(LOG_ERR, "%s: not everything could be given back: %s", call->dir,
			strerror(error));
	return EXIT_FAILED;
}

static int trim(const struct trim_call *call)
{
	struct trim_command command = {.at = call->offset, .minimum = call->minimum};
	int control = command_open(call->dir);
	uint64_t trimmed = 0;
	char size[SIZE_TEXT_BYTES];
	int exit_code = 0;

	if (control < 0)
		return EXIT_FAILED;
	command.end = call->length > UINT64_MAX - call->offset ? UINT64_MAX
							       : call->offset + call->length;
	while (command.at < command.end && exit_code == 0) {
		if (ioctl(control, TRIM_IOCTL, &command) != 0)
			exit_code = trim_failed(call, errno);
		else if (command.result)
			exit_code = trim_failed(call, -command.result);
		else
			trimmed += command.trimmed;
	}
	close(control);
	if (exit_code == 0 && call->verbose)
		printf("%s: %s (%" PRIu64 " bytes) trimmed\n", call->dir,
		       size_text(trimmed, size), trimmed);
	return exit_code;
}

int trim_main(int argc, char **argv)
{
	struct trim_call call = {0};
	int wrong;

	if (argc == 2 && strcmp(argv[1], "-h") == 0) {
		fputs(trim_usage, stdout);
		return 0;
	}
	wrong = parse_trim(argc, argv, &call);
	return wrong ? wrong : trim(&call);
}

/* -------------------------------------------------------------------- grow */

static const char grow_usage[] =
	"usage: blinkfs grow DIR [SIZE]\n"
	"Makes the volume mounted there larger, in use as it is: as large as its device, or\n"
	"SIZE, to which an image file is extended.  DIR is any directory of it, SIZE in bytes\n"
	"or with K, M, G, T (powers of 1024).\n";

int grow_main(int argc, char **argv)
{
	struct command command = {.kind = COMMAND_GROW};
	char size[SIZE_TEXT_BYTES];

	if (argc == 2 && strcmp(argv[1], "-h") == 0) {
		fputs(grow_usage, stdout);
		return 0;
	}
	if (argc < 2 || argc > 3 || argv[1][0] == '-') {
		fputs(grow_usage, stderr);
		return EXIT_USAGE;
	}
	if (argc == 3 && (size_parse(argv[2], &command.value) != 0 || command.value == 0)) {
		message(LOG_ERR, "not a size: %s", argv[2]);
		return EXIT_USAGE;
	}
	if (command_send(argv[1], &command) != 0)
		return EXIT_FAILED;
	if (command.result) {
		message(LOG_ERR, "%s: the volume keeps its size: %s", argv[1],
			command.text[0] ? command.text : strerror(-command.result));
		return EXIT_FAILED;
	}
	printf("%s: %s%s\n", argv[1],
	       command.text[0] ? command.text : "the volume has now ",
	       command.text[0] ? "" : size_text(command.value, size));
	return 0;
}
