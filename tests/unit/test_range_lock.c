/* Range locks and the table of in-memory inodes. */
#include "fs/inode_table.h"
#include "fs/range_lock.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

/* --- ranges -------------------------------------------------------------- */

struct locker {
	struct range_lock_set *set;
	uint64_t first, end;
	bool exclusive;
	_Atomic bool held;
	_Atomic bool release;
	pthread_t thread;
};

static void *hold(void *arg)
{
	struct locker *l = arg;
	struct range_lock lock;

	range_lock(l->set, &lock, l->first, l->end, l->exclusive);
	atomic_store(&l->held, true);
	while (!atomic_load(&l->release))
		sched_yield();
	range_unlock(&lock);
	return NULL;
}

static void start(struct locker *l, struct range_lock_set *set, uint64_t first, uint64_t end,
		  bool exclusive)
{
	*l = (struct locker){.set = set, .first = first, .end = end, .exclusive = exclusive};
	cr_assert_eq(pthread_create(&l->thread, NULL, hold, l), 0);
}

static void finish(struct locker *l)
{
	atomic_store(&l->release, true);
	pthread_join(l->thread, NULL);
	cr_assert(atomic_load(&l->held));
}

static void await(struct locker *l)
{
	while (!atomic_load(&l->held))
		sched_yield();
}

static unsigned queued(struct range_lock_set *set)
{
	unsigned count = 0;

	latch_s(&set->latch);
	for (struct range_lock *lock = set->head; lock; lock = lock->next)
		count++;
	unlatch_s(&set->latch);
	return count;
}

static void await_queue(struct range_lock_set *set, unsigned count)
{
	while (queued(set) != count)
		sched_yield();
}

Test(range_lock, disjoint_ranges_are_held_together)
{
	struct range_lock_set set;
	struct locker a, b, c;

	range_set_init(&set, 7);
	start(&a, &set, 0, 10, true);
	start(&b, &set, 10, 20, true);
	start(&c, &set, 20, RANGE_END, true);
	await(&a);
	await(&b);
	await(&c);
	finish(&b);
	finish(&a);
	finish(&c);
	cr_assert(range_set_is_empty(&set));
}

Test(range_lock, shared_ranges_overlap_exclusive_ones_wait)
{
	struct range_lock_set set;
	struct locker a, b, c;

	range_set_init(&set, 7);
	start(&a, &set, 0, 10, false);
	start(&b, &set, 5, 15, false);
	await(&a);
	await(&b);
	start(&c, &set, 9, 11, true);
	await_queue(&set, 3);
	finish(&a);
	cr_assert_not(atomic_load(&c.held));
	finish(&b);
	await(&c);
	finish(&c);
}

/* INV-RANGE-2: a later reader does not overtake a writer that waits. */
Test(range_lock, order_is_first_come_first_served)
{
	struct range_lock_set set;
	struct locker reader, writer, late, other;

	range_set_init(&set, 7);
	start(&reader, &set, 0, 10, false);
	await(&reader);
	start(&writer, &set, 0, 10, true);
	await_queue(&set, 2);
	start(&late, &set, 0, 10, false);
	await_queue(&set, 3);
	start(&other, &set, 10, 20, true);
	await(&other); /* who conflicts with nobody does not queue up behind them */
	cr_assert_not(atomic_load(&late.held));
	cr_assert_not(atomic_load(&writer.held));
	finish(&reader);
	await(&writer);
	cr_assert_not(atomic_load(&late.held));
	finish(&writer);
	await(&late);
	finish(&late);
	finish(&other);
}

#define HAMMER_THREADS 4
#define HAMMER_BLOCKS 16
#define HAMMER_ROUNDS 3000

struct hammer {
	struct range_lock_set set;
	_Atomic int inside[HAMMER_BLOCKS]; /* readers count up, a writer is -1000 */
	_Atomic unsigned seed;
};

static void *hammer(void *arg)
{
	struct hammer *h = arg;
	unsigned seed = atomic_fetch_add(&h->seed, 1) * 7919 + 1;

	for (unsigned i = 0; i < HAMMER_ROUNDS; i++) {
		unsigned first = (unsigned)rand_r(&seed) % HAMMER_BLOCKS;
		unsigned end = first + 1 + (unsigned)rand_r(&seed) % (HAMMER_BLOCKS - first);
		bool exclusive = rand_r(&seed) % 3 == 0;
		struct range_lock lock;

		range_lock(&h->set, &lock, first, end, exclusive);
		for (unsigned b = first; b < end; b++) {
			int before = atomic_fetch_add(&h->inside[b], exclusive ? -1000 : 1);

			cr_assert(exclusive ? before == 0 : before >= 0);
		}
		for (unsigned b = first; b < end; b++)
			atomic_fetch_add(&h->inside[b], exclusive ? 1000 : -1);
		range_unlock(&lock);
	}
	return NULL;
}

Test(range_lock, exclusion_under_load)
{
	static struct hammer h;
	pthread_t thread[HAMMER_THREADS];

	range_set_init(&h.set, 9);
	for (unsigned i = 0; i < HAMMER_THREADS; i++)
		pthread_create(&thread[i], NULL, hammer, &h);
	for (unsigned i = 0; i < HAMMER_THREADS; i++)
		pthread_join(thread[i], NULL);
	cr_assert(range_set_is_empty(&h.set));
}

/* INV-RANGE-3: the checker knows of range locks. */
Test(range_lock, a_second_range_is_a_bug, .signal = SIGABRT, .init = cr_redirect_stderr)
{
	struct range_lock_set set;
	struct range_lock a, b;

	range_set_init(&set, 7);
	range_lock(&set, &a, 0, 1, true);
	range_lock(&set, &b, 5, 6, true);
}

Test(range_lock, inode_lock_under_a_range_is_a_bug, .signal = SIGABRT, .init = cr_redirect_stderr)
{
	struct range_lock_set set;
	struct range_lock a;
	struct latch inode;

	range_set_init(&set, 7);
	latch_init(&inode, RANK_INODE, 7);
	range_lock(&set, &a, 0, 1, true);
	latch_s(&inode);
}

/* --- inodes -------------------------------------------------------------- */

static void count_idle(void *arg)
{
	++*(unsigned *)arg;
}

Test(inode_table, entries_live_as_long_as_they_are_used_or_looked_up)
{
	struct inode_table table;
	struct inode *a, *b;
	unsigned idle = 0;

	cr_assert_eq(inode_table_init(&table, count_idle, &idle), 0);
	cr_assert_eq(inode_pin(&table, 5, &a), 0);
	cr_assert_eq(inode_pin(&table, 5, &b), 0);
	cr_assert_eq(a, b);
	inode_unpin(&table, b);
	inode_looked_up(&table, a);
	inode_looked_up(&table, a);
	cr_assert_eq(inode_lookups(&table, a), 2);
	inode_unpin(&table, a);
	cr_assert_eq(inode_table_count(&table), 1);
	inode_forget(&table, 5, 1);
	cr_assert_eq(inode_table_count(&table), 1);
	inode_forget(&table, 5, 9); /* more than there are: a client's mistake */
	cr_assert_eq(inode_table_count(&table), 0);
	inode_forget(&table, 5, 1);
	inode_forget(&table, 6, 1);
	cr_assert_eq(idle, 0);
	inode_table_destroy(&table);
}

/* INV-INODE-4 */
Test(inode_table, the_last_to_let_go_of_an_orphan_tells)
{
	struct inode_table table;
	struct inode *a;
	unsigned idle = 0;

	cr_assert_eq(inode_table_init(&table, count_idle, &idle), 0);
	cr_assert_eq(inode_pin(&table, 5, &a), 0);
	inode_looked_up(&table, a);
	atomic_store(&a->orphan, true);
	inode_unpin(&table, a);
	cr_assert_eq(idle, 0);
	inode_forget(&table, 5, 1);
	cr_assert_eq(idle, 1);
	cr_assert_eq(inode_pin(&table, 6, &a), 0);
	atomic_store(&a->orphan, true);
	inode_unpin(&table, a);
	cr_assert_eq(idle, 2);
	inode_table_destroy(&table);
}

Test(inode_table, grows)
{
	struct inode_table table;
	unsigned idle = 0;

	cr_assert_eq(inode_table_init(&table, count_idle, &idle), 0);
	for (uint64_t ino = 1; ino <= 20000; ino++) {
		struct inode *inode;

		cr_assert_eq(inode_pin(&table, ino, &inode), 0);
		inode_looked_up(&table, inode);
		inode_unpin(&table, inode);
	}
	cr_assert_eq(inode_table_count(&table), 20000);
	for (uint64_t ino = 1; ino <= 10000; ino++)
		inode_forget(&table, ino * 2, 1);
	cr_assert_eq(inode_table_count(&table), 10000);
	for (uint64_t ino = 1; ino <= 20000; ino += 2) {
		struct inode *inode;

		cr_assert_eq(inode_pin(&table, ino, &inode), 0);
		cr_assert_eq(inode_lookups(&table, inode), 1);
		inode_unpin(&table, inode);
	}
	inode_table_destroy(&table);
}

static void look_up(struct inode_table *table, uint64_t ino)
{
	struct inode *inode;

	cr_assert_eq(inode_pin(table, ino, &inode), 0);
	inode_looked_up(table, inode);
	inode_unpin(table, inode);
}

/* INV-INODE-8 */
Test(inode_table, past_its_limit_it_says_so_once)
{
	struct inode_hand hand = {.shard = 0};
	struct inode_table table;
	static uint64_t inos[2000];
	unsigned idle = 0, over = 0, count;
	struct inode *pinned;
	uint64_t excess;

	cr_assert_eq(inode_table_init(&table, count_idle, &idle), 0);
	inode_table_set_limit(&table, 1024, count_idle, &over);
	for (uint64_t ino = 1; ino <= 1024; ino++)
		look_up(&table, ino);
	cr_assert_eq(over, 0);
	look_up(&table, 1025);
	cr_assert_eq(over, 1);
	for (uint64_t ino = 1026; ino <= 1500; ino++)
		look_up(&table, ino);
	cr_assert_eq(over, 1, "not again before somebody has asked");
	excess = inode_table_excess(&table);
	cr_assert_eq(excess, 1500 - 1024 + 64);
	/* Whatever was used since the hand passed stays, and what is pinned. */
	for (uint64_t ino = 1; ino <= 900; ino++)
		look_up(&table, ino);
	cr_assert_eq(inode_pin(&table, 1400, &pinned), 0);
	count = inode_table_idle(&table, &hand, inos, array_count(inos));
	cr_assert_eq(count, 599);
	for (unsigned i = 0; i < count; i++)
		cr_assert(inos[i] > 900 && inos[i] != 1400);
	inode_unpin(&table, pinned);
	for (unsigned i = 0; i < count; i++)
		inode_forget(&table, inos[i], 1);
	cr_assert_eq(inode_table_count(&table), 901);
	cr_assert_eq(inode_table_lookups(&table), 901 + 900);
	/* Low again: the limit is what counts. */
	for (uint64_t ino = 2000; inode_table_count(&table) <= 1024; ino++)
		look_up(&table, ino);
	cr_assert_eq(over, 2);
	/* Nothing could go: the next alarm comes a step later. */
	inode_table_excess(&table);
	for (uint64_t ino = 5000; ino < 5064; ino++)
		look_up(&table, ino);
	cr_assert_eq(over, 2);
	for (uint64_t ino = 5064; ino < 5100; ino++)
		look_up(&table, ino);
	cr_assert_eq(over, 3);
	count = inode_table_idle(&table, &hand, inos, 10);
	cr_assert_eq(count, 10);
	inode_table_destroy(&table);
}
