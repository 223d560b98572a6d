/* Scrubbing: what it finds, what it must not find, each INV-SCRUB by a forced interleaving. */
#include "engine/flush_internal.h"
#include "engine/page.h"
#include "engine/pool.h"
#include "engine/purge.h"
#include "engine/scrub.h"
#include "engine/space.h"
#include "fs/owner.h"
#include "tests/lib/core_rig.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define BYTES (8u << 20)
#define PAGE 4096u
#define FILES 120u

static struct rig rig;
static struct scrub_progress result;
static struct scrub_damage last;
static unsigned damages;

static void found(void *arg, const struct scrub_damage *damage)
{
	(void)arg;
	last = *damage;
	damages++;
}

static int scrub(void)
{
	const struct scrub_params params = {.found = found};

	damages = 0;
	last = (struct scrub_damage){0};
	return scrub_run(rig.volume, &params, &result);
}

static uint64_t file(unsigned n, size_t len)
{
	uint8_t *bytes = malloc(len);
	char name[40];
	uint64_t ino;

	/* Long, so that there are many pages. */
	snprintf(name, sizeof(name), "a rather long name of file %u", n);
	ino = rig_file(&rig, INO_ROOT, name);
	cr_assert_neq(ino, 0);
	rig_fill(bytes, len, n);
	cr_assert_eq(rig_write(&rig, ino, 0, bytes, len), 0);
	free(bytes);
	return ino;
}

static void make_dirty(void)
{
	rig_open(&rig, BYTES, PAGE, false);
	for (unsigned n = 0; n < FILES; n++)
		file(n, n % 3 ? 60 : 13000);
	file(FILES, 600000);
}

static void make(void)
{
	make_dirty();
	cr_assert_eq(flush_everything(rig.volume->flusher), 0);
}

/* Damage is meant: nothing is verified at the end. */
static void drop(void)
{
	os_linux_set_point_handler(NULL);
	core_close(rig.core);
	volume_abandon(rig.volume);
	dev_close(rig.dev);
}

static void flip(uint64_t block, unsigned at)
{
	uint8_t byte;

	cr_assert_eq(dev_read(rig.dev, &byte, 1, block * BLOCK_SIZE + at), 0);
	byte ^= 0x10;
	cr_assert_eq(dev_write(rig.dev, &byte, 1, block * BLOCK_SIZE + at), 0);
}

static bool in_use(uint64_t block)
{
	const struct geometry *geo = &rig.volume->geo;
	static uint8_t page[PAGE_SIZE_MAX];
	uint64_t first;

	if (block < geo->groups_start || block >= geo->block_count - 1)
		return false;
	first = block - (block - geo->groups_start) % geo->group_blocks;
	cr_assert_eq(dev_read(rig.dev, page, geo->page_size, first * BLOCK_SIZE), 0);
	return page_bit(page, block - first);
}

/* ------------------------------------------------------------------- finding */

Test(scrub, nothing_is_wrong)
{
	make();
	cr_assert_eq(scrub(), 0);
	cr_assert_eq(damages, 0);
	cr_assert_gt(result.pages, 20);
	cr_assert_geq(result.blocks, 600000 / BLOCK_SIZE);
	cr_assert_eq(result.skipped, 0);
	cr_assert_eq(result.unreachable, 0);
	cr_assert_eq(stat_read(&rig.volume->stats, STAT_scrub_runs), 1);
	cr_assert_not(atomic_load(&rig.volume->corrupt));
	rig_close(&rig);
}

/* INV-SCRUB-1, -3: whatever is in the pool, one bit anywhere on the medium is found. */
Test(scrub, a_bit_in_any_block_that_is_in_use)
{
	const struct geometry *geo;
	unsigned blocks = 0;

	make();
	geo = &rig.volume->geo;
	for (uint64_t b = geo->groups_start; b < geo->block_count; b++) {
		bool super = b == geo->block_count - 1;

		if (!super && !in_use(b))
			continue;
		flip(b, (unsigned)(b * 37 % (super ? 1304 : BLOCK_SIZE)));
		cr_assert_eq(scrub(), 0);
		cr_assert_eq(damages, 1, "block %llu: %u", (unsigned long long)b, damages);
		cr_assert_eq(last.block, b);
		cr_assert_eq(result.bad_pages + result.bad_blocks, 1);
		flip(b, (unsigned)(b * 37 % (super ? 1304 : BLOCK_SIZE)));
		blocks++;
	}
	cr_assert_gt(blocks, 200);
	cr_assert(atomic_load(&rig.volume->corrupt));
	drop();
}

Test(scrub, superblock_and_log)
{
	uint64_t log;

	make();
	log = rig.volume->geo.log_start;
	flip(0, 40);
	cr_assert_eq(scrub(), 0);
	cr_assert_eq(damages, 1);
	cr_assert_eq(last.place, SCRUB_SUPERBLOCK);
	cr_assert_eq(last.block, 0);
	flip(0, 40);
	for (unsigned i = 0; i < 3; i++) {
		flip(log + i, 30);
		cr_assert_eq(scrub(), 0);
		cr_assert_eq(damages, 1, "%u", i);
		cr_assert_eq(last.place, SCRUB_LOG);
		cr_assert_eq(last.block, log + i);
		flip(log + i, 30);
	}
	cr_assert_eq(scrub(), 0);
	cr_assert_eq(damages, 0);
	drop();
}

/* What was said to be written and is not: as good as damage, though every checksum is right. */
Test(scrub, a_write_that_was_lost)
{
	uint8_t super[BLOCK_SIZE];

	make();
	cr_assert_eq(dev_read(rig.dev, super, sizeof(super), 0), 0);
	rig_reopen(&rig, false);
	cr_assert_eq(dev_write(rig.dev, super, sizeof(super), 0), 0);
	cr_assert_eq(scrub(), 0);
	cr_assert_eq(damages, 1);
	cr_assert_eq(last.place, SCRUB_SUPERBLOCK);
	drop();
}

/* INV-SCRUB-3: what is in memory only is written back, then judged. */
Test(scrub, what_was_not_in_place)
{
	uint64_t pages, blocks;

	make_dirty();
	cr_assert_eq(scrub(), 0);
	cr_assert_eq(damages, 0);
	cr_assert_eq(result.skipped, 0);
	pages = result.pages;
	blocks = result.blocks;
	cr_assert_eq(scrub(), 0);
	cr_assert_eq(result.pages, pages);
	cr_assert_eq(result.blocks, blocks);
	/* Pages that have a version in place are judged in the new one. */
	cr_assert_eq(rig_write(&rig, file(FILES + 1, 5), 0, "x", 1), 0);
	cr_assert_neq(pool_oldest_lsn(rig.volume->pool), UINT64_MAX);
	cr_assert_eq(scrub(), 0);
	cr_assert_eq(pool_oldest_lsn(rig.volume->pool), UINT64_MAX);
	rig_close(&rig);
}

/* Nothing of a tree is in the pool: what lies behind a page that cannot be read is judged. */
Test(scrub, pages_behind_a_damaged_one)
{
	uint64_t bad_leaf = 0, bad_inner = 0, pages;
	struct disk_page head;

	make();
	for (unsigned n = FILES + 1; n < 1500; n++)
		file(n, 60);
	rig_reopen(&rig, false);
	cr_assert_eq(scrub(), 0);
	pages = result.pages;
	for (uint64_t b = rig.volume->geo.groups_start; b < rig.volume->geo.block_count; b++) {
		if (!in_use(b))
			continue;
		cr_assert_eq(dev_read(rig.dev, &head, sizeof(head), b * BLOCK_SIZE), 0);
		if (le64_get(head.pageno) != b || head.type != PAGE_TREE ||
		    head.index != INDEX_DIRENTS || b == rig.volume->index[INDEX_DIRENTS].root)
			continue;
		if (head.level == 0 && b % 3 == 0)
			bad_leaf = b;
		if (head.level == 1)
			bad_inner = b;
	}
	cr_assert(bad_leaf);
	rig_reopen(&rig, false);
	flip(bad_leaf, 2000);
	cr_assert_eq(scrub(), 0);
	cr_assert_eq(damages, 1);
	cr_assert_eq(last.place, SCRUB_TREE_PAGE);
	cr_assert_eq(last.index, INDEX_DIRENTS);
	cr_assert_eq(last.block, bad_leaf);
	cr_assert_eq(result.pages, pages);
	flip(bad_leaf, 2000);
	if (bad_inner) {
		rig_reopen(&rig, false);
		flip(bad_inner, 2000);
		cr_assert_eq(scrub(), 0);
		cr_assert_eq(damages, 1);
		cr_assert_eq(last.block, bad_inner);
		cr_assert_eq(last.level, 1);
		/* All but perhaps the leaf that only it leads to. */
		cr_assert_geq(result.pages + result.unreachable, pages - 1);
	}
	drop();
}

Test(scrub, a_root_that_cannot_be_read)
{
	make();
	rig_reopen(&rig, false);
	flip(rig.volume->index[INDEX_XATTRS].root, 100);
	cr_assert_eq(scrub(), 0);
	cr_assert_eq(damages, 1);
	cr_assert_eq(last.block, rig.volume->index[INDEX_XATTRS].root);
	cr_assert_eq(last.index, INDEX_XATTRS);
	drop();
}

Test(scrub, owners_are_named)
{
	char text[OWNER_TEXT_BYTES], want[OWNER_TEXT_BYTES];
	static char value[20000];
	uint64_t dir, ino;

	rig_open(&rig, BYTES, PAGE, false);
	dir = rig_dir(&rig, INO_ROOT, "dir");
	ino = rig_file(&rig, dir, "file");
	cr_assert_eq(rig_write(&rig, ino, 0, value, sizeof(value)), 0);
	cr_assert_eq(core_setxattr(rig.core, VIEW_BASE, ino, "user.big", value,
				   sizeof(value), 0), 0);
	cr_assert_eq(flush_everything(rig.volume->flusher), 0);
	for (uint64_t b = rig.volume->geo.groups_start; b < rig.volume->geo.block_count - 1; b++) {
		uint8_t block[BLOCK_SIZE];
		struct disk_page head;

		if (!in_use(b))
			continue;
		cr_assert_eq(dev_read(rig.dev, block, sizeof(block), b * BLOCK_SIZE), 0);
		memcpy(&head, block, sizeof(head));
		if (le64_get(head.pageno) == b) /* file data is zeros here */
			continue;
		flip(b, 9);
	}
	cr_assert_eq(scrub(), 0);
	cr_assert_eq(damages, 10);
	owner_text(rig.volume, last.lob, text);
	snprintf(want, sizeof(want), "/dir/file, inode %llu, attribute user.big",
		 (unsigned long long)ino);
	cr_assert_str_eq(text, want);
	owner_text(rig.volume, last.lob - 1, text);
	snprintf(want, sizeof(want), "/dir/file, inode %llu", (unsigned long long)ino);
	cr_assert_str_eq(text, want);
	owner_text(rig.volume, 123456, text);
	cr_assert_str_eq(text, "contents 123456 of no file");
	drop();
}

/* ---------------------------------------------------------- no false alarms */

static const char *wanted_point;
static void (*wanted_action)(void);
static bool done;

static void act(const char *point)
{
	if (done || strcmp(point, wanted_point) != 0)
		return;
	done = true;
	wanted_action();
}

static void scrub_with(const char *point, void (*action)(void))
{
	wanted_point = point;
	wanted_action = action;
	done = false;
	os_linux_set_point_handler(act);
	cr_assert_eq(scrub(), 0);
	os_linux_set_point_handler(NULL);
	cr_assert(done, "%s", point);
}

/* Every file goes, and the old blocks become others'. */
static void rewrite_all(void)
{
	static uint8_t bytes[100000];
	int rc = 0;

	for (unsigned n = 0; n <= FILES; n++) {
		char name[40];

		snprintf(name, sizeof(name), "a rather long name of file %u", n);
		cr_assert_eq(rig_unlink(&rig, INO_ROOT, name), 0);
	}
	rig_purge(&rig);
	for (unsigned i = 0; i < 3; i++)
		(void)!space_drain(rig.volume->space);
	for (unsigned n = 1000; rc == 0; n++) {
		rig_fill(bytes, sizeof(bytes), n);
		rc = rig_write(&rig, file(n, 10), 0, bytes, sizeof(bytes));
	}
	cr_assert_eq(rc, -ENOSPC);
	cr_assert_eq(flush_everything(rig.volume->flusher), 0);
}

/* INV-SCRUB-2, blocks: freed, and used again, between the look at the leaf and the read. */
Test(scrub, contents_that_go_meanwhile)
{
	make();
	scrub_with("scrub:leaf", rewrite_all);
	cr_assert_eq(damages, 0);
	cr_assert_gt(result.skipped, 0);
	rig_close(&rig);
}

/* INV-SCRUB-2, pages: the same for the pages of the indexes. */
Test(scrub, pages_that_go_meanwhile)
{
	make();
	scrub_with("scrub:page", rewrite_all);
	cr_assert_eq(damages, 0);
	rig_close(&rig);
	make();
	scrub_with("scrub:begun", rewrite_all);
	cr_assert_eq(damages, 0);
	rig_close(&rig);
}

static struct os_thread writer;
static _Atomic uint32_t located;
static _Atomic uint32_t torn;
static uint64_t torn_page;

/* Writes a page in place, as the flusher does: in two halves, in its turn. */
static void write_page(void *arg)
{
	struct flusher *flusher = rig.volume->flusher;

	(void)arg;
	flusher_pause(flusher);
	flip(torn_page, 3000);
	atomic_store(&torn, 1);
	os_wake(&torn, 1);
	while (atomic_load(&flusher->turn_queue.waiters) == 0 && !atomic_load(&located))
		sched_yield();
	if (!atomic_load(&located))
		flip(torn_page, 3000);
	flusher_resume(flusher);
}

static void begin_write(void)
{
	cr_assert_eq(os_thread_start(&writer, "writer", write_page, NULL), 0);
	while (!atomic_load(&torn))
		os_wait(&torn, 0, OS_FOREVER);
}

static void write_beside(const char *point)
{
	act(point);
	if (strcmp(point, "scrub:located") == 0 || strcmp(point, "scrub:judging") == 0)
		atomic_store(&located, 1);
}

static void beside_a_write(const char *point, uint64_t pageno)
{
	torn_page = pageno;
	atomic_store(&torn, 0);
	atomic_store(&located, 0);
	wanted_point = point;
	wanted_action = begin_write;
	done = false;
	os_linux_set_point_handler(write_beside);
	cr_assert_eq(scrub(), 0);
	os_linux_set_point_handler(NULL);
	os_thread_join(&writer);
	cr_assert(done);
	cr_assert_eq(damages, 0);
	cr_assert_not(atomic_load(&rig.volume->corrupt));
	rig_close(&rig);
}

/*
 * INV-SCRUB-2, the flusher's turn: a page is half written at the first look, by somebody
 * who has the turn, and whole when the turn is to be had.
 */
Test(scrub, a_page_that_is_being_written)
{
	/* Indexes of one page each, so that nothing but the torn page wants the turn. */
	rig_open(&rig, BYTES, PAGE, false);
	file(1, 60);
	beside_a_write("scrub:page", rig.volume->index[INDEX_INODES].root);
	rig_open(&rig, BYTES, PAGE, false);
	file(1, 60);
	beside_a_write("scrub:log_judged", rig.volume->geo.groups_start);
}

/* New pages that have never been written: put off, then judged. */
static void more_files(void)
{
	for (unsigned n = 2000; n < 2400; n++)
		file(n, 60);
}

Test(scrub, pages_that_are_not_in_place_yet)
{
	uint64_t searches;

	make();
	scrub_with("scrub:begun", more_files);
	cr_assert_eq(damages, 0);
	cr_assert_eq(result.skipped, 0);
	searches = stat_read(&rig.volume->stats, STAT_scrub_searches);
	cr_assert_gt(searches, 10);
	rig_close(&rig);
}

/* ------------------------------------------------------------------- the rest */

static bool always(void *arg)
{
	return ++*(unsigned *)arg > 20;
}

Test(scrub, cancelled)
{
	unsigned asked = 0;
	const struct scrub_params params = {.cancelled = always, .arg = &asked};

	make();
	cr_assert_eq(scrub_run(rig.volume, &params, &result), -ECANCELED);
	cr_assert_lt(result.pages, 30);
	rig_close(&rig);
}

/* The n-th read fails, once: what can be looked at again is not called damaged. */
Test(scrub, a_read_that_fails)
{
	unsigned places = 0;
	uint64_t failed;

	make();
	for (uint64_t n = 0;; n++) {
		failed = dev_memory_fault_count(rig.dev);
		dev_memory_fail(rig.dev, FAULT_READ, n, -EIO, false);
		cr_assert_eq(scrub(), 0);
		if (dev_memory_fault_count(rig.dev) == failed)
			break;
		cr_assert_leq(damages, 1);
		/* Superblocks and the log are looked at once, where nobody writes. */
		cr_assert(damages == 0 || last.place == SCRUB_SUPERBLOCK ||
			  last.place == SCRUB_LOG, "read %llu: place %d, block %llu: %s",
			  (unsigned long long)n, (int)last.place, (unsigned long long)last.block,
			  last.why);
		places += damages;
	}
	dev_memory_fail(rig.dev, 0, 0, 0, false);
	cr_assert_eq(places, 5);
	drop();
}

Test(scrub, read_only_and_failed_volumes)
{
	make();
	rig_reopen_read_only(&rig);
	cr_assert_eq(scrub(), -EROFS);
	rig_close(&rig);
	make();
	volume_fail(rig.volume, "a test", -EIO);
	cr_assert_eq(scrub(), -EIO);
	drop();
}
