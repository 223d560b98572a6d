/*
 * The usual latch word: atomics, and the replaceable wait.  Included by latch.c
 * alone, which has the checker; latch_pthread.h is the other choice.
 *
 *	X          held exclusively
 *	SLEEPERS   somebody may sleep on the word
 *	WRITER     a writer waits for the S holders to go: no new ones come in
 *	READERS    number of S holders
 *
 *	free --s--> READERS=n --writer waits--> READERS=n|WRITER --last leaves--> WRITER
 *	  \                                                                         |
 *	   `--x--> X (WRITER cleared) <----------------------------- the writer ----'
 *	           X --unlatch--> free
 *
 * INV-LATCH-1: WRITER is set only while some thread is inside lock_x_slow(), and
 * never together with X.  It is set only when there are S holders, and cleared
 * by whoever takes X; a writer that still waits then sets it again.  So a writer
 * waits for the S holders that it met and for other writers, never for later
 * readers; and since unlatch_x() leaves the word free, readers get their turn
 * after each writer.
 * INV-LATCH-2: while a thread sleeps on the word, SLEEPERS is set or another
 * thread that has been woken from it is awake inside a slow path.  A thread that
 * has slept sets SLEEPERS when it acquires, since it cannot know whether others
 * still sleep, and hands the duty on at its release (at once, if it is a reader:
 * its neighbours may come in beside it).  So one is woken at a time; all of them
 * only when the last reader leaves WRITER behind, where the one woken could be
 * a reader, who must not come in.
 */
#ifndef BLINKFS_BASE_LATCH_ATOMIC_H
#define BLINKFS_BASE_LATCH_ATOMIC_H

#define X_HELD (1u << 31)
#define SLEEPERS (1u << 30)
#define WRITER (1u << 29)
#define READERS (WRITER - 1)

#define SPINS_MAX 64u  /* about a microsecond: a short critical section of another core */

static void spin_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static bool swap_acquire(struct latch *latch, uint32_t from, uint32_t to)
{
	return atomic_compare_exchange_strong_explicit(&latch->word, &from, to,
						       memory_order_acquire,
						       memory_order_relaxed);
}

static uint32_t load(const struct latch *latch)
{
	return atomic_load_explicit(&latch->word, memory_order_relaxed);
}

static void wake(struct latch *latch, int count)
{
	const struct os *os = os_current();

	os->wake(os, &latch->word, count);
}

/* Sleeps until the word, which was `seen`, has changed and somebody wakes us. */
static void sleep_on(struct latch *latch, uint32_t seen, bool *slept)
{
	const struct os *os = os_current();

	if (!*slept)
		count_wait(latch);
	*slept = true;
	os_point("latch:sleep");
	os->wait(os, &latch->word, seen, OS_FOREVER);
}

static bool word_take_s(struct latch *latch, bool slept)
{
	uint32_t word = load(latch);

	while (!(word & (X_HELD | WRITER))) {
		check((word & READERS) < READERS);
		if (swap_acquire(latch, word, (word + 1) | (slept ? SLEEPERS : 0)))
			return true;
		word = load(latch);
	}
	return false;
}

static bool word_take_x(struct latch *latch, bool slept)
{
	uint32_t word = load(latch);

	while (!(word & (X_HELD | READERS))) {
		if (swap_acquire(latch, word, X_HELD | (word & SLEEPERS) | (slept ? SLEEPERS : 0)))
			return true;
		word = load(latch);
	}
	return false;
}

static bool lock_s_slow(struct latch *latch)
{
	bool slept = false;

	for (uint32_t spins = 0; !word_take_s(latch, slept); spins++) {
		uint32_t word = load(latch);

		if (spins < SPINS_MAX) {
			spin_pause();
			continue;
		}
		if (!(word & (X_HELD | WRITER)))
			continue;
		if ((word & SLEEPERS) || swap_acquire(latch, word, word | SLEEPERS))
			sleep_on(latch, word | SLEEPERS, &slept);
	}
	if (slept)
		wake(latch, 1);
	return slept;
}

static bool lock_x_slow(struct latch *latch)
{
	bool slept = false;

	for (uint32_t spins = 0; !word_take_x(latch, slept); spins++) {
		uint32_t word = load(latch);
		uint32_t marked = word | SLEEPERS | (word & X_HELD ? 0 : WRITER);

		if (spins < SPINS_MAX) {
			spin_pause();
			continue;
		}
		if (!(word & (X_HELD | READERS)))
			continue;
		if (word == marked || swap_acquire(latch, word, marked))
			sleep_on(latch, marked, &slept);
	}
	return slept;
}

/* --- what latch.c uses --------------------------------------------------- */

static void word_init(struct latch *latch)
{
	atomic_init(&latch->word, 0);
}

static bool word_is_free(struct latch *latch)
{
	return load(latch) == 0;
}

static bool word_try_s(struct latch *latch)
{
	return word_take_s(latch, false);
}

static bool word_try_x(struct latch *latch)
{
	return word_take_x(latch, false);
}

static bool word_lock_s(struct latch *latch)
{
	return !word_take_s(latch, false) && lock_s_slow(latch);
}

static bool word_lock_x(struct latch *latch)
{
	return !word_take_x(latch, false) && lock_x_slow(latch);
}

static void word_unlock_s(struct latch *latch)
{
	uint32_t word = load(latch);
	uint32_t next;

	do {
		check((word & READERS) > 0 && !(word & X_HELD));
		next = word - 1;
		if (!(next & READERS))
			next &= ~SLEEPERS;
	} while (!atomic_compare_exchange_weak_explicit(&latch->word, &word, next,
							memory_order_release,
							memory_order_relaxed));
	/* From here on the latch may be gone. */
	if (!(next & READERS) && (word & SLEEPERS))
		wake(latch, word & WRITER ? INT32_MAX : 1);
}

static void word_unlock_x(struct latch *latch)
{
	uint32_t word = atomic_exchange_explicit(&latch->word, 0, memory_order_release);

	/* From here on the latch may be gone. */
	check(word & X_HELD);
	if (word & SLEEPERS)
		wake(latch, 1);
}

#endif
