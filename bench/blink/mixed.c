/*
 * Mixed loads on the set of small rows, 8 threads.
 *
 *	insert_delete  a run of 1,024 neighbours is inserted, or deleted, by one thread at
 *	               a time: pages split, and are merged again
 *	read_write     95 of 100 operations look up a row, the others insert one
 *	large          reads and inserts anywhere, the pool holds a tenth of the pages
 */
#include "bench/blink/blink.h"

#define RUN_ROWS 1024u

/* A row that the set was filled with. */
static uint64_t some_row(const struct set *set, uint64_t *random)
{
	return 2 * (random_of(random) % set->rows);
}

static void read_row(struct volume *volume, uint64_t number)
{
	uint8_t key[KEY_BYTES], value[PAYLOAD_MOST];
	size_t len;

	row_key(key, number);
	demand(tree_get(&volume->index[BENCH_INDEX], key, sizeof(key), value, sizeof(value), &len),
	       "look-up");
}

/*
 * Operation n belongs to the n / threads'th of its thread; a thread goes through runs
 * of its own, deletes what the set has there, then inserts it again, and so on.
 */
static int insert_delete(const struct load *load, struct volume *volume, uint64_t number,
			 uint64_t *random)
{
	uint64_t step = number / load->threads, thread = number % load->threads;
	uint64_t run = step / (2 * RUN_ROWS), at = step % (2 * RUN_ROWS);
	uint64_t runs = load->set->rows / load->threads / RUN_ROWS;
	uint64_t row = (thread * runs + run % runs) * RUN_ROWS + at % RUN_ROWS;

	(void)random;
	if (at < RUN_ROWS) {
		demand(delete_row(volume, 2 * row), "delete");
		return -1;
	}
	demand(insert_row(volume, 2 * row, load->set->payload), "insert");
	return 1;
}

/* Inserts the set's next row if operation `number` is one of `of`, else answers 0. */
static int insert_one_of(const struct load *load, struct volume *volume, uint64_t number,
			 unsigned of, uint64_t *random)
{
	uint64_t step = number / load->threads, thread = number % load->threads;

	if (step % of)
		return 0;
	return load_insert(load, volume, step / of * load->threads + thread, random);
}

static int read_write(const struct load *load, struct volume *volume, uint64_t number,
		      uint64_t *random)
{
	if (insert_one_of(load, volume, number, 20, random))
		return 1;
	read_row(volume, some_row(load->set, random));
	return 0;
}

static int large(const struct load *load, struct volume *volume, uint64_t number, uint64_t *random)
{
	if (insert_one_of(load, volume, number, 2, random))
		return 1;
	read_row(volume, some_row(load->set, random));
	return 0;
}

const struct mixed mixed_loads[] = {
	{"insert_delete", insert_delete, 0, 20},
	{"read_write", read_write, 0, 20},
	{"large", large, 10, 2},
};
const unsigned mixed_count = array_count(mixed_loads);
