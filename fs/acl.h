/*
 * POSIX access control lists: what they mean, without where they are kept.
 *
 * Bytes are those of the kernel's system.posix_acl_* attributes, on the medium
 * as well: le32 version (2), then entries of le16 tag, le16 permissions, le32 id.
 *
 *	INV-ACL-1  a list is valid: one owner, one owning group and one entry for
 *	           others, in the order of the tags; a mask as soon as a user or group
 *	           is named; named ones have an id
 *	INV-ACL-2  an access list that is kept says more than the mode: what only has
 *	           the three entries of the mode is kept as the mode alone
 *	INV-ACL-3  the mode's bits are the list's: owner, mask (without one: owning
 *	           group), others.  One mini-transaction changes both
 *	INV-ACL-4  a list lies in its record, never in a LOB: so a new inode gets its
 *	           lists in the mini-transaction that makes it
 *
 * (POSIX 1003.1e draft 17; acl(5).)
 */
#ifndef BLINKFS_FS_ACL_H
#define BLINKFS_FS_ACL_H

#include "engine/base/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ACL_BYTES_MAX 4096u /* what the kernel takes from a FUSE server: 511 entries */

enum acl_kind { ACL_ACCESS, ACL_DEFAULT };

struct acl {
	uint32_t len; /* 0: there is none */
	uint8_t bytes[ACL_BYTES_MAX];
};

/* "system.posix_acl_access", "system.posix_acl_default" */
const char *acl_name(enum acl_kind kind);
/* Is `name` one of them? */
bool acl_kind_of(const char *name, size_t len, enum acl_kind *kind);

/*
 * Takes bytes over when they are a valid list (INV-ACL-1), else -EINVAL; one
 * without any entry is none.
 */
int acl_parse(const void *bytes, size_t len, struct acl *out) must_check;
/* INV-ACL-2: does the mode say all of it? */
bool acl_is_minimal(const struct acl *acl);
/* `mode` with the permissions of an access list (INV-ACL-3). */
uint32_t acl_mode(const struct acl *acl, uint32_t mode);
/* chmod: an access list takes the permissions of a mode (INV-ACL-3). */
void acl_chmod(struct acl *acl, uint32_t mode);
/*
 * A directory's default list becomes the access list of an inode that is made in
 * it with *mode: list and mode then allow what both did.
 */
void acl_inherit(struct acl *acl, uint32_t *mode);

#endif
