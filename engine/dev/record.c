/*
 * A device in memory that remembers its history, so that a test can ask what a
 * power cut at any moment could have left.
 *
 * Events get their numbers under one latch: a write when it is applied, a flush
 * when it has completed.  A clock under the same latch tells when a call began
 * and returned.  The contents after each event are kept as a value (sparse.h),
 * so that a cut costs nothing and a state what it changes.
 *
 *	           settled          cut
 *	  0 1 2 3 4 |5 6 7 8 9      |10 ...      events
 *	  all durable  W W F W W                 5: in flight when flush 7 began: undecided
 *	                 6: had returned: durable.  8, 9: undecided
 *
 * INV-REC-DEV-1: a write is durable from the completion of a flush on that began
 * after the write had returned (ended < horizon).  Other writes are undecided:
 * each of their sectors may have arrived or not.
 * INV-REC-DEV-2: events before `settled` are all durable, so a state is the
 * contents before `settled` with the later events done again in their order,
 * undecided ones by choice: where two writes overlap, the later one stays above.
 * A write to a lane with LANE_DSYNC, and lines of a map under dev_persist(), are
 * durable by themselves from an event of their own on (settled_at).
 * INV-REC-DEV-3: what a failed flush should have made durable stays undecided
 * for ever, as with a kernel that drops dirty pages after the error.
 */
#include "engine/dev/record_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECTOR_SIZE 512u /* what a power cut keeps or loses as a whole */
#define DISCARDED 0xd1   /* each byte after a discard */

static const struct device_ops memory_ops;

struct memory_device *memory_device(const struct device *dev)
{
	check(dev->ops == &memory_ops);
	return container_of(dev, struct memory_device, dev);
}

/* --- recording ----------------------------------------------------------- */

static int make_room(struct memory_device *mem)
{
	size_t room = mem->event_room > 0 ? mem->event_room * 2 : 64;
	struct event *events;

	if (mem->event_count < mem->event_room)
		return 0;
	events = realloc(mem->events, room * sizeof(*events));
	if (!events)
		return -ENOMEM;
	mem->events = events;
	mem->event_room = room;
	return 0;
}

/* The last event before a cut; one that changes nothing, when there is none. */
static struct event last_before(const struct memory_device *mem, size_t event)
{
	check(mem->recording_id > 0 && event <= mem->event_count);
	return event > 0 ? mem->events[event - 1] : (struct event){.after = mem->base};
}

/* Adds an event that the caller fills in; there is room. */
static struct event *append(struct memory_device *mem)
{
	struct event last = last_before(mem, mem->event_count);
	struct event *event = &mem->events[mem->event_count++];

	*event = (struct event){
		.order = atomic_fetch_add(mem->pair_order ? mem->pair_order : &mem->order, 1),
		.ended = NEVER,
		.settled_at = SIZE_MAX,
		.after = sparse_share(mem->contents),
		.horizon = last.horizon,
		.settled = last.settled,
	};
	return event;
}

int record_write_locked(struct memory_device *mem, const void *buf, size_t len, uint64_t offset)
{
	struct sparse next;
	struct event *event;
	int error = make_room(mem);

	if (error)
		return error;
	next = sparse_share(mem->contents);
	error = sparse_write(&next, buf, len, offset);
	if (error) {
		sparse_free(&next);
		return error;
	}
	sparse_free(&mem->contents);
	mem->contents = next;
	event = append(mem);
	event->offset = offset;
	event->len = len;
	return 0;
}

/* For a cut just before event `cut`. */
static bool is_undecided(const struct event *event, uint64_t horizon, size_t cut)
{
	return event->kind == EVENT_WRITE && event->ended >= horizon && event->settled_at > cut;
}

/* The last event, which may have made writes durable. */
static void advance_settled(struct memory_device *mem)
{
	struct event *event = &mem->events[mem->event_count - 1];

	while (event->settled < mem->event_count &&
	       !is_undecided(&mem->events[event->settled], event->horizon, mem->event_count))
		event->settled++;
}

static int record_flush(struct memory_device *mem, uint64_t began)
{
	struct event *event;
	int error = make_room(mem);

	if (error)
		return error;
	event = append(mem);
	event->kind = EVENT_FLUSH;
	if (event->horizon < began)
		event->horizon = began;
	advance_settled(mem);
	return 0;
}

/* One write has become durable by itself. */
static int record_settle(struct memory_device *mem, size_t write)
{
	int error = make_room(mem);

	if (error)
		return error;
	append(mem)->kind = EVENT_SETTLED;
	mem->events[write].settled_at = mem->event_count;
	advance_settled(mem);
	return 0;
}

int record_settle_lines_locked(struct memory_device *mem, uint64_t offset, uint64_t len)
{
	int error = make_room(mem);

	if (error)
		return error;
	append(mem)->kind = EVENT_SETTLED;
	for (size_t i = last_before(mem, mem->event_count).settled; i < mem->event_count; i++) {
		struct event *event = &mem->events[i];

		if (event->is_line && event->offset >= offset && event->offset < offset + len &&
		    event->settled_at > mem->event_count)
			event->settled_at = mem->event_count;
	}
	advance_settled(mem);
	return 0;
}

static void lose_writes(struct memory_device *mem, uint64_t flush_began)
{
	struct event last = last_before(mem, mem->event_count);

	for (size_t i = last.settled; i < mem->event_count; i++)
		if (is_undecided(&mem->events[i], last.horizon, mem->event_count) &&
		    mem->events[i].ended < flush_began)
			mem->events[i].ended = NEVER;
}

static void forget_events(struct memory_device *mem)
{
	for (size_t i = 0; i < mem->event_count; i++)
		sparse_free(&mem->events[i].after);
	sparse_free(&mem->base);
	mem->event_count = 0;
}

/* --- the device ---------------------------------------------------------- */

/* Latch held X. */
static int injected_error_locked(struct memory_device *mem, enum dev_fault_kind kind)
{
	if (!(mem->fault_mask & kind))
		return 0;
	if (mem->fault_after > 0) {
		mem->fault_after--;
		return 0;
	}
	if (!mem->fault_sticky)
		mem->fault_mask = 0;
	mem->fault_count++;
	return mem->fault_error;
}

int memory_read(struct device *dev, void *buf, size_t len, uint64_t offset)
{
	struct memory_device *mem = memory_device(dev);
	int error = 0;

	if (atomic_load_explicit(&mem->fault_mask, memory_order_relaxed) & FAULT_READ) {
		latch_x(&mem->latch);
		error = injected_error_locked(mem, FAULT_READ);
		unlatch_x(&mem->latch);
	}
	if (error)
		return error;
	latch_s(&mem->latch);
	sparse_read(&mem->contents, buf, len, offset);
	unlatch_s(&mem->latch);
	return 0;
}

/* Latch held. */
static void note_returned_locked(struct memory_device *mem, uint32_t recording_id, size_t event)
{
	if (mem->recording_id == recording_id)
		mem->events[event].ended = ++mem->clock;
}

static int write_as(struct memory_device *mem, enum dev_fault_kind kind, const void *buf,
		    size_t len, uint64_t offset, bool settles)
{
	uint32_t recording_id;
	size_t event;
	bool recorded;
	int error;

	latch_x(&mem->latch);
	recording_id = mem->recording_id;
	event = mem->event_count;
	error = injected_error_locked(mem, kind);
	recorded = mem->recording && !error;
	if (recorded)
		error = record_write_locked(mem, buf, len, offset);
	else if (!error)
		error = sparse_write(&mem->contents, buf, len, offset);
	unlatch_x(&mem->latch);

	if (recorded && !error) {
		os_point("memory:write-applied");
		latch_x(&mem->latch);
		note_returned_locked(mem, recording_id, event);
		if (settles && mem->recording && mem->recording_id == recording_id)
			error = record_settle(mem, event);
		unlatch_x(&mem->latch);
	}
	return error;
}

int memory_write_way(struct memory_device *mem, const void *buf, size_t len, uint64_t offset,
		     bool settles)
{
	return write_as(mem, FAULT_WRITE, buf, len, offset, settles);
}

/* Recorded as a write of garbage: nobody may rely on zeros, nor on what was there. */
static int memory_discard(struct device *dev, uint64_t offset, uint64_t len)
{
	void *garbage = malloc(len);
	int error = garbage ? 0 : -ENOMEM;

	if (!error) {
		memset(garbage, DISCARDED, len);
		error = write_as(memory_device(dev), FAULT_DISCARD, garbage, len, offset, false);
	}
	free(garbage);
	return error;
}

static int memory_write(struct device *dev, const void *buf, size_t len, uint64_t offset)
{
	return memory_write_way(memory_device(dev), buf, len, offset, false);
}

int memory_flush(struct device *dev)
{
	struct memory_device *mem = memory_device(dev);
	uint32_t recording_id;
	uint64_t began;
	int error;

	latch_x(&mem->latch);
	recording_id = mem->recording_id;
	error = mem->map && !mem->map->byte_addressable ? map_look_locked(mem) : 0;
	if (!error) {
		map_release_locked(mem);
		error = injected_error_locked(mem, FAULT_FLUSH);
	}
	began = ++mem->clock;
	unlatch_x(&mem->latch);

	os_point("memory:flush-begun");
	latch_x(&mem->latch);
	if (mem->recording && mem->recording_id == recording_id) {
		if (error)
			lose_writes(mem, began);
		else
			error = record_flush(mem, began);
	}
	unlatch_x(&mem->latch);
	return error;
}

/* In turn at the beginning and at the end, so that cuts between are seen both ways. */
static void memory_flush_begin(struct device *dev, struct dev_flush *flush)
{
	struct memory_device *mem = memory_device(dev);

	latch_x(&mem->latch);
	flush->ended = mem->beside_calls++ % 2;
	unlatch_x(&mem->latch);
	if (flush->ended)
		flush->result = memory_flush(dev);
}

static int memory_flush_end(struct dev_flush *flush)
{
	return flush->ended ? flush->result : memory_flush(flush->dev);
}

static void memory_close(struct device *dev)
{
	struct memory_device *mem = memory_device(dev);

	check(!mem->map);
	forget_events(mem);
	free(mem->events);
	sparse_free(&mem->contents);
	free(mem);
}

static const struct device_ops memory_ops = {
	.read = memory_read,
	.write = memory_write,
	.flush = memory_flush,
	.close = memory_close,
	.flush_begin = memory_flush_begin,
	.flush_end = memory_flush_end,
	.discard = memory_discard,
	.open_lane = memory_open_lane,
	.map = memory_map,
	.persist = memory_persist,
	.unmap = memory_unmap,
};

/* Takes over the contents, also when it fails. */
static int open_with(struct device **out, uint64_t size_bytes, struct sparse contents,
		     const struct device *like)
{
	struct memory_device *mem = calloc(1, sizeof(*mem));

	if (!mem) {
		sparse_free(&contents);
		return -ENOMEM;
	}
	mem->dev.ops = &memory_ops;
	mem->dev.size_bytes = size_bytes;
	mem->dev.block_bytes = like ? like->block_bytes : SECTOR_SIZE;
	mem->dev.byte_addressable = like && like->byte_addressable;
	snprintf(mem->dev.path, sizeof(mem->dev.path), "memory");
	latch_init(&mem->latch, RANK_LEAF, 3); /* apart from others in LATCH=timed */
	mem->contents = contents;
	*out = &mem->dev;
	return 0;
}

int dev_open_memory(struct device **out, uint64_t size_bytes)
{
	struct sparse zeros;

	sparse_init(&zeros, size_bytes);
	return open_with(out, size_bytes, zeros, NULL);
}

void dev_memory_fail(struct device *dev, unsigned mask, uint64_t after, int error, bool sticky)
{
	struct memory_device *mem = memory_device(dev);

	check(mask == 0 || error != 0);
	latch_x(&mem->latch);
	mem->fault_mask = mask;
	mem->fault_after = after;
	mem->fault_error = error < 0 ? error : -error;
	mem->fault_sticky = sticky;
	unlatch_x(&mem->latch);
}

uint64_t dev_memory_fault_count(struct device *dev)
{
	struct memory_device *mem = memory_device(dev);
	uint64_t count;

	latch_s(&mem->latch);
	count = mem->fault_count;
	unlatch_s(&mem->latch);
	return count;
}

/* --- looking at a recording ---------------------------------------------- */

void dev_record_start(struct device *dev)
{
	struct memory_device *mem = memory_device(dev);

	latch_x(&mem->latch);
	forget_events(mem);
	mem->base = sparse_share(mem->contents);
	mem->recording = true;
	mem->recording_id++;
	unlatch_x(&mem->latch);
}

void dev_record_start_pair(struct device *dev, struct device *other)
{
	dev_record_start(dev);
	memory_device(other)->pair_order = &memory_device(dev)->order;
	dev_record_start(other);
}

size_t dev_record_before(struct device *dev, const struct device *other, size_t event)
{
	struct memory_device *mem = memory_device(dev), *pair = memory_device(other);
	uint64_t order = UINT64_MAX;
	size_t count = 0;

	latch_s(&pair->latch);
	if (event < pair->event_count)
		order = pair->events[event].order;
	unlatch_s(&pair->latch);
	latch_s(&mem->latch);
	while (count < mem->event_count && mem->events[count].order < order)
		count++;
	unlatch_s(&mem->latch);
	return count;
}

void dev_record_stop(struct device *dev)
{
	struct memory_device *mem = memory_device(dev);

	latch_x(&mem->latch);
	mem->recording = false;
	unlatch_x(&mem->latch);
}

size_t dev_record_count(const struct device *dev)
{
	struct memory_device *mem = memory_device(dev);
	size_t count;

	latch_s(&mem->latch);
	count = mem->event_count;
	unlatch_s(&mem->latch);
	return count;
}

void dev_memory_compare(struct device *dev, struct device *other,
			void (*differs)(void *arg, uint64_t block, const void *here,
					const void *there),
			void *arg)
{
	struct memory_device *mem = memory_device(dev), *against = memory_device(other);
	struct sparse here, there;

	latch_s(&mem->latch);
	here = sparse_share(mem->contents);
	unlatch_s(&mem->latch);
	latch_s(&against->latch);
	there = sparse_share(against->contents);
	unlatch_s(&against->latch);
	sparse_compare(&here, &there, differs, arg);
	sparse_free(&here);
	sparse_free(&there);
}

bool dev_record_is_flush(const struct device *dev, size_t event)
{
	struct memory_device *mem = memory_device(dev);
	bool is_flush;

	latch_s(&mem->latch);
	check(event < mem->event_count);
	is_flush = mem->events[event].kind == EVENT_FLUSH;
	unlatch_s(&mem->latch);
	return is_flush;
}

int dev_record_cut(struct device *dev, size_t event, struct device **out)
{
	struct memory_device *mem = memory_device(dev);
	struct sparse contents;

	latch_s(&mem->latch);
	contents = sparse_share(last_before(mem, event).after);
	unlatch_s(&mem->latch);
	return open_with(out, dev->size_bytes, contents, dev);
}

/* Latch held. */
static size_t undecided_count_locked(const struct memory_device *mem, size_t cut)
{
	struct event last = last_before(mem, cut);
	size_t count = 0;

	for (size_t i = last.settled; i < cut; i++)
		count += is_undecided(&mem->events[i], last.horizon, cut);
	return count;
}

size_t dev_record_undecided(struct device *dev, size_t event)
{
	struct memory_device *mem = memory_device(dev);
	size_t count;

	latch_s(&mem->latch);
	count = undecided_count_locked(mem, event);
	unlatch_s(&mem->latch);
	return count;
}

/* --- states after a power cut -------------------------------------------- */

/* splitmix64: any seed is as good as any other. */
static uint64_t next_random(uint64_t *seed)
{
	uint64_t x = *seed += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

struct state {
	const struct memory_device *mem;
	enum dev_cut_mode mode;
	uint64_t random;
	size_t chosen;           /* which of the undecided writes, for the modes with _ONE */
	uint64_t sectors;        /* for TORN_ONE: so many of its first ones; 0: random ones */
	size_t undecided_seen;
	struct sparse contents;
	bool deviates;           /* something was lost; until then `contents` is not in use */
};

enum fate { FATE_WHOLE, FATE_LOST, FATE_TORN };

static enum fate choose_fate(struct state *state)
{
	size_t index = state->undecided_seen++;

	switch (state->mode) {
	case CUT_PREFIX:
		return FATE_WHOLE;
	case CUT_DROP_ALL:
		return FATE_LOST;
	case CUT_DROP_ONE:
		return index == state->chosen ? FATE_LOST : FATE_WHOLE;
	case CUT_KEEP_ONE:
		return index == state->chosen ? FATE_WHOLE : FATE_LOST;
	case CUT_SUBSET:
		return next_random(&state->random) & 1 ? FATE_WHOLE : FATE_LOST;
	case CUT_TORN:
		/* Torn ones among whole and lost ones, which tearing alone would hardly give. */
		switch (next_random(&state->random) % 4) {
		case 0:
			return FATE_WHOLE;
		case 1:
			return FATE_LOST;
		default:
			return FATE_TORN;
		}
	case CUT_TORN_ONE:
		return index == state->chosen ? FATE_TORN : FATE_WHOLE;
	}
	check(false);
}

static void deviate_before(struct state *state, size_t event)
{
	if (!state->deviates)
		state->contents = sparse_share(last_before(state->mem, event).after);
	state->deviates = true;
}

static int redo_torn(struct state *state, const struct event *event)
{
	uint64_t at = event->offset;
	uint64_t end = event->offset + event->len;
	uint64_t torn_end = (at / SECTOR_SIZE + state->sectors) * SECTOR_SIZE;

	while (at < end) {
		uint64_t next = (at / SECTOR_SIZE + 1) * SECTOR_SIZE;
		int error = 0;

		next = next < end ? next : end;
		if (state->sectors > 0 ? next <= torn_end : next_random(&state->random) & 1)
			error = sparse_copy(&state->contents, &event->after, next - at, at);
		if (error)
			return error;
		at = next;
	}
	return 0;
}

static int redo(struct state *state, size_t index, enum fate fate)
{
	const struct event *event = &state->mem->events[index];

	if (event->kind != EVENT_WRITE)
		return 0;
	if (fate != FATE_WHOLE)
		deviate_before(state, index);
	if (fate == FATE_TORN)
		return redo_torn(state, event);
	if (fate == FATE_WHOLE && state->deviates)
		return sparse_copy(&state->contents, &event->after, event->len, event->offset);
	return 0;
}

/* Latch held.  The contents are the caller's on success. */
static int build_state_locked(struct state *state, size_t cut)
{
	struct event last = last_before(state->mem, cut);
	int error = 0;

	for (size_t i = last.settled; i < cut && !error; i++) {
		bool undecided = is_undecided(&state->mem->events[i], last.horizon, cut);

		error = redo(state, i, undecided ? choose_fate(state) : FATE_WHOLE);
	}
	if (!state->deviates)
		state->contents = sparse_share(last.after);
	if (error)
		sparse_free(&state->contents);
	return error;
}

int dev_record_state(struct device *dev, size_t event, enum dev_cut_mode mode, uint64_t seed,
		     struct device **out, bool *varies)
{
	struct memory_device *mem = memory_device(dev);
	struct state state = {.mem = mem, .mode = mode, .random = seed};
	size_t undecided;
	int error;

	latch_s(&mem->latch);
	undecided = undecided_count_locked(mem, event);
	state.chosen = undecided > 0 ? seed % undecided : 0;
	state.sectors = undecided > 0 && mode == CUT_TORN_ONE ? seed / undecided : 0;
	error = build_state_locked(&state, event);
	unlatch_s(&mem->latch);
	if (error)
		return error;
	*varies = state.deviates || mode == CUT_PREFIX;
	return open_with(out, dev->size_bytes, state.contents, dev);
}
