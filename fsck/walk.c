/*
 * fsck_walk(): the order of the passes, reporting, memory.  See walk.h.
 */
#include "fsck/walk.h"

#include "engine/base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define DETAIL_BYTES 1536u
#define FIXES_MAX 1000000u /* repaired in one round; more in the next */
#define WALK_STEPS 11u     /* calls of progress(): indexes, links, bitmaps, contents */

static const struct fsck_problem_kind kinds[] = {
#define X(name, number, severity, repair, title)                                                   \
	{number, SEVERITY_##severity, REPAIR_##repair, #name, title},
#include "fsck/problem.def"
#undef X
};

const struct fsck_problem_kind *fsck_problem_kind(unsigned number)
{
	for (size_t i = 0; i < array_count(kinds); i++)
		if (kinds[i].number == number)
			return &kinds[i];
	return NULL;
}

/* ---------------------------------------------------------------- reporting */

static void deliver(struct walk *w, enum fsck_problem_id id, bool repairable, const char *format,
		    va_list args)
{
	const struct fsck_problem_kind *kind = fsck_problem_kind(id);
	struct fsck_result *result = w->result;
	char detail[DETAIL_BYTES];

	w->number = id;
	vsnprintf(detail, sizeof(detail), format, args);
	if (kind->severity != SEVERITY_NOTE)
		result->problems++;
	if (kind->severity > SEVERITY_COUNT)
		result->serious++;
	if (kind->severity == SEVERITY_HIDES) {
		result->whole = false;
		w->extents_hidden |= w->index == INDEX_LOB;
	}
	if (repairable)
		result->repairable++;
	if (w->report) {
		struct fsck_problem found = {
			.number = kind->number,
			.severity = kind->severity,
			.repair = repairable ? kind->repair : REPAIR_NONE,
			.title = kind->title,
			.detail = detail,
		};
		w->report(w->report_arg, &found);
	}
}

void problem(struct walk *w, enum fsck_problem_id id, const char *detail, ...)
{
	va_list args;

	va_start(args, detail);
	deliver(w, id, false, detail, args);
	va_end(args);
}

void list_fix(struct walk *w, const struct fsck_fix *fix)
{
	struct fsck_result *result = w->result;

	if (!w->options->collect_fixes)
		return;
	if (result->fix_count == FIXES_MAX ||
	    (result->fix_count == w->fix_room &&
	     table_grow(NULL, NULL, (void **)&result->fixes, result->fix_count, &w->fix_room,
			sizeof(*result->fixes)))) {
		result->more_fixes = true;
		return;
	}
	result->fixes[result->fix_count] = *fix;
	result->fixes[result->fix_count++].number = (uint16_t)w->number;
}

void problem_v(struct walk *w, enum fsck_problem_id id, const struct fsck_fix *fix,
	       const char *detail, va_list args)
{
	enum fsck_repair repair = fsck_problem_kind(id)->repair;

	check(repair == REPAIR_SAFE || repair == REPAIR_FULL);
	deliver(w, id, true, detail, args);
	if (fix)
		list_fix(w, fix);
}

void problem_edit(struct walk *w, enum fsck_problem_id id, const struct fsck_fix *fix,
		  const char *detail, ...)
{
	va_list args;

	va_start(args, detail);
	problem_v(w, id, fix, detail, args);
	va_end(args);
}

void problem_fix(struct walk *w, enum fsck_problem_id id, enum fix_kind kind, uint64_t fix_id,
		 uint64_t value, const char *detail, ...)
{
	va_list args;

	va_start(args, detail);
	problem_v(w, id, &(struct fsck_fix){.kind = kind, .id = fix_id, .value = value}, detail,
		  args);
	va_end(args);
}

struct fsck_fix fix_record(enum fix_kind kind, unsigned index, const struct raw_key *key)
{
	struct fsck_fix fix = {.kind = kind, .index = (uint8_t)index, .key_len = key->len};

	check(key->len <= sizeof(fix.key));
	memcpy(fix.key, key->bytes, key->len);
	return fix;
}

struct fsck_fix fix_pair(enum fix_kind kind, unsigned index, uint64_t first, uint64_t second)
{
	struct raw_key key = {.len = 16};

	be64_put(key.bytes, first);
	be64_put(key.bytes + 8, second);
	return fix_record(kind, index, &key);
}

struct fsck_fix fix_single(enum fix_kind kind, unsigned index, uint64_t number)
{
	struct raw_key key = {.len = 8};

	be64_put(key.bytes, number);
	return fix_record(kind, index, &key);
}

enum fix_phase fsck_fix_phase(const struct fsck_fix *fix)
{
	switch (fix->kind) {
	case FIX_REBUILD:
	case FIX_SYSTEM:
	case FIX_LSN:
		return PHASE_TREE;
	case FIX_NEW_BITMAP:
	case FIX_SET_BITS:
	case FIX_TALLY:
		return PHASE_BITMAP;
	case FIX_COUNTER:
		return PHASE_COUNTER;
	default:
		return fsck_problem_kind(fix->number)->severity == SEVERITY_HIDES ? PHASE_HIDDEN
										  : PHASE_REST;
	}
}

void note_lsn(struct walk *w, const char *what, uint64_t pageno, const void *page)
{
	uint64_t lsn = le64_get(raw_head(page)->lsn), end = w->options->lsn_end;

	if (lsn < LSN_PLAUSIBLE_MAX && lsn > w->result->lsn_max)
		w->result->lsn_max = lsn;
	if (end && lsn > end)
		problem_fix(w, FSCK_PAGE_FUTURE, FIX_LSN, pageno, lsn,
			    "%s, page %" PRIu64 ": LSN %" PRIu64 ", end %" PRIu64, what, pageno,
			    lsn, end);
}

bool walk_cancelled(const struct walk *w)
{
	return w->options->cancelled && w->options->cancelled(w->options->arg);
}

/* The next step begins. */
static void progress(struct walk *w, const char *what)
{
	if (w->options->progress)
		w->options->progress(w->options->arg, what, w->step, WALK_STEPS);
	w->step++;
}

/* ------------------------------------------------------------------- tables */

struct inode_note *note_find(const struct walk *w, uint64_t ino)
{
	size_t low = 0, high = w->inodes.count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (w->inodes.at[middle].ino < ino)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == w->inodes.count || w->inodes.at[low].ino != ino)
		return NULL;
	return &w->inodes.at[low];
}

/* ---------------------------------------------------------------- the passes */

static int visit_unused(struct walk *w, const struct raw_entry *entry)
{
	struct fsck_fix fix;

	if (entry->key.len > sizeof(fix.key)) {
		problem(w, FSCK_INDEX_UNUSED, "a key of %u bytes", entry->key.len);
		return 0;
	}
	fix = fix_record(FIX_DELETE, w->index, &entry->key);
	problem_edit(w, FSCK_INDEX_UNUSED, &fix,
		     "this program does not know what its entries mean");
	return 0;
}

static int walk_indexes(struct walk *w)
{
	static const struct {
		const char *what;
		unsigned index;
		entry_visitor visit;
		int (*begin)(struct walk *w);
	} order[] = {
		{"shared extents", INDEX_SHARES, pass3_share, NULL},
		{"purge records", INDEX_PURGE, pass6_purge, NULL},
		{"inodes", INDEX_INODES, pass2_inode, NULL},
		{"extended attributes", INDEX_XATTRS, pass5_xattr, pass5_begin},
		{"names", INDEX_DIRENTS, pass4_name, pass4_begin},
		{"extents", INDEX_LOB, pass3_extent, pass3_begin},
		{"transactions", INDEX_TXN, visit_unused, NULL},
		{"overlays", INDEX_OVERLAY, visit_unused, NULL},
	};

	for (size_t i = 0; i < array_count(order); i++) {
		int rc = order[i].begin ? order[i].begin(w) : 0;

		progress(w, order[i].what);
		w->index = order[i].index;
		if (!rc)
			rc = pass1_tree(w, order[i].index, order[i].visit);
		if (rc)
			return rc;
	}
	w->index = INDEX_COUNT;
	return 0;
}

/* A copy of what is claimed so far, for whoever repairs. */
static int keep_claims(struct walk *w, uint64_t **out)
{
	uint64_t bytes = w->block_words * sizeof(uint64_t);

	if (!w->options->collect_fixes || !w->rebuild)
		return 0;
	*out = malloc(bytes);
	if (!*out)
		return -ENOMEM;
	memcpy(*out, w->blocks, bytes);
	return 0;
}

static int compare_and_finish(struct walk *w)
{
	int rc = pass3_finish(w);

	if (rc)
		return rc;
	progress(w, "links and counts");
	pass2_finish(w);
	pass5_finish(w);
	pass6_finish(w);
	pass4_finish(w);
	progress(w, "bitmaps");
	pass6_claim(w);
	rc = keep_claims(w, &w->result->claimed_data);
	if (!rc)
		rc = claim_pages_as_blocks(w);
	if (!rc)
		rc = keep_claims(w, &w->result->claimed);
	if (!rc)
		rc = pass7_bitmaps(w);
	if (!rc)
		pass1_counters(w);
	if (!rc && w->options->data) {
		progress(w, "file contents");
		rc = pass8_data(w);
	}
	return rc;
}

/* A log that was resized may lie in a group: no file's blocks, and no page's. */
static void claim_log(struct walk *w)
{
	const struct geometry *geo = &w->raw.geo;
	uint64_t twice;

	if (!geo->log_external && geo->log_start >= geo->groups_start)
		claim_blocks(w, geo->log_start, geo->log_bytes / BLOCK_SIZE, &twice);
}

static int walk_open(struct walk *w, struct device *dev)
{
	uint64_t blocks, pages;
	int rc = raw_open(&w->raw, dev);

	if (rc)
		return rc;
	blocks = (uint64_t)w->raw.geo.group_count * w->raw.geo.group_blocks;
	pages = blocks / w->raw.geo.page_blocks + 1;
	w->block_words = blocks / 64 + 1;
	w->blocks = calloc(w->block_words, sizeof(uint64_t));
	w->pages = calloc(pages / 64 + 1, sizeof(uint64_t));
	w->page_buf = malloc(w->raw.geo.page_size);
	w->result->blocks_total = w->raw.groups_end - w->raw.geo.groups_start;
	if (!w->blocks || !w->pages || !w->page_buf)
		return -ENOMEM;
	claim_log(w);
	return 0;
}

static void walk_free(struct walk *w)
{
	ahead_close(w->ahead);
	pass4_free(w);
	pass5_free(w);
	table_free(w->inodes);
	table_free(w->purges);
	table_free(w->purge_claims);
	table_free(w->shares);
	table_free(w->share_claims);
	table_free(w->owners);
	free(w->blocks);
	free(w->pages);
	free(w->page_buf);
}

int fsck_walk(struct device *dev, const struct fsck_options *options, fsck_report report, void *arg,
	      struct fsck_result *result)
{
	struct walk w = {
		.options = options,
		.report = report,
		.report_arg = arg,
		.result = result,
		.index = INDEX_COUNT,
		.limit.max = options->memory_bytes,
	};
	int rc;

	memset(result, 0, sizeof(*result));
	result->whole = true;
	rc = walk_open(&w, dev);
	if (!rc)
		rc = pass1_system(&w);
	if (!rc)
		rc = walk_indexes(&w);
	if (!rc)
		rc = compare_and_finish(&w);
	walk_free(&w);
	return rc;
}

void fsck_result_free(struct fsck_result *result)
{
	free(result->fixes);
	free(result->claimed);
	free(result->claimed_data);
	result->fixes = NULL;
	result->claimed = NULL;
	result->claimed_data = NULL;
	result->fix_count = 0;
}
