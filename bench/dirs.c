/*
 * Large directories, through the file system core over a file.
 *
 *	dirs FOLDER          writes FOLDER/dirs.json; the image lies in FOLDER, sparse
 *
 * ENTRIES    1000000 (the long form: 10000000)
 * DIRS       10000: over so many directories the entries are spread in the second form
 * CACHE_MIB  256 for each million entries: all of the metadata, which takes some 220
 *            bytes an entry; with less the leaves that a create wants have to be read
 * LOG_MIB    256, and 1024 from 4 million entries on: a page is written back about once
 *            for each 3/8 of the log, whatever has changed in it by then
 * FORMS      3: 1 = all in one directory, 2 = spread, 3 = both
 *
 * One thread creates empty files; for each tenth of them it is noted how many a second
 * there were, how many levels the indexes have, how many pages a create asked the pool
 * for, and how many of those had to be read.  Then it looks up names and removes some,
 * at random.  The order of names in an index is that of their hashes, so with entries
 * enough each operation wants a leaf that nobody has used lately: beyond the cache's
 * size it is read from the file, and the changed one written back.
 */
#include "engine/base/message.h"
#include "engine/pool.h"
#include "fs/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PARTS 10u
#define MILLION 1000000u
#define ENTRY_BYTES 1024u /* of the image for each entry: three times what it takes */
#define SAMPLES_SHARE 20u /* so many entries in all are looked up, and removed */

enum form { ONE, SPREAD, FORMS };

static const char *const form_names[FORMS] = {"one_dir", "spread"};
static const struct core_cred cred;

/* What a number of operations took. */
struct part {
	double rate, cpu_us;         /* a second; processor time of one, in all threads */
	double pages, reads, writes; /* of one */
	unsigned dirent_levels, inode_levels;
};

struct bench {
	uint64_t entries, dirs, cache_bytes, log_bytes;
	char image[4096];
	struct core *core;
	struct volume *volume;
	uint64_t *dir; /* inode numbers */
	uint64_t dir_count;
	struct part create[FORMS][PARTS], lookup[FORMS], unlink[FORMS];
	uint64_t metadata_bytes[FORMS];
};

static void demand(int rc, const char *what)
{
	if (rc == 0)
		return;
	fprintf(stderr, "dirs: %s: %s\n", what, error_text(rc));
	exit(1);
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

/* ---------------------------------------------------------------- measuring */

struct mark {
	uint64_t ns, pages, reads, writes;
	double cpu_us;
};

static double process_us(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void set_mark(const struct bench *bench, struct mark *mark)
{
	const struct stats *stats = &bench->volume->stats;

	mark->ns = os_mono_ns();
	mark->cpu_us = process_us();
	mark->reads = stat_read(stats, STAT_pool_misses);
	mark->pages = stat_read(stats, STAT_pool_hits) + mark->reads;
	mark->writes = stat_read(stats, STAT_flush_pages);
}

static unsigned levels_of(const struct bench *bench, unsigned index)
{
	struct frame *root;
	unsigned levels;

	demand(pool_get(bench->volume->pool, bench->volume->index[index].root, PAGE_TREE, index,
			&root), "root");
	levels = tree_page(root->data)->head.level + 1u;
	pool_put(root);
	return levels;
}

static void end_part(const struct bench *bench, const struct mark *from, uint64_t operations,
		     struct part *part)
{
	double count = (double)operations;
	struct mark to;

	set_mark(bench, &to);
	*part = (struct part){
		.rate = count * 1e9 / (double)(to.ns - from->ns),
		.cpu_us = (to.cpu_us - from->cpu_us) / count,
		.pages = (double)(to.pages - from->pages) / count,
		.reads = (double)(to.reads - from->reads) / count,
		.writes = (double)(to.writes - from->writes) / count,
		.dirent_levels = levels_of(bench, INDEX_DIRENTS),
		.inode_levels = levels_of(bench, INDEX_INODES),
	};
}

/* --------------------------------------------------------------- operations */

static size_t make_name(char *name, size_t cap, uint64_t entry)
{
	return (size_t)snprintf(name, cap, "entry-%llu", (unsigned long long)entry);
}

static uint64_t dir_of(const struct bench *bench, uint64_t entry)
{
	return bench->dir[entry % bench->dir_count];
}

static void create(const struct bench *bench, uint64_t entry)
{
	struct core_attr attr;
	char name[64];
	size_t len = make_name(name, sizeof(name), entry);

	demand(core_create(bench->core, VIEW_BASE, &cred, dir_of(bench, entry), name, len,
			   S_IFREG | 0644, 0, &attr), "create");
	core_forget(bench->core, attr.ino, 1);
}

static void look_up(const struct bench *bench, uint64_t entry)
{
	struct core_attr attr;
	char name[64];
	size_t len = make_name(name, sizeof(name), entry);

	demand(core_lookup(bench->core, VIEW_BASE, dir_of(bench, entry), name, len, &attr),
	       "look-up");
	core_forget(bench->core, attr.ino, 1);
}

static void make_dirs(struct bench *bench, uint64_t count)
{
	struct core_attr attr;
	char name[64];

	bench->dir_count = count;
	bench->dir = malloc(count * sizeof(*bench->dir));
	demand(bench->dir ? 0 : -ENOMEM, "memory");
	for (uint64_t i = 0; i < count; i++) {
		size_t len = (size_t)snprintf(name, sizeof(name), "dir-%llu",
					      (unsigned long long)i);

		demand(core_create(bench->core, VIEW_BASE, &cred, INO_ROOT, name, len,
				   S_IFDIR | 0755, 0, &attr), "mkdir");
		bench->dir[i] = attr.ino;
	}
}

static void create_all(struct bench *bench, enum form form)
{
	uint64_t entry = 0;

	for (unsigned i = 0; i < PARTS; i++) {
		uint64_t from = entry, end = bench->entries * (i + 1) / PARTS;
		struct mark mark;

		set_mark(bench, &mark);
		for (; entry < end; entry++)
			create(bench, entry);
		end_part(bench, &mark, end - from, &bench->create[form][i]);
		fprintf(stderr, "%s: %llu entries, %.0f a second\n", form_names[form],
			(unsigned long long)end, bench->create[form][i].rate);
	}
}

/* Each of `count` different entries, in no order: the step and `entries` share no factor. */
static uint64_t scattered(const struct bench *bench, uint64_t i)
{
	return i * 1000003u % bench->entries;
}

static void look_up_some(struct bench *bench, enum form form)
{
	uint64_t count = bench->entries / SAMPLES_SHARE;
	struct mark mark;

	set_mark(bench, &mark);
	for (uint64_t i = 0; i < count; i++)
		look_up(bench, scattered(bench, i));
	end_part(bench, &mark, count, &bench->lookup[form]);
}

static void unlink_some(struct bench *bench, enum form form)
{
	uint64_t count = bench->entries / SAMPLES_SHARE;
	struct mark mark;
	char name[64];

	set_mark(bench, &mark);
	for (uint64_t i = 0; i < count; i++) {
		uint64_t entry = scattered(bench, i);
		size_t len = make_name(name, sizeof(name), entry);

		demand(core_unlink(bench->core, VIEW_BASE, dir_of(bench, entry), name, len),
		       "unlink");
	}
	end_part(bench, &mark, count, &bench->unlink[form]);
}

/* --------------------------------------------------------------------- form */

static void open_core(struct bench *bench)
{
	struct format_params params = {
		.size_bytes = bench->entries * ENTRY_BYTES + bench->log_bytes + (512u << 20),
		.log_bytes = bench->log_bytes,
		.uuid = "bench-of-dirs!!",
		.hash_seed = "bench-hash-seed",
	};
	struct volume_options options = {.cache_bytes = bench->cache_bytes};
	int fd = open(bench->image, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
	struct device *dev;

	if (fd < 0 || ftruncate(fd, (off_t)params.size_bytes))
		demand(-errno, bench->image);
	close(fd);
	demand(dev_open_file(&dev, bench->image, 0, 0), bench->image);
	unlink(bench->image); /* gone when this program ends, however it ends */
	demand(volume_format(dev, &params, NULL), "format");
	demand(volume_open(&bench->volume, dev, &options), "open");
	demand(core_open(&bench->core, bench->volume), "core");
}

static void run_form(struct bench *bench, enum form form)
{
	struct statvfs space;

	open_core(bench);
	make_dirs(bench, form == ONE ? 1 : bench->dirs);
	create_all(bench, form);
	demand(core_statfs(bench->core, VIEW_BASE, &space), "statfs");
	bench->metadata_bytes[form] = (space.f_blocks - space.f_bfree) * space.f_frsize;
	look_up_some(bench, form);
	unlink_some(bench, form);
	for (uint64_t i = 0; i < bench->dir_count; i++)
		core_forget(bench->core, bench->dir[i], 1);
	core_close(bench->core);
	demand(volume_close(bench->volume), "close");
	free(bench->dir);
}

/* ------------------------------------------------------------------- report */

static double last_over_first(const struct bench *bench, enum form form)
{
	return bench->create[form][PARTS - 1].rate / bench->create[form][0].rate;
}

/* Steadier than the rates where other programs run: 1 is as cheap at last as at first. */
static double cpu_first_over_last(const struct bench *bench, enum form form)
{
	return bench->create[form][0].cpu_us / bench->create[form][PARTS - 1].cpu_us;
}

static void print_part(const char *name, const struct part *part)
{
	printf("%-20s %10.0f %8.2f %8.2f %8.3f %8.3f %8u %8u\n", name, part->rate,
	       part->cpu_us, part->pages, part->reads, part->writes, part->dirent_levels,
	       part->inode_levels);
}

static void print_form(const struct bench *bench, enum form form)
{
	char name[64];

	printf("%s: %llu entries in %llu directories, cache %llu MiB, log %llu MiB, "
	       "%llu MiB used\n",
	       form_names[form], (unsigned long long)bench->entries,
	       (unsigned long long)(form == ONE ? 1 : bench->dirs),
	       (unsigned long long)(bench->cache_bytes >> 20),
	       (unsigned long long)(bench->log_bytes >> 20),
	       (unsigned long long)(bench->metadata_bytes[form] >> 20));
	printf("%-20s %10s %8s %8s %8s %8s %8s %8s\n", "", "a second", "cpu us",
	       "pages", "reads", "writes", "dirents", "inodes");
	for (unsigned i = 0; i < PARTS; i++) {
		snprintf(name, sizeof(name), "create, tenth %u", i + 1);
		print_part(name, &bench->create[form][i]);
	}
	print_part("look-up", &bench->lookup[form]);
	print_part("unlink", &bench->unlink[form]);
	printf("last tenth over first: %.3f\n\n", last_over_first(bench, form));
}

static void write_part(FILE *out, const char *what, const struct part *part, const char *separator)
{
	fprintf(out, "%s{\"op\": \"%s\", \"rate\": %.0f, \"cpu_us\": %.3f, \"pages\": %.3f, "
		"\"reads\": %.3f, \"writes\": %.3f, \"dirent_levels\": %u, \"inode_levels\": %u}",
		separator, what, part->rate, part->cpu_us, part->pages, part->reads, part->writes,
		part->dirent_levels, part->inode_levels);
}

static void report(const struct bench *bench, const char *folder, unsigned forms)
{
	char path[4096];
	FILE *out;

	snprintf(path, sizeof(path), "%s/dirs.json", folder);
	out = fopen(path, "w");
	if (!out)
		demand(-errno, path);
	fprintf(out, "{\n  \"entries\": %llu, \"dirs\": %llu, \"cache_mib\": %llu, "
		"\"log_mib\": %llu,\n",
		(unsigned long long)bench->entries, (unsigned long long)bench->dirs,
		(unsigned long long)(bench->cache_bytes >> 20),
		(unsigned long long)(bench->log_bytes >> 20));
	for (unsigned form = 0; form < FORMS; form++) {
		if (!(forms & 1u << form))
			continue;
		fprintf(out, "  \"%s\": [\n", form_names[form]);
		for (unsigned i = 0; i < PARTS; i++)
			write_part(out, "create", &bench->create[form][i], i ? ",\n    " : "    ");
		write_part(out, "lookup", &bench->lookup[form], ",\n    ");
		write_part(out, "unlink", &bench->unlink[form], ",\n    ");
		fprintf(out, "\n  ],\n");
	}
	fprintf(out, "  \"summary\": {");
	for (unsigned form = 0, any = 0; form < FORMS; form++)
		if (forms & 1u << form)
			fprintf(out, "%s\"%s_last_over_first\": %.3f, "
				"\"%s_cpu_first_over_last\": %.3f", any++ ? ", " : "",
				form_names[form], last_over_first(bench, form), form_names[form],
				cpu_first_over_last(bench, form));
	fprintf(out, "}\n}\n");
	if (fclose(out))
		demand(-errno, path);
}

int main(int argc, char **argv)
{
	static struct bench bench;
	uint64_t forms = from_environment("FORMS", 3);

	bench.entries = from_environment("ENTRIES", 1000000);
	bench.dirs = from_environment("DIRS", 10000);
	bench.cache_bytes = from_environment("CACHE_MIB",
					     256 * ((bench.entries + MILLION - 1) / MILLION)) << 20;
	bench.log_bytes = from_environment("LOG_MIB", bench.entries >= 4 * MILLION ? 1024 : 256)
			  << 20;
	if (argc != 2 || bench.entries < 1000 || bench.entries % 1000003 == 0 || bench.dirs == 0 ||
	    forms == 0 || forms > 3) {
		fputs("usage: ENTRIES=1000000 DIRS=10000 CACHE_MIB=256 LOG_MIB=256 FORMS=3 "
		      "dirs FOLDER\n"
		      "ENTRIES: at least 1000; FORMS: 1, 2 or 3\n", stderr);
		return 2;
	}
	message_quiet(LOG_ERR);
	snprintf(bench.image, sizeof(bench.image), "%s/dirs.%d.img", argv[1], (int)getpid());
	for (unsigned form = 0; form < FORMS; form++)
		if (forms & 1u << form)
			run_form(&bench, form);
	for (unsigned form = 0; form < FORMS; form++)
		if (forms & 1u << form)
			print_form(&bench, form);
	report(&bench, argv[1], (unsigned)forms);
	return 0;
}
