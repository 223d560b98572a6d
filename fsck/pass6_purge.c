/*
 * Pass 6: purge records, what is still to be reclaimed.
 *
 *	orphan    its inode exists, has no link, and names the record
 *	dead      its inode exists, has a dead range in that LOB, and names the record
 *	lob       owns the LOB: nobody else does (pass 3)
 *	extents   owns the blocks that it lists; a file that has them too keeps them
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

static int remember_listed(struct walk *w, uint64_t key, const uint8_t *at, uint32_t count)
{
	const struct fsck_fix fix = fix_single(FIX_DELETE, INDEX_PURGE, key);

	for (uint32_t i = 0; i < count; i++) {
		struct disk_purge_extent extent;
		uint64_t start, length;
		int rc;

		memcpy(&extent, at + (size_t)i * sizeof(extent), sizeof(extent));
		start = le64_get(extent.start);
		length = le32_get(extent.length);
		if (length == 0 || !raw_blocks_valid(&w->raw, start, length) ||
		    raw_blocks_fixed(&w->raw, start, length)) {
			problem_edit(w, FSCK_PURGE_EXTENT, &fix,
				     "purge record %" PRIu64 ": block %" PRIu64 ", %" PRIu64
				     " blocks",
				     key, start, length);
			continue;
		}
		rc = table_room(&w->limit, w->purge_claims);
		if (rc)
			return rc;
		w->purge_claims.at[w->purge_claims.count++] = (struct purge_claim){key, start,
										   length};
	}
	return 0;
}

void pass6_claim(struct walk *w)
{
	for (size_t i = 0; i < w->purge_claims.count; i++) {
		const struct purge_claim *claim = &w->purge_claims.at[i];
		const struct fsck_fix fix = fix_single(FIX_DELETE, INDEX_PURGE, claim->key);
		uint64_t twice;

		claim_blocks(w, claim->start, claim->length, &twice);
		if (twice != UINT64_MAX)
			problem_edit(w, FSCK_BLOCK_TWICE, &fix,
				     "block %" PRIu64 ": purge record %" PRIu64, twice, claim->key);
	}
}

static int remember_lob(struct walk *w, uint64_t key, const struct disk_purge *purge)
{
	int rc = table_room(&w->limit, w->owners);

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
	const struct fsck_fix fix = fix_record(FIX_DELETE, INDEX_PURGE, &entry->key);
	struct disk_purge purge;
	int rc = 0;

	if (entry->value_len >= sizeof(purge))
		memcpy(&purge, entry->value, sizeof(purge));
	if (entry->value_len < sizeof(purge) || !purge_valid(&purge, entry->value_len)) {
		problem_edit(w, FSCK_PURGE_VALUE, &fix, "purge record %" PRIu64, key);
		return 0;
	}
	if (w->counters_known && key >= w->counter[COUNTER_PURGE])
		problem_fix(w, FSCK_PURGE_MARK, FIX_COUNTER, COUNTER_PURGE, key + 1,
			    "purge record %" PRIu64 ": high-water mark is %" PRIu64, key,
			    w->counter[COUNTER_PURGE]);
	if (purge.kind == PURGE_EXTENTS)
		rc = remember_listed(w, key, entry->value + sizeof(purge), le32_get(purge.count));
	if (!rc && purge.kind == PURGE_LOB)
		rc = remember_lob(w, key, &purge);
	if (!rc)
		rc = table_room(&w->limit, w->purges);
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
		struct fsck_fix fix = fix_single(FIX_DELETE, INDEX_PURGE, purge->key);
		struct inode_note *note;

		if (purge->kind != PURGE_ORPHAN && purge->kind != PURGE_DEAD)
			continue;
		note = note_find(w, purge->ino);
		if (agrees(purge, note))
			note->flags |= NOTE_PURGED;
		else
			problem_edit(w, FSCK_PURGE_INODE, &fix,
				     "purge record %" PRIu64 ", inode %" PRIu64, purge->key,
				     purge->ino);
	}
	for (size_t i = 0; i < w->inodes.count; i++) {
		const struct inode_note *note = &w->inodes.at[i];

		/* without links: pass 4 finds and repairs it */
		if (note->purge_key && note->nlink && !(note->flags & NOTE_PURGED))
			problem_fix(w, FSCK_PURGE_KEY, FIX_NO_PURGE, note->ino, 0,
				    "inode %" PRIu64 ": purge record %" PRIu64, note->ino,
				    note->purge_key);
	}
}
