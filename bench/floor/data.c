/*
 * Contents: one growing piece of memory per file.  realloc() moves large ones
 * by remapping, without a copy.
 */
#include "bench/floor/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CAP_MIN 4096u

static int grow(struct contents *contents, size_t need)
{
	size_t cap = contents->cap ? contents->cap : CAP_MIN;
	uint8_t *larger;

	if (need <= contents->cap)
		return 0;
	while (cap < need)
		cap *= 2;
	larger = realloc(contents->bytes, cap);
	if (!larger)
		return -ENOSPC;
	contents->bytes = larger;
	contents->cap = cap;
	return 0;
}

int contents_write(struct contents *contents, const void *buf, size_t len, size_t offset)
{
	int rc;

	pthread_rwlock_wrlock(&contents->lock);
	rc = grow(contents, offset + len);
	if (!rc) {
		if (offset > contents->used)
			memset(contents->bytes + contents->used, 0, offset - contents->used);
		memcpy(contents->bytes + offset, buf, len);
		if (offset + len > contents->used)
			contents->used = offset + len;
	}
	pthread_rwlock_unlock(&contents->lock);
	return rc;
}

void contents_truncate(struct contents *contents, size_t size)
{
	pthread_rwlock_wrlock(&contents->lock);
	if (size < contents->used)
		contents->used = size;
	pthread_rwlock_unlock(&contents->lock);
}
