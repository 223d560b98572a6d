/*
 * Pass 6: purge records, what is still to be reclaimed.
 *
 *	orphan    its inode exists, has no link, and names the record
 *	dead      its inode exists, has a dead range in that LOB, and names the record
 *	lob       owns the LOB: nobody else does (pass 3)
 *	extents   owns the blocks that it lists
 */
#include "fsck/walk.h"

#include <inttypes.h>

static bool purge_valid(const struct disk_purge *purge, unsigned value_len)
{
	uint32_t count = purge->kind == PURGE_EXTENTS ? le32_get(purge->count) : 0;

	switch (purge->kind) {
	case PURGE_ORPHAN:
		if (!le64_get(purge->ino))
			return false;
		break;
	case PURGE_DEAD:
		if (!le64_get(purge->ino) || !le64_get(purge->lob))
			return false;
		break;
	case PURGE_LOB:
		if (!le64_get(purge->lob) || le64_get(purge->first) > le64_get(purge->end))
			return false;
		break;
	case PURGE_EXTENTS:
		break;
	default:
		return false;
	}
	return value_len == sizeof(*purge) + (uint64_t)count * sizeof(struct disk_purge_extent);
}

static void claim_listed(struct walk *w, uint64_t key, const uint8_t *at, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct disk_purge_extent extent;
		uint64_t start, length, twice;

		memcpy(&extent, at + (size_t)i * sizeof(extent), sizeof(extent));
		start = le64_get(extent.start);
		length = le32_get(extent.length);
		if (length == 0 || !raw_blocks_valid(&w->raw, start, length) ||
		    raw_blocks_fixed(&w->raw, start, length)) {
			problem(w, FSCK_PURGE_EXTENT,
				"purge record %" PRIu64 ": block %" PRIu64 ", %" PRIu64 " blocks",
				key, start, length);
			continue;
		}
		claim_blocks(w, start, length, &twice);
		if (twice != UINT64_MAX)
			problem(w, FSCK_BLOCK_TWICE, "block %" PRIu64 ": purge record %" PRIu64,
				twice, key);
	}
}

static int remember_lob(struct walk *w, uint64_t key, const struct disk_purge *purge)
{
	int rc = table_room(w->owners);

	if (!rc)
		w->owners.at[w->owners.count++] = (struct lob_owner){
			.lob = le64_get(purge->lob),
			.id = key,
			.expected = le64_get(purge->first),
			.kind = OWNER_PURGE,
		};
	return rc;
}

int pass6_purge(struct walk *w, const struct raw_entry *entry)
{
	uint64_t key = be64_get(entry->key.bytes);
	struct disk_purge purge;
	int rc;

	if (entry->value_len >= sizeof(purge))
		memcpy(&purge, entry->value, sizeof(purge));
	if (entry->value_len < sizeof(purge) || !purge_valid(&purge, entry->value_len)) {
		problem(w, FSCK_PURGE_VALUE, "purge record %" PRIu64, key);
		return 0;
	}
	if (w->counters_known && key >= w->counter[COUNTER_PURGE])
		problem_fix(w, FSCK_PURGE_MARK, FIX_COUNTER, COUNTER_PURGE, key + 1,
			    "purge record %" PRIu64 ": high-water mark is %" PRIu64, key,
			    w->counter[COUNTER_PURGE]);
	if (purge.kind == PURGE_EXTENTS)
		claim_listed(w, key, entry->value + sizeof(purge), le32_get(purge.count));
	if (purge.kind == PURGE_LOB) {
		rc = remember_lob(w, key, &purge);
		if (rc)
			return rc;
	}
	rc = table_room(w->purges);
	if (!rc)
		w->purges.at[w->purges.count++] = (struct purge_note){
			.key = key,
			.ino = le64_get(purge.ino),
			.lob = le64_get(purge.lob),
			.first = le64_get(purge.first),
			.end = le64_get(purge.end),
			.kind = purge.kind,
		};
	return rc;
}

static bool agrees(const struct purge_note *purge, const struct inode_note *note)
{
	if (!note || note->purge_key != purge->key)
		return false;
	if (purge->kind == PURGE_ORPHAN)
		return note->nlink == 0;
	return (note->flags & NOTE_DEAD) && note->lob == purge->lob;
}

void pass6_finish(struct walk *w)
{
	for (size_t i = 0; i < w->purges.count; i++) {
		const struct purge_note *purge = &w->purges.at[i];
		struct inode_note *note;

		if (purge->kind != PURGE_ORPHAN && purge->kind != PURGE_DEAD)
			continue;
		note = note_find(w, purge->ino);
		if (agrees(purge, note))
			note->flags |= NOTE_PURGED;
		else
			problem(w, FSCK_PURGE_INODE, "purge record %" PRIu64 ", inode %" PRIu64,
				purge->key, purge->ino);
	}
	for (size_t i = 0; i < w->inodes.count; i++) {
		const struct inode_note *note = &w->inodes.at[i];

		/* without links: pass 4 finds and repairs it */
		if (note->purge_key && note->nlink && !(note->flags & NOTE_PURGED))
			problem(w, FSCK_PURGE_KEY, "inode %" PRIu64 ": purge record %" PRIu64,
				note->ino, note->purge_key);
	}
}
