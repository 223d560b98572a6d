/*
 * The memory device against a plain array, and the states after a power cut against an
 * oracle that computes them from a list of writes.
 */
#include "engine/base/error.h"
#include "engine/base/os.h"
#include "engine/dev/device.h"
#include "tests/unit/dev_random.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 4096u

/* --- the memory device ------------------------------------------------------- */

static struct device *open_memory(uint64_t size_bytes)
{
	struct device *dev;

	cr_assert_eq(dev_open_memory(&dev, size_bytes), 0);
	return dev;
}

static void expect_contents(struct device *dev, const unsigned char *expected)
{
	unsigned char *actual = malloc(dev->size_bytes);

	cr_assert_eq(dev_read(dev, actual, dev->size_bytes, 0), 0);
	cr_assert_eq(memcmp(actual, expected, dev->size_bytes), 0);
	free(actual);
}

/* Without recording, while recording, and in clones, which change nothing but themselves. */
Test(memory, like_an_array)
{
	enum { SIZE = 200 * BLOCK + 123 };
	static unsigned char array[SIZE], clone_array[SIZE], piece[3 * BLOCK];
	struct device *dev = open_memory(SIZE);
	struct device *clone = NULL;

	for (unsigned round = 0; round < 600; round++) {
		size_t len = 1 + random_below(sizeof(piece));
		uint64_t offset = random_below(SIZE - len);

		fill_random(piece, len);
		memcpy(array + offset, piece, len);
		cr_assert_eq(dev_write(dev, piece, len, offset), 0);
		if (clone) {
			len = 1 + random_below(len);
			memcpy(clone_array + offset, piece + 1, len - 1);
			cr_assert_eq(dev_write(clone, piece + 1, len - 1, offset), 0);
		}
		if (round == 200)
			dev_record_start(dev);
		if (round % 100 == 50 && round > 200) {
			dev_close(clone);
			cr_assert_eq(dev_record_cut(dev, dev_record_count(dev), &clone), 0);
			memcpy(clone_array, array, SIZE);
		}
		if (round % 50 == 0 && clone)
			expect_contents(clone, clone_array);
	}
	expect_contents(dev, array);
	dev_close(dev);
	expect_contents(clone, clone_array);
	dev_close(clone);
}

Test(memory, is_sparse)
{
	uint64_t size = 1ull << 50;
	struct device *dev = open_memory(size);
	char buf[4] = "end", back[4];

	cr_assert_eq(dev_write(dev, buf, 4, size - 4), 0);
	cr_assert_eq(dev_read(dev, back, 4, size - 4), 0);
	cr_assert_str_eq(back, "end");
	cr_assert_eq(dev_read(dev, back, 4, size / 2), 0);
	cr_assert_eq(back[0], 0);
	dev_close(dev);
}

Test(memory, faults)
{
	struct device *dev = open_memory(16 * BLOCK);
	char buf[2] = "x";
	struct dev_request batch[] = {
		{.buf = "a", .len = 1, .offset = 0, .is_write = true},
		{.buf = "b", .len = 1, .offset = 1, .is_write = true},
		{.buf = "c", .len = 1, .offset = 2, .is_write = true},
	};

	dev_memory_fail(dev, FAULT_WRITE, 1, ENOSPC, false);
	cr_assert_eq(dev_read(dev, buf, 1, 0), 0);
	cr_assert_eq(dev_batch(dev, batch, 3), -ENOSPC);
	cr_assert_eq(batch[0].result, 0);
	cr_assert_eq(batch[1].result, -ENOSPC);
	cr_assert_eq(batch[2].result, 0);
	cr_assert_eq(dev_memory_fault_count(dev), 1);
	cr_assert_eq(dev_read(dev, buf, 1, 1), 0);
	cr_assert_eq(buf[0], 0);

	dev_memory_fail(dev, FAULT_READ | FAULT_FLUSH, 0, -EIO, true);
	cr_assert_eq(dev_read(dev, buf, 1, 1), -EIO);
	cr_assert_eq(dev_flush(dev), -EIO);
	cr_assert_eq(dev_write(dev, buf, 1, 1), 0);
	dev_memory_fail(dev, 0, 0, 0, false);
	cr_assert_eq(dev_read(dev, buf, 1, 1), 0);
	cr_assert_eq(dev_flush(dev), 0);
	cr_assert_eq(dev_memory_fault_count(dev), 3);
	dev_close(dev);
}

/* --- recordings ---------------------------------------------------------------- */

#define DISK_BYTES (16 * BLOCK)
#define HISTORY_MAX 40

/* One thread's history: a write is undecided if no flush follows it before the cut. */
static struct {
	bool is_flush;
	uint64_t offset;
	size_t len;
	unsigned char data[2 * BLOCK];
} history[HISTORY_MAX];

static unsigned char base_contents[DISK_BYTES];

static struct device *record_history(void)
{
	struct device *dev = open_memory(DISK_BYTES);

	fill_random(base_contents, sizeof(base_contents));
	cr_assert_eq(dev_write(dev, base_contents, DISK_BYTES, 0), 0);
	dev_record_start(dev);
	for (size_t i = 0; i < HISTORY_MAX; i++) {
		history[i].is_flush = random_below(5) == 0;
		history[i].len = 1 + random_below(2 * BLOCK);
		if (random_below(2))
			history[i].len = BLOCK;
		history[i].offset = random_below(DISK_BYTES - history[i].len);
		if (random_below(2))
			history[i].offset = history[i].offset / BLOCK * BLOCK;
		fill_random(history[i].data, history[i].len);
		if (history[i].is_flush)
			cr_assert_eq(dev_flush(dev), 0);
		else
			cr_assert_eq(dev_write(dev, history[i].data, history[i].len,
					       history[i].offset), 0);
	}
	dev_record_stop(dev);
	cr_assert_eq(dev_write(dev, "later", 5, 0), 0);
	cr_assert_eq(dev_record_count(dev), HISTORY_MAX);
	for (size_t i = 0; i < HISTORY_MAX; i++)
		cr_assert_eq(dev_record_is_flush(dev, i), history[i].is_flush);
	return dev;
}

static size_t flushed_before(size_t cut)
{
	while (cut > 0 && !history[cut - 1].is_flush)
		cut--;
	return cut;
}

/* Applies [0, cut), of the undecided ones only those of which the bit is set. */
static void apply(unsigned char *contents, size_t cut, uint64_t kept)
{
	size_t first = flushed_before(cut);

	memcpy(contents, base_contents, DISK_BYTES);
	for (size_t i = 0; i < cut; i++)
		if (!history[i].is_flush && (i < first || kept >> (i - first) & 1))
			memcpy(contents + history[i].offset, history[i].data, history[i].len);
}

static bool state_is(struct device *dev, size_t cut, enum dev_cut_mode mode, uint64_t seed,
		     uint64_t kept)
{
	unsigned char expected[DISK_BYTES], actual[DISK_BYTES];
	struct device *state;
	bool varies;

	apply(expected, cut, kept);
	cr_assert_eq(dev_record_state(dev, cut, mode, seed, &state, &varies), 0);
	cr_assert_eq(dev_read(state, actual, DISK_BYTES, 0), 0);
	dev_close(state);
	return memcmp(actual, expected, DISK_BYTES) == 0;
}

static bool varies_at(struct device *dev, size_t cut, enum dev_cut_mode mode, uint64_t seed)
{
	struct device *state;
	bool varies;

	cr_assert_eq(dev_record_state(dev, cut, mode, seed, &state, &varies), 0);
	dev_close(state);
	return varies;
}

Test(record, whole_writes)
{
	for (random_state = 1; random_state < 20; random_state++) {
		uint64_t seed_of_run = random_state;
		struct device *dev = record_history();

		for (size_t cut = 0; cut <= HISTORY_MAX; cut++) {
			size_t undecided = cut - flushed_before(cut);
			struct device *prefix;
			unsigned char expected[DISK_BYTES];

			cr_assert_eq(dev_record_undecided(dev, cut), undecided);
			apply(expected, cut, UINT64_MAX);
			cr_assert_eq(dev_record_cut(dev, cut, &prefix), 0);
			expect_contents(prefix, expected);
			dev_close(prefix);
			cr_assert(state_is(dev, cut, CUT_PREFIX, 0, UINT64_MAX));
			cr_assert(state_is(dev, cut, CUT_DROP_ALL, 0, 0));
			cr_assert_eq(varies_at(dev, cut, CUT_DROP_ALL, 0), undecided > 0);
			cr_assert_eq(varies_at(dev, cut, CUT_KEEP_ONE, 0), undecided > 1);
			for (size_t i = 0; i < undecided; i++) {
				cr_assert(state_is(dev, cut, CUT_DROP_ONE, i, ~(1ull << i)));
				cr_assert(state_is(dev, cut, CUT_KEEP_ONE, i, 1ull << i));
				cr_assert(varies_at(dev, cut, CUT_DROP_ONE, i));
			}
		}
		dev_close(dev);
		random_state = seed_of_run;
	}
}

/* Each state is one of the possible ones, and each of these comes up. */
Test(record, subsets)
{
	struct device *dev = record_history();

	for (size_t cut = 0; cut <= HISTORY_MAX; cut++) {
		size_t undecided = dev_record_undecided(dev, cut);
		uint64_t seen = 0;

		if (undecided > 4)
			continue;
		for (uint64_t seed = 0; seed < 200; seed++) {
			uint64_t kept = 0;

			while (!state_is(dev, cut, CUT_SUBSET, seed, kept))
				cr_assert_lt(++kept, 1ull << undecided);
			seen |= 1ull << kept;
			if (!varies_at(dev, cut, CUT_SUBSET, seed))
				cr_assert(state_is(dev, cut, CUT_SUBSET, seed, UINT64_MAX));
		}
		if (undecided > 0)
			cr_assert_gt(__builtin_popcountll(seen), 1);
	}
	dev_close(dev);
}

/* Each sector holds something that was there at some moment since the last flush. */
Test(record, torn)
{
	struct device *dev = record_history();
	unsigned torn = 0;

	for (size_t cut = 0; cut <= HISTORY_MAX; cut++) {
		if (dev_record_undecided(dev, cut) != 1)
			continue;
		for (uint64_t seed = 0; seed < 40; seed++) {
			unsigned char lost[DISK_BYTES], whole[DISK_BYTES], actual[DISK_BYTES];
			struct device *state;
			bool varies, is_lost = true, is_whole = true;

			apply(lost, cut, 0);
			apply(whole, cut, 1);
			cr_assert_eq(dev_record_state(dev, cut, CUT_TORN, seed, &state, &varies),
				     0);
			cr_assert_eq(dev_read(state, actual, DISK_BYTES, 0), 0);
			for (size_t at = 0; at < DISK_BYTES; at += 512) {
				bool as_lost = memcmp(actual + at, lost + at, 512) == 0;
				bool as_whole = memcmp(actual + at, whole + at, 512) == 0;

				cr_assert(as_lost || as_whole);
				is_lost &= as_lost;
				is_whole &= as_whole;
			}
			cr_assert(varies || is_whole);
			torn += !is_lost && !is_whole;
			dev_close(state);
		}
	}
	cr_assert_gt(torn, 0);
	dev_close(dev);
}

/* One write of many in part: each of its prefixes, or a mixture; all others whole. */
Test(record, one_torn)
{
	struct device *dev = record_history();

	for (size_t cut = 0; cut <= HISTORY_MAX; cut++) {
		size_t undecided = dev_record_undecided(dev, cut), chosen = undecided / 2;
		size_t first = flushed_before(cut), event = first + chosen;
		size_t sectors;

		/* What lies below the chosen one must not be covered by later ones. */
		if (undecided == 0 || chosen != undecided - 1)
			continue;
		sectors = history[event].offset / 512;
		sectors = (history[event].offset + history[event].len + 511) / 512 - sectors;
		for (size_t k = 1; k <= sectors + 1; k++) {
			unsigned char expected[DISK_BYTES], lost[DISK_BYTES], actual[DISK_BYTES];
			size_t from = (history[event].offset / 512 + k) * 512;
			struct device *state;
			bool varies;

			apply(expected, cut, UINT64_MAX);
			apply(lost, cut, ~(1ull << chosen));
			if (from < DISK_BYTES)
				memcpy(expected + from, lost + from, DISK_BYTES - from);
			cr_assert_eq(dev_record_state(dev, cut, CUT_TORN_ONE,
						      chosen + k * undecided, &state, &varies), 0);
			cr_assert_eq(dev_read(state, actual, DISK_BYTES, 0), 0);
			cr_assert_eq(memcmp(actual, expected, DISK_BYTES), 0);
			dev_close(state);
		}
	}
	dev_close(dev);
}

static void note_difference(void *arg, uint64_t block, const void *here, const void *there)
{
	static const unsigned char zeros[4096];

	if (memcmp(here ? here : zeros, there ? there : zeros, 4096) != 0)
		*(uint64_t *)arg |= 1ull << block;
}

Test(memory, compared)
{
	struct device *dev = open_memory(1 << 20), *other;
	uint64_t differing = 0;

	cr_assert_eq(dev_write(dev, "one", 3, 5 * 4096), 0);
	dev_record_start(dev);
	cr_assert_eq(dev_record_cut(dev, 0, &other), 0);
	dev_memory_compare(dev, other, note_difference, &differing);
	cr_assert_eq(differing, 0);
	cr_assert_eq(dev_write(dev, "one", 3, 5 * 4096), 0);
	cr_assert_eq(dev_write(dev, "two", 3, 6 * 4096), 0);
	cr_assert_eq(dev_write(other, "three", 5, 50 * 4096), 0);
	dev_memory_compare(dev, other, note_difference, &differing);
	cr_assert_eq(differing, 1ull << 6 | 1ull << 50);
	dev_close(other);
	dev_close(dev);
}

Test(record, states_can_be_recorded)
{
	struct device *dev = record_history();
	struct device *state, *again;
	unsigned char expected[DISK_BYTES];
	bool varies;

	cr_assert_eq(dev_record_state(dev, HISTORY_MAX, CUT_DROP_ALL, 0, &state, &varies), 0);
	dev_close(dev);
	apply(expected, HISTORY_MAX, 0);
	dev_record_start(state);
	cr_assert_eq(dev_write(state, "recovered", 9, 5000), 0);
	cr_assert_eq(dev_write(state, "twice", 5, 5000), 0);
	cr_assert_eq(dev_record_state(state, 2, CUT_DROP_ONE, 1, &again, &varies), 0);
	dev_close(state);
	memcpy(expected + 5000, "recovered", 9);
	expect_contents(again, expected);
	dev_close(again);
}

/* --- which writes a flush covers ------------------------------------------------ */

static struct device *hooked;

/* Flushes once while a write is in flight, or writes once while a flush is. */
static void meet_in_flight(const char *name)
{
	static bool done;

	if (done)
		return;
	if (strcmp(name, "memory:write-applied") == 0) {
		done = true;
		check(dev_flush(hooked) == 0);
	} else if (strcmp(name, "memory:flush-begun") == 0) {
		done = true;
		check(dev_write(hooked, "b", 1, BLOCK) == 0);
	}
}

static char byte_after_loss(struct device *dev, uint64_t offset)
{
	struct device *state;
	bool varies;
	char byte;

	cr_assert_eq(dev_record_state(dev, dev_record_count(dev), CUT_DROP_ALL, 0, &state,
				      &varies), 0);
	cr_assert_eq(dev_read(state, &byte, 1, offset), 0);
	dev_close(state);
	return byte;
}

static struct device *open_hooked(void)
{
	hooked = open_memory(DISK_BYTES);
	dev_record_start(hooked);
	return hooked;
}

Test(record, write_in_flight_at_flush)
{
	struct device *dev = open_hooked();

	os_linux_set_point_handler(meet_in_flight);
	cr_assert_eq(dev_write(dev, "a", 1, 0), 0);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(dev_record_count(dev), 2);
	cr_assert(dev_record_is_flush(dev, 1));
	cr_assert_eq(byte_after_loss(dev, 0), 0);
	cr_assert_eq(dev_flush(dev), 0);
	cr_assert_eq(byte_after_loss(dev, 0), 'a');
	dev_close(dev);
}

Test(record, write_during_flush)
{
	struct device *dev = open_hooked();

	cr_assert_eq(dev_write(dev, "a", 1, 0), 0);
	os_linux_set_point_handler(meet_in_flight);
	cr_assert_eq(dev_flush(dev), 0);
	os_linux_set_point_handler(NULL);
	cr_assert_eq(dev_record_count(dev), 3);
	cr_assert(dev_record_is_flush(dev, 2));
	cr_assert_eq(byte_after_loss(dev, 0), 'a');
	cr_assert_eq(byte_after_loss(dev, BLOCK), 0);
	cr_assert_eq(dev_record_undecided(dev, 2), 2);
	cr_assert_eq(dev_record_undecided(dev, 3), 1);
	dev_close(dev);
}

Test(record, undecided_below_durable)
{
	struct device *dev = open_hooked();
	char byte = 'c';

	os_linux_set_point_handler(meet_in_flight);
	cr_assert_eq(dev_write(dev, "a", 1, 0), 0); /* a flush passes it by */
	os_linux_set_point_handler(NULL);
	dev_memory_fail(dev, FAULT_FLUSH, 0, EIO, false);
	cr_assert_eq(dev_flush(dev), -EIO);
	cr_assert_eq(dev_write(dev, &byte, 1, 0), 0);
	cr_assert_eq(dev_flush(dev), 0);
	cr_assert_eq(byte_after_loss(dev, 0), 'c');
	dev_close(dev);
}

/* A discard is a write of something that nobody can guess; a power cut may lose it. */
Test(record, discards_are_writes)
{
	unsigned char was[BLOCK], found[BLOCK], zeros[BLOCK] = {0};
	struct device *dev, *state;
	bool varies;

	cr_assert_eq(dev_open_memory(&dev, 16 * BLOCK), 0);
	fill_random(was, sizeof(was));
	cr_assert_eq(dev_write(dev, was, sizeof(was), BLOCK), 0);
	dev_record_start(dev);
	cr_assert_eq(dev_discard(dev, BLOCK, BLOCK), 0);
	cr_assert_eq(dev_record_count(dev), 1);
	cr_assert_eq(dev_record_undecided(dev, 1), 1);
	cr_assert_eq(dev_record_state(dev, 1, CUT_PREFIX, 0, &state, &varies), 0);
	cr_assert_eq(dev_read(state, found, BLOCK, BLOCK), 0);
	cr_assert_neq(memcmp(found, was, BLOCK), 0);
	cr_assert_neq(memcmp(found, zeros, BLOCK), 0);
	dev_close(state);
	cr_assert_eq(dev_record_state(dev, 1, CUT_DROP_ALL, 0, &state, &varies), 0);
	cr_assert_eq(dev_read(state, found, BLOCK, BLOCK), 0);
	cr_assert_eq(memcmp(found, was, BLOCK), 0);
	dev_close(state);
	cr_assert_eq(dev_flush(dev), 0);
	cr_assert_eq(dev_record_undecided(dev, 2), 0);
	dev_memory_fail(dev, FAULT_DISCARD, 0, -EIO, false);
	cr_assert_eq(dev_write(dev, was, sizeof(was), BLOCK), 0);
	cr_assert_eq(dev_discard(dev, BLOCK, BLOCK), -EIO);
	cr_assert_eq(dev_open_overlay(&state, dev), 0);
	cr_assert_eq(dev_discard(state, BLOCK, BLOCK), -EOPNOTSUPP);
	dev_close(state);
}

Test(record, failed_flush_loses)
{
	struct device *dev = open_hooked();

	cr_assert_eq(dev_write(dev, "a", 1, 0), 0);
	cr_assert_eq(dev_flush(dev), 0);
	cr_assert_eq(dev_write(dev, "b", 1, BLOCK), 0);
	dev_memory_fail(dev, FAULT_FLUSH, 0, EIO, false);
	cr_assert_eq(dev_flush(dev), -EIO);
	cr_assert_eq(dev_write(dev, "c", 1, 2 * BLOCK), 0);
	cr_assert_eq(dev_flush(dev), 0);
	cr_assert_eq(byte_after_loss(dev, 0), 'a');
	cr_assert_eq(byte_after_loss(dev, BLOCK), 0);
	cr_assert_eq(byte_after_loss(dev, 2 * BLOCK), 'c');
	dev_close(dev);
}
