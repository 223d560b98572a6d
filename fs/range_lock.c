/* Range locks: see range_lock.h.  The queue is short: one entry a thread in this file. */
#include "fs/range_lock.h"

static bool conflict(const struct range_lock *a, const struct range_lock *b)
{
	return (a->exclusive || b->exclusive) && a->first < b->end && b->first < a->end;
}

/* INV-RANGE-1, for one entry. */
static bool may_be_granted(const struct range_lock *lock)
{
	for (const struct range_lock *earlier = lock->prev; earlier; earlier = earlier->prev)
		if (conflict(earlier, lock))
			return false;
	return true;
}

void range_set_init(struct range_lock_set *set, uint64_t ino)
{
	latch_init(&set->latch, RANK_LEAF, 1); /* after a shard of the inode table */
	set->head = NULL;
	set->tail = NULL;
	set->ino = ino;
}

bool range_set_is_empty(struct range_lock_set *set)
{
	bool empty;

	latch_s(&set->latch);
	empty = set->head == NULL;
	unlatch_s(&set->latch);
	return empty;
}

static void append(struct range_lock_set *set, struct range_lock *lock)
{
	lock->prev = set->tail;
	lock->next = NULL;
	if (set->tail)
		set->tail->next = lock;
	else
		set->head = lock;
	set->tail = lock;
}

static void detach(struct range_lock_set *set, struct range_lock *lock)
{
	if (lock->prev)
		lock->prev->next = lock->next;
	else
		set->head = lock->next;
	if (lock->next)
		lock->next->prev = lock->prev;
	else
		set->tail = lock->prev;
}

void range_lock(struct range_lock_set *set, struct range_lock *lock, uint64_t first, uint64_t end,
		bool exclusive)
{
	check(first < end);
	latch_check_none_from(RANK_RANGE);
	*lock = (struct range_lock){
		.set = set,
		.first = first,
		.end = end,
		.exclusive = exclusive,
	};
	latch_init(&lock->rank, RANK_RANGE, set->ino);
	latch_x(&set->latch);
	append(set, lock);
	lock->granted = may_be_granted(lock);
	while (!lock->granted) {
		uint32_t ticket = waitq_ticket(&lock->wake);

		unlatch_x(&set->latch);
		os_point("range:wait");
		waitq_wait(&lock->wake, ticket, OS_FOREVER);
		latch_x(&set->latch);
	}
	unlatch_x(&set->latch);
	latch_x(&lock->rank);
}

void range_unlock(struct range_lock *lock)
{
	struct range_lock_set *set = lock->set;
	struct range_lock *later;

	if (!set)
		return;
	unlatch_x(&lock->rank);
	latch_x(&set->latch);
	later = lock->next;
	detach(set, lock);
	for (; later; later = later->next) {
		if (later->granted || !conflict(lock, later) || !may_be_granted(later))
			continue;
		later->granted = true;
		/* Under the latch, which the waiter takes before it may go away. */
		waitq_wake_all(&later->wake);
	}
	unlatch_x(&set->latch);
	lock->set = NULL;
}
