/*
 * Pass 4: names, links, the shape of the tree of directories.
 *
 * Entries come in the order of their parents.  For each inode the names are
 * counted and compared with its link count at the end:
 *
 *	directory with its name   nlink = 2 + subdirectories, entries = names in it
 *	other with names          nlink = names
 *	no name, nlink 0          an orphan: fine with a purge record (pass 6)
 *	no name, nlink > 0        made an orphan when nothing would be lost, else
 *	                          it gets a name in lost+found
 *
 * A directory is reached when the chain of its holders ends at the root.
 */
#include "fsck/walk.h"

#include "fsck/hash_group.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

/* An entry that leads to no inode. */
struct dangling {
	uint64_t child, parent, suffix;
};

struct names_state {
	struct inode_note *parent; /* of the entries that come at present; NULL: no such inode */
	uint64_t parent_ino, suffix;
	bool doomed;          /* the parent is no directory: these entries go */
	TABLE(uint64_t) made; /* directories that the repair makes again; ascending */
	TABLE(struct dangling) dangling;
	struct hash_group group;
};

int pass4_begin(struct walk *w)
{
	w->names = calloc(1, sizeof(*w->names));
	if (!w->names)
		return -ENOMEM;
	hash_group_init(&w->names->group);
	return 0;
}

void pass4_free(struct walk *w)
{
	if (!w->names)
		return;
	table_free(w->names->made);
	table_free(w->names->dangling);
	free(w->names);
}

/* ------------------------------------------------------------------ entries */

static bool name_valid(const uint8_t *name, size_t len)
{
	if (len == 0 || len > NAME_BYTES_MAX || memchr(name, 0, len) || memchr(name, '/', len))
		return false;
	return !(name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')));
}

/* A fix of the entry that comes at present. */
static struct fsck_fix entry_fix(const struct walk *w, enum fix_kind kind, uint64_t value)
{
	struct fsck_fix fix = fix_pair(kind, INDEX_DIRENTS, w->names->parent_ino, w->names->suffix);

	fix.value = value;
	return fix;
}

static int make_again(struct walk *w, uint64_t ino)
{
	struct names_state *s = w->names;
	int rc = table_room(&w->limit, s->made);

	if (!rc)
		s->made.at[s->made.count++] = ino;
	return rc;
}

/* A directory whose inode is lost is made again: its names are still here. */
static int enter_directory(struct walk *w, uint64_t parent)
{
	struct names_state *s = w->names;

	s->parent_ino = parent;
	s->parent = note_find(w, parent);
	s->doomed = s->parent ? !S_ISDIR(s->parent->mode) : parent == 0 || parent >> INO_BITS;
	if (s->doomed)
		problem_edit(w, FSCK_DIRENT_PARENT, NULL, "inode %" PRIu64 " is not a directory",
			     parent);
	if (s->doomed || s->parent)
		return 0;
	problem_fix(w, FSCK_DIRENT_PARENT, FIX_MAKE_DIR, parent, 0,
		    "directory %" PRIu64 " does not exist", parent);
	return make_again(w, parent);
}

/* What becomes of the entry is known at the end: its inode may be made again. */
static int report_dangling(struct walk *w, uint64_t parent, uint64_t ino, const uint8_t *name,
			   size_t len)
{
	struct names_state *s = w->names;
	int rc = table_room(&w->limit, s->dangling);

	problem_edit(w, FSCK_DIRENT_CHILD, NULL, "directory %" PRIu64 ", %s: inode %" PRIu64,
		     parent, hash_group_text(&s->group, name, len), ino);
	if (!rc)
		s->dangling.at[s->dangling.count++] = (struct dangling){ino, parent, s->suffix};
	return rc;
}

static bool is_made_again(const struct names_state *s, uint64_t ino)
{
	size_t low = 0, high = s->made.count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (s->made.at[middle] < ino)
			low = middle + 1;
		else
			high = middle;
	}
	return low < s->made.count && s->made.at[low] == ino;
}

static void drop_dangling(struct walk *w)
{
	w->number = FSCK_DIRENT_CHILD;
	for (size_t i = 0; i < w->names->dangling.count; i++) {
		const struct dangling *entry = &w->names->dangling.at[i];
		const struct fsck_fix fix = fix_pair(FIX_DELETE, INDEX_DIRENTS, entry->parent,
						     entry->suffix);

		if (!is_made_again(w->names, entry->child))
			list_fix(w, &fix);
	}
}

/* Of two names of a directory the one stays that its inode says. */
static void second_name(struct walk *w, struct inode_note *child, uint64_t parent,
			uint64_t recorded)
{
	struct fsck_fix fix = entry_fix(w, FIX_DELETE, 0);

	if (recorded == parent && !(child->flags & NOTE_AT_HOME)) {
		fix = fix_pair(FIX_DELETE, INDEX_DIRENTS, child->parent, child->name_suffix);
		child->flags |= NOTE_AT_HOME;
	}
	problem_edit(w, FSCK_DIR_NAMES, &fix, "directory %" PRIu64 ": another in %" PRIu64,
		     child->ino, parent);
}

static void link_directory(struct walk *w, struct inode_note *child, uint64_t parent)
{
	struct names_state *s = w->names;
	struct fsck_fix fix;

	if (child->names_found > 1) {
		second_name(w, child, parent, child->parent_recorded);
		return;
	}
	child->parent_recorded = child->parent;
	if (child->ino == INO_ROOT) {
		fix = entry_fix(w, FIX_DELETE, 0);
		problem_edit(w, FSCK_DIR_NAMES, &fix, "the root directory, in %" PRIu64, parent);
	} else if (child->parent != parent) {
		problem_fix(w, FSCK_DIR_PARENT, FIX_PARENT, child->ino, parent,
			    "directory %" PRIu64 ": %" PRIu64 " instead of %" PRIu64, child->ino,
			    child->parent, parent);
	} else {
		child->flags |= NOTE_AT_HOME;
	}
	child->parent = parent;
	child->name_suffix = s->suffix;
	if (s->parent)
		s->parent->subdirs_found++;
}

static int link_child(struct walk *w, uint64_t parent, const struct disk_dirent *dirent,
		      const uint8_t *name, size_t len)
{
	uint64_t ino = le64_get(dirent->child);
	struct inode_note *child = note_find(w, ino);
	struct fsck_fix fix;

	if (!child)
		return report_dangling(w, parent, ino, name, len);
	if (dirent->type != IFTODT(child->mode)) {
		fix = entry_fix(w, FIX_TYPE, IFTODT(child->mode));
		problem_edit(w, FSCK_DIRENT_TYPE, &fix,
			     "directory %" PRIu64 ", %s: %u instead of %u", parent,
			     hash_group_text(&w->names->group, name, len), dirent->type,
			     IFTODT(child->mode));
	}
	child->names_found++;
	if (S_ISDIR(child->mode))
		link_directory(w, child, parent);
	return 0;
}

int pass4_name(struct walk *w, const struct raw_entry *entry)
{
	struct names_state *s = w->names;
	uint64_t parent = be64_get(entry->key.bytes), suffix = be64_get(entry->key.bytes + 8);
	size_t len = entry->value_len - sizeof(struct disk_dirent);
	struct disk_dirent dirent;
	const uint8_t *name = entry->value + sizeof(dirent);

	struct fsck_fix fix;
	int rc = parent != s->parent_ino || parent == 0 ? enter_directory(w, parent) : 0;

	if (rc)
		return rc;
	s->suffix = suffix;
	if (s->doomed) {
		fix = entry_fix(w, FIX_DELETE, 0);
		w->number = FSCK_DIRENT_PARENT;
		list_fix(w, &fix);
		return 0;
	}
	if (s->parent)
		s->parent->entries_found++;
	if (entry->value_len <= sizeof(dirent) || !name_valid(name, len)) {
		fix = entry_fix(w, FIX_DELETE, 0);
		problem_edit(w, FSCK_DIRENT_VALUE, &fix, "directory %" PRIu64 ", key %#" PRIx64,
			     parent, suffix);
		return 0;
	}
	memcpy(&dirent, entry->value, sizeof(dirent));
	if (suffix >> 7 != raw_name_hash(&w->raw, name, len)) {
		fix = entry_fix(w, FIX_RENAME, 0);
		problem_edit(w, FSCK_DIRENT_HASH, &fix, "directory %" PRIu64 ", %s: key %#" PRIx64,
			     parent, hash_group_text(&s->group, name, len), suffix);
	}
	if (!hash_group_add(&s->group, parent, suffix >> 7, name, len)) {
		fix = entry_fix(w, FIX_DELETE, 0);
		problem_edit(w, FSCK_DIRENT_TWICE, &fix, "directory %" PRIu64 ", %s", parent,
			     hash_group_text(&s->group, name, len));
	}
	return link_child(w, parent, &dirent, name, len);
}

/* ------------------------------------------------------------- reachability */

/* The directory that holds this one; NULL where the chain breaks off. */
static struct inode_note *holder(const struct walk *w, const struct inode_note *note)
{
	struct inode_note *parent = note->names_found ? note_find(w, note->parent) : NULL;

	return parent && S_ISDIR(parent->mode) ? parent : NULL;
}

/*
 * Follows the chain of holders up to a directory whose fate is known, then goes
 * the same way again and marks.  Each directory is marked once, so the whole
 * is linear.
 */
static void mark_chain(struct walk *w, struct inode_note *from)
{
	struct inode_note *at = from;
	bool reached = false;
	struct fsck_fix fix;

	while (at && !(at->flags & (NOTE_REACHED | NOTE_DETACHED | NOTE_WALKING))) {
		at->flags |= NOTE_WALKING;
		at = holder(w, at);
	}
	if (at && (at->flags & NOTE_WALKING)) {
		fix = fix_pair(FIX_DELETE, INDEX_DIRENTS, at->parent, at->name_suffix);
		problem_edit(w, FSCK_DIR_DETACHED, &fix, "directory %" PRIu64 " is inside itself",
			     at->ino);
	} else {
		reached = at && (at->flags & NOTE_REACHED);
	}
	for (at = from; at && (at->flags & NOTE_WALKING); at = holder(w, at))
		at->flags = (uint16_t)((at->flags & ~NOTE_WALKING) |
				       (reached ? NOTE_REACHED : NOTE_DETACHED));
}

static void mark_reachable(struct walk *w)
{
	struct inode_note *root = note_find(w, INO_ROOT);

	if (!root || !S_ISDIR(root->mode))
		problem_fix(w, FSCK_INODE_ROOT, FIX_MAKE_DIR, INO_ROOT, 0, "inode %u is %s",
			    INO_ROOT, root ? "not a directory" : "missing");
	else
		root->flags |= NOTE_REACHED;
	if (root && S_ISDIR(root->mode) && root->parent != INO_ROOT)
		problem_fix(w, FSCK_DIR_PARENT, FIX_PARENT, INO_ROOT, INO_ROOT,
			    "the root directory: %" PRIu64, root->parent);
	for (size_t i = 0; i < w->inodes.count; i++)
		if (S_ISDIR(w->inodes.at[i].mode))
			mark_chain(w, &w->inodes.at[i]);
}

/* ------------------------------------------------------------------- counts */

static void fix_nlink(struct walk *w, const struct inode_note *note, uint32_t want)
{
	/* a purge record would take an inode whose link count is put right */
	enum fix_kind kind = note->nlink == 0 ? FIX_UNORPHAN : FIX_NLINK;

	if (want > LINKS_MAX)
		problem(w, FSCK_NLINK, "inode %" PRIu64 ": %" PRIu32 " names", note->ino, want);
	else if (note->nlink == 0)
		problem_fix(w, FSCK_ORPHAN_NAMED, kind, note->ino, want,
			    "inode %" PRIu64 ": %" PRIu32 " names", note->ino, note->names_found);
	else
		problem_fix(w, FSCK_NLINK, kind, note->ino, want,
			    "inode %" PRIu64 ": %" PRIu32 " instead of %" PRIu32, note->ino,
			    note->nlink, want);
}

static bool has_contents(const struct inode_note *note)
{
	return note->lob || (note->flags & NOTE_CONTENTS) || note->entries_found ||
	       note->xattrs_found;
}

static void judge_unnamed(struct walk *w, const struct inode_note *note)
{
	bool directory = S_ISDIR(note->mode), holds = directory && note->entries_found;
	uint32_t links = directory ? 2 + note->subdirs_found : 1;

	if (note->nlink == 0) {
		if (holds)
			problem_fix(w, FSCK_ORPHAN_PARENT, FIX_RECONNECT, note->ino, links,
				    "directory %" PRIu64 ": %" PRIu64 " entries", note->ino,
				    note->entries_found);
		else if (!(note->flags & NOTE_PURGED))
			problem_fix(w, FSCK_ORPHAN, FIX_ORPHAN, note->ino, 0, "inode %" PRIu64,
				    note->ino);
	} else if (holds) {
		problem_fix(w, FSCK_DIR_DETACHED, FIX_RECONNECT, note->ino, links,
			    "directory %" PRIu64 ": it has no name", note->ino);
	} else if (has_contents(note) || note->purge_key) {
		problem_fix(w, FSCK_UNNAMED_CONTENTS, FIX_RECONNECT, note->ino, links,
			    "inode %" PRIu64, note->ino);
	} else {
		problem_fix(w, FSCK_UNNAMED, FIX_ORPHAN, note->ino, 0, "inode %" PRIu64, note->ino);
	}
}

static void judge_links(struct walk *w, const struct inode_note *note)
{
	bool named = note->names_found || note->ino == INO_ROOT;
	uint32_t want = S_ISDIR(note->mode) ? 2 + note->subdirs_found : note->names_found;

	if (!named)
		judge_unnamed(w, note);
	else if (note->nlink != want)
		fix_nlink(w, note, want);
	if (S_ISDIR(note->mode) && note->entries != note->entries_found)
		problem_fix(w, FSCK_DIR_ENTRIES, FIX_ENTRIES, note->ino, note->entries_found,
			    "directory %" PRIu64 ": %" PRIu64 " instead of %" PRIu64, note->ino,
			    note->entries, note->entries_found);
}

void pass4_finish(struct walk *w)
{
	drop_dangling(w);
	mark_reachable(w);
	for (size_t i = 0; i < w->inodes.count; i++)
		judge_links(w, &w->inodes.at[i]);
}
