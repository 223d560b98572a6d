/* The backup file while it is written: chunks, and the index of its pages. */
#include "engine/backup_internal.h"

#include "engine/base/crc32c.h"
#include "engine/base/fileio.h"
#include "engine/page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define WRITE_OUT_BYTES (8u << 20)

/* ----------------------------------------------------------------- chunks */

uint8_t *backup_buffer(uint32_t count, uint8_t **payload)
{
	uint8_t *buffer = aligned_alloc(BLOCK_SIZE, (size_t)(count + 1) * BLOCK_SIZE);

	if (buffer)
		*payload = buffer + BLOCK_SIZE;
	return buffer;
}

static int write_chunk(struct backup *b, enum backup_chunk_type type, uint64_t start,
		       uint32_t count, uint8_t *payload, uint64_t offset)
{
	struct disk_backup_chunk head = {
		.offset = le64_make(offset),
		.start = le64_make(start),
		.type = le32_make(type),
		.count = le32_make(count),
		.payload_crc = le32_make(crc32c(0, payload, (size_t)count * BLOCK_SIZE)),
	};

	memcpy(head.magic, BACKUP_CHUNK_MAGIC, sizeof(head.magic));
	memcpy(head.tag, b->id, sizeof(head.tag));
	head.crc = le32_make(crc32c(0, &head, sizeof(head)));
	memcpy(payload - sizeof(head), &head, sizeof(head));
	return file_write_at(b->params->fd, payload - sizeof(head),
			 sizeof(head) + (size_t)count * BLOCK_SIZE, offset);
}

/*
 * The file goes to its medium in small steps, so that the kernel never has much of it
 * to write at once while somebody waits for a flush of the volume's log.  Advice: what
 * counts is the fsync at the end.
 */
static void write_out(struct backup *b)
{
	uint64_t window = b->file_at / WRITE_OUT_BYTES * WRITE_OUT_BYTES;

	if (window <= b->written_out)
		return;
	sync_file_range(b->params->fd, (off_t)b->written_out, (off_t)(window - b->written_out),
			SYNC_FILE_RANGE_WRITE);
	if (b->written_out >= WRITE_OUT_BYTES)
		sync_file_range(b->params->fd, (off_t)(b->written_out - WRITE_OUT_BYTES),
				WRITE_OUT_BYTES,
				SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
					SYNC_FILE_RANGE_WAIT_AFTER);
	b->written_out = window;
}

int backup_chunk(struct backup *b, enum backup_chunk_type type, uint64_t start, uint32_t count,
		 uint8_t *payload)
{
	int rc = write_chunk(b, type, start, count, payload, b->file_at);

	if (rc)
		return rc;
	b->file_at += sizeof(struct disk_backup_chunk) + (uint64_t)count * BLOCK_SIZE;
	b->chunks += type != BACKUP_END;
	b->progress.bytes = b->file_at;
	write_out(b);
	return 0;
}

/* ------------------------------------------------------------------ index */

static size_t slot_of(const struct backup_index *index, uint64_t pageno)
{
	size_t at = (size_t)((pageno * 0x9e3779b97f4a7c15ull) >> 20) & (index->slots - 1);

	while (index->slot[at] && index->page[index->slot[at] - 1].pageno != pageno)
		at = (at + 1) & (index->slots - 1);
	return at;
}

struct backup_page *backup_find(const struct backup_index *index, uint64_t pageno)
{
	size_t at;

	if (index->slots == 0)
		return NULL;
	at = slot_of(index, pageno);
	return index->slot[at] ? &index->page[index->slot[at] - 1] : NULL;
}

static int index_grow(struct backup_index *index)
{
	size_t cap = index->cap ? index->cap * 2 : 1024;
	struct backup_page *page = realloc(index->page, cap * sizeof(*page));
	uint32_t *slot;

	if (page == NULL)
		return -ENOMEM;
	index->page = page;
	slot = calloc(cap * 2, sizeof(*slot));
	if (slot == NULL)
		return -ENOMEM;
	free(index->slot);
	index->slot = slot;
	index->slots = cap * 2;
	index->cap = cap;
	for (size_t i = 0; i < index->count; i++)
		slot[slot_of(index, page[i].pageno)] = (uint32_t)i + 1;
	return 0;
}

static int index_add(struct backup_index *index, uint64_t pageno, struct backup_page **out)
{
	int rc = index->count == index->cap ? index_grow(index) : 0;

	if (rc)
		return rc;
	index->page[index->count] = (struct backup_page){.pageno = pageno};
	*out = &index->page[index->count++];
	index->slot[slot_of(index, pageno)] = (uint32_t)index->count;
	return 0;
}

void backup_index_free(struct backup_index *index)
{
	free(index->page);
	free(index->slot);
	*index = (struct backup_index){0};
}

/* ------------------------------------------------------------------ pages */

int backup_put_page(struct backup *b, uint64_t pageno, bool skip)
{
	uint32_t count = b->volume->geo.page_blocks;
	struct backup_page *page = backup_find(&b->index, pageno);
	lsn_t lsn = page_lsn(b->page);
	int rc = 0;

	if (page == NULL)
		rc = index_add(&b->index, pageno, &page);
	if (rc)
		return rc;
	page->freed = false;
	page->lsn = lsn;
	if (skip)
		return 0;
	if (page->offset)
		return write_chunk(b, BACKUP_PAGES, pageno, count, b->page,
				   page->offset - sizeof(struct disk_backup_chunk));
	page->offset = b->file_at + sizeof(struct disk_backup_chunk);
	rc = backup_chunk(b, BACKUP_PAGES, pageno, count, b->page);
	if (rc)
		page->offset = 0;
	b->progress.pages++;
	stat_add(&b->volume->stats, STAT_backup_pages, 1);
	return rc;
}

int backup_get_page(struct backup *b, const struct backup_page *page, void *buf)
{
	uint32_t page_size = b->volume->geo.page_size;
	int rc;

	check(page->offset > 0);
	rc = file_read_at(b->params->fd, buf, page_size, page->offset);
	/* What has been written a moment ago: a medium that does not keep it is no place for it. */
	if (rc == 0 && page_verify(buf, page_size, page->pageno, b->volume->tag, NULL))
		rc = -EIO;
	return rc;
}

/* ---------------------------------------------------------------- the end */

static int write_header(struct backup *b)
{
	struct disk_backup_header *head = aligned_alloc(BLOCK_SIZE, sizeof(*head));
	int rc;

	if (head == NULL)
		return -ENOMEM;
	*head = (struct disk_backup_header){
		.version = le32_make(BACKUP_VERSION),
		.base_lsn = le64_make(b->params->since),
		.lsn = le64_make(b->end),
		.generation = le64_make(b->generation),
		.block_count = b->sb.block_count,
		.page_size = b->sb.page_size,
		.chunks = le64_make(b->chunks),
		.file_bytes = le64_make(b->file_at),
		.bad_blocks = le64_make(b->progress.bad_blocks),
		.created_sec = le64_make((uint64_t)os_realtime().tv_sec),
	};
	memcpy(head->magic, BACKUP_MAGIC, sizeof(head->magic));
	memcpy(head->uuid, b->sb.uuid, sizeof(head->uuid));
	memcpy(head->id, b->id, sizeof(head->id));
	memcpy(head->base_id, b->params->base_id, sizeof(head->base_id));
	memcpy(head->label, b->sb.label, sizeof(head->label));
	head->crc = le32_make(crc32c(0, head, sizeof(*head)));
	rc = file_write_at(b->params->fd, head, sizeof(*head), 0);
	free(head);
	return rc;
}

int backup_finish_file(struct backup *b)
{
	int rc = backup_chunk(b, BACKUP_END, b->chunks, 0, b->blocks);

	if (rc == 0 && fdatasync(b->params->fd) != 0 && errno != EINVAL)
		rc = -errno;
	if (rc == 0)
		rc = write_header(b);
	if (rc == 0 && fsync(b->params->fd) != 0 && errno != EINVAL)
		rc = -errno;
	return rc;
}
