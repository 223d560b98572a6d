/*
 * Requests of a frozen mount that are given up while they wait; the kernel's side is a
 * socket.  What freezing does for the device is in tests/mount/test_freeze.sh.
 */
#include "fs/server/freeze.h"
#include "fs/server/worker.h"
#include "tests/lib/core_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <linux/fuse.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static struct rig rig;
static struct server server;
static struct fuse_session *session;
static int kernel_fd;
static uint64_t served[16];
static unsigned served_count;

static void serve(struct server *of, const struct fuse_buf *request)
{
	struct fuse_in_header in;

	(void)of;
	memcpy(&in, request->mem, sizeof(in));
	if (in.opcode != FUSE_INTERRUPT)
		served[served_count++] = in.unique;
}

static ssize_t socket_read(int fd, void *buf, size_t len, void *userdata)
{
	(void)userdata;
	return read(fd, buf, len);
}

static ssize_t socket_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	(void)userdata;
	return writev(fd, iov, count);
}

static void setup(void)
{
	static const struct fuse_custom_io io = {.read = socket_read, .writev = socket_writev};
	static const struct fuse_lowlevel_ops ops;
	char *words[] = {"test_freeze", NULL};
	struct fuse_args args = FUSE_ARGS_INIT(1, words);
	char why[FREEZE_TEXT_BYTES];
	int fd[2];

	rig_open(&rig, 64u << 20, 16384, true);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fd), 0);
	kernel_fd = fd[0];
	session = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	fuse_opt_free_args(&args);
	cr_assert(session && fuse_session_custom_io(session, &io, fd[1]) == 0);
	server = (struct server){.volume = rig.volume, .core = rig.core, .session = session};
	cr_assert_eq(workers_create(&server.workers, session, 4, NULL, NULL), 0);
	cr_assert_eq(freeze_open(&server.freeze, &server, serve), 0);
	served_count = 0;
	cr_assert_eq(freeze_on(server.freeze, false, why), 0);
}

static void teardown(void)
{
	freeze_end(server.freeze);
	freeze_close(server.freeze);
	workers_free(server.workers);
	fuse_session_destroy(session);
	close(kernel_fd);
	rig_close(&rig);
}

TestSuite(freeze, .init = setup, .fini = teardown);

static void serve_one(void *arg)
{
	freeze_serve(server.freeze, arg);
}

static void send_request(void *bytes, size_t len)
{
	struct fuse_buf request = {.mem = bytes, .size = len};

	worker_lend(server.workers, serve_one, &request);
}

static void request_mkdir(uint64_t unique)
{
	struct fuse_in_header in = {
		.len = sizeof(in), .opcode = FUSE_MKDIR, .unique = unique, .nodeid = INO_ROOT};

	send_request(&in, sizeof(in));
}

static void request_interrupt(uint64_t unique)
{
	struct {
		struct fuse_in_header in;
		struct fuse_interrupt_in interrupt;
	} request = {{.len = sizeof(request), .opcode = FUSE_INTERRUPT, .unique = unique | 1},
		     {unique}};

	send_request(&request, sizeof(request));
}

static unsigned held(void)
{
	struct freeze_state state;

	freeze_look(server.freeze, &state);
	return state.held;
}

/* 0: nothing has been answered. */
static uint64_t refused(void)
{
	struct fuse_out_header out;

	if (read(kernel_fd, &out, sizeof(out)) != (ssize_t)sizeof(out))
		return 0;
	cr_assert_eq(out.error, -EINTR);
	return out.unique;
}

Test(freeze, who_waits_may_give_up)
{
	request_mkdir(10);
	request_mkdir(12);
	cr_assert_eq(held(), 2);
	request_interrupt(10);
	cr_assert_eq(refused(), 10);
	cr_assert_eq(held(), 1);
	cr_assert_eq(freeze_off(server.freeze), 0);
	cr_assert(served_count == 1 && served[0] == 12);
	cr_assert_eq(refused(), 0);
}

/* Another worker serves the interrupt before the request is held. */
static void overtake(const char *point)
{
	if (strcmp(point, "freeze:hold") == 0)
		request_interrupt(20);
}

Test(freeze, an_interrupt_that_overtakes_its_request) /* INV-FREEZE-4 */
{
	os_linux_set_point_handler(overtake);
	request_mkdir(20);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(refused(), 20);
	cr_assert_eq(held(), 0);
	request_mkdir(22);
	cr_assert_eq(held(), 1, "only the one that was meant");
	cr_assert_eq(freeze_off(server.freeze), 0);
	cr_assert(served_count == 1 && served[0] == 22);
}

/* It may have come while nothing was frozen yet; and others in between. */
Test(freeze, an_early_interrupt_among_many)
{
	request_interrupt(30);
	for (uint64_t unique = 1000; unique < 1000 + 2 * 511; unique += 2)
		request_interrupt(unique);
	request_mkdir(30);
	cr_assert_eq(refused(), 30);
	cr_assert_eq(held(), 0);
}
