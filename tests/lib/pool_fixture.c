#include "tests/lib/pool_fixture.h"

#include "engine/pool_internal.h"

#include <stdlib.h>
#include <string.h>

static const uint8_t uuid[16] = "fixture uuid 16";

static void set_geometry(struct volume *volume, const struct fixture_params *params)
{
	struct geometry *geo = &volume->geo;

	geo->page_size = params->page_size ? params->page_size : PAGE_SIZE_MIN;
	geo->page_blocks = geo->page_size / BLOCK_SIZE;
	geo->group_blocks = FIXTURE_GROUP_PAGES * geo->page_blocks;
	geo->group_count = params->groups ? params->groups : 4;
	geo->dw_start = geo->page_blocks;
	geo->dw_slots = params->dw_slots ? params->dw_slots : 16;
	geo->log_start = geo->dw_start + (uint64_t)geo->dw_slots * geo->page_blocks;
	geo->log_bytes = params->log_bytes ? params->log_bytes : LOG_BYTES_MIN;
	geo->groups_start = geo->log_start + (geo->log_bytes + BLOCK_SIZE - 1) / BLOCK_SIZE;
	geo->groups_start = (geo->groups_start + geo->page_blocks - 1) / geo->page_blocks *
			    geo->page_blocks;
	geo->system_page = geo->groups_start + geo->page_blocks;
	geo->block_count = geo->groups_start + (uint64_t)geo->group_count * geo->group_blocks + 1;
}

static void make_volume(struct fixture *f, const struct fixture_params *params)
{
	struct volume *volume = aligned_alloc(_Alignof(struct volume), sizeof(*volume));

	check(volume != NULL);
	memset(volume, 0, sizeof(*volume));
	set_geometry(volume, params);
	memcpy(volume->tag, uuid, sizeof(volume->tag));
	volume->options.no_background = !params->background;
	volume->options.commit_interval_ns = params->commit_interval_ns;
	volume->options.log_buffer_bytes = params->log_buffer_bytes;
	epochs_init(&volume->epochs);
	*f = (struct fixture){.volume = volume};
}

void fixture_start(struct fixture *f, lsn_t lsn)
{
	struct log_options options = {
		.buffer_bytes = f->volume->options.log_buffer_bytes,
		.tally = FIXTURE_TALLY,
	};

	check(log_start(f->log, lsn, FIXTURE_GENERATION, &options) == 0);
	log_set_space_callback(f->log, flusher_want_space, f->flusher);
	check(flusher_start(f->flusher) == 0);
}

/* log_gen: of the log to read; the next one is that of this mount (INV-SB-3). */
static void open_parts(struct fixture *f, const struct fixture_params *params, uint64_t log_gen)
{
	struct volume *volume = f->volume;
	struct log_place place = {
		.dev = f->dev,
		.offset = volume->geo.log_start * BLOCK_SIZE,
		.size_bytes = volume->geo.log_bytes,
		.stats = &volume->stats,
	};
	uint64_t frames = params->frames ? params->frames : POOL_FRAMES_MIN;

	memcpy(place.uuid, uuid, sizeof(uuid));
	volume->dev = volume->base_dev = volume->log_dev = f->dev;
	f->dev->stats = &volume->stats;
	check(log_open(&volume->log, &place, log_gen, log_gen + 1) == 0);
	check(pool_open(&volume->pool, volume, frames * volume->geo.page_size) == 0);
	check(flusher_open(&volume->flusher, volume) == 0);
	f->log = volume->log;
	f->pool = volume->pool;
	f->flusher = volume->flusher;
}

void fixture_open(struct fixture *f, const struct fixture_params *params)
{
	struct geometry *geo;

	make_volume(f, params);
	geo = &f->volume->geo;
	check(dev_open_memory(&f->dev, geo->block_count * BLOCK_SIZE) == 0);
	check(log_format(f->dev, geo->log_start * BLOCK_SIZE, geo->log_bytes, uuid,
			 FIXTURE_GENERATION - 1) == 0);
	open_parts(f, params, FIXTURE_GENERATION - 1);
	if (!params->no_log)
		fixture_start(f, log_found_checkpoint(f->log)->lsn);
}

void fixture_reopen(struct fixture *f, const struct fixture_params *params, struct device *dev)
{
	make_volume(f, params);
	f->dev = dev;
	open_parts(f, params, FIXTURE_GENERATION);
}

struct device *fixture_crash(struct fixture *f)
{
	struct device *dev = f->dev;

	flusher_stop(f->flusher);
	flusher_close(f->flusher);
	pool_close(f->pool);
	log_close(f->log);
	dev->stats = NULL;
	free(f->volume);
	return dev;
}

void fixture_close(struct fixture *f)
{
	dev_close(fixture_crash(f));
}

uint64_t fixture_page(const struct fixture *f, unsigned n)
{
	const struct geometry *geo = &f->volume->geo;
	unsigned group = 0;

	/* Group 0 has two pages of its own, the others one. */
	n += 2;
	while (n >= FIXTURE_GROUP_PAGES) {
		n -= FIXTURE_GROUP_PAGES - 1;
		group++;
	}
	check(group < geo->group_count);
	return geo->groups_start + (uint64_t)group * geo->group_blocks +
	       (uint64_t)n * geo->page_blocks;
}

/* ----------------------------------------------------------------- pages */

/* Calls `put` with each record that makes the value; body has BODY_BYTES_MAX. */
static void for_records(uint8_t *body, uint64_t value, bool init,
			void (*put)(void *arg, uint8_t type, size_t len), void *arg)
{
	static const uint8_t key[2] = {'a', 'b'};
	const struct key none = {0};
	le64 bytes = le64_make(value);

	if (init)
		put(arg, REC_PAGE_INIT,
		    redo_page_init(body, PAGE_TREE, FIXTURE_INDEX, 0, 0, &none, &none, 0));
	for (unsigned slot = 0; slot < 2; slot++) {
		if (init)
			put(arg, REC_INSERT,
			    redo_insert(body, slot, &key[slot], 1, &bytes, sizeof(bytes)));
		else
			put(arg, REC_UPDATE, redo_update(body, slot, &bytes, sizeof(bytes)));
	}
}

struct plain_page {
	const struct volume *volume;
	uint8_t *bytes, *body;
	uint64_t pageno;
};

static void put_plain(void *arg, uint8_t type, size_t len)
{
	struct plain_page *page = arg;

	check(page_redo(page->bytes, page->volume->geo.page_size, page->pageno, page->volume->tag,
			type, page->body, len) == 0);
}

static void fill(const struct volume *volume, uint8_t *bytes, uint64_t pageno, uint64_t value)
{
	struct plain_page page = {
		.volume = volume,
		.bytes = bytes,
		.body = malloc(BODY_BYTES_MAX(volume->geo.page_size)),
		.pageno = pageno,
	};

	check(page.body != NULL);
	for_records(page.body, value, true, put_plain, &page);
	free(page.body);
}

void fixture_fill(struct frame *frame, uint64_t value)
{
	fill(frame->pool->volume, frame->data, atomic_load(&frame->pageno), value);
}

void fixture_put_page(struct fixture *f, uint64_t pageno, uint64_t value, lsn_t lsn)
{
	uint32_t page_size = f->volume->geo.page_size;
	uint8_t *bytes = calloc(1, page_size);

	check(bytes != NULL);
	fill(f->volume, bytes, pageno, value);
	page_set_lsn(bytes, lsn);
	page_seal(bytes, page_size);
	check(dev_write(f->dev, bytes, page_size, pageno * BLOCK_SIZE) == 0);
	free(bytes);
}

static uint64_t value_of(const void *page)
{
	le64 value[2];

	check(le16_get(tree_page(page)->slot_count) == 2);
	for (unsigned slot = 0; slot < 2; slot++) {
		struct page_entry entry;

		page_entry(page, slot, &entry);
		check(entry.value_len == sizeof(value[0]));
		memcpy(&value[slot], entry.value, sizeof(value[0]));
	}
	check(le64_get(value[0]) == le64_get(value[1]));
	return le64_get(value[0]);
}

bool fixture_judge(const struct fixture *f, const void *page, uint64_t pageno, uint64_t *value)
{
	if (page_verify(page, f->volume->geo.page_size, pageno, f->volume->tag, NULL))
		return false;
	*value = value_of(page);
	return true;
}

bool fixture_value_in_place(struct fixture *f, uint64_t pageno, uint64_t *value)
{
	uint32_t page_size = f->volume->geo.page_size;
	uint8_t *page = malloc(page_size);
	bool valid;

	check(page && dev_read(f->dev, page, page_size, pageno * BLOCK_SIZE) == 0);
	valid = fixture_judge(f, page, pageno, value);
	free(page);
	return valid;
}

uint64_t fixture_value(const struct frame *frame)
{
	return value_of(frame->data);
}

struct frame *fixture_get(struct fixture *f, uint64_t pageno)
{
	struct frame *frame;

	check(pool_get(f->pool, pageno, PAGE_TREE, FIXTURE_INDEX, &frame) == 0);
	return frame;
}

struct frame *fixture_new(struct fixture *f, uint64_t pageno)
{
	struct frame *frame;

	check(pool_new(f->pool, pageno, PAGE_TREE, FIXTURE_INDEX, 0, &frame) == 0);
	return frame;
}

/* ------------------------------------------------------------------ mtrs */

struct staged {
	struct redo *redo;
	struct frame *frame;
};

static void put_staged(void *arg, uint8_t type, size_t len)
{
	struct staged *staged = arg;

	redo_page(staged->redo, staged->frame, type, len);
}

void fixture_stage(struct redo *redo, struct frame *frame, uint64_t value, bool init)
{
	struct staged staged = {.redo = redo, .frame = frame};

	for_records(redo->body, value, init, put_staged, &staged);
}

lsn_t fixture_change(struct fixture *f, const uint64_t *pagenos, unsigned count, uint64_t value,
		     bool init)
{
	struct frame *frames[REDO_PAGES_MAX];
	struct redo redo;

	check(pool_take_tickets(f->pool, count) == 0);
	check(redo_begin(&redo, f->volume, FIXTURE_MTR_BYTES(count)) == 0);
	for (unsigned i = 0; i < count; i++)
		frames[i] = init ? fixture_new(f, pagenos[i]) : fixture_get(f, pagenos[i]);
	for (unsigned i = 0; i < count; i++)
		latch_x(&frames[i]->latch);
	for (unsigned i = 0; i < count; i++)
		fixture_stage(&redo, frames[i], value, init);
	redo_commit(&redo);
	for (unsigned i = 0; i < count; i++) {
		unlatch_x(&frames[i]->latch);
		pool_put(frames[i]);
	}
	redo_end(&redo);
	pool_give_tickets(f->pool, count);
	return redo.lsn;
}

lsn_t fixture_change_one(struct fixture *f, unsigned n, uint64_t value, bool init)
{
	uint64_t pageno = fixture_page(f, n);

	return fixture_change(f, &pageno, 1, value, init);
}

uint64_t fixture_read_one(struct fixture *f, unsigned n)
{
	struct frame *frame = fixture_get(f, fixture_page(f, n));
	uint64_t value;

	latch_s(&frame->latch);
	value = fixture_value(frame);
	unlatch_s(&frame->latch);
	pool_put(frame);
	return value;
}

uint64_t fixture_stat(const struct fixture *f, enum stat_id stat)
{
	return stat_read(&f->volume->stats, stat);
}

struct pool_counts fixture_counts(struct fixture *f)
{
	struct pool_counts counts;

	pool_count(f->pool, &counts);
	return counts;
}
