/*
 * The parent learns of success by a byte in a pipe, of failure by the end of
 * the pipe, and then passes on the exit code of its child.
 */
#include "fs/server/daemon.h"

#include "engine/base/message.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int wait_for_child(int from_child, pid_t pid)
{
	char byte;
	ssize_t n;
	int status;

	do
		n = read(from_child, &byte, 1);
	while (n < 0 && errno == EINTR);
	close(from_child);
	if (n == 1)
		return 0;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 1;
	if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
		return WEXITSTATUS(status);
	message(LOG_ERR, "the server ended before the mount was live");
	return 1;
}

int daemon_start(struct daemon *daemon, int *exit_code)
{
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) != 0)
		return -errno;
	pid = fork();
	if (pid < 0) {
		close(ends[0]);
		close(ends[1]);
		return -EAGAIN;
	}
	daemon->is_child = pid == 0;
	if (pid > 0) {
		close(ends[1]);
		*exit_code = wait_for_child(ends[0], pid);
		return 0;
	}
	close(ends[0]);
	daemon->pipe = ends[1];
	setsid();
	return 0;
}

static void leave_terminal(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		return;
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	dup2(null, STDERR_FILENO);
	close(null);
}

void daemon_live(struct daemon *daemon)
{
	ssize_t n;

	if (daemon->pipe < 0)
		return;
	message_init("blinkfs", true);
	leave_terminal();
	do
		n = write(daemon->pipe, "", 1);
	while (n < 0 && errno == EINTR);
	close(daemon->pipe);
	daemon->pipe = -1;
}
