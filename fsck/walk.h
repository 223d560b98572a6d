/*
 * Inside fsck_walk(): what the passes share.
 *
 * Each index is walked once, page by page and in key order (pass 1), and each
 * of its entries is handed to the pass that understands it:
 *
 *	index     entries go to        which remembers
 *	shares    pass 3               ranges and reference counts
 *	purge     pass 6               records; blocks that they name
 *	inodes    pass 2               one struct inode_note each, in ino order
 *	xattrs    pass 5               counts; LOBs of long values
 *	dirents   pass 4               names found; holders of directories
 *	lob       pass 3               blocks; sums by owner
 *	txn, overlay                   nothing: not in use in this version
 *
 * Then each pass compares what it remembered, and pass 7 compares all that was
 * claimed with the bitmaps.
 *
 * INV-FSCK-1: a repair is derived only from a walk in which nothing was hidden
 *	(result->whole): what could not be read might own what seems to be free.
 * INV-FSCK-2: whatever the bytes are, the walk ends: a page is entered once
 *	(claimed before it is looked into), levels descend, entries ascend.
 */
#ifndef BLINKFS_FSCK_WALK_H
#define BLINKFS_FSCK_WALK_H

#include "fsck/ahead.h"
#include "fsck/check.h"
#include "fsck/raw.h"
#include "fsck/table.h"

#include <stdarg.h>

/* ---------------------------------------------------------- what is remembered */

enum note_flags {
	NOTE_CONTENTS = 1,  /* inline bytes that somebody may miss */
	NOTE_DEAD = 2,      /* has a pending dead range */
	NOTE_PURGED = 4,    /* its purge record exists and agrees */
	NOTE_REACHED = 8,   /* directory: reached from the root */
	NOTE_WALKING = 16,  /* directory: on the path that is being followed */
	NOTE_DETACHED = 32, /* directory: cannot be reached; reported */
	NOTE_AT_HOME = 64,  /* directory: its name is where its record says */
};

struct inode_note {
	uint64_t ino, lob, size, parent, purge_key;
	uint64_t blocks, blocks_found;
	uint64_t entries, entries_found;
	uint32_t nlink, names_found, subdirs_found;
	uint32_t xattrs, xattrs_found;
	uint64_t parent_recorded; /* directory: before `parent` became where its name is */
	uint64_t name_suffix; /* directory: of its entry in `parent`, once names_found is not 0 */
	uint16_t mode;
	uint16_t flags; /* enum note_flags */
};

struct purge_note {
	uint64_t key, ino, lob, first, end;
	uint8_t kind; /* enum purge_kind */
};

/* Blocks that a purge record lists: claimed last, so that a file keeps what both name. */
struct purge_claim {
	uint64_t key, start, length;
};

struct share_note {
	uint64_t start, length;
	uint32_t references;
};

/* A use of blocks inside a share. */
struct share_claim {
	uint64_t start, length;
};

enum owner_kind { OWNER_INODE, OWNER_XATTR, OWNER_PURGE };

struct lob_owner {
	uint64_t lob;
	uint64_t id;       /* inode number or purge key */
	uint64_t expected; /* OWNER_XATTR: blocks; OWNER_PURGE: first block that is left */
	uint64_t suffix;   /* OWNER_XATTR: of its key */
	uint8_t kind;      /* enum owner_kind */
	bool has_extents;
};

struct walk {
	struct raw_volume raw;
	const struct fsck_options *options;
	fsck_report report;
	void *report_arg;
	struct fsck_result *result;
	size_t fix_room;
	unsigned number;     /* of the problem that was reported last */
	unsigned index;      /* whose entries come at present; INDEX_COUNT: none */
	bool extents_hidden; /* blocks of files are not all known */
	bool rebuild;        /* a tree is to be rebuilt: that needs to know what is claimed */

	uint64_t *pages;  /* one bit a page: reached by a tree or fixed (INV-FSCK-2) */
	uint64_t *blocks; /* one bit a block from groups_start: claimed */
	uint64_t block_words;
	uint64_t counter[COUNTER_COUNT];
	bool counters_known;
	uint8_t *page_buf; /* for single pages outside the tree walk */
	struct ahead *ahead; /* NULL: no leaf was wanted yet */

	struct table_limit limit; /* of all tables */
	TABLE(struct inode_note) inodes;
	TABLE(struct purge_note) purges;
	TABLE(struct purge_claim) purge_claims;
	TABLE(struct share_note) shares;
	TABLE(struct share_claim) share_claims;
	TABLE(struct lob_owner) owners; /* sorted by lob once pass 3 begins */

	struct names_state *names;   /* pass 4 */
	struct xattrs_state *xattrs; /* pass 5 */
	struct lob_state {           /* pass 3: the LOB that is being read */
		bool any;
		bool unowned;
		uint64_t lob, next_block, blocks;
		size_t owner; /* index of the first owner with lob >= this one */
	} lob;
	unsigned step; /* of progress() */
};

/* ------------------------------------------------------------------- walk.c */

/* Reports; the detail says where. */
void problem(struct walk *w, enum fsck_problem_id id, const char *detail, ...) printf_like(3, 4);
/* Reports, and lists what would repair it. */
void problem_fix(struct walk *w, enum fsck_problem_id id, enum fix_kind kind, uint64_t fix_id,
		 uint64_t value, const char *detail, ...) printf_like(6, 7);
void problem_edit(struct walk *w, enum fsck_problem_id id, const struct fsck_fix *fix,
		  const char *detail, ...) printf_like(4, 5);
void problem_v(struct walk *w, enum fsck_problem_id id, const struct fsck_fix *fix,
	       const char *detail, va_list args);
/* One more step of the repair of the problem reported last. */
void list_fix(struct walk *w, const struct fsck_fix *fix);
/* A fix of the record with a key. */
struct fsck_fix fix_record(enum fix_kind kind, unsigned index, const struct raw_key *key);
struct fsck_fix fix_pair(enum fix_kind kind, unsigned index, uint64_t first, uint64_t second);
struct fsck_fix fix_single(enum fix_kind kind, unsigned index, uint64_t key);

/* A page that was verified: is its LSN below the end of the log? */
void note_lsn(struct walk *w, const char *what, uint64_t pageno, const void *page);
/* Above it an LSN is nonsense; the log itself ends at 2^62. */
#define LSN_PLAUSIBLE_MAX (1ull << 61)

bool walk_cancelled(const struct walk *w);

/* NULL when there is none.  Needs pass 2. */
struct inode_note *note_find(const struct walk *w, uint64_t ino);

/* --------------------------------------------------------------- blocks.c */

/* Marks a page as reached; false when it was already. */
bool claim_page(struct walk *w, uint64_t pageno);
/*
 * Marks blocks within the groups as used by a file or a purge record; *first_twice
 * gets the first that was claimed already, UINT64_MAX when none was.
 */
void claim_blocks(struct walk *w, uint64_t start, uint64_t count, uint64_t *first_twice);
/* Adds the pages to the blocks; what is both is reported. */
int claim_pages_as_blocks(struct walk *w) must_check;

/* Runs of set bits in `bits`, from *from on: false when there is no more below `end`. */
bool next_run(const uint64_t *bits, uint64_t *from, uint64_t end, uint64_t *start, uint64_t *count);

/* ------------------------------------------------------------------ passes */

typedef int (*entry_visitor)(struct walk *w, const struct raw_entry *entry);

int pass1_tree(struct walk *w, unsigned index, entry_visitor visit) must_check;
int pass1_system(struct walk *w) must_check;
/* When the system page is to be built anew: from the greatest numbers that were met. */
void pass1_counters(struct walk *w);

int pass2_inode(struct walk *w, const struct raw_entry *entry) must_check;
void pass2_finish(struct walk *w);

int pass3_share(struct walk *w, const struct raw_entry *entry) must_check;
int pass3_begin(struct walk *w) must_check;
int pass3_extent(struct walk *w, const struct raw_entry *entry) must_check;
int pass3_finish(struct walk *w) must_check;

int pass4_begin(struct walk *w) must_check;
int pass4_name(struct walk *w, const struct raw_entry *entry) must_check;
void pass4_finish(struct walk *w);
void pass4_free(struct walk *w);

int pass5_begin(struct walk *w) must_check;
int pass5_xattr(struct walk *w, const struct raw_entry *entry) must_check;
void pass5_finish(struct walk *w);
void pass5_free(struct walk *w);

int pass6_purge(struct walk *w, const struct raw_entry *entry) must_check;
void pass6_finish(struct walk *w);
void pass6_claim(struct walk *w);

int pass7_bitmaps(struct walk *w) must_check;

int pass8_data(struct walk *w) must_check;

/* The extent in a record: false when it is malformed, *why says how. */
struct extent {
	uint64_t lob, first, start;
	uint32_t length;
	bool unwritten;
	const uint8_t *crcs; /* length times le32 */
};
bool raw_extent_decode(const struct raw_entry *entry, struct extent *out, const char **why);

#endif
