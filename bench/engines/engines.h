/*
 * The same inserts, look-ups and scans in several embedded engines.
 *
 *	main.c      rounds, phases, the report
 *	engine_*.c  one adapter each
 *
 * Every put is a transaction of its own that is atomic and need not be durable yet:
 * each engine's lazy setting, in its `setting`.
 */
#ifndef BLINKFS_BENCH_ENGINES_H
#define BLINKFS_BENCH_ENGINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdnoreturn.h>

#define KEY_BYTES 8u
#define VALUE_MOST 4000u
#define THREADS_MOST 64u

/* Failures end the program: they are not what is measured. */
struct engine {
	const char *name;
	const char *setting;
	/* In an empty folder; cache for everything. */
	void *(*open)(const char *folder, uint64_t bytes);
	void (*close)(void *db);
	/* What a thread needs for itself. */
	void *(*begin)(void *db);
	void (*end)(void *session);
	void (*put)(void *session, const uint8_t *key, const void *value, size_t len);
	/* False: there is none. */
	bool (*get)(void *session, const uint8_t *key, void *value, size_t *len);
	/* Reads up to `rows` in key order from `key` on; how many. */
	unsigned (*scan)(void *session, const uint8_t *key, unsigned rows);
};

extern const struct engine engine_blinkfs;
#ifdef HAVE_LMDB
extern const struct engine engine_lmdb;
#endif
#ifdef HAVE_BDB
extern const struct engine engine_bdb;
#endif
#ifdef HAVE_ROCKSDB
extern const struct engine engine_rocksdb;
#endif
#ifdef HAVE_SQLITE
extern const struct engine engine_sqlite;
#endif

noreturn void fail(const char *engine, const char *what, const char *why);

#endif
