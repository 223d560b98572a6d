/*
 * Bodies of page records, as page_redo() reads them; format.h has the layout
 * of each.  A caller's mistake (a key that is too long) is a check(), since
 * none of this comes from a disk.
 *
 * No body exceeds BODY_BYTES_MAX: the longest is that of redo_load(), which
 * writes the source page's prefix once and then per record at most 4 bytes
 * besides stored key and value, where the page itself spends 6.
 */
#include "engine/page_internal.h"
#include "log/log.h"

static_assert(BODY_BYTES_MAX(PAGE_SIZE_MIN) >=
	      PAGE_SIZE_MIN - sizeof(struct disk_tree_page) + 1 + KEY_BYTES_MAX, "room for a load");

static uint8_t *put_bytes(uint8_t *at, const void *bytes, size_t len)
{
	if (len > 0)
		memcpy(at, bytes, len);
	return at + len;
}

/* u8 length, bytes */
static uint8_t *put_key(uint8_t *at, const uint8_t *bytes, size_t len)
{
	check(len <= KEY_BYTES_MAX);
	*at++ = (uint8_t)len;
	copy_bytes(at, bytes, len);
	return at + len;
}

static uint8_t *put_varint(uint8_t *at, uint64_t value)
{
	return at + varint_put(at, value);
}

size_t redo_page_init(uint8_t *body, uint8_t type, uint8_t index, uint8_t level, uint8_t flags,
		      const struct key *low, const struct key *high, uint64_t right)
{
	uint8_t *at = body;

	*at++ = type;
	*at++ = index;
	*at++ = level;
	*at++ = flags;
	at = put_key(at, low->bytes, low->len);
	at = put_key(at, high->bytes, high->len);
	at = put_varint(at, right);
	return (size_t)(at - body);
}

size_t redo_load(uint8_t *body, const void *from_page, unsigned first, unsigned count)
{
	const struct disk_tree_page *from = tree_page(from_page);
	uint8_t *at = put_key(body, from->low, from->prefix_len);

	for (unsigned slot = first; slot < first + count; slot++) {
		struct page_entry entry;

		page_entry(from_page, slot, &entry);
		at = put_key(at, entry.suffix, entry.suffix_len);
		at = put_varint(at, entry.value_len);
		at = put_bytes(at, entry.value, entry.value_len);
	}
	return (size_t)(at - body);
}

size_t redo_insert(uint8_t *body, unsigned slot, const uint8_t *key, size_t key_len,
		   const void *value, size_t value_len)
{
	uint8_t *at = put_varint(body, slot);

	at = put_key(at, key, key_len);
	at = put_bytes(at, value, value_len);
	return (size_t)(at - body);
}

size_t redo_update(uint8_t *body, unsigned slot, const void *value, size_t value_len)
{
	uint8_t *at = put_varint(body, slot);

	at = put_bytes(at, value, value_len);
	return (size_t)(at - body);
}

size_t redo_patch(uint8_t *body, unsigned slot, unsigned offset, const void *bytes, size_t len)
{
	uint8_t *at = put_varint(body, slot);

	at = put_varint(at, offset);
	at = put_bytes(at, bytes, len);
	return (size_t)(at - body);
}

size_t redo_delete(uint8_t *body, unsigned slot)
{
	return varint_put(body, slot);
}

size_t redo_split_left(uint8_t *body, unsigned keep, const struct key *high, uint64_t right)
{
	uint8_t *at = put_varint(body, keep);

	at = put_key(at, high->bytes, high->len);
	at = put_varint(at, right);
	return (size_t)(at - body);
}

size_t redo_flags(uint8_t *body, uint8_t flags)
{
	body[0] = flags;
	return 1;
}

size_t redo_fence(uint8_t *body, const struct key *high, uint64_t right)
{
	uint8_t *at = put_key(body, high->bytes, high->len);

	at = put_varint(at, right);
	return (size_t)(at - body);
}

size_t redo_bits(uint8_t *body, bool value, uint64_t first, uint64_t count)
{
	uint8_t *at = body;

	*at++ = value;
	at = put_varint(at, first);
	at = put_varint(at, count);
	return (size_t)(at - body);
}

int64_t redo_bits_change(const uint8_t *body, size_t len)
{
	uint64_t first, count;
	size_t at = len > 1 ? varint_get(body + 1, len - 1, &first) : 0;

	if (at == 0 || varint_get(body + 1 + at, len - 1 - at, &count) == 0 || count > INT32_MAX)
		return 0;
	return body[0] ? (int64_t)count : -(int64_t)count;
}

size_t redo_counter(uint8_t *body, unsigned counter, uint64_t value)
{
	le64 raised = le64_make(value);
	uint8_t *at = put_varint(body, counter);

	at = put_bytes(at, &raised, sizeof(raised));
	return (size_t)(at - body);
}
