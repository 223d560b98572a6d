/*
 * Pass 5: extended attributes.
 *
 * Like names: keyed by inode and hash.  A long value is a LOB of its own with
 * exactly as many blocks as it needs (pass 3 compares).
 *
 * Access control lists are attributes that have to be understood to be of use, so
 * their form is looked at: in the record, entries in the order owner, users,
 * owning group, groups, mask, others.  The permissions of the inode's mode are those
 * of its access list: the owner's, the mask's (without one: the owning group's), and
 * those of others.
 */
#include "fsck/walk.h"

#include "fsck/hash_group.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct xattrs_state {
	struct hash_group group;
};

int pass5_begin(struct walk *w)
{
	w->xattrs = malloc(sizeof(*w->xattrs));
	if (!w->xattrs)
		return -ENOMEM;
	hash_group_init(&w->xattrs->group);
	return 0;
}

void pass5_free(struct walk *w)
{
	free(w->xattrs);
}

static bool xattr_valid(const struct disk_xattr *xattr, const uint8_t *name, unsigned value_len)
{
	uint32_t length = le32_get(xattr->value_len);
	bool external = xattr->flags & XATTR_EXTERNAL;
	unsigned behind = value_len - (unsigned)sizeof(*xattr);

	if (xattr->name_len == 0 || xattr->name_len > behind || memchr(name, 0, xattr->name_len) ||
	    (xattr->flags & ~XATTR_EXTERNAL) || length > XATTR_VALUE_MAX)
		return false;
	if (external)
		return behind == xattr->name_len && le64_get(xattr->lob) && length;
	return behind == xattr->name_len + length && !le64_get(xattr->lob);
}

static bool is_named(const uint8_t *name, unsigned len, const char *wanted)
{
	return strlen(wanted) == len && memcmp(wanted, name, len) == 0;
}

/* How many of each: 1, any, 1, any, at most one, 1; a mask where there is "any". */
static bool acl_valid(const uint8_t *bytes, uint32_t len)
{
	unsigned found[6] = {0}, at = 0;

	if (len < 12 || len % 8 != 4 || memcmp(bytes, (const uint8_t[]){2, 0, 0, 0}, 4) != 0)
		return false;
	for (const uint8_t *entry = bytes + 4; entry < bytes + len; entry += 8) {
		while (at < array_count(found) && entry[0] != 1u << at)
			at++;
		if (at == array_count(found) || entry[1] || entry[2] > 7 || entry[3])
			return false;
		if ((at == 1 || at == 3) &&
		    memcmp(entry + 4, (const uint8_t[]){255, 255, 255, 255}, 4) == 0)
			return false;
		found[at]++;
	}
	return found[0] == 1 && found[2] == 1 && found[5] == 1 && found[4] <= 1 &&
	       (found[4] == 1 || found[1] + found[3] == 0);
}

static uint32_t acl_permissions(const uint8_t *bytes, uint32_t len)
{
	uint32_t owner = 0, group = 0, others = 0;

	for (const uint8_t *entry = bytes + 4; entry < bytes + len; entry += 8) {
		if (entry[0] == 0x01)
			owner = entry[2];
		else if (entry[0] == 0x04 || entry[0] == 0x10) /* the mask comes later */
			group = entry[2];
		else if (entry[0] == 0x20)
			others = entry[2];
	}
	return owner << 6 | group << 3 | others;
}

static void look_at_acl(struct walk *w, const struct inode_note *note, const struct fsck_fix *drop,
			const uint8_t *name, const struct disk_xattr *xattr, uint64_t ino)
{
	const uint8_t *bytes = name + xattr->name_len;
	bool is_access = is_named(name, xattr->name_len, "system.posix_acl_access");
	uint32_t len = le32_get(xattr->value_len), wanted;

	if (!is_access && !is_named(name, xattr->name_len, "system.posix_acl_default"))
		return;
	if (drop->id || !acl_valid(bytes, len)) {
		problem_edit(w, FSCK_XATTR_ACL, drop, "inode %" PRIu64 ", %s", ino,
			     hash_group_text(&w->xattrs->group, name, xattr->name_len));
		return;
	}
	wanted = acl_permissions(bytes, len);
	if (is_access && note && (note->mode & ACCESSPERMS) != wanted)
		problem_fix(w, FSCK_XATTR_ACL_MODE, FIX_MODE, ino, wanted,
			    "inode %" PRIu64 ": %03o instead of %03o", ino,
			    (unsigned)note->mode & ACCESSPERMS, wanted);
}

static int remember_lob(struct walk *w, uint64_t ino, uint64_t suffix,
			const struct disk_xattr *xattr)
{
	int rc = table_room(&w->limit, w->owners);

	if (!rc)
		w->owners.at[w->owners.count++] = (struct lob_owner){
			.lob = le64_get(xattr->lob),
			.id = ino,
			.suffix = suffix,
			.expected = (le32_get(xattr->value_len) + BLOCK_SIZE - 1) / BLOCK_SIZE,
			.kind = OWNER_XATTR,
		};
	return rc;
}

int pass5_xattr(struct walk *w, const struct raw_entry *entry)
{
	uint64_t ino = be64_get(entry->key.bytes), suffix = be64_get(entry->key.bytes + 8);
	struct inode_note *note = note_find(w, ino);
	struct disk_xattr xattr;
	const uint8_t *name = entry->value + sizeof(xattr);

	struct fsck_fix fix = fix_record(FIX_DELETE, INDEX_XATTRS, &entry->key);
	bool valid = entry->value_len >= sizeof(xattr);

	if (note)
		note->xattrs_found++;
	if (valid) {
		memcpy(&xattr, entry->value, sizeof(xattr));
		valid = xattr_valid(&xattr, name, entry->value_len);
	}
	if (!valid) {
		problem_edit(w, FSCK_XATTR_VALUE, &fix, "inode %" PRIu64 ", key %#" PRIx64, ino,
			     suffix);
		return 0;
	}
	fix.kind = FIX_DROP_XATTR;
	fix.id = le64_get(xattr.lob);
	if (!note)
		problem_edit(w, FSCK_XATTR_OWNER, &fix, "inode %" PRIu64 " does not exist", ino);
	if (!hash_group_add(&w->xattrs->group, ino, suffix >> 7, name, xattr.name_len))
		problem_edit(w, FSCK_XATTR_TWICE, &fix, "inode %" PRIu64 ", %s", ino,
			     hash_group_text(&w->xattrs->group, name, xattr.name_len));
	look_at_acl(w, note, &fix, name, &xattr, ino);
	fix.kind = FIX_RENAME;
	if (suffix >> 7 != raw_name_hash(&w->raw, name, xattr.name_len))
		problem_edit(w, FSCK_XATTR_HASH, &fix, "inode %" PRIu64 ", %s: key %#" PRIx64, ino,
			     hash_group_text(&w->xattrs->group, name, xattr.name_len), suffix);
	return xattr.flags & XATTR_EXTERNAL ? remember_lob(w, ino, suffix, &xattr) : 0;
}

void pass5_finish(struct walk *w)
{
	for (size_t i = 0; i < w->inodes.count; i++) {
		const struct inode_note *note = &w->inodes.at[i];

		if (note->xattrs != note->xattrs_found)
			problem_fix(w, FSCK_XATTR_COUNT, FIX_XATTRS, note->ino, note->xattrs_found,
				    "inode %" PRIu64 ": %" PRIu32 " instead of %" PRIu32, note->ino,
				    note->xattrs, note->xattrs_found);
	}
}
