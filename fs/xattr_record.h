/*
 * Records of extended attributes: the value, or the LOB that it is in.
 *
 * What comes from the medium is judged here; a record that is not whole is
 * corrupt_at().
 */
#ifndef BLINKFS_FS_XATTR_RECORD_H
#define BLINKFS_FS_XATTR_RECORD_H

#include "engine/mtr.h"
#include "engine/volume.h"

struct xattr_entry {
	uint8_t key[KEY_XATTR_BYTES]; /* of the entry, or where it would go */
	bool found;
	bool full;
	uint64_t lob;                 /* 0: the value is in the record */
	uint32_t value_len;
};

struct xattr_view {
	uint64_t lob;
	const char *name;
	const uint8_t *value;  /* NULL when external */
	uint32_t value_len;
	uint8_t name_len;
};

int xattr_decode(struct volume *volume, const void *value, size_t len,
		 struct xattr_view *out) must_check;
/*
 * Searches `name` of inode `ino`; no latch is held before or after.  Copies a
 * value that is in the record to `value` if it fits into `cap`.
 */
int xattr_find(struct volume *volume, uint64_t ino, const char *name, size_t len, void *value,
	       size_t cap, struct xattr_entry *entry) must_check;
/* Does a value go into the record? */
bool xattr_fits_record(const struct volume *volume, size_t name_len, size_t len);
/* Stages the record; lob 0: with the value inside, which must fit. */
void xattr_put(struct mtr *m, const struct xattr_entry *entry, const char *name, size_t name_len,
	       const void *value, size_t value_len, uint64_t lob);

#endif
