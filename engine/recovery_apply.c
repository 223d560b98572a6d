/*
 * Redo and write-back.
 *
 * Pages are redone in order of their numbers, in slices that several threads
 * take one after the other: what a slice has to read is in flight at once.
 * Each page is redone by one thread, in one go: its records are in LSN order,
 * and those of different pages do not depend on each other.  Meanwhile one
 * thread writes full batches back; where frames are short, whoever needs one
 * does the same.
 *
 * That a page is in place before others are redone does no harm: a crash finds
 * the same log, the same cut, and a page LSN that says what it has already.  A
 * page whose first surviving record initialises it is not read, now or then.
 */
#include "engine/recovery_internal.h"

#include "engine/flush.h"
#include "engine/pool.h"
#include "engine/tree_internal.h"

#include <errno.h>
#include <stdlib.h>

#define SLICE_PAGES 32u   /* one batch of reads */
#define WRITER_PAGES 512u /* fewer are written in the end, by a batch or two */

/* ------------------------------------------------------------ one page */

struct redo_iterator {
	const struct change_chunk *chunk;
	uint32_t at, left;
};

static struct redo_iterator redo_begin_at(const struct page_changes *page)
{
	return (struct redo_iterator){page->first, page->begin, page->count};
}

static bool redo_next(struct redo_iterator *it, const struct change **change)
{
	if (it->left == 0)
		return false;
	if (it->at == CHANGES_PER_CHUNK) {
		it->chunk = it->chunk->next;
		it->at = 0;
	}
	*change = &it->chunk->change[it->at++];
	it->left--;
	/* Records of one page lie all over the log. */
	if (it->left > 2 && it->at + 2 < CHANGES_PER_CHUNK)
		__builtin_prefetch(it->chunk->change[it->at + 2].record);
	return true;
}

/* The record behind a change, its body without the page number. */
static struct log_rec record_of(const struct change *change)
{
	/* The scan has walked it: its length is right. */
	struct log_cursor cursor = {change->record, SIZE_MAX / 2};
	struct log_rec rec;
	uint64_t pageno;
	size_t n;

	check(log_next_record(&cursor, &rec) == 1);
	n = varint_get(rec.body, rec.len, &pageno);
	check(n > 0);
	rec.body += n;
	rec.len -= n;
	return rec;
}

static bool is_initialised(const struct page_changes *page)
{
	return page->first->change[page->begin].voids; /* no FREE_PAGE is left */
}

static enum page_type type_of(const struct volume *volume, uint64_t pageno)
{
	const struct geometry *geo = &volume->geo;

	if (pageno == geo->system_page)
		return PAGE_SYSTEM;
	if ((pageno - geo->groups_start) % geo->group_blocks == 0)
		return PAGE_BITMAP;
	return PAGE_TREE;
}

static int get_page(struct volume *volume, const struct page_changes *page, struct frame **out)
{
	struct log_rec init;

	if (!is_initialised(page))
		return pool_get(volume->pool, page->pageno, type_of(volume, page->pageno),
				POOL_ANY_INDEX, out);
	init = record_of(&page->first->change[page->begin]);
	if (init.len < 3)
		return -BE_DAMAGE;
	/* type, index, level */
	return pool_new(volume->pool, page->pageno, init.body[0], init.body[1], init.body[2], out);
}

static int redo_changes(struct recovery *r, const struct page_changes *page, struct frame *frame)
{
	struct volume *volume = r->volume;
	lsn_t in_place = is_initialised(page) ? 0 : page_lsn(frame->data);
	struct redo_iterator it = redo_begin_at(page);
	const struct change *change;
	lsn_t end = 0;

	if (in_place > r->cut)
		return corrupt_at(volume, page->pageno, "recovery",
				  "page LSN past the end of the log");
	while (redo_next(&it, &change)) {
		struct log_rec rec;

		if (change->end <= in_place)
			continue;
		rec = record_of(change);
		if (page_redo(frame->data, volume->geo.page_size, page->pageno, volume->tag,
			      rec.type, rec.body, rec.len))
			return corrupt_at(volume, page->pageno, "recovery",
					  "log entry does not fit the page");
		end = change->end;
	}
	if (end == 0)
		return 0;
	/* No checkpoint is made of the flush list now; one LSN for all keeps it in our order. */
	if (is_initialised(page))
		pool_initialised(frame, log_found_checkpoint(volume->log)->lsn);
	pool_changed(frame, log_found_checkpoint(volume->log)->lsn, end);
	return 0;
}

/* Splits that the crash interrupted are completed once the volume is open. */
static int note_incomplete(struct recovery *r, const void *page)
{
	const struct disk_tree_page *tree = tree_page(page);
	struct volume *volume = r->volume;
	struct incomplete_split *grown;

	if (tree->head.type != PAGE_TREE || !page_is_incomplete(page) || page_is_dead(page))
		return 0;
	latch_x(&r->latch);
	grown = realloc(volume->incomplete, (volume->incomplete_count + 1) * sizeof(*grown));
	if (grown) {
		volume->incomplete = grown;
		grown += volume->incomplete_count++;
		grown->index = tree->head.index;
		grown->level = tree->head.level;
		page_low(page, &grown->low);
	}
	unlatch_x(&r->latch);
	return grown ? 0 : -ENOMEM;
}

static int redo_page_changes(struct recovery *r, const struct page_changes *page)
{
	struct volume *volume = r->volume;
	struct frame *frame;
	int rc = pool_take_tickets(volume->pool, 1);

	if (rc)
		return rc;
	rc = get_page(volume, page, &frame);
	if (rc)
		goto out;
	os_point("recovery:redo");
	latch_x(&frame->latch);
	rc = redo_changes(r, page, frame);
	if (rc == 0)
		rc = note_incomplete(r, frame->data);
	unlatch_x(&frame->latch);
	pool_put(frame);
	stat_add(&volume->stats, STAT_recovery_pages, 1);
out:
	pool_give_tickets(volume->pool, 1);
	return rc;
}

/* ------------------------------------------------------------ all of them */

/* What the slice will read.  Pages that are no tree pages are few. */
static void prefetch(struct recovery *r, size_t first, size_t end)
{
	uint64_t pageno[SLICE_PAGES] = {0};
	size_t count = 0;

	for (size_t i = first; i < end; i++)
		if (!is_initialised(r->page[i]) &&
		    type_of(r->volume, r->page[i]->pageno) == PAGE_TREE)
			pageno[count++] = r->page[i]->pageno;
	pool_prefetch(r->volume->pool, pageno, count, PAGE_TREE, POOL_ANY_INDEX);
}

static int redo_slice(void *arg, size_t i)
{
	struct recovery *r = arg;
	size_t first = i * SLICE_PAGES, end = first + SLICE_PAGES;

	if (end > r->page_count)
		end = r->page_count;
	prefetch(r, first, end);
	for (; first < end; first++) {
		int rc = redo_page_changes(r, r->page[first]);

		if (rc)
			return rc;
	}
	return 0;
}

static int compare_pages(const void *a, const void *b)
{
	const struct page_changes *const *left = a, *const *right = b;

	return (*left)->pageno < (*right)->pageno ? -1 : (*left)->pageno > (*right)->pageno;
}

static int list_pages(struct recovery *r)
{
	const struct change_table *table = &r->table;

	r->page = malloc((table->page_count + 1) * sizeof(r->page[0]));
	if (r->page == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < table->bucket_count; i++)
		for (struct page_changes *page = table->bucket[i]; page; page = page->next)
			if (page->first)
				r->page[r->page_count++] = page;
	qsort(r->page, r->page_count, sizeof(r->page[0]), compare_pages);
	return 0;
}

/* ------------------------------------------------------------ write-back */

/* Writes while the others redo: as long as there is a full batch. */
static void write_back(void *arg)
{
	struct recovery *r = arg;

	while (!atomic_load(&r->redone)) {
		uint32_t ticket = waitq_ticket(&r->writer_queue);

		/* An error has failed the volume; whoever recovers hears of it. */
		if (flush_recovered_batch(r->volume->flusher) > 0)
			continue;
		if (!atomic_load(&r->redone))
			waitq_wait(&r->writer_queue, ticket, WRITER_LOOK_NS);
	}
}

int recovery_apply(struct recovery *r)
{
	struct os_thread writer;
	bool writing = false;
	size_t failed;
	int rc = list_pages(r);

	if (rc)
		return rc;
	latch_init(&r->latch, RANK_LEAF, 0);
	if (!r->volume->options.no_background && r->page_count >= WRITER_PAGES)
		writing = os_thread_start(&writer, "recovery-write", write_back, r) == 0;
	rc = recovery_parallel(r, "groups of pages redone",
			       (r->page_count + SLICE_PAGES - 1) / SLICE_PAGES, redo_slice, r,
			       &failed);
	atomic_store(&r->redone, true);
	if (writing) {
		waitq_wake_all(&r->writer_queue);
		os_thread_join(&writer);
	}
	if (rc == 0)
		rc = flush_recovered(r->volume->flusher);
	free(r->page);
	return rc;
}
