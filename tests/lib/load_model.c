/*
 * The sequence of steps, and the model that they change.
 */
#include "tests/lib/load_model.h"

#include "engine/base/check.h"
#include "tests/lib/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 4096u

static void *must_have(void *memory)
{
	if (!memory) {
		fputs("out of memory\n", stderr);
		exit(1);
	}
	return memory;
}

/* --- numbers -------------------------------------------------------------- */

static uint64_t below(struct load *load, uint64_t limit)
{
	return random_next(&load->random) % limit;
}

static bool one_in(struct load *load, uint64_t n)
{
	return below(load, n) == 0;
}

static bool sync_one_in(struct load *load, uint64_t n)
{
	return one_in(load, n * load->laziness);
}

/* Most files are small; a few are larger than a request, some do not leave the inode. */
static size_t choose_size(struct load *load)
{
	switch (below(load, 40)) {
	case 0:
		return 0;
	case 1:
		return (size_t)below(load, one_in(load, 4) ? LOAD_BYTES_MAX : 600000);
	case 2 ... 12:
		return 1 + (size_t)below(load, 1500);
	case 13 ... 16:
		return (1 + (size_t)below(load, 16)) * BLOCK;
	default:
		return 1 + (size_t)below(load, 40000);
	}
}

/* A line for people who look at a broken file, then noise. */
static void fill(struct load *load, size_t len)
{
	uint64_t seed = random_next(&load->random), state = seed;
	char line[64];
	int line_len = snprintf(line, sizeof(line), "seed %016llx, %zu bytes\n",
				(unsigned long long)seed, len);

	for (size_t at = 0; at < len; at += sizeof(uint64_t)) {
		uint64_t word = random_next(&state);

		memcpy(load->buffer + at, &word, sizeof(word));
	}
	memcpy(load->buffer, line, (size_t)line_len < len ? (size_t)line_len : len);
}

/* --- choosing entries ------------------------------------------------------ */

static bool usable(const struct load *load, unsigned entry)
{
	if (entry < LOAD_FIRST_INNER || entry >= LOAD_TMP)
		return true;
	return load->entry[LOAD_FIRST_DIR + (entry - LOAD_FIRST_INNER) / LOAD_INNER].kind ==
	       LOAD_DIR;
}

/* Where files may be put: not symlinks, directories and tmp. */
static bool is_for_files(unsigned entry)
{
	return entry < LOAD_FIRST_SYMLINK ||
	       (entry >= LOAD_FIRST_INNER && entry < LOAD_TMP);
}

static unsigned any_place(struct load *load)
{
	unsigned entry;

	do
		entry = (unsigned)below(load, LOAD_TMP);
	while (!is_for_files(entry) || !usable(load, entry));
	return entry;
}

/* An existing file, or LOAD_ENTRIES when none was found. */
static unsigned any_file(struct load *load)
{
	for (unsigned tries = 0; tries < 8; tries++) {
		unsigned entry = any_place(load);

		if (load->entry[entry].kind == LOAD_FILE)
			return entry;
	}
	return LOAD_ENTRIES;
}

static unsigned inner(unsigned dir, unsigned i)
{
	return LOAD_FIRST_INNER + (dir - LOAD_FIRST_DIR) * LOAD_INNER + i;
}

static bool is_empty_dir(const struct load *load, unsigned dir)
{
	for (unsigned i = 0; i < LOAD_INNER; i++)
		if (load->entry[inner(dir, i)].kind != LOAD_NOTHING)
			return false;
	return true;
}

/* --- steps ----------------------------------------------------------------- */

static void start_put(struct load *load, struct step *step)
{
	step->kind = STEP_CREATE;
	step->a = LOAD_TMP;
	load->plan = PLAN_WRITE;
	load->plan_orphan = one_in(load, 10);
	load->plan_sync = sync_one_in(load, 2);
	load->plan_to = any_place(load);
}

static void go_on(struct load *load, struct step *step)
{
	step->a = LOAD_TMP;
	switch (load->plan) {
	case PLAN_WRITE:
		step->kind = STEP_WRITE;
		step->len = choose_size(load);
		step->sync = load->plan_sync;
		load->plan = load->plan_orphan ? PLAN_ORPHAN : PLAN_RENAME;
		return;
	case PLAN_ORPHAN:
		step->kind = STEP_ORPHAN;
		step->len = choose_size(load);
		break;
	default:
		step->kind = STEP_RENAME;
		step->b = load->plan_to;
		step->sync = sync_one_in(load, 8);
	}
	load->plan = PLAN_NONE;
}

static bool choose_overwrite(struct load *load, struct step *step)
{
	const struct load_file *file;
	unsigned way = (unsigned)below(load, 4);

	step->a = any_file(load);
	if (step->a == LOAD_ENTRIES)
		return false;
	file = load->entry[step->a].file;
	step->sync = sync_one_in(load, 3);
	if (way == 0 && file->size > 0) {
		step->kind = STEP_WRITE_MAPPED;
		step->offset = below(load, file->size);
		step->len = 1 + (size_t)below(load, file->size - step->offset);
	} else if (way == 1) {
		step->kind = STEP_WRITE_DIRECT;
		step->offset = below(load, 32) * BLOCK;
		step->len = (1 + (size_t)below(load, one_in(load, 6) ? 256 : 8)) * BLOCK;
	} else {
		step->kind = STEP_WRITE;
		step->offset = below(load, file->size + 9000);
		step->len = 1 + (size_t)below(load, 20000);
	}
	return step->offset + step->len <= LOAD_BYTES_MAX;
}

static bool choose_truncate(struct load *load, struct step *step)
{
	size_t size;

	step->kind = STEP_TRUNCATE;
	step->a = any_file(load);
	if (step->a == LOAD_ENTRIES)
		return false;
	size = load->entry[step->a].file->size;
	step->sync = sync_one_in(load, 4);
	if (one_in(load, 5))
		step->offset = 0;
	else if (one_in(load, 2))
		step->offset = below(load, size + 1) / BLOCK * BLOCK;
	else
		step->offset = below(load, size + size / 2 + 100);
	return step->offset <= LOAD_BYTES_MAX;
}

static bool choose_names(struct load *load, struct step *step)
{
	step->a = any_file(load);
	if (step->a == LOAD_ENTRIES)
		return false;
	step->sync = sync_one_in(load, 5);
	switch (below(load, 3)) {
	case 0:
		step->kind = STEP_UNLINK;
		return true;
	case 1:
		step->kind = STEP_RENAME;
		step->b = any_place(load);
		return step->b != step->a;
	default:
		step->kind = STEP_LINK;
		step->b = LOAD_FIRST_LINK + (unsigned)below(load, LOAD_LINKS);
		return load->entry[step->b].kind == LOAD_NOTHING;
	}
}

static bool choose_directory(struct load *load, struct step *step)
{
	step->a = LOAD_FIRST_DIR + (unsigned)below(load, LOAD_DIRS);
	step->sync = sync_one_in(load, 5);
	if (load->entry[step->a].kind == LOAD_NOTHING) {
		step->kind = STEP_MKDIR;
		return true;
	}
	if (one_in(load, 2)) {
		step->kind = STEP_RMDIR;
		return is_empty_dir(load, step->a);
	}
	step->kind = STEP_RENAME;
	step->b = LOAD_FIRST_DIR + (unsigned)below(load, LOAD_DIRS);
	return step->b != step->a && is_empty_dir(load, step->b);
}

static bool choose_symlink(struct load *load, struct step *step)
{
	step->a = LOAD_FIRST_SYMLINK + (unsigned)below(load, LOAD_SYMLINKS);
	step->sync = sync_one_in(load, 5);
	step->target = random_next(&load->random);
	step->kind = load->entry[step->a].kind == LOAD_NOTHING ? STEP_SYMLINK : STEP_UNLINK;
	return true;
}

static bool choose_xattr(struct load *load, struct step *step)
{
	step->a = any_file(load);
	if (step->a == LOAD_ENTRIES)
		return false;
	step->sync = sync_one_in(load, 4);
	step->xattr = (unsigned)below(load, LOAD_XATTRS);
	if (load->entry[step->a].file->xattr[step->xattr].set && one_in(load, 3)) {
		step->kind = STEP_REMOVEXATTR;
		return true;
	}
	step->kind = STEP_SETXATTR;
	step->len = (size_t)below(load, one_in(load, 6) ? LOAD_XATTR_MAX : 200);
	return true;
}

static bool choose(struct load *load, struct step *step)
{
	*step = (struct step){.len = 0};
	if (load->plan != PLAN_NONE) {
		go_on(load, step);
		return true;
	}
	switch (below(load, 16)) {
	case 0 ... 4:
		start_put(load, step);
		return true;
	case 5 ... 7:
		return choose_overwrite(load, step);
	case 8 ... 9:
		return choose_truncate(load, step);
	case 10 ... 12:
		return choose_names(load, step);
	case 13:
		return choose_directory(load, step);
	case 14:
		return choose_symlink(load, step);
	default:
		return choose_xattr(load, step);
	}
}

void load_next(struct load *load, struct step *step)
{
	while (!choose(load, step))
		;
	if (step->len)
		fill(load, step->len);
	step->data = load->buffer;
}

/* --- the model --------------------------------------------------------------- */

static void drop_ref(struct load_file *file)
{
	if (!file || --file->refs > 0)
		return;
	for (unsigned i = 0; i < LOAD_XATTRS; i++)
		free(file->xattr[i].value);
	free(file->bytes);
	free(file);
}

static void clear(struct load *load, unsigned entry)
{
	if (load->entry[entry].kind == LOAD_FILE)
		drop_ref(load->entry[entry].file);
	load->entry[entry] = (struct load_entry){.kind = LOAD_NOTHING};
}

static void resize(struct load_file *file, size_t size)
{
	file->bytes = must_have(realloc(file->bytes, size ? size : 1));
	if (size > file->size)
		memset(file->bytes + file->size, 0, size - file->size);
	file->size = size;
}

static void apply_write(struct load_file *file, const struct step *step)
{
	size_t end = (size_t)step->offset + step->len;

	if (step->len == 0)
		return;
	if (end > file->size)
		resize(file, end);
	memcpy(file->bytes + step->offset, step->data, step->len);
}

static void move(struct load *load, unsigned from, unsigned to)
{
	clear(load, to);
	load->entry[to] = load->entry[from];
	load->entry[from] = (struct load_entry){.kind = LOAD_NOTHING};
}

static void apply_rename(struct load *load, unsigned from, unsigned to)
{
	struct load_entry *a = &load->entry[from], *b = &load->entry[to];

	/* Two names of one file: POSIX has nothing happen. */
	if (a->kind == LOAD_FILE && b->kind == LOAD_FILE && a->file == b->file)
		return;
	if (a->kind == LOAD_DIR)
		for (unsigned i = 0; i < LOAD_INNER; i++)
			move(load, inner(from, i), inner(to, i));
	move(load, from, to);
}

static void apply_xattr(struct load_xattr *xattr, const struct step *step)
{
	free(xattr->value);
	*xattr = (struct load_xattr){.set = step->kind == STEP_SETXATTR, .len = step->len};
	if (!xattr->set)
		return;
	xattr->value = must_have(malloc(step->len + 1));
	memcpy(xattr->value, step->data, step->len);
}

void load_apply(struct load *load, const struct step *step)
{
	struct load_entry *a = &load->entry[step->a];

	switch (step->kind) {
	case STEP_CREATE:
		a->kind = LOAD_FILE;
		a->file = must_have(calloc(1, sizeof(*a->file)));
		a->file->refs = 1;
		resize(a->file, 0);
		break;
	case STEP_WRITE:
	case STEP_WRITE_MAPPED:
	case STEP_WRITE_DIRECT:
		apply_write(a->file, step);
		break;
	case STEP_TRUNCATE:
		resize(a->file, (size_t)step->offset);
		break;
	case STEP_RENAME:
		apply_rename(load, step->a, step->b);
		break;
	case STEP_LINK:
		load->entry[step->b] = *a;
		a->file->refs++;
		break;
	case STEP_UNLINK:
	case STEP_ORPHAN:
	case STEP_RMDIR:
		clear(load, step->a);
		break;
	case STEP_MKDIR:
		a->kind = LOAD_DIR;
		break;
	case STEP_SYMLINK:
		a->kind = LOAD_SYMLINK;
		a->target = step->target;
		break;
	case STEP_SETXATTR:
	case STEP_REMOVEXATTR:
		apply_xattr(&a->file->xattr[step->xattr], step);
		break;
	case STEP_KINDS:
		break;
	}
}

bool load_is_partial(const struct step *step)
{
	return step->kind == STEP_WRITE || step->kind == STEP_WRITE_MAPPED;
}

/* --- texts ------------------------------------------------------------------- */

void load_path(unsigned entry, char path[LOAD_PATH_MAX])
{
	unsigned from_inner = entry - LOAD_FIRST_INNER;

	if (entry < LOAD_FIRST_LINK)
		snprintf(path, LOAD_PATH_MAX, "f%u", entry);
	else if (entry < LOAD_FIRST_SYMLINK)
		snprintf(path, LOAD_PATH_MAX, "l%u", entry - LOAD_FIRST_LINK);
	else if (entry < LOAD_FIRST_DIR)
		snprintf(path, LOAD_PATH_MAX, "s%u", entry - LOAD_FIRST_SYMLINK);
	else if (entry < LOAD_FIRST_INNER)
		snprintf(path, LOAD_PATH_MAX, "d%u", entry - LOAD_FIRST_DIR);
	else if (entry < LOAD_TMP)
		snprintf(path, LOAD_PATH_MAX, "d%u/%c", from_inner / LOAD_INNER,
			 'a' + (int)(from_inner % LOAD_INNER));
	else
		snprintf(path, LOAD_PATH_MAX, "tmp");
}

void load_target(uint64_t seed, char target[LOAD_TARGET_MAX])
{
	int len = 1 + (int)(seed % (LOAD_TARGET_MAX - 2));

	for (int i = 0; i < len; i++)
		target[i] = (char)('a' + random_next(&seed) % 26);
	target[len] = 0;
}

const char *load_step_name(enum step_kind kind)
{
	static const char *const names[STEP_KINDS] = {
		[STEP_CREATE] = "create", [STEP_WRITE] = "write",
		[STEP_WRITE_MAPPED] = "mapped write", [STEP_WRITE_DIRECT] = "direct write",
		[STEP_TRUNCATE] = "truncate", [STEP_RENAME] = "rename", [STEP_LINK] = "link",
		[STEP_UNLINK] = "unlink", [STEP_ORPHAN] = "unlink while open",
		[STEP_MKDIR] = "mkdir", [STEP_RMDIR] = "rmdir", [STEP_SYMLINK] = "symlink",
		[STEP_SETXATTR] = "setxattr", [STEP_REMOVEXATTR] = "removexattr",
	};

	return names[kind];
}

void load_record(uint64_t seed, uint64_t number, char record[RECORD_BYTES + 1])
{
	uint64_t state = seed + number;
	int len = snprintf(record, RECORD_BYTES + 1, "record %012llu ", (unsigned long long)number);

	while (len < (int)RECORD_BYTES - 1)
		record[len++] = (char)('a' + random_next(&state) % 26);
	record[len++] = '\n';
	record[len] = 0;
}

/* --- begin and end ------------------------------------------------------------- */

void load_init(struct load *load, uint64_t seed, unsigned laziness)
{
	*load = (struct load){.random = seed, .laziness = laziness};
	/* fill() writes whole words. */
	load->buffer = must_have(aligned_alloc(BLOCK, LOAD_BYTES_MAX + BLOCK));
}

void load_free(struct load *load)
{
	for (unsigned i = 0; i < LOAD_ENTRIES; i++)
		clear(load, i);
	free(load->buffer);
}
