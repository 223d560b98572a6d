/* The tally (INV-LOG-12): beside one that adds up everything. */
#include "tests/lib/log_rig.h"
#include "tests/lib/scratch.h"

#include <criterion/criterion.h>

#define BEGIN 1000000u
#define MTRS 30000u

static struct oracle {
	lsn_t start[MTRS];
	int64_t change[MTRS];
	unsigned count;
} oracle;

static uint64_t sum_below(lsn_t lsn)
{
	uint64_t sum = BEGIN;

	for (unsigned i = 0; i < oracle.count && oracle.start[i] < lsn; i++)
		sum += (uint64_t)oracle.change[i];
	return sum;
}

static void append(struct log *log, uint64_t *seed)
{
	uint8_t records[400];
	struct log_append how = {0};
	struct log_ticket ticket;
	size_t bytes = logrig_records(records, oracle.count + 1, 40 + random_next(seed) % 100);

	how.tally = random_next(seed) % 3 ? (int64_t)(random_next(seed) % 200) - 100 : 0;
	cr_assert_eq(log_reserve(log, bytes + MTR_TRAILER_BYTES), 0);
	log_append_sum(log, &how, records, bytes);
	log_append_place(log, &how, &ticket);
	log_append_copy(log, &how, records, &ticket);
	log_listed(log, &ticket);
	oracle.start[oracle.count] = ticket.start;
	oracle.change[oracle.count++] = how.tally;
}

static struct log *start(struct device *dev, uint64_t tally)
{
	struct log_options options = {.tally = tally};
	struct log *log = logrig_open(dev, 1, 2);

	cr_assert_eq(log_start(log, log_found_checkpoint(log)->lsn, 2, &options), 0);
	return log;
}

/* What a mount would find now. */
static void compare(struct device *dev, lsn_t checkpoint)
{
	struct device *copy = logrig_copy(dev);
	struct log *log = logrig_open(copy, 2, 2);
	const struct checkpoint *found = log_found_checkpoint(log);

	cr_assert_eq(found->lsn, checkpoint);
	cr_assert_eq(found->tally, sum_below(found->lsn));
	log_close(log);
	dev_close(copy);
}

Test(log_tally, known_at_each_checkpoint)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = start(dev, BEGIN);
	uint64_t seed = 3;

	oracle.count = 0;
	while (oracle.count < 3000) {
		lsn_t want, next = log_next_lsn(log), live = next - log_checkpoint_lsn(log);

		for (unsigned i = 0; i < 10; i++)
			append(log, &seed);
		if (live < LOGRIG_CAPACITY / 4 && random_next(&seed) % 4)
			continue;
		/* An mtr boundary, or where one is wanted. */
		want = oracle.start[oracle.count - 1 - random_next(&seed) % 10];
		if (random_next(&seed) % 2) {
			lsn_t can = log_tally_ceil(log, want);

			cr_assert(can >= want && can <= log_next_lsn(log));
			want = can;
			cr_assert_eq(log_flush(log, want), 0);
			cr_assert_eq(log_checkpoint(log, want), 0);
			cr_assert_eq(log_checkpoint_lsn(log), want);
		} else {
			cr_assert_eq(log_flush(log, want), 0);
			cr_assert_eq(log_checkpoint(log, want), 0);
			cr_assert_leq(log_checkpoint_lsn(log), want);
			cr_assert_geq(log_checkpoint_lsn(log) + LOGRIG_CAPACITY / 1000 + 300, want);
		}
		compare(dev, log_checkpoint_lsn(log));
		cr_assert_eq(log_tally(log), sum_below(UINT64_MAX));
	}
	log_close(log);
	dev_close(dev);
}

/* Not known: zero, and every checkpoint is where it is asked for. */
Test(log_tally, none)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = start(dev, 0);
	uint64_t seed = 4;

	oracle.count = 0;
	for (unsigned i = 0; i < 20; i++)
		append(log, &seed);
	cr_assert_eq(log_tally(log), 0);
	cr_assert_eq(log_flush(log, log_next_lsn(log)), 0);
	cr_assert_eq(log_checkpoint(log, oracle.start[13]), 0);
	cr_assert_eq(log_checkpoint_lsn(log), oracle.start[13]);
	log_close(log);
	dev_close(dev);
}

/* What cannot have been right is not gone on with. */
Test(log_tally, below_zero)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = start(dev, 5);
	uint64_t seed = 5;

	oracle.count = 0;
	for (unsigned i = 0; i < 50; i++)
		append(log, &seed);
	cr_assert_eq(log_tally(log), 0);
	cr_assert_eq(log_flush(log, log_next_lsn(log)), 0);
	cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
	log_close(log);
	dev_close(dev);
}
