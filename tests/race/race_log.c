/*
 * The log between threads: appenders that reserve, append, list, flush and
 * mark; one that checkpoints what the others wait for; one that watches the
 * watermarks.  Many laps over a log of 64 KiB, with yields at the interesting
 * points; run under TSan as well.
 *
 *	race_log [SEED]    one round; else several, TEST_SCALE times as many
 *
 * Afterwards a scan must find exactly what was appended above the checkpoint,
 * each mtr where its ticket said.  The device recorded everything: at random
 * power cuts the scan must reach what had been acknowledged by then.
 *
 * In rounds with a mapped log, which is a file's, nothing is recorded.
 */
#include "log/log.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/os.h"
#include "engine/format.h"
#include "tests/lib/scratch_file.h"

#define CAPACITY (64u << 10)
#define SIZE (CAPACITY + LOG_RECORDS_START)
#define BUFFER (24u << 10)
#define WRITERS 5
#define ROUNDS 400
#define MTRS_MAX (4 * ROUNDS)
#define RECORDS_MAX 2000u
#define CUTS 300

static const uint8_t uuid[16] = "race_log";

struct ack {
	size_t event; /* the device had seen so many when the call had returned */
	lsn_t lsn;
};

struct writer {
	uint64_t number, random;
	struct log_ticket ticket[MTRS_MAX];
	size_t tickets;
	struct ack ack[MTRS_MAX];
	size_t acks;
};

static struct writer writers[WRITERS];
static struct device *dev;
static bool recorded;
static struct log *log_;
static _Atomic uint64_t wanted;
static _Atomic bool stop;

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

static size_t events(void)
{
	return recorded ? dev_record_count(dev) : 0;
}

static void yield_sometimes(const char *name)
{
	static _Thread_local uint64_t random;

	if (!random)
		random = (uintptr_t)&random;
	if (next_random(&random) % (strncmp(name, "log:", 4) ? 16 : 3) == 0)
		sched_yield();
}

/* ---------------------------------------------------------------- threads */

static size_t make_records(uint8_t *p, uint64_t id, size_t bytes)
{
	uint64_t fill = id;
	size_t len = bytes - 3;

	p[0] = REC_PATCH;
	p[1] = (uint8_t)(len | 0x80);
	p[2] = (uint8_t)(len >> 7);
	for (size_t i = 0; i < len; i++)
		p[3 + i] = (uint8_t)(i < 8 ? id >> (8 * i) : next_random(&fill));
	return bytes;
}

static size_t append_one(struct writer *w)
{
	uint8_t records[RECORDS_MAX];
	size_t bytes = 11 + next_random(&w->random) % (next_random(&w->random) % 8 ? 200 : 1900);
	struct log_ticket *ticket = &w->ticket[w->tickets];

	check(w->tickets < MTRS_MAX);
	make_records(records, w->number << 32 | w->tickets, bytes);
	log_append(log_, records, bytes, ticket);
	w->tickets++;
	check(log_unlisted_lsn(log_) <= ticket->start);
	if (next_random(&w->random) % 4 == 0)
		sched_yield();
	log_listed(log_, ticket);
	return bytes + MTR_TRAILER_BYTES;
}

static void flush_last(struct writer *w)
{
	lsn_t lsn = w->ticket[w->tickets - 1].end;

	if (next_random(&w->random) % 8) {
		check(log_flush(log_, lsn) == 0);
	} else {
		check(log_mark(log_, lsn) == 0);
		check(log_marked_lsn(log_) >= lsn);
	}
	check(log_durable_lsn(log_) >= lsn);
	w->ack[w->acks++] = (struct ack){events(), lsn};
}

static void write_thread(void *arg)
{
	struct writer *w = arg;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t mtrs = 1 + next_random(&w->random) % 3;
		uint64_t left = mtrs * (RECORDS_MAX + MTR_TRAILER_BYTES);

		check(left <= log_reserve_max(log_));
		check(log_reserve(log_, left) == 0);
		for (uint64_t n = 0; n < mtrs; n++)
			left -= append_one(w);
		log_unreserve(log_, left);
		if (next_random(&w->random) % 3 == 0)
			flush_last(w);
	}
}

static void want_space(void *arg, lsn_t lsn)
{
	(void)arg;
	check(lsn <= log_next_lsn(log_));
	atomic_store(&wanted, lsn);
}

/* What is listed is "in place" at once here: no pages. */
static void checkpoint_thread(void *arg)
{
	uint64_t random = 1;

	(void)arg;
	while (!atomic_load(&stop)) {
		lsn_t lsn;

		if (!atomic_exchange(&wanted, 0) && next_random(&random) % 64) {
			sched_yield();
			continue;
		}
		lsn = log_unlisted_lsn(log_);
		if (lsn > log_durable_lsn(log_))
			check(log_mark(log_, lsn) == 0);
		check(log_durable_lsn(log_) >= lsn);
		check(log_checkpoint(log_, lsn) == 0);
	}
}

static void watch_thread(void *arg)
{
	lsn_t checkpoint = 0, marked = 0, durable = 0;

	(void)arg;
	while (!atomic_load(&stop)) {
		lsn_t c = log_checkpoint_lsn(log_), m = log_marked_lsn(log_);
		lsn_t d = log_durable_lsn(log_);

		check(c >= checkpoint && m >= marked && d >= durable);
		check(c <= d && m <= d && d <= log_next_lsn(log_));
		checkpoint = c;
		marked = m;
		durable = d;
		sched_yield();
	}
}

/* ----------------------------------------------------------- verification */

static struct log *open_log(struct device *from, uint64_t generation)
{
	struct log_place place = {.dev = from, .size_bytes = SIZE};
	struct log *log;

	memcpy(place.uuid, uuid, sizeof(uuid));
	check(log_open(&log, &place, generation, generation) == 0);
	return log;
}

static int visit(void *arg, const struct log_mtr *mtr)
{
	uint8_t records[RECORDS_MAX];
	const struct log_ticket *ticket;
	uint64_t id;

	if (mtr->records[0] == REC_MARK || mtr->records[0] == REC_PAD)
		return 0;
	memcpy(&id, mtr->records + 3, sizeof(id));
	check(id >> 32 < WRITERS && (uint32_t)id < writers[id >> 32].tickets);
	ticket = &writers[id >> 32].ticket[(uint32_t)id];
	check(mtr->start == ticket->start && mtr->end == ticket->end);
	make_records(records, id, mtr->records_bytes);
	check(!memcmp(records, mtr->records, mtr->records_bytes));
	++*(size_t *)arg;
	return 0;
}

static lsn_t verify(struct device *from, uint64_t generation)
{
	struct log *log = open_log(from, generation);
	struct log_scan_result result;
	size_t seen = 0, expected = 0;
	lsn_t start = log_found_checkpoint(log)->lsn;

	check(log_scan(log, visit, &seen, &result) == 0);
	check(!result.damaged);
	log_close(log);
	for (int w = 0; w < WRITERS; w++)
		for (size_t i = 0; i < writers[w].tickets; i++)
			expected += writers[w].ticket[i].start >= start &&
				    writers[w].ticket[i].start < result.end;
	check(seen == expected);
	return result.end;
}

static void verify_cuts(uint64_t *random)
{
	for (int i = 0; i < CUTS; i++) {
		size_t event = next_random(random) % (dev_record_count(dev) + 1);
		struct device *state;
		bool varies;
		lsn_t end;

		check(dev_record_state(dev, event, (enum dev_cut_mode)(i % (CUT_TORN + 1)),
				       (uint64_t)i, &state, &varies) == 0);
		end = verify(state, 2);
		for (int w = 0; w < WRITERS; w++)
			for (size_t a = 0; a < writers[w].acks; a++) {
				const struct ack *ack = &writers[w].ack[a];

				check(ack->event > event || ack->lsn <= end);
			}
		dev_close(state);
	}
}

static void open_device(bool file)
{
	char path[SCRATCH_PATH_BYTES];
	int fd;

	if (!file) {
		check(dev_open_memory(&dev, SIZE) == 0);
		return;
	}
	fd = scratch_file(path);
	check(ftruncate(fd, SIZE) == 0);
	close(fd);
	check(dev_open_file(&dev, path, 0, 0) == 0);
	unlink(path);
}

static void run(uint64_t seed, enum log_mode mode)
{
	const struct log_options options = {.buffer_bytes = BUFFER, .mode = mode};
	struct os_thread thread[WRITERS], checkpointer, watcher;
	uint64_t random = seed;
	lsn_t next;

	atomic_store(&stop, false);
	recorded = mode != LOG_MODE_MAPPED;
	open_device(!recorded);
	check(log_format(dev, 0, SIZE, uuid, 1) == 0);
	log_ = open_log(dev, 1);
	check(log_start(log_, LSN_FIRST, 2, &options) == 0);
	log_set_space_callback(log_, want_space, NULL);
	if (recorded)
		dev_record_start(dev);
	os_linux_set_point_handler(yield_sometimes);
	for (uint64_t i = 0; i < WRITERS; i++) {
		writers[i].number = i;
		writers[i].random = seed * WRITERS + i;
		writers[i].tickets = writers[i].acks = 0;
		check(os_thread_start(&thread[i], "write", write_thread, &writers[i]) == 0);
	}
	check(os_thread_start(&checkpointer, "checkpoint", checkpoint_thread, NULL) == 0);
	check(os_thread_start(&watcher, "watch", watch_thread, NULL) == 0);
	for (int i = 0; i < WRITERS; i++)
		os_thread_join(&thread[i]);
	atomic_store(&stop, true);
	os_thread_join(&checkpointer);
	os_thread_join(&watcher);
	os_linux_set_point_handler(NULL);
	next = log_next_lsn(log_);
	check(log_flush(log_, next) == 0);
	check(log_unlisted_lsn(log_) == log_next_lsn(log_));
	check(log_reserve(log_, 1) == 0);
	log_close(log_);
	check(next > LSN_FIRST + 5 * CAPACITY);
	check(verify(dev, 2) >= next);
	if (recorded)
		verify_cuts(&random);
	printf("round %lu, %s: %lu laps, %zu device events\n", (unsigned long)seed,
	       log_mode_name(mode), (unsigned long)(next / CAPACITY), events());
	dev_close(dev);
}

int main(int argc, char **argv)
{
	const enum log_mode modes[] = {LOG_MODE_PWRITE, LOG_MODE_DSYNC, LOG_MODE_MAPPED};
	const char *scale = getenv("TEST_SCALE");
	uint64_t count = 3 * (scale ? strtoull(scale, NULL, 10) : 1);

	if (argc > 1) {
		for (unsigned i = 0; i < array_count(modes); i++)
			run(strtoull(argv[1], NULL, 10), modes[i]);
		return 0;
	}
	for (uint64_t seed = 1; seed <= count; seed++)
		run(seed, modes[seed % array_count(modes)]);
	return 0;
}
