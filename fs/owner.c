#include "fs/owner.h"

#include "engine/base/error.h"
#include "fs/path.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>

/* Looks at each value of an index until one is right.  *ino: 0, none. */
static void search(struct volume *volume, unsigned index, uint64_t lob,
		   bool (*is_owner)(const struct tree_cursor *cursor, uint64_t lob, char *name),
		   uint64_t *ino, char *name)
{
	struct tree_cursor cursor;
	int rc = tree_cursor_open(&cursor, &volume->index[index], NULL, 0);

	*ino = 0;
	while (rc == 0 && (rc = tree_cursor_next(&cursor)) == 0) {
		if (cursor.key.len >= KEY_INODE_BYTES && is_owner(&cursor, lob, name)) {
			*ino = be64_get(cursor.key.bytes);
			break;
		}
	}
	tree_cursor_close(&cursor);
}

static bool is_inode(const struct tree_cursor *cursor, uint64_t lob, char *name)
{
	const struct disk_inode *inode = (const struct disk_inode *)cursor->value;

	(void)name;
	return cursor->value_len >= sizeof(*inode) && le64_get(inode->lob) == lob;
}

static bool is_xattr(const struct tree_cursor *cursor, uint64_t lob, char *name)
{
	const struct disk_xattr *xattr = (const struct disk_xattr *)cursor->value;
	const uint8_t *bytes = cursor->value + sizeof(*xattr);

	if (cursor->value_len < sizeof(*xattr) || !(xattr->flags & XATTR_EXTERNAL) ||
	    le64_get(xattr->lob) != lob || cursor->value_len < sizeof(*xattr) + xattr->name_len)
		return false;
	for (unsigned i = 0; i < xattr->name_len; i++)
		name[i] = isprint(bytes[i]) ? (char)bytes[i] : '?';
	name[xattr->name_len] = '\0';
	return true;
}

void owner_text(struct volume *volume, uint64_t lob, char text[OWNER_TEXT_BYTES])
{
	char path[PATH_TEXT_BYTES], name[NAME_BYTES_MAX + 1] = "";
	uint64_t ino;

	search(volume, INDEX_INODES, lob, is_inode, &ino, name);
	if (ino == 0)
		search(volume, INDEX_XATTRS, lob, is_xattr, &ino, name);
	if (ino == 0) {
		snprintf(text, OWNER_TEXT_BYTES, "contents %" PRIu64 " of no file", lob);
		return;
	}
	path_text(volume, ino, path);
	snprintf(text, OWNER_TEXT_BYTES, "%s%sinode %" PRIu64 "%s%s", path, *path ? ", " : "", ino,
		 *name ? ", attribute " : "", name);
}
