/* Redo of log bytes on pages that lie anywhere (replay.h). */
#include "engine/replay.h"

#include "engine/base/error.h"
#include "engine/page.h"
#include "log/log_internal.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define PAGE 4096u
#define FIRST 16u
#define PAGES 8u
#define EPOCH 5u

/* A log that is made by hand, and the pages that it is replayed on. */
static struct bench {
	uint8_t bytes[1u << 16];
	size_t len;
	lsn_t from;
	uint8_t page[PAGES][PAGE];
	bool there[PAGES];
	unsigned writes, freed, data;
	lsn_t data_end;
} bench;

static int bench_read(void *arg, uint64_t pageno, void *page)
{
	(void)arg;
	memcpy(page, bench.page[pageno - FIRST], PAGE);
	return bench.there[pageno - FIRST];
}

static int bench_write(void *arg, uint64_t pageno, const void *page)
{
	(void)arg;
	memcpy(bench.page[pageno - FIRST], page, PAGE);
	bench.there[pageno - FIRST] = true;
	bench.writes++;
	return 0;
}

static int bench_freed(void *arg, uint64_t pageno)
{
	(void)arg, (void)pageno;
	bench.freed++;
	return 0;
}

static int bench_data(void *arg, lsn_t end, uint64_t start, uint32_t count, const le32 *crcs)
{
	(void)arg, (void)start, (void)crcs;
	bench.data += count;
	bench.data_end = end;
	return 0;
}

static const struct replay_target target = {
	.page_size = PAGE,
	.tag = "bench-t",
	.first_block = FIRST,
	.end_block = FIRST + PAGES,
	.read = bench_read,
	.write = bench_write,
	.freed = bench_freed,
	.data = bench_data,
};

static void start_at(lsn_t from)
{
	memset(&bench, 0, sizeof(bench));
	bench.from = from;
}

/* One record as an mtr; its end. */
static lsn_t mtr(uint8_t type, uint64_t pageno, const uint8_t *body, size_t len)
{
	static const struct log_shape shape = {.capacity = 1u << 20, .first_lsn = 0, .block = 512};
	uint8_t *at = bench.bytes + bench.len;
	uint8_t prefix[10];
	size_t n = varint_put(prefix, pageno), records;

	at[0] = type;
	records = 1 + varint_put(at + 1, n + len);
	memcpy(at + records, prefix, n);
	if (len > 0)
		memcpy(at + records + n, body, len);
	records += n + len;
	log_seal(&shape, log_records_crc(EPOCH, at, records), bench.from + bench.len + records,
		 at + records);
	bench.len += records + MTR_TRAILER_BYTES;
	return bench.from + bench.len;
}

static lsn_t init(uint64_t pageno)
{
	static uint8_t body[BODY_BYTES_MAX(PAGE)];
	const struct key none = {.len = 0};

	return mtr(REC_PAGE_INIT, pageno, body,
		   redo_page_init(body, PAGE_TREE, INDEX_INODES, 0, 0, &none, &none, 0));
}

static lsn_t insert(uint64_t pageno, unsigned slot, uint8_t key)
{
	static uint8_t body[BODY_BYTES_MAX(PAGE)];

	return mtr(REC_INSERT, pageno, body, redo_insert(body, slot, &key, 1, "v", 1));
}

static unsigned slots(uint64_t pageno)
{
	return le16_get(tree_page(bench.page[pageno - FIRST])->slot_count);
}

static struct replay run(lsn_t after, lsn_t until, int want)
{
	struct replay replay;
	size_t used = 0;

	cr_assert_eq(replay_begin(&replay, &target, EPOCH, bench.from, until), 0);
	replay.after = after;
	cr_assert_eq(replay_bytes(&replay, bench.bytes, bench.len, &used), want);
	return replay;
}

Test(replay, pages_are_built_and_stamped)
{
	struct replay replay;
	lsn_t end;

	start_at(1000);
	init(FIRST);
	insert(FIRST, 0, 'a');
	end = insert(FIRST, 1, 'b');
	replay = run(0, UINT64_MAX / 2, 0);
	cr_assert_eq(slots(FIRST), 2);
	cr_assert_eq(page_lsn(bench.page[0]), end);
	cr_assert_eq(page_verify(bench.page[0], PAGE, FIRST, target.tag, NULL), 0);
	cr_assert_eq(replay.next, end);
	replay_end(&replay);
}

/* INV-REPLAY-1: again, from any state between. */
Test(replay, what_a_page_has_is_not_done_twice)
{
	struct replay replay;

	start_at(1000);
	init(FIRST);
	insert(FIRST, 0, 'a');
	replay = run(0, UINT64_MAX / 2, 0);
	replay_end(&replay);
	insert(FIRST, 1, 'b');
	bench.writes = 0;
	for (unsigned i = 0; i < 3; i++) {
		replay = run(0, UINT64_MAX / 2, 0);
		replay_end(&replay);
		cr_assert_eq(slots(FIRST), 2);
	}
	cr_assert_eq(bench.writes, 1);
}

Test(replay, stops_at_the_wanted_lsn)
{
	struct replay replay;
	lsn_t middle;

	start_at(1000);
	init(FIRST);
	middle = insert(FIRST, 0, 'a');
	insert(FIRST, 1, 'b');
	replay = run(0, middle + 3, 0);
	cr_assert(replay.stopped);
	cr_assert_eq(replay.next, middle);
	cr_assert_eq(slots(FIRST), 1);
	replay_end(&replay);
}

/* The blocks of a former page may be a file's by now. */
Test(replay, what_lies_before_is_not_written)
{
	struct replay replay;
	uint8_t data[PAGE];
	lsn_t before;

	start_at(1000);
	init(FIRST);
	before = insert(FIRST, 0, 'a');
	memset(data, 'x', sizeof(data));
	memcpy(bench.page[0], data, sizeof(data));
	init(FIRST + 1);
	replay = run(before, UINT64_MAX / 2, 0);
	cr_assert_eq(memcmp(bench.page[0], data, sizeof(data)), 0);
	cr_assert(bench.there[1]);
	replay_end(&replay);
}

/* INV-REPLAY-2. */
Test(replay, a_missing_page_is_owed_until_it_is_freed)
{
	struct replay replay;
	uint64_t pageno;

	start_at(1000);
	insert(FIRST + 2, 0, 'a');
	replay = run(0, UINT64_MAX / 2, 0);
	cr_assert(replay_owes(&replay, &pageno));
	cr_assert_eq(pageno, FIRST + 2);
	bench.from = replay.next;
	bench.len = 0;
	mtr(REC_FREE_PAGE, FIRST + 2, NULL, 0);
	cr_assert_eq(replay_bytes(&replay, bench.bytes, bench.len, &(size_t){0}), 0);
	cr_assert_not(replay_owes(&replay, &pageno));
	cr_assert_eq(bench.freed, 1);
	cr_assert_eq(bench.writes, 0);
	replay_end(&replay);
}

Test(replay, data_is_passed_on)
{
	uint8_t body[16] = {3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
	struct replay replay;
	lsn_t end;

	start_at(1000);
	end = mtr(REC_DATA, FIRST, body, 13);
	replay = run(0, UINT64_MAX / 2, 0);
	cr_assert_eq(bench.data, 3);
	cr_assert_eq(bench.data_end, end);
	replay_end(&replay);
}

Test(replay, nonsense_is_damage)
{
	struct replay replay;
	uint8_t body[8] = {200, 1};

	start_at(1000);
	mtr(REC_DATA, FIRST, body, 8);
	replay = run(0, UINT64_MAX / 2, -BE_DAMAGE);
	replay_end(&replay);
	start_at(1000);
	insert(FIRST + PAGES, 0, 'a');
	replay = run(0, UINT64_MAX / 2, -BE_DAMAGE);
	replay_end(&replay);
	start_at(1000);
	init(FIRST);
	insert(FIRST, 7, 'a');
	replay = run(0, UINT64_MAX / 2, -BE_DAMAGE);
	replay_end(&replay);
}
