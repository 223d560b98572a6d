/* Where access control lists are kept: see acl_store.h. */
#include "fs/acl_store.h"

#include "fs/name.h"

int acl_find(struct core *core, uint64_t ino, const struct record *record, enum acl_kind kind,
	     struct acl_place *out)
{
	const char *name = acl_name(kind);
	uint8_t value[ACL_BYTES_MAX];
	int rc;

	out->kind = kind;
	out->acl.len = 0;
	if (record->xattr_count == 0)
		return 0;
	rc = xattr_find(core->volume, ino, name, strlen(name), value, sizeof(value), &out->entry);
	if (rc || !out->entry.found)
		return rc;
	if (out->entry.lob || acl_parse(value, out->entry.value_len, &out->acl) != 0 ||
	    out->acl.len == 0)
		return corrupt_at(core->volume, 0, "xattr", "not a valid access control list");
	return 0;
}

void acl_want(struct mtr *m, const struct acl_place *place)
{
	if (place->acl.len)
		mtr_want_key(m, INDEX_XATTRS, place->entry.key, sizeof(place->entry.key));
}

void acl_put(struct mtr *m, const struct acl_place *place)
{
	const char *name = acl_name(place->kind);

	if (place->acl.len)
		xattr_put(m, &place->entry, name, strlen(name), place->acl.bytes, place->acl.len,
			  0);
}

/* --- new inodes ---------------------------------------------------------- */

int acl_inherit_from(struct core *core, uint64_t parent, const struct record *parent_record,
		     uint32_t umask, uint32_t *mode, struct acl_inherited *out)
{
	int rc;

	out->access.acl.len = out->defaults.acl.len = 0;
	if (S_ISLNK(*mode))
		return 0;
	rc = acl_find(core, parent, parent_record, ACL_DEFAULT, &out->defaults);
	if (rc)
		return rc;
	if (out->defaults.acl.len == 0) {
		*mode &= ~(umask & ACCESSPERMS);
		return 0;
	}
	out->access.kind = ACL_ACCESS;
	out->access.acl = out->defaults.acl;
	acl_inherit(&out->access.acl, mode);
	if (acl_is_minimal(&out->access.acl)) /* INV-ACL-2 */
		out->access.acl.len = 0;
	if (!S_ISDIR(*mode))
		out->defaults.acl.len = 0;
	return 0;
}

/* Nobody else knows the inode, so its first collision number is free. */
static void place(struct core *core, struct acl_place *place, uint64_t ino)
{
	const char *name = acl_name(place->kind);

	place->entry = (struct xattr_entry){.found = false};
	name_key(place->entry.key, ino, name_suffix(core->volume, name, strlen(name)));
}

void acl_inherited_place(struct core *core, struct acl_inherited *inherited, uint64_t ino)
{
	struct acl_place *access = &inherited->access, *defaults = &inherited->defaults;

	if (access->acl.len)
		place(core, access, ino);
	if (defaults->acl.len)
		place(core, defaults, ino);
	/* Two names with one hash take two collision numbers. */
	if (access->acl.len && defaults->acl.len &&
	    memcmp(access->entry.key, defaults->entry.key, KEY_XATTR_BYTES) == 0)
		defaults->entry.key[KEY_XATTR_BYTES - 1]++;
}

void acl_inherited_want(struct mtr *m, const struct acl_inherited *inherited)
{
	acl_want(m, &inherited->access);
	acl_want(m, &inherited->defaults);
}

void acl_inherited_put(struct mtr *m, const struct acl_inherited *inherited, struct record *record)
{
	acl_put(m, &inherited->access);
	acl_put(m, &inherited->defaults);
	record->xattr_count = (inherited->access.acl.len > 0) + (inherited->defaults.acl.len > 0);
}
