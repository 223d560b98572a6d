/*
 * Page records grouped by page: see recovery_internal.h.
 *
 * Records are not copied; the table holds where they lie.  So the memory that
 * recovery takes is bounded by the log: its live part, and for each page record
 * in it 16 bytes (a record of an ordinary load has some 50), and for each page
 * that it names one struct and one chunk (less than the page itself has).
 *
 * INV-REC-1: which records are void is decided after the cut is fixed, from the
 * records below it: an initialisation that the cut takes away must not take
 * what came before it along.  So nothing is dropped while records are added.
 */
#include "engine/recovery_internal.h"

#include <errno.h>
#include <stdlib.h>

#define PIECE_BYTES (256u << 10)
#define BUCKETS_FIRST 1024u

struct table_piece {
	struct table_piece *next;
	_Alignas(16) uint8_t bytes[PIECE_BYTES];
};

static void *take(struct change_table *table, size_t bytes)
{
	struct table_piece *piece = table->pieces;

	bytes = (bytes + 15) / 16 * 16;
	if (table->piece_left < bytes) {
		piece = malloc(sizeof(*piece));
		if (piece == NULL)
			return NULL;
		piece->next = table->pieces;
		table->pieces = piece;
		table->piece_left = PIECE_BYTES;
	}
	table->piece_left -= bytes;
	return piece->bytes + table->piece_left;
}

static size_t bucket_of(const struct change_table *table, uint64_t pageno)
{
	return (size_t)((pageno * 0x9e3779b97f4a7c15ull) >> 20) & (table->bucket_count - 1);
}

struct page_changes *table_find(const struct change_table *table, uint64_t pageno)
{
	struct page_changes *page;

	if (table->bucket_count == 0)
		return NULL;
	page = table->bucket[bucket_of(table, pageno)];
	while (page && page->pageno != pageno)
		page = page->next;
	return page;
}

static int grow(struct change_table *table)
{
	struct page_changes **old = table->bucket;
	size_t old_count = table->bucket_count;
	size_t count = old_count ? old_count * 2 : BUCKETS_FIRST;
	struct page_changes **bucket = calloc(count, sizeof(*bucket));

	if (bucket == NULL)
		return -ENOMEM;
	table->bucket = bucket;
	table->bucket_count = count;
	for (size_t i = 0; i < old_count; i++) {
		struct page_changes *page, *next;

		for (page = old[i]; page; page = next) {
			size_t at = bucket_of(table, page->pageno);

			next = page->next;
			page->next = bucket[at];
			bucket[at] = page;
		}
	}
	free(old);
	return 0;
}

static struct page_changes *add_page(struct change_table *table, uint64_t pageno)
{
	struct page_changes *page;
	size_t at;

	if (table->page_count >= table->bucket_count && grow(table))
		return NULL;
	page = take(table, sizeof(*page));
	if (page == NULL)
		return NULL;
	at = bucket_of(table, pageno);
	*page = (struct page_changes){.pageno = pageno, .next = table->bucket[at]};
	table->bucket[at] = page;
	table->page_count++;
	return page;
}

int table_add(struct change_table *table, uint64_t pageno, const struct change *change)
{
	struct page_changes *page = table_find(table, pageno);
	struct change_chunk *chunk;

	if (page == NULL)
		page = add_page(table, pageno);
	if (page == NULL)
		return -ENOMEM;
	chunk = page->last;
	if (chunk == NULL || page->last_count == CHANGES_PER_CHUNK) {
		chunk = take(table, sizeof(*chunk));
		if (chunk == NULL)
			return -ENOMEM;
		chunk->next = NULL;
		page->last_count = 0;
		if (page->last)
			page->last->next = chunk;
		else
			page->first = chunk;
		page->last = chunk;
	}
	chunk->change[page->last_count++] = *change;
	table->changes++;
	return 0;
}

static void settle_page(struct page_changes *page, lsn_t cut)
{
	struct change_chunk *from = page->first;
	uint32_t begin = 0, count = 0;
	bool freed = false;

	for (struct change_chunk *chunk = page->first; chunk; chunk = chunk->next) {
		uint32_t in_chunk = chunk->next ? CHANGES_PER_CHUNK : page->last_count;

		for (uint32_t i = 0; i < in_chunk; i++) {
			const struct change *change = &chunk->change[i];

			if (change->end > cut)
				goto out;
			if (change->voids) {
				from = chunk;
				begin = i;
				count = 0;
				freed = *change->record == REC_FREE_PAGE;
			}
			count++;
		}
	}
out:
	page->first = freed || count == 0 ? NULL : from;
	page->begin = begin;
	page->count = count;
}

void table_settle(struct change_table *table, lsn_t cut)
{
	for (size_t i = 0; i < table->bucket_count; i++)
		for (struct page_changes *page = table->bucket[i]; page; page = page->next)
			settle_page(page, cut);
}

void table_free(struct change_table *table)
{
	while (table->pieces) {
		struct table_piece *next = table->pieces->next;

		free(table->pieces);
		table->pieces = next;
	}
	free(table->bucket);
	*table = (struct change_table){0};
}
