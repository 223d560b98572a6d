/*
 * How long a volume takes to be opened, and what is read for it, by its size.
 *
 *	open_time FOLDER [SIZE_GIB ...]     default 10 1024 16000; writes FOLDER/open.json
 *
 * Each volume lies in a sparse file of FOLDER, formatted anew.  It is opened five times
 * with what it reads in the kernel's cache; the median counts.  Then a file is written,
 * the process's part of it dies, and the time of the next opening is told, too.
 */
#include "engine/base/message.h"
#include "engine/space.h"
#include "engine/volume.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 5u

static void demand(int rc, const char *what)
{
	if (rc == 0)
		return;
	fprintf(stderr, "open_time: %s: %s\n", what, error_text(rc));
	exit(1);
}

struct result {
	double ms;
	uint64_t read_bytes, groups_read, groups, free;
};

static struct volume *open_it(const char *path, struct result *result)
{
	const struct volume_options options = {.no_background = true};
	struct space_counts counts;
	struct device *dev;
	struct volume *volume;
	uint64_t began;

	demand(dev_open_file(&dev, path, 0, 0), path);
	began = os_mono_ns();
	demand(volume_open(&volume, dev, &options), path);
	space_count(volume->space, &counts);
	*result = (struct result){
		.ms = (double)(os_mono_ns() - began) / 1e6,
		.read_bytes = stat_read(&volume->stats, STAT_dev_read_bytes),
		.groups_read = stat_read(&volume->stats, STAT_space_groups_loaded),
		.groups = volume->geo.group_count,
		.free = counts.free,
	};
	return volume;
}

static int by_time(const void *a, const void *b)
{
	const struct result *x = a, *y = b;

	return x->ms < y->ms ? -1 : x->ms > y->ms;
}

static void format(const char *path, uint64_t bytes)
{
	struct format_params params = {.size_bytes = bytes, .uuid = {1}, .log_bytes = 16u << 20};
	struct device *dev;
	FILE *file = fopen(path, "w");

	demand(file && ftruncate(fileno(file), (off_t)bytes) == 0 ? 0 : -1, path);
	fclose(file);
	demand(dev_open_file(&dev, path, 0, 0), path);
	demand(volume_format(dev, &params, NULL), "format");
	dev_close(dev);
}

static void measure(const char *folder, uint64_t gib, FILE *json, bool first)
{
	char path[4096];
	struct result result[ROUNDS], dead;
	struct volume *volume;

	snprintf(path, sizeof(path), "%s/open_time.img", folder);
	format(path, gib << 30);
	for (unsigned i = 0; i < ROUNDS; i++)
		demand(volume_close(open_it(path, &result[i])), "close");
	volume = open_it(path, &dead);
	volume_abandon(volume);
	demand(volume_close(open_it(path, &dead)), "close");
	demand(unlink(path), path);
	qsort(result, ROUNDS, sizeof(result[0]), by_time);
	printf("%8llu GiB %8llu groups  %9.2f ms  %8.1f KiB read  %6llu bitmaps  after a "
	       "crash %9.2f ms\n",
	       (unsigned long long)gib, (unsigned long long)result[0].groups,
	       result[ROUNDS / 2].ms, (double)result[ROUNDS / 2].read_bytes / 1024,
	       (unsigned long long)result[ROUNDS / 2].groups_read, dead.ms);
	fprintf(json, "%s\n  {\"gib\": %llu, \"groups\": %llu, \"open_ms\": %.3f, "
		      "\"read_bytes\": %llu, \"bitmaps_read\": %llu, \"after_crash_ms\": %.3f}",
		first ? "" : ",", (unsigned long long)gib, (unsigned long long)result[0].groups,
		result[ROUNDS / 2].ms, (unsigned long long)result[ROUNDS / 2].read_bytes,
		(unsigned long long)result[ROUNDS / 2].groups_read, dead.ms);
}

int main(int argc, char **argv)
{
	static const uint64_t sizes[] = {10, 1024, 16000};
	char path[4096];
	FILE *json;

	if (argc < 2) {
		fprintf(stderr, "usage: open_time FOLDER [SIZE_GIB ...]\n");
		return 2;
	}
	snprintf(path, sizeof(path), "%s/open.json", argv[1]);
	json = fopen(path, "w");
	demand(json ? 0 : -1, path);
	fprintf(json, "[");
	for (int i = 2; i < argc; i++)
		measure(argv[1], strtoull(argv[i], NULL, 10), json, i == 2);
	for (unsigned i = 0; argc == 2 && i < sizeof(sizes) / sizeof(sizes[0]); i++)
		measure(argv[1], sizes[i], json, i == 0);
	fprintf(json, "\n]\n");
	return fclose(json) ? 1 : 0;
}
