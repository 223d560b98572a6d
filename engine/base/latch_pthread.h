/*
 * A latch made of pthread_rwlock_t (make LATCH=pthread), to compare with: what the
 * atomics of latch_atomic.h are worth is measured by make bench-latch.  Included by
 * latch.c alone; the checker is the same.
 *
 * Waiting happens inside the library, so struct os does not own it: no simulated
 * time, and no spinning before the sleep.  Writers are preferred, as
 * INV-LATCH-1 demands.  The lock must outlive the call that releases it.
 */
#ifndef BLINKFS_BASE_LATCH_PTHREAD_H
#define BLINKFS_BASE_LATCH_PTHREAD_H

static void word_init(struct latch *latch)
{
	pthread_rwlockattr_t attr;

	check(pthread_rwlockattr_init(&attr) == 0);
	check(pthread_rwlockattr_setkind_np(&attr,
					    PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP) == 0);
	check(pthread_rwlock_init(&latch->lock, &attr) == 0);
	check(pthread_rwlockattr_destroy(&attr) == 0);
}

static bool word_try_s(struct latch *latch)
{
	return pthread_rwlock_tryrdlock(&latch->lock) == 0;
}

static bool word_try_x(struct latch *latch)
{
	return pthread_rwlock_trywrlock(&latch->lock) == 0;
}

static bool word_lock_s(struct latch *latch)
{
	if (word_try_s(latch))
		return false;
	count_wait(latch);
	os_point("latch:sleep");
	check(pthread_rwlock_rdlock(&latch->lock) == 0);
	return true;
}

static bool word_lock_x(struct latch *latch)
{
	if (word_try_x(latch))
		return false;
	count_wait(latch);
	os_point("latch:sleep");
	check(pthread_rwlock_wrlock(&latch->lock) == 0);
	return true;
}

static void word_unlock_s(struct latch *latch)
{
	check(pthread_rwlock_unlock(&latch->lock) == 0);
}

static void word_unlock_x(struct latch *latch)
{
	check(pthread_rwlock_unlock(&latch->lock) == 0);
}

/* By trying: somebody who holds it, the caller too, makes that fail. */
static bool word_is_free(struct latch *latch)
{
	if (!word_try_x(latch))
		return false;
	word_unlock_x(latch);
	return true;
}

#endif
