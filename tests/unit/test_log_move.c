/* Another size or place for a log in use (INV-LOG-8). */
#include "tests/lib/log_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>

#define ROOM (1u << 20)
#define SIZE (LOGRIG_CAPACITY + LOG_RECORDS_START)
/* Every medium: 4 KiB blocks want more. */
#define SIZE_LARGE (512u << 10)
#define SIZE_LARGER (768u << 10)

static struct logrig_seen seen;

static struct device *format(bool pmem)
{
	struct device *dev;

	cr_assert_eq(dev_open_memory(&dev, 4 * ROOM), 0);
	if (pmem)
		dev_memory_be_pmem(dev);
	cr_assert_eq(log_format_blocks(dev, 0, SIZE_LARGE, logrig_uuid, 1, 512), 0);
	return dev;
}

static struct log_place place(struct device *dev, uint64_t offset, uint64_t size)
{
	struct log_place place = {.dev = dev, .offset = offset, .size_bytes = size};

	memcpy(place.uuid, logrig_uuid, sizeof(place.uuid));
	return place;
}

static struct log *start(struct device *dev, enum log_mode mode)
{
	const struct log_options options = {.mode = mode};
	struct log_place at = place(dev, 0, SIZE_LARGE);
	struct log *log;

	cr_assert_eq(log_open(&log, &at, 1, 1), 0);
	cr_assert_eq(log_start(log, LSN_FIRST, 2, &options), 0);
	return log;
}

static void empty(struct log *log)
{
	cr_assert_eq(log_mark(log, log_next_lsn(log)), 0);
	cr_assert_eq(log_checkpoint(log, log_unlisted_lsn(log)), 0);
}

static void append_some(struct log *log, uint64_t first, unsigned count)
{
	for (uint64_t id = first; id < first + count; id++)
		logrig_append(log, id, 900);
	cr_assert_eq(log_flush(log, log_next_lsn(log)), 0);
}

static void move(struct log *log, uint64_t offset, uint64_t size, uint64_t generation)
{
	struct log_place to = place(log->dev, offset, size);
	struct log_move *prepared;
	lsn_t before;

	cr_assert_eq(log_freeze(log), 0);
	empty(log);
	before = log_next_lsn(log);
	cr_assert_eq(log_move_prepare(log, &to, generation, &prepared), 0);
	log_move_install(log, prepared);
	log_thaw(log);
	cr_assert_geq(log_next_lsn(log), before);
	cr_assert_eq(log_capacity(log), size - LOG_RECORDS_START);
}

static void expect(struct device *dev, uint64_t offset, uint64_t size, uint64_t generation,
		   size_t count)
{
	struct log_place at = place(dev, offset, size);
	struct log_scan_result found;
	struct log *log;

	seen = (struct logrig_seen){0};
	cr_assert_eq(log_open(&log, &at, generation, generation), 0);
	cr_assert_eq(log_scan(log, logrig_see, &seen, &found), 0);
	cr_assert(!seen.wrong && !found.damaged);
	cr_assert_eq(seen.count, count, "%zu of %zu", seen.count, count);
	log_close(log);
}

Test(log_move, sizes_and_places_in_every_mode)
{
	const struct {
		uint64_t offset, size;
	} step[] = {{0, SIZE_LARGER},	  {0, SIZE_LARGE},    {2 * ROOM, SIZE_LARGE},
		    {2 * ROOM, ROOM},	  {0, SIZE_LARGER},   {3 * ROOM, SIZE_LARGE},
		    {3 * ROOM, ROOM},	  {3 * ROOM, SIZE_LARGER}};

	for (enum log_mode mode = LOG_MODE_PWRITE; mode < LOG_MODE_COUNT; mode++) {
		for (int pmem = 0; pmem <= (mode == LOG_MODE_MAPPED); pmem++) {
			struct device *dev = format(pmem);
			struct log *log = start(dev, mode);

			for (unsigned i = 0; i < array_count(step); i++) {
				/* Less than a lap, more than a lap. */
				for (unsigned k = 0; k < 4; k++) {
					append_some(log, 100 * i + 10 * k, 9);
					if (i % 2)
						append_some(log, 5000, 200);
					empty(log);
				}
				move(log, step[i].offset, step[i].size, 3 + i);
				append_some(log, 9000 + i, 7);
				if (mode == LOG_MODE_MAPPED)
					dev_record_look(dev);
				expect(dev, step[i].offset, step[i].size, 3 + i, 7);
				empty(log);
			}
			log_close(log);
			dev_close(dev);
		}
	}
}

/* In the same place both sizes are good until the superblock says which; none is later. */
Test(log_move, inv_log_8_the_old_size_stays_valid)
{
	struct device *dev = format(false);
	struct log *log = start(dev, LOG_MODE_PWRITE);
	struct log_place to = place(dev, 0, SIZE_LARGER), old = place(dev, 0, SIZE_LARGE);
	struct log_scan_result found;
	struct log_move *prepared;
	struct log *again;

	append_some(log, 1, 300);
	cr_assert_eq(log_freeze(log), 0);
	empty(log);
	cr_assert_eq(log_move_prepare(log, &to, 3, &prepared), 0);
	/* As a crash would leave it: the superblock has generations 3 and 2, or 3 and 3. */
	cr_assert_eq(log_open(&again, &old, 2, 3), 0);
	seen = (struct logrig_seen){0};
	cr_assert_eq(log_scan(again, logrig_see, &seen, &found), 0);
	cr_assert(seen.count == 0 && !found.damaged);
	cr_assert_geq(found.end, log_next_lsn(log));
	log_close(again);
	expect(dev, 0, SIZE_LARGER, 3, 0);
	log_move_install(log, prepared);
	log_thaw(log);
	log_close(log);
	dev_close(dev);
}

Test(log_move, inv_log_8_only_an_empty_log_moves)
{
	struct device *dev = format(false);
	struct log *log = start(dev, LOG_MODE_PWRITE);
	struct log_place to = place(dev, 0, SIZE_LARGER), small = place(dev, 0, 20000);
	struct log_ticket ticket = logrig_append_unlisted(log, 1, 500);
	struct log_move *prepared;

	cr_assert_eq(log_freeze(log), 0);
	cr_assert_eq(log_move_prepare(log, &to, 3, &prepared), -EBUSY, "not durable");
	cr_assert_eq(log_mark(log, log_next_lsn(log)), 0);
	cr_assert_eq(log_move_prepare(log, &to, 3, &prepared), -EBUSY, "not checkpointed");
	log_listed(log, &ticket);
	empty(log);
	cr_assert_eq(log_move_prepare(log, &small, 3, &prepared), -EINVAL);
	to.size_bytes = SIZE_LARGE;
	cr_assert_eq(log_move_prepare(log, &to, 3, &prepared), -EINVAL, "the same");
	to.size_bytes = 5 * ROOM;
	cr_assert_eq(log_move_prepare(log, &to, 3, &prepared), -EINVAL, "past the device");
	log_thaw(log);
	/* It goes on as it was. */
	append_some(log, 10, 3);
	log_close(log);
	expect(dev, 0, SIZE_LARGE, 2, 3);
	dev_close(dev);
}

static void freeze_thread(void *arg)
{
	struct logrig_waiter *waiter = arg;

	waiter->result = log_freeze(waiter->log);
	atomic_store(&waiter->done, true);
}

static _Atomic bool freezing;

static void note_freezing(const char *point)
{
	if (!strcmp(point, "log:freezing"))
		atomic_store(&freezing, true);
}

Test(log_move, freezing_waits_for_holders_and_keeps_others_waiting)
{
	struct device *dev = format(false);
	struct log *log = start(dev, LOG_MODE_PWRITE);
	struct logrig_waiter freezer = {.log = log}, reserver = {.log = log, .bytes = 1000};
	struct os_thread thread[2];
	uint8_t records[LOGRIG_RECORD_MAX];
	struct log_ticket ticket;

	cr_assert_eq(log_reserve(log, 2000), 0);
	os_linux_set_point_handler(note_freezing);
	cr_assert_eq(os_thread_start(&thread[0], "freeze", freeze_thread, &freezer), 0);
	while (!atomic_load(&freezing))
		sched_yield();
	os_linux_set_point_handler(NULL);
	cr_assert_eq(os_thread_start(&thread[1], "reserve", logrig_reserve_thread, &reserver), 0);
	logrig_await_waiters(log, 1);
	cr_assert(!atomic_load(&freezer.done) && !atomic_load(&reserver.done));
	/* A holder goes on, and flushes. */
	logrig_records(records, 1, 995);
	log_append(log, records, 995, &ticket);
	log_listed(log, &ticket);
	cr_assert_eq(log_flush(log, ticket.end), 0);
	cr_assert(!atomic_load(&freezer.done));
	log_unreserve(log, 1000);
	os_thread_join(&thread[0]);
	cr_assert_eq(freezer.result, 0);
	cr_assert(!atomic_load(&reserver.done));
	log_thaw(log);
	os_thread_join(&thread[1]);
	cr_assert_eq(reserver.result, 0);
	log_unreserve(log, 1000);
	log_close(log);
	dev_close(dev);
}

/* Smaller: who waited for more than can be granted now is told, and those behind him served. */
Test(log_move, a_reservation_that_no_longer_fits_is_refused)
{
	struct device *dev = format(false);
	struct log *log = start(dev, LOG_MODE_PWRITE);
	struct logrig_waiter large = {.log = log}, small = {.log = log, .bytes = 1000};
	struct log_place to = place(dev, 0, SIZE);
	struct log_move *prepared;
	struct os_thread thread[2];

	to.size_bytes = LOG_RECORDS_START + LOG_CAPACITY_MIN(LOG_BLOCK_MAX);
	to.size_bytes = (to.size_bytes + 4095) / 4096 * 4096;
	large.bytes = log_reserve_max(log);
	cr_assert_eq(log_freeze(log), 0);
	cr_assert_eq(os_thread_start(&thread[0], "large", logrig_reserve_thread, &large), 0);
	logrig_await_waiters(log, 1);
	cr_assert_eq(os_thread_start(&thread[1], "small", logrig_reserve_thread, &small), 0);
	logrig_await_waiters(log, 2);
	empty(log);
	cr_assert_eq(log_move_prepare(log, &to, 3, &prepared), 0);
	log_move_install(log, prepared);
	log_thaw(log);
	os_thread_join(&thread[0]);
	os_thread_join(&thread[1]);
	cr_assert_eq(large.result, -EINVAL);
	cr_assert_eq(small.result, 0);
	log_unreserve(log, 1000);
	log_close(log);
	dev_close(dev);
}

/*
 * An empty log of the new size has room for more than may be promised.
 */
Test(log_move, a_reservation_above_the_new_limit_that_would_fit_is_refused)
{
	struct device *dev = format(false);
	struct log *log = start(dev, LOG_MODE_PWRITE);
	struct logrig_waiter waiter = {.log = log};
	struct log_place to = place(dev, 0, SIZE_LARGER);
	struct log_move *prepared;
	struct os_thread thread;
	uint64_t limit;

	/* Large first, to learn the limit of the small one. */
	limit = log_reserve_max(log);
	move(log, 0, SIZE_LARGER, 3);
	cr_assert_gt(log_reserve_max(log), limit);
	to.size_bytes = SIZE_LARGE;
	cr_assert_eq(log_freeze(log), 0);
	waiter.bytes = limit + 1;
	cr_assert_eq(os_thread_start(&thread, "waiter", logrig_reserve_thread, &waiter), 0);
	logrig_await_waiters(log, 1);
	empty(log);
	cr_assert_eq(log_move_prepare(log, &to, 4, &prepared), 0);
	log_move_install(log, prepared);
	cr_assert_eq(log_reserve_max(log), limit);
	log_thaw(log);
	os_thread_join(&thread);
	cr_assert_eq(waiter.result, -EINVAL);
	log_close(log);
	dev_close(dev);
}

/* INV-LOG-11: an archive that has everything goes on at the new LSN; a backup forbids it. */
Test(log_move, inv_log_11_holds_move_with_it)
{
	struct device *dev = format(false);
	struct log *log = start(dev, LOG_MODE_PWRITE);
	struct log_place to = place(dev, 0, SIZE_LARGER);
	struct log_move *prepared;
	lsn_t lsn;

	append_some(log, 1, 5);
	(void)log_hold(log, LOG_HOLD_ARCHIVE);
	append_some(log, 10, 5);
	cr_assert_eq(log_freeze(log), 0);
	empty(log);
	cr_assert_eq(log_move_prepare(log, &to, 3, &prepared), -EBUSY, "not archived");
	(void)log_hold_move(log, LOG_HOLD_ARCHIVE, log_durable_lsn(log));
	empty(log);
	(void)log_hold(log, LOG_HOLD_BACKUP);
	cr_assert_eq(log_move_prepare(log, &to, 3, &prepared), -EBUSY, "a backup");
	(void)log_release(log, LOG_HOLD_BACKUP);
	lsn = log_move_lsn(log);
	cr_assert_eq(log_move_prepare(log, &to, 3, &prepared), 0);
	log_move_install(log, prepared);
	log_thaw(log);
	cr_assert_eq(log_next_lsn(log), lsn);
	cr_assert_eq(atomic_load(&log->hold[LOG_HOLD_ARCHIVE]), lsn);
	cr_assert_eq(log_hold(log, LOG_HOLD_BACKUP), lsn);
	(void)log_release(log, LOG_HOLD_BACKUP);
	append_some(log, 20, 5);
	cr_assert_eq(log_checkpoint(log, log_durable_lsn(log)), 0);
	cr_assert_eq(log_checkpoint_lsn(log), lsn);
	log_close(log);
	dev_close(dev);
}

Test(log_move, an_error_on_the_way_is_final)
{
	const unsigned kinds[] = {FAULT_WRITE, FAULT_FLUSH};

	for (size_t k = 0; k < array_count(kinds); k++) {
		for (uint64_t after = 0; after < 3; after++) {
			struct device *dev = format(false);
			struct log *log = start(dev, LOG_MODE_PWRITE);
			struct log_place to = place(dev, 0, SIZE_LARGER);
			struct log_move *prepared;

			append_some(log, 1, 20);
			cr_assert_eq(log_freeze(log), 0);
			empty(log);
			dev_memory_fail(dev, kinds[k], after, -EIO, false);
			cr_assert_eq(log_move_prepare(log, &to, 3, &prepared), -BE_LOGDEAD);
			log_thaw(log);
			cr_assert(log_dead(log));
			cr_assert_eq(log_reserve(log, 100), -BE_LOGDEAD);
			log_close(log);
			dev_close(dev);
		}
	}
}
