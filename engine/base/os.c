/*
 * The calling thread's surroundings, and os_linux: what they are in production.
 *
 * INV-OS-1: every wait in the product ends in os->wait(), every clock reading in
 * os->mono_ns() or os->realtime(); whoever replaces struct os owns time.
 * INV-OS-2: a thread that ends holds no latch and is in no epoch.
 * INV-OS-3: what may keep a thread calls os_may_block() first: os_wait() here,
 * device.c before each call of an implementation.  Nobody else calls os->wait().
 * INV-LOCK-3: see waitq_wait() in os.h.
 * INV-OS-4: times of files are read off the clock that the kernel takes its own from,
 * which moves by ticks of up to 4 ms: under the writeback cache some are the kernel's,
 * and what was made later must not look older.
 */
#include "engine/base/os.h"

#include "engine/base/latch.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NS_PER_S 1000000000ull
#define SMALL_PAGE_BYTES 4096u
#define HUGE_PAGE_BYTES (2u << 20)
#define LARGE_BYTES (16u << 20) /* below it whole huge pages would be wasted */
#define THREAD_NAME_BYTES 16 /* the kernel's limit, with the terminating zero */

/* What a thread knows of itself; the latches it holds are in latch.c. */
struct task {
	const struct os *os;
	void (*block_hook)(void *arg);
	void *block_arg;
};

static _Thread_local struct task this_task;

const struct os *os_current(void)
{
	return this_task.os ? this_task.os : &os_linux;
}

void os_set_current(const struct os *os)
{
	this_task.os = os;
}

uint64_t os_mono_ns(void)
{
	const struct os *os = os_current();

	return os->mono_ns(os);
}

struct timespec os_realtime(void)
{
	const struct os *os = os_current();

	return os->realtime(os);
}

unsigned os_processors(void)
{
	const struct os *os = os_current();

	return os->processors(os);
}

void os_random_bytes(void *buf, size_t len)
{
	const struct os *os = os_current();

	os->random_bytes(os, buf, len);
}

int os_thread_start(struct os_thread *thread, const char *name, void (*fn)(void *), void *arg)
{
	const struct os *os = os_current();

	return os->thread_start(os, thread, name, fn, arg);
}

void os_thread_join(struct os_thread *thread)
{
	const struct os *os = os_current();

	os->thread_join(os, thread);
}

void os_point(const char *name)
{
	const struct os *os = os_current();

	os->point(os, name);
}

void os_set_block_hook(void (*hook)(void *arg), void *arg)
{
	this_task.block_hook = hook;
	this_task.block_arg = arg;
}

void os_may_block(void)
{
	if (this_task.block_hook)
		this_task.block_hook(this_task.block_arg);
}

void os_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
	const struct os *os = os_current();

	os_may_block();
	os->wait(os, word, expected, timeout_ns);
}

void os_wake(_Atomic uint32_t *word, int count)
{
	const struct os *os = os_current();

	os->wake(os, word, count);
}

void *os_alloc_large(size_t bytes)
{
	size_t align = bytes < LARGE_BYTES ? SMALL_PAGE_BYTES : HUGE_PAGE_BYTES;
	void *memory;

	bytes = (bytes + align - 1) / align * align;
	memory = aligned_alloc(align, bytes);
	if (memory && align == HUGE_PAGE_BYTES)
		(void)madvise(memory, bytes, MADV_HUGEPAGE); /* a convenience only */
	return memory;
}

/*
 * No wakeup is lost: a waiter raises `waiters` before it looks at `sequence`
 * for the last time, a waker raises `sequence` before it looks at `waiters`,
 * both in the single total order of seq_cst.
 */
void waitq_wait(struct waitq *q, uint32_t ticket, uint64_t timeout_ns)
{
	latch_check_may_wait();
	atomic_fetch_add(&q->waiters, 1);
	if (atomic_load(&q->sequence) == ticket)
		os_wait(&q->sequence, ticket, timeout_ns);
	atomic_fetch_sub(&q->waiters, 1);
}

void waitq_wake_all(struct waitq *q)
{
	atomic_fetch_add(&q->sequence, 1);
	if (atomic_load(&q->waiters) > 0)
		os_wake(&q->sequence, INT_MAX);
}

/* --- os_linux ------------------------------------------------------------ */

static uint64_t linux_mono_ns(const struct os *os)
{
	struct timespec now;

	(void)os;
	check(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* INV-OS-4 */
static struct timespec linux_realtime(const struct os *os)
{
	struct timespec now;

	(void)os;
	check(clock_gettime(CLOCK_REALTIME_COARSE, &now) == 0);
	return now;
}

static void linux_random_bytes(const struct os *os, void *buf, size_t len)
{
	char *at = buf;

	(void)os;
	while (len > 0) {
		ssize_t got = getrandom(at, len, 0);

		/* The only failure that valid arguments leave is a signal. */
		check(got > 0 || (got < 0 && errno == EINTR));
		if (got > 0) {
			at += got;
			len -= (size_t)got;
		}
	}
}

/* Owned by the starter until the join; the thread itself only reads it. */
struct linux_thread {
	pthread_t id;
	const struct os *os;
	void (*fn)(void *);
	void *arg;
	char name[THREAD_NAME_BYTES];
};

static void *linux_thread_main(void *arg)
{
	struct linux_thread *thread = arg;

	os_set_current(thread->os);
	(void)pthread_setname_np(pthread_self(), thread->name); /* a convenience only */
	thread->fn(thread->arg);
	latch_check_none_from(0);
	latch_check_may_wait();
	return NULL;
}

static int linux_thread_start(const struct os *os, struct os_thread *out, const char *name,
			      void (*fn)(void *), void *arg)
{
	struct linux_thread *thread = calloc(1, sizeof(*thread));
	int error;

	if (!thread)
		return -ENOMEM;
	thread->os = os;
	thread->fn = fn;
	thread->arg = arg;
	snprintf(thread->name, sizeof(thread->name), "%s", name);
	error = pthread_create(&thread->id, NULL, linux_thread_main, thread);
	if (error) {
		free(thread);
		return -error;
	}
	out->handle = thread;
	return 0;
}

static void linux_thread_join(const struct os *os, struct os_thread *out)
{
	struct linux_thread *thread = out->handle;

	(void)os;
	check(thread != NULL);
	check(pthread_join(thread->id, NULL) == 0);
	out->handle = NULL;
	free(thread);
}

static void linux_wait(const struct os *os, _Atomic uint32_t *word, uint32_t expected,
		       uint64_t timeout_ns)
{
	struct timespec timeout = {
		.tv_sec = (time_t)(timeout_ns / NS_PER_S),
		.tv_nsec = (long)(timeout_ns % NS_PER_S),
	};

	(void)os;
	if (syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected,
		    timeout_ns == OS_FOREVER ? NULL : &timeout, NULL, 0) != 0)
		check(errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT);
}

static void linux_wake(const struct os *os, _Atomic uint32_t *word, int count)
{
	(void)os;
	/* The word may be gone by now; the kernel only uses its address. */
	(void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static void (*_Atomic point_handler)(const char *name);

void os_linux_set_point_handler(void (*handler)(const char *name))
{
	atomic_store_explicit(&point_handler, handler, memory_order_release);
}

static void linux_point(const struct os *os, const char *name)
{
	void (*handler)(const char *) = atomic_load_explicit(&point_handler, memory_order_acquire);

	(void)os;
	if (handler)
		handler(name);
}

static unsigned linux_processors(const struct os *os)
{
	cpu_set_t cpus;

	(void)os;
	return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? (unsigned)CPU_COUNT(&cpus) : 1;
}

const struct os os_linux = {
	.mono_ns = linux_mono_ns,
	.realtime = linux_realtime,
	.random_bytes = linux_random_bytes,
	.thread_start = linux_thread_start,
	.thread_join = linux_thread_join,
	.wait = linux_wait,
	.wake = linux_wake,
	.point = linux_point,
	.processors = linux_processors,
};
