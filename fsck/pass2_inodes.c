/*
 * Pass 2: inode records.
 *
 * Each record is judged by itself and becomes a struct inode_note; what it
 * claims of links, entries, blocks and attributes is compared with what the
 * other passes find, at the end (pass2_finish() here for blocks, passes 4 and
 * 5 for the rest).  Identifiers lie below their high-water marks (INV-ID-1).
 */
#include "fsck/walk.h"

#include <inttypes.h>
#include <sys/stat.h>

static bool number_possible(uint64_t ino)
{
	return ino != 0 && ino < 1ull << INO_BITS;
}

static void check_number(struct walk *w, uint64_t ino)
{
	if (w->counters_known && ino >= INO_FIRST_FREE && ino >= w->counter[COUNTER_INO])
		problem_fix(w, FSCK_INODE_MARK, FIX_COUNTER, COUNTER_INO, ino + 1,
			    "inode %" PRIu64 ": high-water mark is %" PRIu64, ino,
			    w->counter[COUNTER_INO]);
}

static void check_times(struct walk *w, uint64_t ino, const struct disk_inode *inode)
{
	const struct disk_time *times[] = {
		&inode->atime,
		&inode->mtime,
		&inode->ctime,
		&inode->btime,
	};

	for (unsigned i = 0; i < array_count(times); i++)
		if (le32_get(times[i]->nsec) >= 1000000000u) {
			problem_fix(w, FSCK_INODE_TIME, FIX_INODE, ino, 0,
				    "inode %" PRIu64 ": %" PRIu32 " ns", ino,
				    le32_get(times[i]->nsec));
			return;
		}
}

/* Inline bytes, size and LOB fit each other and the type. */
static void check_contents(struct walk *w, uint64_t ino, const struct disk_inode *inode,
			   unsigned inline_bytes)
{
	uint32_t type = le32_get(inode->mode) & S_IFMT, flags = le32_get(inode->flags);
	uint64_t size = le64_get(inode->size);
	bool holds = type == S_IFREG || type == S_IFLNK;

	if ((flags & ~(uint32_t)(INODE_INLINE | INODE_PREALLOCATED | INODE_USER_FLAGS)) ||
	    ((flags & INODE_INLINE) && !inline_bytes) ||
	    ((flags & INODE_PREALLOCATED) && !le64_get(inode->lob)))
		problem_fix(w, FSCK_INODE_FLAGS, FIX_INODE, ino, 0, "inode %" PRIu64 ": %#" PRIx32,
			    ino, flags);
	if ((!holds && (flags & INODE_INLINE)) ||
	    ((flags & INODE_INLINE) && le64_get(inode->lob)) || (!holds && le64_get(inode->lob)))
		problem_fix(w, FSCK_INODE_LOB, FIX_INODE, ino, 0,
			    "inode %" PRIu64 ": mode %#o, flags %#x, content %" PRIu64, ino,
			    le32_get(inode->mode), flags, le64_get(inode->lob));
	if (size > (uint64_t)FILE_BYTES_MAX || inline_bytes > size ||
	    inline_bytes > INLINE_BYTES_MAX(w->raw.geo.page_size) ||
	    (type == S_IFLNK && (size == 0 || size > SYMLINK_BYTES_MAX)) ||
	    (type == S_IFLNK && (flags & INODE_INLINE) && size != inline_bytes))
		problem_fix(w, FSCK_INODE_SIZE, FIX_INODE, ino, 0,
			    "inode %" PRIu64 ": size %" PRIu64 ", %u inline bytes", ino, size,
			    inline_bytes);
}

static void check_dead_range(struct walk *w, uint64_t ino, const struct disk_inode *inode)
{
	uint64_t first = le64_get(inode->dead_first), end = le64_get(inode->dead_end);

	if (first == 0 && end == 0)
		return;
	if (first >= end || !le64_get(inode->lob) || !le64_get(inode->purge_key))
		problem_fix(w, FSCK_INODE_DEAD, FIX_INODE, ino, 0,
			    "inode %" PRIu64 ": [%" PRIu64 ", %" PRIu64 "), purge key %" PRIu64,
			    ino, first, end, le64_get(inode->purge_key));
}

static void check_directory(struct walk *w, uint64_t ino, const struct disk_inode *inode)
{
	bool directory = S_ISDIR(le32_get(inode->mode));

	if (directory ? le64_get(inode->parent) == 0
		      : le64_get(inode->parent) || le64_get(inode->entries))
		problem_fix(w, FSCK_INODE_DIR, FIX_INODE, ino, 0,
			    "inode %" PRIu64 ": parent %" PRIu64 ", %" PRIu64 " entries", ino,
			    le64_get(inode->parent), le64_get(inode->entries));
}

static int remember_lob(struct walk *w, uint64_t ino, uint64_t lob)
{
	int rc = table_room(&w->limit, w->owners);

	if (!rc)
		w->owners.at[w->owners.count++] = (struct lob_owner){
			.lob = lob, .id = ino, .kind = OWNER_INODE};
	return rc;
}

static int remember(struct walk *w, uint64_t ino, const struct disk_inode *inode,
		    unsigned inline_bytes)
{
	int rc = table_room(&w->limit, w->inodes);

	if (rc)
		return rc;
	w->inodes.at[w->inodes.count++] = (struct inode_note){
		.ino = ino,
		.lob = le64_get(inode->lob),
		.size = le64_get(inode->size),
		.parent = le64_get(inode->parent),
		.purge_key = le64_get(inode->purge_key),
		.blocks = le64_get(inode->blocks),
		.entries = le64_get(inode->entries),
		.nlink = le32_get(inode->nlink),
		.xattrs = le32_get(inode->xattr_count),
		.mode = (uint16_t)raw_likely_mode(inode),
		.flags = (inline_bytes ? NOTE_CONTENTS : 0) |
			 (le64_get(inode->dead_end) ? NOTE_DEAD : 0),
	};
	return le64_get(inode->lob) ? remember_lob(w, ino, le64_get(inode->lob)) : 0;
}

static void count_kind(struct walk *w, uint32_t mode, uint32_t nlink)
{
	if (nlink == 0)
		return;
	if (S_ISREG(mode))
		w->result->files++;
	else if (S_ISDIR(mode))
		w->result->directories++;
	else
		w->result->others++;
}

int pass2_inode(struct walk *w, const struct raw_entry *entry)
{
	uint64_t ino = be64_get(entry->key.bytes);
	unsigned inline_bytes;
	struct disk_inode inode;
	struct fsck_fix fix;

	if (entry->value_len < sizeof(inode)) {
		fix = fix_record(FIX_DELETE, INDEX_INODES, &entry->key);
		problem_edit(w, FSCK_INODE_VALUE, &fix, "inode %" PRIu64 ": %u bytes", ino,
			     entry->value_len);
		return 0;
	}
	if (!number_possible(ino)) {
		fix = fix_record(FIX_DELETE, INDEX_INODES, &entry->key);
		problem_edit(w, FSCK_INODE_NUMBER, &fix, "inode %" PRIu64, ino);
		return 0;
	}
	memcpy(&inode, entry->value, sizeof(inode));
	inline_bytes = entry->value_len - (unsigned)sizeof(inode);
	if (inline_bytes && !(le32_get(inode.flags) & INODE_INLINE)) {
		problem_fix(w, FSCK_INODE_VALUE, FIX_INODE, ino, 0,
			    "inode %" PRIu64 ": %u bytes behind the record", ino, inline_bytes);
		inline_bytes = 0;
	}
	check_number(w, ino);
	if (raw_likely_mode(&inode) != le32_get(inode.mode))
		problem_fix(w, FSCK_INODE_MODE, FIX_INODE, ino, 0,
			    "inode %" PRIu64 ": mode %#" PRIo32, ino, le32_get(inode.mode));
	check_times(w, ino, &inode);
	check_contents(w, ino, &inode, inline_bytes);
	check_dead_range(w, ino, &inode);
	check_directory(w, ino, &inode);
	count_kind(w, le32_get(inode.mode), le32_get(inode.nlink));
	return remember(w, ino, &inode, inline_bytes);
}

void pass2_finish(struct walk *w)
{
	for (size_t i = 0; i < w->inodes.count; i++) {
		const struct inode_note *note = &w->inodes.at[i];

		if (note->blocks != note->blocks_found)
			problem_fix(w, FSCK_INODE_BLOCKS, FIX_BLOCKS, note->ino, note->blocks_found,
				    "inode %" PRIu64 ": %" PRIu64 " instead of %" PRIu64, note->ino,
				    note->blocks, note->blocks_found);
	}
}
