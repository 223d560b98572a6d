/*
 * Workloads by number.
 *
 * The tree before each: A (3 blocks, an xattr), B (inline), the directory D with A in
 * it (5 blocks) and the empty directory E; and H with files that nobody touches, so many
 * that the leaf in which new inodes come is full, and the next one splits it.  The log is
 * near the end of its lap, so that it wraps within most workloads.  What may be made:
 * C, D/B, D/E/A, F and directories below.  The operations are every sensible choice of
 * these for each verb, with offsets at and beside the edges of blocks, of the inline limit
 * and of the file.
 *
 * A workload of length n is n pairs of an operation and a way to sync behind it: n digits
 * of a number, which is the workload's own number times a step that spreads them.
 */
#include "tests/crash/explore.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Without a newline in it: it is printed. */
#define INLINE_FILE(name, seed) "create H/" name "; write H/" name " 0 350 " seed "; "
const char explore_setup[] =
	"mkdir D; mkdir D/E; create A; write A 0 9000 1; create B; write B 0 300 2; "
	"create D/A; write D/A 0 20000 3; setx A user.a 40 4; mkdir H; "
	INLINE_FILE("A", "5") INLINE_FILE("B", "6") INLINE_FILE("C", "7") INLINE_FILE("D", "8")
	INLINE_FILE("E", "9") INLINE_FILE("F", "10") INLINE_FILE("G", "11") INLINE_FILE("H", "12")
	"create H/I; sync; lap 1800";

static const char *const files[] = {"A", "B", "D/A"};          /* there from the start */
static const char *const names[] = {"C", "D/B", "D/E/A"};      /* not yet */
static const char *const changed[] = {"A", "B", "D/A", "C"};
static const char *const all[] = {"A", "B", "D/A", "C", "D/B", "D/E/A"};

/* Verbs with a name, or two, as they are. */
static const char *const fixed[] = {
	"mkdir F", "mkdir D/F", "mkdir D/E/F", "mkdir A",
	"rmdir D/E", "rmdir D", "rmdir F", "rmdir D/F",
	"rename D F", "rename D/E F", "rename D D/E/F", "rename F D/E", "rename D/E D/F",
	"rename D/F D/E/F", "rename A D/E", "rename D/E A",
	"exchange A B", "exchange A D/A", "exchange B D/A", "exchange A D", "exchange A D/E",
	"exchange D/A D/E", "exchange D/E F", "exchange D F", "exchange A C", "exchange C D/B",
	"copy A B", "copy A D/A", "copy D/A A", "copy D/A C", "copy A C", "copy B A", "copy B C",
	"copy C A",
	"setx A user.b 10 %", "setx A user.a 200 %", "setx A user.b 2000 %",
	"setx B user.b 10000 %", "setx D user.b 10 %", "setx D/A user.a 300 %",
	"setx C user.a 10 %", "rmx A user.a", "rmx A user.b", "rmx B user.b", "rmx D user.b",
	"chmod A 600", "chmod D 700", "chmod C 640",
	"tmplink C 100 %", "tmplink D/B 9000 %",
};

static const char *const writes[] = {
	"0 4096 %",     /* a block */
	"4096 8192 %",  /* blocks */
	"100 50 %",     /* in a block */
	"4000 200 %",   /* over an edge */
	"0 300 %",
	"8192 5000 %",  /* aligned, an odd end */
	"16000 100 %",  /* behind a hole, or not */
	"23000 3000 %", /* behind a hole */
};
static const char *const appends[] = {"50 %", "4096 %", "5000 %"};
static const char *const sizes[] = {"0", "100", "4096", "8500", "24000"};
static const char *const allocations[] = {
	"falloc % 0 16384",  "falloc % 10000 15000", "fallock % 8192 16384", "fallock % 100 50",
	"punch % 0 4096",    "punch % 3000 6000",    "punch % 0 24000",      "zero % 4096 8192",
	"zero % 3000 6000",  "zero % 100 20000",
};

/* What follows an operation; the last two make nothing durable by intent. */
enum sync_kind { SYNC_NONE, SYNC_FILE, SYNC_DIR, SYNC_ALL, SYNC_BACK, SYNC_EARLY, SYNC_PURGE,
		 SYNC_KINDS };

#define OPERATIONS_ROOM 400u

static struct table {
	char *text[OPERATIONS_ROOM]; /* the last % is a seed */
	unsigned count;
} table;

static void add(const char *format, const char *p, const char *q)
{
	check(table.count < OPERATIONS_ROOM);
	check(asprintf(&table.text[table.count++], format, p, q) > 0);
}

/* The same for each of some paths. */
#define for_each(path, paths) \
	for (size_t i_ = 0; i_ < array_count(paths); i_++) \
		for (const char *path = (paths)[i_]; path; path = NULL)

static void add_names(void)
{
	for_each (p, names)
		add("create %s", p, "");
	add("create A", "", "");
	for_each (p, files)
		for (size_t k = 0; k < array_count(names); k++)
			add("link %s %s", p, names[k]);
	add("link C D/B", "", "");
	for_each (p, names) {
		add("symlink %s a-target", p, "");
		add("symlink %s a-longer-target/of-some/length", p, "");
	}
	for_each (p, all)
		add("unlink %s", p, "");
	for_each (p, all)
		for (size_t k = 0; k < array_count(all); k++)
			if (strcmp(p, all[k]) != 0)
				add("rename %s %s", p, all[k]);
	for (size_t i = 0; i < array_count(fixed); i++)
		add("%s", fixed[i], "");
}

static void add_contents(void)
{
	for_each (p, changed) {
		for (size_t k = 0; k < array_count(writes); k++)
			add("write %s %s", p, writes[k]);
		for (size_t k = 0; k < array_count(appends); k++)
			add("append %s %s", p, appends[k]);
		for (size_t k = 0; k < array_count(sizes); k++)
			add("trunc %s %s", p, sizes[k]);
	}
	for_each (p, files) {
		for (size_t k = 0; k < array_count(allocations); k++) {
			const char *rest = strchr(allocations[k], '%') + 1;
			char verb[16];

			snprintf(verb, sizeof(verb), "%.*s", (int)(rest - allocations[k]) - 2,
				 allocations[k]);
			check(table.count < OPERATIONS_ROOM);
			check(asprintf(&table.text[table.count++], "%s %s%s", verb, p, rest) > 0);
		}
	}
}

static const struct table *operations(void)
{
	if (table.count == 0) {
		add_names();
		add_contents();
	}
	return &table;
}

unsigned explore_operations(void)
{
	return operations()->count;
}

uint64_t explore_count(unsigned length)
{
	uint64_t count = 1;

	check(length > 0 && length <= EXPLORE_OPERATIONS_MAX);
	while (length-- > 0)
		count *= operations()->count * SYNC_KINDS;
	return count;
}

/* ------------------------------------------------------------------- text */

/* The name that an operation leaves: what it changed, or where it put it. */
static void subject_of(const char *operation, char path[64])
{
	static const char *const to_second[] = {"rename", "link", "copy", "exchange"};
	char verb[16], p[64], q[64] = "";

	check(sscanf(operation, "%15s %63s %63s", verb, p, q) >= 2);
	for (size_t i = 0; i < array_count(to_second); i++)
		if (strcmp(verb, to_second[i]) == 0)
			memcpy(p, q, sizeof(p));
	memcpy(path, p, sizeof(p));
}

static bool removes(const char *operation)
{
	return strncmp(operation, "unlink", 6) == 0 || strncmp(operation, "rmdir", 5) == 0;
}

static void parent_of(char path[64])
{
	char *slash = strrchr(path, '/');

	if (slash)
		*slash = '\0';
	else
		memcpy(path, ".", 2);
}

static void put_operation(FILE *out, const char *operation, unsigned place)
{
	const char *percent = strrchr(operation, '%');

	if (percent)
		fprintf(out, "%.*s%u", (int)(percent - operation), operation, 10 + place);
	else
		fputs(operation, out);
}

static void put_sync(FILE *out, const char *operation, enum sync_kind kind, bool data_only)
{
	char path[64];

	subject_of(operation, path);
	if (kind == SYNC_DIR || removes(operation))
		parent_of(path);
	switch (kind) {
	case SYNC_FILE:
		fprintf(out, "; %s %s", data_only ? "fdatasync" : "fsync", path);
		break;
	case SYNC_DIR:
		fprintf(out, "; fsync %s", path);
		break;
	case SYNC_ALL:
		fputs("; sync; checkpoint", out);
		break;
	case SYNC_BACK: /* and what was freed can be used again */
		fputs("; purge; flush", out);
		break;
	case SYNC_EARLY:
		fputs("; writeback", out);
		break;
	case SYNC_PURGE:
		fputs("; purge; advance", out);
		break;
	default:
		break;
	}
}

static uint64_t greatest_divisor(uint64_t a, uint64_t b)
{
	return b == 0 ? a : greatest_divisor(b, a % b);
}

/* A step of about 0.618 of all, and of no common divisor with it. */
static uint64_t spread(uint64_t n, uint64_t count)
{
	uint64_t step = (uint64_t)((double)count * 0.6180339887);

	while (greatest_divisor(step, count) != 1)
		step++;
	return (uint64_t)((unsigned __int128)n * step % count);
}

void explore_text(unsigned length, uint64_t n, char text[EXPLORE_TEXT_MAX])
{
	const struct table *t = operations();
	FILE *out = fmemopen(text, EXPLORE_TEXT_MAX, "w");

	check(out != NULL && n < explore_count(length));
	n = spread(n, explore_count(length));
	for (unsigned i = 0; i < length; i++) {
		uint64_t pair = n % ((uint64_t)t->count * SYNC_KINDS);
		const char *operation = t->text[pair / SYNC_KINDS];

		n /= (uint64_t)t->count * SYNC_KINDS;
		fputs(i ? "; " : "", out);
		put_operation(out, operation, i);
		put_sync(out, operation, (enum sync_kind)(pair % SYNC_KINDS),
			 (pair / SYNC_KINDS + i) % 2);
	}
	check(fclose(out) == 0);
}
