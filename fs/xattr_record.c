/* Records of extended attributes: see xattr_record.h. */
#include "fs/xattr_record.h"

#include "engine/base/error.h"
#include "fs/name.h"

int xattr_decode(struct volume *volume, const void *value, size_t len, struct xattr_view *out)
{
	const struct disk_xattr *d = value;
	const char *why = NULL;
	bool external;

	if (len < sizeof(*d) + 1)
		return corrupt_at(volume, 0, "xattr", "record too short");
	external = d->flags & XATTR_EXTERNAL;
	*out = (struct xattr_view){
		.lob = le64_get(d->lob),
		.name = (const char *)(d + 1),
		.value_len = le32_get(d->value_len),
		.name_len = d->name_len,
	};
	if (out->value_len > XATTR_VALUE_MAX)
		why = "value too long";
	else if (sizeof(*d) + out->name_len + (external ? 0 : out->value_len) != len)
		why = "lengths do not add up";
	else if (out->name_len == 0 || memchr(out->name, '\0', out->name_len))
		why = "impossible name";
	else if (external != (out->lob != 0))
		why = "LOB and flag disagree";
	if (why)
		return corrupt_at(volume, 0, "xattr", why);
	if (!external)
		out->value = (const uint8_t *)(d + 1) + out->name_len;
	return 0;
}

static void set_found(struct xattr_entry *entry, const struct tree_cursor *at,
		      const struct xattr_view *view, void *value, size_t cap)
{
	memcpy(entry->key, at->key.bytes, sizeof(entry->key));
	entry->found = true;
	entry->lob = view->lob;
	entry->value_len = view->value_len;
	if (view->value && value && view->value_len <= cap)
		memcpy(value, view->value, view->value_len);
}

int xattr_find(struct volume *volume, uint64_t ino, const char *name, size_t len, void *value,
	       size_t cap, struct xattr_entry *entry)
{
	uint64_t suffix = name_suffix(volume, name, len);
	struct tree_cursor cursor;
	unsigned lowest_free = 0;
	int rc;

	*entry = (struct xattr_entry){.found = false};
	name_key(entry->key, ino, suffix);
	rc = tree_cursor_open(&cursor, &volume->index[INDEX_XATTRS], entry->key,
			      sizeof(entry->key));
	while (rc == 0 && (rc = tree_cursor_next(&cursor)) == 0) {
		struct xattr_view view;
		uint64_t at = be64_get(cursor.key.bytes + 8);

		if (cursor.key.len != KEY_XATTR_BYTES || be64_get(cursor.key.bytes) != ino ||
		    at > (suffix | COLLISION_MASK))
			break;
		rc = xattr_decode(volume, cursor.value, cursor.value_len, &view);
		if (rc == 0 && view.name_len == len && memcmp(view.name, name, len) == 0) {
			set_found(entry, &cursor, &view, value, cap);
			break;
		}
		if ((at & COLLISION_MASK) == lowest_free)
			lowest_free++;
	}
	tree_cursor_close(&cursor);
	if (rc && rc != -BE_END)
		return rc;
	if (!entry->found) {
		entry->full = lowest_free == HASH_COLLISIONS_MAX;
		name_key(entry->key, ino, suffix | (lowest_free & COLLISION_MASK));
	}
	return 0;
}

bool xattr_fits_record(const struct volume *volume, size_t name_len, size_t len)
{
	return KEY_XATTR_BYTES + sizeof(struct disk_xattr) + name_len + len <=
	       RECORD_BYTES_MAX(volume->geo.page_size);
}

void xattr_put(struct mtr *m, const struct xattr_entry *entry, const char *name, size_t name_len,
	       const void *value, size_t value_len, uint64_t lob)
{
	uint8_t record[RECORD_BYTES_MAX(PAGE_SIZE_MAX)];
	struct disk_xattr d = {
		.lob = le64_make(lob),
		.value_len = le32_make((uint32_t)value_len),
		.flags = lob ? XATTR_EXTERNAL : 0,
		.name_len = (uint8_t)name_len,
	};
	size_t len = sizeof(d) + name_len;

	memcpy(record, &d, sizeof(d));
	memcpy(record + sizeof(d), name, name_len);
	if (!lob && value_len) {
		check(len + value_len <= sizeof(record));
		memcpy(record + len, value, value_len);
		len += value_len;
	}
	mtr_put(m, INDEX_XATTRS, entry->key, sizeof(entry->key), record, len);
}
