/*
 * Neither look touches the mount itself: a worker may call this.
 */
#include "fs/server/readahead.h"

#include "engine/base/limits.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READ_AHEAD_BYTES (READ_AHEAD_REQUESTS * WRITE_BYTES_MAX)
#define READ_AHEAD_REQUESTS 4u

/* "ID PARENT MAJOR:MINOR ROOT DIR ...": the last mount on a directory is the one that is seen. */
static bool find_device(const char *mount_dir, unsigned *major, unsigned *minor)
{
	FILE *table = fopen("/proc/self/mountinfo", "re");
	bool found = false;
	char *line = NULL;
	size_t cap = 0;

	while (table && getline(&line, &cap, table) > 0) {
		char dir[4096];
		unsigned line_major, line_minor;

		if (sscanf(line, "%*u %*u %u:%u %*s %4095s", &line_major, &line_minor, dir) != 3 ||
		    strcmp(dir, mount_dir) != 0)
			continue;
		*major = line_major;
		*minor = line_minor;
		found = true;
	}
	free(line);
	if (table)
		fclose(table);
	return found;
}

void readahead_raise(const char *mount_dir)
{
	unsigned major, minor;
	char path[128];
	FILE *file;

	if (!find_device(mount_dir, &major, &minor))
		return;
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major, minor);
	file = fopen(path, "we");
	if (!file)
		return;
	fprintf(file, "%u", READ_AHEAD_BYTES / 1024);
	fclose(file);
}
