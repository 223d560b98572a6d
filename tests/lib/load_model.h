/*
 * A load on one directory: a sequence of steps that depends on a seed alone, and
 * what the directory looks like after each of them.
 *
 * The program that puts load on a mount and the one that looks at what a crash
 * has left both walk through the same sequence, so all that they have to hand
 * over is how far the first one got.
 *
 *	load_next()      the next step; nothing is changed
 *	load_apply()     the model is changed as the step changes the directory
 *
 * Names: f0.. files, l0.. hard links, s0.. symlinks, d0.. directories with a and
 * b in them, and tmp, where new contents are written before they are renamed.
 */
#ifndef BLINKFS_TESTS_LOAD_MODEL_H
#define BLINKFS_TESTS_LOAD_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOAD_FILES 14u
#define LOAD_LINKS 6u
#define LOAD_SYMLINKS 4u
#define LOAD_DIRS 4u
#define LOAD_INNER 2u /* names in each directory */
#define LOAD_XATTRS 3u
#define LOAD_BYTES_MAX (4u << 20)  /* of a file */
#define LOAD_XATTR_MAX 9000u
#define LOAD_PATH_MAX 16u
#define LOAD_TARGET_MAX 64u

enum load_kind { LOAD_NOTHING, LOAD_FILE, LOAD_SYMLINK, LOAD_DIR };

/* Entries by number; the kind of name that one has. */
enum {
	LOAD_FIRST_LINK = LOAD_FILES,
	LOAD_FIRST_SYMLINK = LOAD_FIRST_LINK + LOAD_LINKS,
	LOAD_FIRST_DIR = LOAD_FIRST_SYMLINK + LOAD_SYMLINKS,
	LOAD_FIRST_INNER = LOAD_FIRST_DIR + LOAD_DIRS,
	LOAD_TMP = LOAD_FIRST_INNER + LOAD_DIRS * LOAD_INNER,
	LOAD_ENTRIES
};

struct load_file {
	unsigned refs;       /* names */
	size_t size;
	uint8_t *bytes;
	struct load_xattr {
		bool set;
		size_t len;
		uint8_t *value;
	} xattr[LOAD_XATTRS];
};

struct load_entry {
	enum load_kind kind;
	struct load_file *file;
	uint64_t target;     /* of a symlink: see load_target() */
};

enum step_kind {
	STEP_CREATE,         /* a */
	STEP_WRITE,          /* a, offset, data: through the page cache */
	STEP_WRITE_MAPPED,   /* the same through a shared mapping, within the size */
	STEP_WRITE_DIRECT,   /* the same with O_DIRECT, aligned: one request, atomic */
	STEP_TRUNCATE,       /* a, offset */
	STEP_RENAME,         /* a to b */
	STEP_LINK,           /* a, new name b */
	STEP_UNLINK,         /* a */
	STEP_ORPHAN,         /* a: opened, unlinked, written to and kept open */
	STEP_MKDIR,          /* a */
	STEP_RMDIR,          /* a */
	STEP_SYMLINK,        /* a, target */
	STEP_SETXATTR,       /* a, xattr, data */
	STEP_REMOVEXATTR,    /* a, xattr */
	STEP_KINDS
};

struct step {
	enum step_kind kind;
	unsigned a, b;       /* entries */
	unsigned xattr;
	uint64_t offset, target;
	const uint8_t *data; /* until the next load_next() */
	size_t len;
	bool sync;           /* fsync of the file, or of the directory that was changed */
};

struct load {
	uint64_t random;
	unsigned laziness;
	struct load_entry entry[LOAD_ENTRIES];
	/* What becomes of tmp, once it exists. */
	enum { PLAN_NONE, PLAN_WRITE, PLAN_RENAME, PLAN_ORPHAN } plan;
	unsigned plan_to;    /* entry */
	bool plan_sync, plan_orphan;
	uint8_t *buffer;     /* LOAD_BYTES_MAX, aligned for O_DIRECT */
};

/* laziness: how much more rarely than usual (1) steps are synced. */
void load_init(struct load *load, uint64_t seed, unsigned laziness);
void load_free(struct load *load);
void load_next(struct load *load, struct step *step);
void load_apply(struct load *load, const struct step *step);
/* A crash may leave each block of such a step as it was or as it becomes. */
bool load_is_partial(const struct step *step);

void load_path(unsigned entry, char path[LOAD_PATH_MAX]);
void load_target(uint64_t seed, char target[LOAD_TARGET_MAX]);
const char *load_step_name(enum step_kind kind);

/* Record `number` of the file that only grows: always RECORD_BYTES. */
#define RECORD_BYTES 96u
void load_record(uint64_t seed, uint64_t number, char record[RECORD_BYTES + 1]);

#endif
