/*
 * Threads of the simulation: stacks that one thread of the system switches
 * between, by hand.
 *
 * What the product keeps in _Thread_local variables goes along: at a switch the
 * program's own block of them is saved and the other fiber's put in its place.
 * (The C library's, such as errno, are shared; nobody looks at them over a wait.)
 */
#ifndef BLINKFS_TESTS_FIBER_H
#define BLINKFS_TESTS_FIBER_H

struct fiber;

/* The calling thread as a fiber, to be switched from; it is the first and the last to run. */
struct fiber *fiber_main(void);
/* Runs fn(arg) when it is first switched to.  fn never returns: it ends by fiber_leave(). */
struct fiber *fiber_new(void (*fn)(void *arg), void *arg);
void fiber_switch(struct fiber *from, struct fiber *to);
/* The last switch of a fiber: it is freed, or used again, once another runs. */
_Noreturn void fiber_leave(struct fiber *from, struct fiber *to);
void fiber_free(struct fiber *fiber);

#endif
