/*
 * The workers of the server over a socket pair; this program is the kernel.
 *
 * INV-SRV-1, place by place: one request is kept where the product can wait (a
 * wait queue, a latch, each kind of device I/O), and a second one has to be
 * answered meanwhile.  A place that does not hand over hangs the program, and
 * run.sh ends it.  Then all of it at once: clients, few threads, waits and I/O
 * in any order.  Run under TSan.
 */
#include "engine/base/latch.h"
#include "engine/dev/device.h"
#include "fs/server/worker.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define QUICK_NODE 1u /* a GETATTR */
#define INIT_UNIQUE 1u

/* --- where a request is kept --------------------------------------------- */

static struct {
	struct waitq queue;
	_Atomic bool open;
	struct latch latch;
	sem_t gate; /* of the device */
	struct device dev, lane;
} at;

/* Waits without telling anybody, as a system call does. */
static int pass_gate(void)
{
	while (sem_wait(&at.gate) != 0)
		check(errno == EINTR);
	return 0;
}

static int gated_read(struct device *dev, void *buf, size_t len, uint64_t offset)
{
	(void)dev, (void)buf, (void)len, (void)offset;
	return pass_gate();
}

static int gated_write(struct device *dev, const void *buf, size_t len, uint64_t offset)
{
	(void)dev, (void)buf, (void)len, (void)offset;
	return pass_gate();
}

static int gated_batch(struct device *dev, struct dev_request *requests, size_t count)
{
	(void)dev;
	for (size_t i = 0; i < count; i++)
		requests[i].result = 0;
	return pass_gate();
}

static int gated_flush(struct device *dev)
{
	(void)dev;
	return pass_gate();
}

static const struct device_ops gated_ops = {
	.read = gated_read,
	.write = gated_write,
	.batch = gated_batch,
	.flush = gated_flush,
	.write_beside_flush = gated_batch,
};

static void in_queue(void)
{
	for (;;) {
		uint32_t ticket = waitq_ticket(&at.queue);

		if (atomic_load(&at.open))
			return;
		waitq_wait(&at.queue, ticket, OS_FOREVER);
	}
}

static void in_latch_s(void)
{
	latch_s(&at.latch);
	unlatch_s(&at.latch);
}

static void in_latch_x(void)
{
	latch_x(&at.latch);
	unlatch_x(&at.latch);
}

static void in_read(void)
{
	uint8_t byte;

	check(dev_read(&at.dev, &byte, 1, 0) == 0);
}

static void in_write(void)
{
	check(dev_write(&at.dev, "", 1, 0) == 0);
}

static void in_batch(void)
{
	uint8_t byte = 0;
	struct dev_request request = {.buf = &byte, .len = 1, .is_write = true};

	check(dev_batch(&at.dev, &request, 1) == 0);
}

static void in_flush(void)
{
	check(dev_flush(&at.dev) == 0);
}

static void in_write_beside_flush(void)
{
	uint8_t byte = 0;
	struct dev_request request = {.buf = &byte, .len = 1, .is_write = true};

	check(dev_write_beside_flush(&at.lane, &request, 1) == 0);
}

static const struct place {
	const char *name;
	void (*wait)(void);
} places[] = {
	{"waitq", in_queue},     {"latch S", in_latch_s},
	{"latch X", in_latch_x}, {"read", in_read},
	{"write", in_write},     {"batch", in_batch},
	{"flush", in_flush},     {"write beside flush", in_write_beside_flush},
};

static void close_places(void)
{
	atomic_store(&at.open, false);
	latch_init(&at.latch, RANK_LEAF, 0);
	latch_x(&at.latch);
	check(sem_init(&at.gate, 0, 0) == 0);
	at.dev = (struct device){.ops = &gated_ops, .size_bytes = 4096, .written = 1};
	at.lane = (struct device){.ops = &gated_ops, .size_bytes = 4096, .base = &at.dev};
}

static void open_places(void)
{
	atomic_store(&at.open, true);
	waitq_wake_all(&at.queue);
	unlatch_x(&at.latch);
	check(sem_post(&at.gate) == 0);
}

/* --- the server ---------------------------------------------------------- */

static void op_quick(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	(void)node, (void)fi;
	fuse_reply_err(req, EIO);
}

/* The node says where. */
static void op_kept(fuse_req_t req, fuse_ino_t node, int data_only, struct fuse_file_info *fi)
{
	(void)data_only, (void)fi;
	check(node < array_count(places));
	places[node].wait();
	fuse_reply_err(req, 0);
}

static const struct fuse_lowlevel_ops ops = {
	.getattr = op_quick,
	.fsync = op_kept,
};

static ssize_t socket_read(int fd, void *buf, size_t len, void *userdata)
{
	ssize_t n = read(fd, buf, len);

	(void)userdata;
	if (n != 0)
		return n;
	errno = ENODEV; /* what /dev/fuse says after unmounting */
	return -1;
}

static ssize_t socket_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	(void)userdata;
	return writev(fd, iov, count);
}

static const struct fuse_custom_io socket_io = {.read = socket_read, .writev = socket_writev};

struct rig {
	int kernel_fd;
	struct fuse_session *session;
	struct workers *workers;
	pthread_t server;
	int result;
};

static void *server_main(void *arg)
{
	struct rig *rig = arg;

	rig->result = workers_run(rig->workers);
	return NULL;
}

/* --- the kernel ---------------------------------------------------------- */

static void send_request(const struct rig *rig, uint32_t opcode, uint64_t unique, uint64_t node,
			 const void *body, size_t len)
{
	struct fuse_in_header head = {
		.len = (uint32_t)(sizeof(head) + len),
		.opcode = opcode,
		.unique = unique,
		.nodeid = node,
	};
	struct iovec iov[] = {{&head, sizeof(head)}, {(void *)body, len}};

	check(writev(rig->kernel_fd, iov, 2) == (ssize_t)head.len);
}

static void send_quick(const struct rig *rig, uint64_t unique)
{
	struct fuse_getattr_in body = {0};

	send_request(rig, FUSE_GETATTR, unique, QUICK_NODE, &body, sizeof(body));
}

static void send_kept(const struct rig *rig, uint64_t unique, uint64_t place)
{
	struct fuse_fsync_in body = {0};

	send_request(rig, FUSE_FSYNC, unique, place, &body, sizeof(body));
}

static uint64_t receive_reply(const struct rig *rig)
{
	struct {
		struct fuse_out_header head;
		uint8_t body[1024];
	} reply;

	check(read(rig->kernel_fd, &reply, sizeof(reply)) >= (ssize_t)sizeof(reply.head));
	return reply.head.unique;
}

static void rig_open(struct rig *rig, unsigned max_threads)
{
	struct fuse_init_in init = {.major = FUSE_KERNEL_VERSION, .minor = 31};
	char *words[] = {"race_workers", NULL};
	struct fuse_args args = FUSE_ARGS_INIT(1, words);
	int fd[2];

	check(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fd) == 0);
	rig->kernel_fd = fd[0];
	rig->session = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	fuse_opt_free_args(&args);
	check(rig->session && fuse_session_custom_io(rig->session, &socket_io, fd[1]) == 0);
	check(workers_create(&rig->workers, rig->session, max_threads, NULL, NULL) == 0);
	check(pthread_create(&rig->server, NULL, server_main, rig) == 0);
	send_request(rig, FUSE_INIT, INIT_UNIQUE, 0, &init, sizeof(init));
	check(receive_reply(rig) == INIT_UNIQUE);
}

static void rig_close(struct rig *rig)
{
	check(pthread_join(rig->server, NULL) == 0);
	check(rig->result == 0);
	workers_free(rig->workers);
	fuse_session_destroy(rig->session);
	close(rig->kernel_fd);
}

/* As when the last one has unmounted. */
static void connection_ends(struct rig *rig)
{
	check(shutdown(rig->kernel_fd, SHUT_WR) == 0);
}

/* --- place by place ------------------------------------------------------ */

static void others_are_served(const struct place *place)
{
	struct rig rig;

	printf("kept in: %s\n", place->name);
	fflush(stdout);
	close_places();
	rig_open(&rig, 2);
	send_kept(&rig, 2, (uint64_t)(place - places));
	send_quick(&rig, 3);
	check(receive_reply(&rig) == 3);
	open_places();
	check(receive_reply(&rig) == 2);
	connection_ends(&rig);
	rig_close(&rig);
}

/* All threads are kept: whoever comes back first serves what lies there. */
static void all_are_kept(void)
{
	struct rig rig;

	close_places();
	rig_open(&rig, 2);
	send_kept(&rig, 2, 0);
	send_kept(&rig, 3, 0);
	send_quick(&rig, 4);
	open_places();
	check(receive_reply(&rig) + receive_reply(&rig) + receive_reply(&rig) == 2 + 3 + 4);
	send_quick(&rig, 5);
	check(receive_reply(&rig) == 5);
	connection_ends(&rig);
	rig_close(&rig);
}

/* workers_stop() while some read, some are parked and one is kept. */
static void stopped_while_kept(void)
{
	struct rig rig;
	uint64_t replies = 0;

	close_places();
	rig_open(&rig, 4);
	for (uint64_t unique = 2; unique < 5; unique++)
		send_kept(&rig, unique, 0);
	send_quick(&rig, 5);
	check(receive_reply(&rig) == 5);
	open_places();
	for (uint64_t unique = 2; unique < 5; unique++)
		replies += receive_reply(&rig);
	check(replies == 2 + 3 + 4);
	workers_settle(rig.workers);
	workers_stop(rig.workers);
	rig_close(&rig);
}

/* --- all at once --------------------------------------------------------- */

#define CLIENTS 6u
#define REQUESTS 2000u

static struct {
	struct rig rig;
	sem_t answered[CLIENTS];
	_Atomic bool over;
	unsigned requests;
} storm;

static void *client_main(void *arg)
{
	uint64_t client = *(uint64_t *)arg, seed = client;

	for (unsigned i = 0; i < storm.requests; i++) {
		uint64_t unique = (i + 1ull) << 8 | client;

		if (random_next(&seed) % 3)
			send_quick(&storm.rig, unique);
		else
			send_kept(&storm.rig, unique, random_next(&seed) % array_count(places));
		while (sem_wait(&storm.answered[client]) != 0)
			check(errno == EINTR);
	}
	return NULL;
}

/* Lets go of whatever is kept, again and again. */
static void *releaser_main(void *arg)
{
	(void)arg;
	while (!atomic_load(&storm.over)) {
		latch_x(&at.latch);
		atomic_store(&at.open, false);
		sched_yield();
		open_places();
	}
	return NULL;
}

static void storm_of(unsigned max_threads)
{
	pthread_t client[CLIENTS], releaser;
	uint64_t number[CLIENTS];

	close_places();
	unlatch_x(&at.latch);
	atomic_store(&storm.over, false);
	storm.requests = REQUESTS * test_scale();
	rig_open(&storm.rig, max_threads);
	for (unsigned i = 0; i < CLIENTS; i++)
		check(sem_init(&storm.answered[i], 0, 0) == 0);
	for (unsigned i = 0; i < CLIENTS; i++) {
		number[i] = i;
		check(pthread_create(&client[i], NULL, client_main, &number[i]) == 0);
	}
	check(pthread_create(&releaser, NULL, releaser_main, NULL) == 0);
	for (unsigned i = 0; i < CLIENTS * storm.requests; i++)
		check(sem_post(&storm.answered[receive_reply(&storm.rig) & 0xff]) == 0);
	for (unsigned i = 0; i < CLIENTS; i++)
		check(pthread_join(client[i], NULL) == 0);
	atomic_store(&storm.over, true);
	check(pthread_join(releaser, NULL) == 0);
	connection_ends(&storm.rig);
	rig_close(&storm.rig);
	printf("%u threads, %u requests\n", max_threads, CLIENTS * storm.requests);
}

static void yield(const char *name)
{
	(void)name;
	sched_yield();
}

int main(void)
{
	for (size_t i = 0; i < array_count(places); i++)
		others_are_served(&places[i]);
	all_are_kept();
	stopped_while_kept();
	os_linux_set_point_handler(yield);
	for (unsigned threads = 1; threads <= 8; threads *= 2)
		storm_of(threads);
	os_linux_set_point_handler(NULL);
	return 0;
}
