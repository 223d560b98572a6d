/* Is a directory in a mounted volume of ours? */
#include "fs/server/mounted.h"

#include "engine/base/message.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* 36 35 98:0 /root /mount/point options [optional ...] - type source options */
static bool line_is_ours(const char *line, dev_t device)
{
	unsigned major, minor;
	const char *type = strstr(line, " - ");

	return sscanf(line, "%*d %*d %u:%u", &major, &minor) == 2 &&
	       makedev(major, minor) == device && type &&
	       strncmp(type + 3, "fuse.blinkfs ", 13) == 0;
}

/* Of all mounts in this namespace: is the one with this device a blinkfs? */
static bool is_blinkfs(dev_t device)
{
	FILE *table = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t room = 0;
	bool found = false;

	while (table && !found && getline(&line, &room, table) > 0)
		found = line_is_ours(line, device);
	free(line);
	if (table)
		fclose(table);
	return found;
}

int mounted_open(const char *dir)
{
	struct stat st;
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) != 0) {
		message(LOG_ERR, "%s: %s", dir, strerror(errno));
		goto fail;
	}
	if (is_blinkfs(st.st_dev))
		return fd;
	message(LOG_ERR, "%s: not in a mounted blinkfs volume", dir);
fail:
	if (fd >= 0)
		close(fd);
	return -1;
}
