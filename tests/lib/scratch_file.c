#include "tests/lib/scratch_file.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void demand(bool good, const char *what)
{
	if (good)
		return;
	perror(what);
	abort();
}

const char *scratch_folder(void)
{
	const char *folder = getenv("TMPDIR");

	return folder && folder[0] ? folder : "/tmp";
}

static void template_in(const char *folder, char *path)
{
	int len = snprintf(path, SCRATCH_PATH_BYTES, "%s/blinkfs-test.XXXXXX", folder);

	demand(len < SCRATCH_PATH_BYTES, folder);
}

int scratch_file_in(const char *folder, char path[SCRATCH_PATH_BYTES])
{
	template_in(folder, path);
	return mkstemp(path);
}

int scratch_file(char path[SCRATCH_PATH_BYTES])
{
	int fd = scratch_file_in(scratch_folder(), path);

	demand(fd >= 0, path);
	return fd;
}

int scratch_file_unnamed(void)
{
	char path[SCRATCH_PATH_BYTES];
	int fd = scratch_file(path);

	demand(unlink(path) == 0, path);
	return fd;
}

void scratch_dir(char path[SCRATCH_PATH_BYTES])
{
	template_in(scratch_folder(), path);
	demand(mkdtemp(path) != NULL, path);
}

void scratch_dir_remove(const char *path)
{
	char command[SCRATCH_PATH_BYTES + 16];

	snprintf(command, sizeof(command), "rm -rf '%s'", path);
	demand(system(command) == 0, command);
}
