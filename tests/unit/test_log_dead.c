/* A failed write or flush is final, for everybody. */
#include "tests/lib/log_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>

static struct logrig_seen seen;
static struct log *watched;

static int deaths, death_error;

static void count_death(void *arg, int error)
{
	cr_assert_eq(arg, &deaths);
	deaths++;
	death_error = error;
}

Test(log_dead, an_error_is_final)
{
	const unsigned kinds[] = {FAULT_WRITE, FAULT_FLUSH};
	const struct log_options options = {.on_dead = count_death, .on_dead_arg = &deaths};

	for (size_t i = 0; i < array_count(kinds); i++) {
		struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
		struct log *log = logrig_open(dev, 1, 1);
		struct log_ticket ticket;
		lsn_t durable;

		deaths = 0;
		cr_assert_eq(log_start(log, LSN_FIRST, 2, &options), 0);
		cr_assert_eq(log_flush(log, logrig_append(log, 1, 100).end), 0);
		durable = log_durable_lsn(log);
		cr_assert_eq(log_reserve(log, 4000), 0);
		dev_memory_fail(dev, kinds[i], 0, -EIO, false);
		ticket = logrig_append(log, 2, 100);
		cr_assert_eq(log_flush(log, ticket.end), -BE_LOGDEAD);
		cr_assert(deaths == 1 && death_error == -EIO);
		cr_assert(log_dead(log));
		/* The device works again; the log does not. */
		cr_assert_eq(log_flush(log, ticket.end), -BE_LOGDEAD);
		cr_assert_eq(log_mark(log, ticket.end), -BE_LOGDEAD);
		cr_assert_eq(log_reserve(log, 100), -BE_LOGDEAD);
		cr_assert_eq(log_checkpoint(log, durable), -BE_LOGDEAD);
		cr_assert_eq(log_durable_lsn(log), durable);
		/* What was reserved is still taken, and dropped. */
		for (uint64_t id = 3; id < 8; id++) {
			uint8_t records[LOGRIG_RECORD_MAX];

			logrig_records(records, id, 400);
			log_append(log, records, 400, &ticket);
			log_listed(log, &ticket);
		}
		log_unreserve(log, 4000 - 5 * 405);
		cr_assert_eq(deaths, 1);
		log_close(log);
		logrig_scan(dev, 2, &seen);
		cr_assert_leq(seen.count, 2);
		dev_close(dev);
	}
}

/* While a group is in flight, a checkpoint meets an error of the same device. */
static bool error_stays;

static void fail_a_checkpoint(const char *point)
{
	if (strcmp(point, "log:written"))
		return;
	os_linux_set_point_handler(NULL);
	dev_memory_fail(watched->dev, FAULT_FLUSH, 0, -EIO, error_stays);
	cr_assert_eq(log_checkpoint(watched, log_durable_lsn(watched)), -BE_LOGDEAD);
}

Test(log_dead, a_flush_that_succeeds_after_another_failed_is_not_believed)
{
	const struct log_options options = {.on_dead = count_death, .on_dead_arg = &deaths};

	for (int stays = 0; stays < 2; stays++) {
		struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
		struct log *log = logrig_open(dev, 1, 1);
		struct log_ticket ticket;
		lsn_t durable;

		deaths = 0;
		error_stays = stays;
		watched = log;
		cr_assert_eq(log_start(log, LSN_FIRST, 2, &options), 0);
		cr_assert_eq(log_flush(log, logrig_append(log, 1, 100).end), 0);
		durable = log_durable_lsn(log);
		ticket = logrig_append(log, 2, 100);
		os_linux_set_point_handler(fail_a_checkpoint);
		cr_assert_eq(log_flush(log, ticket.end), -BE_LOGDEAD);
		cr_assert_eq(log_durable_lsn(log), durable);
		cr_assert_eq(deaths, 1);
		log_close(log);
		dev_close(dev);
	}
}

/* Those who wait, for space or for a group, are told. */
Test(log_dead, waiters_get_the_error)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	struct logrig_waiter reserver = {.log = log, .bytes = log_reserve_max(log)};
	struct logrig_waiter flusher[3];
	struct os_thread thread[4];

	log_set_space_callback(log, logrig_note_wanted, NULL);
	logrig_fill(log);
	os_linux_set_point_handler(logrig_hold_appender);
	atomic_store(&logrig_hold, true);
	dev_memory_fail(dev, FAULT_WRITE, 0, -EIO, true);
	cr_assert_eq(os_thread_start(&thread[3], "append", logrig_append_thread, &reserver), 0);
	while (!atomic_load(&logrig_held))
		sched_yield();
	for (int i = 0; i < 3; i++) {
		flusher[i] = (struct logrig_waiter){.log = log,
						    .bytes = logrig_append(log, 9, 100).end};
		cr_assert_eq(os_thread_start(&thread[i], "flush", logrig_flush_thread, &flusher[i]),
			     0);
	}
	for (int i = 0; i < 1000; i++)
		sched_yield();
	atomic_store(&logrig_held, false);
	for (int i = 0; i < 4; i++)
		os_thread_join(&thread[i]);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(flusher[i].result, -BE_LOGDEAD);
	log_close(log);
	dev_close(dev);
}

Test(log_dead, a_waiter_for_space_gets_the_error)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	struct logrig_waiter reserver = {.log = log, .bytes = log_reserve_max(log)};
	struct os_thread thread;

	log_set_space_callback(log, logrig_note_wanted, NULL);
	logrig_fill(log);
	cr_assert_eq(os_thread_start(&thread, "reserve", logrig_reserve_thread, &reserver), 0);
	while (!atomic_load(&logrig_wanted))
		sched_yield();
	dev_memory_fail(dev, FAULT_FLUSH, 0, -EIO, false);
	cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), -BE_LOGDEAD);
	os_thread_join(&thread);
	cr_assert_eq(reserver.result, -BE_LOGDEAD);
	log_close(log);
	dev_close(dev);
}

/* The volume fails for a reason of its own. */
Test(log_dead, the_volume_may_say_so)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	struct logrig_waiter reserver = {.log = log, .bytes = log_reserve_max(log)};
	struct os_thread thread;
	lsn_t durable;

	logrig_fill(log);
	durable = log_durable_lsn(log);
	cr_assert_eq(os_thread_start(&thread, "reserve", logrig_reserve_thread, &reserver), 0);
	logrig_await_waiters(log, 1);
	log_fail(log, -EIO);
	os_thread_join(&thread);
	cr_assert_eq(reserver.result, -BE_LOGDEAD);
	cr_assert_eq(log_flush(log, durable), -BE_LOGDEAD);
	cr_assert_eq(log_durable_lsn(log), durable);
	log_close(log);
	dev_close(dev);
}
