/* POSIX access control lists: see acl.h. */
#include "fs/acl.h"

#include "engine/base/endian.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define ACL_VERSION 2u
#define NO_ID UINT32_MAX

/* In the order of a valid list. */
enum tag {
	TAG_OWNER = 0x01,
	TAG_USER = 0x02,
	TAG_GROUP_OWNER = 0x04,
	TAG_GROUP = 0x08,
	TAG_MASK = 0x10,
	TAG_OTHER = 0x20
};

struct disk_acl_entry {
	le16 tag, perm;
	le32 id;
};
static_assert(sizeof(struct disk_acl_entry) == 8, "as in the kernel's attribute");

#define HEAD_BYTES 4u

static struct disk_acl_entry *entries(const struct acl *acl)
{
	return (struct disk_acl_entry *)(uintptr_t)(acl->bytes + HEAD_BYTES);
}
static_assert(_Alignof(struct disk_acl_entry) == 1, "entries lie anywhere");

static unsigned entry_count(const struct acl *acl)
{
	return (unsigned)((acl->len - HEAD_BYTES) / sizeof(struct disk_acl_entry));
}

static struct disk_acl_entry *find(const struct acl *acl, enum tag tag)
{
	unsigned count = entry_count(acl);

	for (unsigned i = 0; i < count; i++)
		if (le16_get(entries(acl)[i].tag) == tag)
			return &entries(acl)[i];
	return NULL;
}

static uint32_t perm_of(const struct disk_acl_entry *entry)
{
	return le16_get(entry->perm);
}

/* The entry that the mode's group bits stand for. */
static struct disk_acl_entry *group_class(const struct acl *acl)
{
	struct disk_acl_entry *mask = find(acl, TAG_MASK);

	return mask ? mask : find(acl, TAG_GROUP_OWNER);
}

/* --- names --------------------------------------------------------------- */

const char *acl_name(enum acl_kind kind)
{
	return kind == ACL_ACCESS ? "system.posix_acl_access" : "system.posix_acl_default";
}

bool acl_kind_of(const char *name, size_t len, enum acl_kind *kind)
{
	for (*kind = ACL_ACCESS;; *kind = ACL_DEFAULT) {
		if (strlen(acl_name(*kind)) == len && memcmp(acl_name(*kind), name, len) == 0)
			return true;
		if (*kind == ACL_DEFAULT)
			return false;
	}
}

/* --- judging ------------------------------------------------------------- */

static bool is_valid(const struct acl *acl)
{
	unsigned count = entry_count(acl), last = 0, seen = 0;

	for (unsigned i = 0; i < count; i++) {
		const struct disk_acl_entry *entry = &entries(acl)[i];
		unsigned tag = le16_get(entry->tag);
		bool named = tag == TAG_USER || tag == TAG_GROUP;

		if (tag == 0 || (tag & (tag - 1)) || tag > TAG_OTHER)
			return false;
		if (tag < last || (tag == last && !named))
			return false;
		if (le16_get(entry->perm) > S_IRWXO || (named && le32_get(entry->id) == NO_ID))
			return false;
		last = tag;
		seen |= tag;
	}
	if (seen & (TAG_USER | TAG_GROUP) && !(seen & TAG_MASK))
		return false;
	return seen & TAG_OWNER && seen & TAG_GROUP_OWNER && seen & TAG_OTHER;
}

int acl_parse(const void *bytes, size_t len, struct acl *out)
{
	le32 version;

	if (len < HEAD_BYTES || len > ACL_BYTES_MAX ||
	    (len - HEAD_BYTES) % sizeof(struct disk_acl_entry) != 0)
		return -EINVAL;
	memcpy(&version, bytes, sizeof(version));
	if (le32_get(version) != ACL_VERSION)
		return -EINVAL;
	memcpy(out->bytes, bytes, len);
	out->len = (uint32_t)len;
	if (entry_count(out) == 0)
		out->len = 0;
	return out->len == 0 || is_valid(out) ? 0 : -EINVAL; /* INV-ACL-1 */
}

/* --- lists and modes ----------------------------------------------------- */

bool acl_is_minimal(const struct acl *acl)
{
	return entry_count(acl) == 3 && !find(acl, TAG_MASK);
}

uint32_t acl_mode(const struct acl *acl, uint32_t mode)
{
	return (mode & ~(uint32_t)ACCESSPERMS) | perm_of(find(acl, TAG_OWNER)) << 6 |
	       perm_of(group_class(acl)) << 3 | perm_of(find(acl, TAG_OTHER));
}

void acl_chmod(struct acl *acl, uint32_t mode)
{
	find(acl, TAG_OWNER)->perm = le16_make(mode >> 6 & S_IRWXO);
	group_class(acl)->perm = le16_make(mode >> 3 & S_IRWXO);
	find(acl, TAG_OTHER)->perm = le16_make(mode & S_IRWXO);
}

void acl_inherit(struct acl *acl, uint32_t *mode)
{
	*mode &= acl_mode(acl, *mode);
	acl_chmod(acl, *mode);
}
