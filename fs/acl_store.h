/*
 * Where access control lists are kept: with the xattrs of their inode, under
 * the kernel's names (INV-ACL-4).
 *
 * A place stays what it was found to be while the inode's lock is held.
 */
#ifndef BLINKFS_FS_ACL_STORE_H
#define BLINKFS_FS_ACL_STORE_H

#include "fs/acl.h"
#include "fs/core_internal.h"
#include "fs/xattr_record.h"

struct acl_place {
	enum acl_kind kind;
	struct acl acl;
	struct xattr_entry entry;
};

/* acl.len is 0 when there is none.  `record`: the inode's, or its head. */
int acl_find(struct core *core, uint64_t ino, const struct record *record, enum acl_kind kind,
	     struct acl_place *out) must_check;
/* Nothing for a place without a list. */
void acl_want(struct mtr *m, const struct acl_place *place);
void acl_put(struct mtr *m, const struct acl_place *place);

/* The lists that a new inode gets. */
struct acl_inherited {
	struct acl_place access, defaults;
};
/*
 * *mode: as the caller gave it; on return what the directory's default list
 * leaves of it, without one what the umask does.  A symlink's stays.
 */
int acl_inherit_from(struct core *core, uint64_t parent, const struct record *parent_record,
		     uint32_t umask, uint32_t *mode, struct acl_inherited *out) must_check;
/* Once the inode has its number. */
void acl_inherited_place(struct core *core, struct acl_inherited *inherited, uint64_t ino);
void acl_inherited_want(struct mtr *m, const struct acl_inherited *inherited);
void acl_inherited_put(struct mtr *m, const struct acl_inherited *inherited,
		       struct record *record);

#endif
