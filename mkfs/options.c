/*
 * Every value is judged here, where the option's name is known; main.c can
 * rely on it.
 */
#include "mkfs/options.h"

#include "engine/base/message.h"
#include "engine/base/os.h"
#include "engine/base/units.h"

#include <getopt.h>
#include <stdio.h>
#include <unistd.h>
#include <uuid.h>

static const char usage[] =
	"usage: mkfs.blinkfs [options] VOLUME\n"
	"\n"
	"Makes an empty blinkfs volume in a file or on a block device.\n"
	"\n"
	"  -s, --size=SIZE        size of the volume; needed when the file is not there yet\n"
	"  -p, --page-size=SIZE   metadata pages: 4K, 8K, 16K, 32K or 64K (default 16K)\n"
	"  -l, --log-size=SIZE    redo log (default: an eighth of the volume, at most 256M)\n"
	"  -j, --journal=LOG      put the redo log into this other file or device\n"
	"  -L, --label=LABEL      name of the volume, at most 63 bytes\n"
	"  -U, --uuid=UUID        its identity (default: random)\n"
	"  -f, --force            overwrite whatever is there\n"
	"  -n, --dry-run          say what would be done, write nothing\n"
	"  -q, --quiet            say nothing unless something is wrong\n"
	"  -h, --help             this text\n"
	"  -V, --version          the version\n"
	"\n"
	"SIZE is in bytes or ends in K, M, G or T (powers of 1024).\n";

static const struct option long_options[] = {
	{"size", required_argument, NULL, 's'},
	{"page-size", required_argument, NULL, 'p'},
	{"log-size", required_argument, NULL, 'l'},
	{"journal", required_argument, NULL, 'j'},
	{"label", required_argument, NULL, 'L'},
	{"uuid", required_argument, NULL, 'U'},
	{"force", no_argument, NULL, 'f'},
	{"dry-run", no_argument, NULL, 'n'},
	{"quiet", no_argument, NULL, 'q'},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
	{NULL, 0, NULL, 0},
};

static bool wrong(const char *what, const char *value)
{
	message(LOG_ERR, "%s: %s", what, value);
	return false;
}

static bool set_size(struct mkfs_options *options, const char *value)
{
	if (size_parse(value, &options->size_bytes) != 0 || options->size_bytes == 0 ||
	    options->size_bytes > INT64_MAX)
		return wrong("not a size", value);
	return true;
}

static bool set_page_size(struct mkfs_options *options, const char *value)
{
	uint64_t bytes;

	if (size_parse(value, &bytes) != 0 || bytes < PAGE_SIZE_MIN || bytes > PAGE_SIZE_MAX ||
	    (bytes & (bytes - 1)) != 0)
		return wrong("page size must be 4K, 8K, 16K, 32K or 64K", value);
	options->format.page_size = (uint32_t)bytes;
	return true;
}

static bool set_log_size(struct mkfs_options *options, const char *value)
{
	if (size_parse(value, &options->format.log_bytes) != 0 || options->format.log_bytes == 0)
		return wrong("not a log size", value);
	return true;
}

static bool set_label(struct mkfs_options *options, const char *value)
{
	size_t len = strlen(value);

	if (len >= sizeof(options->format.label))
		return wrong("label is longer than 63 bytes", value);
	memset(options->format.label, 0, sizeof(options->format.label));
	memcpy(options->format.label, value, len);
	return true;
}

static bool set_uuid(struct mkfs_options *options, const char *value)
{
	if (uuid_parse(value, options->format.uuid) != 0 || uuid_is_null(options->format.uuid))
		return wrong("not a UUID", value);
	return true;
}

static bool set_flag(bool *flag)
{
	*flag = true;
	return true;
}

static bool set_option(struct mkfs_options *options, int option, const char *value)
{
	switch (option) {
	case 's':
		return set_size(options, value);
	case 'p':
		return set_page_size(options, value);
	case 'l':
		return set_log_size(options, value);
	case 'j':
		options->log_path = value;
		return true;
	case 'L':
		return set_label(options, value);
	case 'U':
		return set_uuid(options, value);
	case 'f':
		return set_flag(&options->force);
	case 'n':
		return set_flag(&options->dry_run);
	case 'q':
		return set_flag(&options->quiet);
	default:
		return false; /* getopt has said why */
	}
}

/* The root directory of a volume belongs to whoever makes it. */
static void set_defaults(struct mkfs_options *options)
{
	memset(options, 0, sizeof(*options));
	options->format.page_size = PAGE_SIZE_DEFAULT;
	options->format.root_uid = getuid();
	options->format.root_gid = getgid();
	uuid_generate(options->format.uuid);
	uuid_generate(options->format.log_uuid);
	os_random_bytes(options->format.hash_seed, sizeof(options->format.hash_seed));
}

enum options_verdict options_parse(int argc, char **argv, struct mkfs_options *options)
{
	int option;

	set_defaults(options);
	while ((option = getopt_long(argc, argv, "s:p:l:j:L:U:fnqhV", long_options, NULL)) != -1) {
		if (option == 'h') {
			fputs(usage, stdout);
			return OPTIONS_DONE;
		}
		if (option == 'V') {
			printf("mkfs.blinkfs %s (volume format %u)\n", BLINKFS_VERSION,
			       FORMAT_VERSION);
			return OPTIONS_DONE;
		}
		if (!set_option(options, option, optarg)) {
			if (option == '?')
				fputs("Try 'mkfs.blinkfs --help'.\n", stderr);
			return OPTIONS_WRONG;
		}
	}
	if (argc - optind != 1) {
		message(LOG_ERR,
			argc == optind ? "which file or device?" : "one file or device at a time");
		fputs("Try 'mkfs.blinkfs --help'.\n", stderr);
		return OPTIONS_WRONG;
	}
	options->path = argv[optind];
	options->format.dry_run = options->dry_run;
	return OPTIONS_RUN;
}
