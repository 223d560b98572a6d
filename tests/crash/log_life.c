/* The life of a log, its deaths, and what must be found after each: see log_life.h. */
#include "tests/crash/log_life.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log/log_internal.h"

#define CAPACITY (64u << 10)
#define SIZE (CAPACITY + LOG_RECORDS_START)
#define DATA_BYTES 512u /* of an entry that has data: a sector of its own */
#define RECORDS_MAX 6000u
#define OPS 400u /* at least */
#define LAPS 3u
#define SEEDS 3u
#define ENTRIES_MAX 2048u

static const uint8_t uuid[16] = "log_life";

/* Where the test is, for the message. */
struct life;
static struct {
	const struct life_kind *kind;
	uint64_t workload, seed;
	size_t event;
	int mode;
	const char *step;
	struct life *life; /* at work */
	struct log *log;
} now;

#define expect(condition) ((condition) ? (void)0 : failed(__LINE__, #condition))

static void failed(int line, const char *what)
{
	fprintf(stderr, "%s %lu: line %d: %s (%s, event %zu, mode %d, seed %lu)\n", now.kind->name,
		(unsigned long)now.workload, line, what, now.step, now.event, now.mode,
		(unsigned long)now.seed);
	exit(1);
}

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* ---------------------------------------------------------------- oracle */

struct entry {
	lsn_t start, end;
	uint64_t id;
	bool has_data;      /* in data_offset(), written before the append */
	bool flushed_after; /* the workload flushed behind it */
};

/* What log calls had returned when the device had seen so many events. */
struct promise {
	size_t event;
	lsn_t durable, marked, checkpoint;
};

struct life {
	struct entry entry[ENTRIES_MAX];
	size_t entries;
	struct promise promise[ENTRIES_MAX];
	size_t promises;
	uint64_t generation;
	uint64_t found_generation; /* of the log that it began with */
	uint64_t next_id;
	uint64_t first_data; /* sectors of data begin here */
	uint64_t random;     /* for what is not part of the workload */
};

static void make_records(uint8_t *p, uint64_t id, size_t bytes)
{
	uint64_t fill = id;
	size_t len = bytes - 3;

	p[0] = REC_PATCH;
	p[1] = (uint8_t)(len | 0x80);
	p[2] = (uint8_t)(len >> 7);
	for (size_t i = 0; i < len; i++)
		p[3 + i] = (uint8_t)(i < 8 ? id >> (8 * i) : next_random(&fill));
}

static uint64_t data_offset(const struct life *life, size_t entry)
{
	return life->first_data + entry * DATA_BYTES;
}

static void write_data(const struct life *life, struct log *log, uint64_t id)
{
	uint8_t data[DATA_BYTES];

	memset(data, (int)(id * 37 + 1), sizeof(data));
	memcpy(data, &id, sizeof(id));
	expect(dev_write(log->dev, data, sizeof(data), data_offset(life, life->entries)) == 0);
}

static bool data_is_there(const struct life *life, size_t entry, struct device *dev)
{
	uint8_t data[DATA_BYTES];
	uint64_t id = life->entry[entry].id;

	if (!life->entry[entry].has_data)
		return true;
	expect(dev_read(dev, data, sizeof(data), data_offset(life, entry)) == 0);
	return !memcmp(data, &id, sizeof(id)) && data[DATA_BYTES - 1] == (uint8_t)(id * 37 + 1);
}

static void append(struct life *life, struct log *log, size_t size)
{
	uint8_t records[RECORDS_MAX];
	struct log_ticket ticket;
	uint64_t id = life->next_id++;
	bool has_data = next_random(&life->random) % 3 == 0;

	expect(life->entries < ENTRIES_MAX);
	make_records(records, id, size - MTR_TRAILER_BYTES);
	expect(log_reserve(log, size) == 0);
	if (has_data)
		write_data(life, log, id);
	log_append(log, records, size - MTR_TRAILER_BYTES, &ticket);
	log_listed(log, &ticket);
	life->entry[life->entries++] = (struct entry){
		.start = ticket.start,
		.end = ticket.end,
		.id = id,
		.has_data = has_data,
	};
}

static void note_promise(struct life *life, struct log *log, struct device *dev)
{
	expect(life->promises < ENTRIES_MAX);
	life->promise[life->promises++] = (struct promise){
		.event = dev_record_count(dev),
		.durable = log_durable_lsn(log),
		.marked = log_marked_lsn(log),
		.checkpoint = log_checkpoint_lsn(log),
	};
}

static struct promise promised(const struct life *life, size_t event)
{
	struct promise last = {0};

	for (size_t i = 0; i < life->promises && life->promise[i].event <= event; i++)
		last = life->promise[i];
	return last;
}

static int open_log(struct device *dev, uint64_t old_generation, uint64_t generation,
		    struct log **log);
static struct log_scan_result verify(struct log *log, const struct life *life, size_t event);

/* -------------------------------------------------------------- workload */

static void flush(struct life *life, struct log *log, struct device *dev, bool mark)
{
	lsn_t lsn = log_next_lsn(log);

	if (life->entries)
		life->entry[life->entries - 1].flushed_after = true;
	expect((mark ? log_mark(log, lsn) : log_flush(log, lsn)) == 0);
	note_promise(life, log, dev);
}

static void checkpoint(struct life *life, struct log *log, struct device *dev, uint64_t *random)
{
	lsn_t durable = log_durable_lsn(log), lsn = durable;
	const size_t back = next_random(random) % 8;

	/* Often not at the end: pages of the last few mtrs are dirty. */
	if (life->entries > back && life->entry[life->entries - 1 - back].start < durable)
		lsn = life->entry[life->entries - 1 - back].start;
	expect(log_checkpoint(log, lsn) == 0);
	note_promise(life, log, dev);
}

/* Half of the mtrs end at a block boundary, where what follows is most easily mistaken. */
static size_t random_size(struct log *log, uint64_t *random)
{
	const uint32_t block = log_block_bytes(log);
	size_t blocks = 2 + next_random(random) % 3;
	size_t past = log_next_lsn(log) % block;
	uint64_t kind = next_random(random) % 16;

	if (kind < 8 && blocks * block < RECORDS_MAX)
		return blocks * block - (past ? past : MARK_MTR_BYTES);
	return 16 + next_random(random) % (kind == 8 ? RECORDS_MAX - 16 : 500);
}

/*
 * The process dies here, the machine lives on: in mapped mode all that was
 * appended is there.
 */
static void die_without_power_cut(struct life *life, struct log *log, struct device *dev)
{
	struct device *state;
	struct log *again;
	lsn_t end;

	dev_record_look(dev);
	expect(dev_record_cut(dev, dev_record_count(dev), &state) == 0);
	expect(open_log(state, life->found_generation, life->generation, &again) == 0);
	end = verify(again, life, dev_record_count(dev)).end;
	expect(end >= life->entry[life->entries - 1].end && end <= log_next_lsn(log));
	log_close(again);
	dev_close(state);
}

static void work(struct life *life, struct log *log, struct device *dev, uint64_t *random)
{
	for (unsigned op = 0; op < OPS || log_next_lsn(log) < LSN_FIRST + LAPS * CAPACITY; op++) {
		size_t size = random_size(log, random);

		if (log_next_lsn(log) - log_checkpoint_lsn(log) > CAPACITY / 4 ||
		    next_random(random) % 16 == 0) {
			flush(life, log, dev, true);
			checkpoint(life, log, dev, random);
		}
		append(life, log, size);
		if (now.kind->mode == LOG_MODE_MAPPED)
			die_without_power_cut(life, log, dev);
		if (next_random(random) % 3 == 0)
			flush(life, log, dev, next_random(random) % 8 == 0);
	}
	flush(life, log, dev, true);
}

/* ------------------------------------------------------------ after a cut */

static int open_log(struct device *dev, uint64_t old_generation, uint64_t generation,
		    struct log **log)
{
	struct log_place place = {.dev = dev, .size_bytes = SIZE};

	memcpy(place.uuid, uuid, sizeof(uuid));
	return log_open(log, &place, old_generation, generation);
}

struct visit {
	const struct life *life;
	struct device *dev;
	size_t next;     /* the entry expected */
	lsn_t cut_after; /* cut at the first mark above, when set */
	lsn_t marked;    /* above it data is verified, and the log cut where some is missing */
};

static int visit(void *arg, const struct log_mtr *mtr)
{
	struct visit *v = arg;
	uint8_t records[RECORDS_MAX];
	const struct entry *entry;

	if (mtr->records[0] == REC_MARK)
		return v->cut_after && mtr->start > v->cut_after;
	if (mtr->records[0] == REC_PAD)
		return 0;
	expect(v->next < v->life->entries);
	entry = &v->life->entry[v->next];
	expect(mtr->start == entry->start && mtr->end == entry->end);
	if (mtr->end > v->marked && !data_is_there(v->life, v->next, v->dev))
		return 1;
	/* INV-LOG-4: a mark speaks for data, too. */
	expect(data_is_there(v->life, v->next, v->dev));
	v->next++;
	make_records(records, entry->id, mtr->records_bytes);
	expect(!memcmp(mtr->records, records, mtr->records_bytes));
	return 0;
}

static int visit_nothing(void *arg, const struct log_mtr *mtr)
{
	(void)arg;
	(void)mtr;
	return 0;
}

static struct visit first_visit(struct log *log, const struct life *life, lsn_t marked)
{
	struct visit v = {.life = life, .dev = log->dev, .marked = marked};
	lsn_t checkpoint = log_found_checkpoint(log)->lsn;

	while (v.next < life->entries && life->entry[v.next].start < checkpoint)
		v.next++;
	return v;
}

/* As recovery does it: first the newest mark, then up to where data is missing. */
static struct log_scan_result scan(struct log *log, const struct life *life)
{
	struct log_scan_result whole, cut;
	struct visit v;

	expect(log_scan(log, visit_nothing, NULL, &whole) == 0);
	if (whole.damaged)
		return whole;
	v = first_visit(log, life, whole.marked_lsn);
	expect(log_scan(log, visit, &v, &cut) == 0);
	whole.end = cut.end;
	return whole;
}

static struct log_scan_result verify(struct log *log, const struct life *life, size_t event)
{
	struct promise promise = promised(life, event);
	struct log_scan_result result = scan(log, life);

	expect(!result.damaged);
	expect(result.end >= promise.durable);
	expect(log_found_checkpoint(log)->lsn >= promise.checkpoint);
	for (size_t i = 0; i < life->entries; i++)
		expect(life->entry[i].end <= result.marked_lsn ||
		       life->entry[i].end > promise.marked);
	return result;
}

/*
 * Appends what the old life had behind the cut, size for size, group for
 * group, but with other contents, and stops after a few groups.
 */
static void live_on(struct life *life, const struct life *old, struct log *log, struct device *dev,
		    uint64_t *random)
{
	lsn_t start = log_next_lsn(log);
	unsigned groups = 1 + next_random(random) % 3;

	note_promise(life, log, dev);
	for (size_t i = 0; i < old->entries && groups; i++) {
		const struct entry *entry = &old->entry[i];

		if (entry->start < start)
			continue;
		append(life, log, entry->end - entry->start);
		if (entry->flushed_after) {
			flush(life, log, dev, false);
			groups--;
		} else if (entry->end % log_block_bytes(log) == 0 && next_random(random) % 2) {
			break; /* here the old tail goes on without a mark */
		}
	}
	if (life->entries && !life->entry[life->entries - 1].flushed_after)
		flush(life, log, dev, false);
}

static void verify_second(struct device *state, const struct life *life, const struct life *old,
			  size_t event, size_t old_event)
{
	struct log *log;

	expect(open_log(state, life->found_generation, life->generation, &log) == 0);
	if (log_found_checkpoint(log)->generation == life->generation)
		verify(log, life, event);
	else
		verify(log, old, old_event);
	log_close(log);
}

static void cut_again(struct device *dev, const struct life *life, const struct life *old,
		      size_t old_event, uint64_t *random)
{
	for (unsigned i = 0; i < 4; i++) {
		size_t count = dev_record_count(dev);
		size_t event = i ? next_random(random) % (count + 1) : count;
		struct device *state;
		bool varies;

		expect(dev_record_state(dev, event, i ? CUT_TORN : CUT_PREFIX, i, &state,
					&varies) == 0);
		verify_second(state, life, old, event, old_event);
		dev_close(state);
	}
}

static void second_life(struct device *dev, struct log *log, const struct life *old,
			const struct log_scan_result *result, size_t old_event, uint64_t *random)
{
	static struct life life;
	const struct log_options options = {.mode = now.kind->mode};
	struct visit v = first_visit(log, old, result->marked_lsn);
	struct log_scan_result cut = *result;

	life = (struct life){
		.generation = old->generation + 1,
		.found_generation = log_found_checkpoint(log)->generation,
		.next_id = 1000000,
		.first_data = old->first_data + ENTRIES_MAX * DATA_BYTES,
		.random = *random,
	};
	v.cut_after = result->marked_lsn;
	if (next_random(random) % 2)
		expect(log_scan(log, visit, &v, &cut) == 0);
	dev_record_start(dev);
	expect(log_start(log, cut.end, life.generation, &options) == 0);
	live_on(&life, old, log, dev, random);
	cut_again(dev, &life, old, old_event, random);
	log_close(log);
}

/* ------------------------------------------------------------------- cuts */

/* How far the log surely reaches at this event: no undecided write arrived. */
static lsn_t sure_end(struct device *dev, const struct life *life, size_t event)
{
	struct device *state;
	struct log *log;
	bool varies;
	lsn_t end;

	expect(dev_record_state(dev, event, CUT_DROP_ALL, 0, &state, &varies) == 0);
	expect(open_log(state, life->found_generation, life->generation, &log) == 0);
	end = verify(log, life, event).end;
	log_close(log);
	dev_close(state);
	return end;
}

static void cut_at(struct device *dev, const struct life *life, size_t event, uint64_t *random)
{
	lsn_t sure;

	now.event = event;
	now.mode = CUT_DROP_ALL;
	sure = sure_end(dev, life, event);
	for (int mode = CUT_PREFIX; mode <= CUT_TORN; mode++) {
		unsigned seeds = mode < CUT_DROP_ONE ? 1 : SEEDS;

		for (unsigned seed = 0; seed < seeds; seed++) {
			struct log_scan_result result;
			struct device *state;
			struct log *log;
			bool varies;

			now.mode = mode;
			now.seed = seed;
			expect(dev_record_state(dev, event, mode, seed, &state, &varies) == 0);
			if (!varies && mode != CUT_PREFIX) {
				dev_close(state);
				continue;
			}
			expect(open_log(state, life->found_generation, life->generation, &log) ==
			       0);
			result = verify(log, life, event);
			expect(result.marked_lsn <= sure);
			second_life(state, log, life, &result, event, random);
			dev_close(state);
		}
	}
}

static void flip_bits(struct device *dev, const struct life *life, uint64_t *random)
{
	struct log_scan_result result;
	struct log *log;
	lsn_t from;

	now.step = "bit flip";
	expect(open_log(dev, life->generation, life->generation, &log) == 0);
	result = scan(log, life);
	from = log_found_checkpoint(log)->lsn;
	log_close(log);
	expect(result.marked_lsn > from);
	for (unsigned i = 0; i < 200; i++) {
		lsn_t lsn = from + next_random(random) % (result.marked_lsn - from);
		uint64_t at = LOG_RECORDS_START + (lsn - LSN_FIRST) % CAPACITY;
		uint8_t good, bad;
		struct log_scan_result damage;

		expect(dev_read(dev, &good, 1, at) == 0);
		bad = good ^ (uint8_t)(1 << next_random(random) % 8);
		expect(dev_write(dev, &bad, 1, at) == 0);
		expect(open_log(dev, life->generation, life->generation, &log) == 0);
		damage = scan(log, life);
		log_close(log);
		expect(damage.damaged && damage.end <= lsn && damage.damage_mark > damage.end);
		expect(dev_write(dev, &good, 1, at) == 0);
	}
}

/*
 * What else happens while the log is at work: another thread appends while a
 * group is in flight, and what the CPU has stored so far may be on its way.
 */
static void meanwhile(const char *point)
{
	if (strncmp(point, "log:", 4) != 0)
		return;
	if (now.kind->mode == LOG_MODE_MAPPED && next_random(&now.life->random) % 4 == 0)
		dev_record_look(now.log->dev);
	if (strcmp(point, "log:written") == 0 && next_random(&now.life->random) % 2 == 0)
		append(now.life, now.log, 16 + next_random(&now.life->random) % 1500);
}

/* Where single lines are events, not every one of them. */
static size_t cut_step(struct device *dev, size_t event, uint64_t *random)
{
	size_t steps = now.kind->mode == LOG_MODE_MAPPED ? next_random(random) % 40 : 0;

	while (steps-- && event < dev_record_count(dev) && !dev_record_is_flush(dev, event))
		event++;
	return event + 1;
}

void life_run(const struct life_kind *kind, uint64_t workload)
{
	static struct life life;
	const struct log_options options = {.mode = kind->mode};
	uint64_t random = workload, cuts = 0;
	struct device *dev;
	struct log *log;

	now.kind = kind;
	now.workload = workload;
	now.step = "workload";
	life = (struct life){
		.generation = 2,
		.found_generation = 1,
		.next_id = 1,
		.first_data = SIZE,
		.random = workload,
	};
	expect(dev_open_memory(&dev, SIZE + 2 * ENTRIES_MAX * DATA_BYTES) == 0);
	if (kind->pmem)
		dev_memory_be_pmem(dev);
	dev->block_bytes = kind->block;
	expect(log_format(dev, 0, SIZE, uuid, 1) == 0);
	dev_record_start(dev);
	expect(open_log(dev, 1, 1, &log) == 0);
	expect(log_start(log, LSN_FIRST, life.generation, &options) == 0);
	expect(log_mode(log) == kind->mode && log_block_bytes(log) == kind->block);
	note_promise(&life, log, dev);
	now.life = &life;
	now.log = log;
	os_linux_set_point_handler(meanwhile);
	work(&life, log, dev, &random);
	os_linux_set_point_handler(NULL);
	log_close(log);

	now.step = "cut";
	for (size_t event = 0; event <= dev_record_count(dev);
	     event = cut_step(dev, event, &random), cuts++)
		cut_at(dev, &life, event, &random);
	printf("%s, workload %lu: %zu events, %zu mtrs, cut %lu times\n", kind->name,
	       (unsigned long)workload, dev_record_count(dev), life.entries, (unsigned long)cuts);
	dev_record_stop(dev);
	flip_bits(dev, &life, &random);
	dev_close(dev);
}
