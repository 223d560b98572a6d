/*
 * INV-FIBER-1: the _Thread_local variables of the program hold those of the fiber
 * that runs; a new fiber's are as a new thread's would be.
 * INV-FIBER-2: AddressSanitizer is told of each switch, before and after.
 */
#include "tests/sim/fiber.h"

#include "engine/base/check.h"

#include <link.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif

#ifdef ASAN
#include <sanitizer/common_interface_defs.h>
#define STACK_BYTES (2u << 20)
#else
#define STACK_BYTES (512u << 10)
#endif
#define GUARD_BYTES 4096u

struct fiber {
	ucontext_t context;
	uint8_t *map; /* guard page, stack; NULL: the thread's own */
	const void *stack;
	size_t stack_bytes;
	void *fake_stack;
	void (*fn)(void *arg);
	void *arg;
	uint8_t *locals;
};

/* --- what is _Thread_local ------------------------------------------------- */

static struct locals {
	uint8_t *at;          /* of this thread */
	const uint8_t *image; /* as a thread begins with them */
	size_t image_bytes, bytes;
} locals;

/* The first one is the program itself. */
static int find_locals(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	(void)arg;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];

		if (header->p_type != PT_TLS)
			continue;
		locals = (struct locals){
			.at = info->dlpi_tls_data,
			.image = (const uint8_t *)(info->dlpi_addr + header->p_vaddr),
			.image_bytes = header->p_filesz,
			.bytes = header->p_memsz,
		};
	}
	return 1;
}

static void locals_init(struct fiber *fiber)
{
	if (!locals.at)
		dl_iterate_phdr(find_locals, NULL);
	check(locals.at && locals.bytes);
	if (!fiber->locals)
		fiber->locals = malloc(locals.bytes);
	check(fiber->locals);
	memset(fiber->locals, 0, locals.bytes);
	memcpy(fiber->locals, locals.image, locals.image_bytes);
}

/* --- what AddressSanitizer has to know --------------------------------------- */

static struct fiber *came_from;

static void switch_begins(struct fiber *from, const struct fiber *to, bool for_good)
{
	came_from = from;
#ifdef ASAN
	__sanitizer_start_switch_fiber(for_good ? NULL : &from->fake_stack, to->stack,
				       to->stack_bytes);
#else
	(void)to;
	(void)for_good;
#endif
}

static void switch_ended(struct fiber *fiber)
{
#ifdef ASAN
	const void *stack;
	size_t bytes;

	__sanitizer_finish_switch_fiber(fiber->fake_stack, &stack, &bytes);
	if (!came_from->stack) { /* the thread's own stack: now it is known */
		came_from->stack = stack;
		came_from->stack_bytes = bytes;
	}
#else
	(void)fiber;
#endif
}

/* --- fibers ------------------------------------------------------------------ */

static struct fiber *starting;

static void begin(void)
{
	struct fiber *fiber = starting;

	switch_ended(fiber);
	fiber->fn(fiber->arg);
	check_failed(__FILE__, __LINE__, "a fiber returns");
}

struct fiber *fiber_main(void)
{
	struct fiber *fiber = calloc(1, sizeof(*fiber));

	check(fiber);
	locals_init(fiber);
	return fiber;
}

struct fiber *fiber_new(void (*fn)(void *arg), void *arg)
{
	struct fiber *fiber = calloc(1, sizeof(*fiber));

	check(fiber);
	fiber->map = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
	check(fiber->map != MAP_FAILED);
	check(mprotect(fiber->map, GUARD_BYTES, PROT_NONE) == 0);
	fiber->stack = fiber->map + GUARD_BYTES;
	fiber->stack_bytes = STACK_BYTES;
	fiber->fn = fn;
	fiber->arg = arg;
	locals_init(fiber);
	check(getcontext(&fiber->context) == 0);
	fiber->context.uc_stack.ss_sp = fiber->map + GUARD_BYTES;
	fiber->context.uc_stack.ss_size = STACK_BYTES;
	makecontext(&fiber->context, begin, 0);
	return fiber;
}

static void take_turn(struct fiber *to)
{
	memcpy(locals.at, to->locals, locals.bytes);
	starting = to;
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
	memcpy(from->locals, locals.at, locals.bytes);
	switch_begins(from, to, false);
	take_turn(to);
	check(swapcontext(&from->context, &to->context) == 0);
	switch_ended(from);
}

_Noreturn void fiber_leave(struct fiber *from, struct fiber *to)
{
	switch_begins(from, to, true);
	take_turn(to);
	setcontext(&to->context);
	abort();
}

void fiber_free(struct fiber *fiber)
{
	if (fiber->map)
		check(munmap(fiber->map, GUARD_BYTES + STACK_BYTES) == 0);
	free(fiber->locals);
	free(fiber);
}
