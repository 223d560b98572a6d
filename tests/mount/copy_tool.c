/* copy_tool FROM TO: copy_file_range() of all of FROM into TO, which stays as it is behind it. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int from = argc == 3 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
	int to = argc == 3 ? open(argv[2], O_WRONLY | O_CLOEXEC) : -1;
	struct stat st;
	ssize_t n;

	if (from < 0 || to < 0 || fstat(from, &st) != 0) {
		fputs("usage: copy_tool FROM TO\n", stderr);
		return 2;
	}
	for (off_t left = st.st_size; left > 0; left -= n) {
		n = copy_file_range(from, NULL, to, NULL, (size_t)left, 0);
		if (n <= 0) {
			perror(argv[2]);
			return 1;
		}
	}
	return close(to) != 0;
}
