/* newer_tool IMAGE: makes both superblocks those of a later format version. */
#include "engine/base/crc32c.h"
#include "engine/format.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int change_at(int fd, off_t offset)
{
	struct disk_superblock sb;

	if (pread(fd, &sb, sizeof(sb), offset) != sizeof(sb))
		return -1;
	sb.version = le32_make(FORMAT_VERSION + 1);
	sb.crc = le32_make(0);
	sb.crc = le32_make(crc32c(0, &sb, sizeof(sb)));
	return pwrite(fd, &sb, sizeof(sb), offset) == sizeof(sb) ? 0 : -1;
}

int main(int argc, char **argv)
{
	int fd = argc == 2 ? open(argv[1], O_RDWR) : -1;

	if (fd < 0 || change_at(fd, 0) || change_at(fd, lseek(fd, 0, SEEK_END) - BLOCK_SIZE)) {
		fprintf(stderr, "usage: newer_tool IMAGE\n");
		return 1;
	}
	return 0;
}
