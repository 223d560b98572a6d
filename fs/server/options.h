/*
 * The command line: blinkfs [-f] [-o options] VOLUME DIR
 */
#ifndef BLINKFS_SERVER_OPTIONS_H
#define BLINKFS_SERVER_OPTIONS_H

#include "engine/base/check.h"
#include "engine/tree.h"
#include "log/log.h"

#include <stdbool.h>
#include <stdint.h>

#define MAX_THREADS_DEFAULT 64u
#define INODE_CACHE_DEFAULT 1000000u

struct server_options {
	char *volume_path; /* absolute, owned */
	char *mount_dir;   /* absolute, owned */
	char *kernel;      /* comma-separated options for the kernel's mount, owned; may be NULL */
	bool foreground;
	bool read_only;
	bool writeback;
	bool allow_other;
	bool remount;
	enum { ATIME_NONE, ATIME_RELATIVE, ATIME_STRICT } atime;
	bool no_dir_atime;
	uint64_t cache_bytes;        /* 0 = default */
	uint64_t inode_cache;        /* inodes in memory; 0 = no limit */
	uint64_t commit_interval_ns; /* 0 = default */
	enum log_mode log_mode;
	char *log_path;              /* of an external log, absolute, owned; NULL: where it was */
	bool log_scrub;
	char *archive_dir;           /* absolute, owned; NULL = no log archive */
	bool archive_data;
	bool discard;
	bool check_open;
	enum smo_mode smo;
	uint32_t tunables_off; /* bits of enum tunable */
	unsigned max_threads;
};

enum options_verdict {
	OPTIONS_MOUNT,
	OPTIONS_DONE,  /* -h, -V: answered on stdout */
	OPTIONS_WRONG, /* said what, on stderr */
};
/* Paths are as given until paths.c makes them absolute. */
enum options_verdict options_parse(int argc, char **argv, struct server_options *options);
void options_free(struct server_options *options);

#endif
