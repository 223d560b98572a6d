/* Flips one bit of a file: flip_tool FILE OFFSET BIT */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	off_t offset = argc == 4 ? (off_t)strtoll(argv[2], NULL, 10) : -1;
	unsigned char byte;
	int fd = argc == 4 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1;

	if (fd < 0 || pread(fd, &byte, 1, offset) != 1) {
		fputs("usage: flip_tool FILE OFFSET BIT\n", stderr);
		return 2;
	}
	byte ^= (unsigned char)(1u << strtoul(argv[3], NULL, 10) % 8);
	if (pwrite(fd, &byte, 1, offset) != 1) {
		perror(argv[1]);
		return 1;
	}
	return close(fd) != 0;
}
