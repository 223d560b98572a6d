/*
 * How many readers are wanted: what one client leaves in the queue wakes nobody,
 * several clients do, and afterwards it is as before.
 */
#include "fs/server/demand.h"

#include <criterion/criterion.h>

#define THREADS 64u
#define CPUS 6u /* of the machine that is spoken of here */

static void begin(struct demand *demand)
{
	demand_init(demand, THREADS);
	cr_assert_eq(demand_wanted(demand), 2);
	cr_assert_geq(demand->max, 2);
	demand->max = CPUS;
}

/* `waiting` of `of` looks find something, evenly spread. */
static void look(struct demand *demand, unsigned waiting, unsigned of, unsigned times)
{
	for (unsigned i = 0; i < times; i++)
		(void)demand_seen(demand, (i + 1) * waiting / of > i * waiting / of);
}

Test(demand, one_client_has_two_readers)
{
	struct demand demand;

	begin(&demand);
	look(&demand, 1, 3, 30000); /* a RELEASE or FORGET beside the next call */
	cr_assert_eq(demand_wanted(&demand), 2);
}

Test(demand, many_clients_have_as_many_as_cpus)
{
	struct demand demand;
	unsigned rises = 0;

	begin(&demand);
	for (unsigned i = 0; i < 10000; i++)
		rises += demand_seen(&demand, i % 10 != 0);
	cr_assert_eq(demand_wanted(&demand), CPUS);
	cr_assert_eq(rises, CPUS - 2, "each rise is told once");
}

Test(demand, falls_when_the_others_have_gone)
{
	struct demand demand;

	begin(&demand);
	look(&demand, 1, 1, 10000);
	cr_assert_eq(demand_wanted(&demand), CPUS);
	look(&demand, 1, 3, 10000);
	cr_assert_eq(demand_wanted(&demand), 2);
}

Test(demand, a_missed_reader_is_wanted_at_once)
{
	struct demand demand;

	begin(&demand);
	demand_missed(&demand);
	cr_assert_eq(demand_wanted(&demand), 3);
}

Test(demand, never_more_than_there_are_threads)
{
	struct demand demand;

	demand_init(&demand, 1);
	look(&demand, 1, 1, 10000);
	demand_missed(&demand);
	cr_assert_eq(demand_wanted(&demand), 1);
}
