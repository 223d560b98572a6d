/*
 * What the product needs from its surroundings besides the device: clocks,
 * random bytes, processors, threads, and waiting on a word of memory.  All of it goes
 * through struct os, so that a simulator can own time and scheduling.
 *
 * Every thread belongs to one struct os, found in its struct task.
 * Threads started by os_thread_start() inherit it; a thread that never set
 * one uses os_linux.
 */
#ifndef BLINKFS_BASE_OS_H
#define BLINKFS_BASE_OS_H

#include "engine/base/check.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

static_assert(ATOMIC_INT_LOCK_FREE == 2, "32-bit atomics must be lock-free");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "64-bit atomics must be lock-free");
static_assert(ATOMIC_POINTER_LOCK_FREE == 2, "pointer atomics must be lock-free");

#define OS_FOREVER UINT64_MAX

struct os_thread {
	void *handle; /* owned by the struct os that started it */
};

struct os {
	uint64_t (*mono_ns)(const struct os *os);
	struct timespec (*realtime)(const struct os *os);
	void (*random_bytes)(const struct os *os, void *buf, size_t len);
	int (*thread_start)(const struct os *os, struct os_thread *thread, const char *name,
			    void (*fn)(void *), void *arg);
	void (*thread_join)(const struct os *os, struct os_thread *thread);
	/* Sleeps while *word == expected; wakes spuriously, at wake() or after timeout_ns. */
	void (*wait)(const struct os *os, _Atomic uint32_t *word, uint32_t expected,
		     uint64_t timeout_ns);
	void (*wake)(const struct os *os, _Atomic uint32_t *word, int count);
	/* Called at named interesting points; tests force interleavings here. */
	void (*point)(const struct os *os, const char *name);
	/* How many threads can run at once. */
	unsigned (*processors)(const struct os *os);
	void *priv;
};

extern const struct os os_linux;

/* The struct os of the calling thread. */
const struct os *os_current(void);
void os_set_current(const struct os *os);

/*
 * Page-aligned memory that is used in large pieces: of huge pages where the kernel
 * has them, so that it is had, and found, in fewer steps.  Taken as it is touched;
 * free() gives it back.  NULL: none.
 */
void *os_alloc_large(size_t bytes);

uint64_t os_mono_ns(void);
struct timespec os_realtime(void);
unsigned os_processors(void);
void os_random_bytes(void *buf, size_t len);
int os_thread_start(struct os_thread *thread, const char *name, void (*fn)(void *),
		    void *arg) must_check;
void os_thread_join(struct os_thread *thread);

/* Sleeps while *word == expected: see wait in struct os. */
void os_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns);
void os_wake(_Atomic uint32_t *word, int count);

/*
 * INV-OS-3: before a thread may be kept, by os_wait(), by a device or by long work,
 * its hook is called; so one that others count on can have somebody stand in for
 * it.  The hook may be called with any latch held and inside an epoch: it takes no
 * latch and waits for nothing.  NULL, as at first: none.
 */
void os_set_block_hook(void (*hook)(void *arg), void *arg);
void os_may_block(void);

/*
 * A test hook: does nothing in production.  Names are "part:event".
 * A hook may block, yield or kill the process.
 */
void os_point(const char *name);
/* Installs a process-wide handler for os_linux's points; NULL removes it.  For tests. */
void os_linux_set_point_handler(void (*handler)(const char *name));

/*
 * Wait queue (an event count).  Use:
 *
 *	uint32_t ticket = waitq_ticket(&q);
 *	if (!condition)
 *		waitq_wait(&q, ticket, timeout_ns);
 *
 * INV-LOCK-3: waitq_wait() checks that the caller holds no latch above
 * RANK_WAIT_LIMIT (see rank.def) and no epoch.
 */
struct waitq {
	_Atomic uint32_t sequence;
	_Atomic uint32_t waiters;
};
static inline uint32_t waitq_ticket(struct waitq *q)
{
	return atomic_load_explicit(&q->sequence, memory_order_acquire);
}
void waitq_wait(struct waitq *q, uint32_t ticket, uint64_t timeout_ns);
void waitq_wake_all(struct waitq *q);

#endif
