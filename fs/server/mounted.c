/* Is a directory in a mounted volume of ours? */
#include "fs/server/mounted.h"

#include "engine/base/message.h"
#include "fs/server/place.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int mounted_open(const char *dir)
{
	struct stat st;
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) != 0) {
		message(LOG_ERR, "%s: %s", dir, strerror(errno));
		goto fail;
	}
	if (place_is_volume(st.st_dev))
		return fd;
	message(LOG_ERR, "%s: not in a mounted blinkfs volume", dir);
fail:
	if (fd >= 0)
		close(fd);
	return -1;
}
