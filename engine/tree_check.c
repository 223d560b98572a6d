/*
 * Verifies a quiet tree: INV-TREE-2, -3, -4 and INV-PAGE-* of every page.
 * Walks each level along its right links, beside the parent level's entries.
 */
#include "engine/tree_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* One level's entries, or pages, from left to right. */
struct level {
	struct expected {
		uint64_t pageno;
		struct key low;
	} *page;
	size_t count, cap;
};

static int level_add(struct level *level, uint64_t pageno, const struct key *low)
{
	if (level->count == level->cap) {
		size_t cap = level->cap ? level->cap * 2 : 64;
		void *grown = realloc(level->page, cap * sizeof(*level->page));

		if (grown == NULL)
			return -ENOMEM;
		level->page = grown;
		level->cap = cap;
	}
	level->page[level->count++] = (struct expected){.pageno = pageno, .low = *low};
	return 0;
}

static void printf_like(4, 5)
	problem(struct tree *tree, struct check_report *report, uint64_t pageno,
		const char *format, ...)
{
	char text[256];
	int n = snprintf(text, sizeof(text), "index %u page %" PRIu64 ": ", tree->id, pageno);
	va_list args;

	va_start(args, format);
	vsnprintf(text + n, sizeof(text) - (size_t)n, format, args);
	va_end(args);
	report->problems++;
	if (report->problem)
		report->problem(report->arg, text);
}

/* Checks one page, collects its children, and returns its right link and fences. */
struct seen {
	uint64_t right;
	struct key low, high;
	uint8_t level, flags;
};

static int check_page(struct tree *tree, struct check_report *report, uint64_t pageno,
		      struct level *children, struct seen *seen)
{
	struct volume *volume = tree->volume;
	struct frame *frame;
	const char *why = NULL;
	int rc = pool_get(volume->pool, pageno, PAGE_TREE, tree->id, &frame);

	if (rc) {
		problem(tree, report, pageno, "cannot be read");
		return rc;
	}
	latch_s(&frame->latch);
	if (page_verify_structure(frame->data, volume->geo.page_size, &why))
		problem(tree, report, pageno, "%s", why ? why : "malformed");
	seen->right = le64_get(tree_page(frame->data)->right);
	seen->level = tree_page(frame->data)->head.level;
	seen->flags = tree_page(frame->data)->head.flags;
	page_low(frame->data, &seen->low);
	page_high(frame->data, &seen->high);
	for (unsigned i = 0; seen->level > 0 && rc == 0 && i < page_slots(frame->data); i++) {
		struct key low;

		page_key(frame->data, i, &low);
		rc = level_add(children, page_child(frame->data, i), &low);
	}
	unlatch_s(&frame->latch);
	pool_put(frame);
	report->pages++;
	return rc;
}

/*
 * Walks one level from its leftmost page; `expected` are the entries of the
 * level above.  A page without an entry must follow an INCOMPLETE one.
 */
static int check_level(struct tree *tree, struct check_report *report, unsigned level,
		       const struct level *expected, struct level *children)
{
	uint64_t pageno = expected->page[0].pageno;
	struct key low = expected->page[0].low;
	bool incomplete = false;
	size_t next = 0;

	while (pageno != 0) {
		struct seen seen = {0};
		int rc = check_page(tree, report, pageno, children, &seen);

		if (rc)
			return rc;
		if (seen.level != level)
			problem(tree, report, pageno, "level %u, expected %u", seen.level, level);
		if (seen.flags & PAGE_DEAD)
			problem(tree, report, pageno, "DEAD but reachable");
		if (!key_equal(&seen.low, &low))
			problem(tree, report, pageno,
				"low fence does not meet its left neighbour's high");
		if (next < expected->count && expected->page[next].pageno == pageno) {
			if (!key_equal(&expected->page[next].low, &low))
				problem(tree, report, pageno, "parent entry is not its low fence");
			if (incomplete)
				problem(tree, report, pageno,
					"left neighbour INCOMPLETE but entry present");
			next++;
		} else if (!incomplete) {
			problem(tree, report, pageno, "no entry in the parent");
		}
		if (report->pages > tree->volume->geo.block_count)
			return corrupt_at(tree->volume, pageno, "tree_check",
					  "cycle of right links");
		incomplete = seen.flags & PAGE_INCOMPLETE;
		low = seen.high;
		pageno = seen.right;
	}
	if (next != expected->count)
		problem(tree, report, expected->page[next].pageno, "parent entry without a page");
	return 0;
}

int tree_check(struct tree *tree, struct check_report *report)
{
	struct volume *volume = tree->volume;
	struct level expected = {0};
	const struct key none = {.len = 0};
	struct frame *root;
	unsigned level;
	int rc = pool_take_tickets(volume->pool, 2);

	if (rc)
		return rc;
	rc = pool_get(volume->pool, tree->root, PAGE_TREE, tree->id, &root);
	if (rc)
		goto out;
	level = tree_page(root->data)->head.level;
	pool_put(root);
	rc = level_add(&expected, tree->root, &none);
	while (rc == 0) {
		struct level children = {0};

		rc = check_level(tree, report, level, &expected, &children);
		free(expected.page);
		expected = children;
		if (level == 0)
			break;
		level--;
		if (rc == 0 && expected.count == 0) {
			problem(tree, report, tree->root, "level %u has no pages", level);
			break;
		}
	}
out:
	free(expected.page);
	pool_give_tickets(volume->pool, 2);
	return rc;
}
