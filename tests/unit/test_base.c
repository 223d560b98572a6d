/*
 * The leaf layer: codes, checksums, clocks, threads, counters, and the checker
 * of latch order, which must abort where the order is broken.
 */
#include "engine/base/crc32c.h"
#include "engine/base/endian.h"
#include "engine/base/error.h"
#include "engine/base/latch.h"
#include "engine/base/message.h"
#include "engine/base/os.h"
#include "engine/base/stats.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- error, crc32c, endian ------------------------------------------------ */

Test(error, public_form)
{
	cr_assert_eq(error_errno(0), 0);
	cr_assert_eq(error_errno(-ENOSPC), -ENOSPC);
	cr_assert_eq(error_errno(-BE_CRC), -EIO);
	cr_assert_eq(error_errno(-BE_DAMAGE), -EUCLEAN);
	cr_assert_eq(error_errno(-BE_TOOSMALL), -EINVAL);
	for (int code = BE_FIRST + 1; code < BE_LAST; code++) {
		cr_assert_lt(error_errno(-code), 0);
		cr_assert_gt(error_errno(-code), -BE_FIRST);
		cr_assert_gt(strlen(error_text(-code)), 0);
	}
}

Test(error, text)
{
	cr_assert_str_eq(error_text(-BE_CRC), "checksum mismatch");
	cr_assert_str_eq(error_text(-ENOENT), "No such file or directory");
	cr_assert_str_eq(error_text(-3000), "unknown error");
	cr_assert_str_eq(error_text(-BE_LAST), "unknown error");
}

Test(error, positive_is_a_bug, .signal = SIGABRT)
{
	(void)error_errno(5);
}

Test(crc32c, known_value_and_parts)
{
	char data[1000];
	uint32_t whole;

	cr_assert_eq(crc32c(0, "123456789", 9), 0xe3069283);
	cr_assert_eq(crc32c(0, NULL, 0), 0);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 7);
	whole = crc32c(0, data, sizeof(data));
	for (size_t cut = 0; cut <= sizeof(data); cut += 13)
		cr_assert_eq(crc32c(crc32c(0, data, cut), data + cut, sizeof(data) - cut), whole);
}

/* Polynomial 0x82f63b78, bit by bit: shares nothing with the library. */
static uint32_t crc32c_slow(const unsigned char *data, size_t len)
{
	uint32_t crc = ~0u;

	for (size_t i = 0; i < len; i++) {
		crc ^= data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return ~crc;
}

Test(crc32c, agrees_with_definition)
{
	unsigned char data[300];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * i + 3);
	for (size_t len = 0; len < sizeof(data); len++)
		cr_assert_eq(crc32c(0, data, len), crc32c_slow(data, len));
}

Test(endian, bytes)
{
	unsigned char key[8];

	cr_assert_eq(le16_get(le16_make(0x1234)), 0x1234);
	cr_assert_eq(le32_make(0x12345678).b[0], 0x78);
	cr_assert_eq(le64_get(le64_make(0x0123456789abcdefull)), 0x0123456789abcdefull);
	be64_put(key, 0x0123456789abcdefull);
	cr_assert_eq(key[0], 0x01);
	cr_assert_eq(be64_get(key), 0x0123456789abcdefull);
}

/* --- os -------------------------------------------------------------------- */

static int64_t ns_of(struct timespec t)
{
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

Test(os, clocks_and_random)
{
	struct timespec early, now, late;
	uint64_t before = os_mono_ns();
	unsigned char zeros[64] = {0}, bytes[64] = {0};

	cr_assert_geq(os_mono_ns(), before);
	cr_assert_gt(os_realtime().tv_sec, 1500000000);
	/* INV-OS-4: between two looks at the kernel's own clock. */
	clock_gettime(CLOCK_REALTIME_COARSE, &early);
	now = os_realtime();
	clock_gettime(CLOCK_REALTIME_COARSE, &late);
	cr_assert_leq(ns_of(early), ns_of(now));
	cr_assert_leq(ns_of(now), ns_of(late));
	cr_assert_geq(os_processors(), 1);
	os_random_bytes(bytes, sizeof(bytes));
	cr_assert_neq(memcmp(bytes, zeros, sizeof(bytes)), 0);
}

static void note_os(void *arg)
{
	*(const struct os **)arg = os_current();
}

Test(os, threads_inherit)
{
	struct os mine = os_linux;
	const struct os *seen = NULL;
	struct os_thread thread;

	cr_assert_eq(os_current(), &os_linux);
	os_set_current(&mine);
	cr_assert_eq(os_thread_start(&thread, "a name beyond the limit", note_os, &seen), 0);
	os_thread_join(&thread);
	cr_assert_eq(seen, &mine);
	os_set_current(NULL);
	cr_assert_eq(os_current(), &os_linux);
}

static const char *last_point;

static void note_point(const char *name)
{
	last_point = name;
}

Test(os, points)
{
	os_point("test:before");
	os_linux_set_point_handler(note_point);
	os_point("test:seen");
	os_linux_set_point_handler(NULL);
	os_point("test:after");
	cr_assert_str_eq(last_point, "test:seen");
}

Test(os, waitq_times_out)
{
	struct waitq q = {0};
	uint64_t start = os_mono_ns();

	/* May wake early by contract, but not for ever. */
	for (int i = 0; i < 100 && os_mono_ns() - start < 2000000; i++)
		waitq_wait(&q, waitq_ticket(&q), 2000000);
	cr_assert_geq(os_mono_ns() - start, 2000000);
}

Test(os, waitq_remembers_a_wakeup)
{
	struct waitq q = {0};
	uint32_t ticket = waitq_ticket(&q);

	waitq_wake_all(&q);
	waitq_wait(&q, ticket, OS_FOREVER);
	cr_assert_neq(waitq_ticket(&q), ticket);
}

/* --- counters and messages -------------------------------------------------- */

static struct stats stats;

static void count_thousand(void *arg)
{
	(void)arg;
	for (int i = 0; i < 1000; i++)
		stat_add(&stats, STAT_mtr_commits, 2);
}

Test(stats, exact_over_threads)
{
	struct os_thread thread[20]; /* more than shards */

	for (size_t i = 0; i < array_count(thread); i++)
		cr_assert_eq(os_thread_start(&thread[i], "count", count_thousand, NULL), 0);
	for (size_t i = 0; i < array_count(thread); i++)
		os_thread_join(&thread[i]);
	cr_assert_eq(stat_read(&stats, STAT_mtr_commits), 40000);
	cr_assert_eq(stat_read(&stats, STAT_mtr_retries), 0);
	cr_assert_str_eq(stat_name(STAT_mtr_commits), "mtr_commits");
	cr_assert_lt(stats_shard(), STAT_SHARDS);
}

static size_t captured(char *text, size_t size, int priority, const char *what)
{
	int saved = dup(STDERR_FILENO);
	int end[2];
	ssize_t n;

	cr_assert_eq(pipe(end), 0);
	dup2(end[1], STDERR_FILENO);
	errno = ENOSPC;
	message(priority, "%s", what);
	cr_assert_eq(errno, ENOSPC);
	dup2(saved, STDERR_FILENO);
	close(end[1]);
	n = read(end[0], text, size - 1);
	close(end[0]);
	close(saved);
	text[n > 0 ? n : 0] = '\0';
	return strlen(text);
}

Test(message, one_line)
{
	char text[4096];
	char big[3000];

	message_init("mkfs.blinkfs", false);
	captured(text, sizeof(text), LOG_ERR, "two\nlines");
	cr_assert_str_eq(text, "mkfs.blinkfs: two lines\n");
	memset(big, 'a', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	cr_assert_lt(captured(text, sizeof(text), LOG_ERR, big), 1200);
	cr_assert_eq(text[strlen(text) - 1], '\n');
	message_quiet(LOG_ERR);
	cr_assert_eq(captured(text, sizeof(text), LOG_NOTICE, "unwanted"), 0);
	cr_assert_gt(captured(text, sizeof(text), LOG_ERR, "wanted"), 0);
}

/* --- latches ----------------------------------------------------------------- */

static struct latch one, two;

static void init_two(enum rank rank1, uint64_t order1, enum rank rank2, uint64_t order2)
{
	latch_init(&one, rank1, order1);
	latch_init(&two, rank2, order2);
}

Test(latch, modes)
{
	init_two(RANK_INODE, 1, RANK_INODE, 2);
	latch_s(&one);
	cr_assert(latch_held(&one));
	cr_assert_not(latch_held_x(&one));
	cr_assert_not(latch_try_x(&one));
	cr_assert(latch_try_s(&one));
	unlatch_s(&one);
	unlatch_s(&one);
	cr_assert_not(latch_held(&one));
	latch_x(&one);
	cr_assert(latch_held_x(&one));
	cr_assert_not(latch_try_s(&one));
	cr_assert_not(latch_try_x(&one));
	unlatch_x(&one);
	cr_assert(latch_try_x(&one));
	unlatch_x(&one);
	latch_set_order(&one, 7);
}

Test(latch, order_may_rise)
{
	init_two(RANK_INODE, 1, RANK_INODE, 2);
	latch_x(&one);
	latch_s(&two);
	unlatch_x(&one);
	unlatch_s(&two);
	init_two(RANK_INODE, 9, RANK_PAGE, 1);
	latch_x(&one);
	latch_x(&two);
	unlatch_x(&two);
	unlatch_x(&one);
}

Test(latch, pages_of_one_order)
{
	init_two(RANK_PAGE, 5, RANK_PAGE, 5);
	latch_x(&one);
	latch_x(&two);
	unlatch_x(&one);
	unlatch_x(&two);
	latch_check_none_from(RANK_MOUNT);
}

Test(latch, try_goes_anywhere)
{
	init_two(RANK_INODE, 2, RANK_LOG, 0);
	latch_x(&two);
	cr_assert(latch_try_x(&one));
	unlatch_x(&one);
	unlatch_x(&two);
}

Test(latch, rank_falls, .signal = SIGABRT)
{
	init_two(RANK_LOG, 0, RANK_PAGE, 0);
	latch_s(&one);
	latch_s(&two);
}

Test(latch, order_falls, .signal = SIGABRT)
{
	init_two(RANK_INODE, 2, RANK_INODE, 1);
	latch_s(&one);
	latch_s(&two);
}

Test(latch, order_equal, .signal = SIGABRT)
{
	init_two(RANK_INODE, 2, RANK_INODE, 2);
	latch_s(&one);
	latch_s(&two);
}

Test(latch, page_order_falls, .signal = SIGABRT)
{
	init_two(RANK_PAGE, 2, RANK_PAGE, 1);
	latch_s(&one);
	latch_s(&two);
}

Test(latch, page_twice, .signal = SIGABRT)
{
	init_two(RANK_PAGE, 2, RANK_PAGE, 2);
	latch_s(&one);
	latch_s(&one);
}

Test(latch, leaf_is_innermost, .signal = SIGABRT)
{
	init_two(RANK_LEAF, 0, RANK_LEAF, 0);
	latch_s(&one);
	latch_s(&two);
}

/* What a try has taken out of order counts as held for what comes next. */
Test(latch, after_try, .signal = SIGABRT)
{
	init_two(RANK_LOG, 0, RANK_POOL, 0);
	cr_assert(latch_try_x(&one));
	latch_x(&two);
}

Test(latch, release_of_other_mode, .signal = SIGABRT)
{
	init_two(RANK_LOG, 0, RANK_POOL, 0);
	latch_s(&one);
	unlatch_x(&one);
}

Test(latch, release_of_not_held, .signal = SIGABRT)
{
	init_two(RANK_LOG, 0, RANK_POOL, 0);
	unlatch_s(&one);
}

Test(latch, order_of_held_is_fixed, .signal = SIGABRT)
{
	init_two(RANK_LOG, 0, RANK_POOL, 0);
	latch_s(&one);
	latch_set_order(&one, 1);
}

Test(latch, order_rises_while_held, .signal = SIGABRT)
{
	init_two(RANK_PAGE, 2, RANK_PAGE, 3);
	latch_x(&one);
	latch_set_order(&one, 3);
	latch_x(&two);
	unlatch_x(&two);
	latch_set_order(&one, 4);
	latch_x(&two);
}

Test(latch, order_falls_while_held, .signal = SIGABRT)
{
	init_two(RANK_PAGE, 2, RANK_PAGE, 3);
	latch_x(&one);
	latch_set_order(&one, 1);
}

Test(latch, none_from)
{
	init_two(RANK_INODE, 1, RANK_LOG, 0);
	latch_s(&one);
	latch_check_none_from(RANK_RANGE);
	unlatch_s(&one);
}

Test(latch, none_from_finds, .signal = SIGABRT)
{
	init_two(RANK_INODE, 1, RANK_LOG, 0);
	latch_s(&two);
	latch_check_none_from(RANK_RANGE);
}

static struct waitq queue;

static void wait_a_moment(void)
{
	waitq_wait(&queue, waitq_ticket(&queue), 1000);
}

Test(latch, wait_under_inode)
{
	init_two(RANK_INODE, 1, RANK_PAGE, 0);
	latch_x(&one);
	wait_a_moment();
	unlatch_x(&one);
	latch_note_epoch(1);
	latch_note_epoch(-1);
	wait_a_moment();
}

Test(latch, wait_under_page, .signal = SIGABRT)
{
	init_two(RANK_INODE, 1, RANK_PAGE, 0);
	latch_s(&two);
	wait_a_moment();
}

Test(latch, wait_under_tried_page, .signal = SIGABRT)
{
	init_two(RANK_INODE, 1, RANK_PAGE, 0);
	cr_assert(latch_try_s(&two));
	wait_a_moment();
}

Test(latch, wait_in_epoch, .signal = SIGABRT)
{
	latch_note_epoch(1);
	wait_a_moment();
}

static void keep_latched(void *arg)
{
	latch_s(arg);
}

Test(latch, thread_ends_holding, .signal = SIGABRT)
{
	struct os_thread thread;

	init_two(RANK_INODE, 1, RANK_PAGE, 0);
	cr_assert_eq(os_thread_start(&thread, "keeper", keep_latched, &one), 0);
	os_thread_join(&thread);
}

static struct latch many[129];

static void latch_many(size_t count)
{
	for (size_t i = 0; i < count; i++) {
		latch_init(&many[i], RANK_PAGE, 0);
		latch_s(&many[i]);
	}
}

Test(latch, many)
{
	latch_many(128);
	for (size_t i = 0; i < 128; i += 2)
		unlatch_s(&many[i]);
	for (size_t i = 0; i < 128; i++)
		cr_assert_eq(latch_held(&many[i]), i % 2 == 1);
}

Test(latch, too_many, .signal = SIGABRT)
{
	latch_many(129);
}

Test(latch, names)
{
	cr_assert_str_eq(rank_name(RANK_PAGE), "RANK_PAGE");
	cr_assert_eq(latch_wait_count(RANK_PAGE), 0);
}
