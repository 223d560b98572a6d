/* Epochs: the argument of epoch.c, case by case.  Threads are in race_pool.c. */
#include "engine/epoch.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>

static struct epochs *make_epochs(void)
{
	struct epochs *epochs = aligned_alloc(_Alignof(struct epochs), sizeof(*epochs));

	cr_assert_not_null(epochs);
	epochs_init(epochs);
	return epochs;
}

Test(epoch, passes_at_once_when_nobody_is_inside)
{
	struct epochs *epochs = make_epochs();

	for (unsigned i = 0; i < 3; i++)
		cr_assert(epoch_passed(epochs, epoch_retire(epochs)));
	free(epochs);
}

Test(epoch, who_entered_before_holds_up_and_who_enters_after_does_not)
{
	struct epochs *epochs = make_epochs();
	uint64_t before = epoch_retire(epochs), during;

	epoch_enter(epochs);
	during = epoch_retire(epochs);
	cr_assert(epoch_passed(epochs, before));
	cr_assert_not(epoch_passed(epochs, during));
	epoch_exit(epochs);
	epoch_enter(epochs);
	cr_assert(epoch_passed(epochs, during), "entered after the retirement");
	epoch_exit(epochs);
	free(epochs);
}

Test(epoch, nests)
{
	struct epochs *epochs = make_epochs();
	uint64_t retired;

	epoch_enter(epochs);
	epoch_enter(epochs);
	retired = epoch_retire(epochs);
	epoch_exit(epochs);
	cr_assert_not(epoch_passed(epochs, retired));
	epoch_exit(epochs);
	cr_assert(epoch_passed(epochs, retired));
	free(epochs);
}

Test(epoch, volumes_do_not_mix)
{
	struct epochs *one = make_epochs(), *two = make_epochs();
	uint64_t retired_one, retired_two;

	epoch_enter(one);
	retired_two = epoch_retire(two);
	cr_assert(epoch_passed(two, retired_two));
	epoch_enter(two);
	retired_one = epoch_retire(one);
	epoch_exit(two);
	cr_assert_not(epoch_passed(one, retired_one));
	epoch_exit(one);
	cr_assert(epoch_passed(one, retired_one));
	free(one);
	free(two);
}

static struct epochs *shared;
static _Atomic uint32_t inside, leave;

static void be_inside(void *arg)
{
	(void)arg;
	epoch_enter(shared);
	atomic_fetch_add(&inside, 1);
	while (!atomic_load(&leave))
		;
	epoch_exit(shared);
}

Test(epoch, the_slowest_of_several_threads_counts)
{
	struct os_thread thread;
	uint64_t retired;

	shared = make_epochs();
	epoch_enter(shared);
	cr_assert_eq(os_thread_start(&thread, "inside", be_inside, NULL), 0);
	while (!atomic_load(&inside))
		;
	retired = epoch_retire(shared);
	epoch_exit(shared);
	cr_assert_not(epoch_passed(shared, retired));
	atomic_store(&leave, 1);
	os_thread_join(&thread);
	cr_assert(epoch_passed(shared, retired));
	free(shared);
}

/* INV-EPOCH-1. */
Test(epoch, nobody_waits_inside, .signal = SIGABRT)
{
	struct epochs *epochs = make_epochs();
	struct waitq q = {0};

	epoch_enter(epochs);
	waitq_wait(&q, waitq_ticket(&q), 1);
}

Test(epoch, exit_without_enter_is_a_bug, .signal = SIGABRT)
{
	epoch_exit(make_epochs());
}
