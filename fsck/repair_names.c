/*
 * Repairs of names: entries under another hash, directories that were lost,
 * and what is found without a name, which gets one in /lost+found.
 *
 * A name is "#" and the inode's number.  The directory is made when it is
 * missing; where another thing has its name, or it can take no more
 * directories, the next of lost+found.1, .2 ... is used.  Each step is one
 * mini-transaction, so a crash leaves an empty directory at worst.
 */
#include "fsck/repair_internal.h"

#include "fsck/raw.h"

#include "engine/base/error.h"
#include "engine/purge.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define LOST_FOUND "lost+found"
#define LOST_FOUND_MAX 1000u /* directories of LINKS_MAX directories each */
#define LOST_MODE 0700u
#define COLLISION_MASK (HASH_COLLISIONS_MAX - 1u)

/* --------------------------------------------------------- looking for a key */

/* Where a name is in an index of names, or would go. */
struct place {
	unsigned index; /* dirents or xattrs */
	uint8_t key[KEY_DIRENT_BYTES];
	bool found, full;
	uint64_t child; /* dirents: of the entry that was found */
};

/* The name in a record; NULL when it is malformed. */
static const uint8_t *record_name(unsigned index, const uint8_t *value, size_t value_len,
				  size_t *len)
{
	struct disk_xattr xattr;

	if (index == INDEX_DIRENTS) {
		*len = value_len - sizeof(struct disk_dirent);
		return value_len > sizeof(struct disk_dirent) && *len <= NAME_BYTES_MAX
			       ? value + sizeof(struct disk_dirent)
			       : NULL;
	}
	if (value_len < sizeof(xattr))
		return NULL;
	memcpy(&xattr, value, sizeof(xattr));
	*len = xattr.name_len;
	return *len && value_len - sizeof(xattr) >= *len ? value + sizeof(xattr) : NULL;
}

static int find_place(struct volume *volume, unsigned index, uint64_t ino, const uint8_t *name,
		      size_t len, struct place *out)
{
	uint64_t suffix = raw_seeded_hash(volume->sb.hash_seed, name, len) << 7;
	struct tree_cursor cursor;
	unsigned lowest_free = 0;
	int rc;

	*out = (struct place){.index = index};
	be64_put(out->key, ino);
	be64_put(out->key + 8, suffix);
	rc = tree_cursor_open(&cursor, &volume->index[index], out->key, sizeof(out->key));
	while (rc == 0 && (rc = tree_cursor_next(&cursor)) == 0) {
		uint64_t at = be64_get(cursor.key.bytes + 8);
		const uint8_t *other;
		size_t other_len;

		if (cursor.key.len != sizeof(out->key) || be64_get(cursor.key.bytes) != ino ||
		    at > (suffix | COLLISION_MASK))
			break;
		other = record_name(index, cursor.value, cursor.value_len, &other_len);
		if (other && other_len == len && memcmp(other, name, len) == 0) {
			out->found = true;
			be64_put(out->key + 8, at);
			if (index == INDEX_DIRENTS)
				out->child = le64_get(*(const le64 *)cursor.value);
			break;
		}
		if ((at & COLLISION_MASK) == lowest_free)
			lowest_free++;
	}
	tree_cursor_close(&cursor);
	if (rc && rc != -BE_END)
		return rc;
	out->full = !out->found && lowest_free == HASH_COLLISIONS_MAX;
	if (!out->found)
		be64_put(out->key + 8, suffix | (lowest_free & COLLISION_MASK));
	return 0;
}

static void put_name(struct mtr *m, const struct place *place, uint64_t child, uint32_t mode,
		     const char *name)
{
	uint8_t value[sizeof(struct disk_dirent) + NAME_BYTES_MAX];
	struct disk_dirent dirent = {.child = le64_make(child), .type = IFTODT(mode)};
	size_t len = strlen(name);

	check(len <= NAME_BYTES_MAX);
	memcpy(value, &dirent, sizeof(dirent));
	memcpy(value + sizeof(dirent), name, len);
	mtr_put(m, INDEX_DIRENTS, place->key, sizeof(place->key), value, sizeof(dirent) + len);
}

/* -------------------------------------------------------- under another hash */

struct rename_job {
	const struct fsck_fix *fix;
	struct place place;
	uint8_t *value;
	size_t len;
};

static void want_rename(struct mtr *m, void *arg)
{
	const struct rename_job *job = arg;

	mtr_want_key(m, job->fix->index, job->fix->key, job->fix->key_len);
	if (!job->place.found && !job->place.full)
		mtr_want_key(m, job->fix->index, job->place.key, sizeof(job->place.key));
}

static int stage_rename(struct mtr *m, void *arg)
{
	const struct rename_job *job = arg;

	mtr_delete(m, job->fix->index, job->fix->key, job->fix->key_len);
	if (!job->place.found && !job->place.full)
		mtr_put(m, job->fix->index, job->place.key, sizeof(job->place.key), job->value,
			job->len);
	return 0;
}

/* A name that exists already under its own hash, or can have no place, goes. */
int repair_rename(struct volume *volume, const struct fsck_fix *fix)
{
	struct rename_job job = {.fix = fix};
	struct repair_mtr work = {want_rename, stage_rename, &job};
	size_t cap = RECORD_BYTES_MAX(volume->geo.page_size), name_len;
	const uint8_t *name;
	int rc;

	job.value = malloc(cap);
	if (!job.value)
		return -ENOMEM;
	rc = tree_get(&volume->index[fix->index], fix->key, fix->key_len, job.value, cap, &job.len);
	if (rc)
		goto out;
	rc = -BE_FORMAT;
	name = job.len <= cap ? record_name(fix->index, job.value, job.len, &name_len) : NULL;
	if (!name)
		goto out;
	rc = find_place(volume, fix->index, be64_get(fix->key), name, name_len, &job.place);
	if (!rc &&
	    !(job.place.found && memcmp(job.place.key, fix->key, sizeof(job.place.key)) == 0))
		rc = repair_mtr(volume, &work);
out:
	free(job.value);
	return rc == -BE_NOTFOUND ? 0 : rc;
}

/* ----------------------------------------------------------- lost directories */

struct make_job {
	uint64_t ino;
	struct inode_edit edit;
};

static void want_make(struct mtr *m, void *arg)
{
	want_inode(m, ((struct make_job *)arg)->ino);
}

static int stage_make(struct mtr *m, void *arg)
{
	struct make_job *job = arg;
	int rc = get_inode(m, job->ino, &job->edit);

	if (rc == 0 && S_ISDIR(le32_get(job->edit.head.mode)))
		return REPAIR_NOTHING;
	if (rc && rc != -BE_NOTFOUND && rc != -BE_FORMAT)
		return rc;
	new_inode(&job->edit, job->ino, S_IFDIR | (job->ino == INO_ROOT ? 0755u : LOST_MODE), 2,
		  INO_ROOT);
	put_inode(m, &job->edit);
	return 0;
}

int repair_make_dir(struct volume *volume, uint64_t ino)
{
	struct make_job *job = calloc(1, sizeof(*job));
	struct repair_mtr work = {want_make, stage_make, job};
	int rc = -ENOMEM;

	if (job) {
		job->ino = ino;
		rc = repair_mtr(volume, &work);
	}
	free(job);
	return rc;
}

/* ----------------------------------------------------------------- lost+found */

/* A name for an inode in a directory; the inode is new, or exists without a name. */
struct link_job {
	uint64_t dir, ino;
	bool make;          /* a directory, new */
	uint32_t nlink;     /* of an inode that exists */
	uint64_t purge_key; /* that it names */
	struct place place;
	char name[NAME_BYTES_MAX + 1];
	struct inode_edit parent, child;
};

static void want_link(struct mtr *m, void *arg)
{
	const struct link_job *job = arg;

	want_inode(m, job->dir);
	want_inode(m, job->ino);
	mtr_want_key(m, INDEX_DIRENTS, job->place.key, sizeof(job->place.key));
	if (job->purge_key)
		purge_want(m, job->purge_key);
}

static int stage_link(struct mtr *m, void *arg)
{
	struct link_job *job = arg;
	struct disk_inode *parent = &job->parent.head, *child = &job->child.head;
	int rc = get_inode(m, job->dir, &job->parent);

	if (!rc && job->make)
		new_inode(&job->child, job->ino, S_IFDIR | LOST_MODE, 2, job->dir);
	else if (!rc)
		rc = get_inode(m, job->ino, &job->child);
	if (!rc && !job->make) {
		rc = unorphan(m, job->ino, child);
		child->nlink = le32_make(job->nlink);
	}
	if (rc)
		return rc;
	parent->entries = le64_make(le64_get(parent->entries) + 1);
	if (S_ISDIR(le32_get(child->mode))) {
		child->parent = le64_make(job->dir);
		parent->nlink = le32_make(le32_get(parent->nlink) + 1);
	}
	put_name(m, &job->place, job->ino, le32_get(child->mode), job->name);
	put_inode(m, &job->parent);
	put_inode(m, &job->child);
	return 0;
}

/* Links under `name`, which must have no entry yet: *done = false when it has one. */
static int link_as(struct volume *volume, struct link_job *job, bool *done)
{
	struct repair_mtr work = {want_link, stage_link, job};
	int rc = find_place(volume, INDEX_DIRENTS, job->dir, (const uint8_t *)job->name,
			    strlen(job->name), &job->place);

	*done = false;
	if (rc || job->place.found || job->place.full)
		return rc;
	*done = true;
	return repair_mtr(volume, &work);
}

/* May `ino` hold one more name? */
static int is_usable(struct volume *volume, uint64_t ino, bool *usable)
{
	struct disk_inode inode;
	int rc = read_inode(volume, ino, &inode);

	*usable = !rc && S_ISDIR(le32_get(inode.mode)) && le32_get(inode.nlink) >= 2 &&
		  le32_get(inode.nlink) < LINKS_MAX;
	return rc == -BE_NOTFOUND || rc == -BE_FORMAT ? 0 : rc;
}

static int find_lost_found(struct volume *volume, struct link_job *job, uint64_t *dir)
{
	for (unsigned i = 0; i < LOST_FOUND_MAX; i++) {
		bool usable = false, done = false;
		int rc;

		if (i)
			snprintf(job->name, sizeof(job->name), LOST_FOUND ".%u", i);
		else
			snprintf(job->name, sizeof(job->name), LOST_FOUND);
		rc = find_place(volume, INDEX_DIRENTS, INO_ROOT, (const uint8_t *)job->name,
				strlen(job->name), &job->place);
		if (!rc && job->place.found)
			rc = is_usable(volume, job->place.child, &usable);
		*dir = job->place.child;
		if (rc || usable)
			return rc;
		if (job->place.found)
			continue;
		job->dir = INO_ROOT;
		job->make = true;
		job->purge_key = 0;
		rc = id_take(volume, COUNTER_INO, &job->ino);
		if (!rc)
			rc = link_as(volume, job, &done);
		*dir = job->ino;
		if (rc || done)
			return rc;
	}
	return -EMLINK;
}

int repair_reconnect(struct volume *volume, const struct fsck_fix *fix)
{
	struct link_job *job = calloc(1, sizeof(*job));
	struct disk_inode inode;
	uint64_t dir = 0;
	bool done = false;
	int rc = job ? 0 : -ENOMEM;

	if (!rc)
		rc = read_inode(volume, fix->id, &inode);
	if (!rc)
		rc = find_lost_found(volume, job, &dir);
	for (unsigned i = 0; i < LOST_FOUND_MAX && !rc && !done; i++) {
		job->dir = dir;
		job->ino = fix->id;
		job->make = false;
		job->nlink = (uint32_t)fix->value;
		job->purge_key = le64_get(inode.purge_key);
		if (i)
			snprintf(job->name, sizeof(job->name), "#%" PRIu64 ".%u", fix->id, i);
		else
			snprintf(job->name, sizeof(job->name), "#%" PRIu64, fix->id);
		rc = link_as(volume, job, &done);
	}
	free(job);
	return rc == -BE_NOTFOUND ? 0 : rc;
}
