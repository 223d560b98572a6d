/*
 * The recording device between threads: two write and flush, one builds states.
 * Run under TSan.  Checks in each state that what was flushed before is there.
 */
#include "engine/base/os.h"
#include "engine/dev/device.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#define BLOCK 4096u
#define WRITERS 2u
#define ROUNDS 150u

static struct device *disk;
static _Atomic uint64_t flushed[WRITERS]; /* value that a completed flush has made durable */

static void yield(const char *name)
{
	(void)name;
	sched_yield();
}

/* Writer w counts in block w; other writes keep the cache from being trivial. */
static void write_and_flush(void *arg)
{
	unsigned w = *(unsigned *)arg;
	uint64_t block[BLOCK / sizeof(uint64_t)];

	for (uint64_t n = 1; n <= ROUNDS; n++) {
		for (unsigned i = 0; i < array_count(block); i++)
			block[i] = n;
		check(dev_write(disk, block, sizeof(block), w * BLOCK) == 0);
		check(dev_write(disk, block, 700, (WRITERS + w) * BLOCK + 100) == 0);
		check(dev_flush(disk) == 0);
		atomic_store(&flushed[w], n);
	}
}

static void build_states(void *arg)
{
	static const enum dev_cut_mode modes[] = {CUT_PREFIX, CUT_DROP_ALL, CUT_DROP_ONE,
						  CUT_KEEP_ONE, CUT_SUBSET, CUT_TORN};

	(void)arg;
	for (uint64_t seed = 0; seed < 4 * ROUNDS; seed++) {
		uint64_t value, durable[WRITERS];
		struct device *state;
		bool varies;

		for (unsigned w = 0; w < WRITERS; w++)
			durable[w] = atomic_load(&flushed[w]);
		check(dev_record_state(disk, dev_record_count(disk), modes[seed % 6], seed, &state,
				       &varies) == 0);
		for (unsigned w = 0; w < WRITERS; w++) {
			check(dev_read(state, &value, sizeof(value), w * BLOCK) == 0);
			check(value >= durable[w]);
		}
		value = seed;
		check(dev_write(state, &value, sizeof(value), 0) == 0);
		dev_close(state);
	}
}

int main(void)
{
	struct os_thread thread[WRITERS + 1];
	unsigned number[WRITERS];

	os_linux_set_point_handler(yield);
	check(dev_open_memory(&disk, 64 * BLOCK) == 0);
	dev_record_start(disk);
	for (unsigned w = 0; w < WRITERS; w++) {
		number[w] = w;
		check(os_thread_start(&thread[w], "writer", write_and_flush, &number[w]) == 0);
	}
	check(os_thread_start(&thread[WRITERS], "states", build_states, NULL) == 0);
	for (unsigned i = 0; i <= WRITERS; i++)
		os_thread_join(&thread[i]);
	printf("race_dev: ok, %zu events\n", dev_record_count(disk));
	dev_close(disk);
	return 0;
}
