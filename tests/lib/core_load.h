/*
 * A volume in a file and threads that create files in it through the core, for
 * benchmarks and long tests: what a busy mount does to the engine, without the
 * kernel between.
 */
#ifndef BLINKFS_TESTS_CORE_LOAD_H
#define BLINKFS_TESTS_CORE_LOAD_H

#include "fs/core.h"

#define CORE_LOAD_THREADS_MAX 64u

/* Makes the file, writes it full (so that nobody pays for its first use), formats it. */
void core_load_format(const char *path, uint64_t size_bytes, uint32_t page_size,
		      uint64_t log_bytes);
/* Opens volume and core; a failure ends the program. */
struct core *core_load_open(const char *path, const struct volume_options *options);
/* Closed in good order, or as if the process had died. */
void core_load_close(struct core *core);
void core_load_abandon(struct core *core);

struct core_load {
	struct core *core;
	unsigned threads;
	uint64_t dirs[CORE_LOAD_THREADS_MAX]; /* ino; one a thread */
	/* Asked by each thread after each file; true ends it. */
	bool (*enough)(void *arg);
	void *arg;
	struct {
		_Alignas(64) _Atomic uint64_t files;
	} done[CORE_LOAD_THREADS_MAX];
	struct os_thread thread[CORE_LOAD_THREADS_MAX];
};

/* Makes the directories, starts the threads; core, threads, enough and arg are set. */
void core_load_start(struct core_load *load);
uint64_t core_load_files(struct core_load *load); /* so far */
void core_load_join(struct core_load *load);

#endif
