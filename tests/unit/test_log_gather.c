/* Whether the leader of a group waits for more to come, with a clock of the test's own. */
#include "tests/lib/log_rig.h"

#include <criterion/criterion.h>
#include <sched.h>

#define MS 1000000ull

static uint64_t now_ns = 1000 * MS;
static struct os fake;
static struct device *dev;
static struct log *log_;

static uint64_t fake_mono_ns(const struct os *os)
{
	(void)os;
	return now_ns;
}

static void set_up(void)
{
	fake = os_linux;
	fake.mono_ns = fake_mono_ns;
	os_set_current(&fake);
	dev = logrig_format(512, LOGRIG_CAPACITY);
	log_ = logrig_start(dev, 0, 1, 2);
}

static void tear_down(void)
{
	log_close(log_);
	dev_close(dev);
	os_set_current(NULL);
}

TestSuite(log_gather, .init = set_up, .fini = tear_down);

/* Some come, and what the leader then does. */
static uint64_t pause_after(unsigned arrivals)
{
	while (arrivals--)
		cr_assert(!log_gather_arrived_locked(log_));
	return log_gather_pause_locked(log_);
}

Test(log_gather, a_lone_committer_never_waits)
{
	for (int i = 0; i < 100; i++) {
		cr_assert_eq(pause_after(1), 0);
		cr_assert_eq(log_gather_closed_locked(log_), 1);
		log_gather_landed_locked(log_, 1, 2 * MS);
	}
}

Test(log_gather, two_crowds_become_one)
{
	/* Five are in flight; three have come meanwhile. */
	pause_after(5);
	cr_assert_eq(log_gather_closed_locked(log_), 5);
	pause_after(3);
	log_gather_landed_locked(log_, 5, 2 * MS);
	/* One of the three leads, and waits for the five: the fifth of them wakes it. */
	cr_assert_eq(log_gather_pause_locked(log_), MS / 2);
	for (int i = 0; i < 4; i++)
		cr_assert(!log_gather_arrived_locked(log_));
	cr_assert(log_gather_arrived_locked(log_));
	cr_assert_eq(log_gather_closed_locked(log_), 8);
	/* From now on all are in one group; the first to come back waits for the others. */
	log_gather_landed_locked(log_, 8, 2 * MS);
	cr_assert_eq(pause_after(1), MS / 2);
}

Test(log_gather, not_after_an_idle_time)
{
	pause_after(8);
	log_gather_closed_locked(log_);
	log_gather_landed_locked(log_, 8, 2 * MS);
	now_ns += MS / 2 - 1;
	cr_assert_eq(pause_after(1), 1, "what is left of it");
	now_ns += 1;
	cr_assert_eq(log_gather_pause_locked(log_), 0);
}

Test(log_gather, not_where_a_flight_is_short_nor_without_end_where_it_is_long)
{
	log_gather_landed_locked(log_, 8, 400000);
	cr_assert_eq(pause_after(1), 0);
	log_gather_landed_locked(log_, 8, 1000 * MS);
	cr_assert_eq(log_gather_pause_locked(log_), 5 * MS);
}

/* In vain: then not again for a while; but it tries again. */
Test(log_gather, in_vain)
{
	unsigned paused = 0;

	for (unsigned i = 0; i < 170; i++) {
		log_gather_landed_locked(log_, 8, 2 * MS);
		paused += pause_after(1) > 0; /* nobody else comes */
		log_gather_closed_locked(log_);
	}
	cr_assert_eq(paused, 10);
}

/* Half of them is worth it. */
Test(log_gather, half_of_them)
{
	for (unsigned i = 0; i < 20; i++) {
		log_gather_landed_locked(log_, 9, 2 * MS);
		cr_assert_eq(pause_after(1), MS / 2);
		for (unsigned n = 0; n < 4; n++)
			log_gather_arrived_locked(log_);
		cr_assert_eq(log_gather_closed_locked(log_), 5);
	}
}

/* Not with the fake clock's help: threads, and a device that takes its time. */
#define THREADS 6
#define COMMITS 12

static void slow_flush(const char *point)
{
	_Atomic uint32_t never = 0;

	if (strcmp(point, "memory:flush-begun") == 0)
		os_linux.wait(&os_linux, &never, 0, 10 * MS);
}

static void commit_thread(void *arg)
{
	for (int i = 0; i < COMMITS; i++)
		check(log_flush(log_, logrig_append(log_, (uintptr_t)arg, 60).end) == 0);
}

Test(log_gather, threads)
{
	struct os_thread thread[THREADS];

	os_set_current(NULL);
	os_linux_set_point_handler(slow_flush);
	for (uintptr_t i = 0; i < THREADS; i++)
		cr_assert_eq(os_thread_start(&thread[i], "commit", commit_thread, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		os_thread_join(&thread[i]);
	os_linux_set_point_handler(NULL);
	/* Each thread's commits need a group each; alone, all of them would need one each. */
	cr_assert_geq(log_->group_number, COMMITS);
	cr_assert_leq(log_->group_number, THREADS * COMMITS / 2);
	cr_assert_eq(log_durable_lsn(log_), log_next_lsn(log_));
}
