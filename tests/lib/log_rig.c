#include "tests/lib/log_rig.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

const uint8_t logrig_uuid[16] = "0123456789abcde";

uint64_t logrig_random(uint64_t limit)
{
	static uint64_t state = 1;

	state = state * 6364136223846793005u + 1442695040888963407u;
	return (state >> 33) % limit;
}

/* ---------------------------------------------------------------- devices */

struct device *logrig_format(uint32_t block, uint64_t capacity)
{
	struct device *dev;

	check(dev_open_memory(&dev, LOGRIG_OFFSET + LOG_RECORDS_START + capacity) == 0);
	dev->block_bytes = block;
	check(log_format(dev, LOGRIG_OFFSET, LOG_RECORDS_START + capacity, logrig_uuid, 1) == 0);
	return dev;
}

struct device *logrig_format_pmem(uint64_t capacity)
{
	struct device *dev = logrig_format(DEV_MAP_LINE, capacity);

	dev_memory_be_pmem(dev);
	return dev;
}

struct device *logrig_copy(struct device *dev)
{
	uint8_t *bytes = malloc(dev->size_bytes);
	struct device *copy;

	check(bytes && dev_open_memory(&copy, dev->size_bytes) == 0);
	if (dev->byte_addressable)
		dev_memory_be_pmem(copy);
	copy->block_bytes = dev->block_bytes;
	check(dev_read(dev, bytes, dev->size_bytes, 0) == 0);
	check(dev_write(copy, bytes, dev->size_bytes, 0) == 0);
	free(bytes);
	return copy;
}

uint64_t logrig_offset(lsn_t lsn, uint64_t capacity)
{
	return LOGRIG_OFFSET + LOG_RECORDS_START + (lsn - LSN_FIRST) % capacity;
}

void logrig_flip(struct device *dev, uint64_t offset)
{
	uint8_t byte;

	check(dev_read(dev, &byte, 1, offset) == 0);
	byte ^= 0x10;
	check(dev_write(dev, &byte, 1, offset) == 0);
}

/* ------------------------------------------------------------------- logs */

struct log_place logrig_place(struct device *dev)
{
	struct log_place place = {
		.dev = dev,
		.offset = LOGRIG_OFFSET,
		.size_bytes = dev->size_bytes - LOGRIG_OFFSET,
	};

	memcpy(place.uuid, logrig_uuid, sizeof(logrig_uuid));
	return place;
}

int logrig_try_open(struct device *dev, const uint8_t id[16], uint64_t log_gen, uint64_t mount_gen)
{
	struct log_place place = logrig_place(dev);
	struct log *log;
	int err;

	memcpy(place.uuid, id, 16);
	err = log_open(&log, &place, log_gen, mount_gen);
	log_close(log);
	return err;
}

struct log *logrig_open(struct device *dev, uint64_t log_gen, uint64_t mount_gen)
{
	struct log_place place = logrig_place(dev);
	struct log *log;

	check(log_open(&log, &place, log_gen, mount_gen) == 0);
	return log;
}

struct log *logrig_start(struct device *dev, lsn_t lsn, uint64_t old_gen, uint64_t new_gen)
{
	struct log *log = logrig_open(dev, old_gen, old_gen);

	if (!lsn)
		lsn = log_found_checkpoint(log)->lsn;
	check(log_start(log, lsn, new_gen, NULL) == 0);
	return log;
}

struct log *logrig_start_mode(struct device *dev, enum log_mode mode, uint64_t old_gen,
			      uint64_t new_gen)
{
	const struct log_options options = {.mode = mode};
	struct log *log = logrig_open(dev, old_gen, old_gen);

	check(log_start(log, log_found_checkpoint(log)->lsn, new_gen, &options) == 0);
	check(log_mode(log) == mode);
	return log;
}

size_t logrig_records(uint8_t *p, uint64_t id, size_t bytes)
{
	uint64_t fill = id;
	size_t len = bytes - 3;

	check(bytes >= 11 && bytes < LOGRIG_RECORD_MAX);
	p[0] = REC_PATCH;
	p[1] = (uint8_t)(len | 0x80);
	p[2] = (uint8_t)(len >> 7);
	for (size_t i = 0; i < len; i++) {
		if (i % 8 == 0)
			fill = fill * 6364136223846793005u + 1442695040888963407u;
		p[3 + i] = i < 8 ? (uint8_t)(id >> (8 * i)) : (uint8_t)(fill >> (8 * (i % 8)));
	}
	return bytes;
}

struct log_ticket logrig_append_unlisted(struct log *log, uint64_t id, size_t bytes)
{
	uint8_t records[LOGRIG_RECORD_MAX + MTR_TRAILER_BYTES];
	struct log_ticket ticket;

	logrig_records(records, id, bytes);
	check(log_reserve(log, bytes + MTR_TRAILER_BYTES) == 0);
	log_append(log, records, bytes, &ticket);
	return ticket;
}

struct log_ticket logrig_append(struct log *log, uint64_t id, size_t bytes)
{
	struct log_ticket ticket = logrig_append_unlisted(log, id, bytes);

	log_listed(log, &ticket);
	return ticket;
}

void logrig_fill(struct log *log)
{
	while (log_next_lsn(log) - log_checkpoint_lsn(log) < LOGRIG_CAPACITY / 2)
		check(log_flush(log, logrig_append(log, 1, 2000).end) == 0);
}

/* ------------------------------------------------------------------ scans */

int logrig_see(void *arg, const struct log_mtr *mtr)
{
	struct logrig_seen *seen = arg;
	uint8_t again[LOGRIG_RECORD_MAX];
	uint64_t id;

	if (seen->cut_at && mtr->start >= seen->cut_at)
		return 1;
	seen->wrong |= seen->expected && mtr->start != seen->expected;
	seen->wrong |= mtr->end != mtr->start + mtr->records_bytes + MTR_TRAILER_BYTES;
	seen->expected = mtr->end;
	if (mtr->records[0] == REC_MARK) {
		seen->marks++;
		return 0;
	}
	if (mtr->records[0] == REC_PAD) {
		seen->pads++;
		return 0;
	}
	memcpy(&id, mtr->records + 3, sizeof(id));
	logrig_records(again, id, mtr->records_bytes);
	seen->wrong |= memcmp(again, mtr->records, mtr->records_bytes) != 0;
	check(seen->count < array_count(seen->id));
	seen->start[seen->count] = mtr->start;
	seen->id[seen->count++] = id;
	return 0;
}

struct log_scan_result logrig_scan(struct device *dev, uint64_t gen, struct logrig_seen *seen)
{
	struct log *log = logrig_open(dev, gen, gen);
	struct log_scan_result result;
	lsn_t cut_at = seen->cut_at;

	*seen = (struct logrig_seen){.cut_at = cut_at};
	check(log_scan(log, logrig_see, seen, &result) == 0);
	check(!seen->wrong);
	log_close(log);
	return result;
}

/* ---------------------------------------------------------------- threads */

void logrig_reserve_thread(void *arg)
{
	struct logrig_waiter *waiter = arg;

	waiter->result = log_reserve(waiter->log, waiter->bytes);
	atomic_store(&waiter->done, true);
}

void logrig_append_thread(void *arg)
{
	struct logrig_waiter *waiter = arg;

	logrig_append(waiter->log, 77, 500);
	atomic_store(&waiter->done, true);
}

void logrig_flush_thread(void *arg)
{
	struct logrig_waiter *waiter = arg;

	waiter->result = log_flush(waiter->log, waiter->bytes);
	atomic_store(&waiter->done, true);
}

void logrig_await_waiters(struct log *log, uint64_t count)
{
	uint64_t waiting;

	do {
		sched_yield();
		latch_x(&log->latch);
		waiting = log->space_waiting;
		unlatch_x(&log->latch);
	} while (waiting < count);
}

_Atomic lsn_t logrig_wanted;

void logrig_note_wanted(void *arg, lsn_t lsn)
{
	(void)arg;
	atomic_store(&logrig_wanted, lsn);
}

_Atomic bool logrig_hold, logrig_held;

void logrig_hold_appender(const char *point)
{
	if (strcmp(point, "log:reserved") || !atomic_load(&logrig_hold))
		return;
	atomic_store(&logrig_hold, false);
	atomic_store(&logrig_held, true);
	while (atomic_load(&logrig_held))
		sched_yield();
}
