/*
 * The command line of mkfs.blinkfs.
 */
#ifndef BLINKFS_MKFS_OPTIONS_H
#define BLINKFS_MKFS_OPTIONS_H

#include "engine/volume.h"

struct mkfs_options {
	const char *path;
	const char *log_path; /* -j: the log is there; NULL: within the volume */
	uint64_t size_bytes; /* 0 = what the file or device has */
	bool force, dry_run, quiet;
	struct format_params format; /* all but the size */
};

enum options_verdict {
	OPTIONS_RUN,
	OPTIONS_DONE,  /* -h, -V: answered on stdout */
	OPTIONS_WRONG, /* said what, on stderr */
};
enum options_verdict options_parse(int argc, char **argv, struct mkfs_options *options);

#endif
