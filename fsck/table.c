#include "fsck/table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SPILL_BYTES_MIN 4096u /* smaller ones are not worth a file */
#define ELEMENT_BYTES_MAX 256u

static int open_file(void)
{
	const char *dir = getenv("TMPDIR");
	int fd = open(dir && *dir ? dir : "/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	return fd < 0 ? -errno : fd;
}

/* Makes the mapping `bytes` long, or the first one; *at moves. */
static int map_file(struct table_place *place, void **at, size_t bytes)
{
	int rc = posix_fallocate(place->fd, 0, (off_t)bytes);
	void *mapped;

	if (rc)
		return -rc;
	if (place->mapped)
		mapped = mremap(*at, place->mapped, bytes, MREMAP_MAYMOVE);
	else
		mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, place->fd, 0);
	if (mapped == MAP_FAILED)
		return -errno;
	*at = mapped;
	place->mapped = bytes;
	return 0;
}

static int move_to_file(struct table_limit *limit, struct table_place *place, void **at,
			size_t old_bytes, size_t bytes)
{
	void *mapped = NULL;
	int rc;

	place->fd = open_file();
	if (place->fd < 0)
		return place->fd;
	rc = map_file(place, &mapped, bytes);
	if (rc) {
		close(place->fd);
		return rc;
	}
	if (old_bytes)
		memcpy(mapped, *at, old_bytes);
	free(*at);
	*at = mapped;
	limit->used -= old_bytes;
	return 0;
}

static int grow_on_heap(struct table_limit *limit, void **at, size_t old_bytes, size_t bytes)
{
	void *moved = realloc(*at, bytes);

	if (!moved)
		return -ENOMEM;
	*at = moved;
	if (limit)
		limit->used += bytes - old_bytes;
	return 0;
}

int table_grow(struct table_limit *limit, struct table_place *place, void **at, size_t count,
	       size_t *room, size_t element)
{
	size_t more = count ? count * 2 : 32, bytes, old_bytes = *room * element;
	int rc;

	if (__builtin_mul_overflow(more, element, &bytes))
		return -ENOMEM;
	if (place && place->mapped)
		rc = map_file(place, at, bytes);
	else if (place && limit && limit->max && bytes >= SPILL_BYTES_MIN &&
		 limit->used - old_bytes + bytes > limit->max)
		rc = move_to_file(limit, place, at, old_bytes, bytes);
	else
		rc = grow_on_heap(limit, at, old_bytes, bytes);
	if (!rc)
		*room = more;
	return rc;
}

void table_release(struct table_place *place, void *at)
{
	if (!place->mapped) {
		free(at);
		return;
	}
	munmap(at, place->mapped);
	close(place->fd);
	place->mapped = 0;
}

/* ------------------------------------------------------------------ sorting */

struct heap {
	uint8_t *at;
	size_t element;
	int (*compare)(const void *a, const void *b);
};

static void swap(struct heap *h, size_t a, size_t b)
{
	uint8_t kept[ELEMENT_BYTES_MAX];

	memcpy(kept, h->at + a * h->element, h->element);
	memcpy(h->at + a * h->element, h->at + b * h->element, h->element);
	memcpy(h->at + b * h->element, kept, h->element);
}

static bool less(const struct heap *h, size_t a, size_t b)
{
	return h->compare(h->at + a * h->element, h->at + b * h->element) < 0;
}

static void sink(struct heap *h, size_t at, size_t count)
{
	for (size_t child; (child = 2 * at + 1) < count; at = child) {
		if (child + 1 < count && less(h, child, child + 1))
			child++;
		if (!less(h, at, child))
			return;
		swap(h, at, child);
	}
}

static bool is_sorted(const struct heap *h, size_t count)
{
	for (size_t i = 1; i < count; i++)
		if (less(h, i, i - 1))
			return false;
	return true;
}

void table_sort(const struct table_place *place, void *at, size_t count, size_t element,
		int (*compare)(const void *a, const void *b))
{
	struct heap h = {.at = at, .element = element, .compare = compare};

	check(element <= ELEMENT_BYTES_MAX);
	if (count < 2)
		return;
	if (!place->mapped) {
		qsort(at, count, element, compare);
		return;
	}
	if (is_sorted(&h, count))
		return;
	for (size_t i = count / 2; i-- > 0;)
		sink(&h, i, count);
	for (size_t end = count - 1; end > 0; end--) {
		swap(&h, 0, end);
		sink(&h, 0, end);
	}
}
