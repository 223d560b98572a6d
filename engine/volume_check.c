/*
 * volume_check(): everything that the engine promises about a quiet volume.
 *
 *	every tree (tree_check)
 *	the log counts as many blocks in use as the bitmaps say (INV-LOG-12)
 *	every block that a bitmap says is in use has exactly one owner: a bitmap
 *	page, the system page, the log, a tree page, an extent of `lob`, or an entry
 *	of PURGE_EXTENTS; a block inside an entry of `shares` is in as many extents as
 *	that says, none of them unwritten, and has no other owner
 */
#include "engine/volume.h"

#include "engine/pool.h"
#include "engine/purge.h"
#include "engine/tree_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct owners {
	struct volume *volume;
	struct check_report *report;
	uint8_t *owned;        /* one bit a block of the groups */
	uint32_t *left;        /* extents that each block still lacks; NULL: nothing is shared */
	uint64_t blocks;       /* in the groups */
	uint64_t purge_records;
};

static void printf_like(2, 3)
	problem(struct check_report *report, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	report->problems++;
	if (report->problem)
		report->problem(report->arg, text);
}

static void own(struct owners *owners, uint64_t start, uint64_t count, const char *what)
{
	uint64_t first = start - owners->volume->geo.groups_start;

	if (start < owners->volume->geo.groups_start || first > owners->blocks ||
	    count > owners->blocks - first) {
		problem(owners->report, "%s outside the groups: block %" PRIu64, what, start);
		return;
	}
	for (uint64_t b = first; b < first + count; b++) {
		if (owners->owned[b / 8] & 1u << b % 8)
			problem(owners->report, "block %" PRIu64 " has two owners, one is a %s",
				b + owners->volume->geo.groups_start, what);
		owners->owned[b / 8] |= (uint8_t)(1u << b % 8);
	}
}

/* Tree pages, level by level along the right links. */
static int own_tree(struct owners *owners, struct tree *tree)
{
	struct volume *volume = owners->volume;
	uint64_t leftmost = tree->root, pages = 0;
	int rc = 0;

	while (leftmost != 0 && rc == 0) {
		uint64_t pageno = leftmost;

		leftmost = 0;
		for (bool first = true; pageno != 0; first = false) {
			struct frame *frame;

			rc = pool_get(volume->pool, pageno, PAGE_TREE, tree->id, &frame);
			if (rc)
				return rc;
			if (first && tree_page(frame->data)->head.level > 0 &&
			    page_slots(frame->data) > 0)
				leftmost = page_child(frame->data, 0);
			own(owners, pageno, volume->geo.page_blocks, "tree page");
			pageno = le64_get(tree_page(frame->data)->right);
			pool_put(frame);
			if (++pages > owners->blocks)
				return -BE_DAMAGE;
		}
	}
	return rc;
}

static bool in_groups(const struct owners *owners, uint64_t start, uint64_t count)
{
	uint64_t first = start - owners->volume->geo.groups_start;

	return start >= owners->volume->geo.groups_start && first <= owners->blocks &&
	       count <= owners->blocks - first;
}

static void note_share(struct owners *owners, const struct key *key, const void *value, size_t len)
{
	uint64_t end = be64_get(key->bytes) + 1, first;
	struct disk_share share;

	if (key->len != KEY_SHARE_BYTES || len != sizeof(share)) {
		problem(owners->report, "share record of a wrong size");
		return;
	}
	memcpy(&share, value, sizeof(share));
	if (le32_get(share.length) > end ||
	    !in_groups(owners, end - le32_get(share.length), le32_get(share.length)) ||
	    le32_get(share.references) < 2) {
		problem(owners->report, "share up to block %" PRIu64 " is malformed", end - 1);
		return;
	}
	first = end - le32_get(share.length) - owners->volume->geo.groups_start;
	for (uint64_t b = first; b < first + le32_get(share.length); b++) {
		if (owners->left[b] != 0)
			problem(owners->report, "block %" PRIu64 " is in two shares", b);
		owners->left[b] = le32_get(share.references);
	}
}

static int note_shares(struct owners *owners)
{
	struct tree_cursor cursor;
	int rc = tree_cursor_open(&cursor, &owners->volume->index[INDEX_SHARES], NULL, 0);

	while (rc == 0 && (rc = tree_cursor_next(&cursor)) == 0) {
		if (owners->left == NULL)
			owners->left = calloc(owners->blocks + 1, sizeof(*owners->left));
		if (owners->left == NULL) {
			rc = -ENOMEM;
			break;
		}
		note_share(owners, &cursor.key, cursor.value, cursor.value_len);
	}
	tree_cursor_close(&cursor);
	return rc == -BE_END ? 0 : rc;
}

/* The last of those that share a block owns it. */
static void own_data(struct owners *owners, uint64_t start, uint64_t count, bool unwritten)
{
	uint64_t first = start - owners->volume->geo.groups_start;

	if (owners->left == NULL || !in_groups(owners, start, count)) {
		own(owners, start, count, "extent");
		return;
	}
	for (uint64_t b = first; b < first + count; b++) {
		if (unwritten && owners->left[b] > 0) /* INV-SHARE-2 */
			problem(owners->report, "block %" PRIu64 " is unwritten, but shared",
				owners->volume->geo.groups_start + b);
		if (owners->left[b] == 0 || --owners->left[b] == 0)
			own(owners, owners->volume->geo.groups_start + b, 1, "extent");
	}
}

static void check_shares(struct owners *owners)
{
	for (uint64_t b = 0; owners->left && b < owners->blocks; b++)
		if (owners->left[b] > 0)
			problem(owners->report,
				"block %" PRIu64 ": %" PRIu32 " references more than extents",
				b + owners->volume->geo.groups_start, owners->left[b]);
}

static void own_extent(struct owners *owners, const void *value, size_t len)
{
	struct disk_extent extent;

	if (len < sizeof(extent)) {
		problem(owners->report, "extent record is too short");
		return;
	}
	memcpy(&extent, value, sizeof(extent));
	own_data(owners, le64_get(extent.start), le32_get(extent.stored),
		 extent.flags & EXTENT_UNWRITTEN);
}

static void own_purge(struct owners *owners, const void *value, size_t len)
{
	struct disk_purge purge;
	struct disk_purge_extent extent;

	owners->purge_records++;
	if (len < sizeof(purge)) {
		problem(owners->report, "purge record is too short");
		return;
	}
	memcpy(&purge, value, sizeof(purge));
	if (purge.kind != PURGE_EXTENTS)
		return;
	for (size_t at = sizeof(purge); at + sizeof(extent) <= len; at += sizeof(extent)) {
		memcpy(&extent, (const uint8_t *)value + at, sizeof(extent));
		own(owners, le64_get(extent.start), le32_get(extent.length), "purge extent");
	}
}

static int own_records(struct owners *owners, unsigned index,
		       void (*use)(struct owners *, const void *, size_t))
{
	struct tree_cursor cursor;
	int rc = tree_cursor_open(&cursor, &owners->volume->index[index], NULL, 0);

	while (rc == 0 && (rc = tree_cursor_next(&cursor)) == 0)
		use(owners, cursor.value, cursor.value_len);
	tree_cursor_close(&cursor);
	return rc == -BE_END ? 0 : rc;
}

static int compare_bitmap(struct owners *owners, uint64_t group)
{
	struct volume *volume = owners->volume;
	uint64_t base = group * volume->geo.group_blocks;
	struct frame *frame;
	int rc = pool_get(volume->pool, volume->geo.groups_start + base, PAGE_BITMAP, 0, &frame);

	if (rc)
		return rc;
	for (uint64_t b = 0; b < volume->geo.group_blocks && base + b < owners->blocks; b++) {
		bool used = page_bit(frame->data, b);
		bool owned = owners->owned[(base + b) / 8] & 1u << (base + b) % 8;

		owners->report->blocks_used += used;
		if (used != owned)
			problem(owners->report, "block %" PRIu64 " is %s",
				volume->geo.groups_start + base + b,
				used ? "in use but has no owner" : "owned but free in its bitmap");
	}
	pool_put(frame);
	return 0;
}

/* INV-LOG-12 */
static void compare_tally(struct owners *owners)
{
	const struct geometry *geo = &owners->volume->geo;
	uint64_t tally = log_tally(owners->volume->log);
	uint64_t used = owners->report->blocks_used - (uint64_t)geo->group_count * geo->page_blocks;

	if (tally != 0 && tally != used)
		problem(owners->report, "%" PRIu64 " blocks in use, %" PRIu64 " are counted", used,
			tally);
}

static int check_blocks(struct owners *owners)
{
	struct volume *volume = owners->volume;
	const struct geometry *geo = &volume->geo;
	int rc = 0;

	own(owners, geo->system_page, geo->page_blocks, "system page");
	if (!geo->log_external && geo->log_start >= geo->groups_start)
		own(owners, geo->log_start, geo->log_bytes / BLOCK_SIZE, "redo log");
	for (uint64_t g = 0; g < geo->group_count; g++)
		own(owners, geo->groups_start + g * geo->group_blocks, geo->page_blocks,
		    "bitmap page");
	for (unsigned i = 0; rc == 0 && i < INDEX_COUNT; i++)
		rc = own_tree(owners, &volume->index[i]);
	if (rc == 0)
		rc = note_shares(owners);
	if (rc == 0)
		rc = own_records(owners, INDEX_LOB, own_extent);
	if (rc == 0)
		check_shares(owners);
	if (rc == 0)
		rc = own_records(owners, INDEX_PURGE, own_purge);
	if (rc == 0 && owners->purge_records != purge_lag(volume)) /* INV-PURGE-2 */
		problem(owners->report, "%" PRIu64 " purge records, %" PRIu64 " are counted",
			owners->purge_records, purge_lag(volume));
	for (uint64_t g = 0; rc == 0 && g < geo->group_count; g++)
		rc = compare_bitmap(owners, g);
	if (rc == 0)
		compare_tally(owners);
	return rc;
}

int volume_check(struct volume *volume, struct check_report *report)
{
	const struct geometry *geo = &volume->geo;
	struct owners owners = {
		.volume = volume,
		.report = report,
		.blocks = geo->block_count - 1 - geo->groups_start,
	};
	int rc = 0;

	owners.owned = calloc(1, owners.blocks / 8 + 1);
	if (owners.owned == NULL)
		return -ENOMEM;
	for (unsigned i = 0; rc == 0 && i < INDEX_COUNT; i++)
		rc = tree_check(&volume->index[i], report);
	if (rc == 0)
		rc = pool_take_tickets(volume->pool, 2);
	if (rc == 0) {
		rc = check_blocks(&owners);
		pool_give_tickets(volume->pool, 2);
	}
	free(owners.owned);
	free(owners.left);
	return rc;
}
