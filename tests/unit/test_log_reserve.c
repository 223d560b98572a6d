/* Reservation (INV-LOG-1): what is reserved always fits; who waits is served in turn. */
#include "tests/lib/log_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>

Test(log_reserve, more_than_the_most)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	uint64_t most = log_reserve_max(log);

	cr_assert_gt(most, 8192);
	cr_assert_eq(log_reserve(log, most + 1), -EINVAL);
	cr_assert_eq(log_reserve(log, most), 0);
	log_unreserve(log, most);
	cr_assert_eq(log_reserve(log, most), 0);
	log_unreserve(log, most);
	log_close(log);
	dev_close(dev);
}

/*
 * The worst that a full log can be asked for: whatever was reserved is spent
 * on as many mtrs as it may serve, each in a group of its own with a closing
 * mark.  check() in append and group close would fail without the headroom.
 */
Test(log_reserve, inv_log_1_headroom_for_marks_and_padding)
{
	/* The first time round mapped: the same space, though no buffer. */
	for (uint32_t n = 32; n <= LOG_BLOCK_MAX; n *= 2) {
		uint32_t block = n < LOG_BLOCK_MIN ? LOG_BLOCK_MIN : n;
		uint64_t capacity = lsn_round_up(2 * LOG_CAPACITY_MIN(block), block);
		struct device *dev = n < LOG_BLOCK_MIN ? logrig_format_pmem(capacity)
						       : logrig_format(block, capacity);
		struct log *log = logrig_start(dev, 0, 1, 2);

		for (int lap = 0; lap < 20; lap++) {
			uint64_t bytes = log_reserve_max(log) - logrig_random(2500);
			uint64_t left = bytes;
			uint64_t mtrs = 1 + bytes / LOG_MTR_SHARE_BYTES;

			cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
			cr_assert_eq(log_reserve(log, bytes), 0);
			for (uint64_t i = 0; i < mtrs; i++) {
				size_t most = left - (mtrs - 1 - i) * 32;
				size_t size = most < 2600 ? most : 16 + logrig_random(2600 - 16);
				uint8_t records[LOGRIG_RECORD_MAX];
				struct log_ticket ticket;

				logrig_records(records, i, size - MTR_TRAILER_BYTES);
				log_append(log, records, size - MTR_TRAILER_BYTES, &ticket);
				log_listed(log, &ticket);
				left -= size;
				cr_assert_eq(log_mark(log, ticket.end), 0);
			}
			log_unreserve(log, left);
		}
		log_close(log);
		dev_close(dev);
	}
}

Test(log_reserve, inv_log_1_waits_for_log_space_and_asks)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	struct logrig_waiter waiter = {.log = log, .bytes = log_reserve_max(log)};
	struct os_thread thread;

	log_set_space_callback(log, logrig_note_wanted, NULL);
	logrig_fill(log);
	cr_assert_eq(os_thread_start(&thread, "reserve", logrig_reserve_thread, &waiter), 0);
	while (!atomic_load(&logrig_wanted))
		sched_yield();
	cr_assert(!atomic_load(&waiter.done));
	cr_assert_gt(atomic_load(&logrig_wanted), log_checkpoint_lsn(log));
	cr_assert_leq(atomic_load(&logrig_wanted), log_next_lsn(log));
	cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
	os_thread_join(&thread);
	cr_assert_eq(waiter.result, 0);
	log_unreserve(log, waiter.bytes);
	log_close(log);
	dev_close(dev);
}

/* A full buffer is emptied by the one who waits. */
Test(log_reserve, inv_log_1_waits_for_buffer_space)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	uint64_t bytes = log_reserve_max(log);

	while (log_next_lsn(log) - log_durable_lsn(log) < 8000)
		logrig_append(log, 1, 1000);
	cr_assert_eq(log_reserve(log, bytes), 0);
	cr_assert_eq(log_durable_lsn(log), log_next_lsn(log));
	log_unreserve(log, bytes);
	log_close(log);
	dev_close(dev);
}

Test(log_reserve, small_ones_do_not_overtake_a_large_one)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_open(dev, 1, 1);
	const struct log_options options = {.buffer_bytes = 16 << 10};
	struct logrig_waiter large = {.log = log}, small = {.log = log, .bytes = 100};
	struct os_thread thread[2];

	cr_assert_eq(log_start(log, LSN_FIRST, 2, &options), 0);
	large.bytes = log_reserve_max(log); /* the buffer's limit: nothing fits beside it */
	cr_assert_eq(log_reserve(log, 4096), 0);
	cr_assert_eq(os_thread_start(&thread[0], "large", logrig_reserve_thread, &large), 0);
	logrig_await_waiters(log, 1);
	cr_assert_eq(os_thread_start(&thread[1], "small", logrig_reserve_thread, &small), 0);
	for (int i = 0; i < 1000; i++)
		sched_yield();
	cr_assert(!atomic_load(&small.done) && !atomic_load(&large.done));
	log_unreserve(log, 4096);
	os_thread_join(&thread[0]);
	cr_assert(!atomic_load(&small.done));
	log_unreserve(log, large.bytes);
	os_thread_join(&thread[1]);
	cr_assert(large.result == 0 && small.result == 0);
	log_unreserve(log, small.bytes);
	log_close(log);
	dev_close(dev);
}

struct hoarder {
	struct log *log;
	uint64_t bytes;
	_Atomic unsigned granted;
};

static void hoard_thread(void *arg)
{
	struct hoarder *hoarder = arg;

	while (!atomic_load(&logrig_wanted)) {
		cr_assert_eq(log_reserve(hoarder->log, hoarder->bytes), 0);
		atomic_fetch_add(&hoarder->granted, 1);
	}
}

/*
 * As many reservations as are granted before the log is full, each then spent
 * on an mtr in a group of its own with a closing mark, before any checkpoint.
 */
Test(log_reserve, inv_log_1_headroom_for_many_reservations)
{
	const uint64_t sizes[] = {30, 300, 1500, 3000};

	for (size_t i = 0; i < array_count(sizes); i++) {
		struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
		struct log *log = logrig_start(dev, 0, 1, 2);
		struct hoarder hoarder = {.log = log, .bytes = sizes[i]};
		struct os_thread thread;
		unsigned granted;

		log_set_space_callback(log, logrig_note_wanted, NULL);
		logrig_fill(log);
		atomic_store(&logrig_wanted, 0);
		cr_assert_eq(os_thread_start(&thread, "hoard", hoard_thread, &hoarder), 0);
		logrig_await_waiters(log, 1);
		while (!atomic_load(&logrig_wanted))
			sched_yield();
		granted = atomic_load(&hoarder.granted);
		cr_assert_gt(granted, 3);
		for (unsigned n = 0; n < granted; n++) {
			uint8_t records[LOGRIG_RECORD_MAX];
			size_t bytes = sizes[i] - MTR_TRAILER_BYTES;
			struct log_ticket ticket;

			logrig_records(records, n, bytes);
			log_append(log, records, bytes, &ticket);
			log_listed(log, &ticket);
			cr_assert_eq(log_mark(log, ticket.end), 0);
		}
		cr_assert_leq(log_next_lsn(log), log_checkpoint_lsn(log) + LOGRIG_CAPACITY);
		cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
		os_thread_join(&thread);
		log_close(log);
		dev_close(dev);
	}
}

/* Room for both is made at once: the first to get its space wakes the second. */
Test(log_reserve, one_release_serves_all_it_can)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	struct logrig_waiter waiter[3];
	struct os_thread thread[3];
	uint64_t most = log_reserve_max(log);

	cr_assert_eq(log_reserve(log, most), 0);
	for (unsigned i = 0; i < 3; i++) {
		waiter[i] = (struct logrig_waiter){.log = log, .bytes = 5000};
		cr_assert_eq(
			os_thread_start(&thread[i], "reserve", logrig_reserve_thread, &waiter[i]),
			0);
		logrig_await_waiters(log, i + 1);
	}
	log_unreserve(log, most);
	for (unsigned i = 0; i < 3; i++) {
		os_thread_join(&thread[i]);
		cr_assert_eq(waiter[i].result, 0);
	}
	log_close(log);
	dev_close(dev);
}

/*
 * Whoever makes room hands it out, to all for whom there is enough: nobody who comes
 * afterwards queues behind a waiter that has not been woken yet.
 */
Test(log_reserve, room_is_granted_where_it_is_made)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);
	struct logrig_waiter waiter[3];
	struct os_thread thread[3];
	uint64_t most = log_reserve_max(log);

	cr_assert_eq(log_reserve(log, most), 0);
	for (unsigned i = 0; i < 3; i++) {
		waiter[i] = (struct logrig_waiter){.log = log, .bytes = most / 8 * 3};
		cr_assert_eq(
			os_thread_start(&thread[i], "reserve", logrig_reserve_thread, &waiter[i]),
			0);
		logrig_await_waiters(log, i + 1);
	}
	/* The three sleep, or wait for this latch, which they need to find out anything. */
	latch_x(&log->latch);
	log->reserved -= most;
	log->holders = 0;
	(void)log_space_grant_locked(log);
	cr_assert_eq(log->space_waiting, 1);
	cr_assert_eq(log->reserved, waiter[0].bytes + waiter[1].bytes);
	log_space_wake(log, UINT64_MAX >> (64 - LOG_SPACE_QUEUES));
	unlatch_x(&log->latch);
	for (unsigned i = 0; i < 2; i++) {
		os_thread_join(&thread[i]);
		cr_assert_eq(waiter[i].result, 0);
		log_unreserve(log, waiter[i].bytes);
	}
	os_thread_join(&thread[2]);
	cr_assert_eq(waiter[2].result, 0);
	log_unreserve(log, waiter[2].bytes);
	log_close(log);
	dev_close(dev);
}

/* The holder appends all that it had and goes away: the waiter flushes. */
Test(log_reserve, an_append_wakes_a_waiter_for_buffer_space)
{
	struct device *dev = logrig_format(512, 1 << 20);
	struct log *log = logrig_open(dev, 1, 1);
	const struct log_options options = {.buffer_bytes = 16 << 10};
	struct logrig_waiter waiter = {.log = log, .bytes = 9000};
	struct os_thread thread;
	uint8_t records[LOGRIG_RECORD_MAX];
	struct log_ticket ticket;

	cr_assert_eq(log_start(log, LSN_FIRST, 2, &options), 0);
	cr_assert_eq(log_reserve(log, 8000), 0);
	cr_assert_eq(os_thread_start(&thread, "reserve", logrig_reserve_thread, &waiter), 0);
	logrig_await_waiters(log, 1);
	for (int i = 0; i < 1000; i++)
		sched_yield();
	cr_assert(!atomic_load(&waiter.done));
	logrig_records(records, 1, 8000 - MTR_TRAILER_BYTES);
	log_append(log, records, 8000 - MTR_TRAILER_BYTES, &ticket);
	log_listed(log, &ticket);
	os_thread_join(&thread);
	cr_assert_eq(waiter.result, 0);
	cr_assert_geq(log_durable_lsn(log), ticket.end);
	log_close(log);
	dev_close(dev);
}

/* Reservations appended to the last byte, never given back: nothing leaks. */
Test(log_reserve, exact_reservations_leak_nothing)
{
	struct device *dev = logrig_format(512, LOGRIG_CAPACITY);
	struct log *log = logrig_start(dev, 0, 1, 2);

	for (int i = 0; i < 2000; i++) {
		lsn_t end = logrig_append(log, 1, 100).end;

		cr_assert_eq(log_mark(log, end), 0);
		cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
	}
	cr_assert_eq(log_reserve(log, log_reserve_max(log)), 0);
	log_close(log);
	dev_close(dev);
}
