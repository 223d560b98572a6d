/*
 * Threads that make, write, sync and remove files of their own, while something happens
 * to the volume beneath them; and backups of it, which have to show the same as the
 * volume itself in the end.  A failure ends the program.
 */
#ifndef BLINKFS_TESTS_FILE_LOAD_H
#define BLINKFS_TESTS_FILE_LOAD_H

#include "fs/core.h"

#define FILE_LOAD_THREADS_MAX 4u

struct file_load {
	struct core *core;
	unsigned threads, rounds;
	unsigned bytes;           /* of each file */
	_Atomic unsigned at_work; /* threads that are not done */
	struct file_load_worker {
		struct file_load *load;
		struct os_thread thread;
		unsigned number;
	} worker[FILE_LOAD_THREADS_MAX];
};

/* core, threads, rounds and bytes are set; every fourth round leaves its file. */
void file_load_start(struct file_load *load);
bool file_load_works(struct file_load *load);
void file_load_join(struct file_load *load);

/* A backup in a file without a name: full, or what came after `since`. */
int backup_take(struct volume *volume, lsn_t since, lsn_t *lsn);

/* Backups, and an archive, from which a volume is restored onto a device, with its log. */
struct backup_source {
	const int *fd; /* the full one, and increments */
	unsigned count;
	const char *archive; /* NULL: none */
};
/* What comes out of it is whole and shows `expected` (core_snapshot()); returns its blocks. */
uint64_t backup_compare(const struct backup_source *source, struct device *dev,
			struct device *log, const char *expected);

#endif
