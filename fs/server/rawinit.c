/*
 * The bytes between libfuse and /dev/fuse.
 *
 * FUSE_HANDLE_KILLPRIV_V2 is granted in the INIT reply.  From then on the
 * kernel neither looks up security.capability before each write nor removes
 * setuid bits by itself, but marks the WRITE and SETATTR requests that have to:
 * the mark is picked out of the request as the worker reads it, and lies in
 * the worker until the operation asks (the same thread does both).
 *
 * FUSE_SETXATTR_EXT is granted as well: SETXATTR then says when an ACL is to take
 * setgid away.  Its longer head is decoded in rawops.c.
 */
#include "fs/server/rawinit.h"

#include "engine/base/os.h"
#include "fs/server/worker.h"

#include <linux/fuse.h>
#include <stddef.h>
#include <sys/uio.h>
#include <unistd.h>

/* Bodies are not aligned to anything one may rely on. */
static uint32_t get_u32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static bool demands_kill(uint32_t opcode, const uint8_t *body, size_t len)
{
	if (opcode == FUSE_WRITE && len >= sizeof(struct fuse_write_in))
		return get_u32(body + offsetof(struct fuse_write_in, write_flags)) &
		       FUSE_WRITE_KILL_SUIDGID;
	if (opcode == FUSE_SETATTR && len >= sizeof(struct fuse_setattr_in))
		return get_u32(body + offsetof(struct fuse_setattr_in, valid)) & FATTR_KILL_SUIDGID;
	return false;
}

static void note_init(struct raw_init *init, uint64_t unique, const uint8_t *body, size_t len)
{
	size_t at = offsetof(struct fuse_init_in, flags);

	init->offered = len >= at + sizeof(uint32_t) ? get_u32(body + at) : 0;
	atomic_store(&init->unique, unique);
}

static ssize_t raw_read(int fd, void *buf, size_t len, void *userdata)
{
	struct server *server = userdata;
	struct fuse_in_header head;
	const uint8_t *body = (const uint8_t *)buf + sizeof(head);
	ssize_t n = read(fd, buf, len < WORKER_REQUEST_BYTES ? len : WORKER_REQUEST_BYTES);
	size_t body_len;

	if (n < (ssize_t)sizeof(head))
		return n;
	body_len = (size_t)n - sizeof(head);
	memcpy(&head, buf, sizeof(head));
	worker_set_kill(demands_kill(head.opcode, body, body_len));
	if (head.opcode == FUSE_INIT)
		note_init(&server->init, head.unique, body, body_len);
	return n;
}

static void grant(const struct raw_init *init, struct iovec *body)
{
	size_t at = offsetof(struct fuse_init_out, flags);
	uint32_t flags;

	if (body->iov_len < at + sizeof(flags))
		return;
	flags = get_u32((uint8_t *)body->iov_base + at);
	flags |= init->offered & RAW_GRANTED;
	memcpy((uint8_t *)body->iov_base + at, &flags, sizeof(flags));
}

static ssize_t raw_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct server *server = userdata;
	uint64_t unique = atomic_load_explicit(&server->init.unique, memory_order_acquire);
	struct fuse_out_header head;
	ssize_t n;

	if (unique == 0)
		return writev(fd, iov, count);
	check(iov[0].iov_len >= sizeof(head));
	memcpy(&head, iov[0].iov_base, sizeof(head));
	if (head.unique != unique)
		return writev(fd, iov, count);
	if (head.error == 0 && count == 2)
		grant(&server->init, &iov[1]);
	n = writev(fd, iov, count);
	/* libfuse answers an unknown major version and is asked again: not live yet. */
	atomic_store(&server->init.unique, 0);
	if (n > 0 && head.error == 0) {
		os_may_block(); /* it looks at /proc and /sys */
		server->on_live(server->on_live_arg);
	}
	return n;
}

const struct fuse_custom_io raw_io = {
	.read = raw_read,
	.writev = raw_writev,
};
