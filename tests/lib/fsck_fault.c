/* Single faults: see fsck_fault.h. */
#include "tests/lib/fsck_fault.h"

#include "fsck/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct output {
	char text[65536];
	size_t len;
};

/* What a test is told. */
static char wrong[70000];

static void collect(void *arg, const char *line)
{
	struct output *out = arg;
	int n = snprintf(out->text + out->len, sizeof(out->text) - out->len, "%s\n", line);

	if (n > 0 && out->len + (size_t)n < sizeof(out->text))
		out->len += (size_t)n;
}

/* Runs fsck: are the exit bits one of those allowed, and the number (0: none) in its output? */
static bool run_by(unsigned threads, const char *path, enum session_mode mode, int bits, int mask,
		   unsigned number, struct output *out)
{
	struct session_options options = {
		.mode = mode,
		.force = true,
		.data = true,
		.threads = threads,
		.memory_bytes = threads > 1 ? 1 : 0,
		.print = collect,
		.arg = out,
		.cache_bytes = WORLD_CACHE,
	};
	char text[16] = "";
	int got;

	out->len = 0;
	out->text[0] = '\0';
	got = session_run(path, &options);
	if (number)
		snprintf(text, sizeof(text), "[%u]", number);
	if ((got & mask) == bits && strstr(out->text, text))
		return true;
	snprintf(wrong, sizeof(wrong), "mode %d: exit code %d, not %d, or no %s in:\n%s", mode, got,
		 bits, text, out->text);
	return false;
}

static bool run(const char *path, enum session_mode mode, int bits, int mask, unsigned number,
		struct output *out)
{
	return run_by(1, path, mode, bits, mask, number, out);
}

/* INV-FSCK-4, and with tables in files: word for word the same. */
static bool same_by_threads(const char *path, unsigned number, struct output *out)
{
	struct output *more = malloc(sizeof(*more));
	bool same;

	check(more != NULL);
	same = run_by(4, path, MODE_NO, EXIT_UNCORRECTED, ~0, number, more);
	if (same && strcmp(more->text, out->text) != 0) {
		snprintf(wrong, sizeof(wrong), "by one thread:\n%.30000s\nby four:\n%.30000s",
			 out->text, more->text);
		same = false;
	}
	free(more);
	return same;
}

static bool run_all(const char *path, unsigned number, enum outcome outcome, struct output *out)
{
	if (!run(path, MODE_NO, EXIT_UNCORRECTED, ~0, number, out) ||
	    !same_by_threads(path, number, out))
		return false;
	if (outcome == STAYS)
		return run(path, MODE_REPAIR, EXIT_UNCORRECTED, EXIT_UNCORRECTED, number, out);
	return run(path, MODE_REPAIR, EXIT_CORRECTED, ~0, number, out) &&
	       run(path, MODE_NO, EXIT_CLEAN, ~0, 0, out);
}

const char *fault_try(fault_fn fault, unsigned number, enum outcome outcome)
{
	struct output *out = malloc(sizeof(*out));
	struct world world;
	struct image image;
	char path[SCRATCH_PATH_BYTES];
	bool good;

	if (!out)
		return "no memory";
	world_make(&world);
	image_open(&image, world.dev);
	fault(&world, &image);
	world_save(&world, path);
	good = run_all(path, number, outcome, out);
	unlink(path);
	world_free(&world);
	free(out);
	return good ? NULL : wrong;
}

uint64_t fault_root(const struct image *i, unsigned index)
{
	return le64_get(i->raw.sb.root[index]);
}

void fault_second_leaf(struct image *i)
{
	image_load(i, fault_root(i, INDEX_INODES));
	image_load(i, page_child(i->page, 1));
}

struct disk_extent *fault_extent(struct image *i, uint64_t lob, uint64_t block, struct key *key)
{
	struct key from = image_key_pair(lob, block);

	check(image_find(i, INDEX_LOB, &from));
	image_slot_key(i, key);
	return image_value(i, NULL);
}

uint64_t fault_lob(struct image *i, uint64_t ino)
{
	struct disk_inode inode;

	image_get_inode(i, ino, &inode);
	return le64_get(inode.lob);
}
