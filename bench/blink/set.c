/*
 * A set is filled once.  The memory device's contents are a value that is shared until
 * it is written (dev/sparse.h), so that the copies for the runs cost nothing.
 */
#include "bench/blink/blink.h"

#include "engine/flush.h"
#include "engine/pool_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define INSERTS_PER_100_LEAVES 96u
#define LEAF_SPARE 64u
/* The flusher begins at 3/8 of dirty frames and of the log: stay below both. */
#define FRAMES_PER_DIRTY 3u
#define LOG_BUFFER_BYTES (16u << 20) /* the largest: it is not the log's writer that is measured */
#define LOG_PER_INSERT (2u * PAGE_SIZE_DEFAULT)

void die(const char *what, int error)
{
	fprintf(stderr, "blink_bench: %s: %s\n", what, error_text(error));
	exit(1);
}

void demand(int rc, const char *what)
{
	if (rc)
		die(what, rc);
}

unsigned long from_environment(const char *name, unsigned long otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtoul(text, NULL, 10) : otherwise;
}

uint64_t random_of(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

void row_key(uint8_t key[KEY_BYTES], uint64_t number)
{
	be64_put(key, number);
}

uint64_t insert_number(const struct set *set, uint64_t i)
{
	uint64_t at = set->order[i % set->inserts];

	return 2 * (at * set->rows / set->inserts) + 1;
}

static void permute(struct set *set)
{
	uint64_t random = set->payload;

	set->order = malloc(set->inserts * sizeof(*set->order));
	demand(set->order ? 0 : -ENOMEM, "memory");
	for (uint64_t i = 0; i < set->inserts; i++) {
		uint64_t j = random_of(&random) % (i + 1);

		set->order[i] = set->order[j];
		set->order[j] = i;
	}
}

void set_make(struct set *set, unsigned payload, uint64_t rows)
{
	uint64_t leaves = rows * (payload + LEAF_SPARE) / PAGE_SIZE_DEFAULT + 64;
	uint64_t log_bytes = leaves * LOG_PER_INSERT + (64u << 20);
	struct format_params params = {
		.size_bytes = log_bytes + leaves * PAGE_SIZE_DEFAULT * 4 + (256u << 20),
		.log_bytes = log_bytes & ~UINT64_C(4095),
		.uuid = "bench-of-blink!",
		.hash_seed = "bench-hash-seed",
	};
	struct volume_options options = {.cache_bytes = leaves * PAGE_SIZE_DEFAULT * 2};
	struct volume *volume;
	struct device *copy;

	*set = (struct set){.payload = payload, .rows = rows};
	demand(dev_open_memory(&set->dev, params.size_bytes), "memory");
	demand(volume_format(set->dev, &params, NULL), "format");
	/* The volume closes its device; this one is to stay, so the volume gets a copy. */
	dev_record_start(set->dev);
	demand(dev_record_cut(set->dev, 0, &copy), "memory");
	demand(volume_open(&volume, copy, &options), "open");
	for (uint64_t row = 0; row < rows; row++)
		demand(insert_row(volume, 2 * row, payload), "fill");
	set->leaves = stat_read(&volume->stats, STAT_tree_splits_leaf) + 1;
	demand(volume_sync(volume), "sync");
	demand(flush_everything(volume->flusher), "flush");
	dev_record_start(copy);
	dev_close(set->dev);
	demand(dev_record_cut(copy, 0, &set->dev), "memory");
	dev_record_start(set->dev);
	volume_abandon(volume);
	set->inserts = set->leaves * INSERTS_PER_100_LEAVES / 100;
	set->cache_bytes = (set->leaves + set->inserts + 4096) * PAGE_SIZE_DEFAULT *
			   FRAMES_PER_DIRTY;
	permute(set);
}

void set_free(struct set *set)
{
	dev_close(set->dev);
	free(set->order);
}

/* ------------------------------------------------------------------ a copy */

static uint64_t count_forward(struct volume *volume, unsigned index)
{
	struct tree_cursor cursor;
	uint64_t rows = 0;
	int rc = tree_cursor_open(&cursor, &volume->index[index], "", 0);

	while (rc == 0 && (rc = tree_cursor_next(&cursor)) == 0)
		rows++;
	tree_cursor_close(&cursor);
	if (rc != -BE_END)
		die("scan", rc);
	return rows;
}

static uint64_t count_backward(struct volume *volume)
{
	struct tree_cursor cursor;
	uint64_t rows = 0;
	int rc = tree_cursor_open_before(&cursor, &volume->index[BENCH_INDEX], "", 0);

	while (rc == 0 && (rc = tree_cursor_prev(&cursor)) == 0)
		rows++;
	tree_cursor_close(&cursor);
	if (rc != -BE_END)
		die("scan", rc);
	return rows;
}

/* The first frames of the free list: nobody pays for their first use while he is measured. */
static void touch_frames(struct pool *pool, uint64_t count)
{
	latch_x(&pool->free_latch);
	for (struct frame *frame = pool->free_first; frame && count > 0;
	     frame = frame->hash_next, count--)
		memset(frame->data, 0, pool->page_size);
	unlatch_x(&pool->free_latch);
}

static void read_bitmaps(struct volume *volume)
{
	for (uint64_t group = 0; group < volume->geo.group_count; group++) {
		struct frame *frame;

		demand(pool_get(volume->pool,
				volume->geo.groups_start + group * volume->geo.group_blocks,
				PAGE_BITMAP, 0, &frame), "bitmap");
		pool_put(frame);
	}
}

struct volume *set_open(const struct set *set, enum smo_mode mode, uint64_t cache_bytes)
{
	struct volume_options options = {
		.cache_bytes = cache_bytes ? cache_bytes : set->cache_bytes,
		.log_buffer_bytes = LOG_BUFFER_BYTES,
		.smo = mode,
	};
	struct volume *volume;
	struct device *dev;

	demand(dev_record_cut(set->dev, 0, &dev), "memory");
	demand(volume_open(&volume, dev, &options), "open");
	if (cache_bytes)
		return volume;
	/* The other indexes, too: background threads look into them. */
	for (unsigned index = 0; index < INDEX_COUNT; index++)
		(void)count_forward(volume, index);
	if (count_forward(volume, BENCH_INDEX) != set->rows)
		die("the filled volume has not as many rows as were inserted", -EIO);
	read_bitmaps(volume);
	touch_frames(volume->pool, set->inserts + set->inserts / 8 + 1024);
	return volume;
}

static void print_problem(void *arg, const char *text)
{
	(void)arg;
	fprintf(stderr, "blink_bench: %s\n", text);
}

void set_check(struct volume *volume, uint64_t rows)
{
	struct check_report report = {.problem = print_problem};

	if (count_forward(volume, BENCH_INDEX) != rows || count_backward(volume) != rows)
		die("row count", -EIO);
	demand(tree_check(&volume->index[BENCH_INDEX], &report), "tree_check");
	if (report.problems)
		die("tree_check", -EIO);
}
