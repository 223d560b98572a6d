/*
 * sticky_tool FILE: a write-back that fails is told by fsync, once to each
 * descriptor that was open, and close does not hide it.
 *
 * It is made immutable while it is open and mapped: write() is refused, but stores
 * reach the cache, and their write-back fails (EPERM).  "kept" must be in it
 * afterwards.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void expect(int line, int rc, int error)
{
	int found = rc == 0 ? 0 : errno;

	if (found == error)
		return;
	fprintf(stderr, "line %d: %s instead of %s\n", line, strerror(found), strerror(error));
	exit(1);
}
#define EXPECT(call, error) expect(__LINE__, (call) < 0 ? -1 : 0, error)

static void set_flags(int fd, int flags)
{
	EXPECT(ioctl(fd, FS_IOC_SETFLAGS, &flags), 0);
}

int main(int argc, char **argv)
{
	const char *path = argc == 2 ? argv[1] : "";
	int first = open(path, O_RDWR | O_CREAT, 0644), second = open(path, O_RDWR), third;
	struct stat st;
	char *map;

	EXPECT(first, 0);
	EXPECT(second, 0);
	EXPECT(pwrite(first, "kept", 4, 0), 0); /* written back when the flag comes */
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, second, 0);
	EXPECT(map == MAP_FAILED ? -1 : 0, 0);
	set_flags(first, FS_IMMUTABLE_FL);
	EXPECT(pwrite(second, "lost", 4, 0), EPERM);
	EXPECT(stat(path, &st), 0);
	EXPECT(pwrite(second, "lost", 4, 0), EPERM);
	memcpy(map, "lost", 4);
	EXPECT(fsync(first), EPERM);
	EXPECT(fsync(first), 0);
	EXPECT(fsync(second), EPERM);
	EXPECT(fsync(second), 0);
	third = open(path, O_RDONLY);
	EXPECT(third, 0);
	EXPECT(fsync(third), 0);
	/* Nobody was told: the next one to open it is. */
	memcpy(map, "more", 4);
	munmap(map, 4096);
	close(first);
	close(second);
	if (fsync(third) == 0) { /* EPERM, or EIO: Linux keeps both */
		fprintf(stderr, "nobody was told\n");
		return 1;
	}
	EXPECT(fsync(third), 0);
	set_flags(third, 0);
	return 0;
}
